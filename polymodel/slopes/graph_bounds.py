"""Which points of a graph's curve can be executed, which are lower bounds, and where roles cost traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from polymodel.slopes.compatibility import FusedLoop, OperationMapping, compatible
from polymodel.slopes.curve_text import fitting
from polymodel.slopes.fused_graph import FusedGraph, Kind
from polymodel.slopes.graph_join import join
from polymodel.slopes.graph_request import kinds_of
from polymodel.slopes.group_curves import EinsumChoice
from polymodel.workload.einsum import Einsum

LOWER_BOUND, EXECUTABLE = "lower bound", "executable"
MOST_WAYS = 800  # to tile all shared tensors with equal outer sizes, where the call does not say


def affordable(graph: FusedGraph) -> FusedGraph:
    """The graph with equal outer sizes if there are few enough, else without."""
    strict = replace(graph.rules, equal_outer_sizes=True)
    ways = sum(len(t.tilings(strict)) for t in graph.shared.values() if t.fusable)
    return replace(graph, rules=replace(strict, equal_outer_sizes=ways <= MOST_WAYS))


def sized(one: Einsum, choice: EinsumChoice) -> OperationMapping:
    """One Einsum of a point as its neighbours see it."""
    extents = {v: one.bound(v)[1] - one.bound(v)[0] + 1 for v in one.rank_variables}
    loops = tuple(FusedLoop(v, t, extents[v] // t) for v, t in choice.fused)
    return OperationMapping(one, loops, choice.held)


def tied(graph: FusedGraph) -> Iterator[tuple[int, int, str]]:
    """Pairs of Einsums (positions) and the tensor that they share, a producer first."""
    for name, tensor in graph.shared.items():
        users = tensor.users
        pairs = combinations(users, 2) if tensor.producer is None else ((users[0], u) for u in users[1:])
        yield from ((a, b, name) for a, b in pairs)


def apart(graph: FusedGraph, einsums: Sequence[EinsumChoice]) -> str:
    """Why a mapping of the graph does not run as it stands; empty if it does."""
    strict = replace(graph.rules, equal_outer_sizes=True)
    if graph.rules == strict:
        return ""
    mappings = [sized(m.einsum, c) for m, c in zip(graph.members, einsums, strict=True)]
    verdicts = (compatible(mappings[a], mappings[b], t, strict) for a, b, t in tied(graph))
    return next((v.reason for v in verdicts if not v), "")


def notes_of(
    graph: FusedGraph, curves: Mapping[str, Sequence[tuple[int, int]]], lower: bool, unit: str
) -> tuple[str, ...]:
    """What to know of the curves: which is a lower bound, and whether roles cost traffic."""
    bounds = [bound_note()] if lower else []
    if "tiled_fused" not in curves:
        return tuple(bounds)
    kinds = kinds_of(graph.rules)["tiled_fused"]
    return (*bounds, *worse_with_roles(graph, kinds, curves["tiled_fused"], unit))


def bound_note() -> str:
    """What a lower bound means, and how to have none."""
    return (
        f"tiled_fused is a {LOWER_BOUND}: at some points outer tile sizes differ between Einsums, and no "
        "mapping that runs as it stands is known to move as little; equal_outer_sizes=True, with fewer "
        "`tiles` where there are too many, gives points that can be executed"
    )


def worse_with_roles(
    graph: FusedGraph, kinds: tuple[Kind, ...], figures: Sequence[tuple[int, int]], unit: str
) -> list[str]:
    """A note if loops over heads and batches, which stand outermost, make the curve worse than none."""
    names = dict.fromkeys(v for m in graph.members for v in m.outermost)
    if not names:
        return []
    free = tuple(replace(m, outermost=()) for m in graph.members)
    shared = {n: replace(t, heads=frozenset()) for n, t in graph.shared.items()}
    rules = replace(graph.rules, head=False, batch=False)
    plain = join(replace(graph, members=free, shared=shared, rules=rules), kinds).curve
    without = list(zip(plain.capacity.tolist(), plain.accesses.tolist(), strict=True))
    worst = (1.0, 0, 0, 0)
    for capacity, least in without:
        at = fitting(figures, capacity)
        if at is not None:
            worst = max(worst, (figures[at][1] / least, capacity, figures[at][1], least))
    ratio, capacity, mine, least = worst
    if ratio == 1.0:
        return []
    return [
        f"roles: fused loops over {', '.join(names)} stand outermost, which makes tiled_fused worse than "
        f"without (head=False) by up to {ratio:.3g} times: {mine:,} instead of {least:,} {unit} at "
        f"{capacity:,} {unit} of buffer"
    ]
