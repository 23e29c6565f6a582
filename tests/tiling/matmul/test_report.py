"""What users see of a tiled multiplication: tables, text, CSV, pictures, faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from tests.tiling.matmul.slow import points, words

DENSE = np.random.default_rng(4).random((40, 40)) < 0.08
Z = DENSE.astype(int) @ DENSE.astype(int)
TABLES = ("summary", "orders", "tiles", "candidates", "pieces")


@pytest.fixture(scope="module")
def tensor() -> pm.SparseTensor:
    return pm.SparseTensor.from_dense("M", ("I", "J"), DENSE)


@pytest.fixture(scope="module")
def searched(tensor: pm.SparseTensor) -> pm.MatmulTiling:
    return pm.tile_matmul(tensor, capacity=64)


def test_given_tiles_in_every_order(tensor: pm.SparseTensor) -> None:
    found = pm.tile_matmul(tensor, tile=(8, 16, 8), pes=4, bandwidth=2.0)
    assert list(found.orders["order"]) == ["ijk", "ikj", "kij", "jki", "kji", "jik"]
    assert found.cycles == found.orders["cycles"].min()
    assert found.words == found.orders["total_words"][found.orders["cycles"].idxmin()]
    parts = found.orders[["A_read_words", "B_read_words", "Z_read_words", "Z_write_words"]]
    assert (parts.sum(axis=1) == found.orders["total_words"]).all()
    launches = len(found.pieces)
    multiplies = int(DENSE.sum(axis=0) @ DENSE.sum(axis=1))
    assert found.cycles == max(multiplies / 4, found.words / 2) + launches * (907 + 8)
    assert found.summary.set_index("quantity")["value"]["effectual pairs"] == launches
    assert found.fits
    assert list(found.tiles["tensor"]) == ["A", "B", "Z"]


def test_one_order_and_the_transposed(tensor: pm.SparseTensor) -> None:
    found = pm.tile_matmul(tensor, pm.Transposed(), tile=(8, 8, 8), order="kij")
    assert list(found.orders["order"]) == ["kij"]
    assert found.product.second == "M transposed"
    assert found.product.z.nnz == np.count_nonzero(DENSE.astype(int) @ DENSE.T.astype(int))


def test_tiles_that_exceed_their_buffers_are_told_or_streamed(tensor: pm.SparseTensor) -> None:
    over = pm.tile_matmul(tensor, tile=(20, 20, 20), capacity=64)
    assert not over.fits
    assert any("exceed their buffers: 4/4/4" in note for note in over.notes)
    streamed = pm.tile_matmul(tensor, tile=(20, 20, 20), capacity=64, strategy="overbooked")
    assert streamed.fits
    assert streamed.words == over.orders["total_words"].min() + streamed.best.traffic.streamed or (
        streamed.best.traffic.order != over.best.traffic.order
    )
    assert any("what exceeds it is moved at every use" in note for note in streamed.notes)


@pytest.mark.parametrize("strategy", ["uniform", "panels", "dynamic", "overbooked"])
def test_every_strategy_reports_alike(tensor: pm.SparseTensor, strategy: str) -> None:
    found = pm.tile_matmul(tensor, capacity=(64, 64, 200), strategy=strategy)
    assert set(found.candidates["strategy"]) == {strategy}
    assert found.fits
    assert int(found.tiles["over"].sum()) == 0 or strategy == "overbooked"
    assert found.ratio >= 1
    launched = found.pieces if strategy != "panels" else found.pieces[found.pieces["B_rows"] > 0]
    assert len(launched) == found.best.launches
    assert f"{strategy}, {found.best.tile}" in str(found)


def test_unbounded_buffers_move_everything_once(tensor: pm.SparseTensor) -> None:
    found = pm.tile_matmul(tensor, capacity=(None, None, None), strategy="uniform", objective="words")
    assert found.best.launches == 1
    assert found.words == sum(words(points(x)) for x in (DENSE, DENSE, Z))
    meets = DENSE & DENSE.any(axis=1), DENSE & DENSE.any(axis=0)[:, None]
    assert found.compulsory_words == sum(words(points(x)) - 3 for x in (*meets, Z))
    assert found.tiles["capacity_words"].isna().all()


def test_text_html_and_csv(searched: pm.MatmulTiling, tmp_path: Path) -> None:
    text = str(searched)
    assert text.startswith("M (40 x 40) times M (40 x 40): ")
    assert "candidates" in text
    assert "cycles: a model" in text
    assert "<table>" in searched._repr_html_()
    assert "x the least" in repr(searched)
    written = searched.to_csv(tmp_path / "out")
    assert [p.name for p in written] == [f"{n}.csv" for n in TABLES]
    lines = written[3].read_text().splitlines()
    assert lines[0].startswith("strategy,tile,order,launches,total_words")
    assert len(lines) == len(searched.found) + 1


def test_pictures(searched: pm.MatmulTiling, tensor: pm.SparseTensor) -> None:
    ax = searched.plot_strategies()
    bars = [c for c in ax.containers if len(c)]
    heights = np.sum([[bar.get_height() for bar in group] for group in bars], axis=0)
    best = searched.candidates.drop_duplicates("strategy")
    assert heights.tolist() == best["total_words"].tolist()
    found = pm.tile_matmul(tensor, tile=(8, 8, 8))
    ax = found.plot()
    legend = ax.get_legend()
    assert legend is not None
    stacked = ["Z write", "Z read", "B read", "A read"]
    assert [t.get_text() for t in legend.get_texts()] == ["what is used, once", *stacked]
    heights = np.sum([[bar.get_height() for bar in group] for group in ax.containers if len(group)], axis=0)
    assert heights.tolist() == found.orders["total_words"].tolist()
    assert ax.get_ylabel() == "words moved"


def test_an_empty_factor_moves_nothing() -> None:
    empty = pm.SparseTensor.from_dense("E", ("I", "J"), np.zeros((5, 5)))
    for strategy in ("uniform", "panels", "dynamic", "overbooked", "search"):
        found = pm.tile_matmul(empty, capacity=16, strategy=strategy)
        assert (found.words, found.cycles, found.ratio) == (0, 0, 1.0)
        assert str(found)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "neither tile nor capacity"),
        ({"tile": (8, 8)}, "has 2 sizes"),
        ({"tile": (8, 8, 0)}, "tile size 0 of rank j"),
        ({"capacity": 0}, "capacity 0"),
        ({"capacity": (8, 8)}, "2 capacities"),
        ({"capacity": 64, "order": "ijx"}, "no order 'ijx'"),
        ({"capacity": 64, "order": ()}, "no order of the loops"),
        ({"capacity": 64, "strategy": "best"}, "no strategy 'best'"),
        ({"tile": (8, 8, 8), "strategy": "panels"}, "chooses its tiles itself"),
        ({"tile": (8, 8, 8), "strategy": "overbooked"}, "need a capacity"),
        ({"capacity": 64, "objective": "cycles"}, "objective 'cycles'"),
        (
            {"capacity": 64, "overbook": 1.5, "time_limit": 0},
            "2 faults(.|\n)*1.5(.|\n)*time_limit 0",
        ),
        ({"capacity": 64, "pes": 0, "bandwidth": 0}, "2 faults(.|\n)*pes 0(.|\n)*bandwidth 0"),
        ({"capacity": 64, "grid": ((1,), (), (1,))}, "has no sizes for each"),
        ({"capacity": 64, "launch": 3}, "Launch"),
    ],
)
def test_faults_are_told(tensor: pm.SparseTensor, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(pm.SpecError, match=said):
        pm.tile_matmul(tensor, **arguments)


def test_a_grid_of_ones_own(tensor: pm.SparseTensor) -> None:
    found = pm.tile_matmul(tensor, capacity=1000, strategy="uniform", grid=((5, 10), (7,), (10,)))
    assert {c.tile for c in found.found} <= {"5 x 7 x 10", "10 x 7 x 10"}


def test_a_fit_is_no_capacity_of_a_product(tensor: pm.SparseTensor) -> None:
    with pytest.raises(pm.SpecError) as caught:
        pm.tile_matmul(tensor, capacity=pm.words(64))  # type: ignore[arg-type]  # what pm.tile takes
    assert caught.value.diagnostics[0].remedy == "write words, e.g. 2048"


def test_a_tile_beyond_the_matrix_is_the_whole_of_it() -> None:
    tensor = pm.random_tensor(["I", "J"], [9, 9], 0.3, seed=1)
    whole = pm.tile_matmul(tensor, tile=(9, 9, 9))
    for size in (10, 2**32 - 1, 2**61):
        assert pm.tile_matmul(tensor, tile=(size, size, 9)).table("summary") == whole.table("summary")
