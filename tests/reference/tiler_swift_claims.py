"""docs/tiling/tiler_swift.md and docs/tiling.md beside Tiler-Swift's six matrices: every figure of the pages.

Two of the six are in public collections only, so this is checked where their folder is named (`--data`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import costs
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Pattern
from polymodel.tiling.swift import compat
from polymodel.tiling.swift.compat import AsBuilt, PublishedComparison, as_built, tiler_swift_comparison
from polymodel.tiling.tilers.strips import strips
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, simple
from polymodel.tiling.tuning.tune import SEEDS, tune
from tests.reference.common import Outcome, comparing
from tests.reference.tiling_matrices import matrix, reading
from tests.tiling.original import exact

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIT = Elements(compat.CAPACITY)
OPS: tuple[Op, Op] = ("add", "multiply")


@dataclass(frozen=True)
class Six:
    """The six matrices, in the order of the charts, and what is said of them."""

    tensors: tuple[SparseTensor, ...]
    outcome: Outcome

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """Each with its rows rolled by 5."""
        return tuple(pattern_of(tensor) for tensor in self.tensors)

    @cached_property
    def comparison(self) -> PublishedComparison:
        """Every bar and every mean."""
        return tiler_swift_comparison(self.patterns)

    @cached_property
    def text(self) -> str:
        """The chapter."""
        return (DOCS / "tiling/tiler_swift.md").read_text(encoding="utf-8")

    @cached_property
    def words(self) -> str:
        """The chapter in one line."""
        return " ".join(self.text.split())

    @cached_property
    def limits(self) -> str:
        """The section of docs/tiling.md about limits, in one line."""
        page = (DOCS / "tiling.md").read_text(encoding="utf-8")
        return " ".join(page.split("## Limits and assumptions")[1].split())

    def said(self, words: str, where: str | None = None) -> None:
        """Count one sentence; it must stand on the page."""
        self.holds(f"the page does not say {words!r}", words in (self.words if where is None else where))

    def holds(self, otherwise: str, true: bool) -> None:
        """Count one claim."""
        self.outcome.checked += 1
        if not true:
            self.outcome.mismatches.append(otherwise)

    def counts(self, op: Op, tiler: str, field: str) -> list[int]:
        """One number of every matrix."""
        return [getattr(b, field) for b in self.comparison.bars if (b.op, b.tiler) == (op, tiler)]

    def built(self, tiler: str, op: Op = "add") -> list[AsBuilt]:
        """All six as built."""
        return [as_built(p, op, FIT, tiler) for p in self.patterns]


def listed(numbers: Sequence[int]) -> str:
    """As in a sentence."""
    return f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def row(*cells: str | float) -> str:
    """A row of a table."""
    return f"| {' | '.join(c if isinstance(c, str) else f'{c:.2f}' for c in cells)} |"


def mean(values: Sequence[float]) -> float:
    """The geometric mean."""
    return math.prod(values) ** (1 / len(values))


def generated(six: Six) -> None:
    """Four of the matrices are those that our generator makes, place for place."""
    for ours, theirs in zip(exact(), six.tensors, strict=False):
        same = ours.shape == theirs.shape and np.array_equal(ours.coords, theirs.coords)
        six.holds(f"{ours.name}: the generated matrix is another", same)


def claims_beside_corrected_figures(six: Six) -> None:
    """The two tables."""
    means = six.comparison.means
    six.holds(f"{len(means)} means", len(means) == 4)
    for m in means:
        reductions = (m.claimed_reduction, m.as_built_reduction, m.corrected_reduction_all)
        six.said(row(m.op, m.tiler, *reductions), six.text)
        corrected = (m.corrected_speed_up_all, m.corrected_speed_up_nonempty)
        six.said(row(m.op, m.tiler, m.claimed_speed_up, m.as_built_speed_up, *corrected), six.text)
        near = abs(m.as_built_reduction - m.claimed_reduction) <= 0.15
        six.holds(f"{m.op} {m.tiler}: {m.as_built_reduction:.2f} % as built", near)
    six.holds("the last speed-up is none", means[-1].corrected_speed_up_nonempty < 1)


def run_and_configuration_together(six: Six) -> None:
    """The third table."""
    tilers = {"qtree": qtree, "qtree+merge": qtree_merge, "btree": btree, "strips": strips}
    for name, make in tilers.items():
        saved = [mean([_total(p, simple, op) / _total(p, make, op) for p in six.patterns]) for op in OPS]
        six.said(row(name, *saved), six.text)


def _total(pattern: Pattern, make: Callable[..., object], op: Op) -> int:
    return costs(pattern, make(pattern, op, FIT), op, FIT).total_cycles  # type: ignore[arg-type]  # a tiler's Cut


def counts_of_the_first_two_defects(six: Six) -> None:
    """Tiles, right and wrong."""
    built, right = (
        {op: six.counts(op, "simple", f"{what}_tiles") for op in OPS} for what in ("as_built", "corrected")
    )
    six.holds("simple is the same for both operations", built["add"] == built["multiply"] == right["add"])
    six.said(f"it launches {listed(built['add'])} tiles for both operations")
    told = [", ".join(map(str, right[op])) for op in OPS]
    six.said(f"{told[0]} are right for add, {told[1]} for multiply")
    over = {op: listed(six.counts(op, "qtree+merge", "as_built_overflowing")) for op in OPS}
    six.said(f"Of the tiles of `qtree` {over['add']} overflow for add and {over['multiply']} for multiply")
    merged, checked = (
        {op: listed(six.counts(op, "qtree+merge", f"{what}_tiles")) for op in OPS}
        for what in ("as_built", "corrected")
    )
    six.said(f"there are {checked['add']} tiles in place of {merged['add']} for add")
    six.said(f"and {checked['multiply']} in place of {merged['multiply']} for multiply")
    of_simple = [b for b in six.comparison.bars if (b.op, b.tiler) == ("multiply", "simple")]
    most = max(b.as_built_tiles / b.corrected_tiles for b in of_simple)
    six.said(f"up to {most:.1f} times the tiles")


def what_was_simulated(six: Six) -> None:
    """The third defect."""
    tall = six.patterns[1:]
    ratios = [p.shape[0] / p.shape[1] for p in tall]
    six.holds("9 to 15 times as high as wide", (math.floor(min(ratios)), round(max(ratios))) == (9, 15))
    six.holds("21 to 42 columns", (min(p.shape[1] for p in tall), max(p.shape[1] for p in tall)) == (21, 42))
    found = six.built("simple")[1:]
    shares = [100 * f.simulated.pattern.points / f.pattern.points for f in found]
    six.said(f"{min(shares):.1f} to {max(shares):.1f} % were")
    ch7 = next(b for b in six.comparison.bars if (b.matrix, b.tiler) == ("ch7-6-b1", "qtree+merge"))
    six.said(f"{ch7.published_run} cycles for an addition with {tall[0].points} results")
    six.said(f"rightly simulated it takes {ch7.corrected_run_all}")
    empty = int((found[0].simulated.union == 0).sum())
    six.said(f"{empty} of the {found[0].tiles} of `simple` on ch7-6-b1 took the 10 cycles")
    six.holds("empty tiles take 10 cycles", int((found[0].cycles == 10).sum()) == empty)


def bars_and_means(six: Six) -> None:
    """How near the bars are, and that the claims are their means."""
    every = six.comparison.bars
    deviations = [b.deviation for b in every if b.deviation is not None]
    six.holds("36 bars, 34 of them read", (len(every), len(deviations)) == (36, 34))
    within = sum(abs(d) <= 0.025 for d in deviations)
    six.said(
        f"within 2.5 % on {within} of the {len(deviations)} bars that can be read, and within 6 % on all"
    )
    six.said(f"{within} of the {len(deviations)} bars come out within 2.5 % and all within 6 %", six.limits)
    six.holds("a bar is further off than 6 %", max(map(abs, deviations)) < 0.06)
    for b in every:
        if b.published_config is not None:
            near = abs(b.as_built_config / b.published_config - 1) <= 0.02
            six.holds(f"{b.matrix} {b.op} {b.tiler}: configuration {b.as_built_config}", near)
    bars = {(b.op, b.tiler, b.matrix): b.published_run or b.as_built_run for b in every}
    ratios = {
        (m.op, m.tiler): mean([bars[m.op, "simple", n] / bars[m.op, m.tiler, n] for n in compat.MATRICES])
        for m in six.comparison.means
    }
    for m in six.comparison.means:
        near = abs(ratios[m.op, m.tiler] - m.claimed_speed_up) <= 0.02
        six.holds(f"{m.op} {m.tiler}: the bars give {ratios[m.op, m.tiler]:.3f}", near)
    told = [f"{ratios[op, tiler]:.2f}" for op in OPS for tiler in ("qtree+merge", "btree")]
    six.said(f"bars give {told[0]} / {told[1]} and {told[2]} / {told[3]}")


def the_qtree_of_the_charts_merges(six: Six) -> None:
    """Without merging, run times are far from the bars called qtree."""
    off = []
    for op in OPS:
        for name, found in zip(compat.MATRICES, six.built("qtree", op), strict=True):
            read = compat.reading(compat.RUN_CYCLES, name, op, "qtree+merge")
            if read is not None:
                off.append(100 * (found.run_cycles / read - 1))
    six.holds("bcsstm26 is near", max(off[0], off[5]) < 2.5)
    others = [*off[1:5], *off[6:]]
    six.said(f"{min(others):.0f} to {max(others):.0f} % above the bars on all matrices but one")


def tiles_without_a_result(six: Six) -> None:
    """Of most tiles of `simple`; and tokens decide the bars of the diagonal alone."""
    for pattern in (six.patterns[0], six.patterns[5]):
        found = costs(pattern, simple(pattern, "multiply", FIT), "multiply", FIT)
        six.holds(f"{pattern.name}: {found.kernels} of {found.tiles}", found.kernels <= found.tiles / 3)
    shares = []
    for name, built in zip(compat.MATRICES, six.built("btree"), strict=True):
        empty = built.cycles == built.launch.empty
        shares.append(int((built.cycles[~empty] - built.launch.ramp).sum()) / built.run_cycles)
        six.holds(f"{name}: few tiles are empty", name == "bcsstm26" or bool(empty.mean() > 0.5))
    six.holds(f"shares of tokens {shares}", shares[0] > 0.9 and max(shares[1:]) < 0.6)


def the_loop_reaches_the_bound(six: Six) -> None:
    """docs/tiling/feedback.md: after the two seeds, for add on all six."""
    page = " ".join((DOCS / "tiling/feedback.md").read_text(encoding="utf-8").split())
    for pattern in six.patterns:
        found = tune(pattern, "add", FIT)
        tree, best = found.steps[0].figure, found.chosen.figure
        six.holds(f"{pattern.name}: {best}, bound {found.bound}", best == found.bound)
        six.holds(f"{pattern.name}: {len(found.steps)} steps", len(found.steps) == len(SEEDS))
        if pattern.name == "rel5":
            six.said(f"for instance {best:,} cycles for `rel5`, where the tree takes {tree:,}", page)


CLAIMS: tuple[Callable[[Six], None], ...] = (
    generated, claims_beside_corrected_figures, run_and_configuration_together,
    counts_of_the_first_two_defects, what_was_simulated, bars_and_means,
    the_qtree_of_the_charts_merges, tiles_without_a_result,
    the_loop_reaches_the_bound,
)  # fmt: skip


def check(folder: Path) -> Iterator[Outcome]:
    """One outcome per claim of the chapter, about the matrices in this folder."""
    with reading(folder):
        tensors = [matrix(f"ts_{name}", folder / "here", name).renamed(name) for name in compat.MATRICES]
    for claim in CLAIMS:
        outcome = Outcome(f"Tiler-Swift's matrices: {claim.__name__.replace('_', ' ')}")
        with comparing(outcome):
            claim(Six(tuple(tensors), outcome))
        yield outcome
