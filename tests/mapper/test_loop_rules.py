"""Rules on loops: the front is that of the mappings that obey them, listed by brute force."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapping.looptree import ComputeNode, Loop, Node, StorageNode
from polymodel.workload.einsum import Einsum
from tests.faults import refused
from tests.mapper.brute import Machine, figures, front, paths_of_one
from tests.mapper.brute_trees import nodes_below
from tests.mapper.test_brute import Case
from tests.seeds import seeds

Parts = list[tuple[int, str, int]]  # (memory, rank variable, iterations)


@dataclass(frozen=True)
class Block:
    """Temporal loops between two nodes of a tree: tiles above and below per rank variable, the outermost
    memory of each and the innermost one of all."""

    loops: dict[str, tuple[int, int]]
    low: dict[str, int]
    high: int


@dataclass(frozen=True)
class Read:
    """What a tree of one Einsum says: its blocks of temporal loops, instances per (fanout, rank variable),
    and per (memory, tensor) the loops above its node."""

    blocks: list[Block]
    spread: dict[tuple[str, str], int]
    above: dict[tuple[str, str], frozenset[str]]


def read(nodes: Sequence[Node], one: Einsum, memories: Sequence[str], written: bool = False) -> Read:
    """Loop by loop, from the outside in. Loops between two nodes may stand in any order, but for those that a
    node slides along; `written`: in the order that they are written in."""
    size = {v: one.bound(v)[1] + 1 for v in one.rank_variables}
    indexed = {a.tensor: set(a.variables) for a in one.accesses}
    spread: dict[tuple[str, str], int] = {}
    above: dict[tuple[str, str], frozenset[str]] = {}
    kept = [n for n in nodes if isinstance(n, StorageNode)]
    stored = [(memories.index(n.component), t) for n in kept for t in n.tensors]
    passed: list[tuple[int, str]] = []
    blocks: list[Block] = []
    before = dict(size)
    recent: list[str] = []  # variables of the temporal loops of the block, outermost first

    def close(parts: Sequence[Sequence[str]]) -> None:
        """The loops of a block; loops of one part stand outside those of the next."""
        outer = max((m for m, _ in passed), default=0)
        inner = min((m - 1 for m, _ in stored[len(passed) :]), default=len(memories) - 1)
        for part in parts:
            loops = {v: (before[v], size[v]) for v in part if before[v] > size[v]}
            low = {v: max((m for m, t in passed if v in indexed[t]), default=0) for v in loops}
            blocks.append(Block(loops, low, max(outer, inner)))

    for node in nodes:
        if isinstance(node, Loop):
            v, tile = node.rank_variable, int(node.tile_shape)
            if node.spatial:
                spread[f"{node.component}.{node.dim}", v] = -(-size[v] // tile)
                before[v] = before[v] * tile // size[v]  # spread evenly
            else:
                recent.append(v)
                if written:
                    before[v], size[v] = size[v], tile
                    close([[v]])
                    before[v] = tile
            size[v] = tile
            continue
        slides = isinstance(node, StorageNode) and node.reuse == "slide"
        if not written:
            close([recent[:-1], recent[-1:]] if slides else [recent])
        before, recent = dict(size), []
        if isinstance(node, StorageNode):
            outside = frozenset(v for b in blocks for v in b.loops)
            above |= {(node.component, t): outside for t in node.tensors}
            passed += [(memories.index(node.component), t) for t in node.tensors]
        else:
            assert isinstance(node, ComputeNode)
    return Read(blocks, spread, above)


def parted(v: str, outer: int, inner: int, memories: range, even: bool) -> Iterator[Parts]:
    """A loop as loops of memories from the outermost in."""
    if outer == inner:
        yield []
        return
    for m in memories:
        for tile in range(inner, outer):
            if even and (outer % tile or tile % inner):
                continue
            for more in parted(v, tile, inner, range(m + 1, memories.stop), even):
                yield [(m, v, -(-outer // tile)), *more]


def belonging(blocks: Sequence[Block], least: int, even: bool) -> Iterator[list[Parts]]:
    """Per block the parts of its loops: every way in which loops further in belong to memories further in."""
    if not blocks:
        yield []
        return
    first = blocks[0]
    each = [
        list(parted(v, *tiles, range(max(least, first.low[v]), first.high + 1), even))
        for v, tiles in first.loops.items()
    ]
    for chosen in product(*each):
        parts = [p for part in chosen for p in part]
        for more in belonging(blocks[1:], max((least, *(m for m, _, _ in parts))), even):
            yield [parts, *more]


def in_sequence(blocks: Sequence[Sequence[str]], asked: Sequence[str]) -> bool:
    """Whether some order of the loops in each block is the one that is asked for, as a regular expression."""
    named = {v for v in asked if v != "..."}
    others = "" if "..." in asked else r"(?:(?!\b(?:" + "|".join(named) + r")\b)\w+ )*"
    free = r"(?:(?!\b(?:" + "|".join(named or {"-"}) + r")\b)\w+ )*"
    pattern = others + "".join(free if v == "..." else rf"(?:{v} )*{others}" for v in asked)
    if "..." not in asked:  # others may stand anywhere, between loops over one variable as well
        pattern = others + "".join(rf"(?:{v} {others})*" for v in asked)
    written = (
        "".join(f"{v} " for part in chosen for v in part)
        for chosen in product(*(permutations(b) for b in blocks))
    )
    return any(re.fullmatch(pattern, text) for text in written)


def loops_obey(blocks: list[Parts], memories: Sequence[str], asked: dict[str, Any]) -> bool:
    """Whether loops that belong to memories in this way obey what is said of them."""
    for name, rule in asked.get("memories", {}).items():
        mine = [[(v, n) for m, v, n in parts if memories[m] == name] for parts in blocks]
        for v, text in rule.get("factors", {}).items():
            if not admits(text, math.prod(n for parts in mine for w, n in parts if w == v)):
                return False
        if "order" in rule and not in_sequence([[v for v, _ in parts] for parts in mine], rule["order"]):
            return False
    return True


def admits(text: str | int, number: int) -> bool:
    relation, wanted = text.split() if isinstance(text, str) else ("=", text)
    return {"=": number == int(wanted), "<=": number <= int(wanted), ">=": number >= int(wanted)}[relation]


def obeys(found: Read, asked: dict[str, Any], spec: pm.Spec, even: bool) -> bool:
    """A direct reading of the constraints; sets of tensors are single names here."""
    indexed = {a.tensor: set(a.variables) for a in spec.workload.einsums[0].accesses}
    names = Machine(spec.arch).names
    for component, dims in asked.get("fanouts", {}).items():
        for dim, rule in dims.items():
            over = {v: n for (p, v), n in found.spread.items() if p == f"{component}.{dim}"}
            if not all(admits(text, over.get(v, 1)) for v, text in rule.get("factors", {}).items()):
                return False
            barred = indexed.get(rule.get("must_reuse", ""), set())
            if not set(over) <= set(rule.get("variables", over)) or over.keys() & barred:
                return False
    for name, rule in asked.get("memories", {}).items():
        tensor = rule.get("no_refetch", "")
        if found.above.get((name, tensor), frozenset()) - indexed.get(tensor, set()):
            return False
    if not any({"factors", "order"} & rule.keys() for rule in asked.get("memories", {}).values()):
        return True
    return any(loops_obey(parts, names, asked) for parts in belonging(found.blocks, 0, even))


def listed(case: Case, spec: pm.Spec, asked: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """Costs of all mappings that fit and obey."""
    machine, one = Machine(spec.arch), spec.workload.einsums[0]
    for path in paths_of_one(one, machine):
        found = figures(path, machine, case.every, keep=True)
        for at, tiles in enumerate(found.tiles):
            held = [0.0] * len(machine.names)
            for place, bits in zip(path.places, found.held, strict=True):
                held[place.memory] += float(bits[at])
            if any(h > machine.size(m) for m, h in enumerate(held)):
                continue
            mine = read(nodes_below(path, machine, tiles), one, machine.names)
            if obeys(mine, asked, spec, not case.every):
                yield float(found.energy[at]), float(found.latency[at])


FLAT = Case((4, 2, 4), (64,), write=1.5, rates=(1, 16))
WIDE = Case((2, 2, 2), (96, 32), fanouts=(2, 2), write=1.5)
ASKED = [
    (FLAT, {"memories": {"DRAM": {"factors": {"m": 2, "n1": "<= 2"}}}}),
    (WIDE, {"fanouts": {"RF": {"X": {"variables": ["m", "n1"]}, "Y": {"factors": {"n1": 2}}}}}),
    (WIDE, {"fanouts": {"RF": {"X": {"must_reuse": "W0"}, "Y": {"factors": {"n0": "<= 1"}}}}}),
    (FLAT, {"memories": {"GLB": {"no_refetch": "T0", "factors": {"n0": ">= 2"}}}}),
    (FLAT, {"memories": {"GLB": {"factors": {"m": 1, "n0": 1}}}}),
    (WIDE, {"memories": {"GLB": {"factors": {"n0": 2}}, "RF": {"no_refetch": "W0"}}}),
    (WIDE, {"memories": {"RF": {"factors": {"m": "<= 1"}}}, "fanouts": {"RF": {"X": {"factors": {"m": 2}}}}}),
    (FLAT, {"memories": {"GLB": {"order": ["m", "...", "n1"]}}}),
    (FLAT, {"memories": {"GLB": {"order": ["n0", "m"]}, "DRAM": {"order": ["...", "n0"]}}}),
    (WIDE, {"memories": {"GLB": {"order": ["n1", "..."]}, "RF": {"order": ["n0", "n1"]}}}),
    (Case((4, 4, 4), (64,), rates=(1, 16)), {"memories": {"GLB": {"order": ["n1", "n0", "m"]}}}),
    (Case((5, 3, 2), (48,), every=True), {"memories": {"DRAM": {"factors": {"m": ">= 3"}}}}),
]


@pytest.mark.parametrize(("case", "asked"), seeds(1, ASKED), ids=str)
def test_the_front_is_that_of_the_mappings_that_obey(case: Case, asked: dict[str, Any]) -> None:
    spec = case.spec
    costs = list(listed(case, spec, asked))
    expected = front(*(np.array(column) for column in zip(*costs, strict=True)))
    found = pm.explore(spec, constraints={**asked, "sizes": "all" if case.every else "divisors"})
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(p, rel=1e-12) for p in expected]
    free = pm.explore(spec, constraints={"sizes": "all" if case.every else "divisors"})
    assert free.best().energy <= found.best().energy * (1 + 1e-12)
    one, names = spec.workload.einsums[0], Machine(spec.arch).names
    for p in found:
        assert obeys(read(p.mapping.nodes, one, names, written=True), asked, spec, not case.every)


def test_rules_that_leave_nothing_are_named_with_what_helps() -> None:
    spec = FLAT.spec
    found = pm.explore(spec, constraints={"memories": {"DRAM": {"factors": {"m": 3}}}})
    assert "factors of DRAM" in found.reason
    assert "a mapping exists if DRAM has no `factors: {m: 3}`" in found.reason


@pytest.mark.slow
def test_rules_of_a_fanout_that_leave_nothing_are_named_with_what_helps() -> None:
    wide = pm.explore(WIDE.spec, constraints={"fanouts": {"RF": {"X": {"factors": {"n1": 3}}}}})
    assert "a mapping exists if RF.X has no `factors: {n1: 3}`" in wide.reason


def test_faults_of_rules_are_told() -> None:
    asked = {
        "memories": {
            "GLB": {"factors": {"z": 2, "m": "<= 0"}, "no_refetch": "Nowhere"},
            "DRAM": {"order": ["y", "...", "m", "m"]},
        },
        "fanouts": {"RF": {"Q": {}}, "GLB": {"X": {}}},
    }
    with pytest.raises(pm.SpecError) as caught:
        pm.explore(WIDE.spec, constraints=asked)
    text = str(caught.value)
    for wanted in ("rank variable y", "rank variable m is given twice"):
        assert wanted in text
    for wanted in ("no Einsum has a rank variable z", "RF has no dimension Q", "component GLB has no fanout"):
        assert wanted in text
    with refused("unsupported-constraint", "factors", "m"):
        pm.mapspace(WIDE.spec, {"memories": {"GLB": {"factors": {"m": 1}}}})
    assert pm.mapspace(WIDE.spec, {"fanouts": {"RF": {"X": {"factors": {"m": 2}}}}}).size() > 0


def test_utilisation_is_as_high_as_it_can_be() -> None:
    """Three rows are not spread over two instances, so that one is as many as there can be."""
    spec = Case((3, 2, 2), (96, 32), fanouts=(2, 2), write=1.5).spec
    most = {"min_utilisation": {"RF": {"X": "max", "Y": "max"}}}
    for rules, wide in (({}, {"X": 2, "Y": 2}), ({"X": {"variables": ["m"]}}, {"Y": 2})):
        found = pm.explore(spec, objectives="energy", constraints={**most, "fanouts": {"RF": rules}})
        trips: dict[str, int] = {}
        for node in found.best().mapping.nodes:
            if isinstance(node, Loop) and node.spatial:
                trips[node.dim] = trips.get(node.dim, 1) * 2
        assert trips == wide
        with_names = pm.Limits(min_utilisation=found.request.limits.min_utilisation)
        assert with_names.min_utilisation == (("RF", "X", float("inf")), ("RF", "Y", float("inf")))
