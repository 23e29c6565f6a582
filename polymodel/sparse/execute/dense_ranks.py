"""Avoid walking equal work over dense ranks; counts without values use one coordinate for each tile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.execute.loops import FiberCursor, LoopWalk, Walked
from polymodel.sparse.execute.output import Bools, effectual
from polymodel.sparse.execute.plan import OperandSlot, Plan, rank_of
from polymodel.sparse.fibertree import Fibertree, Ints, Level, LoopRank, build
from polymodel.sparse.partition import number, part_names, shape_columns
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import Directive, EinsumMapping, Expression, IndexedTensor

# Equal work of innermost loops over dense fibers is not repeated.
#
# There are only few kinds of nodes at which such loops differ: one node of each kind is walked for all of
# them.

_MOST_KINDS = 64


@dataclass(frozen=True, eq=False)
class Tail:
    """The loops from `start` on, for each kind of node of the loop before.

    `kind`: the kind of each node. `one`: the node of each kind that was walked. `loops`: the loops below one
    node of each kind (parents in the first loop are kinds). `cursors`: the positions of the tensors at their
    leaves. `alive`: the nodes that lead to a result.
    """

    start: int
    kind: Ints
    one: Ints
    loops: tuple[Walked, ...]
    cursors: tuple[FiberCursor, ...]
    alive: tuple[Bools | None, ...]

    @property
    def kinds(self) -> int:
        return int(self.kind.max(initial=-1)) + 1

    def owner(self, loop: int) -> Ints:
        """Return the kind that each node of one of the loops belongs to."""
        result = self.loops[loop].parent
        for above in reversed(self.loops[:loop]):
            result = above.parent[result]
        return result

    def spread(self, loop: int) -> Ints:
        """Return the coordinates of one of the loops at the nodes of the last loop."""
        result = self.loops[loop].coords
        for inner in self.loops[loop + 1 :]:
            result = result[inner.parent]
        return result

    def counts(self, loop: int, with_result: bool = False) -> Ints:
        """Return the iterations of one of the loops below a node of each kind."""
        owner = self.owner(loop)
        alive = self.alive[loop]
        if with_result and alive is not None:
            owner = owner[alive]
        return np.bincount(owner, minlength=self.kinds)


def candidates(plan: Plan, timed: Collection[str]) -> int:
    """Return the first of the innermost loops that need to be walked for a few nodes only; the number of
    loops if there is none.

    These loops have no time stamps, populate ranks of the output, and tensors only iterate there, up to their
    leaves.
    """
    at = len(plan.order)
    if len(plan.terms) > 1 or plan.scattered:
        return at
    while at > 0 and at - 1 in plan.populate and plan.order[at - 1].name not in timed:
        steps = [s for slot in plan.slots for s in slot.steps.get(at - 1, ())]
        if not steps or any(s.kind != "iterate" for s in steps):
            break
        at -= 1
    while at < len(plan.order) and not all(_regular(s.tree, _depth(s, at)) for s in plan.slots):
        at += 1
    return at


def _depth(slot: OperandSlot, at: int) -> int:
    """Return how many levels of a tensor are bound before a loop."""
    return sum(s.kind != "cut" for loop, steps in slot.steps.items() if loop < at for s in steps)


def _regular(tree: Fibertree, depth: int) -> bool:
    """Return whether fibers from level `depth` on have equally spaced coordinates, and those below the first
    level are determined by the coordinate above them."""
    for at in range(depth, len(tree.levels)):
        level = tree.levels[at]
        if not level.elements or level.step == 0:
            return False
        if at == depth:
            continue
        above = tree.levels[at - 1].coords
        for column in (level.coords[level.starts[:-1]], np.diff(level.starts)):
            table = np.zeros(int(above.max()) + 1, dtype=np.int64)
            table[above] = column
            if (table[above] != column).any():
                return False
    return True


def enter(walk: LoopWalk) -> Tail | None:
    """Walk the remaining loops for one node of each kind; return None where there are too many kinds."""
    if not walk.nodes:
        return None
    columns: list[Ints] = []
    for cursor in walk.cursors:
        if cursor.partial or cursor.cut is not None:
            return None
        if cursor.bound < len(cursor.slot.tree.levels):
            fibers = cursor.fibers(walk.nodes)
            columns += [fibers.level.coords[fibers.low], fibers.high - fibers.low]
    kind, one = _kinds(columns, walk.nodes)
    if one.size > _MOST_KINDS or walk.nodes < 2 * one.size:
        return None
    rest = walk.branch(one)
    while rest.at < len(walk.plan.order):
        rest.step()
    alive = effectual(rest.loops, None)
    return Tail(walk.at, kind, one, tuple(rest.loops), tuple(rest.cursors), tuple(alive))


def _kinds(columns: list[Ints], nodes: int) -> tuple[Ints, Ints]:
    """Number the rows so that equal rows have equal numbers, and return one row of each number."""
    kind = np.zeros(nodes, dtype=np.int64)
    count = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        keys = kind * (high - low + 1) + (column - low)
        size = count * (high - low + 1)
        if size <= 4 * nodes + 1024:
            present = np.zeros(size, dtype=bool)
            present[keys] = True
            table = np.cumsum(present) - 1
            kind = table[keys]
        else:
            _, kind = np.unique(keys, return_inverse=True)
        count = int(kind.max()) + 1
    one = np.zeros(count, dtype=np.int64)
    one[kind[::-1]] = np.arange(nodes - 1, -1, -1)
    return kind, one


def first_leaf(levels: tuple[Level, ...], element: Ints) -> Ints:
    """Return the number of the first leaf below each element, going down these levels."""
    for level in levels:
        element = level.starts[element]
    return element


# In counts without values, one coordinate of a rank that is dense everywhere represents each tile.
#
# Where every tensor with a rank has all its coordinates, the innermost loops over that rank do the same work
# at all nodes. One coordinate per tile is kept, loops inside the tile are not walked, and their work follows
# from the size of the tile. Intermediate tensors then also have one coordinate per tile.


@dataclass(frozen=True)
class Thin:
    """A dense rank `rank` of `size` coordinates, split by `directives`, whose last `inner` parts are not
    walked. The tiles around these have `step` coordinates."""

    rank: str
    size: int
    directives: tuple[Directive, ...]
    inner: int
    step: int
    symbols: Mapping[str, int]

    @property
    def tiles(self) -> int:
        return -(-self.size // self.step)

    def representatives(self, tensor: SparseTensor) -> SparseTensor:
        """Keep the first coordinate of every tile."""
        if self.rank not in tensor.ranks:
            return tensor
        kept = tensor.rank(self.rank) % self.step == 0
        return SparseTensor(
            tensor.name, tensor.ranks, tensor.shape, tensor.coords[:, kept], tensor.values[kept], tensor.fill
        )

    def has(self, expression: Expression) -> bool:
        return any(self.rank in ranks(o) for o in expression.operands)

    def innermost_loops(self, walk: LoopWalk) -> Tail:
        """Return the loops that are not walked, below each kind of node."""
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


def ranks(operand: IndexedTensor) -> list[str]:
    """Return the ranks with plain indices."""
    return [rank_of(i.variable) for i in operand.indices if i.variable]


def find_dense_rank(
    expressions: Sequence[Expression],
    mappings: Sequence[EinsumMapping],
    tensors: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> Thin | None:
    """Return the rank whose innermost loops need not be walked in any Einsum; None if there is none."""
    wanted = dict.fromkeys(m.loop_order[-1].rstrip("0123456789") for m in mappings if m.loop_order)
    for rank in wanted:
        result = [_one(rank, e, m, sizes, symbols) for e, m in zip(expressions, mappings, strict=True)]
        known = {t for t in result if isinstance(t, Thin)}
        fits = None not in result and len({(t.directives, t.inner) for t in known}) == 1
        if fits and all(_complete(t, rank) for t in tensors.values() if rank in t.ranks):
            return next(t for t in result if isinstance(t, Thin))
    return None


def _one(
    rank: str,
    expression: Expression,
    mapping: EinsumMapping,
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> Thin | str | None:
    """Return how one Einsum uses the rank: a text if it does not, None if its loops over it must be
    walked."""
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
    return Thin(rank, sizes[rank], tuple(directives), inner, step, _NumberMap(symbols))


class _NumberMap(dict[str, int]):
    """A hashable map of numbers."""

    def __hash__(self) -> int:  # type: ignore[override]  # it is never changed once made
        return hash(tuple(sorted(self.items())))


def _complete(tensor: SparseTensor, rank: str) -> bool:
    """Return whether every fiber of a rank has all its coordinates."""
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
