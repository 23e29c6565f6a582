"""Counting by classes of tiles: equal to the engine that walks, and independent of extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.exact import cached_counts, occupancy
from polymodel.analysis.result import Problem
from tests.analysis.test_agreement import EXACT, REFEREE, differences, run_many
from tests.support.small_specs import leaf, loop, memory, storage, unit

TENSORS = ("Q", "K", "S")
E = 64


def causal(extent: int, levels: list[tuple[int, int]], inner: int = E) -> pm.Spec:
    """S[m, n] = Q[m, e] * K[n, e] for n <= m; a memory above and below each level of tiles of m and n."""
    names = [f"L{i}" for i in range(len(levels) + 1)]
    nodes: list[dict[str, Any]] = [storage(names[0], *TENSORS)]
    for name, (m, n) in zip(names[1:], levels, strict=True):
        nodes += [loop("m", m), loop("n", n), storage(name, *TENSORS)]
    accesses = [
        {"name": "Q", "projection": ["m", "e"]},
        {"name": "K", "projection": ["n", "e"]},
        {"name": "S", "projection": ["m", "n"], "output": True},
    ]
    einsum = {"name": "S", "iteration_space_shape": "n <= m", "tensor_accesses": accesses}
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*(memory(name, 1e-12) for name in names), unit()]},
            "workload": {
                "rank_sizes": {"M": extent, "N": extent, "E": inner},
                "bits_per_value": {"All": 8},
                "einsums": [einsum],
            },
            "mapping": {"nodes": [*nodes, leaf("S")]},
        }
    )


def starts(extent: int, tiles: list[int]) -> np.ndarray:
    """Where the innermost of nested tiles begin."""
    begin, size = np.zeros(1, np.int64), np.array([extent])
    for tile in tiles:
        count = -(-size // tile)
        which = np.repeat(np.arange(len(begin)), count)
        inner = tile * (np.arange(len(which)) - (np.cumsum(count) - count)[which])
        begin, size = begin[which] + inner, np.minimum(tile, size[which] - inner)
    return begin


@pytest.mark.slow
def test_every_factor_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_counts, "MANY_LOOPS", 1)
    monkeypatch.setattr(occupancy, "SEVERAL_LOOPS", 1)
    run_many(12)


@pytest.mark.parametrize("levels", [[(7, 5), (3, 2), (2, 1)], [(5, 7), (4, 2), (1, 2)]])
def test_causal_nests_equal_the_walk(levels: list[tuple[int, int]]) -> None:
    spec = causal(9, levels, inner=2)
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    assert not differences(EXACT.analyse(problem), REFEREE.analyse(problem))


@pytest.mark.slow
def test_a_million_rows_and_columns() -> None:
    """A row of Q is filled once for each tile of n up to it, one of K once for each tile of m from it on."""
    extent, levels = 10**6, [(370001, 290003), (1103, 701), (37, 23)]
    accesses = pm.evaluate(causal(extent, levels), engine="exact").accesses.set_index(["component", "tensor"])
    for depth in range(1, 4):
        n = starts(extent, [b for _, b in levels[:depth]])
        m = starts(extent, [a for a, _ in levels[:depth]])
        assert accesses.loc[(f"L{depth}", "Q"), "fill_elements"] == E * int((extent - n).sum())
        last = np.append(m[1:], extent) - 1
        assert accesses.loc[(f"L{depth}", "K"), "fill_elements"] == E * int((last + 1).sum())
        assert accesses.loc[(f"L{depth}", "S"), "drain_elements"] == extent * (extent + 1) // 2
