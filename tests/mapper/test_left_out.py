"""What docs/explore.md says that the space leaves out: mappings by hand that beat the exact front."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from tests.faults import refused

DRAM: dict[str, Any] = {
    "type": "Memory",
    "name": "DRAM",
    "tensors": {"keep": "All"},
    "actions": [{"name": n, "energy": 1e-11, "throughput": "inf"} for n in ("read", "write")],
}
GLB: dict[str, Any] = {
    "type": "Memory",
    "name": "GLB",
    "tensors": {"keep": "All"},
    "actions": [{"name": n, "energy": 1e-12, "throughput": "inf"} for n in ("read", "write")],
}
MAC: dict[str, Any] = {
    "type": "Compute",
    "name": "MAC",
    "actions": [{"name": "compute", "energy": 1e-12, "throughput": 1e9}],
}


def _spec(einsum: str, sizes: dict[str, int], *nodes: dict[str, Any]) -> pm.Spec:
    shape = {v: f"0 <= {v} < {n}" for v, n in sizes.items()}
    workload = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [einsum]}
    return pm.load({"workload": workload, "arch": {"nodes": [DRAM, GLB, *nodes, MAC]}})


def _by_hand(spec: pm.Spec, *nodes: dict[str, Any]) -> pm.Report:
    tree = {
        "nodes": [*nodes, {"type": "Compute", "einsum": spec.workload.einsums[0].name, "component": "MAC"}]
    }
    return pm.evaluate(spec.with_mapping(pm.MappingSpec.model_validate(tree)))


def _storage(component: str, *tensors: str, **more: str) -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": list(tensors), **more}


def test_spatial_tiles_divide() -> None:
    """Also where all sizes are looked at."""
    pes = [{"name": n, "fanout": 4} for n in "XY"]
    spec = _spec(
        "C[m,n] = A[m,k] * B[k,n]",
        {"m": 7, "k": 5, "n": 11},
        {"type": "Container", "name": "PE", "spatial": pes},
    )
    spatial = [
        {"type": "Spatial", "rank_variable": v, "tile_shape": t, "component": "PE", "name": d}
        for v, t, d in (("m", 2, "X"), ("n", 3, "Y"))
    ]
    tensors = ("A", "B", "C")
    report = _by_hand(spec, _storage("DRAM", *tensors), _storage("GLB", *tensors), *spatial)
    assert report.total_latency == pytest.approx(2 * 5 * 3 * 1e-9)
    for sizes in ("divisors", "all"):
        front = pm.explore(spec, objectives="latency", constraints={"sizes": sizes})
        assert front.complete
        assert front[0].latency == pytest.approx(7 * 5 * 11 * 1e-9)
        told = "tile sizes divide" if sizes == "divisors" else "spatial tiles divide"
        assert f"what it leaves out; {told})" in front.notes[0]
    short = pm.explore(spec, constraints={"min_utilisation": {"PE": {"X": 1}}})
    assert "min_utilisation of PE.X rules out" in short.reason
    assert "(spatial tiles divide)" in short.reason


def test_windows_do_not_slide() -> None:
    spec = _spec("O[p] = I[H=p+r] * F[r]", {"p": 8, "r": 3})
    loops = [{"type": "Temporal", "rank_variable": "p", "tile_shape": 2}]
    above, below = _storage("DRAM", "I", "F", "O"), _storage("GLB", "F")
    front = pm.explore(spec, objectives=("energy", "buffer"), constraints={"sizes": "all"})
    assert front.complete
    beside = []
    for reuse in ("refill", "slide"):
        held = (_storage("GLB", "I", reuse=reuse), _storage("GLB", "O"))
        report = _by_hand(spec, above, below, *loops, *held)
        energy, peak = report.total_energy, report.peak("GLB").bits
        beside.append(any(p.energy <= energy * (1 + 1e-9) and p.buffers["GLB"] <= peak for p in front))
    assert beside == [True, False]


def test_a_backing_storage_without_room_for_all_tensors_is_refused() -> None:
    """A, B and Z together take 8 x (6 + 6 + 4) = 128 bits."""
    sizes = {"m": 2, "k": 3, "n": 2}
    small = [{**DRAM, "size": 127}, GLB, MAC]
    shape = {v: f"0 <= {v} < {n}" for v, n in sizes.items()}
    workload = {
        "iteration_space_shape": shape,
        "bits_per_value": {"All": 8},
        "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
    }
    with refused("unsupported-memory", "DRAM", "128"):
        pm.explore(pm.load({"workload": workload, "arch": {"nodes": small}}))
    small[0] = {**DRAM, "size": 128}
    assert len(pm.explore(pm.load({"workload": workload, "arch": {"nodes": small}})))


@pytest.mark.parametrize(
    ("made", "read", "element"),
    [
        ("T[H=p+1] = A[p]", "Z[q] = T[H=q+r] * W[r]", "T[H=0]"),  # nobody makes the first
        ("T[H=2*p] = A[p]", "Z[q] = T[H=q] * W[q, r]", "T[H=1]"),  # nobody makes those between
    ],
)
def test_elements_that_nobody_makes_are_told_before_the_search(made: str, read: str, element: str) -> None:
    shape = {"p": "0 <= p < 4", "q": "0 <= q < 4", "r": "0 <= r < 2"}
    workload = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [made, read]}
    spec = pm.load({"workload": workload, "arch": {"nodes": [DRAM, GLB, MAC]}})
    with refused("no-solution", "Z", "T") as caught:
        pm.explore(spec)
    assert element in str(caught.value)
    assert "shrink or shift its ranks" in caught.value.remedy
