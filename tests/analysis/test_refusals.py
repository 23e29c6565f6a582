"""Legal specs of all kinds: enumerate = exact = symbolic = sweep, and what closed forms refuse."""

from __future__ import annotations

from collections import Counter

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.schedule.legality import check
from tests.analysis.refusals import refused_at_numbers
from tests.analysis.test_agreement import differences
from tests.analysis.verdicts import counted
from tests.mixed_specs import KINDS, legal

SEED = 5
REFUSED_AT_MOST = 0.25


def test_every_kind_is_counted_alike() -> None:
    for number in range(len(KINDS)):
        one = legal(number, SEED)
        assert one is not None, number
        referee = REFEREE.analyse(one.problem)
        assert not differences(EXACT.analyse(one.problem), referee), number
        if not refused_at_numbers(one):
            assert not differences(SYMBOLIC.analyse(one.problem), referee), number


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
