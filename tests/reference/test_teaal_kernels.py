"""The checker of the kernels' runs: operands as coordinates, what a file leaves out or says is nothing, and
that every number of it is compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.common import Outcome
from tests.reference.teaal_tensaurus import check

CASES = Path(__file__).parent / "cases/teaal"


def smallest(kernel: str) -> dict[str, Any]:
    cases = json.loads((CASES / f"tensaurus_{kernel}.json").read_text(encoding="utf-8"))["cases"]
    return next(c for c in cases if c["label"] == "seed_default")


def checked(case: dict[str, Any], folder: Path) -> list[Outcome]:
    path = folder / "cases.json"
    path.write_text(json.dumps({"cases": [case]}), encoding="utf-8")
    return check(path)


def as_coordinates(operand: dict[str, Any]) -> dict[str, Any]:
    """The nonzeros of a matrix given as rows; no shape."""
    rows = enumerate(operand["dense"])
    points = [(i, j, v) for i, row in rows for j, v in enumerate(row) if v]
    return {
        "ranks": operand["ranks"],
        "coords": [[i, j] for i, j, _ in points],
        "values": [v for _, _, v in points],
    }


def test_operands_as_coordinates(tmp_path: Path) -> None:
    case = smallest("mttkrp")
    before = [o.checked for o in checked(case, tmp_path)]
    case["operands"] = {name: as_coordinates(o) for name, o in case["operands"].items()}
    after = checked(case, tmp_path)
    assert [o.checked for o in after] == before
    assert not any(o.mismatches or o.fault for o in after)


def test_what_is_left_out_or_nothing_is_not_compared(tmp_path: Path) -> None:
    case = smallest("ttmc")
    whole = sum(o.checked for o in checked(case, tmp_path))
    for key in ("result", "row_nnz", "fibers_per_row"):
        case[key] = None
    for variant in case["variants"].values():
        del variant["A_slices"], variant["A_slice_max_nnz"], variant["intermediate_T_nnz"]
        variant["A_slice_imbalance_over_occupied"] = None
        for einsum in variant["einsums"]:
            einsum["imbalance_max_over_mean_I1"] = einsum["space_load"] = None
            del einsum["rank_accesses"]
    found = checked(case, tmp_path)
    assert not any(o.mismatches or o.fault for o in found)
    assert 40 < sum(o.checked for o in found) < whole - 100


def test_no_nonzeros(tmp_path: Path) -> None:
    case = smallest("spmv")
    case["A"] |= {"coords": [], "values": [], "nnz": 0}
    case["result"] |= {"coords": [], "values": []}
    case["row_nnz"] = [0] * case["dims"]["I"]
    for variant in case["variants"].values():
        variant |= {"A_slices": [], "A_slice_max_nnz": 0}
        variant |= {"A_slice_imbalance_over_8": None, "A_slice_imbalance_over_occupied": None}
        (einsum,) = variant["einsums"]
        einsum.update({k: 0 for k, v in einsum.items() if isinstance(v, int)})
        einsum |= {"multiplies_per_I1_position": {}, "time_stamps_per_I1_position": {}, "space_load": []}
        einsum |= {"imbalance_max_over_mean_I1": None}
        for rank, accesses in einsum["rank_accesses"].items():
            counts = {k: dict.fromkeys(v, 0) for k, v in accesses.items() if isinstance(v, dict)}
            einsum["rank_accesses"][rank] = {"iterations": 0, **counts}
    found = checked(case, tmp_path)
    assert [(o.mismatches, o.fault) for o in found] == [([], ""), ([], "")]
    assert all(o.checked > 20 for o in found)


@pytest.mark.parametrize(
    "where",
    [
        ("dims", "J"),
        ("A", "nnz"),
        ("row_nnz", 0),
        ("fibers_per_row", 1),
        ("result", "shape", 1),
        ("result", "values", 5),
        ("variants", "uniform_slice", "result_matches_numpy"),
        ("variants", "uniform_slice", "A_slices", 1, "rows", 0),
        ("variants", "uniform_slice", "T_slices", 2, "nnz"),
        ("variants", "uniform_shape", "einsums", 0, "slip_time"),
        ("variants", "uniform_shape", "einsums", 1, "space_load", 1, 1),
        ("variants", "uniform_shape", "einsums", 1, "time_stamps_per_I1_position", "0"),
        ("variants", "uniform_slice", "einsums", 0, "rank_accesses", "K0", "intersect_coord_accesses", "C"),
        ("variants", "uniform_slice", "einsums", 0, "rank_accesses", "F0", "output_reads", "T"),
    ],
)
def test_a_changed_number_is_noticed(where: tuple[str | int, ...], tmp_path: Path) -> None:
    case = smallest("mttkrp")
    *path, last = where
    inner: Any = case
    for step in path:
        inner = inner[step]
    inner[last] = not inner[last] if isinstance(inner[last], bool) else inner[last] + 1
    assert any(o.mismatches or o.fault for o in checked(case, tmp_path))
