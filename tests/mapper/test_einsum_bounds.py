"""Bounds of Einsums by themselves are their floors where they have all the space, and no mapping is below
them."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapper.aims import nothing_known
from polymodel.mapper.budget import Watch
from polymodel.mapper.einsum_bounds import NEAR, OUTER, EinsumBounds, in_backing_storage
from polymodel.mapper.full_mappings import aims_in, rules_of
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.lower_bounds import Floors, compulsory_sums, lower_bounds_of
from polymodel.mapper.pmappings import SearchedRegions
from polymodel.mapper.records import Request
from polymodel.mapper.space import einsum_spaces
from tests.mapper.test_search import ATTENTION, CHAIN, RESIDUAL, spec_of
from tests.seeds import seeds

WINDOWS = ["T[p,m] = I[W=p+r, k] * F[m,k,r]", "Z[q,n] = T[P=q+s, m] * G[n,m,s]"]
OBJECTIVES = (("energy",), ("latency",), ("energy", "latency"), ("accesses:DRAM", "energy"), ("edp",))


def some_spec(pick: random.Random) -> pm.Spec:
    einsums = pick.choice([CHAIN, RESIDUAL, ATTENTION, WINDOWS])
    sizes = {r: pick.choice([2, 3, 4]) for r in "MNKPQEFRS" if any(r.lower() in e for e in einsums)}
    if einsums is RESIDUAL:
        sizes["P"] = sizes["N"]
    if einsums is WINDOWS:
        sizes |= {"P": 5, "Q": 4, "R": 2, "S": 2}
    fan = {"name": "X", "fanout": pick.choice([1, 2, 4]), "may_reuse": pick.choice(["All", "Outputs"])}
    return spec_of(einsums, sizes, pick.choice([120, 300, 800]), pick.choice([0, 24, 100]), [fan])


def bounded(spec: pm.Spec, objectives: Sequence[str]) -> tuple[EinsumBounds, Watch]:
    request = Request(tuple(objectives))
    spaces = einsum_spaces(spec.workload, spec.arch, request.limits)
    aims = aims_in(spaces, request)
    spaces = tuple(replace(s, more=aims.more) for s in spaces)
    watch = Watch(request, time.perf_counter(), 1)
    watch.least = nothing_known(aims, 2)
    for part in watch.least.parts:
        part.einsums = compulsory_sums(spaces, aims.added)
    found = EinsumBounds(Deepening(spaces, request, watch, rules_of(spaces, request)), 2, {})
    found.go_on(together=True)
    return found, watch


def floors_of(found: EinsumBounds, i: int) -> Floors:
    work = found.work
    limits, interest = work.request.limits, work.rules.interest
    return lower_bounds_of(
        work.spaces[i], limits, interest, work.steps, SearchedRegions(), work.watch.tally()
    )


@pytest.mark.parametrize("seed", seeds(2, range(24)))
def test_bounds_are_the_floors_with_all_the_space(seed: int) -> None:
    pick = random.Random(seed)
    spec = some_spec(pick)
    objectives = pick.choice(OBJECTIVES)
    found, _ = bounded(spec, objectives)
    rows = found.work.rules.aims.added
    alike = [(first, i) for first, several in found._alike.items() for i in several]
    assert sorted(i for _, i in alike) == list(range(len(spec.workload.einsums)))
    for first, i in alike:
        space, wanted = found.work.spaces[i], found._exchanges[i]
        floors = floors_of(found, i)
        assert floors.least is not None
        least = {
            e: table.reshape(len(rows), -1).min(axis=1) for e, table in floors.least.items() if e in wanted
        }
        for row in range(len(rows)):
            outer = min(x[row] for e, x in least.items() if all(m <= OUTER for _, m in e))
            every = min(x[row] for x in least.values())
            for bound, floor in zip(found.done[first, row], (outer, every), strict=True):
                assert floor / (1 + NEAR) * (1 - 1e-6) <= bound <= floor
        unknown = tuple(found.done[first, row][1] for row in range(len(rows)))
        backed = in_backing_storage(space, wanted, rows)
        below = Floors(found.work.steps, len(rows), None, unknown, backed)
        for exchanges, sums in least.items():
            table = below.of(exchanges)
            assert table is not None
            assert (table.reshape(len(rows), -1)[:, 0] <= sums * (1 + 1e-9)).all()


@pytest.mark.parametrize("seed", seeds(2, range(24)))
def test_no_mapping_is_below_the_bounds(seed: int) -> None:
    pick = random.Random(seed)
    spec = some_spec(pick)
    objectives = pick.choice(OBJECTIVES)
    _, watch = bounded(spec, objectives)
    front = pm.explore(spec, objectives=objectives)
    assert front.complete
    assert len(front)
    for o in objectives:
        best = float(front.best(o).value(o))
        assert 0 < watch.least.of(o) <= best * (1 + 1e-9)


def test_tensors_in_the_backing_storage_cost_what_they_move() -> None:
    """A chain of products on a machine without a memory further inside."""
    spec = spec_of(CHAIN, {"M": 4, "N": 4, "K": 4, "P": 4}, 800, 0, [])
    found, _ = bounded(spec, ("energy", "accesses:DRAM"))
    first, second = found.work.spaces
    rows, wanted = found.work.rules.aims.added, found._exchanges
    made, read = (in_backing_storage(s, e, rows) for s, e in zip((first, second), wanted, strict=True))
    elements, bits = 16, 8
    np.testing.assert_allclose(made[2], (elements * bits * (80 - 5), elements * bits))
    np.testing.assert_allclose(read[0], (elements * bits * (64 - 4), elements * bits))


def test_bounds_know_what_small_memories_refetch() -> None:
    """Above what moves once and is executed."""
    spec = spec_of(CHAIN, {"M": 8, "N": 8, "K": 8, "P": 8}, 300, 24, [])
    found, watch = bounded(spec, ("energy",))
    least = float(np.sum(compulsory_sums(found.work.spaces, found.work.rules.aims.added)))
    assert watch.least.of("energy") > 1.1 * least
