"""The grid of a sweep: independent symbols with their values, linked symbols, constraints."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.loading import Spec
from polymodel.mapping.resolve import unbound_symbols
from polymodel.spec.document import words_of
from polymodel.spec.faults import Faults, suggestion
from polymodel.spec.numbers import evaluate_number
from polymodel.sweeps.expressions import SymbolConstraint, constraint, names_of, of_text
from polymodel.sweeps.values import Choice, Number, numbers_of, of_symbol, wrong

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """The points of a sweep: `names[i]` takes `values[i]`; `linked`: name -> expression.

    A point's number is its mixed-radix index with the last symbol fastest, regardless of feasibility and
    constraints.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Number, ...], ...]
    linked: tuple[tuple[str, str], ...] = ()
    where: tuple[SymbolConstraint, ...] = ()

    @cached_property
    def size(self) -> int:
        return math.prod(len(v) for v in self.values)

    @cached_property
    def strides(self) -> dict[str, int]:
        """The difference in number between neighbours along each symbol."""
        result, step = {}, 1
        for name, values in zip(reversed(self.names), reversed(self.values), strict=True):
            result[name] = step
            step *= len(values)
        return result

    def of(self, name: str) -> tuple[Number, ...]:
        return self.values[self.names.index(name)]

    def point(self, number: int) -> dict[str, Number]:
        """Values of all symbols of one point, including linked ones."""
        result = {
            name: values[number // self.strides[name] % len(values)]
            for name, values in zip(self.names, self.values, strict=True)
        }
        return {**result, **self.following(result)}

    def columns(self, numbers: Ids) -> dict[str, NDArray[Any]]:
        """`point` of many points: an array for each symbol."""
        result = {
            name: np.array(values)[numbers // self.strides[name] % len(values)]
            for name, values in zip(self.names, self.values, strict=True)
        }
        for name, text in self.linked:
            result[name] = np.broadcast_to(of_text(text, result), len(numbers))
        return result

    def following(self, given: Mapping[str, Number]) -> dict[str, Number]:
        """Linked symbols whose independent symbols are all given."""
        known: dict[str, Number | None] = dict(given)
        for name, text in self.linked:
            if names_of(text) <= known.keys():
                known[name] = evaluate_number(text, known)
        return {n: v for n, v in known.items() if n not in given and v is not None}

    def combinations(self, names: tuple[str, ...]) -> Iterator[tuple[int, dict[str, Number]]]:
        """(share of the point number, values) of every combination of some symbols."""
        for digits in product(*(range(len(self.of(n))) for n in names)):
            share = sum(d * self.strides[n] for d, n in zip(digits, names, strict=True))
            yield share, {n: self.of(n)[d] for d, n in zip(digits, names, strict=True)}


@dataclass(frozen=True)
class SymbolRoles:
    """What each independent symbol changes.

    `blocks`: the workload, or mapping and architecture together; `arch`: costs only; `tiles`: the mapping
    only.
    """

    blocks: tuple[str, ...]
    arch: tuple[str, ...]
    tiles: tuple[str, ...]


def make_grid(
    spec: Spec,
    symbols: Mapping[str, Choice],
    where: Iterable[str],
    others: Iterable[Spec] = (),
    broken: Collection[str] = (),
) -> Grid:
    """The grid. Raises SpecError for names unknown to all specs, and Refused for more than 2^62 points.

    `broken`: symbols whose values are wrong, which was reported; only their names are used.
    """
    linked = tuple((n, c) for n, c in symbols.items() if isinstance(c, str))
    free = {n: c for n, c in symbols.items() if not isinstance(c, str)}
    faults, swept = Faults(), (*symbols, *broken)
    ordered = _in_order(linked, swept, spec, faults)
    limits: list[SymbolConstraint] = []
    for text in where:
        with faults.noting():
            limits.append(constraint(text))
    known = {**spec.symbols, **{n: v for o in others for n, v in o.symbols.items()}}
    used = {n for _, text in linked for n in _names(text)} | {n for c in limits for n in c.names}
    _check_names([n for n in swept if n not in used], known, limits, swept, spec, faults)
    values: list[tuple[Number, ...]] = []
    # If a symbol of the workload has no valid value, there are no extents to check the others with.
    with Faults().noting() if broken else faults.noting():
        extents = _extents(spec, {n: c for n, c in free.items() if n in known or not faults.found})
        for name, choice in free.items():
            with faults.noting():
                values.append(_values(name, choice, extents))
    if faults.found:
        raise SpecError(faults.found)
    grid = Grid(tuple(free), tuple(values), ordered, tuple(limits))
    if grid.size >= 2**62:
        message = f"the grid has {grid.size} points"
        raise Refused(message, "sweep fewer symbols, or fewer values of each", code="too-large")
    return grid


def _names(text: str) -> set[str]:
    """The names in an expression; empty for invalid ones, which are reported elsewhere."""
    try:
        return set(names_of(text))
    except SpecError:
        return set()


def _check_names(
    symbols: Iterable[str],
    known: Mapping[str, object],
    limits: Iterable[SymbolConstraint],
    swept: Collection[str],
    spec: Spec,
    faults: Faults,
) -> None:
    """Report unknown symbols, and symbols of constraints that have no values."""
    for name in symbols:
        if name not in known:
            fault = wrong(f"unknown symbol {name}", suggestion(name, known, "symbols"), code="unknown-name")
            if name in spec.template_variables:
                remedy = "write it as a symbol in the file, or load and sweep the spec for each of its values"
                fault = wrong(
                    f"{name} is a template variable, and those are not swept", remedy, code="unknown-name"
                )
            faults.extend(of_symbol(name, fault).diagnostics)
    for limit in limits:
        for name in sorted(limit.names - {*swept}):
            if spec.symbols.get(name) is None:
                what = f"where `{limit.text}`: unknown symbol {name}"
                faults.note(Diagnostic(what, suggestion(name, swept, "symbols"), code="unknown-name"))


def _values(name: str, choice: Choice, extents: Mapping[str, int]) -> tuple[Number, ...]:
    try:
        return numbers_of(name, choice, extents)
    except SpecError as error:
        raise of_symbol(name, error) from error


def _in_order(
    linked: tuple[tuple[str, str], ...], names: Collection[str], spec: Spec, faults: Faults
) -> tuple[tuple[str, str], ...]:
    """Linked symbols in dependency order, with fixed symbols substituted."""
    waiting: dict[str, str] = {}
    fixed = {n: v for n, v in spec.symbols.items() if v is not None and n not in names}
    for name, text in linked:
        try:
            waiting[name] = _filled(name, text, names, fixed)
        except SpecError as error:
            faults.extend(of_symbol(name, error).diagnostics)
    result: dict[str, str] = {}
    while waiting:
        ready = [n for n, text in waiting.items() if not names_of(text) & waiting.keys()]
        if not ready:
            what = "linked symbols refer to each other: " + ", ".join(waiting)
            faults.note(Diagnostic(what, "break the cycle", code="cyclic-definition"))
            break
        result.update({n: waiting.pop(n) for n in ready})
    return tuple(result.items())


def _filled(name: str, text: str, names: Collection[str], fixed: Mapping[str, Number]) -> str:
    """An expression with the values of fixed symbols. Raises SpecError for every unknown name."""
    unknown = Faults()
    for used in sorted(names_of(text)):
        if used in fixed:
            text = re.sub(rf"\b{re.escape(used)}\b", f"({fixed[used]!r})", text)
        elif used not in names:
            what = f"symbol {name} = `{text}`: unknown symbol {used}"
            unknown.note(Diagnostic(what, suggestion(used, sorted(names), "symbols"), code="unknown-name"))
    if unknown.found:
        raise SpecError(unknown.found)
    return text


def _extents(spec: Spec, free: Mapping[str, Choice]) -> dict[str, int]:
    """The extent of each rank variable (the largest over the Einsums), with first values for open symbols."""
    firsts: dict[str, Number] = {}
    for name, choice in free.items():
        if isinstance(choice, (list, tuple, range)) and choice and spec.symbols.get(name, 0) is None:
            firsts[name] = choice[0]
    tiles = set(unbound_symbols(spec.template)) if spec.template else set()
    bound = {n: v for n, v in firsts.items() if n not in tiles}
    chosen = spec.bind(**bound) if bound else spec
    result: dict[str, int] = {}
    for einsum in chosen.workload.einsums:
        for v in einsum.rank_variables:
            low, high = einsum.bound(v)
            result[v] = max(result.get(v, 0), high - low + 1)
    return result


def roles(spec: Spec, grid: Grid) -> SymbolRoles:
    """Which independent symbols change workload, architecture and mapping of this spec."""
    texts = {**{n: t for n, t in spec.declared.items() if isinstance(t, str)}, **dict(grid.linked)}
    used = SymbolUses(grid, texts)
    workload = used.of_all(words_of(spec.raw_workload.model_dump() if spec.raw_workload else None))
    arch = used.of_all(words_of(spec.raw_arch.model_dump() if spec.raw_arch else None))
    mapping = used.of_all(unbound_symbols(spec.template) if spec.template else ())
    blocks = workload | (arch & mapping)
    costs = arch - blocks
    return SymbolRoles(
        tuple(n for n in grid.names if n in blocks),
        tuple(n for n in grid.names if n in costs),
        tuple(n for n in grid.names if n not in blocks | costs),
    )


@dataclass(frozen=True)
class SymbolUses:
    """The independent symbols that a name depends on."""

    grid: Grid
    texts: Mapping[str, str]

    def of(self, name: str) -> frozenset[str]:
        if name in self.grid.names:
            return frozenset((name,))
        if name in self.texts:
            return self.of_all(names_of(self.texts[name]) - {name})
        return frozenset()

    def of_all(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(s for n in names for s in self.of(n))
