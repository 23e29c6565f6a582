"""docs/tiling/tiler_swift.md: every figure of it is what the comparison gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from polymodel.tiling.cost.model import costs
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.swift import published
from polymodel.tiling.swift.compat import as_built
from polymodel.tiling.tilers.strips import strips
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, simple
from tests.tiling.test_compat import comparison, seeds

TEXT = (Path(__file__).resolve().parents[2] / "docs/tiling/tiler_swift.md").read_text(encoding="utf-8")
WORDS = " ".join(TEXT.split())
FIT = Elements(published.CAPACITY)
OPS: tuple[Op, Op] = ("add", "multiply")


def listed(numbers: Sequence[int]) -> str:
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def row(*cells: str | float) -> str:
    return f"| {' | '.join(c if isinstance(c, str) else f'{c:.2f}' for c in cells)} |"


def mean(values: Sequence[float]) -> float:
    return math.prod(values) ** (1 / len(values))


def counts(op: Op, tiler: str, field: str) -> list[int]:
    return [getattr(b, field) for b in comparison().bars if (b.op, b.tiler) == (op, tiler)]


def test_claims_beside_corrected_figures() -> None:
    assert len(comparison().means) == 4
    for m in comparison().means:
        reductions = (m.claimed_reduction, m.as_built_reduction, m.corrected_reduction_all)
        assert row(m.op, m.tiler, *reductions) in TEXT
        corrected = (m.corrected_speed_up_all, m.corrected_speed_up_nonempty)
        assert row(m.op, m.tiler, m.claimed_speed_up, m.as_built_speed_up, *corrected) in TEXT


def test_run_and_configuration_together() -> None:
    tilers = {"qtree": qtree, "qtree+merge": qtree_merge, "btree": btree, "strips": strips}
    for name, make in tilers.items():
        saved = [
            mean(
                [
                    costs(p, simple(p, op, FIT), op, FIT).total_cycles
                    / costs(p, make(p, op, FIT), op, FIT).total_cycles
                    for p in seeds()
                ]
            )
            for op in OPS
        ]
        assert row(name, *saved) in TEXT


def test_counts_of_the_first_two_defects() -> None:
    built, right = (
        {op: counts(op, "simple", f"{what}_tiles") for op in OPS} for what in ("as_built", "corrected")
    )
    assert built["add"] == built["multiply"] == right["add"]
    assert f"it launches {listed(built['add'])} tiles for both operations" in WORDS
    said = [", ".join(map(str, right[op])) for op in OPS]
    assert f"{said[0]} are right for add, {said[1]} for multiply" in WORDS
    over = {op: listed(counts(op, "qtree+merge", "as_built_overflowing")) for op in OPS}
    assert (
        f"Of the tiles of `qtree` {over['add']} overflow for add and {over['multiply']} for multiply" in WORDS
    )
    merged, checked = (
        {op: listed(counts(op, "qtree+merge", f"{what}_tiles")) for op in OPS}
        for what in ("as_built", "corrected")
    )
    assert f"there are {checked['add']} tiles in place of {merged['add']} for add" in WORDS
    assert f"and {checked['multiply']} in place of {merged['multiply']} for multiply" in WORDS


def test_what_was_simulated() -> None:
    tall = seeds()[1:]
    ratios = [p.shape[0] / p.shape[1] for p in tall]
    assert (math.floor(min(ratios)), round(max(ratios))) == (9, 15)
    assert (min(p.shape[1] for p in tall), max(p.shape[1] for p in tall)) == (21, 42)
    found = [as_built(p, "add", FIT, "simple") for p in tall]
    shares = [100 * f.simulated.pattern.points / f.pattern.points for f in found]
    assert f"{min(shares):.1f} to {max(shares):.1f} % were" in WORDS
    ch7 = next(b for b in comparison().bars if (b.matrix, b.tiler) == ("ch7-6-b1", "qtree+merge"))
    assert f"{ch7.published_run} cycles for an addition with {tall[0].points} results" in WORDS
    assert f"rightly simulated it takes {ch7.corrected_run_all}" in WORDS
    empty = int((found[0].simulated.union == 0).sum())
    assert f"{empty} of the {found[0].tiles} of `simple` on ch7-6-b1 took the 10 cycles" in WORDS
    assert int((found[0].cycles == 10).sum()) == empty


def test_bars_and_means() -> None:
    deviations = [b.deviation for b in comparison().bars if b.deviation is not None]
    within = sum(abs(d) <= 0.025 for d in deviations)
    assert (
        f"within 2.5 % on {within} of the {len(deviations)} bars that can be read, and within 6 % on all"
        in WORDS
    )
    assert max(map(abs, deviations)) < 0.06
    bars = {(b.op, b.tiler, b.matrix): b.published_run or b.as_built_run for b in comparison().bars}
    ratios = [
        f"{mean([bars[op, 'simple', m] / bars[op, tiler, m] for m in published.MATRICES]):.2f}"
        for op in OPS
        for tiler in ("qtree+merge", "btree")
    ]
    assert f"bars give {ratios[0]} / {ratios[1]} and {ratios[2]} / {ratios[3]}" in WORDS


def test_the_qtree_of_the_charts_merges() -> None:
    off = []
    for op in OPS:
        for p in seeds():
            read = published.reading(published.RUN_CYCLES, p.name.removeprefix("ts_"), op, "qtree+merge")
            if read is not None:
                off.append(100 * (as_built(p, op, FIT, "qtree").run_cycles / read - 1))
    bcsstm26, others = [off[0], off[5]], [*off[1:5], *off[6:]]
    assert max(bcsstm26) < 2.5
    assert f"{min(others):.0f} to {max(others):.0f} % above the bars on all matrices but one" in WORDS


@pytest.mark.parametrize("matrix", [0, 5])
def test_most_tiles_of_simple_are_empty(matrix: int) -> None:
    found = costs(seeds()[matrix], simple(seeds()[matrix], "multiply", FIT), "multiply", FIT)
    assert found.kernels <= found.tiles / 3
