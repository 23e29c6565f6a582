"""The computes of an Einsum that ran, one by one, from the loops that the executor kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.activity import LIMIT, Activities, Activity, too_many
from polymodel.report.fibertree_layout import Coordinate, Levels
from polymodel.report.svg_fibertree import Drawable
from polymodel.sparse.execute.records import EinsumCounts, Execution, LoopLevel
from polymodel.sparse.fibertree import Fibertree, LoopRank
from polymodel.spec.teaal.records import Expression, Operand, SpaceTime, Stamp

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ran:
    """One Einsum as it ran, with what its spec says of it."""

    execution: Execution
    counts: EinsumCounts
    levels: tuple[LoopLevel, ...]
    expression: Expression

    @cached_property
    def above(self) -> tuple[Ints, ...]:
        """Per loop the node in which each innermost iteration lies."""
        found = [np.arange(self.levels[-1].nodes, dtype=np.int64)]
        for level in reversed(self.levels[1:]):
            found.append(level.parent[found[-1]])
        return tuple(reversed(found))

    @cached_property
    def slots(self) -> tuple[tuple[str, ...], ...]:
        """Per term the names of its tensors; one that occurs again is numbered as in `EinsumCounts`."""
        seen: dict[str, int] = {}
        known = iter(_numbered(o.tensor, seen) for o in self.expression.operands)
        counts = [sum(isinstance(f, Operand) for f in t.factors) for t in self.expression.terms]
        return tuple(tuple(next(known) for _ in range(n)) for n in counts)

    def element(self, name: str) -> Ints:
        """The element of a fibertree's last level at each innermost iteration; -1 where it is out."""
        for level, above in zip(reversed(self.levels), reversed(self.above), strict=True):
            if name in level.element:
                found: Ints = level.element[name][above]
                return found
        return np.zeros(self.levels[-1].nodes, dtype=np.int64)

    @cached_property
    def computing(self) -> Ints:
        """The innermost iterations at which a term has all its tensors."""
        found = np.zeros(self.levels[-1].nodes, dtype=bool)
        for names in self.slots:
            here = np.ones(found.size, dtype=bool)
            for name in names:
                here &= self.element(name) >= 0
            found |= here
        return np.flatnonzero(found)

    @property
    def written(self) -> tuple[int, ...]:
        """The loops whose rank the output has."""
        return tuple(k for k, level in enumerate(self.levels) if level.output is not None)


def _numbered(tensor: str, seen: dict[str, int]) -> str:
    seen[tensor] = seen.get(tensor, 0) + 1
    return tensor if seen[tensor] == 1 else f"{tensor}#{seen[tensor]}"


def activities(execution: Execution, einsum: str = "", *, limit: int = LIMIT) -> Activities:
    """The computes of one Einsum (the first, if none is named) with their stamps, to be drawn.

    Points are named in the ranks of the loops, as the partitioned tensors are iterated. Refused above `limit`
    computes, for an Einsum without `spacetime`, and for one whose loops were not walked.
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


def _ran(execution: Execution, einsum: str, limit: int) -> tuple[Ran, SpaceTime]:
    names = [e.einsum for e in execution.einsums]
    if einsum and einsum not in names:
        raise SpecError([Diagnostic(f"there is no Einsum {einsum!r}", f"Einsums: {', '.join(names)}")])
    counts = execution.einsum(einsum or names[0])
    stamps = execution.spec.mapping_of(counts.einsum).spacetime
    if stamps is None:
        raise Refused(
            f"{counts.einsum} has no space and time stamps", "give it `spacetime` in the mapping to see them"
        )
    if counts.activities > limit:
        raise too_many(counts.einsum, counts.activities, limit)
    if counts.levels is None:
        raise Refused(
            f"the loops of {counts.einsum} were counted without being walked",
            "run it with keep_loops=True",
        )
    expression = next(e for e in execution.spec.expressions if e.name == counts.einsum)
    return Ran(execution, counts, counts.levels, expression), stamps


def _stamps(ran: Ran, which: Sequence[Stamp]) -> dict[int, tuple[int, ...]]:
    """The stamp of every computing iteration: position or coordinate per rank."""
    known = {level.rank.name: k for k, level in enumerate(ran.levels)}
    columns: list[Ints] = []
    for stamp in which:
        k = known[stamp.rank]
        level = ran.levels[k]
        columns.append((level.pos if stamp.style == "pos" else level.coords)[ran.above[k]])
    return {node: tuple(int(c[node]) for c in columns) for node in ran.computing.tolist()}


def _paths(ran: Ran) -> dict[str, dict[int, tuple[Coordinate, ...]]]:
    """Per tensor, inputs first, the point that each computing iteration touches; none where a term is out."""
    found: dict[str, dict[int, tuple[Coordinate, ...]]] = {}
    for name in dict.fromkeys(n for names in ran.slots for n in names):
        element = ran.element(name)
        tree = ran.counts.inputs[name]
        found[name] = {n: _path(tree, int(element[n])) for n in ran.computing.tolist() if element[n] >= 0}
    found[ran.counts.einsum] = dict(zip(ran.computing.tolist(), _written(ran), strict=True))
    return found


def _path(tree: Fibertree, element: int) -> tuple[Coordinate, ...]:
    path: list[Coordinate] = []
    for level in reversed(tree.levels):
        path.append(level.rank.shown(int(level.coords[element])))
        element = int(level.fiber[element])
    return tuple(reversed(path))


def _written(ran: Ran) -> Iterator[tuple[Coordinate, ...]]:
    """The output's point at every computing iteration, in the ranks of its loops."""
    for node in ran.computing.tolist():
        yield tuple(
            ran.levels[k].rank.shown(int(ran.levels[k].coords[ran.above[k][node]])) for k in ran.written
        )


def _output(ran: Ran) -> Levels:
    """The output in the ranks of its loops: its points, each with its value in the result."""
    result = ran.execution.results[ran.counts.einsum]
    points = list(dict.fromkeys(_written(ran)))
    ranks = [ran.levels[k].rank for k in ran.written]
    names, widths = tuple(r.name for r in ranks), tuple(len(r.bases) for r in ranks)
    flat = [tuple(n for c in p for n in (c if isinstance(c, tuple) else (c,))) for p in points]
    columns = np.array(flat, dtype=np.int64).reshape(len(points), sum(widths)).T
    declared = _declared(ran, ranks)
    if len(declared) < len(result.ranks):
        computes = Counter(_written(ran))
        values = np.array([computes[p] for p in points])
        return Levels(
            ran.counts.einsum, names, widths, columns, values, "the number of computes at each point"
        )
    known = dict(zip(map(tuple, result.coords.T.tolist()), result.values.tolist(), strict=True))
    values = np.array([known.get(tuple(p[k] for k in declared), 0) for p in flat])
    return Levels(ran.counts.einsum, names, widths, columns, values)


def _declared(ran: Ran, ranks: Sequence[LoopRank]) -> tuple[int, ...]:
    """For each declared rank of the output, which column of its loops' ranks holds the coordinate.

    Of the parts of a rank it is the innermost one. Empty where an index is no plain rank variable.
    """
    columns = [base for rank in ranks for base in rank.bases]
    wanted = [i.variable for i in ran.expression.output.indices]
    if any(variable is None or variable.upper() not in columns for variable in wanted):
        return ()
    return tuple(max(k for k, b in enumerate(columns) if v and b == v.upper()) for v in wanted)
