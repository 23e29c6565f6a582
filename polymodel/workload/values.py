"""Values of a cascade on data: Einsum by Einsum, recurrences generation by generation.

Each Einsum is computed over whole arrays; only ranks along which tensors are carried forward are walked one
value at a time, in groups of the Einsums that a cycle holds together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.arithmetic import OPERATORS, Affine, Operator
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.polyhedra.sets import bounding_box
from polymodel.spec.expressions import Binary, Call, Name, NumberNode, Tree, Unary, parse_arithmetic
from polymodel.spec.faults import suggestion
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from polymodel.workload.spaces import IDENTITY
from polymodel.workload.sparse_values import SparseInput, as_array, blocks, grouped, is_joined, joined

Array = NDArray[Any]
Point = dict[str, int]
StoppingRule = Callable[[Einsum], tuple[tuple[TensorAccess, ...], float]]
Until = Callable[[Mapping[str, Array]], bool]
FIXED_POINT = "fixed_point"
MOST = 400_000_000  # elements of one intermediate array
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class EinsumGroup:
    """Einsums that run together, and the rank variables that are walked value by value, outermost first."""

    einsums: tuple[Einsum, ...]
    walked: tuple[str, ...] = ()


def groups_of(cascade: Cascade) -> Iterator[EinsumGroup]:
    """The cascade in order; Einsums from a reader of earlier generations to their writer are one group."""
    place = {e.name: i for i, e in enumerate(cascade.einsums)}
    spans = []
    for tensor in cascade.recurrent:
        maker = cascade.producer(tensor)
        assert maker is not None
        spans.append((min(place[e.name] for e in cascade.earlier_readers(tensor)), place[maker.name]))
    at = 0
    while at < len(cascade.einsums):
        end, grown = at, True
        while grown:
            inside = [last for first, last in spans if at <= first <= end or at <= last <= end]
            grown = max(inside, default=end) > end
            end = max([end, *inside])
        recurs = any(at <= first <= end for first, _ in spans)
        members = cascade.einsums[at : end + 1]
        yield from _parted(cascade, members) if recurs else (EinsumGroup((e,)) for e in members)
        at = end + 1


def _parted(cascade: Cascade, members: tuple[Einsum, ...]) -> Iterator[EinsumGroup]:
    """A group, with those of its Einsums that no walked variable binds placed before or after it."""
    walked = tuple(dict.fromkeys(v for e in members for v in _carrying(cascade, e)))
    inside = [e for e in members if set(walked) & set(e.rank_variables)]
    made = {a.tensor for e in inside for a in e.outputs}
    rest = [e for e in members if e not in inside]
    after: list[Einsum] = []
    for e in rest:
        if any(a.tensor in made for a in e.inputs):
            made |= {a.tensor for a in e.outputs}
            after.append(e)
    for e in after:
        if any(a.tensor in {o.tensor for o in e.outputs} for one in inside for a in one.inputs):
            message = f"{e.name} stands in a cycle along {', '.join(walked)} and has no such rank variable"
            raise Refused(message, "index what it makes by the generation", code="unsupported-recurrence")
    yield from (EinsumGroup((e,)) for e in rest if e not in after)
    yield EinsumGroup(tuple(inside), walked)
    yield from (EinsumGroup((e,)) for e in after)


def _carrying(cascade: Cascade, e: Einsum) -> Iterator[str]:
    """Variables along which an Einsum's results are carried forward."""
    ranks = dict(cascade.generational)
    for access in e.outputs:
        for rank, expr in zip(access.ranks, access.projection, strict=True):
            if rank in ranks.get(access.tensor, ()):
                yield from expr.variables


@dataclass
class Store:
    """All tensors as arrays; coordinate 0 of a rank lies at position `origin` of its axis. `entries`: inputs
    that are sparse; `rule`: the operands whose absence stops an operation, and the result in that case."""

    arrays: dict[str, Array] = field(default_factory=dict)
    origins: dict[str, tuple[int, ...]] = field(default_factory=dict)
    entries: dict[str, SparseInput] = field(default_factory=dict)
    rule: StoppingRule | None = None

    def index(self, access: TensorAccess, columns: Mapping[str, Any]) -> tuple[Any, ...]:
        result = []
        for expr, origin in zip(access.projection, self.origins[access.tensor], strict=True):
            place: Any = expr.constant + origin
            for v, c in expr.terms:
                place = place + c * columns[v]
            result.append(place)
        return tuple(result)


