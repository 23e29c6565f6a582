"""Operators that a compute unit has actions of its own for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.arithmetic import OPERATORS, keeping_zero
from tests.faults import faults
from tests.support.small_specs import leaf, loop, memory, storage

UNIT = {
    "type": "Compute",
    "name": "MAC",
    "actions": [
        {"name": "compute", "energy": 1e-12, "throughput": 1e9},
        {"name": "exp", "energy": 5e-12, "throughput": "1e9 / 8"},
        {"name": "max", "energy": 1e-13, "throughput": 1e9},
    ],
}


def specified(
    operations: dict[str, str], *inputs: str, unit: dict[str, Any] = UNIT, tile: int | str = 1
) -> pm.Spec:
    accesses = [{"name": t, "projection": ["m", "n"]} for t in inputs]
    output = {"name": "Z", "projection": ["m"] if "reduce" in operations else ["m", "n"], "output": True}
    einsum = {"name": "Z", "tensor_accesses": [*accesses, output], "operations": operations}
    workload = {"rank_sizes": {"M": 4, "N": 8}, "bits_per_value": {"All": 8}, "einsums": [einsum]}
    arch = {"nodes": [memory("DRAM", 0, throughput=1e15), unit]}
    mapping = {"nodes": [storage("DRAM", *inputs, "Z"), loop("m", tile), leaf("Z")]}
    return pm.load({"arch": arch, "workload": workload, "mapping": mapping})


@pytest.mark.parametrize("engine", ["enumerate", "exact", "symbolic"])
@pytest.mark.parametrize(
    ("operations", "inputs", "energy", "seconds"),
    [
        ({"map": "exp"}, ("A",), 5e-12, 8e-9),
        ({"map": "exp(_0 - _1)"}, ("A", "B"), 6e-12, 9e-9),
        ({"map": "_0 * exp(_1)"}, ("A", "B"), 6e-12, 9e-9),
        ({"map": "exp(_0 * 2) + 1"}, ("A",), 7e-12, 10e-9),
        ({"map": "max(exp(_0), exp(_1), 2 / 3)"}, ("A", "B"), 10.2e-12, 18e-9),
        ({"map": "mul"}, ("A", "B", "C"), 2e-12, 2e-9),
        ({"map": "identity", "reduce": "max"}, ("A",), 1e-13, 1e-9),
        ({"map": "maximum"}, ("A", "B"), 1e-13, 1e-9),
        ({"reduce": "max"}, ("A",), 1e-13, 1e-9),
        ({}, ("A", "B"), 1e-12, 1e-9),
    ],
)
def test_operations_cost_as_their_operator(
    operations: dict[str, str], inputs: tuple[str, ...], energy: float, seconds: float, engine: str
) -> None:
    report = pm.evaluate(specified(operations, *inputs), engine=engine)
    assert report.total_energy == pytest.approx(32 * energy)
    assert report.total_latency == pytest.approx(32 * seconds)


def test_a_class_of_operators_has_an_action() -> None:
    """`special` stands for those that have none of their own; a unit that tells none apart takes one
    `compute` for an operation."""
    apart = {"compute": 1e-12, "special": 4e-12, "exp": 5e-12}
    for actions, energy in ((apart, 4e-12 + 5e-12 + 1e-12), ({"compute": 1e-12}, 1e-12)):
        unit = {**UNIT, "actions": [{"name": n, "energy": e, "throughput": 1e9} for n, e in actions.items()]}
        report = pm.evaluate(specified({"map": "exp(_0) + tanh(_1)"}, "A", "B", unit=unit))
        assert report.total_energy == pytest.approx(32 * energy)


def test_all_entry_points_cost_each_operator() -> None:
    """exp(_0 * 2) + 1: 5 pJ and 8 ns, 1 pJ and 1 ns, and the same again, 32 times."""
    spec = specified({"map": "exp(_0 * 2) + 1"}, "A", tile="T")
    joules, seconds = pytest.approx(32 * 7e-12), pytest.approx(32 * 10e-9)
    (best,) = pm.explore(spec.bind(T=2), objectives=["energy", "latency"])
    assert (best.energy, best.latency) == (joules, seconds)
    swept = pm.sweep(spec, {"T": [1, 4]}, objectives=["energy", "latency"], keep="all").frame
    assert (swept.energy.tolist(), swept.latency.tolist()) == ([32 * 7e-12] * 2, [seconds] * 2)
    closed = pm.closed_forms(spec)
    assert [float(closed.value(what)) for what in ("energy", "latency")] == [joules, seconds]
    energy = pm.evaluate(spec.bind(T=2)).energy
    mine = energy[energy.component == "MAC"]
    assert dict(zip(mine.action, mine["count"], strict=True)) == {"exp": 32, "compute": 64}


FULL = {
    **UNIT,
    "actions": [
        *UNIT["actions"],
        {"name": "add", "energy": 2e-13, "throughput": 2e9},
        {"name": "tanh", "energy": 7e-12, "throughput": 1e9},
    ],
}


@pytest.mark.parametrize("engine", ["enumerate", "exact", "symbolic"])
@pytest.mark.parametrize(
    ("operations", "inputs", "energy", "seconds"),
    [
        # 32 exponentials, each added or compared: 5 pJ and 8 ns, 0.2 pJ and 0.5 ns, 0.1 pJ and 1 ns.
        ({"map": "exp", "reduce": "add"}, ("A",), 32 * 5.2e-12, 32 * 8.5e-9),
        ({"map": "exp(_0 - _1)", "reduce": "max"}, ("A", "B"), 32 * 5.3e-12, 32 * 9.5e-9),
        ({"map": "mul", "reduce": "max"}, ("A", "B"), 32 * 1.1e-12, 32 * 2e-9),
        ({"map": "mul", "reduce": "add"}, ("A", "B"), 32 * 1e-12, 32 * 1e-9),  # a multiply-accumulate
        # Of 4 results the hyperbolic tangent, 7 pJ and 1 ns; the unit has no action of its own for relu.
        ({"reduce": "add", "populate": "tanh"}, ("A", "B"), 32 * 1e-12 + 4 * 7e-12, 32e-9 + 4e-9),
        ({"reduce": "add", "populate": "tanh(_ + 1); relu"}, ("A", "B"), 60.8e-12, 38e-9),
        ({"map": "exp", "populate": "tanh"}, ("A",), 32 * 12e-12, 32 * 9e-9),
    ],
)
def test_what_reduces_and_what_finishes_results_costs_where_the_unit_has_an_action(
    operations: dict[str, str], inputs: tuple[str, ...], energy: float, seconds: float, engine: str
) -> None:
    report = pm.evaluate(specified(operations, *inputs, unit=FULL), engine=engine)
    assert report.total_energy == pytest.approx(energy)
    assert report.total_latency == pytest.approx(seconds)


def test_all_entry_points_cost_reductions_and_results() -> None:
    """32 exponentials and additions, 4 hyperbolic tangents."""
    operations = {"map": "exp", "reduce": "add", "populate": "tanh"}
    spec = specified(operations, "A", tile="T", unit=FULL)
    joules, seconds = pytest.approx(32 * 5.2e-12 + 28e-12), pytest.approx(32 * 8.5e-9 + 4e-9)
    (best,) = pm.explore(spec.bind(T=2), objectives=["energy", "latency"])
    assert (best.energy, best.latency) == (joules, seconds)
    swept = pm.sweep(spec, {"T": [1, 4]}, objectives=["energy", "latency"], keep="all").frame
    assert (swept.energy.tolist(), swept.latency.tolist()) == ([joules] * 2, [seconds] * 2)
    closed = pm.closed_forms(spec)
    assert [float(closed.value(what)) for what in ("energy", "latency")] == [joules, seconds]
    report = pm.evaluate(spec.bind(T=2))
    mine = report.energy[report.energy.component == "MAC"]
    assert dict(zip(mine.action, mine["count"], strict=True)) == {"exp": 32, "add": 32, "tanh": 4}


def test_of_sparse_data_every_result_is_finished() -> None:
    """Half of the products are left out; 4 results are finished all the same."""
    unit = {**FULL, "sparse": {"actions": [{"skip": "compute", "on": ["A"]}]}}
    spec = specified({"reduce": "add", "populate": "tanh"}, "A", "B", unit=unit)
    found = pm.sparsify(pm.evaluate(spec), densities={"A": 0.5})
    assert found.total_energy == pytest.approx(16e-12 + 28e-12)
    assert found.total_latency == pytest.approx(16e-9 + 4e-9)


def test_an_action_that_is_no_operator_is_refused() -> None:
    unit = {**UNIT, "actions": [{"name": "exq", "energy": 1}]}
    with faults("unknown-name", at="arch.nodes[1].actions[0].name"):
        pm.load({"arch": {"nodes": [memory("DRAM", 0), unit]}})


@pytest.mark.parametrize("name", sorted({o.name for o in OPERATORS.values()}))
def test_what_the_table_says_of_an_operator_is_what_it_computes(name: str) -> None:
    one, x = OPERATORS[name], 0.75
    if one.arity == 1:
        with np.errstate(divide="ignore"):
            assert one.at_zero is None or one.form(np.float64(0)) == one.at_zero
        assert (one.at_zero == 0) == (name in keeping_zero())
        return
    if one.identity is not None:
        assert one.form(x, one.identity) == x
    if one.annihilator is not None:
        assert one.form(one.annihilator, x) == one.annihilator
    if one.commutes:
        assert one.form(x, 2.5) == one.form(2.5, x)
