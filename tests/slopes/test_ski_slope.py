"""The ski slope: brute force over all tile sizes, the engine's own counts, pruning, and refusals."""

from __future__ import annotations

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as ENUMERATE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.slopes.loop_nests import as_indexed, order_classes
from tests.faults import faults, refused
from tests.seeds import seeds

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


@pytest.mark.slow
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
@pytest.mark.thin(99)
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
    assert best.capacity <= 1000
    assert "reuse: slide" in slope.mapping_yaml(best)
    assert len(slope.frame) == len(slope)
    assert (slope.frame["accesses_words"].diff().dropna() < 0).all()


def test_orders_collapse_to_what_they_move() -> None:
    tensors = as_indexed({"A": frozenset("mk"), "B": frozenset("kn"), "Z": frozenset("mn")})
    assert len(order_classes(("m", "k", "n"), tensors)) == 3
    assert len(order_classes((), tensors)) == 1


def test_what_has_no_slope_is_refused() -> None:
    with refused("unsupported-window", "Z", kind=pm.NotSeparable):
        pm.ski_slope(windowed({"p": 3, "r": 2}, "Z", "p+r"))
    with refused("unsupported-einsum", "p", "r", kind=pm.NotSeparable):
        pm.ski_slope(windowed({"p": 3, "r": 2, "k": 2}, "A", "p+r+k"))
    with faults("unsupported-einsum", at="einsum"):
        pm.ski_slope(pm.load("matmul_chain_2"))
    with refused("number-too-large", "62"):
        pm.ski_slope(matmul(2**21, 2**21, 2**21))


def windowed(extents: dict[str, int], tensor: str, rank: str) -> pm.Spec:
    """`Z[m, ...] = A[x]`, one of the two with a rank that is a sum."""
    plain = ", ".join(extents)
    sides = {"Z": plain, "A": plain} | {tensor: f"X={rank}"}
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "iteration_space_shape": {v: f"0 <= {v} < {n}" for v, n in extents.items()},
                "bits_per_value": {"All": 8},
                "einsums": [f"Z[{sides['Z']}] = A[{sides['A']}]"],
            },
        }
    )


def referee(spec: pm.Spec, bypass: bool = False) -> Curve:
    """Every tile size in every order, each counted element by element."""
    one = spec.workload.einsums[0]
    extents = {v: one.bound(v)[1] + 1 for v in one.rank_variables}
    hierarchy = Hierarchy(
        tuple(Component(n, k) for n, k in (("DRAM", "memory"), ("Buffer", "memory"), ("MAC", "compute")))
    )
    best: dict[int, int] = {}
    subsets = [s for n in range(4) for s in combinations(one.tensors, n)] if bypass else [one.tensors]
    for tiles in product(*(range(1, x + 1) for x in extents.values())):
        active = [(v, t) for (v, x), t in zip(extents.items(), tiles, strict=True) if t < x]
        for order, kept in product(permutations(active), subsets):
            nodes = [StorageNode("DRAM", one.tensors), *(Loop(v, t) for v, t in order)]
            nodes += [StorageNode("Buffer", kept, "slide")] if kept else []
            tree = LoopTree((*nodes, ComputeNode(one.name, "MAC")))
            found = ENUMERATE.analyse(Problem(spec.workload, hierarchy, tree))
            moved = sum(t.reads + t.writes for t in found.traffic if t.component == "DRAM")
            held = sum(b.tile_max for b in found.buffets if b.component == "Buffer")
            best[held] = min(moved, best.get(held, moved))
    curve: Curve = []
    for c in sorted(best):
        if not curve or best[c] < curve[-1][1]:
            curve.append((c, best[c]))
    return curve


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extents", "stride", "dilation"),
    seeds(4, [
        ((6, 3), 1, 1), ((5, 3), 2, 1), ((6, 2), 1, 2), ((4, 3), 3, 1), ((5, 4), 2, 3), ((4, 4), 2, 2),
        ((7, 3), 1, 3),
    ]),
)  # fmt: skip
@pytest.mark.thin(99)
def test_windows_of_one_rank_equal_the_referee(extents: tuple[int, int], stride: int, dilation: int) -> None:
    p, r = extents
    spec = pm.load("conv1d", M=2, C=1, P=p, R=r, STRIDE=stride, DILATION=dilation)
    assert curve(pm.ski_slope(spec, tiles="all")) == referee(spec)


