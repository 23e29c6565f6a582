"""Make the plan of an Einsum's loops from its mapping: fibertrees in loop order, and the action of each
loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from polymodel.arithmetic import ORDINARY, Semiring
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.execute.arrange import Arrangement
from polymodel.sparse.fibertree import Fibertree, LoopRank
from polymodel.sparse.partition import Columns, Partitioner, Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import EinsumMapping, Expression, FactorProduct, IndexedTensor, Take


@dataclass(frozen=True)
class LoopAction:
    """The action of one loop on one tensor.

    iterate: level `level` co-iterates. cut: the fiber is split at the boundaries of the leader's parts.
    lookup: the coordinate of `level` is column `column` of the flattened loop rank. project: `level`
    co-iterates, shifted by the sum of factor x coordinate of the outer loops in `offset` and divided by the
    `factor` of its own variable; `tile`: (loop, step) of the next outer part, which bounds it. residue: the
    remainder of that sum modulo `factor` is looked up in `level`; the next level has the coordinates with
    that remainder.
    """

    kind: Literal["iterate", "cut", "lookup", "project", "residue"]
    level: int
    column: int = 0
    offset: tuple[tuple[int, int], ...] = ()
    factor: int = 1
    tile: tuple[int, int] | None = None
    constant: int = 0


@dataclass(frozen=True)
class OperandSlot:
    """One occurrence of a tensor on the right-hand side: its fibertree, and its actions by index of the
    loop."""

    name: str
    tensor: str
    tree: Fibertree
    steps: Mapping[int, tuple[LoopAction, ...]]


@dataclass(frozen=True)
class SlotProduct:
    """A product (or take) of slots, by index.

    `factor`: the product of the term's `numbers` numbers, combined like its tensors, and -1 if the term is
    subtracted. A sign alone is a 64-bit integer, so that whole numbers remain whole.
    """

    slots: tuple[int, ...]
    factor: float | int | np.integer
    numbers: int
    take: int | None = None


@dataclass(frozen=True)
class Plan:
    """One Einsum, ready to run. `populate`: loops whose rank the output has. `output`: for each declared rank
    of the output, the loop and the column of its coordinate. `leaders`: loop -> leading slot. `scattered`:
    whether a point of the output may lie in several parts, because their boundaries differ between nodes."""

    einsum: str
    order: tuple[LoopRank, ...]
    slots: tuple[OperandSlot, ...]
    terms: tuple[SlotProduct, ...]
    populate: tuple[int, ...]
    output: tuple[tuple[str, int, int], ...]
    shape: tuple[int, ...]
    sizes: Mapping[str, int]
    tiles: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    leaders: Mapping[int, int] = field(default_factory=dict)
    scattered: bool = False
    semiring: Semiring = ORDINARY


def rank_of(variable: str) -> str:
    """Return the rank of a rank variable."""
    return variable.upper()


def make_plan(
    expression: Expression,
    mapping: EinsumMapping,
    tensors: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    symbols: Mapping[str, int],
    slices: Slices,
    kept: bool,
    partitioners: Mapping[str, Partitioner],
    followed: frozenset[str] = frozenset(),
) -> Plan:
    """Partition the tensors of one Einsum and order their ranks like the loops."""
    operands = list(expression.operands)
    names = _slot_names(operands)
    columns = [_columns(o, n, tensors[o.tensor]) for o, n in zip(operands, names, strict=True)]
    how = (sizes, symbols, slices, kept, partitioners, followed)
    arranged = Arrangement(expression, mapping, columns, *how)
    arranged.run()
    order = arranged.loops()
    if not order:
        raise Refused(f"{expression.name} has no rank: there is no loop to run", code="unsupported-einsum")
    index = {rank.name: i for i, rank in enumerate(order)}
    slots = tuple(
        _slot(operand, column, arranged, index) for operand, column in zip(operands, columns, strict=True)
    )
    populate, output = _output(expression.output, arranged, index)
    shape = tuple(sizes[rank] for rank, _, _ in output)
    return Plan(
        expression.name,
        order,
        slots,
        _terms(expression, scalars),
        populate,
        output,
        shape,
        sizes,
        arranged.tiles,
        {index[loop]: names.index(leader) for loop, leader in arranged.leaders.items()},
        any(index[loop] in populate for loop in arranged.varying),
        expression.semiring,
    )


def _slot_names(operands: Sequence[IndexedTensor]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for operand in operands:
        seen[operand.tensor] = seen.get(operand.tensor, 0) + 1
        again = seen[operand.tensor]
        result.append(operand.tensor if again == 1 else f"{operand.tensor}#{again}")
    return result


def _columns(operand: IndexedTensor, name: str, tensor: SparseTensor) -> Columns:
    """Return the tensor with its ranks named after the variables of this Einsum; affine indices keep their
    own names."""
    ranks: dict[str, LoopRank] = {}
    columns = {}
    for index, rank, size, column in zip(
        operand.indices, tensor.ranks, tensor.shape, tensor.coords, strict=True
    ):
        called = rank_of(index.variable) if index.variable else f"{rank}="
        if called in ranks:
            message = f"{name} has the rank {called} twice: the diagonal of a tensor is not executed"
            raise Refused(message, code="unsupported-einsum")
        ranks[called] = LoopRank(called.rstrip("="), (called,), (size,))
        columns[called] = column
    return Columns(name, ranks, columns, tensor.values)


def _slot(
    operand: IndexedTensor, columns: Columns, arranged: Arrangement, index: Mapping[str, int]
) -> OperandSlot:
    """Assign each rank of a tensor to the loop that binds it."""
    placed: list[tuple[int, str, LoopAction]] = []
    cuts: list[tuple[int, str]] = []
    affine = {
        f"{rank}=": i
        for rank, i in zip(arranged.declared[columns.name], operand.indices, strict=True)
        if i.variable is None
    }
    for name in tuple(columns.ranks):
        if name in affine and name[:-1] in arranged.followed:
            placed.append((index[f"{name[:-1]}0"], name, LoopAction("iterate", 0)))
        elif name in affine:
            placed += _projected(name, affine[name].terms, arranged, index, columns)
        elif (columns.name, name) in arranged.parts:
            placed.append((index[arranged.parts[columns.name, name]], name, LoopAction("iterate", 0)))
        elif name in index:
            placed.append((index[name], name, LoopAction("iterate", 0)))
        else:
            flat, column = arranged.inside[name]
            placed.append((index[arranged.chains[flat][-1]], name, LoopAction("lookup", 0, column)))
        if name in arranged.dynamic.get(columns.name, {}):
            cuts += [(index[cut], name) for cut in arranged.dynamic[columns.name][name]]
    placed.sort(key=lambda p: p[0])
    order = [name for _, name, _ in placed]
    steps: dict[int, list[LoopAction]] = {}
    for level, (at, _, step) in enumerate(placed):
        steps.setdefault(at, []).append(replace(step, level=level))
    for at, name in cuts:
        level = order.index(name)
        if any(at < other < placed[level][0] for other, _, _ in placed):
            what = f"{columns.name} is cut at {arranged.order[at]} by a leader whose fibers it does not have"
            remedy = f"put the loop {name} next to {arranged.order[at]}, or lead by another tensor"
            raise Refused(what, remedy, code="unsupported-partitioning")
        steps.setdefault(at, []).insert(0, LoopAction("cut", level))
    result = {at: tuple(s) for at, s in steps.items()}
    return OperandSlot(columns.name, operand.tensor, columns.tree(order), result)


def _projected(
    name: str,
    terms: Sequence[tuple[str, int]],
    arranged: Arrangement,
    index: Mapping[str, int],
    columns: Columns,
) -> list[tuple[int, str, LoopAction]]:
    """Assign an affine index to the innermost loop of its variables, inside the tile there if that is
    split."""
    tensor = columns.name
    bound = []
    for variable, factor in terms:
        chain = arranged.chains.get(rank_of(variable), [])
        if not chain or chain[-1] not in index:
            message = f"{tensor}: the index math of {name[:-1]} uses {variable}, which is not a loop"
            raise Refused(message, code="unsupported-window")
        bound.append((index[chain[-1]], factor, chain))
    bound.sort(key=lambda b: b[0])
    last, factor, chain = bound[-1]
    steps = [arranged.tiles.get(part, (0, None))[0] for part in chain[:-1]]
    nested = all(inner and outer % inner == 0 for outer, inner in pairwise([*steps, 1]))
    if steps and not (steps[-1] and nested):
        what = f"{tensor}: the innermost variable of the index math of {name[:-1]} "
        what += "is not split by shape into tiles that nest"
        remedy = "put the loop of an unsplit variable innermost"
        raise Refused(what, remedy, code="unsupported-window")
    # An index that falls as its last loop rises is one of the reversed rank, which rises with it.
    constant = columns.reverse(name) if factor < 0 else 0
    sign = -1 if factor < 0 else 1
    factor *= sign
    offset = tuple((at, sign * f) for at, f, _ in bound[:-1])
    tile = (index[chain[-2]], steps[-1]) if steps else None
    step = LoopAction("project", 0, 0, offset, factor, tile, constant)
    if factor == 1:
        return [(last, name, step)]
    columns.residue(name, factor, f"{name}%")
    return [(last, f"{name}%", replace(step, kind="residue")), (last, name, step)]


def _output(
    output: IndexedTensor, arranged: Arrangement, index: Mapping[str, int]
) -> tuple[tuple[int, ...], tuple[tuple[str, int, int], ...]]:
    """Return the loops that populate the output, and the origin of the coordinates of its declared ranks."""
    populate: list[int] = []
    result = []
    for i in output.indices:
        if i.variable is None:
            message = f"{output.tensor}: index math in the output is not executed"
            raise Refused(message, code="unsupported-window")
        rank = rank_of(i.variable)
        chain = arranged.chains.get(rank)
        if chain is None:
            message = f"{output.tensor}: rank {rank} is in no tensor and has no loop"
            raise SpecError([Diagnostic(message, code="invalid-einsum")])
        populate += [index[name] for name in chain if name in index]
        name = chain[-1]
        column = 0
        if name not in index:
            flat, column = arranged.inside[name]
            name = arranged.chains[flat][-1]
        result.append((rank, index[name], column))
    return tuple(sorted(populate)), tuple(result)


def _terms(expression: Expression, scalars: Mapping[str, float]) -> tuple[SlotProduct, ...]:
    result = []
    at = 0
    for term in expression.terms:
        if isinstance(term, Take):
            if term.scalars:
                message = "take(...) of a scalar is not executed"
                raise Refused(message, "multiply the result by it", code="unsupported-operation")
            slots = tuple(range(at, at + len(term.factors)))
            result.append(SlotProduct(slots, 1, 0, term.which))
            at += len(slots)
            continue
        result.append(_product(term, at, scalars, expression.semiring))
        at += len(result[-1].slots)
    return tuple(result)


def _product(term: FactorProduct, at: int, scalars: Mapping[str, float], semiring: Semiring) -> SlotProduct:
    factor: float | int | np.integer = np.int64(-1) if term.negative else 1
    numbers = 0
    slots: list[int] = []
    for f in term.factors:
        if isinstance(f, IndexedTensor):
            slots.append(at + len(slots))
            continue
        number = scalars[f] if isinstance(f, str) else f
        if semiring.ordinary:
            factor = factor * number
        else:
            factor = number if not numbers else semiring.multiply.form(factor, number)
        numbers += 1
    if not slots:
        message = "a term without a tensor is not executed"
        raise Refused(message, "add the constant to the result", code="unsupported-operation")
    return SlotProduct(tuple(slots), factor, numbers)
