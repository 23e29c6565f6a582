"""Every row of a sweep is what `evaluate` gives at the same point."""

from __future__ import annotations

import importlib
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split
from polymodel.pareto import Archive
from polymodel.sweeps.blocks import hopeful
from polymodel.sweeps.grid import make_grid, roles
from polymodel.sweeps.metrics import Block, need
from polymodel.sweeps.result import Sweep
from polymodel.sweeps.scenario import scenario
from polymodel.sweeps.scratch import Scratch
from tests.faults import faults, refused
from tests.sweep.small import without_forms


def opened(spec: pm.Spec, most: int = 4) -> tuple[pm.Spec, dict[str, list[int]]]:
    """The spec with symbols for its first tiles above 1, and a few values of each, also illegal ones."""
    values: dict[str, list[int]] = {}
    pick = random.Random(1)

    def renamed(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            if isinstance(node, Split):
                node = replace(node, branches=tuple(renamed(b) for b in node.branches))
            elif isinstance(node, Loop) and isinstance(node.tile_shape, int) and len(values) < most:
                name = f"T{len(values)}"
                t = node.tile_shape
                values[name] = sorted({t, 2 * t, max(1, t - 1), t + pick.randint(1, 5)})
                node = replace(node, tile_shape=name)
            found.append(node)
        return tuple(found)

    assert spec.mapping is not None
    return spec.with_mapping(LoopTree(renamed(spec.mapping.nodes))), values


def check_rows(sweep: Sweep, count: int = 12) -> None:
    """Kept rows equal evaluate bit for bit."""
    rows = sweep.frame
    assert len(rows)
    for i in random.Random(2).sample(range(len(rows)), min(count, len(rows))):
        row = rows.iloc[i]
        report = pm.evaluate(sweep.spec(row))
        assert row["energy"] == report.costs.total_energy
        assert row["latency"] == report.costs.total_latency
        assert row["feasible"] == (not report.costs.violations)
        for n in report.costs.needs:
            if n.counts:
                assert row[f"working_set:{n.component}"] >= n.bits
        mapping = sweep.mapping_yaml(row)
        assert "tile_shape: T" not in mapping


def check_blocks(spec: pm.Spec, values: dict[str, list[int]], count: int = 8) -> None:
    """The vectorised numbers of random points equal evaluate: integers exactly, floats to 1e-12."""
    grid = make_grid(spec, values, ())
    block = scenario(spec, grid, roles(spec, grid), 0, "", 0, {})
    kernel, variant = block.kernel, block.variants[0]
    lefts = kernel.left(kernel.left_digits(0, kernel.height), kernel.height)
    shape = (kernel.height, kernel.width)
    rows = Block(kernel.rows, lefts, slice(0, shape[0]), slice(0, shape[1]))
    found = variant.evaluator(rows)
    ids = kernel.left_ids(kernel.left_digits(0, kernel.height), kernel.height)
    pick = random.Random(3)
    for _ in range(count):
        place = pick.randrange(shape[0]), pick.randrange(shape[1])
        point = grid.point(int(ids[place[0]] + kernel.right_ids[place[1]]))

        def at(a: object, place: tuple[int, int] = place) -> Any:
            return np.broadcast_to(a, shape)[place]

        if not all(at(f) for x, f in zip(variant.costing.limits, found.fits, strict=True) if "." in x.name):
            with pytest.raises(SpecError):
                spec.bind(**point)
            continue
        report = pm.evaluate(spec.bind(**point))
        assert at(found.energy) == pytest.approx(report.costs.total_energy, rel=1e-12)
        assert at(found.latency) == pytest.approx(report.costs.total_latency, rel=1e-12)
        for limit, fits in zip(variant.costing.limits, found.fits, strict=True):
            bits = [n.bits for n in report.costs.needs if n.counts and n.component == limit.name]
            if bits:
                assert at(need(limit.phases, rows)) == max(bits)
                assert bool(at(fits)) == (max(bits) <= limit.have)
        counted: dict[tuple[str, str], int] = {}
        for t in report.analysis.traffic:
            bits_each = next(
                e.access_of(t.tensor).bits_per_value
                for e in report.problem.cascade.einsums
                if t.tensor in e.tensors
            )
            each = bits_each * report.problem.cascade[t.einsum].n_instances
            for way, n in (("reads", t.reads), ("writes", t.writes)):
                counted[t.component, way] = counted.get((t.component, way), 0) + n * each
        for component, way, linear in variant.costing.accesses:
            if (component, way) in counted:
                assert at(rows.linear(linear)) == counted[component, way]


LIBRARY = [
    ("simple_two_level", "matmul/output_stationary"),
    ("edge_npu", "matmul"),
    ("tensaurus", "matmul"),
    ("simple_two_level", "conv1d"),
    ("simple_two_level", "conv2d"),
    ("eyeriss_like", "conv2d"),
    ("simple_two_level", "matmul_chain_3/tiled_fused"),
    ("simple_two_level", "matmul_chain_3/unfused"),
    ("simple_two_level", "attention"),
]


@pytest.mark.parametrize(("arch", "workload"), LIBRARY)
@pytest.mark.thin(2)
def test_blocks_equal_evaluate(arch: str, workload: str) -> None:
    check_blocks(*opened(pm.load(arch, workload)))


@pytest.mark.parametrize(("arch", "workload"), LIBRARY[:6:2])
def test_rows_equal_evaluate(arch: str, workload: str) -> None:
    spec, values = opened(pm.load(arch, workload), most=3)
    for keep in ("front", "all", "top"):
        check_rows(pm.sweep(spec, values, keep=keep), 4)


@pytest.mark.slow
def test_gpt3_layer() -> None:
    spec, values = opened(pm.load("tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048), most=2)
    check_blocks(spec, values, 3)


def matmul(tiles: dict[str, object], **arch: object) -> pm.Spec:
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
        *({"type": "Temporal", "rank_variable": v, "tile_shape": f"T{v.upper()}"} for v in "mn"),
        {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
        {"type": "Compute", "einsum": "Z", "component": "MAC"},
    ]
    rate = [{"name": w, "energy": 1e-12, "throughput": arch.get("rate", 1e9)} for w in ("read", "write")]
    return pm.load(
        {
            "symbols": {"TM": None, "TN": None, **tiles},
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "actions": rate, "leak_power": 0.1},
                    {"type": "Memory", "name": "GLB", "size": arch.get("size", "inf"), "actions": rate},
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1e9}]},
                ]
            },
            "workload": {
                "rank_sizes": {"M": arch.get("m", 12), "N": 10, "K": 7},
                "bits_per_value": {"All": 8},
                "einsums": [
                    {
                        "name": "Z",
                        "tensor_accesses": [
                            {"name": "A", "projection": ["m", "k"]},
                            {"name": "B", "projection": ["k", "n"]},
                            {"name": "C", "projection": ["m", "n"], "output": True},
                        ],
                    }
                ],
            },
            "mapping": {"nodes": nodes},
        }
    )


