"""A referee for slopes of graphs: every mapping of tiny graphs, counted by walking its loops.

It shares no formula with the slopes. Accesses are changes of tiles between successive iterations, groups are
legal if their iterations can be put in an order, and what is held whole is looked up run by run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise, permutations, product
from math import prod
from random import Random
from typing import Any

import networkx

import polymodel as pm
from polymodel.workload.einsum import Einsum

Figures = list[tuple[int, int]]


def document(*einsums: str, **sizes: int) -> dict[str, object]:
    """A workload of 8-bit values as a document."""
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": list(einsums)}
    return {"schema_version": 1, "workload": workload}


def graph(*einsums: str, **sizes: int) -> pm.Spec:
    return pm.load(document(*einsums, **sizes))


def random_graph(choose: Random) -> pm.Spec:
    """Two to four Einsums over three rank variables: branches, residuals, transposes, shared inputs."""
    sizes = {v: choose.choice([1, 2, 2, 3, 4]) for v in "abc"}
    made: dict[str, str] = {}
    einsums = []
    for i in range(choose.choice([2, 3, 3, 3, 4])):
        inputs: dict[str, str] = {}
        for j in range(choose.choice([1, 2])):
            ranks = "".join(sorted(choose.sample("abc", choose.choice([1, 2, 2]))))
            tensor = choose.choice([f"W{i}{j}", f"S{ranks}"])
            if made and (j == 0 or choose.random() < 0.6):
                tensor, ranks = choose.choice(list(made.items()))
            index = [choose.choice([v for v in "abc" if sizes[v] == sizes[r]]) for r in ranks]
            index = index if len(set(index)) == len(index) else list(ranks)
            inputs[tensor] = (
                f"{tensor}[{', '.join(f'{r.upper()}={v}' for r, v in zip(ranks, index, strict=True))}]"
            )
        there = sorted({v for v in "abc" if any(f"={v}" in text for text in inputs.values())})
        made[f"T{i}"] = "".join(sorted(choose.sample(there, min(len(there), choose.choice([1, 2, 2])))))
        output = ", ".join(f"{v.upper()}={v}" for v in made[f"T{i}"])
        einsums.append(f"T{i}[{output}] = {' * '.join(inputs.values())}")
    used = {v.upper(): n for v, n in sizes.items() if any(f"{v.upper()}=" in e for e in einsums)}
    return graph(*einsums, **used)


def lowest(points: Figures) -> Figures:
    best: Figures = []
    for capacity, accesses in sorted(set(points)):
        if not best or accesses < best[-1][1]:
            best.append((capacity, accesses))
    return best


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def extent(one: Einsum, v: str) -> int:
    return one.bound(v)[1] + 1


def walked(
    one: Einsum, loops: list[tuple[str, int]], depths: dict[str, int], tiles: dict[str, list[int]]
) -> tuple[int, int]:
    """(footprint, accesses): `depths`: loops above each tensor in the buffer that moves; `tiles[v]`: tile of
    v below the first so many loops."""
    footprint, accesses = 0, 0
    enclosing = {v: extent(one, v) for v in one.rank_variables}
    trips = []
    for v, t in loops:
        trips.append(range(enclosing[v] // t))
        enclosing[v] = t
    for tensor, depth in depths.items():
        access = one.access_of(tensor)
        size = prod(tiles[v][depth] for v in access.variables)
        footprint += size
        moved, last, seen = 0, None, set()
        for at in product(*trips[:depth]):
            here = tuple(i for i, (v, _) in zip(at, loops, strict=False) if v in access.variables)
            if here == last:
                continue
            last = here
            moved += size
            if access.output:
                moved += size if here in seen else 0
                seen.add(here)
        accesses += moved
    return footprint, accesses


@cache
def fronts(
    one: Einsum, fused: tuple[str, ...], held: tuple[tuple[str, int], ...], bounds: tuple[int, ...] | None
) -> Figures:
    """Least (footprint, accesses) of an Einsum; held: 0 whole, else loops above the tile handed on."""
    kept = dict(held)
    moving = [t for t in one.tensors if t not in kept]
    found: Figures = []
    for sizes in product(*(divisors(extent(one, v))[:-1] for v in fused)):
        if bounds and any(extent(one, v) // t != b for v, t, b in zip(fused, sizes, bounds, strict=False)):
            continue
        outer = list(zip(fused, sizes, strict=True))
        box = {v: extent(one, v) for v in one.rank_variables} | dict(outer)
        for inner in product(*(divisors(box[v]) for v in one.rank_variables)):
            active = [(v, t) for v, t in zip(one.rank_variables, inner, strict=True) if t < box[v]]
            for order in permutations(active):
                loops = outer + list(order)
                tiles = {v: [extent(one, v)] for v in one.rank_variables}
                for v, t in loops:
                    for w, chain in tiles.items():
                        chain.append(t if v == w else chain[-1])
                handed = sum(prod(tiles[v][d] for v in one.access_of(t).variables) for t, d in held if d > 0)
                for n in range(len(moving) + 1):
                    for uneven in combinations(moving, n):
                        depths = {t: len(outer) if t in uneven else len(loops) for t in moving}
                        footprint, accesses = walked(one, loops, depths, tiles)
                        found.append((footprint + handed, accesses))
    return lowest(found)


Choice = dict[str, Any]  # per shared tensor "backing", "whole", or the ranks that are tiled


def choices(einsums: tuple[Einsum, ...], tiled: bool) -> Iterator[Choice]:
    shared = [t for t in dict.fromkeys(t for e in einsums for t in e.tensors) if uses(einsums, t)[1:]]
    each: list[list[object]] = []
    for t in shared:
        one = einsums[uses(einsums, t)[0]]
        ranks = [r for r, e in enumerate(one.access_of(t).projection) if extent(one, e.variables[0]) > 1]
        tilings = [p for n in range(1, len(ranks) + 1) for p in permutations(ranks, n)] if tiled else []
        each.append(["backing", "whole", *tilings])
    for chosen in product(*each):
        yield dict(zip(shared, chosen, strict=True))


def uses(einsums: tuple[Einsum, ...], tensor: str) -> list[int]:
    return [i for i, e in enumerate(einsums) if tensor in e.tensors]


def loops_of(one: Einsum, choice: Choice) -> tuple[str, ...] | None:
    """The one order of fused loops that has each tensor's own outermost, or None."""
    wanted = [
        tuple(one.access_of(t).projection[r].variables[0] for r in ranks)
        for t in one.tensors
        if isinstance(ranks := choice.get(t), tuple)
    ]
    longest = max(wanted, key=len, default=())
    return longest if all(longest[: len(w)] == w for w in wanted) else None


