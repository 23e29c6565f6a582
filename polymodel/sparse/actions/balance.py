"""Operations per instance: which one has most to do is exact where data are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.actions.busiest import parts_of_instances
from polymodel.sparse.actions.counters import Counters, Ints, digit_columns, group_numbers
from polymodel.sparse.actions.join import Axis, Table, joined_rows, prepared
from polymodel.sparse.actions.links import Condition, Structure

# Rows of all instances together, beside those of the data.
MOST_INSTANCES = 10_000_000


def operations_by_instance(
    structure: Structure, conditions: Sequence[Condition], tables: Mapping[Condition, Table]
) -> Ints:
    """Operations at which every condition holds, one number per instance that has any.

    `tables`: the parts of each leader that hold a nonzero. An instance is a combination of counters of
    spatial loops. Raises Refused where these are too many to list.
    """
    spatial = frozenset(i for i, loop in structure.loops if loop.spatial)
    axes: dict[str, Axis] = {}
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
        axes[counters.variable] = Axis(np.ones(counters.size, np.int64), groups)
    if instances > MOST_INSTANCES:
        raise Refused(f"{structure.name}: {instances:,} instances are too many to tell apart")
    total, waiting = prepared(listed, axes)
    if not total:
        return np.zeros(1, np.int64)
    if not waiting:
        return np.array([total], dtype=np.int64)
    return joined_rows(waiting, names).weighed() * total


def _places(counters: Counters, place: Ints, name: str) -> Table:
    """The instance that takes each value of a rank variable."""
    return Table((counters.variable, name), (np.arange(counters.size), place), counters.size)
