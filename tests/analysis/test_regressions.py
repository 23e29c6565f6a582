"""Cases in which an engine was once wrong, kept as they were found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.arithmetic import Affine, Constraint
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Cascade, Einsum
from tests.analysis.small import dram, einsum, glb, hierarchy, loop, mac, moved, problem, rf, rule, spread
from tests.analysis.test_agreement import differences


def _from_one(one: Einsum, variable: str) -> Einsum:
    """The Einsum with `variable` running from 1 to 3."""
    limits = tuple(c for c in one.constraints if variable not in c.expr.variables)
    span = (Constraint(Affine(((variable, 1),), -1)), Constraint(Affine(((variable, -1),), 3)))
    bounds = tuple(
        (1, 3) if v == variable else b for v, b in zip(one.rank_variables, one.bounds, strict=True)
    )
    return replace(one, constraints=limits + span, bounds=bounds)


def test_runs_that_a_consumer_keeps_alive_past_the_last_write_drain_once() -> None:
    """S stays in its shared GLB node while only E2 still reads it: its 9 elements drain once each."""
    sizes = dict.fromkeys("mkvnle", 3)
    e0 = einsum("E0", "X[m,k]", "V[k,n]", "Q[m,n]", sizes=sizes)
    e1 = einsum("E1", "Q[m,n]", "K[l,n]", "S[m,l]", sizes=sizes)
    e2 = _from_one(einsum("E2", "S[m,l]", "U[l,e]", "O[m,e]", sizes=sizes), "e")
    bound = (("E0", "m"), ("E1", "m"), ("E2", "e"))
    tree = LoopTree(
        (
            dram("X", "V", "K", "S", "U", "O"),
            Loop("m", 2, 1, per_einsum=bound),
            Loop("m", 1),
            glb("Q"),
            Split(
                (
                    (ComputeNode("E0", "MAC"),),
                    (
                        glb("K", "S", "U", "O"),
                        Split(((ComputeNode("E1", "MAC"),), (ComputeNode("E2", "MAC"),))),
                    ),
                )
            ),
        )
    )
    problem = Problem(Cascade((e0, e1, e2)), hierarchy(), tree)
    ours = EXACT.analyse(problem, reuse="slide", live=True)
    referee = REFEREE.analyse(problem, reuse="slide", live=True)
    drained = [
        t.writes_drain for t in ours.traffic if (t.einsum, t.component, t.tensor) == ("E1", "DRAM", "S")
    ]
    assert drained == [9]
    assert not differences(ours, referee)


HALVES = """
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: ~Intermediates, may_keep: All}}
  - !Memory {name: GLB, tensors: {may_keep: All}}
  - !Compute {name: MAC}
workload:
  rank_sizes: {Q: 2, S: 2, P: 2}
  bits_per_value: {All: 8}
  einsums:
  - T1[q] = I[H=q+s] * F[s]
  - T2[p] = T1[Q=p] * G[p]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, F, G, T2]}
  - !Temporal {rank_variable: p, tile_shape: 1}
  - !Temporal {rank_variable: {T1: s, T2: p}, tile_shape: 1}
  - !Storage {component: GLB, tensors: [T1]}
  - !Sequential
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: MAC}]}
    - !Nested {nodes: [!Compute {einsum: T2, component: MAC}]}
