"""One vocabulary of objectives: what a sweep minimises is what a report says of the same mapping."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel import objectives
from polymodel.cli import main
from polymodel.mapping import mapspace_constraints
from polymodel.objectives import ALIASES, BY_WORD, OBJECTIVES, Objective, canonical, known_names, score, uses
from polymodel.sweeps import rows
from tests.faults import faults

ROOT = Path(__file__).resolve().parents[1]
SYMBOLS = {"TM": [16, 24], "TN": [32, 64]}
TEXT = """
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, leak_power: 1e-3, area: 2e-6,
             actions: [{name: read, energy: 2e-12, throughput: 1e9}, {name: write, energy: 3e-12}]}
  - !Toll {name: Bus, tensors: {keep: All}, actions: [{name: read, energy: 1e-13}]}
  - !Memory {name: GLB, size: 1e6, area: 1e-6, spatial: [{name: X, fanout: 8}],
             actions: [{name: read, energy: 1e-13, throughput: 4e9}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1e-13, throughput: 1e9}]}
workload:
  rank_sizes: {M: 48, N: 64, K: 32}
  bits_per_value: {All: 8}
  einsums: ["C[m, n] = A[m, k] * B[k, n]"]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: n, tile_shape: TN}
  - !Spatial {rank_variable: m, tile_shape: TM, name: X, component: GLB}
  - !Storage {component: GLB, tensors: [A, B, C]}
  - !Compute {einsum: C, component: MAC}
"""


@pytest.fixture
def spec(tmp_path: Path) -> pm.Spec:
    path = tmp_path / "spec.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return pm.load(path)


def test_a_sweep_minimises_what_a_report_says(spec: pm.Spec) -> None:
    names = known_names(["DRAM", "GLB"], ["Bus"])
    assert {n.partition(":")[0] for n in names} == set(BY_WORD)
    found = pm.sweep(spec, SYMBOLS, objectives=names, keep="all")
    for _, row in found.frame.iterrows():
        report = pm.evaluate(found.spec(row))
        assert {n: row[n] for n in names} == {n: report.value(n) for n in names}


def test_blocks_of_points_find_the_same(spec: pm.Spec) -> None:
    """Each objective alone: the best of a front, which blocks have found, is the best of all rows."""
    for name in known_names(["DRAM", "GLB"], ["Bus"]):
        every = pm.sweep(spec, SYMBOLS, objectives=[name], keep="all")
        front = pm.sweep(spec, SYMBOLS, objectives=[name])
        values = every.frame.loc[every.frame["feasible"], name]
        best = values.max() if BY_WORD[name.partition(":")[0]].most else values.min()
        assert front.best()[name] == every.best()[name] == best
        assert every.sensitivity()[name].max() <= values.max()


def test_the_most_utilisation_is_the_best(spec: pm.Spec) -> None:
    """Of 48 values in tiles of 16 three of the eight instances work, in tiles of 24 two."""
    found = pm.sweep(spec, SYMBOLS, objectives=["utilisation"], keep="all")
    shares = dict(zip(found.frame["TM"], found.frame["utilisation"], strict=True))
    assert shares == {16: 3 / 8, 24: 2 / 8}
    assert found.best()["TM"] == 16
    assert found.unit("utilization") == "1"
    assert score("utilisation", 0.25) == 4
    top = pm.sweep(spec, SYMBOLS, objectives=["utilisation"], keep="top", top=1)
    assert top.frame["utilisation"].tolist() == [3 / 8]


def test_area_tells_architectures_apart(spec: pm.Spec) -> None:
    sized = pm.sweep(spec, SYMBOLS, objectives=["area", "energy"])
    assert sized.best("area")["area"] == pm.evaluate(sized.spec(sized.best())).total_area == 2e-6 + 8 * 1e-6


def test_older_names_are_aliases(spec: pm.Spec) -> None:
    assert {canonical(a): a for a in ALIASES}.keys() <= set(BY_WORD)
    assert canonical("sparse_buffer:GLB") == "sparse_working_set:GLB"
    report = pm.evaluate(spec, symbols={"TM": 16, "TN": 32})
    assert report.value("energy_delay") == report.value("edp") == report.total_energy * report.total_latency
    assert report.sparse.value("edp") == report.value("edp")
    for wrong in ("wattage", "accesses:MAC", "working_set:Bus", "energy:GLB"):
        with faults("unknown-choice", at="objective"):
            report.value(wrong)


def test_a_new_objective_is_one_entry(spec: pm.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/develop/recipes.md has it: every part of polymodel knows it, and its column has a meaning."""
    made = Objective(
        "ed2p", "J s^2", "energy times delay twice", lambda f, _: f.energy * f.latency * f.latency
    )
    for place in (objectives, rows):
        monkeypatch.setattr(place, "OBJECTIVES", (*OBJECTIVES, made))
    # What follows from the vocabulary when the module is loaded.
    monkeypatch.setattr(mapspace_constraints, "COSTS", (*mapspace_constraints.COSTS, "ed2p"))
    monkeypatch.setitem(BY_WORD, "ed2p", made)
    size = {"TM": 16, "TN": 32}
    report = pm.evaluate(spec, symbols=size)
    value = report.value("ed2p")
    assert value == report.total_energy * report.total_latency * report.total_latency
    assert report.sparse.value("ed2p") == value
    form = pm.closed_forms(spec).value("ed2p")
    assert float(form.subs({s: size[s.name] for s in form.free_symbols})) == pytest.approx(value, rel=1e-12)
    found = pm.sweep(spec, SYMBOLS, objectives=["ed2p"], keep="all").frame.set_index(["TM", "TN"])
    assert found.loc[(16, 32), "ed2p"] == value
    front = pm.explore(spec, objectives=["ed2p"])
    assert front[0].value("ed2p") <= value
    (column,) = (c for c in front.table().columns if c.name == "ed2p")
    assert (column.unit, column.meaning) == ("J s^2", made.meaning)


def test_each_objective_says_what_it_is_made_of() -> None:
    assert uses("edp") == {("energy", ""), ("latency", "")}
    assert uses("accesses:GLB") == {("reads", "GLB"), ("writes", "GLB")}
    assert uses("sparse_working_set:GLB") == {("working_set", "GLB")}


def test_the_vocabulary_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sweep", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    guide = (ROOT / "docs/howto/sweep.md").read_text(encoding="utf-8")
    for o in OBJECTIVES:
        word = f"{o.word}:X" if o.of else o.word
        assert word in told
        assert f"`{word}`" in guide


def test_limits_are_shown_in_the_units_of_tables() -> None:
    assert objectives.FigureLimit("latency", 0.00025).for_readers() == "latency <= 250 µs"
    assert objectives.FigureLimit("working_set:GLB", 4096.0).for_readers("GLB") == "GLB <= 4096 b"
    assert objectives.FigureLimit("utilisation", 0.5).for_readers() == "utilisation >= 0.5"
