"""Counts from 2^50 to 2^70: exact = symbolic, and exact = enumerate or a formula where there is no form."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact.timeline import timeline
from polymodel.analysis.result import Analysis, Engine, Problem
from polymodel.analysis.symbolic import ENGINE as symbolic_engine
from polymodel.errors import NotSeparable, Refused
from polymodel.workload.einsum import Cascade
from tests.analysis.test_agreement import differences, drawing
from tests.faults import refused
from tests.huge import fused, triangle
from tests.layers import fused_layers

EXACT: Engine = exact_engine
SYMBOLIC: Engine = symbolic_engine
POLICIES = ("refill", "slide", "keep_previous")
LEAST, MOST = 50, 70
MANY = 2**66 + 1


def widened(problem: Problem, pick: Random) -> Problem:
    """The problem with values of so many bits that its counts lie between 2^50 and 2^70; odd, and uneven."""
    power = pick.uniform(LEAST - 6, MOST - 14)
    bits = {t: int(2 ** (power + pick.uniform(-3, 3))) | 1 for t in problem.cascade.tensors}
    if pick.random() < 0.5:
        bits = dict.fromkeys(bits, int(2**power) | 1)
    einsums = tuple(
        replace(e, accesses=tuple(replace(a, bits_per_value=bits[a.tensor]) for a in e.accesses))
        for e in problem.cascade
    )
    return replace(problem, cascade=Cascade(einsums))


def branches_of(pick: Random, length: dict[str, int], count: int) -> list[list[dict[str, object]]]:
    """Loops over the ranks of each product, some of them spatial."""
    branches = []
    for i in range(count):
        branch: list[dict[str, object]] = []
        for v in pick.sample([f"n{i}", f"n{i + 1}"], pick.randint(0, 2)):
            tile = pick.randint(max(1, length[v] // 7), length[v])
            spatial = (
                v == f"n{i + 1}" and not any(n["type"] == "Spatial" for n in branch) and pick.random() < 0.5
            )
            where = {"component": "PE", "name": "X"} if spatial else {}
            kind = "Spatial" if spatial else "Temporal"
            branch.append({"type": kind, "rank_variable": v, "tile_shape": tile, **where})
        branches.append([*branch, {"type": "Compute", "einsum": f"T{i + 1}", "component": "MAC"}])
    return branches


def chain(pick: Random) -> Problem:
    """One to three products in a row over long ranks, with loops that divide nothing."""
    count = pick.randint(1, 3)
    length = {
        "m": int(2 ** pick.uniform(8, 26)),
        **{f"n{i}": int(2 ** pick.uniform(2, 16)) for i in range(count + 1)},
    }
    wanted = pick.uniform(LEAST + 2, MOST - 4)
    most = max(length["m"] * length[f"n{i}"] * length[f"n{i + 1}"] for i in range(count))
    bits = max(1, int(2**wanted) // most) | 1
    inner = [f"T{i}" for i in range(1, count)]
    nodes: list[dict[str, object]] = [
        {
            "type": "Storage",
            "component": "DRAM",
            "tensors": ["T0", *(f"W{i}" for i in range(count)), f"T{count}"],
        }
    ]
    m = length["m"]
    for _ in range(pick.randint(0, 2) if count == 1 else 1):
        m = pick.randint(max(1, m // 9), m)
        nodes.append({"type": "Temporal", "rank_variable": "m", "tile_shape": m})
    held = ["T0", *inner, f"T{count}"]
    nodes.append(
        {
            "type": "Storage",
            "component": "GLB",
            "tensors": held,
            "reuse": pick.choice(POLICIES[:1] if inner else POLICIES),
        }
    )
    branches = branches_of(pick, length, count)
    if count == 1:
        nodes += branches[0]
    else:
        nodes.append({"type": "Sequential", "nodes": [{"type": "Nested", "nodes": b} for b in branches]})
    outer = {"keep": "~Intermediates", "may_keep": "All"}
    texts = [f"T{i + 1}[m, n{i + 1}] = T{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]" for i in range(count)]
    spec = {
        "schema_version": 1,
        "arch": {
            "nodes": [
                {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": outer},
                {"type": "Memory", "name": "GLB", "size": "inf", "tensors": {"may_keep": "All"}},
                {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 16}]},
                {"type": "Compute", "name": "MAC"},
            ]
        },
        "workload": {
            "rank_sizes": {v.upper(): n for v, n in length.items()},
            "bits_per_value": {"All": bits},
            "einsums": texts,
        },
        "mapping": {"nodes": nodes},
    }  # fmt: skip
    return problem_of(pm.load(spec))


def largest(found: Analysis) -> int:
    """The largest number of an analysis."""
    tables = (found.buffets, found.traffic, found.compute, found.working_sets)
    counts = [v for table in tables for row in table for v in vars(row).values() if type(v) is int]
    return max([*counts, *(max(pair) for row in found.loads for pair in row.loads)], default=0)


def drawn_triangle(pick: Random, folder: Path) -> Analysis:
    """A triangle, cut into rows that need not divide it, against sums by hand."""
    m = pick.randint(3, 10 ** pick.randint(1, 6))
    tile = pick.randint(max(1, m // 8), m)
    bits = int(2 ** pick.uniform(LEAST, MOST)) // m**2 + 1
    path = folder / "triangle.yaml"
    path.write_text(triangle(bits, m), encoding="utf-8")
    found = EXACT.analyse(problem_of(pm.load(str(path), symbols={"TM": tile})))
    rows = {(r.component, r.tensor): r for r in found.traffic}
    begins = range(0, m, tile)
    spans = [(b, min(b + tile, m)) for b in begins]
    assert rows["DRAM", "A"].reads_fill == m * (m + 1) // 2
    assert rows["DRAM", "B"].reads_fill == sum(e for _, e in spans)
    assert found.compute[0].operations == m * (m + 1) // 2
    held = max((e * (e + 1) - b * (b + 1)) // 2 + e + (e - b) for b, e in spans)
    peak = next(w for w in found.working_sets if (w.component, w.measure) == ("GLB", "tile"))
    assert peak.bits == held * bits
    return found


def problem_of(spec: pm.Spec) -> Problem:
    assert spec.workload is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def compared(problem: Problem, live: bool) -> tuple[str, Analysis]:
    """Which engines were compared, and what `exact` found."""
    ours = EXACT.analyse(problem)
    try:
        theirs, kind = SYMBOLIC.analyse(problem), "symbolic"
    except NotSeparable:
        if not live:
            return "no form", ours
        theirs, kind = REFEREE.analyse(problem), "enumerate"
    found = differences(ours, theirs)
    assert not found, "\n".join([*found, drawing(problem)])
    if live and kind == "enumerate":
        found = differences(EXACT.analyse(problem, live=True), REFEREE.analyse(problem, live=True))
        assert not found, "\n".join([*found, drawing(problem)])
    return kind, ours


def campaign(count: int, folder: Path, seed: int = 0) -> Counter[str]:
    """How many specs were compared with what, and how many had counts in the range that is asked for."""
    tally: Counter[str] = Counter()
    number = seed
    while tally["specs"] < count:
        number += 1
        pick = Random(number)
        kind = "triangle" if number % 10 == 0 else "layers" if number % 2 else "chain"
        try:
            if kind == "triangle":
                how, found = "formula", drawn_triangle(pick, folder)
            else:
                problem = widened(fused_layers(pick), pick) if kind == "layers" else chain(pick)
                how, found = compared(problem, kind == "layers")
        except Refused as refusal:
            tally[f"refused: {refusal.message[:60]}"] += 1
            continue
        size = largest(found)
        tally["specs"] += how != "no form" and 2**LEAST <= size < 2 ** (MOST + 1)
        tally[f"{kind} = {how}"] += 1
        tally["beyond 2^63"] += size >= 2**63
    return tally


def test_counts_beyond_64_bits(tmp_path: Path) -> None:
    tally = campaign(24, tmp_path)
    assert tally["beyond 2^63"] > 6, tally


@pytest.mark.slow
def test_counts_beyond_64_bits_at_length(tmp_path: Path) -> None:
    tally = campaign(2_000, tmp_path, 10_000)
    assert tally["beyond 2^63"] > 300, tally


def loaded(text: str, folder: Path, **symbols: int) -> Problem:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return problem_of(pm.load(str(path), symbols=symbols))


@pytest.mark.slow
def test_lifetimes_followed_through_stamps_grow_with_the_bits(tmp_path: Path) -> None:
    """Sums beyond 60 bits were refused there, phase by phase and in peaks."""
    found = {}
    for bits in (1, MANY):
        problem = loaded(fused(bits, 2_000), tmp_path, TM=300)
        peaks = [w.bits for w in EXACT.analyse(problem, live=True).working_sets if w.measure == "live"]
        for measure in ("tile", "live"):
            held = timeline(problem, "GLB", measure, 50)  # type: ignore[arg-type]  # a Literal
            found[bits, measure] = held.total.tolist()
        found[bits, "peaks"] = peaks
    for what in ("tile", "live", "peaks"):
        assert [n * MANY for n in found[1, what]] == found[MANY, what]


def test_loads_of_pipelines_grow_with_the_bits(tmp_path: Path) -> None:
    found = {}
    for bits in (1, MANY):
        text = (
            fused(bits)
            .replace("!Sequential", "!Pipeline")
            .replace("einsum: T2, component: MAC", "einsum: T2, component: ALU")
        )
        text = text.replace("  - !Compute {name: MAC", "  - !Compute {name: ALU}\n  - !Compute {name: MAC")
        (run,) = EXACT.analyse(loaded(text, tmp_path)).pipelines
        found[bits] = [(slot.phase, slot.count, pairs) for slot in run.slots for pairs in slot.shared]
    grown = [
        (phase, count, (name, tuple((r * MANY, w * MANY) for r, w in pairs)))
        for phase, count, (name, pairs) in found[1]
    ]
    assert grown
    assert sorted(grown) == sorted(found[MANY])


def test_elements_that_differ_by_multiples_of_two_to_the_64_are_counted_apart() -> None:
    """Coordinates wrap around in int64: listed elements 2^62 m would be four, whatever m."""
    spec = pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [{"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}},
                               {"type": "Compute", "name": "MAC"}]},
            "workload": {
                "rank_sizes": {"M": 8, "A": 2**66},
                "bits_per_value": {"All": 8},
                "einsums": [{"name": "Z", "tensor_accesses": [
                    {"name": "A", "projection": {"A": f"{2**61} * m"}},
                    {"name": "Z", "projection": ["m"], "output": True}]}],
            },
            "mapping": {"nodes": [{"type": "Storage", "component": "DRAM", "tensors": ["A", "Z"]},
                                  {"type": "Compute", "einsum": "Z", "component": "MAC"}]},
        }
    )  # fmt: skip
    problem = problem_of(spec)
    assert {b.distinct for b in EXACT.analyse(problem).buffets} == {8}
    with refused("number-too-large", "62"):
        EXACT.analyse(problem, live=True)
