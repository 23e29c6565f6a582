"""Operators that a workload defines: computed, priced and asked about zeros as others are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults, refused
from tests.support.small_specs import leaf, memory, storage

SOFT = {"form": "log(exp(_0) + exp(_1))", "identity": "-inf"}
CAP = {"form": "min(max(_0, -1), 1)", "cost": "compare"}


def workload(
    operations: dict[str, str], operators: dict[str, object], *reads: str, **more: object
) -> pm.Spec:
    ranks = {"A": ["m", "k"], "B": ["k"], "C": ["m"]}
    read = [{"name": name, "projection": ranks[name]} for name in reads or ("A", "B")]
    made = {"name": "Z", "projection": ["m"], "output": True}
    einsum = {"name": "Z", "tensor_accesses": [*read, made], "operations": operations}
    ranked = {"M": 4} if reads == ("C",) else {"M": 4, "K": 5}
    sizes = {"rank_sizes": ranked, "bits_per_value": {"All": 8}}
    return pm.load({"workload": {**sizes, "operators": operators, "einsums": [einsum]}, **more})


def test_values_follow_from_the_formulas() -> None:
    """`scaled` uses `cap`; what reduces is joined pair by pair, from 5 values to 1."""
    operators = {"soft": SOFT, "cap": CAP, "scaled": {"form": "cap(_0) * _1"}}
    spec = workload({"map": "scaled", "reduce": "soft", "populate": "cap"}, operators)
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(4, 5)), rng.normal(size=5)
    want = np.clip(np.log(np.exp(np.clip(a, -1, 1) * b).sum(1)), -1, 1)
    assert np.abs(pm.values(spec, {"A": a, "B": b})["Z"] - want).max() < 1e-14
    joined = workload({"map": "soft", "reduce": "max"}, {"soft": SOFT}, "A", "B", "A")
    want = np.log(2 * np.exp(a) + np.exp(b)).max(1)
    assert np.abs(pm.values(joined, {"A": a, "B": b})["Z"] - want).max() < 1e-14


def test_it_costs_as_said_or_as_the_operators_of_its_formula() -> None:
    def cost(operations: dict[str, str], operators: dict[str, Any], *inputs: str) -> dict[str, int]:
        return dict(workload(operations, operators, *inputs).workload["Z"].operators)

    assert cost({"map": "cap"}, {"cap": CAP}, "C") == {"compare": 1}
    assert cost({"map": "cap"}, {"cap": {"form": CAP["form"]}}, "C") == {"min": 1, "max": 1}
    assert cost({"map": "cap(_0) * _1"}, {"cap": CAP}) == {"compare": 1, "mul": 1}
    assert cost({"map": "exp(cap(_0)) + cap(_1)"}, {"cap": {**CAP, "cost": "special"}}) == {
        "special": 2, "exp": 1, "add": 1,
    }  # fmt: skip
    summed = {"soft": {**SOFT, "cost": "exp"}}
    assert cost({"reduce": "soft"}, summed, "A") == {"exp": 1}
    assert cost({"reduce": "soft"}, summed) == {"mul": 1}


@pytest.mark.parametrize(("form", "effectual"), [("min(max(_0, -1), 1)", 2), ("max(_0, 1)", 4)])
def test_what_it_makes_of_zeros_follows(form: str, effectual: int) -> None:
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    arch = {"nodes": [memory("DRAM", 1e-12), unit]}
    mapping = {"nodes": [storage("DRAM", "C", "Z"), leaf("Z")]}
    spec = workload({"map": "own"}, {"own": {"form": form}}, "C", arch=arch, mapping=mapping)
    report = pm.evaluate(spec)
    assert pm.sparsify(report, densities={"C": 0.5}).counts.compute[0].effectual == effectual


@pytest.mark.parametrize(
    ("operators", "operation", "told"),
    [
        ({"soft": {**SOFT, "identity": 0}}, "mul", "operators.soft: 0 does not leave other operands as they"),
        ({"own": {"form": "exp(_0)", "identity": 0}}, "mul", "an operator of one operand has no identity"),
        ({"exp": {"form": "_0"}}, "mul", "exp is an operator already"),
        ({"own": {"form": "_0 + _2"}}, "mul", "is not a formula of operands"),
        ({"own": {"form": "A + _0"}}, "mul", "is not a formula of operands"),
        ({"own": {"form": "exq(_0)"}}, "mul", "unknown function exq"),
        ({"own": {"form": "later(_0)"}, "later": {"form": "_0"}}, "mul", "unknown function later"),
        ({"own": {"form": "_0", "cost": "exq"}}, "mul", "exq is not an operator that it could cost as"),
        ({"own": {"form": "_0 +"}}, "mul", "expected a number, a name"),
        ({"own": {"form": "__import__('os')"}}, "mul", "unexpected character"),
        ({"own": {"form": "exp(_0, _1)"}}, "mul", "exp takes 1 operands, not 2"),
        ({"own": {"form": "sub(_0)"}}, "mul", "sub takes 2 operands, not 1"),
        ({"own": {"form": "_0 // 2"}}, "mul", "unknown operator //"),
        ({"_1": {"form": "_0"}}, "mul", "_1 is what operands are called in formulas"),
        ({"own": {"form": "_0 + _1 + _0 * _0 * _1", "identity": 0}}, "mul", "depends on the order"),
        ({"cap": CAP}, "cap", r"einsums\[0\].operations.map: cap takes 1 operands, not 2"),
        ({f"d{i}": {"form": f"d{i - 1}(_0) * d{i - 1}(_0)" if i else "_0 * _0"} for i in range(40)}, "mul",
         "with all definitions in it the formula has more than 5000 parts"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_one_is_told(operators: dict[str, object], operation: str, told: str) -> None:
    with pytest.raises(pm.SpecError, match=told):
        workload({"map": operation}, operators)


def test_without_an_identity_nothing_is_reduced() -> None:
    with faults("invalid-operator", at="workload.einsums[0].operations.reduce"):
        workload({"reduce": "soft"}, {"soft": {"form": SOFT["form"]}})


@pytest.mark.parametrize(
    ("operations", "code", "kind"),
    [
        ({"map": "nosuchop"}, "unknown-name", "map"), ({"map": "expp(_0) * _1"}, "unknown-name", "map"),
        ({"populate": "frob"}, "unknown-name", "populate"), ({"map": "_0 * Q"}, "unknown-name", "map"),
        ({"map": "exp"}, "wrong-count", "map"), ({"map": "exp(_0, _1)"}, "wrong-count", "map"),
        ({"reduce": "sub"}, "invalid-operator", "reduce"),
        ({"populate": "relu; max"}, "wrong-count", "populate"),
    ],
)  # fmt: skip
def test_an_operator_without_a_meaning_is_a_fault(operations: dict[str, str], code: str, kind: str) -> None:
    with faults(code, at=f"workload.einsums[0].operations.{kind}"):
        workload(operations, {})


def test_an_operator_that_is_only_counted_is_declared() -> None:
    """What it makes of zeros is what is said of it."""
    spec = workload({"map": "frob", "populate": "frob; relu"}, {"frob": {"cost": "exp"}}, "C")
    assert spec.workload["Z"].operators == (("exp", 1),)
    with refused("unsupported-operation"):
        pm.values(spec, {"C": np.ones(4)})
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    more = {
        "arch": {"nodes": [memory("DRAM", 1e-12), unit]},
        "mapping": {"nodes": [storage("DRAM", "C", "Z"), leaf("Z")]},
    }
    zero = workload({"map": "frob"}, {"frob": {"at_zero": 0}}, "C", **more)
    assert pm.sparsify(pm.evaluate(zero), densities={"C": 0.5}).counts.compute[0].effectual == 2
    with refused("unsupported-operation", "C", "frob"):
        pm.sparsify(pm.evaluate(workload({"map": "frob"}, {"frob": {}}, "C", **more)), densities={"C": 0.5})
    with faults("invalid-operator", at="workload.operators.own"):
        workload({"map": "own"}, {"own": {"form": "_0 + _1", "annihilator": 0}})
