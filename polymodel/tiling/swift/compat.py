"""A reproduction of Tiler-Swift's program, and its published figures without three of its defects.

The program differs from its document in three places (docs/tiling/tiler_swift.md gives the evidence):

1. `simple` checks that tiles fit an addition even when it tiles for a multiplication: its tiles are too
small.

2. The check before a merge measures an empty rectangle and always passes: merged tiles overflow.

3. The simulator is given the tile of rows r.. and columns c.. as `X[c:c+w, r:r+h]`: another part of the
matrix, truncated at its sides, and empty for most of a matrix that is much higher than wide.

`as_built` reproduces all three; nothing else in polymodel does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf, nan, prod
from types import MappingProxyType

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.tiling.cost.model import CutCosts, Launch, costs, kernel_cycles
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern, TileCounts
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, simple

# Published figures of Tiler-Swift: claims of its document, and bars read off its charts.
#
# Source: https://github.com/pohantw/tiler_swift (MIT licence, (c) its authors Po-Han Chen and Bo Wun Cheng),
# README.md and img/elem{add,mul}_{runtime,config_time}.png. The charts print no numbers: their bars were
# measured, so each reading is off by about 1 % of its chart's scale; a bar too low to be read is None.

# Matrices of the charts, from left to right (the document mentions five; the charts show six).
MATRICES = ("bcsstm26", "ch7-6-b1", "mk9-b1", "n4c6-b1", "relat5", "rel5")
# Their rows, columns and entries: another matrix of the same name has no published bars.
SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "bcsstm26": (1922, 1922, 1922),
        "ch7-6-b1": (630, 42, 1260),
        "mk9-b1": (378, 36, 756),
        "n4c6-b1": (210, 21, 420),
        "relat5": (340, 35, 1058),
        "rel5": (340, 35, 656),
    }
)
# Elements of one memory: 0.5 KiB, half of it for each operand, of 2-byte words.
CAPACITY = 128


@dataclass(frozen=True)
class Claim:
    """The claim for a tiler compared with `simple`: its mean speed-up, and the percentage by which
    configuration time decreases."""

    speed_up: float
    reduction: float


CLAIMS: Mapping[tuple[Op, str], Claim] = MappingProxyType(
    {
        ("add", "qtree+merge"): Claim(2.97, 80.89),
        ("add", "btree"): Claim(2.62, 76.82),
        ("multiply", "qtree+merge"): Claim(3.89, 89.98),
        ("multiply", "btree"): Claim(3.75, 89.91),
    }
)

Bars = tuple[float | None, ...]

CONFIG_CYCLES: Mapping[tuple[Op, str], Bars] = MappingProxyType(
    {
        ("add", "simple"): (896983, 289511, 66739, 20411, 66739, 66739),
        ("add", "qtree+merge"): (50304, 25661, 13267, None, 20411, 12404),
        ("add", "btree"): (50985, 29358, 13267, 6677, 28196, 15805),
        ("multiply", "simple"): (973118, 318024, 73757, 22709, 73757, 73757),
        ("multiply", "qtree+merge"): (26757, 14518, 5426, 5426, 8116, 6393),
        ("multiply", "btree"): (27159, 14518, 7312, None, 11960, 8116),
    }
)

RUN_CYCLES: Mapping[tuple[Op, str], Bars] = MappingProxyType(
    {
        ("add", "simple"): (16720, 3635, 932, 324, 1032, 1032),
        ("add", "qtree+merge"): (6693, 481, 304, None, 487, 388),
        ("add", "btree"): (6693, 568, 355, 168, 605, 440),
        ("multiply", "simple"): (16403, 3633, 931, 323, 1008, 1008),
        ("multiply", "qtree+merge"): (5848, 323, 206, 144, 315, 291),
        ("multiply", "btree"): (5848, 350, 226, None, 359, 311),
    }
)


def reading(bars: Mapping[tuple[Op, str], Bars], matrix: str, op: Op, tiler: str) -> float | None:
    """Return a bar of the chart; None if the chart has none for it, or if it is not legible."""
    result = bars.get((op, tiler))
    if result is None or matrix not in MATRICES:
        return None
    return result[MATRICES.index(matrix)]


Make = Callable[[Pattern, Op, Fit], Cut]


def _simple(pattern: Pattern, op: Op, fit: Fit) -> Cut:
    """Defect 1: whatever the operation, tiles must fit an addition."""
    return simple(pattern, "add", fit)


_AS_BUILT: Mapping[str, Make] = MappingProxyType(
    {
        "simple": _simple,
        "qtree": qtree,
        "qtree+merge": partial(qtree_merge, check_merge=False),  # defect 2
        "btree": btree,
    }
)
_CORRECTED: Mapping[str, Make] = MappingProxyType(
    {"simple": simple, "qtree": qtree, "qtree+merge": qtree_merge, "btree": btree}
)
# The tilers of the published charts; their `qtree` merges.
CHARTED = ("simple", "qtree+merge", "btree")


@dataclass(frozen=True, eq=False)
class AsBuilt(CutCosts):
    """Costs of a cut whose cycles are those of other positions. `simulated`: counts of the entries that the
    simulator was given.

    Loads, overflows, kernels and estimates are those of the actual tiles.
    """

    simulated: TileCounts

    @cached_property
    def cycles(self) -> Ints:
        return kernel_cycles(self.simulated, self.op, self.launch)


def as_built(
    pattern: Pattern, op: Op, fit: Fit, tiler: str = "qtree+merge", launch: Launch | None = None
) -> AsBuilt:
    """Return the cut that Tiler-Swift's program makes, defects included, and its costs as simulated by that
    program.

    `tiler`: simple, qtree, qtree+merge (the published `qtree`) or btree. Every tile is launched, empty or
    not, whatever `launch.run` says. Raises SpecError for other tilers, and for a matrix that some tilers
    cannot cut.
    """
    make = _named(tiler)
    which, wide = _with_swapped(pattern)
    placed = make(wide, op, fit)
    theirs = ~which
    cut = replace(placed, ids=placed.ids[which], tiler=f"tiler-swift {tiler}", notes=(*placed.notes, *NOTES))
    simulated = _swapped_back(pattern, wide.taken(theirs), placed.ids[theirs], placed.tiles)
    run_all = replace(launch or Launch(), run="all")
    return AsBuilt(pattern, cut, op, fit, run_all, TileCounts(pattern, cut.ids, cut.tiles), simulated)


NOTES = (
    "as Tiler-Swift was built: simple checks additions only, merges are not checked,"
    " tiles are simulated transposed",
)


def _named(tiler: str) -> Make:
    if tiler not in _AS_BUILT:
        fault = f"tiler-swift has no tiler {tiler!r}"
        raise SpecError([Diagnostic(fault, f"take one of {', '.join(_AS_BUILT)}", code="unknown-choice")])
    return _AS_BUILT[tiler]


def _with_swapped(pattern: Pattern) -> tuple[Flags, Pattern]:
    """Return the pattern with an additional point, in neither operand, at (j, i) for every point (i, j), if
    that position exists.

    Defect 3 assigns a point (i, j) to the tile that covers (j, i). Tilers assign every point of a pattern to
    a tile, and whether a tile fits depends on the points of A and B only. Each additional point therefore
    marks the tile that contains it.
    """
    inside = (pattern.cols < pattern.shape[0]) & (pattern.rows < pattern.shape[1])
    rows = np.concatenate([pattern.rows, pattern.cols[inside]])
    cols = np.concatenate([pattern.cols, pattern.rows[inside]])
    absent = np.zeros(rows.size - pattern.points, dtype=np.bool_)
    wide = replace(
        pattern,
        rows=rows,
        cols=cols,
        in_a=np.concatenate([pattern.in_a, absent]),
        in_b=np.concatenate([pattern.in_b, absent]),
        inner_a=None if pattern.inner_a is None else np.concatenate([pattern.inner_a, absent]),
        inner_b=None if pattern.inner_b is None else np.concatenate([pattern.inner_b, absent]),
    )
    order = np.lexsort((cols, rows))
    return order < pattern.points, wide.taken(order)


def _swapped_back(pattern: Pattern, passengers: Pattern, ids: Index, tiles: int) -> TileCounts:
    """Return counts of the points to which the additional points belong, by the tiles that contain the
    latter."""
    inside = (pattern.cols < pattern.shape[0]) & (pattern.rows < pattern.shape[1])
    back = np.lexsort((passengers.rows, passengers.cols))
    return TileCounts(pattern.taken(inside), ids[back], tiles)


@dataclass(frozen=True)
class Bar:
    """One bar of the published charts and our figures for it: cycles to run and to configure, add or
    multiply.

    `published_*`: read off a chart, None where it is not legible. `as_built_*`: with the defects.
    `corrected_*`: without; `all`: with every tile launched, `nonempty`: only those that can have a result.
    """

    matrix: str
    op: Op
    tiler: str
    published_run: float | None
    published_config: float | None
    as_built_tiles: int
    as_built_overflowing: int
    as_built_run: int
    as_built_config: int
    corrected_tiles: int
    corrected_kernels: int
    corrected_run_all: int
    corrected_run_nonempty: int
    corrected_config_all: int
    corrected_config_nonempty: int

    @property
    def deviation(self) -> float | None:
        """The run time of our reproduction divided by the published one, minus 1."""
        return None if self.published_run is None else self.as_built_run / self.published_run - 1


@dataclass(frozen=True)
class Mean:
    """The mean result of a tiler compared with `simple` over all matrices: geometric means of speed-ups, and
    of percentages saved. `claimed_*`: printed in the document.

    Reductions are of configuration time, in per cent. Like the original's, they are geometric means of one
    percentage per matrix, with every tile launched. With only useful tiles (`nonempty`) a percentage, and
    hence that mean, may be 0 or less; then the reduction is 1 minus the geometric mean of the ratios.
    """

    op: Op
    tiler: str
    claimed_speed_up: float
    as_built_speed_up: float
    corrected_speed_up_all: float
    corrected_speed_up_nonempty: float
    claimed_reduction: float
    as_built_reduction: float
    corrected_reduction_all: float
    corrected_reduction_nonempty: float


@dataclass(frozen=True)
class PublishedComparison:
    """Tiler-Swift's published figures compared with ours: every bar, and the means that its document
    claims.
    """

    bars: tuple[Bar, ...]
    means: tuple[Mean, ...]


def tiler_swift_comparison(
    patterns: Sequence[Pattern], capacity: int = CAPACITY, launch: Launch | None = None
) -> PublishedComparison:
    """Return Tiler-Swift's charts for these matrices: published, with its defects, and without them.

    `patterns`: two operands each; in the original, B is A with its rows rolled by 5. Published bars are found
    by the pattern's name (without a prefix `ts_`), and only included if sizes and `capacity` (elements of a
    memory) are those of the original.
    """
    if not patterns:
        message = "there is no matrix to compare"
        remedy = "give at least one pattern"
        raise SpecError([Diagnostic(message, remedy, "patterns", code="missing-argument")])
    fit, chosen = Elements(capacity), launch or Launch()
    ops: tuple[Op, ...] = ("add", "multiply")
    bars = tuple(_bar(p, op, fit, tiler, chosen) for op in ops for p in patterns for tiler in CHARTED)
    means = tuple(_mean(bars, op, tiler) for op in ops for tiler in CHARTED[1:])
    return PublishedComparison(bars, means)


def _bar(pattern: Pattern, op: Op, fit: Fit, tiler: str, launch: Launch) -> Bar:
    name = pattern.name.removeprefix("ts_")
    built = as_built(pattern, op, fit, tiler, launch)
    cut = _CORRECTED[tiler](pattern, op, fit)
    every = costs(pattern, cut, op, fit, replace(launch, run="all"))
    some = costs(pattern, cut, op, fit, replace(launch, run="nonempty"))
    charted = name if _charted(pattern, name, fit) else ""
    return Bar(
        name,
        op,
        tiler,
        published_run=reading(RUN_CYCLES, charted, op, tiler),
        published_config=reading(CONFIG_CYCLES, charted, op, tiler),
        as_built_tiles=built.tiles,
        as_built_overflowing=built.overflowing,
        as_built_run=built.run_cycles,
        as_built_config=built.config_cycles,
        corrected_tiles=every.tiles,
        corrected_kernels=some.kernels,
        corrected_run_all=every.run_cycles,
        corrected_run_nonempty=some.run_cycles,
        corrected_config_all=every.config_cycles,
        corrected_config_nonempty=some.config_cycles,
    )


def _charted(pattern: Pattern, name: str, fit: Fit) -> bool:
    """Return whether this pattern is the matrix that the charts show under its name."""
    same = SIZES.get(name) == (*pattern.shape, pattern.nnz_a)
    return same and fit.capacity == CAPACITY


def _mean(bars: Sequence[Bar], op: Op, tiler: str) -> Mean:
    base = [b for b in bars if (b.op, b.tiler) == (op, "simple")]
    ours = [b for b in bars if (b.op, b.tiler) == (op, tiler)]
    claim = CLAIMS[op, tiler]

    def pairs(what: str) -> list[tuple[int, int]]:
        return [(getattr(s, what), getattr(o, what)) for s, o in zip(base, ours, strict=True)]

    def speed_up(what: str) -> float:
        return _geometric([_over(before, after) for before, after in pairs(what)])

    def reduction(what: str) -> float:
        return _geometric([100 * (1 - _over(after, before)) for before, after in pairs(what)])

    return Mean(
        op,
        tiler,
        claim.speed_up,
        speed_up("as_built_run"),
        speed_up("corrected_run_all"),
        speed_up("corrected_run_nonempty"),
        claim.reduction,
        reduction("as_built_config"),
        reduction("corrected_config_all"),
        100
        * (1 - _geometric([_over(after, before) for before, after in pairs("corrected_config_nonempty")])),
    )


def _over(one: int, other: int) -> float:
    """Return a ratio of cycles; 1 if neither tiler has any (for operands without common entries)."""
    if other == 0:
        return 1.0 if one == 0 else inf
    return one / other


def _geometric(values: Sequence[float]) -> float:
    """Return the geometric mean; nan if it is undefined, because a tiler is worse than `simple` for some
    matrix."""
    return prod(v ** (1 / len(values)) for v in values) if min(values) >= 0 else nan
