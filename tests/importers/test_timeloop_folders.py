"""A folder of Timeloop's as one import: a design, a stored run, a top file; where actions are taken."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from tests.faults import every_fault, faults

ARCH = """\
architecture:
  version: 0.4
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {datawidth: 8}}
  - !Component
    name: Buffer
    class: SRAM
    attributes: {entries: 64, datawidth: 8}
    sparse_optimizations:
      action_optimization:
      - {type: skipping, options: [{target: A, condition_on: [B]}]}
  - !Component {name: MAC, class: intmac}
"""
PROBLEM = """\
problem:
  version: 0.4
  shape:
    name: Product
    dimensions: [M, K]
    data_spaces:
    - {name: A, projection: [[[M]], [[K]]]}
    - {name: B, projection: [[[K]]]}
    - {name: Z, projection: [[[M]]], read_write: true}
  instance: {M: 4, K: 8, densities: {A: {distribution: fixed_structured, density: 0.5}, B: 0.25}}
"""
MAPPING = """\
mapping:
- {target: DRAM, type: temporal, factors: [M=4, K=1]}
- {target: Buffer, type: temporal, factors: [M=1, K=8]}
- {target: Buffer, type: dataspace, keep: [B, Z], bypass: [A]}
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def sparse_reads(imported: pm.Imported, component: str, tensor: str) -> float:
    table = pm.evaluate(imported.spec).sparse.accesses.set_index(["component", "tensor", "kind"])
    return float(table.loc[(component, tensor, "reads_fill"), "actual"])


def test_the_parts_of_a_design_are_read_together(tmp_path: Path) -> None:
    flat = written(tmp_path / "flat", arch=ARCH, problem=PROBLEM, mapping=MAPPING)
    deep = written(tmp_path / "deep", arch__a=ARCH, prob__p=PROBLEM, map__m=MAPPING, ref__other="x: [")
    found = [pm.import_timeloop(folder).spec for folder in (flat, str(deep))]
    assert found[0].mapping == found[1].mapping
    assert found[0].mapping is not None


def test_alternatives_have_to_be_named(tmp_path: Path) -> None:
    folder = written(tmp_path, arch__a=ARCH, prob__p=PROBLEM, map__m=MAPPING, map__n=MAPPING)
    with every_fault(("conflicting-arguments", ""), ("duplicate-name", "mapping")):
        pm.import_timeloop(folder)
    with faults("unreadable-file", at=""):
        pm.import_timeloop(written(tmp_path / "empty", inside__x="x: 1"))


def test_a_stored_run_has_the_mapping_that_was_found(tmp_path: Path) -> None:
    run = written(tmp_path, **{"parsed-processed-input": ARCH + PROBLEM + "mapping: []\n", "notes": "x: ["})
    assert pm.import_timeloop(run).spec.mapping is None
    (run / "timeloop-mapper.map.yaml").write_text(MAPPING)
    assert pm.import_timeloop(run).spec.mapping is not None


def test_a_top_file_goes_first(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"d/arch": ARCH, "p": PROBLEM})
    top = "problem: {{include('p.yaml', 'problem')}}\n"
    top += "architecture: {{include(design ~ '/arch.yaml', 'architecture')}}\n"
    (folder / "top.yaml.jinja2").write_text(top)
    assert len(pm.import_timeloop(folder, variables={"design": "d"}).spec.workload) == 1


def test_constraints_that_leave_one_mapping_are_it(tmp_path: Path) -> None:
    head = "extra_mapping_constraints:\n  targets:\n"
    extra = MAPPING.replace("mapping:\n", head).replace("\n- ", "\n  - ")
    one = pm.import_timeloop(written(tmp_path / "one", arch=ARCH, problem=PROBLEM, extra=extra))
    assert one.spec.mapping is not None
    open_ = pm.import_timeloop(
        written(tmp_path / "open", arch=ARCH, problem=PROBLEM, extra=extra.replace("K=8", "K=4"))
    )
    assert open_.spec.mapping is None


def test_an_action_on_what_passes_by_is_taken_where_it_is_kept(tmp_path: Path) -> None:
    imported = pm.import_timeloop(written(tmp_path, arch=ARCH, problem=PROBLEM, mapping=MAPPING))
    assert any("A bypasses Buffer: the action on it is taken at DRAM" in d.message for d in imported.notes)
    # Of 32 values of A, a quarter meets a value of B that is there; A is not stored compressed.
    assert sparse_reads(imported, "DRAM", "A") == pytest.approx(32 * 0.25)
    kept = MAPPING.replace("keep: [B, Z], bypass: [A]", "keep: [A, B, Z]")
    there = pm.import_timeloop(written(tmp_path / "kept", arch=ARCH, problem=PROBLEM, mapping=kept))
    assert sparse_reads(there, "DRAM", "A") == 32
    assert sparse_reads(there, "Buffer", "A") == pytest.approx(32 * 0.25)


def test_formats_of_loops_stand_for_those_of_ranks(tmp_path: Path) -> None:
    formats = "representation_format: {data_spaces: [{name: A, ranks: [{format: CP}]}]}\n      action"
    folder = written(tmp_path, arch=ARCH.replace("action", formats, 1), problem=PROBLEM, mapping=MAPPING)
    imported = pm.import_timeloop(folder)
    assert [d.changes for d in imported.changed] == ["bits of metadata"]
    assert "{format: U, pbits: 0}, K: CP" in imported.text  # ranks around have no metadata
