"""Legal specs of all kinds: enumerate = exact = symbolic = sweep, and what closed forms refuse."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.schedule.legality import check
from polymodel.sweeps import axes, kernel
from polymodel.sweeps.grid import Grid
from tests.analysis.refusals import refused_at_numbers
from tests.analysis.test_agreement import differences
from tests.analysis.verdicts import counted, evaluated, in_closed_forms
from tests.mixed_specs import KINDS, legal

SEED = 5
REFUSED_AT_MOST = 0.02


def test_every_kind_is_counted_alike() -> None:
    for number in range(len(KINDS)):
        one = legal(number, SEED)
        assert one is not None, number
        referee = REFEREE.analyse(one.problem)
        assert not differences(EXACT.analyse(one.problem), referee), number
        if not refused_at_numbers(one):
            assert not differences(SYMBOLIC.analyse(one.problem), referee), number


# Every third value executes, in instances of two: some at their first value, others at their second; what is
# needed has holes, reaches into padding, or is tied by bounds; buffets come and go while others run; Einsums
# share loops in which some execute in some iterations or instances only, or storage that one fills whole.
LISTED = [975, 85, 105, 164, 534, 146, 166, 257, 26, 66, 718, 452, 256, 309, 35, 436, 64, 186, 461, 845]
# Instances decide what executes, and carry what they have made; loops inside run in other iterations; several
# loops along one dimension tell instances, of some buffets others than of others; what is carried forward
# begins again further out; instances run within other bounds, and all of them run; some are idle at times.
LISTED += [387, 4376, 4194, 449, 3209, 2697, 3555]
ALIKE = [205, 1301, 1931, 3155, 3847, 1509, 472, 1787, 2035, 1374, 2965, 4554, 4379, 746, 3617]


@pytest.mark.parametrize("number", LISTED)
@pytest.mark.thin(5)
def test_what_executes_is_listed_where_it_is_no_interval(number: int) -> None:
    one = legal(number, 21)
    assert one is not None
    assert not refused_at_numbers(one)
    assert not differences(SYMBOLIC.analyse(one.problem), REFEREE.analyse(one.problem))


@pytest.mark.slow
@pytest.mark.parametrize("number", ALIKE)
def test_more_is_listed(number: int) -> None:
    test_what_executes_is_listed_where_it_is_no_interval(number)


# What stays depends on a trip, and which instance moves most on tiles; a component at several depths below
# the same loops in space; Einsums of other ranges below one loop; generations below a loop in space.
@pytest.mark.parametrize("number", [951, 85, 256, 259, 309])
def test_tile_sizes_are_symbols(number: int) -> None:
    one = legal(number, 21)
    assert one is not None
    counts: Counter[str] = Counter()
    assert not in_closed_forms(one.bound, evaluated(one.bound), counts)
    assert counts["closed forms"] == 1


def test_an_einsum_executes_again_below_a_loop_of_an_inferred_one() -> None:
    """O executes again for each n, of S and of Q, and Q is inferred from S further in."""
    one = legal(2056, 41)
    assert one is not None
    assert not refused_at_numbers(one)
    assert not differences(SYMBOLIC.analyse(one.problem), REFEREE.analyse(one.problem))


def test_a_loop_that_cuts_an_einsum_and_decides_what_its_consumer_executes_is_refused() -> None:
    """Q is inferred from S below l, and both have the loop over m inside; S is inferred from O further in."""
    one = legal(2346, 41)
    assert one is not None
    assert refused_at_numbers(one).endswith("what _ executes is inferred")
    assert not counted(one.spec, one.bound, one.drawn, Counter())


def test_tiles_fit_the_window_below_the_loops_above_them_alone() -> None:
    """T1 is needed for all of T2, which a loop further in, below which T1 does not stand, cuts into tiles."""
    one = legal(2365, 21)
    assert one is not None
    assert not pm.closed_forms(one.spec).domain.faults({"X1": 20, "X2": 1})


@pytest.mark.slow
def test_many_specs_are_counted_alike() -> None:
    found: list[str] = []
    refused = 0
    for number in range(1000):
        one = legal(number, SEED)
        assert one is not None, number
        refused += bool(refused_at_numbers(one))
        found += [f"{number}: {line}" for line in counted(one.spec, one.bound, one.drawn, Counter())]
    assert not found, found
    assert refused <= REFUSED_AT_MOST * 1000, refused


@pytest.mark.slow
def test_grids_of_which_factors_take_several_axes_are_swept_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever meets in factors alone is several axes, as of grids too large for one."""

    def apart(_grid: Grid, whole: frozenset[str], groups: list[frozenset[str]], _met: object) -> object:
        return [g for g in groups if g <= whole]

    monkeypatch.setattr(axes, "_in_factors", apart)
    monkeypatch.setattr(kernel, "RIGHT", 2)  # some tables have axes on both sides
    made: Counter[bool] = Counter()
    joint = kernel.ArrayKernel._joint

    def counting(*arguments: Any) -> kernel.JointTable:
        table = joint(*arguments)
        made[min(table.values.shape) > 1] += 1
        return table

    monkeypatch.setattr(kernel.ArrayKernel, "_joint", counting)
    for number in range(200, 290):
        one = legal(number, 43)
        assert one is not None, number
        assert not counted(one.spec, one.bound, one.drawn, Counter()), number
    assert made[True] > 5
    assert made[False] > 5


