"""Which points of a grid break a dependence: decided once for all points in which the same loops run once.

Mappings with closed forms touch equal tiles of an intermediate in all Einsums that share it, so an element is
read too early, or summed up in two places, exactly if a loop that must not part its users runs more than
once. Whether a loop does is whether its (first) tile is smaller than the enclosing one; how much smaller does
not matter. So choices of an axis in which the same loops run more than once are one class, and points in
which fewer loops run more than once break no dependence that others keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
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
from polymodel.governor import look
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check, unmade
from polymodel.spec.faults import Faults
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.infeasibility import shared
from polymodel.workload.einsum import boxed

Array = Any
Names = tuple[str, ...]
Classes = tuple[int, ...]  # a class of each axis
MOST = 10_000  # combinations of classes that are looked at
CELLS = 10**7  # of the table of verdicts


@dataclass(frozen=True)
class Illegal:
    """Points of a grid that break a dependence, by the class of the choice along each axis.

    `classes`: an axis (its symbols) -> the class of each of its choices; `verdicts` has a dimension for each
    of these axes, and for each combination of classes 0 if it is legal, else k for `reasons[k - 1]`.
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
        """What tells choices of an axis apart: in no column is a choice above another one (1 over 0) that is
        legal only where that one is as well."""
        if names not in self.classes:
            return []
        place = list(self.classes).index(names)
        broken = np.moveaxis(self.verdicts > 0, place, 0).reshape(self.verdicts.shape[place], -1)
        return list(np.unique(broken, axis=1).T[:, self.classes[names]].astype(np.int64))

    def only(self, names: Names, chosen: Array) -> Illegal:
        """With some choices of one axis."""
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
    """Which points break a dependence; None if none does. SpecError if all do.

    `varying`: symbols of the tree that axes give; `fixed`: values of all others in the chains. Raises Refused
    if that takes too long to decide, TimeUp at the deadline.
    """
    if not all(axis.size for axis in axes):
        return None
    kinds = [_kinds(axis, forms, fixed) for axis in axes]
    problem, tied, every = _in_classes(problem)
    judge = _Judge(problem, axes, varying, kinds, every)
    broken = next((f for f in map(judge, product(*(k.finest for k in kinds))) if f), None)
    if broken is None:
        return None
    if tied:
        raise _depends_on_sizes()
    if all(map(judge, product(*(k.coarsest for k in kinds)))):
        raise SpecError(broken)
    result = _decided(judge, kinds, broken[0])
    # Axes whose classes no verdict tells apart have no part in it.
    apart = {a.names: m[k.of] for a, k, m in zip(axes, kinds, result.merged, strict=True) if m.any()}
    return Illegal(
        apart, result.verdicts.reshape([n for n in result.verdicts.shape if n > 1]), result.reasons
    )


def _in_classes(problem: Problem) -> tuple[Problem, bool, bool]:
    """A problem whose verdicts are those of classes, whether it has boxes in place of spaces that bounds tie,
    and whether what is kept at all tile sizes, if it is at any, has to be looked at.

    What boxes keep, their parts do; what boxes break, their parts may keep at some tile sizes of a class.
    """
    tied = shares_tied_loops(problem)
    # Where all that is read is made at all, what is inferred is made for those that need it at any sizes.
    every = not tied or bool(unmade(problem.cascade))
    return replace(problem, cascade=boxed(problem.cascade)) if tied else problem, tied, every


def _depends_on_sizes() -> NotSeparable:
    return NotSeparable(
        "Einsums share loops over rank variables that a bound ties together, and whether dependences are "
        "kept depends on tile sizes",
        code="unsupported-space",
    )


