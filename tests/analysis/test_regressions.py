"""Cases in which an engine was once wrong, kept as they were found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.affine import Affine, Constraint
from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Cascade, Einsum
from tests.analysis.small import dram, einsum, glb, hierarchy
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


def test_a_shared_loop_inside_a_tile_of_one_einsum_alone_has_no_closed_form() -> None:
    """E0 has one row left below the spatial loop over m, E1, which spreads c there, all four."""
    e0 = einsum("E0", "T0[m,a]", "W0[a,b]", "T1[m,b]", sizes={"m": 4, "a": 1, "b": 3})
    e1 = einsum("E1", "T1[m,b]", "W1[b,c]", "T2[m,c]", sizes={"m": 4, "b": 3, "c": 4})
    spread = Loop("m", 1, spatial=True, component="PE", dim="X", per_einsum=(("E0", "m"), ("E1", "c")))
    branches = tuple((ComputeNode(e, "MAC"),) for e in ("E0", "E1"))
    tree = LoopTree((dram("T0", "W0", "T1", "W1", "T2"), spread, Loop("m", 1), Split(branches)))
    problem = Problem(Cascade((e0, e1)), hierarchy(), tree)
    with pytest.raises(NotSeparable, match="E0 and E1 run the loop over m in other ranges"):
        SYMBOLIC.analyse(problem)
    assert not differences(EXACT.analyse(problem), REFEREE.analyse(problem))
