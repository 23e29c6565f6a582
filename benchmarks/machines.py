"""Co-design of many machines, beside the search of one of them, and beside searches one by one."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, cpu_seconds
from polymodel.importers.onnx import import_onnx
from polymodel.pareto import undominated
from tests.importers.onnx_networks import resnet

SIZES = [4 * i for i in range(1, 33)]
Array = Any
ROUNDING = 1e-9
ENERGY = ("energy", "latency", "area")


def machine() -> dict[str, Any]:
    """DRAM of BW Gb/s, a buffer of KIB whose price follows its size, and an array of 16."""

    def priced(energy: str, rate: float | str) -> list[dict[str, Any]]:
        return [{"name": way, "energy": energy, "throughput": rate} for way in ("read", "write")]

    row = [{"name": "X", "fanout": 16, "may_reuse": "All"}]
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
        found = import_onnx(graph, bits=8, padding="stored").save(Path(folder) / "resnet_18.yaml")
        return pm.load(found, machine())


def spent(spec: pm.Spec, sizes: list[int], **options: Any) -> tuple[float, pm.Codesign]:
    """CPU seconds of a co-design over these sizes of the buffer, and its answer."""
    start = time.process_time()
    found = pm.codesign(spec, {"KIB": sizes}, objectives=ENERGY, **options)
    return time.process_time() - start, found


def points(found: pm.Codesign) -> Array:
    """The figures of a front, a row per point."""
    return np.array([[p.value(o) for o in ENERGY] for p in found])


def looped(spec: pm.Spec, hardware: dict[str, list[int]]) -> tuple[float, Array]:
    """CPU seconds of an exploration of each machine after the other, and the figures of all their points. It
    stands for a mapper in a loop over machines where no other one is at hand."""
    start = time.process_time()
    rows = []
    for values in product(*hardware.values()):
        bound = spec.bind(**dict(zip(hardware, values, strict=True)))
        rows += [[p.value(o) for o in ENERGY] for p in pm.explore(bound, objectives=["energy", "latency"])]
    return time.process_time() - start, np.array(rows)


def no_worse(these: Array, others: Array) -> bool:
    """Whether each of the others has one here that is nowhere above it, rounding aside."""
    return bool((these[:, None] <= others[None] * (1 + ROUNDING)).all(axis=2).any(axis=0).all())


def machines() -> dict[str, Row]:
    """32 sizes of a buffer whose prices follow its size: the joint front is that of 32 searches."""
    layer = pm.load("conv2d", machine())
    spent(layer, [64])  # what is loaded and remembered is no part of it
    one, _ = spent(layer, [64])
    together, joint = spent(layer, SIZES)
    each = [spent(layer, [size]) for size in SIZES]
    every = np.concatenate([points(found) for _, found in each])
    assert no_worse(points(joint), every)
    assert no_worse(every[undominated(every.T)], points(joint))
    rates, eight = {"KIB": [4, 8, 16, 32], "BW": [32, 128]}, pm.load("conv2d", machine())
    start = time.process_time()
    front = points(pm.codesign(eight, rates, objectives=ENERGY))
    at_once = time.process_time() - start
    loop, found = looped(eight, rates)
    assert no_worse(front, found)
    whole = network()
    alone, _ = spent(whole, [64], layer_by_layer=True)
    several, _ = spent(whole, SIZES, layer_by_layer=True)
    name = "co-design of 32 sizes of a buffer"
    return {
        f"{name}, conv2d, beside one size": cpu_seconds(together, one, "one size"),
        f"{name}, conv2d, beside searches one by one": cpu_seconds(
            together, sum(took for took, _ in each), "32 searches"
        ),
        "co-design of 8 machines, conv2d, beside a loop over explore": cpu_seconds(
            at_once, loop, "a loop over our own explore"
        ),
        f"{name}, ResNet-18 from ONNX, beside one size": cpu_seconds(several, alone, "one size"),
    }
