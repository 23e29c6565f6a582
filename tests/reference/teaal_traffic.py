"""Traffic of TeAAL specs on data: SpMM on buffets under all evictions, and four published accelerators.

Counts and bits have tolerance zero, times that of a float. The SpMM study names its inputs by case: they are
looked for in the files beside it, then among the cases of the repository. Where B has zeros, the tool's
traffic of Y is an artefact (so the file says), and the time with it: both are left out there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic import traffic
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import TeaalSpec
from tests.reference.common import Outcome, comparing

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases/teaal"
DESIGNS = {
    "gamma": "gamma_traffic",
    "outerspace": "outerspace_traffic",
    "extensor": "extensor",
    "sigma": "sigma_traffic",
}


def is_accelerators(given: Mapping[str, Any]) -> bool:
    """True for files whose cases hold metrics of accelerators."""
    return _first_case(given).keys() >= {"accelerators", "A", "B"}


def is_buffets(given: Mapping[str, Any]) -> bool:
    """True for files whose cases hold runs with evictions."""
    runs = _first_case(given).get("runs")
    return isinstance(runs, list) and bool(runs) and "B_evict_on" in runs[0]


def check(path: Path) -> list[Outcome]:
    """One outcome per case; a case that cannot be read is a fault."""
    given = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for n, case in enumerate(given["cases"]):
        with comparing(Outcome(str(case.get("id", case.get("case", n))))) as outcome:
            if "accelerators" in case:
                _accelerators(case, outcome)
            else:
                _buffets(case, outcome, path.parent)
        found.append(outcome)
    return found


def _first_case(given: Mapping[str, Any]) -> Mapping[str, Any]:
    cases = given.get("cases")
    return cases[0] if isinstance(cases, list) and cases and isinstance(cases[0], dict) else {}


def _accelerators(case: Mapping[str, Any], outcome: Outcome) -> None:
    tensors = {t: _tensor(t, case[t], [case["dims"][r] for r in case[t]["ranks"]]) for t in "AB"}
    for name, run in case["accelerators"].items():
        spec = _spec(str(ROOT / f"workloads/teaal/{DESIGNS[name]}.yaml"))
        ours = traffic(spec, tensors, symbols=run["params"])
        _compare(name, ours.metrics(), run["metrics"], outcome)
        if name == "outerspace":
            products = ours.einsum("T0").unit("FPMul").total
            outcome.equal("partial_products", products, case["partial_products"])
            adds = ours.einsum("Z").unit("FPAdd").total
            outcome.equal("Z_nnz", products - adds, case["Z_nnz"])


def _buffets(case: Mapping[str, Any], outcome: Outcome, folder: Path) -> None:
    inputs = _inputs(case["case"], folder)
    sizes = inputs["dims"]
    a = _tensor("A", inputs["A"], [sizes["I"], sizes["J"]])
    b = _tensor("B", inputs["operands"]["B"], [sizes["J"], sizes["K"]])
    for run in case["runs"]:
        spec = _evicting(run["B_evict_on"], run["A_J_evict_on"])
        found: dict[str, Any] = traffic(spec, {"A": a, "B": b}).metrics()
        ours, theirs = dict(found["Y"]), dict(run["metrics"])
        if b.nnz < b.size:
            theirs["MainMemory"] = {t: theirs["MainMemory"][t] for t in "AB"}
            ours["MainMemory"] = {t: ours["MainMemory"][t] for t in "AB"}
        _compare(f"B on {run['B_evict_on']}, A.J on {run['A_J_evict_on']}", ours, theirs, outcome)


def _compare(where: str, ours: Any, theirs: Any, outcome: Outcome) -> None:
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for key in [*theirs, *(k for k in ours if k not in theirs)]:
            if key not in theirs or key not in ours:
                side = "the reference" if key in ours else "ours"
                outcome.checked += 1
                outcome.mismatches.append(f"{where} {key}: not in {side}")
            else:
                _compare(f"{where} {key}", ours[key], theirs[key], outcome)
    elif isinstance(theirs, list):
        outcome.checked += 1
        if ours != theirs:
            outcome.mismatches.append(f"{where}: ours {ours}, reference {theirs}")
    else:
        outcome.equal(where, ours, theirs)


def _tensor(name: str, data: Mapping[str, Any], shape: list[int]) -> SparseTensor:
    if "dense" in data:
        return SparseTensor.from_dense(name, data["ranks"], np.array(data["dense"]))
    coords = np.array(data["coords"], dtype=np.int64).reshape(-1, len(shape)).T
    return SparseTensor.from_coo(name, data["ranks"], shape, coords, np.array(data["values"]))


def _inputs(case: str, folder: Path) -> Mapping[str, Any]:
    """The case of this name among the files in the folder, in those beside it, else among ours."""
    for place, pattern in ((folder, "*.json"), (folder.parent, "*/*.json"), (CASES, "*.json")):
        for path in sorted(filter(Path.is_file, place.glob(pattern))):
            found = _named(path).get(case)
            if found is not None:
                return found
    raise KeyError(f"the inputs of {case}")


@cache
def _named(path: Path) -> dict[str, Mapping[str, Any]]:
    """Cases with operands by their name; none where the file is of another kind."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    cases = given.get("cases", []) if isinstance(given, dict) else []
    return {c["id"]: c for c in cases if isinstance(c, dict) and {"id", "A", "operands"} <= c.keys()}


@cache
def _spec(path: str) -> TeaalSpec:
    return read_teaal(Path(path).read_text(encoding="utf-8"), path)


def _evicting(b: str, a: str) -> TeaalSpec:
    """The SpMM study's spec with B, and rank J of A, evicted on these loops."""
    spec = _spec(str(ROOT / "tests/reference/specs/teaal_spmm_dram.yaml"))
    bound = spec.bindings_of("Y")
    changed = []
    for binding in bound.bindings:
        evict = {("B", "K0"): b, ("A", "J"): a}.get((binding.tensor, binding.rank))
        changed.append(replace(binding, evict_on=evict) if evict and binding.evict_on else binding)
    return replace(spec, einsum_bindings=(replace(bound, bindings=tuple(changed)),))
