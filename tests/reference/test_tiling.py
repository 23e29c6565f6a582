"""The checkers of tilings: that every number is compared, where matrices lie, and what is not a record."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polymodel.tiling.plane.operands import Rolled, Transposed
from polymodel.tiling.plane.pattern import Cut, Rects
from polymodel.tiling.swift.compat import CONFIG_CYCLES
from polymodel.tiling.tilers import uniform
from tests.reference import tiling
from tests.reference.check import main
from tests.reference.common import Outcome
from tests.reference.tiling_elementwise import is_partition, occupied
from tests.reference.tiling_matrices import find_matrix, reading, second_of
from tests.reference.tiling_swift import OPS, TILERS
from tests.tiling.original import EXACT
from tests.tiling.test_compat import comparison
from tests.tiling.test_model import joined, random

# About matrices that are generated exactly; `make reference CASES=DIR DATA=DIR` compares the others.
CASES = Path(__file__).parent / "cases/tiling"
# A 3 x 3 matrix of 4 entries.
TINY = "%%MatrixMarket matrix coordinate pattern general\n3 3 4\n1 1\n1 2\n2 2\n3 3\n"


def given(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CASES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def record(matrix: str = "ts_n4c6-b1", model: str = "elements") -> dict[str, Any]:
    results = given("elementwise_reference")["results"]
    return next(deepcopy(r) for r in results if (r["matrix"], r["model"]) == (matrix, model))


def checked(folder: Path, *records: Any) -> list[Outcome]:
    path = folder / "records.json"
    path.write_text(json.dumps({"results": records}), encoding="utf-8")
    return tiling.check(path)


def fault(folder: Path, **changed: Any) -> str:
    (found,) = checked(folder, {k: v for k, v in (record() | changed).items() if v is not None})
    return found.fault


@pytest.mark.thin(99)
@pytest.mark.parametrize("name", ["elementwise_reference", "guillotine_optimum", "tilerswift_reproduction"])
def test_small_cases(name: str, tmp_path: Path) -> None:
    (tmp_path / "any.json").write_text(json.dumps(given(name)))
    found = tiling.check(tmp_path / "any.json")
    assert len(found) == {"e": 6, "g": 12, "t": 4}[name[0]]
    for outcome in found:
        assert not outcome.fault
        assert not outcome.mismatches
        assert not [n for n in outcome.notes if "not understood" in n or "an indication" in n]
        assert outcome.checked >= 4


@pytest.mark.slow
def test_every_number_of_a_record_is_compared(tmp_path: Path) -> None:
    loose = {"btree_fixpoint", "qtree_fixpoint"}
    wrong = []
    for op in ("add", "mul"):
        one = record()
        one[op]["lower_bound_nonempty_tiles"] += 1
        wrong.append(one)
        for tiler, fields in one[op].items():
            for field in fields if isinstance(fields, dict) and tiler not in loose else ():
                one = record()
                old = one[op][tiler][field]
                new = {str: "0" * 16, list: old[:-1] if isinstance(old, list) else 0}.get(type(old))
                one[op][tiler][field] = old + 1 if new is None else new
                wrong.append(one)
    for key in ("nnz", "shape"):
        one = record()
        one[key] = one[key] + 1 if key == "nnz" else [1, 1]
        wrong.append(one)
    found = checked(tmp_path, *wrong)
    assert len(found) > 70
    assert all(outcome.mismatches and not outcome.fault for outcome in found)


def test_uniform_tiles_too_many_to_list_are_compared_by_those_with_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (before,) = checked(tmp_path, record())
    monkeypatch.setattr(uniform, "MOST_TILES", 10)
    (after,) = checked(tmp_path, record())
    assert (after.fault, after.mismatches) == ("", [])
    assert after.checked == before.checked - 2  # whether the tiles are a partition


def test_a_fixpoint_with_far_fewer_tiles_is_a_mismatch_and_its_order_a_note(tmp_path: Path) -> None:
    one = record()
    one["add"]["btree_fixpoint"]["tiles"] = 3
    (found,) = checked(tmp_path, one)
    assert "add btree_fixpoint tiles" in found.mismatches[0]
    assert "an indication" in found.notes[0]


def test_matrices_beside_the_records_come_first(tmp_path: Path) -> None:
    for folder in (tmp_path / "matrices", tmp_path / "deep" / "er"):
        folder.mkdir(parents=True)
    (tmp_path / "matrices" / "ts_n4c6-b1.mtx").write_text(TINY)
    (found,) = checked(tmp_path / "deep" / "er", record())
    assert "nnz: ours 4, reference 420" in found.mismatches
    assert find_matrix("ts_mk9-b1", tmp_path / "x.json").parent.name == "matrices"


def test_a_missing_matrix_is_a_fault_with_the_places(tmp_path: Path) -> None:
    (tmp_path / "matrices").mkdir()
    told = fault(tmp_path, matrix="nowhere")
    assert "the matrix nowhere is missing" in told
    assert str(tmp_path / "matrices") in told
    assert "tests/data/matrices" in told
    assert "no folder" in fault(tmp_path, matrix="../ts_mk9-b1")


def test_a_matrix_of_a_collection_needs_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without it that is told, and no fault; with it the matrix is read, or missing."""
    cases, folder = tmp_path / "tiling", tmp_path / "data"
    cases.mkdir()
    (folder / "matrices").mkdir(parents=True)
    one = record() | {"matrix": "lp_e226"}
    (cases / "mine.json").write_text(json.dumps({"results": [one, record()]}))
    assert main(["--cases", str(cases)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lp_e226, elements 128: not computed: the matrix lp_e226 is not part of")
    assert lines[0].endswith("make reference DATA=DIR")
    assert lines[-1].startswith("1 cases, 129 numbers compared")
    with reading(folder):
        assert "the matrix lp_e226 is missing" in tiling.check(cases / "mine.json")[0].fault
        (folder / "matrices" / "lp_e226.mtx").write_text(TINY)
        (found, _) = tiling.check(cases / "mine.json")
        assert "nnz: ours 4, reference 420" in found.mismatches
    assert main(["--cases", str(cases), "--data", str(tmp_path / "no")]) == 1
    assert "no: no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "bits"}, "elements or words is expected"),
        ({"capacity": "128"}, "capacity must be a int"),
        ({"capacity": 0}, "capacity 0 is not a positive integer"),
        ({"capacity": 1}, "needs 2 elements"),
        ({"second_operand": None}, "second_operand must be a str, there is nothing"),
        ({"second_operand": "columns shuffled"}, "rows rolled by N or transposed is expected"),
        ({"second_operand": "transposed"}, "square"),
        ({"add": 7}, "add must be a dict"),
        ({"add": {"btree": 7}}, "malformed case"),
        ({"add": None, "mul": None}, "no operation"),
    ],
)
def test_what_is_no_record_is_a_fault(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    assert told in fault(tmp_path, **changed)


def test_records_beside_a_broken_one_are_compared(tmp_path: Path) -> None:
    found = checked(tmp_path, 5, record(), {"matrix": "ts_rel5", "add": {}})
    assert [bool(o.fault) for o in found] == [True, False, True]
    assert [o.name for o in found][:2] == ["records_1", "ts_n4c6-b1, elements 128"]


def test_other_second_operands(tmp_path: Path) -> None:
    assert second_of("rows rolled by 12 (numpy.roll(A,12,axis=0))") == Rolled(12)
    assert second_of("transposed (A.T)") == second_of("transpose of A") == Transposed()
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "tiny.mtx").write_text(TINY)
    one = {"matrix": "tiny", "model": "elements", "capacity": 4, "second_operand": "transposed"}
    # A and its transpose: 2 + 1 entries in the upper half's first row, in all 8; two halves of 1 and 2 rows.
    tiles = {
        "tiles": 3,
        "nonempty": 3,
        "est_runtime": 3 * 5 + 8,
        "rects": [[0, 0, 1, 3], [1, 0, 2, 1], [1, 1, 2, 2]],
    }
    (found,) = checked(tmp_path, one | {"add": {"btree": tiles}})
    assert (found.fault, found.mismatches, found.checked) == ("", [], 5)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("ts_rel5|add|128", {"min_tiles": 1}, "matrix|op|capacity|grid"),
        ("ts_rel5|sub|128|4x4", {"grid": [4, 4], "min_tiles": 1}, "operation 'sub'"),
        ("ts_rel5|add|128|4x4", {"min_tiles": 1}, "grid must be a list"),
        ("ts_mk9-b1|add|128|4x4", {"grid": [4, 4], "min_tiles": 1}, "cells of the grid do not fit"),
        ("none|add|128|4x4", {"grid": [4, 4], "min_tiles": 1}, "matrix none is missing"),
        ("ts_n4c6-b1|add|512|7x7", {"grid": [7, 7]}, "min_tiles is missing"),
    ],
)
def test_what_is_no_optimum_is_a_fault(tmp_path: Path, key: str, value: Any, told: str) -> None:
    (tmp_path / "optima.json").write_text(json.dumps({"results": {key: value}}))
    (found,) = tiling.check(tmp_path / "optima.json")
    assert told in found.fault


