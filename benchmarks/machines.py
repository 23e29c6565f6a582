"""Co-design of many machines, beside the search of one of them, and beside searches one by one: ours, and
those of AccelForge's mapper."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import polymodel as pm
from benchmarks.accelforge_peer import VERSION, NotInstalled
from benchmarks.explored import Ran, searched_by_peer
from benchmarks.rows import Row, cpu_seconds
from benchmarks.tpu_like import SINGLE, peer_spec
from polymodel.importers.onnx import import_onnx
from polymodel.pareto import undominated
from tests.importers.onnx_networks import resnet

SIZES = [4 * i for i in range(1, 33)]
Array = Any
ROUNDING = 1e-9
ENERGY = ("energy", "latency", "area")
EIGHT = {"KIB": [4, 8, 16, 32], "BW": [4, 32]}
PEER_SECONDS = 1200  # the peer's limit on eight searches
# Our own space, in the peer's words: what is fused is handed on in the buffer.
FUSED_IN = pm.Limits(exchange=frozenset({"GLB"}))
SETTINGS = {
    "max_fused_loops": "inf", "max_fused_loops_per_rank_variable": 1, "force_memory_hierarchy_order": True,
    "explore_imperfect_temporal_loops": False, "explore_imperfect_spatial_loops": False,
}  # fmt: skip


def machine() -> dict[str, Any]:
    """DRAM of BW Gb/s, a buffer of KIB whose price follows its size, and an array of 16."""

    def priced(energy: str, rate: float | str) -> list[dict[str, Any]]:
        return [{"name": way, "energy": energy, "throughput": rate} for way in ("read", "write")]

    # With the policy for refilled partial sums that AccelForge has.
    row = [{"name": "X", "fanout": 16, "may_reuse": "All", "broadcast_partials": True}]
    unit = [{"name": "compute", "energy": 0.3e-12, "throughput": 1e9}]
    tensors = {"keep": "~Intermediates", "may_keep": "All"}
    nodes = [
        {"type": "Memory", "name": "DRAM", "tensors": tensors, "actions": priced("20e-12", "1e9 * BW")},
        {
            "type": "Memory", "name": "GLB", "size": "8192 * KIB", "area": "2e-9 * KIB",
            "actions": priced("0.05e-12 * sqrt(KIB)", 256e9),
        },
        {"type": "Container", "name": "PE", "spatial": row},
        {"type": "Compute", "name": "MAC", "actions": unit},
    ]  # fmt: skip
    return {"symbols": {"KIB": 64, "BW": 64}, "arch": {"nodes": nodes}}


def network() -> pm.Spec:
    """ResNet-18 from ONNX on that machine: 32 Einsums, 19 of them unlike each other."""
    graph = resnet((2, 2, 2, 2), deep=False)
    with TemporaryDirectory() as folder:
        result = import_onnx(graph, bits=8, padding="stored").save(Path(folder) / "resnet_18.yaml")
        return pm.load(result, machine())


def spent(spec: pm.Spec, sizes: list[int], **options: Any) -> tuple[float, pm.Codesign]:
    """CPU seconds of a co-design over these sizes of the buffer, and its answer."""
    start = time.process_time()
    result = pm.codesign(spec, {"KIB": sizes}, objectives=ENERGY, **options)
    return time.process_time() - start, result


def points(found: pm.Codesign) -> Array:
    """The figures of a front, a row per point."""
    return np.array([[p.value(o) for o in ENERGY] for p in found])


Values = tuple[int, ...]


def looped(spec: pm.Spec, hardware: dict[str, list[int]]) -> dict[Values, Ran]:
    """Our search of each machine after the other: CPU seconds, and energy and latency of its points."""
    result = {}
    for values in product(*hardware.values()):
        bound = spec.bind(**dict(zip(hardware, values, strict=True)))
        start, wall = time.process_time(), time.perf_counter()
        front = pm.explore(bound, objectives=ENERGY[:2])
        spent = time.process_time() - start, time.perf_counter() - wall
        result[values] = Ran(*spent, tuple(p.values for p in front))
    return result


def looped_by_peer(spec: pm.Spec, hardware: dict[str, list[int]]) -> dict[Values, Ran]:
    """The same of AccelForge's mapper, all machines in one process; raises NotInstalled."""
    every = list(product(*hardware.values()))
    bound = (spec.bind(**dict(zip(hardware, values, strict=True))) for values in every)
    ran = searched_by_peer(list(map(told, bound)), ENERGY[:2], SETTINGS, PEER_SECONDS)
    return dict(zip(every, ran, strict=True))


def told(spec: pm.Spec) -> str:
    """A machine and its workload in AccelForge's YAML."""
    return peer_spec(spec, FUSED_IN)


def better(found: pm.Codesign, loop: dict[Values, Ran], close: float) -> list[str]:
    """The machines on which a loop finds what beats a co-design: an energy or latency below the least ones
    there, or a point that, with the machine's area, no point of the joint front is as good as."""
    faults, joint = [], points(found)
    rows = found.machines.set_index(list(EIGHT))
    for values, ran in loop.items():
        row = rows.loc[values]
        least = [min(v[k] for v in ran.values) for k in range(2)]
        told = [float(row[f"least {name}"]) for name in ENERGY[:2]]
        every = np.array([[*v, row["area"]] for v in ran.values])
        lower = any(mine > other * (1 + close) for mine, other in zip(told, least, strict=True))
        if lower or not no_worse(joint, every, close):
            faults.append(f"{values}: least energy and latency {least}, ours {told}")
    return faults


