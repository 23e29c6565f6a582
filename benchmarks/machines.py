"""Co-design of many machines, beside the search of one of them, and beside searches one by one."""

from __future__ import annotations

import time
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, cpu_seconds

SIZES = [8 * i for i in range(1, 33)]
ENERGY = ("energy", "latency", "area")


def machine() -> dict[str, Any]:
    """DRAM, a buffer of KIB whose price follows its size, and an array of 16."""

    def priced(energy: str, rate: float) -> list[dict[str, Any]]:
        return [{"name": way, "energy": energy, "throughput": rate} for way in ("read", "write")]

    row = [{"name": "X", "fanout": 16, "may_reuse": "All"}]
    unit = [{"name": "compute", "energy": 0.3e-12, "throughput": 1e9}]
    tensors = {"keep": "~Intermediates", "may_keep": "All"}
    nodes = [
        {"type": "Memory", "name": "DRAM", "tensors": tensors, "actions": priced("20e-12", 64e9)},
        {
            "type": "Memory", "name": "GLB", "size": "8192 * KIB", "area": "2e-9 * KIB",
            "actions": priced("0.1e-12 * sqrt(KIB)", 256e9),
        },
        {"type": "Container", "name": "PE", "spatial": row},
        {"type": "Compute", "name": "MAC", "actions": unit},
    ]  # fmt: skip
    return {"symbols": {"KIB": 64}, "arch": {"nodes": nodes}}


def spent(sizes: list[int], **options: Any) -> tuple[float, pm.Codesign]:
    """CPU seconds of a co-design of one layer over these sizes of the buffer, and its answer."""
    spec = pm.load("conv2d", machine())
    start = time.process_time()
    found = pm.codesign(spec, {"KIB": sizes}, objectives=ENERGY, **options)
    return time.process_time() - start, found


def machines() -> dict[str, Row]:
    """32 sizes of a buffer whose prices follow its size: the joint front is that of 32 searches."""
    spent([64])  # what is loaded and remembered is no part of it
    one, _ = spent([64])
    together, joint = spent(SIZES)
    apart = 0.0
    points: set[tuple[float, ...]] = set()
    for size in SIZES:
        took, found = spent([size])
        apart += took
        points |= {tuple(p.value(o) for o in ENERGY) for p in found}
    for p in joint:
        mine = tuple(p.value(o) for o in ENERGY)
        assert any(all(abs(a - b) <= 1e-9 * b for a, b in zip(mine, q, strict=True)) for q in points)
    name = "co-design of 32 sizes of a buffer, conv2d"
    return {
        f"{name}, beside one size": cpu_seconds(together, one, "one size"),
        f"{name}, beside searches one by one": cpu_seconds(together, apart, "32 searches"),
    }
