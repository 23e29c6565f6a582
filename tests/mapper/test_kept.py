"""Storage nodes of the search that keep what the preceding visit held; fronts are in `test_campaign`."""

from __future__ import annotations

from dataclasses import replace
from itertools import count, islice, pairwise, repeat
from pathlib import Path
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapper import pmappings, ties
from polymodel.mapper.einsum_rules import cuttable
from polymodel.mapping.looptree import Loop, LoopTree, Node, StorageNode
from polymodel.reuse import Reuse
from tests.faults import faults, refused
from tests.mapper.brute_evaluated import Listed, figures
from tests.mapper.brute_kept import keeping
from tests.mapper.test_campaign import pair_spaces
from tests.mapper.test_slides import array_of, sliding, staying
from tests.mapper.test_slides import spec_of as windows_of
from tests.mapper.test_windows import memory

WINDOW = "O[p] = I[W=p+r] * F[r]"
PADDED = "O[p] = I[W=p+r-1] * F[r]"


def spec_of(text: str = WINDOW, p: int = 4, r: int = 3, size: float = 40, **of_i: object) -> Spec:
    """Windows on DRAM and a buffer."""
    shape = {"p": f"0 <= p < {p}", "r": f"0 <= r < {r}"}
    ranks = {"W": p} if text == PADDED else {}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, size, 32, **of_i)]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]})
    work = {"iteration_space_shape": shape, "rank_sizes": ranks, "bits_per_value": {"All": 8}}
    return pm.load({"schema_version": 1, "workload": {**work, "einsums": [text]}, "arch": {"nodes": nodes}})


def asked(*policies: str, memory: str = "GLB", **more: object) -> dict[str, Any]:
    return {"memories": {memory: {"reuse": list(policies)}}, **more}


def policies(tree: LoopTree, component: str = "GLB") -> set[Reuse]:
    return {n.reuse for _, n, _ in tree.walk() if isinstance(n, StorageNode) and n.component == component}


def least(spec: Spec, *several: str) -> float:
    return float(pm.explore(spec, objectives="energy", constraints=asked(*several)).frame["energy"].min())


def test_what_stays_over_a_wrap_is_counted() -> None:
    """Two tiles of p and two of q: only what keeps over the wrap of q has what both rows of tiles share."""
    text = "O[p,q,m] = I[W=p+r,V=q+s] * F[r,s,m]"
    shape = {"p": "0 <= p < 4", "q": "0 <= q < 4", "m": "0 <= m < 2"}
    shape |= {"r": "0 <= r < 3", "s": "0 <= s < 3"}
    tensors = {"keep": "I", "may_keep": "I"}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 1, 16 * 8, 32, tensors=tensors)]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    found = {name: least(spec, "refill", *([name] if name != "refill" else [])) for name in Reuse}
    assert found["keep_previous"] < found["slide"] < found["refill"]
    (point,) = pm.explore(spec, objectives="energy", constraints=asked("keep_previous"))
    assert policies(point.mapping) == {Reuse.KEEP_PREVIOUS}
    assert pm.excluded_by(point.spec, asked("keep_previous")) == ()


def test_outputs_keep_partial_sums_in_scratchpads() -> None:
    """The buffer holds inputs below k, and a scratchpad below it partial sums over all of k."""
    work = {
        "iteration_space_shape": {"m": "0 <= m < 4", "k": "0 <= k < 8"},
        "bits_per_value": {"All": 8},
        "einsums": ["Z[m] = A[m,k] * B[k]"],
    }
    nodes = [
        memory("DRAM", 64, "inf", 16),
        memory("GLB", 4, 8, 32, tensors={"keep": "A", "may_keep": "A | Z"}),
        memory("RF", 1, 8, 32, tensors={"keep": "Z", "may_keep": "Z"}),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]},
    ]
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    refilling, keeping_sums = (
        pm.explore(spec, objectives="accesses:DRAM", constraints=asked(*x, memory="RF")).frame
        for x in (("refill",), ("keep_previous",))
    )
    assert keeping_sums["accesses:DRAM"].min() < refilling["accesses:DRAM"].min()


