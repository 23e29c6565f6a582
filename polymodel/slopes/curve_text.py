"""Slopes for people: points, curves and sets of curves as short tables; faults of calls that want a point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Generic, Protocol, TypeVar

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import as_number, not_a, suggestion
from polymodel.view.table import Column, Table

ENDS = 4  # points shown of a longer curve at either end
WIDTH = 60  # of what is said of a point's mapping in a table

Step = tuple[int, int]  # capacity, accesses


class Stepped(Sized, Protocol):
    """Something with (capacity, accesses) of each of its points, capacity ascending."""

    @property
    def figures(self) -> Sequence[Step]: ...


class Described(Protocol):
    """A point of a slope; `brief` says in a few words how its mapping is. Figures are in `unit`."""

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
    """The points of one curve: a tuple that prints as a short table."""

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
    """Curves by name; prints as a table with a row for each. `titles`: what else rows call them."""

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
    """Which points a short table has: all of few, else those at both ends."""
    if points <= 2 * ENDS + 1:
        return list(range(points))
    return [*range(ENDS), *range(points - ENDS, points)]


def steps_text(head: str, figures: Sequence[Step], points: Sequence[Described]) -> str:
    """A curve: the head, the shown points (those of `shown`) as a table, and where the others are."""
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
    """The first line of a point."""
    return (
        f"{point.capacity:,} {point.unit} of buffer, {point.accesses:,} {point.unit} to and from "
        "the backing store"
    )


def fitting(figures: Sequence[Step], capacity: float) -> int | None:
    """The position of the last point that fits a capacity: the one with the least traffic."""
    result = [i for i, (c, _) in enumerate(figures) if c <= capacity]
    return result[-1] if result else None


def checked_capacity(call: str, capacity: object, unit: str) -> int | float:
    """The capacity as a plain number; SpecError for what is none."""
    result = as_number(capacity)
    if result is None or result != result:
        raise not_a("capacity", call, capacity, f"pass a number of {unit}")
    return result


def fitting_or_fault(name: str, figures: Sequence[Step], capacity: float, unit: str) -> int:
    """The same, or SpecError with the least capacity that any mapping takes."""
    capacity = checked_capacity(f"{name}.at", capacity, unit)
    if not figures:
        what = f"{name} has no points: none of its mappings goes with this workload"
        raise SpecError([Diagnostic(what, "ask for another curve; .curves has how many points each has")])
    at = fitting(figures, capacity)
    if at is None:
        least = figures[0][0]
        what = f"no mapping of {name} fits {capacity:,} {unit}: the least capacity is {least:,} {unit}"
        raise SpecError([Diagnostic(what, f"ask for {least:,} {unit} or more")])
    return at


def check_point(point: object, kind: type, call: str, remedy: str) -> None:
    """SpecError if something else stands where a point of this kind of slope belongs."""
    if not isinstance(point, kind):
        raise not_a("point of this slope", call, point, remedy)


def no_einsum(name: object, known: Sequence[str]) -> SpecError:
    """The error for the name of an Einsum that a slope has not."""
    return SpecError([Diagnostic(f"there is no Einsum {name!r}", suggestion(str(name), known, "Einsums"))])
