"""Storage nodes that slide: the front is that of all mappings in which nodes slide along the loop right above
them, each evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapping.looptree import Loop, LoopTree, Node, StorageNode
from tests.faults import faults, refused
from tests.mapper.brute_evaluated import Listed, figures
from tests.mapper.test_loop_rules import obeys, read
from tests.mapper.test_windows import fanouts, memory

EINSUMS = ("O[p] = I[W=p+r] * F[r]", "O[p,m] = I[W=2*p+r] * F[r,m]", "O[p] = I[W=p+2*r] * F[r]")


def spec_of(pick: Random, sizes: tuple[int, ...] = (4, 6, 8)) -> Spec:
    """One Einsum on DRAM, a buffer and a scratchpad or fanouts."""
    text = pick.choice(EINSUMS)
    ranges = {"p": sizes, "r": (2, 3), "m": (2,)}
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in ranges.items() if v in text.replace("Einsum", "")}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, pick.choice((40, 48, 56, 64)), 32)]
    kind = pick.choice(("flat", "fanout", "above", "deep"))
    if kind in ("fanout", "above"):
        pes = {"type": "Container", "name": "PE", "spatial": fanouts(pick, pick.choice((1, 1, 2)))}
        if kind == "above":  # weights inside would stay over loops above: see `staying`
            nodes[1]["tensors"] = {"may_keep": "I | O"}
        nodes.insert(2 if kind == "fanout" else 1, pes)
    if kind == "deep":
        nodes.append(memory("RF", 1, pick.choice((16, 32)), 64, tensors={"may_keep": "I"}))
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.8}
    return pm.load({"schema_version": 1, "workload": work, "arch": arch})


def constraints(spec: Spec) -> dict[str, Any]:
    inner = [c.name for c in spec.arch.components if c.kind == "memory"][1:]
    return {"memories": {name: {"reuse": ["refill", "slide"]} for name in inner}}


def ways(nodes: tuple[Node, ...], at: int, along: str) -> Iterator[tuple[Node, ...]]:
    """The loops right above a node in each order that matters, and the node as it slides along the last."""
    begin = max(i for i in range(at) if isinstance(nodes[i], StorageNode)) + 1
    block = nodes[begin:at]
    loops = [n for n in block if isinstance(n, Loop) and not n.spatial]
    spatial = [n for n in block if isinstance(n, Loop) and n.spatial]
    yield nodes
    for last in (n for n in loops if n.rank_variable in along):
        others = [n for n in loops if n is not last]
        node = nodes[at]
        assert isinstance(node, StorageNode)
        yield (*nodes[:begin], *others, last, *spatial, replace(node, reuse="slide"), *nodes[at + 1 :])


def sliding(tree: LoopTree, along: str = "pr") -> Iterator[LoopTree]:
    """Every choice of which of these variables the nodes of I inside the backing storage slide along."""
    nodes = tree.nodes
    mine = [i for i, n in enumerate(nodes) if i and isinstance(n, StorageNode) and n.tensors == ("I",)]

    def grow(now: tuple[Node, ...], left: list[int]) -> Iterator[tuple[Node, ...]]:
        if not left:
            yield now
            return
        for after in ways(now, left[0], along):
            yield from grow(after, left[1:])

    return (LoopTree(x) for x in grow(nodes, mine))


def rules(spec: Spec, pick: Random) -> dict[str, Any]:
    """The same with factors and orders of some loops."""
    result = constraints(spec)
    variables = list(spec.workload.einsums[0].rank_variables)
    names = [c.name for c in spec.arch.components if c.kind == "memory"]
    for name in pick.sample(names, 1 + (pick.random() < 0.4)):
        rule = result["memories"].setdefault(name, {})
        if pick.random() < 0.7:
            text = pick.choice((1, 2, "<= 2", ">= 2"))
            rule["factors"] = {pick.choice(variables): text}
        else:
            order = pick.sample(variables, len(variables))
            rule["order"] = pick.choice((order, ["...", *order[:1]], [*order[:1], "..."], order[:2]))
    return result


def check(spec: Spec, pick: Random, most: int, asked: dict[str, Any] | None = None) -> tuple[int, bool]:
    """Whether none of about so many mappings beats what the search finds, and, where these are all of them,
    what it finds is as good as one of them; how many there were, and whether anything slides."""
    asked = constraints(spec) if asked is None else asked
    found = pm.explore(spec, constraints=asked)
    one, names = spec.workload.einsums[0], [c.name for c in spec.arch.components if c.kind == "memory"]
    mine = [(p.energy, p.latency) for p in found]
    listed, whole = [], Listed(spec)
    share = most / whole.size()
    for tree in whole.trees(lambda: share >= 1 or pick.random() < share):
        for tree_sliding in sliding(tree):
            if not obeys(read(tree_sliding.nodes, one, names), asked, spec, even=True):
                continue
            try:
                cost = figures(spec, tree_sliding)
            except SpecError:
                continue
            listed += [cost] if cost is not None else []
    for energy, latency in listed:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    for e, x in mine if share >= 1 else ():
        assert any(e == pytest.approx(a) and x == pytest.approx(b) for a, b in listed)
    for p in found:
        assert obeys(read(p.mapping.nodes, one, names, written=True), asked, spec, even=True)
    slides = any(
        isinstance(n, StorageNode) and n.reuse == "slide" for p in found for _, n, _ in p.mapping.walk()
    )
    return len(listed), slides


@pytest.mark.slow
def test_no_drawn_mapping_is_better() -> None:
    pick = Random(3)
    results = [check(spec_of(pick), pick, 6) for _ in range(10)]
    assert sum(many for many, _ in results) > 20
    assert sum(slides for _, slides in results) > 1


@pytest.mark.slow
def test_no_mapping_is_better() -> None:
    pick = Random(11)
    assert sum(check(spec_of(pick, (2, 4)), pick, 120)[0] for _ in range(12)) > 500


@pytest.mark.slow
def test_no_mapping_that_obeys_rules_is_better() -> None:
    pick = Random(17)
    many = 0
    for _ in range(60):
        spec = spec_of(pick, (2, 4))
        many += check(spec, pick, 120, rules(spec, pick))[0]
    assert many > 500


def test_faults_and_what_is_not_covered_are_told() -> None:
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, 1, 32, tensors={"keep": "I"})]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]})
    shape = {"p": "0 <= p < 4", "r": "0 <= r < 3"}
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [EINSUMS[0]]}
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})

    def asked(*policies: str, **more: object) -> dict[str, Any]:
        return {"memories": {"GLB": {"reuse": list(policies)}}, **more}

    with faults("missing-key", at="constraints.memories.GLB.reuse"):
        pm.explore(spec, constraints=asked("slide"))
    with faults("unknown-choice", at="constraints.memories.GLB.reuse[1]"):
        pm.explore(spec, constraints=asked("refill", "cache"))
    with refused("unsupported-instances", "GLB"):
        pm.explore(spec, constraints=asked("refill", "slide", sizes="all"))
    assert (
        "the size of GLB is 8 bits instead of 1"
        in pm.explore(spec, constraints=asked("refill", "slide")).reason
    )


# Nodes inside a fanout that keep their tiles over loops above their instances.


def array_of(pick: Random, sizes: tuple[int, ...] = (2, 4)) -> Spec:
    """A product, or windows, on DRAM, a buffer at times, and scratchpads inside a fanout."""
    text = pick.choice(("Z[m,n] = A[m,k] * B[k,n]", "Z[m,n] = A[m] * B[n]", "O[p,m] = I[W=p+r] * F[r,m]"))
    shape = {v: f"0 <= {v} < {pick.choice(sizes)}" for v in "mnkpr" if f"{v}," in text or f"{v}]" in text}
    nodes = [memory("DRAM", 64, "inf", 16)]
    if pick.random() < 0.5:
        nodes.append(memory("GLB", 4, pick.choice((40, 64)), 32, tensors={"may_keep": "Outputs"}))
    more = {"broadcast_partials": True, "may_reuse": pick.choice(("All", "Inputs"))}
    spatial = [{"name": "X", "fanout": 2, **more}]
    nodes.append({"type": "Container", "name": "PE", "spatial": spatial})
    nodes.append(memory("RF", 1, pick.choice((16, 24, 64)), 64, tensors={"may_keep": "Inputs"}))
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.8}
    return pm.load({"schema_version": 1, "workload": work, "arch": arch})


def staying(tree: LoopTree, component: str = "RF") -> Iterator[LoopTree]:
    """At most one node of this memory slides, below loops above it in every order that keeps blocks."""
    nodes = tree.nodes
    yield tree
    for at, node in enumerate(nodes):
        if isinstance(node, StorageNode) and node.component == component and node.tensors[0] in "ABF":
            after = (replace(node, reuse="slide"), *nodes[at + 1 :])
            yield from (LoopTree((*above, *after)) for above in reordered(nodes[:at]))


def reordered(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Each block of temporal loops in every order, but for the last one above a node that slides."""
    begin = next((i for i, n in enumerate(nodes) if isinstance(n, Loop) and not n.spatial), len(nodes))
    if begin == len(nodes):
        yield nodes
        return
    end = begin
    while end < len(nodes) and isinstance(nodes[end], Loop) and not nodes[end].spatial:
        end += 1
    below = next((n for n in nodes[end:] if isinstance(n, StorageNode)), None)
    free = end - 1 if below is not None and below.reuse == "slide" else end
    for order in permutations(nodes[begin:free]):
        yield from ((*nodes[:begin], *order, *nodes[free:end], *rest) for rest in reordered(nodes[end:]))


