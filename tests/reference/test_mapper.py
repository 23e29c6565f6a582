"""Mapper cases: the tools' mappings evaluated, their space enumerated, and faults told in one line each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from tests.reference import mapper, mapper_spec, mapper_timeloop
from tests.reference.check import HERE, load, main
from tests.reference.common import engine

CASES = HERE / "mapper"
ACCELFORGE = sorted((CASES / "accelforge").glob("*.yaml"))
SMALL = CASES / "accelforge" / "matmul_2level_primes_even.yaml"


@pytest.mark.parametrize("path", ACCELFORGE, ids=lambda p: p.stem)
def test_mappings_of_a_case(path: Path) -> None:
    outcome = mapper.check(load(path), path.stem, engine("exact"), search=False)
    assert outcome.checked > 25
    assert not outcome.mismatches


@pytest.mark.parametrize("path", ACCELFORGE, ids=lambda p: p.stem)
@pytest.mark.thin(99)
def test_our_search_beside_the_tools(path: Path) -> None:
    outcome = mapper.check(load(path), path.stem, engine("exact"))
    assert outcome.seconds is not None
    assert not outcome.mismatches


@pytest.mark.slow  # test_mapper_timeloop has small cases of every metric
@pytest.mark.parametrize("path", sorted((CASES / "timeloop").glob("*.json")), ids=lambda p: p.stem)
def test_timeloops_optimum(path: Path) -> None:
    outcome = mapper_timeloop.check(load(path), path.stem, engine("enumerate"))
    assert outcome.checked > 60
    assert not outcome.mismatches


def written(case: Any, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    shutil.copy(CASES / "accelforge" / "matmul_2level_30x21x10_even.yaml", folder / "b.yaml")
    (folder / "a.yaml").write_text(case if isinstance(case, str) else yaml.safe_dump(case, sort_keys=False))
    code = main(["--cases", str(folder)])
    return code, capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (("arch", 0, "sizes"), 3, "a: malformed case: component DRAM: keys not understood: sizes"),
        (("workload", "halo"), 3, "a: malformed case: workload: keys not understood: halo"),
        (("arch", 0, "type"), "disk", "a: malformed case: component DRAM has the unknown type disk"),
        (("arch",), {}, "a: malformed case: arch must be a list, there is dict"),
        (("runs",), None, "a: malformed case: runs must be a list, there is NoneType"),
        (("format",), "mapper-oracle/9", "a: no case of a known format: mapper-oracle/9"),
        (
            ("runs", 0, "optimum", "energy"),
            1,
            "a: malformed case: the optimum of energy is none of the points",
        ),
    ],
)
def test_a_case_that_is_none_is_one_line_and_hides_no_other(
    path: tuple[Any, ...], value: Any, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = load(SMALL)
    at: Any = case
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    code, lines = written(case, tmp_path, capsys)
    assert code == 1
    assert lines[0].startswith(line)
    assert lines[1].startswith("mapper/matmul_2level_30x21x10_even")
    assert len(lines) == 3


def test_a_wrong_energy_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = SMALL.read_text().replace("862994", "862993")
    code, lines = written(text, tmp_path, capsys)
    assert code == 1
    assert any("energy: ours 862994.0, reference 862993" in line for line in lines)


def test_several_cases_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load(SMALL)
    arch = case.pop("arch")
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump({**case, "cases": [{"arch": arch}, {"arch": arch, "runs": 3}]}, sort_keys=False)
    )
    assert main(["--cases", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("of search, ok")
    assert lines[1] == "c_2: malformed case: runs must be a list, there is int"


def test_memories_that_name_each_other_hold_what_no_choice_frees() -> None:
    case = load(CASES / "accelforge" / "chain2_np2_glb8192.yaml")
    memories = {c.name: c for c in mapper_spec.spec_of(case).arch.components}
    kept = memories["DRAM"].keep
    assert kept is not None
    assert kept.tensors("E0") == {"T0", "W0"}
    kept, may = memories["GLB"].keep, memories["GLB"].may_keep
    assert kept is not None
    assert not kept.tensors("E0")
    assert may is not None
    assert may.tensors("E1") == {"T1", "W1", "T2"}


def test_tiles_that_do_not_divide_are_bounds() -> None:
    case = load(SMALL)
    case["workload"]["ranks"] = {v: size + 1 for v, size in case["workload"]["ranks"].items()}
    spec = mapper_spec.spec_of(case)

    top, variable = (
        StorageNode("DRAM", tuple(spec.workload.tensors)),
        spec.workload.einsums[0].rank_variables[0],
    )
    extent = spec.workload.einsums[0].bounds[0][1] + 1

    def padded(*tiles: int) -> tuple[bool, bool]:
        loops = tuple(Loop(variable, t) for t in tiles)
        tree = LoopTree((top, *loops, ComputeNode(spec.workload.einsums[0].name, "MAC")))
        problem = mapper.Problem(spec.workload, spec.arch, tree)
        return mapper.padded(problem), mapper.understated(problem)

    assert padded(1) == (False, False)
    assert padded(extent - 1, 1) == (True, False)
    assert padded(extent - 1, 3) == (True, (extent - 1) % 3 != 0)
