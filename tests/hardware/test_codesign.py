"""The joint front of machines and mappings equals separate searches, one per machine and layer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.cli.app import main
from polymodel.cost.costs import costs
from polymodel.report.plots_machines import machine_axes
from polymodel.report.provenance import spec_text
from polymodel.spec.arch_schema import EnergyModel
from polymodel.spec.section_schemas import CodesignSection, ExploreSection
from tests.faults import faults
from tests.hardware.small import front_of, small
from tests.mapper.brute_evaluated import Listed
from tests.seeds import seeds

OBJECTIVES = ("energy", "latency", "area")
CHAIN = ("T[m, n] = A[m, k] * B[k, n]", "Z[m, l] = T[m, n] * C[n, l]")


def beaten(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(b <= a for a, b in zip(one, other, strict=True)) and one != other


def literal_front(points: set[tuple[float, ...]]) -> list[tuple[float, ...]]:
    return sorted(p for p in points if not any(beaten(p, q) for q in points))


def separately(
    layers: list[tuple[pm.Spec, int]],
    hardware: dict[str, list[float]],
    objectives: tuple[str, ...],
    most: dict[str, float],
) -> list[tuple[float, ...]]:
    """Every machine searched on its own, every combination of its layers' mappings looked at."""
    points: set[tuple[float, ...]] = set()
    for values in product(*hardware.values()):
        bound = [s.bind(**dict(zip(hardware, values, strict=True))) for s, _ in layers]
        fronts = [front_of(s) for s in bound]
        area = sum(c.area * bound[0].arch.instances(c.name) for c in bound[0].arch.components)
        for picked in product(*fronts):
            energy, latency = (
                sum(p[k] * n for p, (_, n) in zip(picked, layers, strict=True)) for k in (0, 1)
            )
            figures = {"energy": energy, "latency": latency, "area": area, "edp": energy * latency}
            if all(figures[n] <= m for n, m in most.items()):
                points.add(tuple(figures[o] for o in objectives))
    return literal_front(points)


def same(found: pm.Codesign, expected: list[tuple[float, ...]]) -> None:
    ours = sorted({tuple(p.figures[o] for o in found.objectives) for p in found.points})
    assert len(ours) == len(expected)
    np.testing.assert_allclose(np.array(ours), np.array(expected), rtol=1e-12)


@pytest.mark.parametrize("energy", seeds(1, ["1.0e-14 * sqrt(S)", "1.0e-15 * S"]))
def test_the_joint_front_is_that_of_separate_searches(energy: str) -> None:
    hardware: dict[str, Any] = {"S": [128, 1024], "F": [4], "R": [1e9, 2e9]}
    spec = small(energy=energy)
    found = pm.codesign(spec, hardware, objectives=OBJECTIVES)
    same(found, separately([(spec, 1)], hardware, OBJECTIVES, {}))
    assert found.complete
    assert found.searches == 1  # sizes, prices that follow them and throughputs share a search
    assert len(found.machines) == 4


@pytest.mark.slow
def test_symbols_of_the_workload_are_searched_apart() -> None:
    """B, the bits of a value, changes what every mapping moves, though it stands nowhere in the machine."""
    spec = small(bits="B", B=8)
    hardware: dict[str, Any] = {"B": [4, 16], "S": [256, 1024]}
    found = pm.codesign(spec, hardware, objectives=["energy", "latency"])
    least = found.machines.set_index(["B", "S"])["least energy"]
    for (bits, size), energy in least.items():
        alone = pm.explore(spec.bind(B=bits, S=size), objectives=["energy"])
        assert energy == pytest.approx(alone[0].energy, rel=1e-12, abs=0)
    assert least[4, 256] < least[16, 256]


@pytest.mark.slow
def test_layers_add_up_and_limits_hold() -> None:
    hardware: dict[str, Any] = {"S": [128, 512], "F": [1, 4]}
    layers = [(small(), 3), (small(ranks={"M": 6, "N": 4, "K": 2}), 1), (small(), 1)]
    limits = {"latency": 7.2e-6, "area": 1.0e-9}  # each leaves out one machine
    objectives = ("edp", "energy")
    found = pm.codesign(
        layers, hardware, objectives=objectives, limits=[f"{n} <= {m!r}" for n, m in limits.items()]
    )
    same(found, separately(layers, hardware, objectives, limits))
    assert found.searches == 2  # two different layers; sizes and fanouts share searches
    assert len(found) == 2


