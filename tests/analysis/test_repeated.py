"""Einsums that loops execute again, with storage that keeps results in between: exact = enumerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import Reuse
from tests.analysis import test_agreement, test_links, test_rounding
from tests.repeated import repeated_problems
from tests.seeds import seeds

Strategy = Callable[..., Any]
Compare = Callable[[Problem, Reuse | None, Counter[str]], None]


@pytest.mark.parametrize("count", seeds(1, [8, 400]))
@pytest.mark.parametrize(
    ("strategy", "compare"),
    [
        (repeated_problems, test_agreement.compare),
        (test_links.linked_problems, test_links.compare),
        (test_rounding.rounding_problems, test_rounding.compare),
    ],
    ids=["counts", "links", "rounding"],
)
@pytest.mark.thin(5)
def test_repeated_einsums_agree(
    strategy: Strategy, compare: Compare, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (test_links, test_rounding):
        monkeypatch.setattr(module, "problems", repeated_problems)
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **test_links.SETTINGS)
    @given(strategy(), test_agreement.POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        compare(problem, reuse, tally)

    cast(Callable[[], None], agree)()
    assert tally["examples"] >= 0.75 * count, tally
    assert tally["refused"] <= 0.02 * tally["examples"], tally


SPEC = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Memory {name: GLB, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
workload:
  rank_sizes: {M: 3, P: 2, Q: 4}
  bits_per_value: {All: 8}
  einsums: ["D[m] = A[m]", "S[p] = U[p, q]"]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, D, U, S]}
  ABOVE
  - !Temporal {rank_variable: m, tile_shape: TM}
  BELOW
  - !Sequential
    nodes:
    - !Nested {nodes: [!Compute {einsum: D, component: MAC}]}
    - !Nested {nodes: [!Compute {einsum: S, component: MAC}]}
symbols: {TM: 1}
"""


@pytest.mark.parametrize("engine", ["exact", "enumerate", "auto"])
@pytest.mark.parametrize(
    ("place", "reuse", "drains"),
    [("ABOVE", "refill", 2), ("BELOW", "refill", 6), ("BELOW", "keep_previous", 2)],
)
@pytest.mark.parametrize(("tile", "times"), [(1, 3), (3, 1)])
def test_sums_of_three_executions(
    tmp_path: Path, engine: str, place: str, reuse: str, drains: int, tile: int, times: int
) -> None:
    """S[p] is summed up from nothing in each execution: of its 8 additions 6 read what they add to."""
    text = SPEC.replace(place, f"- !Storage {{component: GLB, tensors: [S], reuse: {reuse}}}")
    text = "\n".join(line for line in text.splitlines() if line.strip() not in ("ABOVE", "BELOW"))
    file = tmp_path / "again.yaml"
    file.write_text(text, encoding="utf-8")
    found = pm.evaluate(pm.load(file), engine=engine, symbols={"TM": tile}).analysis
    (glb,) = (t for t in found.traffic if t.component == "GLB" and t.tensor == "S")
    expected = (6 * times, drains if times > 1 else 2, 0, 8 * times)
    assert (glb.reads_fill, glb.reads_drain, glb.writes_fill, glb.writes_drain) == expected
    (dram,) = (t for t in found.traffic if t.component == "DRAM" and t.tensor == "S")
    assert (dram.reads_fill, dram.writes_drain) == (0, expected[1])
