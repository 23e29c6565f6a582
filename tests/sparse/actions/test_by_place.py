"""Chances that follow the place, where what moves differs along the same rank variables: partial sums of an
output, tiles at the ends of ranks, two tensors that meet along one rank."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.density import DensityModel
from tests.seeds import seeds

ROOT = Path(__file__).parents[3]
ROWS, COLUMNS = [7, 1, 0, 2, 4, 1, 1, 0], [6, 2, 2, 1, 1, 3, 1, 0]
DRAWN = 120 if os.environ.get("POLYMODEL_LONG") else 40


def evaluated(tmp_path: Path, tile: int = 2, leaders: str = "A", order: str = "mkn") -> pm.Report:
    """The example of the documentation."""
    text = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    text = text.replace("tile_shape: 2}", f"tile_shape: {tile}}}").replace(
        "compute, on: A", f"compute, on: {leaders}"
    )
    loops = [f"  - !Temporal {{rank_variable: {v}, tile_shape: 1}}\n" for v in "mkn"]
    assert "".join(loops) in text
    text = text.replace(
        "".join(loops), "".join(sorted(loops, key=lambda x: order.index(x.split("rank_variable: ")[1][0])))
    )
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    return pm.evaluate(pm.load(file))


def graph(names: str) -> pm.RowColumn:
    return pm.RowColumn.of(names, (8, 8), ROWS, COLUMNS)


def means(
    report: pm.Report, models: dict[str, DensityModel]
) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Accesses in the mean over drawn data, and four standard errors."""
    every = []
    for seed in range(DRAWN):
        tensors = {t: m.draw(2 * seed + i, t) for i, (t, m) in enumerate(models.items())}
        counts = pm.sparsify(report, tensors=tensors).counts.accesses
        every.append([a.actual for a in counts])
    seen = np.array(every, dtype=np.float64)
    names = [(a.component, a.tensor, a.kind) for a in counts]
    near = 4 * seen.std(axis=0) / DRAWN**0.5
    return dict(zip(names, zip(seen.mean(axis=0), near, strict=True), strict=True))


@pytest.mark.parametrize(("tile", "order"), seeds(1, [(2, "mkn"), (3, "kmn")]))
def test_partial_sums_are_read_where_one_was_written(tmp_path: Path, tile: int, order: str) -> None:
    """The reads of sums were all that the dense schedule has, 448 of which 80 happen."""
    report = evaluated(tmp_path, tile, order=order)
    found = pm.sparsify(report, densities={"A": graph("MK")}).counts.accesses
    walked = means(report, {"A": graph("MK")})
    for a in found:
        mean, near = walked[a.component, a.tensor, a.kind]
        # How often whole tiles are empty is that of independent points, corrected.
        assert a.actual == pytest.approx(mean, abs=near + 0.02 * mean + 1e-3), a
        assert a.label in ("exact", "expected"), a
    sums = next(a for a in found if (a.component, a.tensor, a.kind) == ("Buffer", "Z", "reads_fill"))
    assert sums.actual == pytest.approx(80, rel=1e-6)


@pytest.mark.slow
def test_two_tensors_meet_place_by_place(tmp_path: Path) -> None:
    """Hubs of A meet rows of B with many nonzeros; of sums that are read again, too."""
    report = evaluated(tmp_path, leaders="[A, B]")
    models: dict[str, DensityModel] = {"A": graph("MK"), "B": pm.RowColumn.of("KN", (8, 8), COLUMNS, ROWS)}
    sparse = pm.sparsify(report, densities=models)
    walked = means(report, models)
    (count,) = sparse.counts.compute
    met = sum(c * c for c in COLUMNS)
    assert count.executed == pytest.approx(met, rel=1e-6)
    found = {(a.component, a.tensor, a.kind): a for a in sparse.counts.accesses}
    written = found["Buffer", "Z", "writes_drain"]
    read = found["Buffer", "Z", "reads_fill"]
    assert written.label == read.label == "expected"
    assert written.actual == pytest.approx(met, rel=1e-6)
    mean, near = walked["Buffer", "Z", "reads_fill"]
    assert read.actual == pytest.approx(met - COLUMNS[0] ** 2, rel=1e-6)
    assert read.actual == pytest.approx(mean, abs=near + 1e-6)


@pytest.mark.slow
def test_large_matrices_are_added_up_by_rectangles(tmp_path: Path) -> None:
    """Too many points to list: runs of rows and columns that count alike are rectangles."""
    side = 1 << 12
    text = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    text = text.replace("M: 8, K: 8,", f"M: {side}, K: {side},").replace("size: 8 * 100", "size: inf")
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    data = pm.generate_tensor("power-law", 5, shape=[side, side], entries=20_000)
    graph = pm.RowColumn.from_tensor(data.renamed("A", ("M", "K")))
    found = pm.sparsify(pm.evaluate(pm.load(file)), densities={"A": graph}).counts.accesses
    sums = next(a for a in found if (a.component, a.tensor, a.kind) == ("Buffer", "Z", "reads_fill"))
    assert sums.label == "expected"
    assert sums.actual == pytest.approx(8 * (20_000 - graph.columns[0]), rel=1e-6)


def test_what_is_not_known_by_place_is_no_more_than_what_is_written(tmp_path: Path) -> None:
    """Samples tell nothing of places: no more sums are read again than are written."""
    model = pm.Sampled.from_tensor(graph("MK").draw(1))
    found = pm.sparsify(evaluated(tmp_path), densities={"A": model}).counts.accesses
    by_name = {(a.component, a.tensor, a.kind): a for a in found}
    read, written = (by_name["Buffer", "Z", kind] for kind in ("reads_fill", "writes_drain"))
    assert read.label == "bound"
    assert read.actual == written.actual == pytest.approx(8 * 16, rel=1e-6)
