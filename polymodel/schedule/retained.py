"""The retained window: what a storage node keeps from the visit before, as a relation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polymodel.mapping.looptree import LoopTree
from polymodel.polyhedra import needs
from polymodel.polyhedra.build import bounded
from polymodel.reuse import Reuse
from polymodel.schedule.executed import executed
from polymodel.schedule.holding import kept_axes
from polymodel.schedule.touch import View, joint_blocks, loop_origins, partition, touch
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    import islpy


def retained_window(
    cascade: Cascade,
    tree: LoopTree,
    place: tuple[int, str],
    users: Sequence[str],
    policy: Reuse,
    counters: Sequence[str],
) -> tuple[islpy.Map, int] | None:
    """`{ [stamp] -> tensor[element] }` that stays from the visit before, and its largest size in elements.

    `place`: storage node and tensor; `counters` name the stamp's coordinates. None where nothing stays.
    Right for nodes that nothing fills and for tensors that no Einsum below writes. Raises Refused.
    """
    node, tensor = place
    parts = executed(cascade, tree)
    views = tuple(
        View(cascade[e], access, loop_origins(cascade, tree, e)[: len(counters)], parts=parts[e])
        for e in users
        for access in cascade[e].accesses_of(tensor)
    )
    whole = touch(views, joint_blocks(views, partition(views)))
    kept = kept_axes(whole, policy)
    if not kept:
        return None
    names = [
        *(f"c{a}" if kind else f"x{a}" for f in whole.factors
          for kind, a in [*((1, a) for a in (*f.spatial, *f.temporal)), *((0, r) for r in f.ranks)]),
    ]  # fmt: skip
    elements = [f"x{r}" for r in range(len(views[0].access.projection))]
    pair = f"[{', '.join(f'c{i}' for i in range(len(counters)))}]", f"{tensor}[{', '.join(elements)}]"
    with bounded(
        f"what node {node} keeps of {tensor} takes too long to find", "look at the table of accesses"
    ):
        tiles = needs.named_relation(tuple(f.text for f in whole.factors), names, pair, counters, elements)
        return needs.kept_from_before(tiles, whole.spatial, kept)