"""


def test_halves_of_a_sum_in_two_runs_are_not_the_sum(tmp_path: Path) -> None:
    """The inner loop makes half of each T1 that p wants, and GLB forgets it before the other half."""
    file = tmp_path / "halves.yaml"
    file.write_text(HALVES, encoding="utf-8")
    spec = pm.load(str(file))
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    broken = violation(problem)
    assert broken is not None
    assert "does not hold all of it" in broken.reason
    assert check(problem)


def test_a_shared_loop_inside_a_tile_of_one_einsum_alone() -> None:
    """E0 has one row left below the spatial loop over m, E1, which spreads c there, all four."""
    e0 = einsum("E0", "T0[m,a]", "W0[a,b]", "T1[m,b]", sizes={"m": 4, "a": 1, "b": 3})
    e1 = einsum("E1", "T1[m,b]", "W1[b,c]", "T2[m,c]", sizes={"m": 4, "b": 3, "c": 4})
    spread = Loop("m", 1, spatial=True, component="PE", dim="X", per_einsum=(("E0", "m"), ("E1", "c")))
    branches = tuple((ComputeNode(e, "MAC"),) for e in ("E0", "E1"))
    tree = LoopTree((dram("T0", "W0", "T1", "W1", "T2"), spread, Loop("m", 1), Split(branches)))
    problem = Problem(Cascade((e0, e1)), hierarchy(), tree)
    assert not differences(SYMBOLIC.analyse(problem), REFEREE.analyse(problem))
    assert not differences(EXACT.analyse(problem), REFEREE.analyse(problem))


def test_results_of_an_inferred_einsum_are_read_outside_its_loop_too() -> None:
    """The loop over l infers E0, whose four results GLB keeps for all its iterations; then E2, outside
    that loop, reads them under a variable of its own."""
    e0 = einsum("E0", "I[j]", "T[j]", sizes={"j": 4})
    e1 = einsum("E1", "T[j]", "U[j,l]", sizes={"j": 4, "l": 3})
    e2 = einsum("E2", "T[q]", "V[q,n]", sizes={"q": 4, "n": 2})
    within = (Loop("l", 1), Split(((ComputeNode("E0", "MAC"),), (ComputeNode("E1", "MAC"),))))
    tree = LoopTree((dram("I", "U", "V"), glb("T"), Split((within, (ComputeNode("E2", "MAC"),)))))
    problem = Problem(Cascade((e0, e1, e2)), hierarchy(), tree)
    assert not check(problem)
    ours = EXACT.analyse(problem)
    assert [t.operations for t in ours.compute] == [4, 12, 8]
    assert not differences(ours, REFEREE.analyse(problem))


def test_an_inferred_einsum_between_two_loops_over_one_variable_is_made_once_in_each_visit() -> None:
    """The outer loop over l makes E0 again, the inner one does not: GLB keeps its results between the two."""
    e0 = einsum("E0", "I[j]", "T[j]", sizes={"j": 4})
    e1 = einsum("E1", "T[j]", "U[j,l]", sizes={"j": 4, "l": 4})
    split = Split(((ComputeNode("E0", "MAC"),), (ComputeNode("E1", "MAC"),)))
    for outer, operations in ((4, [4, 16]), (2, [8, 16])):
        tree = LoopTree((dram("I", "U"), Loop("l", outer), glb("T"), Loop("l", 1), split))
        problem = Problem(Cascade((e0, e1)), hierarchy(), tree)
        ours = EXACT.analyse(problem)
        assert [t.operations for t in ours.compute] == operations
        assert not differences(ours, REFEREE.analyse(problem))
        assert not differences(SYMBOLIC.analyse(problem), ours)


def test_the_walk_follows_needs_alone_not_the_trips_of_spatial_loops() -> None:
    """The loop over k binds E0 and E3. E2 executes what E3 needs, E1 what E2 needs, E0 as often as E1:
    nothing executes as something that waits for it, though E0 alone tells how far k counts for E2."""
    e0 = einsum("E0", "I[k]", "T0[k]", sizes={"k": 4})
    e1 = einsum("E1", "F[s,z]", "T1[z]", sizes={"s": 1, "z": 3})
    e2 = einsum("E2", "T1[n]", "T2[n]", sizes={"n": 3})
    e3 = einsum("E3", "T2[n]", "W[k]", "T3[n,k]", sizes={"k": 4, "n": 3})
    first = (Loop("s", 1), Split(((ComputeNode("E0", "MAC"),), (ComputeNode("E1", "MAC"),))))
    second = (
        StorageNode("RF", ("T2",)),
        Split(((ComputeNode("E2", "MAC"),), (ComputeNode("E3", "MAC"),))),
    )
    spread = Loop("k", 4, spatial=True, component="PE", dim="X")
    tree = LoopTree((dram("I", "F", "W", "T0", "T3"), glb("T1"), spread, Split((first, second))))
    problem = Problem(Cascade((e0, e1, e2, e3)), hierarchy(), tree)
    assert not check(problem)
    assert not differences(EXACT.analyse(problem), REFEREE.analyse(problem))


@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
def test_a_window_that_is_larger_at_first_stays_from_the_second_step_on(reuse: Reuse) -> None:
    """E0 makes rows 0, 1, 2 of T1, then two at a step, one per instance. The first instance goes from row 0
    to row 3, with no element of T0 in common, and by two rows from then on: one of its three elements is
    needed again, so all three stay in RF while E1 runs there on three of T1."""
    e0 = einsum("E0", "T0[p+r]", "W0[r]", "T1[p]", sizes={"p": 9, "r": 3})
    e1 = einsum("E1", "T1[2q+s]", "W1[s]", "T2[q]", sizes={"q": 4, "s": 3})
    made = (spread("p", 1), StorageNode("RF", ("T0",), reuse), mac("E0"))
    tree = (dram("T0", "W0", "W1", "T2"), glb("T1"), loop("q", 1), Split((made, (rf("T1"), mac("E1")))))
    fused = problem((e0, e1), *tree, hardware=hierarchy(may_reuse=rule("E0", "W0")))
    ours = SYMBOLIC.analyse(fused)
    held = {(w.einsum, w.component, w.measure): w.bits for w in ours.working_sets}
    assert held["E1", "RF", "tile"] == 8 * (3 + 3)
    assert not differences(ours, REFEREE.analyse(fused))
    assert not differences(EXACT.analyse(fused), REFEREE.analyse(fused))


@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
def test_what_windows_share_is_in_another_instance_before_and_after(reuse: Reuse) -> None:
    """E0 makes rows q, q+1, q+2 of T1 at each step, one per instance, which never has its row of B once more:
    all nine are filled, and none stays in RF while E1 runs."""
    e0 = einsum("E0", "T0[p]", "B[p]", "T1[p]", sizes={"p": 5})
    e1 = einsum("E1", "T1[q+s]", "W1[s]", "T2[q]", sizes={"q": 3, "s": 3})
    made = (spread("p", 1), StorageNode("RF", ("B",), reuse), mac("E0"))
    tree = (dram("T0", "B", "W1", "T2"), loop("q", 1), glb("T1"), Split((made, (mac("E1"),))))
    for shared in (("B",), ()):
        hardware = hierarchy(may_reuse=rule("E0", *shared))
        fused = problem((e0, e1), *tree, hardware=hardware)
        ours = SYMBOLIC.analyse(fused)
        assert moved(ours, "RF", "B") == (9, 0, 9, 0)
        assert ("E1", "RF") not in {(w.einsum, w.component) for w in ours.working_sets}
        assert not differences(ours, REFEREE.analyse(fused))
        assert not differences(EXACT.analyse(fused), REFEREE.analyse(fused))
