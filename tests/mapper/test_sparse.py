"""Sparse objectives: lower bounds hold, the front covers every mapping, and is exact where shares are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.cli import main
from polymodel.errors import InternalError, SpecError
from polymodel.mapper import search, sparse_objectives
from polymodel.mapper.confirm import Point
from polymodel.mapper.sparse_objectives import Shares, least_shares
from polymodel.mapping.looptree import LoopTree
from polymodel.report.report import Report
from polymodel.report.sparse import SparseReport, with_data
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.actions.records import KINDS
from polymodel.sparse.density import random_tensor
from tests.faults import faults, refused
from tests.mapper.brute import Machine, figures, paths_of_one
from tests.mapper.brute import front as brute_front
from tests.mapper.brute_trees import nodes_below, sampled, tree_of
from tests.seeds import seeds

Pair = tuple[float, float]
BOTH = ("sparse_energy", "sparse_latency")


@dataclass(frozen=True)
class Case:
    """`Z[m, n] = A[m, k] * B[k, n]` on DRAM, a bounded GLB and perhaps registers; `rules` per component."""

    sizes: tuple[int, int, int]
    densities: dict[str, Any]
    rules: dict[str, Any]
    glb: int = 64
    registers: int = 0
    fanout: int = 1
    gated: float = 0.0
    more: dict[str, float] = field(default_factory=dict)
    einsum: str = "Z[m, n] = A[m, k] * B[k, n]"
    ports: str = "shared"

    @property
    def spec(self) -> pm.Spec:
        return pm.load(self.document)

    @property
    def document(self) -> dict[str, Any]:
        m, k, n = self.sizes
        nodes = [self._memory("DRAM", "inf", 64, 16), self._memory("GLB", self.glb, 6, 64)]
        if self.registers:
            nodes.append(self._memory("RF", self.registers, 1, 128))
        mac: dict[str, Any] = {
            "type": "Compute",
            "name": "MAC",
            "actions": [{"name": "compute", "energy": 3, "throughput": 4}],
        }
        if self.gated:
            mac["actions"].append({"name": "gated_compute", "energy": self.gated})
        nodes.append(mac | ({"sparse": self.rules["MAC"]} if "MAC" in self.rules else {}))
        workload = {
            "rank_sizes": {"M": m, "K": k, "N": n},
            "bits_per_value": {"All": 8},
            "densities": self.densities,
            "einsums": [self.einsum],
        }
        return {"schema_version": 1, "workload": workload, "arch": {"nodes": nodes}}

    def _memory(self, name: str, size: float | str, energy: float, rate: float) -> dict[str, Any]:
        actions = [
            {"name": "read", "energy": energy, "throughput": rate},
            {"name": "write", "energy": energy * 1.5, "throughput": rate / 2},
            *({"name": x, "energy": e * energy} for x, e in self.more.items()),
        ]
        found: dict[str, Any] = {
            "type": "Memory", "name": name, "size": size, "actions": actions, "ports": self.ports,
            "tensors": {"keep": "All" if name == "DRAM" else "Nothing", "may_keep": "All"},
        }  # fmt: skip
        if name == "RF" and self.fanout > 1:
            found["spatial"] = [{"name": "X", "fanout": self.fanout, "broadcast_partials": True}]
        return found | ({"sparse": self.rules[name]} if name in self.rules else {})


def trees(spec: pm.Spec) -> list[LoopTree]:
    """Every mapping, those that do not fit among them."""
    machine, (one,) = Machine(spec.arch), spec.workload.einsums
    return [
        tree_of(spec.workload, machine, [nodes_below(path, machine, tiles)], set())
        for path in paths_of_one(one, machine)
        for tiles in figures(path, machine, keep=True).tiles
    ]


def mappings(spec: pm.Spec, some: float) -> Iterator[SparseReport]:
    """The sparse reports of the mappings whose sparse tiles fit, of so many at most."""
    data = tensor_data(spec.workload)
    pick = Random(7)
    if len(spec.arch.components) > 3:
        chosen = [sampled(spec.workload, spec.arch, pick, False).tree for _ in range(int(some))]
    else:
        every = trees(spec)
        chosen = every if len(every) <= some else pick.sample(every, int(some))
    for tree in chosen:
        report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
        sparse = with_data(report, data)
        if sparse.feasible:
            yield sparse


def lower(report: Report, shares: Shares) -> Pair:
    """Energy and latency with the least shares: from the dense counts, action by action."""
    (one,), hierarchy = report.problem.cascade.einsums, report.problem.hierarchy
    memories = [c.name for c in hierarchy.components if c.kind == "memory"]
    energy, times = 0.0, []
    moved = {name: [0.0, 0.0] for name in memories}
    for row in report.analysis.traffic:
        for kind in KINDS:
            operand = one.tensors.index(row.tensor)
            joules, bits = shares.of(operand, memories.index(row.component), kind)
            energy += getattr(row, kind) * joules
            moved[row.component][kind.startswith("writes")] += getattr(row, kind) * bits
    for load in report.analysis.loads:
        c = hierarchy[load.component]
        sides = [b / c.action(w).throughput for b, w in zip(moved[c.name], ("read", "write"), strict=True)]
        times.append((sum(sides) if c.ports == "shared" else max(sides)) / load.instances)
    (work,) = report.analysis.compute
    joules, share = shares.executed(work.component)
    times.append(
        work.operations * share / work.instances / hierarchy[work.component].action("compute").throughput
    )
    return energy + work.operations * joules, max(times)


COO = {"format": "COO", "index": 4}
SKIP_B, GATE_B = {"skip": "B", "on": "A"}, {"gate": "B", "on": "A"}
MAC_SKIP = {"actions": [{"skip": "compute", "on": ["A", "B"]}]}
NAMED = {"gated_read": 0.25, "gated_write": 0.5, "metadata_read": 2.0}
BAND = {"banded": {"width": 0}}
TWO_OF_FOUR = {"fixed_structured": {"n": 1, "m": 2, "rank": "K"}}

DENSE_Z = {"dense_outputs": "Z"}

CONSTANT = [
    Case((2, 2, 1), {"A": 0.25}, {"MAC": MAC_SKIP, "DRAM": DENSE_Z, "GLB": DENSE_Z}),
    Case(
        (2, 2, 1),
        {"A": 0.25},
        {"DRAM": {"format": {"A": COO}, **DENSE_Z}, "GLB": DENSE_Z, "MAC": MAC_SKIP},
    ),
    Case(
        (1, 4, 1),
        {"A": 0.5, "B": 0.25},
        {"MAC": {"actions": [{"gate": "compute", "on": "A"}]}, "DRAM": DENSE_Z, "GLB": DENSE_Z},
        gated=0.5,
    ),
    Case((1, 2, 2), {"B": 0.5}, {"GLB": {"format": {"B": COO}}}, more=NAMED, glb=40),
]

BOUNDED = [
    Case((4, 2, 2), {"A": 0.25}, {"DRAM": {"actions": [SKIP_B]}, "MAC": MAC_SKIP}),
    Case(
        (2, 4, 2), {"A": 0.25, "B": 0.5}, {"GLB": {"actions": [GATE_B], "format": {"B": "CSR"}}}, more=NAMED
    ),
    Case((4, 2, 2), {"A": 0.25}, {"GLB": {"actions": [{"skip": "Z", "on": "A"}, GATE_B]}}, ports="separate"),
    Case(
        (2, 4, 2), {"A": 0.5, "B": 0.5},
        {
            "DRAM": {"format": {"A": "COO", "Z": "COO"}},
            "GLB": {"actions": [SKIP_B, {"gate": "Z", "on": ["A", "B"]}]},
        },
        more={"gated_read": 1.5, "gated_write": 0.1},
    ),
    Case(
        (2, 4, 2), {"A": TWO_OF_FOUR},
        {"DRAM": {"format": {"A": ["U", "B"]}}, "GLB": {"actions": [SKIP_B]}},
    ),
    Case((2, 2, 2), {"A": BAND}, {"DRAM": {"format": {"A": ["CP", "U"]}}, "GLB": {"actions": [SKIP_B]}}),
    Case(
        (2, 2, 2), {"A": 0.5}, {"GLB": {"actions": [SKIP_B]}, "RF": {"actions": [GATE_B]}},
        registers=24, fanout=2,
    ),
    Case((2, 2, 2), {"A": 0.5}, {"DRAM": {"actions": [{"gate": "A", "on": "A"}]}}, registers=16),
]  # fmt: skip


def figures_of(point: Point) -> Pair:
    assert point.found.sparse is not None
    return point.found.sparse


def check(case: Case, some: float = 60) -> tuple[pm.Front, list[Pair]]:
    """Bounds of every mapping and what the front promises; the front, and the figures of each."""
    spec = case.spec
    data = tensor_data(spec.workload)
    (shares,) = least_shares(spec.workload, spec.arch, data, "divisors")
    front = pm.explore(spec, objectives=BOTH)
    assert front.sparse is not None
    factor = front.sparse.factor
    ours = [figures_of(p) for p in front]
    least, every = [inf, inf], list[Pair]()
    for sparse in mappings(spec, some):
        true, bound = (sparse.total_energy, sparse.total_latency), lower(sparse.dense, shares)
        for k, (s, b) in enumerate(zip(true, bound, strict=True)):
            assert s >= b * (1 - 1e-9)
            least[k] = min(least[k], b)
        assert any(all(x <= factor * t * (1 + 1e-9) for x, t in zip(p, true, strict=True)) for p in ours)
        every.append(true)
    found = front.found.candidates
    lowest = [min(c.energy for c in found), min(c.latency for c in found)]
    assert all(a <= b * (1 + 1e-9) for a, b in zip(lowest, least, strict=True))
    if some == inf and not front.sparse.too_large:
        assert lowest == pytest.approx(least, rel=1e-9)
    for p in front:
        again = pm.evaluate(p.spec).sparse
        assert again.feasible
        assert figures_of(p) == (again.total_energy, again.total_latency)
    return front, every


@pytest.mark.slow
@pytest.mark.thin(3)
@pytest.mark.parametrize("case", seeds(2, BOUNDED), ids=range(len(BOUNDED)))
def test_every_mapping_is_above_its_bound_and_near_the_front(case: Case) -> None:
    front, _ = check(case)
    assert front.sparse is not None
    assert front.sparse.factor < inf


@pytest.mark.slow
@pytest.mark.parametrize("case", seeds(1, CONSTANT), ids=range(len(CONSTANT)))
def test_shares_that_no_mapping_changes_make_the_front_exact(case: Case) -> None:
    front, every = check(case, inf)
    assert front.sparse is not None
    assert front.sparse.factor == pytest.approx(1, abs=1e-9)
    assert front.notes[0].startswith("exact")
    best = brute_front(*(np.array(column) for column in zip(*every, strict=True)))
    assert [figures_of(p) for p in front] == [pytest.approx(p, rel=1e-9) for p in best]


FITS = ("expected", "worst", {"probability": 0.5}, {"probability": 0.9})


def compressed(seed: int) -> Case:
    """A small space whose buffer keeps some tensors compressed, and has room for some tiles only."""
    pick = Random(seed)
    forms: list[Any] = [COO, "COO", "CSR", ["U", "CP"], ["CP", "CP"], ["U", "B"], ["CP", "U"]]
    tensors = pick.choice(["A", "B", "AB", "Z"])
    densities = {t: pick.choice([0.1, 0.25, 0.5]) for t in ("A", "B") if t in tensors or t == "A"}
    rules: dict[str, Any] = {
        "GLB": {"format": {t: pick.choice(forms) for t in tensors}, "fit": pick.choice(FITS)},
        "DRAM": {"format": {"A": COO}} if pick.random() < 0.5 else {},
    }
    if pick.random() < 0.5:
        rules["GLB"]["actions"] = [SKIP_B]
    if pick.random() < 0.5:
        rules["MAC"] = MAC_SKIP
    sizes = pick.choice(
        [(2, 2, 1), (1, 4, 1), (4, 1, 1), (2, 1, 2), (1, 2, 2), (3, 2, 1), (4, 2, 1), (2, 4, 1)]
    )
    return Case(sizes, densities, rules, glb=pick.choice([24, 32, 40, 64, 100]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, range(120)))
def test_no_mapping_that_fits_compressed_is_missed(seed: int) -> None:
    """Against a lister of its own: all mappings are near the front, as promised; an exact front is theirs."""
    spec, some = compressed(seed).spec, 200 if seed else 12
    front = pm.explore(spec, objectives=BOTH)
    every = [(s.total_energy, s.total_latency) for s in mappings(spec, some)]
    if not front.points:
        assert not every
        return
    assert front.sparse is not None
    ours, factor = [figures_of(p) for p in front], front.sparse.factor * (1 + 1e-9)
    for true in every:
        assert any(all(x <= factor * t for x, t in zip(p, true, strict=True)) for p in ours)
    assert all(p.sparse.feasible for p in front)
    if len(trees(spec)) <= some and factor < 1 + 1e-6:
        best = brute_front(*(np.array(column) for column in zip(*every, strict=True)))
        assert ours == [pytest.approx(p, rel=1e-9) for p in best]


def test_compressed_tiles_of_none_fit() -> None:
    """The pointers of A in CSR take more than the buffer has, and it must be kept there."""
    document = Case((2, 2, 2), {"A": 0.5}, {"GLB": {"format": {"A": "CSR"}}}, glb=24).document
    document["arch"]["nodes"][1]["tensors"] = {"keep": "A", "may_keep": "All"}
    front = pm.explore(pm.load(document), objectives=BOTH)
    assert not front.points
    assert front.notes[0] == f"no valid mapping: {front.reason}"
    assert "compressed tiles that fit" in front.reason


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in BOUNDED if not c.registers], ids=str)
def test_all_mappings(case: Case) -> None:
    check(case, inf)


TWO = {
    "schema_version": 1,
    "workload": {
        "rank_sizes": {"M": 4, "J": 3, "K": 4, "N": 2},
        "bits_per_value": {"All": 8},
        "densities": {"A": 0.25, "C": 0.5},
        "einsums": ["T[m, k] = A[m, j] * B[j, k]", "Z[m, n] = T[m, k] * C[k, n]"],
    },
}  # fmt: skip


def cascade(rules: dict[str, Any]) -> pm.Spec:
    """Two Einsums on the machine of a case."""
    case = Case((1, 1, 1), {"A": 1, "B": 1}, rules, glb=120)
    arch = [case._memory("DRAM", "inf", 64, 16), case._memory("GLB", 120, 6, 64)]
    arch[0]["tensors"] = {"keep": "~Intermediates", "may_keep": "All"}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 3, "throughput": 4}]}
    return pm.load({**TWO, "arch": {"nodes": [*arch, mac]}})


@pytest.mark.slow
def test_fused_cascades_have_sparse_fronts() -> None:
    """Intermediates that are computed; mappings that dense data ask for are covered too."""
    spec = cascade({"DRAM": {"format": {"A": COO}}, "GLB": {"actions": [{"skip": "C", "on": "T"}]}})
    front = pm.explore(spec, objectives=("sparse_energy", "sparse_latency", "buffer"))
    assert front.sparse is not None
    values = np.array([p.values for p in front])
    others = pm.explore(spec, objectives=("energy", "latency", "buffer"))
    assert any(p.fused for p in others)
    for p in others:
        sparse = p.sparse
        true = np.array([sparse.total_energy, sparse.total_latency, p.value("buffer")])
        assert (values <= front.sparse.factor * (1 + 1e-9) * true).all(axis=1).any()
    assert front.best("sparse_energy").sparse.total_energy == front[0].sparse_energy
    assert front.best("sparse_energy_delay").value("sparse_energy_delay") <= front[0].value(
        "sparse_energy_delay"
    )


def written(case: Case, tmp_path: Path) -> pm.Spec:
    """The case from a file beside the data."""
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case.document))
    return pm.load(tmp_path / "case.yaml")


@pytest.mark.slow
def test_given_data_are_followed(tmp_path: Path) -> None:
    """With one leader that is given, compute that skips on points takes just the share of its nonzeros."""
    tensor = random_tensor(["M", "K"], [4, 4], 0.4, seed=3)
    pm.write_tensor(tensor, tmp_path / "a.tns")
    given = {"A": {"actual": "a.tns"}}
    rules: dict[str, Any] = {"DRAM": {"format": {"A": COO}, **DENSE_Z}, "GLB": DENSE_Z, "MAC": MAC_SKIP}
    exact = written(Case((4, 4, 2), given, rules), tmp_path)
    front = pm.explore(exact, objectives=BOTH)
    assert front.sparse is not None
    assert front.sparse.factor == pytest.approx(1, abs=1e-9)
    assert front.sparse.label == "exact"
    (count,) = front[0].sparse.counts.compute
    assert count.executed == 2 * tensor.nnz
    rules = {"GLB": {"actions": [SKIP_B, {"skip": "Z", "on": "A"}]}}
    near = written(Case((4, 4, 2), given, rules), tmp_path)
    found = pm.explore(near, objectives=("sparse_energy",))
    assert found.sparse is not None
    assert 1 < found.sparse.factor < inf
    with refused("unsupported-density", "sizes"):
        pm.explore(near, objectives=BOTH, constraints={"sizes": "all"})


@pytest.mark.slow
def test_windows_and_sizes_that_do_not_divide() -> None:
    """Uniform densities bound these as well."""
    case = Case((3, 2, 2), {"A": 0.5}, {"GLB": {"actions": [SKIP_B]}}, einsum="Z[m, n] = A[H=m+k] * B[k, n]")
    for sizes in ("divisors", "all"):
        front = pm.explore(case.spec, objectives=BOTH, constraints={"sizes": sizes})
        assert front.sparse is not None
        assert 1 <= front.sparse.factor < 4


def test_a_bound_above_the_figures_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    true: Any = vars(search)["search"]

    def wrong(*arguments: Any) -> Any:
        found = true(*arguments)
        more = tuple(replace(c, energy=2 * c.energy) for c in found.candidates)
        return replace(found, candidates=more)

    monkeypatch.setattr(search, "search", wrong)
    with pytest.raises(InternalError, match=r"its sparse energy is .*, below the search's bound"):
        pm.explore(CONSTANT[0].spec, objectives=BOTH)


@pytest.mark.parametrize(
    ("densities", "objectives", "fault"),
    [
        ({}, ["sparse_energy"], "sparse_energy needs sparse tensors, and the workload gives no density"),
        ({"A": 0.5}, ["sparse_energy", "latency"], "latency count dense data, sparse_energy sparse data"),
        ({}, ["sparse_energy_delay"], "sparse_edp needs sparse tensors"),
        ({"A": 0.5}, ["sparse_buffer:GLB"], "knows only a bound of compressed tiles\n.*use working_set:GLB"),
        ({"A": 0.5}, ["sparse_enrgy"], "did you mean sparse_energy"),
    ],
)
def test_wrong_objectives(densities: dict[str, Any], objectives: list[str], fault: str) -> None:
    spec = Case((2, 2, 2), densities, {}).spec
    with pytest.raises(SpecError, match=fault):
        pm.explore(spec, objectives=objectives)
    section = Case((2, 2, 2), densities, {}).document | {"explore": {"objectives": objectives}}
    with pytest.raises(SpecError, match=fault):
        pm.load(section)


@pytest.mark.slow
def test_time_that_is_over_and_mappings_that_were_not_evaluated() -> None:
    """Those that are not evaluated still bound; of an interrupted search no factor is told."""
    spec = BOUNDED[0].spec
    found = pm.explore(spec, objectives=(*BOTH, "buffer")).found
    assert len(found.candidates) > 2
    data = tensor_data(spec.workload)
    names = (*BOTH, "buffer")
    some = sparse_objectives.sparse_points(spec, found, names, data, 1, lambda done, of: done < 2, inf)
    few = sparse_objectives.quality(found, some, 0, some)
    every = sparse_objectives.sparse_points(spec, found, names, data, 1, lambda done, of: True, inf)
    assert (few.evaluated, few.found) == (2, len(found.candidates))
    assert few.factor >= sparse_objectives.quality(found, every, 0, every).factor
    assert sparse_objectives.spread(6) == [0, 5, 2, 1, 3, 4]
    assert sorted(sparse_objectives.spread(37)) == list(range(37))


def test_factors() -> None:
    low, high = np.array([[1.0, 4.0], [2.0, 2.0]]), np.array([[1.5, 4.0], [2.0, 3.0]])
    assert sparse_objectives.factor(low, high) == 1.5
    assert sparse_objectives.factor(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0]])) == 1
    assert sparse_objectives.factor(np.array([[0.0, 1.0]]), np.array([[1.0, 1.0]])) == inf


@pytest.mark.slow
def test_the_command_and_what_is_shown(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    path.write_text(yaml.safe_dump(BOUNDED[5].document))
    wanted = [x for name in BOTH for x in ("--objective", name)]
    assert main(["explore", str(path), *wanted, "--eps", "0.01"]) == 0
    text = capsys.readouterr().out
    parts = "speedup", "eps=0.01, a bound:", "sparse_latency by up to a factor of"
    for part in (*parts, "fit whatever the data are"):
        assert part in text
    assert main(["explore", str(path), *wanted, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("mapping,sparse_energy_J,sparse_latency_s,speedup,energy_J")
    front = pm.explore(pm.load(path), objectives=BOTH)
    with faults("unknown-choice", "energy", at=""):
        front.best("energy")
    assert "sparse" in repr(front[0])
    assert pm.explore(pm.load(path), objectives=("energy",))[0].sparse_energy is None
    section = BOUNDED[0].document | {"explore": {"objectives": "sparse_energy"}}
    assert pm.explore(pm.load(section)).objectives == ("sparse_energy",)
