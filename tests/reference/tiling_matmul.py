"""Multiplication with reuse: pairs of uniform tiles, traffic of every order, row panels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polymodel.tiling.matmul.panels import panels_of
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.plane.operands import Transposed
from tests.reference.common import Outcome, comparing, sections
from tests.reference.tiling_matrices import matrix

SECONDS = {"AA": None, "AAt": Transposed()}
KNOWN = {
    "matrix", "where", "product", "tile", "orders", "row_panels", "candidate_pairs", "effectual_pairs",
    "effectual_multiplies", "partial_output_nnz", "tile_ops_dense",
    *(f"{letter}_{what}" for letter in "ABZ"
      for what in ("nnz", "words", "tiles_nonempty", "tiled_words", "tile_words_max")),
}  # fmt: skip


def is_matmul(given: Mapping[str, Any]) -> bool:
    """True for files whose records have pairs of tiles."""
    results = given.get("results")
    return isinstance(results, list) and any(isinstance(r, dict) and "effectual_pairs" in r for r in results)


def check(path: Path) -> list[Outcome]:
    """One outcome per record; a record that cannot be compared is a fault."""
    given = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for record in given["results"]:
        name = f"{record.get('matrix')} {record.get('product')} {record.get('tile')}"
        with comparing(Outcome(f"matmul {name}")) as outcome:
            _record(record, outcome, path)
        found.append(outcome)
    return found


def _record(record: Mapping[str, Any], outcome: Outcome, path: Path) -> None:
    sections(record, {"matrix": str, "product": str, "tile": list, "orders": dict})
    outcome.unknown("record", record, KNOWN)
    product = product_of(matrix(record["matrix"], path), SECONDS[record["product"]])
    uniform = UniformTiles(product, tuple(record["tile"]))
    ours: dict[str, int] = {
        "candidate_pairs": uniform.candidates,
        "effectual_pairs": uniform.effectual,
        "effectual_multiplies": product.multiplies,
        "partial_output_nnz": uniform.partial_outputs,
        "tile_ops_dense": uniform.dense_pairs,
    }
    whole, cut = (product.a, product.b, product.z), (uniform.a, uniform.b, uniform.z)
    for letter, tensor, tiles in zip("ABZ", whole, cut, strict=True):
        ours |= {
            f"{letter}_nnz": tensor.nnz,
            f"{letter}_words": tensor.words,
            f"{letter}_tiles_nonempty": tiles.count,
            f"{letter}_tiled_words": tiles.total,
            f"{letter}_tile_words_max": tiles.largest,
        }
    for name, value in ours.items():
        outcome.equal(name, value, record[name])
    for order, theirs in record["orders"].items():
        _order(uniform, order, theirs, outcome)
    for theirs in record.get("row_panels", []):
        panels = panels_of(product, theirs["M"])
        where = f"row panels of {theirs['M']}"
        outcome.equal(f"{where}: panels", panels.count, theirs["panels"])
        outcome.equal(f"{where}: B_read_words", int(panels.b.sum()), theirs["B_read_words"])
        for number, (row, rows) in enumerate(theirs["first_panels"]):
            outcome.equal(f"{where}: start of {number}", int(panels.begins[number]), row)
            outcome.equal(f"{where}: rows of {number}", int(panels.heights[number]), rows)


def _order(uniform: UniformTiles, order: str, theirs: Mapping[str, int], outcome: Outcome) -> None:
    t = uniform.traffic(order)
    ours = {
        "A_fetches": t.a_fetches,
        "B_fetches": t.b_fetches,
        "Z_visits": t.z_visits,
        "A_read_words": t.a_read,
        "B_read_words": t.b_read,
        "Z_read_words": t.z_read,
        "Z_write_words": t.z_write,
        "total_words": t.words,
    }
    outcome.unknown(order, theirs, ours)
    for name, value in ours.items():
        outcome.equal(f"{order} {name}", value, theirs[name])
