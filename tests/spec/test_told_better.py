"""Wrong input that is easily told: sets where names belong, words where numbers belong."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm

WORKLOAD = {
    "rank_sizes": {"M": 4, "K": 4},
    "einsums": ["Z[m] = A[m, k] * B[k]"],
    "bits_per_value": {"All": 8},
}


def told(*sources: Any, **explored: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(pm.SpecError) as caught:
        pm.explore(*sources, **explored) if explored else pm.load(*sources)
    return [(d.path, d.message, d.remedy) for d in caught.value.diagnostics]


@pytest.mark.parametrize(
    ("tensors", "path", "message", "remedy"),
    [
        ("All", "tensors", "'All' is not a list: a node of a mapping lists its tensors by name", "[A, B]"),
        ("~A", "tensors", "'~A' is not a list", "[A, B]"),
        ("A", "tensors", "'A' is not a list", "write [A]"),
        (["All"], "tensors[0]", "unknown tensor All", "a mapping takes no sets; tensors: A, B, Z"),
    ],
)
def test_a_mapping_lists_tensors(tensors: object, path: str, message: str, remedy: str) -> None:
    storage = {"type": "Storage", "component": "DRAM", "tensors": tensors}
    mapping = {"nodes": [storage, {"type": "Compute", "einsum": "Z", "component": "MAC"}]}
    (found,) = told({"workload": WORKLOAD, "mapping": mapping}, "simple_two_level")
    assert found[0] == f"mapping.nodes[0].{path}"
    assert message in found[1]
    assert remedy in found[2]


@pytest.mark.parametrize(("name", "value"), [("eps", "big"), ("time_limit", "abc")])
def test_a_word_is_no_number(name: str, value: str) -> None:
    found = told(pm.load({"workload": WORKLOAD}, "simple_two_level"), **{name: value})
    assert found == [(name, f"{value!r} is neither a number nor a symbol", "write a number")]


def test_a_misspelt_symbol_is_named() -> None:
    section = {"workload": WORKLOAD, "symbols": {"SHARE": 0.1}, "explore": {"eps": "SHAR"}}
    (found,) = told(section, "simple_two_level")
    assert found == ("explore.eps", "'SHAR' is neither a number nor a symbol", "did you mean SHARE?")


def test_every_unknown_name_of_a_set_is_told() -> None:
    actions = [{"name": "read"}, {"name": "write"}]
    memory = {"type": "Memory", "name": "DRAM", "size": "inf", "actions": actions}
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute"}]}
    keep = {"keep": "Input | (Foo - Bar)", "may_keep": "All"}
    arch = {"nodes": [{**memory, "tensors": keep}, unit]}
    (found,) = told({"workload": WORKLOAD, "arch": arch})
    assert found[1] == "unknown name Input and unknown name Foo and unknown name Bar"
    assert found[2].startswith("did you mean Inputs?; names: ")


def test_a_misspelt_rank_variable_is_named() -> None:
    einsum = {
        "name": "Z",
        "tensor_accesses": [
            {"name": "A", "projection": ["m", "kk"]},
            {"name": "B", "projection": ["k"]},
            {"name": "Z", "projection": ["m"], "output": True},
        ],
    }
    (found,) = told({"workload": {**WORKLOAD, "einsums": [einsum]}})
    assert found[1] == "the iteration space of Z is unbounded in kk"
    assert found[2].startswith("did you mean k? If not, give the rank of kk a size")
