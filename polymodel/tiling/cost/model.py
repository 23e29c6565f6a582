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

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.bounds import lower_bound
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.counts import Counts, starts
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern

__all__ = ["Costs", "Launch", "costs", "lower_bound"]

# What Tiler-Swift's estimate adds to the entries of each tile.
ESTIMATED_RAMP = 5
_PIECE = 1 << 19
# Cycles that one kernel may take beside its tokens, so that the cycles of all tiles stay within 64 bits; and
# a clock of which no time is too long or too short for a float.
_MOST_CYCLES, _MOST_MHZ = 10**9, 1e9


@dataclass(frozen=True)
class Launch:
    """What a kernel costs beside its tokens, and which tiles become kernels.

    `config_add`, `config_multiply`: cycles to configure the array for one kernel; the defaults are read off
    the charts of Tiler-Swift, within 1 %. `ramp`: cycles to fill and drain its pipeline. `run`: `nonempty`
    launches tiles that can have a result (add: A or B nonempty; multiply: both), `all` every tile; then one
    without a result takes `empty` cycles. All of these are at most 10^9. `clock_mhz`: turns cycles into
    seconds; by default a cycle is 1 ns.
    """

    config_add: int = 824
    config_multiply: int = 907
    ramp: int = 8
    empty: int = 10
    run: Literal["nonempty", "all"] = "nonempty"
    clock_mhz: float = 1000.0

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, plainly(getattr(self, f.name)))
        faults = [
            Diagnostic(f"{name} {value!r} is not a whole number of cycles up to 10^9", "write e.g. 824, or 0")
            for name in ("config_add", "config_multiply", "ramp", "empty")
            if isinstance(value := getattr(self, name), bool)
            or not isinstance(value, int)
            or not 0 <= value <= _MOST_CYCLES
        ]
        if self.run not in ("nonempty", "all"):
            faults.append(Diagnostic(f"run {self.run!r} is unknown", "write nonempty or all"))
        clock = self.clock_mhz
        real = isinstance(clock, int | float) and not isinstance(clock, bool)
        if not real or not 1 / _MOST_MHZ <= clock <= _MOST_MHZ:
            what = f"clock_mhz {clock!r} is not a number between 1e-9 and 1e9"
            faults.append(Diagnostic(what, "write e.g. 1000"))
        if faults:
            raise SpecError(faults)

    def config(self, op: Op) -> int:
        """Cycles to configure one kernel."""
        return self.config_add if op == "add" else self.config_multiply

    def seconds(self, cycles: float) -> float:
        return cycles / (self.clock_mhz * 1e6)


@dataclass(frozen=True, eq=False)
class Costs:
    """Costs of one cut. Arrays have one number per tile, int64 or bool; all are exact counts of the data.

    For tensors of more ranks a point is an entry and a row is a coordinate of the first rank that is cut.
    """

    pattern: Pattern
    cut: Cut
    op: Op
    fit: Fit
    launch: Launch
    counts: Counts

    def __repr__(self) -> str:
        return f"Costs({self.cut!r}, {self.kernels:,} kernels, {self.total_cycles:,} cycles)"

    @cached_property
    def loads(self) -> Ints:
        """How full each tile makes the fullest memory, in the fit's unit."""
        return self.fit.loads(self.counts, self.cut.rects, self.op)

    @cached_property
    def fits(self) -> Flags:
        found: Flags = self.loads <= self.fit.capacity
        return found

    @cached_property
    def runs(self) -> Flags:
        """Tiles that are launched."""
        return (
            np.ones(self.tiles, dtype=np.bool_) if self.launch.run == "all" else useful(self.counts, self.op)
        )

    @cached_property
    def cycles(self) -> Ints:
        """Cycles each launched tile runs, without its configuration; 0 where not launched."""
        return kernel_cycles(self.counts, self.op, self.launch)

    @cached_property
    def estimates(self) -> Ints:
        """The figure that Tiler-Swift gives a tile: 5 + nnz of A and B (add), or of the larger (multiply)."""
        a, b = self.counts.nnz_a, self.counts.nnz_b
        found: Ints = ESTIMATED_RAMP + (a + b if self.op == "add" else np.maximum(a, b))
        return found

    @property
    def tiles(self) -> int:
        return self.cut.tiles

    @cached_property
    def nonempty(self) -> int:
        """Tiles in which A or B has entries."""
        return int(np.count_nonzero(self.counts.union))

    @cached_property
    def both_nonempty(self) -> int:
        """Tiles in which A has entries, and B."""
        return int(np.count_nonzero((self.counts.nnz_a > 0) & (self.counts.nnz_b > 0)))

    @cached_property
    def overflowing(self) -> int:
        """Tiles over capacity."""
        return self.tiles - int(np.count_nonzero(self.fits))

    @cached_property
    def kernels(self) -> int:
        """Tiles launched."""
        return int(np.count_nonzero(self.runs))

    @property
    def config_cycles(self) -> int:
        return self.kernels * self.launch.config(self.op)

    @cached_property
    def run_cycles(self) -> int:
        return int(self.cycles.sum())

    @property
    def total_cycles(self) -> int:
        """Cycles to configure and to run: a kernel is configured before every tile, nothing overlaps."""
        return self.config_cycles + self.run_cycles

    @cached_property
    def estimate(self) -> int:
        return int(self.estimates.sum())


def costs(pattern: Pattern, cut: Cut, op: Op, fit: Fit, launch: Launch | None = None) -> Costs:
    """The costs of a cut, counted when asked for. `cut` covers all of the pattern's points."""
    return Costs(pattern, cut, op, fit, launch or Launch(), Counts(pattern, cut.ids, cut.tiles))


def useful(counts: Counts, op: Op) -> Flags:
    """Tiles that can have a result: add, A or B nonempty; multiply, both."""
    if op == "add":
        return counts.union > 0
    both: Flags = (counts.nnz_a > 0) & (counts.nnz_b > 0)
    return both


def kernel_cycles(counts: Counts, op: Op, launch: Launch) -> Ints:
    """Cycles each tile runs, without its configuration; 0 where it is not launched."""
    if op == "add":
        tokens = counts.union + counts.rows_union
    else:
        rows, entries = _common(counts)
        tokens = np.maximum(entries, rows + 1)
    idle = launch.empty if launch.run == "all" else 0
    found: Ints = np.where(useful(counts, op), launch.ramp + tokens, idle)
    return found


def _common(counts: Counts) -> tuple[Ints, Ints]:
    """Per tile: rows that A or B holds, and entries of the rows that both hold, with one end for each row."""
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
        # Weights are summed as floats: exact up to 2^53.
        entries += np.bincount(of[met], weights=length, minlength=tiles).astype(np.int64)
    return rows, entries


def _whole_rows(rows: Index) -> Iterator[slice]:
    """All points in pieces that end with a row: what is made on the way stays small."""
    at = 0
    while at < rows.size:
        last = rows[min(at + _PIECE, rows.size) - 1]
        end = int(np.searchsorted(rows, last, side="right"))
        yield slice(at, end)
        at = end
