"""Einsums that read what they, or later Einsums, have made in an earlier iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.reuse import Reuse
from polymodel.schedule.legality import faults_of
from polymodel.spec.faults import Faults
from polymodel.workload.einsum import Cascade, Einsum
from polymodel.workload.spaces import without_boundaries
from tests.analysis.test_agreement import POLICIES, SETTINGS, assert_few_refusals, compare, drawing
from tests.analysis.test_several_accesses import evaluated, moved
from tests.analysis.unchecked import closed_forms_agree
from tests.faults import faults, refused
from tests.generators import lawless, legal
from tests.support.small_specs import fanout, leaf, loop, memory, split, spread, storage, unit
from tests.workloads import delay_forms, recurrence_forms

ENGINES = ("enumerate", "exact", "auto")
RUNNING = {
    "rank_sizes": {"P": 6, "M": 3, "K": 2},
    "bits_per_value": {"All": 8},
    "init": {"R": "-inf"},
    "einsums": ["R[P=p+1, m] = R[p, m] * A[p, m, k]"],
}
CYCLE = {
    "rank_sizes": {"P": 6, "M": 3},
    "bits_per_value": {"All": 8},
    "init": {"X": 0},
    "einsums": ["Y[p, m] = X[p, m] * A[p, m]", "X[P=p+1, m] = Y[p, m] * B[m]"],
}


def fault_of(workload: object, *nodes: object) -> str:
    """What is wrong with a mapping onto a DRAM, a buffer and a multiplier."""
    with pytest.raises(pm.SpecError) as caught:
        evaluated(workload, *nodes, engine="auto")
    return str(caught.value)


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_running_value_keeps_one_generation(engine: str) -> None:
    """36 operations: 18 partial sums are read again, and what was before, but for the first one."""
    nodes = [storage("DRAM", "R", "A"), loop("p", 1), storage("GLB", "R", reuse="slide"), leaf("R")]
    report = evaluated(RUNNING, *nodes, engine=engine)
    assert moved(report, "R") == {"DRAM": (0, 0, 0, 18), "GLB": (18 + 30, 18, 0, 36)}
    (held,) = (b for b in report.analysis.buffets if (b.component, b.tensor) == ("GLB", "R"))
    assert held.tile_max == 6
    refilled = evaluated(RUNNING, *nodes[:2], storage("GLB", "R"), leaf("R"), engine=engine)
    assert moved(refilled, "R") == {"DRAM": (15, 0, 0, 18), "GLB": (48, 18, 15, 36)}


@pytest.mark.parametrize("engine", ["enumerate", "exact"])
@pytest.mark.parametrize("generations", [4, 9])
def test_live_elements_do_not_grow_with_the_generations(engine: str, generations: int) -> None:
    nodes = [storage("DRAM", "A"), storage("GLB", "R"), loop("p", 1), loop("m", 1), leaf("R")]
    sized = {**RUNNING, "rank_sizes": {"P": generations, "M": 3, "K": 2}}
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, allocation="live"), unit()]}
    spec = pm.load({"arch": arch, "workload": sized, "mapping": {"nodes": nodes}})
    (held,) = (b for b in pm.evaluate(spec, engine=engine).analysis.buffets if b.tensor == "R")
    assert (held.distinct, held.live) == (3 * generations, 4)


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_cycle_of_two_einsums_below_the_loop_that_carries_it(engine: str) -> None:
    nodes = [
        storage("DRAM", "X", "A", "B"),
        loop("p", 1),
        storage("GLB", "X", "Y", reuse="keep_previous"),
        split([leaf("Y")], [leaf("X")]),
    ]
    report = evaluated(CYCLE, *nodes, engine=engine)
    assert moved(report, "X") == {"DRAM": (0, 0, 0, 18), "GLB": (15, 18, 0, 18)}


@pytest.mark.parametrize("engine", ENGINES)
def test_instances_read_what_is_before_from_its_own_tensor(engine: str) -> None:
    """Only the first of 4 generations is read from R0, at whatever loops over p there are."""
    sizes = {"rank_sizes": {"P": 4, "M": 3}, "bits_per_value": {"All": 8}, "init": {"R": "R0"}}
    two = {**sizes, "einsums": ["R[P=p+1, m] = R[p, m] * A[p, m]", "D[p, m] = R[p, m] * R[P=p+1, m]"]}
    spreads = [spread("p", 2), spread("p", 2), loop("p", 1), spread("p", 1), leaf("D")]
    nodes = [storage("DRAM", "R", "A", "R0", "D"), split([loop("p", 1), leaf("R")], spreads)]
    report = evaluated(two, *nodes, engine=engine, fanout=2)
    assert moved(report, "R0") == {"DRAM": (3 + 3, 0, 0, 0)}
    assert moved(report, "R") == {"DRAM": (9 + 9 + 12, 0, 0, 12)}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_before_is_held_only_while_it_is_read(engine: str) -> None:
    """R0 is read in the first of two tiles of p: below them it does not stay until the second."""
    sizes = {"rank_sizes": {"P": 3, "M": 3}, "bits_per_value": {"All": 8}, "init": {"R": "R0"}}
    two = {**sizes, "einsums": ["R[P=p+1, m] = R[p, m] * A[p, m]", "D[p, m] = R[p, m] * R[P=p+1, m]"]}
    inner = [spread("p", 1), storage("GLB", "R0", reuse="slide"), leaf("D")]
    nodes = [storage("DRAM", "R", "A", "R0", "D"), loop("p", 2), split([loop("p", 1), leaf("R")], inner)]
    arch = {"nodes": [memory("DRAM", 8e-12), fanout(), memory("GLB", 1e-12), unit()]}
    spec = pm.load({"arch": arch, "workload": two, "mapping": {"nodes": nodes}})
    found = pm.evaluate(spec, engine=engine).analysis.working_sets
    assert [(w.einsum, w.bits) for w in found if (w.component, w.measure) == ("GLB", "tile")] == [("D", 24)]


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
@pytest.mark.parametrize("before", [0, "Y0"])
def test_a_later_einsum_alone_reads_what_is_before(engine: str, before: int | str) -> None:
    """Y is handed on one iteration later: Z reads 4 of its 5 generations, and what is before them."""
    sizes = {"rank_sizes": {"P": 5, "M": 3}, "bits_per_value": {"All": 8}, "init": {"Y": before}}
    work = {**sizes, "einsums": ["Y[P=p+1, m] = A[p, m] * B[m]", "Z[p, m] = Y[p, m] + A[p, m]"]}
    held = ["Y", "A", "B", "Z", *(["Y0"] if before else [])]
    nodes = [storage("DRAM", *held), loop("p", 2), storage("GLB", "Y"), split([leaf("Y")], [leaf("Z")])]
    report = evaluated(work, *nodes, engine=engine)
    assert moved(report, "Y") == {"DRAM": (6, 0, 0, 15), "GLB": (12, 15, 6, 15)}
    assert not before or moved(report, "Y0") == {"DRAM": (3, 0, 0, 0)}
    assert report.spec.workload.generational == (("Y", ("P",)),)


def test_values_of_what_is_handed_on_later() -> None:
    sizes = {"rank_sizes": {"P": 4}, "bits_per_value": {"All": 8}, "init": {"Y": "Y0"}}
    work = {**sizes, "einsums": ["Y[P=p+1] = A[p] * B[p]", "Z[p] = Y[p] + A[p]"]}
    data = {"A": [1, 2, 3, 4], "B": [5, 6, 7, 8], "Y0": 9}
    assert pm.values(pm.load({"workload": work}), data)["Z"].tolist() == [9 + 1, 5 + 2, 12 + 3, 21 + 4]


def test_what_is_read_too_early_is_named() -> None:
    top, low = storage("DRAM", "R", "A"), storage("GLB", "R", "A")
    told = fault_of(RUNNING, top, loop("k", 1), loop("p", 1), low, leaf("R"))
    assert "R reads R of an earlier iteration before R has finished it: iterations over k (node 1)" in told
    assert "R[P=1, M=0]" in told
    assert "loop over p further out" in told
    apart = [storage("DRAM", "X", "Y", "A", "B"), split([leaf("Y")], [leaf("X")])]
    assert "no loop that both share carries it forward in time (for example X[P=1, M=0])" in fault_of(
        CYCLE, *apart
    )
    assert "put a temporal loop over p above them" in fault_of(CYCLE, *apart)
    unsaid = {k: v for k, v in RUNNING.items() if k != "init"}
    told = fault_of(unsaid, top, leaf("R"))
    assert "R reads R but R never produces it (for example R[P=0, M=0])" in told
    assert "init: {R: 0}" in told


def test_instances_that_run_at_one_time_hand_nothing_on() -> None:
    spatial = [storage("DRAM", "R", "A"), storage("GLB", "R"), spread("p", 1), leaf("R")]
    with faults("illegal-dependence", "R", at="mapping"):
        evaluated(RUNNING, *spatial, engine="auto", fanout=6)


def loaded(*einsums: str, **more: object) -> pm.Spec:
    sizes = {"rank_sizes": {"P": 5, "M": 6}, "bits_per_value": {"All": 8}}
    return pm.load({"workload": {**sizes, "einsums": list(einsums), **more}})


def test_generational_ranks_reach_beyond_their_size() -> None:
    ahead = loaded("S[P=p+1] = S[p] + A[p]", "Z[m] = S[P] * B[m]", init={"S": 0}).workload
    assert [e.bounds for e in ahead] == [((0, 4),), ((0, 5),)]
    assert ahead.generational == (("S", ("P",)),)
    assert str(ahead["Z"].access_of("S").projection[0]) == "5"
    behind = loaded("S[p] = S[P=p-1] + A[p]", init={"S": 0}, rank_sizes={"P": 5}).workload
    assert behind["S"].bounds == ((0, 4),)
    assert str(behind["S"].accesses[0].guard[0]) == "p - 1 >= 0"


def test_which_rank_is_generational_is_inferred_or_named() -> None:
    stencil = ["U[P=p+1, M=m] = U[p, M=m-1] + U[p, M=m+1]"]
    assert loaded(*stencil, init={"U": 0}).workload.generational == (("U", ("P",)),)
    skewed = ["U[P=p+1, M=m] = U[p, M=m-1] + A[p, m]"]
    assert loaded(*skewed, generational=["M"]).workload.generational == (("U", ("M",)),)
    with faults("invalid-recurrence", "Q", at="workload.generational[0]"):
        loaded(*skewed, generational=["Q", "P"])


def test_what_carries_nothing_forward_is_refused() -> None:
    with faults("cyclic-cascade", "S", at="workload.einsums[0].tensor_accesses[2].name"):
        loaded("S[p] = S[P=p+1] + A[p]", rank_sizes={"P": 5})
    with faults("cyclic-cascade", at="workload.einsums[0].tensor_accesses[2].name"):
        loaded("S[P=p-1] = S[p] + A[p]", rank_sizes={"P": 5})
    with faults("invalid-recurrence", at="workload.init.A"):
        loaded("S[P=p+1] = S[p] + A[p]", init={"A": 0}, rank_sizes={"P": 5})


def test_stages_of_a_pipeline_hand_nothing_back() -> None:
    units = [unit("MAC0"), unit("MAC1")]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), *units]}
    stages = split([leaf("Y", "MAC0")], [leaf("X", "MAC1")], kind="Pipeline")
    nodes = [storage("DRAM", "X", "A", "B"), loop("p", 1), storage("GLB", "X", "Y", "A", "B"), stages]
    spec = pm.load({"arch": arch, "workload": CYCLE, "mapping": {"nodes": nodes}})
    with refused("unsupported-pipeline"):
        pm.evaluate(spec)


@pytest.mark.parametrize("engine", ["enumerate", "exact"])
def test_reading_a_kept_value_begins_no_sum_anew(engine: str) -> None:
    """Runs are listed where instances are idle: that of R[2] ends with a read, after the sum was written."""
    sized = {"rank_sizes": {"P": 3, "M": 3, "K": 3}, "bits_per_value": {"All": 8}, "init": {"R": 0}}
    workload = {**sized, "einsums": ["R[P=p+1, m] = R[p, m] * A[p, k]"]}
    lanes = [{"name": "V", "fanout": 2, "broadcast_partials": False}]
    memories = [memory("DRAM", 8e-12), memory("GLB", 1e-12, read_first=False), memory("RF", 1e-12)]
    arch = {"nodes": [*memories, {**unit(), "spatial": lanes}]}
    nodes = [
        storage("DRAM", "A"),
        storage("GLB", "R"),
        loop("m", 1),
        loop("p", 2),
        storage("RF", "R", "A", reuse="slide"),
        {**spread("k", 1, "MAC", "V"), "initial_tile_shape": 2},
        leaf("R"),
    ]
    spec = pm.load({"arch": arch, "workload": workload, "mapping": {"nodes": nodes}})
    report = pm.evaluate(spec, engine=engine)
    assert moved(report, "R") == {"GLB": (0, 0, 0, 9), "RF": (21, 9, 0, 18)}


@pytest.mark.parametrize("engine", ["enumerate", "symbolic"])
def test_what_is_left_of_the_step_before_holds_a_generation_before_it(engine: str) -> None:
    """While R is made, in the first branch, the buffer of Z holds R[1] and R[2] from the third step on."""
    sized = {"rank_sizes": {"P": 3}, "bits_per_value": {"All": 8}, "init": {"R": 0}}
    einsums = ["R[P=p+1] = R[p] * A[p]", "Z[p] = R[p] * R[P=p+1]"]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    below = [storage("GLB", "R", reuse="keep_previous"), leaf("Z")]
    nodes = [storage("DRAM", "R", "A", "Z"), loop("p", 1), split([leaf("R")], below)]
    spec = pm.load({"arch": arch, "workload": {**sized, "einsums": einsums}, "mapping": {"nodes": nodes}})
    found = pm.evaluate(spec, engine=engine).analysis.working_sets
    held = {w.einsum: w.bits for w in found if (w.component, w.measure) == ("GLB", "tile")}
    assert held == {"R": 16, "Z": 16}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_iterations_that_read_nothing_of_a_tensor_leave_nothing_of_it(engine: str) -> None:
    """Y and Z read R0 in the first iteration and R from the second one on, each into a buffer of its own that
    keeps neither: while Y is made that of Z is empty, and while Z is made that of Y."""
    sized = {"rank_sizes": {"P": 3}, "bits_per_value": {"All": 8}, "init": {"R": "R0"}}
    einsums = ["Y[p] = R[p] * A[p]", "Z[p] = R[p] * Y[p]", "R[P=p+1] = Z[p] * A[p]"]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    branches = [[storage("GLB", "R"), leaf("Y")], [storage("GLB", "R", "R0"), leaf("Z")], [leaf("R")]]
    nodes = [storage("DRAM", "R", "R0", "A", "Y", "Z"), loop("p", 1), split(*branches)]
    spec = pm.load({"arch": arch, "workload": {**sized, "einsums": einsums}, "mapping": {"nodes": nodes}})
    found = pm.evaluate(spec, engine=engine).analysis.working_sets
    held = {w.einsum: w.bits for w in found if (w.component, w.measure) == ("GLB", "tile")}
    assert held == {"Y": 8, "Z": 8}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_a_tile_that_slides_does_not_depend_on_iterations_that_read_nothing(engine: str) -> None:
    """D reads nothing that S makes in the first iteration, S[2] in the second, S[2] and S[3] in the third:
    no two visits differ in one loop alone, so that S[2] stays although the inner loop begins again."""
    sized = {"rank_sizes": {"P": 3}, "bits_per_value": {"All": 8}, "init": {"S": 0}}
    einsums = ["S[P=p+2] = S[P=p+1] * A[p]", "D[p] = S[P=p+1] * S[p]"]
    below = [loop("p", 1), storage("GLB", "S", reuse="slide"), leaf("D")]
    nodes = [storage("DRAM", "S", "A", "D"), loop("p", 2), split([leaf("S")], below)]
    report = evaluated({**sized, "einsums": einsums}, *nodes, engine=engine)
    assert moved(report, "S") == {"DRAM": (2 + 2, 0, 0, 3), "GLB": (3, 0, 2, 0)}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
@pytest.mark.parametrize(("size", "filled"), [(2, 1), (3, 2 * 4)])
def test_a_tile_of_one_generation_stays_while_loops_begin_again(engine: str, size: int, filled: int) -> None:
    """Of two generations Z reads R[1] alone in each of 4 iterations over k; of three two, which replace
    each other."""
    sized = {"rank_sizes": {"P": size, "K": 4}, "bits_per_value": {"All": 8}, "init": {"R": 0}}
    einsums = ["R[P=p+1] = R[p] * A[p]", "Z[p, k] = R[p] * B[k]"]
    below = [loop("k", 1), loop("p", 1), storage("GLB", "R", reuse="slide"), leaf("Z")]
    nodes = [storage("DRAM", "R", "A", "B", "Z"), split([leaf("R")], below)]
    report = evaluated({**sized, "einsums": einsums}, *nodes, engine=engine)
    assert moved(report, "R")["GLB"] == (4 * (size - 1), 0, filled, 0)


def test_what_stays_over_two_loops_of_one_rank_is_left_to_other_engines() -> None:
    """Q stays in another branch over the steps of both loops over p: its next tile reads what it holds."""
    sized = {"rank_sizes": {"P": 4}, "bits_per_value": {"All": 8}, "init": {"Q": 0}}
    einsums = ["T[p] = A[p] * B[p]", "Q[P=p+1] = Q[p] * T[p]"]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    below = [storage("GLB", "Q", reuse="keep_previous"), leaf("Q")]
    loops = [loop("p", 2), loop("p", 1), storage("DRAM", "T")]
    nodes = [storage("DRAM", "A", "B"), *loops, split([leaf("T")], below)]
    spec = pm.load({"arch": arch, "workload": {**sized, "einsums": einsums}, "mapping": {"nodes": nodes}})
    held = [
        {w.einsum: w.bits for w in pm.evaluate(spec, engine=e).analysis.working_sets if w.component == "GLB"}
        for e in ("enumerate", "auto")
    ]
    assert held == [{"T": 16, "Q": 16}] * 2


def test_closed_forms_count_generations() -> None:
    """P - 1 generations are read again, of which each tile of p but the first fills one; P are written."""
    nodes = [storage("DRAM", "R", "A"), loop("p", "TP"), storage("GLB", "R", "A"), leaf("R")]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    sized = {**RUNNING, "rank_sizes": {"P": "P", "M": 3, "K": 2}, "bits_per_value": {"All": 1}}
    open_ = {"symbols": {"P": None}, "arch": arch, "workload": sized, "mapping": {"nodes": nodes}}
    found = pm.closed_forms(pm.load(open_), ranks=True).value("accesses:DRAM")
    assert str(found) == "M*(K*P + P + ceiling(P/TP) - 1)"


@pytest.mark.parametrize(
    ("einsum", "before"),
    [("F[P=p+2, m] = F[p, m] + A[p, m]", 1), ("F[P=p+3, m] = F[p, m] + A[p, m] + F[P=p+2, m]", "F0")],
)
def test_generations_further_back_have_closed_forms(einsum: str, before: float | str) -> None:
    """Of any distance, which need not be even, and of those before the first one from their own tensor."""
    held = ("F", "A", "F0")[: 3 if before == "F0" else 2]
    nodes = [storage("DRAM", *held), loop("p", "TP"), storage("GLB", *held, reuse="slide"), leaf("F")]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    sized = {"rank_sizes": {"P": 7, "M": 2}, "bits_per_value": {"All": 8}, "init": {"F": before}}
    open_ = {"symbols": {"TP": None}, "workload": {**sized, "einsums": [einsum]}, "mapping": {"nodes": nodes}}
    spec = pm.load({**open_, "arch": arch})
    swept = pm.sweep(spec, {"TP": [1, 2, 5]}, keep="all").frame
    found = pm.closed_forms(spec)
    for tile, energy in zip(swept["TP"], swept["energy"], strict=True):
        walked = pm.evaluate(spec.bind(TP=int(tile)), engine="enumerate")
        assert walked.total_energy == pytest.approx(energy, rel=1e-12)
        assert found.analysis.at({"TP": int(tile)}).buffets == walked.analysis.buffets
    with refused("unsupported-recurrence"):
        pm.closed_forms(spec, ranks=True)


def test_each_einsum_fills_the_generations_that_it_reads() -> None:
    """Z reads one more of what is before R than R does, from one buffer: closed forms leave it out."""
    einsums = ["R[P=p+2, m] = R[P=p+1, m] * A[p, m]", "Z[p, m] = R[p, m] * A[p, m]"]
    work = {"rank_sizes": {"P": 3, "M": 2}, "bits_per_value": {"All": 8}, "init": {"R": "R0"}}
    nodes = [storage("DRAM", "R0", "A", "Z"), storage("GLB", "R", "R0"), split([leaf("R")], [leaf("Z")])]
    walked, counted = (
        {t.einsum: t.writes_fill for t in report.analysis.traffic if (t.tensor, t.component) == ("R0", "GLB")}
        for report in (evaluated({**work, "einsums": einsums}, *nodes, engine=e) for e in ENGINES[::2])
    )
    assert walked == counted == {"R": 2, "Z": 2}
    with refused("unsupported-recurrence"):
        evaluated({**work, "einsums": einsums}, *nodes, engine="symbolic")


@pytest.mark.parametrize("engine", ["enumerate", "exact", "symbolic"])
def test_storage_is_not_visited_before_anything_is_read(engine: str) -> None:
    """In the first iteration Z reads what nobody has made: nothing stands in its buffer then."""
    einsums = ["R[P=p+1, m] = R[p, m] * A[p, m]", "Z[p, m] = R[p, m] * B[m]"]
    work = {"rank_sizes": {"P": 4, "M": 2}, "bits_per_value": {"All": 8}, "init": {"R": 1}}
    below = [loop("p", 1), storage("GLB", "R"), leaf("Z")]
    nodes = [storage("DRAM", "R", "A", "B", "Z"), split([leaf("R")], below)]
    report = evaluated({**work, "einsums": einsums}, *nodes, engine=engine)
    (held,) = (b for b in report.analysis.buffets if b.component == "GLB")
    assert (held.visits, held.distinct) == (3, 6)


def test_a_sweep_tells_tiles_in_which_iterations_follow_one_another_too_early() -> None:
    """A cycle of two Einsums is legal below a loop that runs one iteration at a time, and below no other."""
    nodes = [
        storage("DRAM", "X", "A", "B"),
        loop("p", "TP"),
        storage("GLB", "X", "Y", "A", "B"),
        split([leaf("Y")], [leaf("X")]),
    ]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    spec = pm.load({"arch": arch, "workload": CYCLE, "mapping": {"nodes": nodes}})
    swept = pm.sweep(spec, {"TP": [1, 2, 3, 6]}, keep="all")
    assert (swept.points, swept.frame["TP"].tolist()) == (4, [1])
    assert "Y reads X of an earlier iteration before X has finished it" in str(swept.infeasible)


def begun(draw: st.DrawFn, cascade: Cascade, delayed: tuple[str, ...] = ()) -> Cascade:
    """The cascade with something before each tensor that is carried forward, and those that are `delayed`,
    and beyond the edges of its other ranks: a number, or a tensor. Results of others may be updated."""
    init: list[tuple[str, float | str]] = []
    boundary: list[tuple[str, float | str]] = []
    standing: dict[str, list[tuple[str, int]]] = {}
    carried = (*cascade.recurrent, *delayed)
    for tensor in carried:
        named, edged = draw(st.booleans()), draw(st.sampled_from([False, False, True]))
        init.append((tensor, f"{tensor}0" if named else 0.0))
        boundary.append((tensor, f"{tensor}1" if edged else 0.0))
        first = draw(st.sampled_from([0, 1]))
        standing[tensor] = [(f"{tensor}0", first)] if named else []
        standing[tensor] += [(f"{tensor}1", 1)] if edged else []
    einsums = tuple(_with_initial(e, standing) for e in cascade.einsums)
    updated = {
        a.tensor
        for e in einsums
        for a in e.outputs
        if a.tensor not in carried and draw(st.integers(0, 5)) == 0
    }
    einsums = tuple(
        replace(
            e, accesses=tuple(replace(a, accumulates=a.output and a.tensor in updated) for a in e.accesses)
        )
        for e in einsums
    )
    found = Faults()
    ranks = dict.fromkeys(carried, ("R0",))
    einsums = without_boundaries(einsums, init, found, boundary, ranks)
    assume(not len(found))
    return replace(cascade, einsums=einsums)


def _with_initial(e: Einsum, standing: dict[str, list[tuple[str, int]]]) -> Einsum:
    """An Einsum with a read of each tensor that stands for one, without as many of its first ranks."""
    added = tuple(
        replace(a, tensor=name, ranks=a.ranks[first:], projection=a.projection[first:])
        for a in e.inputs
        for name, first in standing.get(a.tensor, ())
    )
    return replace(e, accesses=(*e.accesses, *added))


recurring = lawless(given=recurrence_forms(), change=begun)
delaying = lawless(given=delay_forms(), change=partial(begun, delayed=("S",)))


def run_many(count: int, problems: st.SearchStrategy[Problem] = recurring) -> Counter[str]:
    """Compare the engines, and the gate with the referee, on generated problems."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems, POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        try:
            broken = legal(problem)
        except Refused:
            tally["not walked"] += 1
            assume(False)
        try:
            found = faults_of(problem)
        except Refused:
            tally["not decided"] += 1
            assume(False)
        assert bool(found) == (broken is not None), f"{found} {broken}\n{drawing(problem)}"
        tally["illegal"] += broken is not None
        assume(broken is None)
        compare(problem, reuse, tally)
        closed_forms_agree(problem, tally, reuse)

    cast(Callable[[], None], agree)()
    return tally


