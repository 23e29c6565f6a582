"""Operations of which it is not known what they make of zeros: refused only where zeros reach them."""

from __future__ import annotations

import copy

import pytest

import polymodel as pm
from polymodel.errors import Refused

CHAIN = {
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"},
             "actions": [{"name": "read", "energy": 1e-12}, {"name": "write", "energy": 1e-12}]},
            {"type": "Memory", "name": "GLB", "size": "inf",
             "actions": [{"name": "read", "energy": 1e-13}, {"name": "write", "energy": 1e-13}]},
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-13}],
             "sparse": {"actions": [{"skip": "compute", "on": "Inputs"}]}},
        ]
    },
    "workload": {
        "rank_sizes": {"M": 4, "K": 5, "N": 6, "P": 3},
        "bits_per_value": {"All": 8},
        "einsums": [
            "T[m, n] = A[m, k] * B[k, n]",
            {"name": "S", "tensor_accesses": [{"name": "T", "projection": ["m", "n"]},
             {"name": "S", "projection": ["m", "n"], "output": True}], "operations": {"map": "exp"}},
            "Z[m, p] = S[m, n] * C[n, p]",
        ],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "T", "S", "C", "Z"]},
            {"type": "Sequential", "nodes": [
                {"type": "Nested", "nodes": [
                    {"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in loops
                ] + [{"type": "Compute", "einsum": e, "component": "MAC"}]}
                for e, loops in (("T", "mnk"), ("S", "mn"), ("Z", "mpn"))
            ]},
        ]
    },
}  # fmt: skip


def chain(operation: str):
    found = copy.deepcopy(CHAIN)
    found["workload"]["einsums"][1]["operations"]["map"] = operation
    return pm.evaluate(pm.load(found))


def test_a_softmax_of_dense_scores_is_no_hindrance() -> None:
    """Only C has zeros: the exponential never sees one."""
    found = pm.sparsify(chain("exp"), densities={"C": 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert (work["S"].effectual, work["S"].label) == (24, "exact")
    assert (work["Z"].effectual, work["Z"].label) == (36, "expected")


@pytest.mark.parametrize("densities", [{"A": 0.5}, {"T": 0.5}, {"A": 0.5, "B": 0.5}])
def test_zeros_that_reach_it_are_refused_by_name(densities: dict[str, float]) -> None:
    message = "S: polymodel does not know whether exp maps zeros to zero, and T may hold zeros"
    with pytest.raises(Refused, match=message) as refused:
        pm.sparsify(chain("exp"), densities=densities)
    assert "densities: {T: 1}" in str(refused.value)
    # The remedy helps.
    found = pm.sparsify(chain("exp"), densities={**densities, "T": 1})
    assert {c.einsum: c for c in found.counts.compute}["S"].effectual == 24


def test_functions_that_keep_zeros_are_known() -> None:
    found = pm.sparsify(chain("relu"), densities={"T": 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert work["S"].effectual == 12
    assert work["Z"].effectual == 36


@pytest.mark.parametrize("tensor", ["WFFA", "WZ"])
def test_weights_of_a_fused_transformer_may_be_sparse(tensor: str) -> None:
    """Its softmax is upstream of them."""
    report = pm.evaluate(pm.load("gpt3_6.7B/fused", "tpu_v4i"))
    found = pm.sparsify(report, densities={tensor: 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert work["QK_softmax"].label == "exact"
    assert work[tensor[1:]].effectual == work[tensor[1:]].dense / 2


def test_sweeps_tell_the_same() -> None:
    """Points that are refused have the reason; with zeros elsewhere none is."""
    mapped = copy.deepcopy(CHAIN)
    mapped["mapping"]["nodes"][1]["nodes"][2]["nodes"][0]["tile_shape"] = "TM"

    def swept(densities: dict[str, float]):
        spec = pm.load({**mapped, "workload": {**mapped["workload"], "densities": densities}})
        return pm.sweep(spec, {"TM": [1, 2, 4]}, objectives=["sparse_energy"], keep="all")

    assert "does not know whether exp maps zeros to zero" in str(swept({"T": 0.5}))
    assert swept({"C": 0.5}).frame.feasible.tolist() == [True, True, True]
