"""Count the fibers and coordinates of each rank of a tensor, on which most formats depend.

The counts are exact for a tensor or fibertree, and for all nonempty tiles at once, or expected under a
density model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.model import DensityModel, Label, edge_classes, tile_shapes
from polymodel.sparse.density.slices import greedy
from polymodel.sparse.fibertree import Fibertree, changes, sorting
from polymodel.sparse.tensor import Ints, SparseTensor

# For products of extents and nonzeros below this number, 64-bit integers hold the bits.
_SURE = 2.0**50
# A number, or one per tile.
Count = int | float | NDArray[Any]
# (depth, span) -> how many times a run of `span` zeros fits before the coordinates of that rank.
Runs = Callable[[int, int], Count]


@dataclass(frozen=True, eq=False)
class RankLevels:
    """For each rank, outermost first: its size, its number of fibers, and the number of coordinates present
    in them.

    Only existing fibers are counted: those of an inner rank are the coordinates present in the next outer
    rank. The root fiber of a tensor always exists, that of a tile if the tile is not empty. Counts are
    numbers, or arrays with one entry per tile. `slices`: nonzeros of each nonempty slice of the first rank;
    for many tiles they are listed tile after tile, and `slice_tile` is the number of the tile. `runs`: see
    `Runs`. `lanes`: the expected maximum load of a given number of lanes, to which whole slices are assigned
    in order. The last four are None where not known.
    """

    ranks: tuple[str, ...]
    shape: tuple[Count, ...]
    fibers: tuple[Count, ...]
    coords: tuple[Count, ...]
    label: Label
    slices: Ints | None = None
    runs: Runs | None = None
    lanes: Callable[[int], float] | None = None
    slice_tile: Ints | None = None

    @property
    def nnz(self) -> Count:
        return self.coords[-1] if self.coords else 1


def levels_of(tensor: SparseTensor, order: Sequence[str] = ()) -> RankLevels:
    """Return exact counts of a tensor stored with its ranks in this order (default: its own)."""
    stored = tensor.swizzled(order) if order and tuple(order) != tensor.ranks else tensor
    firsts = _firsts(stored.coords, None)
    present = [int(np.count_nonzero(f)) for f in firsts]
    starts = np.flatnonzero(firsts[0]) if firsts else np.zeros(0, np.int64)

    def runs(depth: int, span: int) -> int:
        heads, origin = np.arange(stored.nnz) == 0, np.zeros(stored.nnz, np.int64)
        return int((_gaps(stored.coords, firsts, depth, heads, origin) // span).sum())

    return RankLevels(
        stored.ranks,
        stored.shape,
        tuple([1, *present[:-1]][: len(present)]),
        tuple(present),
        "exact",
        np.diff(np.append(starts, stored.nnz)),
        runs,
    )


def levels_of_tree(tree: Fibertree) -> RankLevels:
    """Return exact counts of a fibertree, partitioned or not; the size of a rank is that of its
    coordinates."""

    def runs(depth: int, span: int) -> int:
        level = tree.levels[depth]
        inner = np.diff(level.coords, prepend=-1) - 1
        heads = level.starts[:-1][np.diff(level.starts) > 0]
        inner[heads] = level.coords[heads]
        return int((inner // span).sum())

    return RankLevels(
        tree.ranks,
        tuple(level.rank.size for level in tree.levels),
        tuple(max(1, level.fibers) if k == 0 else level.fibers for k, level in enumerate(tree.levels)),
        tuple(level.elements for level in tree.levels),
        "exact",
        tree.leaves(0) if tree.levels else None,
        runs,
    )


@dataclass(frozen=True, eq=False)
class TileLevels:
    """The nonempty tiles of a tensor. `at` (tiles x ranks): their numbers along each rank, in lexicographic
    order. `levels`: their levels, arrays with one entry per tile."""

    at: Ints
    levels: RankLevels


def tile_levels(tensor: SparseTensor, tile: Sequence[int]) -> TileLevels:
    """Return exact counts of every nonempty tile of the tiling by boxes of this shape; edge tiles may be
    smaller."""
    sizes = tile_shapes(tile, tensor.ranks, tensor.shape)
    if sizes.ndim != 1:
        message = f"one tile shape is expected, there are {sizes.shape[:-1]}"
        raise SpecError([Diagnostic(message, "one at a time", code="wrong-count")])
    number = tensor.coords // sizes[:, None]
    order = sorting([*number, *tensor.coords])
    coords = tensor.coords if order is None else tensor.coords.take(order, axis=1)
    number = number if order is None else number.take(order, axis=1)
    new = changes(list(number)) if tensor.ranks else np.zeros(0, dtype=bool)
    starts = np.flatnonzero(new)
    at = np.ascontiguousarray(number[:, starts].T)
    ids = np.cumsum(new) - 1
    levels = levels_of_groups(tensor.ranks, coords, ids, len(starts), at * sizes, sizes, tensor.shape)
    return TileLevels(at, levels)


def levels_of_groups(
    ranks: tuple[str, ...],
    coords: Ints,
    ids: Ints,
    count: int,
    origins: Ints,
    sizes: Ints,
    shape: Sequence[int],
) -> RankLevels:
    """Return exact counts of `count` groups of nonzeros. `ids` are ascending, and coordinates are sorted
    within each group.

    `origins`: first coordinates (groups x ranks). `sizes`: those of a whole group, limited to the shape.
    """
    firsts = _firsts(coords, ids)
    present = [np.bincount(ids[f], minlength=count).astype(np.int64) for f in firsts]
    extents: NDArray[Any] = np.minimum(np.asarray(shape) - origins, sizes)
    if extents.size and float(extents.max()) ** min(2, len(ranks)) * max(1, ids.size) > _SURE:
        extents = extents.astype(object)  # bits may not fit in 64

    def runs(depth: int, span: int) -> Ints:
        heads = np.diff(ids, prepend=-1) != 0
        gaps = _gaps(coords, firsts, depth, heads, origins[ids, depth])
        result = np.zeros(count, dtype=np.int64)
        np.add.at(result, ids[firsts[depth]], gaps // span)
        return result

    roots = np.zeros(count, dtype=np.int64)
    roots[ids] = 1
    fibers = tuple([roots, *present[:-1]][: len(present)])
    tops = np.flatnonzero(firsts[0]) if firsts else np.zeros(0, np.int64)
    slices = np.diff(np.append(tops, ids.size))
    return RankLevels(
        ranks, tuple(extents.T), fibers, tuple(present), "exact", slices, runs, slice_tile=ids[tops]
    )


def _firsts(coords: Ints, ids: Ints | None) -> list[NDArray[np.bool_]]:
    """Return, for each rank, which nonzeros are the first with their prefix (of their group)."""
    result: list[NDArray[np.bool_]] = []
    new = np.zeros(coords.shape[1], dtype=bool)
    new[:1] = True
    if ids is not None:
        new[1:] = ids[1:] != ids[:-1]
    for row in coords:
        new[1:] |= row[1:] != row[:-1]
        result.append(new.copy())
    return result


def _gaps(
    coords: Ints, firsts: list[NDArray[np.bool_]], depth: int, heads: NDArray[np.bool_], origin: Ints
) -> Ints:
    """Return the number of zeros (absent coordinates) before each coordinate of a rank, counted from the
    previous one in its fiber, or from the origin. `heads`: the first nonzeros of groups."""
    here = firsts[depth]
    head = (firsts[depth - 1] if depth else heads)[here]
    column = coords[depth][here]
    before = np.empty_like(column)
    before[:1] = -1
    before[1:] = column[:-1]
    gaps: Ints = column - np.where(head, origin[here], before + 1)
    return gaps


def expected_levels(
    model: DensityModel, tile: ArrayLike | None = None, order: Sequence[str] = ()
) -> RankLevels:
    """Return expected counts under a density model, for the whole tensor, or for one full tile at a random
    position.

    `tile` (.., ranks): leading axes are evaluated element by element. `order`: that of the ranks as stored.
    For position-dependent models (not `placeless`) a tile is the mean of all tiles, edge tiles included, each
    with the size of a full one.
    """
    axes = _axes(model.ranks, order)
    whole = tile is None
    boxes = model.tiles(model.shape if tile is None else tile)
    present = [_expected(model, boxes, axes[: k + 1], whole) for k in range(len(axes))]
    root: Count = 1 if tile is None else _expected(model, boxes, [], whole)
    shape: tuple[Count, ...] = tuple(boxes[..., a] if not whole else model.shape[a] for a in axes)
    runs = _expected_runs(model, boxes, axes) if model.placeless else None
    by_slices = whole and bool(axes) and axes[0] == 0
    rows = model.known_rows() if by_slices else None
    return RankLevels(
        tuple(model.ranks[a] for a in axes),
        shape,
        tuple([root, *present[:-1]][: len(present)]),
        tuple(present),
        model.label,
        rows[rows > 0] if rows is not None else None,
        runs,
        (lambda parts: greedy(model, parts).max_load) if by_slices else None,
    )


def scattered_levels(ranks: Sequence[str], shape: Sequence[int], nonzeros: int) -> RankLevels:
    """Return the counts of nonzeros in a tile of this shape (both in stored order), placed so that every rank
    has the maximum number of fibers. No other placement takes more bits in a format of ranks."""
    present = tuple(min(nonzeros, prod(shape[: k + 1])) for k in range(len(shape)))
    fibers = (min(nonzeros, 1), *present[:-1])[: len(present)]

    def runs(depth: int, span: int) -> int:
        """Return the number of runs of zeros. Each fiber has its coordinates at its end. The coordinates
        other than the first one first replace zeros that are in no run of `span`, and then, one fiber after
        the other, those of runs."""
        each, left = divmod(shape[depth] - 1, span)
        more = max(present[depth] - fibers[depth] * (1 + left), 0)
        return max(fibers[depth] * each - -(-more // span), 0)

    return RankLevels(tuple(ranks), tuple(shape), fibers, present, "bound", runs=runs)


def _axes(ranks: tuple[str, ...], order: Sequence[str]) -> list[int]:
    if order and sorted(order) != sorted(ranks):
        message = f"{list(order)} is not an order of the ranks {list(ranks)}"
        raise SpecError([Diagnostic(message, code="shape-mismatch")])
    return [ranks.index(r) for r in (order or ranks)]


def _expected(model: DensityModel, boxes: Ints, prefix: list[int], whole: bool) -> Count:
    """Return the expected number of nonempty prefixes of these ranks in a box."""
    inner = boxes.copy()
    inner[..., prefix] = 1
    if model.placeless:
        result = boxes[..., prefix].astype(np.float64).prod(axis=-1) * model.p_nonempty(inner)
    else:
        result = model.expected_tiles(inner) / (1.0 if whole else model.number_of_tiles(boxes))
    if whole and model.label == "exact":
        return round(float(result))
    return float(result) if not result.shape else result


def _expected_runs(model: DensityModel, boxes: Ints, axes: list[int]) -> Runs:
    """Return a function that gives the expected number of runs.

    For a gap g, floor(g / span) is the sum over q of [g >= q span]. A coordinate that is present after q span
    absent ones is, at any position, a run of length q span that is empty and one of length q span + 1 that is
    not.
    """

    def runs(depth: int, span: int) -> Count:
        result = np.zeros(boxes.shape[:-1])
        axis = axes[depth]
        above = boxes[..., axes[:depth]].astype(np.float64).prod(axis=-1)
        largest = int(boxes[..., axis].max(initial=0))
        if largest // span > 10**5:
            message = f"runs of {span} zeros in {largest:,} coordinates"
            raise Refused(message, "give more bits to a run", code="unsupported-format")
        inner = boxes.copy()
        inner[..., axes[:depth]] = 1
        for run in range(span, largest, span):
            places = np.maximum(boxes[..., axis] - run, 0)
            empty, longer = inner.copy(), inner.copy()
            empty[..., axis], longer[..., axis] = run, run + 1
            result += above * places * (model.p_nonempty(longer) - model.p_nonempty(empty))
        return float(result) if not result.shape else result

    return runs


def expected_tiling(
    model: DensityModel, tile: Sequence[int], order: Sequence[str] = ()
) -> list[tuple[float, RankLevels]]:
    """Return expected counts of all tiles of a tiling, as pairs (number of tiles, levels of one of them) per
    class of tiles.

    Full tiles and edge tiles are classes of their own, so that sums over all tiles are sums of number x bits.
    Raises Refused for position-dependent models, where tiles of one shape differ: use `expected_levels`.
    """
    if not model.placeless:
        if all(s % t == 0 for s, t in zip(model.shape, model.tiles(tile).tolist(), strict=True)):
            return [(float(model.number_of_tiles(tile)), expected_levels(model, tile, order))]
        message = f"edge tiles of {list(tile)} in {list(model.shape)}: the model does not tell them apart"
        remedy = "choose sizes that divide the shape, or use the tensor itself"
        raise Refused(message, remedy, code="unsupported-density")
    sizes, counts = edge_classes(model.tiles(tile), model.shape)
    return [(float(c), expected_levels(model, s, order)) for s, c in zip(sizes, counts, strict=True) if c]


def bits_for(values: Count) -> Count:
    """Return the number of bits that distinguish this many values, at least 1."""
    if isinstance(values, np.ndarray):
        distinct, place = np.unique(values.astype(np.int64), return_inverse=True)
        widths = np.array([bits_for(int(v)) for v in distinct], dtype=np.int64)
        return widths[place.reshape(values.shape)]
    return max(1, (ceil(values) - 1).bit_length())
