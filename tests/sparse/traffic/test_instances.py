"""Caches with several instances: each holds lines for itself where the spacetime says who reads what."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from polymodel.report.traffic import TrafficReport
from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic import CascadeTraffic, traffic
from polymodel.spec.teaal import read_teaal
from tests.faults import refused

MATRICES = Path(__file__).parents[2] / "data/matrices"

GUSTAVSON = """
einsum:
  declaration: {A: [M, K], B: [K, N], Z: [M, N]}
  expressions: ["Z[m, n] = A[m, k] * B[k, n]"]
mapping:
  loop-order: {Z: [M, K, N]}
  spacetime: {Z: {space: SPACE, time: TIME}}
format:
  A: {CSR: {rank-order: [M, K], M: {format: U, pbits: 32}, K: {format: C, cbits: 32, pbits: 32}}}
  B: {CSR: {rank-order: [K, N], K: {format: U, pbits: 32}, N: {format: C, cbits: 32, pbits: 32}}}
architecture:
  accel:
  - name: System
    local: [{name: HBM, class: DRAM, attributes: {}}]
    subtree:
    - name: PE[0..LAST]
      local:
      - {name: Cache, class: Cache, attributes: {width: WIDTH, depth: DEPTH}}
      - {name: LF, class: Intersector, attributes: {type: leader-follower}}
bindings:
  Z:
  - {config: accel, prefix: z}
  - component: HBM
    bindings: &b
    - {tensor: B, rank: K, type: payload, format: CSR}
    - {tensor: B, rank: N, type: coord, format: CSR}
    - {tensor: B, rank: N, type: payload, format: CSR}
  - {component: Cache, bindings: *b}
  - {component: LF, bindings: [{rank: K, leader: A}]}
"""


def moved(
    a: SparseTensor, b: SparseTensor, pes: int, depth: int, width: int, space: str = "[M]", lru: bool = True
) -> CascadeTraffic:
    time = "[K, N]" if space == "[M]" else "[M, K, N]"
    text = GUSTAVSON.replace("SPACE", space).replace("TIME", time).replace("LAST", str(pes - 1))
    text = text.replace("WIDTH", str(width)).replace("DEPTH", str(depth))
    return traffic(read_teaal(text), {"A": a, "B": b}, replacement="lru" if lru else None)


def walked(a: np.ndarray, b: np.ndarray, pes: int, depth: int, per_line: int) -> int:
    """Misses of Gustavson's loops, row m on cache m mod `pes`, one access at a time."""
    caches: list[OrderedDict[tuple[str | int, ...], None]] = [OrderedDict() for _ in range(pes)]
    misses = 0

    def touch(cache: OrderedDict[tuple[str | int, ...], None], *line: str | int) -> None:
        nonlocal misses
        if line in cache:
            cache.move_to_end(line)
            return
        misses += 1
        cache[line] = None
        if len(cache) > depth:
            cache.popitem(last=False)

    # A follower's pointers lie by the rows that hold something; for others the search ends before the next.
    full = b.any(axis=1)
    stored = np.cumsum(full) - full
    for m, row in enumerate(a):
        cache = caches[m % pes]
        for k in np.flatnonzero(row):
            touch(cache, "pointer", int(stored[k]) // per_line)
            for place in range(np.count_nonzero(b[k])):
                touch(cache, "coordinate", int(k), place // per_line)
                touch(cache, "value", int(k), place // per_line)
    return misses


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.thin(5)
def test_private_caches_against_a_walk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, k, n = (int(s) for s in rng.integers(1, 14, 3))
    a, b = (rng.random(shape) < rng.choice([0.2, 0.6]) for shape in ((m, k), (k, n)))
    a[:, 0] = True  # Every row of A is met: position and number are the same.
    pes, depth, per_line = (
        int(rng.integers(2, 6)),
        int(rng.choice([1, 2, 4, 9, 100])),
        int(rng.choice([1, 2])),
    )
    given = [SparseTensor.from_dense(*t) for t in (("A", "MK", a.astype(int)), ("B", "KN", b.astype(int)))]
    found = moved(*given, pes, depth, 32 * per_line).einsum("Z").memory("HBM").of("B")
    assert found.read == 32 * per_line * walked(a, b, pes, depth, per_line)
    assert found.note == f"{pes} caches Cache, point i of space on number i mod {pes}"


def test_a_line_that_two_read_is_fetched_twice_by_hand() -> None:
    """Rows 0 and 1 both read row 0 of B, one element: pointer, coordinate, value, for each of two PEs."""
    a = SparseTensor.from_dense("A", "MK", np.array([[1], [1]]))
    b = SparseTensor.from_dense("B", "KN", np.array([[7]]))
    assert moved(a, b, 2, 100, 32, lru=False).einsum("Z").memory("HBM").of("B").read == 2 * 3 * 32
    assert moved(a, b, 1, 100, 32, lru=False).einsum("Z").memory("HBM").of("B").read == 3 * 32


def test_sixteen_private_caches_of_64_lines_on_a_matrix() -> None:
    """As the walk goes, and for one cache of 1024 lines."""
    a = read_tensor(MATRICES / "band.mtx.gz", "A").renamed("A", ("M", "K"))
    b = a.renamed("B", ("K", "N"))
    own = moved(a, b, 16, 64, 512)
    dense = a.to_dense() != 0
    assert own.einsum("Z").memory("HBM").of("B").read == 512 * walked(dense, dense, 16, 64, 16)
    pooled = moved(a, b, 16, 64, 512, space="[]").einsum("Z").memory("HBM").of("B")
    assert pooled.read == 512 * walked(dense, dense, 1, 1024, 16)
    assert pooled.note == "Cache: as if its 16 instances shared one cache, not one for each"
    assert moved(a, b, 1, 1024, 512).einsum("Z").memory("HBM").of("B").note == ""
    assert pooled.note in str(TrafficReport(moved(a, b, 16, 64, 512, space="[]")))
    with refused("unsupported-memory", "16", "Cache", "64") as told:
        moved(a, b, 16, 64, 512, lru=False)
    assert "--replacement lru" in str(told.value)
