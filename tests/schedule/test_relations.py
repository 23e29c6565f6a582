"""Iteration spaces, accesses and schedules as a reader sees them."""

from __future__ import annotations

import islpy as isl
import pytest

from polymodel.loading import load
from polymodel.mapping.looptree import ComputeNode, LoopTree
from tests.faults import refused

EXAMPLE = {
    "workload": {
        "rank_sizes": {"M": 10, "K": 4, "N": 6},
        "bits_per_value": {"All": 8},
        "einsums": ["Y[m, n] = A[m, k] * B[k, n]"],
    },
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "size": "inf", "actions": []},
            {"type": "Compute", "name": "MAC", "actions": []},
        ]
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Y"]},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": 4, "initial_tile_shape": 3},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": 1},
            {"type": "Temporal", "rank_variable": "n", "tile_shape": 5},
            {"type": "Compute", "einsum": "Y", "component": "MAC"},
        ]
    },
}


def test_iteration_space_and_access_print_as_isl() -> None:
    einsum = load(EXAMPLE).workload["Y"]
    assert einsum.iteration_space.is_equal(
        isl.Set("{ Y[m, n, k] : 0 <= m < 10 and 0 <= n < 6 and 0 <= k < 4 }")
    ) or einsum.iteration_space.is_equal(
        isl.Set("{ Y[m, k, n] : 0 <= m < 10 and 0 <= n < 6 and 0 <= k < 4 }")
    )
    assert "A[" in str(einsum.access("A"))
    with pytest.raises(KeyError):
        einsum.access("Q")


def test_schedule_puts_every_iteration_into_its_tile() -> None:
    spec = load(EXAMPLE)
    assert spec.mapping is not None
    theta = spec.mapping.schedule("Y")
    names = [theta.get_dim_name(isl.dim_type.out, i) for i in range(theta.dim(isl.dim_type.out))]
    assert names == ["m_0", "m_1", "n_0"]
    assert theta.is_single_valued()
    assert theta.domain().is_equal(spec.workload["Y"].iteration_space)
    # 10 rows from a first tile of 3, then tiles of 4: rows 0-2, 3-6, 7-9
    order = spec.workload["Y"].rank_variables
    point = {"m": 8, "n": 5, "k": 1}
    text = ", ".join(str(point[v]) for v in order)
    stamp = isl.Set(f"{{ Y[{text}] }}").apply(theta)
    assert stamp.is_equal(isl.Set("{ [2, 1, 1] }"))


def test_a_tree_without_workload_says_where_to_get_one() -> None:
    with refused("missing-section"):
        LoopTree((ComputeNode("Y", "MAC"),)).schedule("Y")
