"""What happens where and when: computes of one Einsum on space points and time steps.

Two clocks, as in TeAAL (Nayak et al., MICRO 2023): in *lock-step* all space points go to the next time stamp
together; with *slip* each space point starts its next compute as soon as it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.fibertree_layout import Path, coordinate_text

# More computes than this nobody follows one by one.
LIMIT = 60


@dataclass(frozen=True)
class Activity:
    """One compute: its stamps, and the coordinates of every tensor it touches, inputs first, the output last.

    `points`: (tensor, one coordinate per rank of the tensor as it is iterated, partitioned or not).
    """

    space: tuple[int, ...]
    time: tuple[int, ...]
    points: tuple[tuple[str, Path], ...]

    @property
    def label(self) -> tuple[str, ...]:
        """One line per tensor."""
        return tuple(point_text(tensor, path) for tensor, path in self.points)


def point_text(tensor: str, path: Path) -> str:
    """`A[0,1]`; the name alone for a tensor without ranks."""
    return f"{tensor}[{','.join(coordinate_text(c) for c in path)}]" if path else tensor


@dataclass(frozen=True)
class Activities:
    """The computes of one Einsum in the order in which they run."""

    einsum: str
    computes: tuple[Activity, ...]
    space: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    slip: bool = False

    @cached_property
    def spaces(self) -> tuple[tuple[int, ...], ...]:
        """The space points at which anything is computed, in order."""
        return tuple(sorted({a.space for a in self.computes}))

    @cached_property
    def times(self) -> tuple[tuple[int, ...], ...]:
        """The different time stamps, in order: the steps of lock-step."""
        return tuple(sorted({a.time for a in self.computes}))

    @property
    def lock_steps(self) -> int:
        return len(self.times)

    @property
    def slip_steps(self) -> int:
        """The largest number of different time stamps at one space point."""
        return max(map(len, self._own.values()), default=0)

    @cached_property
    def _own(self) -> dict[tuple[int, ...], dict[tuple[int, ...], int]]:
        """Per space point its own time stamps in order, numbered from 0."""
        found: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {space: {} for space in self.spaces}
        for space, time in sorted({(a.space, a.time) for a in self.computes}):
            found[space][time] = len(found[space])
        return found

    @property
    def ideal_steps(self) -> float:
        """Computes over space points: the work spread evenly."""
        return len(self.computes) / len(self.spaces) if self.spaces else 0.0

    @property
    def count(self) -> int:
        """The steps under the clock that is drawn."""
        return self.slip_steps if self.slip else self.lock_steps

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The step, from 0, at which each compute runs."""
        if not self.slip:
            known = {stamp: number for number, stamp in enumerate(self.times)}
            return tuple(known[a.time] for a in self.computes)
        return tuple(self._own[a.space][a.time] for a in self.computes)

    @property
    def utilisation(self) -> float:
        """Share of the places (space point, step) at which something is computed, from 0 to 1."""
        busy = {(a.space, step) for a, step in zip(self.computes, self.steps, strict=True)}
        places = len(self.spaces) * self.count
        return len(busy) / places if places else 0.0

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors touched, inputs first, the output last."""
        return tuple(dict.fromkeys(name for a in self.computes for name, _ in a.points))

    @property
    def caption(self) -> tuple[str, ...]:
        """What there is to see, in words, one line per thought."""
        clock = "slip" if self.slip else "lock-step"
        many, points = len(self.computes), len(self.spaces)
        return (
            f"{many} compute{_s(many)} on {points} space point{_s(points)}, {self.count} "
            f"step{_s(self.count)} ({clock}): utilisation {100 * self.utilisation:.1f} %",
            f"lock-step {self.lock_steps}, slip {self.slip_steps}, ideal (computes / space points) "
            f"{self.ideal_steps:.4g} steps",
        )

    def with_clock(self, slip: bool) -> Activities:
        """The same computes under the other clock."""
        return Activities(self.einsum, self.computes, self.space, self.time, slip)


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def allowed(found: Activities, limit: int = LIMIT) -> Activities:
    """The same, if it can be drawn. Refused above `limit` computes; SpecError where stamps do not fit."""
    if limit < 1:
        raise SpecError([Diagnostic(f"at most {limit} computes show nothing", "allow at least 1")])
    if len(found.computes) > limit:
        raise too_many(found.einsum, len(found.computes), limit)
    faults = [*_lengths("space", found.space, (a.space for a in found.computes))]
    faults += _lengths("time", found.time, (a.time for a in found.computes))
    if faults:
        raise SpecError(faults)
    return found


def too_many(einsum: str, computes: int, limit: int) -> Refused:
    """The refusal of an Einsum with more computes than are drawn."""
    return Refused(
        f"{einsum} has {computes:,} computes, and more than {limit:,} nobody can follow",
        "leave `spacetime` out of its mapping and read the tables, take smaller tensors, or give a larger "
        "limit",
    )


def _lengths(what: str, names: Sequence[str], stamps: Iterable[tuple[int, ...]]) -> list[Diagnostic]:
    """A fault where not every stamp has as many numbers as there are names, or as the others."""
    found = {len(s) for s in stamps} | ({len(names)} if names else set())
    if len(found) < 2:
        return []
    return [Diagnostic(f"{what} stamps of {sorted(found)} numbers", "one number per rank, the same for all")]
