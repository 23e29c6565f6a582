"""Element-level lifetimes by products of histograms: the referee's figures, and large problems by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import cast

import hypothesis
import pytest
from hypothesis import settings
from hypothesis.strategies import SearchStrategy

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.exact.buffets import lay_out
from polymodel.analysis.exact.lifetimes import factored_counts
from polymodel.analysis.exact.live_peaks import live_counts
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade
from tests.analysis.small import dram, einsum, glb, hierarchy
from tests.analysis.test_agreement import POLICIES, SETTINGS, drawing
from tests.analysis.test_recurrences import recurring
from tests.faults import refused
from tests.fused import lawless_fused
from tests.generators import lawless, problems
from tests.workloads import several_access_forms

REFUSED_AT_MOST = 0.01


def live(problem: Problem) -> dict[tuple[int, str], int | None]:
    return {(b.node, b.tensor): b.live for b in EXACT.analyse(problem, live=True).buffets}


def joint(problem: Problem, component: str) -> dict[str, int]:
    rows = EXACT.analyse(problem, live=True).working_sets
    return {w.einsum: w.bits for w in rows if (w.component, w.measure) == (component, "live")}


def run_many(count: int, drawn: SearchStrategy[Problem]) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @hypothesis.given(drawn, POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        try:
            if violation(problem):
                return
            referee = REFEREE.analyse(problem, reuse=reuse, live=True)
            layout = lay_out(problem, reuse)
        except Refused:
            return
        tally["examples"] += 1
        try:
            counts, rows = factored_counts(layout)
        except Refused:
            tally["refused"] += 1
            return
        note = f"reuse={reuse}\n{drawing(problem)}"
        assert counts == {(b.node, b.tensor): b.live for b in referee.buffets}, note
        expected = {(w.component, w.einsum): w.bits for w in referee.working_sets if w.measure == "live"}
        assert {(w.component, w.einsum): w.bits for w in rows} == expected, note
        assert all(sum(r.bits for r in w.residents) == w.bits for w in rows), note

    cast(Callable[[], None], agree)()
    return tally


def test_products_agree_with_the_referee() -> None:
    tally = run_many(16, problems() | recurring | lawless(given=several_access_forms()))
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"]


@pytest.mark.slow
def test_products_agree_where_loops_infer_what_executes() -> None:
    tally = run_many(25, lawless_fused())
    assert tally["examples"] > 15
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "drawn", [problems(), lawless_fused(), recurring, lawless(given=several_access_forms())]
)
def test_products_agree_with_the_referee_at_length(drawn: SearchStrategy[Problem]) -> None:
    tally = run_many(5_000, drawn)
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"]


def matmul(m: int, k: int, n: int) -> Cascade:
    return Cascade((einsum("E0", "A[m,k]", "B[k,n]", "C[m,n]", sizes={"m": m, "k": k, "n": n}),))


def test_a_large_matmul() -> None:
    """m outermost: one row of A is live at a time, all of B, the last element of C in its row."""
    tree = LoopTree((dram("A", "B", "C"), Loop("m", 1), Loop("k", 1), Loop("n", 1), ComputeNode("E0", "MAC")))
    found = live(Problem(matmul(3000, 2000, 1000), hierarchy(), tree))
    assert found == {(0, "A"): 1, (0, "B"): 2_000_000, (0, "C"): 1000}


def test_negative_ranges_are_stamps_too() -> None:
    """The offset of a variable without loops is the variable itself, which may begin below zero."""
    small = Cascade((einsum("E0", "A[m,k]", "B[k,n]", "C[m,n]", sizes={"m": 3, "k": 3, "n": 2}),))
    tree = LoopTree((dram("A", "B", "C"), ComputeNode("E0", "MAC")))
    layout = lay_out(Problem(small, hierarchy(), tree))
    assert factored_counts(layout)[0] == live_counts(layout)[0]


def test_a_sliding_window_of_a_large_convolution() -> None:
    """Three rows of the input, less the part already finished, are live; the layer has 1.8e9 operations."""
    sizes = {"p": 224, "q": 224, "r": 3, "s": 3, "c": 64, "m": 64}
    cascade = Cascade((einsum("E0", "I[p+r,q+s,c]", "F[m,c,r,s]", "O[p,q,m]", sizes=sizes),))
    loops = [Loop(v, 1) for v in ("p", "q", "m", "c", "r", "s")]
    tree = LoopTree((dram("I", "F", "O"), *loops, ComputeNode("E0", "MAC")))
    found = live(Problem(cascade, hierarchy(), tree))
    # At (p, q) the elements of rows p..p+2 seen so far: two whole rows and a part of three columns.
    assert found[0, "I"] == (2 * 226 + 3) * 64
    assert (found[0, "F"], found[0, "O"]) == (64 * 64 * 9, 1)


def test_a_large_fused_chain() -> None:
    """T1 of one band of rows waits between the branches: it fills up, then drains row by row."""
    n = 512
    sizes = {"m": n, "a": n, "b": n, "c": n}
    cascade = Cascade(
        (
            einsum("E0", "T0[m,a]", "W0[a,b]", "T1[m,b]", sizes=sizes),
            einsum("E1", "T1[m,b]", "W1[b,c]", "T2[m,c]", sizes=sizes),
        )
    )
    first = (Loop("a", 1), Loop("b", 1), ComputeNode("E0", "MAC"))
    second = (Loop("b", 1), Loop("c", 1), ComputeNode("E1", "MAC"))
    tree = LoopTree((dram("T0", "W0", "W1", "T2"), Loop("m", 10), glb("T1"), Split((first, second))))
    problem = Problem(cascade, hierarchy(), tree)
    assert live(problem)[2, "T1"] == 10 * n
    assert joint(problem, "GLB") == {"E0": 8 * 10 * n, "E1": 8 * 10 * n}


@pytest.mark.slow
def test_the_gpt3_layer() -> None:
    spec = pm.load("gpt3_6.7B", "tpu_v4i", N_TOKENS=2048)
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    rows = EXACT.analyse(problem, live=True)
    assert all(b.live is not None and b.live <= b.tile_max for b in rows.buffets)
    peaks = {(w.component, w.einsum, w.measure): w.bits for w in rows.working_sets}
    assert all(bits <= peaks[c, e, "tile"] for (c, e, measure), bits in peaks.items() if measure == "live")
    # K and V of a group of 4 heads wait whole; scores of 256 queries grow while Q is still needed.
    assert peaks["VMEM", "QK", "live"] < peaks["VMEM", "QK", "tile"]


@pytest.mark.parametrize("order", ["mn", "nm"])
def test_readers_that_use_an_element_in_turn(order: str) -> None:
    """X[m,k] and X[k,m] under shared loops: which Einsum is first or last differs from element to element."""
    sizes = {"m": 5, "n": 5, "k": 5}
    cascade = Cascade(
        (
            einsum("E0", "X[m,n]", "A[m,n,k]", "Y[m,n]", sizes=sizes),
            einsum("E1", "X[n,m]", "B[m,n,k]", "Z[m,n]", sizes=sizes),
        )
    )
    branches = ((Loop("k", 2), ComputeNode("E0", "MAC")), (Loop("k", 3), ComputeNode("E1", "MAC")))
    above = (dram("A", "B", "Y", "Z"), glb("X"), Loop(order[0], 2), Loop(order[1], 1))
    layout = lay_out(Problem(cascade, hierarchy(), LoopTree((*above, Split(branches)))))
    counts, rows = factored_counts(layout)
    expected, listed = live_counts(layout)
    assert counts == expected
    assert {(w.component, w.einsum): w.bits for w in rows} == {
        (w.component, w.einsum): w.bits for w in listed
    }


@pytest.mark.parametrize("scale", [Fraction(3, 2), Fraction(11, 10), Fraction(7, 3)])
@pytest.mark.parametrize("order", ["kmn", "nkm", "mkn"])
def test_fractions_of_bits_are_rounded_up_per_tensor(scale: Fraction, order: str) -> None:
    """Where several tensors round up, the largest sum need not be that of the unrounded sizes."""
    widths = {"A": 1, "B": 8, "C": 3}
    plain = matmul(7, 5, 6).einsums[0]
    accesses = tuple(replace(a, backing_scale=scale, bits_per_value=widths[a.tensor]) for a in plain.accesses)
    loops = (Loop(order[0], 3), *(Loop(v, 1) for v in order[1:]))
    tree = LoopTree((dram("A", "B", "C"), *loops, ComputeNode("E0", "MAC")))
    layout = lay_out(Problem(Cascade((replace(plain, accesses=accesses),)), hierarchy(), tree))
    assert [w.bits for w in factored_counts(layout)[1]] == [w.bits for w in live_counts(layout)[1]]


def test_what_no_product_describes_is_refused_by_name() -> None:
    """A[m+k] ties both ranks together; 4096 x 4096 points are too many to list."""
    sizes = {"m": 4096, "k": 4096}
    cascade = Cascade((einsum("E0", "A[m+k]", "B[k]", "C[m]", sizes=sizes),))
    tree = LoopTree((dram("A", "B", "C"), ComputeNode("E0", "MAC")))
    with refused("unsupported-memory", "E0") as refusal:
        live(Problem(cascade, hierarchy(), tree))
    assert "smaller workload" in refusal.value.remedy


@pytest.mark.parametrize("reuse", ["refill", "slide", "keep_previous"])
@pytest.mark.parametrize(("tile_p", "tile_q"), [(2, 5), (3, 3), (2, 2), (4, 10)])
def test_windows_that_stay_over_the_wrap_of_a_loop(reuse: Reuse, tile_p: int, tile_q: int) -> None:
    """With two tiles of q, the columns of their overlap are in every tile and stay from row to row."""
    sizes = {"p": 8, "q": 10, "r": 3, "s": 3, "m": 2}
    cascade = Cascade((einsum("E0", "I[p+r,q+s]", "F[m,r,s]", "O[p,q,m]", sizes=sizes),))
    loops = (Loop("p", tile_p), Loop("m", 1), Loop("q", tile_q))
    inner = (Loop("r", 1), Loop("p", 1), Loop("s", 1), ComputeNode("E0", "MAC"))
    tree = LoopTree((dram("F", "O"), dram("I"), *loops, glb("I"), glb("F", "O"), *inner))
    layout = lay_out(Problem(cascade, hierarchy(), tree), reuse)
    counts, rows = factored_counts(layout)
    expected, listed = live_counts(layout)
    assert counts == expected
    assert {(w.component, w.bits) for w in rows} == {(w.component, w.bits) for w in listed}
