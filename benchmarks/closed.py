"""Closed forms: how fast a symbolic report opens, and its numbers beside the exact engine's."""

from __future__ import annotations

import time
from collections.abc import Callable

import polymodel as pm
from benchmarks.rows import Row, milliseconds
from polymodel.analysis.result import Problem
from polymodel.report.closed import TABLES
from polymodel.report.closed import symbolic_report as report_of


def best(action: Callable[[], object], repeats: int = 3) -> float:
    """Shortest wall time in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def closed() -> dict[str, Row]:
    """The GPT-3 layer with a symbol for every tile size (13), and its evaluation by closed forms."""
    import sympy  # noqa: F401  # its import is not what is timed

    spec = pm.load("tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048)
    assert spec.mapping is not None
    layer = Problem(spec.workload, spec.arch, spec.mapping)
    exact = best(lambda: pm.evaluate_problem(layer, engine="exact"))

    def opened() -> object:
        result = report_of(layer, tiles=True)
        return [result.table(name).frame() for name in TABLES]

    def slowest_cell() -> float:
        slowest = 0.0
        for name in TABLES:
            table = report_of(layer, tiles=True).table(name)
            for i in range(len(table)):
                for column in table.columns:
                    start = time.perf_counter()
                    table.cell(i, column)
                    slowest = max(slowest, time.perf_counter() - start)
        return slowest

    same = "exact engine, one evaluation of the same layer"
    return {
        "GPT-3 layer, closed forms, all tables in SymPy": milliseconds(best(opened), exact, same),
        "GPT-3 layer, closed forms, slowest cell": milliseconds(slowest_cell(), exact, same),
        "GPT-3 layer, evaluated by closed forms": milliseconds(
            best(lambda: pm.evaluate_problem(layer, engine="symbolic")), exact, same
        ),
    }
