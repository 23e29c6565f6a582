"""Partitionings against sets of coordinates in plain Python, and the arithmetic of slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse import fibertree
from polymodel.sparse.execute.run import run
from polymodel.sparse.fibertree import LoopRank, build
from polymodel.sparse.partition import cyclic_loads, load_bounds, nway_step, slice_loads, tile_loads
from tests.faults import faults, refused
from tests.sparse.cascades import cascade, sparse

TREE = [[0, [[1, 5], [4, 2]]], [3, [[0, 7]]]]


def test_a_fibertree_by_hand() -> None:
    ranks = [LoopRank("M", ("M",), (4,)), LoopRank("K", ("K",), (5,))]
    tree = build("A", ranks, [np.array([3, 0, 0]), np.array([0, 4, 1])], np.array([7, 2, 5]))
    assert tree.nested() == TREE
    assert tree.levels[1].starts.tolist() == [0, 2, 3]
    assert tree.levels[1].fiber.tolist() == [0, 0, 1]
    assert [c.tolist() for c in tree.columns()] == [[0, 0, 3], [1, 4, 0]]
    assert tree.leaves(0).tolist() == [2, 1]
    empty = build("A", ranks, [np.zeros(0, np.int64)] * 2, np.zeros(0))
    assert (empty.nested(), empty.levels[1].fibers) == ([], 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 7, 2**18]))
def test_fibers_that_stand_together_in_any_order(seed: int, block: int) -> None:
    """Some of them are torn in two or have elements out of order, which has to be mended."""
    rng = np.random.default_rng(seed)
    points = {
        tuple(p) for p in rng.integers(0, rng.integers(2, 12, 3), (int(rng.integers(1, 150)), 3)).tolist()
    }
    where = {lead: rng.integers(9) for lead in dict.fromkeys(p[:2] for p in sorted(points))}
    rows = sorted(points, key=lambda p: (where[p[:2]], p))
    if rng.random() < 0.3:
        rows = [*rows[1:], rows[0]]
    columns = [np.array(c) for c in zip(*rows, strict=True)]
    ranks = [LoopRank(f"I{1 - n}", ("I",), (12,)) for n in range(2)] + [LoopRank("J", ("J",), (12,))]
    values = np.array([100 * a + 10 * b + c for a, b, c in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fibertree, "_BLOCK", block)
        tree = build("A", ranks, columns, values)
    assert list(zip(*(c.tolist() for c in tree.columns()), strict=True)) == sorted(points)
    assert tree.values.tolist() == [100 * a + 10 * b + c for a, b, c in sorted(points)]
    for at, level in enumerate(tree.levels):
        leads = sorted({p[:at] for p in points})
        assert np.diff(level.starts).tolist() == [len({p[at] for p in points if p[:at] == q}) for q in leads]


def test_flattened_coordinates_are_tuples() -> None:
    rank = LoopRank("MK", ("M", "K"), (3, 5))
    codes = rank.encode([np.array([0, 2]), np.array([4, 1])])
    assert [c.tolist() for c in rank.decode(codes)] == [[0, 2], [4, 1]]
    assert rank.shown(int(codes[1])) == (2, 1)
    with refused("number-too-large", "64"):
        LoopRank("MK", ("M", "K"), (2**40, 2**40)).encode([np.zeros(1, np.int64)] * 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 9))
def test_slices_by_plain_loops(rows: list[int], parts: int) -> None:
    loads, where = [0] * parts, []
    for n in rows:
        least = loads.index(min(loads))
        where.append(least if n else -1)
        loads[least] += n
    found, ours = slice_loads(rows, parts)
    assert (found.tolist(), ours.tolist()) == (where, loads)
    lower, upper = load_bounds(rows, parts)
    assert lower <= max(loads) <= upper or sum(rows) == 0
    tiles = [sum(rows[i : i + parts]) for i in range(0, len(rows), parts)]
    assert tile_loads(rows, parts).tolist() == [t for t in tiles if t]
    cyclic = [sum(n for i, n in enumerate(rows) if i % parts == p) for p in range(parts)]
    assert cyclic_loads(rows, parts).tolist() == cyclic


def test_ways_group_the_tiles_before_them() -> None:
    """Of [nway_shape(6), nway_shape(3)] on 20: tiles of 4, and groups that start every 7th coordinate."""
    assert (nway_step(20, 6), nway_step(20, 3)) == (4, 7)
    split = {"Y": {"K": ["nway_shape(6)", "nway_shape(3)"]}}
    spec = cascade(
        {"A": "K", "Y": "K"}, "Y[k] = A[k]", partitioning=split, loop_order={"Y": ["K2", "K1", "K0"]}
    )
    tree = run(spec, {"A": np.ones(20)}).einsums[0].inputs["A"]
    assert tree.levels[1].coords.tolist() == [0, 4, 8, 12, 16]
    assert [c for c, _ in tree.nested()] == [0, 7, 14]
    assert tree.levels[0].coords[tree.levels[1].fiber].tolist() == [0, 0, 7, 7, 14]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_parts_of_every_leader_fiber(seed: int, count: int) -> None:
    """Each row of A is cut every `count` coordinates; T, which has the rows too, at the same places."""
    rng = np.random.default_rng(seed)
    arrays = {"A": sparse(rng, (4, 9), 0.5), "T": sparse(rng, (4, 9), 0.5)}
    split = {"Y": {"K": [f"uniform_occupancy(A.{count})"]}}
    spec = cascade(
        {"A": "M K", "T": "M K", "Y": "M"},
        "Y[m] = A[m, k] * T[m, k]",
        partitioning=split,
        loop_order={"Y": ["M", "K1", "K0"]},
    )
    trees = run(spec, arrays).einsums[0].inputs
    rows = {name: [dict(enumerate(row)) for row in arrays[name]] for name in arrays}
    for name in arrays:
        expected = []
        for m in range(4):
            lead = [k for k in range(9) if rows["A"][m][k]]
            starts = [0, *lead[count::count]] if lead else [0]
            ends = [*starts[1:], 9]
            parts = [
                [s, [[k, rows[name][m][k]] for k in range(s, e) if rows[name][m][k]]]
                for s, e in zip(starts, ends, strict=True)
            ]
            parts = [p for p in parts if p[1]]
            expected += [[m, parts]] if parts else []
        assert trees[name].nested() == expected


def test_sizes_and_ranks_of_a_partitioning_are_checked() -> None:
    spec = cascade(
        {"A": "K", "Y": "K"},
        "Y[k] = A[k]",
        partitioning={"Y": {"K": ["uniform_shape(TK)"]}},
        loop_order={"Y": ["K1", "K0"]},
    )
    with faults("missing-value", "TK", at=""):
        run(spec, {"A": np.ones(4)})
    with faults("not-positive-integer", at=""):
        run(spec, {"A": np.ones(4)}, symbols={"TK": 0})
    assert run(spec, {"A": np.ones(4)}, symbols={"TK": 2}).einsums[0].accesses[0].iterations == 2
