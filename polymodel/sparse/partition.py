"""Partition declared ranks into loop ranks, and divide the nonzeros of tensors accordingly.

Splits by shape make tiles of coordinates, `uniform_occupancy` makes parts with equal numbers of coordinates
of a leader, and `uniform_slice` balanced sets of whole top-rank fibers; `flatten` combines several ranks.
Coordinates remain absolute, so that the innermost part of a rank has the coordinate of the declared rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import tick
from polymodel.sparse.assign import least_loaded
from polymodel.sparse.fibertree import Fibertree, Ints, LoopRank, build, changes, sorting
from polymodel.spec.faults import shown
from polymodel.spec.teaal.records import Directive, Partition

Flags = NDArray[np.bool_]
MOST_LISTED = 8  # coordinates in a message


@dataclass
class Columns:
    """The nonzeros of one tensor during partitioning: one column per rank, by name, without a defined row
    order."""

    name: str
    ranks: dict[str, LoopRank]
    columns: dict[str, Ints]
    values: NDArray[Any]

    def split(self, rank: str, parts: Sequence[tuple[str, Ints]], rest: str) -> None:
        """Add part columns (name, coordinates) above a rank, which is renamed to `rest`."""
        old = self.ranks.pop(rank)
        column = self.columns.pop(rank)
        for name, coords in parts:
            self.ranks[name] = LoopRank(name, old.bases, old.sizes)
            self.columns[name] = coords
        self.ranks[rest] = LoopRank(rest, old.bases, old.sizes)
        self.columns[rest] = column

    def halo(self, rank: str, parts: Sequence[tuple[str, Ints]], rest: str, low: Ints, high: Ints) -> None:
        """Copy each nonzero into every tile that contains it. Tile t covers low[t] to high[t], both
        ascending, and has the coordinates `parts` (name, one per tile). The rank keeps its key and gets the
        name `rest`. Nonzeros in no tile are dropped."""
        column = self.columns[rank]
        first = np.searchsorted(high, column)
        counts = np.maximum(np.searchsorted(low, column, side="right") - first, 0)
        rows = np.repeat(np.arange(column.size, dtype=np.int64), counts)
        tile = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts - first, counts)
        self.columns = {name: c[rows] for name, c in self.columns.items()}
        self.values = self.values[rows]
        old = self.ranks[rank]
        self.ranks[rank] = LoopRank(rest, old.bases, old.sizes)
        for name, coords in parts:
            self.ranks[name] = LoopRank(name, old.bases, old.sizes)
            self.columns[name] = coords[tile]

    def reverse(self, rank: str) -> int:
        """Number the coordinates from the other end; return the largest."""
        last = int(self.ranks[rank].sizes[0]) - 1
        self.columns[rank] = last - self.columns[rank]
        return last

    def residue(self, rank: str, factor: int, name: str) -> None:
        """Add the remainder of the coordinates as a rank of its own."""
        self.ranks[name] = LoopRank(f"{self.ranks[rank].name}%{factor}", (name,), (factor,))
        self.columns[name] = self.columns[rank] % factor

    def flatten(self, ranks: Sequence[str], name: str) -> None:
        """Combine several ranks into one, whose coordinates are their tuples."""
        old = [self.ranks.pop(r) for r in ranks]
        columns = [self.columns.pop(r) for r in ranks]
        bases, sizes = sum((o.bases for o in old), ()), sum((o.sizes for o in old), ())
        self.ranks[name] = LoopRank(name, bases, sizes)
        self.columns[name] = self.ranks[name].encode(columns)

    def tree(self, order: Sequence[str]) -> Fibertree:
        """Return the fibertree with its ranks in this order. The columns are consumed one by one to save
        memory."""
        ranks = [self.ranks[r] for r in order]
        return build(self.name, ranks, [self.columns.pop(r) for r in order], self.values)


@dataclass(frozen=True)
class Boundaries:
    """The boundaries at which a leader's fibers are split: for each part its leader fiber, its first
    coordinate and the prefix of the fiber.

    Fiber g, one per row of `prefix` (one column per rank of `ranks`), has the parts from `starts[g]` on. Part
    p starts at coordinate `coords[p]` (the first part of a fiber at 0).
    """

    leader: str
    ranks: tuple[str, ...]
    prefix: tuple[Ints, ...]
    starts: Ints
    coords: Ints


def shape_parts(coords: Ints, step: int) -> Ints:
    """Return the tile of each coordinate, for tiles of `step` coordinates; a tile is identified by its first
    possible coordinate."""
    return coords - coords % step


def nway_step(size: int, parts: int) -> int:
    """Return the tile size that gives at most `parts` tiles."""
    return (size - 1) // parts + 1


def part_names(rank: str, count: int) -> tuple[str, ...]:
    """Return the names of the ranks that `count` splits make of one rank, outermost first: R2, R1, R0."""
    return tuple(f"{rank}{i}" for i in range(count, -1, -1))


# A function that splits a fiber: from its coordinates in ascending order and the size in the spec it returns
# the first coordinate of each part.
Partitioner = Callable[[Ints, int], "Sequence[int] | Ints"]
# The name, in a spec, of dynamic tiles: parts that grow until they hold a given number of nonzeros.
DYNAMIC = "dynamic"
Cut = Partitioner | Literal["dynamic"] | None


def group_parts(
    prefix: Sequence[Ints], coords: Ints, count: int, cut: Cut = None
) -> tuple[Ints, Ints, Ints, Ints]:
    """Divide each group of rows with the same prefix into parts of `count` consecutive distinct coordinates,
    or as `cut` specifies. If `cut` is DYNAMIC, a part has as many coordinates as hold at most `count` rows
    together, but at least one.

    Returns the part coordinate of every row (0 for the first part of a group, otherwise the first coordinate
    in it); one row number per group; the index of each group's first part; and the coordinates of all parts.
    """
    columns = [*prefix, coords]
    order = sorting(columns)
    ordered = columns if order is None else [c[order] for c in columns]
    fresh = changes(ordered)
    head = changes(ordered[:-1]) if prefix else np.zeros(coords.size, dtype=bool)
    head[:1] = True
    number = np.cumsum(fresh) - 1
    heads = np.flatnonzero(head)
    group = np.cumsum(head) - 1
    place = number - number[heads][group] if coords.size else number
    if cut is None:
        begins = fresh & (place % count == 0)
    elif callable(cut):
        begins = _cuts(cut, ordered[-1], fresh, heads, count)
    else:
        begins = _grown(fresh, heads, count)
    at = np.flatnonzero(begins)
    part_coords = np.where(place[at] == 0, 0, ordered[-1][at])
    result = part_coords[np.cumsum(begins) - 1] if coords.size else coords
    if order is not None:
        back = np.empty_like(result)
        back[order] = result
        result = back
        heads = order[heads]
    starts = np.searchsorted(group[at], np.arange(heads.size + 1))
    return result, heads, starts, part_coords


def _grown(fresh: Flags, heads: Ints, most: int) -> Flags:
    """Mark the rows that start a part. A part grows, coordinate by coordinate, while it holds at most `most`
    rows. Fibers start at `heads`, and coordinates at the rows marked `fresh`."""
    begins = np.zeros(fresh.size, dtype=bool)
    first = np.flatnonzero(fresh)
    ends = np.append(first[1:], fresh.size)
    fiber_ends = np.append(np.searchsorted(first, heads[1:]), first.size)
    last = fiber_ends[np.searchsorted(heads, first, side="right") - 1]
    each = np.arange(first.size)
    following = np.minimum(np.maximum(np.searchsorted(ends, first + most, side="right"), each + 1), last)
    now = np.searchsorted(first, heads)
    while now.size:  # one part of every fiber at a time
        tick("growing tiles")
        begins[first[now]] = True
        now = following[now][following[now] < last[now]]
    return begins


def _some(values: NDArray[Any]) -> str:
    """Format the first values of an array: `[0, 3, 5, ...]`."""
    listed = np.atleast_1d(values).ravel()
    more = ", ..." if listed.size > MOST_LISTED else ""
    return f"[{', '.join(shown(v) for v in listed[:MOST_LISTED].tolist())}{more}]"


def _cuts(cut: Partitioner, coords: Ints, fresh: Flags, heads: Ints, count: int) -> Flags:
    """Mark the rows that start a part, where a function of the user splits the fibers, which start at
    `heads`."""
    begins = np.zeros(coords.size, dtype=bool)
    for begin, end in pairwise([*heads.tolist(), coords.size]):
        tick("cutting fibers")
        rows = begin + np.flatnonzero(fresh[begin:end])
        fiber = coords[rows]
        given = np.asarray(cut(fiber.copy(), count))
        whole = given.ndim == 1 and np.issubdtype(given.dtype, np.integer)
        if not whole or not given.size or given[0] != fiber[0] or not (np.diff(given) > 0).all():
            what = f"a partitioner cuts the coordinates {_some(fiber)} at {_some(given)}"
            remedy = "answer the first coordinate of each part, ascending, the first one among them"
            raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])
        if not np.isin(given, fiber).all():
            other = given[~np.isin(given, fiber)][0]
            what = f"a partitioner begins a part at {other}, which is not a coordinate of the fiber"
            remedy = "answer coordinates that it is given"
            raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])
        begins[rows[np.searchsorted(fiber, given)]] = True
    return begins


def occupancy(
    leader: Columns, rank: str, before: Sequence[str], count: int, cut: Cut = None
) -> tuple[Ints, Boundaries]:
    """Cut each fiber of the leader's rank, below the ranks `before` it, into parts of `count` coordinates, or
    as `cut` says."""
    prefix = [leader.columns[r] for r in before]
    parts, heads, starts, coords = group_parts(prefix, leader.columns[rank], count, cut)
    made = Boundaries(leader.name, tuple(before), tuple(c[heads] for c in prefix), starts, coords)
    return parts, made


def follow(follower: Columns, rank: str, cuts: Boundaries) -> Ints:
    """Return the part coordinates of a follower that has all ranks above the leader's fibers; it is split at
    the same coordinates.

    Fibers that the leader does not have remain whole, in a part at 0.
    """
    coords = follower.columns[rank]
    if not coords.size or not cuts.coords.size:
        return np.zeros_like(coords)
    groups = _groups([follower.columns[r] for r in cuts.ranks], cuts.prefix, coords.size)
    owner = np.repeat(np.arange(cuts.starts.size - 1), np.diff(cuts.starts))
    span = max(int(coords.max()), int(cuts.coords.max())) + 1
    at = np.searchsorted(owner * span + cuts.coords, groups * span + coords, side="right") - 1
    return np.where(groups >= 0, cuts.coords[np.maximum(at, 0)], 0)


def _groups(columns: Sequence[Ints], prefix: Sequence[Ints], rows: int) -> Ints:
    """Return, for each row of `columns`, the index of the equal row of `prefix`; -1 if there is none."""
    if not columns:
        return np.zeros(rows, dtype=np.int64)
    known = prefix[0].size
    both = [np.concatenate((p, c)) for p, c in zip(prefix, columns, strict=True)]
    order = sorting(both)
    order = np.arange(known + rows) if order is None else order
    kind = np.cumsum(changes([b[order] for b in both])) - 1
    kinds = np.empty_like(kind)
    kinds[order] = kind
    table = np.full(int(kind[-1]) + 1 if kind.size else 0, -1, dtype=np.int64)
    table[kinds[:known]] = np.arange(known)
    return table[kinds[known:]]


@dataclass
class Slices:
    """The slice of each coordinate of a rank, stored for Einsums that share the same slices."""

    rows: dict[str, tuple[int, Ints]] = field(default_factory=dict)

    def of(self, tensor: Columns, rank: str, size: int, parts: int, kept: bool) -> Ints:
        """Return the slice of each coordinate, -1 where it has no nonzero, balanced by this tensor's nonzeros
        or as first used.

        Raises Refused if slices are kept and the rank was divided into a different number of slices before.
        """
        if kept and rank in self.rows:
            before, rows = self.rows[rank]
            if before != parts:
                what = f"rank {rank} was sliced into {before} and is now sliced into {parts}"
                remedy = "slice it alike everywhere, or run with slices='own'"
                raise Refused(what, remedy, code="unsupported-partitioning")
            return rows
        loads = np.bincount(tensor.columns[rank], minlength=size)
        self.rows[rank] = parts, least_loaded(loads, parts)
        return self.rows[rank][1]


def check_sizes(partitions: Sequence[Partition], symbols: Mapping[str, int], einsum: str) -> list[Diagnostic]:
    """Return a fault for each split whose size is not at least 1."""
    result = []
    for partition in partitions:
        for d in partition.directives:
            if d.kind in ("flatten", "follow"):
                continue
            name = f"{d.kind}({d.size}) of {', '.join(partition.ranks)} in {einsum}"
            if isinstance(d.size, str) and d.size not in symbols:
                message = f"{name}: {d.size} has no value"
                remedy = f"give symbols={{{d.size!r}: ...}}, or --set {d.size}=..."
                result.append(Diagnostic(message, remedy, code="missing-value"))
            elif number(d, symbols) < 1:
                what = "the size of a split is at least 1"
                result.append(Diagnostic(name, what, code="not-positive-integer"))
    return result


def number(directive: Directive, symbols: Mapping[str, int]) -> int:
    """Return the size of a split."""
    size = symbols[directive.size] if isinstance(directive.size, str) else directive.size
    return int(size)


def shape_columns(
    coords: Ints, directives: Sequence[Directive], size: int, symbols: Mapping[str, int]
) -> list[Ints]:
    """Return the part coordinates of splits by shape, outermost first. An n-way split groups whole finer
    tiles."""
    steps = shape_steps(directives, size, symbols)
    result: list[Ints] = []
    finer = coords
    for step, d in zip(reversed(steps), reversed(directives), strict=True):
        finer = shape_parts(finer if d.kind == "nway_shape" else coords, step)
        result.insert(0, finer)
    return result


def shape_steps(directives: Sequence[Directive], size: int, symbols: Mapping[str, int]) -> list[int]:
    """Return the tile sizes of splits by shape, outermost first. Of consecutive n-way splits the last one
    listed is outermost, since each groups the tiles that the previous one made."""
    result: list[int] = []
    ways: list[int] = []
    for d in directives:
        if d.kind == "nway_shape":
            ways.insert(0, nway_step(size, number(d, symbols)))
        else:
            result += [*ways, number(d, symbols)]
            ways = []
    return result + ways


def slice_loads(row_nnz: Sequence[int] | Ints, parts: int) -> tuple[Ints, Ints]:
    """Apply `uniform_slice` to a row histogram: return the slice of each row (-1: empty) and the load of each
    slice."""
    loads = np.asarray(row_nnz, dtype=np.int64)
    if parts < 1:
        message = f"{parts} slices"
        raise SpecError([Diagnostic(message, "a whole number of at least 1", code="not-positive-integer")])
    rows = least_loaded(loads, parts)
    return rows, np.bincount(rows[rows >= 0], weights=loads[rows >= 0], minlength=parts).astype(np.int64)


def tile_loads(row_nnz: Sequence[int] | Ints, step: int) -> Ints:
    """Return the nonzeros of the nonempty tiles of `step` rows, in order."""
    loads = np.asarray(row_nnz, dtype=np.int64)
    found = np.add.reduceat(loads, np.arange(0, loads.size, step)) if loads.size else loads
    result: Ints = found[found > 0]
    return result


def cyclic_loads(row_nnz: Sequence[int] | Ints, parts: int) -> Ints:
    """Return the nonzeros of each part when row i is assigned to part i mod `parts`."""
    loads = np.asarray(row_nnz, dtype=np.int64)
    result: Ints = np.bincount(np.arange(loads.size) % parts, weights=loads, minlength=parts).astype(np.int64)
    return result


def load_bounds(row_nnz: Sequence[int] | Ints, parts: int) -> tuple[int, float]:
    """Return a lower bound of the maximum load of any assignment of whole rows (the mean rounded up, or the
    largest row), and an upper bound for the assignment to the least loaded slice (mean + (1 - 1/parts)
    largest row; Graham 1966)."""
    loads = np.asarray(row_nnz, dtype=np.int64)
    total, largest = int(loads.sum()), int(loads.max(initial=0))
    return max(-(-total // parts), largest), total / parts + (1 - 1 / parts) * largest
