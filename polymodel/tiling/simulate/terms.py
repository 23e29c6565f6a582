"""What a tile takes, term by term: as the model has it, as the rules of the blocks have it, as simulated.

The rules follow from the data alone, without a simulation; docs/tiling/simulation.md derives them. The block
that decides takes a token a cycle: entries, and the ends of their fibers. Where a token is not there yet it
waits. Either blocks ahead of it still look for the next fiber, while rows that only one operand has go by.
Or the end of the fiber is not known: its stop says how many ranks end with it, so it comes with the first
token of the next fiber, and what the other operand has left of the fiber comes behind it. With E_p the cycle
of the end of fiber p, n_p its entries, f_p and g_p the cycles in which its first token and that of the next
fiber can be taken, and t_p its entries behind the last one of the shorter side,

    E_p = max(E_(p-1) + n_p + 1, f_p + n_p, g_p + t_p).

What the last E_p is over all entries and ends is `waiting`. The blocks ahead and behind, and the end of the
stream, are `ramp`. Of a product of matrices the rows of the result that are sent after the last entry are
`sending`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.integers import distinct_numbers
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.plane.pattern import Flags, Index, Ints
from polymodel.tiling.simulate.dataflows import Kind, SimulatedTile, TileOperand

TERMS = ("entries", "ends", "waiting", "sending", "ramp")


@dataclass(frozen=True)
class TileTerms:
    """Cycles of one tile by what they are spent on."""

    entries: int
    ends: int
    waiting: int
    sending: int
    ramp: int

    @property
    def cycles(self) -> int:
        return sum(getattr(self, term) for term in TERMS)


@dataclass(frozen=True)
class _Path:
    """The block that decides, blocks ahead of it, and cycles that its last token takes behind it."""

    decides: str
    ahead: int
    behind: int

    @property
    def ramp(self) -> int:
        """With the cycle in which the end of the stream is taken."""
        return self.ahead + 1 + self.behind


# Behind: array, ALU, writer; of a vector also the reducer, which sends the last sum and its stop one after
# the other; of a matrix repeater, array, ALU, reducer (it takes a row before it sends it), dropper, writer.
PATHS: dict[Kind, _Path] = {
    "add": _Path("union of columns", 4, 3),
    "multiply": _Path("intersection of columns", 4, 3),
    "spmv": _Path("scanner of A's columns", 2, 5),
    "spmm": _Path("scanner of B's columns", 3, 7),
}


def measured(tile: SimulatedTile) -> TileTerms:
    """What the block that decides did in the simulation."""
    path = PATHS[tile.kind]
    did, ended = tile.did[path.decides], tile.ended[path.decides]
    behind = tile.cycles - ended
    sending = max(0, behind - path.behind) if tile.kind == "spmm" else 0
    return TileTerms(
        did["entry"] + did["skip"], did["end"], did["wait"] - path.ahead, sending,
        path.ahead + 1 + behind - sending,
    )  # fmt: skip


def modelled(kind: Kind, a: TileOperand, b: TileOperand, launch: Launch) -> TileTerms:
    """What the model counts. Of a multiplication it takes the longer of two streams: what the merge of
    the rows is longer than that of the columns is waiting. Of a product it counts multiplies."""
    if kind in ("spmv", "spmm"):
        return TileTerms(_multiplies(a, b), 0, 0, 0, launch.ramp)
    rows = _Rows.of(a, b)
    if not (rows.either.any() if kind == "add" else a.rows.size and b.rows.size):
        return TileTerms(0, 0, 0, 0, launch.empty)
    which = rows.either if kind == "add" else rows.both
    entries, ends = int(rows.union[which].sum()), max(1, int(np.count_nonzero(which)))
    longer = 0 if kind == "add" else int(np.count_nonzero(rows.either)) + 1
    return TileTerms(entries, ends, max(0, longer - entries - ends), 0, launch.ramp)


def by_rule(kind: Kind, a: TileOperand, b: TileOperand) -> TileTerms:
    """What the rules of the blocks come to."""
    ahead, ramp = PATHS[kind].ahead, PATHS[kind].ramp
    if kind in ("add", "multiply"):
        fibers = _merged(kind, a, b)
    elif kind == "spmv":
        fibers = _rows_of(a)
        # The reducer has no sum to send.
        ramp -= not a.rows.size
    else:
        fibers = _located(a, b)
    entries, ends = int(fibers.entries.sum()), max(1, fibers.entries.size)
    reached = fibers.ends()
    waiting = int(reached[-1]) - ahead - entries - ends
    sending = _sending(a, b, reached) if kind == "spmm" else 0
    return TileTerms(entries, ends, waiting, sending, ramp)


@dataclass(frozen=True, eq=False)
class _Fibers:
    """Fibers that the deciding block takes one after the other. `entries`: of each; `tail`: of these, the
    ones behind the last entry of the shorter side; `first`: the cycle in which its first token can be taken;
    `after`: that in which its end is known. `before`: the cycle ahead of all; `none`: that of the end if
    there are no fibers."""

    entries: Ints
    tail: Ints
    first: Ints
    after: Ints
    before: int
    none: int

    def ends(self) -> Ints:
        """E_p of each fiber: the running sums of entries and ends, and the most that a wait adds to them."""
        if not self.entries.size:
            return np.array([self.none])
        sums = np.cumsum(self.entries + 1)
        late = np.maximum(self.first + self.entries, self.after + self.tail) - sums
        result: Ints = sums + np.maximum.accumulate(np.maximum(late, self.before))
        return result


@dataclass(frozen=True, eq=False)
class _Rows:
    """Per row of a tile: who has it, the entries of the union, and those behind the shorter one's last."""

    either: Flags
    both: Flags
    union: Ints
    tail: Ints

    @classmethod
    def of(cls, a: TileOperand, b: TileOperand) -> _Rows:
        height, width = a.shape
        last = []
        for side in (a, b):
            found = np.full(height, -1, dtype=np.int64)
            np.maximum.at(found, side.rows, side.cols)
            last.append(found)
        each = [side.rows.astype(np.int64) * width + side.cols for side in (a, b)]
        places = distinct_numbers(np.concatenate(each))
        row, col = np.divmod(places, max(width, 1))
        behind = col > np.minimum(*last)[row]
        union, tail = (np.bincount(row[which], minlength=height) for which in (slice(None), behind))
        has = [found >= 0 for found in last]
        return cls(has[0] | has[1], has[0] & has[1], union, tail)