@pytest.mark.slow
def test_windows_of_two_ranks_equal_the_referee() -> None:
    spec = pm.load("conv2d", M=1, C=1, P=4, Q=3, R=2, S=2, STRIDE=2)
    assert curve(pm.ski_slope(spec, tiles="all")) == referee(spec)


@pytest.mark.slow
def test_windows_with_bypass_equal_the_referee() -> None:
    spec = pm.load("conv1d", M=1, C=2, P=4, R=2)
    assert curve(pm.ski_slope(spec, tiles="all", bypass=True)) == referee(spec, bypass=True)


@pytest.mark.parametrize("text", ["Z[m] += A[m,k]", "Z[m] = A[m,k] * A[m,k]"])
def test_sums_that_go_on_and_squares_equal_the_referee(text: str) -> None:
    workload = {"rank_sizes": {"M": 2, "K": 3}, "bits_per_value": {"All": 8}, "einsums": [text]}
    spec = pm.load({"schema_version": 1, "workload": workload})
    assert curve(pm.ski_slope(spec, tiles="all", bypass=True)) == referee(spec, bypass=True)
    slope = pm.ski_slope(spec, tiles="all")
    assert slope.points[-1].accesses == slope.least


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_pruned_and_unpruned_windows_are_one(p: int, r: int, stride: int, dilation: int, wide: bool) -> None:
    spec = pm.load("conv1d", M=2 + wide, C=3 - wide, P=p, R=r, STRIDE=stride, DILATION=dilation)
    one = spec.workload.einsums[0]
    every = {v: range(1, one.bound(v)[1] + 2) for v in one.rank_variables}
    pruned, whole = (pm.ski_slope(spec, tiles=tiles) for tiles in ("all", every))
    assert curve(pruned) == curve(whole)
    assert pruned.points[-1].accesses == pruned.least
    for point in pruned.points[:: max(1, len(pruned) // 3)]:
        report = pruned.report(point)
        moved = report.accesses[report.accesses["component"] == "DRAM"]
        assert int(moved["read_elements"].sum() + moved["write_elements"].sum()) == point.accesses
        assert int(report.tiles.query("component == 'Buffer'")["tile_elements"].sum()) == point.capacity


def test_orders_know_along_which_loop_a_window_slides() -> None:
    tensors = as_indexed({"I": frozenset("pr"), "W": frozenset("r"), "O": frozenset("p")})
    found = order_classes(("p", "r"), tensors, as_indexed({"I": frozenset("pr")}))
    assert {(c.order, dict(c.slid)["I"]) for c in found} == {(("p", "r"), "r"), (("r", "p"), "p")}


def test_plot_of_a_convolution() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    slope = pm.ski_slope(pm.load("conv2d"), tiles="all")
    ax = slope.plot()
    assert ax.get_ylabel() == "backing-store accesses (words)"
    drawn = ax.lines[0].get_ydata()
    assert drawn[0] == slope.points[0].accesses
    assert drawn[-1] == slope.least


def test_plot_has_units_and_a_legend() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    ax = pm.ski_slope(matmul(64, 64, 64), bypass=True).plot()
    assert ax.get_xlabel() == "buffer capacity (words)"
    assert ax.get_ylabel() == "backing-store accesses (words)"
    assert ax.get_legend() is not None


def test_slopes_of_one_einsum_share_a_picture() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    spec = matmul(64, 64, 64)
    ax = pm.ski_slope(spec, bypass=True).plot(label="any tensor may bypass")
    pm.ski_slope(spec).plot(ax=ax, label="all in the buffer")
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"any tensor may bypass", "all in the buffer"} < set(told)
    assert sum(t.startswith("every element once") for t in told) == 1
    curves = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    assert len({(line.get_color(), line.get_linestyle()) for line in curves}) == 2
    assert ax.get_xscale() == "symlog"  # the first curve begins without any buffer
