"""The pipelines of a LoopTree: their stages, the loop that each overlaps, and what is handed on.

docs/semantics.md, Pipelines. Structural look-ups shared by all engines.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split


@dataclass(frozen=True)
class Pipeline:
    """A `!Pipeline` split: its node id, the Einsums of each stage, the pipelined loop's id (None: none).

    `outer`: node id of the nearest pipeline in one of whose stages it stands, None for one in no stage.
    """

    node: int
    stages: tuple[tuple[str, ...], ...]
    loop: int | None
    outer: int | None

    @property
    def einsums(self) -> tuple[str, ...]:
        return tuple(e for stage in self.stages for e in stage)

    def stage_of(self, einsum: str) -> int:
        """Number of the stage that executes the Einsum."""
        return next(b for b, stage in enumerate(self.stages) if einsum in stage)

    def copies(self, node: int, users: Collection[str]) -> int:
        """How many iterations' tiles a storage node above the split holds at once; 0 if no stage uses it."""
        using = [b for b, stage in enumerate(self.stages) if not set(stage).isdisjoint(users)]
        if not using:
            return 0
        between = self.loop is not None and node > self.loop
        return using[-1] - using[0] + 1 if between else 1


def pipelines(tree: LoopTree) -> tuple[Pipeline, ...]:
    """All pipelines in tree order, so that an outer one comes before those in its stages."""
    found: dict[int, Pipeline] = {}
    for path in tree.paths.values():
        outer: int | None = None
        loop: int | None = None
        for step in path:
            if isinstance(step.node, Loop) and not step.node.spatial:
                loop = step.id
            if not isinstance(step.node, Split):
                continue
            if step.node.pipeline:
                if step.id not in found:
                    found[step.id] = Pipeline(step.id, _stages(tree, step.id), loop, outer)
                outer = step.id
            loop = None
    return tuple(found.values())


def overlaps(tree: LoopTree) -> dict[int, str]:
    """Of every pipeline, by node id, the iterations of which loop its stages overlap."""
    loops = {i: node for i, node, _ in tree.walk() if isinstance(node, Loop)}
    return {
        p.node: "no loop of its own above: stages take turns"
        if p.loop is None
        else f"overlaps iterations of {loops[p.loop].rank_variable}"
        for p in pipelines(tree)
    }


def around(tree: LoopTree, einsum: str) -> tuple[Pipeline, ...]:
    """The pipelines in whose stages an Einsum executes, outermost first."""
    return tuple(p for p in pipelines(tree) if einsum in p.einsums)


def _stages(tree: LoopTree, split: int) -> tuple[tuple[str, ...], ...]:
    members: dict[int, list[str]] = {}
    for name, path in tree.paths.items():
        for step in path:
            if step.id == split:
                members.setdefault(step.branch, []).append(name)
    return tuple(tuple(members[b]) for b in sorted(members))


def shared_units(tree: LoopTree, copies: Collection[str]) -> tuple[tuple[Pipeline, str, str, str], ...]:
    """(pipeline, compute unit, Einsum, Einsum of a later stage) wherever two stages name one unit.

    `copies`: Einsums that compute nothing.
    """
    unit = {
        name: path[-1].node.component
        for name, path in tree.paths.items()
        if isinstance(path[-1].node, ComputeNode) and name not in copies
    }
    found = []
    for p in pipelines(tree):
        first: dict[str, str] = {}
        for stage in p.stages:
            seen = dict(first)
            for name in (e for e in stage if e in unit):
                if unit[name] in seen:
                    found.append((p, unit[name], seen[unit[name]], name))
                first.setdefault(unit[name], name)
    return tuple(found)