def test_linked_symbols_and_constraints() -> None:
    swept = pm.sweep(matmul({}), {"TM": pm.all_sizes("m"), "TN": "2*TM"}, where=["TM != 3"], keep="all")
    assert swept.frame["TM"].tolist() == [1, 2, 4, 5]
    assert swept.frame["TN"].tolist() == [2, 4, 8, 10]
    assert swept.points == 12
    check_rows(swept)
    across = pm.sweep(matmul({}), {"TM": range(1, 5), "TN": range(1, 5)}, where="TM < TN", keep="all")
    assert len(across.frame) == 6
    assert (across.frame["TM"] < across.frame["TN"]).all()
    assert sum(across.infeasible.values()) == 10


def test_symbols_declared_as_expressions() -> None:
    swept = pm.sweep(matmul({"TN": "TM + 1"}), {"TM": [1, 4, 9, 12]}, keep="all")
    assert swept.frame["TM"].tolist() == [1, 4, 9]
    check_rows(swept)


def test_infeasible_points_carry_a_reason() -> None:
    swept = pm.sweep(matmul({}, size=600), {"TM": range(14), "TN": pm.divisors("n")}, keep="all")
    assert swept.points == 14 * 4
    assert len(swept.frame) == 12 * 4
    assert sum(n for r, n in swept.infeasible.items() if "tile size" in r) == 2 * 4
    bad = swept.frame[~swept.frame["feasible"]]
    assert len(bad) == sum(n for r, n in swept.infeasible.items() if "GLB" in r) > 0
    assert bad["reason"].str.contains("GLB is too small").all()
    check_rows(swept)
    with faults("no-solution", at=""):
        pm.sweep(matmul({}, size=8), {"TM": [4], "TN": [4]}).best()