def test_engines_agree_on_recurrences() -> None:
    assert_few_refusals(run_many(15), 0.05)


def test_engines_agree_on_what_later_einsums_read_of_before() -> None:
    assert_few_refusals(run_many(10, delaying), 0.05)


@pytest.mark.slow
def test_engines_agree_on_what_later_einsums_read_of_before_at_length() -> None:
    tally = run_many(1_000, delaying)
    assert_few_refusals(tally, 0.01)
    assert tally["closed forms"] > 300


@pytest.mark.slow
def test_engines_agree_on_recurrences_at_length() -> None:
    tally = run_many(2_000)
    assert_few_refusals(tally, 0.01)
    assert tally["not decided"] < tally["examples"]
    assert tally["closed forms"] > 800


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
@pytest.mark.parametrize("generations", [1, 2])
def test_reads_that_one_generation_alone_does_not_have(engine: str, generations: int) -> None:
    """`S[p-1]` is read from the second generation on: where there is only one, no tile of it has elements."""
    workload = {
        "rank_sizes": {"P": generations, "M": 2},
        "bits_per_value": {"All": 8},
        "init": {"S": 0},
        "einsums": ["S[P=p+1, m] = S[p, m] * A[p, m]", "D[p, m] = S[p, m] + S[P=p-1, m]"],
    }
    reader = [loop("p", 1), storage("GLB", "S", reuse="slide"), leaf("D")]
    nodes = [storage("DRAM", "S", "A", "D"), split([leaf("S")], reader)]
    report = evaluated(workload, *nodes, engine=engine)
    read = 2 * (generations - 1)  # what the last generation leaves is not read
    assert moved(report, "S") == {"DRAM": (2 * read, 0, 0, 2 * generations), "GLB": (read, 0, read, 0)}


