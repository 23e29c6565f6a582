"""Loops over a rank with index math: values, iterations by hand, and orders that no loop nest has."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import refused

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