def test_points_evaluated_one_by_one_give_reasons_in_the_same_words() -> None:
    mapping = [
        {"type": "Storage", "component": "DRAM", "tensors": ["I", "F", "O"]},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": "TP"},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 4},
        {"type": "Spatial", "rank_variable": "p", "tile_shape": "SP", "component": "PE", "name": "X"},
        {"type": "Compute", "einsum": "O", "component": "MAC"},
    ]
    free = [{"name": n, "energy": 0} for n in ("read", "write")]
    arch = [
        {"type": "Memory", "name": "DRAM", "actions": free},
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 2}]},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0}]},
    ]
    backwards = {
        "rank_sizes": {"H": 8, "P": 8, "R": 3},
        "bits_per_value": {"All": 8},
        "einsums": ["O[p] = I[H=7 - p + r - 1] * F[r]"],
    }
    spec = pm.load({"workload": backwards, "arch": {"nodes": arch}, "mapping": {"nodes": mapping}})
    swept = pm.sweep(spec, {"TP": [2, 3, 4, 8], "SP": [1, 2]}, objectives=["latency"])
    assert any("points evaluated one by one" in n for n in swept.notes)
    assert dict(swept.infeasible) == {
        "tile size of p larger than its enclosing extent": 4,
        "PE.X: more instances needed than available": 2,
    }


def test_architecture_symbols_count_once() -> None:
    spec = matmul({"S": 800, "R": 1e9}, size="S", rate="R")
    symbols = {"TM": pm.all_sizes("m"), "TN": pm.divisors(10), "S": [300, 800], "R": [1e8, 1e9]}
    swept = pm.sweep(spec, symbols, keep="all")
    assert len(swept.frame) == swept.points == 12 * 4 * 4
    check_rows(swept, 30)
    assert pm.sweep(spec, symbols).best("latency")["R"] == 1e9


def test_symbols_of_the_architecture_alone() -> None:
    spec = matmul({"TM": 4, "TN": 5, "S": 1}, size="S")
    swept = pm.sweep(spec, {"S": [100, 700, 10_000]}, keep="all", where="S < 5000")
    assert swept.frame["S"].tolist() == [100, 700]
    assert swept.frame["feasible"].tolist() == [False, True]
    assert sorted(swept.infeasible.values()) == [1, 1]
    check_rows(swept)


def test_symbols_in_rank_sizes() -> None:
    swept = pm.sweep(matmul({"X": 12}, m="X"), {"X": [6, 9], "TM": [2, 7], "TN": [5]}, keep="all")
    assert swept.frame[["X", "TM"]].values.tolist() == [[6, 2], [9, 2], [9, 7]]
    check_rows(swept)