def check_staying(spec: Spec, pick: Random, most: int) -> tuple[int, int]:
    """Whether none of about so many mappings, each with every node that may stay, beats what is found; how
    many there were, and how many of what is found keep a tile over loops above its instances."""
    asked = {"memories": {"RF": {"reuse": ["refill", "slide"]}}}
    found = pm.explore(spec, constraints=asked)
    mine = [(p.energy, p.latency) for p in found]
    whole, many = Listed(spec), 0
    share = most / whole.size()
    for tree in whole.trees(lambda: share >= 1 or pick.random() < share):
        for other in staying(tree):
            try:
                cost = figures(spec, other)
            except SpecError:
                continue
            if cost is not None:
                many += 1
                energy, latency = cost
                assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine), other
    for p in found:
        assert pm.excluded_by(p.spec, asked) == ()
    kept = (n for p in found for _, n, _ in p.mapping.walk() if isinstance(n, StorageNode))
    return many, sum(n.component == "RF" and n.reuse == "slide" and n.tensors[0] in "ABF" for n in kept)


def test_no_drawn_mapping_that_keeps_tiles_above_instances_is_better() -> None:
    results = [check_staying(array_of(Random(s), (2,)), Random(s), 8) for s in (1, 2)]
    assert sum(many for many, _ in results) > 8


@pytest.mark.slow
def test_no_mapping_that_keeps_tiles_above_instances_is_better() -> None:
    results = [check_staying(array_of(Random(s)), Random(s), 40) for s in range(40)]
    assert sum(many for many, _ in results) > 1000
    assert sum(kept for _, kept in results) >= 2
