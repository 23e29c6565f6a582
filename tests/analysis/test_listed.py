"""Outputs that stay in instances which do not all take part in every visit, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.exact import enumerated_partials, live_peaks
from polymodel.analysis.result import Analysis, Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, FanoutLink, Hierarchy
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Affine, Constraint
from tests.analysis.small import dram, einsum, hierarchy, loop, mac, moved, problem, rule, spread
from tests.analysis.test_agreement import differences
from tests.faults import refused


def _spread_unevenly(extent: int = 5, reuse: Reuse = "keep_previous") -> Problem:
    """k = 0, 1, 2 go to instances 0, 1, 2, then k = 3, 4 to instances 0, 1; all keep their sums of C."""
    e0 = einsum("E0", "A[m,k]", "C[m]", sizes={"m": 2, "k": extent})
    return problem(
        e0,
        dram("A", "C"),
        loop("k", 3),
        spread("k", 1),
        StorageNode("RF", ("A", "C"), reuse),
        mac(),
        hardware=hierarchy(may_reuse=rule("E0", "C")),
    )


def test_an_instance_that_falls_idle_drains_early_and_the_others_together() -> None:
    """Instance 2 drains 2 elements after the first visit; 0 and 1 drain theirs as one at the end."""
    given = _spread_unevenly()
    ours, referee = EXACT.analyse(given, live=True), REFEREE.analyse(given, live=True)
    assert moved(ours, "DRAM", "C") == (0, 0, 0, 4)
    # 10 operations; the first on each of the 6 sums finds nothing to read.
    assert moved(ours, "RF", "C") == (4, 6, 0, 10)
    assert not differences(ours, referee)


def agreed(given: Problem, reuse: Reuse | None = None) -> Analysis:
    ours, referee = (
        EXACT.analyse(given, reuse=reuse, live=True),
        REFEREE.analyse(given, reuse=reuse, live=True),
    )
    assert not differences(ours, referee)
    assert ours.links == referee.links
    return ours


def _kept_by_a_consumer() -> Problem:
    """E0 writes T[c] in instance c at n = 0; E1 reads it there at n = 1, 2."""
    e0 = einsum("E0", "A[n,c]", "T[c]", sizes={"n": 1, "c": 2})
    e1 = einsum("E1", "T[c]", "W[n]", "Z[n,c]", sizes={"n": (1, 2), "c": 2})
    home = StorageNode("RF", ("A", "T", "W", "Z"), "keep_previous")
    split = Split(((mac("E0"),), (mac("E1"),)))
    return problem((e0, e1), dram("A", "T", "W", "Z"), loop("n", 1), spread("c", 1), home, split)


def test_what_a_consumer_keeps_alive_in_one_instance_each_drains_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many iterations there are: nothing is reduced, so nothing has to be listed."""
    monkeypatch.setattr(enumerated_partials, "LIMIT", 0)
    found = agreed(_kept_by_a_consumer())
    assert moved(found, "RF", "T") == (0, 2, 0, 2)
    assert moved(found, "DRAM", "T") == (0, 0, 0, 2)
    assert moved(found, "RF", "T", "E1") == (4, 0, 0, 0)


def test_sums_that_move_from_instance_to_instance_until_a_consumer_keeps_one_alive() -> None:
    """T[m+n] is summed in instance m at n = 0, 1, 2; at n = 3, 4 E1 reads T[0:3] in instance 0."""
    e0 = einsum("E0", "A[m]", "B[n]", "T[m+n]", sizes={"m": 3, "n": 3})
    e1 = einsum("E1", "T[b]", "W[m,n]", "Z[m,n]", sizes={"b": 3, "m": 1, "n": (3, 4)})
    every = "A", "B", "T", "W", "Z"
    home = StorageNode("RF", every, "keep_previous")
    split = Split(((mac("E0"),), (mac("E1"),)))
    found = agreed(problem((e0, e1), dram(*every), loop("n", 1), spread("m", 1), home, split))
    # 9 runs of 5 elements: 4 begin with what others drained. T[2], last written in instance 0, stays on.
    assert moved(found, "RF", "T") == (4, 9, 4, 9)
    assert moved(found, "DRAM", "T") == (4, 0, 0, 9)
    assert moved(found, "RF", "T", "E1") == (6, 0, 2, 0)


