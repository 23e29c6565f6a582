"""Rules on loops: the front is that of the mappings that obey them, listed by brute force."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapping.looptree import ComputeNode, Loop, Node, StorageNode
from tests.mapper.brute import Machine, figures, front, paths_of_one
from tests.mapper.brute_trees import nodes_below
from tests.mapper.test_brute import Case
from tests.seeds import seeds

Factors = dict[tuple[str, str], int]  # (memory or fanout, rank variable)


@dataclass(frozen=True)
class Read:
    """What a tree of one Einsum says: factors, and per (memory, tensor) the loops above its node."""

    factors: Factors
    blocks: dict[str, list[list[str]]]  # per memory the loops right below each of its nodes
    above: dict[tuple[str, str], frozenset[str]]


def read(nodes: Sequence[Node], extents: dict[str, int], outermost: str) -> Read:
    """Loop by loop, from the outside in."""
    size, owner = dict(extents), outermost
    factors: Factors = {}
    above: dict[tuple[str, str], frozenset[str]] = {}
    blocks: dict[str, list[list[str]]] = {owner: [[]]}
    seen: set[str] = set()
    for node in nodes:
        if isinstance(node, StorageNode):
            owner = node.component
            blocks.setdefault(owner, []).append([])
            above |= {(owner, t): frozenset(seen) for t in node.tensors}
        elif isinstance(node, Loop):
            v, tile = node.rank_variable, int(node.tile_shape)
            trips = -(-size[v] // tile)
            place = f"{node.component}.{node.dim}" if node.spatial else owner
            factors[place, v] = factors.get((place, v), 1) * trips
            size[v] = tile
            if not node.spatial and trips > 1:
                seen.add(v)
                blocks[owner][-1].append(v)
        else:
            assert isinstance(node, ComputeNode)
    return Read(factors, blocks, above)


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


def obeys(found: Read, asked: dict[str, Any], spec: pm.Spec) -> bool:
    """A direct reading of the constraints; sets of tensors are single names here."""
    indexed = {a.tensor: set(a.variables) for a in spec.workload.einsums[0].accesses}
    places = dict(asked.get("memories", {}))
    places |= {f"{c}.{d}": rule for c, dims in asked.get("fanouts", {}).items() for d, rule in dims.items()}
    for place, rule in places.items():
        for v, text in rule.get("factors", {}).items():
            relation, number = text.split() if isinstance(text, str) else ("=", text)
            factor = found.factors.get((place, v), 1)
            if not {"=": factor == int(number), "<=": factor <= int(number), ">=": factor >= int(number)}[
                relation
            ]:
                return False
        if "order" in rule and not in_sequence(found.blocks.get(place, []), rule["order"]):
            return False
        over = {v for (p, v), n in found.factors.items() if p == place and n > 1}
        if not over <= set(rule.get("variables", over)) or over & indexed.get(
            rule.get("must_reuse", ""), set()
        ):
            return False
        tensor = rule.get("no_refetch", "")
        if found.above.get((place, tensor), frozenset()) - indexed.get(tensor, set()):
            return False
    return True


def listed(case: Case, spec: pm.Spec, asked: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """Costs of all mappings that fit and obey."""
    machine, one = Machine(spec.arch), spec.workload.einsums[0]
    extents = {v: one.bound(v)[1] + 1 for v in one.rank_variables}
    for path in paths_of_one(one, machine):
        found = figures(path, machine, case.every, keep=True)
        for at, tiles in enumerate(found.tiles):
            held = [0.0] * len(machine.names)
            for place, bits in zip(path.places, found.held, strict=True):
                held[place.memory] += float(bits[at])
            if any(h > machine.size(m) for m, h in enumerate(held)):
                continue
            if obeys(read(nodes_below(path, machine, tiles), extents, machine.names[0]), asked, spec):
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


@pytest.mark.parametrize(("case", "asked"), seeds(2, ASKED), ids=str)
def test_the_front_is_that_of_the_mappings_that_obey(case: Case, asked: dict[str, Any]) -> None:
    spec = case.spec
    costs = list(listed(case, spec, asked))
    expected = front(*(np.array(column) for column in zip(*costs, strict=True)))
    found = pm.explore(spec, constraints={**asked, "sizes": "all" if case.every else "divisors"})
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(p, rel=1e-12) for p in expected]
    free = pm.explore(spec, constraints={"sizes": "all" if case.every else "divisors"})
    assert free.best().energy <= found.best().energy * (1 + 1e-12)
    one = spec.workload.einsums[0]
    extents = {v: one.bound(v)[1] + 1 for v in one.rank_variables}
    for p in found:
        mine = read(p.mapping.nodes, extents, "DRAM")
        assert obeys(mine, asked, spec)
        for memory, rule in asked.get("memories", {}).items():  # as they are written
            loops = [[v] for block in mine.blocks.get(memory, []) for v in block]
            assert in_sequence(loops, rule.get("order", ["..."]))


def test_rules_that_leave_nothing_are_named_with_what_helps() -> None:
    spec = FLAT.spec
    found = pm.explore(spec, constraints={"memories": {"DRAM": {"factors": {"m": 3}}}})
    assert "factors of DRAM" in found.reason
    assert "a mapping exists if DRAM has no `factors: {m: 3}`" in found.reason
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
    with pytest.raises(pm.Refused, match="are not counted"):
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
