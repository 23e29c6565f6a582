"""Tiles that stay allocated while other Einsums run: followed cell by cell, not operation by operation."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import settings

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact import factor_tables, inter_branch_peaks, occupancy, sweep
from polymodel.analysis.exact.buffets import lay_out
from polymodel.analysis.exact.inter_branch_peaks import ComponentSites, Gaps
from polymodel.analysis.result import Engine, Problem
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Split, StorageNode
from polymodel.reuse import Reuse
from tests.analysis.small import dram, einsum, glb, loop, mac, problem
from tests.analysis.test_agreement import POLICIES, SETTINGS, differences, drawing
from tests.faults import refused
from tests.generators import problems

EXACT: Engine = exact_engine


def _chain(m: int, k: int, shared: bool) -> Problem:
    """T = A W, then O = T V; the tile of W is carried across rows while the second Einsum runs."""
    sizes = {"m": m, "k": k, "n": 2}
    e0 = einsum("E0", "A[m,k]", "W[k]", "T[m]", sizes=sizes)
    e1 = einsum("E1", "T[m]", "V[n]", "O[m,n]", sizes=sizes)
    held = StorageNode("GLB", ("W",), "slide")
    top = dram("A", "W", "V", "O")
    if shared:
        return problem(
            (e0, e1), top, loop("m", 1), glb("T"), Split(((held, mac("E0")), (glb("V"), mac("E1"))))
        )
    first, second = (held, loop("m", 1), mac("E0")), (glb("V"), loop("m", 1), mac("E1"))
    return problem((e0, e1), top, glb("T"), Split((first, second)))


@pytest.mark.parametrize("shared", [True, False])
def test_carried_tile_counts_in_the_other_branch(shared: bool) -> None:
    small = _chain(3, 4, shared)
    ours = {(w.einsum, w.component): w.bits for w in EXACT.analyse(small).working_sets if w.measure == "tile"}
    referee = REFEREE.analyse(small).working_sets
    assert ours == {(w.einsum, w.component): w.bits for w in referee if w.measure == "tile"}
    held = 8 * (4 + 1 + 2) if shared else 8 * (3 + 2)
    assert ours["E1", "GLB"] == held


def test_cells_of_shared_loops_are_listed_and_no_operations() -> None:
    """Six million operations of the first Einsum, in 2,000 rows; its W stays while the second one runs."""
    rows = EXACT.analyse(_chain(2000, 3000, shared=True)).working_sets
    assert {w.bits for w in rows if (w.einsum, w.component, w.measure) == ("E1", "GLB", "tile")} == {
        8 * (3000 + 1 + 2)
    }


def test_remedy_of_the_refusal_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor_tables, "LIMIT", 50)
    with refused("too-large", "60") as refusal:
        EXACT.analyse(_chain(60, 30, shared=True))
    assert "share no loops" in refusal.value.remedy
    rows = EXACT.analyse(_chain(60, 30, shared=False)).working_sets
    assert {w.bits for w in rows if (w.einsum, w.measure) == ("E1", "tile") and w.component == "GLB"} == {
        8 * (60 + 2)
    }


def test_element_lifetimes_still_list_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_OPERATIONS", 100)
    given = _chain(20, 30, shared=True)
    with refused("too-large") as refusal:
        EXACT.analyse(given, live=True)
    assert "allocation: tile" in refusal.value.remedy
    assert EXACT.analyse(given).working_sets


@pytest.mark.slow
@pytest.mark.thin(3)
@pytest.mark.parametrize("points", [factor_tables.LISTED, 1])
def test_cells_give_the_tile_peaks_of_any_mapping(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether coupled variables are listed or (`points` = 1) counted."""
    monkeypatch.setattr(factor_tables, "LISTED", points)
    if points == 1:
        monkeypatch.setattr(factor_tables, "_AT_MOST", 1)
    _compare_with_the_referee()


@settings(max_examples=50, **SETTINGS)
@hypothesis_given(problems(), POLICIES)
def _compare_with_the_referee(problem: Problem, reuse: Reuse | None) -> None:
    """Also where classes of stamps would do: the peak and residents that add up to it."""
    try:
        referee = REFEREE.analyse(problem, reuse=reuse).working_sets
    except Refused:
        return
    gaps = Gaps(lay_out(problem, reuse))
    for component in problem.hierarchy.components:
        for name in problem.tree.einsums if component.kind == "memory" else ():
            ours = gaps.peak(name, component.name)
            theirs = [
                w.bits
                for w in referee
                if (w.einsum, w.component, w.measure) == (name, component.name, "tile")
            ]
            assert ([ours.bits] if ours else []) == theirs, drawing(problem)
            assert ours is None or sum(r.bits for r in ours.residents) == ours.bits


def _rows_fused(tile: int, first: int, stride: int, reuse: Reuse) -> Problem:
    """T = conv(I), O = conv(T) over the rows and columns that T has by then, tiled in both."""
    size = 80
    rows = {"p": size, "r": 3, "q": size, "s": 3}
    e0 = einsum("E0", f"I[{stride}p+r,q+s]", "F[r,s]", "T[p,q]", sizes=rows)
    e1 = einsum("E1", "T[p-u,q-v]", "G[u,v]", "O[p,q]", sizes={"p": size, "u": 3, "q": size, "v": 2})
    limits = (*e1.constraints, Constraint(Affine((("p", 1),), -2)), Constraint(Affine((("q", 1),), -1)))
    bounds = tuple(
        (2, size - 1) if v == "p" else (1, size - 1) if v == "q" else b
        for v, b in zip(e1.rank_variables, e1.bounds, strict=True)
    )
    e1 = replace(e1, constraints=limits, bounds=bounds)
    return problem(
        (e0, e1),
        dram("I", "F", "G", "O"),
        Loop("p", tile, first),
        StorageNode("GLB", ("I", "T"), reuse),
        Loop("q", tile, first),
        StorageNode("GLB", ("F",), reuse),
        StorageNode("GLB", ("O",)),
        Split(((StorageNode("RF", ("I",), reuse), loop("q", 1), mac("E0")), (loop("p", 1), mac("E1")))),
    )


