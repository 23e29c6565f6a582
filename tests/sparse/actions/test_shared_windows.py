"""Windows of several instances that overlap: an element in more than one is read once for all of them, so
whether it moves depends on what each of them needs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, product

import pytest

from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.schedule.legality import check
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.density import Actual, Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import TENSORS, WINDOWS, hierarchy, product_of, rule
from tests.sparse.actions.test_literal import STATES, ours, ranks, shapes


def spread_windows(draw: random.Random) -> Problem:
    """Rows of a one-dimensional convolution over instances, memories and actions drawn."""
    sizes = {"p": draw.randint(2, 6), "r": draw.randint(1, 3), "n": draw.randint(1, 2)}
    outer = draw.choice([0, draw.randint(1, sizes["p"])])
    whole = outer or sizes["p"]
    tile = draw.randint(1, whole)
    nodes = [StorageNode("DRAM", TENSORS), *([Loop("p", outer)] if outer else [])]
    nodes.append(Loop("p", tile, None, True, "PE", "X"))
    if draw.random() < 0.5:
        nodes.append(StorageNode("GLB", tuple(t for t in TENSORS if draw.random() < 0.5) or ("A",)))
    if draw.random() < 0.5:
        nodes.append(Loop("r", 1))
    nodes.append(Loop("p", draw.randint(1, tile)))
    held = tuple(t for t in TENSORS if draw.random() < 0.5)
    nodes += [*([StorageNode("RF", held)] if held else []), ComputeNode("Z", "MAC")]
    actions = {
        c: tuple(
            rule(draw.choice(["gate", "skip"]), (t,), draw.choice([("A",), ("B",), ("A", "B")]))
            for t in TENSORS
            if draw.random() < 0.4
        )
        for c in ("DRAM", "GLB", "RF")
    }
    if draw.random() < 0.5:
        actions["MAC"] = (rule(draw.choice(["gate", "skip"]), (), draw.choice([("A",), ("A", "B")])),)
    return Problem(product_of(WINDOWS, sizes), hierarchy(actions, -(-whole // tile)), LoopTree(tuple(nodes)))


def problems(seed: int, number: int) -> Iterator[tuple[Problem, random.Random]]:
    draw = random.Random(seed)
    while number:
        problem = spread_windows(draw)
        if not check(problem):
            number -= 1
            yield problem, draw


def compare(found, labels, walked, close: float) -> set[str]:
    """Numbers that are not bounds are those walked; bounds are no less. Returns the labels."""
    for (tensor, node, kind), label in labels.items():
        for state in () if kind == "busiest" else (*STATES, "effectual"):
            key = tensor, node, kind, state
            if label != "bound":
                assert found[key] == pytest.approx(walked[key], rel=close, abs=close), (key, label)
            elif state == "actual":
                assert found[key] >= walked[key] - close, key
    return set(labels.values())


@pytest.mark.parametrize("seed", range(3))
def test_actual_data_under_overlapping_windows(seed: int) -> None:
    """Elements that another instance needs were taken to be eliminated, and the number was called exact."""
    seen = set()
    for problem, draw in problems(seed, 60):
        shape, nonzero, known = shapes(problem), {}, {"Z": dense_data("Z")}
        for t in ("A", "B"):
            points = list(product(*map(range, shape[t])))
            nonzero[t] = set(draw.sample(points, draw.randint(0, min(3, len(points)))))
            coords = [[p[r] for p in nonzero[t]] for r in range(len(shape[t]))]
            tensor = SparseTensor.from_coo(t, ranks(problem, t), shape[t], coords, [1] * len(nonzero[t]))
            known[t] = TensorData(t, Actual.of(tensor), tensor)
        found, labels = ours(problem, known, set())
        seen |= compare(found, labels, Literal(problem)(nonzero, set()), 1e-9)
    assert {"exact", "bound"} <= seen


@pytest.mark.parametrize("seed", range(3))
def test_uniform_densities_under_overlapping_windows(seed: int) -> None:
    """4.0 elements where the mean over all placements is 5.0, and it was called expected."""
    seen = set()
    for problem, draw in problems(100 + seed, 40):
        shape, choices, known = shapes(problem), [], {"Z": dense_data("Z")}
        for t in ("A", "B"):
            points = list(product(*map(range, shape[t])))
            n = draw.randint(0, min(2 if t == "A" else 1, len(points)))
            choices.append(list(combinations(points, n)))
            known[t] = TensorData(t, Uniform.of(ranks(problem, t), shape[t], nnz=n))
        try:
            found, labels = ours(problem, known, set())
        except Refused:
            continue
        walk, mean = Literal(problem), Counter()
        for a, b in product(*choices):
            for key, x in walk({"A": a, "B": b}, set()).items():
                mean[key] += x / (len(choices[0]) * len(choices[1]))
        seen |= compare(found, labels, mean, 1e-9)
    assert {"expected", "bound"} <= seen
