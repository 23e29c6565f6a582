"""Versions of the file format, and files of other tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from polymodel.errors import SpecError
from polymodel.loading import load
from polymodel.report.starter import PARTS, STARTER, STARTERS, write_starter
from polymodel.spec.faults import Source, YamlNode
from polymodel.spec.yaml_text import Migration, parse_yaml, upgraded

STEPS = (
    Migration(2, renamed={("arch", "nodes", "*", "size"): "capacity", ("workload", "einsums"): "cascade"}),
    Migration(
        3,
        renamed={("arch", "nodes", "*", "capacity"): "bits"},
        removed={("sweep", "top"): "write keep: {top: 3}"},
    ),
)  # fmt: skip
OLD = """\
arch:
  nodes:
  - {name: GLB, size: 8}
workload: {einsums: []}
sweep: {top: 3}
"""


def tree(text: str) -> YamlNode:
    root, faults = parse_yaml(text, Source("old.yaml", tuple(text.split("\n"))))
    assert root is not None
    assert not faults
    return root


def refusal(tmp_path: Path, text: str) -> SpecError:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load(str(path))
    return caught.value


@pytest.mark.parametrize(
    ("given", "says", "mend"),
    [
        ("2", "newer than this release, which reads up to version 1", "install a newer polymodel"),
        ("0", "the first version is 1", "write `schema_version: 1`"),
        ("true", "is not a version", "write `schema_version: 1`"),
        ("0.4", "is not a version", "write `schema_version: 1`"),
        ("[1]", "a list is not a version", "write `schema_version: 1`"),
    ],
)
def test_unknown_versions(tmp_path: Path, given: str, says: str, mend: str) -> None:
    (found,) = refusal(tmp_path, f"schema_version: {given}\nsymbols: {{TM: 1}}\n").diagnostics
    assert says in found.message
    assert mend in found.remedy
    assert (found.place.line, found.place.column) == (1, 17)


def test_a_file_without_a_version_is_of_version_1() -> None:
    assert load({"symbols": {"TM": 1}}).symbols == load({"schema_version": 1, "symbols": {"TM": 1}}).symbols


def test_steps_rename_keys_and_keep_places() -> None:
    root, faults = upgraded(tree(OLD), STEPS)
    assert root.plain() == {
        "arch": {"nodes": [{"name": "GLB", "bits": 8}]}, "workload": {"cascade": []}, "sweep": {},
    }  # fmt: skip
    arch = root.entry("arch")
    assert arch is not None
    nodes = arch.value.entry("nodes")
    assert nodes is not None
    assert nodes.value.elements is not None
    size = nodes.value.elements[0].entry("bits")
    assert size is not None
    assert (size.line, size.column) == (3, 17)
    (fault,) = faults
    assert fault.remedy == "write keep: {top: 3}"
    assert str(fault.place) == "old.yaml:5:9"
    assert "since version 3" in fault.message


def test_steps_begin_at_the_version_of_the_file() -> None:
    text = OLD.replace("size: 8", "capacity: 8").replace("sweep: {top: 3}\n", "")
    root, faults = upgraded(tree("schema_version: 2\n" + text), STEPS)
    assert not faults
    plain = root.plain()
    assert isinstance(plain, dict)
    assert plain["arch"] == {"nodes": [{"name": "GLB", "bits": 8}]}
    assert plain["workload"] == {"einsums": []}  # renamed by version 2, which the file says it has
    newest, _ = upgraded(tree("schema_version: 3\n" + OLD), STEPS)
    assert newest.plain() == tree("schema_version: 3\n" + OLD).plain()


@pytest.mark.parametrize(
    "text",
    [
        "problem:\n  version: 0.4\n  shape: {name: X}\n",
        "architecture:\n  version: 0.4\n  nodes:\n  - !Component\n    name: DRAM\n    class: DRAM\n",
        "mapping:\n- {target: DRAM, type: temporal, factors: [M=4]}\n",
        "mapping: {type: fused, nodes: []}\n",
        "mapper: {timeout: 15000}\n",
        "ERT: {version: 0.4, tables: []}\n",
    ],
)
def test_a_timeloop_file_is_told_with_the_way_to_read_it(tmp_path: Path, text: str) -> None:
    (found,) = refusal(tmp_path, text).diagnostics
    assert "looks like a Timeloop" in found.message
    assert found.remedy.startswith(f"polymodel import timeloop {tmp_path / 'spec.yaml'}")
    assert found.place.line == 1


def test_keys_and_tags_of_accelforge_are_told(tmp_path: Path) -> None:
    text = """\
variables: {tech: 7}
arch:
  nodes:
  - !Memory
    name: DRAM
    total_latency: 3
    component_class: SRAM
    actions: [{name: read, energy: 1, latency: 0}]
  - !Fanout {name: PE}
  - !Fork {nodes: []}
  - !Compute {name: MAC}
"""
    found = {d.place.line: d for d in refusal(tmp_path, text).diagnostics}
    assert "symbols" in found[1].remedy
    assert "throughput" in found[6].remedy
    assert "hwcomponents" in found[7].remedy
    assert "per action / latency" in found[8].remedy
    assert "!Container" in found[9].remedy
    assert "branch: NAME" in found[10].remedy
    assert all("docs/migrate/accelforge.md" in d.remedy for d in found.values())


def test_a_teaal_spec_is_not_taken_for_timeloop() -> None:
    assert load("teaal/gamma_traffic").teaal is not None


def test_parts_are_the_whole(tmp_path: Path) -> None:
    written = write_starter(f"{tmp_path / 'parts'}/", "spec", with_schema=True)
    assert [p.name for p in written] == [
        "arch.yaml",
        "workload.yaml",
        "mapping.yaml",
        "polymodel.schema.json",
    ]
    assert written[0].read_text().startswith("# yaml-language-server: $schema=./polymodel.schema.json\n")
    parts = load(*(str(p) for p in written[:3]))
    whole = tmp_path / "whole.yaml"
    whole.write_text(STARTER, encoding="utf-8")
    one = load(str(whole))
    assert (one.raw_arch, one.raw_workload, one.raw_mapping) == (
        parts.raw_arch,
        parts.raw_workload,
        parts.raw_mapping,
    )
    with pytest.raises(SpecError) as caught:
        write_starter(str(tmp_path / "parts"), "spec", with_schema=False)
    assert len(caught.value.diagnostics) == len(PARTS)


def test_a_schema_of_somebody_else_stays(tmp_path: Path) -> None:
    schema = tmp_path / "polymodel.schema.json"
    write_starter(str(tmp_path / "first.yaml"), "spec", with_schema=True)
    assert [p.name for p in write_starter(str(tmp_path / "next.yaml"), "spec", with_schema=True)] == [
        "next.yaml"
    ]
    schema.write_text("{}", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        write_starter(str(tmp_path / "new.yaml"), "spec", with_schema=True)
    assert "leave --schema out" in caught.value.diagnostics[0].remedy
    assert schema.read_text(encoding="utf-8") == "{}"
    assert not (tmp_path / "new.yaml").exists()


def test_a_folder_takes_no_single_part(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        write_starter(f"{tmp_path / 'new'}/", "teaal", with_schema=False)
    assert f"name a file, e.g. {tmp_path / 'new' / 'teaal.yaml'}" in caught.value.diagnostics[0].remedy
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("kind", STARTERS)
def test_each_starter_loads(tmp_path: Path, kind: str) -> None:
    (path,) = write_starter(str(tmp_path / "new.yaml"), kind, with_schema=False)
    assert path.read_text(encoding="utf-8") == STARTERS[kind]
    load(str(path))
