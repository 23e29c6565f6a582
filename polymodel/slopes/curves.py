"""Curves of accesses over capacity; each point can be traced back to the choices of which it consists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.pareto import Archive, staircase
from polymodel.spec.faults import as_number, not_a, suggestion
from polymodel.view.table import Column, Table

Ints = NDArray[np.int64]
CELLS = 2**22  # pairs of points compared at once


@dataclass(frozen=True, eq=False)
class Join:
    """Points that are pairs of points of two other curves."""

    first: Curve
    second: Curve


@dataclass(frozen=True, eq=False)
class CurveLeaf:
    """Points that are mappings of one Einsum: `describe(i)` describes the i-th one."""

    describe: Callable[[int], Any]


@dataclass(frozen=True, eq=False)
class Curve:
    """Accesses over capacity, capacity ascending, accesses descending.

    `source`: index into `sources` for each point; `left`, `right`: its position there (`right` only of a
    Join).
    """

    capacity: Ints
    accesses: Ints
    source: Ints
    left: Ints
    right: Ints
    sources: tuple[Join | CurveLeaf, ...]

    def __len__(self) -> int:
        return len(self.capacity)

    def __repr__(self) -> str:
        return f"Curve({len(self)} points)"

    def raised(self, capacity: int, accesses: int = 0) -> Curve:
        """Return the curve with constants added to every point."""
        if not capacity and not accesses:
            return self
        return Curve(
            self.capacity + capacity,
            self.accesses + accesses,
            self.source,
            self.left,
            self.right,
            self.sources,
        )

    def choices(self, point: int) -> Iterator[Any]:
        """Return the choices behind a point: one description per Einsum."""
        source = self.sources[int(self.source[point])]
        if isinstance(source, CurveLeaf):
            yield source.describe(int(self.left[point]))
            return
        yield from source.first.choices(int(self.left[point]))
        yield from source.second.choices(int(self.right[point]))


def leaf(capacity: Ints, accesses: Ints, describe: Callable[[int], Any]) -> Curve:
    """Return a curve of an Einsum's mappings, which are already pruned and sorted."""
    zeros = np.zeros(len(capacity), np.int64)
    return Curve(capacity, accesses, zeros, np.arange(len(capacity)), zeros, (CurveLeaf(describe),))


def _nothing(at: int) -> None:
    """Return the description of points without one; a function, because a lambda cannot be pickled."""


NOTHING = leaf(np.zeros(1, np.int64), np.zeros(1, np.int64), _nothing)


EMPTY = leaf(np.zeros(0, np.int64), np.zeros(0, np.int64), _nothing)


class CurveOfBlocks:
    """The curve of mappings that are offered in blocks; of equal mappings the first is kept.

    `sources`: the blocks that have contributed to the curve.
    """

    def __init__(self) -> None:
        self.archive = Archive(2, np.int64)
        self.sources: list[object] = []
        self._begins: list[int] = []

    def offer(self, capacity: Ints, accesses: Ints, source: object) -> None:
        begin = self.offered
        self.archive.offer((capacity, accesses))
        if (self.archive.ids >= begin).any():
            self.sources.append(source)
            self._begins.append(begin)

    @property
    def offered(self) -> int:
        """Return the number of mappings offered."""
        return self.archive.offered

    @property
    def capacity(self) -> Ints:
        result: Ints = self.archive.values[0]
        return result

    @property
    def accesses(self) -> Ints:
        result: Ints = self.archive.values[1]
        return result

    @property
    def which(self) -> Ints:
        """Return, per point, the index of its source, and its position in that block."""
        ids = self.archive.ids
        begins = np.asarray(self._begins, np.int64)
        source = np.searchsorted(begins, ids, side="right") - 1
        return np.stack((source, ids - begins[source]), axis=1)


