"""Some Einsums of a workload, and what a workload amounts to."""

from __future__ import annotations

import pytest

import polymodel as pm
from polymodel.cli.app import main
from polymodel.workload.totals import totals
from tests.faults import faults


def test_only_some_einsums_and_what_is_said_of_them_alone() -> None:
    whole = pm.load("gpt3_6.7B", "tpu_v4i")
    part = whole.only("AV", "QK", "QK_softmax")
    assert [e.name for e in part.workload] == ["QK", "QK_softmax", "AV"]
    assert part.mapping is None
    assert dict(part.workload.rank_sizes).keys() < dict(whole.workload.rank_sizes).keys()
    assert part.workload["AV"] == whole.workload["AV"]


@pytest.mark.parametrize("name", ["attention_one_pass", pytest.param("deepseek_v3", marks=pytest.mark.slow)])
def test_what_is_said_of_other_tensors_is_left_to_them(name: str) -> None:
    """Sets that name them, ranks and first generations of what others carry forward."""
    whole = pm.load(name)
    for einsum in whole.workload:
        part = whole.only(einsum.name)
        assert [e.name for e in part.workload] == [einsum.name]
    if name == "attention_one_pass":
        assert whole.only("RM").raw_workload.generational == ("C",)
        assert set(whole.only("RM").raw_workload.init) == {"RM"}
        assert not whole.only("AV").raw_workload.init


def test_constraints_and_architectures_may_name_tensors_of_other_einsums() -> None:
    """They are the empty set there; what is said of other Einsums and their rank variables is left out."""
    whole = {
        "workload": {
            "rank_sizes": {"M": 4, "K": 4, "N": 4, "P": 4},
            "bits_per_value": {"All": 8},
            "einsums": ["T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]"],
        },
        "arch": {
            "nodes": [
                {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}},
                {"type": "Memory", "name": "GLB", "size": 1e6, "tensors": {"keep": "B", "may_keep": "B | C"}},
                {"type": "Compute", "name": "MAC"},
            ]
        },
        "explore": {
            "unfused": "T",
            "compute": {"T": "MAC", "Z": "MAC"},
            "loop_order": {"T": ["m", "k"]},
            "memories": {"GLB": {"keep": "B", "factors": {"k": "<= 2", "m": 2}, "order": ["k", "m"]}},
        },
    }
    part = pm.load(whole).only("Z")
    said = part.raw_explore
    assert said is not None
    assert (said.compute, said.loop_order, said.unfused) == ({"Z": "MAC"}, {}, "Nothing")
    assert (said.memories["GLB"].factors, said.memories["GLB"].order) == ({"m": 2}, ("m",))
    assert part.arch["GLB"].may_keep is not None
    assert part.arch["GLB"].may_keep.tensors("Z") == {"C"}
    assert len(pm.explore(part))


def test_einsums_that_are_none_are_named() -> None:
    with faults("unknown-name", "QX", at=""):
        pm.load("attention").only("QX", "AV")
    with faults("missing-argument", at=""):
        pm.load("attention").only()


def test_totals_of_a_product_are_those_of_its_formula() -> None:
    found = totals(pm.load("matmul", M=10, N=6, K=4).workload)
    assert (found.operations, found.products) == (240, 240)
    values = {t: n for part in (found.weights, found.inputs, found.results) for t, (n, _) in part.items()}
    assert values == {"A": 40, "B": 24, "C": 60}
    assert found.intensity == 240 / (40 + 24 + 60)
    assert not found.intermediates


def test_totals_count_each_element_once_and_every_execution() -> None:
    found = totals(pm.load("llama3_8b", TOKENS=16, LAYERS=2).workload)
    assert found.weights["WQ"][0] == 2 * 4096 * 4096
    conv = totals(pm.load("conv1d", STRIDE=3).workload)
    whole = pm.load("conv1d", STRIDE=3).workload["Conv"]
    assert conv.inputs["I"][0] == 4 * len({3 * p + r for p in range(32) for r in range(3)})
    assert conv.operations == 8 * 4 * 32 * 3
    assert whole.name == "Conv"


def test_show_tells_totals_and_takes_some_einsums(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "attention", "--einsum", "QK", "--einsum", "AV"]) == 0
    told = capsys.readouterr().out
    assert "Softmax" not in told
    assert "in all: 524.3 k operations" in told
    assert "operations per byte" in told
    assert main(["show", "attention", "--einsum", "QX"]) == 2


@pytest.mark.parametrize("einsum", ["Matmul1", "Matmul2"])
def test_of_a_mapping_what_is_said_of_some_einsums_stays(einsum: str) -> None:
    """Unfused Einsums cost by themselves what they cost beside each other."""
    whole = pm.load("matmul_chain_2/unfused", "simple_two_level")
    alone, beside = pm.evaluate(whole.only(einsum)), pm.evaluate(whole)
    kept = beside.summary[beside.summary["einsum"] == einsum]
    assert alone.summary.iloc[0].to_dict() == kept.iloc[0].to_dict()
    assert alone.accesses.to_dict("records") == (
        beside.accesses[beside.accesses["einsum"] == einsum].to_dict("records")
    )


def test_loops_of_other_einsums_and_their_sizes_are_left_out() -> None:
    whole = pm.load("resnet_basic_block/unfused", "edge_npu")
    for einsum in whole.workload:
        part = whole.only(einsum.name)
        assert part.mapping is not None
        assert part.mapping.einsums == (einsum.name,)
        assert pm.evaluate(part).value("latency") > 0


def test_a_fused_mapping_does_not_stand_for_one_of_its_einsums() -> None:
    part = pm.load("matmul_chain_2/tiled_fused", "simple_two_level").only("Matmul1")
    assert part.mapping is None
    with faults("invalid-structure", at="mapping"):
        pm.evaluate(part)


def test_two_specs_are_compared_by_one_einsum(capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["matmul_chain_2/unfused,simple_two_level"] * 2
    assert main(["compare", *sides, "--einsum", "Matmul2"]) == 0
    told = capsys.readouterr().out
    assert "Matmul2" in told
    assert "Matmul1" not in told
