"""Hops, their energy and their time, worked out by hand for each topology; both engines."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import pytest

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Engine, LinkTraffic, Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import FanoutDim, FanoutLink, Hierarchy, TensorRule
from polymodel.arithmetic import Affine
from polymodel.cost.costs import costs
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.workload.einsum import Cascade
from tests.cost.cases import MAC, einsum, memory, multicast, with_component
from tests.faults import refused

Topology = Literal["bus", "mesh", "line", "tree"]
both = pytest.mark.parametrize("engine", [ENGINE, EXACT])


def linked(topology: Topology, throughput: float = math.inf, **fields: Any) -> Problem:
    """Four register files in a row: A is multicast, B and C belong to one file each."""
    link = FanoutLink(2.0, topology, throughput)
    base = multicast()
    dim = FanoutDim("X", 4, link=link, **fields)
    return with_component(base, "RF", replace(base.hierarchy["RF"], spatial=(dim,)))


def hops(problem: Problem, engine: Engine, dim: str = "X") -> dict[str, int]:
    found = [t for t in engine.analyse(problem).links if t.dim == dim]
    return dict(found[0].hops) if found else {}


# GLB sends 48 elements of A to all four files, 24 of B to each, and each returns 8 of C.
BY_HAND = {
    "bus": {"C": 32, "A": 48, "B": 96},
    "mesh": {"C": 8 * (1 + 2 + 3 + 4), "A": 48 * 4, "B": 24 * (1 + 2 + 3 + 4)},
    "line": {"C": 8 * (1 + 2 + 3), "A": 48 * 3, "B": 24 * (1 + 2 + 3)},
    "tree": {"C": 32 * 2, "A": 48 * (2 + 4), "B": 96 * 2},
}


@both
@pytest.mark.parametrize("topology", ["bus", "mesh", "line", "tree"])
def test_multicast_and_unicast(topology: Topology, engine: Engine) -> None:
    assert hops(linked(topology), engine) == BY_HAND[topology]


@both
def test_without_multicast_each_copy_travels_alone(engine: Engine) -> None:
    nothing = TensorRule("Nothing", (("E0", frozenset()),))
    assert hops(linked("mesh", may_reuse=nothing), engine)["A"] == 48 * (1 + 2 + 3 + 4)
    assert hops(linked("bus", may_reuse=nothing), engine)["A"] == 48 * 4
    assert hops(linked("tree", may_reuse=nothing), engine)["A"] == 48 * 4 * 2


@both
def test_energy_is_bits_times_hops(engine: Engine) -> None:
    problem = linked("mesh")
    items = [i for i in costs(problem, engine.analyse(problem)).energy if i.component == "RF.X"]
    found = {i.tensor: (i.action, i.count, i.unit, i.energy) for i in items}
    assert found == {
        "A": ("hop", 192 * 8, "bit-hop", 192 * 8 * 2.0),
        "B": ("hop", 240 * 8, "bit-hop", 240 * 8 * 2.0),
        "C": ("hop", 80 * 16, "bit-hop", 80 * 16 * 2.0),
    }
    plain = multicast()
    assert costs(problem, engine.analyse(problem)).total_energy == 105600 + 2 * (192 * 8 + 240 * 8 + 80 * 16)
    assert costs(plain, engine.analyse(plain)).total_energy == 105600


@both
@pytest.mark.parametrize(("topology", "bits"), [("bus", 1664), ("mesh", 1664), ("tree", 1024)])
def test_the_busiest_link_takes_time(topology: Topology, bits: int, engine: Engine) -> None:
    # Into the row: 144 values of 8 bits down and 32 of 16 bits up. A tree's root halves B and C, not A.
    problem = linked(topology, 8.0)
    found = costs(problem, engine.analyse(problem))
    row = next(t for t in found.times if t.component == "RF.X")
    assert (row.kind, row.read_bits + row.write_bits, row.seconds) == ("link", bits, bits / 8)
    assert (row.instances, row.available) == ((2, 2) if topology == "tree" else (1, 1))
    assert [(t.limiting, t.seconds) for t in found.latency] == [("RF.X", bits / 8)]
    assert found.limiters[0].next_limiter == "DRAM"


@both
def test_executions_multiply_link_traffic(engine: Engine) -> None:
    once = linked("mesh", 8.0)
    thrice = replace(once, cascade=Cascade((replace(once.cascade["E0"], n_instances=3),)))
    one, three = (costs(p, engine.analyse(p)) for p in (once, thrice))
    assert three.total_energy == 3 * one.total_energy
    assert three.total_latency == 3 * one.total_latency


def halo(topology: Topology) -> Problem:
    """A filter over two files whose input windows {0, 1, 2} and {2, 3, 4} share one element."""
    sizes = {"p": 4, "r": 2}
    e = einsum("E0", sizes, ("O", "p"), ("I", "p"), ("F", "r"))
    window = replace(e.access_of("I"), projection=(Affine.variable("p") + Affine.variable("r"),))
    e = replace(e, accesses=tuple(window if a.tensor == "I" else a for a in e.accesses))
    rf = memory("RF", 1, 1, math.inf, FanoutDim("X", 2, link=FanoutLink(1.0, topology)))
    tree = LoopTree(
        (
            StorageNode("DRAM", ("O", "I", "F")),
            Loop("p", 2, spatial=True, component="RF", dim="X"),
            StorageNode("RF", ("O", "I", "F")),
            ComputeNode("E0", "MAC"),
        )
    )
    return Problem(Cascade((e,)), Hierarchy((memory("DRAM", 1, 1), rf, MAC)), tree)


@both
def test_partly_overlapping_windows(engine: Engine) -> None:
    # Elements 0 and 1 go to file 0, 3 and 4 to file 1, element 2 to both; F goes to both, O comes from one.
    assert hops(halo("bus"), engine) == {"O": 4, "I": 5, "F": 2}
    assert hops(halo("mesh"), engine) == {"O": 2 + 4, "I": 2 + 2 + 4, "F": 2 * 2}
    assert hops(halo("tree"), engine) == {"O": 4, "I": 2 + 2 + 2, "F": 2 * 2}


def grid(x: FanoutLink | None, y: FanoutLink | None, m: int = 3) -> Problem:
    """An outer product on a 2 x m grid: A goes down a column of Y, B along the row of X and all columns."""
    sizes = {"n": 2, "m": m}
    e = einsum("E0", sizes, ("C", "m n"), ("A", "n"), ("B", "m"))
    rf = memory("RF", 1, 1, math.inf, FanoutDim("X", 2, link=x), FanoutDim("Y", 4, link=y))
    tree = LoopTree(
        (
            StorageNode("DRAM", ("A", "B", "C")),
            Loop("m", 1, spatial=True, component="RF", dim="Y"),
            Loop("n", 1, spatial=True, component="RF", dim="X"),
            StorageNode("RF", ("A", "B", "C")),
            ComputeNode("E0", "MAC"),
        )
    )
    return Problem(Cascade((e,)), Hierarchy((memory("DRAM", 1, 1), rf, MAC)), tree)


@both
def test_several_dimensions_are_routed_in_the_order_listed(engine: Engine) -> None:
    mesh = FanoutLink(1.0, "mesh", 8.0)
    problem = grid(mesh, mesh)
    # Along X: A[0] goes to column 0, A[1] to column 1; B to both; C[m, n] comes from column n.
    assert hops(problem, engine, "X") == {"C": 3 * (1 + 2), "A": 1 + 2, "B": 3 * 2}
    # Along Y: A[n] fills one column of three, B[m] goes to row m of both, C[m, n] comes from row m.
    assert hops(problem, engine, "Y") == {"C": 2 * (1 + 2 + 3), "A": 2 * 3, "B": 2 * (1 + 2 + 3)}
    rows = {t.dim: t for t in engine.analyse(problem).links}
    # All enters the one row of X; each of two columns carries one A, three B down and three C up.
    assert (rows["X"].loads, rows["X"].instances) == (((5 * 8, 6 * 8),), 1)
    assert (rows["Y"].loads, rows["Y"].instances) == (((4 * 8, 3 * 8),), 2)


@both
def test_a_reduction_mirrors_a_multicast(engine: Engine) -> None:
    # Two products of one sum in two files: the partial sums meet on the way, over the links of both.
    sizes = {"k": 3}
    e = einsum("E0", sizes, ("Z", ""), ("A", "k"))
    tree = LoopTree(
        (
            StorageNode("DRAM", ("A", "Z")),
            Loop("k", 1, spatial=True, component="MAC", dim="X"),
            ComputeNode("E0", "MAC"),
        )
    )

    def problem(topology: Topology) -> Problem:
        dim = FanoutDim("X", 5, link=FanoutLink(1.0, topology))
        return Problem(Cascade((e,)), Hierarchy((memory("DRAM", 1, 1), replace(MAC, spatial=(dim,)))), tree)

    assert hops(problem("bus"), engine) == {"Z": 1, "A": 3}
    assert hops(problem("mesh"), engine) == {"Z": 3, "A": 1 + 2 + 3}
    # Five leaves make a tree of depth 3; leaves 0, 1, 2 need 3 + 2 + 1 edges, from the leaves to the root.
    assert hops(problem("tree"), engine) == {"Z": 6, "A": 9}


@both
def test_a_dimension_without_a_loop_is_crossed_at_coordinate_0(engine: Engine) -> None:
    base = multicast()
    dims = (FanoutDim("X", 4), FanoutDim("Y", 2, link=FanoutLink(1.0, "mesh", 8.0)))
    problem = with_component(base, "RF", replace(base.hierarchy["RF"], spatial=dims))
    # Every column of Y gets A, its B, and returns its C.
    found = engine.analyse(problem).links
    loads = (((48 + 24) * 8, 8 * 16),)
    assert found == (LinkTraffic("E0", "RF", "Y", (("C", 32), ("A", 48 * 4), ("B", 96)), loads, 4),)


@both
def test_loops_that_share_a_dimension_count_up_one_coordinate(engine: Engine) -> None:
    sizes = {"m": 2, "n": 3}
    e = einsum("E0", sizes, ("C", "m n"), ("A", "m"), ("B", "n"))
    tree = LoopTree(
        (
            StorageNode("DRAM", ("A", "B", "C")),
            Loop("m", 1, spatial=True, component="MAC", dim="X"),
            Loop("n", 1, spatial=True, component="MAC", dim="X"),
            ComputeNode("E0", "MAC"),
        )
    )

    def problem(topology: Topology) -> Problem:
        dim = FanoutDim("X", 6, link=FanoutLink(1.0, topology))
        return Problem(Cascade((e,)), Hierarchy((memory("DRAM", 1, 1), replace(MAC, spatial=(dim,)))), tree)

    # The coordinate is 3 m + n: A[0] reaches 0..2, A[1] 3..5; B[n] reaches n and n + 3.
    assert hops(problem("mesh"), engine) == {"C": 21, "A": 3 + 6, "B": 4 + 5 + 6}
    assert hops(problem("bus"), engine) == {"C": 6, "A": 2, "B": 3}
    # Depth 3. A[0]: leaves 0 1 2, parents 0 1, root's 0. A[1]: 3 4 5, 1 2, 0 1. B: 0 3, 1 4, 2 5 likewise.
    assert hops(problem("tree"), engine) == {
        "C": 18,
        "A": 6 + 7,
        "B": (2 + 2 + 1) + (2 + 2 + 2) + (2 + 2 + 2),
    }


def test_free_links_are_not_counted() -> None:
    base = multicast()
    free = FanoutDim("X", 4, link=FanoutLink())
    problem = with_component(base, "RF", replace(base.hierarchy["RF"], spatial=(free,)))
    assert EXACT.analyse(problem).links == ()
    assert SYMBOLIC.analyse(problem).links == ()


def test_closed_forms_leave_trees_to_the_exact_engine() -> None:
    with refused("unsupported-link", "RF.X", kind=NotSeparable):
        SYMBOLIC.analyse(linked("tree", 8.0))
    report = evaluate_problem(linked("mesh", 8.0))
    rows = [row for row in report.table("energy").rows if row[1] == "RF.X"]
    assert [(row[2], row[4]) for row in rows] == [("C", 1280), ("A", 1536), ("B", 1920)]
    assert "RF.X" in {row[1] for row in report.table("latency").rows}
    labels = [t.get_text() for t in report.plot("energy").get_xticklabels()]
    assert "RF.X" in labels
