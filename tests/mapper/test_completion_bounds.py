"""What `interfaces` and `floors` say a whole mapping costs at least: no mapping costs less, none is lost."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapper import completion_bounds, iterative_deepening
from polymodel.mapper.aims import Bound, KnownMappings
from polymodel.mapper.budget import SearchTally, Watch
from polymodel.mapper.completion_bounds import CompletionBounds
from polymodel.mapper.full_mappings import rules_of
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.search import search
from polymodel.mapper.space import einsum_spaces
from tests.mapper.test_search import ATTENTION, CHAIN, RESIDUAL, front, spec_of
from tests.seeds import seeds

LONG = ["T[m,n] = A[m,k] * B[k,n]", "U[m,p] = T[m,n] * C[n,p]", "Z[m,q] = U[m,p] * D[p,q]"]
FOUR = [*LONG[:2], "V[m,q] = U[m,p] * D[p,q]", "Z[m,r] = V[m,q] * E[q,r]"]


def some_spec(pick: random.Random) -> pm.Spec:
    einsums = pick.choice([CHAIN, RESIDUAL, LONG, ATTENTION])
    sizes = {r: pick.choice([2, 4, 6]) for r in "MNKPQEF" if any(r.lower() in e for e in einsums)}
    if einsums is RESIDUAL:
        sizes["P"] = sizes["N"]
    fan = {"name": "X", "fanout": pick.choice([1, 2, 4]), "may_reuse": pick.choice(["All", "Outputs"])}
    return spec_of(einsums, sizes, pick.choice([120, 300, 800]), pick.choice([0, 24, 100]), [fan])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [1, 0, *range(2, 8)]))
def test_bounds_lose_no_point_of_the_front(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    spec = some_spec(pick)
    every = ("energy", "latency", "buffer")
    objectives = pick.choice([("energy",), ("latency",), every[:2], ("energy", "buffer"), every])
    limits = Limits(max_fused_loops=pick.choice([0, 1, 2]))
    bounded = front(spec, objectives, limits)
    with monkeypatch.context() as patch:
        patch.setattr(Bound, "hopeful", lambda self, figures, rest=None: np.ones(len(figures[0]), bool))
        free = front(spec, objectives, limits)
    assert bounded.shape == free.shape
    np.testing.assert_allclose(bounded, free, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [3, 1, 16, 47, 23, 26, 30, 35]))
@pytest.mark.parametrize("objectives", [("energy",), ("energy", "latency")])
def test_rough_dives_lose_no_point_of_the_front(
    objectives: tuple[str, ...], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dives far rougher than usual, whose results bound the rest all the same."""
    pick = random.Random(seed)
    einsums = pick.choice([CHAIN, LONG, FOUR, ATTENTION])
    sizes = {r: pick.choice([4, 8, 16, 32]) for r in "MNKPQREF" if any(r.lower() in e for e in einsums)}
    spec = spec_of(einsums, sizes, pick.choice([400, 1000, 3000, 8000]), pick.choice([0, 0, 64]), [])
    limits = Limits(max_fused_loops=1)
    with monkeypatch.context() as patch:
        patch.setattr(iterative_deepening, "DIVES", ())
        without = front(spec, objectives, limits)
    monkeypatch.setattr(iterative_deepening, "DIVES", ((0.3, 1.0), (0.05, 0.3)))
    monkeypatch.setattr(iterative_deepening, "NEAR", 0.2)
    rough = front(spec, objectives, limits)
    assert rough.shape == without.shape
    np.testing.assert_allclose(rough, without, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, range(4)))
def test_where_tile_sizes_are_too_many_to_list_none_is_lost(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = some_spec(random.Random(200 + seed))
    objectives, limits = ("energy", "latency", "buffer"), Limits(max_fused_loops=2)
    listed = front(spec, objectives, limits)
    monkeypatch.setattr(completion_bounds, "MOST_KEYS", 0)
    unlisted = front(spec, objectives, limits)
    assert unlisted.shape == listed.shape
    np.testing.assert_allclose(unlisted, listed, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "glb", "rf"), seeds(1, [(4, 400, 48), (8, 1000, 100)]))
