"""Count the operations of the busiest instance: exactly for given data, and as E[max] where a single leader
has a density model.

In all its operations, an instance accesses the same box of points of the leader. The number of operations
that it executes is therefore the number of nonzeros in its part of the leader, times the operations per
point. Parts of a uniform tensor are disjoint sets of points, of which only the sizes matter. Whole fibers
with known numbers of nonzeros are summed. For parts that form tilings the density model is queried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.arithmetic import Affine
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Counters, Ints, digit_columns, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import GroupTable, VariableParts, joined_rows, prepared
from polymodel.sparse.actions.links import Condition, EinsumLinks
from polymodel.sparse.actions.records import Certainty
from polymodel.sparse.density import maxima
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.workload.einsum import TensorAccess

# The most distinct sizes of parts, over all ranks together.
MOST_SIZES = 100_000
# The most nonzeros of a tensor of which an Einsum touches only a part.
MOST_BESIDE = 20_000
# The most rows over all instances, in addition to those of the data.
MOST_INSTANCES = 10_000_000


@dataclass(frozen=True, eq=False)
class InstanceSplit:
    """The split of one rank variable among instances: the part that each value belongs to, the size of each
    part, and whether the tiles that a condition examines are single values."""

    part: Ints
    sizes: Ints
    single: bool

    @property
    def most(self) -> int:
        return int(self.sizes.max(initial=0))

    @property
    def key(self) -> tuple[bool, bytes]:
        """Return a key that is equal for splits into parts of the same sizes."""
        return self.single, np.sort(self.sizes).tobytes()


def parts_of_instances(counters: Counters, spatial: Set[int]) -> Ints:
    """Return, for each value of a rank variable, the number of the group of instances that processes it.
    `spatial`: ids of the spatial loops."""
    own = frozenset(i for i, _ in counters.loops if i in spatial)
    return group_numbers(digit_columns(counters, own), counters.size)


def split_of(counters: Counters, spatial: Set[int], condition: Condition) -> InstanceSplit:
    """Return how instances divide the values of one rank variable."""
    part = parts_of_instances(counters, spatial)
    looked = group_numbers(digit_columns(counters, condition.digits), counters.size)
    single = int(looked.max(initial=0)) + 1 == counters.size and counters.low == 0
    return InstanceSplit(part, np.bincount(part), single)


def is_plain(access: TensorAccess) -> bool:
    """Return True if each rank of the tensor is indexed by a rank variable of its own."""
    names = [v for x in access.projection for v in x.variables]
    plain = all(x == Affine.variable(v) for x, v in zip(access.projection, names, strict=False))
    return plain and len(names) == len(access.projection) == len(set(names))


def most_nonzeros(
    access: TensorAccess, data: TensorData, splits: Mapping[str, InstanceSplit]
) -> tuple[float, Certainty] | None:
    """Return the number of nonzeros of the fullest part of a leader with a density model, and its certainty
    label. Return None where there is no formula. `splits`: the split of each of its rank variables."""
    if not is_plain(access) or data.actual is not None or data.model is None:
        return None
    mine = [splits[v] for x in access.projection for v in x.variables]
    if not all(s.single for s in mine):
        return None
    if not data.laws:
        return data.model.fullest_part([s.part for s in mine])
    found = [np.unique(s.sizes, return_counts=True) for s in mine]
    touched = prod(int(s.sizes.sum()) for s in mine)
    beside = any(touched < law.points and law.nnz > MOST_BESIDE for _, law in data.laws)
    if beside or prod(sizes.size for sizes, _ in found) > MOST_SIZES:
        return None
    sizes, counts = (_products([pair[i] for pair in found]) for i in (0, 1))
    key = tuple(sizes.tolist()), tuple(counts.tolist())
    return sum(weight * _of_law(law, *key) for weight, law in data.laws), "expected"


def _products(columns: Sequence[Ints]) -> Ints:
    """Return all products of one entry from each list."""
    result = np.ones(1, np.int64)
    for column in columns:
        result = np.multiply.outer(result, column).reshape(-1)
    return result


@lru_cache(maxsize=4096)
def _of_law(law: Hypergeometric, sizes: tuple[int, ...], counts: tuple[int, ...]) -> float:
    if (sizes == (law.points,) and counts == (1,)) or not law.nnz:
        return float(law.nnz)
    return maxima.expected_max(law, np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.float64))


Array = Any
# For each rank variable, the index of its setting at every point.
Settings = Mapping[str, NDArray[np.int64]]


class Instances:
    """Distribution of the operations that remain under one condition over the instances, for every setting of
    every variable: all settings of a grid, or that of a single mapping."""

    def __init__(
        self,
        structure: EinsumLinks,
        settings: Mapping[str, Iterable[Counters]],
        condition: Condition,
        data: TensorData,
    ) -> None:
        used = structure.led(condition.leader)
        self.access = used.union
        self.data = data
        spatial = {i for i, loop in structure.loops if loop.spatial}
        self.most: dict[str, Array] = {}
        self.kinds: dict[str, tuple[InstanceSplit, ...]] = {}
        self.kind: dict[str, Array] = {}
        for variable, every in settings.items():
            splits = [split_of(counters, spatial, condition) for counters in every]
            self.most[variable] = np.array([s.most for s in splits], dtype=np.float64)
            if variable in used.variables:
                keys = [s.key for s in splits]
                distinct = tuple(dict.fromkeys(keys))
                self.kinds[variable] = tuple(splits[keys.index(k)] for k in distinct)
                self.kind[variable] = np.array([distinct.index(k) for k in keys])
        self._known: dict[tuple[int, ...], tuple[float, Certainty] | None] = {}

    def dense(self, settings: Settings) -> Array:
        """Return the number of operations of the busiest instance if none is skipped or gated."""
        result: Array = np.ones(())
        for v, most in self.most.items():
            result = result * most[settings[v]]
        return result

    def busiest(self, settings: Settings) -> Array:
        """Return the number of remaining operations of the busiest instance, averaged over all data; NaN
        where there is no formula."""
        names = tuple(self.kinds)
        shape = tuple(len(self.kinds[v]) for v in names)
        numbers = np.ravel_multi_index(tuple(self.kind[v][settings[v]] for v in names), shape)
        distinct, back = np.unique(numbers, return_inverse=True)
        kinds = np.array(np.unravel_index(distinct, shape)).T.tolist()
        known = [self._nonzeros(tuple(row)) for row in kinds]
        each = np.array([np.nan if one is None else one[0] for one in known])
        result = each[back.reshape(numbers.shape)]
        others: Array = np.ones(())
        for v, most in self.most.items():
            if v not in self.kinds:
                others = others * most[settings[v]]
        return result * others

    def certainty(self, settings: Mapping[str, int]) -> Certainty | None:
        """Return the certainty label of `busiest` at one point; None where there is no formula."""
        result = self._nonzeros(tuple(int(self.kind[v][settings[v]]) for v in self.kinds))
        return None if result is None else result[1]

    def _nonzeros(self, kinds: tuple[int, ...]) -> tuple[float, Certainty] | None:
        if kinds not in self._known:
            splits = {v: self.kinds[v][k] for v, k in zip(self.kinds, kinds, strict=True)}
            known = most_nonzeros(self.access, self.data, splits) if self.access is not None else None
            self._known[kinds] = known
        return self._known[kinds]


def operations_by_instance(
    structure: EinsumLinks, conditions: Sequence[Condition], tables: Mapping[Condition, GroupTable]
) -> Ints:
    """Return the number of operations for which every condition holds, one entry per instance that has any.

    `tables`: the parts of each leader that hold a nonzero. An instance is a combination of counters of
    spatial loops. Raises Refused where there are too many instances to list.
    """
    spatial = frozenset(i for i, loop in structure.loops if loop.spatial)
    axes: dict[str, VariableParts] = {}
    listed = [tables[c] for c in conditions]
    names: list[str] = []
    instances = 1
    for counters in structure.counters:
        groups = {
            k: group_numbers(digit_columns(counters, c.digits), counters.size)
            for k, c in enumerate(conditions)
            if counters.variable in listed[k].variables
        }
        if any(i in spatial for i, _ in counters.loops):
            place = parts_of_instances(counters, spatial)
            instances *= int(place.max()) + 1
            groups[len(listed)] = np.arange(counters.size)
            names.append(f"{counters.variable}@")
            listed.append(_places(counters, place, names[-1]))
        axes[counters.variable] = VariableParts(np.ones(counters.size, np.int64), groups)
    if instances > MOST_INSTANCES:
        message = f"{structure.name}: {instances:,} instances are too many to distinguish"
        raise Refused(message, code="too-large")
    total, waiting = prepared(listed, axes)
    if not total:
        return np.zeros(1, np.int64)
    if not waiting:
        return np.array([total], dtype=np.int64)
    return joined_rows(waiting, names).weighed() * total


def _places(counters: Counters, place: Ints, name: str) -> GroupTable:
    """Return a table that maps each value of a rank variable to the instance that processes it."""
    return GroupTable((counters.variable, name), (np.arange(counters.size), place), counters.size)
