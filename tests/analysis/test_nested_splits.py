"""Peaks of fused trees with splits inside splits, under mixed policies: symbolic = exact = enumerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Analysis, Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import closed_counts
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import Split, StorageNode
from polymodel.reuse import Reuse
from tests.analysis.nested_splits import nested_splits
from tests.analysis.small import dram, einsum, glb, loop, mac, problem, rf
from tests.analysis.test_agreement import differences, drawing
from tests.analysis.test_symbolic import named
from tests.sweep.test_sweep import check_blocks, check_rows

OVERRIDES: tuple[Reuse | None, ...] = (None, None, None, "slide", "keep_previous")


def legal(seed: int) -> Problem | None:
    """A generated problem; some with first tiles of their own, some with instances side by side."""
    pick = Random(seed)
    drawn = nested_splits(pick, first=pick.choice([0, 0, 0.2]), spatial=pick.choice([0, 0, 0.2]))
    try:
        return drawn if drawn is not None and violation(drawn) is None else None
    except Refused:
        return None


def agree(numbers: Sequence[int], exact_every: int) -> Counter[str]:
    """Compare what is drawn from each seed; of every few that the exact engine counts as well."""
    tally: Counter[str] = Counter()
    for seed in numbers:
        drawn = legal(seed)
        if drawn is None:
            continue
        tally["legal"] += 1
        reuse = OVERRIDES[seed % len(OVERRIDES)]
        try:
            ours = SYMBOLIC.analyse(drawn, reuse=reuse)
            referee = REFEREE.analyse(drawn, reuse=reuse)
        except Refused:
            continue
        tally["compared"] += 1
        told = [f"seed {seed}, reuse={reuse}", drawing(drawn)]
        found = differences(ours, referee)
        assert not found, "\n".join([*found, *told])
        if tally["compared"] % exact_every == 0:
            found = differences(EXACT.analyse(drawn, reuse=reuse), referee)
            assert not found, "\n".join([*found, *told])
    return tally


def test_nested_splits_agree() -> None:
    tally = agree(range(50), exact_every=10)
    assert tally["compared"] > 0.9 * tally["legal"] > 18, tally


@pytest.mark.slow
def test_nested_splits_agree_at_length() -> None:
    tally = agree([*range(80, 250), *range(1_000, 16_000)], exact_every=20)
    assert tally["compared"] > 0.9 * tally["legal"] > 8_000, tally


def in_symbols(numbers: Sequence[int]) -> int:
    """Compare the forms in symbols of all tiles, at these tiles, with the numbers; how many have them."""
    compared = 0
    for seed in numbers:
        drawn = legal(seed)
        if drawn is None:
            continue
        tree, values = named(drawn.tree)
        try:
            plain, open_ = SYMBOLIC.analyse(drawn), closed_counts(replace(drawn, tree=tree))
        except NotSeparable:
            continue
        compared += 1
        found = differences(open_.at(values), plain)
        assert not found, "\n".join([*found, f"seed {seed}", drawing(drawn)])
    return compared


@pytest.mark.slow
def test_nested_splits_in_symbols() -> None:
    assert in_symbols(range(40)) > 12


@pytest.mark.slow
def test_nested_splits_in_symbols_at_length() -> None:
    assert in_symbols([*range(40, 120), *range(1_000, 4_000)]) > 1_000


def peak(result: Analysis, name: str, component: str) -> tuple[int, dict[str, int]]:
    """The peak of a component during an Einsum, and who is in it, in values of 8 bits."""
    (found,) = (
        w for w in result.working_sets if (w.einsum, w.component, w.measure) == (name, component, "tile")
    )
    return found.bits // 8, {r.tensor: r.bits // 8 for r in found.residents}


def test_one_steps_with_the_outer_loop_another_with_the_inner() -> None:
    """V stays from row to row, T1 and T2 from column to column, while T0 is made anew.

    So all four are there from the second column of the second row on. Of U nothing stays between rows.
    """
    sizes = {"m": 2, "n": 3, "k": 1}
    chain = (
        einsum("E0", "A[m,n]", "T0[m,n]", sizes=sizes),
        einsum("E1", "T0[m,n]", "T1[m,n]", sizes=sizes),
        einsum("E2", "T1[m,n]", "T2[m,n]", sizes=sizes),
        einsum("E3", "T2[m,n]", "U[n]", "V[k]", "T3[m,n]", sizes=sizes),
    )
    inner = loop("n", 1), glb("T0"), Split(((mac("E0"),), (mac("E1"),), (mac("E2"),)))
    biases = StorageNode("GLB", ("U",), "keep_previous")
    last = StorageNode("GLB", ("V",), "slide"), loop("n", 1), biases, mac("E3")
    given = problem(
        chain, dram("A", "U", "V", "T3"), loop("m", 1), glb("T1"), glb("T2"), Split((inner, last))
    )
    for engine in (REFEREE, EXACT, SYMBOLIC):
        assert peak(engine.analyse(given), "E0", "GLB") == (8, {"T2": 3, "T1": 3, "T0": 1, "V": 1})
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))


def test_the_outer_loop_is_past_its_first_and_the_inner_one_at_its_last() -> None:
    """S[m + n] at (m, 1) is that at (m + 1, 0), and stays over this step only; T2 is there from m = 1 on."""
    sizes = {"m": 3, "n": 2}
    three = (
        einsum("E0", "S[m+n]", "T0[m,n]", sizes=sizes),
        einsum("E1", "A[m,n]", "T1[m,n]", sizes=sizes),
        einsum("E2", "A[m,n]", "T2[m,n]", sizes=sizes),
    )
    held = StorageNode("RF", ("S",), "keep_previous"), mac("E0")
    inner = loop("n", 1), Split((held, (mac("E1"),)))
    given = problem(three, dram("S", "A", "T0", "T1"), rf("T2"), loop("m", 1), Split((inner, (mac("E2"),))))
    for engine in (REFEREE, EXACT, SYMBOLIC):
        assert peak(engine.analyse(given), "E1", "RF") == (7, {"T2": 6, "S": 1})
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))


SPEC = {
    "schema_version": 1,
    "arch": {
        "nodes": [
            {
                "type": "Memory",
                "name": "DRAM",
                "size": "inf",
                "actions": [{"name": "read", "energy": 7.0e-12, "throughput": 1.0e9}],
            },
            {
                "type": "Memory",
                "name": "GLB",
                "size": 40,
                "actions": [{"name": "write", "energy": 1.0e-12, "throughput": 3.0e9}],
            },
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1.0e9}]},
        ]
    },
    "workload": {
        "rank_sizes": {"M": 5, "N": 6, "K": 2},
        "bits_per_value": {"All": 1},
        "einsums": [
            "T0[m, n] = A[m, n]",
            "T1[m, n] = T0[m, n]",
            "T2[m, n] = T1[m, n] * S[L=m+n]",
            "T3[m, n] = T2[m, n] * V[k]",
        ],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "S", "V", "T3"]},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
            {"type": "Storage", "component": "GLB", "tensors": ["T1", "T2"]},
            {
                "type": "Sequential",
                "nodes": [
                    {
                        "type": "Nested",
                        "nodes": [
                            {"type": "Temporal", "rank_variable": "n", "tile_shape": "TN"},
                            {"type": "Storage", "component": "GLB", "tensors": ["T0"]},
                            {
                                "type": "Sequential",
                                "nodes": [
                                    {"type": "Compute", "einsum": "T0", "component": "MAC"},
                                    {"type": "Compute", "einsum": "T1", "component": "MAC"},
                                    {
                                        "type": "Nested",
                                        "nodes": [
                                            {
                                                "type": "Storage",
                                                "component": "GLB",
                                                "tensors": ["S"],
                                                "reuse": "keep_previous",
                                            },
                                            {"type": "Compute", "einsum": "T2", "component": "MAC"},
                                        ],
                                    },
                                ],
                            },
                        ],
                    },
                    {
                        "type": "Nested",
                        "nodes": [
                            {"type": "Storage", "component": "GLB", "tensors": ["V"], "reuse": "slide"},
                            {"type": "Compute", "einsum": "T3", "component": "MAC"},
                        ],
                    },
                ],
            },
        ]
    },
}


@pytest.mark.slow
def test_sweeps_and_closed_forms_have_the_peaks_that_evaluate_has() -> None:
    """Every point: the working set and whether it fits, as the exact engine counts them."""
    spec = pm.load(SPEC)
    grid = {"TM": [1, 2, 3, 5], "TN": [1, 2, 4, 6]}
    check_blocks(spec, grid, count=16)
    swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    check_rows(swept, count=16)
    closed = pm.closed_forms(spec)
    for _, row in swept.frame.iterrows():
        report = pm.evaluate(swept.spec(row), engine="exact")
        held = [w for w in report.analysis.working_sets if (w.component, w.measure) == ("GLB", "tile")]
        assert row["working_set:GLB"] == max(w.bits for w in held)
        assert row["feasible"] == (max(w.bits for w in held) <= 40) == (not report.costs.violations)
        cells = closed.table("working_sets").at({name: int(row[name]) for name in grid})
        tiles = {r["einsum"]: r["bits"] for r in cells if (r["component"], r["measure"]) == ("GLB", "tile")}
        assert tiles == {w.einsum: w.bits for w in held}
    assert set(swept.frame["feasible"]) == {True, False}


WINDOWS = """
arch:
  nodes:
    - !Memory {name: DRAM, size: inf, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
    - !Memory {name: GLB, size: 1000, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
    - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
workload:
  rank_sizes: {P4: 2, R4: 3, P3: 4, R3: 1, P2: 4, R2: 3, P1: 6, R1: 1, P0: 11}
  bits_per_value: {All: 8}
  einsums:
    - T1[p1] = T0[P0=2*p1+r1] * W1[r1]
    - T2[p2] = T1[P1=p2+r2] * W2[r2]
    - T3[p3] = T2[P2=p3+r3] * W3[r3]
    - T4[p4] = T3[P3=p4+r4] * W4[r4]
mapping:
  nodes:
    - !Storage {component: DRAM, tensors: [T0, W1, W2, W3, T3, W4, T4]}
    - !Temporal {rank_variable: p4, tile_shape: 2}
    - !Storage {component: GLB, tensors: [T2], reuse: keep_previous}
    - !Sequential
      nodes:
        - !Nested
          nodes:
            - !Storage {component: GLB, tensors: [T1]}
            - !Sequential
              nodes:
                - !Nested
                  nodes: [!Temporal {rank_variable: p1, tile_shape: 4}, !Compute {einsum: T1, component: MAC}]
                - !Nested {nodes: [!Compute {einsum: T2, component: MAC}]}
        - !Nested
          nodes:
            - !Temporal {rank_variable: p4, tile_shape: 2}
            - !Sequential
              nodes:
                - !Nested
                  nodes:
                    - !Storage {component: GLB, tensors: [W3], reuse: keep_previous}
                    - !Storage {component: GLB, tensors: [T3]}
                    - !Compute {einsum: T3, component: MAC}
                - !Nested
                  nodes:
                    - !Storage {component: GLB, tensors: [T3, W4, T4]}
                    - !Compute {einsum: T4, component: MAC}
"""


def test_loops_of_another_branch_are_not_this_einsums(tmp_path: Path) -> None:
    """W3 stays while T1 runs; the loop over p4 in its branch is none of T1's."""
    file = tmp_path / "windows.yaml"
    file.write_text(WINDOWS, encoding="utf-8")
    spec = pm.load(file)
    assert spec.mapping is not None
    given = Problem(spec.workload, spec.arch, spec.mapping)
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))
