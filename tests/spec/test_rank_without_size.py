"""A rank without a size whose variable would run below zero is refused."""

from __future__ import annotations

import polymodel as pm
from tests.faults import faults

WINDOW = "T[c, p] = I[c, H=p + r] * F[c, r]"


def workload(**sizes: int) -> dict[str, object]:
    return {"workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [WINDOW]}}


def test_a_window_without_its_size_is_refused() -> None:
    with faults("missing-value", "R", "11..13", at="workload.einsums[0]") as caught:
        pm.load(workload(C=4, P=12, H=14))
    assert "rank_sizes: {R: " in caught.value.diagnostics[0].remedy
    assert pm.load(workload(C=4, P=12, H=14, R=3)).workload.einsums[0].bounds[2] == (0, 2)


def test_a_range_below_zero_that_is_written_is_no_fault() -> None:
    document = workload(C=4, P=12)
    section = document["workload"]
    assert isinstance(section, dict)
    section["iteration_space_shape"] = {"r": "-1 <= r < 2"}
    assert pm.load(document).workload.einsums[0].bounds[2] == (-1, 1)
