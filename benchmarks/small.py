"""What a person waits for often: a small evaluation, its printed report, the report of many Einsums."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, megabytes, milliseconds
from polymodel.extras import EXTRAS

Seconds = Callable[[Callable[[], object], int], float]
CORE = (
    "islpy-barvinok", "jinja2", "joblib", "lazy_loader", "moocore", "numpy", "pandas", "pydantic", "pyyaml",
    "threadpoolctl",
)  # fmt: skip
EINSUMS, SIZE, TILE = 100, 64, 16


def chain(length: int) -> pm.Spec:
    """So many matmuls in a row, each with a tile of rows in the buffer, one after the other."""
    tensors = [f"T{i}" for i in range(length + 1)]
    return pm.load(
        {
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "tensors": {"may_keep": "All"}},
                    {"type": "Memory", "name": "GLB", "tensors": {"may_keep": "All"}},
                    {"type": "Compute", "name": "MAC"},
                ]
            },
            "workload": {
                "rank_sizes": {"M": SIZE, **{f"N{i}": SIZE for i in range(length + 1)}},
                "bits_per_value": {"All": 8},
                "einsums": [
                    f"T{i + 1}[m, n{i + 1}] = T{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]" for i in range(length)
                ],
            },
            "mapping": {
                "nodes": [
                    {
                        "type": "Storage",
                        "component": "DRAM",
                        "tensors": [*tensors, *(f"W{i}" for i in range(length))],
                    },
                    {"type": "Sequential", "nodes": [_branch(i) for i in range(length)]},
                ]
            },
        }
    )


def _branch(i: int) -> dict[str, Any]:
    nodes = [
        {"type": "Temporal", "rank_variable": "m", "tile_shape": TILE},
        {"type": "Storage", "component": "GLB", "tensors": [f"T{i}", f"T{i + 1}", f"W{i}"]},
        {"type": "Temporal", "rank_variable": f"n{i}", "tile_shape": TILE},
        {"type": "Compute", "einsum": f"T{i + 1}", "component": "MAC"},
    ]
    return {"type": "Nested", "nodes": nodes}


def small(seconds: Seconds) -> dict[str, Row]:
    """Evaluations and their texts; a text is made of a report that was not looked at before."""
    two = pm.load("simple_two_level", "matmul_chain_2/tiled_fused")
    many = chain(EINSUMS)
    rows = {}
    for name, spec, repeats in (("two fused Einsums", two, 15), (f"{EINSUMS} Einsums", many, 3)):
        evaluated = seconds(lambda spec=spec: pm.evaluate(spec), repeats)  # type: ignore[misc]  # a loop's value
        both = seconds(lambda spec=spec: str(pm.evaluate(spec)), repeats)  # type: ignore[misc]  # a loop's value
        rows[f"pm.evaluate, {name}"] = milliseconds(evaluated, both, "with its printed report")
        rows[f"print(report), {name}"] = milliseconds(both - evaluated, evaluated, "its evaluation")
    every = [*EXTRAS, *CORE]
    rows["what an installation takes"] = megabytes(installed(CORE), installed(every), "with all extras")
    return rows


def installed(packages: Sequence[str]) -> int:
    """Bytes of packages and of all that they need, as they are installed here."""
    waiting, seen, total = list(packages), set[str](), 0
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        found = distribution(name)
        places = (Path(str(found.locate_file(f))) for f in found.files or ())
        total += sum(p.stat().st_size for p in places if p.is_file())
        required = (r for r in found.requires or () if ";" not in r)
        waiting += [re.split(r"[^\w.-]", r, maxsplit=1)[0] for r in required]
    return total