def check(spec: Spec, pick: Random) -> tuple[int, int]:
    """Whether the front is that of all mappings where each memory has policies of its own, and each mapping
    that keeps is in the space; how many there are, and how many mappings of the front keep."""
    (one,) = spec.workload.einsums
    names = [c.name for c in spec.arch.components if c.kind == "memory"][1:]
    of = {
        n: pick.choice((["keep_previous"], ["refill", "keep_previous"], ["refill", "slide"])) for n in names
    }
    constraints = {"memories": {n: {"reuse": x} for n, x in of.items()}}
    kept = [n for n in names if "keep_previous" in of[n]]
    slides = [n for n in names if "slide" in of[n]]
    found = pm.explore(spec, constraints=constraints)
    mine, rows = [(p.energy, p.latency) for p in found], []
    for tree in Listed(spec).trees():
        several = list(sliding(tree)) if slides else [tree]
        if slides and all("refill" in of[n] for n in kept):  # where one stays, no other one keeps
            every = (x for y in several for x in staying(y, names[-1]))
            costs = (_cost(spec, x) for x in every if all(policies(x, n) <= {*of[n]} for n in names))
            rows += [cost for cost in costs if cost is not None]
        for x in (x for x in several if all(policies(x, n) <= {Reuse.REFILL} for n in kept)):
            for mapping in keeping(x, one, kept):
                cost = _cost(spec, mapping)
                rows += [] if cost is None else [cost]
                if pick.random() < 0.02 and cost is not None and not slides:
                    assert pm.excluded_by(spec.with_mapping(mapping), constraints) == ()
    for energy, latency in rows:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    for energy, latency in mine:
        assert any(e == pytest.approx(energy) and x == pytest.approx(latency) for e, x in rows)
    return len(rows), sum(Reuse.KEEP_PREVIOUS in policies(p.mapping, n) for p in found for n in names)


def _cost(spec: Spec, tree: LoopTree) -> tuple[float, float] | None:
    try:
        return figures(spec, tree)
    except SpecError:
        return None


@pytest.mark.parametrize(
    ("seed", "many"), [(1, 2), *(pytest.param(n, 20, marks=pytest.mark.slow) for n in range(2, 5))]
)
def test_fronts_of_scratchpads_and_buffers_that_keep(seed: int, many: int) -> None:
    pick, rows, kept = Random(seed), 0, 0
    drawn = (pick.choice((windows_of, array_of))(pick, (2, 4)) for _ in count())
    for spec in islice((s for s in drawn if Listed(s).size() <= 400), many):
        more = check(spec, pick)
        rows, kept = rows + more[0], kept + more[1]
    assert rows > 20 * many
    assert kept


CUT = ("O[p] = I[W=p+r,c] * F[r,c]", "O[p,m] = I[W=2*p+r] * F[r,m]", "Z[m,n] = A[m,k] * B[k,n]")


def to_cut(pick: Random) -> Spec:
    """A buffer that keeps, above which hierarchies are cut from what is inside it."""
    text = pick.choice(CUT)
    ranges = {"p": (2, 4), "r": (2, 3), "m": (2, 4), "n": (2,), "k": (2, 4), "c": (2,)}
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in ranges.items() if v in text}
    held = pick.choice(("I", "F", "Outputs") if "I" in text else ("A", "B", "Outputs"))
    outer = pick.choice(("All", f"Inputs | {held}", f"Outputs | {held}"))
    pes = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 2, "may_reuse": "All"}]}
    nodes = [
        memory("DRAM", 64, "inf", 16),
        memory("GLB", 4, pick.choice((16, 24, 32, 40)), 32, tensors={"may_keep": outer}),
        *([pes] if pick.random() < 0.5 else []),
        memory("RF", 1, pick.choice((8, 16)), 64, tensors={"may_keep": held}),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]},
    ]
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