@pytest.mark.parametrize("reuse", ["refill", "keep_previous"])
def test_read_first_two_levels_above_an_uneven_broadcast_reduction(reuse: Reuse) -> None:
    """C goes from DRAM, which is read first, over GLB to three and then two instances."""
    e0 = einsum("E0", "A[m,k]", "C[m]", sizes={"m": 2, "k": 5})
    parts = hierarchy(may_reuse=rule("E0", "C"), broadcast=True)
    first = tuple(replace(c, read_first=c.name == "DRAM") for c in parts.components)
    nodes = StorageNode("GLB", ("C",), reuse), loop("k", 3), spread("k", 1), StorageNode("RF", ("C",), reuse)
    found = agreed(problem(e0, dram("A", "C"), *nodes, mac(), hardware=Hierarchy(first)))
    # The first read fills GLB with 2 sums; they reach 3 instances, and under refill then 2 more.
    assert moved(found, "GLB", "C")[:3] == ((4, 2, 2) if reuse == "refill" else (2, 2, 2))
    assert moved(found, "RF", "C")[2] == (10 if reuse == "refill" else 6)


def _broadcast_over_a_mesh(extent: int = 5, reuse: Reuse = "keep_previous") -> Problem:
    """As `_spread_unevenly`, but read first, broadcast, and over a chain of links with a price."""
    base = _spread_unevenly(extent, reuse)
    chain = FanoutLink(energy_per_bit_hop=1.0, topology="mesh", throughput=1.0)
    parts = []
    for c in base.hierarchy.components:
        dims = tuple(replace(d, link=chain, broadcast_partials=True) for d in c.spatial)
        parts.append(replace(c, spatial=dims, read_first=c.name == "DRAM"))
    return replace(base, hierarchy=Hierarchy(tuple(parts)))


def test_broadcast_partial_sums_over_links_with_a_price() -> None:
    """C[0], C[1] go along links 0 to 2 at once; drains: from instance 2 over 3 links, from 0 and 1 over 2."""
    (links,) = agreed(_broadcast_over_a_mesh()).links
    # A: one element for each of 10 operations, to coordinates 0, 1, 2, 0, 1, so 9 links for each m.
    assert dict(links.hops) == {"A": 18, "C": 2 * 3 + 2 * 3 + 2 * 2}


def _uneven(tile: int, reuse: Reuse) -> Problem:
    """Six values of k by threes, each three over instances by `tile`."""
    e0 = einsum("E0", "A[m,k]", "C[m]", sizes={"m": 2, "k": 6})
    home = StorageNode("RF", ("A", "C"), reuse)
    return problem(e0, dram("A", "C"), loop("k", 3), spread("k", tile), home, mac())


def _skewed(over: Loop, reuse: Reuse) -> Problem:
    """C[m+n]: instances with other m make the same element at other n."""
    e0 = einsum("E0", "A[m]", "B[n]", "C[m+n]", sizes={"m": 3, "n": 3})
    home = StorageNode("RF", ("A", "B", "C"), reuse)
    return problem(e0, dram("A", "B", "C"), loop("n", 1), over, home, mac())


def _tolled(*over: Loop) -> Problem:
    """A toll between two containers, over which m and k are spread."""
    keep = rule("E0", "A", "B", "C")
    parts = (
        Component("DRAM", "memory"),
        Component("Core", "container", spatial=(FanoutDim("C", 4),)),
        Component("Bus", "toll", keep=keep),
        Component("PE", "container", spatial=(FanoutDim("X", 4),)),
        Component("RF", "memory"),
        Component("MAC", "compute"),
    )
    e0 = einsum("E0", "A[m,k]", "B[k]", "C[m]", sizes={"m": 3, "k": 3})
    every = "A", "B", "C"
    return problem(e0, dram(*every), *over, StorageNode("RF", every), mac(), hardware=Hierarchy(parts))


def _broadcast_past_a_toll(extent: int, reuse: Reuse) -> Problem:
    """k by threes over cores, above the toll: a partial sum goes to all of them, and passes it in each."""
    parts = (
        Component("DRAM", "memory"),
        Component("Core", "container", spatial=(FanoutDim("C", 4, None, True),)),
        Component("Bus", "toll", keep=rule("E0", "A", "C")),
        Component("RF", "memory"),
        Component("MAC", "compute"),
    )
    e0 = einsum("E0", "A[m,k]", "C[m]", sizes={"m": 2, "k": extent})
    home = StorageNode("RF", ("A", "C"), reuse)
    return problem(e0, dram("A", "C"), loop("k", 3), CORES, home, mac(), hardware=Hierarchy(parts))


