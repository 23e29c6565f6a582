"""Counts without values: of a rank that is dense everywhere, one coordinate represents each tile.

Where every tensor with a rank has all its coordinates, the innermost loops over that rank do the same at all
nodes. One coordinate per tile is kept, loops go no further than the tile, and the work of the innermost loops
follows from the size of the tile. Intermediate tensors then have one coordinate per tile as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.execute.innermost_dense import Tail
from polymodel.sparse.execute.loops import Walk, Walked
from polymodel.sparse.execute.plan import rank_of
from polymodel.sparse.fibertree import Ints, LoopRank, build
from polymodel.sparse.partition import number, part_names, shape_columns
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import Directive, EinsumMapping, Expression, Operand


@dataclass(frozen=True)
class Thin:
    """Rank `rank` of `size` coordinates, split by `directives`, whose last `inner` parts are not walked; the
    tiles around these have `step` coordinates."""

    rank: str
    size: int
    directives: tuple[Directive, ...]
    inner: int
    step: int
    symbols: Mapping[str, int]

    @property
    def tiles(self) -> int:
        return -(-self.size // self.step)

    def thinned(self, tensor: SparseTensor) -> SparseTensor:
        """The first coordinate of every tile."""
        if self.rank not in tensor.ranks:
            return tensor
        kept = tensor.rank(self.rank) % self.step == 0
        return SparseTensor(
            tensor.name, tensor.ranks, tensor.shape, tensor.coords[:, kept], tensor.values[kept]
        )

    def has(self, expression: Expression) -> bool:
        return any(self.rank in ranks(o) for o in expression.operands)

    def tail(self, walk: Walk) -> Tail:
        """What the loops left would do below each node."""
        start = walk.at
        kind = np.zeros(walk.nodes, dtype=np.int64)
        above = [i for i in range(start) if walk.plan.order[i].bases == (self.rank,)]
        if above:
            kind = walk.coords_of(above[-1]) // self.step
        coords = np.arange(self.size, dtype=np.int64)
        parts = [*shape_columns(coords, self.directives, self.size, self.symbols), coords][-self.inner :]
        names = [walk.plan.order[start + i] for i in range(self.inner)]
        tile = LoopRank("tile", ("tile",), (self.tiles,))
        tree = build("tile", [tile, *names], [coords // self.step, *parts], coords)
        loops = []
        for i, level in enumerate(tree.levels[1:]):
            lengths = np.diff(level.starts)
            taking = [s for s, slot in enumerate(walk.plan.slots) if start + i in slot.steps]
            reads: dict[int, Ints] = dict.fromkeys(taking, lengths)
            loops.append(Walked(level.fiber, level.coords, reads=reads))
        return Tail(start, kind, np.zeros(0, dtype=np.int64), tuple(loops), (), (None,) * len(loops))


def ranks(operand: Operand) -> list[str]:
    """The ranks of plain indices."""
    return [rank_of(i.variable) for i in operand.indices if i.variable]


def find_thin(
    expressions: Sequence[Expression],
    mappings: Sequence[EinsumMapping],
    tensors: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> Thin | None:
    """The rank whose innermost loops need no walking in any Einsum; None if there is none."""
    wanted = dict.fromkeys(m.loop_order[-1].rstrip("0123456789") for m in mappings if m.loop_order)
    for rank in wanted:
        found = [_one(rank, e, m, sizes, symbols) for e, m in zip(expressions, mappings, strict=True)]
        known = {t for t in found if isinstance(t, Thin)}
        fits = None not in found and len({(t.directives, t.inner) for t in known}) == 1
        if fits and all(_complete(t, rank) for t in tensors.values() if rank in t.ranks):
            return next(t for t in found if isinstance(t, Thin))
    return None


def _one(
    rank: str,
    expression: Expression,
    mapping: EinsumMapping,
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> Thin | str | None:
    """How one Einsum has the rank; text if it does not, None where its loops over it must be walked."""
    everywhere = [expression.output, *expression.operands]
    if any(rank_of(v) == rank for o in everywhere for i in o.indices if not i.variable for v, _ in i.terms):
        return None
    right = any(rank in ranks(o) for o in expression.operands)
    if not right and rank not in ranks(expression.output):
        return "none"
    if not right or rank not in ranks(expression.output) or len(expression.terms) > 1:
        return None
    split = next((p for p in mapping.partitioning if rank in p.ranks), None)
    directives = split.directives if split is not None else ()
    if any(d.kind != "uniform_shape" for d in directives) or (split is not None and split.ranks != (rank,)):
        return None
    names = part_names(rank, len(directives)) if directives else (rank,)
    timed = {s.rank for s in mapping.spacetime.time} if mapping.spacetime is not None else set()
    if mapping.spacetime is not None and mapping.spacetime.space:
        timed.add(mapping.spacetime.space[0].rank)
    inner = 0
    while inner < min(len(names), len(mapping.loop_order) - 1) and (
        mapping.loop_order[-1 - inner] == names[-1 - inner] and names[-1 - inner] not in timed
    ):
        inner += 1
    if not inner:
        return None
    above = len(names) - inner
    step = sizes[rank] if not above else number(directives[above - 1], symbols)
    return Thin(rank, sizes[rank], tuple(directives), inner, step, _Table(symbols))


class _Table(dict[str, int]):
    """A table of numbers that can be hashed."""

    def __hash__(self) -> int:  # type: ignore[override]  # it is never changed once made
        return hash(tuple(sorted(self.items())))


def _complete(tensor: SparseTensor, rank: str) -> bool:
    """Whether every fiber of a rank has all its coordinates."""
    at = tensor.ranks.index(rank)
    size = tensor.shape[at]
    if tensor.nnz % size:
        return False
    if not tensor.nnz:
        return True
    counts = np.bincount(tensor.coords[at], minlength=size)
    if (counts != tensor.nnz // size).any():
        return False
    others = [c for i, c in enumerate(tensor.coords) if i != at]
    if not others:
        return True
    first = np.array([c[tensor.coords[at] == 0] for c in others])
    rest = np.unique(np.array(others), axis=1)
    return bool(rest.shape[1] == first.shape[1])