@dataclass(frozen=True)
class Values:
    """Tensors by name, and how many generations each walked rank variable took.

    `origins`: the position of coordinate 0 along each axis (1 for ranks that begin at -1).
    """

    tensors: Mapping[str, Any]
    origins: Mapping[str, tuple[int, ...]]
    generations: Mapping[str, int]

    def __getitem__(self, tensor: str) -> Any:
        if tensor not in self.tensors:
            raise KeyError(f"no tensor {tensor}; there are {', '.join(self.tensors)}")
        return self.tensors[tensor]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{t} {'x'.join(map(str, a.shape)) or 'scalar'}" for t, a in self.tensors.items())
        ran = "".join(f"; {v}: {n} generations" for v, n in self.generations.items())
        return f"Values({shapes}{ran})"


def values(
    cascade: Cascade,
    tensors: Mapping[str, Any],
    until: str | Until | None = None,
    rule: StoppingRule | None = None,
) -> Values:
    """Every tensor of a cascade.

    `tensors`: the workload inputs, and what `+=` adds to, as arrays, or sparse (`rule` then says which of
    them stop operations). `until`: a condition on the newest generations (tensor -> array without the
    generational rank) at which a walk ends; `fixed_point`: they equal the previous ones. Later ones are
    copies of the last. Raises SpecError for tensors that do not fit, Refused for operators that are unknown.
    """
    store = _initial_store(cascade, tensors, rule)
    ran: dict[str, int] = {}
    begun: set[str] = set()
    for group in groups_of(cascade):
        for tensor in dict.fromkeys(t for e in group.einsums for t in e.tensors if t not in begun):
            begun.add(tensor)
            _begin(cascade, store, tensor)
        if not group.walked:
            compute(store, group.einsums[0], {})
            continue
        ran[group.walked[0]] = _walk(cascade, store, group, until)
    return Values({**store.arrays, **store.entries}, store.origins, ran)


def _walk(cascade: Cascade, store: Store, group: EinsumGroup, until: str | Until | None) -> int:
    """Compute one group by generations; return the number of values of the outermost walked variable."""
    bounds = {v: [e.bound(v) for e in group.einsums if v in e.rank_variables] for v in group.walked}
    spans = [range(min(b[0] for b in bounds[v]), max(b[1] for b in bounds[v]) + 1) for v in group.walked]
    outer = group.walked[0]
    for count, p in enumerate(spans[0], 1):
        for rest in product(*spans[1:]):
            point = dict(zip(group.walked, (p, *rest), strict=True))
            for e in group.einsums:
                here = {v: x for v, x in point.items() if v in e.rank_variables}
                if all(low <= here[v] <= high for v in here for low, high in (e.bound(v),)):
                    compute(store, e, here)
        if until is not None and _ended(cascade, store, group, outer, p, until):
            for left in spans[0][count:]:
                _repeat(store, group, outer, p, left)
            return count
    return len(spans[0])


def _newest(store: Store, group: EinsumGroup, outer: str, p: int) -> Iterator[tuple[str, int, int]]:
    """Return (tensor, axis, position) of what the group writes of each tensor at `p` of its variable."""
    for e in group.einsums:
        for access in e.outputs:
            for axis, (expr, origin) in enumerate(
                zip(access.projection, store.origins[access.tensor], strict=True)
            ):
                if expr.variables == (outer,):
                    yield access.tensor, axis, expr.coefficient(outer) * p + expr.constant + origin


def _ended(
    cascade: Cascade, store: Store, group: EinsumGroup, outer: str, p: int, until: str | Until
) -> bool:
    newest = {
        tensor: (np.take(store.arrays[tensor], at, axis), np.take(store.arrays[tensor], at - 1, axis))
        for tensor, axis, at in _newest(store, group, outer, p)
        if tensor in cascade.recurrent and at > 0
    }
    if callable(until):
        return bool(until({tensor: now for tensor, (now, _) in newest.items()}))
    return all(np.array_equal(now, before, equal_nan=True) for now, before in newest.values())


