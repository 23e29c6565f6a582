"""Dependences: what is legal, what is refused, and the names in the refusal; against the referee."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import violation
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.arithmetic import Affine, Constraint
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.polyhedra import sets
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.analysis import small
from tests.faults import refused
from tests.generators import lawless


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
    assert (
        "give E0 another name for m, so that the loop binds E1 alone: E0 then produces what" in fault.remedy
    )
    tied = fused(Loop("m", 2, per_einsum=(("E1", "p"),)), halo=True)
    consumer = renamed(tied.cascade["E1"], "m", "p")
    (fault,) = check(replace(tied, cascade=Cascade((tied.cascade["E0"], consumer))))
    assert "or loop over p of E1 alone: E0 then produces what E1 needs" in fault.remedy
    followed = fused(Loop("p", 2), halo=True)
    assert check(replace(followed, cascade=Cascade((followed.cascade["E0"], consumer)))) == ()
    (fault,) = check(fused(Loop("k", 1), halo=True))
    assert fault.remedy.endswith("or bind it to a rank variable that keeps the dependence")


def renamed(e: Einsum, old: str, new: str) -> Einsum:
    """The Einsum with another name for one of its rank variables."""

    def of(expr: Affine) -> Affine:
        return replace(expr, terms=tuple((new if v == old else v, c) for v, c in expr.terms))

    return replace(
        e,
        rank_variables=tuple(new if v == old else v for v in e.rank_variables),
        constraints=tuple(replace(c, expr=of(c.expr)) for c in e.constraints),
        accesses=tuple(replace(a, projection=tuple(of(x) for x in a.projection)) for a in e.accesses),
    )


def kept(*above: Loop, reuse: Reuse, m: int = 1) -> Problem:
    """E0 makes all of T[c] in the first iteration of n (and of m), E1 reads T[b] in every one."""
    e0 = small.einsum("E0", "A[m,n]", "B[c]", "T[c]", sizes={"m": 1, "n": 1, "c": 4})
    e1 = small.einsum("E1", "T[b]", "W[m,n]", "Z[m,n]", sizes={"b": 2, "m": m, "n": 4})
    split = Split(((small.mac("E0"),), (small.mac("E1"),)))
    home = StorageNode("RF", ("T",), reuse)
    return small.problem((e0, e1), small.dram("A", "B", "W", "Z"), *above, home, split)


def verdict(problem: Problem, reuse: Reuse | None = None) -> str:
    """The only fault or nothing, on which the referee must agree."""
    faults = check(problem, reuse)
    assert bool(faults) == (violation(problem, reuse) is not None)
    return faults[0].message if faults else ""


def test_what_was_made_in_an_earlier_visit_is_there_if_it_is_carried() -> None:
    over_n = Loop("n", 2)
    assert not verdict(kept(over_n, reuse="keep_previous"))
    assert not verdict(kept(over_n, reuse="slide"))
    lost = verdict(kept(over_n, reuse="refill"))
    assert "RF (node 2) does not hold all that E0 writes of it, under reuse: refill" in lost
    assert "T[R0=0]" in lost


def test_slide_loses_it_at_the_wrap_of_a_loop_further_out() -> None:
    """The tile depends on n (T[2], T[3] are there at first only), so nothing stays over a step of m."""
    loops = Loop("m", 1), Loop("n", 1)
    assert not verdict(kept(*loops, reuse="keep_previous", m=2))
    assert "under reuse: slide" in verdict(kept(*loops, reuse="slide", m=2))
    assert not verdict(kept(*loops, reuse="slide", m=1))


def test_a_visit_between_that_does_not_touch_it_loses_it() -> None:
    """Visits touch T[0:2] and T[2:4] by turns; all are made at m = 0 and read at m = 0 and 1."""
    e0 = small.einsum("E0", "A[m,n]", "T[n]", sizes={"m": 1, "n": 4})
    e1 = small.einsum("E1", "T[n]", "W[m]", "Z[m,n]", sizes={"m": 2, "n": 4})
    split = Split(((small.mac("E0"),), (small.mac("E1"),)))
    given = small.problem(
        (e0, e1),
        small.dram("A", "W", "Z"),
        Loop("m", 1),
        Loop("n", 2),
        StorageNode("GLB", ("T",), "keep_previous"),
        split,
    )
    assert "under reuse: keep_previous (for example T[" in verdict(given)


def test_another_instance_does_not_hold_it() -> None:
    """E0 runs in instance 0 alone, E1 in 0 and 1."""
    assert "RF (node 2) does not hold" in verdict(kept(small.spread("n", 2), reuse="keep_previous"))


def test_partial_sums_in_several_instances_are_not_the_whole() -> None:
    """k is summed over instances, and no storage above them adds the sums up, read or not."""
    e0 = small.einsum("E0", "A[m,k]", "T[m]", sizes={"m": 2, "k": 2})
    e1 = small.einsum("E1", "T[m]", "W[k]", "Z[m,k]", sizes={"m": 2, "k": 2})
    split = Split(((small.mac("E0"),), (small.mac("E1"),)))
    tree = small.dram("A", "W", "Z"), small.spread("k", 1), small.rf("T"), split
    apart = "E0 sums T up in several instances of its outermost storage (node 2)"
    assert apart in verdict(small.problem((e0, e1), *tree))
    alone = small.dram("A"), small.spread("k", 1), small.rf("T"), small.mac()
    assert apart in verdict(small.problem(e0, *alone))
    assert not verdict(small.problem(e0, small.dram("A", "T"), *alone[1:]))
    assert not verdict(small.problem(e0, small.dram("A"), small.spread("m", 1), *alone[2:]))


def reduced(reuse: Reuse, *, first: int = 0, apart: bool = False) -> Problem:
    """k = 0, 1 of T are summed in instances 0, 1 of RF, below DRAM, at n = 0; E1 reads T from n = `first`."""
    e0 = small.einsum("E0", "A[n,k]", "T[m]", sizes={"n": 1, "k": 2, "m": 3})
    e1 = small.einsum("E1", "T[m]", "W[n,k]", "Z[n,k]", sizes={"n": (first, 2), "k": 1, "m": 3})
    rf = StorageNode("RF", ("T",), reuse)
    branches = (
        ((rf, small.mac("E0")), (rf, small.mac("E1"))) if apart else ((small.mac("E0"),), (small.mac("E1"),))
    )
    nodes = (Split(branches),) if apart else (rf, Split(branches))
    loops = Loop("n", 1), small.spread("k", 1)
    return small.problem((e0, e1), small.dram("A", "T", "W", "Z"), *loops, *nodes)


def test_parts_of_a_sum_in_other_instances_are_not_read() -> None:
    lacking = "E1 reads T in RF (node 3) while other instances still hold parts that E0 wrote"
    assert lacking in verdict(reduced("refill"))
    assert not verdict(reduced("refill", apart=True))
    assert not verdict(reduced("refill", first=1))  # drained, added up and filled again
    # Instance 1 has drained its part, but instance 0 keeps its own and never gets it.
    assert lacking in verdict(reduced("keep_previous", first=1))
    assert lacking in verdict(reduced("keep_previous", first=2))  # n = 1 is not a visit that could drop it


@pytest.mark.parametrize(("index", "legal"), [("n-1", True), ("2-n", False)])
def test_a_part_that_was_dropped_in_between_comes_back_whole(index: str, legal: bool) -> None:
    """T[0] is made in instance 0, T[1] in 0 and 1, T[2] in 1. E1, in instance 0, reads T[0] and T[1] at n = 1
    and 2: T[1] is not there at n = 1, and comes anew from DRAM; or the other way round: then a part stays."""
    e0 = small.einsum("E0", "A[n,k]", "T[m+k]", sizes={"n": 1, "k": 2, "m": 2})
    e1 = small.einsum("E1", f"T[{index}]", "W[n,k]", "Z[n,k]", sizes={"n": (1, 2), "k": 1})
    split = Split(((small.mac("E0"),), (small.mac("E1"),)))
    nodes = Loop("n", 1), small.spread("k", 1), StorageNode("RF", ("T",), "keep_previous"), split
    found = verdict(small.problem((e0, e1), small.dram("A", "T", "W", "Z"), *nodes))
    assert found == "" if legal else "T[R0=1]" in found


def test_what_isl_cannot_decide_in_bounded_work_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    given = kept(Loop("n", 3), reuse="keep_previous")
    monkeypatch.setattr(sets, "OPERATIONS", 1)
    with refused("too-large") as refusal:
        check(given)
    assert "store T above" in str(refusal.value)
    assert not check(kept(reuse="keep_previous"))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(lawless(), st.sampled_from([None, "refill", "slide", "keep_previous"]))
def test_the_verdict_is_the_referee_s(problem: Problem, reuse: Reuse | None) -> None:
    broken = violation(problem, reuse) is not None
    event("illegal" if broken else "legal")
    assert bool(check(problem, reuse)) == broken


@pytest.mark.slow
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(lawless(), st.sampled_from([None, "refill", "slide", "keep_previous"]))
def test_the_verdict_is_the_referee_s_at_length(problem: Problem, reuse: Reuse | None) -> None:
    assert bool(check(problem, reuse)) == (violation(problem, reuse) is not None)