def test_einsums_of_one_shape_are_looked_at_side_by_side(size: int, glb: int, rf: int) -> None:
    """They share the lower regions of a hierarchy that is cut in two."""
    spec = spec_of(LONG, dict.fromkeys("MNKPQ", size), glb, rf, [])
    both = [
        search(spec.workload, spec.arch, Request(limits=Limits(max_fused_loops=1), workers=workers))
        for workers in (1, 3)
    ]
    assert [c.values for c in both[0].candidates] == [c.values for c in both[1].candidates]
    for c in both[1].candidates:
        report = pm.evaluate(spec.with_mapping(c.tree))
        assert report.total_energy == pytest.approx(c.energy, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, range(6)))
def test_no_whole_mapping_costs_less_than_the_shortest_path(seed: int) -> None:
    """The least energy and the least latency, per level of the buffer, against the front of all three."""
    pick = random.Random(100 + seed)
    spec = some_spec(pick)
    request = Request(("energy", "latency", "buffer"), Limits(max_fused_loops=1))
    spaces = einsum_spaces(spec.workload, spec.arch, request.limits)
    work = Deepening(spaces, request, Watch(request, time.perf_counter(), 1), rules_of(spaces, request))
    work.floor(1)
    paths = CompletionBounds(
        spaces, request.limits, work.rules, work.floors, work.passing, 1, work.known, SearchTally()
    )
    paths.work_out(None)
    least = paths.behind[0][:, :, 0]
    found = search(spec.workload, spec.arch, request).candidates
    for c in found:
        level = int(np.searchsorted(work.known.edges, c.values[2]))
        assert c.energy >= least[0, level] * (1 - 1e-9)
        assert c.latency >= least[1, level] * (1 - 1e-9)
    if not found:
        assert not np.isfinite(least).all()


def test_mixtures_rule_out_what_no_corner_of_the_front_has_room_for() -> None:
    """Against a look at every corner."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        count = int(rng.integers(2, 9))
        first = np.sort(rng.choice(100, count, replace=False)).astype(float) + 1
        second = np.sort(rng.choice(100, count, replace=False))[::-1].astype(float) + 1
        weights = np.array([[1.0, w] for w in (0.25, 1.0, 4.0)])
        known = KnownMappings(np.stack([first, second]), 2, np.array([np.inf]), weights=weights)
        points = rng.integers(1, 110, (2, 200)).astype(float)
        extra = rng.integers(0, 40, (3, 200)).astype(float)
        rest = np.concatenate([np.zeros((2, 1, 200)), extra[:, None]])
        got = Bound(known, np.zeros((5, 1))).hopeful(list(points), rest)
        corners = [*zip([*first, np.inf], [np.inf, *second], strict=True)]
        for n in range(200):
            mixed = weights @ points[:, n] + extra[:, n]
            room: Any = [c for c in corners if points[0, n] <= c[0] and points[1, n] <= c[1]]
            pairs = zip(weights, mixed, strict=True)
            each = all(any(w[0] * c[0] + w[1] * c[1] >= m for c in room) for w, m in pairs)
            if not room:
                assert not got[n]
            elif any((weights @ np.array(c) >= mixed).all() for c in room):
                assert got[n]
            elif not each and points[0, n] > first[0] and points[1, n] > second[-1]:
                assert not got[n]


@pytest.mark.parametrize(("sums", "peaks"), [(2, 1), (2, 2), (3, 1)])
def test_peaks_that_are_not_told_rule_nothing_out(sums: int, peaks: int) -> None:
    """Regions below a cut know no peaks. A known mapping that is better in every sum is not surely better: of
    its peaks only the first is surely lower, above the level where it lies."""
    edges = np.array([16.0, 64.0, np.inf])
    figures = np.array([[1.0] * sums + [8.0] * peaks]).T
    known = KnownMappings(figures, sums, edges)
    worse = [np.array([2.0])] * sums
    for levels in (3, 1):  # what is to come needs the space of the last levels
        rest = np.full((sums, len(edges)), np.inf)
        rest[:, len(edges) - levels :] = 0.0
        surely = peaks == 1 and levels == 1
        assert Bound(known, rest).hopeful(worse).tolist() == [not surely]