def test_every_point_is_what_evaluate_says_of_its_machine_and_mappings() -> None:
    layers = [(small(), 2), (small(ranks={"M": 4, "N": 4, "K": 4}), 1)]
    found = pm.codesign(layers, {"S": [128, 256, 512], "F": "2"})
    for point in found.points:
        energy = sum(r.total_energy * n for r, (_, n) in zip(point.reports, layers, strict=True))
        latency = sum(r.costs.total_latency * n for r, (_, n) in zip(point.reports, layers, strict=True))
        assert point.figures["energy"] == pytest.approx(energy, rel=1e-12, abs=0)
        assert point.figures["latency"] == pytest.approx(latency, rel=1e-12, abs=0)
        assert all(r.feasible for r in point.reports)
        assert point.specs[0].symbols["S"] == point.machine.symbols["S"]
        assert point.yaml(1).startswith("schema_version")


def test_layer_by_layer_equal_einsums_are_searched_once() -> None:
    """Of three Einsums two are equal but for names; what one makes comes from outside for the next."""
    chain = small(
        ("T[m, n] = A[m, k] * B[k, n]", "U[m, p] = T[m, n] * C[n, p]", "Z[m, q] = U[m, p] * D[p, q]"),
        {"M": 6, "K": 4, "N": 4, "P": 4, "Q": 2},
    )
    hardware: dict[str, Any] = {"S": [128, 512]}
    found = pm.codesign(chain, hardware, objectives=("energy", "latency"), layer_by_layer=True)
    layers = [(chain.only("T"), 2), (chain.only("Z"), 1)]
    same(found, separately(layers, hardware, ("energy", "latency"), {}))
    assert (found.times, found.searches) == ((2, 1), 2)


def one_by_one(
    spec: pm.Spec, hardware: dict[str, list[float]], objectives: tuple[str, ...], **asked: Any
) -> list[tuple[float, ...]]:
    """Every Einsum on every machine searched on its own."""
    points: set[tuple[float, ...]] = set()
    for values in product(*hardware.values()):
        bound = spec.bind(**dict(zip(hardware, values, strict=True)))
        area = sum(c.area * bound.arch.instances(c.name) for c in bound.arch.components)
        several = [bound.only(e.name) for e in bound.workload]
        if asked:
            fronts = [pm.explore(s, objectives=["energy", "latency"], **asked) for s in several]
            choices = [[(p.energy, p.latency) for p in front] for front in fronts]
        else:
            choices = [list(front_of(s)) for s in several]
        for picked in product(*choices):
            energy, latency = (sum(p[k] for p in picked) for k in (0, 1))
            figures = {"energy": energy, "latency": latency, "area": area}
            points.add(tuple(figures[o] for o in objectives))
    return literal_front(points)


SIZES: list[float] = [128, 512]


@pytest.mark.thin(99)
@pytest.mark.parametrize("limit", seeds(1, ["energy <= 33.6 nJ", "area <= 4e-10"]))
def test_limits_of_an_exploration_hold_for_each_machine(limit: str) -> None:
    spec = small(energy="1.0e-14 * S")
    limited = replace(spec, raw_explore=ExploreSection(limits=(limit,)))
    expected = one_by_one(limited, {"S": SIZES}, ("latency",))
    same(pm.codesign(limited, {"S": SIZES}, objectives=("latency",)), expected)
    asked = {"constraints": {"limits": [limit]}}
    same(pm.codesign(spec, {"S": SIZES}, objectives=("latency",), **asked), expected)


@pytest.mark.slow
def test_symbols_of_constraints_are_searched_apart() -> None:
    asked: dict[str, Any] = {"constraints": {"memories": {"GLB": {"factors": {"m": "<= S / 128"}}}}}
    found = pm.codesign(small(), {"S": SIZES}, objectives=("energy", "latency"), **asked)
    same(found, one_by_one(small(), {"S": SIZES}, ("energy", "latency"), **asked))