def of_four() -> dict[str, Any]:
    """The file about the four matrices that are generated, with claims and bars of run time that are ours,
    and bars of configuration time as they are read off the charts."""
    data, ours = given("tilerswift_reproduction"), comparison()
    claims: dict[str, Any] = {}
    run: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for op_key, op in OPS.items():
        claims[op_key] = {"config_reduction_pct": {}, "runtime_x": {}}
        run[op_key], config[op_key] = {}, {}
        for theirs, tiler in TILERS.items():
            bars = [b for b in ours.bars if (b.op, b.tiler) == (op, tiler)]
            run[op_key][theirs] = [b.as_built_run for b in bars]
            config[op_key][theirs] = list(CONFIG_CYCLES[op, tiler][: len(EXACT)])
            for mean in ours.means:
                if (mean.op, mean.tiler) == (op, tiler):
                    claims[op_key]["config_reduction_pct"][theirs] = round(mean.as_built_reduction, 2)
                    claims[op_key]["runtime_x"][theirs] = round(mean.as_built_speed_up, 2)
    return {
        **data,
        "order": list(EXACT),
        "readme_claims": claims,
        "chart_readings_runtime_cycles": run,
        "chart_readings_config_cycles": config,
    }


@pytest.mark.slow
def test_wrong_claims_and_bars_are_found(tmp_path: Path) -> None:
    data = of_four()
    (tmp_path / "claims.json").write_text(json.dumps(data))
    assert not [o.name for o in tiling.check(tmp_path / "claims.json") if o.mismatches or o.fault]
    data["readme_claims"]["mul"]["config_reduction_pct"]["btree"] -= 10
    data["readme_claims"]["add"]["runtime_x"]["qtree"] /= 2
    bars = data["chart_readings_runtime_cycles"]["add"]
    bars["simple"], bars["qtree"] = [2 * n for n in bars["simple"]], [2 * n for n in bars["qtree"]]
    data["chart_readings_config_cycles"]["add"]["simple"][0] *= 1.1
    data["matrices"]["mk9-b1"]["mul"]["simple_asbuilt(add check)"]["tiles"] = 25
    data["matrices"]["nowhere"] = {}
    (tmp_path / "claims.json").write_text(json.dumps(data))
    found = {o.name.removeprefix("Tiler-Swift, "): o for o in tiling.check(tmp_path / "claims.json")}
    assert [m[:20] for m in found["readme_claims"].mismatches] == [
        "add qtree speed-up: ",
        "mul btree reduction ",
    ]
    assert found["chart_readings_runtime_cycles"].mismatches == ["only 16 of 24 bars within 2.5 %"]
    assert len(found["chart_readings_config_cycles"].mismatches) == 1
    assert found["mk9-b1"].mismatches == ["mul simple_asbuilt(add check) tiles: ours 81, reference 25"]
    assert "nowhere is missing" in found["nowhere"].fault


