"""Operators that a compute unit has actions of its own for."""

from __future__ import annotations

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


def evaluated(operations: dict[str, str], *inputs: str, engine: str = "auto") -> pm.Report:
    accesses = [{"name": t, "projection": ["m", "n"]} for t in inputs]
    output = {"name": "Z", "projection": ["m"] if "reduce" in operations else ["m", "n"], "output": True}
    einsum = {"name": "Z", "tensor_accesses": [*accesses, output], "operations": operations}
    workload = {"rank_sizes": {"M": 4, "N": 8}, "bits_per_value": {"All": 8}, "einsums": [einsum]}
    arch = {"nodes": [memory("DRAM", 0, throughput=1e15), UNIT]}
    mapping = {"nodes": [storage("DRAM", *inputs, "Z"), loop("m", 1), leaf("Z")]}
    spec = {"arch": arch, "workload": workload, "mapping": mapping}
    return pm.evaluate(pm.load(spec), engine=engine)


@pytest.mark.parametrize("engine", ["enumerate", "exact", "symbolic"])
@pytest.mark.parametrize(
    ("operations", "inputs", "energy", "seconds"),
    [
        ({"map": "exp"}, ("A",), 5e-12, 8e-9),
        ({"map": "exp(_0 - _1)"}, ("A", "B"), 5e-12, 8e-9),
        ({"map": "_0 * exp(_1)"}, ("A", "B"), 1e-12, 1e-9),
        ({"map": "maximum"}, ("A", "B"), 1e-13, 1e-9),
        ({"reduce": "max"}, ("A",), 1e-13, 1e-9),
        ({}, ("A", "B"), 1e-12, 1e-9),
    ],
)
def test_operations_cost_as_their_operator(
    operations: dict[str, str], inputs: tuple[str, ...], energy: float, seconds: float, engine: str
) -> None:
    report = evaluated(operations, *inputs, engine=engine)
    assert report.total_energy == pytest.approx(32 * energy)
    assert report.total_latency == pytest.approx(32 * seconds)


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