def at_once(first: Curve, second: Curve) -> Curve:
    """Return the curve for two parts in the buffer at the same time: capacities add, and so do accesses."""
    step = max(1, CELLS // max(len(second), 1))
    parts = [
        _pairs(first, second, slice(begin, begin + step)) for begin in range(0, max(len(first), 1), step)
    ]
    return parts[0] if len(parts) == 1 else lowest(parts)


def _pairs(first: Curve, second: Curve, rows: slice) -> Curve:
    capacity = (first.capacity[rows, None] + second.capacity[None, :]).ravel()
    accesses = (first.accesses[rows, None] + second.accesses[None, :]).ravel()
    kept = staircase(capacity, accesses)
    left, right = np.divmod(kept, max(len(second), 1))
    zeros = np.zeros(len(kept), np.int64)
    made = (Join(first, second),)
    return Curve(capacity[kept], accesses[kept], zeros, left + (rows.start or 0), right, made)


def in_turn(first: Curve, second: Curve) -> Curve:
    """Return the curve for two parts that use the buffer in sequence: the larger capacity, and the sum of the
    accesses."""
    if not len(first) or not len(second):
        return EMPTY
    capacity = np.union1d(first.capacity, second.capacity)
    capacity = capacity[capacity >= max(first.capacity[0], second.capacity[0])]
    left = np.searchsorted(first.capacity, capacity, side="right") - 1
    right = np.searchsorted(second.capacity, capacity, side="right") - 1
    accesses = first.accesses[left] + second.accesses[right]
    zeros = np.zeros(len(capacity), np.int64)
    return Curve(capacity, accesses, zeros, left, right, (Join(first, second),))


def lowest(curves: Iterable[Curve]) -> Curve:
    """Return the lower envelope of some curves; where two are equal, the first one."""
    result = [c for c in curves if len(c)]
    if len(result) < 2:
        return result[0] if result else EMPTY
    offsets = np.cumsum([0, *(len(c.sources) for c in result[:-1])])
    capacity = np.concatenate([c.capacity for c in result])
    accesses = np.concatenate([c.accesses for c in result])
    kept = staircase(capacity, accesses)
    source = np.concatenate([c.source + o for c, o in zip(result, offsets, strict=True)])[kept]
    left = np.concatenate([c.left for c in result])[kept]
    right = np.concatenate([c.right for c in result])[kept]
    used, source = np.unique(source, return_inverse=True)
    every = [s for c in result for s in c.sources]
    sources = tuple(every[i] for i in used.tolist())
    return Curve(capacity[kept], accesses[kept], source.astype(np.int64), left, right, sources)


# Slopes for readers: points, curves and sets of curves as short tables; faults of calls that take a point.

ENDS = 4  # points shown at either end of a longer curve
WIDTH = 60  # characters of a point's mapping in a table

Step = tuple[int, int]  # capacity, accesses


class Stepped(Sized, Protocol):
    """A curve with (capacity, accesses) of each of its points, capacity ascending."""

    @property
    def figures(self) -> Sequence[Step]: ...


class Described(Protocol):
    """A point of a slope; `brief`: its mapping in a few words. Figures are in `unit`."""

    @property
    def capacity(self) -> int: ...

    @property
    def accesses(self) -> int: ...

    @property
    def unit(self) -> str: ...

    @property
    def brief(self) -> str: ...


P = TypeVar("P", bound=Described)
C = TypeVar("C", bound=Stepped)


class CurvePoints(tuple[P, ...], Generic[P]):
    """The points of one curve, as a tuple that prints as a short table."""

    __slots__ = ()

    @property
    def figures(self) -> tuple[Step, ...]:
        """(capacity, accesses) of each point."""
        return tuple((p.capacity, p.accesses) for p in self)

    def __repr__(self) -> str:
        if not self:
            return "no points"
        rows = shown(len(self))
        return steps_text(f"{counted(len(self))}:", self.figures, [self[i] for i in rows])


@dataclass(frozen=True, eq=False, repr=False)
class Curves(Mapping[str, C]):
    """Curves by name; prints as a table with one row each. `titles`: other names for the rows."""

    found: Mapping[str, C]
    unit: str
    titles: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> C:
        return self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __repr__(self) -> str:
        names = ("smallest_capacity", "max_effectual_buffer", "least_accesses")
        columns = [Column("curve"), Column("points"), *(Column(f"{n}_{self.unit}") for n in names)]
        rows = []
        for name, curve in self.found.items():
            ends = (curve.figures[0][0], *curve.figures[-1]) if len(curve) else (None, None, None)
            rows.append((self.titles.get(name, name), len(curve), *ends))
        text = Table("curves", tuple(columns), tuple(rows)).text()
        return f"{text}\n  one of them: .curves[name]; all points: .frame"


def counted(points: int) -> str:
    return f"{points} point{'s' if points != 1 else ''}"


def shown(points: int) -> list[int]:
    """Return the points that a short table shows: all points if there are few, otherwise those at both
    ends."""
    if points <= 2 * ENDS + 1:
        return list(range(points))
    return [*range(ENDS), *range(points - ENDS, points)]


def steps_text(head: str, figures: Sequence[Step], points: Sequence[Described]) -> str:
    """Return a curve as text: the head, the shown points as a table, and where the others can be found."""
    rows = shown(len(figures))
    unit = points[0].unit
    columns = (Column("point"), Column(f"capacity_{unit}"), Column(f"accesses_{unit}"), Column("mapping"))
    briefs = [shorten(p.brief, WIDTH, placeholder=" ...") for p in points]
    cells = [(i, *figures[i], brief) for i, brief in zip(rows, briefs, strict=True)]
    lines = Table("curve", columns, tuple(cells)).text().split("\n")
    if len(rows) < len(figures):
        lines.insert(2 + ENDS, f"  ... {len(figures) - len(rows)} more")
    return "\n".join([head, *lines, "  all points: .frame of the slope; a point's mapping in full: print it"])


def figures_text(point: Described) -> str:
    """Return the first line of a point."""
    return (
        f"{point.capacity:,} {point.unit} of buffer, {point.accesses:,} {point.unit} to and from "
        "the backing store"
    )


def fitting(figures: Sequence[Step], capacity: float) -> int | None:
    """Return the position of the last point that fits a capacity: the one with the least traffic."""
    result = [i for i, (c, _) in enumerate(figures) if c <= capacity]
    return result[-1] if result else None


def checked_capacity(call: str, capacity: object, unit: str) -> int | float:
    """Return the capacity as a plain number. Raises SpecError if it is not a number."""
    result = as_number(capacity)
    if result is None or result != result:
        raise not_a("capacity", call, capacity, f"pass a number of {unit}")
    return result


def fitting_or_fault(name: str, figures: Sequence[Step], capacity: float, unit: str) -> int:
    """Return the position as `fitting` does. Raises SpecError, with the least capacity of any mapping, if
    nothing fits."""
    capacity = checked_capacity(f"{name}.at", capacity, unit)
    if not figures:
        what = f"{name} has no points: none of its mappings goes with this workload"
        remedy = "ask for another curve; .curves has how many points each has"
        raise SpecError([Diagnostic(what, remedy, code="no-solution")])
    at = fitting(figures, capacity)
    if at is None:
        least = figures[0][0]
        what = f"no mapping of {name} fits {capacity:,} {unit}: the least capacity is {least:,} {unit}"
        raise SpecError([Diagnostic(what, f"ask for {least:,} {unit} or more", code="over-capacity")])
    return at


def check_point(point: object, kind: type, call: str, remedy: str) -> None:
    """Raise SpecError if the argument is not a point of this kind of slope."""
    if not isinstance(point, kind):
        raise not_a("point of this slope", call, point, remedy)


def no_einsum(name: object, known: Sequence[str]) -> SpecError:
    """Return the error for an Einsum that a slope does not have."""
    message = f"there is no Einsum {name!r}"
    return SpecError([Diagnostic(message, suggestion(str(name), known, "Einsums"), code="unknown-name")])
