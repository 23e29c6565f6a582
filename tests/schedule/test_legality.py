"""Dependences: what is legal, what is refused, and the names in the refusal; against the referee."""

from __future__ import annotations

from hypothesis import HealthCheck, event, given, settings

from polymodel.affine import Affine, Constraint
from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import violation
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.generators import problems


def einsum(name: str, sizes: dict[str, int], accesses: list[tuple[str, list[Affine], bool]]) -> Einsum:
    constraints = []
    for v, n in sizes.items():
        constraints += [Constraint(Affine.variable(v)), Constraint(Affine(((v, -1),), n - 1))]
    made = tuple(
        TensorAccess(t, tuple(f"{t}_{i}" for i in range(len(p))), tuple(p), output)
        for t, p, output in accesses
    )
    return Einsum(name, tuple(sizes), tuple(constraints), made, tuple((0, n - 1) for n in sizes.values()))


def fused(loop: Loop, halo: bool = False) -> Problem:
    v = Affine.variable
    first = einsum("E0", {"m": 4, "k": 3}, [("A", [v("m"), v("k")], False), ("T", [v("m")], True)])
    read = v("m") + v("r") if halo else v("m")
    sizes = {"m": 3, "r": 2, "k": 3} if halo else {"m": 4, "k": 3}
    second = einsum("E1", sizes, [("T", [read], False), ("Z", [v("m"), v("k")], True)])
    branches: tuple[tuple[Node, ...], ...] = ((ComputeNode("E0", "MAC"),), (ComputeNode("E1", "MAC"),))
    tree = LoopTree((StorageNode("DRAM", ("A", "T", "Z")), loop, Split(branches)))
    parts = (Component("DRAM", "memory"), Component("MAC", "compute"))
    return Problem(Cascade((first, second)), Hierarchy(parts), tree)


def test_a_loop_over_the_kept_rank_is_legal() -> None:
    assert check(fused(Loop("m", 2))) == ()


def test_a_contraction_loop_above_the_split_is_refused_by_name() -> None:
    (fault,) = check(fused(Loop("k", 1)))
    assert "E1 reads T before E0 has finished it" in fault.message
    assert "loop over k" in fault.message
    assert fault.remedy


def test_a_halo_consumer_bound_like_its_producer_is_refused_with_an_element() -> None:
    (fault,) = check(fused(Loop("m", 2), halo=True))
    assert "E1 reads T before E0 has finished it" in fault.message
    assert "T[T_0=2]" in fault.message


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(problems())
def test_what_the_referee_finds_legal_is_not_refused(problem: Problem) -> None:
    if violation(problem) is not None:
        event("illegal for the referee")
        return
    try:
        assert check(problem) == ()
    except Refused as refusal:
        event(f"undecided: {refusal.message[:40]}")
