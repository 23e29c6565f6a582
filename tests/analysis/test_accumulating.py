"""Einsums that add to what is there (`Z += A`): backing storage has a value to read from the start."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.workload.einsum import Cascade
from tests.analysis.test_agreement import assert_few_refusals
from tests.analysis.test_several_accesses import evaluated, moved
from tests.analysis.unchecked import engines_and_gate_agree
from tests.faults import faults
from tests.generators import lawless
from tests.support.small_specs import leaf, loop, product, spread, storage

ENGINES = ("enumerate", "exact", "symbolic")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_product_is_added_to_what_is_there(engine: str) -> None:
    """Every one of the 16 elements is read before it is first written; K = 4 operations update each."""
    sums = product(einsums=["Z[m, n] += A[m, k] * B[k, n]"])
    nodes = [storage("DRAM", "A", "B", "Z"), loop("m", 2), storage("GLB", "Z"), leaf("Z")]
    report = evaluated(sums, *nodes, engine=engine)
    assert moved(report, "Z") == {"DRAM": (16, 0, 0, 16), "GLB": (64, 16, 16, 64)}
    fresh = evaluated(product(), *nodes, engine=engine)
    assert moved(fresh, "Z") == {"DRAM": (0, 0, 0, 16), "GLB": (48, 16, 0, 64)}


@pytest.mark.parametrize("engine", ENGINES)
def test_one_of_the_instances_that_sum_up_gets_the_value(engine: str) -> None:
    sums = product(einsums=["Z[m, n] += A[m, k] * B[k, n]"])
    nodes = [storage("DRAM", "A", "B", "Z"), storage("GLB", "Z"), spread("k", 1), leaf("Z")]
    report = evaluated(sums, *nodes, engine=engine, fanout=4, may_reuse="Z")
    assert moved(report, "Z") == {"DRAM": (16, 0, 0, 16), "GLB": (16, 16, 16, 16)}


def test_a_sum_with_its_own_output_is_an_update() -> None:
    def outputs(text: str) -> str:
        return str(pm.load({"workload": product(einsums=[text], rank_sizes={"M": 4, "N": 4})}).workload)

    assert outputs("Z[m, n] = Z[m, n] + A[m, n]") == outputs("Z[m, n] += A[m, n]")
    assert "Z[m, n] += A[m, n]" in outputs("Z[m, n] = A[m, n] + Z[m, n]")
    with faults("illegal-dependence", at="workload.einsums[0]"):
        pm.load({"workload": product(einsums=["Z[m] = Z[m] + A[m, k]"], rank_sizes={"M": 4, "K": 4})})


def test_only_outputs_accumulate() -> None:
    accesses = [
        {"name": "A", "projection": ["m"], "accumulate": True},
        {"name": "Z", "projection": ["m"], "output": True},
    ]
    workload = {**product(), "rank_sizes": {"M": 4}, "einsums": [{"name": "E", "tensor_accesses": accesses}]}
    with faults("invalid-einsum", at="workload.einsums[0].tensor_accesses[0].accumulate"):
        pm.load({"workload": workload})


@st.composite
def accumulating(draw: st.DrawFn, simple: bool = False) -> Problem:
    """A drawn problem in which some outputs have values before."""
    problem = draw(lawless(simple=simple))
    einsums = []
    for e in problem.cascade:
        adds = not e.is_copy and draw(st.integers(0, 9)) < 7
        accesses = (replace(a, accumulates=True) if a.output and adds else a for a in e.accesses)
        einsums.append(replace(e, accesses=tuple(accesses)))
    assume(any(a.accumulates for e in einsums for a in e.outputs))
    return replace(problem, cascade=Cascade(tuple(einsums)))


def run_many(count: int, simple: bool = False) -> Counter[str]:
    """Compare the engines, and the gate with the referee, on generated problems."""
    return engines_and_gate_agree(accumulating(simple=simple), count)


def test_engines_agree_where_results_are_added_to_what_is_there() -> None:
    tally = run_many(8)
    tally += run_many(5, simple=True)
    assert_few_refusals(tally, 0.05)


@pytest.mark.slow
def test_engines_agree_where_results_are_added_to_what_is_there_at_length() -> None:
    tally = run_many(2_000) + run_many(1_000, simple=True)
    assert_few_refusals(tally, 0.01)
    assert tally["closed forms"] > 500


def read_and_written(operator: str | None, **more: object) -> dict[str, object]:
    """Z made of Z and A by an operator, in the long form."""
    accesses = [{"name": t, "projection": ["m"]} for t in ("Z", "A")]
    output = {"name": "Z", "projection": {"M": "m"}, "output": True}
    operations = {"operations": {"map": operator, **more}} if operator else {}
    einsum = {"name": "Z", "tensor_accesses": [*accesses, output], **operations}
    return product(einsums=[einsum], rank_sizes={"M": 3})


@pytest.mark.parametrize(
    ("operator", "text", "found"),
    [
        (None, "Z[m] *= A[m]", [10, -40, 90]),
        ("mul", "Z[m] *= A[m]", [10, -40, 90]),
        ("plus", "Z[m] += A[m]", [11, -18, 33]),
        ("max", "Z[m] max= A[m]", [10, 2, 30]),
        ("min", "Z[m] min= A[m]", [1, -20, 3]),
    ],
)
def test_what_reads_its_result_updates_it(operator: str | None, text: str, found: list[float]) -> None:
    spec = pm.load({"workload": read_and_written(operator)})
    assert text in str(spec.workload["Z"])
    assert pm.values(spec, {"Z": [10, -20, 30], "A": [1, 2, 3]})["Z"].tolist() == found


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("operator", ["add", "mul", "max"])
def test_updates_move_alike_whatever_they_join_by(engine: str, operator: str) -> None:
    nodes = [storage("DRAM", "A", "Z"), loop("m", 2), storage("GLB", "Z"), leaf("Z")]
    report = evaluated(read_and_written(operator), *nodes, engine=engine)
    assert moved(report, "Z") == {"DRAM": (3, 0, 0, 3), "GLB": (3, 3, 3, 3)}


def test_products_update_in_one_line() -> None:
    one, other = (
        pm.load({"workload": product(einsums=[e], rank_sizes=sizes)})
        for e, sizes in (("Z[m] *= A[m, k]", {"M": 3, "K": 2}), ("Z[m] = Z[m] * B[m]", {"M": 3}))
    )
    assert pm.values(one, {"Z": [1, 2, 3], "A": [[2, 3]] * 3})["Z"].tolist() == [6, 12, 18]
    assert pm.values(other, {"Z": [1, 2, 3], "B": [2, 3, 4]})["Z"].tolist() == [2, 6, 12]


@pytest.mark.parametrize(
    "operations", [{"map": "sub"}, {"map": "_0 / _1"}, {"map": "exp"}, {"map": "mul", "reduce": "add"}]
)
def test_other_operators_update_nothing(operations: dict[str, str]) -> None:
    with faults("cyclic-cascade", at="workload.einsums[0]"):
        pm.load({"workload": read_and_written(operations["map"], **operations)})


def test_what_is_subtracted_is_added_negative() -> None:
    with faults("cyclic-cascade", "_0", at="workload.einsums[0]"):
        pm.load({"workload": read_and_written("sub")})
    output = {"name": "Z", "projection": ["m"], "output": True, "accumulate": True}
    einsum = {"name": "Z", "operations": {"map": "-_0", "reduce": "add"},
              "tensor_accesses": [{"name": "A", "projection": ["m"]}, output]}  # fmt: skip
    spec = pm.load({"workload": product(einsums=[einsum], rank_sizes={"M": 2})})
    assert pm.values(spec, {"Z": [10, 20], "A": [1, 2]})["Z"].tolist() == [9, 18]
