"""Actions without effect are told; counts that are zero are exactly zero."""

from __future__ import annotations

import copy

import pytest

import polymodel as pm
from tests.sparse.actions.test_zeros import CHAIN


def chain(action: dict[str, str]) -> pm.Report:
    found = copy.deepcopy(CHAIN)
    found["arch"]["nodes"][1]["sparse"] = {"actions": [action]}
    found["workload"]["densities"] = {"A": 0.25}
    found["workload"]["einsums"][1]["operations"]["map"] = "relu"
    return pm.evaluate(pm.load(found))


def test_an_action_on_a_tensor_that_the_memory_bypasses_is_told() -> None:
    (note,) = (n for n in chain({"skip": "B", "on": "A"}).sparse.counts.notes if "does nothing" in n)
    assert note.startswith("GLB.sparse.actions[0]: skip B on A does nothing, for GLB does not hold B")
    assert "keep B in GLB" in note


def test_an_action_that_has_an_effect_is_not() -> None:
    held = copy.deepcopy(CHAIN)
    held["arch"]["nodes"][0]["sparse"] = {"actions": [{"skip": "B", "on": "A"}]}
    held["workload"]["densities"] = {"A": 0.25, "T": 1}
    found = pm.evaluate(pm.load(held)).sparse
    assert not any("does nothing" in n for n in found.counts.notes)


@pytest.mark.parametrize("density", [0.1, 0.3, 0.01, 1 / 3])
def test_operations_that_cannot_be_are_none(density: float) -> None:
    """Compute skips on both operands and gates nothing: no operation is ineffectual, none gated."""
    report = pm.evaluate(pm.load(CHAIN))
    found = pm.sparsify(report, densities={"A": density, "B": density, "T": 1, "C": density})
    for count in found.counts.compute:
        assert (count.ineffectual, count.gated) == (0, 0)
        assert count.effectual + count.skipped == pytest.approx(count.dense, rel=1e-12)
    assert all(a.gated == 0 for a in found.counts.accesses)
