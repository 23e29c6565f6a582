"""Sparseloop's first figure: a sparse product with bit masks and gating, or with coordinates and skipping."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.sparse import SparseReport

SIZE = 128
WORD = 8
# Density -> cycles with coordinates, and microjoules with coordinates and with masks, as printed by the runs.
PRINTED = {
    0.01171875: (34056, 0.39, 1.34),
    0.02: (58124, 0.62, 1.42),
    0.04: (116247, 1.18, 1.62),
    0.08: (232490, 2.31, 2.04),
    0.1015625: (295152, 2.92, 2.27),
    0.19921875: (578952, 5.77, 3.38),
    0.3984375: (1157904, 11.87, 5.93),
    0.80078125: (3698200, 25.41, 12.29),
}
# Cycles with masks, at every density.
MASK_CYCLES = 2113536
# Actual accesses of the run with coordinates and a density of 13/128.
COUNTED = {
    ("BackingStorage", "A", "reads_fill"): 212992,
    ("BackingStorage", "B", "reads_fill"): 1664,
    ("BackingStorage", "Z", "writes_drain"): 16384,
    ("Buffer", "A", "writes_fill"): 212992,
    ("Buffer", "A", "reads_fill"): 21632,
    ("Buffer", "B", "writes_fill"): 1664,
    ("Buffer", "B", "reads_fill"): 21632,
    ("Reg", "Z", "reads_fill"): 21463,
    ("Reg", "Z", "writes_drain"): 21632,
}
COORDINATE_BITS = 14
FORMATS = {
    "coordinates": {"format": "CP", "cbits": COORDINATE_BITS, "pbits": WORD},
    "masks": {"format": "B", "pbits": WORD},
}
# Picojoules per action of the given number of bits, and words per cycle of 1 ns, from the published tables.
METADATA_BITS, METADATA_READ = 28, 0.7383


def _action(name: str, picojoules: float, bits: int, words: int) -> dict[str, Any]:
    return {"name": name, "energy": picojoules * 1e-12 / bits, "throughput": words * WORD * 1e9}


def _memory(
    name: str, words: int, keep: str, costs: list[dict[str, Any]], sparse: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "Memory", "name": name, "size": words * WORD, "ports": "separate", "tensors": {"keep": keep},
        "actions": costs, "sparse": sparse,
    }  # fmt: skip


def machine(design: str) -> dict[str, Any]:
    """Return a backing store, a buffer for the operands and a register for the result, priced by the
    published tables."""
    formats = {
        tensor: {"rank-order": [row, "K"], row: {"format": "U", "pbits": 0}, "K": FORMATS[design]}
        for tensor, row in (("A", "M"), ("B", "N"))
    }
    spare = "skip" if design == "coordinates" else "gate"
    free = [{"name": f"gated_{way}", "energy": 0, "throughput": WORD * 1e9} for way in ("read", "write")]
    # The table gives 0.009 pJ for the register; the stored runs charge 0.48746 pJ.
    register = [_action("read", 0.48746, WORD, 1), _action("write", 0.48746, WORD, 1)]
    nodes = [
        _memory(
            "BackingStorage", 131072, "All",
            [
                _action("read", 32.2859, 64, 8), _action("write", 26.065, 64, 8),
                _action("metadata_read", 14.0361, METADATA_BITS, 8),
                _action("metadata_write", 10.2583, METADATA_BITS, 8),
            ],
            {"format": formats, "dense_outputs": "Z"},
        ),
        _memory(
            "Buffer", 512, "A | B",
            [
                _action("read", 0.42568, WORD, 2), _action("write", 0.58331, WORD, 2),
                _action("gated_read", 1e-5, WORD, 2),
                _action("metadata_read", METADATA_READ, METADATA_BITS, 2),
                _action("metadata_write", 1.42366, METADATA_BITS, 2),
            ],
            {"format": formats, "actions": [{spare: "A", "on": "B"}, {spare: "B", "on": "A"}]},
        ),
        _memory(
            "Reg", 1, "Z", register + (free if spare == "gate" else []),
            {"actions": [{spare: "Z", "on": ["A", "B"]}], "dense_outputs": "Z"},
        ),
        {"type": "Compute", "name": "MAC",
         "actions": [{"name": "compute", "energy": 0.5608e-12, "throughput": 1e9}]},
    ]  # fmt: skip
    return {"nodes": nodes}


def product(density: float) -> dict[str, Any]:
    """Return Z = A B of 128 x 128 x 128; where the density gives an integer number of nonzeros per row, each
    row has exactly that number."""
    whole = (density * SIZE).is_integer()
    result: dict[str, Any] = (
        {"fixed_structured": {"n": round(density * SIZE), "m": SIZE, "rank": "K"}}
        if whole
        else {"uniform": {"density": density}}
    )
    return {
        "rank_sizes": {"M": SIZE, "N": SIZE, "K": SIZE}, "bits_per_value": {"All": WORD},
        "densities": {"A": result, "B": result}, "einsums": ["Z[m, n] = A[m, k] * B[n, k]"],
    }  # fmt: skip


MAPPING: dict[str, Any] = {
    "nodes": [
        {"type": "Storage", "component": "BackingStorage", "tensors": ["A", "B", "Z"]},
        {"type": "Temporal", "rank_variable": "n", "tile_shape": 1},
        {"type": "Storage", "component": "Buffer", "tensors": ["B"]},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": 1},
        {"type": "Storage", "component": "Buffer", "tensors": ["A"]},
        {"type": "Storage", "component": "Reg", "tensors": ["Z"]},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": 1},
        {"type": "Compute", "einsum": "Z", "component": "MAC"},
    ]
}


@cache
def run(density: float, design: str) -> SparseReport:
    """Evaluate the product on one of the two designs."""
    result = evaluate(
        load({"arch": machine(design), "workload": product(density), "mapping": MAPPING})
    ).sparse
    assert result is not None
    return result


def skipped_coordinates(report: SparseReport) -> float:
    """Return the microjoules spent on reading the coordinates of values that the buffer then skips."""
    rows = report.table("accesses").records()
    skipped = sum(float(r["skipped"] or 0) for r in rows if r["component"] == "Buffer")
    return skipped * COORDINATE_BITS / METADATA_BITS * METADATA_READ * 1e-6


def figures() -> Iterator[PublishedFigure]:
    counted = run(0.1015625, "coordinates")
    happen = {
        (r["component"], r["tensor"], r["kind"]): r["actual"] for r in counted.table("accesses").records()
    }
    for (component, tensor, kind), printed in COUNTED.items():
        actual = happen[component, tensor, kind]
        yield PublishedFigure(
            f"13/128, coordinates: {component} {tensor} {kind}", "words", printed, round(float(actual or 0))
        )
    for density, (cycles, with_coordinates, with_masks) in PRINTED.items():
        for design in FORMATS:
            report, name = run(density, design), f"{density:.3g}, {design}"
            coordinates = design == "coordinates"
            yield PublishedFigure(
                f"{name}: cycles", "cycles", cycles if coordinates else MASK_CYCLES,
                round(report.total_latency * 1e9),
                "ours has a whole number of nonzeros" if coordinates
                else "theirs counts the first value of each output as one more write of its register",
            )  # fmt: skip
            energy = report.total_energy * 1e6
            added = energy + skipped_coordinates(report)
            yield PublishedFigure(
                f"{name}: energy", "uJ", with_coordinates if coordinates else with_masks, energy,
                f"theirs reads the coordinates of what it skips as well; with them ours is {added:.2f}"
                if coordinates
                else "rows without nonzeros store no mask here; theirs counts no mask of B in the buffer",
            )  # fmt: skip


EXHIBIT = Exhibit(
    "sparseloop",
    "Sparseloop: a sparse product with coordinates or with bit masks",
    "Wu et al., Sparseloop, MICRO 2022, figure 1: Accelergy-Project/micro22-sparseloop-artifact, ref_outputs",
    "Machine, energies, mapping and densities as in the artifact; theirs are its stored runs.",
    figures,
)
