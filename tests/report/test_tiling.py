"""`pm.tile` and what it returns, from Python."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import scipy.sparse

import polymodel as pm
from polymodel.report.tiling.tables import COLUMNS, every
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.plane.operands import Second
from tests.faults import faults
from tests.seeds import seeds

matplotlib.use("agg")
MATRICES = Path(__file__).resolve().parents[1] / "data" / "matrices"


def matrix(name: str) -> str:
    return str(MATRICES / f"{name}.mtx.gz")


def market(folder: Path, size: str, *entries: str) -> Path:
    path = folder / "m.mtx"
    path.write_text("\n".join(["%%MatrixMarket matrix coordinate real general", size, *entries]) + "\n")
    return path


def test_figures_are_those_of_the_published_pattern() -> None:
    found = pm.tile(matrix("diagonal"), tiler="btree")
    assert (found.costs.tiles, found.costs.nonempty, found.costs.kernels) == (62, 48, 48)
    assert found.costs.config_cycles == 48 * 824
    assert (found.lower_bound, found.ratio) == (31, 48 / 31)
    assert found.tiler == "btree"
    assert found.seconds > 0


def test_tiles_are_counts_of_the_data() -> None:
    rng = np.random.default_rng(4)
    dense = (rng.random((23, 31)) < 0.2) * rng.normal(size=(23, 31))
    found = pm.tile(scipy.sparse.csr_array(dense), pm.Rolled(3), fit=pm.elements(20), tiler="qtree+merge")
    other = np.roll(dense, 3, axis=0)
    covered = np.zeros(dense.shape, dtype=int)
    assert tuple(found.tiles.columns) == COLUMNS
    for t in found.tiles.itertuples():
        here = np.s_[t.row : t.row + t.height, t.col : t.col + t.width]
        a, b = dense[here] != 0, other[here] != 0
        covered[here] += 1
        assert (t.nnz_a, t.nnz_b) == (a.sum(), b.sum())
        either = a | b
        assert t.launched == either.any()
        assert t.cycles == (8 + either.sum() + either.any(axis=1).sum() if t.launched else 0)
        assert t.fits
        assert a.sum() + b.sum() <= 20
        rows_a, rows_b = a.any(axis=1).sum(), b.any(axis=1).sum()
        both = min(a.sum() + b.sum(), a.size), min(t.height, rows_a + rows_b)
        parts = [(a.sum(), rows_a), (b.sum(), rows_b), both]
        assert t.words == max(2 * n + 2 * r + 3 for n, r in parts)
    assert (covered == 1).all()
    assert found.tiles["cycles"].sum() == found.costs.run_cycles


def test_summary_measures_against_simple() -> None:
    found = pm.tile(matrix("pairs"), tiler="btree")
    table = found.comparison(("simple", "qtree+merge")).set_index("tiler")
    assert list(table.index) == ["simple", "qtree+merge", "btree"]
    simple, merged = table.loc["simple"], table.loc["qtree+merge"]
    assert simple["speedup"] == 1
    assert simple["config_reduction"] == 0
    assert merged["speedup"] == simple["run_cycles"] / merged["run_cycles"]
    assert merged["config_reduction"] == pytest.approx(1 - merged["kernels"] / simple["kernels"])
    assert merged["total_cycles"] == merged["config_cycles"] + merged["run_cycles"]
    assert merged["over_bound"] == merged["nonempty"] / found.lower_bound
    assert (table["search_s"] > 0).all()
    assert found.comparison(("qtree",))["speedup"].isna().all()
    with faults("wrong-type", "simple", at=""):
        found.comparison("simple")


@pytest.mark.parametrize("objective", ["cycles", "tiles", "total"])
def test_best_is_told_and_is_no_worse(objective: str) -> None:
    found = pm.tile(matrix("programme"), objective=objective)  # type: ignore[arg-type]  # one of three names
    measure = {"cycles": "run_cycles", "tiles": "kernels", "total": "total_cycles"}[objective]
    table = found.comparison(every(found.task))
    assert table[measure].min() == table[table["tiler"].str.startswith("best")][measure].item()
    assert found.tiler != "best"
    assert found.tiler in str(found)
    assert found.summary["tiler"].iloc[-1] == f"best: {found.tiler}"


def test_compat_repeats_tiler_swift_and_warns() -> None:
    found = pm.tile(matrix("chessboard"), op="multiply", compat="tiler-swift")
    assert found.tiler == "tiler-swift qtree+merge"
    assert found.launch.run == "all"
    warned = [n for n in found.notes if n.startswith("WARNING")]
    assert warned == ["WARNING: 1 tile does not fit 128 elements: (315, 0) of 157 x 21"]
    assert list(found.summary["tiler"].str.removeprefix("tiler-swift ")) == list(every(found.task))
    assert not pm.tile(matrix("chessboard"), op="multiply", tiler="qtree+merge").costs.overflowing
    with faults("wrong-type", "other", at=""):
        pm.tile(matrix("chessboard"), compat="other")  # type: ignore[arg-type]  # the fault is the test


def test_operands_of_every_kind(tmp_path: Path) -> None:
    dense = np.diag([1.0, 2.0, 3.0])
    a = SparseTensor.from_dense("A", ("I", "J"), dense)
    path = market(tmp_path, "3 3 3", "1 1 1", "2 2 2", "3 3 3")
    packed = tmp_path / "m.mtx.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    figures = {
        str(pm.tile(source, b, fit=pm.elements(4), tiler="btree").tiles)
        for source in (a, path, str(packed), scipy.sparse.coo_matrix(dense))
        for b in (pm.Rolled(1), SparseTensor.from_dense("B", ("I", "J"), np.roll(dense, 1, axis=0)))
    }
    assert len(figures) == 1
    assert pm.tile(a, pm.Alone(), tiler="btree").pattern.nnz_b == 0
    assert pm.tile(a, pm.Transposed(), tiler="btree").pattern.points == 3
    with faults("wrong-type", at=""):
        pm.tile(3)  # type: ignore[arg-type]  # the fault is the test


def test_zeros_and_duplicates_of_a_file_are_told(tmp_path: Path) -> None:
    path = market(tmp_path, "3 5 4", "1 1 1", "1 1 2", "2 2 0", "3 5 7")
    found = pm.tile(path, pm.Alone(), fit=pm.elements(1), tiler="btree")
    assert found.pattern.nnz_a == 2
    assert "m: 1 explicit zero removed, 1 duplicate summed" in found.notes
    assert found.tiles["nnz_a"].max() == 1


@pytest.mark.parametrize("tiler", seeds(3, ["best", "simple", "qtree+merge", "btree"]))
@pytest.mark.parametrize("op", seeds(1, ["multiply", "add"]))
@pytest.mark.parametrize(
    ("shape", "points"), [((5, 7), 0), ((5, 7), 1), ((1, 33), 12), ((33, 1), 12), ((1, 1), 1), ((13,), 5)]
)
@pytest.mark.thin(99)
def test_odd_operands(shape: tuple[int, ...], points: int, op: str, tiler: str) -> None:
    rng = np.random.default_rng(points)
    at = np.stack([rng.permutation(s)[:points] if s >= points else np.zeros(points, int) for s in shape])
    a = SparseTensor.from_coo("M", ("I", "J")[: len(shape)], shape, at, np.ones(points))
    found = pm.tile(a, op=op, fit=pm.elements(4), tiler=tiler)
    tiles = found.tiles
    assert (tiles["height"] * tiles["width"]).sum() == np.prod(shape)
    assert tiles["nnz_a"].sum() == tiles["nnz_b"].sum() == a.nnz
    assert tiles["fits"].all()
    assert str(found)
    assert found._repr_html_()
    assert found.advice() or not points
    found.plot().figure.canvas.draw()
    found.plot_comparison().canvas.draw()


def test_every_entry_of_the_launch_counts() -> None:
    launch = pm.Launch(config_add=100, ramp=0, run="all", clock_mhz=500)
    found = pm.tile(matrix("diagonal"), tiler="btree", launch=launch)
    assert found.costs.config_cycles == 62 * 100
    assert "at 500 MHz" in str(found)
    assert any("14 tiles hold no entry" in line for line in found.advice())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"op": "matmul"}, "pm.tile_matmul"),
        ({"op": "divide"}, "'divide' is not an operation"),
        ({"fit": 128}, "pm.elements"),
        ({"launch": 3}, "Launch"),
        ({"tiler": "btre"}, "btree"),
        ({"objective": "speed"}, "speed"),
        ({"ranks": ("I", "Q")}, "rank 'Q'"),
        ({"b": "nowhere.mtx"}, "nowhere.mtx"),
        ({"fit": pm.words(6)}, "at least 7 words"),
    ],
)
def test_faults_say_what_would_be_right(options: dict[str, object], told: str) -> None:
    with pytest.raises(pm.SpecError, match=told.replace("(", r"\(")):
        pm.tile(matrix("diagonal"), **options)  # type: ignore[arg-type]  # faults are the test


def test_formats_fit_too() -> None:
    found = pm.tile(matrix("relations"), fit=pm.stored("CSR", 9000), tiler="btree")
    assert found.tiles["fits"].all()
    assert "9,000 bits in CSR" in str(found)


def test_text_says_what_matters() -> None:
    found = pm.tile(matrix("diagonal"), tiler="btree")
    text = str(found)
    assert text.startswith("diagonal (1,922 x 1,922, 1,922 entries), B: diagonal, rows rolled by 5; add,")
    for line in (
        "62; 48 hold entries, 48 are launched as kernels",
        "31 tiles with entries; this is 1.55 x that",
        "39,552 cycles = 39.55 µs: 48 kernels x 824 cycles",
    ):
        assert line in text
    assert repr(found) == "Tiling(diagonal: add, 128 elements, btree: 62 tiles, 48 kernels, 45,782 cycles)"
    html = found._repr_html_()
    assert "39,552 cycles" in html
    assert "&gt; btree" in html


def test_advice_weighs_the_time_of_the_tiler() -> None:
    found = pm.tile(matrix("diagonal"), tiler="btree")
    lines = "\n".join(found.advice(("simple", "strips")))
    assert "48 kernels, above the bound of 31: a better cut, if one exists, saves at most 17" in lines
    assert "fewer kernels: strips, 31 against 48" in lines
    assert "15,890 cycles = 15.89 µs a run against simple at 1,000 MHz" in lines
    assert "no cutting launches fewer" in pm.tile(matrix("diagonal"), tiler="strips").advice()[0]


def test_files(tmp_path: Path) -> None:
    found = pm.tile(matrix("relations"), tiler="btree")
    assert found.to_csv(tmp_path / "tiles.csv") == (tmp_path / "tiles.csv",)
    text = found.to_csv()
    assert (tmp_path / "tiles.csv").read_text() == text
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert len(text.splitlines()) == 1 + found.costs.tiles
    data = json.loads(found.to_json(tmp_path / "t.json"))
    assert data["format"] == "polymodel-tiling/1"
    assert data["kernels"] == found.costs.kernels
    assert [row[:4] for row in data["rows"]] == found.cut.rects.table().tolist()
    assert found.export(tmp_path / "tiles").name == "index.json"


@pytest.mark.slow
def test_tables_come_when_they_are_asked_for() -> None:
    script = (
        "import sys, polymodel as pm\n"
        f"found = pm.tile({matrix('relations')!r}, tiler='btree')\n"
        "before = 'pandas' in sys.modules or 'matplotlib' in sys.modules\n"
        "found.tiles\n"
        "print(before, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_comparison_takes_over_what_best_has_tried() -> None:
    found = pm.tile(matrix("pairs"), fit=pm.words(256), objective="tiles")  # no cut reaches the bound
    kept = dict(found.task.made)
    assert {"simple", "qtree+merge", "strips", "panels"} <= set(kept)
    rivals = {r.tiler: r for r in found.rivals()}
    assert found.task.made == kept
    for name in ("qtree+merge", "strips", "panels"):
        assert rivals[name].seconds == kept[name][1]
        alone = pm.tile(matrix("pairs"), fit=pm.words(256), tiler=name)
        assert rivals[name].costs is not None
        assert (rivals[name].costs.cut.rects.table() == alone.cut.rects.table()).all()


@pytest.mark.parametrize(("rows", "told"), [(3, True), (6, True), (1, False)])
def test_rolling_that_moves_nothing_is_told(rows: int, told: bool) -> None:
    a = pm.SparseTensor.from_dense("A", ("I", "J"), [[1, 0, 1], [0, 1, 0], [0, 0, 0]])
    notes = pm.tile(a, pm.Rolled(rows), fit=pm.elements(8)).notes
    assert any("its entries at the coordinates of A" in note for note in notes) is told


def test_a_tensor_says_which_ranks_are_cut() -> None:
    a = pm.random_tensor(["I", "J", "K"], [4, 5, 6], 0.2, seed=1)
    head = str(pm.tile(a, ranks=("J", "K"))).splitlines()[0]
    assert "(5 x 6, 24 entries; J and K are cut, I (4) lies whole in each tile)" in head


def test_one_of_a_kind_is_written_so() -> None:
    a = pm.SparseTensor.from_dense("A", ("I", "J"), [[1, 0], [0, 0]])
    text = str(pm.tile(a, pm.Alone()))
    for part in ("1 entry)", "1; 1 holds entries, 1 is launched", "1 tile with entries", "1 kernel x 824"):
        assert part in text


def test_arrays_are_taken_as_they_are() -> None:
    dense = np.eye(3)
    assert repr(pm.tile(dense)) == repr(pm.tile(pm.SparseTensor.from_dense("A", ("I", "J"), dense)))


def test_the_loose_bound_of_products_entry_by_entry_promises_nothing() -> None:
    found = pm.tile(pm.random_tensor(["I", "J"], [200, 200], 0.02, seed=1), op="multiply")
    assert "cycles at least (a loose bound)" in str(found)
    assert "x the least" not in str(found)
    assert "does not show what a better cut could save" in found.advice()[0]


def test_ranks_of_files_are_named(tmp_path: Path) -> None:
    """A .tns file with as many columns as names has no values; both files are read so."""
    triples = np.array([[1, 1, 1], [1, 2, 1], [2, 2, 3], [3, 1, 2]])
    file = tmp_path / "facts.tns"
    np.savetxt(file, triples, fmt="%d")
    found = pm.tile(file, file, names=("H", "R", "T"), tiler="strips")
    assert found.a.ranks == ("H", "R", "T")
    assert found.a.shape == (3, 2, 3)
    assert isinstance(found.second, pm.SparseTensor)
    assert found.second.ranks == found.a.ranks
    assert found.pattern.ranks == ("H", "R")
    assert pm.tile(file, tiler="strips").a.shape == (3, 2)  # its last column are values
    assert pm.tune_tiling(file, names=("H", "R", "T")).a.ranks == ("H", "R", "T")
    pairs = tmp_path / "pairs.tns"
    np.savetxt(pairs, triples[:, :2], fmt="%d")
    assert "pairs" in str(pm.estimate_tiling(pairs, names=("H", "R")))
    assert pm.tile_matmul(pairs, pm.Transposed(), names=("H", "R"), tile=(2, 2, 2)).fits
    assert pm.tile(scipy.sparse.eye_array(4), names=("X", "Y")).a.ranks == ("X", "Y")
    with faults("wrong-type", "H", "R", at=""):
        pm.tile(pairs, names="HR")  # type: ignore[arg-type]  # what the fault is about
    with pytest.raises(pm.SpecError):
        pm.tile(file, names=("H", "H", "T"))


def test_what_scipy_matrices_hold_twice_or_as_zeros_is_told() -> None:
    values, rows, cols = [1.0, 2.0, 0.0, 3.0, -3.0], [0, 0, 1, 2, 2], [0, 0, 1, 2, 2]
    found = pm.tile(scipy.sparse.coo_array((values, (rows, cols)), shape=(3, 3)), pm.Alone())
    assert found.pattern.nnz_a == 1
    assert "A: 1 explicit zero removed, 3 duplicates summed or cancelled" in found.notes
    assert not any("removed" in note for note in pm.tile(scipy.sparse.eye_array(3)).notes)


@pytest.mark.parametrize(
    ("words", "meant"),
    [("rolled:3", pm.Rolled(3)), ("rolled", None), ("transposed", pm.Transposed()), ("nothing", pm.Alone())],
)
def test_the_second_operand_in_words(words: str, meant: Second | None) -> None:
    square = pm.SparseTensor.from_dense("A", ("I", "J"), np.tri(9))
    said, given = (pm.tile(square, b, fit=pm.elements(8), tiler="btree") for b in (words, meant))
    assert said.tiles.equals(given.tiles)
    assert said.pattern.second == given.pattern.second


@pytest.mark.parametrize("words", ["rolled:some", "rolls"])
def test_a_second_operand_in_unknown_words(words: str) -> None:
    with pytest.raises(pm.SpecError, match="rolled"):
        pm.tile(pm.SparseTensor.from_dense("A", ("I", "J"), np.tri(9)), words)


@pytest.mark.parametrize("run", ["nonempty", "all"])
def test_tiles_that_cost_nothing_are_told(run: str) -> None:
    a = pm.random_tensor(["I", "J"], [40, 40], 0.02, seed=3)
    launch = pm.Launch(run=run)  # type: ignore[arg-type]  # is a parameter
    found = pm.tile(a, op="multiply", fit=pm.elements(4), tiler="simple", launch=launch)
    left = found.costs.tiles - found.costs.kernels
    told = [n for n in found.notes if "not launched" in n]
    wanted = f"{left} of {found.costs.tiles} tiles have no result: they are not launched, and cost nothing"
    assert told == ([wanted] if run == "nonempty" else [])
    assert (left > 0) == (run == "nonempty")
