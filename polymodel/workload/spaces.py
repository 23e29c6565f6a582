"""Iteration spaces: constraints from rank sizes and shapes, bounding boxes, generations of recurrences."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polymodel.arithmetic import Affine, Constraint
from polymodel.frozen import dataclass
from polymodel.polyhedra.sets import bounding_box, is_box, missing_points, set_from_constraints
from polymodel.spec.faults import Faults, Path, TextFault, close_to, suggestion
from polymodel.spec.numbers import Value, evaluate_number, parse_constraints
from polymodel.spec.section_schemas import Workload
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess, is_range_bound

Symbols = Mapping[str, Value | None]


def rank_sizes_of(
    sizes: Mapping[str, Value | str], path: Path, symbols: Symbols, faults: Faults
) -> list[tuple[str, int]]:
    """Rank sizes as numbers; sizes below 1 are faults."""
    result: list[tuple[str, int]] = []
    for rank, text in sizes.items():
        try:
            size = evaluate_number(text, symbols)
        except TextFault as fault:
            faults.text((*path, rank), fault)
            continue
        if math.isinf(size) or size < 1 or size != int(size):
            what = "unbounded" if math.isinf(size) else "empty" if size < 1 else "not a range of integers"
            message = f"rank {rank} has size {text}: its iteration space is {what}"
            faults.add(
                (*path, rank), message, "write a whole number of at least 1", code="inconsistent-values"
            )
            continue
        result.append((rank, int(size)))
    return result


def constraints_of(
    workload: Workload,
    index: int,
    variables: tuple[str, ...],
    projections: Sequence[Mapping[str, Affine]],
    extended: Mapping[tuple[str, str], tuple[int, int]],
    symbols: Symbols,
    faults: Faults,
) -> tuple[Constraint, ...] | None:
    """All constraints of one Einsum; None after a fault.

    `extended`: (tensor, rank) -> by how many values the rank extends below 0 and beyond its size.
    """
    # Its own list: a fault that an earlier Einsum has as well is reported once, but the space is unknown.
    own = Faults(faults.locator)
    einsum = workload.einsums[index]
    path: Path = ("workload", "einsums", index)
    sizes = dict(rank_sizes_of(workload.rank_sizes, ("workload", "rank_sizes"), symbols, own))
    sizes.update(rank_sizes_of(einsum.rank_sizes, (*path, "rank_sizes"), symbols, own))
    result: list[Constraint] = []
    for access, projection in zip(einsum.tensor_accesses, projections, strict=True):
        for rank, expr in projection.items():
            if rank in sizes:
                below, above = extended.get((access.name, rank), (0, 0))
                low, high = Affine((), below) + expr, Affine((), sizes[rank] - 1 + above) - expr
                result += [Constraint(low), Constraint(high)]
    shapes: list[tuple[str, Path]] = [
        (text, (*path, "iteration_space_shape", k)) for k, text in enumerate(einsum.iteration_space_shape)
    ]
    shapes += [
        (text, ("workload", "iteration_space_shape", v))
        for v, text in workload.iteration_space_shape.items() if v in variables
    ]  # fmt: skip
    for text, where in shapes:
        result += _shape(text, where, einsum.name, variables, symbols, own)
    faults.extend(own.found)
    return None if own.found else tuple(dict.fromkeys(result))


def _shape(
    text: str, path: Path, einsum: str, variables: tuple[str, ...], symbols: Symbols, faults: Faults
) -> tuple[Constraint, ...]:
    try:
        result = parse_constraints(text, symbols)
    except TextFault as fault:
        faults.text(path, fault)
        return ()
    for name in dict.fromkeys(v for c in result for v in c.expr.variables):
        if name not in variables:
            at = text.find(name)
            near = suggestion(name, [*variables, *symbols], "rank variables")
            message = f"unknown rank variable {name} in Einsum {einsum}"
            faults.add(path, message, near, offset=max(at, 0), code="unknown-name")
            return ()
    return result


def bounds_of(
    einsum: str, variables: tuple[str, ...], constraints: tuple[Constraint, ...], path: Path, faults: Faults
) -> tuple[tuple[int, int], ...] | None:
    """Inclusive (low, high) of each rank variable; an empty or unbounded space is a fault."""
    if any(not c.expr.terms and not c.holds({}) for c in constraints):
        what = f"the iteration space of {einsum} is empty"
        faults.add(path, what, "check constant projections and rank sizes", code="empty-space")
        return None
    box = _ranges(variables, constraints)
    if box is not None:
        return box
    points = set_from_constraints(einsum, variables, constraints)
    box = bounding_box(points)
    if box is not None:
        return box
    if points.is_empty():
        fault = f"the iteration space of {einsum} is empty"
        faults.add(path, fault, "check rank_sizes and iteration_space_shape", code="empty-space")
        return None
    loose = [v for v in variables if not _bounded(v, constraints)] or list(variables)
    near = close_to(loose[0], [v for v in variables if v not in loose])
    remedy = f"give the rank of {loose[0]} a size in rank_sizes, or a range in iteration_space_shape"
    remedy = f"did you mean {near}? If not, {remedy}" if near else remedy
    message = f"the iteration space of {einsum} is unbounded in {', '.join(loose)}"
    faults.add(path, message, remedy, code="empty-space")
    return None


def _ranges(
    variables: tuple[str, ...], constraints: tuple[Constraint, ...]
) -> tuple[tuple[int, int], ...] | None:
    """The range of each rank variable if every constraint involves a single one, which needs no ISL set; else
    None."""
    sides: dict[str, tuple[list[int], list[int]]] = {v: ([], []) for v in variables}
    for c in constraints:
        if c.kind != "ge" or len(c.expr.terms) > 1:
            return None
        for v, factor in c.expr.terms:
            at_least, at_most = sides[v]
            if factor > 0:
                at_least.append(-(c.expr.constant // factor))
            else:
                at_most.append(c.expr.constant // -factor)
    if not all(at_least and at_most for at_least, at_most in sides.values()):
        return None
    box = tuple((max(at_least), min(at_most)) for at_least, at_most in sides.values())
    return box if all(low <= high for low, high in box) else None


def unwritten(cascade: Cascade) -> tuple[tuple[str, tuple[int, ...], int, tuple[int, ...]], ...]:
    """Outputs with elements that no iteration writes: (tensor, sizes, number of such elements, the first
    one).

    Covers tensors whose every rank has a size and that are not carried forward.
    """
    known = dict(cascade.rank_sizes)
    result = []
    for einsum in cascade.einsums:
        for access in (a for a in einsum.outputs if a.tensor not in cascade.shifted):
            sizes = tuple(known[r] for r in access.ranks if r in known)
            if len(sizes) == len(access.ranks) and not _covers_tensor(einsum, access, sizes):
                missing = missing_points(einsum.access(access.tensor).range(), sizes)
                result += [(access.tensor, sizes, *missing)] if missing is not None else []
    return tuple(result)


def _covers_tensor(einsum: Einsum, access: TensorAccess, sizes: Sequence[int]) -> bool:
    """True if it is evident that a box of iterations writes all of a tensor: each rank is indexed by a rank
    variable of its own that covers it. False means not evident."""
    if access.guard or not all(is_range_bound(c) for c in einsum.constraints):
        return False
    variables = [x.terms[0][0] for x in access.projection if len(x.terms) == 1 and abs(x.terms[0][1]) == 1]
    if len(set(variables)) < len(access.projection):
        return False
    ends = [
        [x.value({v: end}) for end in einsum.bound(v)]
        for v, x in zip(variables, access.projection, strict=True)
    ]
    return all(min(e) <= 0 and max(e) >= size - 1 for e, size in zip(ends, sizes, strict=True))


def check_sizes(
    projections: Sequence[Mapping[str, Affine]],
    sized: set[str],
    shapes: Sequence[str],
    bounds: Mapping[str, tuple[int, int]],
    path: Path,
    faults: Faults,
) -> None:
    """Faults for ranks without a size that would have negative coordinates; a rank that is one bare variable
    is exempt."""
    bare = dict.fromkeys(
        (r, e.variables[0]) for p in projections for r, e in p.items()
        if len(e.terms) == 1 and e == Affine(e.terms) and e.terms[0][1] == 1
    )  # fmt: skip
    shaped = set(re.findall(r"\w+", " ".join(shapes)))
    settled = shaped | {v for r, v in bare if r in sized}
    for rank, v in bare:
        low, high = bounds[v]
        if rank not in sized and v not in settled and low < 0:
            message = f"rank {rank} has no size: {v} would run {low}..{high}"
            what = f"give it one, such as rank_sizes: {{{rank}: {high + 1}}}"
            faults.add(path, message, what, code="missing-value")


def _bounded(variable: str, constraints: tuple[Constraint, ...]) -> bool:
    signs = {math.copysign(1, c.expr.coefficient(variable)) for c in constraints
             if c.kind == "ge" and c.expr.coefficient(variable)}  # fmt: skip
    return len(signs) == 2 or any(c.kind == "eq" and c.expr.coefficient(variable) for c in constraints)


# Recurrences: Einsums that read what they, or later Einsums, wrote in an earlier iteration.
#
# `RM[p+1] = max(RM[p], LM[p])` carries RM forward along p: P is a *generational* rank of RM. Its values are
# the rank's size plus the shift; `init` gives the values of generations that no Einsum writes,
# and `boundary` the values beyond the edges of other ranks.

Projections = list[dict[str, Affine]]  # per access of an Einsum, rank -> expression
Extended = dict[tuple[str, str], tuple[int, int]]  # (tensor, rank) -> values below 0, beyond the size
IDENTITY = "identity"


@dataclass(frozen=True)
class CarriedAccess:
    """One access that reads an earlier generation: (Einsum, access) positions of the read and of the write,
    and the shift by rank."""

    read: tuple[int, int]
    write: tuple[int, int]
    shifts: tuple[tuple[str, int], ...]

    @property
    def forward(self) -> tuple[str, ...]:
        return tuple(rank for rank, shift in self.shifts if shift > 0)


def carried_reads(workload: Workload, projections: Sequence[Projections]) -> tuple[CarriedAccess, ...]:
    """Reads of a tensor at a constant shift along at least one rank, by its producer or an Einsum before it.
    With `init`, reads by later Einsums too."""
    writers: dict[str, tuple[int, int]] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if access.output:
                writers.setdefault(access.name, (i, j))
    result = []
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            write = writers.get(access.name)
            if access.output or write is None or (write[0] < i and access.name not in workload.init):
                continue
            shifts = _shifts(projections[write[0]][write[1]], projections[i][j])
            carried = CarriedAccess((i, j), write, shifts)
            if carried.forward:
                result.append(carried)
    return tuple(result)


def _shifts(write: Mapping[str, Affine], read: Mapping[str, Affine]) -> tuple[tuple[str, int], ...]:
    """Return the distance by which a write is ahead of a read, along each rank whose index is one rank
    variable plus a constant."""
    pairs = ((rank, write[rank], read[rank]) for rank in write if rank in read)
    return tuple(
        (rank, w.constant - r.constant)
        for rank, w, r in pairs
        if w.terms == r.terms and len(w.terms) == 1 and w.terms[0][1] == 1
    )


def generational_ranks(
    workload: Workload, carried: Sequence[CarriedAccess], faults: Faults
) -> dict[str, tuple[str, ...]]:
    """Tensor -> the ranks along which it is carried forward: those that `generational` names, else inferred
    ones.

    Inferred is the first rank along which every such read is shifted; if there is none, every rank along
    which any is.
    """
    by_tensor: dict[str, list[CarriedAccess]] = {}
    for one in carried:
        i, j = one.read
        by_tensor.setdefault(workload.einsums[i].tensor_accesses[j].name, []).append(one)
    named = workload.generational
    result = {}
    for tensor, reads in by_tensor.items():
        for one in reads:
            if named and not set(one.forward) & set(named):
                i, j = one.read
                message = (
                    f"{tensor} is carried forward along {', '.join(one.forward)}, which is not generational"
                )
                faults.add(
                    ("workload", "einsums", i, "tensor_accesses", j),
                    message,
                    "name it in generational",
                    code="invalid-recurrence",
                )
        options = [[r for r in one.forward if not named or r in named] for one in reads]
        common = [r for r in options[0] if all(r in other for other in options)]
        every = dict.fromkeys(r for each in options for r in each)
        result[tensor] = tuple(common[:1] or every)
    used = {r for ranks in result.values() for r in ranks}
    for k, rank in enumerate(named):
        if rank not in used:
            message = (
                f"rank {rank} is not generational: no Einsum reads at an earlier index what it or a later "
            )
            remedy = suggestion(rank, sorted(used), "generational ranks") if used else "leave it out"
            what = f"{message}one writes"
            faults.add(("workload", "generational", k), what, remedy, code="invalid-recurrence")
    return result


def extended_ranks(
    workload: Workload,
    projections: Sequence[Projections],
    carried: Sequence[CarriedAccess],
    generational: Mapping[str, tuple[str, ...]],
) -> Extended:
    """Return the extensions of the generational ranks of tensors below 0 and beyond their sizes."""
    result: Extended = {}
    for one in carried:
        i, j = one.read
        tensor = workload.einsums[i].tensor_accesses[j].name
        for rank in generational[tensor]:
            read = projections[i][j][rank].constant
            written = projections[one.write[0]][one.write[1]][rank].constant
            below, above = result.get((tensor, rank), (0, 0))
            result[tensor, rank] = max(below, -read, -written), max(above, written, read)
    return result


def with_last_generations(
    workload: Workload,
    projections: Sequence[Projections],
    generational: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
) -> list[Projections]:
    """The projections in which index `P` of a rank P, along which the tensor is carried, is replaced by the
    rank's size: the last generation."""
    variables = {
        a.name: {v for x in projections[i][j].values() for v in x.variables}
        for i, e in enumerate(workload.einsums)
        for j, a in enumerate(e.tensor_accesses)
        if a.output
    }

    def last(tensor: str, rank: str, expr: Affine) -> Affine:
        if rank not in generational.get(tensor, ()) or rank in variables[tensor] or rank not in sizes:
            return expr
        factor = expr.coefficient(rank)
        return expr - Affine(((rank, factor),)) + Affine((), factor * sizes[rank]) if factor else expr

    return [
        [
            {rank: last(a.name, rank, x) for rank, x in projection.items()}
            for a, projection in zip(e.tensor_accesses, here, strict=True)
        ]
        for e, here in zip(workload.einsums, projections, strict=True)
    ]


