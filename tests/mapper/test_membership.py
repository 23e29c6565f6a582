"""Whether a mapping is a point of the space: those that are listed by brute force and obey the rules are, and
no others; what keeps others out is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults, refused
from tests.mapper.brute_evaluated import Listed, figures
from tests.mapper.test_campaign import RULES, pair_spaces
from tests.mapper.test_loop_rules import obeys, read
from tests.mapper.test_slides import constraints, rules, sliding, spec_of
from tests.seeds import seeds

Case = Callable[..., pm.Spec]


def drawn(spec: pm.Spec, pick: Random, most: int) -> list[pm.LoopTree]:
    """About so many of the mappings that are legal and fit."""
    whole = Listed(spec)
    share = most / whole.size()
    every = [t for tree in whole.trees(lambda: pick.random() < share) for t in sliding(tree)]
    result = []
    for tree in pick.sample(every, min(most, len(every))):
        try:
            if figures(spec, tree) is not None:
                result.append(tree)
        except pm.SpecError:
            continue
    return result


@pytest.mark.thin(99)
@pytest.mark.parametrize("seed", seeds(4, range(40)))
def test_those_that_obey_are_points_of_the_space_and_no_others(seed: int) -> None:
    pick = Random(seed)
    inside = outside = 0
    for _ in range(3):
        spec = spec_of(pick, (2, 4))
        asked = rules(spec, pick)
        one, names = spec.workload.einsums[0], [c.name for c in spec.arch.components if c.kind == "memory"]
        for tree in drawn(spec, pick, 6):
            told = pm.excluded_by(spec.with_mapping(tree), asked)
            if obeys(read(tree.nodes, one, names), asked, spec, even=True):
                assert told == ()
                inside += 1
            else:
                assert told
                assert pm.excluded_by(spec.with_mapping(tree), constraints(spec)) == ()
                outside += 1
    assert inside + outside


MACHINE = """
schema_version: 1
workload:
  bits_per_value: {All: 8}
  iteration_space_shape: {p: 0 <= p < 8, r: 0 <= r < 3, m: 0 <= m < 4}
  einsums: ["O[p, m] = I[W=p+r] * F[r, m]"]
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: All}, actions: [{name: read, energy: 9}, {name: write, energy: 9}]}
  - !Memory {name: GLB, size: SIZE, actions: [{name: read, energy: 2}, {name: write, energy: 2}]}
  - !Container
    name: PE
    spatial: [{name: X, fanout: 4, may_reuse: I | F}]
  - !Memory {name: RF, size: 800, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, F, O]}
"""
INSIDE = """\
  - !Temporal {rank_variable: p, tile_shape: 4}
  - !Storage {component: GLB, tensors: [I]}
  - !Temporal {rank_variable: p, tile_shape: 2}
  - !Spatial {rank_variable: m, tile_shape: 1, component: PE, name: X}
  - !Storage {component: RF, tensors: [F]}
