"""Greedy assignment against a walk that looks at every part for every item."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.assign import fullest_parts, least_loaded, part_loads
from tests.faults import faults


def walked(loads: list[int], parts: int) -> list[int]:
    totals, found = [0] * parts, []
    for load in loads:
        if not load:
            found.append(-1)
            continue
        best = 0
        for part in range(parts):
            if totals[part] < totals[best]:
                best = part
        totals[best] += load
        found.append(best)
    return found


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 12))
def test_each_item_goes_to_the_least_loaded_part(loads: list[int], parts: int) -> None:
    found = least_loaded(np.array(loads, dtype=np.int64), parts)
    assert found.tolist() == walked(loads, parts)
    totals = [sum(load for load, at in zip(loads, found, strict=True) if at == p) for p in range(parts)]
    assert part_loads(loads, found, parts).tolist() == totals


@given(
    st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=9), max_size=90),
    st.integers(1, 12),
)
def test_groups_are_dealt_each_by_itself(groups: list[list[tuple[int, int]]], parts: int) -> None:
    """Few groups go one by one, many side by side; numbers of groups need not be without gaps."""
    items = [(load, work, 3 * n) for n, group in enumerate(groups) for load, work in group]
    columns = np.array(items, dtype=np.int64).reshape(-1, 3).T
    loads, works = fullest_parts(columns[0], columns[2], parts, columns[1])
    for n, group in enumerate(groups):
        at = walked([load for load, _ in group], parts)
        sums = [[sum(x[k] for x, p in zip(group, at, strict=True) if p == q) for q in at] for k in (0, 1)]
        assert (loads[n], works[n]) == (max(sums[0]), max(sums[1]))
    assert loads.size == len(groups)


def test_loads_near_the_end_of_64_bits() -> None:
    large = 2**62
    assert least_loaded([large, large, large, 1], 2).tolist() == [0, 1, 0, 1]


def test_many_more_parts_than_items_cost_nothing() -> None:
    assert least_loaded([3, 0, 3], 10**12).tolist() == [0, -1, 1]


def test_wrong_input_is_told_at_once() -> None:
    with pytest.raises(SpecError) as told:
        least_loaded([1, -2], 0)
    assert [d.message for d in told.value.diagnostics] == ["0 parts", "load 1 is -2"]
    with faults("wrong-type", "float64", at=""):
        least_loaded([1.5], 2)
