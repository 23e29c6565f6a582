"""HighLight: degrees of sparsity composed of simple patterns, and the remaining work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.sparse import SparseReport
from polymodel.sparse.density import Blocks, FixedStructured

# Kept blocks out of a number of blocks, and kept values of the four of each block: ranks 1 and 0 of the
# pattern.
OUTER = ((4, 4), (4, 5), (4, 6), (4, 7))
INNER = ((4, 4), (2, 4), (1, 4))
# A length divisible by the lengths of all patterns; 16 rows, and 16 columns of the other operand.
LENGTH, ROWS = 4 * 4 * 5 * 3 * 7, 16
Pattern = tuple[tuple[int, int], tuple[int, int]]


def structured(pattern: Pattern) -> Blocks:
    """Return the density model of a matrix of ROWS x LENGTH with such a pattern along its rows."""
    (blocks, of_blocks), (values, of_values) = pattern
    grid = (ROWS, LENGTH // of_values)
    return Blocks.of(
        ("M", "K"), (ROWS, LENGTH), (1, of_values),
        FixedStructured(("M", "K"), grid, blocks, of_blocks),
        FixedStructured(("M", "K"), (1, of_values), values, of_values),
    )  # fmt: skip


@cache
def run(pattern: Pattern) -> SparseReport:
    """Evaluate a product whose first operand has the pattern."""
    (blocks, of_blocks), (values, of_values) = pattern
    return multiplied(
        {
            "blocks": {
                "size": [1, of_values],
                "arrangement": {"fixed_structured": {"n": blocks, "m": of_blocks}},
                "fill": {"fixed_structured": {"n": values, "m": of_values}},
            }
        }
    )


def multiplied(density: dict[str, Any]) -> SparseReport:
    """Evaluate a product on 16 multipliers, one per row, that skip the zeros of the first operand."""
    actions = [{"name": way, "energy": 0, "throughput": 1e18} for way in ("read", "write")]
    spec: dict[str, Any] = {
        "arch": {"nodes": [
            {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}, "actions": actions},
            {"type": "Container", "name": "PE",
             "spatial": [{"name": "X", "fanout": ROWS, "may_reuse": "All"}]},
            {"type": "Compute", "name": "MAC",
             "actions": [{"name": "compute", "energy": 1e-12, "throughput": 1e9}],
             "sparse": {"actions": [{"skip": "compute", "on": "A"}]}},
        ]},
        "workload": {
            "rank_sizes": {"M": ROWS, "K": LENGTH, "N": ROWS}, "bits_per_value": {"All": 8},
            "densities": {"A": density}, "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
        },
        "mapping": {"nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
            {"type": "Spatial", "rank_variable": "m", "tile_shape": 1, "component": "PE", "name": "X"},
            {"type": "Temporal", "rank_variable": "n", "tile_shape": 1},
            {"type": "Temporal", "rank_variable": "k", "tile_shape": 1},
            {"type": "Compute", "einsum": "Z", "component": "MAC"},
        ]},
    }  # fmt: skip
    result = evaluate(load(spec)).sparse
    assert result is not None
    return result


def sparsity(pattern: Pattern) -> float:
    """Return the percentage of zeros."""
    return 100 * (1 - structured(pattern).density)


def busiest(report: SparseReport) -> float:
    """Return the operations of the busiest multiplier divided by the mean over all multipliers."""
    (row,) = report.table("compute").records()
    return float(row["imbalance"] or 0)


def figures() -> Iterator[PublishedFigure]:
    rounded = "equal to the digits that are printed"
    yield PublishedFigure("3:4 of 2:4: zeros", "%", 62.5, sparsity(((3, 4), (2, 4))))
    yield PublishedFigure("4:6 of 1:4: zeros", "%", 83.3, sparsity(((4, 6), (1, 4))), rounded)
    degrees = {round(sparsity(p), 9) for p in product(OUTER, INNER)}
    yield PublishedFigure("{4:4, 4:5, 4:6, 4:7} of {4:4, 2:4, 1:4}: degrees", "degrees", 12, len(degrees))
    yield PublishedFigure("the same: least zeros", "%", 0, round(min(degrees)))
    yield PublishedFigure("the same: most zeros", "%", 86, max(degrees), rounded)
    last = (OUTER[-1], INNER[-1])
    found, dense = run(last), run((OUTER[0], INNER[0]))
    random = multiplied({"uniform": {"density": structured(last).density}})
    yield PublishedFigure(
        "4:7 of 1:4: times as fast as dense", "times", "zeros become latency",
        dense.total_latency / found.total_latency,
        f"each multiplier has as much to do; at random places the busiest of {ROWS} has "
        f"{busiest(random):.2f} times the mean",
    )  # fmt: skip
    yield PublishedFigure(
        "energy times delay, geometric mean over existing designs", "times", "up to 6.4", None,
        "of designs whose energies and mappings were not at hand",
    )  # fmt: skip


EXHIBIT = Exhibit(
    "highlight",
    "HighLight: hierarchical structured sparsity",
    "Wu et al., MICRO 2023: its abstract, and public notes on lecture slides about it (L08, 58 and 64)",
    "Blocks that are arranged and filled by fixed patterns; 16 multipliers that skip zeros, a row on each.",
    figures,
)