def changed(spec: pm.Spec, name: str, **fields: Any) -> pm.Spec:
    """The spec with other fields of one component."""
    assert spec.raw_arch is not None
    nodes = tuple(n.model_copy(update=fields) if n.name == name else n for n in spec.raw_arch.nodes)
    return replace(spec, raw_arch=spec.raw_arch.model_copy(update={"nodes": nodes}))


def test_prices_of_energy_models_are_the_lowest_where_they_are_searched() -> None:
    """The model prices reads and writes, which the memory does not list."""
    model = EnergyModel(name="constants", values={"read": "1.0e-14 * S", "write": "1.0e-14 * S"})
    spec = changed(small(), "GLB", actions=(), energy_model=model)
    hardware: dict[str, Any] = {"S": [512, 256, 128]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    same(found, one_by_one(spec, hardware, ("energy", "latency")))


@pytest.mark.slow
def test_sizes_of_the_backing_storage_are_searched_apart() -> None:
    spec = changed(small(), "DRAM", size="16 * S")
    found = pm.codesign(spec, {"S": SIZES}, objectives=("energy", "latency"))
    same(found, one_by_one(spec, {"S": SIZES}, ("energy", "latency")))


NAMED = {"fanouts": {"PE": {"X": {"variables": ("n",)}}}}


@pytest.mark.parametrize(
    ("einsums", "ranks", "hardware", "asked"),
    [
        # Equal at the value that X has, but not at another one.
        (CHAIN, {"M": 4, "K": "X", "N": 4, "L": 4}, {"X": [2, 4]}, {}),
        # `n` is a rank of the result of the first one only.
        (("T[m, n] = A[m, k] * B[k, n]", "U[m, k] = T[m, n] * C[n, k]"), {"M": 4, "K": 4, "N": 4}, {"F": [2]},
         {"constraints": NAMED}),
    ],
)  # fmt: skip
@pytest.mark.thin(99)
def test_layers_that_are_not_always_equal_are_searched_apart(
    einsums: tuple[str, ...], ranks: dict[str, Any], hardware: dict[str, Any], asked: dict[str, Any]
) -> None:
    spec = small(einsums, ranks, X=4)
    objectives = ("energy", "latency")
    found = pm.codesign(spec, hardware, objectives=objectives, layer_by_layer=True, **asked)
    same(found, one_by_one(spec, hardware, objectives, **asked))
    if asked:
        named = replace(spec, raw_explore=ExploreSection(**asked["constraints"]))
        again = pm.codesign(named, hardware, objectives=objectives, layer_by_layer=True)
        same(again, one_by_one(spec, hardware, objectives, **asked))


@pytest.mark.slow
def test_layer_by_layer_constraints_name_what_is_in_any_layer() -> None:
    """Each layer heeds what is said of it: two iterations of `k`, which only the first Einsum has."""
    spec = small(CHAIN, {"M": 4, "K": 4, "N": 4, "L": 4})
    first: dict[str, Any] = {"memories": {"GLB": {"factors": {"k": 2}}}}
    asked = {**first, "unfused": "T"}
    sizes = {"S": [128, 256]}
    found = pm.codesign(spec, sizes, objectives=["energy"], layer_by_layer=True, constraints=asked)
    made, read = spec.only("T"), spec.only("Z")
    expected = [
        pm.explore(made.bind(S=s), objectives="energy", constraints=first).best().energy
        + pm.explore(read.bind(S=s), objectives="energy").best().energy
        for s in (128, 256)
    ]
    assert list(found.machines["least energy"]) == pytest.approx(expected, rel=1e-12, abs=0)
    with faults("ineffective-argument", at="constraints.fuse"):
        pm.codesign(spec, {"S": [128]}, layer_by_layer=True, constraints={"fuse": "T"})


@pytest.mark.slow
def test_layer_by_layer_with_symbols_that_have_no_value() -> None:
    spec = small(CHAIN, {"M": 4, "K": 4, "N": 4, "L": 4}, S=None)
    found = pm.codesign(spec, {"S": [128, 256]}, objectives=("energy", "latency"), layer_by_layer=True)
    assert found.times == (2,)
    same(found, one_by_one(spec, {"S": [128, 256]}, ("energy", "latency")))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_random_machines_and_spaces(seed: int) -> None:
    pick = Random(seed)
    hardware: dict[str, Any] = {
        "S": sorted(pick.sample([64, 96, 128, 200, 512, 2048], pick.randint(1, 4))),
        "F": sorted(pick.sample([1, 2, 3, 4, 6], pick.randint(1, 3))),
        "R": sorted(pick.sample([5e8, 1e9, 4e9], pick.randint(1, 2))),
    }
    energy = pick.choice(["1.0e-12", "1.0e-14 * S", "2.0e-13 * sqrt(S)"])
    ranks = {n: pick.randint(2, 8) for n in "MNK"}
    layers = [(small(ranks=ranks, energy=energy), pick.randint(1, 3))]
    if pick.random() < 0.5:
        layers.append((small(ranks={n: pick.randint(2, 6) for n in "MNK"}, energy=energy), 1))
    objectives = tuple(pick.sample(["energy", "latency", "area", "edp"], pick.randint(1, 3)))
    try:
        found = pm.codesign(layers, hardware, objectives=objectives)
    except pm.SpecError:
        raise AssertionError("a machine of every grid is right") from None
    same(found, separately(layers, hardware, objectives, {}))


def listed(
    spec: pm.Spec, hardware: dict[str, list[float]], objectives: tuple[str, ...]
) -> dict[tuple[float, ...], set[tuple[float, ...]]]:
    """The figures of every mapping on every machine (F, S, R) that it fits: mappings are listed node by node,
    counted once for all machines with the same fanout, and priced on each. No code of the search is used."""
    found: dict[tuple[float, ...], set[tuple[float, ...]]] = {}
    for fanout in hardware["F"]:
        every = {
            (fanout, *v): spec.bind(F=fanout, S=v[0], R=v[1]) for v in product(hardware["S"], hardware["R"])
        }
        machines = list(every.values())
        for tree in Listed(machines[0]).trees():
            try:
                analysis = evaluate_problem(Problem(machines[0].workload, machines[0].arch, tree)).analysis
            except pm.SpecError:  # no legal mapping
                continue
            for values, machine in every.items():
                cost = costs(Problem(machine.workload, machine.arch, tree), analysis)
                if not cost.violations:
                    energy, latency, area = cost.total_energy, float(cost.total_latency), cost.total_area
                    figures = {"energy": energy, "latency": latency, "area": area, "edp": energy * latency}
                    found.setdefault(values, set()).add(tuple(figures[o] for o in objectives))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, range(120)))