def test_folders_of_cases_may_hold_matrices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "index.json").write_text("[]")
    (tmp_path / "tiling").mkdir()
    (tmp_path / "tiling" / "mine.json").write_text(json.dumps({"results": [record()]}))
    (tmp_path / "tiling" / "broken.json").write_text("[")
    assert main(["--cases", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "broken: no case of a known format"
    assert lines[1].startswith("ts_n4c6-b1, elements 128: 129 numbers, ok")
    assert len(lines) == 3


def test_what_is_no_partition() -> None:
    pattern = joined(random((4, 4), 0.5, 1), random((4, 4), 0.5, 2))

    def holds(*rects: tuple[int, int, int, int]) -> bool:
        table = np.array(rects)
        inside = (table[:, 0] <= pattern.rows[:, None]) & (pattern.rows[:, None] < table[:, 0] + table[:, 2])
        return is_partition(pattern, Cut(Rects.of(rects), np.argmax(inside, axis=1), "mine"))

    assert holds((0, 0, 2, 4), (2, 0, 2, 4))
    assert not holds((0, 0, 2, 4), (1, 0, 3, 4))  # overlap
    assert not holds((0, 0, 2, 4), (3, 0, 1, 4))  # gap
    assert not holds((0, 0, 4, 3))
    assert not holds((0, 0, 4, 5))
    assert not holds((0, 0, 4, 4), (4, 0, 0, 4))  # no area
    wrong = Cut(Rects.of([(0, 0, 2, 4), (2, 0, 2, 4)]), np.zeros(pattern.points, dtype=np.int32), "mine")
    assert not is_partition(pattern, wrong)


def test_tiles_of_one_size_that_hold_points() -> None:
    a = np.zeros((7, 5), dtype=np.bool_)
    a[0, 0] = a[6, 4] = True
    cut = occupied(joined(a, a), 3, 2)
    assert cut.rects.table().tolist() == [[0, 0, 3, 2], [6, 4, 1, 1]]
    assert cut.ids.tolist() == [0, 1]
