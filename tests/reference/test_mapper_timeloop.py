"""Invented cases of Timeloop's mapper: what it minimises, with numbers that were worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference import mapper_timeloop
from tests.reference.common import Outcome, engine
from tests.reference.timeloop_metrics import least

Case = dict[str, Any]
SPATIAL = {"component": "RF", "dim": "X"}


def case(
    projections: dict[str, str], nodes: list[Case], metrics: Any, optimum: tuple[int, int], dram: int = 10
) -> Case:
    """Sizes 2, a DRAM and four units in a row with 8 words each; energies `dram`, 1 and 2 per operation.

    `projections`: letters of the ranks; the last tensor is the output. `optimum`: energy and cycles.
    """
    tensors = list(projections)
    accesses = [
        {"name": t, "projection": [[[v]] for v in ranks], "read_write": t == tensors[-1]}
        for t, ranks in projections.items()
    ]
    return {
        "format": mapper_timeloop.FORMAT,
        "name": "invented",
        "problem": {"problem": accesses, "sizes": {v: 2 for ranks in projections.values() for v in ranks}},
        "arch": {
            "DRAM": {"energy_per_word": dram},
            "RF": {"energy_per_word": 1, "words": 8, "array": "PE[0..3]", "meshX": 4},
            "MACC": {"energy_per_op": 2},
        },
        "mapper": {
            "optimization_metrics": metrics,
            "constraints": [{"target": "RF", "type": "datatype", "keep": tensors, "bypass": []}],
        },
        "search_complete": True,
        "optimum": {"energy_sum_of_levels": optimum[0], "cycles": optimum[1]},
        "mapping": [
            {"storage": "DRAM", "tensors": tensors},
            *(n for n in nodes if "spatial" in n),
            {"storage": "RF", "tensors": tensors},
            *(n for n in nodes if "temporal" in n),
            {"compute": "E0", "component": "MACC"},
        ],
        "counts": {},
    }


def loops(spatial: str, temporal: str) -> list[Case]:
    found: list[Case] = [{"spatial": v, "tile": 1, "component": "RF", "dim": v} for v in spatial]
    return found + [{"temporal": v, "tile": 1} for v in temporal]


def outer(metrics: Any, spatial: str, optimum: tuple[int, int], dram: int = 10) -> Case:
    """Z[m, n] = A[m] * B[n], 4 operations. Each way the DRAM reads A and B once and takes Z: 8 words.

    In the units 4 + 4 reads and 4 updates, in any mapping; and A and B are filled once for each unit that
    needs them: 2 + 2 words in one unit, 2 + 4 in two, 4 + 4 in four. With DRAM at 10 and 2 per operation
    that is 80 + 8 + 12 + 4 = 104 in 4 cycles, 106 in 2, 108 in 1.
    """
    temporal = "".join(v for v in "MN" if v not in spatial)
    return case({"A": "M", "B": "N", "Z": "MN"}, loops(spatial, temporal), metrics, optimum, dram)


def matmul(metrics: Any, spatial: str, optimum: tuple[int, int]) -> Case:
    """Z[m, n] = A[m, k] * B[k, n], 8 operations. The DRAM moves at least 4 words of each: 120.

    The units read 8 + 8 words and take 8 updates: 24; the operations: 16. A is filled with 4 words, or 8 if
    units differ in n, B likewise in m; and 4 updates read what was there before, unless units share k. So
    the least is 160 + 4 + 4 = 168 with k across two units, in 4 cycles; one unit has 172 in 8. In 2 cycles:
    172 with m and k, or n and k, across four units (4 + 8 words); 180 with m and n (8 + 8 and 4 reads).
    """
    temporal = "".join(v for v in "MNK" if v not in spatial)
    return case({"A": "MK", "B": "KN", "Z": "MN"}, loops(spatial, temporal), metrics, optimum)


def checked(given: Case) -> Outcome:
    outcome = mapper_timeloop.check(given, "invented", engine("enumerate"))
    assert outcome.checked > 5
    return outcome


GOOD = [
    outer(["energy"], "", (104, 4)),
    outer(["delay"], "MN", (108, 1)),
    outer(["edp"], "MN", (108, 1)),  # 108 against 212 and 416
    outer(["energy", "delay"], "", (104, 4)),
    outer(["delay", "energy"], "MN", (108, 1)),
    outer("edp", "MN", (108, 1)),
    outer(["delay", "edp", "energy"], "MN", (108, 1)),
    matmul(["energy"], "K", (168, 4)),
    matmul(["energy", "delay"], "K", (168, 4)),
    matmul(["delay"], "MN", (180, 2)),  # one of the fastest, at any energy
    matmul(["delay"], "MK", (172, 2)),
    matmul(["delay", "energy"], "NK", (172, 2)),
    matmul(["edp"], "MK", (172, 2)),  # 344 against 4 * 168 and 8 * 172
]


@pytest.mark.parametrize("given", GOOD, ids=lambda c: str(c["mapper"]["optimization_metrics"]))
def test_the_optimum_in_every_metric(given: Case) -> None:
    outcome = checked(given)
    assert not outcome.mismatches
    assert not outcome.notes


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (outer(["energy"], "M", (106, 2)), "least energy of"),
        (outer(["delay"], "M", (106, 2)), "least delay of"),
        (outer(["edp"], "M", (106, 2)), "least edp of"),
        (outer(["energy", "delay"], "MN", (108, 1)), "least energy of"),
        (matmul(["delay", "energy"], "MN", (180, 2)), "least energy of"),
        (matmul(["edp"], "MN", (180, 2)), "least edp of"),
        (matmul(["edp"], "K", (168, 4)), "least edp of"),
    ],
    ids=lambda x: str(x["mapper"]["optimization_metrics"]) if isinstance(x, dict) else "",
)
def test_what_is_no_optimum_is_found(given: Case, line: str) -> None:
    assert any(m.startswith(line) for m in checked(given).mismatches)


def test_cycles_of_the_mapping_count_only_where_they_are_minimised() -> None:
    assert not checked(outer(["energy"], "", (104, 9))).mismatches
    (line,) = checked(outer(["energy", "delay"], "", (104, 9))).mismatches
    assert line == "cycles of the mapping: ours 4, reference 9"


def test_a_search_that_was_broken_off_is_a_bound() -> None:
    found = {**matmul(["edp"], "K", (168, 4)), "search_complete": False}
    assert not checked(found).mismatches
    assert not checked({**matmul(["energy", "delay"], "MN", (180, 2)), "search_complete": False}).mismatches


def test_what_the_tool_takes_for_a_tie_is_told() -> None:
    """With DRAM at 10000 the energies are 80024, 80026 and 80028: a tie, so that the delay decides."""
    outcome = checked(outer(["energy", "delay"], "MN", (80028, 1), dram=10_000))
    assert not outcome.mismatches
    (note,) = outcome.notes
    assert note.startswith("the optimum is (80024.0, 4)")
    assert not checked(outer(["energy", "delay"], "", (80024, 4), dram=10_000)).notes
    assert checked(outer(["energy", "delay"], "M", (80026, 2), dram=10_000)).mismatches
    assert checked(outer(["energy"], "MN", (80028, 1), dram=10_000)).mismatches


def test_ties_are_those_of_the_metrics_in_turn() -> None:
    points = [(1000.0, 8), (1000.5, 4), (1002.0, 1)]
    assert least(points, ["energy", "delay"]) == (1000.0, 8)
    assert least(points, ["energy", "delay"], 1e-3) == (1000.5, 4)
    assert least(points, ["energy"], 1e-3) == (1000.0, 8)
    assert least(points, ["edp"]) == (1002.0, 1)
    # One sum of the same numbers in another order.
    assert least([(0.1 + 0.2 + 0.3, 1), (0.3 + 0.2 + 0.1, 4)], ["energy", "delay"]) == (0.1 + 0.2 + 0.3, 1)


@pytest.mark.parametrize("metrics", [["area"], [], ["energy", "last-level-accesses"]])
def test_other_metrics_are_not_understood(metrics: list[str]) -> None:
    with pytest.raises(ValueError, match="metrics not understood"):
        mapper_timeloop.check(outer(metrics, "", (104, 4)), "invented", engine("enumerate"))


def test_another_search_may_verify_it() -> None:
    given = {**matmul(["edp"], "MK", (172, 2)), "verification": {"edp_optimum": 344, "energy": 1}}
    assert not checked(given).mismatches
    given["verification"] = {"edp": 343}
    assert checked(given).mismatches == ["least edp, verified: ours 344.0, reference 343"]
