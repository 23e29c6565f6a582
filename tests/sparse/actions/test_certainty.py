"""Labels: a report is as certain as its least certain number, busiest instances among them."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.records import Certainty, least_certain
from polymodel.sparse.actions.rescale import sparse_analysis
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import small_problems
from tests.sparse.actions.test_busiest import M, document, rows, spatial, spec, with_rows
from tests.sparse.actions.test_literal import drawn_data, legal

ORDER: tuple[Certainty, ...] = get_args(Certainty)


def test_a_bound_and_a_lower_bound_make_an_estimate() -> None:
    for pair in combinations_with_replacement(ORDER, 2):
        wanted = max(pair, key=("exact", "expected", "lower bound", "bound", "estimate").index)
        assert least_certain(pair) == ("estimate" if set(pair) == {"bound", "lower bound"} else wanted)


def test_a_report_is_as_certain_as_its_busiest_instance() -> None:
    """Two leaders: operations and energy are expected, the busiest instance is taken as the mean."""
    found = pm.sparsify(
        pm.evaluate(spec(spatial("m", 8), leaders=["A", "B"])), densities={"A": 0.125, "B": 0.5}
    )
    assert found.compute["busiest_label"].tolist() == ["lower bound"]
    assert found.label == "lower bound"
    assert found.summary["label"].tolist() == ["lower bound"] * 2
    assert found.summary["energy_label"].tolist() == ["expected"] * 2
    for shown in (str(found), found.to_html(), repr(found)):
        assert "lower bound" in shown
    even = pm.sparsify(pm.evaluate(spec(spatial("n", 1), fanout=3)), densities={"A": 0.125})
    assert even.label == "expected"


def test_points_of_sweeps_say_so_too() -> None:
    whole = document(spatial("m", 1) | {"tile_shape": "T"}, fanout=M, leaders=["A", "B"])
    whole["workload"]["densities"] = {"A": 0.125, "B": 0.5}
    found = pm.sweep(
        pm.load(whole), {"T": [8, 64]}, objectives=["sparse_latency", "sparse_energy"], keep="all"
    )
    assert dict(zip(found.frame["T"], found.frame["label"], strict=True)) == {
        8: "lower bound",
        64: "expected",
    }


BUFFERED = {"type": "Memory", "name": "RF", "size": "inf", "tensors": {"keep": "All"},
            "actions": [{"name": n, "energy": 1, "throughput": 1} for n in ("read", "write")],
            "sparse": {"format": {"A": "COO"}}}  # fmt: skip


def buffered(tile: int) -> pm.Spec:
    """Buffers of the multipliers hold nonzeros of A."""
    whole = document(spatial("m", tile))
    whole["arch"]["nodes"].insert(2, BUFFERED)
    whole["mapping"]["nodes"].insert(2, {"type": "Storage", "component": "RF", "tensors": ["A", "B", "Z"]})
    return pm.load(whole)


def test_memories_in_instances_are_means_and_say_so() -> None:
    """A row of a power law has most nonzeros: the buffer that holds it reads more than the mean."""
    data = with_rows(rows())
    found = pm.sparsify(pm.evaluate(buffered(8)), {"A": data})
    (load,) = [x for x in found.counts.loads if x.component == "RF"]
    assert (load.label, load.busiest_label) == ("exact", "lower bound")
    assert found.label == "lower bound"
    assert found.summary["energy_label"].tolist() == ["exact"] * 2
    accesses = found.accesses[found.accesses["component"] == "RF"]
    reads = accesses[accesses["kind"].str.startswith("reads")]
    each = (reads["actual_bits"].sum() + reads["metadata_bits"].sum()) / 8
    assert found.latency.set_index("component")["read_bits"]["RF"] == pytest.approx(each)
    assert rows().sum() / 8 < np.bincount(np.arange(M) // 8, rows()).max() / 1.2


def pareto(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted({p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in pairs)})


@settings(max_examples=120, deadline=None)
@given(small_problems(), st.data())
def test_loads_are_what_their_labels_say(problem: Problem, data: st.DataObject) -> None:
    """Against a walk that looks at what every instance moves."""
    legal(problem)
    points, known = drawn_data(problem, data)
    dense = ENGINE.analyse(problem)
    counts = sparse_counts(problem, dense, known)
    walk = Literal(problem)
    walk(points)
    bits = {a.tensor: a.bits_per_value for a in problem.cascade["Z"].accesses}
    for load in sparse_analysis(problem, dense, counts).loads:
        sums: dict[tuple[int, ...], list[int]] = {}
        for (tensor, component, place, way), n in walk.moved.items():
            if component == load.component:
                sums.setdefault(place, [0, 0])[way == "writes"] += n * bits[tensor]
        most = pareto([(r, w) for r, w in sums.values()]) or [(0, 0)]
        (label,) = [x.busiest_label for x in counts.loads if x.component == load.component]
        if label == "exact":
            assert pareto(list(load.loads)) == [pytest.approx(p) for p in most], (load, most)
        elif label == "lower bound":
            ((r, w),) = load.loads
            assert r <= max(p[0] for p in most) + 1e-9
            assert w <= max(p[1] for p in most) + 1e-9