def _repeat(store: Store, group: EinsumGroup, outer: str, p: int, left: int) -> None:
    """Copy generation `p` to generation `left`."""
    pairs = zip(_newest(store, group, outer, p), _newest(store, group, outer, left), strict=True)
    for (tensor, axis, at), (_, _, to) in pairs:
        whole: list[Any] = [slice(None)] * store.arrays[tensor].ndim
        source, target = list(whole), list(whole)
        source[axis], target[axis] = at, to
        store.arrays[tensor][tuple(target)] = store.arrays[tensor][tuple(source)]


def _initial_store(cascade: Cascade, tensors: Mapping[str, Any], rule: StoppingRule | None) -> Store:
    """Return a store with the inputs as given, and arrays for all results."""
    faults: list[Diagnostic] = []
    store = Store(rule=rule)
    absent = {a.tensor: a.default for e in cascade for a in e.accesses}
    sparse = {t for t in tensors if hasattr(tensors[t], "coords")}
    before_first = {value for _, value in (*cascade.init, *cascade.boundary)}
    for t in sorted(t for t in sparse if getattr(tensors[t], "fill", 0) not in (0, absent.get(t, 0.0))):
        message = (
            f"{t} holds {tensors[t].fill:g} where it has no entry, and in the workload {absent.get(t, 0):g}"
        )
        remedy = f"say so in the workload: default: {{{t}: {tensors[t].fill:g}}}"
        faults.append(Diagnostic(message, remedy, t, code="inconsistent-values"))
    for t in sparse & ({*cascade.tensors} | before_first):
        maker = cascade.producer(t)
        if maker is None and t not in before_first and not any(_room(cascade, t)[0]):
            store.entries[t] = tensors[t]
    tensors = {
        t: as_array(x, absent.get(t, 0.0)) if t in sparse - store.entries.keys() else x
        for t, x in tensors.items()
    }
    for tensor in cascade.tensors:
        maker = cascade.producer(tensor)
        low, shape = _room(cascade, tensor)
        store.origins[tensor] = tuple(-x for x in low)
        if tensor in store.entries:
            _require_room(tensor, store.entries[tensor].shape, shape, faults)
        elif maker is None or maker.access_of(tensor).accumulates:
            array = np.array(tensors.get(tensor, ()), dtype=np.float64)
            if tensor not in tensors:
                message = f"{tensor} has no values"
                remedy = f"give it: tensors={{{tensor!r}: ...}}"
                faults.append(Diagnostic(message, remedy, code="missing-value"))
            else:
                _require_room(tensor, array.shape, shape, faults)
            store.arrays[tensor] = array
        if tensor in store.entries or tensor in store.arrays:
            continue
        store.arrays[tensor] = np.full(shape, math.nan)
    for name in tensors:
        if not (name in store.arrays or name in store.entries) or (
            cascade.producer(name) and not _adds(cascade, name)
        ):
            near = suggestion(name, [t for t in cascade.tensors if not cascade.producer(t)], "inputs")
            faults.append(Diagnostic(f"{name} is not an input of the workload", near, code="unknown-name"))
    if faults:
        raise SpecError(faults)
    return store


def _require_room(tensor: str, given: Sequence[int], shape: Sequence[int], faults: list[Diagnostic]) -> None:
    if len(given) != len(shape) or any(a < b for a, b in zip(given, shape, strict=True)):
        what = f"{tensor} is {'x'.join(map(str, given))}, the workload touches {'x'.join(map(str, shape))}"
        faults.append(Diagnostic(what, "give an array of that size", code="shape-mismatch"))


