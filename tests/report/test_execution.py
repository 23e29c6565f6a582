"""Tables of an execution: every record's number stands in its place, with its unit."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from polymodel.report.execution import ExecutionReport
from polymodel.sparse.execute.records import EinsumCounts, Execution, ExecutionTimes, RankAccesses
from polymodel.sparse.fibertree import LoopRank, build
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults, refused

HOSTILE = "<script>alert('&\"')</script>"
# Nonzeros of each row of A, and the part that has it.
ROWS = {0: ((0, 1, 3), 0), 1: ((2,), 1), 2: ((0, 1, 2, 3), 1), 3: ((1,), 0)}


def times(points: int = 2) -> ExecutionTimes:
    """Part p of A on space point p; by time stamp (I0 position, J position)."""
    load = np.array([4, 5] if points == 2 else range(1, points + 1))
    steps = 5 if points == 2 else points
    return ExecutionTimes(
        ("I1",), ("I0", "J"), steps, steps, points, int(load.sum()), 0,
        np.arange(points)[:, None], load, load, {k: (int(n), int(n)) for k, n in enumerate(load)},
    )  # fmt: skip


def execution(stamps: ExecutionTimes | None, name: str = "Y") -> Execution:
    rows = np.array([(part, i, j) for i, (row, part) in ROWS.items() for j in row]).T
    ranks = [LoopRank("I1", ("I",), (4,)), LoopRank("I0", ("I",), (4,)), LoopRank("J", ("J",), (4,))]
    tree = build("A", ranks, list(rows), np.ones(rows.shape[1]))
    vector = build("B", ranks[2:], [np.arange(4)], np.ones(4))
    counts = EinsumCounts(
        einsum=name, loop_order=("I1", "I0", "J"), multiplies=9, updates=9, adds_excluding_first_touch=5,
        term_adds=0, activities=9, output_nnz=4, zeros=0,
        accesses=(
            RankAccesses("I1", 2, {}, {"A": 2}, {name: 0}, {name: 2}),
            RankAccesses("J", 9, {"A": 9, "B": 13}, {}),
        ),
        times=stamps, inputs={"A": tree, "B": vector},
    )  # fmt: skip
    a = SparseTensor.from_coo("A", ("I", "J"), (4, 4), rows[1:], np.ones(rows.shape[1]))
    b = SparseTensor.from_dense("B", ("J",), np.ones(4))
    y = SparseTensor.from_dense(name, ("I",), [3, 1, 4, 1])
    return Execution({name: y}, (counts,), {"A": a, "B": b}, {"I": 4, "J": 4}, None)


def test_the_tables_hold_the_records() -> None:
    report = ExecutionReport(execution(times()))
    (row,) = report.einsums.to_dict("records")
    assert row["einsum"] == "Y"
    assert row["loop_order"] == "I1 I0 J"
    assert [row[k] for k in ("computes", "multiplies", "adds", "updates", "outputs")] == [9, 9, 5, 9, 4]
    assert [row[k] for k in ("lock_step", "slip", "ideal", "space_points")] == [5, 5, 4.5, 2]
    assert row["utilisation"] == pytest.approx(0.9)
    assert row["imbalance"] == pytest.approx(5 / 4.5)
    assert report.einsums.attrs["units"]["lock_step"] == "stamp"
    assert report.einsums.attrs["units"]["multiplies"] == "operation"
    ranks = report.ranks.set_index(["rank", "tensor"])
    assert ranks.loc[("J", "B"), "intersect_coords"] == 13
    assert ranks.loc[("I1", "A"), "driver_coords"] == 2
    assert ranks.loc[("I1", "Y"), "output_write_coords"] == 2
    assert len(ranks) == 4
    assert report.slices[["tensor", "rank", "part", "coordinates", "nonzeros"]].to_numpy().tolist() == [
        ["A", "I1", "0", 2, 4],
        ["A", "I1", "1", 2, 5],
    ]
    assert report.slices["share_of_mean"].tolist() == pytest.approx([4 / 4.5, 5 / 4.5])
    assert report.space[["space_point", "computes", "stamps"]].to_numpy().tolist() == [
        ["0", 4, 4],
        ["1", 5, 5],
    ]
    assert report.space["share_of_largest"].tolist() == pytest.approx([0.8, 1])


def test_an_einsum_without_stamps_has_work_only() -> None:
    report = ExecutionReport(execution(None))
    assert report.table("einsums").column("lock_step") == (None,)
    assert report.space.empty
    text = str(report)
    assert "lock step" not in text
    assert "Load per space point" not in text
    with refused("nothing-to-show"):
        report.plot_load()
    with refused("nothing-to-show", "Y"):
        report.plot_load("Y")


def test_it_prints_and_shows() -> None:
    report = ExecutionReport(execution(times()))
    assert repr(report) == "ExecutionReport(Y)"
    text, page = str(report), report._repr_html_()
    for shown in (
        "A 9 nonzeros, B 4 nonzeros; I 4, J 4",
        "exact count on the actual data",
        "utilisation",
        "90.0 %",
    ):
        assert shown in text
        assert shown in page
    assert "collisions" not in text  # there are none
    for title in ("Work and time per Einsum", "Parts of partitioned inputs"):
        assert title in text
    assert all(len(line) < 200 for line in text.splitlines())
    with faults("unknown-name", at="table"):
        report.table("work")
    assert report.tables == ("einsums", "ranks", "slices", "space")


def test_long_tables_are_cut_when_printed_only() -> None:
    report = ExecutionReport(execution(times(100)))
    assert "… 52 more rows: .space" in str(report)
    assert "… 52 more rows: .space" in report._repr_html_()
    assert len(report.space) == 100


def test_names_of_a_spec_are_escaped() -> None:
    report = ExecutionReport(execution(times(), HOSTILE))
    assert "<script" not in report._repr_html_()
    assert HOSTILE in str(report)


def test_load_is_drawn_with_its_mean() -> None:
    plt.close("all")
    ax = ExecutionReport(execution(times())).plot_load()
    assert [p.get_height() for p in ax.patches] == [4, 5]
    assert set(ax.lines[0].get_ydata()) == {4.5}
    assert ax.get_title() == "Load of Einsum Y: 9 computes, largest / mean 1.111"
    assert ax.get_xlabel() == "space point (I1)"
    many = ExecutionReport(execution(times(100))).plot_load("Y")
    assert [p.get_height() for p in many.patches] == list(range(1, 101))
    many.figure.canvas.draw()
    with faults("unknown-name", "Z", at=""):
        ExecutionReport(execution(times())).plot_load("Z")
    plt.close("all")