def _merged(kind: Kind, a: TileOperand, b: TileOperand) -> _Fibers:
    """Rows that come through the merge of rows; the step at which each does, and the next, or the end."""
    rows = _Rows.of(a, b)
    which = rows.either if kind == "add" else rows.both
    steps = np.cumsum(rows.either)
    at, every = steps[which], int(np.count_nonzero(rows.either))
    # An operand without rows says so a cycle later than one with rows sends its first.
    late = int(not (a.rows.size and b.rows.size))
    begin = PATHS[kind].ahead + late
    after = np.append(at, every + 1)[1:]
    return _Fibers(rows.union[which], rows.tail[which], begin + at, begin + after, begin, begin + every + 1)


def _rows_of(a: TileOperand) -> _Fibers:
    """Rows of A, of which the scanner ahead sends one a cycle."""
    entries = _counts(a.rows, a.shape[0])
    entries = entries[entries > 0]
    at = np.arange(1, entries.size + 1)
    ahead = PATHS["spmv"].ahead
    return _Fibers(entries, np.zeros_like(entries), ahead + at, ahead + at + 1, ahead, ahead + 2)


def _located(a: TileOperand, b: TileOperand) -> _Fibers:
    """Rows of B, one for every entry of A, which come with the ends of A's rows between them."""
    entries = _counts(b.rows, b.shape[0])[a.cols]
    at = np.arange(1, a.rows.size + 1) + np.cumsum(np.append(0, np.diff(a.rows) != 0))[: a.rows.size]
    ahead = PATHS["spmm"].ahead
    return _Fibers(entries, np.zeros_like(entries), ahead + at, ahead + at + 1, ahead, ahead + 2)


def _sending(a: TileOperand, b: TileOperand, reached: Ints) -> int:
    """Cycles in which entries of the result are sent after the last row of A has ended."""
    if not a.rows.size:
        return 0
    ends = np.append(np.flatnonzero(np.diff(a.rows)), a.rows.size - 1)
    results = _results(a, b)[a.rows[ends]]
    # Each row is sent behind the one before it: the latest of all of them decides.
    rest = np.cumsum((results + 1)[::-1])[::-1]
    return int((reached[ends] + rest).max()) - int(reached[-1]) - 1


def _results(a: TileOperand, b: TileOperand) -> Ints:
    """Entries of the product, per row."""
    held = _counts(b.rows, b.shape[0])
    each = held[a.cols]
    begins = np.append(0, np.cumsum(held))[a.cols]
    ends = np.cumsum(each)
    at = np.repeat(begins - (ends - each), each) + np.arange(int(each.sum()))
    places = distinct_numbers(np.repeat(a.rows.astype(np.int64), each) * max(b.shape[1], 1) + b.cols[at])
    return _counts(places // max(b.shape[1], 1), a.shape[0])


def _multiplies(a: TileOperand, b: TileOperand) -> int:
    return int(_counts(b.rows, b.shape[0])[a.cols].sum())


def _counts(of: Index, size: int) -> Ints:
    return np.bincount(of, minlength=size).astype(np.int64)
