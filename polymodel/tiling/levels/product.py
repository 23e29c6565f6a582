"""Products of two matrices at a memory that cuts operands: which Einsums are products, and their tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from polymodel.architecture.hierarchy import Component, TileRules, words_of
from polymodel.errors import Refused
from polymodel.governor import soft
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_shape
from polymodel.sparse.actions.zeros import MULTIPLY
from polymodel.tiling.levels.operands import launch_of, operand_of, plain, whole
from polymodel.tiling.matmul.cost import Machine
from polymodel.tiling.matmul.growing import LEAST
from polymodel.tiling.matmul.held import Held, held, worked
from polymodel.tiling.matmul.product import Product, product_of
from polymodel.tiling.matmul.search import STRATEGIES, Candidate, Found, given_tiles, search
from polymodel.tiling.matmul.shapes import Asked
from polymodel.tiling.matmul.walk import ORDERS
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

_ADD = (None, "add", "+")


@dataclass(frozen=True)
class Roles:
    """Z[i, j] = sum of A[i, k] B[k, j] over k: the output's first rank decides which operand is A.

    `variables`: i, k and j.
    """

    a: TensorAccess
    b: TensorAccess
    z: TensorAccess
    variables: tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class ProductLevel:
    """The tiles of one product at one memory. Counts are of one execution; there are `executions`.

    `tensors`: A, B and the output, as `Roles` has them. `parents`: the memory that each is filled from or
    drained to, None where this memory holds it for good. `notes`: what a search did not look at.
    """

    einsum: str
    memory: Component
    rules: TileRules
    tensors: tuple[str, str, str]
    parents: tuple[str | None, str | None, str | None]
    product: Product
    asked: Asked
    best: Candidate
    found: tuple[Candidate, ...]
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
        """Cycles to configure and to run: whole unless rates divide them."""
        found = self.best.cycles
        return int(found) if float(found).is_integer() else found

    @cached_property
    def tiles(self) -> tuple[Held, Held, Held]:
        """Tiles of A, of B and of the output."""
        return held(self.best.source)

    @cached_property
    def words(self) -> tuple[tuple[int, int, int, int], ...]:
        """For A, B and the output: words in from the parent, taken by the array, given by it, out again."""
        t = self.best.traffic
        a, b, old, new = worked(self.best.source)
        return (t.a_read, a, 0, 0), (t.b_read, b, 0, 0), (t.z_read, old, new, t.z_write)


def product_roles(cascade: Cascade, einsum: Einsum, memory: str) -> Roles | None:
    """A, B and Z of a product of two matrices, whatever its ranks are called; None for other Einsums.

    Refused for what has the ranks of a product, but another operation, or touches a part of its tensors.
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
        raise Refused(f"{what}: {wrong}", "use mul and add, or take data_tiles: from the memory")
    if not whole(cascade, einsum):
        raise Refused(f"{what}: it touches a part of its tensors only", "give ranks the sizes that are used")
    i, j = out.variables
    a, b = (first, second) if i in first.variables else (second, first)
    return Roles(a, b, out, (i, shared[0], j))


def product_level(
    cascade: Cascade,
    einsum: Einsum,
    roles: Roles,
    component: Component,
    parents: Mapping[str, str | None],
    data: Mapping[str, TensorData],
) -> ProductLevel:
    """The best tiles of the strategy that the memory asks for. Refused where only a density is known of an
    operand, nothing fits, or the product is too large."""
    what = f"{einsum.name} at {component.name}"
    rules = component.data_tiles
    assert rules is not None
    i, k, j = roles.variables
    operands = []
    for access, order in ((roles.a, (i, k)), (roles.b, (k, j))):
        known = data[access.tensor]
        if known.actual is None and not known.dense:
            fault = f"{what}: of {access.tensor} only a density is known; tiles of products need its entries"
            raise Refused(fault, f"give data: densities: {{{access.tensor}: {{actual: FILE}}}}")
        shape = tensor_shape(cascade, access.tensor)
        operands.append(operand_of(einsum, access, known, shape).swizzled(order))
    widest = max(x.bits_per_value for x in einsum.accesses)
    asked = _asked(what, rules, component, widest)
    try:
        product = product_of(operands[0], operands[1])
        found = _found(product, rules, asked)
    except Refused as error:
        raise Refused(f"{what}: {error.message}", error.remedy) from error
    return ProductLevel(
        einsum.name,
        component,
        rules,
        (roles.a.tensor, roles.b.tensor, roles.z.tensor),
        (parents[roles.a.tensor], parents[roles.b.tensor], parents[roles.z.tensor]),
        product,
        asked,
        found.best,
        found.candidates,
        rules.word_bits or widest,
        einsum.n_instances,
        found.notes,
    )


def _asked(what: str, rules: TileRules, component: Component, widest: int) -> Asked:
    room = words_of(rules, component.size_bits, component.buffering, widest)
    wanted = rules.product
    if room is None or room < LEAST:
        few = f"has {room} words an operand, and a tile with one entry takes {LEAST}"
        reason = few if room is not None else "does not say how many words an operand's buffer has"
        raise Refused(f"{what}: {component.name} {reason}", "write data_tiles: {product: {capacity: WORDS}}")
    return Asked(
        (room, room, room),
        Machine(wanted.pes, wanted.bandwidth, launch_of(rules, component.clock)),
        wanted.objective,
        ORDERS if wanted.order is None else (wanted.order,),
        wanted.overbook,
        until=soft(wanted.time_limit),
    )


def _found(product: Product, rules: TileRules, asked: Asked) -> Found:
    wanted = rules.product
    if wanted.tile is None:
        strategies = STRATEGIES if wanted.strategy == "search" else (wanted.strategy,)
        found = search(product, asked, strategies, wanted.overbook)
        if wanted.order is None or found.best.traffic.order == wanted.order:
            return found
        # Panels and dynamic tiles have an order of their own.
        mine = tuple(c for c in found.candidates if c.traffic.order == wanted.order)
        if not mine or not mine[0].fits:
            fault = f"no {wanted.strategy} tiles of order {wanted.order} fit"
            raise Refused(fault, "leave out order:, or give another strategy:")
        return Found(mine, found.notes)
    best = given_tiles(product, wanted.tile, asked, wanted.strategy == "overbooked")
    if not best.fits:
        over, room = "/".join(map(str, best.over)), asked.buffers[0]
        fault = f"{over} of the {best.tile} tiles of A/B/Z exceed buffers of {room} words"
        most = max(best.largest)
        raise Refused(fault, f"give smaller tiles, strategy: overbooked or search, or {most} words")
    return Found((best,), ())