def events_fit(
    einsums: tuple[Einsum, ...], group: list[int], choice: Choice, fused: dict[int, tuple]
) -> bool:
    """Whether iterations can be ordered so that a tile is made, used, and only then replaced.

    Three iterations of each fused loop tell (of two, the last may slip).
    """
    order: networkx.DiGraph = networkx.DiGraph()
    events = {i: list(product(range(3), repeat=len(fused[i]))) for i in group}
    for i in group:
        named = [(i, s) for s in events[i]]
        order.add_nodes_from(named)
        order.add_edges_from(pairwise(named))
    for t, ranks in choice.items():
        users = [i for i in group if t in einsums[i].tensors]
        if not isinstance(ranks, tuple) or not users:
            continue
        d = len(ranks)
        every = [(i, s) for i in users for s in events[i]]
        for a, b in product(every, every):
            makes = einsums[a[0]].access_of(t).output and a[0] != b[0]
            if a[1][:d] < b[1][:d] or (a[1][:d] == b[1][:d] and makes):
                order.add_edge(a, b)
    return networkx.is_directed_acyclic_graph(order)


def whole_graph(einsums: tuple[Einsum, ...], choice: Choice) -> Figures:
    """Least (capacity, accesses) of all mappings that hand tensors on like this; empty if none is legal."""
    tied: networkx.Graph = networkx.Graph()
    tied.add_nodes_from(range(len(einsums)))
    for t, how in choice.items():
        if isinstance(how, tuple):
            tied.add_edges_from(combinations(uses(einsums, t), 2))
    runs = sorted((sorted(g) for g in networkx.connected_components(tied)), key=max)
    when = {i: n for n, g in enumerate(runs) for i in g}
    fused = {}
    for i, one in enumerate(einsums):
        loops = loops_of(one, choice)
        if loops is None:
            return []
        fused[i] = loops
    extra = 0
    for t, how in choice.items():
        users = uses(einsums, t)
        makers = [i for i in users if einsums[i].access_of(t).output]
        if makers and not isinstance(how, tuple) and any(when[makers[0]] >= when[u] for u in users[1:]):
            return []
        if not makers and how != "backing":
            extra += volume(einsums[users[0]], t)
    if not all(events_fit(einsums, g, choice, fused) for g in runs):
        return []
    total: Figures = [(0, extra)]
    for n, g in enumerate(runs):
        whole = [t for t, how in choice.items() if how == "whole"]
        spans = {t: [when[u] for u in uses(einsums, t)] for t in whole}
        live = sum(volume(einsums[uses(einsums, t)[0]], t) for t, s in spans.items() if min(s) <= n <= max(s))
        mine: Figures = [(live, 0)]
        for i in g:
            one = fronts(einsums[i], fused[i], kept(einsums[i], choice), None)
            mine = lowest([(a + c, b + d) for a, b in mine for c, d in one])
        total = lowest([(max(a, c), b + d) for a, b in total for c, d in mine])
    return total