def test_the_joint_front_is_that_of_every_mapping_on_every_machine(seed: int) -> None:
    """Symbols in capacity, fanout and throughput, and prices, leakage and areas that follow the capacity: the
    front, and the least of each figure on each machine."""
    pick = Random(seed)
    while True:
        wide = pick.random() < 0.6
        einsum = ("Z[m, n] = A[m, k] * B[k, n]",) if wide else ("Z[m] = A[m, k] * B[k]",)
        ranks = {n: pick.choice((2, 3, 4, 5, 6)) for n in ("MNK" if wide else "MK")}
        spec = small(
            einsum, ranks, energy=pick.choice(["1.0e-12", "1.0e-14 * S", "2.0e-13 * sqrt(S)"]),
            leak=pick.choice([0, "1.0e-4 * S"]),
        )  # fmt: skip
        kept = " | ".join(pick.sample(["A", "B", "Z"], pick.randint(1, 2)))
        assert spec.raw_arch is not None
        rules = spec.raw_arch.nodes[1].tensors.model_copy(update={"may_keep": kept})
        spec = changed(spec, "GLB", tensors=rules, ports=pick.choice(["shared", "separate"]))
        fanouts = sorted(pick.sample([1, 2, 3, 4, 6], pick.choice([2, 2, 3])))
        if sum(Listed(spec.bind(F=f)).size() for f in fanouts) < 300:
            break
    hardware: dict[str, Any] = {
        "S": sorted(pick.sample([8, 16, 24, 32, 48, 64, 96, 128], 3)),
        "F": fanouts,
        "R": sorted(pick.sample([5e8, 1e9, 4e9, 1.6e10], pick.randint(2, 4))),
    }
    objectives = tuple(pick.sample(["energy", "latency", "area", "edp"], pick.randint(1, 3)))
    found = pm.codesign(spec, hardware, objectives=objectives)
    there = listed(spec, hardware, objectives)
    every = np.array(literal_front({p for points in there.values() for p in points}))
    mine = np.array([[p.figures[o] for o in objectives] for p in found.points])
    for these, others in ((mine, every), (every, mine)):
        near = np.isclose(these[:, None], others[None], rtol=1e-9, atol=0).all(axis=2)
        assert near.any(axis=1).all()
    for row in found.rows:
        points = there.get(tuple(row.machine.symbols[n] for n in "FSR"), set())
        for k, name in enumerate(objectives):
            least = min((p[k] for p in points), default=None)
            assert row.least[name] == (None if least is None else pytest.approx(least, rel=1e-9, abs=0))