@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
@pytest.mark.parametrize(("tile", "first", "stride"), [(1, 3, 1), (2, 5, 1), (3, 3, 2), (4, 7, 1)])
def test_steps_left_out_are_like_others(
    tile: int, first: int, stride: int, reuse: Reuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same peaks as over all steps, from far fewer cells."""
    layout = lay_out(_rows_fused(tile, first, stride, reuse))
    few = {c: ComponentSites(layout, c) for c in ("DRAM", "GLB", "RF")}
    peaks = {c: m.peaks() for c, m in few.items()}
    monkeypatch.setattr(inter_branch_peaks, "_representatives", lambda flags: flags | True)
    for component, mine in peaks.items():
        every = ComponentSites(layout, component)
        assert {e: w.bits for e, w in mine.items()} == {e: w.bits for e, w in every.peaks().items()}
        assert len(few[component].courses["E0"].cells) < len(every.courses["E0"].cells) / 2


def _causal(m: int, tile: int) -> Problem:
    """S = Q K and O = S V below the diagonal, in bands of rows; K and V stay from band to band."""
    sizes = {"m": m, "l": m, "e": 4, "f": 4}
    below = Constraint(Affine((("m", 1), ("l", -1))))
    pair = (
        einsum("E0", "Q[m,e]", "K[l,e]", "S[m,l]", sizes=sizes),
        einsum("E1", "S[m,l]", "V[l,f]", "O[m,f]", sizes=sizes),
    )
    keys, values = (StorageNode("GLB", (x,), "keep_previous") for x in "KV")
    return problem(
        tuple(replace(e, constraints=(*e.constraints, below)) for e in pair),
        dram("Q", "K", "V", "O"),
        loop("m", tile),
        glb("S", "Q", "O"),
        Split(((keys, loop("l", 1), mac("E0")), (values, loop("l", 1), mac("E1")))),
    )


def test_triangles_are_counted_not_listed() -> None:
    """Eight million pairs: in the last band all of K, the part of V that stays, and its rows of S and Q."""
    small = _causal(10, 3)
    assert not differences(EXACT.analyse(small), REFEREE.analyse(small))
    rows = {(w.einsum, w.component, w.measure): w.bits for w in EXACT.analyse(_causal(4096, 64)).working_sets}
    band = sum(range(4096 - 64 + 1, 4096 + 1))
    assert rows["E0", "GLB", "tile"] == 8 * (4096 * 4 + (4096 - 64) * 4 + band + 64 * 4)


def test_classes_that_cannot_be_the_peak_are_not_combined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imperfect tiles of five variables on two levels: hundreds of combinations, few of which count."""
    sizes = {"p": 11, "r": 3, "m": 7, "c": 5, "n": 5}
    e0 = einsum("E0", "I[n,c,p+r]", "F[m,c,r]", "O[n,m,p]", sizes=sizes)
    outer = [loop(v, t) for v, t in {"n": 3, "p": 5, "m": 4, "c": 3, "r": 2}.items()]
    inner = [loop(v, t) for v, t in {"p": 3, "m": 3, "c": 2, "n": 2}.items()]
    given = problem(e0, dram("I", "F", "O"), *outer, *inner, glb("I", "F", "O"), mac())
    wanted = EXACT.analyse(given).working_sets
    monkeypatch.setattr(occupancy, "_COMBINATIONS", 8)
    assert EXACT.analyse(given).working_sets == wanted
    (bits,) = (w.bits for w in wanted if (w.component, w.measure) == ("GLB", "tile"))
    assert bits == 8 * (2 * 2 * (3 + 2 - 1) + 3 * 2 * 2 + 2 * 3 * 3)


def _triangles(tile: int) -> Problem:
    """Twice a tensor that grows from step to step beside one that shrinks: no step exceeds another."""
    sizes = {"m": 4, "a": 4, "b": 4, "n": 4, "c": 4, "d": 4}
    e0 = einsum("E0", "A[m,a]", "B[m,b]", "C[n,c]", "D[n,d]", "Z[m,n]", sizes=sizes)
    below = tuple(
        Constraint(Affine(((high, 1), (low, -1))))
        for low, high in [("a", "m"), ("m", "b"), ("c", "n"), ("n", "d")]
    )
    e0 = replace(e0, constraints=(*e0.constraints, *below))
    held = glb("A", "B", "C", "D")
    return problem(e0, dram("A", "B", "C", "D", "Z"), loop("m", tile), loop("n", tile), held, mac())


@pytest.mark.slow
def test_remedy_of_too_many_sizes_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    for tile in (1, 2, 3, 4):
        assert not differences(EXACT.analyse(_triangles(tile)), REFEREE.analyse(_triangles(tile)))
    monkeypatch.setattr(occupancy, "_COMBINATIONS", 8)
    with refused("too-large", "GLB", "E0") as refusal:
        EXACT.analyse(_triangles(1))
    assert "larger tiles" in refusal.value.remedy
    wanted = {(w.component, w.measure): w.bits for w in REFEREE.analyse(_triangles(2)).working_sets}
    found = {(w.component, w.measure): w.bits for w in EXACT.analyse(_triangles(2)).working_sets}
    assert found == wanted
