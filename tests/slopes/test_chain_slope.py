"""Slopes of chains: brute force by walking, the engines' own counts, the formula of FFMR, and refusals."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.slopes.chain_slope import ChainPoint, ChainSlope
from tests.faults import faults, refused
from tests.seeds import seeds
from tests.slopes.chain_walker import slopes

EVERY = ("unfused", "untiled_fused", "ffmr_drop", "ffmr_retain", "best")
FUSED = ("ffmr_drop", "ffmr_retain")
PAIR = ["T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]"]
TRIPLE = [*PAIR, "Y[m, q] = Z[m, p] * D[p, q]"]
ATTENTION = ["T[b, m, n] = Q[b, m, e] * K[b, n, e]", "Z[b, m, f] = T[b, m, n] * V[b, n, f]"]
FOUR = [*TRIPLE, "X[m, r] = Y[m, q] * E[q, r]"]


def chain(einsums: list[str], sizes: dict[str, int], bits: dict[str, int] | None = None) -> pm.Spec:
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {v.upper(): n for v, n in sizes.items()},
                "bits_per_value": bits or {"All": 8},
                "einsums": einsums,
            },
        }
    )


def sized(text: str) -> dict[str, int]:
    return {v: int(n) for v, n in (pair.split("=") for pair in text.split())}


def curve(found: ChainSlope, name: str) -> list[tuple[int, int]]:
    return [(p.capacity, p.accesses) for p in found.curves[name]]


@pytest.mark.parametrize(
    ("einsums", "sizes"),
    [
        (PAIR, "m=6 k=2 n=4 p=3"),
        (PAIR, "m=1 k=4 n=6 p=2"),
        (PAIR, "m=4 k=3 n=1 p=2"),
        (TRIPLE, "m=4 k=2 n=2 p=3 q=2"),
        (TRIPLE, "m=2 k=1 n=4 p=2 q=3"),
        (["T[m, n] = A[m, n] * B[n]", "Z[m, n] = T[m, n]", "Y[m, p] = Z[m, n] * C[n, p]"], "m=4 n=4 p=2"),
        (ATTENTION, "b=2 m=2 n=4 e=2 f=2"),
        (["T[b, m, n] = Q[b, m, k] * W[k, n]", "Z[b, m, p] = T[b, m, n] * V[n, p]"], "b=2 m=4 n=2 k=2 p=2"),
        (FOUR, "m=2 k=2 n=2 p=2 q=3 r=2"),
    ],
)  # fmt: skip
@pytest.mark.thin(99)
def test_curves_are_those_of_walking_every_mapping(einsums: list[str], sizes: str) -> None:
    found = pm.chain_slope(chain(einsums, sized(sizes)), curves=EVERY)
    for name in EVERY:
        assert curve(found, name) == slopes(einsums, sized(sizes), name), name


def test_whole_chains_fused() -> None:
    sizes = sized("m=4 k=2 n=2 p=3 q=2")
    found = pm.chain_slope(chain(TRIPLE, sizes), curves=EVERY, whole=True)
    for name in EVERY:
        assert curve(found, name) == slopes(TRIPLE, sizes, name, every=name != "unfused"), name


def moved(found: ChainSlope, point: ChainPoint, unit: str = "elements") -> int:
    accesses = found.report(point).accesses
    outer = accesses[accesses["component"] == "DRAM"]
    return int(outer[f"read_{unit}"].sum() + outer[f"write_{unit}"].sum())


@pytest.mark.slow
@pytest.mark.parametrize("unit", seeds(1, ["bits", "words"]))
def test_every_point_is_what_evaluate_counts(unit: str) -> None:
    bits = {"A": 8, "B": 4, "C": 4, "T": 16, "Z": 16}
    spec = chain(PAIR, sized("m=12 k=10 n=6 p=8"), bits)
    found = pm.chain_slope(spec, curves=EVERY, unit=unit)  # type: ignore[arg-type]  # a literal
    for name in EVERY:
        for point in found.curves[name]:
            assert moved(found, point, "elements" if unit == "words" else "bits") == point.accesses
            held = found.report(point).ffmr()
            if unit == "bits" and len(point.segments) == 1:
                row = held[held["component"] == "Buffer"].iloc[0]
                assert row["formula_bits"] == point.capacity
                assert row["tree_bits"] <= point.capacity


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["all", {"m": [1, 2, 3], "n": [2, 4], "k": [3], "p": [1, 5]}])
def test_imperfect_tiles_are_what_evaluate_counts(tiles: object) -> None:
    given = chain(PAIR, sized("m=7 k=4 n=5 p=6"))
    found = pm.chain_slope(given, curves=EVERY, tiles=tiles)  # type: ignore[arg-type]  # one of two words
    for name in EVERY:
        assert found.curves[name]
        for point in found.curves[name]:
            assert moved(found, point) == point.accesses


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.tuples(*[st.integers(1, 5)] * 5))
def test_longer_chains_are_what_evaluate_counts(extents: tuple[int, ...]) -> None:
    sizes = dict(zip("mknpq", extents, strict=True))
    found = pm.chain_slope(chain(TRIPLE, sizes), curves=EVERY, tiles="all")
    for name in EVERY:
        for point in found.curves[name][::3]:
            assert moved(found, point) == point.accesses
            held = found.report(point).working_sets
            peak = held[(held["component"] == "Buffer") & (held["measure"] == "tile")]
            assert peak["bits"].max() <= 8 * point.capacity
    for name in (*FUSED, "untiled_fused"):
        least = {p.capacity: p.accesses for p in found.curves["best"]}
        for p in found.curves[name]:
            assert min(a for c, a in least.items() if c <= p.capacity) <= p.accesses


def test_all_sizes_are_never_worse_than_divisors() -> None:
    spec = chain(PAIR, sized("m=12 k=5 n=8 p=7"))
    few, many = pm.chain_slope(spec), pm.chain_slope(spec, tiles="all")
    for name in few.curves:
        for point in few.curves[name]:
            other = many.at(name, point.capacity)
            assert other.accesses <= point.accesses


def test_unfused_curves_are_those_of_single_einsums() -> None:
    spec = chain(PAIR, sized("m=24 k=16 n=12 p=10"))
    found = pm.chain_slope(spec)
    single = [pm.ski_slope(spec, einsum=name) for name in ("T", "Z")]
    for point in found.curves["unfused"]:
        alone = [s.at(point.capacity) for s in single]
        assert sum(p.accesses for p in alone) == point.accesses


def test_the_ffn_pair_of_gpt3() -> None:
    """The least traffic of the FFN pair without and with fusion, and how much buffer that takes."""
    start = time.perf_counter()
    found = pm.chain_slope(chain(PAIR, sized("m=32768 k=4096 n=16384 p=4096")))
    seconds = time.perf_counter() - start
    assert found.curves["unfused"][-1].accesses == found.least_unfused == 1_476_395_008
    for name in FUSED:
        assert curve(found, name)[-1] == (134_238_208, 402_653_184)
        before = found.at(name, 134_238_207)
        assert before.accesses > 402_653_184
    assert found.least_fused == 402_653_184
    assert found.gain(134_238_208) == pytest.approx(3.667, abs=5e-4)
    assert seconds < 10


def test_long_chains_fuse_more_than_pairs() -> None:
    sizes = sized("m=256 k=64 n=128 p=64 q=128 r=64")
    found = pm.chain_slope(chain(FOUR, sizes))
    last = found.curves["ffmr_retain"][-1]
    assert last.accesses == found.least_fused
    assert [s.einsums for s in last.segments] == [("T", "Z", "Y", "X")]
    assert dict(last.links) == {"T": "tiled", "Z": "tiled", "Y": "tiled"}
    assert moved(found, last) == last.accesses
    groups = {len(p.segments) for p in found.curves["ffmr_drop"]}
    assert {1, 2} <= groups


def test_variables_may_have_other_names_in_each_einsum() -> None:
    sizes = sized("m=6 k=2 n=4 p=3")
    renamed = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 6, "K": 2, "N": 4, "P": 3},
                "bits_per_value": {"All": 8},
                "einsums": [PAIR[0], "Z[M=x, P=z] = T[M=x, N=y] * C[N=y, P=z]"],
            },
        }
    )
    found, plain = (pm.chain_slope(s, curves=EVERY) for s in (renamed, chain(PAIR, sizes)))
    for name in EVERY:
        assert curve(found, name) == curve(plain, name)
    for point in found.curves["ffmr_retain"]:
        assert moved(found, point) == point.accesses


def test_the_mapping_of_a_point_loads_back(tmp_path: Path) -> None:
    spec = pm.load("matmul_chain_2", "simple_two_level")
    found = pm.chain_slope(spec)
    for name, points in found.curves.items():
        point = points[len(points) // 2]
        file = tmp_path / f"{name}.yaml"
        file.write_text(found.mapping_yaml(point))
        again = pm.evaluate(spec.with_mapping(file)).accesses
        outer = again[again["component"] == spec.arch.components[0].name]
        assert int(outer["read_elements"].sum() + outer["write_elements"].sum()) == point.accesses, name


def test_tables_and_mappings_of_points() -> None:
    found = pm.chain_slope(pm.load("matmul_chain_2"))
    assert set(found.frame["curve"]) == set(found.curves)
    assert len(found.frame) == sum(map(len, found.curves.values()))
    summary = found.summary.set_index("curve")
    assert summary.loc["unfused", "least_accesses_words"] == found.least_unfused
    assert summary.loc["ffmr_retain", "gain"] == pytest.approx(found.least_unfused / found.least_fused)
    point = found.curves["ffmr_retain"][-1]
    assert "Sequential" in found.mapping_yaml(point)
    assert found.gain(2) is None
    assert "ffmr_drop" in repr(found)
    with faults("unknown-name", "ffmr", at=""):
        found.at("ffmr", 100)


def test_curves_may_be_empty_or_one_alone() -> None:
    """Nothing is left to fuse where all shared ranks have one value."""
    found = pm.chain_slope(chain(PAIR, sized("m=1 k=4 n=1 p=3")), curves="ffmr_drop")
    assert {name: len(points) for name, points in found.curves.items()} == {"unfused": 1, "ffmr_drop": 0}
    with faults("no-solution", "ffmr_drop", at=""):
        found.at("ffmr_drop", 100)
    assert found.gain(100) == 1
    assert found.summary["points"].tolist() == [1, 0]
    assert len(found.frame) == 1
    assert found.plot().get_legend()


def test_the_plot_has_both_minima_and_the_gain() -> None:
    found = pm.chain_slope(chain(PAIR, sized("m=32 k=16 n=64 p=16")))
    axes = found.plot()
    texts = [t.get_text() for t in axes.texts]
    assert f"minimum, unfused: {found.least_unfused:,}" in texts
    assert f"minimum, fused: {found.least_fused:,}" in texts
    assert "fusion gain\n2.333x" in texts
    legend = [t.get_text() for t in axes.get_legend().get_texts()]
    assert "ffmr_retain: 1,072" in legend
    looks = {str(s.get_label()).split(":")[0]: (s.get_color(), s.get_linestyle()) for s in axes.lines}
    looks = {name: look for name, look in looks.items() if name in found.curves}
    assert len(set(looks.values())) == len(found.curves) == 4
    assert {looks["ffmr_drop"][1], looks["ffmr_retain"][1]} == {"-", "--"}, "one lies on the other"


def graph(*einsums: str, **sizes: int) -> pm.Spec:
    return chain(list(einsums), sizes)


def test_what_is_no_chain_is_refused() -> None:
    with faults("invalid-einsum", at=""):
        pm.chain_slope(pm.load("matmul"))
    with faults("unknown-choice", at="einsums[0]"):
        pm.chain_slope(chain(PAIR, sized("m=2 k=2 n=2 p=2")), einsums=["Q9"])
    with faults("unknown-choice", at="curves[0]"):
        pm.chain_slope(chain(PAIR, sized("m=2 k=2 n=2 p=2")), curves=["fused"])  # type: ignore[list-item]  # a wrong one
    residual = graph("T[m, n] = A[m, n]", "Z[m, n] = T[m, n] * A[m, n]", m=2, n=2)
    with refused("unsupported-einsum", "T", "Z"):
        pm.chain_slope(residual)
    with refused("unsupported-einsum", "Z", "T"):
        pm.chain_slope(graph("T[m] = A[m]", "Z[m] = B[m]", m=2))
    with refused("number-too-large", "62"):
        pm.chain_slope(chain(PAIR, {"m": 2**21, "k": 2**21, "n": 2**21, "p": 2}))
    with faults("unknown-choice", at="unit"):
        pm.chain_slope(pm.load("matmul_chain_2"), unit="bytes")  # type: ignore[arg-type]  # a wrong one
    once = {"name": "Z", "n_instances": 2, "tensor_accesses": [{"name": "T", "projection": ["m"]}]}
    once["tensor_accesses"].append({"name": "Z", "projection": ["m"], "output": True})  # type: ignore[attr-defined]  # a list
    with refused("unsupported-einsum", "T", "Z"):
        pm.chain_slope(graph("T[m] = A[m]", once, m=2))  # type: ignore[arg-type]  # in full
    halo = graph("T[X=x] = A[X=x]", "Z[P=p] = T[X=p+r] * W[R=r]", x=6, p=4, r=3)
    with refused("missing-value", "T", "Z", kind=pm.NotSeparable):
        pm.chain_slope(halo)
    many = chain(PAIR, sized("m=8192 k=2 n=2 p=2"))
    with refused("too-large", "8191"):
        pm.chain_slope(many, tiles="all")
    with faults("out-of-range", at="tiles.m"):
        pm.chain_slope(chain(PAIR, sized("m=2 k=2 n=2 p=2")), tiles={"m": [5]})