def _begin(cascade: Cascade, store: Store, tensor: str) -> None:
    """Initialise the elements of a tensor that no Einsum writes: with `boundary` wherever it applies, with
    `init` before the first generation and after the last one."""
    maker = cascade.producer(tensor)
    init = dict(cascade.init).get(tensor)
    if maker is None or init is None:
        return
    access = maker.access_of(tensor)
    _put(cascade, store, access, dict(cascade.boundary).get(tensor, init), {})
    for axis, (rank, expr) in enumerate(zip(access.ranks, access.projection, strict=True)):
        if rank in dict(cascade.generational)[tensor]:
            first, last = (x + store.origins[tensor][axis] for x in _ends(maker, expr))
            _put(cascade, store, access, init, {axis: (0, first)})
            _put(cascade, store, access, init, {axis: (last + 1, store.arrays[tensor].shape[axis])})


def _put(
    cascade: Cascade, store: Store, access: TensorAccess, value: float | str, part: dict[int, tuple[int, int]]
) -> None:
    """Write a number or a tensor into part of a tensor (axis -> range of positions; all positions of other
    axes): elements of equal coordinates, repeated along ranks that the other tensor lacks."""
    target, origins = store.arrays[access.tensor], store.origins[access.tensor]
    ranges = [part.get(axis, (0, size)) for axis, size in enumerate(target.shape)]
    if value == IDENTITY:
        maker = cascade.producer(access.tensor)
        assert maker is not None
        value = _identity(maker)
    if not isinstance(value, str):
        target[tuple(slice(*x) for x in ranges)] = value
        return
    if value not in store.arrays:  # no iteration reads it
        return
    source, ranks = store.arrays[value], cascade.accesses_of(value)[0].ranks
    taken = [slice(None)] * source.ndim
    for axis, rank in enumerate(access.ranks):
        if rank in ranks:
            k = ranks.index(rank)
            ahead = store.origins[value][k] - origins[axis]
            low = max(ranges[axis][0], -ahead)
            high = max(low, min(ranges[axis][1], source.shape[k] - ahead))
            ranges[axis], taken[k] = (low, high), slice(low + ahead, high + ahead)
    found = source[tuple(taken)].transpose([ranks.index(r) for r in access.ranks if r in ranks])
    alike = tuple(axis for axis, rank in enumerate(access.ranks) if rank not in ranks)
    target[tuple(slice(*x) for x in ranges)] = np.expand_dims(found, alike)


def _adds(cascade: Cascade, tensor: str) -> bool:
    return (maker := cascade.producer(tensor)) is not None and maker.access_of(tensor).accumulates


def sizes_of(cascade: Cascade) -> dict[str, tuple[int, ...]]:
    """By input tensor the size of each rank that the workload touches."""
    every = cascade.tensors
    return {t: (*_room(cascade, t)[1],) for t in every if not cascade.producer(t) or _adds(cascade, t)}


def _room(cascade: Cascade, tensor: str) -> tuple[list[int], list[int]]:
    """Return the lowest coordinate per rank (at most 0), and sizes, over all accesses."""
    boxes = [_touched_box(e, a) for e in cascade for a in e.accesses_of(tensor)]
    low = [min(0, *(first for first, _ in ends)) for ends in zip(*boxes, strict=True)]
    high = [max(last for _, last in ends) for ends in zip(*boxes, strict=True)]
    return low, [h - b + 1 for b, h in zip(low, high, strict=True)]


def _touched_box(e: Einsum, access: TensorAccess) -> tuple[tuple[int, int], ...]:
    """Return the least and the largest coordinate along each rank. A read of elements that no Einsum writes
    takes its value from the tensor itself; only accesses that replace such reads touch fewer iterations."""
    if access.stands_for:
        return bounding_box(e.relation(access).range()) or ()
    return tuple(_ends(e, x) for x in access.projection)


def _ends(e: Einsum, index: Affine) -> tuple[int, int]:
    """The least and the largest value of an index."""
    ends = [sorted(c * x for x in e.bound(v)) for v, c in index.terms]
    return index.constant + sum(x[0] for x in ends), index.constant + sum(x[1] for x in ends)


def _operator(name: str) -> Operator:
    result = OPERATORS.get(name)
    if result is None:
        message = f"{name} is only counted: what it computes is not defined"
        remedy = f"write its formula: operators: {{{name}: {{form: ...}}}}"
        raise Refused(message, remedy, code="unsupported-operation")
    return result


