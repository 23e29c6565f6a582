"""Activity of one Einsum in space and time: its computes on space points and time steps.

Two clocks, as in TeAAL (Nayak et al., MICRO 2023): in *lock-step* all space points advance to the next time
stamp together; with *slip* each space point starts its next compute as soon as it is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.report.fibertree_layout import Coordinate, DrawnFibertree, Path, coordinate_text
from polymodel.report.svg_fibertree import Drawable
from polymodel.sparse.execute.records import EinsumCounts, Execution, LoopLevel
from polymodel.sparse.fibertree import Fibertree
from polymodel.spec.teaal.records import Expression, IndexedTensor, SpaceTime, Stamp

# Most computes that are drawn; more cannot be followed one by one.
LIMIT = 60


@dataclass(frozen=True)
class Activity:
    """One compute: its stamps, and the coordinates of every tensor it touches; inputs first, the output last.

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
    """The computes of one Einsum in execution order."""

    einsum: str
    computes: tuple[Activity, ...]
    space: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    slip: bool = False

    @cached_property
    def spaces(self) -> tuple[tuple[int, ...], ...]:
        """The space points that compute anything, in order."""
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
        result: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {space: {} for space in self.spaces}
        for space, time in sorted({(a.space, a.time) for a in self.computes}):
            result[space][time] = len(result[space])
        return result

    @property
    def ideal_steps(self) -> float:
        """The number of computes divided by that of space points: the number of steps if the work were spread
        evenly."""
        return len(self.computes) / len(self.spaces) if self.spaces else 0.0

    @property
    def count(self) -> int:
        """The number of steps under the displayed clock."""
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
        """Share of the (space point, step) pairs that compute something, from 0 to 1."""
        busy = {(a.space, step) for a, step in zip(self.computes, self.steps, strict=True)}
        places = len(self.spaces) * self.count
        return len(busy) / places if places else 0.0

    @property
    def tensors(self) -> tuple[str, ...]:
        """The tensors touched, inputs first, the output last."""
        return tuple(dict.fromkeys(name for a in self.computes for name, _ in a.points))

    @property
    def caption(self) -> tuple[str, ...]:
        """A description of the picture, one line per statement."""
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
    """Return the activities if they can be drawn. Raises Refused above `limit` computes; SpecError if stamps
    are inconsistent."""
    if limit < 1:
        message = f"at most {limit} computes show nothing"
        raise SpecError([Diagnostic(message, "allow at least 1", code="out-of-range")])
    if len(found.computes) > limit:
        raise too_many(found.einsum, len(found.computes), limit)
    faults = [*_lengths("space", found.space, (a.space for a in found.computes))]
    faults += _lengths("time", found.time, (a.time for a in found.computes))
    if faults:
        raise SpecError(faults)
    return found


def too_many(einsum: str, computes: int, limit: int) -> Refused:
    """The refusal of an Einsum with too many computes to draw."""
    return Refused(
        f"{einsum} has {computes:,} computes: too many to draw, the limit is {limit:,}",
        "leave `spacetime` out of its mapping and read the tables, take smaller tensors, or give a larger "
        "limit",
        code="too-large",
    )


