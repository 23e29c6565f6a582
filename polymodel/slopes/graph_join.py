"""Einsums of a graph joined in the workload's order: the least traffic of all of them for each capacity.

Each shared tensor goes through the backing store, is held whole, or is passed on tile by tile. Einsums that
pass on tiles form groups; the members of a group share the buffer, and groups run in sequence, each at the
position of its last member in the workload. A tensor that is held whole takes space from the run of its
producer's group to that of its last user's. An Einsum that needs a result of a group must come after all of
its members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from polymodel.slopes.curves import NOTHING, Curve, in_turn, lowest
from polymodel.slopes.fused_graph import FusedGraph, Kind, SharedTensor
from polymodel.slopes.group_curves import GroupCurves

Group = tuple[int, ...]
TIES: tuple[Kind, ...] = ("tiled", "headed")  # tensors passed on like this connect their Einsums to a group


@dataclass(frozen=True)
class State:
    """A partial graph, reduced to what the remaining Einsums depend on.

    How tensors are passed on that later Einsums or unfinished groups use, and the members so far of
    unfinished groups.
    """

    kinds: tuple[tuple[str, Kind], ...] = ()
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class JoinedCurve:
    """The curve of the whole graph, the maximum number of states, and the number of joins."""

    curve: Curve
    states: int
    joins: int


def join(
    graph: FusedGraph, kinds: tuple[Kind, ...], progress: Callable[[int, int], None] | None = None
) -> JoinedCurve:
    """Return the curve of the graph if each shared tensor may be of one of these kinds."""
    result: dict[State, Curve] = {State(): NOTHING}
    curves = GroupCurves(graph)
    most = joins = 0
    for at in range(len(graph.members)):
        grown: dict[State, list[Curve]] = {}
        for state, curve in result.items():
            for chosen in _choices(graph, at, state, kinds):
                step = _step(graph, at, state, chosen)
                if step is None:
                    continue
                later, group, every, live, fetched = step
                if group:
                    here = curves.curve(group, every)
                    curve_ = in_turn(curve, here.raised(live)) if here is not None else None
                else:
                    curve_ = curve
                if curve_ is not None:
                    joins += 1
                    grown.setdefault(later, []).append(curve_.raised(0, fetched))
        result = {state: lowest(curves) for state, curves in grown.items()}
        most = max(most, len(result))
        if progress:
            progress(at + 1, len(graph.members))
    (curve,) = result.values()
    return JoinedCurve(curve, most, joins)


def _choices(graph: FusedGraph, at: int, state: State, kinds: tuple[Kind, ...]) -> Iterator[dict[str, Kind]]:
    """Yield kinds for all shared tensors of an Einsum; kinds of tensors that an earlier Einsum uses are
    fixed."""
    known = dict(state.kinds)
    touched = graph.touched(at)
    each = [[known[t.name]] if t.name in known else _allowed(t, kinds) for t in touched]
    for chosen in product(*each):
        yield dict(zip((t.name for t in touched), chosen, strict=True))


def _allowed(tensor: SharedTensor, kinds: tuple[Kind, ...]) -> list[Kind]:
    if not tensor.fusable:
        return ["backing"]
    able: dict[Kind, bool] = {"tiled": bool(tensor.ranks), "headed": bool(tensor.heads)}
    return [k for k in kinds if able.get(k, True)]


Step = tuple[State, Group, dict[str, Kind], int, int]


def _step(graph: FusedGraph, at: int, state: State, chosen: dict[str, Kind]) -> Step | None:
    """Return the next state, the completed group (or ()), the kinds of all tensors in use, the elements held
    whole while that group runs, and the elements fetched once.

    None if a tensor that is not yet produced is needed.
    """
    touched = graph.touched(at)
    tied = [t for t in touched if chosen[t.name] in TIES]
    mine = {u for t in tied for u in t.users if u < at}
    merged = [g for g in state.groups if mine & set(g)]
    group = tuple(sorted({at}.union(*merged)))
    others = [g for g in state.groups if g not in merged]
    running = {u for g in others for u in g}
    if graph.rules.head_is_tiled_fusion:
        running |= set(group)  # otherwise it may be produced and used within each head
    for t in touched:
        if t.producer in running and t.producer != at and chosen[t.name] not in TIES:
            return None
    every: dict[str, Kind] = {**dict(state.kinds), **chosen}
    fetched = sum(
        t.times * t.elements
        for t in touched
        if chosen[t.name] == "whole" and t.producer is None and t.users[0] == at
    )
    if any(u > at for i in group for t in graph.touched(i) if every[t.name] in TIES for u in t.users):
        open_ = tuple(sorted([*others, group]))
        return _state(graph, at, every, open_), (), every, 0, fetched
    open_ = tuple(sorted(others))
    live = _live(graph, at, every, open_, group)
    return _state(graph, at, every, open_), group, every, live, fetched


def _live(graph: FusedGraph, at: int, every: dict[str, Kind], open_: tuple[Group, ...], group: Group) -> int:
    """Return the number of elements held whole while a group runs: its own tensors, and those that others
    produced (or fetched) and still need."""
    waiting = {u for g in open_ for u in g}
    total = 0
    for name, kind in every.items():
        tensor = graph.shared[name]
        if kind != "whole":
            continue
        ran = [u for u in tensor.users if u <= at and u not in waiting]
        there = bool(ran) if tensor.producer is None else tensor.producer in ran
        total += tensor.elements if there else 0
    return total


def _state(graph: FusedGraph, at: int, every: dict[str, Kind], open_: tuple[Group, ...]) -> State:
    waiting = {u for g in open_ for u in g}
    kept = {
        name: kind
        for name, kind in every.items()
        if any(u > at or u in waiting for u in graph.shared[name].users)
    }
    return State(tuple(sorted(kept.items())), open_)
