"""Ranks of one Einsum, before and after partitioning.

n splits of R produce Rn..R0; a flatten of (M, K0) produces MK0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from polymodel.spec.teaal.records import Expression, Index, IndexedTensor, Partition


@dataclass
class Ranks:
    """Ranks while they are partitioned.

    `order`: ranks over which loops run, in the default order. `indices` and `compound`: declared ranks that
    are indexed by something else than their own variable, with their index and ranks after partitioning.
    `origin`: every rank that ever existed -> declared ranks it comes from; `gone`: rank -> what it became;
    `flat`: ranks that come from a flatten.
    """

    order: list[str]
    indices: dict[str, Index]
    compound: dict[str, list[str]]
    origin: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gone: dict[str, tuple[str, ...]] = field(default_factory=dict)
    flat: set[str] = field(default_factory=set)

    @property
    def variables(self) -> tuple[str, ...]:
        """Ranks of the rank variables, in the default order of loops before partitioning."""
        return tuple(r for r, made in self.origin.items() if made == (r,) and r not in self.compound)

    def apply(self, partition: Partition) -> bool:
        """Replace the partition's ranks; False if one of them does not exist (any more, or yet)."""
        lists = [self.order, *self.compound.values()]
        where = next((x for x in lists if all(r in x for r in partition.ranks)), None)
        if where is None:
            return False
        made = parts_of(partition)
        at = min(where.index(r) for r in partition.ranks)
        origin = tuple(dict.fromkeys(o for r in partition.ranks for o in self.origin[r]))
        flat = len(partition.ranks) > 1 or partition.ranks[0] in self.flat
        for rank in dict.fromkeys(partition.ranks):
            where.remove(rank)
            self.gone[rank] = made
        where[at:at] = made
        for rank in made:
            self.origin.setdefault(rank, origin)
            if flat:
                self.flat.add(rank)
        return True

    def leaves_of(self, root: str) -> tuple[str, ...]:
        """Return the ranks of the loops into which a declared rank is partitioned."""
        every = (*self.order, *(r for x in self.compound.values() for r in x))
        return tuple(r for r in every if root in self.origin[r])

    def known(self) -> tuple[str, ...]:
        """Every rank that exists at the end, those of index math last."""
        return (*self.order, *(r for x in self.compound.values() for r in x))

    def in_index_math(self, rank: str) -> bool:
        """True if the rank, or one it comes from, is summed with others in an index, or is such a sum."""
        roots = self.origin.get(rank, (rank,))
        summed = {v.upper() for index in self.indices.values() for v, _ in index.terms}
        return any(r in self.compound or r in summed for r in roots)


def parts_of(partition: Partition) -> tuple[str, ...]:
    """The names of the ranks that a partition makes, outermost first."""
    if len(partition.ranks) > 1:
        return ("".join(partition.ranks),)
    rank, count = partition.ranks[0], len(partition.directives)
    return tuple(f"{rank}{i}" for i in range(count, -1, -1)) if count else (rank,)


def ranks_of(
    expression: Expression, declaration: Mapping[str, Sequence[str]], rank_order: Mapping[str, Sequence[str]]
) -> Ranks:
    """The ranks of an Einsum before partitioning: the output's as stored, then those of the operands."""
    order: dict[str, None] = {}
    compound: dict[str, Index] = {}
    for operand in (expression.output, *expression.operands):
        declared = list(declaration.get(operand.tensor, ()))
        pairs = dict(zip(declared, operand.indices, strict=False))
        stored = [r for r in rank_order.get(operand.tensor, ()) if r in pairs]
        if operand is not expression.output or len(stored) != len(declared):
            stored = declared
        for rank in stored:
            index = pairs.get(rank)
            if index is None:
                continue
            order.update(dict.fromkeys(v.upper() for v, _ in index.terms))
            if index.variable is None or index.variable.upper() != rank:
                compound.setdefault(rank, index)
    own = {r: i for r, i in compound.items() if r not in order}
    names = [*order, *own]
    return Ranks(list(order), own, {r: [r] for r in own}, {r: (r,) for r in names})


def partitioned(ranks: Ranks, partitions: Iterable[Partition]) -> tuple[Partition, ...]:
    """Apply every partition as soon as its ranks exist; returns those that never could be."""
    waiting = list(partitions)
    while True:
        left = [p for p in waiting if not ranks.apply(p)]
        if len(left) == len(waiting):
            return tuple(left)
        waiting = left


def determines(ranks: Ranks, roots: Iterable[str]) -> bool:
    """True if values of the declared ranks `roots` give every rank variable exactly once."""
    variables = [v.lower() for v in ranks.variables]
    rows: list[list[Fraction]] = []
    for root in roots:
        index = ranks.indices.get(root)
        terms = dict(index.terms) if index else {root.lower(): 1}
        named = {v.lower(): c for v, c in terms.items()}
        rows.append([Fraction(named.get(v, 0)) for v in variables])
    return len(rows) == len(variables) and _rank(rows) == len(variables)


def _rank(rows: list[list[Fraction]]) -> int:
    rank = 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank


def operand_ranks(operand: IndexedTensor, declaration: Mapping[str, Sequence[str]]) -> dict[str, Index]:
    """Declared rank -> index, for one access."""
    return dict(zip(declaration.get(operand.tensor, ()), operand.indices, strict=False))
