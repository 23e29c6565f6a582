"""The points of a grid that break a dependence, decided once for all points in which the same loops run once.

In mappings with closed forms, all Einsums that share an intermediate touch equal tiles of it, so that an
element is read too early, or summed in two places, exactly if a loop that must not separate its users runs
more than once. A loop runs more than once if its (first) tile is smaller than the enclosing one; how much
smaller does not matter. So choices of an axis in which the same loops run more than once form one class, and
points in which fewer loops run more than once break no additional dependence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import ArrayOps
from polymodel.analysis.symbolic.counts import shares_tied_loops
from polymodel.analysis.symbolic.forms import Form, SymbolicAnalysis, names_in, size_in
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check, never_produced
from polymodel.spec.faults import Faults
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.infeasibility import shared
from polymodel.workload.einsum import boxed

Array = Any
Names = tuple[str, ...]
Classes = tuple[int, ...]  # a class of each axis
MOST = 10_000  # combinations of classes that are checked
CELLS = 10**7  # entries of the table of verdicts


@dataclass(frozen=True)
class Illegal:
    """The points of a grid that break a dependence, by the class of the choice along each axis.

    `classes`: an axis (its symbols) -> the class of each of its choices; `verdicts` has one dimension per
    axis, and for each combination of classes 0 if it is legal, otherwise k for `reasons[k - 1]`.
    """

    classes: Mapping[Names, Array]
    verdicts: Array
    reasons: tuple[str, ...]

    def masks(self, digits: Mapping[Names, Array]) -> Iterator[tuple[str, Array]]:
        """Each reason with a mask that is False at points that have it; `digits`: their choices by axis."""
        found = self.verdicts[tuple(of[digits[names]] for names, of in self.classes.items())]
        for k, reason in enumerate(self.reasons, 1):
            yield reason, found != k

    def columns(self, names: Names) -> list[Array]:
        """Columns over the choices of an axis that represent their legality.

        A choice with 1 in a column where another one has 0 is legal only where that one is.
        """
        if names not in self.classes:
            return []
        place = list(self.classes).index(names)
        broken = np.moveaxis(self.verdicts > 0, place, 0).reshape(self.verdicts.shape[place], -1)
        return list(np.unique(broken, axis=1).T[:, self.classes[names]].astype(np.int64))

    def only(self, names: Names, chosen: Array) -> Illegal:
        """The verdicts for some choices of one axis."""
        if names not in self.classes:
            return self
        return replace(self, classes={**self.classes, names: self.classes[names][chosen]})


def illegal(
    problem: Problem,
    axes: Sequence[SymbolAxis],
    varying: Set[str],
    forms: SymbolicAnalysis,
    fixed: Mapping[str, Any],
) -> Illegal | None:
    """The points that break a dependence; None if none does. Raises SpecError if all do.

    `varying`: symbols of the tree that axes give; `fixed`: values of all others in the chains. Raises Refused
    if it takes too long to decide, TimeUp at the deadline.
    """
    if not all(axis.size for axis in axes):
        return None
    kinds = [_kinds(axis, forms, fixed) for axis in axes]
    problem, tied, every = _problem_of_classes(problem)
    judge = _Judge(problem, axes, varying, kinds, every)
    broken = next((f for f in map(judge, product(*(k.finest for k in kinds))) if f), None)
    if broken is None:
        return None
    if tied:
        raise _depends_on_sizes()
    if all(map(judge, product(*(k.coarsest for k in kinds)))):
        raise SpecError(broken)
    result = _decided(judge, kinds, broken[0])
    # axes whose classes never change a verdict are left out
    apart = {a.names: m[k.of] for a, k, m in zip(axes, kinds, result.merged, strict=True) if m.any()}
    return Illegal(
        apart, result.verdicts.reshape([n for n in result.verdicts.shape if n > 1]), result.reasons
    )


def _problem_of_classes(problem: Problem) -> tuple[Problem, bool, bool]:
    """A problem with one verdict per class, whether tied spaces became boxes in it, and the flag `every` of
    `_Judge`.

    Dependences that hold for boxes hold for their parts; dependences that boxes break may hold for their
    parts at some tile sizes of a class.
    """
    tied = shares_tied_loops(problem)
    # If everything that is read is produced, inferred operations are produced for their consumers at any
    # sizes.
    every = not tied or bool(never_produced(problem.cascade))
    return replace(problem, cascade=boxed(problem.cascade)) if tied else problem, tied, every


def _depends_on_sizes() -> NotSeparable:
    return NotSeparable(
        "Einsums share loops over rank variables that a bound ties together, and whether dependences are "
        "kept depends on tile sizes",
        code="unsupported-space",
    )


@dataclass(frozen=True)
class _Kinds:
    """The classes of one axis.

    `once` [class, loop]: whether the loop runs only once; `choice`: one choice of each class; `of`: the class
    of each choice.
    """

    once: Array
    choice: Array
    of: Array

    @cached_property
    def within(self) -> Array:
        """[a, b]: whether every loop that runs more than once in a also does in b."""
        return (~self.once).astype(np.int64) @ self.once.T.astype(np.int64) == 0

    @property
    def finest(self) -> list[int]:
        """Classes with maximal sets of loops that run more than once."""
        return np.flatnonzero(self.within.sum(axis=1) == 1).tolist()

    @property
    def coarsest(self) -> list[int]:
        """Classes with minimal sets of loops that run more than once."""
        return np.flatnonzero(self.within.sum(axis=0) == 1).tolist()


def _kinds(axis: SymbolAxis, forms: SymbolicAnalysis, fixed: Mapping[str, Any]) -> _Kinds:
    once, choice, of = np.unique(_once(axis, forms, fixed), axis=0, return_index=True, return_inverse=True)
    return _Kinds(once, choice, of.reshape(axis.size))


def _once(axis: SymbolAxis, forms: SymbolicAnalysis, fixed: Mapping[str, Any]) -> Array:
    """[choice, loop]: whether the loop runs only once."""
    values = {**fixed, **axis.columns}
    links: list[Array] = [False]
    for chain in forms.chains:
        for outer, tile in pairwise(chain):
            if any(s in axis.columns for s in names_in((outer, tile))):
                whole, part = (size_in(s, values, np.maximum) for s in (outer, tile))
                links.append(np.equal(whole, part))
    for form in forms.single_trips:
        if form.symbols & axis.columns.keys():
            links.append(np.equal(_at(form, values), 1))
    result = np.empty((axis.size, len(links)), bool)
    for k, link in enumerate(links):
        result[:, k] = link
    return result


def _at(form: Form, values: Mapping[str, Any]) -> Any:
    ops, total = ArrayOps(), 0
    for factors, coefficient in form.terms:
        for factor in factors:
            coefficient = coefficient * factor.value(ops, values)
        total = total + coefficient
    return total


@dataclass
class _Judge:
    """Checks one point per combination of classes, with a cache.

    `every`: also check dependences that hold at all tile sizes or at none.
    """

    problem: Problem
    axes: Sequence[SymbolAxis]
    varying: Set[str]
    kinds: Sequence[_Kinds]
    every: bool = True
    known: dict[Classes, tuple[Diagnostic, ...]] = field(default_factory=dict)

    def __call__(self, picked: Classes) -> tuple[Diagnostic, ...]:
        if picked not in self.known:
            look("which points of the sweep break a dependence")
            point: dict[str, int] = {}
            for axis, kind, k in zip(self.axes, self.kinds, picked, strict=True):
                point |= _choice(axis, kind.choice[k], self.varying)
            self.known[picked] = _broken(self.problem, point, self.every)
        return self.known[picked]

    def reason(self, picked: Classes) -> str:
        """Why the points of a combination are illegal, in words shared by all of them; empty if they are
        legal."""
        broken = self(picked)
        return shared(broken[0].message) if broken else ""


def _choice(axis: SymbolAxis, at: int, varying: Set[str]) -> dict[str, int]:
    """The symbols of the tree at one choice of an axis."""
    return {n: int(c[at]) for n, c in axis.columns.items() if n in varying}


def _broken(problem: Problem, point: Mapping[str, int], every: bool = True) -> tuple[Diagnostic, ...]:
    bound = bind_tree(ResolvedMapping(problem.tree), point, Faults())
    return check(replace(problem, tree=bound.tree), every=every)


@dataclass
class Verdicts:
    """Verdicts on points that come a few at a time, decided once per set of loops that run more than once."""

    problem: Problem
    varying: Set[str]
    forms: SymbolicAnalysis
    fixed: Mapping[str, Any]
    known: dict[bytes, str] = field(default_factory=dict)

    @cached_property
    def _classed(self) -> tuple[Problem, bool, bool]:
        return _problem_of_classes(self.problem)

    def reasons(self, axis: SymbolAxis) -> tuple[Array, tuple[str, ...]]:
        """For each choice 0 if it breaks no dependence, otherwise k for `reasons[k - 1]`.

        Raises NotSeparable where a class has no single verdict.
        """
        problem, tied, every = self._classed
        once = _once(axis, self.forms, self.fixed)
        first, of = _first_of_each(once)
        said: dict[str, int] = {"": 0}
        codes = []
        for at in first.tolist():
            key = once[at].tobytes()
            if key not in self.known:
                look("which points break a dependence")
                broken = _broken(problem, _choice(axis, at, self.varying), every)
                if broken and tied:
                    raise _depends_on_sizes()
                self.known[key] = shared(broken[0].message) if broken else ""
            codes.append(said.setdefault(self.known[key], len(said)))
        return np.asarray(codes, np.int64)[of], tuple(said)[1:]


def _first_of_each(table: Array) -> tuple[Array, Array]:
    """The first position of each distinct row of a boolean table, and the index of every row among these."""
    count, bits = table.shape
    if count == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    if bits > 16:
        _, first, of = np.unique(np.packbits(table, axis=1), axis=0, return_index=True, return_inverse=True)
        return first, of.reshape(-1)
    codes = table @ (1 << np.arange(bits))  # few distinct rows: no sorting needed
    first = np.full(1 << bits, -1)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    number = np.zeros(1 << bits, np.int64)
    number[present] = np.arange(len(present))
    return first[present], number[codes]


def _decided(judge: _Judge, kinds: Sequence[_Kinds], first: Diagnostic) -> _Decided:
    """The verdict of every combination of classes. Raises Refused if that takes too many checks."""
    order = _by_weight(judge, kinds)
    diagram = _Diagram(judge, kinds, order)
    try:
        return diagram.decided()
    except _TooMany as many:
        raise Refused(
            f"some tile sizes break a dependence ({first.message}), and which do is looked at for sets of "
            f"loops that run more than once: more than {many}",
            "leave some out by `where`, or sweep fewer symbols at once",
            code="too-large",
        ) from None


def _by_weight(judge: _Judge, kinds: Sequence[_Kinds]) -> list[int]:
    """The axes, those first whose loops alone change the verdict, so that boxes of the others are decided
    whole."""
    least, most = ([getattr(k, end)[0] for k in kinds] for end in ("coarsest", "finest"))

    def changes(place: int) -> int:
        up, down = list(least), list(most)
        up[place], down[place] = most[place], least[place]
        reasons = [judge.reason(tuple(x)) for x in (up, least, down, most)]
        return (reasons[0] != reasons[1]) + (reasons[2] != reasons[3])

    return sorted(range(len(kinds)), key=lambda place: -changes(place))


class _TooMany(Exception):
    """More combinations of classes would have to be checked one by one than allowed."""


@dataclass(frozen=True)
class _Decided:
    """Verdicts by axis.

    `merged`: for each axis a number per class, equal for classes with equal verdicts; `verdicts` has a
    dimension of these numbers for each axis.
    """

    merged: tuple[Array, ...]
    verdicts: Array
    reasons: tuple[str, ...]


@dataclass
class _Diagram:
    """Verdicts as an ordered decision diagram: a node branches on the class of one axis, and equal nodes are
    shared.

    A node is a leaf (0: legal, otherwise the number of a reason), or negative: an index into `nodes`, an axis
    with the node below each of its classes. The more loops run more than once, the more dependences break,
    and the reason reported is the first one of a fixed order. So if both ends of a box of points have the
    same reason, all its points do.
    """

    judge: _Judge
    kinds: Sequence[_Kinds]
    order: Sequence[int]
    reasons: dict[str, int] = field(default_factory=dict)
    nodes: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    @cached_property
    def branches(self) -> list[tuple[int, tuple[int, ...]]]:
        """All nodes by number, once they exist."""
        return list(self.nodes)

    def decided(self) -> _Decided:
        top = self._node({})
        merged = tuple(self._merged(place) for place in range(len(self.kinds)))
        shape = tuple(int(m.max()) + 1 for m in merged)
        if prod(shape) > CELLS:
            raise _TooMany(prod(shape))
        verdicts = np.zeros(shape, np.int64)
        self._fill(top, {}, merged, verdicts)
        return _Decided(merged, verdicts, tuple(self.reasons))

    def _node(self, picked: Mapping[int, int]) -> int:
        """The node below these classes of the first axes."""
        leaf = self._leaf(picked)
        if leaf is not None:
            return leaf
        place = self.order[len(picked)]
        kind = self.kinds[place]
        below: dict[int, int] = {}
        if len(kind.coarsest) == len(kind.finest) == 1:
            ends = kind.coarsest[0], kind.finest[0]
            below = {k: self._node({**picked, place: k}) for k in ends}
            if len(set(below.values())) == 1:  # all classes lie between these
                return below[ends[0]]
        result = tuple(
            below[k] if k in below else self._node({**picked, place: k}) for k in range(len(kind.once))
        )
        if len(set(result)) == 1:
            return result[0]
        return self.nodes.setdefault((place, result), -1 - len(self.nodes))

    def _leaf(self, picked: Mapping[int, int]) -> int | None:
        """The common verdict of all points with these classes; None if they differ."""
        every = [[picked[i]] if i in picked else k.finest for i, k in enumerate(self.kinds)]
        most = {self._reason_number(x) for x in product(*every)}
        if len(most) > 1 or most == {0} or len(picked) == len(self.kinds):
            return most.pop() if len(most) == 1 else None
        every = [[picked[i]] if i in picked else k.coarsest for i, k in enumerate(self.kinds)]
        return next(iter(most)) if {self._reason_number(x) for x in product(*every)} == most else None

    def _reason_number(self, classes: Classes) -> int:
        if len(self.judge.known) > MOST:
            raise _TooMany(MOST)
        reason = self.judge.reason(classes)
        return self.reasons.setdefault(reason, len(self.reasons) + 1) if reason else 0

    def _merged(self, place: int) -> Array:
        """A number for each class of an axis, equal for classes with equal nodes below them everywhere."""
        rows = [below for axis, below in self.nodes if axis == place]
        count = len(self.kinds[place].once)
        table = np.array(rows, np.int64).T if rows else np.zeros((count, 1), np.int64)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(count)

    def _fill(self, node: int, picked: Mapping[int, int], merged: tuple[Array, ...], into: Array) -> None:
        """Write the verdicts below a node; `picked`: merged classes of the axes above it."""
        if node >= 0:
            into[tuple(picked.get(i, slice(None)) for i in range(len(merged)))] = node
            return
        place, below = self.branches[-1 - node]
        for k, child in dict(zip(merged[place].tolist(), below, strict=True)).items():
            self._fill(child, {**picked, place: k}, merged, into)
