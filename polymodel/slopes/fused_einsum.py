"""Mappings of one Einsum below fused loops, in the three figures by which FFMR combines Einsums.

FFMR (fusion-friendly mapping rule) places all fused loops above all unfused ones. Below them the Einsum has
one tile per rank variable and a loop order of its own. A tensor that no fused loop indexes stays through all
fused iterations: its tile is *additive*. The others are dropped at the end of every fused iteration: their
tiles are *maximal*, one Einsum's at a time. Any of them may instead be kept over the fused nest and is then
additive too (`ffmr_retain`). Capacity of a fused group = sum of the additive terms + the largest maximal one.

The placement determines the traffic (`refill`): a tensor is stored below the innermost loop of more than one
trip that indexes it, so that each iteration of all loops above it moves its tile, and the loops below move
nothing. So its accesses are its volume times the trips of the loops above that do not index it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.pareto import undominated
from polymodel.slopes.loop_nests import OrderClass, blocks, nests, subsets
from polymodel.slopes.tile_sizes import TileChoices, TileSizeChoices
from polymodel.workload.einsum import Einsum

Ints = NDArray[np.int64]
BLOCK = 2**19  # mappings compared at once
MOST = 2**28  # mappings compared in total


@dataclass(frozen=True)
class FusedSetting:
    """One Einsum below fused loops over its rank variables `loops`, in the order of keys.

    `tilings`: per rank variable, in the Einsum's order. `free`: intermediates of the group, which are held as
    fused tiles and cause no traffic. `resident`: tensors held whole outside the group: no term, no accesses.
    `order`: None drops all maximal tensors; otherwise the fused loops, outermost first, over which at least
    one of them is kept. `weights`: (tensor, width of an element).
    """

    einsum: Einsum
    loops: tuple[str, ...]
    tilings: tuple[TileSizeChoices, ...]
    free: frozenset[str] = frozenset()
    resident: frozenset[str] = frozenset()
    order: tuple[str, ...] | None = None
    weights: tuple[tuple[str, int], ...] = ()

    @cached_property
    def of(self) -> Mapping[str, TileSizeChoices]:
        return dict(zip(self.einsum.rank_variables, self.tilings, strict=True))

    @cached_property
    def width(self) -> Mapping[str, int]:
        return dict.fromkeys(self.einsum.tensors, 1) | dict(self.weights)

    @cached_property
    def indexed(self) -> Mapping[str, frozenset[str]]:
        """Return rank variables of the tensors that move to and from the backing store."""
        moved = (a for a in self.einsum.accesses if a.tensor not in self.free | self.resident)
        return {a.tensor: frozenset(a.variables) for a in moved}

    @cached_property
    def keys(self) -> tuple[int, ...]:
        """Return the number of fused tiles of each loop."""
        return tuple(len(self.of[v].fused) for v in self.loops)


@dataclass(frozen=True)
class FusedTemplate:
    """Mappings that differ in tile sizes only: loops below (`order`, outermost first) and kept tensors."""

    setting: FusedSetting
    order: OrderClass
    kept: frozenset[str]

    @cached_property
    def parts(self) -> tuple[TileChoices, ...]:
        """Return the choices per rank variable. A loop that moves only tensors that it indexes causes no
        extra traffic, so that its smallest tile is optimal."""
        outside = frozenset(v for _, loops in self.order.outside for v in loops)
        return tuple(self._part(v, outside) for v in self.setting.einsum.rank_variables)

    def _part(self, variable: str, outside: frozenset[str]) -> TileChoices:
        sizes = self.setting.of[variable]
        if variable not in self.order.order:
            return sizes.whole
        return sizes.split if variable in outside else sizes.least


@dataclass(frozen=True)
class FusedChoice:
    """One mapping of an Einsum below fused loops.

    `tiles`: per rank variable. `order`: loops below the fused ones, outermost first. `roles`: per tensor
    drop, keep, add, free or resident. Figures are in the slope's unit.
    """

    einsum: str
    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    roles: tuple[tuple[str, str], ...]
    additive: int
    maximal: int
    accesses: int


@dataclass(frozen=True, eq=False)
class Candidates:
    """Mappings not dominated in all three figures by one of the same fused tiles (`key`), sorted by key.

    `columns` [6, n]: key, additive, maximal, accesses, number of the template, position in its sizes.
    """

    columns: Ints
    templates: tuple[FusedTemplate, ...]
    compared: int

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    @property
    def key(self) -> Ints:
        result: Ints = self.columns[0]
        return result

    @property
    def additive(self) -> Ints:
        result: Ints = self.columns[1]
        return result

    @property
    def maximal(self) -> Ints:
        result: Ints = self.columns[2]
        return result

    @property
    def accesses(self) -> Ints:
        result: Ints = self.columns[3]
        return result

    def choice(self, at: int) -> FusedChoice:
        """Return one of the mappings, in full."""
        _, additive, maximal, accesses, number, flat = map(int, self.columns[:, at])
        template = self.templates[number]
        one, parts = template.setting.einsum, template.parts
        where = map(int, np.unravel_index(flat, tuple(len(p) for p in parts)))
        tiles = tuple((v, int(p.inner[i])) for v, p, i in zip(one.rank_variables, parts, where, strict=True))
        roles = tuple((t, role(template, t)) for t in one.tensors)
        return FusedChoice(one.name, tiles, template.order.order, roles, additive, maximal, accesses)


def together(first: Candidates, then: Candidates) -> Candidates:
    """Return the mappings of two settings with the same fused tiles, pruned."""
    moved = then.columns.copy()
    moved[4] += len(first.templates)
    columns = _pruned(np.concatenate((first.columns, moved), axis=1))
    return Candidates(columns, first.templates + then.templates, first.compared + then.compared)


def _pruned(columns: Ints) -> Ints:
    kept: Ints = columns[:, undominated_by_key(columns)]
    return kept


def undominated_by_key(columns: Ints) -> Ints:
    """Return positions of the mappings that none of the same key dominates.

    The comparison uses additive terms, maximal terms and accesses (rows 1 to 3 of the columns). The result is
    sorted by key and these.
    """
    kept = undominated(list(columns[1:4]), columns[0])
    ordered: Ints = kept[np.lexsort(tuple(columns[row, kept] for row in (3, 2, 1, 0)))]
    return ordered


def role(template: FusedTemplate, tensor: str) -> str:
    """Return what happens to a tensor between fused iterations."""
    one = template.setting
    if tensor in one.free:
        return "free"
    if tensor in one.resident:
        return "resident"
    if tensor in template.kept:
        return "keep"
    return "drop" if not one.loops or one.indexed[tensor] & set(one.loops) else "add"


def under_fusion(one: FusedSetting) -> Candidates:
    """Return all mappings of a setting, pruned. Raises Refused for more than 2^28 of them."""
    templates = tuple(_templates(one))
    compared = sum(prod(len(p) for p in t.parts) for t in templates)
    if compared > MOST:
        message = f"{one.einsum.name} has {compared:.2g} mappings below fused loops"
        remedy = 'give fewer tile sizes: tiles="divisors" or tiles={variable: sizes}'
        raise Refused(message, remedy, code="too-large")
    result, waiting, size = np.zeros((6, 0), np.int64), [], 0
    for number, template in enumerate(templates):
        for block in _blocks(template, number):
            waiting.append(block)
            size += block.shape[1]
            if size > BLOCK:
                result, waiting, size = _pruned(np.concatenate((result, *waiting), axis=1)), [], 0
    return Candidates(_pruned(np.concatenate((result, *waiting), axis=1)), templates, compared)


def _templates(one: FusedSetting) -> Iterator[FusedTemplate]:
    """Yield the loops below that cause traffic, in undominated orders, with every set of tensors that may be
    kept."""
    used = [v for v in one.einsum.rank_variables if any(v in index for index in one.indexed.values())]
    able = [v for v in used if len(one.of[v].split)]
    for active, order in nests(able, one.indexed, {}):
        keepable = [t for t, out in _moving_although_kept(one, active).items() if out is not None]
        # without an order of the fused loops nothing is kept over them, with one something is
        for kept in subsets(keepable, 1) if one.order is not None else [()]:
            yield FusedTemplate(one, order, frozenset(kept))


def _moving_although_kept(one: FusedSetting, active: tuple[str, ...]) -> dict[str, frozenset[str] | None]:
    """Return, per tensor, the fused loops that move it although it is kept.

    None if keeping it saves nothing: no fused loop indexes it, a loop below does, or it moves in every fused
    iteration anyway.
    """
    result: dict[str, frozenset[str] | None] = {}
    for tensor, index in one.indexed.items():
        result[tensor] = None
        if one.order is None or index & set(active) or not index & set(one.loops):
            continue
        innermost = max(i for i, v in enumerate(one.order) if v in index)
        outside = frozenset(one.order[:innermost]) - index
        if outside != frozenset(one.loops) - index:
            result[tensor] = outside
    return result


def _blocks(template: FusedTemplate, number: int) -> Iterator[Ints]:
    """Yield the columns of all tile sizes of a template, block by block, each pruned."""
    one, parts = template.setting, template.parts
    for block in blocks([len(p) for p in parts], BLOCK):
        variables = zip(one.einsum.rank_variables, parts, strict=True)
        here = {v: part.taken(*block.cut(k)) for k, (v, part) in enumerate(variables)}
        key: Any = np.int64(0)
        for v, tiles in zip(one.loops, one.keys, strict=True):
            key = key * tiles + here[v].key
        figures = (key, *_figures(template, here), number, np.int64(0))
        columns = np.stack([block.flat(f) for f in figures])
        columns[5] = block.begin * prod(block.shape[1:]) + np.arange(columns.shape[1])
        yield _pruned(columns)


def _figures(template: FusedTemplate, here: Mapping[str, TileChoices]) -> tuple[Any, Any, Any]:
    """Return (additive, maximal, accesses) of a block."""
    one = template.setting
    additive: Any = np.int64(0)
    maximal: Any = np.int64(0)
    accesses: Any = np.int64(0)
    for access in one.einsum.accesses:
        tensor, index, what = access.tensor, access.variables, role(template, access.tensor)
        if what == "resident":
            continue
        tile: Any = one.width[tensor]
        for v in index:
            # a tensor passed on within the group is held as the tile of the fused loops
            tile = tile * (one.of[v].whole.inner[here[v].key] if what == "free" else here[v].inner)
        if what in ("keep", "add"):
            additive = additive + tile
        else:
            maximal = maximal + tile
        if what != "free":
            volume = one.width[tensor] * prod(one.of[v].extent for v in index)
            moved = volume * _again(template, tensor, what, here)
            written_first = 0 if access.accumulates else volume
            accesses = accesses + (2 * moved - written_first if access.output else moved)
    return additive, maximal, accesses


def _again(template: FusedTemplate, tensor: str, what: str, here: Mapping[str, TileChoices]) -> Any:
    """Return how often each element of a tensor is moved: trips of the loops above it that do not index
    it."""
    one, index = template.setting, template.setting.indexed[tensor]
    below = dict(template.order.outside)[tensor]
    fused: frozenset[str] = frozenset(one.loops) - index
    if what == "keep":
        outside = _moving_although_kept(one, template.order.order)[tensor]
        assert outside is not None  # otherwise it would not have been kept
        fused = outside
    elif what == "add" and not index & set(template.order.order):
        fused = frozenset()
    again: Any = np.int64(1)
    for v in below:
        again = again * here[v].total
    for v in fused - below:
        again = again * here[v].trips
    return again
