"""Sweeps of fused layers whose producers are inferred: vectorised, and equal to evaluate."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import polymodel as pm
from benchmarks.tied import flash
from polymodel.analysis.symbolic import pair_atoms
from tests.conv_pair import HOLD, pair_text
from tests.sweep.test_sweep import check_blocks, check_rows

ROWS = "  - !Temporal {rank_variable: p2, tile_shape: TP}\n"
COLUMNS = "  - !Temporal {rank_variable: q2, tile_shape: TQ}\n"
SPREAD = """    - !Nested
      nodes:
      - !Spatial {rank_variable: q1, tile_shape: 1, component: PE, name: X}
      - !Compute {einsum: Layer1, component: MAC}
"""


def fused(folder: Path, nodes: str, *, spread: bool = False) -> pm.Spec:
    """Two 3x3 layers, 10 x 10 into 8 x 8, with costs; `spread`: the first on a row of 9 PEs."""
    text = pair_text(nodes)
    text = text.replace("energy: 0}", "energy: 1.5e-12, throughput: 3.0e9}").replace("throughput: 1}", "}")
    if spread:
        row = "  - !Container {name: PE, spatial: [{name: X, fanout: 9, may_reuse: All}]}\n  - !Compute"
        text = text.replace("  - !Compute", row, 1)
        text = text.replace("    - !Compute {einsum: Layer1, component: MAC}\n", SPREAD)
    file = folder / "pair.yaml"
    file.write_text(text)
    return pm.load(str(file))


OWN = """    - !Nested
      nodes:
      - !Temporal {rank_variable: p1, tile_shape: TI}
      - !Storage {component: GLB, tensors: [F1], reuse: slide}
      - !Compute {einsum: Layer1, component: MAC}
"""


@pytest.mark.slow
def test_own_tiles_fit_the_widest_window(tmp_path: Path) -> None:
    """A tile TP of rows needs TP + 2 rows of F2, which own tiles of the producer cut again."""
    spec = fused(tmp_path, ROWS + REFILL)
    text = (tmp_path / "pair.yaml").read_text()
    text = text.replace("    - !Compute {einsum: Layer1, component: MAC}\n", OWN)
    (tmp_path / "pair.yaml").write_text(text)
    spec = pm.load(str(tmp_path / "pair.yaml"))
    grid = {"TP": list(range(1, 10)), "TI": list(range(1, 12))}
    check_blocks(spec, grid)
    swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    check_rows(swept)
    assert len(swept.frame) == sum(tp + 2 for tp in range(1, 9))


REFILL, SLIDE = HOLD.replace("POLICY", "refill"), HOLD.replace("POLICY", "slide")
GRID = {"TP": list(range(1, 10)), "TQ": list(range(1, 10))}


@pytest.mark.thin(99)
@pytest.mark.parametrize("spread", [False, True], ids=["", "spread"])
@pytest.mark.parametrize(
    "nodes", [ROWS + SLIDE + COLUMNS, ROWS + COLUMNS + REFILL], ids=["rows kept", "windows again"]
)
def test_fused_points_equal_evaluate(tmp_path: Path, nodes: str, spread: bool) -> None:
    spec = fused(tmp_path, nodes, spread=spread)
    check_blocks(spec, GRID)
    swept = pm.sweep(spec, GRID, objectives=("energy", "latency"), keep="all")
    check_rows(swept)
    # A window of 8 columns of F3 is 10 wide, which 9 PEs do not hold.
    assert len(swept.frame) == 8 * (7 if spread else 8)
    pruned = pm.sweep(spec, GRID, objectives=("energy", "working_set:GLB"), prune=True)
    plain = pm.sweep(spec, GRID, objectives=("energy", "working_set:GLB"), prune=False)
    assert pruned.frame.equals(plain.frame)


@pytest.mark.thin(99)
@pytest.mark.parametrize("size", ["inf", 21000])
def test_peaks_without_a_closed_form_at_some_tiles(size: str | int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not looked at where no memory is too small for them; else points are evaluated one by one.

    With numbers for tiles all stamps are listed.
    """
    monkeypatch.setattr(pair_atoms, "PEAKS", 3)
    spec, _ = flash(16, size)
    grid = {"TM": [3, 8], "TN": [8, 7], "TH": [1], "TE": [64], "TF": [64]}
    one = spec.bind(TM=3, TN=8, TH=1, TE=64, TF=64)
    listed, exact = (pm.evaluate(one, engine=engine) for engine in ("symbolic", "exact"))
    assert listed.value("working_set:GLB") == exact.value("working_set:GLB")
    found = pm.sweep(spec, grid, keep="all")
    check_rows(found)
    assert found.feasible == (4 if size == "inf" else 2)
    assert bool(found.notes) == (size != "inf")