@pytest.mark.parametrize(("size", "kind"), [(2**20, "float64"), (2**44, "int64"), (2**58, "integers")])
def test_huge_ranks_stay_exact(size: int, kind: str) -> None:
    swept = pm.sweep(matmul({}, m=size), {"TM": [1, 3, size // 2 + 1], "TN": [3, 10]}, keep="all")
    assert (kind in " ".join(swept.notes)) == (kind != "float64")
    check_rows(swept)
    check_blocks(matmul({}, m=size), {"TM": [1, 3, size // 2 + 1], "TN": [3, 10]})


def test_several_mappings() -> None:
    spec = matmul({})
    assert spec.template is not None
    other = replace(
        spec.template, nodes=(spec.template.nodes[0], *spec.template.nodes[2:0:-1], *spec.template.nodes[3:])
    )
    swept = pm.sweep(spec, {"TM": [3, 4], "TN": [5]}, mappings=[spec.template, other], keep="all")
    assert swept.frame["mapping"].tolist() == ["mapping 0"] * 2 + ["mapping 1"] * 2
    check_rows(swept)


def test_points_without_closed_forms_are_evaluated_one_by_one() -> None:
    spec = without_forms(matmul({}))
    swept = pm.sweep(spec, {"TM": [5, 12, 13], "TN": [5]}, keep="all")
    assert len(swept.frame) == 2
    assert sum(swept.infeasible.values()) == 1
    assert "one by one" in swept.notes[0]
    check_rows(swept)
    with refused("too-large"):
        pm.sweep(spec, {"TM": range(1, 20_000), "TN": [5]})


def test_front_equals_brute_force_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = matmul({}, size=500)
    symbols = {"TM": pm.all_sizes("m"), "TN": pm.all_sizes("n")}
    objectives = ("accesses:DRAM", "working_set:GLB", "energy")
    whole = pm.sweep(spec, symbols, objectives=objectives)
    everything = pm.sweep(spec, symbols, objectives=objectives, keep="all").front
    assert sorted(whole.frame["point"]) == sorted(everything["point"])
    run, kernel = (importlib.import_module(f"polymodel.sweeps.{m}") for m in ("run", "kernel"))
    monkeypatch.setattr(run, "BLOCK", 7)
    monkeypatch.setattr(kernel, "RIGHT", 3)
    monkeypatch.setattr(run, "LINES", 5)
    assert pm.sweep(spec, symbols, objectives=objectives).frame.equals(whole.frame)
    for tabled in (0, whole.points + 1):  # every limit has a table, or none
        monkeypatch.setattr(importlib.import_module("polymodel.sweeps.metrics"), "SHARED", tabled)
        again = pm.sweep(spec, symbols, objectives=objectives)
        assert again.frame.equals(whole.frame)
        assert again.infeasible == whole.infeasible
    assert whole.infeasible


def test_sensitivity_is_the_best_per_value() -> None:
    swept = pm.sweep(matmul({}), {"TM": [2, 5], "TN": [1, 4, 10]}, keep="all")
    found = swept.sensitivity("energy")
    assert found["symbol"].tolist() == ["TM"] * 2 + ["TN"] * 3
    for _, row in found.iterrows():
        assert row["energy"] == swept.frame.loc[swept.frame[row["symbol"]] == row["value"], "energy"].min()
    with faults("nothing-to-show", "sensitivity", at=""):
        pm.sweep(matmul({}), {"TM": [2, 5], "TN": [1]}).sensitivity()


def test_unknown_objectives_are_told() -> None:
    with faults("unknown-choice", at="objectives[0]"):
        pm.sweep(matmul({}), {"TM": [2], "TN": [1]}, objectives=["accesses:GLP"])


def test_other_words_for_objectives_mean_the_same() -> None:
    words = ["energy_delay", "sparse_energy_delay", "buffer:GLB", "delay", "latency"]
    swept = pm.sweep(matmul({}), {"TM": [2, 5], "TN": [1]}, objectives=words)
    assert swept.objectives == ("edp", "sparse_edp", "working_set:GLB", "latency")
    assert swept.best("buffer:GLB").equals(swept.best("working_set:GLB"))
    assert swept.unit("energy_delay") == swept.unit("edp") == "J s"


def test_interrupt_keeps_what_is_done() -> None:
    def stop(done: int, total: int, seconds: float) -> None:
        raise KeyboardInterrupt

    swept = pm.sweep(matmul({}), {"TM": [2], "TN": [1]}, progress=stop)
    assert len(swept.frame) == 1
    assert "interrupted" in swept.notes[0]


def test_one_long_axis() -> None:
    swept = pm.sweep(matmul({}, m=20_000, size=10_000), {"TM": pm.all_sizes("m"), "TN": [5]})
    assert swept.evaluated == 20_000
    check_rows(swept)


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_front_keeps_what_nothing_dominates(dimensions: int) -> None:
    values = np.random.default_rng(3).integers(0, 12, (dimensions, 400)).astype(float)
    front = Archive(dimensions)
    for part in np.array_split(np.arange(400), 9):
        some = hopeful(front.landmarks, list(values[:, part]), Scratch(bool, part.shape))
        hope = part[np.broadcast_to(some, part.shape)]
        front.offer(values[:, hope], hope)
    expected = {
        i
        for i, v in enumerate(values.T)
        if not any((w <= v).all() and ((w < v).any() or j < i) for j, w in enumerate(values.T) if j != i)
    }
    assert set(front.ids.tolist()) == expected


@pytest.mark.parametrize(
    ("symbols", "where", "message"),
    [
        ({"TX": [1]}, (), "unknown symbol TX"),
        ({"TM": []}, (), "no values"),
        ({"TM": [1], "TN": "TQ"}, (), "unknown symbol TQ"),
        ({"TM": [1]}, (), "TN"),
        ({"TM": pm.divisors("q"), "TN": [1]}, (), "unknown rank variable q"),
        ({"TM": [1], "TN": [1]}, ("TM +",), "TM +"),
        ({"TM": [1], "TN": [1]}, ("TM < TQ",), "unknown symbol TQ"),
    ],
)
def test_wrong_sweeps_are_told(symbols: dict[str, Any], where: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message.replace("+", r"\+")):
        pm.sweep(matmul({}), symbols, where=where)
