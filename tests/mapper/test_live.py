"""Memories with `allocation: live`: line buffers fit, and what is returned fits by `evaluate`."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapper.confirm import loose_peaks
from polymodel.mapper.records import Limits, Request, Sizes
from polymodel.mapper.search import search
from tests.seeds import seeds

WORK = {
    "matmul": ["C[m,n] = A[m,k] * B[k,n]"],
    "conv1d": ["O[p,m] = I[H=p+r] * F[r,m]"],
    "strided": ["O[p,m] = I[H=2*p+r,c] * F[r,m,c]"],
    "conv2d": ["O[p,q] = I[H=p+r,W=q+s] * F[r,s]"],
    "fused": ["T[p,m] = I[H=p+r] * F[r,m]", "O[p,n] = T[p,m] * G[m,n]"],
}


def machine(
    einsums: list[str], extents: dict[str, int], bits: int | str, allocation: str, fanout: int
) -> pm.Spec:
    """DRAM and a buffer of so many bits; with a fanout registers as well."""
    memories = [("DRAM", "inf", 64, 16), ("GLB", bits, 4, 512), ("RF", 32, 1, 64)][: 3 if fanout else 2]
    nodes: list[dict[str, object]] = [
        {
            "type": "Memory",
            "name": name,
            "size": size,
            "allocation": allocation if name == "GLB" else "tile",
            "spatial": [{"name": "X", "fanout": fanout}] if name == "RF" else [],
            "tensors": {"keep": "~Intermediates" if name == "DRAM" else "Nothing", "may_keep": "All"},
            "actions": [{"name": a, "energy": energy, "throughput": rate} for a in ("read", "write")],
        }
        for name, size, energy, rate in memories
    ]
    nodes.append(
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 16}]}
    )
    shape = {v: f"0 <= {v} < {n}" for v, n in extents.items()}
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


def front(spec: pm.Spec, sizes: Sizes) -> list[tuple[float, float]]:
    """Each mapping is evaluated on the way."""
    found = search(spec.workload, spec.arch, Request(limits=Limits(sizes=sizes))).candidates
    for c in found:
        costs = evaluate_problem(Problem(spec.workload, spec.arch, c.tree)).costs
        assert not costs.violations
        assert (costs.total_energy, float(costs.total_latency)) == pytest.approx((c.energy, c.latency))
    return [(c.energy, c.latency) for c in found]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "kind", seeds(3, ["matmul", "strided", "fused", *(k for k in WORK if k.startswith("conv"))])
)
@pytest.mark.parametrize("sizes", seeds(1, ["divisors", "all"]))
def test_what_is_live_never_costs_more_than_whole_tiles(kind: str, sizes: Sizes) -> None:
    pick = Random(kind)
    for _ in range(2):
        variables = sorted({c for e in WORK[kind] for c in "pqrsmnkc" if f"{c}," in e or f"{c}]" in e})
        extents = {v: pick.choice((1, 2, 3, 4, 6)) for v in variables}
        bits, fanout = pick.choice((24, 40, 64, 160)), pick.choice((0, 0, 2)) if sizes == "divisors" else 0
        tile, live = (
            front(machine(WORK[kind], extents, bits, allocation, fanout), sizes)
            for allocation in ("tile", "live")
        )
        assert tile
        for energy, latency in tile:
            assert any(e <= energy * (1 + 1e-12) and x <= latency * (1 + 1e-12) for e, x in live)


def test_a_line_buffer_is_found() -> None:
    """16 outputs of 4 channels from windows of 3: whole windows cost more than a third on top."""
    extents = {"p": 16, "r": 3, "m": 4}
    (whole,), (line,) = (
        front(machine(WORK["conv1d"], extents, 64, allocation, 0), "divisors")
        for allocation in ("tile", "live")
    )
    assert whole[0] > 1.2 * line[0]


def test_a_window_slides_along_either_of_its_variables() -> None:
    """Three outputs from a filter of 16: the window of the filter's place is what is live."""
    extents = {"p": 3, "r": 16, "m": 1}
    tile, live = (
        front(machine(WORK["conv1d"], extents, 88, allocation, 0), "divisors")[0]
        for allocation in ("tile", "live")
    )
    assert live[0] < tile[0]


def test_a_mapping_that_fits_by_its_lifetimes_alone_beats_a_front_that_says_so() -> None:
    """Of two convolutions in a row seven values are live at a time; the search counts eight."""
    einsums, extents = ["T[p] = I[H=p+r] * F[r]", "O[p] = T[p] * G[p]"], {"p": 4, "r": 2}
    wide = pm.explore(machine(einsums, extents, 64, "live", 0), objectives="energy")
    best = wide.best()
    small = machine(einsums, extents, 56, "live", 0)
    front = pm.explore(small, objectives="energy")
    by_hand = pm.evaluate(replace(small, raw_mapping=best.mapping))
    assert by_hand.feasible
    assert by_hand.total_energy < front.best().energy
    assert front.complete
    assert front.loose == "GLB has `allocation: live`"
    assert "exact with working sets bounded from above (GLB has `allocation: live`): no mapping" in str(front)
    assert "exact: " not in str(front)
    assert "0 % with working sets bounded from above" in front.to_html(plots=False)


@pytest.mark.parametrize(
    ("einsums", "size", "allocation", "loops", "loose"),
    [
        (WORK["fused"], 64, "tile", None, ""),
        (WORK["matmul"], "inf", "live", None, ""),
        ([*WORK["fused"], "Z[p,n] = O[p,n]"], 64, "tile", None, "tiles above fused loops count as long as"),
        ([*WORK["fused"], "Z[p,n] = O[p,n]"], 64, "tile", 0, ""),
    ],
)
def test_why_working_sets_are_bounded_from_above(
    einsums: list[str], size: int | str, allocation: str, loops: int | None, loose: str
) -> None:
    extents = {v: 2 for v in "pmrnk" if any(f"{v}," in e or f"{v}]" in e for e in einsums)}
    spec = machine(einsums, extents, size, allocation, 0)
    known = loose_peaks([spec.workload], [spec.arch], Limits(max_fused_loops=loops), ["energy"])
    assert known.startswith(loose)
    assert bool(known) == bool(loose)
    assert bool(loose_peaks([spec.workload], [spec.arch], Limits(), ["working_set:GLB"])) == bool(
        loose or allocation == "live" or len(einsums) > 2
    )
