"""Lines fetched and written back: what a buffer that holds everything since its last eviction moves.

A fiber starts on a line boundary and an element lies on one line, so a fiber of n elements takes
ceil(n / per_line) lines. A *window* is the time between two evictions of a buffet: one node of the loop it
is evicted on. A line is fetched once per window unless the first thing that happens to it there is a write;
it is written back once per window in which it was written.
"""

from __future__ import annotations

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.nest import Nest
from polymodel.sparse.traffic.output import OutLevel, OutTree


def ceil_div(n: Ints, d: int) -> Ints:
    found: Ints = -(-n // d)
    return found


def pairs(first: Ints, second: Ints, span: int) -> Ints:
    """(first, second < span) as one number each, which orders like the pair."""
    if first.size and (int(first.max()) + 1) * span > 2**62:
        raise Refused("windows x lines are more than 64 bits number", "evict less often")
    return first * span + second


def output_lines(nest: Nest, level: OutLevel, per_line: int, evict: int) -> tuple[int, int]:
    """Lines read and written while a loop populates the output: an element that is there is read, then
    written, whether anything is added or not; a new one is written if it is kept. An element has the place
    that it takes in the finished fiber."""
    nodes = np.flatnonzero(level.node >= 0)
    nodes = nodes[level.born[level.node[nodes]] <= nodes]
    element = level.node[nodes]
    existed = level.born[element] < nodes
    if evict > level.loop:
        return int(existed.sum()), int(nodes.size)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(ceil_div(np.diff(level.starts), per_line))))
    line = before[level.parent] + level.position // per_line
    windows = nest.up(level.loop, evict - 1)[nodes]
    _, first = np.unique(pairs(windows, line[element], int(before[-1]) + 1), return_index=True)
    return int(existed[first].sum()), int(first.size)


def output_subtree_lines(
    tree: OutTree, root: int, depth: int, per_line: int, evict: int, finest: int
) -> tuple[int, int]:
    """Lines of one rank of the output's subtrees that are fetched and stored whole.

    What a subtree holds is fetched before the first loop that enters it, once per window of the `finest`
    eviction, and stored after the loops below the rank above its root, whether they entered it or not.
    """
    nest, levels = tree.nest, tree.levels
    above = levels[root - 1] if root else None
    outer = above.loop if above else -1
    inner = levels[root].loop - 1
    owner = np.zeros(nest.nodes(outer), dtype=np.int64) if above is None else above.node
    reads = np.arange(nest.nodes(inner), dtype=np.int64)
    entered = nest.up(inner, outer)
    fiber = owner[entered]
    reads = reads[fiber >= 0]
    span = levels[root].elements + owner.size + 2
    key = pairs(nest.up(inner, min(finest, inner + 1) - 1)[reads], fiber[reads], span)
    reads = reads[np.sort(np.unique(key, return_index=True)[1])]
    writes = np.flatnonzero(owner >= 0)
    window = np.concatenate((nest.up(inner, evict - 1)[reads], _stored_window(tree, outer, evict)[writes]))
    fibers = np.concatenate((fiber[reads], owner[writes]))
    time = np.concatenate((entered[reads] * 2, writes * 2 + 1))
    wrote = np.concatenate((np.zeros(reads.size, dtype=bool), np.ones(writes.size, dtype=bool)))
    born_read = nest.up(levels[depth].loop, inner)[levels[depth].born]
    born_write = nest.up(levels[depth].loop, outer)[levels[depth].born]
    event, inside = _fibers_below(tree, root, depth, fibers)
    held = np.empty(event.size, dtype=np.int64)
    by_read = ~wrote[event]
    held[by_read] = _born_before(levels[depth], born_read, inside[by_read], reads[event[by_read]])
    by_write = event[~by_read] - reads.size
    held[~by_read] = _born_before(levels[depth], born_write, inside[~by_read], writes[by_write] + 1)
    return _folded(window[event], inside, time[event], wrote[event], ceil_div(held, per_line))


def _stored_window(tree: OutTree, outer: int, evict: int) -> Ints:
    """The window that the store after each node of loop `outer` falls into: that of the last innermost
    iteration of the output's loops before it, which may lie in an earlier window."""
    nest, last = tree.nest, tree.levels[-1].loop
    until = np.searchsorted(nest.up(last, outer), np.arange(nest.nodes(outer)), side="right") - 1
    windows = nest.up(last, evict - 1)
    own = nest.up(outer, min(evict, outer + 1) - 1)
    if not windows.size:
        return own
    found: Ints = np.where(until < 0, own, windows[np.maximum(until, 0)])
    return found


def _fibers_below(tree: OutTree, root: int, depth: int, fibers: Ints) -> tuple[Ints, Ints]:
    """All fibers of a rank in the subtrees under `fibers` of rank `root`: the subtree of each, and it."""
    low, high = fibers, fibers + 1
    for at in range(root, depth):
        starts = tree.levels[at].starts
        low, high = starts[low], starts[high]
    counts = high - low
    event = np.repeat(np.arange(fibers.size, dtype=np.int64), counts)
    begin = np.cumsum(counts) - counts
    return event, low[event] + np.arange(event.size) - begin[event]


def _born_before(level: OutLevel, born: Ints, fiber: Ints, time: Ints) -> Ints:
    """How many elements of a fiber were born before a time."""
    span = int(max(born.max(initial=0), time.max(initial=0))) + 2
    keys = np.sort(pairs(level.parent, born, span))
    return np.searchsorted(keys, pairs(fiber, time, span)) - level.starts[fiber]


def _folded(window: Ints, fiber: Ints, time: Ints, wrote: Ints, lines: Ints) -> tuple[int, int]:
    """Reads fetch the lines that the window does not hold; at its end the lines written go back."""
    order = np.lexsort((time, fiber, window))
    window, fiber, wrote, lines = window[order], fiber[order], wrote[order], lines[order]
    if not order.size:
        return 0, 0
    new = np.append(True, (window[1:] != window[:-1]) | (fiber[1:] != fiber[:-1]))
    held = np.append(0, lines[:-1])
    held[new] = 0
    read = np.where(wrote, 0, np.maximum(lines - held, 0))
    written = np.maximum.reduceat(np.where(wrote, lines, 0), np.flatnonzero(new))
    return int(read.sum()), int(written.sum())
