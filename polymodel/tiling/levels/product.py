"""Products of two matrices at a memory that tiles operands: which Einsums are products, and their tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polymodel.architecture.hierarchy import Component, TileRules, words_of
from polymodel.errors import Refused
from polymodel.governor import soft
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_shape
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.zeros import MULTIPLY, is_union
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.dynamic import LEAST
from polymodel.tiling.matmul.held import TileRows, tile_rows, worked
from polymodel.tiling.matmul.product import PatternProduct, product_of
from polymodel.tiling.matmul.search import (
    STRATEGIES,
    TilingCandidate,
    TilingCandidates,
    search,
    tiles_of_shape,
)
from polymodel.tiling.matmul.shapes import TilingSearch
from polymodel.tiling.matmul.walk import ORDERS
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# The tiled entries of the operands of a level, and the cost of launching a tile.

# Most positions of an operand without zeros that are enumerated to be tiled.
_WHOLE = 10**7


def launch_of(rules: TileRules, clock: float | None) -> Launch:
    """Return the cycles of a kernel; without a clock no seconds are derived."""
    given = Launch(rules.config_add, rules.config_multiply, rules.ramp, rules.empty, rules.run)
    return given if clock is None else replace(given, clock_mhz=clock / 1e6)


def operand_of(
    einsum: Einsum, access: TensorAccess, known: TensorData, shape: tuple[int, ...]
) -> SparseTensor:
    """Return the entries of an operand, its ranks named after their variables. Refused if it has no data and
    too many positions to enumerate."""
    names = access.variables
    if known.actual is not None:
        return known.actual.renamed(access.tensor, names)
    size = int(np.prod([float(s) for s in shape]))
    if size > _WHOLE:
        message = f"{einsum.name}: {access.tensor} has no zeros and {size:,} entries: too many to cut"
        raise Refused(message, code="too-large")
    return SparseTensor.from_dense(access.tensor, names, np.ones(shape, dtype=np.int8))


def plain(access: TensorAccess) -> bool:
    """Return whether every rank is accessed at one rank variable, each at a different one."""
    single = all(len(x.terms) == 1 and x.terms[0][1] == 1 and not x.constant for x in access.projection)
    return single and len(set(access.variables)) == len(access.projection)


def whole(cascade: Cascade, einsum: Einsum) -> bool:
    """Return whether the Einsum, whose accesses are plain, covers all of its tensors."""
    sizes = {v: high + 1 for v, (_, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    full = all(
        tensor_shape(cascade, x.tensor) == tuple(sizes[v] for v in x.variables) for x in einsum.accesses
    )
    return full and is_box(einsum) and not any(low for low, _ in einsum.bounds)


def with_unions(cascade: Cascade, data: Mapping[str, TensorData]) -> dict[str, TensorData]:
    """Return `data` with patterns in place of densities for sums of known operands.

    Patterns of products and of multiplications are already in `data`.
    """
    result = dict(data)
    for einsum in cascade.einsums:
        if einsum.is_copy or len(einsum.outputs) != 1:
            continue
        out = einsum.outputs[0]
        known = result[out.tensor]
        if not known.computed or known.actual is not None or not is_union(einsum):
            continue
        given = [result[a.tensor].actual for a in einsum.inputs]
        alike = all(plain(a) and set(a.variables) == set(out.variables) for a in einsum.accesses)
        if alike and whole(cascade, einsum) and all(t is not None for t in given):
            shape = tensor_shape(cascade, out.tensor)
            result[out.tensor] = TensorData(out.tensor, actual=_union(einsum, result, shape), computed=True)
    return result


def _union(einsum: Einsum, data: Mapping[str, TensorData], shape: tuple[int, ...]) -> SparseTensor:
    out = einsum.outputs[0]
    parts = []
    for access in einsum.inputs:
        actual = data[access.tensor].actual
        assert actual is not None, "asked for actual operands only"
        parts.append(actual.renamed(access.tensor, access.variables).swizzled(out.variables).coords)
    places = np.unique(np.concatenate(parts, axis=1), axis=1)
    return SparseTensor.from_coo(out.tensor, out.ranks, shape, places, np.ones(places.shape[1], np.int64))


_ADD = (None, "add", "+")


@dataclass(frozen=True)
class OperandRoles:
    """Z[i, j] = sum of A[i, k] B[k, j] over k: the first rank of the output determines which operand is A.

    `variables`: i, k and j.
    """

    a: TensorAccess
    b: TensorAccess
    z: TensorAccess
    variables: tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class ProductLevel:
    """The tiles of one product at one memory. Counts are of one execution out of `executions`.

    `tensors`: A, B and the output, in the order of `OperandRoles`. `parents`: the memory from which each is
    filled or to which it is drained, None if this memory is its backing storage. `notes`: what a search did
    not examine.
    """

    einsum: str
    memory: Component
    rules: TileRules
    tensors: tuple[str, str, str]
    parents: tuple[str | None, str | None, str | None]
    product: PatternProduct
    asked: TilingSearch
    best: TilingCandidate
    found: tuple[TilingCandidate, ...]
    word_bits: int
    executions: int
    notes: tuple[str, ...] = ()

    @property
    def config_cycles(self) -> int:
        return self.best.launches * self.asked.machine.launch.config("multiply")

    @property
    def run_cycles(self) -> float:
        return self.total_cycles - self.config_cycles

    @property
    def total_cycles(self) -> float:
        """Cycles to configure and to run; an integer unless rates make it fractional."""
        result = self.best.cycles
        return int(result) if float(result).is_integer() else result

    @cached_property
    def tiles(self) -> tuple[TileRows, TileRows, TileRows]:
        """The numbers of tiles of A, of B and of the output."""
        return tile_rows(self.best.source)

    @cached_property
    def words(self) -> tuple[tuple[int, int, int, int], ...]:
        """For A, B and the output: words read from the parent, read by the array, written by the array, and
        written to the parent."""
        t = self.best.traffic
        a, b, old, new = worked(self.best.source)
        return (t.a_read, a, 0, 0), (t.b_read, b, 0, 0), (t.z_read, old, new, t.z_write)


def product_roles(cascade: Cascade, einsum: Einsum, memory: str) -> OperandRoles | None:
    """Return A, B and Z of a product of two matrices, whatever the names of its ranks; None for other
    Einsums.

    Refused for Einsums with the ranks of a product but another operation, or with a part of a tensor only.
    """
    if len(einsum.inputs) != 2 or len(einsum.outputs) != 1 or not all(plain(x) for x in einsum.accesses):
        return None
    out, (first, second) = einsum.outputs[0], einsum.inputs
    if any(len(x.variables) != 2 for x in einsum.accesses):
        return None
    shared = [v for v in first.variables if v in second.variables and v not in out.variables]
    if len(shared) != 1 or len(einsum.rank_variables) != 3 or set(first.variables) == set(second.variables):
        return None
    what = f"{einsum.name} at {memory}"
    operations = dict(einsum.operations)
    named = operations.get("map"), operations.get("reduce")
    if named[0] not in MULTIPLY or named[1] not in _ADD:
        wrong = f"map {named[0] or 'mul'} and reduce {named[1] or 'add'} make no product of matrices"
        message = f"{what}: {wrong}"
        remedy = "use mul and add, or take data_tiles: from the memory"
        raise Refused(message, remedy, code="unsupported-einsum")
    if not whole(cascade, einsum):
        fault = f"{what}: it touches a part of its tensors only"
        raise Refused(fault, "give ranks the sizes that are used", code="unsupported-einsum")
    i, j = out.variables
    a, b = (first, second) if i in first.variables else (second, first)
    return OperandRoles(a, b, out, (i, shared[0], j))


def product_level(
    cascade: Cascade,
    einsum: Einsum,
    roles: OperandRoles,
    component: Component,
    parents: Mapping[str, str | None],
    data: Mapping[str, TensorData],
) -> ProductLevel:
    """Return the best tiles of the strategy requested at the memory. Refused if only a density is known of an
    operand, if nothing fits, or if the product is too large."""
    what = f"{einsum.name} at {component.name}"
    rules = component.data_tiles
    assert rules is not None
    i, k, j = roles.variables
    operands = []
    for access, order in ((roles.a, (i, k)), (roles.b, (k, j))):
        known = data[access.tensor]
        if known.actual is None and not known.dense:
            fault = f"{what}: of {access.tensor} only a density is known; tiles of products need its entries"
            remedy = f"give data: densities: {{{access.tensor}: {{actual: FILE}}}}"
            raise Refused(fault, remedy, code="unsupported-density")
        shape = tensor_shape(cascade, access.tensor)
        operands.append(operand_of(einsum, access, known, shape).swizzled(order))
    widest = max(x.bits_per_value for x in einsum.accesses)
    asked = _search_request(what, rules, component, widest)
    try:
        product = product_of(operands[0], operands[1])
        result = _candidates(product, rules, asked)
    except Refused as error:
        raise Refused(f"{what}: {error.message}", error.remedy, code=error.code) from error
    return ProductLevel(
        einsum.name,
        component,
        rules,
        (roles.a.tensor, roles.b.tensor, roles.z.tensor),
        (parents[roles.a.tensor], parents[roles.b.tensor], parents[roles.z.tensor]),
        product,
        asked,
        result.best,
        result.candidates,
        rules.word_bits or widest,
        einsum.n_instances,
        result.notes,
    )


def _search_request(what: str, rules: TileRules, component: Component, widest: int) -> TilingSearch:
    room = words_of(rules, component.size_bits, component.buffering, widest)
    wanted = rules.product
    if room is None or room < LEAST:
        few = f"has {room} words an operand, and a tile with one entry takes {LEAST}"
        reason = few if room is not None else "does not say how many words an operand's buffer has"
        message = f"{what}: {component.name} {reason}"
        raise Refused(message, "write data_tiles: {product: {capacity: WORDS}}", code="unsupported-memory")
    return TilingSearch(
        (room, room, room),
        MatmulMachine(wanted.pes, wanted.bandwidth, launch_of(rules, component.clock)),
        wanted.objective,
        ORDERS if wanted.order is None else (wanted.order,),
        wanted.overbook,
        until=soft(wanted.time_limit),
    )


def _candidates(product: PatternProduct, rules: TileRules, asked: TilingSearch) -> TilingCandidates:
    wanted = rules.product
    if wanted.tile is None:
        strategies = STRATEGIES if wanted.strategy == "search" else (wanted.strategy,)
        result = search(product, asked, strategies, wanted.overbook)
        if wanted.order is None or result.best.traffic.order == wanted.order:
            return result
        # Panels and dynamic tiles have a fixed order.
        mine = tuple(c for c in result.candidates if c.traffic.order == wanted.order)
        if not mine or not mine[0].fits:
            fault = f"no {wanted.strategy} tiles of order {wanted.order} fit"
            raise Refused(fault, "leave out order:, or give another strategy:", code="over-capacity")
        return TilingCandidates(mine, result.notes)
    best = tiles_of_shape(product, wanted.tile, asked, wanted.strategy == "overbooked")
    if not best.fits:
        over, room = "/".join(map(str, best.over)), asked.buffers[0]
        fault = f"{over} of the {best.tile} tiles of A/B/Z exceed buffers of {room} words"
        most = max(best.largest)
        remedy = f"give smaller tiles, strategy: overbooked or search, or {most} words"
        raise Refused(fault, remedy, code="over-capacity")
    return TilingCandidates((best,), ())
