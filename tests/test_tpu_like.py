"""The race on a machine like a TPU: the peer gets the same problem, and a small one has the same optimum."""

import json
import math

import pytest

import polymodel as pm
from benchmarks.explored import Ran, beating, ours, races
from benchmarks.tpu_like import ENERGY, MACHINE, SINGLE, TPU, OnTpu, peer_spec

ATTENTION = """
schema_version: 1
workload:
  rank_sizes: {B: 1, M: 32, P: 32, H: 4, E: 16, F: 16}
  bits_per_value: {All: 8}
  einsums:
  - name: QK
    tensor_accesses:
    - {name: Q, projection: [b, m, h, e]}
    - {name: K, projection: {B: b, M: p, H: h, E: e}}
    - {name: QK, projection: [b, m, p, h], output: True}
    renames: {input: Q, weight: K, output: QK}
  - name: QK_softmax
    tensor_accesses:
    - {name: QK, projection: [b, m, p, h]}
    - {name: QK_softmax, projection: [b, m, p, h], output: True}
    renames: {input: QK, weight: Nothing, output: QK_softmax}
  - name: AV
    tensor_accesses:
    - {name: QK_softmax, projection: [b, m, p, h]}
    - {name: V, projection: {B: b, M: p, H: h, E: f}}
    - {name: AV, projection: [b, m, h, f], output: True}
    renames: {input: QK_softmax, weight: V, output: AV}
"""
SMALLER = (
    ("fanout: 4", "fanout: 2"),
    ("fanout: 128", "fanout: 4"),
    ("8 * 128 * 1024 * 1024", "8 * 4096"),
    ("8 * 4 * 1024 * 1024", "8 * 2048"),
)
THEIRS = 1.0068787332784268e-06  # J, what AccelForge 1.0.467 finds on this problem


def forget() -> None:
    """Nothing is timed here."""


@pytest.fixture
def small(tmp_path):
    workload, machine = tmp_path / "workload.yaml", tmp_path / "machine.yaml"
    text = MACHINE.read_text(encoding="utf-8")
    for old, new in SMALLER:
        assert old in text
        text = text.replace(old, new)
    workload.write_text(ATTENTION, encoding="utf-8")
    machine.write_text(text, encoding="utf-8")
    return OnTpu("attention", str(workload), ENERGY, False, repeats=1, close=SINGLE, machine=machine)


@pytest.mark.slow
def test_both_tools_have_the_same_optimum_on_a_small_machine(small):
    mine = ours(small, forget)
    ((energy,),) = mine.values
    assert energy == pytest.approx(THEIRS, rel=SINGLE)
    assert beating(mine, Ran(50.0, 50.0, ((THEIRS,),)), small.close) == []
    assert beating(mine, Ran(50.0, 50.0, ((THEIRS * (1 - 3 * SINGLE),),)), small.close)


@pytest.mark.slow
def test_the_peer_runs_only_in_a_long_benchmark(small):
    rows, faults = races((small,), forget, False)
    ((shown, row),) = rows.items()
    assert (shown, faults) == ("explore attention, energy", [])
    assert "mappings found: 1, all confirmed by evaluate" in str(row["peer_name"])
    assert str(row["peer_name"]).endswith("only with LONG=1")


def test_the_peer_reads_the_same_layer_and_machine():
    text, settings = TPU.told()
    spec, limits = TPU.problem()
    first, *lines = (line for line in text.splitlines() if "{" in line)
    workload = json.loads(first.removeprefix("workload: "))
    units = ("on_MAC", "on_ScalarUnit")
    for mine, e in zip(spec.workload, workload["einsums"], strict=True):
        told = e.pop("renames")
        runs = [u for u in units if told[u] == "All"]
        assert mine.is_copy or runs == ["on_MAC" if len(mine.inputs) == 2 else "on_ScalarUnit"]
        held = {r: set(s.split(" | ")) - {"Nothing"} for r, s in told.items() if r not in units}
        roles = {r: set() if mine.is_copy else set(dict(mine.renames)[r]) for r in held}
        assert held == roles
    theirs = pm.load({"workload": workload})
    assert [(e.accesses, e.bounds, e.is_copy) for e in theirs.workload] == [
        (e.accesses, e.bounds, e.is_copy) for e in spec.workload
    ]
    nodes = [line.strip().removeprefix("- !").partition(" ") for line in lines]
    for (kind, _, node), mine in zip(nodes, spec.arch.components, strict=True):
        read = json.loads(node)
        assert (kind.lower(), read["name"]) == (mine.kind, mine.name)
        assert {a["name"]: (a["energy"], float(a["throughput"])) for a in read.get("actions", ())} == {
            a.name: (a.energy, a.throughput) for a in mine.actions
        }
        assert float(read.get("size", math.inf)) == mine.size_bits
        assert [(d["name"], d["fanout"], d["may_reuse"]) for d in read.get("spatial", ())] == [
            (d.name, d.fanout, d.may_reuse.text) for d in mine.spatial
        ]
        assert all(d["min_usage"] == 1 for d in read.get("spatial", ()))
        assert all(d.get("reuse", "Nothing") == d["may_reuse"] for d in read.get("spatial", ()))
        bound = {d["name"] for d in read.get("spatial", ()) if "loop_bounds" in d}
        assert bound == {d.name for d in mine.spatial if d.may_reuse.text != "output"}
    assert settings == {"max_fused_loops": 1} == {"max_fused_loops": limits.max_fused_loops}


def test_what_the_peer_counts_otherwise_is_refused(small):
    text = small.machine.read_text(encoding="utf-8")
    small.machine.write_text(text.replace(", broadcast_partials: true", ""), encoding="utf-8")
    with pytest.raises(ValueError, match=r"fanout LocalBuffer\.Z is counted otherwise"):
        peer_spec(*small.problem())
    small.machine.write_text(text.replace("ports: separate", "buffering: single"), encoding="utf-8")
    with pytest.raises(ValueError, match="GlobalBuffer has what the benchmark does not write"):
        peer_spec(*small.problem())
