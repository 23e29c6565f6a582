"""Loops over a rank with index math, such as W of `I[q + s]`, in place of one of its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polymodel.sparse.execute.plan import rank_of
from polymodel.sparse.execute.sizes import sizes_by_another_name
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import (
    EinsumMapping,
    Expression,
    FactorProduct,
    Index,
    IndexedTensor,
    Take,
)


def in_loop_variables(
    expression: Expression,
    mapping: EinsumMapping,
    declaration: Mapping[str, Sequence[str]],
    known: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
) -> tuple[Expression, dict[str, int], frozenset[str]]:
    """Return the expression in the variables of its loops, the sizes of ranks as this Einsum has them, and
    the looped ranks that follow a split: their own indices stay, as their tiles are those of the sum.

    `known`: the inputs, and what earlier Einsums have made; `sizes`: of the ranks of the cascade.

    `O[q] = I[q + s] * F[s]` in the loops W and Q is `O[q] = I[w] * F[w - q]`. The variable that has no loop
    occurs by itself in every term, which keeps it within its rank, and not in the output; an expression for
    which that does not hold is returned as it is.
    """
    own = {**sizes, **sizes_by_another_name(expression, declaration, known)}
    following = {p.ranks[0] for p in mapping.partitioning if any(d.kind == "follow" for d in p.directives)}
    followed = set()
    for rank, index, size in _candidates(expression, mapping, declaration, known):
        gone = [v for v, _ in index.terms if not _looped(rank_of(v), mapping.loop_order)]
        factor = dict(index.terms).get(gone[0], 0) if len(gone) == 1 else 0
        if abs(factor) != 1 or not _replaceable(expression, gone[0]):
            continue
        # w = factor * v + rest, so that v = factor * (w - rest).
        terms = {rank.lower(): factor} | {v: -factor * f for v, f in index.terms if v != gone[0]}
        kept = (declaration, rank) if rank in following else None
        expression = _substituted(expression, gone[0], terms, kept)
        own[rank] = size
        followed |= {rank} & following
    return expression, own, frozenset(followed)


def _candidates(
    expression: Expression,
    mapping: EinsumMapping,
    declaration: Mapping[str, Sequence[str]],
    known: Mapping[str, SparseTensor],
) -> list[tuple[str, Index, int]]:
    """Return ranks with affine indices that have a loop and are no variable's rank: index and size."""
    variables = {rank_of(v) for o in _everywhere(expression) for i in o.indices for v, _ in i.terms}
    found: dict[str, tuple[str, Index, int]] = {}
    for operand in expression.operands:
        for axis, (rank, index) in enumerate(
            zip(declaration.get(operand.tensor, ()), operand.indices, strict=False)
        ):
            plain = index.variable is not None or index.constant or index.strides
            if plain or rank in variables or not _looped(rank, mapping.loop_order):
                continue
            found.setdefault(rank, (rank, index, known[operand.tensor].shape[axis]))
    return list(found.values())


def _looped(rank: str, order: Sequence[str]) -> bool:
    return any(loop == rank or loop.rstrip("0123456789") == rank for loop in order)


def _everywhere(expression: Expression) -> tuple[IndexedTensor, ...]:
    return (expression.output, *expression.operands)


def _replaceable(expression: Expression, variable: str) -> bool:
    """True if the variable indexes a tensor by itself in every term, and none of the output."""
    if any(v == variable for i in expression.output.indices for v, _ in i.terms):
        return False
    return all(
        any(i.variable == variable for f in t.factors if isinstance(f, IndexedTensor) for i in f.indices)
        for t in expression.terms
    )


def _substituted(
    expression: Expression,
    variable: str,
    terms: Mapping[str, int],
    kept: tuple[Mapping[str, Sequence[str]], str] | None,
) -> Expression:
    """Return the expression with a sum of other variables in place of one; `kept`: the ranks of all tensors,
    and the one whose indices stay as they are."""

    def index(given: Index) -> Index:
        by = dict(given.terms).get(variable, 0)
        if not by:
            return given
        total = {v: f for v, f in given.terms if v != variable}
        for v, f in terms.items():
            total[v] = total.get(v, 0) + by * f
        return replace(given, terms=tuple((v, f) for v, f in total.items() if f))

    def tensor(given: IndexedTensor) -> IndexedTensor:
        ranks = kept[0].get(given.tensor, ()) if kept else ()
        stays = [kept is not None and r == kept[1] for r in ranks] or [False] * len(given.indices)
        indices = zip(given.indices, stays, strict=True)
        return replace(given, indices=tuple(i if stay else index(i) for i, stay in indices))

    made: list[FactorProduct | Take] = []
    for term in expression.terms:
        if isinstance(term, Take):
            made.append(replace(term, factors=tuple(tensor(f) for f in term.factors)))
        else:
            factors = tuple(tensor(f) if isinstance(f, IndexedTensor) else f for f in term.factors)
            made.append(replace(term, factors=factors))
    return replace(expression, terms=tuple(made))
