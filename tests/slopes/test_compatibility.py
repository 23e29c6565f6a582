"""The rules of the notes on compatible mappings and special ranks, sentence by sentence."""

from __future__ import annotations

import polymodel as pm
from polymodel.slopes.compatibility import (
    FusedLoop,
    Groups,
    OperationMapping,
    Verdict,
    combined_footprint,
    compatible,
    fault,
)
from polymodel.slopes.fused_graph import FusionRules
from polymodel.workload.einsum import Cascade, Einsum
from tests.faults import faults, refused


def cascade(*einsums: str, **sizes: int) -> Cascade:
    return pm.load(
        {
            "schema_version": 1,
            "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": list(einsums)},
        }
    ).workload


PAIR = cascade(
    "T[x, y, z] = A[x, y, k] * B[k, z]", "U[x, y, n] = T[x, y, z] * C[z, n]", X=8, Y=6, Z=4, K=5, N=3
)
FIRST, SECOND = PAIR
PLAIN = FusionRules()


def mapped(
    one: Einsum, loops: str, held: dict[str, int], sizes: tuple[int, ...] = (), footprint: int = 10
) -> OperationMapping:
    """Loops by letter, each of two iterations or of the given bounds."""
    bounds = sizes or (2,) * len(loops)
    fused = []
    for v, bound in zip(loops, bounds, strict=True):
        fused.append(FusedLoop(v, (one.bound(v)[1] + 1) // bound, bound))
    return OperationMapping(one, tuple(fused), tuple(held.items()), footprint)


def both(first: str, second: str, rules: FusionRules = PLAIN) -> Verdict:
    """The verdict on the pair with these loops above tiles of T."""
    return compatible(
        mapped(FIRST, first, {"T": len(first)}), mapped(SECOND, second, {"T": len(second)}), "T", rules
    )


def test_case_a_neither_operation_fuses_a_rank_of_the_tensor() -> None:
    verdict = compatible(mapped(FIRST, "", {"T": 0}), mapped(SECOND, "", {"T": 0}), "T", PLAIN)
    assert verdict.case == "untiled"
    assert verdict.reason == "T and U hold all of T"


def test_case_a_either_operation_is_not_tiled_fused_through_the_tensor() -> None:
    """The other one may have loops over its ranks, for another neighbour, and holds all of it above them."""
    verdict = compatible(mapped(FIRST, "", {"T": 0}), mapped(SECOND, "x", {"T": 0, "U": 1}), "T", PLAIN)
    assert verdict.case == "untiled"


def test_case_a_footprint_is_the_maximum_of_the_two() -> None:
    one, two = mapped(FIRST, "", {"T": 0}, footprint=70), mapped(SECOND, "", {"T": 0}, footprint=50)
    verdict = compatible(one, two, "T", PLAIN)
    assert verdict.footprints == "max"
    assert combined_footprint((one, two), {(0, 1): verdict}) == 70


def test_a_tile_on_one_side_and_the_whole_tensor_on_the_other_do_not_meet() -> None:
    verdict = compatible(mapped(FIRST, "", {"T": 0}), mapped(SECOND, "x", {"T": 1}), "T", PLAIN)
    assert not verdict
    assert verdict.reason == "T holds all of T, U a tile: hold all of it on both sides"


def test_case_b_overlapping_ranks_obey_the_same_order() -> None:
    assert both("xy", "xy").case == "tiled"
    refused = both("xy", "yx")
    assert not refused
    assert refused.reason == "T and U tile T in different orders: x, y and y, x"


def test_case_b_slip_where_one_rank_overlaps_several() -> None:
    """G of T is one variable for its producer, head and element for its consumer, with m in between."""
    chain = cascade("T[m, g] = A[m, k] * B[k, g]", M=4, G=12, K=5)
    one = chain.einsums[0]
    split = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 4, "G": 12, "N": 3},
                "iteration_space_shape": {"h": "0 <= h < 3", "e": "0 <= e < 4"},
                "bits_per_value": {"All": 8},
                "einsums": ["U[m, n] = T[M=m, G=4*h + e] * C[h, e, n]"],
            },
        }
    ).workload.einsums[0]
    producer = mapped(one, "gm", {"T": 2})
    assert compatible(producer, mapped(split, "hme", {"T": 3}, (3, 2, 2)), "T", PLAIN).case == "tiled"
    assert compatible(producer, mapped(split, "hem", {"T": 3}, (3, 2, 2)), "T", PLAIN).case == "tiled"
    assert compatible(producer, mapped(split, "hm", {"T": 2}, (3, 2)), "T", PLAIN).case == "tiled"
    crossed = compatible(producer, mapped(split, "mhe", {"T": 3}, (2, 3, 2)), "T", PLAIN)
    assert crossed.reason == "T and U tile T in different orders: g, m and m, h"
    # Or vice versa: seen from the consumer.
    assert compatible(mapped(split, "hme", {"T": 3}, (3, 2, 2)), producer, "T", PLAIN).case == "tiled"
    assert not compatible(mapped(split, "mhe", {"T": 3}, (2, 3, 2)), producer, "T", PLAIN)


