"""The reference files of traffic, and what the artifact of TeAAL publishes for small inputs of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polymodel.exhibits.teaal_designs import PRINTED, small_product
from tests.reference import teaal, teaal_traffic
from tests.sparse.traffic import data

FILES = {"accelerators": "teaal_arch_traffic.json", "buffets": "tensaurus_spmm_dram.json"}


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
    """B with zeros: A and B are compared, not Y; an unknown case is a fault, a folder is not a file."""
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


@pytest.mark.parametrize("design", PRINTED)
def test_what_the_artifact_publishes(design: str) -> None:
    found = list(small_product(design))
    assert len(found) == len(PRINTED[design])
    assert [f for f in found if f.error] == []
