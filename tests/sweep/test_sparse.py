"""Every row of a sweep on sparse data is what a sparse report says of the same point."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import polymodel as pm
from polymodel.errors import InternalError, Refused
from polymodel.sparse.density import random_tensor
from tests.faults import faults
from tests.seeds import seeds

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "sparse" / "sweeps.yaml"

SYMBOLS = {"TM": [1, 3, 4, 8, 12], "TN": [2, 5, 8], "TK": [1, 4, 7]}
OBJECTIVES = ("sparse_energy", "sparse_latency")


def memory(
    name: str, size: object, joules: float, rate: float, sparse: dict[str, Any] | None
) -> dict[str, Any]:
    actions: list[dict[str, Any]] = [
        {"name": "read", "energy": joules, "throughput": rate},
        {"name": "write", "energy": 1.5 * joules, "throughput": rate / 2},
        {"name": "gated_read", "energy": joules / 7},
        {"name": "metadata_read", "energy": joules / 3},
    ]
    found = {"type": "Memory", "name": name, "size": size, "actions": actions, "tensors": {"keep": "All"}}
    return found | ({"sparse": sparse} if sparse else {})


def loop(variable: str, tile: object) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def spec(
    dram: dict[str, Any] | None = None,
    glb: dict[str, Any] | None = None,
    mac: dict[str, Any] | None = None,
    *,
    densities: dict[str, Any] | None = None,
    spatial: str = "",
    size: object = "inf",
    reuse: str = "refill",
    sizes: tuple[int, int, int] = (12, 8, 7),
    rate: float = 3,
) -> pm.Spec:
    """A matmul of uneven tiles on two memories, perhaps with a spatial loop over n below the second."""
    m, n, k = sizes
    every = ["A", "B", "Z"]
    glb_nodes: list[dict[str, Any]] = [
        {"type": "Storage", "component": "GLB", "tensors": every, "reuse": reuse},
        *([] if spatial == "m" else [loop("m", 1)]),
    ]
    nodes: list[dict[str, Any]] = [memory("DRAM", "inf", 1.0, 8.0, dram), memory("GLB", size, 0.1, 16.0, glb)]
    if spatial:
        nodes.append({"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 12}]})
        glb_nodes.append(
            {"type": "Spatial", "rank_variable": spatial, "tile_shape": 1, "component": "PE", "name": "X"}
        )
    actions = [
        {"name": "compute", "energy": 0.5, "throughput": rate},
        {"name": "gated_compute", "energy": 0.01},
    ]
    nodes.append({"type": "Compute", "name": "MAC", "actions": actions} | ({"sparse": mac} if mac else {}))
    return pm.load(
        {
            "schema_version": 1,
            "symbols": {"TM": None, "TN": None, "TK": None},
            "arch": {"nodes": nodes},
            "workload": {
                "rank_sizes": {"M": m, "K": k, "N": n},
                "bits_per_value": {"All": 8},
                "densities": {"A": 0.25} if densities is None else densities,
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": every},
                    loop("m", "TM"), loop("n", "TN"), loop("k", "TK"),
                    *glb_nodes,
                    *(loop(v, 1) for v in "nk" if v != spatial),
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )  # fmt: skip


SKIP = {"actions": [{"skip": "B", "on": "A"}]}
CASES: dict[str, pm.Spec] = {}


def case(name: str, **options: Any) -> None:
    CASES[name] = spec(**options)


case("skip", dram=SKIP, mac={"actions": [{"skip": "compute", "on": "A"}]})
case("gate", glb={"actions": [{"gate": "B", "on": "A"}]}, mac={"actions": [{"gate": "compute", "on": "A"}]})
case("spatial", dram=SKIP, glb={"actions": [{"gate": ["A", "B"], "on": "A"}]}, spatial="n")
case(
    "two leaders",
    dram={"format": {"A": "CSR", "B": ["U", "CP"]}, "actions": [{"skip": "Z", "on": ["A", "B"]}]},
    glb={"format": {"A": "COO"}, "actions": [{"gate": "B", "on": "A"}, {"skip": "A", "on": "B"}]},
    mac={"actions": [{"skip": "compute", "on": ["A", "B"]}]},
    densities={"A": 0.3, "B": 0.1},
)
case("bitmask", dram={"format": {"A": ["U", "B"], "Z": "CSR"}}, glb={"format": {"A": ["CP", "B"]}}, size=900)
on_a = {"actions": [{"skip": "compute", "on": "A"}]}
case("rows on instances", mac=on_a, spatial="m", densities={"A": 0.1}, rate=0.01)
on_both = {"actions": [{"skip": "compute", "on": ["A", "B"]}]}
case("two on instances", mac=on_both, spatial="m", densities={"A": 0.1, "B": 0.5}, rate=0.01)
case("slides", dram=SKIP, glb={"format": {"A": "CSR"}}, reuse="slide")


@pytest.mark.thin(99)
@pytest.mark.parametrize("step", seeds(1, [7, 1]))
@pytest.mark.parametrize("name", CASES)
def test_every_point_is_that_of_a_sparse_report(name: str, step: int) -> None:
    found = pm.sweep(CASES[name], SYMBOLS, objectives=OBJECTIVES, keep="all")
    legal = sum(
        tm <= 12 and tn <= 8 and tk <= 7
        for tm in SYMBOLS["TM"]
        for tn in SYMBOLS["TN"]
        for tk in SYMBOLS["TK"]
    )
    assert len(found.frame) == legal
    for _, row in found.frame[::step].iterrows():
        report = pm.sparsify(pm.evaluate(found.spec(row)))
        assert math.isclose(row["sparse_energy"], report.total_energy, rel_tol=1e-9)
        assert math.isclose(row["sparse_latency"], report.total_latency, rel_tol=1e-9)
        assert math.isclose(row["speedup"], report.speedup, rel_tol=1e-9)
        assert row["label"] == report.label
        assert row["feasible"] == report.feasible
        assert row["energy"] == report.dense.total_energy
        assert row["latency"] == report.dense.total_latency


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds(1, ["gate", *(name for name in CASES if name != "gate")]))
def test_many_points_at_once_are_what_each_is(name: str) -> None:
    """Nothing is evaluated point by point; what is found agrees with rows that are, else InternalError."""
    asked = ("energy", "latency", "edp", "reads:DRAM", "writes:GLB", "accesses:GLB", "working_set:GLB")
    for objective in asked:
        found = pm.sweep(CASES[name], SYMBOLS, objectives=["sparse_" + objective], keep="top", top=1000)
        assert not found.notes
        assert len(found.frame) == found.feasible > 30
        assert found.frame["feasible"].all()
        assert (found.frame["sparse_" + objective].diff().dropna() >= -1e-9).all()


def test_figures_that_disagree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from polymodel.sweeps.sparse.figures import SparseBlockFigures

    wrong = property(lambda self: self.found.sparse_latency * (1 + 1e-8))
    monkeypatch.setattr(SparseBlockFigures, "latency", wrong)
    for kept in ({"keep": "top", "top": 5}, {"keep": "front"}):
        with pytest.raises(InternalError, match="sparse_latency is"):
            pm.sweep(CASES["skip"], SYMBOLS, objectives=["sparse_latency"], **kept)


@pytest.mark.slow
def test_compressed_tiles_decide_what_fits() -> None:
    """Dense tiles of A do not fit, compressed ones do; and the other way round with wide metadata."""
    wide = {"format": {"A": {"format": "COO", "data": 8, "index": 60}}}
    for glb, more in (({"format": {"A": "COO"}}, True), (wide, False)):
        one = spec(glb=glb, densities={"A": 0.1}, size=8 * (6 * 7 + 7 * 5 + 6 * 5))
        options: dict[str, Any] = {"keep": "all"}
        dense = pm.sweep(one, SYMBOLS, **options).frame
        sparse = pm.sweep(one, SYMBOLS, objectives=OBJECTIVES, **options).frame
        assert (sparse["feasible"] != dense["feasible"]).any()
        assert sparse["feasible"].sum() > dense["feasible"].sum() or not more
        some = sparse[~sparse["feasible"]].iloc[0]
        assert "GLB is too small" in some["reason"]


@pytest.mark.slow
def test_bits_are_objectives_and_the_front_is_that_of_all_points() -> None:
    asked = ("sparse_accesses:DRAM", "sparse_working_set:GLB", "energy")
    whole = pm.sweep(CASES["two leaders"], SYMBOLS, objectives=asked, keep="all")
    front = pm.sweep(CASES["two leaders"], SYMBOLS, objectives=asked)
    assert front.frame["point"].tolist() == whole.front.sort_values("sparse_accesses:DRAM")["point"].tolist()
    assert len(front.frame) > 3
    row = front.frame.iloc[1]
    report = front.spec(row)
    sparse = pm.sparsify(pm.evaluate(report))
    moved = sparse.accesses[sparse.accesses["component"] == "DRAM"]
    bits = moved["actual_bits"].sum() + moved["metadata_bits"].sum()
    assert math.isclose(row["sparse_accesses:DRAM"], bits, rel_tol=1e-9)
    assert row["sparse_accesses:DRAM"] == row["sparse_reads:DRAM"] + row["sparse_writes:DRAM"]
    held = sparse.capacity.set_index("component").loc["GLB", "bits"]
    assert row["sparse_working_set:GLB"] == pytest.approx(held, rel=1e-9)
    assert front.unit("sparse_accesses:DRAM") == "bit"
    assert whole.unit("sparse_energy") == "J"


def test_unknown_sparse_objectives_are_told() -> None:
    with faults("unknown-choice", "sparse_enregy", at="objectives[0]") as told:
        pm.sweep(CASES["skip"], SYMBOLS, objectives=["sparse_enregy"])
    assert "sparse_energy" in str(told.value)
    with faults("unknown-choice", at="objectives[0]"):
        pm.sweep(CASES["skip"], SYMBOLS, objectives=["sparse_reads:L7"])


def test_data_of_a_file_are_counted_exactly(tmp_path: Path) -> None:
    tensor = random_tensor(("M", "K"), (64, 64), 0.02, seed=5)
    pm.write_tensor(tensor, tmp_path / "a.mtx")
    text = EXAMPLE.read_text(encoding="utf-8").replace("{A: 0.02}", "{A: {actual: a.mtx}}")
    (tmp_path / "spec.yaml").write_text(text, encoding="utf-8")
    found = pm.sweep(pm.load(tmp_path / "spec.yaml"), {"TM": [3, 64], "TK": [5, 16]}, keep="all")
    assert any("one by one" in n for n in found.notes)
    for _, row in found.frame.iterrows():
        report = pm.evaluate(found.spec(row)).sparse
        assert (row["sparse_energy"], row["label"]) == (report.total_energy, "exact")


@pytest.mark.slow
def test_the_command_line_prints_sparse_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from polymodel.cli import main

    arguments = ["sweep", str(EXAMPLE), "--keep", "all"]
    assert main([*arguments, "--objective", "sparse_energy", "--objective", "sparse_latency"]) == 0
    printed = capsys.readouterr().out
    assert "sparse_energy [J]" in printed
    assert "sparse_latency [s]" in printed


def test_what_no_sum_counts_is_evaluated_point_by_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before the block begins, so that all its points are looked at, with a note."""
    from polymodel.sweeps.sparse.factors import Holds

    def refuse(*_: object) -> None:
        raise Refused("not for many points at once")

    one, symbols = (
        spec(dram=SKIP, densities={"A": {"hierarchical": {"M": 0.7, "K": 0.4}}}),
        {"TM": [4, 12], "TN": [8], "TK": [3]},
    )
    whole = pm.sweep(one, symbols, objectives=OBJECTIVES, keep="all")
    assert not whole.notes
    monkeypatch.setattr(Holds, "answer", refuse)
    single = pm.sweep(one, symbols, objectives=OBJECTIVES, keep="all")
    assert single.notes == ("not for many points at once: points evaluated one by one",)
    pd.testing.assert_frame_equal(single.frame, whole.frame, rtol=1e-9)