def _reducer(e: Einsum) -> Operator:
    """Return the operator with which the Einsum reduces."""
    operations = dict(e.operations)
    if operations.get("identity"):
        tree = parse_arithmetic(operations["reduce"] or "")
        identity = float(operations["identity"] or 0)

        def joined(x: Array, y: Array) -> Array:
            return np.asarray(evaluated(tree, {"_0": x, "_1": y}, e.name))

        return Operator("reduce", 2, joined, identity)
    result = _operator(operations.get("reduce") or "add")
    if not isinstance(result.form, np.ufunc) or result.identity is None:
        message = f"{result.name} of {e.name} reduces nothing"
        raise Refused(message, "use add, mul, max or min", code="unsupported-operation")
    return result


def _identity_of(e: Einsum) -> float:
    """Return the identity element of the reduction."""
    identity = _reducer(e).identity
    assert identity is not None
    return identity


def _identity(e: Einsum) -> float:
    """Return the identity element of the reduction, or without one of the operator that combines."""
    operations = dict(e.operations)
    if operations.get("identity"):
        return _identity_of(e)
    name = operations.get("reduce") or operations.get("map") or "add"
    identity = _operator(name).identity
    if identity is None:
        message = f"{name} of {e.name} has no identity"
        raise Refused(message, "write init as a number", code="unsupported-operation")
    return identity


def compute(store: Store, e: Einsum, fixed: Point) -> None:
    """One Einsum, at given values of some of its rank variables."""
    output = e.outputs[0]
    free = tuple(v for v in e.rank_variables if v not in fixed)
    mapped = _from_entries(store, e, free, fixed)
    mapped = _product(store, e, free, fixed) if mapped is None else mapped
    reduced = tuple(v for v in free if v not in output.variables)
    if mapped is None:
        mapped = _mapped(store, e, free, fixed)
        axes = tuple(free.index(v) for v in reduced)
        if axes:
            mapped = _reduced(_reducer(e), mapped, axes)
    kept = tuple(v for v in free if v in output.variables)
    for step in filter(None, (dict(e.operations).get("populate") or "").split(";")):
        if step.strip().isidentifier():
            mapped = _operator(step.strip()).joined([mapped])
        else:
            mapped = np.asarray(evaluated(parse_arithmetic(step), {"_": mapped, "_0": mapped}, e.name))
    columns = {**fixed, **_grid(e, kept)}
    index = store.index(output, columns)
    target = store.arrays[output.tensor]
    shape = tuple(e.bound(v)[1] - e.bound(v)[0] + 1 for v in kept)
    mapped = np.broadcast_to(mapped, shape)
    reducer = _reducer(e)
    if _plain(output):
        target[index] = reducer.form(target[index], mapped) if output.accumulates else mapped
        return
    if not output.accumulates:
        target[index] = _identity_of(e)
    if not isinstance(reducer.form, np.ufunc):
        again = f"{e.name} writes elements of {output.tensor} several times"
        raise Refused(again, "reduce with add, mul, max or min", code="unsupported-operation")
    reducer.form.at(target, tuple(np.broadcast_to(i, shape) for i in index), mapped)


def _reduced(reducer: Operator, mapped: Array, axes: tuple[int, ...]) -> Array:
    """All values along some axes combined; in halves if NumPy has no function for the operator."""
    if isinstance(reducer.form, np.ufunc):
        return np.asarray(reducer.form.reduce(mapped, axis=axes))
    kept = [a for a in range(mapped.ndim) if a not in axes]
    left = np.moveaxis(mapped, kept, range(len(kept))).reshape(*(mapped.shape[a] for a in kept), -1)
    while left.shape[-1] > 1:
        half = left.shape[-1] // 2
        joined = reducer.form(left[..., :half], left[..., half : 2 * half])
        left = np.concatenate([joined, left[..., 2 * half :]], axis=-1)
    return np.asarray(left[..., 0])


