"""The slow enumerator gives the reference's numbers, all of them and to the last bit."""

from __future__ import annotations

import pytest

from tests.seeds import seeds
from tests.sparse.traffic import data
from tests.sparse.traffic.oracle import metrics


@pytest.mark.parametrize("name", data.DESIGNS)
@pytest.mark.parametrize("case", seeds(2, data.cases("teaal_arch_traffic.json")), ids=lambda c: c["id"])
@pytest.mark.thin(5)
def test_accelerators(case: dict, name: str) -> None:
    given = {t: data.points(case[t]) for t in "AB"}
    run = case["accelerators"][name]
    spec = data.plain(data.design(name))
    assert metrics(spec, run["params"], given, case["dims"], data.WALKED.get(name)) == run["metrics"]


@pytest.mark.parametrize("case", seeds(3, data.cases("tensaurus_spmm_dram.json")), ids=lambda c: c["case"])
def test_buffets_of_spmm(case: dict) -> None:
    inputs = next(c for c in data.cases("tensaurus_spmm.json") if c["id"] == case["case"])
    given = {"A": data.points(inputs["A"]), "B": data.points(inputs["operands"]["B"])}
    for run in case["runs"]:
        spec = data.plain(data.spmm(run["B_evict_on"], run["A_J_evict_on"]))
        assert metrics(spec, {}, given, inputs["dims"])["Y"] == run["metrics"]
