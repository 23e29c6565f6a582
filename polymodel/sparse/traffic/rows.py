"""Count the traffic of a large cascade for some coordinates of the outermost loop of all Einsums at a time.

Gamma's is an example: rows of A are multiplied and merged, one after the other, so that the partial products
of some rows are all that is held. The numbers are those of the whole cascade.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod

import numpy as np

from polymodel.governor import look
from polymodel.sparse.execute.plan import rank_of
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.partition import Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic.cascade import CountedCascade
from polymodel.sparse.traffic.einsum import CountedEinsum
from polymodel.sparse.traffic.nest import expanded
from polymodel.sparse.traffic.parts import PartSums, one_cache
from polymodel.sparse.traffic.records import EinsumTraffic
from polymodel.spec.teaal.records import Expression, IndexedTensor, TeaalSpec

# Iterations of the first Einsum in one part, about 400 bytes each; cascades with four times as many are
# divided.
PART = 2**20
_DOING = "counting the traffic part by part"


def in_parts(
    cascade: CountedCascade, tensors: Mapping[str, SparseTensor], sizes: Mapping[str, int]
) -> tuple[EinsumTraffic, ...] | None:
    """Return the traffic of each Einsum, counted part by part; None for a cascade that is small, or where
    something looks at more than one part."""
    spec = cascade.spec
    rank = _common_rank(spec)
    if (
        rank is None
        or len(spec.expressions) < 2
        or not all(_adds_up(cascade, e, rank) for e in spec.expressions)
    ):
        return None
    work = _work(spec.expressions[0], spec, tensors, rank)
    if work is None or int(work.sum()) <= 4 * PART:
        return None
    inputs = {name: tensors[name] for name in spec.inputs}
    sums: dict[str, PartSums] = {}
    last: dict[str, CountedEinsum] = {}
    for known, size in _divided(inputs, rank, work):
        look(_DOING)
        here, slices = {**sizes, rank: size}, Slices()
        for expression in spec.expressions:
            einsum, plan = cascade.counted(expression, known, here, slices)
            if expression.name not in sums:
                divided = {t: rank for t in known if rank in spec.declaration[t]}
                sums[expression.name] = PartSums(einsum, tuple(r.name for r in plan.order), divided)
            later = cascade.read_later(expression)
            einsum.walk(expanded(plan, einsum.walked), later)
            if not sums[expression.name].add(einsum):
                return None
            if later:
                known[expression.name] = einsum.nest.result
            last[expression.name] = einsum
    return tuple(sums[e.name].answer(last[e.name]) for e in spec.expressions)


def _common_rank(spec: TeaalSpec) -> str | None:
    """Return the rank over which the outermost loop of every Einsum iterates, if it is one of the output and
    the first of every tensor that has it; None if there is none."""
    firsts = {spec.mapping_of(e.name).loop_order[:1] for e in spec.expressions}
    rank = next(iter(firsts))[0] if len(firsts) == 1 and () not in firsts else None
    if rank is None or any(rank in p.ranks for m in spec.mappings for p in m.partitioning):
        return None
    if any(rank in ranks and spec.rank_order[t][0] != rank for t, ranks in spec.declaration.items()):
        return None
    tensors = [(e, t) for e in spec.expressions for t in (e.output, *e.operands)]
    plain = all(_plain(t, spec.declaration[t.tensor], rank) for _, t in tensors)
    made = all(rank in spec.declaration[e.name] for e in spec.expressions)
    return rank if plain and made else None


def _plain(tensor: IndexedTensor, declared: tuple[str, ...], rank: str) -> bool:
    """Return whether the variable of the rank indexes that rank alone, and by itself."""
    for index, name in zip(tensor.indices, declared, strict=True):
        uses = any(rank_of(variable) == rank for variable, _ in index.terms)
        if uses != (name == rank) or (uses and index.variable is None):
            return False
    return True


def _work(
    expression: Expression, spec: TeaalSpec, tensors: Mapping[str, SparseTensor], rank: str
) -> Ints | None:
    """Return, for each coordinate of the rank, the iterations of the Einsum at most: for each nonzero of the
    operand that has the rank, one for every combination of nonzeros of the others at the ranks they share."""
    given = [tensors.get(o.tensor) for o in expression.operands]
    at = next((n for n, o in enumerate(expression.operands) if rank in spec.declaration[o.tensor]), None)
    if at is None or any(t is None for t in given):
        return None
    divided = given[at]
    assert divided is not None
    each = np.ones(divided.nnz, dtype=np.float64)
    for other in (t for n, t in enumerate(given) if n != at and t is not None and rank not in t.ranks):
        shared = [r for r in other.ranks if r in divided.ranks]
        shape = tuple(other.shape[other.ranks.index(r)] for r in shared)
        if prod(shape) > 4 * (other.nnz + PART):
            shared, shape = [], ()
        mine, theirs = (_numbered(t, shared, shape) for t in (divided, other))
        each *= np.bincount(theirs, minlength=prod(shape))[mine]
    size = divided.shape[divided.ranks.index(rank)]
    return np.bincount(divided.rank(rank), weights=each, minlength=size).astype(np.int64) + 1


def _numbered(tensor: SparseTensor, ranks: list[str], shape: tuple[int, ...]) -> Ints:
    if not ranks:
        return np.zeros(tensor.nnz, dtype=np.int64)
    return np.asarray(np.ravel_multi_index(tuple(tensor.rank(r) for r in ranks), shape), dtype=np.int64)


def _divided(
    tensors: Mapping[str, SparseTensor], rank: str, work: Ints
) -> Iterator[tuple[dict[str, SparseTensor], int]]:
    """Yield the inputs, those with the rank cut to consecutive coordinates of it that take about `PART`
    iterations, and how many coordinates these are. They are renumbered from 0 on."""
    part = (np.cumsum(work) - work) // PART
    begins = np.flatnonzero(np.diff(part, prepend=-1))
    bounds = np.append(begins, work.size)
    ordered = {name: _by_part(t, rank, bounds) for name, t in tensors.items() if rank in t.ranks}
    for number, begin in enumerate(begins.tolist()):
        size = int(bounds[number + 1]) - begin
        known = dict(tensors)
        for name, (order, starts) in ordered.items():
            whole = tensors[name]
            here, at = order[starts[number] : starts[number + 1]], whole.ranks.index(rank)
            coords = whole.coords[:, here]
            coords[at] -= begin
            shape = (*whole.shape[:at], size, *whole.shape[at + 1 :])
            known[name] = replace(whole, shape=shape, coords=coords, values=whole.values[here])
        yield known, size


def _by_part(tensor: SparseTensor, rank: str, bounds: Ints) -> tuple[Ints, Ints]:
    """Return the nonzeros of one part after the other, each in the order of the tensor, and where parts
    begin."""
    part = np.searchsorted(bounds, tensor.rank(rank), side="right") - 1
    order = np.argsort(part, kind="stable")
    return order, np.searchsorted(part[order], np.arange(bounds.size))


def _adds_up(cascade: CountedCascade, expression: Expression, rank: str) -> bool:
    """Return whether the traffic of an Einsum is that of its parts together: nothing is fetched that belongs
    to several, and units count within a coordinate of the outermost loop.

    The elements of the outermost rank are told by their number, so that one operand alone has to be iterated
    over there, and not through a cache.
    """
    spec = cascade.spec
    einsum = CountedEinsum(spec, expression.name, {}, {}, {}, cascade.replacement)
    alone = sum(rank in spec.declaration[o.tensor] for o in expression.operands) == 1
    for held in einsum.held:
        outermost = held.rank == rank and held.tensor != einsum.name
        if held.root or (outermost and (held.cached or (held.source is not None and not alone))):
            return False
    for component in einsum.components:
        bound = einsum.bound.of(component.name)
        if component.kind == "Merger" and any(_whole_merge(b.init_ranks, b.final_ranks, rank) for b in bound):
            return False
        if component.kind == "Intersector" and any(b.rank == rank for b in bound):
            return False
        if component.kind == "Cache" and bound and not one_cache(einsum, component):
            return False
    return True


def _whole_merge(before: tuple[str, ...], after: tuple[str, ...], rank: str) -> bool:
    """Return whether a merge brings lists of several coordinates of the rank together."""
    return before[:1] != (rank,) or after[:1] != (rank,)