def raced(name: str, spec: pm.Spec) -> tuple[dict[str, Row], list[str]]:
    """Eight machines at once, beside a loop over our own search and one over AccelForge's mapper; and what
    either loop finds that is better."""
    start = time.process_time()
    found = pm.codesign(spec, EIGHT, objectives=ENERGY)
    at_once = time.process_time() - start
    mine = looped(spec, EIGHT)
    faults = better(found, mine, ROUNDING)
    shown = f"co-design of 8 machines, {name}, beside a loop over"
    said = f"joint front: {len(found)} points, searches: {found.searches}"
    own = cpu_seconds(at_once, sum(ran.cpu for ran in mine.values()), f"our own explore; {said}")
    try:
        theirs = looped_by_peer(spec, EIGHT)
    except NotInstalled as fault:
        said = f"AccelForge {VERSION}: not installed ({fault})"
        return {f"{shown} explore": own, f"{shown} AccelForge": cpu_seconds(at_once, None, said)}, faults
    worse = better(found, theirs, SINGLE)
    said = f"AccelForge {VERSION}, the same 8 machines one by one, of which {len(worse)} beat ours"
    peer = cpu_seconds(at_once, sum(ran.cpu for ran in theirs.values()), said)
    faults += [f"{name}, AccelForge on (KIB, BW) = {fault}" for fault in worse]
    return {f"{shown} explore": own, f"{shown} AccelForge": peer}, faults


def no_worse(these: Array, others: Array, close: float = ROUNDING) -> bool:
    """Whether each of the others has one here that is nowhere above it, rounding aside."""
    return bool((these[:, None] <= others[None] * (1 + close)).all(axis=2).any(axis=0).all())


def machines() -> tuple[dict[str, Row], list[str]]:
    """32 sizes of a buffer whose prices follow its size: the joint front is that of 32 searches. So it is of
    numbers of instances. And 8 machines beside loops over machines, with what these find that is better."""
    layer = pm.load("conv2d", machine())
    spent(layer, [64])  # what is loaded and remembered is not part of it
    one, _ = spent(layer, [64])
    together, joint = spent(layer, SIZES)
    each = [spent(layer, [size]) for size in SIZES]
    every = np.concatenate([points(found) for _, found in each])
    assert no_worse(points(joint), every)
    assert no_worse(every[undominated(every.T)], points(joint))
    whole = network()
    alone, _ = spent(whole, [64], layer_by_layer=True)
    several, _ = spent(whole, SIZES, layer_by_layer=True)
    name = "co-design of 32 sizes of a buffer"
    rows = {
        f"{name}, conv2d, beside one size": cpu_seconds(together, one, "one size"),
        f"{name}, conv2d, beside searches one by one": cpu_seconds(
            together, sum(took for took, _ in each), "32 searches"
        ),
        f"{name}, ResNet-18 from ONNX, beside one size": cpu_seconds(several, alone, "one size"),
    }
    rows |= fanouts()
    faults: list[str] = []
    for shown, spec in raced_specs(machine()).items():
        more, worse = raced(shown, spec)
        rows |= more
        faults += worse
    return rows, faults


def array() -> dict[str, Any]:
    """The machine with an array of F x G in place of its row."""
    result = machine()
    (row,) = result["arch"]["nodes"][2]["spatial"]
    result["arch"]["nodes"][2]["spatial"] = [
        {**row, "name": name, "fanout": size} for name, size in {"X": "F", "Y": "G"}.items()
    ]
    return {**result, "symbols": {**result["symbols"], "F": 16, "G": 1}}


def fanouts() -> dict[str, Row]:
    """Machines of several fanouts at once, beside searches one by one: the joint front is theirs."""
    row, several = [1, 4, 8, 16, 32], [4, 8, 16, 32]
    work: dict[str, tuple[pm.Spec, dict[str, list[int]]]] = {
        "5 rows, conv2d": (pm.load("conv2d", array()), {"F": row}),
        "5 rows, two fused matmuls": (raced_specs(array())["two matmuls"], {"F": row}),
        "16 arrays, a matmul of 128^3": (
            raced_specs(array())["a matmul of 128^3"],
            {"F": several, "G": several},
        ),
    }
    result = {}
    for name, (spec, hardware) in work.items():
        start = time.process_time()
        found = pm.codesign(spec, hardware, objectives=ENERGY)
        at_once = time.process_time() - start
        each = [
            pm.codesign(spec, dict(zip(hardware, ([v] for v in values), strict=True)), objectives=ENERGY)
            for values in product(*hardware.values())
        ]
        apart = time.process_time() - start - at_once
        every = np.concatenate([points(one) for one in each])
        assert no_worse(points(found), every)
        assert no_worse(every[undominated(every.T)], points(found))
        told = f"{len(each)} searches; at once: {found.searches}"
        result[f"co-design of {name}, beside searches one by one"] = cpu_seconds(at_once, apart, told)
    return result


def raced_specs(machine: dict[str, Any]) -> dict[str, pm.Spec]:
    """A matmul, and two that may be fused."""
    matmul = pm.load("matmul", machine, M=128, N=128, K=128)
    chain = pm.load("matmul_chain_2", machine, M=256, N0=128, N1=128, N2=128)
    return {"a matmul of 128^3": matmul, "two matmuls": chain}
