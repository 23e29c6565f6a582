"""Specs as AccelForge's files and back: equal, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.architecture.hierarchy import Component
from polymodel.importers.imported import unknown_fields

HERE = Path(__file__).parent / "accelforge"
WORKLOADS = ("attention", "conv2d", "matmul", "depthwise_conv2d", "gpt3_6.7B")
ARCHES = ("eyeriss_like", "simple_two_level", "simba_chiplet")


def again(tmp_path: Path, text: str) -> pm.Spec:
    path = tmp_path / "theirs.yaml"
    path.write_text(text)
    return pm.import_accelforge(path).spec


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_come_back(name: str, tmp_path: Path) -> None:
    spec = pm.load(name)
    found = again(tmp_path, pm.export_accelforge(spec)).workload
    assert [e.name for e in found] == [e.name for e in spec.workload]
    for one, other in zip(spec.workload, found, strict=True):
        assert one.accesses == other.accesses
        assert one.bounds == other.bounds
        assert one.is_copy == other.is_copy


@pytest.mark.parametrize("name", ARCHES)
def test_machines_come_back(name: str, tmp_path: Path) -> None:
    spec = pm.load("matmul", name)
    found = again(tmp_path, pm.export_accelforge(spec)).arch
    for one, other in zip(spec.arch.components, found.components, strict=True):
        assert (one.name, one.kind, one.size_bits) == (other.name, other.kind, other.size_bits)
        assert [(d.name, d.fanout) for d in one.spatial] == [(d.name, d.fanout) for d in other.spatial]
        for action in one.actions:
            like = other.action(action.name)
            assert (action.energy, action.bits_per_action) == (like.energy, like.bits_per_action)
            assert action.throughput == pytest.approx(like.throughput)


def test_an_evaluation_there_and_back_is_the_same(tmp_path: Path) -> None:
    spec = pm.import_accelforge([HERE / "chain.yaml", HERE / "machine.yaml"]).spec
    text = pm.export_accelforge(spec, allow=["link"])
    assert "direction: up" in text
    back = again(tmp_path, text)
    assert back.mapping == spec.mapping
    one, other = pm.evaluate(spec), pm.evaluate(back)
    assert one.accesses.equals(other.accesses)


def test_what_is_lacking_there_is_named(tmp_path: Path) -> None:
    spec = pm.import_accelforge([HERE / "chain.yaml", HERE / "machine.yaml"]).spec
    with pytest.raises(pm.SpecError, match="a fanout has a link"):
        pm.export_accelforge(spec)
    with pytest.raises(pm.SpecError, match="'reuse' is allowed, but nothing"):
        pm.export_accelforge(spec, allow=["link", "reuse"])
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute"}, {"name": "add", "energy": 1}]}
    with pytest.raises(pm.SpecError, match="actions of its own for operators"):
        pm.export_accelforge(pm.load({"arch": {"nodes": [unit]}}))
    with pytest.raises(pm.SpecError, match="is no spec"):
        pm.export_accelforge("x")  # type: ignore[arg-type]  # what it refuses


def test_a_field_that_the_export_does_not_know_refuses_it() -> None:
    """Were a component to have another field, it would not be left out without a word."""

    @dataclass(frozen=True)
    class Refreshed(Component):
        refresh_power: float = 0.0

    (found,) = unknown_fields([Refreshed("A", "memory"), Refreshed("B", "memory", refresh_power=1.0)])
    assert found == ("refresh_power", True, "a component has `refresh_power`")
    assert not any(there for _, there, _ in unknown_fields([Refreshed("A", "memory")]))
    assert not unknown_fields([Component("A", "memory")])
