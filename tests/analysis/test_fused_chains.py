"""Chains of convolutions fused over rows, or rows and columns: what each still needs of the map before stays.

All maps share their coordinates: E_i writes point (p, q) of T_{i+1} from (p-2..p, q-2..q) of T_i, so no
producer has to run ahead. The first tile is so large that the last Einsum has its first point in it.
"""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.result import Engine, Problem
from tests.analysis.test_agreement import differences

EXACT: Engine = exact_engine


def _einsum(i: int, size: int) -> dict[str, Any]:
    low = 2 * (i + 1)
    return {
        "name": f"E{i}",
        "iteration_space_shape": [f"{low} <= p < {size}", f"{low} <= q < {size}"],
        "tensor_accesses": [
            {"name": f"T{i}", "projection": {"C": "c", "H": "p - r", "W": "q - s"}},
            {"name": f"F{i}", "projection": {"M": "m", "C": "c", "R": "r", "S": "s"}},
            {"name": f"T{i + 1}", "projection": {"C": "m", "H": "p", "W": "q"}, "output": True},
        ],
    }


def _storage(component: str, tensors: list[str], reuse: str = "refill") -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": tensors, "reuse": reuse}


def _loop(variable: str, tile: int, count: int) -> dict[str, Any]:
    first = tile + 2 * (count - 1)
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile, "initial_tile_shape": first}


def chain(
    count: int, size: int, channels: int, reuse: str, *, tile: int = 1, columns: bool = False
) -> pm.Spec:
    """`count` 3 x 3 convolutions; with `columns` fused over columns too, with a buffer for each."""
    maps = ["T0", *(f"T{i}" for i in range(1, count))]
    fused = [_loop("p", tile, count), _storage("GLB", maps, reuse)]
    if columns:
        fused += [_loop("q", tile, count), _storage("L1", maps, reuse)]
    branches = []
    for i in range(count):
        inner = {"type": "Temporal", "rank_variable": "m", "tile_shape": min(16, channels)}
        leaf = {"type": "Compute", "einsum": f"E{i}", "component": "MAC"}
        branches.append({"type": "Nested", "nodes": [inner, leaf]})
    memories = [{"type": "Memory", "name": name, "size": "inf"} for name in ("DRAM", "GLB", "L1")]
    sizes = {"C": channels, "M": channels, "H": size, "W": size, "R": 3, "S": 3}
    weights = [f"F{i}" for i in range(count)]
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*memories, {"type": "Compute", "name": "MAC"}]},
            "workload": {
                "rank_sizes": sizes,
                "bits_per_value": {"All": 8},
                "einsums": [_einsum(i, size) for i in range(count)],
            },
            "mapping": {
                "nodes": [
                    _storage("DRAM", ["T0", *weights, f"T{count}"]),
                    _storage("GLB", weights),
                    *fused,
                    _storage("L1" if columns else "GLB", [f"T{count}"]),
                    {"type": "Sequential", "nodes": branches},
                ]
            },
        }
    )


def _problem(spec: pm.Spec) -> Problem:
    return Problem(spec.workload, spec.arch, spec.mapping)


@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
@pytest.mark.parametrize(
    ("count", "size", "channels", "tile", "columns"),
    [
        (2, 7, 2, 1, False),
        (4, 11, 1, 1, False),
        (3, 10, 1, 3, False),
        (2, 8, 1, 1, True),
        (3, 10, 1, 2, True),
    ],
)
@pytest.mark.thin(99)
def test_fused_chains_agree_with_the_referee(
    count: int, size: int, channels: int, tile: int, columns: bool, reuse: str
) -> None:
    given = _problem(chain(count, size, channels, reuse, tile=tile, columns=columns))
    assert not differences(EXACT.analyse(given, live=True), REFEREE.analyse(given, live=True))


@pytest.mark.slow
@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
def test_eight_fused_convolutions(reuse: str) -> None:
    """Real sizes: 1.4e10 operations. The peak is in the first tile, when the last Einsum runs."""
    found = EXACT.analyse(_problem(chain(8, 224, 64, reuse)))
    peaks = {(w.einsum, w.component): w.bits for w in found.working_sets if w.measure == "tile"}
    maps = sum((17 - 2 * i) * (224 - 2 * i) for i in range(8)) + (224 - 16)
    assert peaks["E7", "GLB"] == 8 * (8 * 64 * 64 * 9 + 64 * maps)
    operations = [c.operations for c in found.compute]
    assert operations == [64 * 64 * 9 * (224 - 2 * i) ** 2 for i in range(1, 9)]
    # Every row of the input is fetched once, and no intermediate goes to DRAM.
    dram = {t.tensor: t.reads + t.writes for t in found.traffic if t.component == "DRAM"}
    assert dram["T0"] == 64 * 224 * 224
    assert set(dram) == {"T0", "T8", *(f"F{i}" for i in range(8))}
