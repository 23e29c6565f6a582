"""What a tiling costs: kernels launched, cycles to configure and to run them, and what overflows.

One launched tile is one kernel. On a streaming dataflow it runs 8 cycles of ramp and then a token a cycle:
for add an entry of the union or the end of one of its rows; for multiply the longer of two streams, the
entries (and ends) of the rows that both hold, and the rows that either holds (and their end). These counts
are exact, given the tiles. That a token takes one cycle is a model, fitted to the cycle-accurate simulations
published with Tiler-Swift (see docs/tiling/tiler_swift.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.blocks import merged, row_parts
from polymodel.tiling.fits.fit import Elements, Fit, Op, Stored, Words
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern, Rects, TileCounts, starts

__all__ = ["CutCosts", "Launch", "costs", "lower_bound"]

# The constant that Tiler-Swift's estimate adds to the entries of each tile.
ESTIMATED_RAMP = 5
_PIECE = 1 << 19
# Most cycles that one kernel may take in addition to its tokens, so that the cycles of all tiles fit in 64
# bits; and the range of clock frequencies for which every time is a finite, nonzero float.
_MOST_CYCLES, _MOST_MHZ = 10**9, 1e9


@dataclass(frozen=True)
class Launch:
    """The cost of a kernel in addition to its tokens, and which tiles become kernels.

    `config_add`, `config_multiply`: cycles to configure the array for one kernel; the defaults were read from
    the charts of Tiler-Swift, within 1 %. `ramp`: cycles to fill and drain its pipeline. `run`: `nonempty`
    launches tiles that can have a result (add: A or B nonempty; multiply: both); `all` launches every tile,
    and a tile without a result takes `empty` cycles. All of these are at most 10^9. `clock_mhz` converts
    cycles to seconds; by default a cycle is 1 ns. `cycles`: `tokens` counts one cycle for each entry and each
    end of a row; `blocks` counts the cycles of a tile on the blocks of docs/tiling/simulation.md, which also
    wait for each other, take a stop token after each fiber, and send the last rows of a product afterwards.
    Block cycles are available for matrices, and include a ramp of their own.
    """

    config_add: int = 824
    config_multiply: int = 907
    ramp: int = 8
    empty: int = 10
    run: Literal["nonempty", "all"] = "nonempty"
    clock_mhz: float = 1000.0
    cycles: Literal["tokens", "blocks"] = "tokens"

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, plainly(getattr(self, f.name)))
        faults = [
            Diagnostic(
                f"{name} {value!r} is not a whole number of cycles up to 10^9",
                "write e.g. 824, or 0",
                code="not-an-integer",
            )
            for name in ("config_add", "config_multiply", "ramp", "empty")
            if isinstance(value := getattr(self, name), bool)
            or not isinstance(value, int)
            or not 0 <= value <= _MOST_CYCLES
        ]
        if self.run not in ("nonempty", "all"):
            message = f"run {self.run!r} is unknown"
            faults.append(Diagnostic(message, "write nonempty or all", code="unknown-choice"))
        if self.cycles not in ("tokens", "blocks"):
            message = f"cycles {self.cycles!r} is unknown"
            faults.append(Diagnostic(message, "write tokens or blocks", code="unknown-choice"))
        elif self.cycles == "blocks" and (self.ramp, self.empty) != (Launch.ramp, Launch.empty):
            message = "cycles='blocks' with ramp or empty: the blocks have a ramp of their own"
            faults.append(Diagnostic(message, "leave ramp and empty out", code="inconsistent-values"))
        clock = self.clock_mhz
        real = isinstance(clock, int | float) and not isinstance(clock, bool)
        if not real or not 1 / _MOST_MHZ <= clock <= _MOST_MHZ:
            what = f"clock_mhz {clock!r} is not a number between 1e-9 and 1e9"
            faults.append(Diagnostic(what, "write e.g. 1000", code="out-of-range"))
        if faults:
            raise SpecError(faults)

    def by_tokens(self, what: str) -> None:
        """Raise SpecError if block cycles are requested for `what`, which counts tokens."""
        if self.cycles != "tokens":
            message = f"cycles={self.cycles!r}: {what} count tokens"
            remedy = "leave cycles (--cycles) out"
            raise SpecError([Diagnostic(message, remedy, code="ineffective-argument")])

    def config(self, op: Op) -> int:
        """The cycles to configure one kernel."""
        return self.config_add if op == "add" else self.config_multiply

    def seconds(self, cycles: float) -> float:
        return cycles / (self.clock_mhz * 1e6)


@dataclass(frozen=True, eq=False)
class CutCosts:
    """Costs of one tiling. Arrays have one number per tile, int64 or bool; all are exact counts of the data.

    For tensors of higher rank a point is an entry, and a row is a coordinate of the first tiled rank.
    """

    pattern: Pattern
    cut: Cut
    op: Op
    fit: Fit
    launch: Launch
    counts: TileCounts

    def __repr__(self) -> str:
        return f"Costs({self.cut!r}, {self.kernels:,} kernels, {self.total_cycles:,} cycles)"

    @cached_property
    def loads(self) -> Ints:
        """The load of the fullest memory for each tile, in the unit of the fit."""
        return self.fit.loads(self.counts, self.cut.rects, self.op)

    @cached_property
    def fits(self) -> Flags:
        result: Flags = self.loads <= self.fit.capacity
        return result

    @cached_property
    def runs(self) -> Flags:
        """Mask of the tiles that are launched."""
        return (
            np.ones(self.tiles, dtype=np.bool_) if self.launch.run == "all" else useful(self.counts, self.op)
        )

    @cached_property
    def cycles(self) -> Ints:
        """Cycles of each launched tile without its configuration; 0 for tiles that are not launched."""
        return kernel_cycles(self.counts, self.op, self.launch)

    @cached_property
    def estimates(self) -> Ints:
        """Tiler-Swift's estimate of each tile: 5 + nnz of A and B (add), or of the larger operand
        (multiply).
        """
        a, b = self.counts.nnz_a, self.counts.nnz_b
        result: Ints = ESTIMATED_RAMP + (a + b if self.op == "add" else np.maximum(a, b))
        return result

    @property
    def tiles(self) -> int:
        return self.cut.tiles

    @cached_property
    def nonempty(self) -> int:
        """The number of tiles in which A or B has entries."""
        return int(np.count_nonzero(self.counts.union))

    @cached_property
    def both_nonempty(self) -> int:
        """The number of tiles in which both A and B have entries."""
        return int(np.count_nonzero((self.counts.nnz_a > 0) & (self.counts.nnz_b > 0)))

    @cached_property
    def overflowing(self) -> int:
        """The number of tiles above the capacity."""
        return self.tiles - int(np.count_nonzero(self.fits))

    @cached_property
    def kernels(self) -> int:
        """The number of launched tiles."""
        return int(np.count_nonzero(self.runs))

    @property
    def config_cycles(self) -> int:
        return self.kernels * self.launch.config(self.op)

    @cached_property
    def run_cycles(self) -> int:
        return int(self.cycles.sum())

    @property
    def total_cycles(self) -> int:
        """Cycles to configure and to run: a kernel is configured before every tile, without overlap."""
        return self.config_cycles + self.run_cycles

    @cached_property
    def estimate(self) -> int:
        return int(self.estimates.sum())


def costs(pattern: Pattern, cut: Cut, op: Op, fit: Fit, launch: Launch | None = None) -> CutCosts:
    """Return the costs of a tiling, counted on access. `cut` covers all points of the pattern."""
    return CutCosts(pattern, cut, op, fit, launch or Launch(), TileCounts(pattern, cut.ids, cut.tiles))


def useful(counts: TileCounts, op: Op) -> Flags:
    """Return a mask of the tiles that can have a result: for add, A or B is nonempty; for multiply, both
    are.
    """
    if op == "add":
        return counts.union > 0
    both: Flags = (counts.nnz_a > 0) & (counts.nnz_b > 0)
    return both


def kernel_cycles(counts: TileCounts, op: Op, launch: Launch) -> Ints:
    """Return the cycles of each tile without its configuration; 0 for tiles that are not launched."""
    if launch.cycles == "blocks":
        pattern = counts.pattern
        if pattern.levels != 2:
            what = f"{pattern.name} has {pattern.levels} rank{'s' if pattern.levels > 1 else ''}"
            message = f"{what}: cycles of blocks are those of matrices"
            raise Refused(message, "take cycles='tokens'", code="unsupported-shape")
        parts = row_parts(pattern.rows, counts.ids, pattern.in_a, pattern.in_b, counts.tiles)
        taken = merged(op, parts).cycles
        return taken if launch.run == "all" else np.where(useful(counts, op), taken, 0)
    if op == "add":
        tokens = counts.union + counts.rows_union
    else:
        rows, entries = _common(counts)
        tokens = np.maximum(entries, rows + 1)
    idle = launch.empty if launch.run == "all" else 0
    result: Ints = np.where(useful(counts, op), launch.ramp + tokens, idle)
    return result


def _common(counts: TileCounts) -> tuple[Ints, Ints]:
    """Return, per tile, the number of rows that A or B contains, and the number of entries of the rows that
    both contain, plus one end for each such row."""
    pattern, ids, tiles = counts.pattern, counts.ids, counts.tiles
    rows, entries = np.zeros(tiles, dtype=np.int64), np.zeros(tiles, dtype=np.int64)
    for piece in _whole_rows(pattern.rows):
        at = ids[piece]
        begin = np.flatnonzero(starts(pattern.rows[piece], at))
        of = at[begin]
        rows += np.bincount(of, minlength=tiles)
        met = np.logical_or.reduceat(pattern.in_a[piece], begin)
        met &= np.logical_or.reduceat(pattern.in_b[piece], begin)
        length = np.diff(begin, append=at.size)[met] + 1
        # Weights are summed as floats, which is exact up to 2^53.
        entries += np.bincount(of[met], weights=length, minlength=tiles).astype(np.int64)
    return rows, entries


def _whole_rows(rows: Index) -> Iterator[slice]:
    """Iterate over all points in chunks that end with a row, so that intermediate arrays stay small."""
    at = 0
    while at < rows.size:
        last = rows[min(at + _PIECE, rows.size) - 1]
        end = int(np.searchsorted(rows, last, side="right"))
        yield slice(at, end)
        at = end


# How few tiles a cutting can have, however the plane is cut (numbers labelled `bound`).
#
# Both bounds count words or entries. Every entry is in one tile, and a tile that fits holds at most the
# capacity.

# Words of an empty compressed tile, and of one with a single entry.
_HEADER, _SMALLEST = 3, 7


def lower_bound(pattern: Pattern, op: Op, fit: Fit) -> int:
    """Return a lower bound on the number of tiles that hold entries of A or of B.

    `Elements`: a tile takes `capacity` entries, for add of both operands together, for multiply of each.
    `Words`: a tile with n entries in r rows takes 2 n + 2 r + 3 words, and a row counts in every tile that it
    reaches, so that all tiles together take at least 2 n + 2 R words plus 3 for each tile; n and R are those
    of the larger operand, for add those of the union (which the bound of the output contains completely).
    `Stored`: a tile has room for `capacity` bits, of which every entry of the larger operand, or (for add) of
    the output, takes its value and the coordinates stored for it alone, without pointers and masks. For other
    fits the bound follows from the smallest rectangle that contains all entries: 1, or 2 if that rectangle
    does not fit. Raises SpecError if a single entry does not fit.

    For add this bounds the launched kernels; for multiply see `kernel_bound`.
    """
    if isinstance(fit, Elements):
        return _entries(
            pattern.nnz_a + pattern.nnz_b if op == "add" else max(pattern.nnz_a, pattern.nnz_b), fit
        )
    if isinstance(fit, Words):
        either = np.ones(pattern.points, dtype=np.bool_)
        return max(_words(pattern, which, fit) for which in (pattern.in_a, pattern.in_b, either)[: _SETS[op]])
    values = 0
    if isinstance(fit, Stored):
        most = pattern.points if op == "add" else max(pattern.nnz_a, pattern.nnz_b)
        values = -(-most * fit.entry_bits(pattern) // fit.capacity)
    return max(values, _whole(pattern, op, fit))


def kernel_bound(pattern: Pattern, op: Op, fit: Fit) -> int:
    """Return a lower bound on the number of launched tiles if only tiles that can have a result are launched
    (run="nonempty").

    For add this is `lower_bound`. For multiply a tile in which one operand is empty holds entries but is not
    launched, so that two operands without common positions may need many tiles and no kernel. A position that
    both operands hold always lies in a launched tile, so the bound is that of these positions alone.
    """
    if op == "add":
        return lower_bound(pattern, op, fit)
    met: Flags = pattern.in_a & pattern.in_b
    if isinstance(fit, Elements):
        return _entries(int(np.count_nonzero(met)), fit)
    if isinstance(fit, Words):
        return _words(pattern, met, fit)
    values = fit.entry_bits(pattern) if isinstance(fit, Stored) else 0
    return max(-(-int(np.count_nonzero(met)) * values // fit.capacity), int(bool(met.any())))


# The number of sets among A, B and their union that bound the words (the union if the output may hold it).
_SETS: dict[Op, int] = {"add": 3, "multiply": 2}


def _entries(entries: int, fit: Elements) -> int:
    return -(-entries // fit.capacity)


def _words(pattern: Pattern, which: Flags, fit: Words) -> int:
    rows = pattern.rows[which]
    if not rows.size:
        return 0
    if fit.capacity < _SMALLEST:
        fault = f"no entry fits {fit.capacity} words"
        raise SpecError([Diagnostic(fault, f"give at least {_SMALLEST} words", code="over-capacity")])
    begun = 1 + int(np.count_nonzero(rows[1:] != rows[:-1]))
    return -(-(2 * rows.size + 2 * begun) // (fit.capacity - _HEADER))


def _whole(pattern: Pattern, op: Op, fit: Fit) -> int:
    """A tile with all entries contains the smallest rectangle around them; empty margins can be cut off."""
    if not pattern.points:
        return 0
    counts = TileCounts(pattern, np.zeros(pattern.points, dtype=np.int32), 1)
    (top, left), (bottom, right) = (
        (int(end(pattern.rows)), int(end(pattern.cols))) for end in (np.min, np.max)
    )
    around = Rects.of([(top, left, bottom - top + 1, right - left + 1)])
    return 1 if fit.fits(counts, around, op)[0] else 2


# How few cycles a cutting can cost, however the plane is cut (numbers labelled `bound`).
#
# The bound holds for every exact partition whose tiles fit, with the cycles of `model`. Of the launched
# tiles, u can have a result (add: A or B nonempty; multiply: both). Such a tile takes the ramp and its
# tokens, two at least; any other one `empty` cycles.
#
# Tokens. Add: every position that A or B holds is an entry of its tile, and every row counts once in each
# tile that it reaches. A row of n entries is in at least ceil(n / c) tiles if none takes more than c of it.
# Multiply: a position that both hold is in a tile with a result, and so is its row; the two streams of that
# tile are at least these positions with an end for their rows, and these rows with one end for the tile.
#
# Kernels. u is at least `kernel_bound`. run="nonempty" launches these tiles alone, run="all" at least T =
# max(1, `lower_bound`) and at least u. So the cost is at least, for some u, max(T, u) (configuration + empty)
# + u (ramp - empty) + max(tokens, 2 u): convex and piecewise linear in u, so that its minimum is at a
# breakpoint.

Objective = Literal["tiles", "cycles", "total"]

# Words of a compressed tile in addition to two for each of its entries in one row.
_ONE_ROW = 5


def cost_bound(
    pattern: Pattern, op: Op, fit: Fit, launch: Launch | None = None, objective: Objective = "total"
) -> int:
    """Return a lower bound on the objective over all tilings: kernels ("tiles"), run cycles, or run and
    configuration cycles.

    Raises SpecError if a single entry does not fit.
    """
    launch = launch or Launch()
    useful = kernel_bound(pattern, op, fit)
    all_tiles = launch.run == "all"
    tiles = max(1, useful, lower_bound(pattern, op, fit)) if all_tiles else useful
    if objective == "tiles":
        return tiles
    configuration = launch.config(op) if objective == "total" else 0
    tokens = _tokens(pattern, op, fit, useful)
    if not all_tiles:
        return useful * (configuration + launch.ramp) + max(tokens, 2 * useful)
    return min(
        max(tiles, u) * (configuration + launch.empty) + u * (launch.ramp - launch.empty) + max(tokens, 2 * u)
        for u in (useful, tiles, tokens // 2, -(-tokens // 2))
        if u >= useful
    )


def _tokens(pattern: Pattern, op: Op, fit: Fit, useful: int) -> int:
    """Return a lower bound on the tokens of all tiles with a result; `useful`: a lower bound on the number of
    such tiles."""
    if op == "add":
        weights = (pattern.in_a.astype(np.int64) + pattern.in_b) if isinstance(fit, Elements) else None
        return pattern.points + _row_parts(pattern.rows, weights, fit)
    met: Flags = pattern.in_a & pattern.in_b
    rows = _row_parts(pattern.rows[met], None, fit)
    return max(int(np.count_nonzero(met)), useful) + rows


def _row_parts(rows: np.typing.NDArray[np.integer], weights: Ints | None, fit: Fit) -> int:
    """Return the number of tiles that each row reaches, summed over rows; `rows` are ascending, one number
    for each position."""
    if not rows.size:
        return 0
    begin = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    held = np.diff(begin, append=rows.size) if weights is None else np.add.reduceat(weights, begin)
    most = _of_one_row(fit)
    return int(begin.size if most is None else (-(-held // most)).sum())


def _of_one_row(fit: Fit) -> int | None:
    """Return the most entries of one row that a tile can take, or None if that is not known."""
    if isinstance(fit, Elements):
        return fit.capacity
    return (fit.capacity - _ONE_ROW) // 2 if isinstance(fit, Words) else None
