"""Computes of an executed Einsum, against the loops of the kernel written out by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from polymodel.report.activity import Activity, activities, iterated
from polymodel.report.execution import ExecutionReport
from polymodel.report.fibertree_layout import DrawnFibertree
from polymodel.sparse.execute.records import Execution
from polymodel.sparse.execute.run import run
from polymodel.spec.teaal import read_teaal
from tests.faults import faults, refused
from tests.sparse.random_cascades import by_data, shaped

MTTKRP = """
einsum:
  declaration: {A: [I, J, K], B: [J, F], C: [K, F], T: [I, J, F], Y: [I, F]}
  expressions:
    - T[i, j, f] = A[i, j, k] * C[k, f]
    - Y[i, f] = T[i, j, f] * B[j, f]
mapping:
  rank-order: {A: [I, J, K], B: [J, F], C: [K, F], T: [I, J, F], Y: [I, F]}
  partitioning:
    T: {I: [uniform_slice(3)], J: [uniform_shape(8)], K: [uniform_shape(8)],
        F: [uniform_shape(32), uniform_shape(4)]}
    Y: {I: [uniform_slice(3)], J: [uniform_shape(8)], F: [uniform_shape(32), uniform_shape(4)]}
  loop-order:
    T: [I1, I0, F2, J1, K1, J0, K0, F1, F0]
    Y: [I1, I0, F2, J1, J0, F1, F0]
  spacetime:
    T: {space: [I1, F1, F0], time: [I0, F2, J1, K1, J0, K0]}
    Y: {space: [I1, F1, F0], time: [I0, F2, J1, J0]}
