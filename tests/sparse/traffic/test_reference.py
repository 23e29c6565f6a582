"""The reference files of traffic, and what the artifact of TeAAL publishes for small inputs of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polymodel.sparse.traffic import traffic
from polymodel.spec.teaal import read_teaal
from tests.reference import teaal, teaal_traffic
from tests.sparse.traffic import data

FILES = {"accelerators": "teaal_arch_traffic.json", "buffets": "tensaurus_spmm_dram.json"}
# scripts/check.py of FPSG-UIUC/micro23-teaal-artifact: K = 8, M = 6, N = 7, tensors made from seeds 0 and 1.
SIZES = {"K": 8, "M": 6, "N": 7}
A = {0: (1, 3, 5), 1: (0, 2), 2: (3, 4), 5: (1, 3), 6: (2, 4, 5), 7: (0, 4)}
B = {
    0: (2, 4, 6),
    1: (0, 2, 3, 5, 6),
    2: (0,),
    3: (0, 4, 6),
    4: (0, 2, 3, 5, 6),
    5: (1, 2, 3, 4, 6),
    6: (0, 4, 5),
    7: (2, 3, 4),
}
TILES = {"K1": 4, "M1": 4, "N1": 4, "K0": 2, "M0": 2, "N0": 2}
PUBLISHED = {
    "gamma": {
        ("T", "MainMemory", "B", "read"): 2368,
        ("T", "MainMemory", "A", "read"): 1600,
        ("T", "Intersect", "intersect"): 14,
        ("Z", "MainMemory", "Z", "read"): 0,
        ("Z", "MainMemory", "Z", "write"): 3456,
        ("Z", "HighRadixMerger", "T_MKN"): 60,
        ("Z", "FPMul", "mul"): 46,
        ("Z", "FPAdd", "add"): 13,
    },
    "outerspace": {
        ("T0", "MainMemory", "B", "read"): 2368,
        ("T0", "MainMemory", "A", "read"): 1664,
        ("T0", "FPMul", "mul"): 46,
        ("T1", "MainMemory", "T0", "read"): 5184,
        ("T1", "MainMemory", "T1", "read"): 0,
        ("T1", "MainMemory", "T1", "write"): 5184,
        ("Z", "MainMemory", "Z", "read"): 0,
        ("Z", "MainMemory", "Z", "write"): 3456,
        ("Z", "SortHW", "T1_MKN"): 71,
        ("Z", "FPAdd", "add"): 13,
    },
    "extensor": {
        ("Z", "MainMemory", "A", "read"): 7296,
        ("Z", "MainMemory", "B", "read"): 6464,
        ("Z", "MainMemory", "Z", "read"): 2560,
        ("Z", "MainMemory", "Z", "write"): 6912,
        ("Z", "FPMul", "mul"): 46,
        ("Z", "FPAdd", "add"): 13,
        ("Z", "K2Intersect", "intersect"): 4,
        ("Z", "K1Intersect", "intersect"): 39,
        ("Z", "K0Intersect", "intersect"): 84,
    },
    "sigma": {("Z", "DataSRAMBanks", "A", "read"): 4096, ("Z", "DataSRAMBanks", "B", "read"): 28672},
}


@pytest.mark.parametrize("topic", FILES)
def test_all_cases(topic: str) -> None:
    path = data.CASES / FILES[topic]
    assert topic in teaal.topics_of(path)
    outcomes = teaal_traffic.check(path)
    assert outcomes
    for outcome in outcomes:
        assert not outcome.fault
        assert not outcome.mismatches
        assert outcome.checked > 50


def test_a_wrong_number_is_found(tmp_path: Path) -> None:
    given = json.loads((data.CASES / FILES["accelerators"]).read_text())
    given["cases"] = given["cases"][:1]
    given["cases"][0]["accelerators"]["gamma"]["metrics"]["T"]["MainMemory"]["B"]["read"] += 64
    del given["cases"][0]["accelerators"]["sigma"]["metrics"]["time"]
    (tmp_path / "x.json").write_text(json.dumps(given))
    (outcome,) = teaal_traffic.check(tmp_path / "x.json")
    assert outcome.mismatches == [
        "gamma T MainMemory B read: ours 6208, reference 6272",
        "sigma time: not in the reference",
    ]


def test_inputs_are_taken_from_beside_the_file(tmp_path: Path) -> None:
    """B with zeros: A and B are compared, not Y; an unknown case is a fault, a folder is no file."""
    folder = tmp_path / "cases/buffets"
    (folder / "lock.json").mkdir(parents=True)
    inputs = json.loads((data.CASES / "tensaurus_spmm.json").read_text())
    inputs["cases"] = inputs["cases"][:1]
    inputs["cases"][0]["operands"]["B"]["dense"][2] = [0, 1, 0, 7]
    (folder / "inputs.json").write_text(json.dumps(inputs))
    runs = json.loads((data.CASES / FILES["buffets"]).read_text())
    runs["cases"] = [runs["cases"][0], {**runs["cases"][0], "case": "SpMM/nowhere"}]
    (folder / "runs.json").write_text(json.dumps(runs))
    found, lost = teaal_traffic.check(folder / "runs.json")
    assert found.mismatches[0] == "B on root, A.J on I0 MainMemory B read: ours 448, reference 512"
    assert not any(" Y " in m or "MainMemory time" in m for m in found.mismatches)
    assert "the inputs of SpMM/nowhere" in lost.fault


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_the_artifact_publishes(name: str) -> None:
    spec = read_teaal(data.design(name))
    tensors = {
        t: data.tensor(t, spec.declaration[t], SIZES, {(k, c): 1 for k, row in rows.items() for c in row})
        for t, rows in (("A", A), ("B", B))
    }
    found = traffic(spec, tensors, symbols=TILES).metrics()
    for path, number in PUBLISHED[name].items():
        at = found
        for key in path:
            at = at[key]
        assert at == number, path
