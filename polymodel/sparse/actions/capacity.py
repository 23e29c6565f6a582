"""Decide whether sparse tiles fit: the bits of the largest tile, the fit rule of its memory, and the cost of
overbooking."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from polymodel.analysis.result import Analysis, Buffet, Problem, Resident
from polymodel.architecture.hierarchy import Fit
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import storage_chain
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import EinsumLinks
from polymodel.sparse.actions.places import seen_by
from polymodel.sparse.actions.records import (
    AccessCount,
    Certainty,
    SparseCounts,
    TileFootprint,
    least_certain,
    ratio,
)
from polymodel.sparse.actions.storage import Formats, KeptTensor, LoopTiles, full_model, shape_of
from polymodel.sparse.density.model import DensityModel, Floats, Label
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.formats import CISS, expected_levels, scattered_levels

# The rules are those of docs/sparse/capacity.md.


def fit_of(problem: Problem, component: str, tensor: str) -> Fit:
    """Return the rule that decides whether tiles of a tensor fit into a component. An output is never
    overbooked: its partial sums would have to be read back at each use, so its fullest tile has to fit."""
    rules = problem.hierarchy[component].sparse
    fit: Fit = "expected" if rules is None else rules.fit
    written = any(a.output and a.tensor == tensor for e in problem.cascade for a in e.accesses)
    return "worst" if written and isinstance(fit, float) else fit


def resident(
    problem: Problem, buffet: Buffet, data: Mapping[str, TensorData], formats: Formats, confidence: float
) -> TileFootprint | None:
    """Return the footprint of the largest tile of a buffet in its component's format; None if it has no
    format."""
    how = formats.known.get((buffet.component, buffet.tensor))
    if how is None or not buffet.tile_max:
        return None
    known, tiles = _tiles_of(problem, buffet, data)
    fit = fit_of(problem, buffet.component, buffet.tensor)
    dense = buffet.tile_max * tiles.access.bits_per_value
    if known.actual is None:
        return _expected_resident(buffet, tiles, how, known, confidence, fit)
    found = formats.counted(tiles, how, known.actual)
    value, bits = float(found.largest_payload), float(found.largest)
    needed = bits
    if isinstance(fit, float):
        every = sum(number for _, number in tiles.classes())
        # The quantile of tile sizes at the required confidence; empty tiles take no space.
        place = math.ceil(fit * every * (1 - 1e-12)) - 1 - (every - found.each.size)
        needed = float(np.sort(found.each)[place]) if place >= 0 else 0.0
    return TileFootprint(
        buffet.node, buffet.component, buffet.tensor, how.format.name, buffet.tile_max, dense,
        value, bits - value, bits, 1.0, "exact", needed_bits=needed,
    )  # fmt: skip


def _tiles_of(
    problem: Problem, buffet: Buffet, data: Mapping[str, TensorData]
) -> tuple[TensorData, LoopTiles]:
    """Return what is known of the nonzeros of a buffet's tensor, and the tensor's tiles there."""
    structure = EinsumLinks(problem, buffet.einsums[0])
    digits = frozenset(i for i, _ in structure.loops if i < buffet.node)
    return seen_by(structure.einsum, data)[buffet.tensor], LoopTiles(structure, buffet.tensor, digits)


def _model_of(tiles: LoopTiles, known: TensorData) -> DensityModel:
    return full_model(known, tiles.access.ranks, shape_of(tiles.structure, tiles.access))


def _expected_resident(
    buffet: Buffet, tiles: LoopTiles, how: KeptTensor, known: TensorData, confidence: float, fit: Fit
) -> TileFootprint:
    access = tiles.access
    dense = buffet.tile_max * access.bits_per_value
    largest = max((e for e, _ in tiles.classes()), key=lambda e: float(np.prod(e, dtype=float)))
    model = _model_of(tiles, known)
    order = how.format.order(access.ranks)
    result = how.format.bits(expected_levels(model, largest, order))
    most = int(model.quantile(largest, confidence))
    top = _expected_bits(how, access.ranks, largest, most)
    mean, deviation = float(model.expected(largest)), float(model.variance(largest)) ** 0.5
    total = float(result.total)
    each = (top - total) / (most - mean) if most > mean and top > total else float(access.bits_per_value)
    needed = needed_bits(model, how, access.ranks, largest, fit, total, known.computed)
    return TileFootprint(
        buffet.node, buffet.component, buffet.tensor, how.format.name, buffet.tile_max, dense,
        float(result.payload), float(result.metadata),
        max(most_bits(how, access.ranks, largest, most), total), confidence, known.label,
        largest, total - each * mean, each, each * deviation, needed,
    )  # fmt: skip


def _expected_bits(how: KeptTensor, ranks: Sequence[str], extents: Sequence[int], nonzeros: int) -> float:
    """Return the expected bits of a tile with this many nonzeros at random positions."""
    ranks = tuple(ranks)
    filled = Uniform.of(ranks, tuple(extents), nnz=min(nonzeros, math.prod(extents)))
    return float(how.format.bits(expected_levels(filled, None, how.format.order(ranks))).total)


def most_bits(how: KeptTensor, ranks: Sequence[str], extents: Sequence[int], nonzeros: int) -> float:
    """Return the maximum bits of a tile with this many nonzeros, over all their positions. For CISS return
    the expected bits."""
    if isinstance(how.format, CISS):
        return _expected_bits(how, ranks, extents, nonzeros)
    order = how.format.order(tuple(ranks))
    size = dict(zip(ranks, extents, strict=True))
    result = scattered_levels(order, [size[r] for r in order], min(nonzeros, math.prod(extents)))
    return float(how.format.bits(result).total)


def nonzeros_with_room(
    how: KeptTensor, ranks: Sequence[str], extents: Sequence[int], room: float
) -> tuple[int, bool]:
    """Return the number of nonzeros of a tile that fit into these bits at any positions (-1 if not even an
    empty tile fits), and whether one more nonzero never fits."""
    points = math.prod(extents)

    def exceeds(nonzeros: int) -> bool:
        return most_bits(how, ranks, extents, nonzeros) > room + 1e-9

    least = bisect_left(range(points + 1), True, key=exceeds)
    if least in (0, points + 1):
        return least - 1, True
    most = most_bits(how, ranks, extents, least)
    return least - 1, math.isclose(_expected_bits(how, ranks, extents, least), most, rel_tol=1e-9)


def needed_bits(
    model: DensityModel,
    how: KeptTensor,
    ranks: Sequence[str],
    extents: Sequence[int],
    fit: Fit,
    expected: float,
    computed: bool,
) -> float:
    """Return the size at which a tile of these extents fits. `expected`: its expected bits under the model.
    `computed`: True for an output, whose model is only an approximation, so that any point may be nonzero."""
    if fit == "expected":
        return expected
    if fit == "worst" and computed:
        return most_bits(how, ranks, extents, math.prod(extents))
    share = 1.0 if fit == "worst" else fit
    return most_bits(how, ranks, extents, int(model.quantile(extents, share)))


# Working sets of sparse tiles are compared with memory sizes: expected bits, and the probability of overflow.


@dataclass(frozen=True)
class MemoryDemand:
    """The demand on one memory during one Einsum, in bits of its busiest instance. `bits`: the expected
    demand (exact for given data). `needed_bits`: the size that the fit rule of the memory requires.

    `p_overflow`: the probability that tiles of the largest size, each at a random position, together exceed
    the size of the memory (for given data 1 if the fullest tiles do, else 0). It is not the probability that
    any tile of the run exceeds it. Its `label` is `bound` where it is only an upper bound (for dependent
    tiles by Cantelli's inequality).
    """

    component: str
    einsum: str
    dense_bits: int
    bits: float
    needed_bits: float
    capacity_bits: float
    p_overflow: float
    label: Label

    @property
    def fits(self) -> bool:
        """Return True if the working set fits according to the rule of the memory."""
        return self.needed_bits <= self.capacity_bits


def capacity_checks(
    problem: Problem, analysis: Analysis, counts: SparseCounts, data: Mapping[str, TensorData]
) -> tuple[MemoryDemand, ...]:
    """Return one record per working set that is checked against the size of its memory."""
    held = {(f.node, f.tensor): f for f in counts.footprints}
    formats = Formats(problem)
    result = []
    for peak in analysis.working_sets:
        component = problem.hierarchy[peak.component]
        if peak.measure != component.allocation:
            continue
        sparse = [(r, held[r.node, r.tensor]) for r in peak.residents if (r.node, r.tensor) in held]
        rest = peak.bits - sum(r.bits for r, _ in sparse)
        bits = rest + sum(_scaled(r, f, f.bits) for r, f in sparse)
        needed = rest + sum(_scaled(r, f, f.needed_bits) for r, f in sparse)
        seen = seen_by(problem.cascade[peak.einsum], data)
        # A resident tile may belong to a tensor that only another Einsum accesses.
        kept = {
            (f.component, f.tensor): (
                formats.known[f.component, f.tensor],
                problem.cascade.accesses_of(f.tensor)[0].ranks,
            )
            for _, f in sparse
        }
        chance, label = _overflow(component.size_bits - rest, sparse, seen, kept)
        if all(f.label == "exact" for _, f in sparse):
            label = "exact"
        size = component.size_bits
        result.append(MemoryDemand(peak.component, peak.einsum, peak.bits, bits, needed, size, chance, label))
    return tuple(result)


def _scaled(resident: Resident, tile: TileFootprint, bits: float) -> float:
    """Return the bits of the resident elements, which may be more or fewer than one tile."""
    return resident.bits * bits / tile.dense_bits if tile.dense_bits else 0.0


def _overflow(
    room: float,
    sparse: Sequence[tuple[Resident, TileFootprint]],
    data: Mapping[str, TensorData],
    kept: Mapping[tuple[str, str], tuple[KeptTensor, tuple[str, ...]]],
) -> tuple[float, Label]:
    """Return the probability that sparse tiles exceed the space that dense tiles leave, and its certainty
    label. `kept`: for each (component, tensor) the format, and the tensor's ranks."""
    if math.isinf(room):
        return 0.0, "exact"
    mean = sum(_scaled(r, f, f.bits) for r, f in sparse)
    # Tiles with equally many nonzeros may also differ in size, depending on their places.
    random = [(r, f) for r, f in sparse if f.spread or f.quantile_bits > f.bits * (1 + 1e-9)]
    if not random:
        return float(mean > room), "exact"
    if len(random) == 1:
        (resident, tile), fixed = random[0], mean
        fixed -= _scaled(resident, tile, tile.bits)
        how, ranks = kept[tile.component, tile.tensor]
        most, sure = nonzeros_with_room(how, ranks, tile.extents, (room - fixed) / _scaled(resident, tile, 1))
        if most < 0:
            return 1.0, "expected"
        model = data[tile.tensor].model
        assert model is not None, "only tensors with a model have tiles of different occupancies"
        return float(np.clip(1 - model.cdf(tile.extents, most), 0, 1)), _of_model(sure)
    # Tiles of one tensor, and of an output and its inputs, are positively correlated.
    independent = len({f.tensor for _, f in random}) == len(random)
    independent &= not any(data[f.tensor].computed for _, f in random)
    if independent:
        laws = [_law(r, f, *kept[f.component, f.tensor], data[f.tensor].model) for r, f in random]
        known = [law for law in laws if law is not None]
        fixed = mean - sum(_scaled(r, f, f.bits) for r, f in random)
        if len(known) == len(laws) and math.prod(law.bits.size for law in known[1:]) <= _MOST_TOGETHER:
            return _sum_exceeds(room - fixed, known), _of_model(all(law.sure for law in known))
    spreads = [_scaled(r, f, f.spread) for r, f in random]
    # Whatever the correlation, the standard deviation of a sum is at most the sum of standard deviations.
    variance = sum(s**2 for s in spreads) if independent else sum(spreads) ** 2
    slack = room - mean
    if slack <= 0:
        return 1.0, "bound"
    return variance / (variance + slack**2), "bound"


# The most numbers of nonzeros of a tile, and combinations of those of several tiles, that are enumerated.
_MOST_NUMBERS, _MOST_TOGETHER = 2**10, 2**20


@dataclass(frozen=True, eq=False)
class _TileLaw:
    """The distribution of the bits of a tile: the maximum bits for each number of nonzeros in ascending
    order, and the probability of that number. `sure`: whether the bits are independent of the positions."""

    bits: Floats
    chance: Floats
    sure: bool


def _law(
    resident: Resident, tile: TileFootprint, how: KeptTensor, ranks: Sequence[str], model: DensityModel | None
) -> _TileLaw | None:
    """Return the distribution; None where a tile has too many possible numbers of nonzeros to enumerate."""
    assert model is not None, "only tensors with a model have tiles of different occupancies"
    low, high = (int(model.quantile(tile.extents, share)) for share in (1e-15, 1.0))
    if high - low >= _MOST_NUMBERS:
        return None
    numbers = np.arange(low, high + 1)
    upto = np.asarray(model.cdf(tile.extents, numbers), dtype=float)
    most = np.array([most_bits(how, ranks, tile.extents, n) for n in numbers.tolist()])
    expected = np.array([_expected_bits(how, ranks, tile.extents, n) for n in numbers.tolist()])
    sure = bool(np.allclose(most, expected, rtol=1e-9, atol=0))
    return _TileLaw(most * _scaled(resident, tile, 1), np.diff(upto, prepend=0.0), sure)


def _sum_exceeds(room: float, laws: Sequence[_TileLaw]) -> float:
    """Return the probability that independent tiles together exceed this many bits."""
    first, *others = laws
    bits, chance = np.zeros(1), np.ones(1)
    for law in others:
        bits = np.add.outer(bits, law.bits).ravel()
        chance = np.multiply.outer(chance, law.chance).ravel()
    tail = np.append(np.cumsum(first.chance[::-1])[::-1], 0.0)
    above = tail[np.searchsorted(first.bits, room - bits + 1e-9, side="right")]
    return float(np.clip((chance * above).sum(), 0, 1))


# Overbooking: the part of a tile that does not fit is fetched again at each use (Tailors, MICRO 2023).


def overbooked(
    problem: Problem,
    analysis: Analysis,
    accesses: Sequence[AccessCount],
    footprints: Sequence[TileFootprint],
    data: Mapping[str, TensorData],
    formats: Formats,
) -> tuple[tuple[AccessCount, ...], tuple[str, ...]]:
    """Return the accesses including repeated fetches, and a note for each tensor that has repeated
    fetches."""
    rooms = _tile_capacities(problem, analysis, footprints)
    result = {(a.einsum, a.node, a.tensor, a.kind): a for a in accesses}
    notes = []
    # Innermost first: every repeated fetch there is an additional use further out.
    for buffet in sorted(analysis.buffets, key=lambda b: -b.node):
        room = rooms.get((buffet.node, buffet.tensor))
        if room is None or buffet.parent is None:
            continue
        share, sure = _overflowing(problem, buffet, room, data, formats)
        again, label = _again(result, buffet, share, data[buffet.tensor].actual is not None, sure)
        if again <= 1:
            continue
        for key in _fetches(problem, buffet, result):
            result[key] = _grown(result[key], again, label)
        part = f"{share:.3%}" if share >= 5e-6 else "less than 0.001%"
        notes.append(
            f"{buffet.component}: {part} of what its tiles of {buffet.tensor} hold finds no room there, "
            "and is fetched again at each use"
        )
    return tuple(result[a.einsum, a.node, a.tensor, a.kind] for a in accesses), tuple(notes)


def _tile_capacities(
    problem: Problem, analysis: Analysis, footprints: Sequence[TileFootprint]
) -> dict[tuple[int, str], float]:
    """Return the bits available for a tile of each tensor that may be overbooked: its minimum requirement,
    plus a share of the remaining space in proportion to its expected bits."""
    held = {(f.node, f.tensor): f for f in footprints}
    result: dict[tuple[int, str], float] = {}
    for peak in analysis.working_sets:
        component = problem.hierarchy[peak.component]
        if peak.measure != component.allocation or math.isinf(component.size_bits):
            continue
        sparse = [(r, held[r.node, r.tensor]) for r in peak.residents if (r.node, r.tensor) in held]
        spare = component.size_bits - (peak.bits - sum(r.bits for r, _ in sparse))
        spare -= sum(_scaled(r, f, f.needed_bits) for r, f in sparse)
        expected = sum(_scaled(r, f, f.bits) for r, f in sparse)
        for _, f in sparse:
            if isinstance(fit_of(problem, f.component, f.tensor), float):
                room = f.needed_bits + (spare * f.bits / expected if expected else spare)
                result[f.node, f.tensor] = min(room, result.get((f.node, f.tensor), math.inf))
    return result


def _overflowing(
    problem: Problem,
    buffet: Buffet,
    room: float,
    data: Mapping[str, TensorData],
    formats: Formats,
) -> tuple[float, bool]:
    """Return the fraction of all tile contents that exceeds the available space, and whether that number is
    more than an upper bound."""
    known, tiles = _tiles_of(problem, buffet, data)
    how = formats.known[buffet.component, buffet.tensor]
    if known.actual is not None:
        result = formats.counted(tiles, how, known.actual)
        # Only whole nonzeros are retained, each with its share of the bits of its tile.
        stay = np.floor(room * result.occupancies / np.maximum(result.each, 1) + 1e-9)
        over = np.maximum(result.occupancies - stay, 0).sum()
        return float(ratio(over, result.occupancies.sum(), 0.0)), True
    model = _model_of(tiles, known)
    held, over, sure_of_all = 0.0, 0.0, True
    for extents, number in tiles.classes():
        most, sure = nonzeros_with_room(how, tiles.access.ranks, extents, room)
        held += number * float(model.expected(extents))
        over += number * expected_excess(model, extents, max(most, 0))
        sure_of_all &= sure
    return float(ratio(over, held, 0.0)), sure_of_all


def expected_excess(model: DensityModel, extents: Sequence[int], most: int) -> float:
    """Return the expected number of nonzeros of a tile in excess of `most`: the sum over s >= most of P(more
    than s). Below the mean it is the expected nonzeros minus `most`, plus the sum over s < most of P(s or
    fewer). Each sum starts at the end nearest to `most`."""
    mean = float(model.expected(extents))
    below = most < mean
    far = 0 if below else int(model.quantile(extents, 1.0))
    total, step = 0.0, -(1 << 12) if below else 1 << 12
    for near in range(most, far, step):
        end = max(near + step, far) if below else min(near + step, far)
        chance = np.asarray(model.cdf(extents, np.arange(min(near, end), max(near, end))))
        part = float(np.maximum(chance if below else 1 - chance, 0).sum())
        total += part
        if part <= 1e-15 * total:
            break
    return mean - most + total if below else total


def _of_model(sure: bool) -> Label:
    """Return the certainty label under a density model: `expected` where positions do not matter (`sure`),
    else `bound`."""
    return "expected" if sure else "bound"


def _again(
    found: Mapping[tuple[str, int, str, str], AccessCount],
    buffet: Buffet,
    share: float,
    given: bool,
    sure: bool,
) -> tuple[float, Certainty]:
    """Return the factor by which fetches are repeated, and its certainty label."""
    reads, fills = (
        [
            found[e, buffet.node, buffet.tensor, kind]
            for e in buffet.einsums
            if (e, buffet.node, buffet.tensor, kind) in found
        ]
        for kind in ("reads_fill", "writes_fill")
    )
    used, filled = sum(a.actual for a in reads), sum(a.actual for a in fills)
    if not share or not filled or used <= filled:
        return 1.0, "exact"
    # All tiles of given data are read equally often only where no action eliminates reads.
    eliminated = any(a.gated or a.skipped for a in (*reads, *fills))
    label: Certainty = "estimate" if given and eliminated else "exact" if given else _of_model(sure)
    return 1 + share * (used / filled - 1), label


def _fetches(
    problem: Problem, buffet: Buffet, found: Mapping[tuple[str, int, str, str], AccessCount]
) -> Iterator[tuple[str, int, str, str]]:
    """Yield the accesses that fill a buffet: its own writes, and the reads of the next outer storage."""
    for e in buffet.einsums:
        chain = [s.id for s in storage_chain(problem.tree, e, buffet.tensor)]
        if buffet.node not in chain:
            continue
        outer = chain[chain.index(buffet.node) - 1]
        for key in ((e, buffet.node, buffet.tensor, "writes_fill"), (e, outer, buffet.tensor, "reads_fill")):
            if key in found:
                yield key


def _grown(count: AccessCount, again: float, label: Certainty) -> AccessCount:
    more = count.actual * (again - 1)
    return replace(
        count,
        actual=count.actual + more,
        refetched=count.refetched + more,
        metadata_bits=count.metadata_bits * again,
        label=least_certain((count.label, label)),
        metadata_label=least_certain((count.metadata_label, label)),
    )