def test_case_b_rank_sizes_need_not_match() -> None:
    one = mapped(FIRST, "xy", {"T": 2}, (4, 3))
    two = mapped(SECOND, "xy", {"T": 2}, (2, 6))
    assert compatible(one, two, "T", PLAIN).case == "tiled"


def test_case_b_no_rank_is_tiled_on_one_side_only() -> None:
    refused = both("xy", "x")
    assert not refused
    assert refused.reason == "only T tiles the rank of T that y indexes"
    assert both("x", "xy").reason == "only U tiles the rank of T that y indexes"


def test_case_b_footprint_is_the_sum_of_the_two() -> None:
    one, two = mapped(FIRST, "x", {"T": 1}, footprint=70), mapped(SECOND, "x", {"T": 1}, footprint=50)
    verdict = compatible(one, two, "T", PLAIN)
    assert verdict.footprints == "sum"
    assert combined_footprint((one, two), {(0, 1): verdict}) == 120


def test_additivity_is_transitive() -> None:
    """1 tiled fused with 2 and 2 with 4: the sum of the three, operation 3 by itself."""
    tied, loose = Verdict("tiled", ""), Verdict("untiled", "")
    mappings = [mapped(FIRST, "", {}, footprint=f) for f in (10, 20, 35, 40)]
    verdicts = {(0, 1): tied, (1, 3): tied, (1, 2): loose}
    assert Groups.of(4, [(0, 1), (1, 3)]).members == ((0, 1, 3), (2,))
    assert combined_footprint(mappings, verdicts) == 10 + 20 + 40
    mappings[2] = mapped(FIRST, "", {}, footprint=90)
    assert combined_footprint(mappings, verdicts) == 90


def test_an_incompatible_pair_has_no_footprint() -> None:
    mappings = [mapped(FIRST, "xy", {"T": 2}), mapped(SECOND, "x", {"T": 1})]
    with faults("wrong-type", "T", at=""):
        combined_footprint(mappings, {(0, 1): compatible(*mappings, "T", PLAIN)})


def test_footnote_both_over_the_same_ranks_of_arbitrary_size_or_one_rank_alone() -> None:
    one, two = mapped(FIRST, "xy", {"T": 2}, (8, 2)), mapped(SECOND, "xy", {"T": 2}, (2, 3))
    assert compatible(one, two, "T", PLAIN)
    assert both("x", "x")


def test_footnote_not_x_on_one_side_and_y_on_the_other() -> None:
    assert not both("x", "y")


def test_footnote_not_both_ranks_on_one_side_and_x_alone_on_the_other() -> None:
    assert not both("xy", "x")


PARTIAL = FusionRules(partial_overlap=True)


def test_partial_overlap_admits_a_consumer_that_waits() -> None:
    """Fused loops (X2, Y3) of the producer and (X2) of the consumer."""
    one, two = mapped(FIRST, "xy", {"T": 2}, (2, 3)), mapped(SECOND, "x", {"T": 1}, (2,))
    assert not compatible(one, two, "T", PLAIN)
    verdict = compatible(one, two, "T", PARTIAL)
    assert verdict.footprints == "sum"
    assert verdict.reason == "U waits for tiles of T and buffers them"


def test_partial_overlap_needs_every_loop_of_the_consumer_in_the_producer() -> None:
    one, two = mapped(FIRST, "x", {"T": 1}), mapped(SECOND, "xy", {"T": 2})
    verdict = compatible(one, two, "T", PARTIAL)
    assert verdict.reason == "y of U has no matching fused loop in T, the producer of T"


def test_partial_overlap_needs_bounds_of_at_most_the_producers() -> None:
    one, two = mapped(FIRST, "xy", {"T": 2}, (2, 3)), mapped(SECOND, "x", {"T": 1}, (4,))
    assert (
        compatible(one, two, "T", PARTIAL).reason
        == "x of U has 4 iterations, no perfect factor of the 2 of T"
    )


