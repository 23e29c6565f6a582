"""Things that were once silent or raised what no user expects: each is told now."""

from __future__ import annotations

import polymodel as pm
from tests.faults import faults


def test_an_unknown_einsum_of_a_ski_slope() -> None:
    with faults("unknown-choice", at="einsum"):
        pm.ski_slope(pm.load("matmul"), einsum="Matmul9")


ARCH = {
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "actions": [{"name": "read", "energy": 1e-12}]},
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]},
        ]
    }
}
WORK = {
    "workload": {
        "rank_sizes": {"M": 4, "K": 4, "N": 4},
        "bits_per_value": {"All": 8},
        "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
            {"type": "Compute", "einsum": "Z", "component": "MAC"},
        ]
    },
    "symbols": {"TM": 2},
}


def test_a_point_beyond_the_sweep() -> None:
    found = pm.sweep(pm.load(ARCH, WORK), {"TM": [1, 2]})
    with faults("unknown-name", at="row"):
        found.mapping_yaml(7)


def test_actions_without_energy_are_named_in_the_report() -> None:
    assert "DRAM write: no energy is given" in str(pm.evaluate(pm.load(ARCH, WORK)))


def test_text_given_as_a_mapping() -> None:
    """A text longer than a file name may be was once an OSError."""
    text = "mapping:\n" + 100 * "# no file has such a name\n"
    with faults("wrong-type", at=""):
        pm.load("matmul_chain_2", "simple_two_level").with_mapping(text)