def maximum_in_chunks(**bounds: str) -> dict[str, object]:
    """The maximum of each chunk of four, and a running one over three chunks; `bounds`: of the Einsums."""
    reads = {"L": [{"name": "A", "projection": ["c", "m", "p"]}]}
    reads["R"] = [{"name": n, "projection": ["c", "p"]} for n in "RL"]
    writes: dict[str, object] = {"L": ["c", "p"], "R": {"C": "c + 1", "P": "p"}}
    einsums = [
        {
            "name": n, "operations": {how: "max"},
            "tensor_accesses": [*reads[n], {"name": n, "projection": writes[n], "output": True}],
            **({"iteration_space_shape": bounds[n]} if n in bounds else {}),
        }
        for n, how in (("L", "reduce"), ("R", "map"))
    ]  # fmt: skip
    return {
        "rank_sizes": {"C": 3, "M": 4, "P": 12}, "bits_per_value": {"All": 8}, "generational": ["C"],
        "init": {"R": "-inf"}, "einsums": einsums,
    }  # fmt: skip


def test_a_mask_over_running_values_is_refused_with_remedies_that_lead_somewhere() -> None:
    """A causal mask of a maximum in chunks: `init` is advised of no tensor that may not have one."""
    nodes = [storage("DRAM", "A", "L", "R"), {"type": "Sequential", "nodes": [leaf("L"), leaf("R")]}]
    told = fault_of(maximum_in_chunks(L="4*c + m <= p"), *nodes)
    assert "bound R to what L writes (iteration_space_shape), or let L write everything that is read" in told
    assert "init: {L" not in told
    told = fault_of(maximum_in_chunks(L="4*c + m <= p", R="4*c <= p"), *nodes)
    assert "let R execute over all of its ranks: leave out the bounds that tie them" in told
    unsaid = {k: v for k, v in maximum_in_chunks(L="4*c + m <= p", R="4*c <= p").items() if k != "init"}
    assert "init: {R: 0} requires that what it writes of R is a box" in fault_of(unsaid, *nodes)
    assert evaluated(maximum_in_chunks(), *nodes, engine="auto").feasible
