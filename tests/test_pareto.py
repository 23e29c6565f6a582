"""Pareto dominance against its quadratic definition: any number of figures, groups and kinds of numbers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.pareto import (
    ROUNDING,
    Archive,
    lexicographic_ranks,
    staircase,
    undominated,
    undominated_but_for_rounding,
)

# Numbers that float64 does not tell apart, or that no integer type of numpy holds.
NEAR = 2**53
KINDS = {
    "small integers": lambda n: n,
    "int64 beyond float64": lambda n: NEAR + n,
    "negative": lambda n: -NEAR - n,
    "Python integers": lambda n: 2**70 + n,
    "floats": lambda n: n / 3,
    "infinities": lambda n: [-np.inf, 0.0, 1e305, np.inf][n % 4],
    "booleans": lambda n: n % 2 == 0,
}


def figure(kind: str, numbers: list[int]) -> Any:
    values = [KINDS[kind](n) for n in numbers]
    return np.array(values, dtype=object) if kind == "Python integers" else np.array(values)


def by_definition(figures: list[Any], groups: Any) -> list[int]:
    """Positions of points that no other one of their group dominates, nor an earlier one equals."""
    rows = list(zip(*(f.tolist() for f in figures), strict=True))

    def beats(i: int, j: int) -> bool:
        least = all(a <= b for a, b in zip(rows[i], rows[j], strict=True))
        return bool(groups[i] == groups[j]) and least and (rows[i] != rows[j] or i < j)

    return [j for j in range(len(rows)) if not any(beats(i, j) for i in range(len(rows)) if i != j)]


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_undominated_is_the_quadratic_definition(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 90))
    kinds = data.draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    numbers = st.lists(st.integers(0, data.draw(st.integers(1, 12))), min_size=n, max_size=n)
    figures = [figure(kind, data.draw(numbers)) for kind in kinds]
    groups = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    assert undominated(figures, groups).tolist() == by_definition(figures, groups)
    assert undominated(figures).tolist() == by_definition(figures, np.zeros(n))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_but_for_rounding_nothing_real_is_left_out(data: st.DataObject) -> None:
    """Points are some whose figures differ by a share or more, each in several roundings."""
    n, many = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    some = st.sampled_from([0.0, 1.0, 1 + 1e-9, 1 + 1e-11, 2.5, 1e-12, np.inf])
    meant = [np.array(data.draw(st.lists(some, min_size=n, max_size=n))) for _ in range(many)]
    shifts = st.lists(st.integers(-20, 20), min_size=n, max_size=n)
    told = [m * (1 + 2.0**-52 * np.array(data.draw(shifts))) for m in meant]
    kept = undominated_but_for_rounding(told)
    real = by_definition(meant, np.zeros(n))
    assert {tuple(m[i] for m in meant) for i in kept} == {tuple(m[i] for m in meant) for i in real}
    assert len(kept) == len(real)


def test_close_values_that_are_no_roundings_of_one_stay() -> None:
    """Each differs from the next one by less than rounding does, but all of them by more."""
    values = 1 + np.arange(8) * ROUNDING / 2
    assert len(undominated_but_for_rounding([values, values[::-1]])) == 8
    assert undominated_but_for_rounding([values[:3], values[2::-1]]).tolist() == [0]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("most", [3, 60])
def test_large_groups_and_many_small_ones(count: int, most: int) -> None:
    pick = np.random.default_rng(count * most)
    for n, of in ((700, 3), (2000, 900)):
        groups, values = pick.integers(0, of, n), pick.integers(0, most, (count, n)).astype(float)
        values[values == 0] = pick.choice([0.0, -np.inf])
        no_worse = (values[:, :, None] <= values[:, None, :]).all(axis=0) & (groups[:, None] == groups)
        equal = (values[:, :, None] == values[:, None, :]).all(axis=0)
        dominated = (no_worse & (~equal | np.triu(np.ones((n, n), bool), 1))).any(axis=0)
        assert undominated(list(values), groups).tolist() == np.flatnonzero(~dominated).tolist()


@pytest.mark.parametrize("grouped", [False, True])
def test_parts_of_a_large_group_leave_what_the_whole_does(
    grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    points = rng.integers(0, 9, (700, 5))
    groups = rng.integers(0, 2, 700) if grouped else None
    whole = undominated(points.T, groups)
    monkeypatch.setattr("polymodel.pareto.AT_ONCE", 8)
    assert undominated(points.T, groups).tolist() == whole.tolist()
    assert 0 < len(whole) < 700


def test_more_figures_than_the_library_compares() -> None:
    """Sweeps compare the sizes of an axis by hundreds of figures, where memories hold what is live."""
    pick = np.random.default_rng(1)
    few = pick.integers(0, 40, (400, 3))
    rows = few[:, np.arange(300) % 3] + pick.integers(0, 2, (400, 300))
    rows[100:200] = rows[:100]
    no_worse = (rows[:, None] <= rows).all(axis=2)
    equal = no_worse & no_worse.T
    dominated = (no_worse & (~equal | np.triu(np.ones((400, 400), bool), 1))).any(axis=0)
    assert undominated([*rows.T]).tolist() == np.flatnonzero(~dominated).tolist()
    assert 20 < dominated.sum() - 100 < 280


def test_of_nothing_nothing_is_undominated() -> None:
    none = np.zeros(0, np.int64)
    assert undominated([none, none]).tolist() == undominated([none], none).tolist() == []
    assert staircase(none, none).tolist() == []
    assert undominated([], np.array([2, 1, 2])).tolist() == [0, 1]


@given(st.data(), st.sampled_from(["int64 beyond float64", "floats", "small integers"]))
@settings(max_examples=60, deadline=None)
def test_a_staircase_rises_in_the_first_figure(data: st.DataObject, kind: str) -> None:
    numbers = st.lists(st.integers(0, 30), min_size=40, max_size=40)
    first, second = (figure(kind, data.draw(numbers)) for _ in "ab")
    kept = staircase(first, second)
    assert sorted(kept.tolist()) == by_definition([first, second], np.zeros(40))
    assert (np.diff(first[kept]) > 0).all()


@pytest.mark.parametrize("figures", [1, 2, 3])
@pytest.mark.parametrize("numbered", [True, False])
def test_an_archive_of_integers_tells_all_of_them_apart(figures: int, numbered: bool) -> None:
    pick = np.random.default_rng(figures)
    archive = Archive(figures, np.int64)
    values = NEAR + pick.integers(0, 6, (figures, 60))
    for part in np.array_split(np.arange(60), 5):
        archive.offer(values[:, part], part if numbered else None)
    assert archive.values.dtype == np.int64
    assert archive.offered == 60
    assert sorted(archive.ids.tolist()) == by_definition(list(values), np.zeros(60))


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("most", [4, 1000])
def test_a_front_does_not_depend_on_the_order_nor_on_repeats(objectives: int, most: int) -> None:
    pick = np.random.default_rng(objectives * most)
    values = pick.integers(0, most, (objectives, 300)).astype(float)
    ids = pick.permutation(300)
    front = Archive(objectives)
    for part in np.array_split(pick.permutation(300), 7):
        front.offer(values[:, part], ids[part])
        front.offer(values[:, part], ids[part])
    front.offer(front.values, front.ids)
    expected = {
        int(ids[i])
        for i, v in enumerate(values.T)
        if not any(
            (w <= v).all() and ((w < v).any() or ids[j] < ids[i]) for j, w in enumerate(values.T) if j != i
        )
    }  # fmt: skip
    assert sorted(front.ids.tolist()) == sorted(expected)
    assert (np.lexsort((front.ids, *front.values[::-1])) == np.arange(len(front.ids))).all()


def test_a_large_front_in_three_objectives_takes_seconds() -> None:
    """One Python step per point of the front, at each block, took minutes."""
    pick = np.random.default_rng(1)
    front = Archive(3)
    start = time.perf_counter()
    for block in range(6):
        values = pick.random((3, 8000)) + 0.01
        values *= np.exp(pick.random(8000) * 0.03) / np.sqrt((values**2).sum(axis=0))
        front.offer(values, np.arange(8000) + 8000 * block)
    assert len(front.ids) > 5000
    assert time.perf_counter() - start < 60


def test_ranks_take_what_differs_by_rounding_alone_as_equal() -> None:
    first = np.array([2.0, 2 * (1 + ROUNDING / 4), 1.0, 2.0])
    assert lexicographic_ranks([first, np.array([3.0, 1.0, 9.0, 3.0])]).tolist() == [2, 1, 0, 2]