@dataclass(frozen=True)
class _Kinds:
    """The classes of one axis. `once` [class, loop]: whether the loop runs only once; `choice`: one choice of
    each class; `of`: the class of each choice."""

    once: Array
    choice: Array
    of: Array

    @cached_property
    def within(self) -> Array:
        """[a, b]: every loop that runs more than once in a does so in b."""
        return (~self.once).astype(np.int64) @ self.once.T.astype(np.int64) == 0

    @property
    def finest(self) -> list[int]:
        """Classes with the largest sets of loops that run more than once."""
        return np.flatnonzero(self.within.sum(axis=1) == 1).tolist()

    @property
    def coarsest(self) -> list[int]:
        """Classes with the smallest ones."""
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
    """What is broken at one point of a combination of classes, each looked at once. `every`: also of what is
    kept at all tile sizes, if it is at any."""

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
        """Why the points of a combination are not mappings, in words that they share; empty if they are."""
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
    """Verdicts on points that come a few at a time: decided once for each set of loops that run more than
    once."""

    problem: Problem
    varying: Set[str]
    forms: SymbolicAnalysis
    fixed: Mapping[str, Any]
    known: dict[bytes, str] = field(default_factory=dict)

    @cached_property
    def _classed(self) -> tuple[Problem, bool, bool]:
        return _in_classes(self.problem)

    def reasons(self, axis: SymbolAxis) -> tuple[Array, tuple[str, ...]]:
        """For each choice 0 if it breaks no dependence, else k for `reasons[k - 1]`. Raises NotSeparable
        where a class has no verdict of its own."""
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
    """Of the different rows of a boolean table the first place of each, and which of them every row is."""
    count, bits = table.shape
    if count == 1:
        return np.zeros(1, np.int64), np.zeros(1, np.int64)
    if bits > 16:
        _, first, of = np.unique(np.packbits(table, axis=1), axis=0, return_index=True, return_inverse=True)
        return first, of.reshape(-1)
    codes = table @ (1 << np.arange(bits))  # few different rows: no need to sort them
    first = np.full(1 << bits, -1)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    present = np.flatnonzero(first >= 0)
    number = np.zeros(1 << bits, np.int64)
    number[present] = np.arange(len(present))
    return first[present], number[codes]


def _decided(judge: _Judge, kinds: Sequence[_Kinds], first: Diagnostic) -> _Decided:
    """The verdict of every combination of classes. Refused if that takes too many looks."""
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
    """The axes, those first whose loops alone change the verdict: of the others boxes are decided whole."""
    least, most = ([getattr(k, end)[0] for k in kinds] for end in ("coarsest", "finest"))

    def changes(place: int) -> int:
        up, down = list(least), list(most)
        up[place], down[place] = most[place], least[place]
        told = [judge.reason(tuple(x)) for x in (up, least, down, most)]
        return (told[0] != told[1]) + (told[2] != told[3])

    return sorted(range(len(kinds)), key=lambda place: -changes(place))


class _TooMany(Exception):
    """More combinations of classes would have to be looked at one by one than is allowed."""


@dataclass(frozen=True)
class _Decided:
    """Verdicts by axis: `merged`: for each axis a number for each of its classes, the same for classes that
    no verdict tells apart; `verdicts` has a dimension for each axis of these numbers."""

    merged: tuple[Array, ...]
    verdicts: Array
    reasons: tuple[str, ...]


@dataclass
class _Diagram:
    """Verdicts as an ordered decision diagram: a node asks for the class of one axis, in the given order of
    the axes, and equal nodes are one. A node is a leaf (0: legal, else the number of a reason), or below
    zero: the one of `nodes` with that number, an axis and the node below each of its classes.

    The more loops run more than once, the more is broken, and what is told of a point is the first of a fixed
    list of what is broken there. So a box of points whose ends are told the same is told that throughout.
    """

    judge: _Judge
    kinds: Sequence[_Kinds]
    order: Sequence[int]
    reasons: dict[str, int] = field(default_factory=dict)
    nodes: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    @cached_property
    def branches(self) -> list[tuple[int, tuple[int, ...]]]:
        """All nodes by number, once they are made."""
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
        """What all points with these classes are told, if that is the same."""
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
        """A number for each class of an axis, the same for classes with equal nodes below them everywhere."""
        rows = [below for axis, below in self.nodes if axis == place]
        count = len(self.kinds[place].once)
        table = np.array(rows, np.int64).T if rows else np.zeros((count, 1), np.int64)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(count)

    def _fill(self, node: int, picked: Mapping[int, int], merged: tuple[Array, ...], into: Array) -> None:
        """Write the verdicts below a node; `picked`: merged classes of axes above it."""
        if node >= 0:
            into[tuple(picked.get(i, slice(None)) for i in range(len(merged)))] = node
            return
        place, below = self.branches[-1 - node]
        for k, child in dict(zip(merged[place].tolist(), below, strict=True)).items():
            self._fill(child, {**picked, place: k}, merged, into)
