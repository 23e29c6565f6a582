"""Compute the effect of storage formats: which of them leave out zeros, the metadata of each transfer, and
the bits of tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from polymodel.analysis.result import Problem
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints, digit_columns, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import POINT, EinsumLinks
from polymodel.sparse.actions.records import at_most, ratio
from polymodel.sparse.actions.tally import region_table, window
from polymodel.sparse.density.model import DensityModel, Label
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.formats import (
    CISS,
    Format,
    NamedFormat,
    PerRank,
    U,
    Widths,
    expected_levels,
    parse_format,
)
from polymodel.sparse.formats.levels import levels_of, levels_of_groups
from polymodel.sparse.tensor import SparseTensor
from polymodel.workload.einsum import TensorAccess

POINTER = 32


@dataclass(frozen=True)
class KeptTensor:
    """The format in which one component keeps one tensor. `elides`: the last rank holds nonzeros only.
    `blocks`: the last rank holds all points of its nonempty fibers."""

    format: Format
    elides: bool
    blocks: bool


class Formats:
    """The parsed formats of a problem's components. Unless the format says otherwise, values have the
    tensor's bits, coordinates as many bits as their rank needs, and pointers 32."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._counted: dict[tuple[object, ...], ActualBits] = {}
        self.accesses: dict[str, TensorAccess] = {}
        for e in problem.cascade.einsums:
            for a in e.accesses:
                self.accesses.setdefault(a.tensor, a)

    @cached_property
    def known(self) -> dict[tuple[str, str], KeptTensor]:
        """Map (component, tensor) to its format, where it is not stored point by point. Raises SpecError."""
        result: dict[tuple[str, str], KeptTensor] = {}
        faults: list[Diagnostic] = []
        for component in self.problem.hierarchy.components:
            for tensor, written in component.sparse.formats if component.sparse else ():
                access = self.accesses[tensor]
                path = f"{component.name}.sparse.format.{tensor}"
                try:
                    how = stored_as(written_format(access, written, path))
                except SpecError as error:
                    faults += error.diagnostics
                    continue
                if how.elides or how.blocks:
                    result[component.name, tensor] = how
        if faults:
            raise SpecError(faults)
        return result

    def counted(self, tiles: LoopTiles, how: KeptTensor, tensor: SparseTensor) -> ActualBits:
        """Return the bits of the tiles of given data. They are counted once for each tiling and format."""
        key = (tensor, how.format, *((v, g.tobytes()) for v, g in tiles.groups.items()))
        if key not in self._counted:
            self._counted[key] = tiles.bits(how.format, tensor)
        return self._counted[key]

    def compressed(self, component: str, tensor: str) -> bool:
        """Return True if the component holds only nonzeros of the tensor."""
        how = self.known.get((component, tensor))
        return how is not None and how.elides


def written_format(access: TensorAccess, written: object, path: str = "") -> Format:
    """Parse the format that is written for one tensor. Raises SpecError with all faults."""
    widths = Widths(access.bits_per_value, None, POINTER)
    return parse_format(written, access.ranks, widths, path=path)


def stored_as(format: Format) -> KeptTensor:
    """Return what a format leaves out: nothing if all ranks are uncompressed."""
    if isinstance(format, NamedFormat | CISS):
        return KeptTensor(format, format.name != "dense", False)
    assert isinstance(format, PerRank), "formats are per rank or of whole tensors"
    plain = [isinstance(rule, U) for rule in format.rules]
    if not plain or not plain[-1]:
        return KeptTensor(format, bool(plain), False)
    return KeptTensor(format, False, not all(plain))


