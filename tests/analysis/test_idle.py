"""Einsums that share a spatial loop and run over different ranges of it: who holds what where one is idle."""

from __future__ import annotations

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.result import Engine, Problem
from polymodel.mapping.looptree import Node, Split, StorageNode
from tests.analysis.small import dram, einsum, loop, mac, problem, rf, spread
from tests.analysis.test_agreement import differences

EXACT: Engine = exact_engine


def _bits(given: Problem, name: str, measure: str) -> int:
    """Bits of RF while an Einsum runs, after a check of all counts; 0 if it holds nothing."""
    ours = EXACT.analyse(given)
    assert not differences(ours, REFEREE.analyse(given))
    found = [w for w in ours.working_sets if (w.einsum, w.component, w.measure) == (name, "RF", measure)]
    return sum(w.bits for w in found)


def _three(
    ranges: list[tuple[int, int]], readers: str, *nodes: Node, m: tuple[int, ...] = (1, 1, 1)
) -> Problem:
    """Three Einsums side by side below a spatial loop over k; those in `readers` read V, which RF holds."""
    einsums = tuple(
        einsum(
            f"E{i}",
            *(["V[k,m]"] if str(i) in readers else []),
            f"A{i}[k,m]",
            f"Z{i}[k,m]",
            sizes={"k": k, "m": m[i]},
        )
        for i, k in enumerate(ranges)
    )
    branches = Split(tuple((mac(e.name),) for e in einsums))
    names = tuple(dict.fromkeys(t for e in einsums for t in e.tensors))
    return problem(einsums, dram(*names), spread("k", 1), *nodes, branches)


def test_reserved_counts_where_only_the_producer_runs() -> None:
    """At n = 1 the producer's instance k = 1 holds T[2], T[3]; the consumer runs in instance 0 alone."""
    sizes = {"n": (0, 1), "k": (1, 1), "m": (1, 2)}
    e0 = einsum("E0", "A[n,k,m]", "T[n+m]", sizes=sizes)
    e1 = einsum("E1", "T[n]", "W[n,k]", "Z[n,k]", sizes={"n": (1, 1), "k": (0, 0)})
    given = problem(
        (e0, e1),
        dram("A", "T", "W", "Z"),
        loop("n", 1),
        spread("k", 1),
        rf("T"),
        Split(((mac("E0"),), (mac("E1"),))),
    )
    assert _bits(given, "E0", "reserved") == _bits(given, "E1", "reserved") == 16
    assert _bits(given, "E1", "tile") == 8


def test_tile_stays_in_an_instance_where_the_einsum_between_is_idle() -> None:
    """E0 and E2 use two elements in instance 1; E1, in instance 0 alone, uses one there."""
    given = _three([(0, 1), (0, 0), (0, 1)], "012", rf("V"), m=(2, 1, 2))
    assert _bits(given, "E1", "tile") == 16
    apart = _three([(0, 0), (1, 1), (0, 0)], "012", rf("V"), m=(2, 1, 2))
    assert _bits(apart, "E1", "tile") == 16


def test_tile_is_gone_where_only_one_neighbour_uses_it() -> None:
    """Instance 1 is done with V after E0, instance 0 begins with E2: E1, which does not use it, sees none."""
    given = _three([(1, 1), (0, 0), (0, 0)], "02", rf("V"))
    assert _bits(given, "E1", "tile") == 0
    assert _bits(given, "E1", "reserved") == 8
    assert _bits(_three([(1, 1), (0, 0), (1, 1)], "02", rf("V")), "E1", "tile") == 8


def test_tile_stays_between_steps_of_a_loop_below_it() -> None:
    """E1 comes back at m = 1 in instance 0, so V stays while E2 runs in instance 1 at m = 0."""
    given = _three([(0, 0), (0, 0), (1, 1)], "012", rf("V"), loop("m", 1), m=(1, 2, 1))
    assert _bits(given, "E2", "tile") == 16


def test_carried_tile_stays_in_an_idle_instance() -> None:
    """V[0,0..2] of instance 0 is carried to m = 1 while E1 runs in instance 1 alone."""
    e0 = einsum("E0", "V[k,j]", "A[k,m]", "Y[k,m]", sizes={"k": (0, 0), "m": 2, "j": 3})
    e1 = einsum("E1", "V[k,j]", "B[k,m]", "Z[k,m]", sizes={"k": (1, 1), "m": 2, "j": 1})
    held = StorageNode("RF", ("V",), "keep_previous")
    own = rf("B")
    given = problem(
        (e0, e1),
        dram("V", "A", "B", "Y", "Z"),
        loop("m", 1),
        spread("k", 1),
        held,
        Split(((mac("E0"),), (own, mac("E1")))),
    )
    assert _bits(given, "E1", "tile") == 24
