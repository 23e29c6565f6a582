"""Einsums that read one tensor several times: the union of their images fills once, each access reads."""

from __future__ import annotations

from collections import Counter

import pytest

import polymodel as pm
from tests.analysis.test_agreement import assert_few_refusals
from tests.analysis.unchecked import engines_and_gate_agree
from tests.faults import faults
from tests.generators import lawless
from tests.support.small_specs import leaf, loop, memory, product, spread, storage, unit
from tests.workloads import several_access_forms

ENGINES = ("enumerate", "exact", "auto")


def evaluated(workload: object, *nodes: object, engine: str, fanout: int = 0, **dims: object) -> pm.Report:
    """The report of a small problem with a DRAM, a buffer and one multiplier (or a row of them)."""
    pes = [{"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": fanout, **dims}]}]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), *(pes if fanout else []), unit()]}
    mapping = {"nodes": list(nodes)}
    return pm.evaluate(pm.load({"arch": arch, "workload": workload, "mapping": mapping}), engine=engine)


def moved(report: pm.Report, tensor: str) -> dict[str, tuple[int, int, int, int]]:
    """Component -> fills and drains read, fills and drains written, in elements, for all Einsums."""
    found: dict[str, tuple[int, int, int, int]] = {}
    for t in (t for t in report.analysis.traffic if t.tensor == tensor):
        a, b, c, d = found.get(t.component, (0, 0, 0, 0))
        found[t.component] = (a + t.reads_fill, b + t.reads_drain, c + t.writes_fill, d + t.writes_drain)
    return found


STENCIL = {
    "rank_sizes": {"X": 10},
    "bits_per_value": {"All": 8},
    "einsums": ["Z[X=x] = A[X=x-1] + A[X=x+1]"],
}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_stencil_fills_the_union_of_its_accesses_and_reads_each(engine: str) -> None:
    """8 iterations in tiles of 4: the buffer is filled with 6 elements twice, and read twice each time."""
    report = evaluated(
        STENCIL, storage("DRAM", "A", "Z"), loop("x", 4), storage("GLB", "A", "Z"), leaf("Z"), engine=engine
    )
    assert moved(report, "A") == {"DRAM": (12, 0, 0, 0), "GLB": (16, 0, 12, 0)}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_window_slides_over_all_accesses(engine: str) -> None:
    """Of the span x-1..x+1 two elements are touched; with tiles of 1 none of them stays."""
    nodes = [storage("DRAM", "A", "Z"), loop("x", 1), storage("GLB", "A", reuse="slide"), leaf("Z")]
    report = evaluated(STENCIL, *nodes, engine=engine)
    assert moved(report, "A") == {"DRAM": (16, 0, 0, 0), "GLB": (16, 0, 16, 0)}
    nodes[1] = loop("x", 2)
    report = evaluated(STENCIL, *nodes, engine=engine)
    assert moved(report, "A") == {"DRAM": (10, 0, 0, 0), "GLB": (16, 0, 10, 0)}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_square_reads_its_operand_twice(engine: str) -> None:
    workload = {**product(), "rank_sizes": {"M": 4}, "einsums": ["Z[m] = A[m] * A[m]"]}
    report = evaluated(
        workload, storage("DRAM", "A", "Z"), loop("m", 2), storage("GLB", "A"), leaf("Z"), engine=engine
    )
    assert moved(report, "A") == {"DRAM": (4, 0, 0, 0), "GLB": (8, 0, 4, 0)}
    assert report.analysis.compute[0].operations == 4


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_gram_matrix_shares_its_diagonal(engine: str) -> None:
    """Z[m, n] = A[m, k] A[n, k] in 2 x 2 tiles: on the diagonal both accesses touch the same two rows."""
    workload = {
        "rank_sizes": {"M": 4, "K": 3, "P": 4, "Q": 4},
        "bits_per_value": {"All": 8},
        "einsums": ["Z[P=m, Q=n] = A[M=m, k] * A[M=n, k]"],
    }
    nodes = [storage("DRAM", "A", "Z"), loop("m", 2), loop("n", 2), storage("GLB", "A"), leaf("Z")]
    report = evaluated(workload, *nodes, engine=engine)
    assert moved(report, "A") == {"DRAM": (6 + 12 + 12 + 6, 0, 0, 0), "GLB": (2 * 48, 0, 36, 0)}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_tiles_in_tiles_hold_the_union(engine: str) -> None:
    """Two loops over x above the buffer: tiles of 2 iterations touch 4 different elements."""
    nodes = [storage("DRAM", "A", "Z"), loop("x", 4), loop("x", 2), storage("GLB", "A"), leaf("Z")]
    report = evaluated(STENCIL, *nodes, engine=engine)
    assert moved(report, "A") == {"DRAM": (16, 0, 0, 0), "GLB": (16, 0, 16, 0)}
    (held,) = (b for b in report.analysis.buffets if (b.component, b.tensor) == ("GLB", "A"))
    assert (held.tile_max, held.tile_total) == (4, 16)


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_instances_share_within_one_access(engine: str) -> None:
    """Four instances side by side: each access is read in its own right, though their windows overlap."""
    nodes = [storage("DRAM", "A", "Z"), storage("GLB", "A"), spread("x", 2), leaf("Z")]
    report = evaluated(STENCIL, *nodes, engine=engine, fanout=4, may_reuse="A")
    assert moved(report, "A")["GLB"] == (16, 0, 10, 0)


def test_a_tensor_is_written_once_by_an_einsum() -> None:
    accesses = [
        {"name": "A", "projection": ["m"]},
        {"name": "Z", "projection": ["m"], "output": True},
        {"name": "Z", "projection": {"M": "m + 1"}, "output": True},
    ]
    workload = {**product(), "einsums": [{"name": "E", "tensor_accesses": accesses}]}
    with faults("invalid-einsum", at="workload.einsums[0].tensor_accesses[2].name"):
        pm.load({"workload": workload})


def run_many(count: int, simple: bool = False) -> Counter[str]:
    """Compare the engines, and the gate with the referee, on generated problems."""
    return engines_and_gate_agree(lawless(simple=simple, given=several_access_forms()), count)


def test_engines_agree_where_a_tensor_is_read_several_times() -> None:
    tally = run_many(20)
    assert_few_refusals(tally, 0.05)


@pytest.mark.slow
def test_engines_agree_where_a_tensor_is_read_several_times_at_length() -> None:
    tally = run_many(3_000)
    assert_few_refusals(tally, 0.01)
    assert tally["closed forms"] > 100
