"""Closed forms of Einsums that follow loops above them at some steps only: symbolic = enumerate."""

from __future__ import annotations

from itertools import product

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import forms
from polymodel.mapping.looptree import Loop, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Einsum
from tests.analysis.small import dram, einsum, glb, loop, mac, problem, rf
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

    analysis = forms(problem((one, two, three), *tree("x", "y", "z")))
    for x, y, z in product((2, 4), (1, 2), (1, 2)):
        numbers = problem((one, two, three), *tree(x, y, z))
        assert agree(numbers, (None, "refill", "slide")) == 3
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
