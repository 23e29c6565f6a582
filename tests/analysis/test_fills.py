"""Fills of nodes that several Einsums share over a fanout, counted by hand."""

from __future__ import annotations

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Analysis, Problem
from polymodel.mapping.looptree import Split
from tests.analysis.small import dram, einsum, glb, hierarchy, loop, mac, moved, problem, rf, rule, spread
from tests.analysis.test_agreement import differences
from tests.faults import refused


def both(given: Problem) -> Analysis:
    ours = EXACT.analyse(given, live=True)
    assert not differences(ours, REFEREE.analyse(given, live=True))
    return ours


def test_an_intermediate_read_in_instances_that_share_a_read() -> None:
    """E0 writes T[c] in instance c at n = 0; at n = 1 and 2 instances 0 and 1 each read all of T, at once."""
    e0 = einsum("E0", "A[n,c]", "T[c]", sizes={"n": 1, "c": 2})
    e1 = einsum("E1", "T[b]", "W[n,c]", "Z[n,c]", sizes={"b": 2, "n": (1, 2), "c": 2})
    split = Split(((mac("E0"),), (mac("E1"),)))
    found = both(
        problem(
            (e0, e1), dram("A", "T", "W", "Z"), loop("n", 1), spread("c", 1), rf("A", "T", "W", "Z"), split
        )
    )
    assert moved(found, "RF", "T", "E1") == (8, 0, 8, 0)
    assert moved(found, "DRAM", "T", "E1") == (4, 0, 0, 0)
    assert moved(found, "DRAM", "T", "E0") == (0, 0, 0, 2)


def test_einsums_of_which_only_one_may_share_a_read() -> None:
    """X[0:2] goes to instance 0 for E0, which may not share, and to 1 and 2 for E1, which may."""
    e0 = einsum("E0", "X[b]", "Y[c]", sizes={"b": 2, "c": 1})
    e1 = einsum("E1", "X[b]", "Z[c]", sizes={"b": 2, "c": 3})
    split = Split(((mac("E0"),), (mac("E1"),)))
    found = both(
        problem(
            (e0, e1),
            dram("X", "Y", "Z"),
            spread("c", 1),
            rf("X", "Y", "Z"),
            split,
            hardware=hierarchy(may_reuse=rule("E1", "X")),
        )
    )
    assert moved(found, "DRAM", "X", "E0") == (2, 0, 0, 0)
    assert moved(found, "DRAM", "X", "E1") == (2, 0, 0, 0)
    assert moved(found, "RF", "X", "E1") == (6, 0, 4, 0)


def test_a_copy_whose_source_is_stored_below_a_loop() -> None:
    """Each of the 6 elements is read once in GLB, whatever m is done with it, and written once in DRAM."""
    e0 = einsum("E0", "I[m,k]", "A[m,k]", sizes={"m": 2, "k": 3}, copy=True)
    found = both(problem(e0, dram("A"), loop("m", 1), glb("I"), mac()))
    assert moved(found, "GLB", "I") == (6, 0, 0, 0)
    assert moved(found, "DRAM", "A") == (0, 0, 6, 0)


def test_a_copy_whose_source_is_spread_further_than_its_destination_is_refused() -> None:
    e0 = einsum("E0", "I[m,k]", "A[m,k]", sizes={"m": 2, "k": 3}, copy=True)
    with refused("unsupported-copy", "E0") as refusal:
        EXACT.analyse(problem(e0, dram("A"), spread("m", 1), rf("I"), mac()))
    assert "store I above that loop, or A below it" in str(refusal.value)
    both(problem(e0, dram("A", "I"), spread("m", 1), mac()))
