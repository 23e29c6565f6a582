"""How fast polymodel answers, each time beside a peer measured in the same run: `make bench`.

Prints a table and writes `benchmarks/results.json`: name -> value, unit, peer (the peer's value), ratio
(value over peer: below 1 is faster than the peer) and peer_name. Values are medians; nothing is asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import polymodel as pm
from polymodel.analysis.engine import Problem

HERE = Path(__file__).resolve().parent
SMALL = {"M": 16, "N0": 8, "N1": 12, "N2": 10}
Row = dict[str, float | str]


def seconds(action: Callable[[], object], repeats: int) -> float:
    """Median wall time of `action`, after one call that is not counted; no repeat remembers counts."""
    action()
    times = []
    for _ in range(repeats):
        forget()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return median(times)


def forget() -> None:
    """Empty every cache of counts in polymodel's modules."""
    for name, module in list(sys.modules.items()):
        if name.startswith("polymodel."):
            for member in vars(module).values():
                clear = getattr(member, "cache_clear", None)
                if callable(clear):
                    clear()


def process(*arguments: str) -> Callable[[], object]:
    """A fresh interpreter with these arguments."""
    return lambda: subprocess.run(
        [sys.executable, *arguments], cwd=HERE.parent, check=True, stdout=subprocess.DEVNULL
    )


def problem(arch: str, name: str, **variables: int) -> Problem:
    spec = pm.load(arch, name, **variables)
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def row(value: float, peer: float, peer_name: str) -> Row:
    return {
        "value": round(value * 1e3, 3),
        "unit": "ms",
        "peer": round(peer * 1e3, 3),
        "ratio": round(value / peer, 4),
        "peer_name": peer_name,
    }


def engines() -> dict[str, Row]:
    """Evaluation once imported, against the element-by-element engine."""
    from polymodel.analysis.enumerate import ENGINE as walker
    from polymodel.analysis.exact import ENGINE as exact

    small = problem("simple_two_level", "matmul_chain_2/tiled_fused", **SMALL)
    full = problem("simple_two_level", "matmul_chain_2/tiled_fused")
    layer = problem("tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048)
    same = "enumerate engine, the same case"
    walked = seconds(lambda: pm.evaluate_problem(small, engine="enumerate"), 3)
    return {
        "two fused Einsums, small": row(
            seconds(lambda: pm.evaluate_problem(small, engine="exact"), 15), walked, same
        ),
        "two fused Einsums": row(
            seconds(lambda: pm.evaluate_problem(full, engine="exact"), 15),
            seconds(lambda: pm.evaluate_problem(full, engine="enumerate"), 1),
            same,
        ),
        "GPT-3 layer, 10 Einsums, fused": row(
            seconds(lambda: pm.evaluate_problem(layer, engine="exact"), 5),
            walked,
            "enumerate engine, two small Einsums (this layer has 4e11 operations)",
        ),
        "element-level live, two fused Einsums, small": row(
            seconds(lambda: exact.analyse(small, live=True), 5),
            seconds(lambda: walker.analyse(small, live=True), 3),
            same,
        ),
    }


def processes() -> dict[str, Row]:
    """Whole processes, against importing one of the libraries that are loaded only when needed."""
    pandas = seconds(process("-c", "import pandas"), 5)
    evaluate = ("-m", "polymodel.cli", "evaluate", "simple_two_level", "matmul_chain_2/tiled_fused")
    return {
        "import polymodel (process)": row(
            seconds(process("-c", "import polymodel"), 5), pandas, "import pandas (process)"
        ),
        "polymodel evaluate, small example (process)": row(
            seconds(process(*evaluate), 5), pandas, "import pandas (process)"
        ),
    }


def main() -> None:
    rows = {**engines(), **processes()}
    width = max(map(len, rows))
    print(f"{'':{width}}  {'value':>10}  {'peer':>10}  {'ratio':>8}  peer")
    for name, r in rows.items():
        print(f"{name:{width}}  {r['value']:>7} ms  {r['peer']:>7} ms  {r['ratio']:>8}  {r['peer_name']}")
    (HERE / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