Unwritten = tuple[tuple[str, float | str], ...]  # tensor -> the value of elements that no Einsum writes


def unwritten_values(
    workload: Workload,
    section: str,
    generational: Mapping[str, tuple[str, ...]],
    symbols: Symbols,
    faults: Faults,
) -> Unwritten:
    """`init` or `boundary` by tensor: a number, `identity` (the identity element of the operator that reduces
    or joins), or the name of a tensor."""
    result: list[tuple[str, float | str]] = []
    for tensor, text in getattr(workload, section).items():
        path: Path = ("workload", section, tensor)
        if section == "boundary" and tensor in generational and tensor not in workload.init:
            message = f"the spec does not say what precedes the first generation of {tensor}"
            faults.add(path, message, f"write init: {{{tensor}: ...}} as well", code="invalid-recurrence")
            continue
        if tensor not in generational:
            near = suggestion(tensor, sorted(generational), "tensors that are carried forward")
            remedy = near if generational else "leave it out"
            message = f"{tensor} is not carried forward, so that nothing is before it"
            message += ": no Einsum reads it at an earlier index than the one at which it is written"
            faults.add(path, message, remedy, key=True, code="invalid-recurrence")
            continue
        if text == IDENTITY or is_tensor(text, symbols):
            result.append((tensor, str(text)))
            continue
        try:
            result.append((tensor, float(evaluate_number(text, symbols))))
        except TextFault as fault:
            faults.text(path, fault)
    return tuple(result)