"""


def operands(seed: int = 0) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    a = numbers.integers(1, 9, (5, 12, 11)) * (numbers.random((5, 12, 11)) < 0.06)
    return {"A": a, "B": numbers.integers(1, 9, (12, 6)), "C": numbers.integers(1, 9, (11, 6))}


def dealt(rows: Counter[int], parts: int) -> Iterator[tuple[int, list[int]]]:
    """Rows in order, each to the part with the fewest nonzeros so far."""
    loads, found = [0] * parts, [[] for _ in range(parts)]  # type: list[int], list[list[int]]
    for i in sorted(rows):
        part = loads.index(min(loads))
        found[part].append(i)
        loads[part] += rows[i]
    return ((s, r) for s, r in enumerate(found) if r)


def tiles(values: Any, size: int) -> Iterator[tuple[int, tuple[int, list[int]]]]:
    """(position, (start, members)) of the tiles that hold anything."""
    parts = groupby(sorted(set(values)), key=lambda v: v // size * size)
    return enumerate((start, list(members)) for start, members in parts)


def slow_t(a: Any, columns: int) -> Iterator[Activity]:
    """The loops of T[i, j, f] = A[i, j, k] C[k, f], F up to 32, C dense."""
    points = [tuple(p) for p in np.argwhere(a).tolist()]
    for s, rows in dealt(Counter(p[0] for p in points), 3):
        for i0, i in enumerate(rows):
            for j1, (jt, js) in tiles((p[1] for p in points if p[0] == i), 8):
                mine = [p for p in points if p[0] == i and p[1] in js]
                for k1, (kt, ks) in tiles((p[2] for p in mine), 8):
                    for j0, j in enumerate(sorted({p[1] for p in mine if p[2] in ks})):
                        for k0, k in enumerate(sorted(p[2] for p in mine if p[1] == j and p[2] in ks)):
                            for f1, (ft, fs) in tiles(range(columns), 4):
                                for f0, f in enumerate(fs):
                                    yield Activity((s, f1, f0), (i0, 0, j1, k1, j0, k0), (
                                        ("A", (s, i, jt, kt, j, k)), ("C", (0, kt, k, ft, f)),
                                        ("T", (s, i, 0, jt, j, ft, f)),
                                    ))  # fmt: skip


def slow_y(a: Any, columns: int) -> Iterator[Activity]:
    """The loops of Y[i, f] = T[i, j, f] B[j, f]: T sliced by its own nonzeros."""
    points = sorted({(i, j) for i, j, _ in np.argwhere(a).tolist()})
    rows_of_t = Counter(p[0] for p in points for _ in range(columns))
    for s, rows in dealt(rows_of_t, 3):
        for i0, i in enumerate(rows):
            for j1, (jt, js) in tiles((p[1] for p in points if p[0] == i), 8):
                for j0, j in enumerate(js):
                    for f1, (ft, fs) in tiles(range(columns), 4):
                        for f0, f in enumerate(fs):
                            yield Activity((s, f1, f0), (i0, 0, j1, j0), (
                                ("T", (s, i, 0, jt, j, ft, f)), ("B", (0, jt, j, ft, f)),
                                ("Y", (s, i, 0, ft, f)),
                            ))  # fmt: skip


def ran(text: str, tensors: dict[str, Any]) -> Execution:
    return run(read_teaal(text), tensors, keep_loops=True)


@pytest.mark.parametrize("seed", range(3))
def test_the_computes_of_mttkrp_are_those_of_its_loops(seed: int) -> None:
    given = operands(seed)
    execution = ran(MTTKRP, given)
    for einsum, slow in (("T", slow_t), ("Y", slow_y)):
        found = activities(execution, einsum, limit=10**4)
        assert list(found.computes) == list(slow(given["A"], 6))
        counts = execution.einsum(einsum)
        assert counts.times is not None
        assert len(found.computes) == counts.activities
        assert (found.lock_steps, found.slip_steps) == (counts.times.lock_step, counts.times.slip)
        assert found.ideal_steps == counts.ideal_time()
        assert found.time == execution.spec.mapping_of(einsum).loop_order[1:-2]


def test_the_output_has_the_values_of_the_result() -> None:
    given = operands()
    execution = ran(MTTKRP, given)
    output = iterated(execution, "Y", limit=10**4)["Y"]
    assert isinstance(output, DrawnFibertree)
    dense = np.einsum("ijk,jf,kf->if", given["A"], given["B"], given["C"])
    rows = {r: k for k, r in enumerate(output.ranks)}
    assert (dense[output.columns[rows["I0"]], output.columns[rows["F0"]]] == output.values).all()
    assert output.values.size == np.count_nonzero(dense)


SPECS = {
    "sum": """
einsum: {declaration: {A: [M], B: [M], Z: [M]}, expressions: ["Z[m] = A[m] + B[m]"]}
mapping: {loop-order: {Z: [M]}, spacetime: {Z: {space: [], time: [M.coord]}}}
""",
    "occupancy": """
einsum: {declaration: {A: [M, K], B: [K], Z: [M]}, expressions: ["Z[m] = A[m, k] * B[k]"]}
mapping:
  partitioning: {Z: {"(M, K)": [flatten()], MK: [uniform_occupancy(A.3)]}}
  loop-order: {Z: [MK1, MK0]}
  spacetime: {Z: {space: [MK1], time: [MK0], opt: slip}}
""",
    "scalar": """
einsum: {declaration: {A: [M, K], B: [M, K], Z: []}, expressions: ["Z[] = A[m, k] * B[m, k]"]}
mapping: {loop-order: {Z: [M, K]}, spacetime: {Z: {space: [M], time: [K]}}}
""",
    "twice": """