def _plain(access: TensorAccess) -> bool:
    """Whether every rank has a variable of its own: no two iterations access one element."""
    names = [v for expr in access.projection for v in expr.variables]
    return len(names) == len(set(names)) and all(len(x.variables) <= 1 for x in access.projection)


def _grid(e: Einsum, variables: Sequence[str]) -> dict[str, Array]:
    """An open grid: the values of each variable along an axis of its own."""
    result = {}
    for k, v in enumerate(variables):
        low, high = e.bound(v)
        shape = [1] * len(variables)
        shape[k] = high - low + 1
        result[v] = np.arange(low, high + 1).reshape(shape)
    return result


def _product(store: Store, e: Einsum, free: tuple[str, ...], fixed: Point) -> Array | None:
    """A sum of products over a box, contracted by NumPy; None for other operations."""
    operations = dict(e.operations)
    joined, summed = operations.get("map") or "mul", operations.get("reduce") or "add"
    known = OPERATORS.get(joined), OPERATORS.get(summed)
    boxed = all(len(c.expr.terms) == 1 and c.kind == "ge" for c in e.constraints)
    if known != (OPERATORS["mul"], OPERATORS["add"]) or not boxed or len(free) > len(_LETTERS):
        return None
    letters = dict(zip(free, _LETTERS, strict=False))
    operands, marks = [], []
    for access in e.operands:
        mine = tuple(v for v in free if v in access.variables)
        operands.append(store.arrays[access.tensor][store.index(access, {**fixed, **_grid(e, mine)})])
        marks.append("".join(letters[v] for v in mine))
    kept = [v for v in free if v in e.outputs[0].variables]
    if not set(kept) <= {v for a in e.operands for v in a.variables}:
        return None
    missing = [v for v in free if v not in kept and not any(v in a.variables for a in e.operands)]
    times = math.prod(e.bound(v)[1] - e.bound(v)[0] + 1 for v in missing)
    text = f"{','.join(marks)}->{''.join(letters[v] for v in kept)}"
    return np.asarray(np.einsum(text, *operands, optimize=len(operands) > 2) * times)


def _mapped(store: Store, e: Einsum, free: tuple[str, ...], fixed: Point) -> Array:
    """The operands joined in every iteration; iterations that do not exist hold the reducer's identity."""
    shape = tuple(e.bound(v)[1] - e.bound(v)[0] + 1 for v in free)
    if math.prod(shape) > MOST:
        message = f"{e.name} has {math.prod(shape):,} iterations, more than are computed at once"
        raise Refused(message, code="too-large")
    columns: dict[str, Any] = {**fixed, **_grid(e, free)}
    operands = [store.arrays[a.tensor][store.index(a, columns)] for a in e.operands]
    return _existing(e, np.broadcast_to(_operated(e, operands), shape), columns)


def _operated(e: Einsum, operands: Sequence[Array]) -> Any:
    """The operation of an Einsum."""
    operation = dict(e.operations).get("map") or "mul"
    if operation in OPERATORS or (operation.isidentifier() and not _is_operand(operation, e)):
        return _operator(operation).joined([*operands])
    named = {f"_{i}": x for i, x in enumerate(operands)}
    named |= {a.tensor: x for a, x in zip(e.operands, operands, strict=True)}
    return evaluated(parse_arithmetic(operation), named, e.name)


def _existing(e: Einsum, result: Array, columns: Mapping[str, Any]) -> Array:
    """Return the values, with the reducer's identity in places without an iteration."""
    for c in e.constraints:
        if len(c.expr.terms) > 1 or c.kind != "ge":
            value: Any = c.expr.constant
            for v, k in c.expr.terms:
                value = value + k * columns[v]
            holds = (
                value >= 0 if c.kind == "ge" else (value == 0 if c.kind == "eq" else value % c.modulus == 0)
            )
            result = np.where(holds, result, _identity_of(e))
    return np.asarray(result)