def is_tensor(text: object, symbols: Symbols) -> bool:
    """True if a value of `init` names a tensor."""
    return isinstance(text, str) and text.isidentifier() and text not in {*symbols, IDENTITY, "inf", "nan"}


def with_initial_tensors(
    workload: Workload,
    projections: Sequence[Projections],
    generational: Mapping[str, tuple[str, ...]],
    extended: Extended,
    symbols: Symbols,
) -> tuple[Workload, list[Projections], Extended]:
    """The Einsums in which each read of a tensor whose `init` or `boundary` is a tensor is joined by a read
    of that one. An initial tensor lacks the generational rank if there is a single generation before the
    first; a boundary tensor always lacks it."""
    einsums, result, reach = [], [], dict(extended)
    for e, here in zip(workload.einsums, projections, strict=True):
        more, added = [], []
        for access, projection in zip(e.tensor_accesses, here, strict=True):
            ranks = generational.get(access.name, ())
            single = [r for r in ranks if len(ranks) == 1 and sum(extended[access.name, r]) == 1]
            for section, dropped in ((workload.init, single), (workload.boundary, ranks)):
                name = section.get(access.name)
                if access.output or not ranks or not is_tensor(name, symbols):
                    continue
                added.append(access.model_copy(update={"name": str(name), "density": None}))
                more.append({r: x for r, x in projection.items() if r not in dropped})
                reach.update({(str(name), r): extended[access.name, r] for r in ranks if r not in dropped})
        einsums.append(e.model_copy(update={"tensor_accesses": (*e.tensor_accesses, *added)}))
        result.append([*here, *more])
    return workload.model_copy(update={"einsums": tuple(einsums)}), result, reach