def test_partial_overlap_needs_perfect_factors() -> None:
    one, two = mapped(FIRST, "yx", {"T": 2}, (6, 2)), mapped(SECOND, "y", {"T": 1}, (2,))
    assert compatible(one, two, "T", PARTIAL)
    two = OperationMapping(SECOND, (FusedLoop("y", 2, 4),), (("T", 1),), 10)
    assert "no perfect factor of the 6" in compatible(one, two, "T", PARTIAL).reason


def test_partial_overlap_waits_for_inner_loops_only() -> None:
    """Under an outer loop that the consumer lacks, it would have to hold all of the tensor."""
    one, two = mapped(FIRST, "xy", {"T": 2}), mapped(SECOND, "y", {"T": 1})
    assert "another loop outside" in compatible(one, two, "T", PARTIAL).reason


def test_equal_outer_sizes_leave_the_innermost_loop_free() -> None:
    """Not of the notes, which allow sizes of their own in every loop."""
    strict = FusionRules(equal_outer_sizes=True)
    one, two = mapped(FIRST, "xy", {"T": 2}, (4, 3)), mapped(SECOND, "xy", {"T": 2}, (4, 2))
    assert compatible(one, two, "T", strict).case == "tiled"
    two = mapped(SECOND, "xy", {"T": 2}, (2, 3))
    assert compatible(one, two, "T", PLAIN).case == "tiled"
    refused = compatible(one, two, "T", strict)
    assert refused.reason == "outer loops over T differ: 4 tiles along x of T, 2 along x of U"


def test_unfused_neighbours_meet_in_the_backing_store() -> None:
    verdict = compatible(mapped(FIRST, "", {}), mapped(SECOND, "", {}), "T", PLAIN)
    assert (verdict.case, verdict.footprints) == ("unfused", "max")
    refused = compatible(mapped(FIRST, "", {}), mapped(SECOND, "x", {"T": 1}), "T", PLAIN)
    assert refused.reason == "T has T in the backing store, U in the buffer"


def test_no_partial_sums_between_layers() -> None:
    bad = mapped(FIRST, "kx", {"T": 2})
    assert fault(bad, PLAIN) == "the loop over k above T would hand on partial sums of T"
    assert not compatible(bad, mapped(SECOND, "x", {"T": 1}), "T", PLAIN)


def test_a_tile_is_not_handed_on_twice() -> None:
    bad = mapped(SECOND, "nx", {"T": 2})
    assert fault(bad, PLAIN) == "the loop over n above T would need it again in U"


def test_a_reduction_may_be_fused_below_the_tile_of_the_output() -> None:
    """Loops (x, z) of the consumer: z above its tiles of T alone, x above both."""
    assert fault(mapped(SECOND, "xz", {"T": 2, "U": 1}), PLAIN) == ""
    assert "partial sums" in fault(mapped(SECOND, "xz", {"T": 2, "U": 2}), PLAIN)


def test_fused_loops_iterate_and_go_over_different_rank_variables() -> None:
    assert "fewer than two iterations" in fault(mapped(FIRST, "x", {"T": 1}, (1,)), PLAIN)
    assert "two fused loops" in fault(mapped(FIRST, "xx", {"T": 2}), PLAIN)


ATTENTION = (
    "QK[batch, n_head, m, p] = Q[batch, n_head, m, e] * K[batch, n_head, p, e]",
    "SM[batch, n_head, m, p] = QK[batch, n_head, m, p]",
)
SIZES = {"BATCH": 2, "N_HEAD": 4, "M": 6, "P": 6, "E": 4}