einsum: {declaration: {A: [M, K], Z: [M]}, expressions: ["Z[m] = A[m, k] * A[m, k]"]}
mapping: {loop-order: {Z: [M, K]}, spacetime: {Z: {space: [M.coord], time: [K]}}}
""",
}


@pytest.mark.parametrize("name", SPECS)
def test_other_constructs_agree_with_the_counts(name: str) -> None:
    numbers = np.random.default_rng(4)
    spec = read_teaal(SPECS[name])
    sizes = {"M": 6, "K": 5}
    given = {t: numbers.integers(1, 5, [sizes[r] for r in spec.declaration[t]]) for t in spec.inputs}
    given = {t: v * (numbers.random(v.shape) < 0.6) for t, v in given.items()}
    execution = run(spec, given, keep_loops=True)
    found, counts = activities(execution, limit=10**4), execution.einsums[0]
    assert counts.times is not None
    assert len(found.computes) == counts.activities >= 4
    assert (found.lock_steps, found.slip_steps) == (counts.times.lock_step, counts.times.slip)
    assert found.slip == (name == "occupancy")
    outputs = {c.points[-1] for c in found.computes}
    assert {n for n, _ in outputs} == {"Z"}
    assert len(outputs) == counts.output_nnz
    drawn = iterated(execution, limit=10**4)["Z"]
    assert isinstance(drawn, DrawnFibertree)
    assert sorted(v for v in drawn.values if v) == sorted(execution.results["Z"].values)
    assert all(len({len(p) for n, p in c.points if n == t}) <= 1 for c in found.computes for t in spec.inputs)
    assert ExecutionReport(execution).activity_page(limit=10**4).html
    if name == "sum":
        assert {len(c.points) for c in found.computes} == {2, 3}
        assert drawn.values.tolist() == [v for v in (given["A"] + given["B"]).tolist() if v]
    if name == "occupancy":
        assert drawn.ranks == ("M",)  # of a flattened loop the output has one part
    if name == "twice":
        assert {n for c in found.computes for n, _ in c.points} == {"A", "A#2", "Z"}


@pytest.mark.parametrize("make", [shaped, by_data], ids=["by shape", "by data"])
def test_random_specs_are_drawn_as_they_were_counted(make: Any) -> None:
    drawn = 0
    for seed in range(30):
        spec, given, sizes = make(seed)
        execution = run(spec, given, rank_sizes=sizes, keep_loops=True)
        for counts in execution.einsums:
            if counts.activities > 1000:
                continue
            found = activities(execution, counts.einsum, limit=1000)
            times = counts.times
            assert times is not None
            assert len(found.computes) == counts.activities
            assert (found.lock_steps, found.slip_steps) == (times.lock_step, times.slip), seed
            assert len(found.spaces) == times.distinct_space_stamps
            assert len({c.points[-1] for c in found.computes}) == counts.output_nnz
            tree = iterated(execution, counts.einsum, limit=1000)[counts.einsum]
            assert isinstance(tree, DrawnFibertree)
            wanted = sorted(execution.results[counts.einsum].values)
            assert sorted(v for v in tree.values if v) == pytest.approx(wanted), seed
            drawn += 1
    assert drawn > 25


def test_a_report_draws_its_execution() -> None:
    report = ExecutionReport(
        ran(MTTKRP, {"A": np.ones((2, 2, 1), int), "B": np.ones((2, 2), int), "C": np.ones((1, 2))})
    )
    assert "8 computes on 4 space points, 2 steps (lock-step)" in report.draw_activity("Y").svg
    page = report.activity_page()
    assert page.html.count('<section class="run"') == 2
    assert page.html.count("<figure") == 6
    assert report.activity_page("Y").html.count("<figure") == 3
    ax = report.plot_load("T")
    assert [p.get_height() for p in ax.patches] == [2, 2, 2, 2]


def test_what_cannot_be_drawn_says_why() -> None:
    given = operands()
    kept, plain = ran(MTTKRP, given), run(read_teaal(MTTKRP), given)
    with refused("too-large", "T", "60") as error:
        activities(kept)
    assert "spacetime" in error.value.remedy
    with refused("nothing-to-show", "T") as error:
        activities(plain, "T", limit=10**4)
    assert "keep_loops=True" in error.value.remedy
    with faults("unknown-name", "W", at=""):
        activities(kept, "W")
    silent = ran(MTTKRP.split("  spacetime:")[0], given)
    with refused("nothing-to-show", "T"):
        activities(silent)
