"""A few cases of each kind, walked by enumeration; `make reference CASES=DIR` runs all, exactly."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path

import pytest

from tests.reference import accelforge, skislope, teaal
from tests.reference.check import HERE, check_folder, find_cases, find_slopes, load, main
from tests.reference.common import affine, engine
from tests.reference.imported import problem_of

SLOW = {"mm_2L_Astat", "mm_3L_seq"}
ORACLE, FOLDERS, _ = find_cases(HERE)


@pytest.mark.parametrize("path", ORACLE, ids=lambda p: p.stem)
def test_accelforge_case(path: Path) -> None:
    outcome = accelforge.check(load(path), path, engine("enumerate"))
    assert outcome.checked > 20
    assert not outcome.mismatches


@pytest.mark.parametrize(
    "folder",
    [pytest.param(f, marks=pytest.mark.slow) if f.name in SLOW else f for f in FOLDERS],
    ids=lambda f: f.name,
)
def test_timeloop_case(folder: Path) -> None:
    outcome = check_folder(folder, engine("enumerate"))
    assert outcome.checked > 20
    assert not outcome.mismatches


@pytest.mark.parametrize("path", find_slopes(HERE), ids=lambda p: p.stem)
def test_ski_slope(path: Path) -> None:
    outcome = skislope.check(load(path), path.stem)
    assert outcome.checked > 50
    assert not outcome.mismatches


SPARSE = ("partitioning", "tensaurus_mttkrp", "tensaurus_spmm", "tensaurus_spmv", "tensaurus_ttmc")


@pytest.mark.parametrize("name", [*SPARSE, "uniform_slice_loads"])
def test_sparse_data(name: str) -> None:
    outcomes = teaal.check(HERE / "teaal" / f"{name}.json")
    assert outcomes
    for outcome in outcomes:
        assert not outcome.fault
        assert outcome.checked > 25
        assert not outcome.mismatches


def test_a_wrong_count_of_sparse_data_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = json.loads((HERE / "teaal" / "tensaurus_spmv.json").read_text())
    wrong, broken = deepcopy(given["cases"][0]), deepcopy(given["cases"][0]) | {"id": "broken"}
    wrong["variants"]["uniform_shape"]["einsums"][0]["slip_time"] += 1
    del broken["A"]["coords"]
    given["cases"] = [wrong, broken]
    (tmp_path / "anything.json").write_text(json.dumps(given))
    (tmp_path / "teaal").mkdir()
    (tmp_path / "teaal" / "broken.json").write_text("{")
    code, lines = checked(tmp_path, capsys)
    assert code == 1
    assert "    Y.slip_time: ours 10, reference 11" in lines
    assert "broken: malformed case: coords is missing or not known" in lines
    assert "broken: no case of a known format" in lines


@pytest.mark.parametrize(
    ("text", "terms", "constant"),
    [
        ("m", (("m", 1),), 0),
        ("2*p + r", (("p", 2), ("r", 1)), 0),
        ("2p+r", (("p", 2), ("r", 1)), 0),
        ("p*2 - r + 3", (("p", 2), ("r", -1)), 3),
        ("m - n", (("m", 1), ("n", -1)), 0),
    ],
)
def test_index_expressions(text: str, terms: tuple[tuple[str, int], ...], constant: int) -> None:
    found = affine(text)
    assert (found.terms, found.constant) == (terms, constant)


@pytest.mark.parametrize("text", ["m n", "m *", "m**2", "a[0]"])
def test_other_expressions_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match="not an affine"):
        affine(text)


def test_imperfect_factors_become_tiles() -> None:
    spec = load(HERE / "timeloop" / "mm_2L_Astat" / "spec.yaml")
    spec["problem"]["instance"]["M"] = 50  # (4 - 1) * 16 + 2
    spec["mapping"][1]["factors"] = "M=16,2 K=16 N=16"
    problem = problem_of(spec)
    tiles = [n.tile_shape for n in problem.tree.nodes if getattr(n, "rank_variable", "") == "m"]
    assert tiles == [16, 1]


def test_folders_of_other_formats_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "skislope").mkdir()
    (tmp_path / "skislope" / "a.json").write_text("{}")
    case = HERE / "accelforge" / "38_diagonal_access.yaml"
    (tmp_path / case.name).write_text(case.read_text())
    assert main(["--cases", str(tmp_path), "--engine", "enumerate"]) == 0
    assert "skislope: not yet covered" in capsys.readouterr().out


def checked(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = main(["--cases", str(root), "--engine", "enumerate"])
    out, err = capsys.readouterr()
    return code, [*out.splitlines(), *err.splitlines()]


def test_folders_without_a_case_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(tmp_path / "gone", capsys) == (1, [f"{tmp_path / 'gone'}: no such folder"])
    assert checked(tmp_path, capsys) == (1, [f"{tmp_path}: no case in it"])
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "a.yaml").write_text("format: other-oracle/1\n")
    code, lines = checked(tmp_path, capsys)
    assert (code, lines[0]) == (1, "strange: no case of a known format")


TIMELOOP = "problem: {}\narchitecture: {subtree: []}\nmapping: []\n"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "a.yaml",
            "name: [",
            "a: malformed case: expected the node content, but found '<stream end>' at line 3",
        ),
        ("a.yaml", "name: a", "a: malformed case: workload must be a dict, there is nothing"),
        ("a.yaml", "workload: 3", "a: malformed case: workload must be a dict, there is int"),
        (
            "a.yaml",
            "workload: {}\narch: []\nmapping: []",
            "a: malformed case: einsums is missing or not known",
        ),
        (
            "a.yaml",
            "workload: {ranks: {m: 2}, tensors: {}, einsums: [{name: E, inputs: {A: [m n]}, output: {}}]}\n"
            "arch: []\nmapping: []",
            "a: malformed case: A is missing or not known",
        ),
        ("spec.yaml", "- 1", "case: malformed case: a mapping is expected"),
        ("spec.yaml", "problem: {}", "case: malformed case: architecture must be a dict, there is nothing"),
        (
            "spec.yaml",
            TIMELOOP,
            "case: malformed case: `instance` is missing; `shape` is missing; "
            "the architecture has no compute unit",
        ),
        ("single_mm_1.json", "{}", "single_mm_1: malformed case: workload is missing or not known"),
        ("single_mm_1.json", "[1]", "single_mm_1: malformed case: a mapping is expected"),
    ],
)
def test_a_malformed_case_is_one_line(
    name: str, text: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = f"format: {accelforge.FORMAT}\n" if name == "a.yaml" else ""
    (tmp_path / "case").mkdir()
    (tmp_path / "case" / name).write_text(f"{head}{text}\n")
    code, lines = checked(tmp_path, capsys)
    assert (code, lines[0]) == (1, line)
    assert len(lines) == 2
    assert lines[1].startswith("1 cases, 0 numbers compared")


def test_a_malformed_case_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(HERE / "timeloop" / "conv_1d_halo", tmp_path / "good")
    shutil.copytree(HERE / "timeloop" / "conv_1d_halo", tmp_path / "lost")
    (tmp_path / "lost" / "result.json").unlink()
    code, lines = checked(tmp_path, capsys)
    assert code == 1
    assert lines[:2] == ["timeloop/good: 32 numbers, ok", "lost: malformed case: result.json is missing"]


def test_a_wrong_number_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = HERE / "accelforge" / "38_diagonal_access.yaml"
    text = case.read_text()
    assert "read_bits: 32, write_bits: 0" in text
    (tmp_path / case.name).write_text(
        text.replace("read_bits: 32, write_bits: 0", "read_bits: 33, write_bits: 0")
    )
    assert main(["--cases", str(tmp_path), "--engine", "enumerate"]) == 1
    assert "ours 32, reference 33" in capsys.readouterr().out
