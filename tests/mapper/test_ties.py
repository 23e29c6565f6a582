"""Spaces that are not boxes (padding, masks, bands): the front is that of all mappings, each evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapper.records import Request
from polymodel.mapper.search import search
from polymodel.mapping.looptree import LoopTree
from tests.mapper.brute_evaluated import FusedPair, Listed
from tests.mapper.test_windows import memory
from tests.seeds import seeds

Figures = tuple[float, float]


def work_of(pick: Random) -> dict[str, Any]:
    """A padded convolution, a mask or a band, with another variable at times."""
    size = pick.choice((2, 3, 4, 6))
    kind = pick.choice(("same", "same", "stride", "mask", "band", "sum", "behind", "later"))
    taps, more = pick.choice((2, 3)), pick.choice(("", ",m"))
    text = {
        "same": f"O[p{more}] = I[W=p+r-1] * F[r{more}]",
        "stride": f"O[p{more}] = I[W=2*p+r-1] * F[r{more}]",
        "mask": "Z[m,n] = A[m,k] * B[k,n]",
        "band": "Z[m] = A[m,n] * B[n]",
        "sum": "Z[m] = A[m,n] * B[n]",
        "behind": f"O[P=p-1{more}] = I[W=p+r-2] * F[r{more}]",
        "later": "Z[M=m-2,n] = A[M=m-2,k] * B[k,n]",
    }[kind]
    bounds = {
        "same": {"p": f"0 <= p < {size}", "r": f"0 <= r < {taps}"},
        "stride": {"p": f"0 <= p < {size}", "r": f"0 <= r < {taps}"},
        "mask": {"m": f"0 <= m < {size}", "n": "0 <= n <= m", "k": "0 <= k < 2"},
        "band": {"m": f"0 <= m < {size}", "n": f"n <= m + 1 and m <= n + 1 and 0 <= n < {size}"},
        "sum": {"m": f"0 <= m < {size}", "n": "0 <= n <= m"},
        "behind": {"p": f"1 <= p < {size + 1}", "r": f"0 <= r < {taps}"},
        "later": {"m": f"2 <= m < {size + 2}", "n": "1 <= n < m", "k": "0 <= k < 2"},
    }[kind]
    if more and "m" not in bounds:
        bounds["m"] = "0 <= m < 2"
    widths = {"same": size + taps - 1 - pick.choice((1, 2)), "stride": 2 * size - 1 - pick.choice((0, 1))}
    widths["behind"] = widths["same"]
    ranks = {"W": max(widths[kind], 1)} if kind in widths else {}
    return {
        "iteration_space_shape": bounds,
        "rank_sizes": ranks,
        "bits_per_value": {"All": 8},
        "einsums": [text],
    }


def spec_of(pick: Random) -> Spec:
    """One Einsum on two memories, or on three, with a fanout at times."""
    paid = {"buffering": pick.choice(("single", "double"))}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, pick.choice((24, 40, 64, 160)), 32, **paid)]
    if pick.random() < 0.4:
        nodes.append(memory("RF", 1, pick.choice((16, 32)), 64, tensors={"may_keep": "Outputs"}))
    if pick.random() < 0.5:
        more = {"broadcast_partials": pick.random() < 0.5, "may_reuse": pick.choice(("All", "Inputs"))}
        spatial = [{"name": "X", "fanout": 2, **more}]
        nodes.insert(pick.randint(1, len(nodes)), {"type": "Container", "name": "PE", "spatial": spatial})
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.7}
    return pm.load({"schema_version": 1, "workload": work_of(pick), "arch": arch})


def figures(spec: Spec, tree: LoopTree) -> Figures | None:
    """Energy and latency; None where a memory has no room for the largest tile of each of its tensors."""
    report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
    for c in spec.arch.components:
        if c.kind == "memory" and c.name != "DRAM":
            twice = 2 if spec.arch.doubles(c.name) else 1
            held = sum(b.tile_max for b in report.analysis.buffets if b.component == c.name)
            if held * 8 * twice > c.size_bits:
                return None
    assert report.feasible
    return report.total_energy, float(report.total_latency)


def check(spec: Spec, pick: Random, most: int) -> int:
    """Whether none of about so many mappings beats what the search finds, and, where these are all of them,
    what it finds is as good as one of them; how many there were."""
    apart = Listed(spec)
    share = most / apart.size()
    listed: list[Figures] = []
    for tree in apart.trees(lambda: share >= 1 or pick.random() < share):
        try:
            found = figures(spec, tree)
        except SpecError:
            continue
        listed += [found] if found is not None else []
    mine = [(p.energy, p.latency) for p in pm.explore(spec)]
    for energy, latency in listed:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    for e, x in mine if share >= 1 else ():
        assert any(e == pytest.approx(a) and x == pytest.approx(b) for a, b in listed)
    return len(listed)


@pytest.mark.slow
def test_no_drawn_mapping_is_better() -> None:
    pick = Random(3)
    assert sum(check(spec_of(pick), pick, 6) for _ in range(8)) > 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [5, 0, 1]))
def test_the_front_is_that_of_all_mappings(seed: int) -> None:
    pick = Random(seed)
    spec = next(s for s in iter(lambda: spec_of(pick), None) if Listed(s).size() < 450)
    assert check(spec, pick, 1000) > 50


@pytest.mark.slow
def test_the_fronts_of_many_spaces() -> None:
    pick = Random(77)
    assert sum(check(spec_of(pick), pick, 100) for _ in range(60)) > 2000


def check_live(spec: Spec, pick: Random, most: int) -> int:
    """The same where a memory holds what is live: what fits as whole tiles is no better than what is found,
    and what is found fits as `evaluate` counts it."""
    nodes = [replace(c, allocation="live") if c.name == "GLB" else c for c in spec.arch.components]
    machine = replace(spec.arch, components=tuple(nodes))
    found = search(spec.workload, machine, Request()).candidates
    for c in found:
        report = evaluate_problem(Problem(spec.workload, machine, c.tree))
        assert report.feasible
        assert (report.total_energy, float(report.total_latency)) == pytest.approx((c.energy, c.latency))
    mine = [(c.energy, c.latency) for c in found]
    listed = [figures(spec, tree) for tree in sampled(Listed(spec), pick, most)]
    whole = [x for x in listed if x is not None]
    for energy, latency in whole:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    return len(whole)


def sampled(listed: Listed, pick: Random, most: int) -> Iterator[LoopTree]:
    share = most / listed.size()
    return listed.trees(lambda: share >= 1 or pick.random() < share)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "many"), seeds(1, [(4, 1), (5, 20), (6, 20)]))
def test_line_buffers_are_never_worse_than_whole_tiles(seed: int, many: int) -> None:
    pick = Random(seed)
    assert sum(check_live(spec_of(pick), pick, 8) for _ in range(many)) >= many


def access(tensor: str, projection: object, **more: bool) -> dict[str, Any]:
    return {"name": tensor, "projection": projection, **more}


def chain_of(shape: str, ranks: dict[str, int], *einsums: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Each Einsum by its accesses, the output last."""
    each: list[dict[str, Any]] = []
    for *inputs, output in einsums:
        accesses = [*inputs, {**output, "output": True}]
        cut = {"iteration_space_shape": shape} if shape else {}
        each.append({"name": output["name"], "tensor_accesses": accesses, **cut})
    return {"rank_sizes": ranks, "bits_per_value": {"All": 8}, "einsums": each}


