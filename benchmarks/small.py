"""What a person waits for often: a small evaluation, its printed report, the report of many Einsums."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, megabytes, milliseconds
from polymodel.libraries import EXTRAS

CORE = (
    "islpy-barvinok", "jinja2", "joblib", "moocore", "numpy", "pandas", "pydantic", "pyyaml", "threadpoolctl",
)  # fmt: skip
EINSUMS, SIZE, TILE, REPEATS = 100, 64, 16, 60
# Seconds of a processor, the least of several, on a commit before small things were made quick, and bytes of
# an installation then; of a machine on which a process that imports numpy takes 0.19 s.
BEFORE = "commit 462d0a38 (fixed figure; import numpy takes 0.19 s there)"
START, ONE, TWO, ONE_PRINTED, TWO_PRINTED = 1.27, 8.97e-3, 15.1e-3, 22.6e-3, 32.1e-3
INSTALLED = 754e6
GOAL = 250e6


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


def small(forget: Callable[[], None]) -> dict[str, Row]:
    """What a person does with a spec: it is loaded, evaluated and its report is printed, each for the first
    time. Seconds of a processor, medians."""
    rows = {}
    for name, load, repeats in (
        ("one Einsum", _one, 15),
        ("two fused Einsums", _two, 15),
        (f"{EINSUMS} Einsums", _many, 3),
    ):
        loaded, evaluated, printed = stages(load, repeats, forget)
        again = load()
        kept = median(cpu(partial(pm.evaluate, again), forget) for _ in range(repeats))
        rows[f"pm.load, {name}"] = milliseconds(loaded, evaluated, "its first evaluation")
        rows[f"pm.evaluate, {name}"] = milliseconds(kept, evaluated, "its first evaluation")
        rows[f"print(report), {name}"] = milliseconds(printed, evaluated, "its evaluation")
    every = [*CORE, *filter(_is_installed, EXTRAS)]
    rows["what an installation takes beside polymodel"] = megabytes(
        installed(CORE), installed(every), "with extras, as here"
    )
    own = sum(p.stat().st_size for p in Path(pm.__file__).parent.rglob("*") if p.is_file())
    rows["what a core installation takes with polymodel"] = megabytes(
        installed(CORE) + own, GOAL, "the goal (fixed)"
    )
    return rows


def before_and_after(start: float) -> dict[str, Row]:
    """What a person waits for, beside what it was before: a spec that was evaluated is evaluated again, and
    the report printed for the first time. `start`: least seconds of a process that evaluates one Einsum."""
    one, two = _one(), _two()
    rows = {
        "core installation beside polymodel, before and after": megabytes(
            installed(CORE), INSTALLED, "before extras (fixed)"
        ),
        "polymodel evaluate (process), before and after": milliseconds(start, START, BEFORE),
    }
    for name, spec, evaluated, printed in (
        ("one Einsum", one, ONE, ONE_PRINTED),
        ("two fused Einsums", two, TWO, TWO_PRINTED),
    ):
        again = least(partial(pm.evaluate, spec))
        reports = iter([pm.evaluate(spec) for _ in range(REPEATS + 1)])
        text = least(lambda reports=reports: str(next(reports)))
        rows[f"pm.evaluate, {name}, before and after"] = milliseconds(again, evaluated, BEFORE)
        rows[f"print(report), {name}, before and after"] = milliseconds(text, printed, BEFORE)
    return rows


def _one() -> pm.Spec:
    return pm.load("matmul", "simple_two_level", "matmul/output_stationary")


def _two() -> pm.Spec:
    return pm.load("simple_two_level", "matmul_chain_2/tiled_fused")


def least(action: Callable[[], object]) -> float:
    """The least seconds of a processor that an action takes after a first time."""
    return min([cpu(action, lambda: None) for _ in range(REPEATS + 1)][1:])


def _many() -> pm.Spec:
    return chain(EINSUMS)


def cpu(action: Callable[[], object], forget: Callable[[], None]) -> float:
    """Seconds of a processor that an action takes which remembers no counts."""
    forget()
    start = process_time()
    action()
    return process_time() - start


def stages(
    load: Callable[[], pm.Spec], repeats: int, forget: Callable[[], None]
) -> tuple[float, float, float]:
    """Seconds of a processor to load a spec, to evaluate it, and to make the text of its report."""
    found = []
    for _ in range(repeats + 1):
        forget()
        begun = process_time()
        spec = load()
        loaded = process_time()
        report = pm.evaluate(spec)
        evaluated = process_time()
        str(report)
        found.append((loaded - begun, evaluated - loaded, process_time() - evaluated))
    load_s, evaluate_s, print_s = (median(times) for times in zip(*found[1:], strict=True))
    return load_s, evaluate_s, print_s


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def installed(packages: Sequence[str]) -> int:
    """Bytes of packages and of all that they need, as they are installed here: the sizes of the files that
    their lists of files name, without rounding to blocks of a disk. Bytecode counts where it was compiled on
    installing (pip does that, and lists it; uv does not, which saves a quarter)."""
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
