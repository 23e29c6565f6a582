"""Bits of compressed tiles over a grid: of all tiles that move, and of the largest one that is held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from polymodel.errors import NotSeparable
from polymodel.sparse.actions.counters import Ints, digit_columns, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import EinsumLinks
from polymodel.sparse.actions.storage import KeptTensor, TileBits, full_model, shape_of
from polymodel.sparse.formats import expected_levels
from polymodel.sweeps.sparse.classes import Classes
from polymodel.sweeps.sparse.columns import Settings, VariableColumn
from polymodel.sweeps.sparse.contraction import Contraction
from polymodel.sweeps.sparse.factors import OfTiles
from polymodel.workload.einsum import TensorAccess

Array = Any


class EinsumTilings:
    """The tilings of the tensors of one Einsum."""

    def __init__(
        self, structure: EinsumLinks, columns: Sequence[VariableColumn], data: Mapping[str, TensorData]
    ) -> None:
        self.structure = structure
        self.columns = {c.variable: c for c in columns}
        self.data = data
        self._known: dict[tuple[object, ...], tuple[Contraction, Contraction, Contraction]] = {}
        self._largest: dict[tuple[object, ...], Contraction] = {}

    def bits(
        self, where: tuple[str, str], how: KeptTensor, digits: frozenset[int], settings: Settings
    ) -> TileBits:
        """Bits of all tiles of (component, tensor) that loops with these ids make."""
        key = (*where, digits)
        if key not in self._known:
            access = self.structure.einsum.access_of(where[1])
            each = {v: self._classes(v, digits) for v in access.variables}
            alike = each if self.data[where[1]].placeless else self._alike(access, digits)
            payload, total = self._functions(where[1], how)
            self._known[key] = (
                Contraction(each, ((1, ()),), (OfTiles(access, _points),)),
                Contraction(alike, ((1, ()),), (OfTiles(access, payload),)),
                Contraction(alike, ((1, ()),), (OfTiles(access, total),)),
            )
        points, payload, total = (c.values(settings) for c in self._known[key])
        data = self.data[where[1]]
        return TileBits(points, points * data.density, payload, total, data.label)

    def largest(self, tensor: str, how: KeptTensor, digits: frozenset[int], settings: Settings) -> Array:
        """Expected bits of the largest tile."""
        key = (tensor, how, digits)
        if key not in self._largest:
            access = self.structure.einsum.access_of(tensor)
            each = {v: tuple(map(_largest, self._classes(v, digits))) for v in access.variables}
            _, total = self._functions(tensor, how)
            self._largest[key] = Contraction(each, ((1, ()),), (OfTiles(access, total),))
        return self._largest[key].values(settings)

    def _functions(self, tensor: str, how: KeptTensor) -> tuple[Any, Any]:
        access = self.structure.einsum.access_of(tensor)
        model = full_model(self.data[tensor], access.ranks, shape_of(self.structure, access))
        order = how.format.order(access.ranks)

        def payload(tiles: Ints) -> Array:
            return how.format.bits(expected_levels(model, tiles, order)).payload

        def total(tiles: Ints) -> Array:
            return how.format.bits(expected_levels(model, tiles, order)).total

        return payload, total

    def _alike(self, access: TensorAccess, digits: frozenset[int]) -> dict[str, tuple[Classes, ...]]:
        """If the model knows positions: all tiles, as if they were as large as the largest.

        Raises NotSeparable if some do not start at multiples of their size.
        """
        what = (
            f"{access.tensor}: tiles that do not lie at multiples of their size, of a model that knows places"
        )
        if any(len(x.terms) != 1 or abs(x.terms[0][1]) != 1 for x in access.projection):
            raise NotSeparable(what, code="unsupported-density")
        result = {}
        for v in access.variables:
            column = self.columns[v]
            for setting in range(column.settings):
                counters = column.counters(setting)
                groups = group_numbers(digit_columns(counters, digits), counters.size)
                if not np.array_equal(groups, np.arange(groups.size) // int(np.bincount(groups).max())):
                    raise NotSeparable(what, code="unsupported-density")
            result[v] = tuple(
                Classes(c.count.sum(keepdims=True), c.extent[-1:], {}, {}, {})
                for c in self._classes(v, digits)
            )
        return result

    def _classes(self, variable: str, digits: frozenset[int]) -> tuple[Classes, ...]:
        """Tiles along one rank variable, by extent."""
        column = self.columns[variable]
        result = []
        for setting in range(column.settings):
            counters = column.counters(setting)
            groups = group_numbers(digit_columns(counters, digits), counters.size)
            extents, counts = np.unique(np.bincount(groups), return_counts=True)
            result.append(Classes(counts, extents, {}, {}, {}))
        return tuple(result)


def _largest(classes: Classes) -> Classes:
    return Classes(np.ones(1, np.int64), classes.extent[-1:], {}, {}, {})


def _points(tiles: Ints) -> Array:
    return tiles.astype(np.float64).prod(axis=-1)
