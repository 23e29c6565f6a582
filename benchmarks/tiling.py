"""Cutting sparse operands into tiles, beside a naive tiler that sums dense arrays."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, milliseconds
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import Rolled, pattern_of
from polymodel.tiling.tilers.trees import btree

Timer = Callable[[Callable[[], object], int], float]
Dense = np.typing.NDArray[np.uint8]
# Of the matrix whose tiling is to take under 0.05 s: side and nonzeros.
SIDE, NONZEROS = 13_000, 71_594
MORE = 10**5  # of the table of all tilers
CAPACITY, LARGE_CAPACITY = 128, 4096
LARGE = 10**7
SIZES = (10**4, 10**5, 10**6, 10**7)


def drawn(side: int, nonzeros: int, name: str = "A", seed: int = 1) -> SparseTensor:
    """A square matrix with exactly so many uniform random places, from a fixed seed."""
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, side * side, nonzeros))
    while places.size < nonzeros:
        places = np.unique(np.append(places, rng.integers(0, side * side, nonzeros - places.size)))
    coords = np.stack(np.divmod(places, side))
    return SparseTensor.from_coo(name, ("I", "J"), (side, side), coords, np.ones(nonzeros, np.int8))


def naive(a: Dense, b: Dense, capacity: int) -> int:
    """Tiles of a binary tree found by recursion: every candidate tile is summed whole, zeros and all."""

    def tiles(row: int, col: int, height: int, width: int) -> int:
        held = sum(int(x[row : row + height, col : col + width].sum(dtype=np.int64)) for x in (a, b))
        if held <= capacity:
            return 1
        if width > height:
            half = width // 2
            return tiles(row, col, height, half) + tiles(row, col + half, height, width - half)
        half = height // 2
        return tiles(row, col, half, width) + tiles(row + half, col, height - half, width)

    return tiles(0, 0, *a.shape)


def process(nonzeros: int, tiler: str) -> dict[str, float]:
    """Seconds and peak memory of `pm.tile` on two operands with so many nonzeros, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.tiling", str(nonzeros), tiler]
    done = subprocess.run(
        command, cwd=Path(__file__).resolve().parent.parent, check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def large(nonzeros: int, tiler: str) -> dict[str, float]:
    """What `process` runs: the inputs are made first, and told apart."""
    side = max(nonzeros // 10, 10)
    a, b = drawn(side, nonzeros), drawn(side, nonzeros, "B", 2)
    held = sum(array.nbytes for x in (a, b) for array in (x.coords, x.values))
    pm.tile(drawn(100, 500), tiler=tiler)  # loads what it needs
    start = time.perf_counter()
    np.lexsort(a.coords[::-1])
    sorting, start = time.perf_counter() - start, time.perf_counter()
    pm.tile(a, b, fit=pm.elements(LARGE_CAPACITY), tiler=tiler)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "sorting": sorting, "peak": _peak() / 2**30, "inputs": held / 2**30}


def _peak() -> int:
    """Bytes of this process at most. What getrusage says a process inherits from the one that started it, so
    where the system tells a process's own peak, that is taken."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = (line.split() for line in status.read_text().splitlines())
        return next(int(words[1]) * 1024 for words in lines if words[0] == "VmHWM:")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def slope(sizes: Sequence[int]) -> float:
    """The exponent of time over nonzeros, from two operands to their tiles: a line fitted on log-log axes."""
    seconds = []
    for size in sizes:
        a, b = drawn(max(size // 10, 10), size), drawn(max(size // 10, 10), size, "B", 2)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            btree(pattern_of(a, b), "add", Elements(CAPACITY))
            times.append(time.perf_counter() - start)
        seconds.append(min(times))
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def plain(value: float, unit: str, peer: float, peer_name: str) -> Row:
    return {
        "value": round(value, 3),
        "unit": unit,
        "peer": round(peer, 3),
        "ratio": float(f"{value / peer:.3g}"),
        "peer_name": peer_name,
    }


def beside_naive(timer: Timer, side: int, nonzeros: int) -> dict[str, Row]:
    """The binary tree, the best of all tilers, the table of all and an estimate, beside one dense tiler."""
    a = drawn(side, nonzeros)
    dense = np.zeros(a.shape, np.uint8)
    dense[tuple(a.coords)] = 1
    both = (dense, np.roll(dense, 5, axis=0))
    pattern = pattern_of(a, Rolled(5))
    found, expected = btree(pattern, "add", Elements(CAPACITY)).tiles, naive(*both, CAPACITY)
    if found != expected:
        raise AssertionError(f"{found} tiles, a naive tiler makes {expected}")
    one = timer(lambda: naive(*both, CAPACITY), 1)
    model = pm.Uniform.of(["I", "J"], [side, side], density=nonzeros / side**2)
    more = drawn(side, MORE * nonzeros // NONZEROS)
    same = f"a recursive binary tree over dense sums, {expected:,} tiles too"
    alone = f"one binary tree over dense sums of {nonzeros:,} nonzeros"
    return {
        f"tile {side:,} x {side:,} with {nonzeros:,} nonzeros, btree": milliseconds(
            timer(lambda: btree(pattern_of(a, Rolled(5)), "add", Elements(CAPACITY)), 9), one, same
        ),
        "tile it with the best of all tilers": milliseconds(
            timer(lambda: pm.tile(a, fit=pm.elements(CAPACITY)), 3), one, alone
        ),
        f"tile {more.nnz:,} nonzeros, the table of all tilers": milliseconds(
            timer(lambda: pm.tile(more, fit=pm.elements(CAPACITY)).summary_table(), 3), one, alone
        ),
        "estimate five tilers from the density alone": milliseconds(
            timer(lambda: pm.estimate_tiling(model, fit=pm.elements(CAPACITY)), 5), one, alone
        ),
    }


def tiling(
    timer: Timer,
    side: int = SIDE,
    nonzeros: int = NONZEROS,
    most: int = LARGE,
    sizes: Sequence[int] = SIZES,
) -> dict[str, Row]:
    whole, best = process(most, "btree"), process(most, "best")
    return {
        **beside_naive(timer, side, nonzeros),
        f"tile, btree, two operands of {most:,} nonzeros, C = {LARGE_CAPACITY}": milliseconds(
            whole["seconds"], whole["sorting"], "sorting one operand by its coordinates"
        ),
        f"tile, peak memory of two operands of {most:,} nonzeros": plain(
            whole["peak"], "GiB", whole["inputs"], "both operands' coordinates and values alone"
        ),
        f"tile, best of all tilers, two operands of {most:,} nonzeros, C = {LARGE_CAPACITY}": milliseconds(
            best["seconds"], best["sorting"], "sorting one operand by its coordinates"
        ),
        f"tile, best of all tilers, peak memory of two operands of {most:,} nonzeros": plain(
            best["peak"], "GiB", best["inputs"], "both operands' coordinates and values alone"
        ),
        f"tile, growth of time from {sizes[0]:,} to {sizes[-1]:,} nonzeros": plain(
            slope(sizes), "power", 1.0, "time that grows as the nonzeros do"
        ),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(large(int(sys.argv[1]), sys.argv[2])))