def test_what_no_iteration_makes_is_missed_where_it_is_inferred() -> None:
    """Padding so wide that a result has no input at all: to be read, it would have to be made."""
    memory = [{"name": n, "energy": 1} for n in ("read", "write")]
    spec = pm.load(
        {
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "actions": memory},
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1}]},
                ]
            },
            "workload": {
                "rank_sizes": {"P0": 1, "R1": 1, "P1": 2, "R2": 1, "P2": 2},
                "bits_per_value": {"All": 8},
                "einsums": ["A[p1] = I[P0=p1 + r1 - 1] * W1[r1]", "Z[p2] = A[P1=p2 + r2] * W2[r2]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["I", "W1", "A", "W2", "Z"]},
                    {"type": "Temporal", "rank_variable": "p2", "tile_shape": 1},
                    {
                        "type": "Sequential",
                        "nodes": [
                            {
                                "type": "Nested",
                                "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"}],
                            }
                            for e in "AZ"
                        ],
                    },
                ]
            },
        }
    )
    assert spec.mapping is not None
    problem = pm.Problem(spec.workload, spec.arch, spec.mapping)
    (fault,) = check(problem)
    assert "never produces it" in fault.message
    assert violation(problem) is not None


def windows_of_windows(nodes: list[dict[str, object]], **sizes: int) -> pm.Spec:
    """A rank of three rank variables: 2 s + r steps from p on."""
    memory = [{"name": n, "energy": 1, "throughput": 1e9} for n in ("read", "write")]
    machine = [
        {"type": "Memory", "name": "DRAM", "actions": memory},
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 4, "may_reuse": "All"}]},
        {"type": "Memory", "name": "RF", "actions": memory},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1e9}]},
    ]
    first = {"type": "Storage", "component": "DRAM", "tensors": ["A", "W", "T"]}
    return pm.load(
        {
            "arch": {"nodes": machine},
            "workload": {
                "rank_sizes": {"P": 7, "S": 3, "R": 2, **sizes},
                "bits_per_value": {"All": 8},
                "einsums": ["T[p] = A[I=p + 2*s + r] * W[s, r]"],
            },
            "mapping": {"nodes": [first, *nodes, {"type": "Compute", "einsum": "T", "component": "MAC"}]},
            "symbols": {"TP": None, "TS": None},
        }
    )


@pytest.mark.parametrize("policy", ["refill", "slide", "keep_previous"])
@pytest.mark.parametrize("kind", ["Temporal", "Spatial"])
def test_ranks_of_three_variables(policy: str, kind: str) -> None:
    where = {"component": "PE", "name": "X"} if kind == "Spatial" else {}
    nodes: list[dict[str, object]] = [
        {"type": "Temporal", "rank_variable": "s", "tile_shape": "TS"},
        {"type": kind, "rank_variable": "p", "tile_shape": "TP", **where},
        {"type": "Storage", "component": "RF", "tensors": ["A"], "reuse": policy},
        {"type": "Temporal", "rank_variable": "s", "tile_shape": 1},
    ]
    spec = windows_of_windows(nodes)
    forms = pm.closed_forms(spec)
    frame = pm.sweep(spec, {"TP": [3, 5], "TS": [1, 2]}, keep="all").frame
    assert len(frame) == 4
    fills = forms.accesses.set_index(["component", "tensor"]).loc[("RF", "A"), "fill_elements"]
    for row in frame.itertuples():
        values = {"TP": int(row.TP), "TS": int(row.TS)}
        bound = spec.bind(**values)
        assert bound.mapping is not None
        referee = REFEREE.analyse(pm.Problem(bound.workload, bound.arch, bound.mapping))
        assert not differences(forms.analysis.at(values), referee), values
        assert row.energy == pytest.approx(pm.evaluate(bound).total_energy)
        (traffic,) = (t for t in referee.traffic if (t.component, t.tensor) == ("RF", "A"))
        if kind == "Temporal" and policy == "refill":
            assert fills.subs({s: values[s.name] for s in fills.free_symbols}) == traffic.writes_fill
