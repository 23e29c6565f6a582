"""A misspelt key is told, and what it holds is checked in the same round."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec.document import SECTIONS
from polymodel.spec.section_schemas import CodesignSection
from tests.faults import faults as faults_at

ARCH = """arch:
  nodes:
  - !Memory
    name: DRAM
    size: -4
    leek_power: 3
    actions:
    - {name: raed, energy: -1, troughput: 0}
  - !Compute
    name: MAC
    actions: [{name: compute, energy: 1, throughput: 1}]
"""


def faults(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path)
    return [f"{d.place.line}: {d.message}" for d in caught.value.diagnostics]


def test_faults_behind_misspelt_keys_are_told_at_once(tmp_path: Path) -> None:
    assert faults(tmp_path, ARCH) == [
        "5: negative size -4",
        "6: unknown key `leek_power`",
        "8: zero throughput",
        "8: unknown action raed of DRAM",
        "8: negative energy -1",
        "8: unknown key `troughput`",
    ]


def test_a_key_like_none_of_ours_is_told_alone(tmp_path: Path) -> None:
    """What it was meant to say is not known, so nothing that may follow from it is told."""
    told = faults(tmp_path, ARCH.replace("leek_power", "xyz"))
    assert told == ["6: unknown key `xyz`", "8: unknown key `troughput`"]


def test_the_keys_of_the_component_itself_are_listed_first(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(ARCH.replace("leek_power: 3", "entries: 3"), encoding="utf-8")
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path)
    (remedy,) = [d.remedy for d in caught.value.diagnostics if "`entries`" in d.message]
    assert remedy.startswith("known keys: size, allocation, ")
    assert ", tensors, " in remedy
    assert ", actions, " in remedy


def test_two_keys_for_one_are_no_slip(tmp_path: Path) -> None:
    told = faults(tmp_path, ARCH.replace("leek_power: 3", "leek_power: 3\n    leak_power: 2"))
    assert told == ["6: unknown key `leek_power`", "9: unknown key `troughput`"]


@pytest.mark.parametrize(
    ("energy", "told"), [("15", "is written 15e-12"), ("15e-6", "15 µJ per bit"), ("15e-12", "")]
)
def test_energies_that_no_memory_takes_are_told(tmp_path: Path, energy: str, told: str) -> None:
    text = f"arch:\n  nodes:\n  - !Memory\n    name: M\n    actions: [{{name: read, energy: {energy}}}]\n"
    text += "  - !Compute {name: MAC, actions: [{name: compute, energy: 1e-12, throughput: 1}]}\n"
    path = tmp_path / "arch.yaml"
    path.write_text(text, encoding="utf-8")
    notes = " ".join(pm.load(path).remarks)
    assert told in notes if told else not notes


def test_a_slip_in_a_node_inside_a_branch_has_the_keys_of_that_node(tmp_path: Path) -> None:
    """Nodes that hold nodes name classes that stand after them, whose keys were not found."""
    path = tmp_path / "spec.yaml"
    path.write_text(
        "mapping:\n  nodes:\n  - !Sequential\n    nodes:\n    - !Nested\n      nodes:\n"
        "      - !Temporal {rank_variable: m, tile_shap: 10}\n      - !Compute {einsum: E, componet: MAC}\n",
        encoding="utf-8",
    )
    with pytest.raises(pm.SpecError) as caught:
        pm.load(path)
    remedies = [d.remedy for d in caught.value.diagnostics if d.code == "unknown-key"]
    assert remedies == ["did you mean tile_shape?", "did you mean component?"]


WRONG: tuple[object, ...] = (
    [],
    {},
    "a b",
    None,
    True,
    3.5,
    [["x"]],
    {"a": {"b": 1}},
    {"a": []},
    ["x", {"y": 2}],
)


@pytest.mark.parametrize("section", SECTIONS)
def test_no_path_of_a_fault_has_a_name_of_a_python_type(section: str) -> None:
    """Each wrong value of a key, and of what is one or two levels below it, has one fault at one place."""
    model = SECTIONS[section]
    for key in model.model_fields:
        for value in WRONG:
            for given in (
                value,
                {"m": value},
                [value],
                {"A": {"m": value}},
                {"A": {"factors": {"m": value}}},
            ):
                try:
                    model(**{key: given})
                except pm.SpecError as error:
                    found = error.diagnostics
                else:
                    continue
                assert not [d for d in found if re.search(r"\b(int|float|str|tuple|union)\b", d.path)], found
                assert not [d for d in found if d.remedy.startswith("see `polymodel schema`")], found


@pytest.mark.parametrize(
    ("key", "given", "at"),
    [
        ("symbols", {"TM": {"rang": [1, 2]}}, "symbols.TM"),
        ("symbols", {"TM": [4, "four"]}, "symbols.TM[1]"),
        ("symbols", {"TM": None}, "symbols.TM"),
    ],
)
def test_a_wrong_value_of_a_swept_symbol_is_one_fault(key: str, given: object, at: str) -> None:
    with faults_at("wrong-type", at=at):
        SECTIONS["sweep"](**{key: given})


def test_numbers_of_codesign_may_be_texts_and_nothing_else() -> None:
    given = {"weights": {"a": "1e-3", "b": 2}, "eps": "1/4", "hardware": {"S": [1, 2.5], "T": 3}}
    section = CodesignSection.model_validate(given)
    assert section.weights == {"a": 0.001, "b": 2}
    assert section.eps == 0.25
    assert section.hardware == {"S": (1, 2.5), "T": 3}
    with faults_at("wrong-type", at="time_limit"):
        CodesignSection(time_limit=True)
