"""Tensaurus walked element by element with dictionaries and loops: the referee, slow and without a
formula."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from polymodel.sparse.tensaurus.report import TensaurusReport
from polymodel.sparse.tensor import SparseTensor

OPERANDS = {
    "MTTKRP": {"C": ("k", "across"), "B": ("j", "across"), "Y": ("i", "across")},
    "TTMc": {"C": ("k", "across"), "B": ("j", "kept"), "Y": ("i", "kept", "across")},
    "SpMM": {"B": ("j", "across"), "Y": ("i", "across")},
    "SpMV": {"B": ("j", "across"), "Y": ("i", "across")},
}


def points(tensor: SparseTensor) -> list[tuple[int, int, int]]:
    """Coordinates as (i, j, k), k = 0 for a matrix."""
    return [(*map(int, p), 0)[:3] for p in tensor.coords.T]  # type: ignore[misc] # always three of them


def dealt(weights: dict[int, int], lanes: int) -> dict[int, int]:
    """Slice -> lane: in order, each to the lane with the least so far."""
    loads, found = [0] * lanes, {}
    for i in sorted(weights):
        lane = loads.index(min(loads))
        found[i] = lane
        loads[lane] += weights[i]
    return found


def stamps(slices: dict[int, list[tuple[int, ...]]], lane: dict[int, int]) -> int:
    """Distinct time tuples by position. `slices`: per slice the paths of digits of its activities."""
    place: Counter[int] = Counter()
    found = set()
    for i in sorted(lane):
        at = place[lane[i]]
        place[lane[i]] += 1
        for path in slices[i]:
            tuple_of = [at]
            for depth in range(len(path)):
                siblings = sorted({p[depth] for p in slices[i] if p[:depth] == path[:depth]})
                tuple_of.append(siblings.index(path[depth]))
            found.add(tuple(tuple_of))
    return len(found)


def stages(kernel: str, tensor: SparseTensor, lanes: int, own: bool) -> list[dict[str, object]]:
    """Loads and lock-step time of each Einsum, of one pass over the columns."""
    a = points(tensor)
    first = dealt(Counter(i for i, _, _ in a), lanes)
    digits = {
        "MTTKRP": lambda j, k: (j // 8, k // 8, j, k),
        "TTMc": lambda j, k: (j, k // 8, k),
    }.get(kernel, lambda j, k: (j,))
    paths = defaultdict(list)
    for i, j, k in a:
        paths[i].append(digits(j, k))
    found = [{"loads": _loads(a, first, lanes), "lockstep": stamps(paths, first)}]
    if kernel in ("MTTKRP", "TTMc"):
        fibers = sorted({(i, j) for i, j, _ in a})
        second = dealt(Counter(i for i, _ in fibers), lanes) if own else first
        below = defaultdict(list)
        for i, j in fibers:
            below[i].append((j // 8, j) if kernel == "MTTKRP" else (j,))
        found.append({"loads": _loads(fibers, second, lanes), "lockstep": stamps(below, second)})
    return found


def _loads(items: list[tuple[int, ...]], lane: dict[int, int], lanes: int) -> tuple[int, ...]:
    loads = [0] * lanes
    for item in items:
        loads[lane[item[0]]] += 1
    return tuple(loads)


@dataclass
class Walk:
    """What moved: (memory, way, tensor) -> elements (of A: lanes of entries), and steps of the busiest
    lanes."""

    moved: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    steps: int = 0
    multiplies: int = 0
    held: dict[str, tuple[int, ...]] = field(default_factory=dict)
    seen: set[tuple[int, ...]] = field(default_factory=set)
    written: set[tuple[int, ...]] = field(default_factory=set)


def walk(report: TensaurusReport, tensor: SparseTensor) -> Walk:
    """Visit hardware tiles one after another, load what is not there, stream A's tile and flush its
    slices."""
    nest, machine, kernel = report.nest, report.machine, report.kernel
    found, a = Walk(), points(tensor)
    ranges = [range(0, nest.sizes[r], nest.tiles[r]) for r in nest.order]
    for corner in product(*ranges):
        at = dict(zip(nest.order, corner, strict=True))
        size = {r: min(nest.tiles[r], nest.sizes[r] - at[r]) for r in nest.order}
        columns = range(at["across"], at["across"] + size["across"])
        active = len({c // machine.vlen for c in columns}) if kernel != "SpMV" else 1
        for name, ranks in OPERANDS[kernel].items():
            tile = tuple(at[r] for r in ranks)
            if found.held.get(name) == tile:
                continue
            found.held[name] = tile
            elements = int(np.prod([size[r] for r in ranks]))
            if name == "Y":
                found.moved["HBM", "write", name] += elements
                if tile in found.seen:
                    found.moved["HBM", "read", name] += elements
                    found.moved["MSU", "write", name] += elements
                found.moved["MSU", "read", name] += elements
                found.seen.add(tile)
            else:
                copies = 1 if "across" in ranks else machine.columns
                found.moved["HBM", "read", name] += elements
                found.moved["SPM", "write", name] += elements * copies
        inside = [p for p in a if all(at[r] <= p[n] < at[r] + size[r] for n, r in enumerate("ijk"))]
        _stream(found, inside, report, at, size, active)
    return found


def _stream(
    found: Walk,
    inside: list[tuple[int, int, int]],
    report: TensaurusReport,
    at: dict[str, int],
    size: dict[str, int],
    active: int,
) -> None:
    """One tile of A through the rows: slots of CISS, steps, reads of scratchpads and registers."""
    kernel, lanes = report.kernel, report.machine.rows
    factored = kernel in ("MTTKRP", "TTMc")
    across, kept = size["across"], size["kept"]
    nnz = Counter(i for i, _, _ in inside)
    fibers = Counter(i for i, _ in {(i, j) for i, j, _ in inside})
    lane = dealt({i: n + 1 for i, n in nnz.items()}, lanes)
    slots, steps = [0] * lanes, [0] * lanes
    for i, n in nnz.items():
        slots[lane[i]] += n + 1
        steps[lane[i]] += n + 1 + (fibers[i] * kept if factored else 0)
        block = {
            (i, v, f)
            for v in range(at["kept"], at["kept"] + kept)
            for f in range(at["across"], at["across"] + across)
        }
        found.moved["MSU", "write", "Y"] += len(block)
        found.moved["MSU", "read", "Y"] += len(block & found.written)
        found.written |= block
    found.moved["HBM", "read", "A"] += max(slots) * lanes
    found.steps += max(steps)
    total, joined = sum(nnz.values()), sum(fibers.values())
    if factored:
        found.moved["SPM", "read", "C"] += total * across
        found.moved["SPM", "read", "B"] += joined * (kept * active if kernel == "TTMc" else across)
        found.moved["TSR", "write", "T"] += total * across
        found.moved["TSR", "read", "T"] += joined * kept * across
        found.moved["OSR", "write", "Y"] += joined * kept * across
        found.multiplies += total * across + joined * kept * across
    else:
        found.moved["SPM", "read", "B"] += total * across
        found.moved["OSR", "write", "Y"] += total * across
        found.multiplies += total * across
