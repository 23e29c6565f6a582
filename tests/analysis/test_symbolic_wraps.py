"""Closed forms of `keep_previous` where the tile after the wrap of an inner loop meets the one before."""

from __future__ import annotations

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.mapping.looptree import StorageNode
from tests.analysis.small import dram, einsum, loop, mac, problem, spread
from tests.analysis.test_agreement import differences


def test_the_last_tile_of_an_empty_one_is_empty() -> None:
    """k is split evenly: the partial tile at its end, which is empty, has no instances that could keep A."""
    sizes = {"m": 2, "n": 3, "k": 8}
    one = einsum("E0", "A[m]", "B[n,k]", "O[m]", sizes=sizes)
    loops = loop("k", 4), loop("n", 1), loop("k", 2), spread("k", 1)
    given = problem(one, dram("A", "B", "O"), *loops, StorageNode("RF", ("A",), "keep_previous"), mac())
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))
