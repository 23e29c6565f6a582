"""A cascade over chips: pieces cost what `explore` says of their blocks, exchanges what their links say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import Refused
from polymodel.mapping.looptree import StorageNode
from tests.faults import faults
from tests.hardware.small import small

MLP = ("A[m, c] = X[m, g] * WA[g, c]", "B[m, j] = A[m, c] * WB[c, j]")


def mlp(c: int = 4, m: int = 2) -> pm.Spec:
    return small(MLP, {"M": m, "G": 3, "C": c, "J": 3}, S=512)


LINK = pm.Interconnect("ring", throughput="8 Gb/s", energy_per_bit_hop="2 pJ")


def least(spec: pm.Spec) -> pm.Report:
    return pm.evaluate(pm.explore(spec, objectives="latency").best().spec)


@pytest.mark.slow
def test_pieces_cost_what_their_blocks_cost() -> None:
    """Two columns of a feed-forward part on two chips: half of its hidden width on each, and one
    all-reduce."""
    found = pm.distribute(mlp(), [1, 2], split="c", link=LINK)
    alone, both = found
    whole, half = least(mlp()), least(mlp(c=2))
    assert alone.figures["latency"] == pytest.approx(whole.total_latency, rel=1e-12, abs=0)
    assert alone.figures["energy"] == pytest.approx(whole.total_energy, rel=1e-12, abs=0)
    assert not alone.exchanges
    words = 2 * 3
    assert both.computing == pytest.approx(half.total_latency, rel=1e-12, abs=0)
    assert both.exchanging == 8 * words / 8e9  # on each link a half to be reduced, and a half sent
    of_links = 2 * words * 8 * 2e-12
    assert both.figures["energy"] == pytest.approx(2 * half.total_energy + of_links, rel=1e-12, abs=0)
    assert both.received == words


@pytest.mark.slow
def test_the_slowest_chip_counts_where_blocks_differ() -> None:
    """5 columns over 4 chips: 2, 2, 1 and none, which wait for the slowest and leak meanwhile."""
    leaking = small(MLP, {"M": 2, "G": 3, "C": 5, "J": 3}, S=512, leak=2e-3)
    (waiting,) = pm.distribute(leaking, 4, split="c").table("chips").column("leakage while waiting")
    two, one = (least(small(MLP, {"M": 2, "G": 3, "C": c, "J": 3}, S=512, leak=2e-3)) for c in (2, 1))
    idle = 4 * two.total_latency - 2 * two.total_latency - one.total_latency
    assert waiting == pytest.approx(2e-3 * idle, rel=1e-12, abs=0)
    found = pm.distribute(mlp(c=5), 4, split="c")
    for count, blocks in zip(found, ([2, 2, 1],), strict=True):
        each = [least(mlp(c=c)) for c in blocks]
        assert count.computing == pytest.approx(max(r.total_latency for r in each), rel=1e-12, abs=0)
        assert count.figures["energy"] == pytest.approx(sum(r.total_energy for r in each), rel=1e-12, abs=0)
        assert count.exchanging == 0  # links without a throughput take no time


def test_einsums_are_cut_where_tensors_are_exchanged() -> None:
    """Split over tokens nothing is exchanged; where the second product is split over its outputs, all is
    gathered."""
    tokens = pm.distribute(mlp(), 2, split="m", whole=False)
    assert [p.einsums for p in tokens[0].pieces] == [("A", "B")]
    assert not tokens[0].exchanges
    columns = pm.distribute(mlp(), 2, split=["j", "c"], whole=False)
    assert [p.einsums for p in columns[0].pieces] == [("A",), ("B",)]
    assert [e.exchange.kind for e in columns[0].exchanges] == ["all-gather"]
    rows = columns.table("pieces").rows
    assert [row[2] for row in rows] == ["c", "j"]


@pytest.mark.slow
def test_what_later_pieces_read_is_written_back() -> None:
    """A beside a branch of two products, as in residual connections: the second piece reads it from DRAM, so
    that the first one writes it there although it reads it itself."""
    branch = (
        "A[m, c] = X[m, c] * V[c]",
        "B[m, j] = A[m, c] * W[c, j]",
        "D[m, c, j] = B[m, j] * A[m, c]",
    )
    spec = small(branch, {"M": 2, "C": 4, "J": 2}, S=4096)
    half = small(branch[:2], {"M": 2, "C": 2, "J": 2}, S=4096)
    written = pm.explore(half, objectives="latency", constraints={"unfused": "A"}).best()
    for asked in (None, {"unfused": "Nothing"}, pm.Limits()):
        both = pm.distribute(spec, 2, split="c", whole=False, constraints=asked)[0]
        assert [p.einsums for p in both.pieces] == [("A", "B"), ("D",)]
        assert both.pieces[0].latency == pytest.approx(written.latency, rel=1e-12, abs=0)
        for tree in both.pieces[0].trees.values():
            stored = [n for _, n, _ in tree.walk() if isinstance(n, StorageNode)]
            assert any(n.component == "DRAM" and "A" in n.tensors for n in stored)


@pytest.mark.slow
def test_constraints_name_what_is_in_any_piece() -> None:
    """Each piece heeds what is said of its own Einsums; names that no piece has are told with all that there
    are."""
    spec = small((*MLP, "D[m, e] = B[m, j] * WD[j, e]"), {"M": 2, "G": 2, "C": 2, "J": 2, "E": 2})
    plain = pm.distribute(spec, 2, split=["c", "e"])[0]
    several: tuple[Any, ...] = (
        {
            "unfused": "A | B", "compute": {"B": "MAC"}, "loop_order": {"D": ["m", "e"]},
            "memories": {"GLB": {"keep": "WA | D", "factors": {"e": "<= 1"}}},
        },
        pm.Limits(unfused=frozenset({"A", "B"}), compute=(("A", "MAC"), ("D", "MAC"))),
    )  # fmt: skip
    for asked in several:
        found = pm.distribute(spec, 2, split=["c", "e"], constraints=asked)[0]
        assert [p.einsums for p in found.pieces] == [p.einsums for p in plain.pieces] == [("A", "B"), ("D",)]
        assert found.pieces[0].latency >= plain.pieces[0].latency
        stored = [n for _, n, _ in found.pieces[0].trees[0].walk() if isinstance(n, StorageNode)]
        assert any(n.component == "DRAM" and "A" in n.tensors for n in stored)
    with faults("conflicting-arguments", at="constraints.fuse"):
        pm.distribute(spec, 2, split=["c", "e"], constraints={"fuse": "B"})
    with pytest.raises(pm.SpecError, match=r"unknown name C\b") as raised:
        pm.distribute(spec, 2, split=["c", "e"], constraints={"unfused": "C"})
    assert "WA, WB, WD" in raised.value.diagnostics[0].remedy


@pytest.mark.slow
def test_what_fits_nowhere_is_told() -> None:
    tight = mlp().bind(S=8)
    found = pm.distribute(tight, 2, split="c", constraints={"memories": {"GLB": {"keep": "All"}}})
    assert all(math.isinf(c.figures["latency"]) for c in found)
    assert found.notes
    with pytest.raises(pm.SpecError):
        found.plot()


def test_faults_are_told_all_at_once() -> None:
    with pytest.raises(pm.SpecError) as raised:
        pm.distribute(mlp(), [2, 2], split="c", objective="enrgy", link=pm.Interconnect("mesh", shape=(2, 2)))
    assert {d.path for d in raised.value.diagnostics} == {"chips", "objective"}
    with pytest.raises(pm.SpecError) as raised:
        pm.distribute(mlp(), 2, split=["q", "z"])
    told = [d.message for d in raised.value.diagnostics]
    assert told == [f"no Einsum has the rank variable {v}" for v in "qz"]
    for wrong in (
        {"split": None},
        {"split": ["c", 5]},
        {"chips": 10**6},
        {"time_limit": "x"},
        {"time_limit": -1},
    ):
        with pytest.raises(pm.SpecError):
            pm.distribute(mlp(), **{"chips": 2, "split": "c", **wrong})  # type: ignore[arg-type]  # that is wrong
    with pytest.raises(Refused):
        pm.distribute(pm.load("attention_one_pass", "simple_two_level"), 2, split="m")


@pytest.mark.slow
def test_efficiency_is_that_of_whole_searches() -> None:
    found = pm.distribute(mlp(), [1, 2], split="c")
    *_, last = found.table("chips").rows
    assert last[-1] == pytest.approx(found[0].computing / found[1].computing / 2)
    cut = replace(found[1], pieces=tuple(replace(p, complete=False) for p in found[1].pieces))
    assert replace(found, counts=(found[0], cut)).table("chips").rows[1][-1] is None


def test_the_page_draws_cost_against_time(tmp_path: Path) -> None:
    found = pm.distribute(small(), [1, 2], split=["m"])
    found.to_html(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Plot: cost against time" in text
    assert "<svg" in text
    found.to_html(tmp_path / "plain.html", plots=False)
    assert "Plot:" not in (tmp_path / "plain.html").read_text(encoding="utf-8")
