"""Lower bounds on the space that sparse tiles take, so that the search drops no mapping that fits
compressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import isinf, prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Fit, Hierarchy
from polymodel.factoring import divisors
from polymodel.frozen import dataclass
from polymodel.mapper.records import Sizes
from polymodel.mapping.looptree import LoopTree
from polymodel.sparse.actions.capacity import fit_of, needed_bits
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.places import seen_by
from polymodel.sparse.actions.storage import KeptTensor, full_model, stored_as, written_format
from polymodel.sparse.actions.tally import window
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.formats import CISS, CP, RLE, B, NamedFormat, PerRank, RankRule, expected_levels
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# The search assumes that the bits of a tile are proportional to the product of its extents; compressed tiles
# (`sparse.actions.capacity`) are not. So it counts a share of the dense bits, and gives memories additional
# bits, such that for every tile that fits by itself: needed >= share * dense - free. Then no mapping that
# fits is dropped. Each mapping that is found is checked with its actual bits.

MOST = 4096  # shapes of one tensor's tiles up to which all are evaluated
SLOPES = 256  # candidate shares, of which the best is chosen
NEVER = 1e12  # the share of a tensor of which no tile fits
LARGE = 4  # tiles of at least 1/LARGE of the largest one that fits determine `usual`

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LeastRoom:
    """A linear lower bound for the tiles of one tensor in one memory.

    They need at least `share` of their dense bits less `free` bits. As fractions of dense bits: `usual`, the
    largest need of a large tile that fits; `most`, the largest need of any tile.
    """

    share: float = 1.0
    free: float = 0.0
    usual: float = 1.0
    most: float = 1.0


Rooms = Mapping[tuple[str, str], LeastRoom]  # (memory, tensor), where compressed tiles have to fit


def compressed(hierarchy: Hierarchy) -> bool:
    """Return whether the bits of compressed tiles decide whether tiles fit in some memory."""
    return any(_bounded(c) for c in hierarchy.components)


def _bounded(component: Component) -> bool:
    formats = component.sparse.formats if component.sparse is not None else ()
    return component.stores and not isinf(component.size_bits) and bool(formats)


def least_tile_bits(
    cascade: Cascade, hierarchy: Hierarchy, data: Mapping[str, TensorData], sizes: Sizes
) -> dict[tuple[str, str], LeastRoom]:
    """The bounds for each bounded memory and each tensor that it keeps compressed."""
    problem = Problem(cascade, hierarchy, LoopTree(()))
    result: dict[tuple[str, str], list[LeastRoom]] = {}
    for one in cascade.einsums:
        seen = seen_by(one, data)
        for component in filter(_bounded, hierarchy.components):
            assert component.sparse is not None, "it has formats"
            for access in one.accesses:
                written = component.sparse.format_of(access.tensor)
                how = None if written is None else stored_as(written_format(access, written))
                if how is not None and (how.elides or how.blocks):
                    tiles = _TileRoom(problem, one, access, how, seen[access.tensor], component)
                    result.setdefault((component.name, access.tensor), []).append(tiles.least(sizes))
    return _alike({key: _of_all(rooms) for key, rooms in result.items()}, cascade, hierarchy)


def _of_all(rooms: Sequence[LeastRoom]) -> LeastRoom:
    """Return the bound of one tensor that is valid in several Einsums."""
    usual, most = max(r.usual for r in rooms), max(r.most for r in rooms)
    return LeastRoom(min(r.share for r in rooms), max(r.free for r in rooms), usual, most)


def stored_shares(
    cascade: Cascade, hierarchy: Hierarchy, rooms: Rooms, which: Literal["share", "usual", "most"] = "share"
) -> list[tuple[tuple[float, ...], ...]]:
    """Return, per Einsum, operand and memory, the fraction of its dense bits with which a tile counts."""

    def share(memory: str, tensor: str) -> float:
        return float(getattr(rooms.get((memory, tensor), LeastRoom()), which))

    names = [c.name for c in hierarchy.components if c.stores]
    return [tuple(tuple(share(m, a.tensor) for m in names) for a in one.accesses) for one in cascade.einsums]


def free_room(cascade: Cascade, hierarchy: Hierarchy, rooms: Rooms) -> tuple[tuple[str, float], ...]:
    """Additional bits of memories.

    All tensors may be resident at once, twice with double buffering, and once per instance of the Einsum if
    they persist.
    """
    times = max((e.n_instances for e in cascade.einsums), default=1)
    result: dict[str, float] = {}
    for (memory, _), room in rooms.items():
        result[memory] = result.get(memory, 0.0) + room.free * times * (2 if hierarchy.doubles(memory) else 1)
    return tuple((m, bits) for m, bits in result.items() if bits)


def _alike(
    rooms: dict[tuple[str, str], LeastRoom], cascade: Cascade, hierarchy: Hierarchy
) -> dict[tuple[str, str], LeastRoom]:
    """Return the bounds with one fraction for exchanged tensors in all memories: the least of these."""
    for tensor in cascade.intermediates:
        mine = [m for m, t in rooms if t == tensor]
        if not mine:
            continue
        bounded = [c.name for c in hierarchy.components if c.stores and not isinf(c.size_bits)]
        every = [rooms.get((m, tensor), LeastRoom()) for m in bounded]
        share = min(r.share for r in every)
        usual, most = max(r.usual for r in every), max(r.most for r in every)
        for m in bounded:
            free = rooms[m, tensor].free if m in mine else 0.0
            rooms[m, tensor] = LeastRoom(share, free, usual, most)
    return rooms


@dataclass(frozen=True)
class _TileRoom:
    """The tiles of one tensor that mappings of one Einsum may have in a memory."""

    problem: Problem
    einsum: Einsum
    access: TensorAccess
    how: KeptTensor
    known: TensorData
    component: Component

    def least(self, sizes: Sizes) -> LeastRoom:
        shapes = self._shapes(sizes)
        if shapes is None:  # too many to enumerate
            return LeastRoom(0.0, 0.0, 1.0)
        dense = shapes.astype(np.float64).prod(axis=1) * self.access.bits_per_value
        needed = self._needed(shapes)
        fits = needed <= self.component.size_bits
        if not fits.any():
            return LeastRoom(NEVER, 0.0, NEVER, NEVER)
        line = _line(dense[fits], needed[fits], self.component.size_bits)
        return replace(line, most=float((needed / dense).max()))

    def _shapes(self, sizes: Sizes) -> Ints | None:
        """Extents per rank [shapes, ranks]; None if there are too many to enumerate."""
        each = []
        for v in self.access.variables:
            low, high = self.einsum.bound(v)
            every = high - low + 1
            each.append(range(1, every + 1) if sizes == "all" else divisors(every))
        if prod(map(len, each)) > MOST:
            return None
        tiles = np.array(list(product(*each)), np.int64).reshape(-1, len(each)).T
        of = dict(zip(self.access.variables, tiles, strict=True))
        ranks = [window(x, tuple(of[v] for v in x.variables)) for x in self.access.projection]
        result = np.array([np.broadcast_to(r, tiles.shape[1]) for r in ranks], np.int64)
        return np.unique(result.T, axis=0)

    def _needed(self, shapes: Ints) -> Floats:
        fit = fit_of(self.problem, self.component.name, self.access.tensor)
        if self.known.actual is not None:
            model = self.known.model
            assert model is not None, "data are a model of their own"
            most = model.quantile(shapes, fit) if isinstance(fit, float) else model.expected_max(shapes)
            return np.asarray(most, np.float64) * bits_of_one(self.how, len(self.access.ranks))
        model = full_model(self.known, self.access.ranks, self._touched())
        order = self.how.format.order(self.access.ranks)
        expected = np.broadcast_to(
            self.how.format.bits(expected_levels(model, shapes, order)).total, len(shapes)
        )
        if fit == "expected":
            return expected.astype(np.float64)
        return np.array([self._one(model, shape, fit, e) for shape, e in zip(shapes, expected, strict=True)])

    def _one(self, model: DensityModel, shape: Ints, fit: Fit, expected: float) -> float:
        extents = tuple(int(n) for n in shape)
        ranks, computed = self.access.ranks, self.known.computed
        return needed_bits(model, self.how, ranks, extents, fit, float(expected), computed)

    def _touched(self) -> tuple[int, ...]:
        bounds = {v: self.einsum.bound(v) for v in self.access.variables}
        sizes = {v: np.array([high - low + 1]) for v, (low, high) in bounds.items()}
        return tuple(int(window(x, tuple(sizes[v] for v in x.variables))[0]) for x in self.access.projection)


def _line(dense: Floats, needed: Floats, size: float) -> LeastRoom:
    """Return the linear bound that leaves a tile the least space beyond the capacity."""
    ratios = needed / dense
    large = dense >= dense.max() / LARGE
    usual = float(ratios[large].max())
    shares = np.unique(ratios[ratios > 0])
    if not shares.size:
        return LeastRoom(0.0, 0.0, usual)
    shares = shares[np.unique(np.linspace(0, shares.size - 1, SLOPES).astype(int))]
    free = np.maximum(shares[:, None] * dense[None, :] - needed[None, :], 0.0).max(axis=1)
    best = int(np.argmin((size + free) / shares))
    return LeastRoom(float(shares[best]), float(free[best]), usual)


# Least bits of single nonzeros.


def payload_bits(how: KeptTensor) -> int:
    """Bits of one stored value."""
    form = how.format
    if isinstance(form, NamedFormat | CISS):
        return form.widths.data
    assert isinstance(form, PerRank), "formats are per rank or of whole tensors"
    return int(getattr(form.rules[-1], "pbits", 0))


def bits_of_one(how: KeptTensor, ranks: int) -> int:
    """Lower bound of the bits per nonzero; coordinates whose width depends on tile sizes count one bit
    each."""
    form = how.format
    if isinstance(form, NamedFormat):
        index = 1 if form.widths.index is None else form.widths.index
        return payload_bits(how) + index * (ranks if form.kind == "COO" else min(ranks, 1))
    return payload_bits(how) + (_metadata_bits(form.rules[-1]) if isinstance(form, PerRank) else 0)


def _metadata_bits(rule: RankRule) -> int:
    """Return bits in addition to a value in the last rank."""
    width: int | None = 0
    if isinstance(rule, CP | B):
        width = rule.cbits
    elif isinstance(rule, RLE):
        width = rule.rbits
    return 1 if width is None else width
