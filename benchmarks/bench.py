"""How fast polymodel answers, each time beside a peer measured in the same run: `make bench`.

With `LONG=1` (`--long`) also what takes minutes: AccelForge's search on every GPT-3 problem. `ONLY=products`
(`--only products`) measures one part by itself and writes no file.

Prints a table and writes `benchmarks/results.json`: name -> value, unit, peer (the peer's value), ratio
(value over peer: below 1 is faster than the peer; for rates, above 1) and peer_name.
Values are medians; no speed is asserted, only that AccelForge and polymodel count the same
and that what AccelForge's search finds does not beat what ours finds.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

import polymodel as pm
from benchmarks import accelforge_peer
from benchmarks.accelerated import accelerated
from benchmarks.closed import closed
from benchmarks.compiled import compiled
from benchmarks.exact import exact
from benchmarks.explored import explored
from benchmarks.fused import fused
from benchmarks.machines import machines
from benchmarks.pruning import pruning
from benchmarks.rows import Row, milliseconds, rate, table
from benchmarks.slopes import slopes
from benchmarks.small import before_and_after, small
from benchmarks.sparse import sparse
from benchmarks.sparse_products import products
from benchmarks.sparse_sweeps import sparse_sweeps
from benchmarks.tied import tied
from benchmarks.tiling import tiling
from benchmarks.tiling_matmul import tiling_matmul
from benchmarks.tpu_like import tpu_like
from polymodel.analysis.result import Problem
from polymodel.sweeps.values import Choice

HERE = Path(__file__).resolve().parent
CHAIN = "sweep a fused chain of three matmuls, 7 symbols"
SMALL = {"M": 16, "N0": 8, "N1": 12, "N2": 10}


Clock = Callable[[], float]


def seconds(action: Callable[[], object], repeats: int, clock: Clock = time.perf_counter) -> float:
    """Median time of `action` (wall, or by another clock), after one call that is not counted; no repeat
    remembers counts."""
    action()
    times = []
    for _ in range(repeats):
        forget()
        start = clock()
        action()
        times.append(clock() - start)
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


def engines() -> dict[str, Row]:
    """Evaluation once imported, against the element-by-element engine."""
    from polymodel.analysis.enumerate import ENGINE as walker
    from polymodel.analysis.exact import ENGINE as exact

    small = problem("simple_two_level", "matmul_chain_2/tiled_fused", **SMALL)
    full = problem("simple_two_level", "matmul_chain_2/tiled_fused")
    layer = problem("tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048)
    conv = problem("simple_two_level", "conv2d/row_bands", P=224, Q=224, C=64, M=64)
    same = "enumerate engine, the same case"
    walked = seconds(lambda: pm.evaluate_problem(small, engine="enumerate"), 3)
    return {
        "two fused Einsums, small": milliseconds(
            seconds(lambda: pm.evaluate_problem(small, engine="exact"), 15), walked, same
        ),
        "two fused Einsums": milliseconds(
            seconds(lambda: pm.evaluate_problem(full, engine="exact"), 15),
            seconds(lambda: pm.evaluate_problem(full, engine="enumerate"), 1),
            same,
        ),
        "GPT-3 layer, 10 Einsums, fused": milliseconds(
            seconds(lambda: pm.evaluate_problem(layer, engine="exact"), 5),
            walked,
            "enumerate engine, two small Einsums (this layer has 4e11 operations)",
        ),
        "element-level live, two fused Einsums, small": milliseconds(
            seconds(lambda: exact.analyse(small, live=True), 5),
            seconds(lambda: walker.analyse(small, live=True), 3),
            same,
        ),
        "element-level live, GPT-3 layer": milliseconds(
            seconds(lambda: exact.analyse(layer, live=True), 5),
            seconds(lambda: exact.analyse(layer), 5),
            "the same analysis without it",
        ),
        "element-level live, 3x3 convolution of 224 x 224 x 64": milliseconds(
            seconds(lambda: exact.analyse(conv, live=True), 5),
            seconds(lambda: exact.analyse(conv), 5),
            "the same analysis without it",
        ),
    }


def of_children() -> float:
    """Seconds of a processor, the system's among them, that processes started from here have taken."""
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