def loops(one: Einsum, names: tuple[str, ...]) -> OperationMapping:
    fused = tuple(FusedLoop(v, (one.bound(v)[1] + 1) // 2, 2) for v in names)
    return OperationMapping(one, fused, (("QK", len(fused)),))


def test_a_head_rank_is_the_outermost_loop_if_any_loop_is_fused() -> None:
    one = cascade(*ATTENTION[:1], **SIZES).einsums[0]
    alone = FusionRules(batch=False)
    assert "n_head of QK must stand outermost, not m" in fault(loops(one, ("m",)), alone)
    assert "must stand outermost" in fault(loops(one, ("m", "n_head")), alone)
    assert fault(loops(one, ("n_head", "m")), alone) == ""
    assert fault(loops(one, ("m",)), FusionRules(head=False)) == ""
    assert fault(loops(one, ()), PLAIN) == ""


def test_a_head_rank_of_size_one_is_not_special() -> None:
    one = cascade(*ATTENTION[:1], **{**SIZES, "N_HEAD": 1}).einsums[0]
    assert fault(loops(one, ("m",)), PLAIN) == ""


def test_the_batch_is_next_outermost_after_the_head() -> None:
    one = cascade(*ATTENTION[:1], **SIZES).einsums[0]
    assert "n_head, batch of QK must stand outermost" in fault(loops(one, ("n_head", "m")), PLAIN)
    assert "must stand outermost" in fault(loops(one, ("batch", "n_head", "m")), PLAIN)
    assert fault(loops(one, ("n_head", "batch", "m")), PLAIN) == ""


def test_the_batch_is_special_only_after_a_head() -> None:
    one = cascade(*ATTENTION[:1], **{**SIZES, "N_HEAD": 1}).einsums[0]
    assert FusionRules().outermost(one) == ()
    assert FusionRules(head=False).outermost(one) == ()


def test_the_batch_must_be_larger_than_one() -> None:
    one = cascade(*ATTENTION[:1], **{**SIZES, "BATCH": 1}).einsums[0]
    assert FusionRules().outermost(one) == ("n_head",)


def test_the_batch_must_index_all_tensors() -> None:
    text = "V[batch, n_head, m, e] = I[batch, m, d] * W[n_head, e, d]"
    one = cascade(text, BATCH=2, N_HEAD=4, M=6, E=4, D=3).einsums[0]
    assert FusionRules().outermost(one) == ("n_head",)


def test_one_rank_must_share_all_batches() -> None:
    """Two batches of their own are not a batch that acts like a head."""
    text = "QK[BATCH=b, N_HEAD=h, m, BATCH2=c] = Q[BATCH=b, N_HEAD=h, m] * K[BATCH2=c, N_HEAD=h, m]"
    one = cascade(text, BATCH=2, BATCH2=2, N_HEAD=4, M=6).einsums[0]
    assert FusionRules().outermost(one) == ("h",)


def test_the_batch_needs_three_tensors() -> None:
    softmax = cascade(*ATTENTION, **SIZES)["SM"]
    assert len(softmax.accesses) == 2
    assert FusionRules().outermost(softmax) == ("n_head",)


def test_roles_say_what_is_a_head() -> None:
    workload = pm.load("attention").workload
    assert FusionRules().outermost(workload["QK"]) == ()
    given = FusionRules(roles=(("head", ("H",)),))
    assert given.outermost(workload["QK"]) == ("h",)


def test_head_is_tiled_fusion_decides_whether_heads_add() -> None:
    given = FusionRules(roles=(("head", ("H",)),))
    freed = FusionRules(roles=given.roles, head_is_tiled_fusion=False)
    qk, softmax, _ = pm.load("attention").workload
    per_head = [OperationMapping(e, (FusedLoop("h", 1, 2),), (("QK", 1),), 9) for e in (qk, softmax)]
    assert compatible(*per_head, "QK", given).footprints == "sum"
    assert compatible(*per_head, "QK", freed).footprints == "max"
    rows = tuple(
        OperationMapping(e, (FusedLoop("h", 1, 2), FusedLoop("m", 8, 8)), (("QK", 2),), 9)
        for e in (qk, softmax)
    )
    assert compatible(*rows, "QK", freed).footprints == "sum"


def test_uneven_tensors_are_every_combination_minus_fused_ones() -> None:
    workload = pm.load("attention").workload
    softmax, av = workload["Softmax"], workload["AV"]
    assert FusionRules().uneven_sets(av) == {frozenset({0, 1, 2})}  # any subset of them
    assert FusionRules(uneven=False).uneven_sets(softmax) == {frozenset()}
    assert FusionRules(uneven=("V",)).uneven_sets(av) == {frozenset({1})}
    assert FusionRules(uneven=("V",)).uneven_sets(softmax) == {frozenset()}


def test_flipped_operands_swap_input_and_weight() -> None:
    av = pm.load("attention").workload["AV"]  # input SM, weight V
    sets = {
        o: FusionRules(uneven=("weight",), operands=o).uneven_sets(av)
        for o in ("as_written", "flipped", "both")
    }
    assert sets["as_written"] == {frozenset({1})}
    assert sets["flipped"] == {frozenset({0})}
    assert sets["both"] == sets["as_written"] | sets["flipped"]


def test_layout_penalties_are_refused_by_name() -> None:
    with refused("unsupported-constraint", "layout"):
        FusionRules(layout={"penalty": 2})


def test_a_tensor_that_is_not_shared_is_a_fault() -> None:
    with faults("unknown-name", "U", "A", at=""):
        compatible(mapped(FIRST, "", {}), mapped(SECOND, "", {}), "A", PLAIN)
