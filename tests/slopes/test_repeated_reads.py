"""Slopes of Einsums that read several elements of a tensor, or the generation before of what they make: the
curve is that of all mappings, each of them evaluated."""

from __future__ import annotations

from itertools import chain, combinations, permutations, product
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.reuse import Reuse
from polymodel.slopes.levels import plain_hierarchy
from polymodel.workload.einsum import Cascade

Figures = tuple[int, int]
GRID = {"p": "0 <= p < 6", "m": "0 <= m < 4"}
BLOCK = "Z[X=x,Y=y] = A[X=x,Y=y] + A[X=x+1,Y=y] + A[X=x,Y=y+1] + A[X=x+1,Y=y+1]"
RUNNING = "S[P=p+1, m] = S[p, m] + A[p, m]"


def loaded(text: str, shape: dict[str, str], init: Any = None) -> Spec:
    work: dict[str, Any] = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    if init is not None:
        work |= {"init": {"S": init}, "generational": ["P"]}
    return pm.load({"schema_version": 1, "workload": work})


def subsets(items: Any) -> Any:
    return chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))


def evaluated(
    cascade: Cascade, order: tuple[str, ...], tiles: dict[str, int], kept: tuple[str, ...]
) -> Figures:
    """Elements of the largest tiles in the buffer, and what moves at the backing storage."""
    (one,) = cascade.einsums
    nodes: list[Node] = [StorageNode("DRAM", one.tensors), *(Loop(v, tiles[v]) for v in order)]
    nodes += [StorageNode("Buffer", kept, Reuse.SLIDE)] if kept else []
    tree = LoopTree((*nodes, ComputeNode(one.name, "MAC")))
    analysis = evaluate_problem(Problem(cascade, plain_hierarchy(), tree)).analysis
    held = sum(b.tile_max for b in analysis.buffets if b.component == "Buffer")
    return held, sum(t.reads + t.writes for t in analysis.traffic if t.component == "DRAM")


def listed(spec: Spec, every: bool, bypass: bool) -> list[Figures]:
    """The curve of all mappings: each set and order of loops, each tile size, each set of tensors kept."""
    (one,) = spec.workload.einsums
    sizes = {v: high - low + 1 for v, (low, high) in zip(one.rank_variables, one.bounds, strict=True)}
    found = set()
    for kept in subsets(one.tensors) if bypass else [one.tensors]:
        for order in chain.from_iterable(map(permutations, subsets(sizes))):
            choices = ([t for t in range(1, sizes[v]) if every or sizes[v] % t == 0] for v in order)
            for tiles in product(*choices):
                found.add(evaluated(spec.workload, order, dict(zip(order, tiles, strict=True)), kept))
    return sorted(p for p in found if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in found))


CASES = (
    ("Z[X=x] = A[X=x-1] + A[X=x+1]", {"x": "1 <= x < 9"}, None, False, False),
    (RUNNING, GRID, 0, False, False),
    ("Z[X=x,m] = A[X=x,m] * A[X=x+1,m] * B[m]", {"x": "0 <= x < 6", "m": "0 <= m < 4"}, None, False, True),
    (BLOCK, {"x": "0 <= x < 6", "y": "0 <= y < 4"}, None, False, False),
    (BLOCK, {"x": "0 <= x < 5", "y": "0 <= y < 4"}, None, True, False),
    (RUNNING, GRID, 1, False, True),
    ("S[P=p+1, m] = S[p, m] * A[m]", {"p": "0 <= p < 5", "m": "0 <= m < 4"}, 1, True, True),
    ("S[P=p+1, m, n] = S[p, m, n] * A[m] * B[p, n]", {**GRID, "n": "0 <= n < 2"}, 1, False, True),
)


@pytest.mark.parametrize(
    ("text", "shape", "init", "every", "bypass"),
    [c if i < 2 else pytest.param(*c, marks=pytest.mark.slow) for i, c in enumerate(CASES)],
)
def test_the_curve_is_that_of_all_mappings(
    text: str, shape: dict[str, str], init: float | None, every: bool, bypass: bool
) -> None:
    spec = loaded(text, shape, init)
    slope = pm.ski_slope(spec, tiles="all" if every else "divisors", bypass=bypass)
    assert [(p.capacity, p.accesses) for p in slope.points] == listed(spec, every, bypass)
    assert slope.points[-1].accesses == slope.least


@pytest.mark.parametrize(
    ("text", "init", "told"),
    [
        ("S[P=p+1, m] = S[p, m] + S[P=p-1, m]", 0, "at another step than the preceding generation"),
        (RUNNING, "T", "reads a tensor in place of what is before the first generation of S"),
        ("S[P=p+1] = S[p] * A[p, m]", 1, "carries S forward and sums up over m"),
        ("Z[P=p, M=m] = A[N=p] * A[N=m]", None, "slopes cover elements that stand evenly apart"),
    ],
)
def test_what_has_no_slope_is_refused(text: str, init: Any, told: str) -> None:
    with pytest.raises(pm.Refused, match=told):
        pm.ski_slope(loaded(text, GRID, init))
