"""exact = enumerate, on generated problems, field by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.result import Analysis, Engine, Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Node, Split
from polymodel.reuse import Reuse
from tests.generators import problems

EXACT: Engine = exact_engine
REFUSED_AT_MOST = 0.005  # of 300; none of 5,000 was
REFUSED_AT_LENGTH = 0.0005
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    "print_blob": True,
}

# What identifies a row of each table; all other fields must agree.
KEYS = {
    "buffets": ("node", "tensor"),
    "traffic": ("einsum", "node", "tensor"),
    "compute": ("einsum",),
    "loads": ("einsum", "component"),
    "working_sets": ("einsum", "component", "measure"),
    "tolls": ("einsum", "component", "tensor"),
}


def drawing(problem: Problem) -> str:
    """The problem as indented text, for the report of a disagreement."""
    lines = []
    for e in problem.cascade:
        accesses = ", ".join(f"{a.tensor}[{', '.join(map(str, a.projection))}]" for a in e.accesses)
        limits = " and ".join(map(str, e.constraints))
        lines.append(f"{e.name}: {accesses} where {limits}; n_instances {e.n_instances}")

    def visit(nodes: tuple[Node, ...], depth: int) -> None:
        for node in nodes:
            if isinstance(node, Split):
                for branch in node.branches:
                    lines.append("  " * depth + "branch")
                    visit(branch, depth + 1)
            elif isinstance(node, Loop):
                kind = f"{node.component}.{node.dim}" if node.spatial else "time"
                lines.append(
                    "  " * depth + f"for {node.rank_variable} by {node.tile_shape} in {kind}"
                    f" first {node.initial_tile_shape} {dict(node.per_einsum) or ''}"
                )
            else:
                lines.append("  " * depth + str(node))

    visit(problem.tree.nodes, 0)
    return "\n".join([*lines, *map(str, problem.hierarchy.components)])


def rows(table: Iterable[Any], key: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    return {tuple(getattr(row, k) for k in key): row for row in table}


def differences(ours: Analysis, referee: Analysis) -> list[str]:
    """One line per field that differs. Which peak's residents are named is open, so they must only add up."""
    found = []
    for table, key in KEYS.items():
        a, b = rows(getattr(ours, table), key), rows(getattr(referee, table), key)
        for name in [*a, *(n for n in b if n not in a)]:
            if name not in a or name not in b:
                found.append(f"{table} {name}: only in {ours.engine if name in a else referee.engine}")
                continue
            for f in fields(a[name]):
                x, y = getattr(a[name], f.name), getattr(b[name], f.name)
                if f.name == "residents":
                    x, y = sum(r.bits for r in x), a[name].bits
                if x != y:
                    found.append(f"{table} {name} {f.name}: {ours.engine} {x}, {referee.engine} {y}")
        if not found and list(a) != list(b):
            found.append(f"{table}: rows in another order")
    return found


def compare(problem: Problem, reuse: Reuse | None, tally: Counter[str]) -> None:
    """Assert agreement; a refusal of the exact engine is counted, the referee's own cannot happen."""
    referee = REFEREE.analyse(problem, live=True)
    if reuse is not None:
        try:
            referee = REFEREE.analyse(problem, reuse=reuse, live=True)
        except Refused:
            event("the overriding policy makes the mapping illegal")
            reuse = None
    tally["examples"] += 1
    try:
        ours = EXACT.analyse(problem, reuse=reuse, live=True)
    except Refused as refusal:
        tally["refused"] += 1
        event(f"refused: {refusal.message[:60]}")
        return
    found = differences(ours, referee)
    assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])


def describe(problem: Problem) -> None:
    """Hypothesis events: how often each feature occurs (`--hypothesis-show-statistics`)."""
    nodes = [node for _, node, _ in problem.tree.walk()]
    loops = [n for n in nodes if isinstance(n, Loop)]
    event(f"{len(problem.cascade)} Einsums")
    if any(n.spatial for n in loops):
        event("spatial loop")
    if len(problem.cascade) > 1 and any(isinstance(n, Loop) for n in problem.tree.nodes):
        event("loop above a split")
    if any(n.initial_tile_shape is not None for n in loops):
        event("initial tile shape")
    if any(len(e.constraints) > 2 * len(e.rank_variables) for e in problem.cascade):
        event("restricted iteration space")


POLICIES = st.sampled_from([None, None, None, *Reuse])


def run_many(count: int) -> Counter[str]:
    """Compare on `count` generated problems; returns how many were refused."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems(), POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        describe(problem)
        compare(problem, reuse, tally)

    cast(Callable[[], None], agree)()
    return tally


def assert_few_refusals(tally: Counter[str], at_most: float) -> None:
    share = tally["refused"] / tally["examples"]
    assert share < at_most, f"{tally['refused']} of {tally['examples']} problems were refused"


def test_engines_agree() -> None:
    tally = run_many(25)
    assert tally["examples"] >= 25
    assert_few_refusals(tally, REFUSED_AT_MOST)


@pytest.mark.slow
def test_engines_agree_at_length() -> None:
    tally = run_many(10_000)
    assert tally["examples"] >= 10_000
    assert_few_refusals(tally, REFUSED_AT_LENGTH)


@settings(max_examples=100, **SETTINGS)
@given(problems())
def test_counts_of_the_referee_hang_together(problem: Problem) -> None:
    """Conservation: every operation reads each operand; fills never exceed tiles; policies only save."""
    describe(problem)
    result = REFEREE.analyse(problem, reuse=None, live=True)
    tiles = {(b.node, b.tensor): b for b in result.buffets}
    for key, buffet in tiles.items():
        written = sum(t.writes_fill for t in result.traffic if (t.node, t.tensor) == key)
        copied = any(e.is_copy for e in problem.cascade)
        assert copied or written <= buffet.tile_total
        assert buffet.distinct <= buffet.tile_total
        assert buffet.live is not None
        assert buffet.tile_max <= buffet.distinct * max(buffet.instances, 1)
    for row in result.compute:
        einsum = problem.cascade[row.einsum]
        if not einsum.is_copy:
            assert row.busiest <= row.operations <= row.busiest * row.instances
    for load in result.loads:
        assert load.loads == tuple(sorted(load.loads))


@settings(max_examples=50, **SETTINGS)
@given(problems(simple=True))
def test_keeping_never_costs_more_than_refilling(problem: Problem) -> None:
    """keep_previous <= slide <= refill in fills, for tensors that are only read."""
    totals = []
    for reuse in ("keep_previous", "slide", "refill"):
        result = REFEREE.analyse(problem, reuse=cast(Reuse, reuse))
        inputs = {t for t in problem.cascade.tensors if problem.cascade.producer(t) is None}
        totals.append(sum(t.writes_fill for t in result.traffic if t.tensor in inputs))
    assert totals == sorted(totals)
