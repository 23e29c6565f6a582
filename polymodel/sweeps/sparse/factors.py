"""Functions of tile sizes along several rank variables, evaluated once per distinct combination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymodel.arithmetic import Affine
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition
from polymodel.sparse.actions.reach import chances
from polymodel.sparse.actions.sums import all_hold
from polymodel.sparse.actions.tally import window
from polymodel.sparse.density.model import Floats
from polymodel.sweeps.sparse.classes import Classes
from polymodel.workload.einsum import TensorAccess

MOST = 2_000_000  # entries of a table of all combinations
# sizes by rank variable; the last axis has the function's columns
Sizes = Mapping[str, Ints]


class ClassFactor(Protocol):
    """A factor that the weights of classes are multiplied with."""

    @property
    def variables(self) -> tuple[str, ...]: ...

    def columns(self, variable: str, classes: Classes) -> list[Ints]:
        """The columns that it depends on along one rank variable, one array of classes each."""

    def answer(self, sizes: Sizes) -> Floats:
        """Its values; arrays broadcast."""


@dataclass(frozen=True)
class Holds:
    """Probability that no part of one leader, at which `conditions` look, is empty.

    `parts`: these and the common parts of several; `numbers`: of the parts among the conditions of the
    classes.
    """

    access: TensorAccess
    data: TensorData
    conditions: tuple[Condition, ...]
    parts: tuple[Condition, ...]
    numbers: tuple[int, ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return self.access.variables

    def columns(self, variable: str, classes: Classes) -> list[Ints]:
        for x in self.access.projection:
            several = len(x.variables) > 1 and variable in x.variables
            if several and not all(classes.solid[i] for i in self.numbers):
                raise Refused(f"what is used of {self.access.tensor} has gaps", code="unsupported-density")
        return [classes.sizes[i] for i in self.numbers]

    def answer(self, sizes: Sizes) -> Floats:
        if len(self.parts) == 1:
            return self._nonempty(self._extents(sizes, 0))
        law = self.data.law
        if law is None:
            raise Refused(
                f"actions look at several parts of {self.access.tensor}, of which none contains the other",
                code="unsupported-density",
            )
        return all_hold(_LeaderParts(self, sizes), self.conditions, law)

    def _extents(self, sizes: Sizes, part: int) -> tuple[Ints, ...]:
        every = np.zeros((1,) * max(x.ndim - 1 for x in sizes.values()), np.int64)
        result = []
        for x in self.access.projection:
            extents = tuple(sizes[v][..., part] for v in x.variables)
            result.append(window(x, extents) if extents else every + 1)
        return tuple(result)

    def _nonempty(self, extents: tuple[Ints, ...]) -> Floats:
        """For a uniform tensor only the number of points matters."""
        if self.data.law is None:
            return self.data.nonempty(extents)
        full = np.broadcast_arrays(*extents)
        points = np.prod(np.array(full, dtype=np.int64), axis=0)
        _, first, back = np.unique(points, return_index=True, return_inverse=True)
        each = self.data.nonempty(tuple(x.reshape(-1)[first] for x in full))
        result: Floats = each[back.reshape(-1)].reshape(points.shape)
        return result


@dataclass(frozen=True)
class _LeaderParts:
    """The parts of one leader, as inclusion and exclusion needs them."""

    of: Holds
    sizes: Sizes

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.of.access.tensor,)

    def part(self, condition: Condition) -> tuple[Ints, ...]:
        wanted = next(
            i
            for i, c in enumerate(self.of.parts)
            if (c.leader, c.digits) == (condition.leader, condition.digits)
        )
        return self.of._extents(self.sizes, wanted)


@dataclass(frozen=True)
class Meets:
    """Probability that two tensors meet (`reach.chances`); `number`: of the meeting among the conditions."""

    accesses: tuple[TensorAccess, ...]
    data: tuple[TensorData, ...]
    number: int

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v for a in self.accesses for v in a.variables))

    def columns(self, variable: str, classes: Classes) -> list[Ints]:
        return list(classes.inner[self.number].columns)

    def answer(self, sizes: Sizes) -> Floats:
        parts: Ints = np.ones((), np.int64)
        even, points = parts, [parts for _ in self.accesses]
        for v, columns in sizes.items():
            parts, even = parts * columns[..., 0], even * columns[..., -1]
            for k, access in enumerate(self.accesses):
                if v in access.variables:
                    points[k] = points[k] * columns[..., 1 + k]
        return chances(parts, points, even, self.data)[0]


@dataclass(frozen=True)
class WindowValues:
    """Distinct values of a rank with several rank variables."""

    expression: Affine

    @property
    def variables(self) -> tuple[str, ...]:
        return self.expression.variables

    def columns(self, variable: str, classes: Classes) -> list[Ints]:
        return [classes.extent]

    def answer(self, sizes: Sizes) -> Floats:
        return window(self.expression, tuple(sizes[v][..., 0] for v in self.variables)).astype(np.float64)


@dataclass(frozen=True)
class OfTiles:
    """A function of tiles of one tensor that depends on their extents per rank."""

    access: TensorAccess
    function: Callable[[Ints], Any]

    @property
    def variables(self) -> tuple[str, ...]:
        return self.access.variables

    def columns(self, variable: str, classes: Classes) -> list[Ints]:
        return [classes.extent]

    def answer(self, sizes: Sizes) -> Floats:
        every = np.zeros((1,) * max(x.ndim - 1 for x in sizes.values()), np.int64)
        extents = [
            window(x, tuple(sizes[v][..., 0] for v in x.variables)) if x.variables else every + 1
            for x in self.access.projection
        ]
        full = np.stack(np.broadcast_arrays(*extents), axis=-1)
        return np.broadcast_to(np.asarray(self.function(full), np.float64), full.shape[:-1])


class TabulatedFactor:
    """A factor with its values. `rows`: per rank variable the distinct columns (distinct x columns)."""

    def __init__(self, factor: ClassFactor, rows: Sequence[Ints]) -> None:
        self.factor = factor
        self.variables = factor.variables
        self.rows = rows
        self.shape = tuple(len(r) for r in rows)
        self.table: Floats | None = None
        if prod(self.shape) <= MOST:
            spread = [
                r.reshape((1,) * i + (len(r),) + (1,) * (len(rows) - 1 - i) + r.shape[1:])
                for i, r in enumerate(rows)
            ]
            found = factor.answer(dict(zip(self.variables, spread, strict=True)))
            self.table = np.broadcast_to(found, self.shape)

    def at(self, index: Sequence[NDArray[np.int64]]) -> Floats:
        """Values for the rows with these numbers; arrays broadcast."""
        if self.table is not None:
            known: Floats = self.table[tuple(index)]
            return known
        numbers = np.ravel_multi_index(tuple(np.broadcast_arrays(*index)), self.shape)
        distinct, back = np.unique(numbers, return_inverse=True)
        picked = np.unravel_index(distinct, self.shape)
        sizes = {v: r[i] for v, r, i in zip(self.variables, self.rows, picked, strict=True)}
        result: Floats = np.broadcast_to(self.factor.answer(sizes), distinct.shape)[back.reshape(-1)]
        return result.reshape(numbers.shape)