def without_boundaries(
    einsums: Sequence[Einsum],
    init: Unwritten,
    faults: Faults,
    boundary: Unwritten = (),
    generational: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Einsum, ...]:
    """The Einsums with guards on reads of elements that no Einsum writes: where the value is a number the
    read touches nothing, where it is a tensor the access of that tensor does. `generational`: the ranks of a
    tensor (all ranks, for a tensor that is not named) beyond whose edges `init` holds instead of `boundary`.
    """
    given = {t for t, _ in init}
    written = {}
    for i, e in enumerate(einsums):
        for access in e.outputs:
            if access.tensor in given:
                image = e.relation(access).range()
                if not is_box(image):
                    path: Path = ("workload", "einsums", i)
                    what = f"what {e.name} writes of {access.tensor}"
                    message = f"{what} is not a box, so that its edge has no init"
                    what = (
                        f"let {e.name} execute over all of its ranks: leave out the bounds that tie them, "
                        "here and in the Einsums that make what it reads"
                    )
                    faults.add(path, message, what, code="invalid-recurrence")
                written[access.tensor] = bounding_box(image) or ()
    edges = _Edges(dict(init), dict(boundary), generational or {})
    result = []
    for e in einsums:
        reads = [a for a in e.accesses if not a.output and a.tensor in written]
        mine = len(e.accesses) - sum(len(edges.tensors(a.tensor)) for a in reads)
        accesses, others = list(e.accesses[:mine]), iter(e.accesses[mine:])
        for k, read in enumerate(e.accesses[:mine]):
            if read.output or read.tensor not in written:
                continue
            sides = _sides(e, read, written[read.tensor])
            accesses[k] = replace(read, guard=tuple(side for _, side in sides))
            tensors = {first: next(others) for first in edges.tensors(read.tensor)}
            accesses += edges.standing(e, read, sides, tensors, faults)
        result.append(replace(e, accesses=tuple(accesses)))
    return tuple(result)


