"""Loops over a rank with index math: values, iterations by hand, and orders that no loop nest has."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import refused

QS = ("Q2", "Q1", "Q0")
LINE = {"I": ["W"], "F": ["S"], "O": ["Q"]}
PLANE = {"I": ["H", "W"], "F": ["R", "S"], "O": ["P", "Q"]}


def spec(declared: dict[str, list[str]], expression: str, order: list[str], **parts: list[str]) -> pm.Spec:
    mapping: dict[str, Any] = {"loop-order": {"O": order}}
    if parts:
        mapping["partitioning"] = {"O": parts}
    return pm.load({"einsum": {"declaration": declared, "expressions": [expression]}, "mapping": mapping})


def data(declared: dict[str, list[str]], **sizes: int) -> dict[str, pm.SparseTensor]:
    inputs = {t: ranks for t, ranks in declared.items() if t != "O"}
    return {
        t: pm.random_tensor(ranks, [sizes[r] for r in ranks], 0.6, seed=k)
        for k, (t, ranks) in enumerate(inputs.items())
    }


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("order", [["W", "Q"], ["Q", "W"]])
def test_iterations_are_those_of_the_fibers(order: list[str], stride: int) -> None:
    """W and Q: every w that I holds, and for it every q for which F holds w - stride * q. Q and W: for every
    q the w of I at which F holds something."""
    expression = f"O[q] = I[{stride}*q + s] * F[s]"
    given = data(LINE, W=9, S=3)
    image, window = (given[t].to_dense() for t in "IF")
    run = pm.execute(spec(LINE, expression, order), given, rank_sizes={"Q": 4})
    assert run.check()[0].agrees
    places = [(w, q) for w in range(9) for q in range(4) if 0 <= w - stride * q < 3]
    met = sum(1 for w, q in places if image[w] and window[w - stride * q])
    outer = np.count_nonzero(image) if order[0] == "W" else 4
    assert [a.iterations for a in run.einsums[0].accesses] == [outer, met]
    counted = pm.execute(spec(LINE, expression, order), given, rank_sizes={"Q": 4}, values=False)
    assert counted.einsums[0].accesses == run.einsums[0].accesses


@pytest.mark.parametrize("order", [*permutations("HWPQ"), *permutations("PRWQ")])
def test_orders_of_two_windows(order: tuple[str, ...]) -> None:
    given = data(PLANE, H=5, W=6, R=2, S=3)
    found = spec(PLANE, "O[p, q] = I[p + r, q + s] * F[r, s]", [*order])
    run = pm.execute(found, given, rank_sizes={"P": 4, "Q": 4})
    assert run.check()[0].agrees


@pytest.mark.parametrize("order", [["W1", "W0", "Q"], ["W1", "Q", "W0"], ["Q", "W1", "W0"]])
def test_the_rank_may_be_split(order: list[str]) -> None:
    found = spec(LINE, "O[q] = I[q + s] * F[s]", order, W=["uniform_shape(4)"])
    assert pm.execute(found, data(LINE, W=9, S=3), rank_sizes={"Q": 7}).check()[0].agrees


@pytest.mark.parametrize("stride", [1, 2])
def test_iterations_inside_the_tiles_of_a_rank_that_follows(stride: int) -> None:
    """Tiles of two of Q, with what they reach of W: all w of I there, and for each the q of the tile for
    which F holds w - stride * q. A tile for which I has nothing is not visited."""
    order, parts = ["Q1", "W0", "Q0"], {"Q": ["uniform_shape(2)"], "W": ["follow(Q)"]}
    given = data(LINE, W=9, S=3)
    image, window = (given[t].to_dense() for t in "IF")
    image[2:5] = 0
    given["I"] = pm.SparseTensor.from_dense("I", ["W"], image)
    run = pm.execute(
        spec(LINE, f"O[q] = I[{stride}*q + s] * F[s]", order, **parts), given, rank_sizes={"Q": 4}
    )
    assert run.check()[0].agrees
    tiles = [(a, [w for w in range(stride * a, stride * (a + 1) + 3) if w < 9 and image[w]]) for a in (0, 2)]
    met = [
        (w, q)
        for a, reached in tiles
        for w in reached
        for q in (a, a + 1)
        if 0 <= w - stride * q < 3 and window[w - stride * q]
    ]
    counts = [sum(1 for _, reached in tiles if reached), sum(len(reached) for _, reached in tiles), len(met)]
    assert [a.iterations for a in run.einsums[0].accesses] == counts


@pytest.mark.parametrize("order", [(*QS[:k], "W0", *QS[k:]) for k in range(4)])
def test_a_loop_inside_or_around_the_tiles_that_it_follows(order: tuple[str, ...]) -> None:
    splits = ["uniform_shape(4)", "uniform_shape(2)"]
    found = spec(LINE, "O[q] = I[q + s] * F[s]", [*order], Q=splits, W=["follow(Q)"])
    assert pm.execute(found, data(LINE, W=9, S=3), rank_sizes={"Q": 7}).check()[0].agrees


@pytest.mark.parametrize("order", [["W", "Q"], ["Q", "W"]])
def test_an_index_that_falls_as_its_last_loop_rises(order: list[str]) -> None:
    found = spec(LINE, "O[q] = I[w] * F[w + -2*q]", order)
    run = pm.execute(found, data(LINE, W=9, S=3), rank_sizes={"Q": 4})
    image, window = (t.to_dense() for t in run.tensors.values())
    wanted = [sum(image[w] * window[w - 2 * q] for w in range(9) if 0 <= w - 2 * q < 3) for q in range(4)]
    assert list(run.results["O"].to_dense()) == wanted


def test_a_variable_of_the_output_keeps_its_loop() -> None:
    with refused("unsupported-partitioning", "W"):
        pm.execute(
            spec(LINE, "O[q] = I[q + s] * F[s]", ["W", "S"]), data(LINE, W=9, S=3), rank_sizes={"Q": 7}
        )
    with refused("unsupported-partitioning", "W"):  # s of 2*s has no loop
        pm.execute(
            spec(LINE, "O[q] = I[q + 2*s] * F[s]", ["W", "Q"]), data(LINE, W=9, S=3), rank_sizes={"Q": 5}
        )
