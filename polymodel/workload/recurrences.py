"""Recurrences: Einsums that read what they, or later Einsums, have made in an earlier iteration.

`RM[p+1] = max(RM[p], LM[p])` carries RM forward along p: P is a *generational* rank of RM. Its values are the
rank's size and as many more as it is shifted by; `init` says what generations hold that nobody writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.affine import Affine, Constraint
from polymodel.polyhedra.build import bounding_box, is_box
from polymodel.spec import Workload
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value, evaluate_number
from polymodel.workload.einsum import Einsum, TensorAccess

Symbols = Mapping[str, Value | None]
Projections = list[dict[str, Affine]]  # per access of an Einsum, rank -> expression
Extended = dict[tuple[str, str], tuple[int, int]]  # (tensor, rank) -> values below 0, and beyond its size
IDENTITY = "identity"


@dataclass(frozen=True)
class Carried:
    """One access that reads an earlier generation: (Einsum, access) positions of both ends, shift by rank."""

    read: tuple[int, int]
    write: tuple[int, int]
    shifts: tuple[tuple[str, int], ...]

    @property
    def forward(self) -> tuple[str, ...]:
        return tuple(rank for rank, shift in self.shifts if shift > 0)


def carried_reads(workload: Workload, projections: Sequence[Projections]) -> tuple[Carried, ...]:
    """Reads of a tensor by its producer or an Einsum before it, at a constant shift of one rank at least."""
    writers: dict[str, tuple[int, int]] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if access.output:
                writers.setdefault(access.name, (i, j))
    found = []
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            write = writers.get(access.name)
            if access.output or write is None or write[0] < i:
                continue
            shifts = _shifts(projections[write[0]][write[1]], projections[i][j])
            carried = Carried((i, j), write, shifts)
            if carried.forward:
                found.append(carried)
    return tuple(found)


def _shifts(write: Mapping[str, Affine], read: Mapping[str, Affine]) -> tuple[tuple[str, int], ...]:
    """By how much a write is ahead of a read, in ranks that are one rank variable and a constant."""
    pairs = ((rank, write[rank], read[rank]) for rank in write if rank in read)
    return tuple(
        (rank, w.constant - r.constant)
        for rank, w, r in pairs
        if w.terms == r.terms and len(w.terms) == 1 and w.terms[0][1] == 1
    )


def generational_ranks(
    workload: Workload, carried: Sequence[Carried], faults: Faults
) -> dict[str, tuple[str, ...]]:
    """Tensor -> the ranks along which it is carried forward: those named `generational`, else inferred.

    Inferred is the first rank that every such read is shifted along; without one, all along which any is.
    """
    by_tensor: dict[str, list[Carried]] = {}
    for one in carried:
        i, j = one.read
        by_tensor.setdefault(workload.einsums[i].tensor_accesses[j].name, []).append(one)
    named = workload.generational
    found = {}
    for tensor, reads in by_tensor.items():
        for one in reads:
            if named and not set(one.forward) & set(named):
                i, j = one.read
                message = (
                    f"{tensor} is carried forward along {', '.join(one.forward)}, which is not generational"
                )
                faults.add(
                    ("workload", "einsums", i, "tensor_accesses", j), message, "name it in generational"
                )
        options = [[r for r in one.forward if not named or r in named] for one in reads]
        common = [r for r in options[0] if all(r in other for other in options)]
        every = dict.fromkeys(r for each in options for r in each)
        found[tensor] = tuple(common[:1] or every)
    used = {r for ranks in found.values() for r in ranks}
    for k, rank in enumerate(named):
        if rank not in used:
            message = (
                f"rank {rank} is not generational: no Einsum reads at an earlier index what it or a later "
            )
            remedy = suggestion(rank, sorted(used), "generational ranks") if used else "leave it out"
            faults.add(("workload", "generational", k), f"{message}one writes", remedy)
    return found


def extended_ranks(
    workload: Workload,
    projections: Sequence[Projections],
    carried: Sequence[Carried],
    generational: Mapping[str, tuple[str, ...]],
) -> Extended:
    """How far the generational ranks of tensors reach below 0 and beyond their sizes."""
    found: Extended = {}
    for one in carried:
        i, j = one.read
        tensor = workload.einsums[i].tensor_accesses[j].name
        for rank in generational[tensor]:
            read = projections[i][j][rank].constant
            written = projections[one.write[0]][one.write[1]][rank].constant
            below, above = found.get((tensor, rank), (0, 0))
            found[tensor, rank] = max(below, -read, -written), max(above, written, read)
    return found


def with_last_generations(
    workload: Workload,
    projections: Sequence[Projections],
    generational: Mapping[str, tuple[str, ...]],
    sizes: Mapping[str, int],
) -> list[Projections]:
    """The projections with index `P` of a rank P, along which a tensor is carried, as its size: the last."""
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


def initial_values(
    workload: Workload, generational: Mapping[str, tuple[str, ...]], symbols: Symbols, faults: Faults
) -> tuple[tuple[str, float | str], ...]:
    """`init` by tensor: a number, `identity` (of the operator that reduces or joins) or an input tensor."""
    found: list[tuple[str, float | str]] = []
    for tensor, text in workload.init.items():
        path: Path = ("workload", "init", tensor)
        if tensor not in generational:
            near = suggestion(tensor, sorted(generational), "tensors that are carried forward")
            remedy = near if generational else "leave it out"
            faults.add(
                path, f"{tensor} is not carried forward, so that nothing is before it", remedy, key=True
            )
            continue
        if text == IDENTITY or is_tensor(text, symbols):
            found.append((tensor, str(text)))
            continue
        try:
            found.append((tensor, float(evaluate_number(text, symbols))))
        except TextFault as fault:
            faults.text(path, fault)
    return tuple(found)


def is_tensor(text: object, symbols: Symbols) -> bool:
    """Whether a text of `init` names a tensor."""
    return isinstance(text, str) and text.isidentifier() and text not in {*symbols, IDENTITY, "inf", "nan"}


def with_initial_tensors(
    workload: Workload,
    projections: Sequence[Projections],
    generational: Mapping[str, tuple[str, ...]],
    extended: Extended,
    symbols: Symbols,
) -> tuple[Workload, list[Projections], Extended]:
    """Beside each read of a tensor whose `init` is a tensor, one of that; it has no generational rank if one
    generation is before the first."""
    given = {
        t: str(text) for t, text in workload.init.items() if t in generational and is_tensor(text, symbols)
    }
    einsums, found, reach = [], [], dict(extended)
    for e, here in zip(workload.einsums, projections, strict=True):
        more, added = [], []
        for access, projection in zip(e.tensor_accesses, here, strict=True):
            if access.output or access.name not in given:
                continue
            ranks = generational[access.name]
            single = [r for r in ranks if sum(extended[access.name, r]) == 1]
            for r in ranks:
                reach[given[access.name], r] = extended[access.name, r]
            added.append(access.model_copy(update={"name": given[access.name], "density": None}))
            more.append({r: x for r, x in projection.items() if r not in single})
        einsums.append(e.model_copy(update={"tensor_accesses": (*e.tensor_accesses, *added)}))
        found.append([*here, *more])
    return workload.model_copy(update={"einsums": tuple(einsums)}), found, reach


def without_boundaries(
    einsums: Sequence[Einsum], init: Sequence[tuple[str, float | str]], faults: Faults
) -> tuple[Einsum, ...]:
    """The Einsums with reads of what nobody writes left out: of numbers such a read touches no element, of an
    initial tensor its own access does."""
    given = {t for t, _ in init}
    initial = {t: v for t, v in init if isinstance(v, str) and v != IDENTITY}
    written = {}
    for i, e in enumerate(einsums):
        for access in e.outputs:
            if access.tensor in given:
                image = e.relation(access).range()
                if not is_box(image):
                    path: Path = ("workload", "einsums", i)
                    message = (
                        f"what {e.name} writes of {access.tensor} is no box, so that its edge has no init"
                    )
                    faults.add(path, message, "leave init out, and let another tensor hold what comes before")
                written[access.tensor] = bounding_box(image) or ()
    found = []
    for i, e in enumerate(einsums):
        guarded = tuple(
            _within(e, a, written[a.tensor]) if not a.output and a.tensor in written else a
            for a in e.accesses
        )
        found.append(replace(e, accesses=_initial(i, guarded, initial, faults)))
        for j, access in enumerate(guarded):
            if access.guard and e.relation(access).is_empty():
                message = f"{e.name} reads only what comes before all that is made of {access.tensor}"
                remedy = "give the rank along which it is carried more values, or leave this access out"
                faults.add(("workload", "einsums", i, "tensor_accesses", j), message, remedy)
    return tuple(found)


def _initial(
    position: int, accesses: tuple[TensorAccess, ...], initial: Mapping[str, str], faults: Faults
) -> tuple[TensorAccess, ...]:
    """Accesses of initial tensors only where the reads that they stand for touch nothing."""
    reads = [a for a in accesses if not a.output and a.tensor in initial]
    mine = len(accesses) - len(reads)  # they stand behind all others, in the order of the reads
    found = list(accesses[:mine])
    for read, first in zip(reads, accesses[mine:], strict=True):
        if len(read.guard) > 1:
            message = f"{read.tensor} is not made along several of its edges: {first.tensor} holds one"
            faults.add(("workload", "einsums", position), message, "give init as a number")
        for side in read.guard[:1]:
            edge = Constraint(side.expr.scaled(-1) - Affine((), 1))
            found.append(replace(first, guard=(edge,), stands_for=read.tensor))
    return tuple(found)


def _within(e: Einsum, access: TensorAccess, box: tuple[tuple[int, int], ...]) -> TensorAccess:
    """The access in those iterations alone in which its element lies in a box."""
    guard = []
    for expr, (low, high) in zip(access.projection, box, strict=True):
        for side in (expr - Affine((), low), Affine((), high) - expr):
            if side.constant + sum(min(c * x for x in e.bound(v)) for v, c in side.terms) < 0:
                guard.append(Constraint(side))
    return replace(access, guard=tuple(guard))