def processes() -> dict[str, Row]:
    """Whole processes, in time of a processor, against importing a library that is loaded when needed."""
    pandas = seconds(process("-c", "import pandas"), 5, of_children)
    rows = {"import polymodel (process)": ("-c", "import polymodel")}
    for name, files in (
        ("the README's first", ("matmul/output_stationary", "simple_two_level")),
        ("two fused Einsums", ("simple_two_level", "matmul_chain_2/tiled_fused")),
    ):
        rows[f"polymodel evaluate, {name} (process)"] = ("-m", "polymodel", "evaluate", *files)
    return {
        name: milliseconds(seconds(process(*line), 10, of_children), pandas, "import pandas (process)")
        for name, line in rows.items()
    }


def first_look() -> dict[str, Row]:
    """What a person waits for at first, beside what it took before that was worked on."""
    line = process("-m", "polymodel", "evaluate", "matmul/output_stationary", "simple_two_level")
    line()
    times = [of_children()]
    for _ in range(10):
        line()
        times.append(of_children())
    return before_and_after(min(late - early for early, late in pairwise(times)))


def spread(count: int, most: int) -> list[int]:
    """`count` sizes from 1 to `most`, evenly apart, most of them no divisors."""
    return sorted({1 + i * (most - 1) // (count - 1) for i in range(count)})


def template(arch: str, workload: str, loops: str, **variables: int) -> pm.Spec:
    """A spec with a mapping written `DRAM:A,B m:TM GLB:A,B Z@MAC`."""
    text = ["schema_version: 1", "mapping:", "  nodes:"]
    for word in loops.split():
        left, _, right = word.partition(":")
        if "@" in word:
            einsum, component = word.split("@")
            text.append(f"  - !Compute {{einsum: {einsum}, component: {component}}}")
        elif left[0].islower():
            text.append(f"  - !Temporal {{rank_variable: {left}, tile_shape: {right}}}")
        else:
            text.append(f"  - !Storage {{component: {left}, tensors: [{right}]}}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mapping.yaml"
        path.write_text("\n".join(text) + "\n", encoding="utf-8")
        return pm.load(
            HERE.parent / "arch" / f"{arch}.yaml",
            HERE.parent / "workloads" / f"{workload}.yaml",
            path,
            **variables,
        )


def grids() -> dict[str, tuple[pm.Spec, dict[str, Choice]]]:
    """The grids of `sweeps`, each of more than 10^8 points: name -> spec and values of its symbols."""
    matmul = template(
        "edge_npu", "matmul",
        "DRAM:A,B,C m:TM1 n:TN1 k:TK1 SRAM:A,B,C m:TM0 n:TN0 k:TK0 Register:A,B,C Matmul@MAC",
        M=1024, N=1024, K=1024,
    )  # fmt: skip
    conv = template(
        "simple_two_level", "conv2d",
        "DRAM:I,F,O m:TM c:TC p:TP q:TQ r:TR s:TS GLB:I,F,O Conv@MAC", M=64, C=64, P=56, Q=56,
    )  # fmt: skip
    levels = {f"T{v}{level}": spread(30, 1024) for level in "10" for v in "MNK"}
    widths = dict.fromkeys(("TN0", "TN1", "TN2", "TN3", "TQ1", "TQ2"), spread(14, 256))
    sizes = {"TM": range(1, 65), "TC": range(1, 65), "TP": range(1, 57), "TQ": range(1, 57)}
    return {
        "sweep a matmul, three levels, 6 symbols": (matmul, dict(levels)),
        CHAIN: (accelforge_peer.spec(), {"TM": spread(16, 512), **widths}),
        "sweep a conv2d, 6 symbols": (conv, {**sizes, "TR": [1, 2, 3], "TS": [1, 2, 3]}),
    }


def sweeps() -> tuple[dict[str, Row], list[str]]:
    """Tile points per second of a sweep on one core, all metrics, against `evaluate` in a loop.

    The fused chain also against AccelForge; second, what it counts otherwise than we do.
    """
    rows: dict[str, Row] = {}
    for name, (spec, symbols) in grids().items():
        found = pm.sweep(spec, symbols, prune=False)  # every point, for its rate
        bound = found.spec(found.best())
        one = seconds(lambda bound=bound: pm.evaluate(bound), 5)
        shown = f"{name}, {found.evaluated:.2g} points"
        rows[shown] = rate(found.rate, 1 / one, "evaluate in a loop, one point at a time")
        front = pm.sweep(spec, symbols)
        if not front.frame.equals(found.frame):
            raise AssertionError(f"{name}: the pruned front is not that of the whole grid")
        rows[f"{shown}: the front"] = rate(
            found.evaluated / front.seconds, found.rate, "the same front with every point evaluated"
        )
        if name == CHAIN:
            # CPU time, which other work on the machine disturbs least.
            busy = seconds(lambda bound=bound: pm.evaluate(bound), 5, time.process_time)
            forged, differences = accelforge_peer.rows(busy, found.rate, f"{shown}, beside AccelForge")
            rows |= forged
    return rows, differences


def on_accelerator() -> dict[str, Row]:
    """The grids of `sweeps` on an accelerator, and one of 9 x 10^9 points; nothing where none is there."""
    name = "sweep a matmul, three levels, 6 symbols"
    levels = {f"T{v}{level}": spread(64, 1024) for level in "10" for v in "MNK"}
    return accelerated(grids(), {name: (grids()[name][0], levels)})


def points() -> dict[str, Row]:
    """A matmul of two levels as a function of three tile sizes."""
    loops = "DRAM:A,B,C m:TM n:TN GLB:C k:TK GLB:A,B Matmul@MAC"
    spec = template("simple_two_level", "matmul", loops, M=512, N=512, K=512)
    return compiled(spec, {"TM": 512, "TN": 512, "TK": 512})


def workers() -> dict[str, Row]:
    """Two processes against one on a large grid."""
    conv = template(
        "simple_two_level", "conv2d",
        "DRAM:I,F,O m:TM c:TC p:TP q:TQ r:TR s:TS GLB:I,F,O Conv@MAC", M=64, C=64, P=112, Q=112,
    )  # fmt: skip
    sizes: dict[str, Choice] = {
        "TM": range(1, 65), "TC": range(1, 65), "TP": range(1, 113), "TQ": range(1, 113),
        "TR": [1, 2, 3], "TS": [1, 2, 3],
    }  # fmt: skip
    one, two = (pm.sweep(conv, sizes, workers=n, prune=False) for n in (1, 2))
    name = f"sweep a conv2d with two workers, {two.evaluated:.2g} points"
    return {name: rate(two.rate, one.rate, "one worker")}


# What needs no other part before it, in the order in which it is measured.
PARTS: dict[str, Callable[[], dict[str, Row]]] = {
    "engines": engines, "exact": exact, "fused": partial(fused, seconds), "closed": closed,
    "processes": processes, "small": partial(small, forget), "slopes": slopes, "first-look": first_look,
    "sparse": partial(sparse, seconds), "products": products, "tied": tied,
    "tiling": partial(tiling, seconds), "tiling-matmul": partial(tiling_matmul, seconds),
    "accelerator": on_accelerator, "points": points, "pruning": pruning, "sparse-sweeps": sparse_sweeps,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure polymodel beside its peers.")
    parser.add_argument("--long", action="store_true", help="also the peers that take minutes")
    parser.add_argument("--only", choices=sorted(PARTS), help="one part by itself")
    asked = parser.parse_args()
    # The parts import large libraries for each other: the collector would search these in each of them.
    gc.collect()
    gc.freeze()
    if asked.only is not None:
        print(table(PARTS[asked.only]()))
        return
    long = asked.long
    # First, so that all three processes start with cold memory.
    paired = workers()
    swept, differences = sweeps()
    searched, beaten = explored(forget, long)
    on_tpu, beaten_there = tpu_like(forget, long)
    designed, beaten_machines = machines()
    rows = {**paired, **swept, **searched, **on_tpu, **designed}
    try:
        for measured in PARTS.values():
            rows |= measured()
    finally:  # what one of them raises does not cost the figures of the others
        print(table(rows))
        (HERE / "results.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    if differences:
        print("AccelForge and polymodel count differently:", *differences, sep="\n", file=sys.stderr)
    beaten += beaten_there + beaten_machines
    if beaten:
        print("What AccelForge finds is better:", *beaten, sep="\n", file=sys.stderr)
    sys.exit(bool(differences or beaten))


if __name__ == "__main__":
    main()
