"""Ranks that follow the split of another rank: `follow(Q)`.

A rank with a loop of its own is split as its leader is. A rank of index math (W of I[q + s]) has no loop: its
tile for a tile of Q holds every coordinate from the lowest to the highest that the tile reaches with any
values of the other variables. Such tiles overlap, by the halo.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.fibertree import Ints, changes
from polymodel.sparse.partition import Columns, shape_columns
from polymodel.spec.teaal.records import Directive, Operand, Partition

_SHAPES = ("uniform_shape", "nway_shape")


def follows(partition: Partition) -> bool:
    """Whether a rank follows another one."""
    return any(d.kind == "follow" for d in partition.directives)


def leading(partition: Partition, partitioning: Sequence[Partition], einsum: str) -> Partition:
    """The split that a rank follows. Refused where that is not by shape."""
    rank, directives = partition.ranks[0], partition.directives
    leader = directives[0].leader or ""
    what = f"{einsum}: rank {rank} follows {leader}"
    if any(d.kind != "follow" or d.leader != leader for d in directives):
        raise Refused(f"{what} and is split otherwise too", f"let it follow {leader} alone")
    found = next((p for p in partitioning if p.ranks == (leader,) and p is not partition), None)
    if found is None:
        remedy = "follow a rank split by shape; the tensors of a rank are cut where its leader is in any case"
        raise Refused(f"{what}, which is no rank that is split by itself", remedy)
    if any(d.kind not in _SHAPES for d in found.directives):
        remedy = f"split {leader} by uniform_shape or nway_shape"
        raise Refused(f"{what}, which is not split by shape", remedy)
    if len(directives) not in (1, len(found.directives)):
        times = f"{len(directives)} times, which is split {len(found.directives)} times"
        raise Refused(f"{what} {times}", f"write follow({leader}) once for each split")
    return found


def alike(partition: Partition, led: Partition, sizes: Mapping[str, int], einsum: str) -> Partition:
    """The split of a rank with a loop of its own that follows: its leader's tiles."""
    rank, leader = partition.ranks[0], led.ranks[0]
    if len(partition.directives) != len(led.directives):
        what = f"{einsum}: rank {rank} follows {leader} once, which is split {len(led.directives)} times"
        raise Refused(what, f"write follow({leader}) once for each split: each makes a loop")
    if sizes[rank] != sizes[leader] and any(d.kind == "nway_shape" for d in led.directives):
        what = f"{einsum}: rank {rank} of size {sizes[rank]} follows the {leader} of size {sizes[leader]}"
        raise Refused(f"{what}, split into a number of tiles", "split both by uniform_shape")
    return Partition(partition.ranks, led.directives)


def spread_halos(
    columns: Sequence[Columns],
    operands: Sequence[Operand],
    declared: Mapping[str, Sequence[str]],
    rank: str,
    leader: tuple[str, tuple[Directive, ...], Sequence[str]],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> dict[tuple[str, str], str]:
    """Put the tiles above a rank of index math, in every tensor; returns (tensor, tile rank) -> its loop.

    `leader`: the rank that is followed, its splits, and the loops these make. SpecError where no index math
    of the rank has it.
    """
    name, directives, loops = leader
    made: dict[tuple[str, str], str] = {}
    for tensor, operand in zip(columns, operands, strict=True):
        for index, ours in zip(operand.indices, declared[tensor.name], strict=True):
            factors = {v.upper(): f for v, f in index.terms}
            if index.variable or ours != rank or name not in factors:
                continue
            lows, highs, parts = _tiles(factors, name, directives, sizes, symbols)
            if factors[name] < 1:
                raise Refused(f"{tensor.name}: {rank} follows {name}, whose factor is {factors[name]}")
            count = len(parts)
            names = [f"{rank}{count - i}" for i in range(count)]
            tensor.halo(f"{rank}=", list(zip(names, parts, strict=True)), f"{rank}0", lows, highs)
            made |= {(tensor.name, n): loop for n, loop in zip(names, loops, strict=False)}
    if not made:
        what = f"rank {rank} follows {name}, but no index math of {rank} has the variable {name.lower()}"
        raise SpecError([Diagnostic(what, "leave it out: a plain index is split with its variable")])
    return made


def _tiles(
    factors: Mapping[str, int],
    leader: str,
    directives: Sequence[Directive],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> tuple[Ints, Ints, list[Ints]]:
    """The lowest and highest coordinate that each tile of the leader reaches, and its parts' coordinates."""
    coords = np.arange(sizes[leader], dtype=np.int64)
    columns = shape_columns(coords, directives, sizes[leader], symbols)
    first = np.flatnonzero(changes(columns))
    last = np.append(first[1:], coords.size) - 1
    ends = [f * (sizes[v] - 1) for v, f in factors.items() if v != leader]
    low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
    factor = factors[leader]
    return factor * first + low, factor * last + high, [c[first] for c in columns]
