"""Sweeps on sparse data of fused Einsums, tolls, windows, several architectures; in shares and stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import InternalError
from tests.seeds import seeds
from tests.sweep.small import same
from tests.sweep.test_sparse import SKIP, SYMBOLS, spec

ASKED = ("energy", "latency", "reads:DRAM", "accesses:GLB", "working_set:GLB")

CHAIN = """
schema_version: 1
symbols: {TM: null, TN: null, TK: null, SIZE: 1000000, JOULES: 1.0}
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {keep: ~Intermediates}
    actions: [{name: read, energy: JOULES, throughput: 8}, {name: write, energy: 2 * JOULES, throughput: 8}]
    sparse:
      format: {A: CSR, C: [CP, B]}
      actions: [{skip: B, on: A}]
  - !Toll
    name: NoC
    tensors: {keep: All}
    actions: [{name: read, energy: 0.25, throughput: 16}, {name: write, energy: 0.5, throughput: 12}]
  - !Memory
    name: GLB
    size: SIZE
    tensors: {keep: All}
    leak_power: 0.001
    actions:
    - {name: read, energy: 0.1, throughput: 24}
    - {name: write, energy: 0.2, throughput: 24}
    - {name: gated_write, energy: 0.01}
    sparse:
      format: {T: COO}
      actions: [{gate: C, on: T}, {skip: T, on: [A, C]}]
  - !Container {name: PE, spatial: [{name: X, fanout: 16}]}
  - !Compute
    name: MAC
    actions: [{name: compute, energy: 0.3, throughput: 1}]
    sparse:
      actions: [{skip: compute, on: [A, T]}]
workload:
  rank_sizes: {M: 12, K: 10, N: 9, P: 4}
  bits_per_value: {All: 8}
  densities: {A: 0.1, C: 0.5}
  einsums:
  - T[m, n] = A[m, k] * B[k, n]
  - Z[m, p] = T[m, n] * C[n, p]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C, Z]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Storage {component: GLB, tensors: [T]}
  - !Temporal {rank_variable: n, tile_shape: TN}
  - !Sequential
    nodes:
    - !Nested
      nodes:
      - !Temporal {rank_variable: k, tile_shape: TK}
      - !Storage {component: GLB, tensors: [A, B], reuse: keep_previous}
      - !Spatial {rank_variable: k, tile_shape: 1, component: PE, name: X}
      - !Compute {einsum: T, component: MAC}
    - !Nested
      nodes:
      - !Storage {component: GLB, tensors: [C, Z]}
      - !Temporal {rank_variable: p, tile_shape: 1}
      - !Compute {einsum: Z, component: MAC}
"""
FEW: Mapping[str, list[int]] = {"TM": [5], "TN": [2, 9], "TK": [4]}
TILES: Mapping[str, list[int]] = {"TM": [1, 5, 6], "TN": [2, 4, 9], "TK": [1, 4, 10]}

WINDOW = """
schema_version: 1
symbols: {TP: null, TQ: null, TC: null}
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {keep: All}
    actions: [{name: read, energy: 1, throughput: 8}, {name: write, energy: 2, throughput: 8}]
    sparse:
      format: {F: [CP, CP, CP]}
      actions: [{skip: F, on: I}, {skip: I, on: F}]
  - !Memory
    name: GLB
    size: inf
    tensors: {keep: All}
    actions: [{name: read, energy: 0.1, throughput: 24}, {name: write, energy: 0.2, throughput: 24}]
    sparse:
      format: {I: [U, CP, CP]}
      actions: [{gate: O, on: [I, F]}]
  - !Compute
    name: MAC
    actions: [{name: compute, energy: 0.3, throughput: 1}]
    sparse:
      actions: [{gate: compute, on: I}]
workload:
  rank_sizes: {C: 4, P: 8, Q: 5, R: 3, S: 2}
  bits_per_value: {All: 8}
  densities: {I: 0.15, F: 0.4}
  einsums:
  - O[p, q] = I[c, H=p + r, W=q + s] * F[c, r, s]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, F, O]}
  - !Temporal {rank_variable: c, tile_shape: TC}
  - !Temporal {rank_variable: p, tile_shape: TP}
  - !Temporal {rank_variable: q, tile_shape: TQ}
  - !Storage {component: GLB, tensors: [I, F, O], reuse: slide}
  - !Compute {einsum: O, component: MAC}
