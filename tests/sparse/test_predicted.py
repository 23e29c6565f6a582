"""Predicted against actual: actual by counting dense arrays, models by listing, real data and their skew."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from polymodel.api.sparse import predict
from polymodel.errors import SpecError
from polymodel.report.predictions import Predictions
from polymodel.sparse.density import Actual, RankNnz, Uniform
from polymodel.sparse.predicted import predictions
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults, refused
from tests.sparse import data


def drawn(shape: tuple[int, ...], nnz: int, seed: int = 0) -> SparseTensor:
    rng = np.random.default_rng(seed)
    points = rng.choice(int(np.prod(shape)), nnz, replace=False)
    return SparseTensor.from_coo(
        "A", "IJK"[: len(shape)], shape, np.unravel_index(points, shape), np.ones(nnz)
    )


def by_name(found: Predictions | tuple[object, ...]) -> dict[str, object]:
    rows = found.found if isinstance(found, Predictions) else found
    return {p.quantity: p for p in rows}


def test_actual_numbers_are_those_of_the_dense_array() -> None:
    tensor = drawn((13, 13), 40)
    dense = tensor.to_dense() != 0
    tiles = [dense[r : r + 4, c : c + 4].sum() for r in range(0, 13, 4) for c in range(0, 13, 4)]
    found = {p.quantity: p.actual for p in predictions(tensor, tiles=(4,), slices=3)}
    assert found["nonempty rows"] == dense.any(axis=1).sum()
    assert found["nonempty tiles of 4 x 4"] == sum(t > 0 for t in tiles)
    assert found["fullest tile of 4 x 4"] == max(tiles)
    loads = [0, 0, 0]
    for n in dense.sum(axis=1):
        loads[loads.index(min(loads))] += n
    assert found["fullest of 3 slices"] == max(loads)
    assert found["multiplies of A x A"] == (dense.astype(int) @ dense.astype(int)).sum()


def test_products_expected_are_means_over_all_placements() -> None:
    points = [(i, j) for i in range(3) for j in range(3)]
    chosen = list(combinations(points, 4))
    matrices = np.zeros((len(chosen), 3, 3), int)
    for n, some in enumerate(chosen):
        for i, j in some:
            matrices[n, i, j] = 1
    multiplies = (matrices @ matrices).sum(axis=(1, 2))
    assert Uniform(("I", "J"), (3, 3), 4).square_multiplies() == pytest.approx(multiplies.mean(), rel=1e-12)
    rows = matrices.sum(axis=2)
    for histogram in ((2, 2, 0), (3, 1, 0), (1, 1, 2)):
        mine = multiplies[(rows == histogram).all(axis=1)]
        model = RankNnz.of(("I", "J"), (3, 3), histogram)
        assert model.square_multiplies() == pytest.approx(mine.mean(), rel=1e-12)


@pytest.mark.parametrize("name", sorted(data.index()))
@pytest.mark.thin(99)
def test_real_data_are_told_apart_from_uniform(name: str) -> None:
    tensor = data.tensor(name)
    found = predict(tensor)
    for p in found.found:
        for expected in (p.uniform, p.rows):
            assert expected is not None, p
            assert np.isfinite(expected), p
    rows = by_name(found)["nonempty rows"]
    assert rows.rows == pytest.approx(rows.actual)  # type: ignore[attr-defined]  # of a Prediction
    assert Actual.of(tensor).label == "exact"
    # None of these matrices is random: each is clustered or more even than random rows.
    assert len(found.notes) > 1


def test_uniform_data_are_predicted_and_not_warned_about() -> None:
    found = predict(drawn((900, 800), 14_000, seed=4), tiles=(50,))
    assert len(found.notes) == 1
    for p in found.found:
        assert abs(p.error("uniform") or 0) < 0.12, p


def test_table_text_and_faults() -> None:
    found = predict(drawn((8, 9, 4), 20), tiles=(2, 4))
    assert list(found.frame.columns)[:4] == ["tensor", "quantity", "unit", "actual"]
    assert "nonempty (I, J) fibers" in str(found)
    assert "<table>" in found._repr_html_()
    with pytest.raises(SpecError) as error:
        predict(drawn((4, 4), 3), tiles=(0,), slices=0)
    assert "tiles of size 0" in str(error.value)
    assert "slices 0" in str(error.value)


def test_a_column_that_may_be_coordinates_is_told(tmp_path: Path) -> None:
    file = tmp_path / "graph.tns"
    file.write_text("1 1 3\n1 1 4\n2 5 2\n")
    assert any("1 entries were added to others" in note for note in predict(file).notes)
    file.write_text("# field: pattern\n1 1 3\n1 1 4\n2 5 2\n")
    found = predict(file)
    assert not any("taken for values" in note for note in found.notes)
    assert found.frame.actual[0] == 2


def test_more_rows_than_a_histogram_holds_are_refused() -> None:
    tall = SparseTensor.from_coo("tall", ("I", "J"), (2_000_000_000, 3), [[5], [1]], [1])
    with refused("too-large", "2,000,000,000"):
        predict(tall)
    with faults("not-positive-integer", at="tiles"):
        predictions(tall, tiles="x")  # type: ignore[arg-type]  # wrong on purpose