@pytest.mark.slow
def test_processes_and_a_store_change_nothing(tmp_path: Path) -> None:
    hardware: dict[str, Any] = {"S": [128, 512], "F": [1, 2]}
    plain = pm.codesign(small(), hardware)
    stored = pm.codesign(small(), hardware, store=tmp_path / "store")
    again = pm.codesign(small(), hardware, store=tmp_path / "store", workers=2)
    for other in (stored, again):
        assert other.front.equals(plain.front)
        assert [p.trees for p in other.points] == [p.trees for p in plain.points]


def files(found: pm.Codesign, folder: Path) -> dict[str, bytes]:
    """What an answer saves."""
    return {p.name: p.read_bytes() for p in found.save(folder)}


KILLED = """
import os, signal, sys
import polymodel as pm
from tests.hardware.small import small

def searched(done, total, seconds):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)

spec = small(energy="1.0e-13 * sqrt(S)", rounded=24)
pm.codesign(spec, {"S": [128, 256, 512], "F": [1, 2]}, store=sys.argv[1], progress=searched)
"""


@pytest.mark.slow
def test_a_cluster_and_a_run_that_was_killed_save_the_same_bytes(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    import joblib

    spec = small(energy="1.0e-13 * sqrt(S)", rounded=24)  # prices per action are searched apart
    hardware: dict[str, Any] = {"S": [128, 256, 512], "F": [1, 2]}
    plain = files(pm.codesign(spec, hardware), tmp_path / "plain")
    killed = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "store"], check=False)
    assert killed.returncode == -signal.SIGKILL
    told: list[int] = []
    again = pm.codesign(
        spec, hardware, store=tmp_path / "store", progress=lambda done, n, s: told.append(done)
    )
    assert told == [1, 2, 3]
    assert files(again, tmp_path / "again") == plain
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        together = pm.codesign(spec, hardware, workers=2)
    assert files(together, tmp_path / "together") == plain


def test_time_that_is_over_is_told() -> None:
    big = small(CHAIN, {"M": 256, "N": 256, "K": 256, "L": 256})
    found = pm.codesign(big, {"S": [4096, 65536], "F": [4, 16]}, time_limit=0.4)
    assert not found.complete
    assert any("not searched to the end" in n for n in found.notes)


@pytest.mark.parametrize(
    ("given", "code", "at", "named"),
    [
        ({"hardware": {}}, "missing-argument", "hardware", ""),
        ({"hardware": {"X": [1]}}, "unknown-name", "hardware.X", ""),
        ({"hardware": {"S": "1,x"}}, "wrong-type", "hardware.S", ""),
        ({"objectives": ["enrgy"]}, "unknown-choice", "objectives[0]", "enrgy"),
        ({"objectives": ["utilisation"]}, "unknown-name", "objectives[0]", ""),
        ({"limits": ["area < 3"]}, "wrong-type", "limits[0]", ""),
        ({"layers": []}, "wrong-type", "", ""),
        ({"layers": [(small(), 0)]}, "inconsistent-values", "layers", ""),
        ({"layers": [small(), small(energy="2.0e-12")]}, "inconsistent-values", "layers", ""),
    ],
)
def test_wrong_calls_say_what_to_give(given: dict[str, Any], code: str, at: str, named: str) -> None:
    asked: dict[str, Any] = {"layers": small(), "hardware": {"S": [128]}, **given}
    with faults(code, *named.split(), at=at):
        pm.codesign(asked.pop("layers"), asked.pop("hardware"), **asked)