Sides = Sequence[tuple[str, Constraint]]  # (rank, what holds on this side of its edge)


@dataclass(frozen=True)
class _Edges:
    """The values beyond the edges of tensors that are carried forward."""

    init: Mapping[str, float | str]
    boundary: Mapping[str, float | str]
    generational: Mapping[str, tuple[str, ...]]

    def tensors(self, tensor: str) -> tuple[bool, ...]:
        """The edges beyond which the value is a tensor: True for generational ranks, False for the others."""
        given = ((True, self.init.get(tensor)), (False, self.boundary.get(tensor)))
        return tuple(first for first, value in given if isinstance(value, str) and value != IDENTITY)

    def standing(
        self,
        e: Einsum,
        read: TensorAccess,
        sides: Sides,
        tensors: Mapping[bool, TensorAccess],
        faults: Faults,
    ) -> list[TensorAccess]:
        """The accesses of initial tensors and boundaries, for iterations in which a read is beyond an edge.

        Each such iteration belongs to one of them: beyond several edges, to that of a generational rank.
        """
        along = self.generational.get(read.tensor, read.ranks)
        result: list[TensorAccess] = []
        within: list[Constraint] = []
        for rank, side in sorted(sides, key=lambda one: one[0] not in along):
            first = rank in along
            if first in tensors:
                beyond = Constraint(side.expr.scaled(-1) - Affine((), 1))
                made = replace(tensors[first], guard=(*within, beyond), stands_for=read.tensor)
                result += [] if e.relation(made).is_empty() else [made]
            elif not first and True in tensors and read.tensor not in self.boundary:
                message = f"{e.name} reads {read.tensor} beyond the edge of {rank}, where nobody writes it"
                remedy = f"say what it holds there: boundary: {{{read.tensor}: 0}} (a number or a tensor)"
                path: Path = ("workload", "init", read.tensor)
                faults.add(path, message, remedy, code="invalid-recurrence")
                break
            within.append(side)
        return result


def _sides(e: Einsum, access: TensorAccess, box: tuple[tuple[int, int], ...]) -> Sides:
    """Return constraints on the iterations in which the accessed element lies in a box."""
    sides = []
    for rank, expr, (low, high) in zip(access.ranks, access.projection, box, strict=True):
        for side in (expr - Affine((), low), Affine((), high) - expr):
            if side.constant + sum(min(c * x for x in e.bound(v)) for v, c in side.terms) < 0:
                sides.append((rank, Constraint(side)))
    return sides
