"""Choices of one axis that no point of a front needs, found before axes are combined.

The rule is in docs/develop/rules.md, Sweeps.

Every objective and every need is a sum, product or maximum, with nonnegative weights, of the rows' values; so
it is monotone in each row. A row is a sum of products of one factor per axis. With the other axes' factors
taken out of each product, a row along one axis becomes a few columns whose weights are nonnegative for any
choice along the other axes. A choice that is not below another one in any column is not better at any of its
points. If it also has the higher number, or is strictly worse in an objective that adds up, it can be
dropped: the front stays the same, and of tied points the one with the lowest number stays.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from polymodel.analysis.symbolic.forms import Factor, Form
from polymodel.objectives import objective_of, uses
from polymodel.pareto import undominated
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.kernel import ArrayKernel, Key
from polymodel.sweeps.plan import Costing, FormRows, Linear, LinearForm, Node, Present
from polymodel.sweeps.scenario import Scenario

Array = Any
MOST_RATIOS = 3  # terms besides the reference term whose ratios to it are used
SMALL = 2**26  # below this, float64 distinguishes ratios of integers


def pruned(block: Scenario, objectives: Sequence[str], grid: Grid) -> Scenario:
    """The block without choices that no front needs.

    Axes that a constraint ties to others, or to the architecture, are not pruned: a better choice may violate
    it.
    """
    held = block.constrained_symbols(grid)
    used = in_use([v.costing for v in block.variants], objectives)
    if used is None or not block.legal:
        return block
    kernel = ArrayKernel(block.axes, FormRows(), block.fixed)
    forms = {i: block.rows.forms[i] for i in sorted(used)}
    if any(map(kernel.is_joint, forms.values())):  # no column of one axis represents what depends on several
        return block
    sure = set.intersection(*(increasing_rows(v.costing, objectives) for v in block.variants))
    kept: dict[tuple[str, ...], SymbolAxis] = {}
    illegal = block.illegal
    for place, axis in enumerate(kernel.axes):
        if axis.size > 1 and not held & set(axis.names):
            found = {i: columns(kernel, [form], place) for i, form in forms.items()}
            worse = [c for i in sure & found.keys() for c, counts in found[i] if counts]
            every = [c for some in found.values() for c, _ in some]
            # a choice replaces another one only where it is legal as well
            every += illegal.columns(axis.names) if illegal is not None else []
            chosen = undominated([*every, before(worse, axis.ids)])
            kept[axis.names] = _without(axis, chosen)
            illegal = illegal.only(axis.names, chosen) if illegal is not None else None
    return replace(block, axes=tuple(kept.get(a.names, a) for a in block.axes), illegal=illegal)


def before(worse: Sequence[Array], ids: Array) -> Array:
    """A numbering of choices consistent with dominance.

    A choice that is above another one in some column of `worse`, and below it in none, comes after it; ties
    by number.
    """
    total = np.zeros(len(ids), np.int64)
    for values in worse:
        total += np.unique(values, return_inverse=True)[1]
    number = np.empty(len(ids), np.int64)
    number[np.lexsort((ids, total))] = np.arange(len(ids))
    return number


def _without(axis: SymbolAxis, chosen: Array) -> SymbolAxis:
    values = {n: c[chosen] for n, c in axis.columns.items()}
    left_out = axis.pruned + axis.size - len(chosen)
    return replace(axis, columns=values, ids=axis.ids[chosen], pruned=left_out)


def in_use(costings: Iterable[Costing], objectives: Sequence[str]) -> set[int] | None:
    """Rows that objectives and limits depend on; None if one of them could fall where a row rises."""
    if any(objective_of(o).most for o in objectives):
        return None
    result: set[int] = set()
    for costing in costings:
        for weight, (index, scale) in _weighted(costing, objectives):
            if weight < 0 or scale < 0:
                return None
            if index >= 0 and weight:
                result.add(index)
    return result


def increasing_rows(costing: Costing, objectives: Sequence[str]) -> set[int]:
    """Rows in which an objective is strictly increasing, whatever the other rows are."""
    result = {index for index, weight in costing.energy.weights if weight and "energy" in objectives}
    asked = _needed_figures(objectives)
    return result | {index for c, way, (index, _) in costing.accesses if (way, c) in asked}


def _needed_figures(objectives: Sequence[str]) -> frozenset[tuple[str, str]]:
    """The figures that the objectives consist of."""
    return frozenset[tuple[str, str]]().union(*map(uses, objectives))


def _weighted(costing: Costing, objectives: Sequence[str]) -> Iterator[tuple[float, Linear]]:
    asked = _needed_figures(objectives)
    joules = ("energy", "") in asked
    if joules:
        yield from _rows(costing.energy)
        yield costing.leak, Linear(-1, 1)
    if ("latency", "") in asked or (joules and costing.leak):
        for node in costing.latency:
            yield from _rows(node)
    for limit in costing.limits:
        if not math.isinf(limit.have) or ("working_set", limit.name) in asked:
            for phase in limit.phases:
                yield 1.0, phase.whole
                for linear, denominator, count in phase.rounded:
                    yield float(denominator * count), linear
    for component, way, linear in costing.accesses:
        if (way, component) in asked:
            yield 1.0, linear


def _rows(node: Node) -> Iterator[tuple[float, Linear]]:
    """The rows that a cost consists of, with their weights."""
    if isinstance(node, LinearForm):
        yield node.constant, Linear(-1, 1)
        yield from ((weight, Linear(index, 1)) for index, weight in node.weights)
    elif isinstance(node, Present):
        yield 1.0, node.moved
        yield from _rows(node.part)
    else:
        for part in node.parts:
            yield from _rows(part)


def columns(kernel: ArrayKernel, forms: Iterable[Form], place: int) -> list[tuple[Array, bool]]:
    """Columns over one axis of which each form is a sum, with nonnegative weights that depend on the other
    axes.

    Each with a flag: whether its weight is always positive.
    """
    return [c for form in forms for c in _of_form(kernel, form, place)]


def _of_form(kernel: ArrayKernel, form: Form, place: int) -> Iterator[tuple[Array, bool]]:
    groups: dict[Key, dict[tuple[Factor, ...], int]] = {}
    for atoms, coefficient in form.terms:
        mine: list[Factor] = []
        others: dict[int, list[Factor]] = {}
        for a in atoms:
            where, found = kernel.atom(a)
            if where < 0:
                coefficient *= found
            elif where == place:
                mine.append(a)
            else:
                others.setdefault(where, []).append(a)
        key: Key = tuple((i, tuple(others[i])) for i in sorted(others))
        group = groups.setdefault(key, {})
        group[tuple(mine)] = group.get(tuple(mine), 0) + coefficient
    made = {key: added_up([(c, kernel.factor(place, m) if m else 1) for m, c in group.items()])
            for key, group in groups.items()}  # fmt: skip
    varying = {k: v for k, v in made.items() if np.ndim(v) and np.any(v != v[0])}
    yield from _cone(kernel, varying)


def added_up(parts: Sequence[tuple[int, Array]]) -> Array:
    """The sum of coefficient * array, in Python integers where int64 may overflow."""
    wide = sum(abs(c) * int(np.max(np.abs(v))) for c, v in parts) >= 2**62
    total: Array = 0
    for c, v in parts:
        total = total + (np.asarray(v).astype(object) if wide and np.ndim(v) else v) * c
    return total


def _cone(kernel: ArrayKernel, varying: dict[Key, Array]) -> Iterator[tuple[Array, bool]]:
    """Columns such that each sum of value * weight of its key is a sum of them with weights >= 0.

    The weights are products of the other axes' factors. Alone, each is only known to be nonnegative; relative
    to a weight that is always positive it has a least and a largest ratio, and the columns at these ends give
    more: of `(X - N) N' + N X'`, which is increasing in N, the two parts alone are not.
    """
    signs = {key: _signs(kernel, key) for key in varying}
    steady = [k for k, (low, _) in signs.items() if low > 0]
    if not steady or not 2 <= len(varying) <= MOST_RATIOS + 1:
        for key, value in varying.items():
            low, high = signs[key]
            if high > 0:
                yield value, low > 0
            if low < 0:
                yield -value, high < 0
        return
    reference = steady[-1]
    others = [k for k in varying if k != reference]
    ends = [_ratios(kernel, k, reference) for k in others]
    for ratios in product(*ends):
        scale = math.lcm(*(r.denominator for r in ratios))
        parts = [(int(r * scale), varying[k]) for k, r in zip(others, ratios, strict=True)]
        yield added_up([*parts, (scale, varying[reference])]), False  # which ends matter is unknown


def _signs(kernel: ArrayKernel, key: Key) -> tuple[int, int]:
    """Bounds of a product of factors of several axes."""
    low, high = 1, 1
    for axis, atoms in key:
        factor = kernel.factor(axis, tuple(atoms))
        ends = [a * int(b) for a in (low, high) for b in (np.min(factor), np.max(factor))]
        low, high = min(ends), max(ends)
    return low, high


def _ratios(kernel: ArrayKernel, key: Key, reference: Key) -> tuple[Fraction, ...]:
    """The least and the largest ratio of two products of factors, of which the second is positive."""
    above, below = dict(key), dict(reference)
    low, high = Fraction(1), Fraction(1)
    for axis in sorted({*above, *below}):
        ends = _ratio(
            *(kernel.factor(axis, tuple(x[axis])) if axis in x else np.ones(1) for x in (above, below))
        )
        found = [a * b for a in (low, high) for b in ends]
        low, high = min(found), max(found)
    return (low,) if low == high else (low, high)


def _ratio(above: Array, below: Array) -> tuple[Fraction, Fraction]:
    """Bounds of a quotient over one axis; exact where float64 distinguishes all quotients."""
    quotient = np.asarray(above, float) / np.asarray(below, float)
    ends = int(np.argmin(quotient)), int(np.argmax(quotient))
    if max(np.max(np.abs(above)), np.max(below)) < SMALL:
        size = len(quotient)
        above, below = np.broadcast_to(above, size), np.broadcast_to(below, size)
        low, high = (Fraction(int(above[i]), int(below[i])) for i in ends)
        return low, high
    unit = 2**20
    margins = (1 - 2**-30, 1 + 2**-30)
    spread = [[float(quotient[i]) * m * unit for m in margins] for i in ends]
    return Fraction(math.floor(min(spread[0])), unit), Fraction(math.ceil(max(spread[1])), unit)
