"""The referee itself, against counts worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from polymodel.analysis.enumerate import ENGINE, execute, violation
from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import Split
from tests.analysis.small import (
    buffet,
    dram,
    einsum,
    glb,
    hierarchy,
    loop,
    mac,
    moved,
    problem,
    rf,
    rule,
    spread,
)
from tests.faults import refused
from tests.seeds import seeds

MATMUL = einsum("E0", "A[m,k]", "B[k,n]", "C[m,n]", sizes={"m": 4, "n": 2, "k": 3})
TWO_LEVEL = (
    dram("A", "B", "C"),
    loop("m", 2),
    glb("A", "B", "C"),
    loop("n", 1),
    loop("m", 1),
    loop("k", 1),
    mac(),
)


def peak(result, component: str, measure: str, name: str = "E0") -> int:
    (found,) = (
        w.bits
        for w in result.working_sets
        if (w.component, w.measure, w.einsum) == (component, measure, name)
    )
    return found


def test_matmul_in_two_levels() -> None:
    # 4 x 2 x 3 = 24 operations in two m tiles. A's tile 2x3 is fresh in each: 12 fills. B is the same
    # 3x2 = 6 in both: filled twice. C's tile 2x2 is complete in its visit: never filled, 8 drained.
    # The MAC updates C 24 times and reads it except for each element's first: 24 - 8 = 16.
    result = ENGINE.analyse(problem(MATMUL, *TWO_LEVEL), live=True)
    assert moved(result, "DRAM", "A") == (12, 0, 0, 0)
    assert moved(result, "GLB", "A") == (24, 0, 12, 0)
    assert moved(result, "DRAM", "B") == (12, 0, 0, 0)
    assert moved(result, "GLB", "B") == (24, 0, 12, 0)
    assert moved(result, "DRAM", "C") == (0, 0, 0, 8)
    assert moved(result, "GLB", "C") == (16, 8, 0, 24)
    a = buffet(result, "GLB", "A")
    assert (a.tile_max, a.tile_total, a.visits, a.instances, a.distinct) == (6, 12, 2, 1, 12)
    (compute,) = result.compute
    assert (compute.operations, compute.busiest, compute.instances) == (24, 24, 1)
    # Busiest (only) GLB instance: reads 24 + 24 + 16 + 8 = 72, writes 12 + 12 + 24 = 48, 8 bits each.
    assert result.loads[1].loads == ((72 * 8, 48 * 8),)


def test_live_counts_of_the_matmul() -> None:
    # Order n, m, k within a tile. A (2x3) is used for n = 0 and n = 1: all 6 at once. B's column of 3 is
    # used for both m: 3. C: 1 at a time. Together: at (n0, m1, k0) A has 3 + 1, B 3, C 1 = 8; never more.
    result = ENGINE.analyse(problem(MATMUL, *TWO_LEVEL), live=True)
    assert [buffet(result, "GLB", t).live for t in "ABC"] == [6, 3, 1]
    assert peak(result, "GLB", "live") == 8 * 8
    assert peak(result, "GLB", "tile") == (6 + 6 + 4) * 8
    assert peak(result, "GLB", "reserved") == (6 + 6 + 4) * 8
    # DRAM: with the loops above included A is used tile by tile, 6 + 6; B throughout; C element by element.
    assert [buffet(result, "DRAM", t).live for t in "ABC"] == [6, 6, 1]


def test_keep_previous_fills_what_stays_once() -> None:
    result = ENGINE.analyse(problem(MATMUL, *TWO_LEVEL), reuse="keep_previous")
    assert moved(result, "GLB", "B") == (24, 0, 6, 0)
    assert moved(result, "GLB", "A") == (24, 0, 12, 0)
    assert moved(result, "GLB", "C") == (16, 8, 0, 24)


def test_halo() -> None:
    # P = 6 in tiles of 2, R = 3: windows of 4 at 0, 2, 4. Refill 3 x 4; sliding 4 + 2 + 2.
    conv = einsum("E0", "I[p+r]", "F[r]", "O[p]", sizes={"p": 6, "r": 3})
    given = problem(conv, dram("I", "F", "O"), loop("p", 2), glb("I"), mac())
    assert moved(ENGINE.analyse(given), "GLB", "I") == (18, 0, 12, 0)
    for reuse in ("slide", "keep_previous"):
        result = ENGINE.analyse(given, reuse=reuse)
        assert moved(result, "GLB", "I") == (18, 0, 8, 0)
        assert moved(result, "DRAM", "I") == (8, 0, 0, 0)
    # F and O bypass the GLB: 18 reads of F; O is updated 18 times and read 18 - 6 times.
    assert moved(result, "DRAM", "F") == (18, 0, 0, 0)
    assert moved(result, "DRAM", "O") == (12, 0, 0, 18)


def test_slide_forgets_across_the_wrap_and_keep_previous_does_not() -> None:
    # P = 4 in tiles of 2, R = 3: windows {0..3} and {2..5}, walked twice (m outside).
    # slide: (4 + 2) x 2. keep_previous: going back, {2, 3} are still there: 4 + 2 + 2 + 2.
    conv = einsum("E0", "I[p+r]", "F[r,m]", "O[p,m]", sizes={"p": 4, "r": 3, "m": 2})
    given = problem(conv, dram("I", "F", "O"), loop("m", 1), loop("p", 2), glb("I"), mac())
    fills = {
        r: moved(ENGINE.analyse(given, reuse=r), "GLB", "I")[2] for r in ("refill", "slide", "keep_previous")
    }
    assert fills == {"refill": 16, "slide": 12, "keep_previous": 10}
    # With m inside p, the tile does not change along the innermost loop: that is free under slide.
    inner = problem(conv, dram("I", "F", "O"), loop("p", 2), loop("m", 1), glb("I"), mac())
    fills = {
        r: moved(ENGINE.analyse(inner, reuse=r), "GLB", "I")[2] for r in ("refill", "slide", "keep_previous")
    }
    assert fills == {"refill": 16, "slide": 6, "keep_previous": 6}


REDUCTION = einsum("E0", "A[m,k]", "B[k]", "C[m]", sizes={"m": 2, "k": 4})
REDUCED = (dram("A", "B", "C"), loop("k", 2), spread("k", 1), rf("C"), mac())


def test_spatial_reduction_gives_a_partial_sum_to_one_instance() -> None:
    # Two k tiles of 2, one value on each of 2 PEs; C's tile is m = 0, 1 in both PEs. First visit: nothing to
    # fill; each PE drains 2 (4 reads), reduced to 2 writes. Second: 2 partial sums are read, only PE 0 gets
    # them and reads them in its operations.
    result = ENGINE.analyse(problem(REDUCTION, *REDUCED))
    assert moved(result, "DRAM", "C") == (2, 0, 0, 4)
    assert moved(result, "RF", "C") == (2, 8, 2, 8)
    # A and B bypass the RF: each PE has other elements, B[k] serves m = 0 and m = 1 at different times.
    assert moved(result, "DRAM", "A") == (8, 0, 0, 0)
    assert moved(result, "DRAM", "B") == (8, 0, 0, 0)
    # Per PE: PE 0 reads 2 + 4 and writes 2 + 4 values, PE 1 reads 4 and writes 4.
    assert result.loads[1].loads == ((6 * 8, 6 * 8),)
    assert result.loads[1].instances == 2


def test_spatial_reduction_with_broadcast_partials() -> None:
    result = ENGINE.analyse(problem(REDUCTION, *REDUCED, hardware=hierarchy(broadcast=True)))
    assert moved(result, "DRAM", "C") == (2, 0, 0, 4)
    assert moved(result, "RF", "C") == (4, 8, 4, 8)


def test_spatial_reduction_that_stays() -> None:
    # Both PEs keep their partial sums: no fill, one drain at the end, 2 reads each in the second visit.
    result = ENGINE.analyse(problem(REDUCTION, *REDUCED), reuse="keep_previous")
    assert moved(result, "DRAM", "C") == (0, 0, 0, 2)
    assert moved(result, "RF", "C") == (4, 4, 0, 8)


def test_read_first_counts_the_first_partial_sum_too() -> None:
    hardware = hierarchy()
    first = replace(hardware.components[0], read_first=True)
    hardware = replace(hardware, components=(first, *hardware.components[1:]))
    result = ENGINE.analyse(problem(REDUCTION, *REDUCED, hardware=hardware))
    assert moved(result, "DRAM", "C") == (4, 0, 0, 4)
    assert moved(result, "RF", "C") == (4, 8, 4, 8)


def test_multicast_needs_may_reuse() -> None:
    # n on 2 PEs: A is needed by both at the same time, B and C are not shared.
    nodes = (dram("A", "B", "C"), spread("n", 1), rf("A", "B", "C"), mac())
    shared = ENGINE.analyse(problem(MATMUL, *nodes))
    assert moved(shared, "DRAM", "A") == (12, 0, 0, 0)
    assert moved(shared, "RF", "A") == (24, 0, 24, 0)
    alone = ENGINE.analyse(problem(MATMUL, *nodes, hardware=hierarchy(may_reuse=rule("E0", "C"))))
    assert moved(alone, "DRAM", "A") == (24, 0, 0, 0)
    assert moved(alone, "DRAM", "B") == (6, 0, 0, 0)


def test_overlapping_windows_are_shared_exactly() -> None:
    # P = 4 on 4 PEs, R = 3: windows of 3, their union has 6 elements; each PE writes its 3.
    conv = einsum("E0", "I[p+r]", "F[r]", "O[p]", sizes={"p": 4, "r": 3})
    result = ENGINE.analyse(problem(conv, dram("I", "F", "O"), spread("p", 1), rf("I", "F", "O"), mac()))
    assert moved(result, "DRAM", "I") == (6, 0, 0, 0)
    assert moved(result, "RF", "I") == (12, 0, 12, 0)
    assert moved(result, "DRAM", "F") == (3, 0, 0, 0)


def test_reduction_without_permission_is_refused() -> None:
    given = problem(REDUCTION, *REDUCED, hardware=hierarchy(may_reuse=rule("E0", "A", "B")))
    with refused("illegal-dependence"):
        ENGINE.analyse(given)


def test_toll_sees_fills_and_drains() -> None:
    hardware = hierarchy(toll=rule("E0", "A", "C"))
    result = ENGINE.analyse(problem(MATMUL, *TWO_LEVEL, hardware=hardware))
    assert [(t.tensor, t.down, t.up) for t in result.tolls] == [("A", 12, 0), ("C", 0, 8)]
    assert [x.loads for x in result.loads if x.component == "Net"] == [((12 * 8, 8 * 8),)]


PAIR = (
    einsum("E0", "A[m,k]", "B[k]", "T[m]", sizes={"m": 4, "k": 2}),
    einsum("E1", "T[m]", "D[m]", "Z[m]", sizes={"m": 4}),
)


def fused(*above: object) -> Problem:
    branches = ((loop("k", 1), mac("E0")), (mac("E1"),))
    return problem(PAIR, *above, Split(branches))


def test_fused_pair_keeps_its_intermediate_on_chip() -> None:
    # One m per step: E0 updates T[m] twice (one partial sum read), E1 reads it once.
    given = fused(dram("A", "B", "D", "Z"), loop("m", 1), glb("T"))
    result = ENGINE.analyse(given, live=True)
    assert moved(result, "GLB", "T", "E0") == (4, 0, 0, 8)
    assert moved(result, "GLB", "T", "E1") == (4, 0, 0, 0)
    assert not [t for t in result.traffic if (t.component, t.tensor) == ("DRAM", "T")]
    t = buffet(result, "GLB", "T")
    assert (t.tile_max, t.visits, t.distinct, t.live, t.einsums) == (1, 4, 4, 1, ("E0", "E1"))
    assert peak(result, "GLB", "tile", "E1") == 8


def test_intermediate_at_two_levels_is_written_through_and_read_nearby() -> None:
    # m in tiles of 2. The GLB drains 2 x 2 to DRAM for E0; E1 reads the GLB's copy, DRAM is never read.
    given = fused(dram("A", "B", "D", "Z", "T"), loop("m", 2), glb("T"))
    result = ENGINE.analyse(given)
    assert moved(result, "DRAM", "T", "E0") == (0, 0, 0, 4)
    assert moved(result, "GLB", "T", "E0") == (4, 4, 0, 8)
    assert moved(result, "DRAM", "T", "E1") == (0, 0, 0, 0)
    assert moved(result, "GLB", "T", "E1") == (4, 0, 0, 0)


def test_consumer_before_the_whole_reduction_is_illegal() -> None:
    # k above the split: E1 has a k too, and reads T[m] in the first k step, before it is complete.
    second = einsum("E1", "T[m]", "D[m,k]", "Z[m,k]", sizes={"m": 4, "k": 2})
    tree = (dram("A", "B", "D", "Z", "T"), loop("k", 1), Split(((mac("E0"),), (mac("E1"),))))
    given = problem((PAIR[0], second), *tree)
    broken = violation(given)
    assert broken is not None
    assert (broken.producer, broken.consumer, broken.tensor, broken.element) == ("E0", "E1", "T", (0,))
    with refused("illegal-dependence", "E1", "T[0]", "E0"):
        ENGINE.analyse(given)


def test_intermediate_must_be_where_it_was_put() -> None:
    # T lives in the GLB inside the m loop of tile 2; E1 reads the mirrored element T[m] for x = 3 - m.
    second = einsum("E1", "T[3-x]", "D[x]", "Z[x]", sizes={"x": 4})
    tree = (dram("A", "B", "D", "Z"), replace(loop("m", 2), per_einsum=(("E1", "x"),)), glb("T"))
    given = problem((PAIR[0], second), *tree, Split(((mac("E0"),), (mac("E1"),))))
    broken = violation(given)
    assert broken is not None
    assert broken.element == (2,)


def test_copy_moves_each_element_once_per_stamp() -> None:
    copy = einsum("CP", "I[m]", "A[m]", sizes={"m": 4}, copy=True)
    use = einsum("E1", "A[m]", "B[n]", "C[m,n]", sizes={"m": 4, "n": 3})
    split = Split(((mac("CP"),), (mac("E1"),)))
    result = ENGINE.analyse(problem((copy, use), dram("I", "B", "C"), glb("A"), split))
    assert moved(result, "DRAM", "I", "CP") == (4, 0, 0, 0)
    assert moved(result, "GLB", "A", "CP") == (0, 0, 4, 0)
    assert moved(result, "GLB", "A", "E1") == (12, 0, 0, 0)
    assert result.compute[0].operations == 0
    free = ENGINE.analyse(problem((copy, use), dram("I", "B", "C", "A"), split))
    assert moved(free, "DRAM", "I", "CP") == (0, 0, 0, 0)


def test_persistent_tensors_stay_and_count_per_instance() -> None:
    # W is used by E1 only, but resident in E0's phases too, three times over: 3 x 4 values.
    first = replace(einsum("E0", "A[m]", "T[m]", sizes={"m": 2}), n_instances=3)
    second = replace(einsum("E1", "T[m]", "W[n]", "Z[m,n]", sizes={"m": 2, "n": 4}, W=True), n_instances=3)
    split = Split(((mac("E0"),), (mac("E1"),)))
    result = ENGINE.analyse(problem((first, second), dram("A", "Z"), glb("W"), glb("T"), split))
    assert peak(result, "GLB", "tile", "E0") == (3 * 4 + 2) * 8
    assert peak(result, "GLB", "reserved", "E0") == (3 * 4 + 2) * 8
    assert peak(result, "GLB", "tile", "E1") == (3 * 4 + 2) * 8


def test_imperfect_and_initial_tiles() -> None:
    # m = 4 in tiles 1, 2, 1 (first tile 1, then 2): three visits, A's tile 3, 6, 3.
    first = replace(loop("m", 2), initial_tile_shape=1)
    result = ENGINE.analyse(problem(MATMUL, dram("A", "B", "C"), first, glb("A"), mac()))
    a = buffet(result, "GLB", "A")
    assert (a.tile_max, a.tile_total, a.visits) == (6, 12, 3)


@pytest.mark.parametrize("limit", seeds(1, [3_000, execute.POINT_LIMIT]))
def test_too_many_points_are_refused(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "POINT_LIMIT", limit)
    big = einsum("E0", "A[m]", "B[m]", "C[m]", sizes={"m": limit + 1_000})
    with refused("too-large"):
        ENGINE.analyse(problem(big, dram("A", "B", "C"), mac()))