PADDED = chain_of(
    "",
    {"P": 6, "M": 2, "C": 2, "H": 6, "R": 3, "R2": 3, "Y": 6},
    (access("I", {"C": "c", "H": "p+r-1"}), access("F", ["m", "c", "r"]), access("T", ["m", "p"])),
    (access("T", ["m", "p"]), access("U", ["m", "p"])),
    (access("U", {"M": "m", "P": "y+r2-1"}), access("G", ["m", "r2"]), access("O", ["m", "y"])),
)
MASKED = chain_of(
    "n <= m",
    {"M": 4, "N": 4, "E": 2, "F": 2},
    (access("Q", ["m", "e"]), access("K", ["n", "e"]), access("S", ["m", "n"])),
    (access("S", ["m", "n"]), access("W", ["m", "n"])),
    (access("W", ["m", "n"]), access("V", ["n", "f"]), access("A", ["m", "f"])),
)
# A second convolution and an addition that count rows from 1, as in a residual block.
BEHIND = chain_of(
    "",
    {"M": 2, "H": 4, "R": 3},
    (access("T", {"H": "p+r-2"}), access("G", ["m", "r"]), access("U", {"M": "m", "H": "p-1"})),
    (access("U", {"M": "m", "H": "p-1"}), access("V", {"H": "p-1"}), access("O", {"M": "m", "H": "p-1"})),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "shared"),
    [(PADDED, "T-U: p"), (MASKED, "S-A: m"), (BEHIND, "U-O: p")],
    ids=["padded", "masked", "behind"],
)
def test_chains_share_loops_over_tied_variables(work: dict[str, Any], shared: str) -> None:
    """Each mapping is evaluated, with the search's figures."""
    nodes = [
        memory("DRAM", 64, "inf", 16, tensors={"keep": "~Intermediates", "may_keep": "All"}),
        memory("GLB", 4, 60, 32),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 8}]},
    ]
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    found = pm.explore(spec)
    assert found.complete
    assert any(shared in p.fused_loops for p in found)
    assert all(p.report.total_energy == pytest.approx(p.energy) for p in found)


@pytest.mark.slow
@pytest.mark.parametrize("room", [90, 160, 300])
def test_no_fused_mapping_of_pairs_that_start_at_1_is_better(room: int) -> None:
    """Every mapping that hands on the intermediate in the inner memory is evaluated."""
    nodes = [
        memory("DRAM", 64, "inf", 16, tensors={"keep": "~U", "may_keep": "All"}),
        memory("GLB", 4, room, 32),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 8}]},
    ]
    spec = pm.load({"schema_version": 1, "workload": BEHIND, "arch": {"nodes": nodes}})
    mine = [(p.energy, p.latency) for p in pm.explore(spec, constraints={"fuse": "U"})]
    pick = Random(room)
    listed = []
    for tree in FusedPair(spec, "U", ("p", "m")).trees(lambda: pick.random() < 0.02):
        found = figures(spec, tree)
        listed += [found] if found is not None else []
    assert len(listed) > 20
    for energy, latency in listed:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)


def test_padded_rows_are_spread_over_instances() -> None:
    """Four instances have two of eight rows each; the outer ones skip the padding."""
    work = {
        "iteration_space_shape": {"p": "0 <= p < 8", "r": "0 <= r < 3"},
        "rank_sizes": {"W": 8},
        "bits_per_value": {"All": 8},
        "einsums": ["O[p] = I[W=p+r-1] * F[r]"],
    }
    array = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 4}]}
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1}]}
    arch = {"nodes": [memory("DRAM", 64, "inf", 1024), array, unit]}
    spec = pm.load({"schema_version": 1, "workload": work, "arch": arch})
    assert pm.explore(spec, objectives="latency").best().latency == 6
