"""All tile sizes of an order of storage nodes at once, against mappings evaluated one by one."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapper.records import Limits
from polymodel.mapper.sparse_tiles import (
    ExploredMachine,
    KnownSpace,
    OrderSearch,
    chains_near,
    skeleton,
    sweepable,
)
from polymodel.mapper.tree_moves import OwnPart, own_part
from polymodel.mapping.looptree import LoopTree
from polymodel.pareto import undominated
from polymodel.report.sparse import with_data
from polymodel.sparse.actions.inputs import tensor_data
from tests.mapper.sparse_spaces import costs_of_all, distinct
from tests.mapper.test_sparse import BOTH, Case
from tests.seeds import seeds

SKIP = {"DRAM": {"actions": [{"skip": "B", "on": "A"}]}, "GLB": {"format": {"A": "CSR"}}}


SPACES = [
    Case((4, 1, 1), {"A": 0.5}, SKIP, glb=40),
    Case((2, 2, 2), {"A": 0.25}, SKIP, glb=48),
    Case((4, 2, 1), {"A": 0.5, "B": 0.5}, SKIP, glb=40),
]


def order_search(spec: pm.Spec, objectives: Sequence[str] = BOTH) -> OrderSearch:
    machines = [ExploredMachine(spec, spec.arch, ())]
    return OrderSearch(machines, objectives, KnownSpace(machines, Limits()), lambda: False)


def part_of(spec: pm.Spec, tree: LoopTree) -> OwnPart:
    part = own_part(tree, spec.workload.einsums[0], spec.arch)
    assert part is not None
    return part


def front(values: np.ndarray) -> np.ndarray:
    kept = values[:, undominated(list(values))]
    return kept[:, np.lexsort(kept[::-1])]


@pytest.mark.parametrize("case", seeds(1, SPACES), ids=["flat", "square", "tall"])
def test_all_orders_of_a_small_space(case: Case) -> None:
    """The front of all orders is that of all mappings, each evaluated by itself."""
    spec = case.spec
    (tree, *_) = distinct(spec)
    search = order_search(spec)
    assert search.exhaustive([(0, tree)])
    values, trees = search.rows()
    every = np.array(costs_of_all(spec)).T
    assert front(values) == pytest.approx(front(every), rel=1e-9)
    data = tensor_data(spec.workload)
    for column, (_, mapping) in zip(values.T, trees, strict=True):
        report = evaluate_problem(Problem(spec.workload, spec.arch, mapping()))
        sparse = with_data(report, data)
        assert sparse.feasible
        assert column == pytest.approx((sparse.total_energy, sparse.total_latency), rel=1e-9)


def test_given_data_have_no_closed_forms(tmp_path: Path) -> None:
    (tmp_path / "a.tns").write_text("# shape: 2 2\n1 1 1\n2 2 1\n")
    spec = Case((2, 2, 1), {"A": 0.5}, {"GLB": {"format": {"A": "CSR"}, "fit": "worst"}}).spec
    (tree, *_) = distinct(spec)
    search = order_search(spec)
    assert not search.exhaustive([(0, tree)])
    search.run([0], [(0, tree)])
    assert all(one is None for one in search.swept.values())
    assert not search.rows()[1]


def test_tile_sizes_are_those_near_first() -> None:
    """All of them where they are few; otherwise those that the fewest moves lead to."""
    spec = Case((16, 4, 1), {"A": 0.5}, {}, glb=10**4).spec
    part = max(
        (part_of(spec, t) for t, _ in zip(distinct(spec), range(2000), strict=False)),
        key=lambda p: len(p.nodes),
    )
    whole, complete = chains_near(part)
    steps = len(part.steps)
    assert complete
    assert [len(set(c)) for c in whole] == [len(c) for c in whole]
    # four, two and no factors of 2 in so many steps
    assert [len(c) for c in whole] == [_ways(4, steps), _ways(2, steps), 1]
    some, complete = chains_near(part, 60)
    assert not complete
    assert 1 < prod(map(len, some)) <= 60
    for v, near in enumerate(some):
        assert near[0] == part.factors(v)
        assert set(near) <= set(whole[v])


def _ways(factors: int, steps: int) -> int:
    """Ways to distribute equal factors."""
    return (
        1
        if not factors
        else sum(_ways(factors - k, steps - 1) for k in range(factors + 1))
        if steps > 1
        else 1
    )


def test_an_order_is_what_is_left_without_tile_sizes() -> None:
    spec = Case((4, 2, 1), {"A": 0.5}, {}, glb=10**4).spec
    keys: dict[object, set[tuple[tuple[int, str], ...]]] = {}
    for tree in distinct(spec):
        part = part_of(spec, tree)
        keys.setdefault(skeleton(0, part, tree), set()).add(part.nodes)
    assert all(len(nodes) == 1 for nodes in keys.values())
    assert len(keys) == 16  # orders of any of three tensors: 1 + 3 + 6 + 6


def test_rules_leave_tile_sizes_out() -> None:
    assert sweepable(Limits())
    assert not sweepable(Limits(sizes="all"))
    assert not sweepable(Limits(min_utilisation=(("GLB", "X", 0.5),)))
