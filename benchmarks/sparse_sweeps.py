"""Sparse figures of a whole grid, beside the same points evaluated one by one."""

from __future__ import annotations

from collections.abc import Sequence

import polymodel as pm
from benchmarks.rows import Row, clocked, rate

EVERY = ["A", "B", "Z"]
OBJECTIVES = ("sparse_energy", "sparse_latency")


def matmul(extent: int) -> pm.Spec:
    """A matmul on three memories with two tile levels along every rank variable; A is skipped."""
    sparse: Sequence[dict[str, object]] = (
        {"format": {"A": "CSR"}, "actions": [{"skip": "B", "on": "A"}]},
        {"format": {"A": "COO"}, "actions": [{"skip": "B", "on": "A"}, {"gate": "Z", "on": "A"}]},
        {},
    )
    rates = ((64.0, 1.0, "inf"), (2.0, 8.0, 8 * 4096), (0.2, 64.0, 8 * 512))
    memories = [
        {
            "type": "Memory", "name": name, "size": size, "sparse": rules,
            "actions": [{"name": way, "energy": joules, "throughput": rate} for way in ("read", "write")],
        }
        for name, (joules, rate, size), rules in zip(("DRAM", "SRAM", "Register"), rates, sparse, strict=True)
    ]  # fmt: skip
    loops = [
        [{"type": "Temporal", "rank_variable": v, "tile_shape": t} for v, t in zip("mnk", tiles, strict=True)]
        for tiles in (("TM1", "TN1", "TK1"), ("TM0", "TN0", "TK0"), (1, 1, 1))
    ]
    compute = {
        "type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 8}],
        "sparse": {"actions": [{"skip": "compute", "on": "A"}]},
    }  # fmt: skip
    stored = [
        {"type": "Storage", "component": name, "tensors": EVERY} for name in ("DRAM", "SRAM", "Register")
    ]
    nodes = [
        stored[0], *loops[0], stored[1], *loops[1], stored[2], *loops[2],
        {"type": "Compute", "einsum": "Z", "component": "MAC"},
    ]  # fmt: skip
    return pm.load(
        {
            "schema_version": 1,
            "symbols": {f"T{v}{level}": None for v in "MNK" for level in (0, 1)},
            "arch": {"nodes": [*memories, compute]},
            "workload": {
                "rank_sizes": dict.fromkeys("MNK", extent),
                "bits_per_value": {"All": 8},
                "densities": {"A": 0.02},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {"nodes": nodes},
        }
    )


def one_by_one(spec: pm.Spec, symbols: dict[str, list[int]], points: int = 40) -> float:
    """Points per second of a sparse report at each of some points."""
    few = {n: values[-2:] for n, values in symbols.items()}
    rows = pm.sweep(spec, dict(few), objectives=["energy"], keep="all").frame.head(points).to_dict("records")
    pm.sparsify(pm.evaluate(spec.bind(**{n: int(rows[0][n]) for n in few})))  # loads what it needs
    _, taken = clocked(
        lambda: [pm.sparsify(pm.evaluate(spec.bind(**{n: int(row[n]) for n in few}))) for row in rows]
    )
    return len(rows) / taken


def sparse_sweeps(grids: Sequence[tuple[int, str]] = ((64, "divisors"), (20, "all sizes"))) -> dict[str, Row]:
    """Divisors of every rank on two levels; and all tile sizes of a smaller matmul, most of them uneven."""
    result: dict[str, Row] = {}
    few = {f"T{v}{level}": [1, 2] for level in (1, 0) for v in "MNK"}
    pm.sweep(matmul(4), dict(few), objectives=OBJECTIVES)  # loads what it needs
    for extent, kind in grids:
        spec = matmul(extent)
        values = [d for d in range(1, extent + 1) if kind != "divisors" or extent % d == 0]
        symbols = {f"T{v}{level}": values for level in (1, 0) for v in "MNK"}
        sweep, taken = clocked(
            lambda spec=spec, symbols=symbols: pm.sweep(spec, dict(symbols), objectives=OBJECTIVES)
        )
        if sweep.notes:
            raise AssertionError(f"points were evaluated one by one: {sweep.notes}")
        name = f"sweep a sparse matmul of {extent}, three levels, {kind}, {sweep.evaluated:.2g} points"
        result[name] = rate(
            sweep.evaluated / taken, one_by_one(spec, symbols), "evaluate and sparsify in a loop"
        )
    return result
