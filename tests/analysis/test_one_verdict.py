"""One verdict from every door: engines, validate, sweeps, closed forms, explore; against the referee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel import cli
from polymodel.analysis.enumerate import violation
from polymodel.errors import SpecError
from polymodel.sweeps import pointwise
from tests.analysis.campaign import campaign
from tests.analysis.verdicts import Found
from tests.faults import faults

SPEC = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Memory {name: GLB, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 4, may_reuse: A}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
workload:
  rank_sizes: {M: 2, K: 4}
  bits_per_value: {All: 8}
  einsums: ["Z[m] = A[m, k]"]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, Z]}
  - !Spatial {rank_variable: k, tile_shape: TK, component: PE, name: X}
  - !Compute {einsum: Z, component: MAC}
symbols: {TK: 1}
"""
ENGINES = ("auto", "exact", "enumerate", "symbolic")


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """Four units sum up Z, which their fanout may not reduce."""
    file = tmp_path / "spread.yaml"
    file.write_text(SPEC, encoding="utf-8")
    return file


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_over_a_fanout_that_may_not_reduce_them(spread: Path, engine: str) -> None:
    spec = pm.load(spread)
    with faults("unreduced-output", "Z", "PE.X", "k", at="mapping") as fault:
        pm.evaluate(spec, engine=engine)
    assert fault.value.diagnostics[0].code == "unreduced-output"
    assert pm.evaluate(spec, engine=engine, symbols={"TK": 4}).analysis.compute[0].operations == 8


def test_the_referee_of_the_gate_sees_them_too(spread: Path) -> None:
    spec = pm.load(spread)
    for size, broken in ((1, True), (2, True), (4, False)):
        bound = spec.bind(TK=size)
        assert bound.mapping is not None
        assert (violation(pm.Problem(bound.workload, bound.arch, bound.mapping)) is not None) == broken


def test_validate_and_closed_forms_see_them_too(spread: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(spread)]) == 2
    assert "which does not index it" in capsys.readouterr().err
    assert cli.main(["validate", str(spread), "--set", "TK=4"]) == 0
    with faults("unreduced-output", "Z", "PE.X", "k", at="mapping"):
        pm.closed_forms(pm.load(spread), tiles=True)
    spread.write_text(SPEC.replace("TK: 1", "TK: null"), encoding="utf-8")
    forms = pm.closed_forms(pm.load(spread))
    assert forms.at(TK=4).table("accesses").rows
    with faults("unreduced-output", "Z", "PE.X", "k", at="mapping"):
        forms.at(TK=2)


def test_every_point_of_a_sweep_has_the_verdict_of_evaluate(
    spread: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: Any = pm.sweep(pm.load(spread), {"TK": [1, 2, 4]}, objectives=("energy",), keep="all")
    assert list(swept.frame["TK"]) == [4]
    assert [(n, "does not index it" in why) for why, n in swept.infeasible.items()] == [(2, True)]
    with faults("unreduced-output", "Z", "PE.X", "k", at="mapping"):
        pm.sweep(pm.load(spread), {"TK": [1, 2]}, objectives=("energy",))
    monkeypatch.setattr(pointwise, "MOST", 2)
    only = pm.sweep(pm.load(spread), {"TK": [1, 2, 4]}, objectives=("energy",), keep="all", where=["TK >= 4"])
    assert list(only.frame["TK"]) == [4]


def test_storage_below_a_spatial_loop_that_does_not_replicate_it(spread: Path) -> None:
    """It was counted by closed forms and the referee, and refused by relations."""
    held = "  - !Storage {component: GLB, tensors: [A]}\n  - !Compute {einsum"
    text = SPEC.replace("may_reuse: A", "may_reuse: All").replace("  - !Compute {einsum", held)
    spread.write_text(text, encoding="utf-8")
    with faults("misplaced-storage", at="mapping.nodes[2]"):
        pm.load(spread)


SHARED = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 2}]}
  - !Memory {name: RF, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
workload:
  rank_sizes: {M: 3, K: 1, N: 2}
  bits_per_value: {All: 1}
  einsums: ["T[m, n] = A[m, k] * W[k, n]", "Z[m, n] = T[m, n] * V[n]"]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, W, V, Z]}
  - !Spatial {rank_variable: {T: k, Z: n}, tile_shape: 1, component: PE, name: X}
  - !Storage {component: RF, tensors: [T]}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Sequential
    nodes:
    - !Nested {nodes: [!Compute {einsum: T, component: MAC}]}
    - !Nested {nodes: [!Compute {einsum: Z, component: MAC}]}