@pytest.mark.slow
def test_six_stamps_of_fused_causal_attention_may_be_the_peak() -> None:
    """Queries, keys that stay, scores and weights: now one of them is largest, now another."""
    spec, _ = flash(24, 8 * 2048)
    sizes = {"TM": [3, 4, 5, 5, 7], "TN": [14, 11, 9, 10, 9], "TH": 1, "TE": 2, "TF": 3}
    found = pm.compile(spec)(sizes)
    for point, bits, fits in zip(
        zip(sizes["TM"], sizes["TN"], strict=True), found["working_set:GLB"], found["feasible"], strict=True
    ):
        one = spec.bind(TM=point[0], TN=point[1], TH=1, TE=2, TF=3)
        report = pm.evaluate(one, engine="exact")
        assert (bits, fits) == (report.value("working_set:GLB"), report.feasible)


def test_loops_of_a_reader_in_its_own_branch_leave_windows_as_wide() -> None:
    """What T1 makes is decided by loops above both T2 and T3; T3's own loop over p3 has no part in it."""
    temporal = "{type: Temporal, rank_variable: "
    nodes = f"""
    - {{type: Storage, component: DRAM, tensors: [T0, W1, W2, W3, T3]}}
    - {temporal}p3, tile_shape: 2}}
    - {{type: Storage, component: GLB, tensors: [T2]}}
    - type: Sequential
      nodes:
      - type: Nested
        nodes:
        - {temporal}p2, tile_shape: X2}}
        - {{type: Storage, component: GLB, tensors: [T1]}}
        - type: Sequential
          nodes:
          - type: Nested
            nodes: [{temporal}p1, tile_shape: X3}}, {{type: Compute, einsum: T1, component: MAC}}]
          - type: Nested
            nodes: [{temporal}p2, tile_shape: 1}}, {{type: Compute, einsum: T2, component: MAC}}]
      - type: Nested
        nodes: [{temporal}p3, tile_shape: 1}}, {{type: Compute, einsum: T3, component: MAC}}]
    """
    workload = """
    rank_sizes: {P3: 2, R3: 1, P2: 4, R2: 3, P1: 8, R1: 1, P0: 8}
    bits_per_value: {All: 8}
    einsums:
    - T1[p1] = T0[P0=p1+2*r1] * W1[r1]
    - T2[p2] = T1[P1=p2+2*r2] * W2[r2]
    - T3[p3] = T2[P2=3*p3+r3] * W3[r3]
    """
    given = {
        "schema_version": 1,
        "workload": yaml.safe_load(workload),
        "mapping": {"nodes": yaml.safe_load(nodes)},
        "symbols": {"X2": None, "X3": None},
    }
    spec = pm.load("simple_two_level", given)
    found = pm.sweep(spec, {"X2": [4], "X3": [1, 5, 8]}, objectives=("energy",), keep="all").frame
    assert found["X3"].tolist() == [1, 5, 8]
    for x3, energy in zip(found["X3"], found["energy"], strict=True):
        assert energy == pm.evaluate(spec.bind(X2=4, X3=int(x3))).total_energy