def _lengths(what: str, names: Sequence[str], stamps: Iterable[tuple[int, ...]]) -> list[Diagnostic]:
    """A fault if stamps have different lengths, or other lengths than their names."""
    result = {len(s) for s in stamps} | ({len(names)} if names else set())
    if len(result) < 2:
        return []
    return [
        Diagnostic(
            f"{what} stamps of {sorted(result)} numbers",
            "one number per rank, the same for all",
            code="shape-mismatch",
        )
    ]


Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EinsumActivity:
    """One Einsum as executed, with the relevant parts of its spec."""

    execution: Execution
    counts: EinsumCounts
    levels: tuple[LoopLevel, ...]
    expression: Expression

    @cached_property
    def above(self) -> tuple[Ints, ...]:
        """Per loop the node in which each innermost iteration lies."""
        result = [np.arange(self.levels[-1].nodes, dtype=np.int64)]
        for level in reversed(self.levels[1:]):
            result.append(level.parent[result[-1]])
        return tuple(reversed(result))

    @cached_property
    def slots(self) -> tuple[tuple[str, ...], ...]:
        """Per term the names of its tensors; one that occurs again is numbered as in `EinsumCounts`."""
        seen: dict[str, int] = {}
        known = iter(_numbered(o.tensor, seen) for o in self.expression.operands)
        counts = [sum(isinstance(f, IndexedTensor) for f in t.factors) for t in self.expression.terms]
        return tuple(tuple(next(known) for _ in range(n)) for n in counts)

    def element(self, name: str) -> Ints:
        """Return the element of a fibertree's last level at each innermost iteration; -1 where there is
        none."""
        for level, above in zip(reversed(self.levels), reversed(self.above), strict=True):
            if name in level.element:
                result: Ints = level.element[name][above]
                return result
        return np.zeros(self.levels[-1].nodes, dtype=np.int64)

    @cached_property
    def computing(self) -> Ints:
        """The innermost iterations at which all tensors of a term are present."""
        result = np.zeros(self.levels[-1].nodes, dtype=bool)
        for names in self.slots:
            here = np.ones(result.size, dtype=bool)
            for name in names:
                here &= self.element(name) >= 0
            result |= here
        return np.flatnonzero(result)

    @cached_property
    def declared(self) -> tuple[tuple[int, int], ...]:
        """For each rank of the output the innermost loop, and the column of its coordinate, that gives it."""
        result = []
        for variable in (i.variable for i in self.expression.output.indices):
            base = (variable or "").upper()
            loops = [k for k, level in enumerate(self.levels) if base in level.rank.bases]
            if not loops:
                message = f"no loop of {self.counts.einsum} has the rank of each of its output's indices"
                raise Refused(message, code="nothing-to-show")
            result.append((loops[-1], self.levels[loops[-1]].rank.bases.index(base)))
        return tuple(result)

    @cached_property
    def written(self) -> tuple[tuple[str, int, int | None], ...]:
        """The ranks in which the output is drawn: name, loop, and column of its coordinate (None: all).

        These are the ranks of the loops that populate it, as partitioned; if these do not have all its ranks
        (one may be a part of a flattened loop), they are its own ranks.
        """
        loops = [k for k, level in enumerate(self.levels) if level.output is not None]
        if all(k in loops for k, _ in self.declared):
            return tuple((self.levels[k].rank.name, k, None) for k in loops)
        ranks = self.execution.results[self.counts.einsum].ranks
        return tuple((rank, k, column) for rank, (k, column) in zip(ranks, self.declared, strict=True))

    def coordinate(self, loop: int, node: int, column: int | None = None) -> Coordinate:
        """The coordinate of a loop at an innermost iteration, or one column of it."""
        level = self.levels[loop]
        result = level.rank.shown(int(level.coords[self.above[loop][node]]))
        return result[column] if column is not None and isinstance(result, tuple) else result


def _numbered(tensor: str, seen: dict[str, int]) -> str:
    seen[tensor] = seen.get(tensor, 0) + 1
    return tensor if seen[tensor] == 1 else f"{tensor}#{seen[tensor]}"


def activities(execution: Execution, einsum: str = "", *, limit: int = LIMIT) -> Activities:
    """The computes of one Einsum (by default the first) with their stamps, for drawing.

    Points are named in the ranks of the loops, as the partitioned tensors are iterated. Raises Refused above
    `limit` computes, for an Einsum without `spacetime`, and for one whose loops were not recorded.
    """
    ran, stamps = _ran(execution, einsum, limit)
    found = _paths(ran)
    at = ran.computing.tolist()
    space, time = (_stamps(ran, which) for which in (stamps.space, stamps.time))
    computes = []
    for node in at:
        points = tuple((name, paths[node]) for name, paths in found.items() if node in paths)
        computes.append(Activity(space[node], time[node], points))
    return Activities(
        ran.counts.einsum,
        tuple(computes),
        tuple(s.rank for s in stamps.space),
        tuple(s.rank for s in stamps.time),
        stamps.slip,
    )


