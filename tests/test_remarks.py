"""Tensors written in two ways are remarked upon, and nothing else is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.loading.typos import likely_typos
from tests.faults import faults

ROOT = Path(__file__).parents[1]
TOLD = "T1 is written and never read; T_1 is read and never written: did you mean T1?"


def written(*einsums: str) -> dict[str, object]:
    sizes = {rank: 4 for rank in "MNKJ" if any(rank.lower() in e for e in einsums)}
    return {"workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": list(einsums)}}


MISSPELT = written("T1[m, n] = A[m, k] * B[k, n]", "Z[m, j] = T_1[m, n] * D[n, j]")


def test_a_misspelt_tensor_is_told_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = pm.load(MISSPELT, "simple_two_level")
    assert likely_typos(spec.workload) == (TOLD,)
    assert TOLD in spec.remarks
    front = pm.explore(spec, objectives=("energy",))
    assert TOLD in front.notes
    report = pm.evaluate(front[0].spec)
    assert TOLD in report.notes
    spec_file = tmp_path / "spec.yaml"
    spec_file.write_text(json.dumps(MISSPELT))
    for command in ("validate", "show"):
        assert main([command, str(spec_file)]) == 0
        assert f"note: {TOLD}" in capsys.readouterr().out
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(pm.mapping_to_yaml(front[0].spec.mapping))
    assert main(["evaluate", str(spec_file), "simple_two_level", str(mapping)]) == 0
    assert f"note: {TOLD}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "einsums",
    [
        ["T1[m, n] = A[m, k] * B[k, n]", "Z[m, j] = T1[m, n] * D[n, j]"],
        ["A2[m, n] = A[m, n] * B[m, n]"],  # a result named after its operand
        ["T1[m, n] = A[m, k] * B[k, n]", "Z[m, j] = T_1[m, k] * D[k, j]"],  # other ranks
        ["Z[m, j] = T_1[m, n] * D[n, j]", "T1[m, n] = A[m, k] * B[k, n]"],  # read before the other is made
        ["Y[m, n] = A[m, k] * B[k, n]", "Z[m, j] = C[m, n] * D[n, j]"],  # two outputs
    ],
)
def test_outputs_and_inputs_of_their_own_are_not(einsums: list[str]) -> None:
    assert likely_typos(pm.load(written(*einsums)).workload) == ()


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "workloads").glob("*.yaml")))
def test_shipped_workloads_have_none(name: str) -> None:
    assert likely_typos(pm.load(name).workload) == ()


def test_a_loop_without_a_fanout_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """TeAAL's `space: [M]` on a machine of one multiplier runs in time."""
    spec = {
        "einsum": {
            "declaration": {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]},
            "expressions": ["Z[m, n] = A[k, m] * B[k, n]"],
        },
        "mapping": {
            "loop-order": {"Z": ["M", "N", "K"]},
            "spacetime": {"Z": {"space": ["M"], "time": ["N", "K"]}},
        },
        "symbols": {"M": 4, "N": 4, "K": 4},
    }
    told = "Einsum Z: no fanout dimension is left for M, so it runs in time"
    assert told in pm.evaluate(pm.load(spec, "simple_two_level")).notes
    (tmp_path / "teaal.yaml").write_text(json.dumps(spec))
    assert main(["evaluate", str(tmp_path / "teaal.yaml"), "simple_two_level"]) == 0
    assert f"note: {told}" in capsys.readouterr().out


ARCH = """
arch:
  nodes:
  - !Memory
    {name: DRAM, size: inf, tensors: {keep: All}, actions: [{name: read, energy: 1e-12, throughput: 010}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1e-12, throughput: 1}]}
"""


@pytest.mark.parametrize(
    ("written_", "instead", "told"),
    [
        ("energy: 1e-12, throughput: 010", "energy: 2.5, throughput: 1", "DRAM read: 2.5 J per bit"),
        ("", "", "010 is read as 10"),
        (
            "energy: 1e-12, throughput: 1}",
            "energy: 1e-400, throughput: 1}",
            "1e-400 is below the smallest number",
        ),
        ("energy: 1e-12, throughput: 1}", "energy: 1e-320, throughput: 1}", "MAC compute: "),
        (
            "energy: 1e-12, throughput: 1}",
            "energy: 1e-12, throughput: inf}",
            "MAC compute: its throughput is inf",
        ),
        (
            "energy: 1e-12, throughput: 1}",
            "energy: 7, bits_per_action: 2, throughput: 1}",
            "MAC compute: 3.5",
        ),
    ],
)
def test_numbers_that_are_hardly_meant(
    written_: str, instead: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "arch.yaml"
    file.write_text(ARCH.replace(written_, instead) if written_ else ARCH, encoding="utf-8")
    assert any(told in remark for remark in pm.load(file).remarks)
    assert main(["validate", str(file)]) == 0
    assert told in capsys.readouterr().out
    front = pm.explore(pm.load("matmul", file), objectives=("energy",))
    mapping = front[0].save(tmp_path / "mapping.yaml")
    assert any(told in note for note in pm.evaluate(pm.load("matmul", file, mapping)).notes)


def test_costs_relative_to_one_another_are_not() -> None:
    assert pm.load("matmul", "simple_two_level").number_remarks == ()


def test_a_date_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "arch.yaml"
    file.write_text(ARCH.replace("010", "2001-12-14"), encoding="utf-8")
    with faults("not-a-number", at="arch.nodes[0].actions[0].throughput"):
        pm.load(file)
    file.write_text(ARCH.replace("010", "2001 - 12 - 14"), encoding="utf-8")
    assert pm.load(file).arch.components[0].actions[0].throughput == 1975


@pytest.mark.parametrize("name", sorted(p.stem for p in (ROOT / "arch").glob("*.yaml")))
def test_shipped_machines_have_none_of_numbers(name: str) -> None:
    assert pm.load(name).number_remarks == ()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"C": 5},
            "8*c + m < 100 excludes nothing: 5 values of c times 8 of m are 40, 60 fewer than it allows",
        ),
        ({"C": 12}, "4 fewer than it allows; c needs 13"),
        (
            {"C": 20},
            "leaves the last 7 of 20 values of c without m; Einsums without m execute them nevertheless",
        ),
        ({"C": 13}, ""),
        ({}, ""),
        ({"LENGTH": 104}, ""),
    ],
)
def test_chunks_that_do_not_suit_the_length_are_told(given: dict[str, int], told: str) -> None:
    spec = pm.load("attention_one_pass", **{"LENGTH": 100, **given})
    remarks = [r for r in spec.remarks if "8*c + m <" in r]
    assert len(remarks) == bool(told), "once for all Einsums"
    assert all(told in r for r in remarks)
