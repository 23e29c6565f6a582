"""Operations of the instance that has most of them, where one leader has a density model: E[max].

An instance takes the same box of the leader's points in each of its operations on them: it executes as often
as its part of the leader has nonzeros, times the operations per point. Parts of a uniform tensor are disjoint
sets of points, of which sizes alone matter; whole fibers of known counts are summed; tilings are asked of the
model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from polymodel.affine import Affine
from polymodel.sparse.actions.counters import Counters, Ints, digit_columns, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition
from polymodel.sparse.actions.records import Certainty
from polymodel.sparse.density import maxima
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.workload.einsum import TensorAccess

# Sizes of parts that are told apart, of all ranks together.
MOST_SIZES = 100_000


@dataclass(frozen=True, eq=False)
class Split:
    """One rank variable among instances: the part of each value, the size of each part, and whether what a
    condition looks at are single values."""

    part: Ints
    sizes: Ints
    single: bool

    @property
    def most(self) -> int:
        return int(self.sizes.max(initial=0))

    @property
    def key(self) -> tuple[bool, bytes]:
        """Equal for splits into parts of the same sizes."""
        return self.single, np.sort(self.sizes).tobytes()


def parts_of_instances(counters: Counters, spatial: Set[int]) -> Ints:
    """For each value of a rank variable the number of the instances that take it; `spatial`: ids of loops."""
    own = frozenset(i for i, _ in counters.loops if i in spatial)
    return group_numbers(digit_columns(counters, own), counters.size)


def split_of(counters: Counters, spatial: Set[int], condition: Condition) -> Split:
    """How instances share the values of one rank variable."""
    part = parts_of_instances(counters, spatial)
    looked = group_numbers(digit_columns(counters, condition.digits), counters.size)
    single = int(looked.max(initial=0)) + 1 == counters.size and counters.low == 0
    return Split(part, np.bincount(part), single)


def is_plain(access: TensorAccess) -> bool:
    """True if points of the tensor are the values of as many rank variables."""
    names = [v for x in access.projection for v in x.variables]
    plain = all(x == Affine.variable(v) for x, v in zip(access.projection, names, strict=False))
    return plain and len(names) == len(access.projection) == len(set(names))


def most_nonzeros(
    access: TensorAccess, data: TensorData, splits: Mapping[str, Split]
) -> tuple[float, Certainty] | None:
    """Nonzeros of the fullest part of a leader with a density model, and what that number is; None where
    it is not worked out. `splits`: of its rank variables."""
    if not is_plain(access) or data.actual is not None or data.model is None:
        return None
    mine = [splits[v] for x in access.projection for v in x.variables]
    if not all(s.single for s in mine):
        return None
    if not data.laws:
        return data.model.fullest_part([s.part for s in mine])
    found = [np.unique(s.sizes, return_counts=True) for s in mine]
    if prod(sizes.size for sizes, _ in found) > MOST_SIZES:
        return None
    sizes, counts = (_products([pair[i] for pair in found]) for i in (0, 1))
    key = tuple(sizes.tolist()), tuple(counts.tolist())
    return sum(weight * _of_law(law, *key) for weight, law in data.laws), "expected"


def _products(columns: Sequence[Ints]) -> Ints:
    """Products of one entry of each."""
    found = np.ones(1, np.int64)
    for column in columns:
        found = np.multiply.outer(found, column).reshape(-1)
    return found


@lru_cache(maxsize=4096)
def _of_law(law: Hypergeometric, sizes: tuple[int, ...], counts: tuple[int, ...]) -> float:
    if sizes == (law.points,) or not law.nnz:
        return float(law.nnz)
    return maxima.expected_max(law, np.array(sizes, dtype=np.int64), np.array(counts, dtype=np.float64))
