"""The ski slope: brute force over all tile sizes, the engine's own counts, pruning, and refusals."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.explore.orders import as_indexed, order_classes

Curve = list[tuple[int, int]]


def matmul(m: int, k: int, n: int, bits: dict[str, int] | None = None) -> pm.Spec:
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": m, "K": k, "N": n},
                "bits_per_value": bits or {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
        }
    )


def naive(m: int, k: int, n: int) -> Curve:
    """Every tile size and every order, straight from the loop nest."""
    tm, tk, tn = np.meshgrid(*(np.arange(1, x + 1) for x in (m, k, n)), indexing="ij")
    trips = {"m": -(-m // tm), "k": -(-k // tk), "n": -(-n // tn)}
    capacity = tm * tk + tk * tn + tm * tn
    best: dict[int, int] = {}
    for order in permutations("mkn"):
        total = np.zeros_like(capacity)
        for index, size, output in (("mk", m * k, False), ("kn", k * n, False), ("mn", m * n, True)):
            (other,) = set("mkn") - set(index)
            inner = [v for v in order[order.index(other) + 1 :] if v in index]
            again = np.logical_or.reduce([trips[v] > 1 for v in inner]) if inner else np.zeros_like(tm, bool)
            moved = size * np.where(again, trips[other], 1)
            total += 2 * moved - size if output else moved
        flat = np.lexsort((total.ravel(), capacity.ravel()))
        for c, a in zip(capacity.ravel()[flat].tolist(), total.ravel()[flat].tolist(), strict=True):
            if a < best.get(c, a + 1):
                best[c] = a
    curve: Curve = []
    for c in sorted(best):
        if not curve or best[c] < curve[-1][1]:
            curve.append((c, best[c]))
    return curve


def curve(slope: object) -> Curve:
    return [(p.capacity, p.accesses) for p in slope.points]  # type: ignore[attr-defined]  # any slope


def test_all_sizes_of_a_large_space_equal_brute_force() -> None:
    assert curve(pm.ski_slope(matmul(96, 60, 80), tiles="all")) == naive(96, 60, 80)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_pruned_and_unpruned_curves_are_one(m: int, k: int, n: int) -> None:
    spec = matmul(m, k, n)
    sizes = {v: range(1, x + 1) for v, x in (("m", m), ("k", k), ("n", n))}
    whole = pm.ski_slope(spec, tiles=sizes, bypass=True)
    pruned = pm.ski_slope(spec, tiles="all", bypass=True)
    assert curve(pruned) == curve(whole)
    assert pruned.combined <= whole.combined
    assert curve(pm.ski_slope(spec, tiles="all")) == naive(m, k, n)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("unit", ["words", "bits"])
def test_every_point_is_what_evaluate_counts(bypass: bool, unit: str) -> None:
    spec = matmul(12, 10, 7, {"A": 8, "B": 4, "Z": 16})
    slope = pm.ski_slope(spec, tiles="all", bypass=bypass, unit=unit)  # type: ignore[arg-type]  # a literal
    for point in slope.points:
        report = slope.report(point)
        moved = report.accesses[report.accesses["component"] == "DRAM"]
        total = int(moved[f"read_{'elements' if unit == 'words' else 'bits'}"].sum())
        total += int(moved[f"write_{'elements' if unit == 'words' else 'bits'}"].sum())
        assert total == point.accesses
        tiles = report.tiles[report.tiles["component"] == "Buffer"]
        assert int(tiles["tile_elements" if unit == "words" else "tile_bits"].sum()) == point.capacity


def test_higher_dimensional_einsums() -> None:
    spec = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"B": 4, "H": 3, "M": 8, "N": 6, "E": 5},
                "bits_per_value": {"All": 8},
                "einsums": ["QK[b, h, m, n] = Q[b, h, m, e] * K[b, h, n, e]"],
            },
        }
    )
    slope = pm.ski_slope(spec, tiles="all")
    assert slope.points[-1].accesses == slope.least
    for point in slope.points[:: max(1, len(slope) // 12)]:
        report = slope.report(point)
        moved = report.accesses[report.accesses["component"] == "DRAM"]
        assert int(moved["read_elements"].sum() + moved["write_elements"].sum()) == point.accesses


def test_the_mapping_of_a_point_loads_back(tmp_path: object) -> None:
    spec = pm.load("matmul", "simple_two_level")
    slope = pm.ski_slope(spec)
    best = slope.at(1000)
    assert best is not None
    assert best.capacity <= 1000
    assert slope.at(0) is None
    assert "reuse: slide" in slope.mapping_yaml(best)
    assert len(slope.frame) == len(slope)
    assert (slope.frame["accesses_words"].diff().dropna() < 0).all()


def test_orders_collapse_to_what_they_move() -> None:
    tensors = as_indexed({"A": frozenset("mk"), "B": frozenset("kn"), "Z": frozenset("mn")})
    assert len(order_classes(("m", "k", "n"), tensors)) == 3
    assert len(order_classes((), tensors)) == 1


def test_what_has_no_slope_is_refused() -> None:
    with pytest.raises(pm.NotSeparable, match="not a single rank variable"):
        pm.ski_slope(pm.load("conv1d"))
    with pytest.raises(pm.SpecError, match="several Einsums"):
        pm.ski_slope(pm.load("matmul_chain_2"))
    with pytest.raises(pm.Refused, match="2\\^62"):
        pm.ski_slope(matmul(2**21, 2**21, 2**21))


def test_plot_has_units_and_a_legend() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = pm.ski_slope(matmul(64, 64, 64), bypass=True).plot()
    assert ax.get_xlabel() == "buffer capacity (words)"
    assert ax.get_ylabel() == "backing-store accesses (words)"
    assert ax.get_legend() is not None