@pytest.mark.parametrize(
    ("seed", "many"), [(3, 1), *(pytest.param(n, 20, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_fronts_of_hierarchies_that_are_cut_below_what_keeps(
    seed: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick, cut = Random(seed), list[bool]()
    monkeypatch.setattr(pmappings, "cuttable", lambda *of: cut.append(cuttable(*of)) or cut[-1])
    rows = 0
    for spec in islice((s for s in map(to_cut, repeat(pick)) if Listed(s).size() <= 400), many):
        constraints = asked(*pick.choice((["refill", "keep_previous"], ["keep_previous"])))
        (one,) = spec.workload.einsums
        trees = (t for x in Listed(spec).trees() for t in keeping(x, one, ["GLB"]))
        listed = [cost for t in trees if (cost := _cost(spec, t)) is not None]
        rows += len(listed)
        for several in (["energy"], ["energy", "latency"]):
            front = pm.explore(spec, objectives=several, constraints=constraints)
            mine = [(p.energy, p.latency)[: len(several)] for p in front]
            for figures_ in (x[: len(several)] for x in listed):
                assert any(all(a <= b * (1 + 1e-9) for a, b in zip(m, figures_, strict=True)) for m in mine)
            for m in mine:
                assert any(x[: len(several)] == tuple(map(pytest.approx, m)) for x in listed)
    assert rows > 10 * many
    assert all(cut)


@pytest.mark.parametrize("many", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_nothing_that_slides_is_better_than_what_keeps(many: int) -> None:
    """Of chains, where Einsums that share loops slide or refill, and of single Einsums."""
    pick = Random(many)
    chains = (s.spec for s in pair_spaces(pick, ("window", "stride", "neighbours")))
    for spec in (*islice(chains, many), *(array_of(pick, (2, 4)) for _ in range(many))):
        inner = next(c.name for c in reversed(spec.arch.components) if c.kind == "memory")
        slide, keep = (
            pm.explore(spec, constraints={"memories": {inner: {"reuse": several}}})
            for several in (["refill", "slide"], ["refill", "slide", "keep_previous"])
        )
        assert len(slide)
        for p in slide:
            several = ((q.energy, q.latency) for q in keep)
            assert any(e <= p.energy * (1 + 1e-9) and x <= p.latency * (1 + 1e-9) for e, x in several)


@pytest.mark.parametrize("seed", range(3))
def test_membership_knows_the_orders_of_loops(seed: int) -> None:
    pick, spec = Random(seed), spec_of(size=1000)
    (one,) = spec.workload.einsums
    several = [t for x in Listed(spec).trees() for t in keeping(x, one, ["GLB"])]
    others = 0
    for tree in pick.sample(several, 40):
        assert pm.excluded_by(spec.with_mapping(tree), asked("refill", "keep_previous")) == ()
        assert figures(spec, tree) is not None
        turned = _turned(tree)
        if turned not in several:
            others += 1
            (told,) = pm.excluded_by(spec.with_mapping(turned), asked("keep_previous"))
            assert told.endswith("where nodes keep (docs/explore.md says which are)")
    assert others


def _turned(tree: LoopTree) -> LoopTree:
    """The first two loops that stand right below one another, the other way round."""
    nodes: list[Node] = [*tree.nodes]
    held = [n for n in nodes[1:] if isinstance(n, StorageNode)]
    last = nodes.index(held[-1]) if held else 0
    for k, (a, b) in enumerate(pairwise(nodes)):
        if isinstance(a, Loop) and isinstance(b, Loop) and k + 1 < last:
            nodes[k : k + 2] = [b, a]
            break
    return LoopTree(tuple(nodes))


def test_membership_tells_policies() -> None:
    (point,) = pm.explore(spec_of(), objectives="energy", constraints=asked("keep_previous"))
    (told, *_) = pm.excluded_by(point.spec)
    assert told.endswith(
        "`keep_previous` (`explore: {memories: {GLB: {reuse: [refill, keep_previous]}}}` admits it)"
    )
    nodes = (replace(n, reuse="refill") if isinstance(n, StorageNode) else n for n in point.mapping.nodes)
    refilling = point.spec.with_mapping(LoopTree(tuple(nodes)))
    (told, *_) = pm.excluded_by(refilling, asked("keep_previous"))
    assert told.endswith("has the reuse policy `refill` (`reuse` of GLB)")
    assert pm.excluded_by(refilling, asked("refill", "keep_previous")) == ()


def four_windows() -> Spec:
    """Four dimensions of windows."""
    text = "O[p,q,x,y] = I[A=p+a,B=q+b,C=x+c,D=y+d] * F[a,b,c,d]"
    shape = {v: f"0 <= {v} < 2" for v in "pqxyabcd"}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, 40, 32, tensors={"may_keep": "I"})]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


def test_what_is_not_covered_is_told() -> None:
    spec = spec_of()
    with faults("missing-key", at="constraints.memories.GLB.reuse"):
        pm.explore(spec, constraints=asked("slide", "keep_previous"))
    with refused("unsupported-instances", "GLB that keep_previous beside `sizes: all`"):
        pm.explore(spec, constraints=asked("keep_previous", sizes="all"))
    with refused("unsupported-instances", "reuse"):
        pm.explore(spec, constraints=asked("keep_previous", spatial_sizes="all"))
    with refused("unsupported-instances", "`allocation: live`"):
        pm.explore(spec_of(allocation="live"), constraints=asked("keep_previous"))
    ordered = asked("refill", "keep_previous")
    ordered["memories"]["GLB"]["order"] = ["p", "r"]
    with refused("unsupported-constraint", "`factors` and `order`"):
        pm.explore(spec, constraints=ordered)
    with refused("unsupported-instances", "O that keep_previous: not all tiles are alike"):
        pm.explore(spec_of(PADDED), constraints=asked("keep_previous"))
    with refused("too-large", "O has 40,320 orders of loops above nodes that keep_previous"):
        pm.explore(four_windows(), constraints=asked("keep_previous"))
    front = pm.explore(spec_of(PADDED), constraints=asked("refill", "keep_previous"))
    assert {p for point in front for p in policies(point.mapping)} <= {Reuse.REFILL}


TIED = """
schema_version: 1
workload:
  rank_sizes: {M: 2, P: 6, R: 3, H: 6}
  bits_per_value: {All: 8}
  einsums: ["O[m, p] = I[H=p+r-1] * F[m, r]"]
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: All}, actions: [{name: read, energy: 9}, {name: write, energy: 9}]}
  - !Memory
    name: GLB
    size: 32
    tensors: {may_keep: I}
    actions: [{name: read, energy: 1}, {name: write, energy: 1}]
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, F, O]}
  - !Temporal {rank_variable: p, tile_shape: 1}
  - !Storage {component: GLB, tensors: [I], reuse: slide}
  - !Compute {einsum: O, component: MAC}
"""


def test_padded_windows_whose_nodes_do_not_keep_are_told(tmp_path: Path) -> None:
    """The answer said exact and nothing else; nodes over these windows slide."""
    file = tmp_path / "spec.yaml"
    file.write_text(TIED, encoding="utf-8")
    spec, asked = pm.load(file), {"memories": {"GLB": {"reuse": ["refill", "slide", "keep_previous"]}}}
    front = pm.explore(spec, objectives=["reads:DRAM"], constraints=asked)
    assert any("O: bounds, such as those of padding, tie p, r together" in n for n in front.notes)
    assert not any("tie p, r" in n for n in pm.explore(spec, objectives=["reads:DRAM"]).notes)
    assert pm.excluded_by(spec, asked) == ()
    (reason,) = pm.excluded_by(spec)
    assert "reuse: [refill, slide]" in reason


def test_pairs_with_too_many_points_to_slide_along_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes refilled there and nothing said so."""
    file = tmp_path / "spec.yaml"
    file.write_text(TIED, encoding="utf-8")
    spec, asked = pm.load(file), {"memories": {"GLB": {"reuse": ["refill", "slide"]}}}
    front = pm.explore(spec, objectives=["reads:DRAM"], constraints=asked)
    assert not any("tie p, r" in n for n in front.notes)
    monkeypatch.setattr(ties, "MOST_SPREAD", 4)
    front = pm.explore(spec, objectives=["reads:DRAM"], constraints=asked)
    assert any("tie p, r together; nodes with `reuse: slide` there" in n for n in front.notes)
