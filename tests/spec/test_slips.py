"""A misspelt key is told, and what it holds is checked in the same round."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm

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
