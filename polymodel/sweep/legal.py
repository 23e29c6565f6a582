"""Are dependences kept at every point of a grid: decided by a few points.

Mappings with closed forms touch equal tiles of an intermediate in all Einsums that share it, so an element is
read too early, or summed up in two places, exactly if a loop that must not part its users runs more than
once. Whether a loop does is whether its (first) tile is smaller than the enclosing one; how much smaller does
not matter. So points in which fewer loops run more than once break no dependence that others keep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from polymodel.analysis.engine import Problem
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.ops import Arrays
from polymodel.analysis.symbolic.records import SymbolicAnalysis, names_in, size_in
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check
from polymodel.spec.faults import Faults
from polymodel.sweep.axes import Axis


def check_legality(
    problem: Problem,
    axes: Sequence[Axis],
    varying: set[str],
    forms: SymbolicAnalysis,
    fixed: Mapping[str, Any],
) -> None:
    """SpecError if no point keeps its dependences, Refused if some do and some do not.

    `varying`: symbols of the tree that axes give; `fixed`: values of all others in the chains.
    """
    if not all(axis.size for axis in axes):
        return
    broken = next((f for f in _faults(problem, axes, varying, forms, fixed, single=False) if f), None)
    if broken is None:
        return
    if all(_faults(problem, axes, varying, forms, fixed, single=True)):
        raise SpecError(broken)
    raise Refused(
        f"some tile sizes break a dependence ({broken[0].message})",
        "leave them out by `where` over symbols of one rank variable: no loop that breaks it may run twice",
    )


def _faults(
    problem: Problem,
    axes: Sequence[Axis],
    varying: set[str],
    forms: SymbolicAnalysis,
    fixed: Mapping[str, Any],
    single: bool,
) -> Iterator[tuple[Diagnostic, ...]]:
    """What is broken at points where most loops run more than once, or (`single`) where most run once."""
    for picked in product(*(_extremes(axis, forms, fixed, single) for axis in axes)):
        point: dict[str, int | float | None] = {}
        for axis, at in zip(axes, picked, strict=True):
            point |= {n: int(c[at]) for n, c in axis.columns.items() if n in varying}
        tree = bind_tree(ResolvedMapping(problem.tree), point, Faults()).tree
        yield check(Problem(problem.cascade, problem.hierarchy, tree))


def _extremes(axis: Axis, forms: SymbolicAnalysis, fixed: Mapping[str, Any], single: bool) -> tuple[int, ...]:
    """Choices of an axis, one for each smallest (`single`: largest) set of loops that run only once."""
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
    once, where = np.unique(np.stack(links, axis=1), axis=0, return_index=True)
    if not single:
        once = ~once
    most = [
        k
        for k, row in enumerate(once)
        if not any((row <= other).all() and (row < other).any() for other in once)
    ]
    return tuple(int(where[k]) for k in most)


def _at(form: Form, values: Mapping[str, Any]) -> Any:
    ops, total = Arrays(), 0
    for factors, coefficient in form.terms:
        for factor in factors:
            coefficient = coefficient * factor.value(ops, values)
        total = total + coefficient
    return total