def volume(one: Einsum, tensor: str) -> int:
    return prod(extent(one, v) for v in one.access_of(tensor).variables)


def referee(spec: pm.Spec, tiled: bool = True) -> Figures:
    einsums = tuple(spec.workload)
    return lowest([p for choice in choices(einsums, tiled) for p in whole_graph(einsums, choice)])


def sized(spec: pm.Spec, waits: bool = False, equal: bool = False) -> Figures:
    """Least (capacity, accesses) of a chain, looked at size by size.

    `waits`: an Einsum may tile the outer ranks of those that the one before tiles, in numbers of tiles that
    divide those of the other one. `equal`: loops over a tensor but the innermost have equal sizes.
    """
    einsums = tuple(spec.workload)
    made = [a.tensor for e in einsums[:-1] for a in e.outputs]
    found: Figures = []
    for choice in choices(einsums, tiled=True):
        every = [
            range(1 if waits else len(r), len(r) + 1) if isinstance(r := choice[t], tuple) else [0]
            for t in made
        ]
        for cuts in product(*every):
            short = {t: choice[t][:n] if n else choice[t] for t, n in zip(made, cuts, strict=True)}
            own = [
                {t: choice[t] if e.access_of(t).output else short[t] for t in e.tensors if t in choice}
                for e in einsums
            ]
            loops = [loops_of(e, mine) for e, mine in zip(einsums, own, strict=True)]
            if None in loops:
                continue
            each = [
                product(*(divisors(extent(e, v))[1:] for v in mine or ()))
                for e, mine in zip(einsums, loops, strict=True)
            ]
            for bounds in product(*each):
                ends = list(zip(made, pairwise(bounds), strict=True))
                if all(fits(a, b, choice[t], short[t], equal) for t, (a, b) in ends):
                    members = [
                        (e, mine, kept(e, at), bound)
                        for e, mine, at, bound in zip(einsums, loops, own, bounds, strict=True)
                    ]
                    found += chained(members, choice)
    return lowest(found)


def fits(first: tuple[int, ...], second: tuple[int, ...], ranks: Any, shorter: Any, equal: bool) -> bool:
    """Whether numbers of tiles of a producer and a consumer go together."""
    if not isinstance(ranks, tuple):
        return True
    both = list(zip(first, second, strict=False))[: len(shorter)]
    divides = len(shorter) == len(ranks) or all(a % b == 0 for a, b in both)
    return divides and not (equal and any(a != b for a, b in both[:-1]))


def chained(members: list[tuple[Any, ...]], choice: Choice) -> Figures:
    """(capacity, accesses) of a chain: runs are cut where the output of an Einsum is not tiled."""
    total, run = [(0, 0)], [(0, 0)]
    before = 0
    for member in members:
        (output,) = [a.tensor for a in member[0].outputs]
        run = lowest([(a + c, b + d) for a, b in run for c, d in fronts(*member)])
        if not isinstance(choice.get(output), tuple):
            after = volume(member[0], output) if choice.get(output) == "whole" else 0
            total = [(max(a, c + before + after), b + d) for a, b in total for c, d in run]
            run, before = [(0, 0)], after
    return lowest(total)


def kept(one: Einsum, choice: Choice) -> tuple[tuple[str, int], ...]:
    """Tensors that an Einsum does not move, and how many fused loops stand above each."""
    found = [(t, choice[t]) for t in one.tensors if choice.get(t, "backing") != "backing"]
    return tuple((t, len(how) if isinstance(how, tuple) else 0) for t, how in found)