class LoopTiles:
    """The tiles into which the loops with these ids (and POINT) divide a tensor, as one Einsum accesses
    it."""

    def __init__(self, structure: EinsumLinks, tensor: str, digits: Set[int | str]) -> None:
        self.structure = structure
        self.digits = digits
        self.used = structure.led(tensor)
        if self.used.union is None:
            raise Refused(
                f"{structure.name}: the elements that are used of {tensor} do not stand evenly apart, so "
                "that they make no tiles",
                f"leave out the format of {tensor}, and actions on it where it has a density",
                code="unsupported-window",
            )
        self.access = self.used.union
        by_name = {c.variable: c for c in structure.counters}
        self.counters = {v: by_name[v] for v in self.used.variables}
        self.groups = {v: group_numbers(digit_columns(c, digits), c.size) for v, c in self.counters.items()}
        self.spans = dict(self.used.spans)

    def classes(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield pairs of the extents per rank, and the number of tiles with these extents."""
        sizes = {v: np.unique(np.bincount(g), return_counts=True) for v, g in self.groups.items()}
        names = list(sizes)
        for picks in product(*(range(sizes[v][0].size) for v in names)):
            extent = self.spans | {v: sizes[v][0][i] for v, i in zip(names, picks, strict=True)}
            number = 1
            for v, i in zip(names, picks, strict=True):
                number *= int(sizes[v][1][i])
            ranks = [
                int(window(x, tuple(np.array([extent[v]]) for v in x.variables))[0])
                for x in self.access.projection
            ]
            yield tuple(ranks), number

    def regular(self) -> bool:
        """Return True if the tiles are boxes of one size that start at multiples of it; the last ones may be
        smaller."""
        if any(len(x.terms) != 1 or abs(x.terms[0][1]) != 1 for x in self.access.projection):
            return False
        return all(
            np.array_equal(g, np.arange(g.size) // int(np.bincount(g).max())) for g in self.groups.values()
        )

    def parts(self, shape: Sequence[int]) -> tuple[Ints, ...] | None:
        """Return, for each rank of a tensor of this shape, the number of the tile that each coordinate
        belongs to; None where tiles overlap, or do not cover the tensor in its order."""
        result = []
        for x, whole in zip(self.access.projection, shape, strict=True):
            if len(x.terms) != 1 or x.terms[0][1] != 1:
                return None
            name = x.terms[0][0]
            spanned = np.zeros(whole, np.int64) if self.spans.get(name) == whole else None
            part = self.groups.get(name, spanned)
            if part is None or part.size != whole:
                return None
            result.append(part)
        return tuple(result)

    def bits(self, format: Format, tensor: SparseTensor) -> ActualBits:
        """Return the bits of all nonempty tiles of given data. Overlapping windows each hold the elements
        that they share."""
        order = format.order(self.access.ranks)
        none = np.zeros(0, np.int64)
        if not tensor.nnz:
            return ActualBits(0, 0, 0, 0, 0, none, none)
        if all(int(g.max(initial=0)) == 0 for g in self.groups.values()):
            stored = tensor if order == tensor.ranks else tensor.swizzled(order)
            found = format.bits(levels_of(stored))
            values, every = int(found.payload), int(found.total)
            one = np.array([[every], [tensor.nnz]])
            return ActualBits(values, every, values, every, tensor.nnz, one[0], one[1])
        held = region_table(self.structure, self.used, self.digits, tensor, each=True)
        if not held.rows:
            return ActualBits(0, 0, 0, 0, 0, none, none)
        groups = {v: held.column(v) for v in self.used.variables}
        number = group_numbers(list(groups.values()), held.rows)
        count = int(number.max()) + 1
        one = np.empty(count, np.int64)
        one[number] = np.arange(held.rows)
        boxes = {v: self._box(v, groups[v][one]) for v in self.used.variables}
        boxes |= {v: (np.zeros(count, np.int64), np.full(count, n - 1)) for v, n in self.spans.items()}
        at = [tensor.ranks.index(r) for r in order]
        coords = tensor.coords[at][:, held.column("")]
        line = self._order(
            number, coords, bool((np.diff(held.column("")) > 0).all()) and order == tensor.ranks
        )
        coords, number = coords[:, line], number[line]
        origins, sizes = np.empty((count, len(order)), np.int64), np.empty((count, len(order)), np.int64)
        for k, rank in enumerate(order):
            x = self.access.projection[self.access.ranks.index(rank)]
            ends = [(c, *boxes[v]) for v, c in x.terms]
            low = x.constant + sum(c * (first if c > 0 else last) for c, first, last in ends)
            origins[:, k] = low
            sizes[:, k] = 1 + sum(abs(c) * (last - first) for c, first, last in ends)
        shape = [tensor.shape[i] for i in at]
        found = format.bits(levels_of_groups(tuple(order), coords, number, count, origins, sizes, shape))
        payload, total = np.broadcast_arrays(np.asarray(found.payload), np.asarray(found.total))
        most = int(np.argmax(total))
        return ActualBits(
            int(payload.sum()), int(total.sum()), int(payload.flat[most]), int(total.flat[most]), held.rows,
            np.broadcast_to(total.astype(np.int64), (count,)), np.bincount(number),
        )  # fmt: skip

    def _order(self, number: Ints, coords: Ints, ordered: bool) -> Ints | slice:
        """Return an order of the rows tile by tile, sorted inside each tile. `ordered`: the nonzeros are
        already sorted, and each occurs once."""
        if not ordered:
            return np.lexsort((*coords[::-1], number))
        if (np.diff(number) >= 0).all():
            return slice(None)
        few = int(number.max()) < 2**16
        return np.argsort(number.astype(np.uint16) if few else number, kind="stable")

    def _box(self, variable: str, groups: Ints) -> tuple[Ints, Ints]:
        """Return the first and the last value of a rank variable in each of these groups."""
        counters, every = self.counters[variable], self.groups[variable]
        size = int(every.max()) + 1
        first, last = np.full(size, counters.size, np.int64), np.zeros(size, np.int64)
        np.minimum.at(first, every, np.arange(counters.size))
        np.maximum.at(last, every, np.arange(counters.size))
        return first[groups] + counters.low, last[groups] + counters.low


@dataclass(frozen=True)
class ActualBits:
    """Bits of all tiles and of the largest tile, as values alone (payload) and in total, and the nonzeros of
    all tiles. `each`, `occupancies`: the total bits and the nonzeros of each nonempty tile."""

    payload: int
    total: int
    largest_payload: int
    largest: int
    nonzeros: int
    each: Ints
    occupancies: Ints


@dataclass(frozen=True)
class TileBits:
    """Sums over all tiles of a tiling: points, nonzeros, bits of values (payload) and total bits. They are
    numbers, or arrays with one entry per point of a grid."""

    points: Any
    nonzeros: Any
    payload: Any
    total: Any
    label: Label


@dataclass(frozen=True)
class AccessShare:
    """The remainder of one kind of access: elements that are held, those of them that take a cycle (`turns`),
    those of these that move (`actual`), and the metadata bits that move with them. `share`: the fraction of
    the held elements that moves, 0 without a format. Numbers or arrays."""

    dense: Any
    held: Any
    turns: Any
    actual: Any
    metadata: Any
    share: Any

    @property
    def gated(self) -> Any:
        return self.turns - self.actual


def moved(
    dense: Any,
    held: Any,
    turns: Any,
    actual: Any,
    how: KeptTensor | None,
    tiling: Callable[[KeptTensor], TileBits],
    bits: int,
) -> AccessShare:
    """Return the record of these elements under a component's format. `tiling`: returns the tiles that move
    at once, called only where there is a format. `bits`: width of one value."""
    held = at_most(held, dense)
    turns = at_most(turns, held)
    actual = at_most(actual, turns)
    if how is None:
        return AccessShare(dense, held, turns, actual, 0.0, 0.0)
    share, tiles = ratio(actual, held, 0.0), tiling(how)
    values = tiles.payload if how.blocks else tiles.nonzeros * bits
    metadata = ratio(dense * (tiles.total - values), tiles.points, 0.0) * share
    if how.blocks:
        left = ratio(values, tiles.points * bits, 0.0)
        held, turns, actual = held * left, turns * left, actual * left
    return AccessShare(dense, held, turns, actual, metadata, share)


def shape_of(structure: EinsumLinks, access: TensorAccess) -> tuple[int, ...]:
    """Return the extents that an Einsum touches, one per rank."""
    spans = dict(structure.used(access.tensor).spans)
    bounds = {
        v: np.array(
            [spans[v] if v in spans else 1 + structure.einsum.bound(v)[1] - structure.einsum.bound(v)[0]]
        )
        for v in access.variables
    }
    return tuple(int(window(x, tuple(bounds[v] for v in x.variables))[0]) for x in access.projection)


def full_model(data: TensorData, ranks: Sequence[str], shape: tuple[int, ...]) -> DensityModel:
    """Return the density model of a tensor; a dense one where nothing is known."""
    return data.model if data.model is not None else Uniform.of(ranks, shape, density=1)


def tiling_bits(
    structure: EinsumLinks,
    tensor: str,
    digits: frozenset[int],
    data: TensorData,
    formats: Formats,
    how: KeptTensor,
) -> TileBits:
    """Return the bits of all tiles that these loops make: exact for given data, else expected.

    A position-dependent model gives the mean over all tiles. Where some tiles are smaller, all are taken to
    be as large as the largest, which gives an upper bound. Raises Refused where they do not start at
    multiples of their size.
    """
    tiles = LoopTiles(structure, tensor, digits)
    access, format = tiles.access, how.format
    shape = shape_of(structure, access)
    boxes = list(tiles.classes())
    points = sum(prod(extents) * number for extents, number in boxes)
    if data.actual is not None:
        result = formats.counted(tiles, how, data.actual)
        return TileBits(points, result.nonzeros, result.payload, result.total, "exact")
    model = full_model(data, access.ranks, shape)
    order = format.order(access.ranks)
    label = data.label
    if not model.placeless:
        if not tiles.regular():
            what = f"{tensor}: tiles that do not lie at multiples of their size, of a model that knows places"
            remedy = "choose sizes that divide one another, or give the data"
            raise Refused(what, remedy, code="unsupported-density")
        if len(boxes) > 1:
            label = "bound"
            most = tuple(max(extents[k] for extents, _ in boxes) for k in range(len(shape)))
            boxes = [(most, sum(number for _, number in boxes))]
    payload, total = 0.0, 0.0
    for extents, number in boxes:
        each = format.bits(expected_levels(model, extents, order))
        payload += float(each.payload) * number
        total += float(each.total) * number
    return TileBits(points, points * data.density, payload, total, label)


def transfer_digits(structure: EinsumLinks, tensor: str, node: int, kind: str) -> frozenset[int]:
    """Return the loops that divide a tensor into the tiles that move at once: the tiles of the next inner
    storage or, where compute takes value by value, of the storage itself."""
    links = structure.links(tensor)
    for link in links:
        if kind in ("reads_fill", "writes_drain") and link.parent == node:
            fine = link.fine if link.child is not None else _above(structure, node)
            return fine - {POINT}
        if link.child == node:
            result = link.fine
            if kind in ("writes_fill", "reads_drain"):
                return result
    return frozenset()


def _above(structure: EinsumLinks, node: int) -> frozenset[int]:
    return frozenset(i for i, _ in structure.loops if i < node)
