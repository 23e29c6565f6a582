"""Einsums that add to what is there or read one element several times: the front is that of all mappings,
listed one by one and each of them evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults
from tests.mapper.brute_evaluated import Listed
from tests.mapper.test_whole_actions import check
from tests.mapper.test_windows import memory

EINSUMS = (
    "O[m] += I[m,c] * F[c]",
    "O[p] += I[W=p+r] * F[r]",
    "O[m] = I[m,c] * I[m,c]",
    "O[m] += I[c] * I[c] * F[m,c]",
)
IMAGES = ("O[m,c] = I[W=m] * I[W=c]", "O[m,c] = I[W=m,p] * I[W=c+1,p]", "O[m] = I[W=m] * I[W=p-2]")


MERGED = ("O[S=6*m+c] = I[m,c]", "O[m] += I[S=m+6*c] * F[c]", "O[S=m+7*c] = I[S=m+7*c]")


def machine(pick: Random) -> dict[str, Any]:
    """Two memories or three, and a fanout or a toll at times."""
    nodes = [
        memory("DRAM", 64, "inf", 16),
        memory("GLB", 4, pick.choice((24, 48, 160)), 32, read_first=pick.random() < 0.2),
    ]
    if pick.random() < 0.4:
        nodes.append(memory("RF", 1, pick.choice((16, 48)), 64, tensors={"may_keep": "Outputs"}))
    wire = {"type": "Toll", "name": "Wire", "actions": memory("", 3, 0, 24)["actions"]}
    dims = {"name": "X", "fanout": 2, "broadcast_partials": pick.random() < 0.5}
    link = {"energy_per_bit_hop": 2, "topology": "bus"}
    linked = {**dims, "link": link} if pick.random() < 0.3 else dims
    pes = {"type": "Container", "name": "PE", "spatial": [linked]}
    if pick.random() < 0.7:
        nodes.insert(pick.randint(1, len(nodes)), pick.choice((pes, pes, wire)))
    rate = {"name": "compute", "energy": 2, "throughput": 8}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    return {"nodes": nodes, "assume_overlap": pick.random() < 0.8}


def spec_of(pick: Random, einsums: Sequence[str]) -> pm.Spec:
    text = pick.choice(einsums)
    shape = {v: f"0 <= {v} < {pick.choice((2, 3, 4, 6))}" for v in "mcpr" if v in text}
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    return pm.load({"schema_version": 1, "workload": work, "arch": machine(pick)})


def small(pick: Random, most: int, einsums: Sequence[str] = EINSUMS) -> pm.Spec:
    while True:
        spec = spec_of(pick, einsums)
        if 20 < Listed(spec).size() < most:
            return spec


def test_the_front_is_that_of_all_mappings() -> None:
    assert check(small(Random(6), 40)) > 10


@pytest.mark.slow
def test_the_fronts_of_many_spaces() -> None:
    pick = Random(23)
    assert sum(check(small(pick, 400)) for _ in range(30)) > 1000


def test_the_front_where_one_rank_is_read_twice_is_that_of_all_mappings() -> None:
    assert check(small(Random(3), 60, IMAGES)) > 10


@pytest.mark.slow
def test_the_fronts_of_many_spaces_where_one_rank_is_read_twice() -> None:
    pick = Random(5)
    assert sum(check(small(pick, 400, IMAGES)) for _ in range(60)) > 2000


def test_the_front_where_variables_number_the_elements_of_a_rank_is_that_of_all_mappings() -> None:
    assert check(small(Random(9), 60, MERGED)) > 10


@pytest.mark.slow
def test_the_fronts_of_many_spaces_where_variables_number_the_elements_of_a_rank() -> None:
    pick = Random(31)
    assert sum(check(small(pick, 400, MERGED)) for _ in range(60)) > 2000


def kept(sizes: dict[str, int], einsums: Sequence[object], **more: object) -> pm.Spec:
    """Two Einsums on a buffer of 64 bits."""
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, 64, 32)]
    nodes.append(
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 8}]}
    )
    work = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": einsums, **more}
    return pm.load({"workload": work, "arch": {"nodes": nodes}})


@pytest.mark.parametrize("ranks", [{"T": "t", "J": "j"}, {"S": "4*j + t"}])
def test_copies_read_what_they_write(ranks: dict[str, str]) -> None:
    out: dict[str, object] = {"name": "D", "projection": ranks, "output": True}
    copy = {
        "name": "D",
        "is_copy_operation": True,
        "tensor_accesses": [{"name": "N", "projection": ["t"]}, out],
    }
    copy["iteration_space_shape"] = ["0 <= t < 4", "0 <= j < 2"]
    spec = kept({"T": 4}, ["N[t] = X[t]", copy])
    (best,) = pm.explore(spec, objectives="energy", constraints={"fuse": "N"})
    moved = best.report.accesses.set_index(["einsum", "tensor"])
    assert moved.read_elements["D", "N"] == moved.write_elements["D", "D"] == 8


@pytest.mark.parametrize("times", [1, 3])
def test_persistent_intermediates_are_handed_on_in_the_backing_storage(times: int) -> None:
    einsums = [
        {"name": n, "n_instances": times, "tensor_accesses": [{"name": i, "projection": ["t", "j"]}, out]}
        for n, i in (("K", "X"), ("Z", "K"))
        for out in [{"name": n, "projection": ["t", "j"], "output": True}]
    ]
    for persistent, fused in ((None, ("K",)), (["K"], ())):
        spec = kept({"T": 4, "J": 2}, einsums, **({"persistent_tensors": persistent} if persistent else {}))
        assert {p.fused for p in pm.explore(spec, objectives="energy")} == {fused}
    with faults("conflicting-arguments", at="constraints.fuse"):
        pm.explore(spec, constraints={"fuse": "K"})
