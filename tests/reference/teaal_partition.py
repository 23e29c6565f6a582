"""Partitionings: fibers cut by the operations of TeAAL's directives, and rows given to balanced slices."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from polymodel.sparse.execute.run import run
from polymodel.sparse.partition import cyclic_loads, load_bounds, nway_step, slice_loads, tile_loads
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal import read_teaal
from tests.reference.common import Outcome, comparing
from tests.reference.teaal_tensaurus import numbers

_SPLIT = re.compile(r"(uniform_shape|nway_shape|uniform_occupancy)\((A\.)?(\d+)\)")


def is_partitions(given: Mapping[str, Any]) -> bool:
    """True for files whose cases split one fiber in many ways."""
    return any("(" in key for key in _first(given)) and "coords" in _first(given)


def is_slices(given: Mapping[str, Any]) -> bool:
    """True for files whose cases give row histograms to slices."""
    return {"row_nnz", "per_P"} <= _first(given).keys()


def _first(given: Mapping[str, Any]) -> Mapping[str, Any]:
    cases = given.get("cases")
    found = cases[0] if isinstance(cases, list) and cases else None
    return found if isinstance(found, dict) else {}


def check(path: Path) -> list[Outcome]:
    """One outcome per case of partitionings."""
    return list(_all(path, _partitions))


def check_slices(path: Path) -> list[Outcome]:
    """One outcome per row histogram."""
    return list(_all(path, _slices))


def _all(path: Path, compare: Callable[[Outcome, Mapping[str, Any]], None]) -> Iterator[Outcome]:
    for number, case in enumerate(json.loads(path.read_text(encoding="utf-8"))["cases"], 1):
        with comparing(Outcome(f"{path.stem}_{number}")) as outcome:
            compare(outcome, case)
        yield outcome


def _slices(outcome: Outcome, case: Mapping[str, Any]) -> None:
    rows = case["row_nnz"]
    for text, given in case["per_P"].items():
        parts = int(text)
        where, loads = slice_loads(rows, parts)
        lower, upper = load_bounds(rows, parts)
        lists = {
            "slice_loads": loads.tolist(),
            "row_to_slice": where.tolist(),
            "uniform_shape_P_tile_loads": tile_loads(rows, parts).tolist(),
            "cyclic_row_loads": cyclic_loads(rows, parts).tolist(),
        }
        single = {"max_load": int(loads.max()), "lower_bound": lower, "graham_bound": upper}
        for key, ours in lists.items():
            if given.get(key) is not None:
                numbers(outcome, f"{text}.{key}", ours, given[key])
        for key, number in single.items():
            if given.get(key) is not None:
                outcome.equal(f"{text}.{key}", number, given[key])
        outcome.unknown(text, given, (*lists, *single))


def _partitions(outcome: Outcome, case: Mapping[str, Any]) -> None:
    flat = isinstance(case["shape"], list)
    for key, given in case.items():
        if key.startswith("flatten"):
            count = re.search(r"\(A\.(\d+)\)", key)
            ours = _flattened(case, int(count[1]) if count else 0)
        elif key.startswith("follower_of_"):
            ours = _cut(case, key.removeprefix("follower_of_"), "B")
        elif _SPLIT.fullmatch(key) and not flat:
            ours = _cut(case, key, "A")
            if key.startswith("nway"):
                step = nway_step(case["shape"], int(key[11:-1]))
                first = {"K": case["shape"]}
                outcome.equal(f"{key}.step", step, _evaluated(given["step_expr"], first))
                given = given["result"]
        else:
            if key not in ("shape", "coords", "values", "follower_coords"):
                outcome.notes.append(f"keys not understood: {key}")
            continue
        numbers(outcome, key, list(_flat(ours)), list(_flat(given)))


def _evaluated(text: str, names: Mapping[str, int]) -> int:
    """(K - 1) // n + 1, as the file writes it."""
    found = re.fullmatch(r"\((\w+) - 1\) // (\d+) \+ 1", text)
    if found is None:
        raise ValueError(f"not a step: {text}")
    return (names[found[1]] - 1) // int(found[2]) + 1


def _cut(case: Mapping[str, Any], split: str, wanted: str) -> list[Any]:
    """Run Z = A * B with rank K split, and look at how a tensor was cut."""
    spec = {
        "einsum": {
            "declaration": {"A": ["K"], "B": ["K"], "Z": ["K"]},
            "expressions": ["Z[k] = A[k] * B[k]"],
        },
        "mapping": {"partitioning": {"Z": {"K": [split]}}, "loop-order": {"Z": ["K1", "K0"]}},
    }
    ones = [1] * len(case["follower_coords"])
    tensors = {
        "A": SparseTensor.from_coo("A", ["K"], [case["shape"]], np.array([case["coords"]]), case["values"]),
        "B": SparseTensor.from_coo("B", ["K"], [case["shape"]], np.array([case["follower_coords"]]), ones),
    }
    return run(read_teaal(spec), tensors).einsums[0].inputs[wanted].nested()


def _flattened(case: Mapping[str, Any], count: int) -> list[Any]:
    """A matrix with its ranks flattened, then cut into parts of `count` coordinates."""
    split: dict[str, list[str]] = {"(M, K)": ["flatten()"]}
    if count:
        split["MK"] = [f"uniform_occupancy(A.{count})"]
    spec = {
        "einsum": {
            "declaration": {"A": ["M", "K"], "Z": ["M", "K"]},
            "expressions": ["Z[m, k] = A[m, k]"],
        },
        "mapping": {
            "partitioning": {"Z": split},
            "loop-order": {"Z": ["MK1", "MK0"] if count else ["MK"]},
        },
    }
    coords = np.array(case["coords"]).T
    values = case.get("values", [1] * coords.shape[1])
    tensors = {"A": SparseTensor.from_coo("A", ["M", "K"], case["shape"], coords, values)}
    return run(read_teaal(spec), tensors).einsums[0].inputs["A"].nested()


def _flat(nested: Sequence[Any] | int) -> Iterator[Any]:
    """The numbers of nested lists, with the lengths of the lists between them."""
    if not isinstance(nested, list | tuple):
        yield nested
        return
    yield len(nested)
    for one in nested:
        yield from _flat(one)
