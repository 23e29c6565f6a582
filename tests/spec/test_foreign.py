"""Files and keys of other tools that are given by mistake are told by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from tests.faults import faults

WORKLOAD = "- id: 0\n  operator_type: Gemm\n  equation: O[b][k]+=I[b][c]*W[c][k]\n"
HARDWARE = "name: small\nmemories: {sram: {size: 16384}}\noperational_array: {sizes: [4]}\n"
MAPPING = "- name: default\n  spatial_mapping: {D1: ['K, 4']}\n"


@pytest.mark.parametrize("text", [WORKLOAD, HARDWARE, MAPPING])
def test_a_file_of_zigzag_is_told_with_the_page_that_helps(text: str, tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text(text)
    with faults("foreign-file", "ZigZag", at="") as caught:
        pm.load(tmp_path / "theirs.yaml")
    assert [d.remedy for d in caught.value.diagnostics if "ZigZag" in d.message] == [
        f"polymodel import zigzag {tmp_path / 'theirs.yaml'} --out spec.yaml (see docs/migrate/zigzag.md)"
    ]


OURS = """\
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, tensors: {keep: All}, actions: [{name: read, energy: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
"""
THEIRS = OURS.replace("arch:", "arch:\n  version: 0.5").replace(
    "{keep: All}", "{keep: All, tile_shape: [], back: Nothing}"
)
PROBLEM = "problem: {version: 0.4, shape: {name: X}}\n"


def told(tmp_path: Path, text: str) -> list[pm.Diagnostic]:
    (tmp_path / "theirs.yaml").write_text(text)
    with pytest.raises(pm.SpecError) as caught:
        pm.load(tmp_path / "theirs.yaml")
    return list(caught.value.diagnostics)


def test_keys_of_accelforge_are_told_each_with_what_to_write(tmp_path: Path) -> None:
    found = told(tmp_path, THEIRS)
    keys = ("version", "tile_shape", "back")
    assert [d.message for d in found] == [f"`{k}` is a key of AccelForge's, not of ours" for k in keys]
    assert all(d.remedy.endswith("(see docs/migrate/accelforge.md)") for d in found)
    assert [d.place.line for d in found] == [2, 4, 4]


def test_a_word_of_theirs_in_another_place_is_a_slip(tmp_path: Path) -> None:
    (found,) = told(tmp_path, OURS.replace("size: inf", "size: inf, tile_shape: 3"))
    assert found.message == "unknown key `tile_shape`"


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("mapper: {metrics: ENERGY}\n", ["mapper"]),
        ("mapper: {metrics: ENERGY}\nconfig: {component_models: []}\n", ["mapper", "config"]),
        (OURS + "mapper: {}\nvariables: {a: 3}\n", ["mapper", "variables"]),
        (OURS + "sparse_optimizations: {targets: []}\n", ["sparse_optimizations"]),
        (OURS + "model: {metrics: ENERGY}\n", ["model"]),
    ],
)
def test_sections_of_accelforge_are_told(text: str, sections: list[str], tmp_path: Path) -> None:
    found = told(tmp_path, text)
    assert [d.message for d in found] == [
        f"`{s}` is a section of AccelForge's, not of ours" for s in sections
    ]
    assert all(d.remedy for d in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mapper: {algorithm: random}\n", "this looks like a Timeloop or Accelergy file"),
        ("mapper: {live-status: false}\n", "this looks like a Timeloop or Accelergy file"),
        ("mapping: {nodes: [{target: M, type: temporal}]}\n", "this looks like a Timeloop or Accelergy file"),
        (PROBLEM + "variables: {a: 3}\n", "this looks like a Timeloop or Accelergy file"),
        (
            "mapper: {version: 0.4}\n",
            "this looks like a file of Timeloop's or AccelForge's: both have `mapper`",
        ),
        (
            "variables: {a: 3}\n",
            "this looks like a file of Timeloop's or AccelForge's: both have `variables`",
        ),
        (OURS + PROBLEM, "this looks like a Timeloop file (`problem`), but Timeloop has no `arch`"),
        (
            OURS.replace("size: inf", "component_class: DRAM") + PROBLEM + "mapper: {metrics: ENERGY}\n",
            "this looks like a Timeloop file (`problem`) and like an AccelForge file (`arch`, `mapper`)",
        ),
    ],
)
def test_all_marks_of_a_file_decide_together(text: str, message: str, tmp_path: Path) -> None:
    (found,) = told(tmp_path, text)
    assert found.message == message
    assert f"polymodel import timeloop {tmp_path / 'theirs.yaml'}" in found.remedy
    assert ("docs/migrate/accelforge.md" in found.remedy) == ("AccelForge" in message)


def test_sections_of_nobody_are_not_called_accelforges(tmp_path: Path) -> None:
    found = told(tmp_path, OURS.replace("size: inf", "size: -1") + "config: {seed: 3}\nmodel: resnet\n")
    assert not [d for d in found if "AccelForge" in d.message]


def test_the_importer_of_timeloops_files_tells_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text(THEIRS)
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tmp_path / "theirs.yaml")
    (found,) = caught.value.diagnostics
    assert found.message == "Timeloop has no `arch`; files of ours and of AccelForge's have"
    assert found.remedy.startswith(
        f"such a file is read as it is: polymodel validate {tmp_path / 'theirs.yaml'}"
    )
    assert found.place.line == 1


def test_the_importer_of_timeloops_files_tells_zigzags(tmp_path: Path) -> None:
    (tmp_path / "theirs.yaml").write_text(WORKLOAD)
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tmp_path / "theirs.yaml")
    assert [d.message for d in caught.value.diagnostics] == ["this looks like a ZigZag file"]


def test_a_packaged_machine_says_how_its_names_are_given() -> None:
    """Workloads of ZigZag's have operands called I, W and O, and no renames."""
    workload = {"rank_sizes": {"B": 2, "C": 3, "K": 4}, "bits_per_value": {"All": 8}}
    spec = {"workload": {**workload, "einsums": ["O[b, k] = W[k, c] * I[b, c]"]}}
    with pytest.raises(pm.SpecError) as caught:
        pm.load("eyeriss_like", spec)
    remedies = {d.message: d.remedy for d in caught.value.diagnostics}
    for name, tensor in (("input", "I"), ("weight", "W"), ("output", "O")):
        assert f"`renames: {{{name}: {tensor}}}`" in remedies[f"unknown name {name}"]


def test_einsums_as_accelforge_writes_them_are_told(tmp_path: Path) -> None:
    text = """\
workload:
  rank_sizes: {B: 2, M: 3}
  bits_per_value: {All: 8}
  einsums:
  - {einsum: "I[b, m] = X[b, m]", is_copy_operation: true}
  - Z[b, m] = I(input)[b, m] * W(weight)[m]
"""
    found = {d.message: d for d in told(tmp_path, text)}
    inline = found["I(...) gives a tensor a name for its part, as AccelForge's files do"]
    assert (inline.place.line, inline.place.column) == (6, 16)
    assert inline.remedy.startswith("write I[...]; names go into `renames:`")
    assert "tensor_accesses:" in found["`einsum` is a key of AccelForge's, not of ours"].remedy
