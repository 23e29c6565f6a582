"""Cases in which an engine was once wrong, kept as they were found."""

from __future__ import annotations

from dataclasses import replace

from polymodel.affine import Affine, Constraint
from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split
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