def _padded(*above: Loop, reuse: Reuse = "slide", taps: Loop | None = None, cut: int = 1) -> Problem:
    """C[m] from A[c,m+k] and B[c,k], k over instances; without m + k < `cut` some are idle at times."""
    e0 = einsum("E0", "A[c,m+k]", "B[c,k]", "C[m]", sizes={"c": 2, "m": 7, "k": 3})
    e0 = replace(e0, constraints=(*e0.constraints, Constraint(Affine((("m", 1), ("k", 1)), -cut))))
    every = "A", "B", "C"
    home = StorageNode("RF", every, reuse)
    keep = hierarchy(may_reuse=rule("E0", *every))
    return problem(e0, dram(*every), *above, taps or spread("k", 1), home, mac(), hardware=keep)


CORES = Loop("k", 1, spatial=True, component="Core", dim="C")


@pytest.mark.parametrize(
    ("refused", "remedies", "reason"),
    [
        (
            _uneven(2, "keep_previous"),
            (_uneven(2, "refill"), _uneven(1, "keep_previous")),
            "use reuse: refill for this output, or tiles that divide their extents",
        ),
        (
            _padded(loop("m", 1), loop("c", 1)),
            (
                _padded(loop("m", 1), loop("c", 1), reuse="refill"),
                _padded(loop("m", 1), loop("c", 1), taps=loop("k", 1)),
                _padded(loop("m", 1), loop("c", 1), cut=0),
            ),
            "use reuse: refill for this output, or make the spatial loop temporal, or store padding as "
            "elements",
        ),
        (
            _tolled(spread("m", 1), CORES),
            (_tolled(CORES, spread("m", 1)),),
            "order the spatial loops from the outermost component to the innermost",
        ),
        (
            _broadcast_past_a_toll(5, "keep_previous"),
            (_broadcast_past_a_toll(5, "refill"), _broadcast_past_a_toll(6, "keep_previous")),
            "use reuse: refill for this output, or tiles that divide their extents",
        ),
        (
            _broadcast_over_a_mesh(),
            (_broadcast_over_a_mesh(5, "refill"), _broadcast_over_a_mesh(6)),
            "use reuse: refill for this output, or tiles that divide their extents",
        ),
    ],
)
def test_remedies_of_refusals_above_the_limit_work(
    refused: Problem, remedies: tuple[Problem, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumerated_partials, "LIMIT", 0)
    with pytest.raises(Refused) as refusal:
        EXACT.analyse(refused)
    assert refusal.value.remedy == reason
    for remedy in remedies:
        agreed(remedy)


def test_where_nothing_stays_any_policy_counts_like_refill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output rows one by one: no row is in two visits in a row, so nothing has to be listed."""
    monkeypatch.setattr(enumerated_partials, "LIMIT", 0)
    found = agreed(_padded(loop("c", 1), loop("m", 1)))
    refilled = agreed(_padded(loop("c", 1), loop("m", 1), reuse="refill"))
    assert moved(found, "RF", "C") == moved(refilled, "RF", "C")
    # The second channel brings 7 sums back; 20 of the 21 points of each channel are left.
    assert moved(found, "RF", "C")[1:3] == (2 * 20, 7)
    with refused("unsupported-space", "RF", "PE.X"):
        EXACT.analyse(_padded(loop("m", 1), loop("c", 1)))
    for reuse in ("slide", "keep_previous"):
        agreed(_skewed(spread("m", 1), reuse))  # an instance makes another element each time


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (_broadcast_past_a_toll(5, "keep_previous"), "partial sums of C are carried past a toll"),
        (_broadcast_over_a_mesh(), "partial sums of C are carried and broadcast over a fanout whose link"),
    ],
)
def test_below_the_limit_the_same_is_counted(
    refused: Problem, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    agreed(refused)
    monkeypatch.setattr(enumerated_partials, "LIMIT", 9)
    with pytest.raises(Refused, match=message):
        EXACT.analyse(refused)


def test_a_producer_above_the_limit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _spread_unevenly()
    monkeypatch.setattr(enumerated_partials, "LIMIT", 9)
    with refused("unsupported-instances", "C") as refusal:
        EXACT.analyse(given)
    assert "reuse: refill" in str(refusal.value)
    assert EXACT.analyse(given, reuse="refill").traffic == REFEREE.analyse(given, reuse="refill").traffic


def test_lifetimes_of_too_many_instances_are_refused_and_whole_tiles_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_peaks, "_CELLS", 0)
    with refused("too-large") as refusal:
        EXACT.analyse(_spread_unevenly(), live=True)
    assert "allocation: tile" in refusal.value.remedy
    assert EXACT.analyse(_spread_unevenly()).working_sets