def test_leaders_whose_models_know_places_are_looked_at_one_by_one() -> None:
    one = spec(dram=SKIP, densities={"A": {"banded": {"width": 3}}})
    found = pm.sweep(one, {"TM": [4, 5], "TN": [8], "TK": [3]}, objectives=OBJECTIVES, keep="all")
    assert any("knows places" in n for n in found.notes)
    for _, row in found.frame.iterrows():
        assert row["sparse_energy"] == pm.evaluate(found.spec(row)).sparse.total_energy


@pytest.mark.slow
def test_the_chapter_says_what_its_example_gives() -> None:
    text = (EXAMPLE.parent / "sweeps.md").read_text(encoding="utf-8")
    loaded = pm.load(EXAMPLE)
    frame = pm.sweep(loaded, keep="all").frame.set_index(["TM", "TK"])
    lines = [x.strip("|").split("|") for x in text.splitlines() if x.startswith("| ") and x[2].isdigit()]
    assert len(lines) == 4
    for line in lines:
        cells = [c.split()[0] for c in line]
        row = frame.loc[int(cells[0]), int(cells[1])]
        assert row["working_set:Buffer"] == int(cells[2])
        assert f"{row['sparse_working_set:Buffer']:.2f}" == cells[3]
        assert [f"{row[n] * 1e6:.5f}" for n in ("energy", "sparse_energy")] == cells[4:6]
        assert f"{row['sparse_latency'] * 1e6:.3f}" == cells[6]
        assert f"{row['speedup']:.3f}" == cells[7]
    dense = pm.sweep(loaded, objectives=["energy", "latency"])
    assert dense.frame[["TM", "TK"]].to_numpy().tolist() == [[8, 32]]
    assert f"{dense.feasible} fit dense, {frame['feasible'].sum()} sparse" in text
    front = pm.sweep(loaded).frame[["TM", "TK"]].to_numpy().tolist()
    assert front == [[1, 1], [2, 1], [4, 1], [8, 1], [16, 1]]
