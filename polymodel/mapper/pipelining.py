"""Mappings whose splits run as pipelines, derived from mappings whose Einsums run one after the other.

A split below a temporal loop becomes a `!Pipeline`: its branches, consecutive ones together or each by
itself, are the stages, and each stage executes on compute units of its own. Counts and energies of actions
stay as they are (docs/semantics.md, Pipelines).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice, product

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.mapper.records import Limits
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, pipelines
from polymodel.workload.einsum import Cascade

MOST = 64  # arrangements of one mapping
Units = Mapping[str, tuple[str, ...]]  # of each Einsum that computes those on which it may execute


def arrangements(tree: LoopTree, units: Units, most: int = MOST) -> Iterator[LoopTree]:
    """The mapping with some of its splits as pipelines, in every way, the finest stages first.

    At most `most` ways. Every stage has units of its own among those that its Einsums may execute on.
    """
    wide = len({u for some in units.values() for u in some})
    for nodes in islice(_arranged(tree.nodes, wide, False), most):
        result = LoopTree(nodes, tree.name)
        if pipelines(result) and (placed := with_units(result, units)) is not None:
            yield placed


def _arranged(nodes: tuple[Node, ...], wide: int, looped: bool) -> Iterator[tuple[Node, ...]]:
    """Every way of running the split below these nodes. `looped`: whether a temporal loop stands above them,
    below the split above."""
    if not nodes or not isinstance(nodes[-1], Split):
        yield nodes
        return
    *above, split = nodes
    assert isinstance(split, Split)
    looped = looped or any(isinstance(n, Loop) and not n.spatial for n in above)
    for branches in product(*(tuple(_arranged(b, wide, False)) for b in split.branches)):
        for stages in _stages(branches, wide) if looped else ():
            yield (*above, Split(stages, pipeline=True))
        yield (*above, Split(tuple(branches)))


def _stages(branches: Sequence[tuple[Node, ...]], wide: int) -> Iterator[tuple[tuple[Node, ...], ...]]:
    """Two or more runs of consecutive branches, as many as there are units at most; most stages first."""
    cuts = sorted(product((False, True), repeat=len(branches) - 1), key=sum, reverse=True)
    for cut in cuts:
        if not 1 <= sum(cut) < wide:
            continue
        numbers = [sum(cut[:k]) for k in range(len(branches))]
        runs = groupby(zip(numbers, branches, strict=True), key=lambda pair: pair[0])
        yield tuple(_stage([b for _, b in run]) for _, run in runs)


def _stage(branches: list[tuple[Node, ...]]) -> tuple[Node, ...]:
    return branches[0] if len(branches) == 1 else (Split(tuple(branches)),)


def with_units(tree: LoopTree, units: Units) -> LoopTree | None:
    """The mapping with a unit for each Einsum, so that no two stages of a pipeline share one.

    None if there are too few. The units that come first in `units` are taken first.
    """
    stages: dict[str, list[tuple[int, int]]] = {}  # per Einsum the pipelines that it is in, with its stages
    for p in pipelines(tree):
        for number, members in enumerate(p.stages):
            for e in members:
                stages.setdefault(e, []).append((p.node, number))
    order = [e for e in tree.einsums if e in units]

    def apart(one: str, other: str) -> bool:
        theirs = dict(stages.get(other, ()))
        return any(theirs.get(p, number) != number for p, number in stages.get(one, ()))

    rivals = {e: [o for o in order[:k] if apart(e, o)] for k, e in enumerate(order)}
    chosen = _coloured(order, rivals, units, {})
    return None if chosen is None else LoopTree(_renamed(tree.nodes, chosen), tree.name)


def _coloured(
    order: Sequence[str], rivals: Mapping[str, Sequence[str]], units: Units, chosen: dict[str, str]
) -> dict[str, str] | None:
    """The first choice in which no Einsum has the unit of a rival."""
    if len(chosen) == len(order):
        return chosen
    einsum = order[len(chosen)]
    taken = {chosen[r] for r in rivals[einsum]}
    for unit in (u for u in units[einsum] if u not in taken):
        result = _coloured(order, rivals, units, {**chosen, einsum: unit})
        if result is not None:
            return result
    return None


def _renamed(nodes: Iterable[Node], unit: Mapping[str, str]) -> tuple[Node, ...]:
    result: list[Node] = []
    for n in nodes:
        if isinstance(n, ComputeNode):
            n = replace(n, component=unit.get(n.einsum, n.component))
        elif isinstance(n, Split):
            n = replace(n, branches=tuple(_renamed(b, unit) for b in n.branches))
        result.append(n)
    return tuple(result)


def unit_classes(
    cascade: Cascade, hierarchy: Hierarchy, limits: Limits
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Per Einsum that computes, the units that it may execute on; those that are alike are together."""
    return {
        e.name: tuple(
            tuple(u.name for u in some) for some in _alike(limits.units(e.name, False, hierarchy), hierarchy)
        )
        for e in cascade.einsums
        if not e.is_copy
    }


def _alike(units: Sequence[Component], hierarchy: Hierarchy) -> Iterator[list[Component]]:
    """Runs of equal units that stand beside each other, with no fanout of their own."""
    place = {c.name: k for k, c in enumerate(hierarchy.components)}
    result: list[list[Component]] = []
    for u in units:
        last = result[-1][-1] if result else None
        between = hierarchy.components[place[last.name] + 1 : place[u.name]] if last else ()
        same = last is not None and replace(last, name="") == replace(u, name="") and not u.spatial
        if same and all(c.computes and not c.spatial for c in between):
            result[-1].append(u)
        else:
            result.append([u])
    return iter(result)