@pytest.mark.slow
def test_with_eps_every_machine_is_searched_and_limits_are_refused() -> None:
    """What eps keeps may need more room than what it leaves out, and break a limit that the other keeps."""
    hardware: dict[str, Any] = {"S": [128, 256, 512]}
    found, exact = (pm.codesign(small(), hardware, objectives=("energy", "area"), eps=e) for e in (0.05, 0))
    assert (found.searches, exact.searches) == (3, 1)
    for p in exact.points:
        assert any(all(q.figures[o] <= 1.05 * p.figures[o] for o in found.objectives) for q in found.points)
    with faults("conflicting-arguments", at="eps"):
        pm.codesign(small(), hardware, eps=0.05, limits=["latency <= 1"])


def test_limits_that_nothing_keeps_leave_an_empty_front() -> None:
    found = pm.codesign(small(), {"S": [128, 256]}, limits=["latency <= 1e-12"])
    assert not len(found)
    with pytest.raises(pm.SpecError, match="no mapping keeps the limits"):
        found.best()


def test_the_command_prints_saves_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    out, page = tmp_path / "out", tmp_path / "found.html"
    command = [
        "codesign",
        str(spec),
        "--hardware",
        "S=128,256",
        "--objective",
        "energy",
        "--objective",
        "area",
    ]
    assert main([*command, "--format", "json", "--out", str(out), "--html", str(page)]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    told = (out / "codesign.txt").read_text(encoding="utf-8")
    assert told.startswith("Co-design over energy, area: 2 points on 2 machines, 1 search\n")
    written = {p.name for p in out.iterdir()}
    assert written >= {"front.csv", "machines.csv", "codesign.txt", "point-0-layer-0.yaml"}
    text = page.read_text(encoding="utf-8")
    for title in ("Every machine", "energy against area", "what S is worth", "What each symbol is worth"):
        assert title in text
    assert main([*command, "--limit", "latency <= 1e-12"]) == 1
    assert "with latency <= 1 ps: 0 points on 2 machines, 1 search" in capsys.readouterr().out


SPEC = """
symbols: {S: 256}
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: All}
    actions: [{name: read, energy: 20.0e-12}, {name: write, energy: 20.0e-12}]
  - !Memory {name: GLB, size: S, area: 1.0e-12 * S, tensors: {may_keep: All}}
  - !Compute {name: MAC, actions: [{name: compute, energy: 0.3e-12, throughput: 1.0e9}]}
workload:
  rank_sizes: {M: 8, N: 4, K: 6}
  bits_per_value: {All: 8}
  einsums: ["Z[m, n] = A[m, k] * B[k, n]"]
"""


def test_the_picture_names_machines() -> None:
    found = pm.codesign(small(), {"S": [128, 256], "F": [1, 2]})
    axes = found.plot()
    assert axes.get_xlabel() == "area (mm^2)"
    assert "S=256, F=2" in [t.get_text() for t in axes.texts]
    with pytest.raises(pm.SpecError, match="there is no figure enrgy"):
        found.plot("enrgy")
    worth = found.plot("S", "latency")
    (line,) = [x for x in worth.lines if x.get_label() == "best of them"]
    rows = found.machines
    least = [rows[rows["S"] == s]["least latency"].min() for s in (128, 256)]
    np.testing.assert_allclose(line.get_xydata(), np.column_stack([(128, 256), least]))
    table = found.symbols
    of_s = table[table["symbol"] == "S"]
    assert list(of_s["value"]) == [128, 256]
    np.testing.assert_allclose(of_s["least latency"], least)
    np.testing.assert_allclose(of_s["latency above the least"], np.array(least) / min(least) - 1)
    assert len(table) == 4
    with pytest.raises(pm.SpecError, match="there is no figure accesses"):
        found.plot("S", "accesses")


def test_names_of_machines_hide_no_other_name() -> None:
    """Those that are the best in the two figures are all named."""
    machines = [
        (f"KIB={k}, F={f}", {"area": 1e-9 * (k + f), "energy": 9e-6 / k + 1e-6 / f})
        for k in range(1, 7)
        for f in (1, 2, 4)
    ]
    axes = machine_axes(machines, "area", "energy", "", None)
    figure = axes.get_figure()
    assert figure is not None
    figure.draw_without_rendering()
    named = {t.get_text() for t in axes.texts}
    best = {n for n, p in machines if not any(beaten((*p.values(),), (*q.values(),)) for _, q in machines)}
    assert len(best) > 5
    assert best <= named
    boxes = [t.get_window_extent() for t in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.slow
def test_groups_stand_under_the_roofs_of_their_machine() -> None:
    """A fused pair has one point, a layer by itself another; the picture has both."""
    pair = small(CHAIN, {"M": 2, "K": 2, "N": 4, "L": 2})
    found = pm.codesign([pair, small(ranks={"M": 2, "N": 2, "K": 2})], {"S": [512]}, objectives=["energy"])
    table = found.table("roofline")
    assert [row[:2] for row in table.rows] == [(0, "T, Z"), (1, "Z")]
    pairs = zip(found[0].roofline, found[0].costs, strict=True)
    for (_, p), (_, latency) in pairs:
        assert p.achieved == pytest.approx(p.operations / latency, rel=1e-12, abs=0)
    labels = [str(line.get_label()) for line in found[0].plot().lines]
    assert any(label.startswith("T, Z: ") for label in labels)


SECTION = {
    "hardware": {"S": [64, 256], "F": "1,2"},
    "where": ["S >= 64 * F"],
    "objectives": "energy",
    "limits": {"latency": 1.0},
    "layer_by_layer": True,
}


def loaded(folder: Path, spec: pm.Spec, section: str = "") -> pm.Spec:
    """The spec written to a file, with a section, and loaded again."""
    file = folder / "spec.yaml"
    file.write_text(spec_text(spec) + section, encoding="utf-8")
    return pm.load(file)


def test_a_section_asks_what_arguments_ask(tmp_path: Path) -> None:
    """What is None comes from the `codesign:` section, and arguments go before it."""
    spec = small(ranks={"M": 4, "N": 4, "K": 4})
    written = replace(spec, raw_codesign=CodesignSection.model_validate(SECTION))
    read_back = loaded(tmp_path, written)
    assert read_back.raw_codesign == written.raw_codesign
    asked = pm.codesign(
        spec, {"S": [64, 256], "F": [1, 2]}, where=["S >= 64 * F"], objectives=["energy"],
        limits=["latency <= 1"], layer_by_layer=True,
    )  # fmt: skip
    found = pm.codesign(read_back)
    assert found.objectives == asked.objectives == ("energy",)
    assert [p.figures for p in found.points] == [p.figures for p in asked.points]
    assert [m.machine.symbols for m in found.rows] == [m.machine.symbols for m in asked.rows]
    other = pm.codesign(read_back, {"S": [64], "F": [1]}, objectives=["area"], limits=[])
    assert other.objectives == ("area",)
    assert [m.machine.symbols for m in other.rows] == [{"S": 64, "F": 1}]


def test_faults_of_a_section_have_their_place(tmp_path: Path) -> None:
    text = "codesign:\n  hardware: {Q: [1]}\n  objectives: [energy, enrgy]\n  limits: {latncy: 1}\n"
    spec = loaded(tmp_path, small(), text)
    first = spec_text(small()).count("\n")
    with pytest.raises(pm.SpecError) as raised:
        pm.codesign(spec)
    found = {d.path: d.place.line - first for d in raised.value.diagnostics}
    assert found == {"codesign.objectives[1]": 3, "codesign.limits[0]": 4, "codesign.hardware.Q": 2}
    with pytest.raises(pm.SpecError) as raised:
        pm.codesign(spec, {"B": [1]}, objectives=["edb"], limits=[])
    assert {d.path: d.place.line for d in raised.value.diagnostics} == {"objectives[0]": 0, "hardware.B": 0}


def test_a_time_that_is_none_is_told() -> None:
    for wrong in ("x", -1, 0):
        with pytest.raises(pm.SpecError, match="is not a time"):
            pm.codesign(small(), {"S": [512]}, time_limit=wrong)  # type: ignore[arg-type]  # that is wrong