"""


def loaded(folder: Path, text: str) -> pm.Spec:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return pm.load(path)


def check(one: pm.Spec, symbols: Mapping[str, Any], count: int, more: str = "") -> None:
    """All points at once, none by itself; and rows that are what a sparse report says."""
    whole = pm.sweep(one, symbols, objectives=["sparse_energy"], keep="all")
    assert not whole.notes
    assert len(whole.frame) == count
    for _, row in whole.frame.iterrows():
        report = pm.evaluate(whole.spec(row)).sparse
        assert math.isclose(row["sparse_energy"], report.total_energy, rel_tol=1e-9)
        assert math.isclose(row["sparse_latency"], report.total_latency, rel_tol=1e-9)
        assert row["feasible"] == report.feasible
    for name in (*ASKED, *more.split()):
        found = pm.sweep(one, symbols, objectives=["sparse_" + name], keep="top", top=1000)
        assert not found.notes
        assert len(found.frame) == whole.frame["feasible"].sum()
        assert (found.frame["sparse_" + name] > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("tiles", "count"), seeds(1, [(FEW, 2), (TILES, 27)]))
def test_fused_einsums_with_a_sparse_tensor_between(
    tmp_path: Path, tiles: Mapping[str, list[int]], count: int
) -> None:
    check(loaded(tmp_path, CHAIN), tiles, count, "accesses:NoC")


WINDOWS = [({"TC": [3], "TP": [3, 8], "TQ": [2]}, 2), ({"TC": [1, 3], "TP": [1, 3, 8], "TQ": [2, 5]}, 12)]


@pytest.mark.slow
@pytest.mark.parametrize(("tiles", "count"), seeds(1, WINDOWS))
def test_windows(tmp_path: Path, tiles: Mapping[str, list[int]], count: int) -> None:
    check(loaded(tmp_path, WINDOW), tiles, count)


@pytest.mark.slow
@pytest.mark.parametrize("rows", seeds(1, [[12], [2, 12]]))
def test_several_architectures(tmp_path: Path, rows: list[int]) -> None:
    one = loaded(tmp_path, CHAIN)
    tiles = {"TM": rows, "TN": [4], "TK": [5]}
    check(one, {**tiles, "SIZE": [700, 2000], "JOULES": [1.0, 7.0]}, 4 * len(rows))


@pytest.mark.slow
@pytest.mark.parametrize("rows", seeds(1, [[1, 6], [1, 2, 3, 6]]))
def test_symbols_that_follow_from_others(tmp_path: Path, rows: list[int]) -> None:
    symbols = {"TM": rows, "TN": "TM + 1", "TK": "min(TM, 5)"}
    check(loaded(tmp_path, CHAIN), symbols, len(rows))


@pytest.mark.slow
@pytest.mark.parametrize("keep", seeds(1, ["top", "front", "all"]))
def test_shares_and_stores_find_the_same(tmp_path: Path, keep: Any) -> None:
    one = spec(dram=SKIP, glb={"format": {"A": "CSR"}}, size=900)
    options: dict[str, Any] = {"objectives": ("sparse_latency", "sparse_energy"), "keep": keep}
    alone = pm.sweep(one, SYMBOLS, **options)
    assert len(alone.frame)
    same(pm.sweep(one, SYMBOLS, **options, workers=2), alone)
    same(pm.sweep(one, SYMBOLS, **options, store=tmp_path), alone)
    same(pm.sweep(one, SYMBOLS, **options, store=tmp_path), alone)


def test_tile_sizes_are_not_pruned() -> None:
    one = spec(dram=SKIP)
    found = pm.sweep(one, SYMBOLS, objectives=["sparse_energy", "sparse_latency"], prune=True)
    assert found.pruned == 0
    assert found.frame.equals(pm.sweep(one, SYMBOLS, objectives=["sparse_energy", "sparse_latency"]).frame)


def test_figures_of_all_points_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    from polymodel.sweeps.sparse.figures import SparseBlockFigures

    wrong = property(lambda self: self.found.sparse_latency * (1 + 1e-8))
    monkeypatch.setattr(SparseBlockFigures, "latency", wrong)
    with pytest.raises(InternalError, match="sparse_latency is"):
        pm.sweep(spec(dram=SKIP), SYMBOLS, objectives=["sparse_latency"], keep="all")


def test_architectures_that_differ_in_costs_share_their_sums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polymodel.sweeps.sparse import plan

    made: list[Any] = []
    whole = plan.sparse_plan

    def counted(*given: Any) -> Any:
        made.append(whole(*given))
        return made[-1]

    monkeypatch.setattr(plan, "sparse_plan", counted)
    symbols: dict[str, Any] = {"TM": [2, 12], "TN": [4], "TK": [5], "JOULES": [1.0, 7.0, 9.0]}
    found = pm.sweep(loaded(tmp_path, CHAIN), symbols, objectives=["sparse_energy"], keep="top", top=10)
    assert len(found.frame) == 6
    assert len(made) == 1


def test_a_spec_that_says_nothing_of_zeros_is_told() -> None:
    found = pm.sweep(spec(densities={}), SYMBOLS, objectives=["sparse_energy"], keep="top", top=100)
    assert "the spec describes no zeros" in found.notes[0]
    assert found.frame["sparse_energy"].to_numpy() == pytest.approx(
        found.frame["energy"].to_numpy(), rel=1e-12
    )
    assert (found.frame["label"] == "exact").all()
    assert not pm.sweep(spec(dram=SKIP), {"TM": [4], "TN": [4], "TK": [4]}, objectives=["sparse_edp"]).notes
