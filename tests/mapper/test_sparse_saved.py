"""What an exploration chose among formats, actions and rules is saved with its mappings, and loads back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import polymodel as pm
from polymodel.cli import main
from polymodel.report.provenance import spec_text
from tests.mapper.test_sparse import BOTH, Case, figures_of

CHOICES: dict[str, Any] = {
    "DRAM": {"format": {"A": ["CSR", {"format": "COO", "index": 3}]}},
    "GLB": {
        "format": {"A": [["U", "B"]]},
        "actions": [{"of": "B", "on": "A", "kinds": ["skip", "gate"]}],
        "fit": [{"probability": 0.7}],
    },
    "MAC": {"actions": [{"of": "compute", "on": "A", "kinds": ["skip"]}]},
}


def files(folder: Path, case: Case) -> tuple[str, str]:
    """The workload and the architecture as files."""
    paths = []
    for section in ("workload", "arch"):
        path = folder / f"{section}.yaml"
        path.write_text(yaml.safe_dump({section: case.document[section]}))
        paths.append(str(path))
    return paths[0], paths[1]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[str, str], Path, pm.Front]:
    """The files, the folder of the saved front, and the front."""
    folder = tmp_path_factory.mktemp("saved")
    sources = files(folder, Case((2, 2, 1), {"A": 0.25}, {"GLB": {"fit": "worst"}}, glb=48))
    front = pm.explore(
        pm.load(*sources), objectives=BOTH, constraints={"sparse_choices": CHOICES}, time_limit=5
    )
    front.save(folder / "front")
    assert front.points
    return sources, folder / "front", front


def test_saved_mappings_evaluate_to_their_rows(
    saved: tuple[tuple[str, str], Path, pm.Front], capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit: from files in Python, under another mapping of a spec, and on the command line."""
    sources, folder, front = saved
    base = pm.load(*sources)
    for p in front:
        path = folder / f"mapping-{p.number}.yaml"
        again, moved = pm.load(*sources, path), base.with_mapping(path)
        assert again.arch == moved.arch == p.spec.arch
        for report in (pm.evaluate(again), pm.evaluate(moved)):
            sparse = report.sparse
            assert (sparse.total_energy, sparse.total_latency, sparse.feasible) == (*figures_of(p), True)
        assert main(["evaluate", *sources, str(path), "--format", "json"]) == 0
        total = json.loads(capsys.readouterr().out)["sparse"]["total"]
        assert (total["energy_J"], total["latency_s"]) == figures_of(p)
    plain = pm.evaluate(base.with_mapping(front[0].mapping)).sparse
    assert figures_of(front[0]) != (plain.total_energy, plain.total_latency)  # on the original architecture


def test_what_stands_in_the_files(saved: tuple[tuple[str, str], Path, pm.Front]) -> None:
    """Formats, actions and the rule that were chosen; the page offers the same text."""
    sources, folder, front = saved
    text = (folder / "mapping-0.yaml").read_text()
    sections = yaml.load(text, _Tagless)["mapping"]["sparse"]
    assert set(sections) == set(CHOICES)
    assert sections["DRAM"]["format"]["A"] in CHOICES["DRAM"]["format"]["A"]
    assert sections["GLB"]["format"] == {"A": ["U", "B"]}
    assert sections["GLB"]["fit"] == {"probability": 0.7}
    assert [set(a) - {"on"} for a in sections["GLB"]["actions"]] in ([{"skip"}], [{"gate"}])
    assert front[0].yaml == text == front.finding.best[0].yaml
    loaded = pm.load(*sources, folder / "mapping-0.yaml")
    assert set(loaded.sparse_sections) == set(CHOICES)
    assert pm.load(*sources).sparse_sections == {}


def test_mappings_found_beside_a_choice_keep_it(saved: tuple[tuple[str, str], Path, pm.Front]) -> None:
    """An exploration of a spec with chosen sections saves them with its mappings, as a sweep does."""
    sources, folder, front = saved
    loaded = pm.load(*sources, folder / "mapping-0.yaml")
    again = pm.explore(loaded, objectives="sparse_energy", time_limit=2)
    again.save(folder / "again")
    sparse = pm.evaluate(pm.load(*sources, folder / "again" / "mapping-0.yaml")).sparse
    assert sparse.total_energy == again[0].sparse_energy
    written, number = re.subn(r"tile_shape: 1\b", "tile_shape: T", (folder / "mapping-0.yaml").read_text())
    (folder / "swept.yaml").write_text(written)
    swept = pm.sweep(pm.load(*sources, folder / "swept.yaml"), {"T": [1]}, keep="all")
    assert number
    (folder / "row.yaml").write_text(swept.mapping_yaml(0))
    assert pm.evaluate(pm.load(*sources, folder / "row.yaml")).sparse.total_energy == front[0].sparse_energy


def test_the_request_is_saved(saved: tuple[tuple[str, str], Path, pm.Front]) -> None:
    """What was passed in Python stands in a file and on the page, and requests the same again."""
    sources, folder, front = saved
    section = yaml.safe_load((folder / "explore.yaml").read_text())["explore"]
    assert section["objectives"] == list(BOTH)
    assert section["time_limit"] == 5
    assert section["sparse_choices"]["GLB"]["fit"] == [{"probability": 0.7}]
    rows = dict(front.finding.asked)
    assert front.section is not None
    assert yaml.safe_load(rows["sparse_choices"]) == section["sparse_choices"]
    spec = front.finding.specs[0][1]
    (folder / "page.yaml").write_text(spec_text(spec))
    for again in (pm.load(*sources, folder / "explore.yaml"), pm.load(folder / "page.yaml")):
        assert pm.explore(again, time_limit=1e-6).section == front.section.model_copy(
            update={"time_limit": 1e-6}
        )


@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        ("{GLBB: {fit: worst}}", r"sparse\.GLBB: unknown component GLBB.*did you mean GLB\?"),
        ("{GLB: {format: {A: CSRR}}}", r"sparse\.GLB\.format\.A: format 'CSRR' is not known"),
        ("{GLB: {fit: tight}}", r"sparse\.GLB\.fit: 'tight' does not say when a tile fits"),
    ],
)
def test_faults_are_at_their_place(sections: str, fault: str, tmp_path: Path) -> None:
    """In the file of the mapping, not in the architecture."""
    sources = files(tmp_path, Case((1, 2, 1), {"A": 0.5}, {}))
    path = tmp_path / "m.yaml"
    nodes = "[!Storage {component: DRAM, tensors: [A, B, Z]}, !Temporal {rank_variable: k, tile_shape: 1}, "
    path.write_text(
        f"mapping:\n  nodes: {nodes}!Compute {{einsum: Z, component: MAC}}]\n  sparse: {sections}\n"
    )
    with pytest.raises(pm.SpecError, match=rf"(?s)m\.yaml:3:\d+: mapping\.{fault}"):
        pm.load(*sources, path)


class _Tagless(yaml.SafeLoader):
    """Reads nodes with tags as plain mappings."""


_Tagless.add_multi_constructor("!", lambda loader, _, node: loader.construct_mapping(node))