"""
END = "  - !Compute {einsum: O, component: MAC}\n"
SLIDING = INSIDE.replace("tensors: [I]", "tensors: [I], reuse: slide")
BESIDE = {"memories": {"GLB": {"reuse": ["refill", "slide"]}}}
CASES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    (INSIDE, {}, ()),
    (SLIDING, BESIDE, ()),
    (
        SLIDING,
        {},
        (
            "O: the node of I in GLB slides along p "
            "(`explore: {memories: {GLB: {reuse: [refill, slide]}}}` admits it)",
        ),
    ),
    (INSIDE, {"memories": {"GLB": {"bypass": "I"}}}, ("O: GLB must not keep I",)),
    (INSIDE, {"memories": {"GLB": {"keep": "F"}}}, ("O: GLB must keep F",)),
    (INSIDE, {"memories": {"GLB": {"factors": {"p": 8}}}}, ("O: GLB factors: {p: 8}",)),
    (INSIDE, {"memories": {"GLB": {"no_refetch": "I"}}}, ()),
    (INSIDE, {"memories": {"RF": {"no_refetch": "F"}}}, ("O: RF no_refetch: F",)),
    (INSIDE, {"fanouts": {"PE": {"X": {"must_reuse": "F"}}}}, ("O: PE.X must_reuse: F",)),
    (INSIDE, {"fanouts": {"PE": {"X": {"factors": {"m": "<= 2"}}}}}, ("O: PE.X factors: {m: <= 2}",)),
    (  # rules on fanouts hid those on loops
        INSIDE,
        {"fanouts": {"PE": {"X": {"factors": {"m": "<= 2"}}}}, "memories": {"GLB": {"factors": {"p": 8}}}},
        ("O: PE.X factors: {m: <= 2}", "O: GLB factors: {p: 8}"),
    ),
    (INSIDE, {"limits": ["energy <= 1"]}, ("the limit energy <= 1, as it has ENERGY",)),
    (
        INSIDE.replace("p, tile_shape: 4", "p, tile_shape: 3").replace(
            "p, tile_shape: 2", "p, tile_shape: 1"
        ),
        {},
        ("O: the tile 3 of p does not divide 8 (`sizes: all` admits it)",),
    ),
    (
        INSIDE.replace("m, tile_shape: 1", "m, tile_shape: 2"),
        {"min_utilisation": {"PE": {"X": 1}}},
        ("O: 2 of 4 instances of PE.X are in use (`min_utilisation` asks for 4)",),
    ),
    (
        INSIDE.replace("[F]", "[F], reuse: slide"),
        {},
        (
            "O: the node of F in RF keeps it over the loop over p, which stands above its instances "
            "(`reuse` of its memory; of inputs without windows)",
        ),
    ),
    (INSIDE.replace("[F]", "[F], reuse: slide"), {"memories": {"RF": {"reuse": ["refill", "slide"]}}}, ()),
    # A node that stays where it is over a loop is one above that loop.
    (
        INSIDE
        + "  - !Temporal {rank_variable: p, tile_shape: 1}\n  - !Storage {component: RF, tensors: [O]}\n",
        {},
        (),
    ),
    (INSIDE.replace("tensors: [I]", "tensors: [I, F], reuse: slide"), BESIDE, ()),
]


@pytest.fixture
def case(tmp_path: Path) -> Case:
    def load(nodes: str, size: str = "400") -> pm.Spec:
        path = tmp_path / "spec.yaml"
        path.write_text(MACHINE.replace("SIZE", size) + nodes + END)
        return pm.load(path)

    return load


@pytest.mark.parametrize(("nodes", "asked", "told"), CASES, ids=str)
def test_what_keeps_a_mapping_out_is_told(
    case: Case, nodes: str, asked: dict[str, Any], told: tuple[str, ...]
) -> None:
    spec = case(nodes)
    energy = f"{pm.evaluate(spec).total_energy:.6g}"
    assert pm.excluded_by(spec, asked) == tuple(t.replace("ENERGY", energy) for t in told)


def test_a_mapping_that_does_not_fit_is_out(case: Case) -> None:
    (told,) = pm.excluded_by(case(INSIDE, "16"))
    assert "GLB" in told


def test_what_is_found_is_a_point_of_the_space(case: Case) -> None:
    spec = case(INSIDE)
    for point in pm.explore(spec, constraints=BESIDE):
        assert pm.excluded_by(point.spec, BESIDE) == ()


def test_einsums_may_hand_on_what_they_make_above_their_loops() -> None:
    spec = pm.load("matmul_chain_2", "simple_two_level", M=4, N0=2, N1=4, N2=2)
    point = pm.explore(spec, objectives="energy", constraints={"max_fused_loops": 0}).best()
    assert point.fused == ("T1",)
    assert pm.excluded_by(point.spec) == ()
    (maker, reader) = pm.excluded_by(point.spec, {"unfused": "T1"})
    assert maker.startswith("Matmul1: T1 must not have its outermost tile in GLB")
    assert reader.startswith("Matmul2: T1 must not")


def test_what_excludes_fused_mappings_whatever_they_share_is_told() -> None:
    """Rules on memories, fanouts, figures and the number of shared loops; without any it is not known."""
    fused = pm.load("simple_two_level", "matmul_chain_2/tiled_fused")
    (maker, reader) = pm.excluded_by(fused)
    assert maker == "Matmul1: the tile 10 of m does not divide 64 (`sizes: all` admits it)"
    assert reader == maker.replace("Matmul1", "Matmul2")
    every = {"sizes": "all"}
    for asked in (every, {**every, "max_fused_loops": 1}):
        with refused("unsupported-loop", "Matmul1, Matmul2 share"):
            pm.excluded_by(fused, asked)
    apart = pm.excluded_by(fused, {**every, "unfused": "Intermediates", "max_fused_loops": 0})
    for name, told in (("Matmul1", apart[:2]), ("Matmul2", apart[2:])):
        assert told[0] == f"{name}: it shares loops over m (`max_fused_loops: 0`)"
        assert told[1].startswith(f"{name}: T1 must not have its outermost tile in GLB")
    bypassed = {**every, "memories": {"GLB": {"bypass": "W0"}}}
    assert pm.excluded_by(fused, bypassed) == ("Matmul1: GLB must not keep W0",)
    (told_figure,) = pm.excluded_by(fused, {**every, "limits": ["energy <= 1e-12"]})
    assert told_figure.startswith("the limit energy <= 1e-12, as it has ")
    with faults("wrong-type", "spec", at=""):
        pm.excluded_by("spec")  # type: ignore[arg-type]  # no spec, on purpose


@pytest.mark.thin(99)
@pytest.mark.parametrize("seed", seeds(2, range(12)))
def test_no_rule_excludes_what_is_found_with_it(seed: int) -> None:
    """Of fused mappings that the search finds under constraints nothing is said to exclude any."""
    pick = Random(f"fused {seed}")
    for space in islice(pair_spaces(pick, rules=(*RULES, "no_refetch")), 3):
        for point in pm.explore(space.spec, constraints=space.asked):
            with suppress(pm.Refused):
                assert pm.excluded_by(point.spec, space.asked) == ()


def fused_products(
    *above: dict[str, object], reuse: str = "refill", machine: Any = "simple_two_level"
) -> pm.Spec:
    """Two products below loops that they share, and everything of a tile in the buffer."""
    everything = ["T0", "T1", "T2", "W0", "W1"]
    branches = [
        {"type": "Nested", "nodes": [{"type": "Compute", "einsum": f"Matmul{i}", "component": "MAC"}]}
        for i in (1, 2)
    ]
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["T0", "W0", "W1", "T2"]},
        *above,
        {"type": "Storage", "component": "GLB", "tensors": everything, "reuse": reuse},
        {"type": "Sequential", "nodes": branches},
    ]
    return pm.load("matmul_chain_2", machine, {"mapping": {"nodes": nodes}}, M=16)


def test_which_shared_loops_no_mapping_of_the_space_has_is_told() -> None:
    def over_m(tile: int) -> dict[str, object]:
        return {"type": "Temporal", "rank_variable": "m", "tile_shape": tile}

    twice = fused_products(over_m(8), over_m(2))
    (maker, reader) = pm.excluded_by(twice)
    assert maker == "Matmul1: it shares several loops over m (`max_fused_loops_per_rank_variable: 1`)"
    assert reader == maker.replace("Matmul1", "Matmul2")
    (told, _) = pm.excluded_by(twice, {"max_fused_loops_per_rank_variable": 2, "max_fused_loops": 1})
    assert told == "Matmul1: it shares loops over m, m (`max_fused_loops: 1`)"
    with refused("unsupported-loop", "Matmul1, Matmul2 share"):
        pm.excluded_by(twice, {"max_fused_loops_per_rank_variable": 2})
    with refused("unsupported-loop", "Matmul1, Matmul2 share"):
        pm.excluded_by(fused_products(over_m(8), over_m(8)))  # the second one has one iteration
    kept = pm.excluded_by(fused_products(over_m(8), reuse="keep_previous"))
    told = "has the reuse policy `keep_previous`, and the Einsum shares loops"
    assert f"Matmul1: the node of T0 in GLB {told}" in kept


def test_a_spatial_loop_that_einsums_share_is_told() -> None:
    actions = [{"name": n, "energy": 1e-12} for n in ("read", "write")]
    held = {"type": "Memory", "tensors": {"may_keep": "All"}, "actions": actions}
    nodes = [
        {**held, "name": "DRAM", "tensors": {"keep": "~Intermediates", "may_keep": "All"}},
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 4}]},
        {**held, "name": "GLB"},
        {"type": "Compute", "name": "MAC"},
    ]
    spread = {"type": "Spatial", "rank_variable": "m", "tile_shape": 4, "component": "PE", "name": "X"}
    spec = fused_products(spread, machine={"arch": {"nodes": nodes}})
    shared = "it shares the spatial loop over m: shared loops of the space are temporal"
    assert pm.excluded_by(spec) == (f"Matmul1: {shared}", f"Matmul2: {shared}")
