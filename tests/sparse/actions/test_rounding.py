"""What cannot be is exactly none: no count is a difference of roundings, at tiny densities and at 1."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.report.sparse import SparseReport
from polymodel.sparse.actions.records import ROUNDING, at_most
from tests.sweep.test_sparse import spec

ON_A = [{"skip": "B", "on": "A"}]
MACHINES: dict[str, dict[str, Any]] = {
    "skip": {"dram": {"actions": ON_A}, "mac": {"actions": [{"skip": "compute", "on": ["A", "B"]}]}},
    "gate": {
        "glb": {"actions": [{"gate": "B", "on": "A"}]},
        "dram": {"format": {"A": "CSR"}, "actions": ON_A},
    },
    "both": {"mac": {"actions": [{"skip": "compute", "on": "A"}, {"gate": "compute", "on": ["A", "B"]}]}},
}
DENSITIES = [(1, 1), (0.012, 1), (1, 0.02), (0.012, 0.02), (0.99, 0.98), (0.5, 1 / 3)]


def states(report: SparseReport) -> list[tuple[str, float, int]]:
    found: list[tuple[str, float, int]] = []
    for c in report.counts.compute:
        found += [(k, getattr(c, k), c.dense) for k in ("effectual", "ineffectual", "gated", "skipped")]
    for a in report.counts.accesses:
        found += [(k, getattr(a, k), a.dense) for k in ("actual", "gated", "skipped", "absent")]
    return found


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("densities", DENSITIES)
@pytest.mark.thin(7)
def test_no_count_is_a_rounding(machine: str, densities: tuple[float, float]) -> None:
    a, b = densities
    found = spec(**copy.deepcopy(MACHINES[machine]), densities={"A": a, "B": b})
    for tiles in ((4, 2, 7), (12, 8, 1), (3, 5, 4)):
        report = pm.sparsify(pm.evaluate(found.bind(**dict(zip(("TM", "TN", "TK"), tiles, strict=True)))))
        for state, number, dense in states(report):
            assert number == 0 or number > ROUNDING * dense, state
            if min(densities) == 1 and state not in ("effectual", "actual"):
                assert number == 0, state
        if b == 1 and machine == "both":
            assert all(c.gated == c.ineffectual == 0 for c in report.counts.compute)


@pytest.mark.parametrize(
    ("machine", "densities", "sizes", "tiles"),
    [
        ("skip", (0.8532697064189038, 1), (48, 64, 12), (33, 41, 11)),
        ("skip", (0.9109877835080679, 0.6002088301322496), (12, 24, 24), (6, 11, 11)),
        ("gate", (0.4747057400705695, 0.0751993881491213), (24, 48, 48), (8, 10, 14)),
    ],
)
def test_tiles_that_are_never_empty_are_never_skipped(
    machine: str, densities: tuple[float, float], sizes: tuple[int, int, int], tiles: tuple[int, int, int]
) -> None:
    """Chances of full tiles are 1 but for rounding."""
    a, b = densities
    found = spec(**copy.deepcopy(MACHINES[machine]), densities={"A": a, "B": b}, sizes=sizes)
    tm, tn, tk = tiles
    for state, number, dense in states(pm.sparsify(pm.evaluate(found.bind(TM=tm, TN=tn, TK=tk)))):
        assert number == 0 or number > ROUNDING * dense, state


def test_at_density_one_a_sweep_gives_the_dense_figures() -> None:
    found = spec(**copy.deepcopy(MACHINES["both"]), densities={"A": 1, "B": 1})
    objectives = ("sparse_energy", "sparse_latency")
    table = pm.sweep(found, {"TM": [3, 12], "TN": [8], "TK": [7]}, objectives=objectives, keep="all").frame
    assert (table["sparse_latency"] == table["latency"]).all()
    assert np.allclose(table["sparse_energy"], table["energy"], rtol=1e-14)


def test_roundings_of_sums_are_no_difference() -> None:
    """Sums of chances that should be the whole miss it by some units in the last place."""
    whole = 4096 * 3
    part = math.nextafter(whole, 0)
    assert 0 < whole - part < 1e-11
    assert at_most(part, whole) == whole
    assert at_most(whole * (1 - 1e-12), whole) < whole
    assert at_most(10**17 - 1, 10**17) == 10**17 - 1
    assert at_most(np.array([part, 5.0, whole + 1]), whole).tolist() == [whole, 5.0, whole]
