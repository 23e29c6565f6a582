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
from functools import cached_property, reduce
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from polymodel.analysis.engine import Problem
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.ops import Arrays
from polymodel.analysis.symbolic.records import SymbolicAnalysis, names_in, size_in
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check
from polymodel.spec.faults import Faults
from polymodel.sweeps.axes import Axis
from polymodel.sweeps.reasons import shared

Array = Any
Names = tuple[str, ...]
Classes = tuple[int, ...]  # a class of each axis
MOST = 10_000  # combinations of classes that are looked at one by one


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
    axes: Sequence[Axis],
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
    judge = _Judge(problem, axes, varying, kinds)
    broken = next((f for f in map(judge, product(*(k.finest for k in kinds))) if f), None)
    if broken is None:
        return None
    if all(map(judge, product(*(k.coarsest for k in kinds)))):
        raise SpecError(broken)
    verdicts, reasons = _decided(judge, kinds, broken[0])
    return _told_apart({a.names: k.of for a, k in zip(axes, kinds, strict=True)}, verdicts, reasons)


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


def _kinds(axis: Axis, forms: SymbolicAnalysis, fixed: Mapping[str, Any]) -> _Kinds:
    once, choice, of = np.unique(_once(axis, forms, fixed), axis=0, return_index=True, return_inverse=True)
    return _Kinds(once, choice, of.reshape(axis.size))


def _once(axis: Axis, forms: SymbolicAnalysis, fixed: Mapping[str, Any]) -> Array:
    """[choice, loop]: whether the loop runs only once."""
    values = {**fixed, **axis.columns}
    links = [np.zeros(axis.size, bool)]
    for chain in forms.chains:
        for outer, tile in pairwise(chain):
            if any(s in axis.columns for s in names_in((outer, tile))):
                whole, part = (size_in(s, values, np.maximum) for s in (outer, tile))
                links.append(np.broadcast_to(np.equal(whole, part), (axis.size,)))
    for form in forms.single_trips:
        if form.symbols & axis.columns.keys():
            links.append(np.broadcast_to(np.equal(_at(form, values), 1), (axis.size,)))
    return np.stack(links, axis=1)


def _at(form: Form, values: Mapping[str, Any]) -> Any:
    ops, total = Arrays(), 0
    for factors, coefficient in form.terms:
        for factor in factors:
            coefficient = coefficient * factor.value(ops, values)
        total = total + coefficient
    return total


@dataclass
class _Judge:
    """What is broken at one point of a combination of classes, each looked at once."""

    problem: Problem
    axes: Sequence[Axis]
    varying: Set[str]
    kinds: Sequence[_Kinds]
    known: dict[Classes, tuple[Diagnostic, ...]] = field(default_factory=dict)

    def __call__(self, picked: Classes) -> tuple[Diagnostic, ...]:
        if picked not in self.known:
            look("which points of the sweep break a dependence")
            point: dict[str, int] = {}
            for axis, kind, k in zip(self.axes, self.kinds, picked, strict=True):
                point |= _choice(axis, kind.choice[k], self.varying)
            self.known[picked] = _broken(self.problem, point)
        return self.known[picked]


def _choice(axis: Axis, at: int, varying: Set[str]) -> dict[str, int]:
    """The symbols of the tree at one choice of an axis."""
    return {n: int(c[at]) for n, c in axis.columns.items() if n in varying}


def _broken(problem: Problem, point: Mapping[str, int]) -> tuple[Diagnostic, ...]:
    return check(replace(problem, tree=bind_tree(ResolvedMapping(problem.tree), point, Faults()).tree))


@dataclass
class Verdicts:
    """Verdicts on points that come a few at a time: decided once for each set of loops that run more than
    once."""

    problem: Problem
    varying: Set[str]
    forms: SymbolicAnalysis
    fixed: Mapping[str, Any]
    known: dict[bytes, str] = field(default_factory=dict)

    def reasons(self, axis: Axis) -> tuple[Array, tuple[str, ...]]:
        """For each choice 0 if it breaks no dependence, else k for `reasons[k - 1]`."""
        once = _once(axis, self.forms, self.fixed)
        first, of = _first_of_each(once)
        said: dict[str, int] = {"": 0}
        codes = []
        for at in first.tolist():
            key = once[at].tobytes()
            if key not in self.known:
                look("which points break a dependence")
                broken = _broken(self.problem, _choice(axis, at, self.varying))
                self.known[key] = shared(broken[0].message) if broken else ""
            codes.append(said.setdefault(self.known[key], len(said)))
        return np.asarray(codes, np.int64)[of], tuple(said)[1:]


def _first_of_each(table: Array) -> tuple[Array, Array]:
    """Of the different rows of a boolean table the first place of each, and which of them every row is."""
    bits = table.shape[1]
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


def _decided(judge: _Judge, kinds: Sequence[_Kinds], first: Diagnostic) -> tuple[Array, tuple[str, ...]]:
    """The verdict of every combination of classes, and the reasons that verdicts number from 1 on.

    In order of the loops that run more than once, most first: what is legal decides all within it.
    """
    shape = tuple(len(k.once) for k in kinds)
    total = prod(shape)
    if total > MOST:
        raise Refused(
            f"some tile sizes break a dependence ({first.message}), and which do is looked at for each set "
            f"of loops that run more than once, {total} of them",
            f"leave some out by `where`, or sweep fewer symbols at once: at most {MOST} sets",
        )
    more = reduce(np.add.outer, [(~k.once).sum(axis=1) for k in kinds])
    order = np.stack(np.unravel_index(np.argsort(-more, axis=None, kind="stable"), shape), axis=1)
    within = [k.within for k in kinds]
    kept, verdicts = np.zeros(shape, bool), np.zeros(shape, np.int64)
    reasons: dict[str, int] = {}
    for picked in map(tuple, order.tolist()):
        if kept[picked]:
            continue
        broken = judge(picked)
        if broken:
            verdicts[picked] = reasons.setdefault(shared(broken[0].message), len(reasons) + 1)
        else:
            kept[np.ix_(*(w[:, k] for w, k in zip(within, picked, strict=True)))] = True
    return verdicts, tuple(reasons)


def _told_apart(classes: Mapping[Names, Array], verdicts: Array, reasons: tuple[str, ...]) -> Illegal:
    """With classes that verdicts tell apart alone, and axes that have any."""
    found: dict[Names, Array] = {}
    for place, (names, of) in enumerate(classes.items()):
        rows = np.moveaxis(verdicts, place, 0).reshape(verdicts.shape[place], -1)
        _, first, joint = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        verdicts = np.take(verdicts, first, axis=place)
        if len(first) > 1:
            found[names] = joint.reshape(-1)[of]
    return Illegal(found, verdicts.reshape([n for n in verdicts.shape if n > 1]), reasons)
