"""Closed forms of Einsums that follow loops above them at some steps only: symbolic = enumerate."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.render import Renderer
from polymodel.mapping.looptree import Loop, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Einsum
from tests.analysis.small import dram, einsum, glb, hierarchy, loop, mac, problem, rf, rule, spread
from tests.analysis.test_agreement import differences

POLICIES: tuple[Reuse | None, ...] = (None, "refill", "slide", "keep_previous")


def chain(**sizes: int) -> tuple[Einsum, Einsum, Einsum]:
    """Three matrix products in a row over shared rows m."""
    return (
        einsum("E0", "T0[m,a]", "W0[a,b]", "T1[m,b]", sizes=sizes),
        einsum("E1", "T1[m,b]", "W1[b,c]", "T2[m,c]", sizes=sizes),
        einsum("E2", "T2[m,c]", "W2[c,d]", "T3[m,d]", sizes=sizes),
    )


def agree(one: Problem, policies: tuple[Reuse | None, ...] = POLICIES) -> int:
    """Compare with enumeration under each policy under which the mapping is legal; how many these are."""
    legal = [reuse for reuse in policies if not check(one, reuse)]
    for reuse in legal:
        assert not differences(SYMBOLIC.analyse(one, reuse=reuse), REFEREE.analyse(one, reuse=reuse)), reuse
    return len(legal)


def slide(component: str, *tensors: str) -> StorageNode:
    return StorageNode(component, tensors, "slide")


def test_what_slides_over_a_loop_that_it_does_not_have_is_made_at_its_first_step() -> None:
    """GLB holds T1 through all steps of the loop over d, but for those of a loop over m that steps inside."""
    one, two, three = chain(m=2, a=2, b=2, c=3, d=4)
    inside = Split(((rf("W0"), mac("E0")), (slide("GLB", "W1"), mac("E1")), (loop("c", 2), mac("E2"))))

    def tree(*tiles: int | str) -> tuple[Node, ...]:
        outside = (Loop("d", tiles[0]), Loop("m", tiles[1]), slide("GLB", "T1", "T2"), Loop("d", tiles[2]))
        return (dram("T0", "W0", "W1", "W2", "T3"), *outside, inside)

    analysis = closed_counts(problem((one, two, three), *tree("x", "y", "z")))
    for x, y, z in ((2, 1, 1), (4, 1, 1), (2, 2, 1), (2, 1, 2)):
        numbers = problem((one, two, three), *tree(x, y, z))
        assert agree(numbers, (None, "slide")) == 2
        assert not differences(analysis.at({"x": x, "y": y, "z": z}), SYMBOLIC.analyse(numbers))


def test_operands_that_stay_until_the_next_outer_step_are_there_through_a_loop_that_makes_once() -> None:
    """W0 waits in RF, while E1 runs for all c, for the next row m, in which E0 reads it again."""
    one, two, three = chain(m=3, a=4, b=3, c=4, d=4)
    inner = (loop("c", 1), glb("T1"), Split(((mac("E0"),), (mac("E1"),))))
    split = Split((inner, (rf("T2"), mac("E2"))))
    outside = (loop("m", 1), loop("c", 3), slide("RF", "W0"), rf("T3"), glb("T2"))
    numbers = problem((one, two, three), dram("T0", "W0", "W1", "W2", "T3"), *outside, split)
    assert agree(numbers) >= 2
    analysis = SYMBOLIC.analyse(numbers, reuse="keep_previous")
    held = {(w.einsum, w.component, w.measure): w.bits for w in analysis.working_sets}
    assert held["E1", "RF", "tile"] == 8 * (4 * 3 + 4)


def test_what_one_einsum_made_before_a_loop_is_gone_after_another_used_it_at_its_first_step() -> None:
    """E1 reads T1 in the first step of the loop over d above E1 and E2; E2 runs in all of them."""
    one, two, three = chain(m=1, a=1, b=3, c=2, d=4)
    below = Split(((loop("c", 1), mac("E1")), (glb("T3"), mac("E2"))))
    second = (glb("W1"), glb("T2"), glb("W2"), loop("d", 1), rf("T1", "W1"), below)
    split = Split(((mac("E0"),), second))
    tree = (dram("T0", "W0", "W1", "T2", "W2", "T3"), loop("d", 2), glb("T1"), split)
    assert agree(problem((one, two, three), *tree)) == len(POLICIES)


@pytest.mark.parametrize(
    ("reuse", "sizes_of_a"),
    [
        ("slide", (2,)),
        pytest.param("refill", (1, 2, 3), marks=pytest.mark.slow),
        pytest.param("keep_previous", (1, 2, 3), marks=pytest.mark.slow),
    ],
)
def test_an_einsum_executes_all_over_again_below_a_loop_of_another_one(
    reuse: Reuse, sizes_of_a: tuple[int, ...]
) -> None:
    """The loop over a is of E2, and repeats E1. What E1 wrote stays in RF and GLB, but no sum goes on."""
    sizes = {"m": 4, "a": 3, "b": 2, "c": 2}
    one, two, _ = chain(**sizes, d=1)
    three = einsum("E2", "X[m,a]", "W2[a,c]", "Y[m,c]", sizes=sizes)
    kept = StorageNode("GLB", ("T1", "T2"), reuse)
    held = StorageNode("RF", ("T1", "T2"), reuse)

    def tree(place: int, a: int | str, m: int | str) -> tuple[Node, ...]:
        again = (held, loop("m", 1), loop("c", 1), mac("E1"))
        split = Split(((rf("X"), loop("c", 1), mac("E2")), again))
        outside: list[Node] = [Loop("a", a), Loop("m", m)]
        outside.insert(place, kept)
        below = Split(((mac("E0"),), (*outside, split)))
        return (dram("T0", "W0", "X", "W2", "Y", "W1", "T2"), glb("T1"), below)

    for place in (0, 2):
        analysis = closed_counts(problem((one, two, three), *tree(place, "x", "y")))
        for x, y in product(sizes_of_a, (2, 4)):
            numbers = problem((one, two, three), *tree(place, x, y))
            assert agree(numbers, (None,)) == 1
            assert not differences(analysis.at({"x": x, "y": y}), SYMBOLIC.analyse(numbers))


def test_an_inferred_einsum_shares_a_loop_inside_the_one_that_infers_it() -> None:
    """The loop over d infers E1, both E1 and E2 follow the one over m below it, where GLB holds T2."""
    one, two, three = chain(m=3, a=2, b=2, c=2, d=3)
    inside = Split(((loop("m", 1), loop("b", 1), mac("E1")), (rf("W2"), mac("E2"))))
    for outer, tile in product((1, 2), (1, 2)):
        below = (loop("d", outer), loop("m", tile), glb("T2"), inside)
        tree = (dram("T0", "W0", "W1", "W2", "T3"), glb("T1"), Split(((mac("E0"),), below)))
        assert agree(problem((one, two, three), *tree), (None, "refill")) == 2


def test_tiles_of_one_extent_are_equal_whatever_loops_of_one_trip_stand_above() -> None:
    """The loop over m has one trip, and E0 does not follow it: GLB holds all of T1 for both."""
    one, two, three = chain(m=2, a=2, b=2, c=2, d=2)
    shared = Loop("m", 2, per_einsum=(("E0", "b"), ("E1", "m"), ("E2", "m")))
    split = Split(((mac("E0"),), (loop("c", 1), mac("E1")), (mac("E2"),)))
    tree = (dram("T0", "W0", "W1", "W2", "T3"), shared, glb("T1", "T2"), split)
    assert agree(problem((one, two, three), *tree), (None, "slide")) == 2


def test_instances_share_parts_of_windows_that_some_of_them_keep() -> None:
    """Instances along q read overlapping rows of T0, of which each keeps what it had: GLB sends a row if any
    of those that want it lacks it. Strides, uneven tiles and filters that are cut as well."""
    shared = hierarchy(may_reuse=rule("E0", "T0"))
    for stride, (outer, inner), taps, reuse in (
        (1, (4, 1), 3, "slide"),
        (1, (4, 3), 1, "keep_previous"),
        (2, (5, 2), 2, "slide"),
        (2, (3, 1), 1, "keep_previous"),
    ):
        conv = einsum("E0", f"T0[{stride}q+r]", "W0[r]", "T1[q]", sizes={"q": 7, "r": 3})
        kept = StorageNode("RF", ("T0",), cast(Reuse, reuse))

        def tree(*tiles: int | str, kept: StorageNode = kept) -> tuple[Node, ...]:
            across = Loop("q", tiles[1], spatial=True, component="PE", dim="X")
            loops = (Loop("q", tiles[0]), across, Loop("r", tiles[2]))
            return (dram("W0", "T1"), glb("T0"), *loops, kept, mac())

        numbers = problem(conv, *tree(outer, inner, taps), hardware=shared)
        assert agree(numbers, (None, "slide", "keep_previous")) == 3
        analysis = closed_counts(problem(conv, *tree("x", "y", "z"), hardware=shared))
        at = {"x": outer, "y": inner, "z": taps}
        assert not differences(analysis.at(at), REFEREE.analyse(numbers))
        (read,) = (t.reads_fill for t in analysis.traffic if (t.component, t.tensor) == ("GLB", "T0"))
        renderer = Renderer(analysis.chains)
        found = renderer.form(read).subs({renderer.symbols[s]: value for s, value in at.items()})
        assert found == read.at(at)


def test_instances_along_a_filter_and_along_rows_share_windows_in_more_than_one_way() -> None:
    """Rows q are spread over PEs, and the steps of r inside bring each the row that its neighbour had."""
    shared = hierarchy(may_reuse=rule("E0", "T0", "T1"))
    for stride, tile, taps in ((1, 2, 1), (2, 1, 2), (1, 1, 1)):
        conv = einsum("E0", f"T0[{stride}q+r]", "W0[r]", "T1[q]", sizes={"q": 4, "r": 4})
        tree = (dram("T0", "W0", "T1"), spread("q", tile), loop("r", taps), loop("q", 1), rf("T0"), mac())
        assert agree(problem(conv, *tree, hardware=shared)) == len(POLICIES)


def test_partial_sums_of_an_inferred_einsum_stay_below_its_own_loops() -> None:
    """Each step of the loop over q makes two rows of T1, or three at first, whose sums stay in RF over a."""
    sizes = {"m": 5, "a": 4, "q": 3, "r": 3}
    one = einsum("E0", "T0[m,a]", "W0[a]", "T1[m]", sizes=sizes)
    two = einsum("E1", "T1[q+r]", "W1[r]", "T2[q]", sizes=sizes)
    for tile, held in ((2, "slide"), (1, "keep_previous")):
        kept = StorageNode("RF", ("T1", "W0"), cast(Reuse, held))
        below = Split(((loop("m", 2), loop("a", tile), kept, loop("a", 1), mac("E0")), (mac("E1"),)))
        tree = (dram("T0", "W0", "W1", "T2"), slide("GLB", "T1"), loop("q", 1), below)
        assert agree(problem((one, two), *tree), (None, "refill")) == 2


def test_what_is_made_holds_what_a_stride_leaves_out_of_it() -> None:
    """E1 reads every other row of T1 that E0 makes."""
    sizes = {"p": 5, "a": 2, "q": 3, "r": 1}
    one = einsum("E0", "T0[p,a]", "W0[a]", "T1[p]", sizes=sizes)
    two = einsum("E1", "T1[2q+r]", "W1[r]", "T2[q]", sizes=sizes)
    split = Split(((loop("p", 2), rf("T1"), mac("E0")), (loop("q", 2), rf("T1"), mac("E1"))))
    tree = (dram("T0", "W0", "W1", "T2"), glb("T1"), split)
    assert agree(problem((one, two), *tree), (None, "keep_previous")) == 2


def test_loops_that_never_step_leave_nothing_where_an_einsum_executes_at_their_first_step() -> None:
    """E0 reads rows of T0 again for each n, all of them in the first step of the loop over d alone."""
    one, two, three = chain(m=4, a=2, b=2, c=2, d=3)
    rows = (loop("m", 1), StorageNode("GLB", ("T0",), "keep_previous"), mac("E0"))
    split = Split((rows, (loop("c", 1), mac("E1")), (mac("E2"),)))
    tree = (dram("T0", "W0", "W1", "W2", "T3"), loop("m", 2), loop("d", 1), slide("GLB", "T1", "T2"), split)
    assert agree(problem((one, two, three), *tree), (None,)) == 1


def test_instances_make_what_their_own_consumers_need() -> None:
    """Loops in space over d, which T1 and T2 do not have, and over rows m, which they do: each instance holds
    what it makes, or GLB does, of disjoint rows."""
    one, two, three = chain(m=3, a=2, b=2, c=2, d=3)
    split = Split(((loop("a", 1), mac("E0")), (loop("c", 1), mac("E1")), (mac("E2"),)))
    operands = dram("T0", "W0", "W1", "W2", "T3")
    for outside in (
        (loop("d", 2), spread("d", 1), rf("T1", "T2")),
        (loop("m", 2), spread("m", 1), loop("d", 1), slide("RF", "T1", "T2")),
        (loop("m", 2), glb("T1", "T2"), spread("m", 1), loop("d", 2)),
    ):
        assert agree(problem((one, two, three), operands, *outside, split), (None, "slide")) >= 1


def test_what_a_stride_leaves_out_does_not_execute() -> None:
    """E1 needs every other row of T1, whose rows read every other one of T0 as well."""
    for r, tile, own in ((1, 1, 3), (1, 2, 2), (1, 3, 1), (2, 2, 4)):
        sizes = {"p": 9, "a": 3, "q": 4, "r": r}
        one = einsum("E0", "T0[2p+a]", "W0[a]", "T1[p]", sizes=sizes)
        two = einsum("E1", "T1[2q+2r]", "W1[r]", "T2[q]", sizes=sizes)
        rows = (loop("p", own), StorageNode("RF", ("T0",), "slide"), loop("p", 1), mac("E0"))
        split = Split((rows, (spread("q", 1), mac("E1"))))
        for kept in (slide("GLB", "T1"), glb("T1")):
            tree = (dram("T0", "W0", "W1", "T2"), loop("q", tile), kept, split)
            assert agree(problem((one, two), *tree), (None,)) == 1


def test_an_einsum_runs_one_iteration_of_a_loop_in_which_another_runs_more() -> None:
    """The loop is over b in E0, which has one value, and over c in E1, which has four: E0 is done before the
    second. With the names turned, E1 is, and what E0 holds stays on."""
    for b, c in ((1, 4), (4, 1)):
        one, two, _ = chain(m=2, a=2, b=b, c=c, d=1)
        shared = Loop("b", 1, per_einsum=(("E0", "b"), ("E1", "c")))
        split = Split(((rf("W0"), mac("E0")), (loop("m", 1), glb("W1"), mac("E1"))))
        tree = (dram("T0", "W0", "T1", "W1", "T2"), glb("W0"), shared, split)
        numbers = problem((one, two), *tree)
        if b == 1:
            assert agree(numbers, (None, "slide")) == 2
        else:
            assert check(numbers)
