"""Sparse kernels on Tensaurus: counting on data, and asking a density model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, milliseconds
from polymodel.sparse.density import Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.oracle import interpret

Timer = Callable[[Callable[[], object], int], float]
# nell-2 as the Tensaurus paper gives it.
LARGE = (12_000, 9_000, 28_000)


def drawn(shape: tuple[int, ...], nnz: int) -> SparseTensor:
    """Uniform random coordinates with a fixed seed."""
    rng = np.random.default_rng(1)
    coords = np.stack([rng.integers(0, size, nnz) for size in shape])
    return SparseTensor.from_coo("A", ("I", "J", "K"), shape, coords, np.ones(nnz))


def walked(tensor: SparseTensor, lanes: int) -> tuple[int, int, int]:
    """Work and balance from a loop over nonzeros: multiplications for F = 8, largest load, fibers."""
    rows: Counter[int] = Counter()
    fibers: set[tuple[int, int]] = set()
    multiplies = 0
    for i, j, _ in tensor.coords.T.tolist():
        rows[i] += 1
        fibers.add((i, j))
        for _ in range(8):
            multiplies += 1
    loads = [0] * lanes
    for i in sorted(rows):
        loads[loads.index(min(loads))] += rows[i]
    return multiplies + 8 * len(fibers), max(loads), len(fibers)


def executed(timer: Timer) -> dict[str, Row]:
    """The cascade itself: results, every coordinate access and three times, beside a plain interpreter."""
    spec = pm.load("tensaurus/mttkrp")
    assert spec.teaal is not None
    sizes = {"I": 40, "J": 30, "K": 28, "F": 8}
    a = pm.random_tensor(("I", "J", "K"), (40, 30, 28), 16_000 / (40 * 30 * 28), 1)
    dense = {"A": a.to_dense(), "B": np.ones((30, 8)), "C": np.ones((28, 8))}
    walked_through = interpret(spec.teaal, dense, sizes)
    ours = pm.execute(spec, {**dense, "A": a})
    mine = [e.multiplies for e in ours.einsums]
    if mine != [found.multiplies for found in walked_through.values()]:
        raise AssertionError(f"the interpreter does not count {mine} multiplies")
    return {
        f"execute Tensaurus MTTKRP, {a.nnz:,} nonzeros, F = 8": milliseconds(
            timer(lambda: pm.execute(spec, {**dense, "A": a}), 7),
            timer(lambda: interpret(spec.teaal, dense, sizes), 1),
            "a plain interpreter of fibertrees",
        )
    }


def sparse(timer: Timer, nnz: int = 10**7) -> dict[str, Row]:
    """Exact predictions beside a loop over nonzeros and beside sorting them, a model's beside exact ones."""
    small, large = drawn((40, 30, 28), 23_000), drawn(LARGE, nnz)
    model = Uniform(("I", "J", "K"), LARGE, 77_000_000)
    report = pm.tensaurus("MTTKRP", small, F=8)
    mine = report.multiplies, report.stages[0].largest, report.fibers
    if mine != walked(small, 8):
        raise AssertionError(f"a loop over nonzeros counts {walked(small, 8)}, not {mine}")
    counted = timer(lambda: pm.tensaurus("MTTKRP", large), 1)
    return {
        **executed(timer),
        f"Tensaurus MTTKRP, {small.nnz:,} nonzeros, F = 8": milliseconds(
            timer(lambda: pm.tensaurus("MTTKRP", small, F=8), 15),
            timer(lambda: walked(small, 8), 3),
            "a loop over nonzeros that counts work and balance",
        ),
        f"Tensaurus MTTKRP, {large.nnz:,} nonzeros": milliseconds(
            counted, timer(lambda: np.lexsort(large.coords), 1), "sorting the nonzeros by coordinates once"
        ),
        "Tensaurus MTTKRP, model of nell-2, 77 M nonzeros": milliseconds(
            timer(lambda: pm.tensaurus("MTTKRP", model), 5), counted, f"counting {large.nnz:,} nonzeros"
        ),
    }
