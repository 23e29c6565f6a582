"""A kind of component is one entry of `KINDS`: others ask what it does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import KINDS, ActionCost, Hierarchy, KindRules
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode

ROOT = Path(__file__).resolve().parents[1]
TREE = LoopTree((
    StorageNode("DRAM", ("A", "B", "C")),
    Loop("m", 2),
    StorageNode("GLB", ("A", "B", "C")),
    ComputeNode("C", "MAC"),
))  # fmt: skip
WORKLOAD = {
    "workload": {
        "iteration_space_shape": {"m": "0 <= m < 5", "n": "0 <= n < 3", "k": "0 <= k < 4"},
        "bits_per_value": {"All": 8},
        "einsums": ["C[m, n] = A[m, k] * B[k, n]"],
    }
}
ARCH = {
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "actions": [{"name": "read", "energy": 1e-12}]},
            {
                "type": "Toll", "name": "Bus", "tensors": {"keep": "All"},
                "actions": [{"name": "read", "energy": 5e-12}, {"name": "write", "energy": 7e-12}],
            },
            {"type": "Memory", "name": "GLB", "size": 1e9},
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]},
        ]
    }
}  # fmt: skip


def with_converter(hierarchy: Hierarchy) -> Hierarchy:
    """The same with the toll as a component of a kind that the package does not have."""
    actions = (ActionCost("down", 5e-12), ActionCost("up", 7e-12))
    made = [
        replace(c, kind="converter", actions=actions) if c.name == "Bus" else c for c in hierarchy.components
    ]  # type: ignore[arg-type]  # a kind of this test
    return replace(hierarchy, components=tuple(made))


@pytest.mark.thin(99)
@pytest.mark.parametrize("engine", ["exact", "symbolic", "enumerate"])
def test_it_is_counted_and_priced(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "converter", KindRules(("down", "up"), passes=True))  # type: ignore[misc]  # as above
    spec = pm.load(WORKLOAD, ARCH)
    toll = evaluate_problem(pm.Problem(spec.workload, spec.arch, TREE), engine=engine)
    ours = evaluate_problem(pm.Problem(spec.workload, with_converter(spec.arch), TREE), engine=engine)
    assert ours.total_energy == toll.total_energy
    (action,) = {a for a in ours.energy[ours.energy.component == "Bus"].action if a != "up"}
    assert action == "down"
    assert "Bus (converter): down 5 pJ/b; up 7 pJ/b" in str(ours.problem.hierarchy)
    assert "Bus" in ours.to_html()
    assert ours.problem.hierarchy.tolls == ("Bus",)


def test_nobody_asks_what_a_kind_is_called() -> None:
    """`kind == "memory"` of a component; records that have a `kind` of their own are not meant."""
    asks = re.compile(rf"\.kind (?:==|!=|in|not in) .*\"(?:{'|'.join(KINDS)})\"")
    told = []
    for path in sorted((ROOT / "polymodel").rglob("*.py")):
        if "importers/timeloop" not in path.as_posix():  # its own parts, which have these kinds too
            told += [found[0] for found in asks.finditer(path.read_text(encoding="utf-8"))]
    assert told == ['.kind == "memory"']  # a row of times, of links too
