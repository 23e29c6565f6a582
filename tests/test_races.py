"""The benchmarks of `explore` and `codesign`: both tools get the same problem, and a row says what was not
measured."""

import json
import math
from dataclasses import replace

import pytest

import polymodel as pm
from benchmarks import explored, machines
from benchmarks.accelforge_peer import NotInstalled
from benchmarks.explored import GPT3, LARGE, SMALL, Race, Ran, case_of, peer_spec, races, three_levels
from benchmarks.rows import table
from tests.reference.mapper_spec import spec_of
from tests.seeds import seeds

CHAIN = SMALL[0]
OPTIMUM = (994574336.0, 397568.0)  # confirmed by an exhaustive search


def forget() -> None:
    """Nothing is timed here."""


@pytest.mark.slow
def test_our_search_has_the_optimum_and_the_row_says_why_there_is_no_peer(monkeypatch):
    def absent(race: Race) -> Ran:
        raise NotInstalled("no Python 3.12 with venv was found")

    monkeypatch.setattr(explored, "peer", absent)
    rows, faults = races((CHAIN,), forget, False)
    (row,) = rows.values()
    assert faults == []
    assert (row["peer"], row["ratio"], row["unit"]) == (None, None, "CPU s")
    assert "mappings found: 1, all confirmed by evaluate" in str(row["peer_name"])
    assert "not installed (no Python 3.12 with venv was found)" in table(rows)
    assert explored.ours(replace(CHAIN, repeats=1), forget).values == (OPTIMUM,)


@pytest.mark.slow
@pytest.mark.parametrize(("energy", "beats"), seeds(1, [(OPTIMUM[0] - 1e3, 1), (OPTIMUM[0], 0)]))
def test_a_peer_that_finds_better_is_a_fault(energy, beats, monkeypatch):
    monkeypatch.setattr(explored, "peer", lambda race: Ran(4.0, 5.0, ((energy, OPTIMUM[1]), (1e12, 1e9))))
    rows, faults = races((CHAIN,), forget, False)
    (row,) = rows.values()
    assert row["peer"] == 4.0
    assert row["ratio"] == pytest.approx(row["value"] / 4.0, rel=0.01)
    assert len(faults) == beats
    assert f"mappings: 2, of which {beats} beat ours" in str(row["peer_name"])


@pytest.mark.slow
def test_what_takes_long_runs_only_if_asked(monkeypatch):
    asked: list[Race] = []
    monkeypatch.setattr(explored, "peer", lambda race: asked.append(race) or Ran(1.0, 1.0, ()))
    rare = Race("a chain", CHAIN.case, CHAIN.objectives, False)
    (row,) = races((rare,), forget, False)[0].values()
    assert not asked
    assert str(row["peer_name"]).endswith("only with LONG=1")
    races((rare,), forget, True)
    assert asked == [rare]


@pytest.mark.parametrize("name", [CHAIN.case, GPT3, LARGE])
def test_the_peer_reads_the_same_workload_and_architecture(name):
    case = case_of(name)
    ours = spec_of(case)
    first, *nodes = (line for line in peer_spec(case).splitlines() if "{" in line)
    theirs = pm.load({"workload": json.loads(first.removeprefix("workload: "))})
    assert theirs.workload == ours.workload
    assert len(nodes) == len(ours.arch.components)
    for line, mine in zip(nodes, ours.arch.components, strict=True):
        kind, _, text = line.strip().removeprefix("- !").partition(" ")
        read = json.loads(text)
        assert (kind.lower(), read["name"]) == (mine.kind, mine.name)
        assert {a["name"]: (a["energy"], a["throughput"]) for a in read["actions"]} == {
            a.name: (a.energy, a.throughput) for a in mine.actions
        }
        assert read.get("size", math.inf) == mine.size_bits


def test_what_the_peer_would_not_be_told_is_refused():
    case = case_of(CHAIN.case)
    case["arch"][1]["spatial"] = [{"name": "X", "fanout": 4}]
    with pytest.raises(ValueError, match="GLB: keys not understood: spatial"):
        peer_spec(case)


@pytest.mark.slow
def test_three_memories_and_the_space_that_was_not_walked():
    (row,) = three_levels("a matmul", "matmul_2level_glb16384", 60).values()
    assert "evaluated and equal" in str(row["peer_name"])
    assert str(row["peer_name"]).endswith("the whole front")
    (row,) = explored.looked_at("a chain", CHAIN.case).values()
    assert row["value"] > 1000
    assert row["peer"] > 1e9 * row["value"]


def test_a_loop_over_machines_that_finds_better_is_a_fault(monkeypatch):
    """The loop finds what our own does; on one of two machines what costs a hundredth less."""

    def loop(spec, hardware):
        found = machines.looped(spec, hardware)
        first = min(found)
        cheaper = tuple((energy * 0.99, latency) for energy, latency in found[first].values)
        return {**found, first: replace(found[first], values=cheaper)}

    monkeypatch.setattr(machines, "EIGHT", {"KIB": [4], "BW": [4, 32]})
    monkeypatch.setattr(machines, "looped_by_peer", loop)
    rows, faults = machines.raced("a matmul", pm.load("matmul", machines.machine(), M=4, N=4, K=4))
    assert [f.partition(": ")[0] for f in faults] == ["a matmul, AccelForge on (KIB, BW) = (4, 4)"]
    assert "of which 1 beat ours" in table(rows)


def test_the_peer_is_told_of_a_machine_what_may_be_kept_and_that_intermediates_are():
    spec = pm.load("matmul_chain_2", machines.machine())
    buffer = next(line for line in machines.told(spec).splitlines() if '"GLB"' in line)
    read = json.loads(buffer.partition("!Memory ")[2])
    assert read["tensors"] == {"keep": "(Nothing) | ~DRAM.tensors", "may_keep": "All"}
    assert read["size"] == spec.arch["GLB"].size_bits
