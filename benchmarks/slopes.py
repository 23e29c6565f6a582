"""Ski slopes beside brute force in the same run."""

from __future__ import annotations

import time
from itertools import permutations

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, milliseconds


def matmul(m: int, k: int, n: int) -> pm.Spec:
    """`Z[m, n] = A[m, k] * B[k, n]` without an architecture."""
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": m, "K": k, "N": n},
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
        }
    )


def brute_force(extents: tuple[int, int, int], every: bool) -> int:
    """Mappings compared by listing all tile sizes (or divisors) and orders as arrays and sorting them."""
    sizes = [np.arange(1, x + 1) for x in extents]
    if not every:
        sizes = [s[x % s == 0] for s, x in zip(sizes, extents, strict=True)]
    tiles = dict(zip("mkn", np.meshgrid(*sizes, indexing="ij"), strict=True))
    whole = dict(zip("mkn", extents, strict=True))
    trips = {v: -(-whole[v] // tiles[v]) for v in "mkn"}
    capacity = (tiles["m"] * tiles["k"] + tiles["k"] * tiles["n"] + tiles["m"] * tiles["n"]).ravel()
    count = 0
    for order in permutations("mkn"):
        total = np.zeros(len(capacity), dtype=np.int64)
        for index in ("mk", "kn", "mn"):
            (other,) = set("mkn") - set(index)
            inside = [v for v in order[order.index(other) + 1 :] if v in index]
            again = np.zeros(trips["m"].shape, dtype=bool)
            for v in inside:
                again |= trips[v] > 1
            size = whole[index[0]] * whole[index[1]]
            moved = size * np.where(again, trips[other], 1).ravel()
            total += 2 * moved - size if index == "mn" else moved
        np.minimum.accumulate(total[np.lexsort((total, capacity))])
        count += len(capacity)
    return count


def timed(spec: pm.Spec, tiles: str) -> float:
    start = time.perf_counter()
    pm.ski_slope(spec, tiles=tiles)  # type: ignore[arg-type]  # one of its two words
    return time.perf_counter() - start


def slopes() -> dict[str, Row]:
    """Seconds for a whole curve."""
    rows: dict[str, Row] = {}
    cases = (
        ("ski slope of 1024^3, divisors", (1024,) * 3, False, (1024,) * 3),
        ("ski slope of 4096^3, all sizes", (4096,) * 3, True, (160,) * 3),
    )
    for name, extents, every, small in cases:
        spec = matmul(*extents)
        timed(spec, "divisors")
        value = min(timed(spec, "all" if every else "divisors") for _ in range(3))
        start = time.perf_counter()
        listed = brute_force(small, every)
        # Listing 4096^3 sizes would take terabytes: the peer's time is scaled from what it can list.
        scale = float(np.prod([float(a) / b for a, b in zip(extents, small, strict=True)]))
        peer = (time.perf_counter() - start) * scale
        shown = "the same" if scale == 1 else f"{small[0]}^3 ({listed:.2g} mappings), scaled up"
        rows[name] = milliseconds(value, peer, f"brute force over all sizes and orders, {shown}")
    return rows