def iterated(execution: Execution, einsum: str = "", *, limit: int = LIMIT) -> dict[str, Drawable]:
    """The tensors of one Einsum as its loops iterate them: inputs, then the output with its values."""
    ran, _ = _ran(execution, einsum, limit)
    trees: dict[str, Drawable] = dict(ran.counts.inputs)
    return {**trees, ran.counts.einsum: _output(ran)}


def _ran(execution: Execution, einsum: str, limit: int) -> tuple[EinsumActivity, SpaceTime]:
    names = [e.einsum for e in execution.einsums]
    if einsum and einsum not in names:
        message = f"there is no Einsum {einsum!r}"
        raise SpecError([Diagnostic(message, f"Einsums: {', '.join(names)}", code="unknown-name")])
    counts = execution.einsum(einsum or names[0])
    stamps = execution.spec.mapping_of(counts.einsum).spacetime
    if stamps is None:
        message = f"{counts.einsum} has no space and time stamps"
        raise Refused(message, "give it `spacetime` in the mapping to see them", code="nothing-to-show")
    if counts.activities > limit:
        raise too_many(counts.einsum, counts.activities, limit)
    if counts.levels is None:
        message = f"the loops of {counts.einsum} were counted without being walked"
        raise Refused(message, "run it with keep_loops=True", code="nothing-to-show")
    expression = next(e for e in execution.spec.expressions if e.name == counts.einsum)
    return EinsumActivity(execution, counts, counts.levels, expression), stamps


def _stamps(ran: EinsumActivity, which: Sequence[Stamp]) -> dict[int, tuple[int, ...]]:
    """The stamp of every computing iteration: position or coordinate per rank."""
    known = {level.rank.name: k for k, level in enumerate(ran.levels)}
    columns: list[Ints] = []
    for stamp in which:
        k = known[stamp.rank]
        level = ran.levels[k]
        columns.append((level.pos if stamp.style == "pos" else level.coords)[ran.above[k]])
    return {node: tuple(int(c[node]) for c in columns) for node in ran.computing.tolist()}


def _paths(ran: EinsumActivity) -> dict[str, dict[int, tuple[Coordinate, ...]]]:
    """Return, per tensor, inputs first, the point that each computing iteration touches; empty for iterations
    without the term."""
    result: dict[str, dict[int, tuple[Coordinate, ...]]] = {}
    for name in dict.fromkeys(n for names in ran.slots for n in names):
        element = ran.element(name)
        tree = ran.counts.inputs[name]
        result[name] = {n: _path(tree, int(element[n])) for n in ran.computing.tolist() if element[n] >= 0}
    result[ran.counts.einsum] = dict(zip(ran.computing.tolist(), _written(ran), strict=True))
    return result


def _path(tree: Fibertree, element: int) -> tuple[Coordinate, ...]:
    path: list[Coordinate] = []
    for level in reversed(tree.levels):
        path.append(level.rank.shown(int(level.coords[element])))
        element = int(level.fiber[element])
    return tuple(reversed(path))


def _written(ran: EinsumActivity) -> Iterator[tuple[Coordinate, ...]]:
    """The output's point at every computing iteration."""
    for node in ran.computing.tolist():
        yield tuple(ran.coordinate(loop, node, column) for _, loop, column in ran.written)


def _output(ran: EinsumActivity) -> DrawnFibertree:
    """The output in the ranks in which it is drawn: its points, each with its value in the result."""
    result = ran.execution.results[ran.counts.einsum]
    known = dict(zip(map(tuple, result.coords.T.tolist()), result.values.tolist(), strict=True))
    values: dict[tuple[Coordinate, ...], float] = {}
    for node, point in zip(ran.computing.tolist(), _written(ran), strict=True):
        at = tuple(ran.coordinate(loop, node, column) for loop, column in ran.declared)
        values.setdefault(point, known.get(at, 0))
    names = tuple(name for name, _, _ in ran.written)
    widths = tuple(len(ran.levels[k].rank.bases) if c is None else 1 for _, k, c in ran.written)
    flat = [tuple(n for c in p for n in (c if isinstance(c, tuple) else (c,))) for p in values]
    columns = np.array(flat, dtype=np.int64).reshape(len(values), sum(widths)).T
    return DrawnFibertree(ran.counts.einsum, names, widths, columns, np.array(list(values.values())))
