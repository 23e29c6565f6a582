"""The sizes of the ranks of a cascade that runs on data, and of those that an Einsum has by another name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.execute.plan import rank_of
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_number, shown
from polymodel.spec.teaal.records import Expression, TeaalSpec


def by_another_name(
    expression: Expression, declaration: Mapping[str, Sequence[str]]
) -> dict[str, list[tuple[str, int]]]:
    """The variables of ranks that no tensor of the Einsum has, and the operands' ranks that they index alone.

    In `D[i] = B[i, j]` with a B of ranks K and L, where D has rank I, it is j, over rank L:
    `{"J": [("B", 1)]}`. Another Einsum may have a rank J of another size.
    """
    everywhere = (expression.output, *expression.operands)
    has = {rank for o in everywhere for rank in declaration.get(o.tensor, ())}
    found: dict[str, list[tuple[str, int]]] = {}
    for operand in expression.operands:
        for axis, index in enumerate(operand.indices):
            if index.variable is not None and rank_of(index.variable) not in has:
                found.setdefault(rank_of(index.variable), []).append((operand.tensor, axis))
    return found


def sizes_by_another_name(
    expression: Expression, declaration: Mapping[str, Sequence[str]], known: Mapping[str, SparseTensor]
) -> dict[str, int]:
    """The sizes of these ranks in one Einsum; `known`: the inputs, and what earlier Einsums have made.

    SpecError where a variable indexes ranks of several sizes.
    """
    sizes: dict[str, int] = {}
    faults = []
    for rank, places in by_another_name(expression, declaration).items():
        sized = {(known[t].shape[a], f"{declaration[t][a]} of {t}") for t, a in places}
        if len({size for size, _ in sized}) > 1:
            which = ", ".join(f"{size} ({place})" for size, place in sorted(sized))
            what = f"{expression.name}: {rank.lower()} indexes ranks of several sizes: {which}"
            remedy = "ranks that one variable indexes have one size"
            faults.append(Diagnostic(what, remedy, code="inconsistent-values"))
        sizes[rank] = min(size for size, _ in sized)
    if faults:
        raise SpecError(faults)
    return sizes


def sizes_of_ranks(
    teaal: TeaalSpec, tensors: Mapping[str, SparseTensor], given: Mapping[str, int]
) -> dict[str, int]:
    """Return the size of every rank. SpecError if tensors that share a rank disagree."""
    found: dict[str, tuple[int, str]] = {}
    faults: list[Diagnostic] = []
    declared = {r for ranks in teaal.declaration.values() for r in ranks}
    operands = [o for e in teaal.expressions for o in (e.output, *e.operands)]
    declared |= {rank_of(v) for o in operands for i in o.indices for v, _ in i.terms}
    for rank in given:
        if rank not in declared:
            message = f"there is no rank {rank}"
            faults.append(Diagnostic(message, f"ranks: {', '.join(sorted(declared))}", code="unknown-name"))
    stated = {r: s for r, s in teaal.rank_sizes.items() if isinstance(s, int)}
    for rank, size in {**stated, **given}.items():
        whole = as_number(size) or 0
        if whole < 1 or whole != whole // 1:
            message = f"rank {rank} has size {shown(size)}"
            faults.append(Diagnostic(message, "a whole number of at least 1", code="not-positive-integer"))
            whole = 1
        found[rank] = (int(whole), "the rank sizes given")
    for expression in teaal.expressions:
        elsewhere = by_another_name(expression, teaal.declaration)
        for operand in expression.operands:
            tensor = tensors.get(operand.tensor)
            if tensor is None:
                continue
            if len(operand.indices) != len(tensor.ranks):
                what = f"{operand.tensor} has {len(tensor.ranks)} ranks and {len(operand.indices)} indices"
                faults.append(Diagnostic(f"{what} in {expression.name}", code="inconsistent-values"))
                continue
            for index, size in zip(operand.indices, tensor.shape, strict=True):
                if index.variable is None or rank_of(index.variable) in elsewhere:
                    continue
                rank = rank_of(index.variable)
                before, where = found.setdefault(rank, (size, operand.tensor))
                if before != size:
                    what = f"rank {rank} has size {size} in {operand.tensor} and {before} in {where}"
                    remedy = "tensors that share a rank have one size for it"
                    faults.append(Diagnostic(what, remedy, code="inconsistent-values"))
    if faults:
        raise SpecError(list(dict.fromkeys(faults)))
    return {rank: size for rank, (size, _) in found.items()}