"""
SPREAD = "Spatial {rank_variable: {T: k, Z: n}, tile_shape: 1, component: PE, name: X"


def test_the_referee_sees_operations_that_never_execute(tmp_path: Path) -> None:
    """Z is executed again where T is, which is in one of the two instances that Z is spread over."""
    file = tmp_path / "shared.yaml"
    file.write_text(SHARED, encoding="utf-8")
    spec = pm.load(file)
    with faults("illegal-dependence", at="mapping"):
        pm.evaluate(spec)
    assert spec.mapping is not None
    found = violation(pm.Problem(spec.workload, spec.arch, spec.mapping))
    assert found is not None
    assert (found.consumer, found.reason) == ("Z", "some operations that produce it never execute")


def _shared(file: Path, changes: dict[str, str]) -> tuple[pm.Spec, pm.Problem]:
    text = SHARED
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    spec = pm.load(file)
    assert spec.mapping is not None
    return spec, pm.Problem(spec.workload, spec.arch, spec.mapping)


def test_sums_that_start_afresh_in_each_iteration_of_a_loop_above(tmp_path: Path) -> None:
    """Z is executed again in the one iteration over k, once for each n that it sums up; nobody reads it."""
    changes = {
        "Z[m, n] = ": "Z[m] = ",
        SPREAD: "Temporal {rank_variable: n, tile_shape: 1",
    }
    spec, problem = _shared(tmp_path / "again.yaml", changes)
    with faults("illegal-dependence", at="mapping"):
        pm.evaluate(spec)
    found = violation(problem)
    assert found is not None
    assert (found.consumer, found.reason) == (
        "Z",
        "an iteration of the loops above produces only a part of it",
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_in_instances_of_a_storage_below_what_infers_them(tmp_path: Path, engine: str) -> None:
    """Each instance has a part of T, which is executed as the loop over n needs it."""
    changes = {
        "M: 3, K: 1, N: 2": "J: 4, K: 2, N: 4",
        "T[m, n] = A[m, k] * W[k, n]": "T[j] = A[j, k] * W[k]",
        "Z[m, n] = T[m, n] * V[n]": "Z[n] = T[J=n] * V[n]",
        "  - !Spatial": "  - !Temporal {rank_variable: n, tile_shape: 2}\n  - !Spatial",
        "  - !Temporal {rank_variable: k, tile_shape: 1}\n": "",
        "{name: X, fanout: 2}": "{name: X, fanout: 2, may_reuse: All}",
    }
    spec, problem = _shared(tmp_path / "parts.yaml", changes)
    assert violation(problem) is not None
    with faults("illegal-dependence", "T[J=0]", "Z", "k", at="mapping"):
        pm.evaluate(spec, engine=engine)


NO_ORDER = {
    "would execute completely in every instance of PE.X": {
        "T[m, n] = A[m, k] * W[k, n]": "T[m] = A[m, k] * W[k]",
        "Z[m, n] = T[m, n] * V[n]": "Z[n] = V[n]",
        "  - !Temporal {rank_variable: k, tile_shape: 1}\n": "",
        "{rank_variable: {T: k, Z: n}": "{rank_variable: n",
    },
    "depends on itself": {
        "T[m, n] = A[m, k] * W[k, n]": "T[j] = A[j, k] * W[k]",
        "Z[m, n] = T[m, n] * V[n]": "Z[n] = T[J=n] * V[n]",
        SPREAD: "Temporal {rank_variable: n, tile_shape: 1",
        "M: 3": "J: 2",
    },
    "several instances would produce the same elements of T": {
        "Z[m, n] = T[m, n] * V[n]": "Z[n, i] = T[M=i] * V[n]",
        "T[m, n] = A[m, k] * W[k, n]": "T[m] = A[m, k] * W[k]",
        "tensors: [A, W, V, Z]": "tensors: [A, W, V, Z, T]",
        SPREAD: "Spatial {rank_variable: n, tile_shape: 1, component: PE, name: X",
        "  - !Storage {component: RF, tensors: [T]}\n": "",
        "  - !Temporal {rank_variable: k, tile_shape: 1}\n": "",
    },
}


@pytest.mark.parametrize("told", NO_ORDER)
def test_what_has_no_order_of_execution_is_a_fault_to_every_door(
    tmp_path: Path, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "order.yaml"
    spec, _ = _shared(file, NO_ORDER[told])
    for engine in ENGINES:
        with pytest.raises(SpecError, match=told) as fault:
            pm.evaluate(spec, engine=engine)
        assert [d.code for d in fault.value.diagnostics] == ["illegal-dependence"]
    assert cli.main(["validate", str(file)]) == 2
    assert told in capsys.readouterr().err
    text = file.read_text(encoding="utf-8").replace("tile_shape: 1", "tile_shape: TN")
    file.write_text(text + "symbols: {TN: 1}\n", encoding="utf-8")
    swept: Any = pm.sweep(pm.load(file), {"TN": [1, 2]}, objectives=("energy",), keep="all")
    assert any(told in why for why in swept.infeasible)


OWN_TILES = """
workload:
  rank_sizes: {P: 5}
  bits_per_value: {All: 8}
  einsums: ["B[p] = A[p]", "C[p] = B[p]"]
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 4}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: p, tile_shape: {B: T, C: 4}}
  - !Temporal {rank_variable: p, tile_shape: 5}
  - !Sequential
    nodes:
    - !Nested
      nodes:
      - !Compute {einsum: B, component: MAC}
    - !Nested
      nodes:
      - !Spatial {rank_variable: p, tile_shape: 1, component: PE, name: X}
      - !Compute {einsum: C, component: MAC}
"""


def test_a_shared_tile_holds_no_more_values_than_the_einsums_own(tmp_path: Path) -> None:
    """The 4 values of C in a tile of 5 take 4 instances."""
    (file := tmp_path / "own.yaml").write_text(OWN_TILES, encoding="utf-8")
    reports = [pm.evaluate(pm.load(file, symbols={"T": 5}), engine=e) for e in ("exact", "enumerate")]
    (point,) = pm.sweep(pm.load(file), {"T": [5]}, keep="all").frame.to_dict("records")
    assert [r.total_energy for r in reports] == [point["energy"]] * 2


def _run(total: int, seed: int) -> Found:
    every = Found()
    for found in campaign(total, seed, 1):
        every.add(found)
    return every


def test_doors_agree_on_generated_specs() -> None:
    found = _run(14, 11)
    assert found.differences == []
    assert found.counts["fused"] >= 8
    assert found.counts["illegal"] >= 4
    assert found.counts["closed"] >= 5
    assert found.counts["exact under another policy"] >= 15
    assert found.counts["symbolic under another policy"] >= 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_doors_agree_on_generated_specs_at_length(seed: int) -> None:
    assert _run(600, 100 + seed).differences == []
