"""Compiled specs: points from anywhere, beside bind and evaluate for each."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, milliseconds, rate

MANY = 1_000_000


def compiled(spec: pm.Spec, sizes: dict[str, int]) -> dict[str, Row]:
    """A spec whose open symbols are tile sizes of up to `sizes`: one point, and a million drawn ones."""
    result, pick = pm.compile(spec), np.random.default_rng(1)
    many = {n: pick.integers(1, most + 1, MANY) for n, most in sizes.items()}
    one = {n: most // 3 for n, most in sizes.items()}
    each = shortest(lambda: pm.evaluate(spec.bind(**one)), 10)
    return {
        "compiled matmul, one point": milliseconds(
            shortest(lambda: result.arrays(one), 50), each, "bind and evaluate"
        ),
        "compiled matmul, a million drawn points": rate(
            MANY / shortest(lambda: result.arrays(many), 3), 1 / each, "bind and evaluate, one by one"
        ),
    }


def shortest(action: Callable[[], object], repeats: int) -> float:
    """Least CPU seconds, which other work disturbs least, after one call that is not counted."""
    action()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)
