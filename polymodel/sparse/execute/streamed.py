"""Count an innermost loop that only reduces, for a block of outer nodes at a time, without storing its
iterations.

A product of a matrix and a vector ends in such a loop: at every row, the row and the vector co-iterate. So
does a product with a dense matrix, apart from the dense rank, whose loop is the same below every iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.sparse.execute.dense_ranks import Thin
from polymodel.sparse.execute.loops import LoopWalk
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.fibertree import Ints
from polymodel.spec.teaal.records import SpaceTime

# Iterations that are processed at a time.
BLOCK = 2**20
_DOING = "counting the innermost loop"


@dataclass(frozen=True)
class ReducingLoop:
    """The loop at index `at`. The last loop, if it is another one, has `width` iterations below every
    iteration of this loop, in fibers of the slots `below` that all hold the same coordinates; otherwise
    `width` is 1."""

    at: int
    width: int = 1
    below: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Streamed:
    """The iterations of a loop below every node of the next outer loop, and its total `reads`, by slot."""

    loop: ReducingLoop
    lengths: Ints
    reads: Mapping[int, int]

    @cached_property
    def iterations(self) -> int:
        return int(self.lengths.sum())


def reducing(plan: Plan, spacetime: SpaceTime | None, thin: Thin | None) -> ReducingLoop | None:
    """Return the loop of a plan whose iterations need not be stored; None if there is none."""
    last = len(plan.order) - 1
    if len(plan.terms) > 1 or plan.scattered:
        return None
    if last not in plan.populate:
        return ReducingLoop(last) if thin is None and _reduces(plan, spacetime, last) else None
    if not _reduces(plan, spacetime, last - 1):
        return None
    steps = {s: step for s, slot in enumerate(plan.slots) for step in slot.steps.get(last, ())}
    if thin is not None:
        parts = sum(rank.bases == (thin.rank,) for rank in plan.order)
        return ReducingLoop(last - 1, thin.size, tuple(steps)) if parts == 1 and spacetime is None else None
    if len(steps) != 1 or not _timed(plan, spacetime, last):
        return None
    ((slot, step),) = steps.items()
    level = plan.slots[slot].tree.levels[step.level]
    if step.kind != "iterate" or not level.elements or not level.alike:
        return None
    return ReducingLoop(last - 1, level.elements // level.fibers, (slot,))


def _reduces(plan: Plan, spacetime: SpaceTime | None, at: int) -> bool:
    """Return whether a loop only iterates over tensors, and has a time stamp, if any, by position."""
    steps = [step for slot in plan.slots for step in slot.steps.get(at, ())]
    if at < 1 or at in plan.leaders or at in plan.populate or any(loop == at for _, loop, _ in plan.output):
        return False
    if not steps or any(step.kind != "iterate" for step in steps) or not _timed(plan, spacetime, at):
        return False
    return spacetime is None or all(s.style == "pos" for s in spacetime.time if s.rank == plan.order[at].name)


def _timed(plan: Plan, spacetime: SpaceTime | None, at: int) -> bool:
    return spacetime is None or any(s.rank == plan.order[at].name for s in spacetime.time)


def stream(walk: LoopWalk, loop: ReducingLoop) -> Streamed | None:
    """Count the next loop. Return None where tensors have no fiber at some nodes, or a fiber is split
    there."""
    if not walk.nodes or any(c.partial or c.cut is not None for c in walk.cursors):
        return None
    taking = [s for s, slot in enumerate(walk.plan.slots) if loop.at in slot.steps]
    fibers = [walk.cursors[s].fibers(walk.nodes) for s in taking]
    # Of two fibers the one with fewer elements is iterated, so that it bounds the size of a block.
    work = np.cumsum(min(fibers, key=lambda f: f.total).lengths)
    lengths = np.zeros(walk.nodes, dtype=np.int64)
    reads = dict.fromkeys(taking, 0)
    begin = done = 0
    while begin < walk.nodes:
        look(_DOING)
        end = max(int(np.searchsorted(work, done + BLOCK, side="right")), begin + 1)
        part = walk.branch(np.arange(begin, end))
        part.step()
        lengths[begin:end] = np.bincount(part.loops[-1].parent, minlength=end - begin)
        for s, n in part.loops[-1].totals.items():
            reads[s] += n
        begin, done = end, int(work[end - 1])
    return Streamed(loop, lengths, reads)