def _from_entries(store: Store, e: Einsum, free: tuple[str, ...], fixed: Point) -> Array | None:
    """Results if sparse operands stop operations, over the free variables of the output; None if none does:
    sparse tensors are then treated as arrays."""
    mine = [a for a in e.operands if a.tensor in store.entries]
    if not mine or store.rule is None:
        return None
    stopping, nothing = store.rule(e)
    stops = [a for a in mine if a in stopping and is_joined(a)]
    for a in mine:
        if a not in stops and a.tensor not in store.arrays:
            store.arrays[a.tensor] = as_array(store.entries[a.tensor], a.default)
    if not stops:
        return None
    reducer, output = _reducer(e), e.outputs[0]
    if not isinstance(reducer.form, np.ufunc) or reducer.identity is None:
        again = f"the reduction of {e.name} is not computed on sparse data"
        raise Refused(again, "reduce with add, mul, max or min", code="unsupported-operation")
    found = joined(e, store.entries, stops, fixed)
    sizes = {v: high - low + 1 for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)}
    rest = [v for v in free if v not in found.columns]
    rows = [v for v in found.columns if v in output.variables]
    axes = tuple(k for k, v in enumerate(rest, 1) if v not in output.variables)
    wide = [v for v in rest if v in output.variables]
    shape = [sizes[v] for v in rows]
    result = np.full((math.prod(shape), *(sizes[v] for v in wide)), reducer.identity, dtype=np.float64)
    count = np.zeros(len(result), dtype=np.int64)
    grid = {v: x[None] for v, x in _grid(e, rest).items()}
    for part in blocks(found, math.prod(sizes[v] for v in rest)):
        flat = {v: c.reshape(-1, *[1] * len(rest)) for v, c in part.columns.items()}
        columns: dict[str, Any] = {**fixed, **flat, **grid}
        operands = [
            store.entries[a.tensor].values[part.entries[a]].reshape(-1, *[1] * len(rest)) if a in stops
            else store.arrays[a.tensor][store.index(a, columns)] for a in e.operands
        ]  # fmt: skip
        made = np.broadcast_to(_operated(e, operands), (part.rows, *(sizes[v] for v in rest)))
        made = _existing(e, made, columns)
        made = np.asarray(reducer.form.reduce(made, axis=axes)) if axes else made
        at = np.zeros(part.rows, dtype=np.int64)
        for v in rows:
            at = at * sizes[v] + part.columns[v] - e.bound(v)[0]
        places, made, times = grouped(reducer.form, at, made)
        result[places] = reducer.form(result[places], made)
        count[places] += times
    whole = math.prod(sizes[v] for v in found.columns if v not in output.variables)
    if nothing != reducer.identity:
        # Omitted points count too: a maximum of products, for example, includes zero.
        some = count < whole
        result[some] = reducer.form(result[some], nothing)
        result[count == 0] = nothing
    order = [[*rows, *wide].index(v) for v in free if v in output.variables]
    return result.reshape(*shape, *result.shape[1:]).transpose(order)


def _is_operand(name: str, e: Einsum) -> bool:
    return name in (*(a.tensor for a in e.operands), *(f"_{i}" for i in range(len(e.operands))))


def evaluated(tree: Tree, named: Mapping[str, Any], where: str) -> Any:
    """A formula of operands: `_0`, `_1`, ... or the names of tensors. `where`: whose formula it is."""
    if isinstance(tree, NumberNode):
        return tree.value
    if isinstance(tree, Name):
        if tree.name not in named:
            message = f"{tree.name} in the operation of {where} is none of its operands"
            raise Refused(message, suggestion(tree.name, list(named), "operands"), code="unknown-name")
        return named[tree.name]
    if isinstance(tree, Unary):
        result = evaluated(tree.operand, named, where)
        return -result if tree.op == "-" else result
    if isinstance(tree, Call):
        operator = _operator(tree.name)
        if not operator.takes(len(tree.arguments)):
            what = f"{tree.name} in the operation of {where} takes {operator.arity} operands"
            raise Refused(what, code="wrong-count")
        return operator.joined([np.asarray(evaluated(a, named, where)) for a in tree.arguments])
    assert isinstance(tree, Binary)
    sides = [np.asarray(evaluated(side, named, where)) for side in (tree.left, tree.right)]
    if tree.op == "**":
        return np.power(sides[0].astype(np.float64), sides[1])
    return _operator(tree.op).joined(sides)
