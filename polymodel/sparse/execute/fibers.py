"""Fibers of one loop, one per loop node, and how they co-iterate: all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.sparse.fibertree import Ints, Level, blocks

Bools = NDArray[np.bool_]
# Above this many iterations of one loop, arrays of them are not made.
MOST_NODES = 10**8


@dataclass(frozen=True, eq=False)
class Fibers:
    """For each loop node the elements low .. high - 1 of a level, all of one fiber.

    A coordinate is seen less `shift`, over `factor` (index math); then low and high hold only what falls
    inside the rank, and all of it is divisible.
    """

    level: Level
    fiber: Ints
    low: Ints
    high: Ints
    shift: Ints | None = None
    factor: int = 1

    @property
    def nodes(self) -> int:
        return int(self.low.size)

    @property
    def lengths(self) -> Ints:
        return self.high - self.low

    @property
    def total(self) -> int:
        return int(self.high.sum()) - int(self.low.sum())

    def at(self, nodes: Ints | slice) -> Fibers:
        """Those of some loop nodes."""
        shift = None if self.shift is None else self.shift[nodes]
        return Fibers(self.level, self.fiber[nodes], self.low[nodes], self.high[nodes], shift, self.factor)

    def last(self) -> Ints:
        """The last coordinate of each, -1 for an empty one."""
        if not self.level.elements:
            return np.full(self.nodes, -1, dtype=np.int64)
        found = self.level.coords[np.maximum(self.high - 1, 0)]
        if self.shift is not None:
            found = (found - self.shift) // self.factor
        return np.where(self.high > self.low, found, -1)

    def upto(self, coords: Ints) -> Ints:
        """How many coordinates of each are at most the one given for it."""
        if self.shift is not None:
            coords = coords * self.factor + self.shift
        return self.level.upto(self.fiber, self.low, self.high, coords)

    def find(self, nodes: Ints, coords: Ints) -> Ints:
        """The elements with these coordinates in the fibers of these nodes, -1 for none."""
        result = np.empty(coords.size, dtype=np.int64)
        for here in blocks(coords.size):
            at, asked = nodes[here], coords[here]
            if self.shift is not None:
                asked = asked * self.factor + self.shift[at]
            result[here] = self.level.find(self.fiber[at], self.low[at], self.high[at], asked)
        return result

    def expand(self) -> tuple[Ints, Ints, Ints]:
        """All elements: the node, the coordinate and the number of each."""
        lengths = self.lengths
        total = int(lengths.sum())
        if total > MOST_NODES:
            what = f"rank {self.level.rank.name} has {total:,} iterations, too many to walk"
            raise Refused(what, "run the largest tensors with values=False, or smaller ones")
        nodes = np.repeat(np.arange(self.nodes, dtype=np.int64), lengths)
        if self.nodes and bool((self.low[1:] == self.high[:-1]).all()):
            first = int(self.low[0])
            elements = np.arange(first, first + total, dtype=np.int64)
            coords = self.level.coords[first : first + total]
        else:
            starts = np.cumsum(lengths)
            starts -= lengths
            elements = np.repeat(self.low - starts, lengths)
            elements += np.arange(total, dtype=np.int64)
            coords = self.level.coords[elements]
        if self.shift is not None:
            coords = (coords - self.shift[nodes]) // self.factor
        return nodes, coords, elements


@dataclass(frozen=True, eq=False)
class Matched:
    """What a co-iteration yields, ordered by node and coordinate: `elements` per fiber that took part (-1
    where a union misses it), and per fiber and node the coordinates `reads`."""

    nodes: Ints
    coords: Ints
    elements: tuple[Ints, ...]
    reads: tuple[Ints, ...]

    def starts(self, nodes: int) -> Ints:
        """Where the yields of each node start, and the end."""
        return np.searchsorted(self.nodes, np.arange(nodes + 1))

    def picked(self, kept: Bools) -> Matched:
        return Matched(self.nodes[kept], self.coords[kept], tuple(e[kept] for e in self.elements), self.reads)


def alone(fibers: Fibers) -> Matched:
    """One fiber per node, all of it."""
    nodes, coords, elements = fibers.expand()
    return Matched(nodes, coords, (elements,), (fibers.lengths,))


def intersect(fibers: Sequence[Fibers]) -> Matched:
    """Two-finger intersection; more than two nest to the right, a & (b & c), each reading as it is asked.

    Both fingers advance after a match, and it stops when one fiber ends: the other has then read everything
    up to the end of that one, and one coordinate more if there is one.
    """
    if len(fibers) == 1:
        return alone(fibers[0])
    if len(fibers) == 2:
        return _pair(fibers[0], fibers[1])
    inner = intersect(fibers[1:])
    first = fibers[0]
    found = first.find(inner.nodes, inner.coords)
    kept = found >= 0
    elements = (found[kept], *(e[kept] for e in inner.elements))
    return Matched(inner.nodes[kept], inner.coords[kept], elements, _nested_reads(fibers))


def _pair(a: Fibers, b: Fibers) -> Matched:
    if a.total <= b.total:
        nodes, coords, ours = a.expand()
        theirs = b.find(nodes, coords)
        kept = theirs >= 0
    else:
        nodes, coords, theirs = b.expand()
        ours = a.find(nodes, coords)
        kept = ours >= 0
    if not kept.all():
        nodes, coords, ours, theirs = nodes[kept], coords[kept], ours[kept], theirs[kept]
    reads = np.empty(a.nodes, dtype=np.int64), np.empty(a.nodes, dtype=np.int64)
    for here in blocks(a.nodes):
        one, two = a.at(here), b.at(here)
        ends = one.last(), two.last()
        reads[0][here] = _read(one, ends[1], ends[0])
        reads[1][here] = _read(two, ends[0], ends[1])
    return Matched(nodes, coords, (ours, theirs), reads)


def _read(fibers: Fibers, last: Ints, own: Ints | None = None) -> Ints:
    """Coordinates read when the other fiber ends at `last`: all, where this one ends (at `own`) no later."""
    lengths = fibers.lengths
    short = np.flatnonzero(last < (fibers.last() if own is None else own))
    if short.size:
        some = fibers.at(short).upto(last[short])
        lengths[short] = np.minimum(some + 1, lengths[short])
    return lengths


def _nested_reads(fibers: Sequence[Fibers]) -> tuple[Ints, ...]:
    """Reads of a & (b & (c & ..)): an inner intersection runs only as far as the outer one asks for."""
    nodes = fibers[0].nodes
    reads: list[Ints] = []
    stop = np.full(nodes, -1, dtype=np.int64)  # the last coordinate asked for, -1: all
    for at, first in enumerate(fibers[:-1]):
        if at == len(fibers) - 2:
            second = fibers[-1]
            asked = stop >= 0
            reads.append(np.where(asked, first.upto(stop), _read(first, second.last())))
            reads.append(np.where(asked, second.upto(stop), _read(second, first.last())))
            break
        inner = intersect(fibers[at + 1 :])
        starts = inner.starts(nodes)
        lengths = np.diff(starts)
        ends = inner.coords[np.maximum(starts[1:] - 1, 0)] if inner.coords.size else stop
        last = np.where(lengths > 0, ends, -1)
        reads.append(np.where(stop >= 0, first.upto(stop), _read(first, last)))
        pulled = _upto(inner, starts, first.last())
        short = (pulled < lengths) & (stop < 0)
        if inner.coords.size:
            next_asked = inner.coords[np.minimum(starts[:-1] + pulled, inner.coords.size - 1)]
            stop = np.where(short, next_asked, stop)
    return tuple(reads)


def _upto(inner: Matched, starts: Ints, coords: Ints) -> Ints:
    """How many yields of each node are at most the coordinate given for it."""
    span = int(inner.coords.max(initial=0)) + 2
    keys = inner.nodes * span + inner.coords + 1
    asked = np.arange(coords.size) * span + np.clip(coords, -1, span - 2) + 1
    return np.searchsorted(keys, asked, side="right") - starts[:-1]


def unite(parts: Sequence[Matched]) -> Matched:
    """All coordinates of any of the parts; elements and reads in the order of the parts."""
    nodes = np.concatenate([p.nodes for p in parts])
    coords = np.concatenate([p.coords for p in parts])
    span = int(coords.max(initial=0)) + 1
    keys = nodes * span + coords
    united, place = np.unique(keys, return_inverse=True)
    elements: list[Ints] = []
    at = 0
    for part in parts:
        rows = place[at : at + part.nodes.size]
        at += part.nodes.size
        for e in part.elements:
            full = np.full(united.size, -1, dtype=np.int64)
            full[rows] = e
            elements.append(full)
    reads = tuple(r for p in parts for r in p.reads)
    return Matched(united // span, united % span, tuple(elements), reads)


def cut(leader: Fibers, follower: Fibers) -> tuple[Matched, Ints, Ints]:
    """The leader's fibers are of parts, the follower's of plain coordinates, cut where the parts begin.

    Yields the parts where the follower has something, with the elements of the leader, and the elements
    low .. high - 1 of the follower that lie in each. The follower's reads are of its nonempty parts.
    """
    nodes, coords, elements = leader.expand()
    own = Fibers(follower.level, follower.fiber[nodes], follower.low[nodes], follower.high[nodes])
    ends = np.full(coords.size, np.iinfo(np.int64).max // 2, dtype=np.int64)
    same = nodes[1:] == nodes[:-1]
    ends[:-1][same] = coords[1:][same]
    low, high = own.low + own.upto(coords - 1), own.low + own.upto(ends - 1)
    low = np.where(coords == 0, own.low, low)
    kept = high > low
    mine = np.bincount(nodes[kept], minlength=leader.nodes)
    begins = np.searchsorted(nodes, np.arange(leader.nodes + 1))
    last = np.full(leader.nodes, -1, dtype=np.int64)
    last[nodes[kept]] = np.flatnonzero(kept) - begins[nodes[kept]]
    theirs = np.minimum(last + 2, leader.lengths)
    whole = Matched(nodes[kept], coords[kept], (elements[kept],), (theirs, mine))
    return whole, low[kept], high[kept]
