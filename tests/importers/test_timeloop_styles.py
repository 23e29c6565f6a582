"""One design in the styles that users have it in: written out by the front end, in nodes, and of version 0.3.

All count what a literal walk over the loops, written down here by hand, counts.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import polymodel as pm
from tests.faults import faults
from tests.importers.timeloop_walk import Loop, Tensor, walk
from tests.reference.common import engine

HERE = Path(__file__).parent / "timeloop"
PROBLEM, MAPPING = HERE / "rows_problem.yaml", HERE / "rows_mapping.yaml"
STYLES = {
    "written out": ("rows_written_out.yaml", "rows_mapping.yaml"),
    "nodes": ("rows_nodes.yaml", "rows_mapping.yaml"),
    "version 0.3": ("rows_old.yaml",),
}
MEMORIES = ("DRAM", "glb", "ifmap_spad", "weights_spad", "psum_spad")
# (variable, bound, spatial, the memory above), outermost first.
NEST = [
    ("c", 2, False, 0), ("m", 2, False, 1), ("p", 4, False, 1),
    ("q", 6, True, 1), ("m", 2, True, 1), ("s", 3, True, 1),
    ("r", 3, False, 3), ("c", 2, False, 3), ("m", 2, False, 4),
]  # fmt: skip
TENSORS = [
    Tensor("Weights", ((("c", 1),), (("m", 1),), (("r", 1),), (("s", 1),)), False, (0, 3)),
    Tensor("Input", ((("c", 1),), (("r", 1), ("p", 2)), (("s", 1), ("q", 1))), False, (0, 1, 2)),
    Tensor("Output", ((("m", 1),), (("q", 1),), (("p", 1),)), True, (0, 1, 4)),
]


def imported(*names: str) -> pm.Imported:
    return pm.import_timeloop(PROBLEM, *(HERE / n for n in names))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.thin(99)
def test_each_style_counts_what_a_walk_counts(style: str) -> None:
    spec = imported(*STYLES[style]).spec
    assert spec.mapping is not None
    result = engine("exact").analyse(pm.Problem(spec.workload, spec.arch, spec.mapping))
    walked = walk([Loop(v, b, b, s, gap) for v, b, s, gap in NEST], TENSORS, tuple("cmrspq"))
    assert result.compute[0].operations == walked.computes == 4 * 8 * 3 * 3 * 4 * 6
    rows = {(MEMORIES.index(t.component), t.tensor): t for t in result.traffic if t.component in MEMORIES}
    assert {k: t.writes_drain for k, t in rows.items() if k in walked.updates} == walked.updates
    for key in walked.reads:
        assert rows[key].reads_fill == walked.reads[key]
        assert rows[key].writes_fill == walked.fills.get(key, 0)


def test_keep_and_bypass_stand_at_the_level_or_in_a_section_of_their_own() -> None:
    found = imported("rows_nodes.yaml")
    assert "tensors: {keep: Input | Output, may_keep: Nothing}" in found.text
    assert not any(d.path.startswith("constraints") for d in found.left_out)


def test_a_level_without_words_keeps_nothing() -> None:
    text = (HERE / "rows_old.yaml").read_text(encoding="utf-8")
    kept = text.replace("DummyBuffer, type: bypass, bypass: [Inputs, Outputs, Weights]",
                        "DummyBuffer, type: bypass, keep: [Inputs], bypass: [Outputs, Weights]")  # fmt: skip
    assert kept != text
    with faults("missing-storage", "DummyBuffer", at="mapping"):
        pm.import_timeloop(PROBLEM, yaml.safe_load(kept))


def test_a_container_holds_nothing_and_has_no_loops() -> None:
    text = MAPPING.read_text(encoding="utf-8")
    wrong = text.replace(
        "inter_PE_spatial, type: temporal, factors: C1 M1", "PE, type: temporal, factors: C1 M2"
    )
    assert wrong != text
    with faults("unknown-name", at="mapping[11]"):
        pm.import_timeloop(PROBLEM, HERE / "rows_nodes.yaml", yaml.safe_load(wrong))


def test_a_part_that_is_not_enabled_is_not_there() -> None:
    text = (HERE / "rows_written_out.yaml").read_text(encoding="utf-8")
    tree = yaml.safe_load(text)
    tree["architecture"]["subtree"][0]["local"][1]["enabled"] = False
    found = pm.import_timeloop(tree)
    assert "name: glb" not in found.text
    assert any(d.message == "glb[1..1] is not enabled, so it is not there" for d in found.notes)


def test_an_update_that_costs_other_than_a_write_is_named() -> None:
    actions = [{"name": n, "energy": e} for n, e in (("read", 4), ("write", 5), ("update", 6))]
    tables = {"ERT": {"tables": [{"name": "system.glb[1..1]", "actions": actions}]}}
    found = pm.import_timeloop(HERE / "rows_nodes.yaml", tables)
    assert any(d.message.startswith("update costs other than write") for d in found.left_out)


@pytest.mark.parametrize("section", ["ERT", "variables", "constraints"])
def test_what_makes_no_spec_is_refused(section: str) -> None:
    with faults("missing-section", at=""):
        pm.import_timeloop({section: {"version": 0.4}})


def test_one_fault_is_told_once_where_a_size_is_none() -> None:
    tree = yaml.safe_load(PROBLEM.read_text(encoding="utf-8"))
    tree["problem"]["instance"]["M"] = float("nan")
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tree, HERE / "rows_nodes.yaml", MAPPING)
    assert [d.path for d in caught.value.diagnostics] == ["problem.instance.M"]


def test_a_problem_of_too_many_dimensions_is_refused_at_once() -> None:
    shape = {"name": "wide", "dimensions": [f"D{i}" for i in range(20_000)], "data_spaces": []}
    with faults("wrong-type", at="problem.shape"):
        pm.import_timeloop({"problem": {"shape": shape, "instance": {"M": 4}}})


@pytest.mark.parametrize("energy", [float("nan"), float("inf"), -1])
def test_an_energy_that_is_none_is_refused(energy: float) -> None:
    tables = {"ERT": {"tables": [{"name": "system.glb", "actions": [{"name": "read", "energy": energy}]}]}}
    with faults("missing-energy", at="ERT.tables[0].actions[0]"):
        pm.import_timeloop(HERE / "rows_nodes.yaml", tables)


def test_an_empty_file_is_told_in_the_words_of_timeloop(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("", encoding="utf-8")
    with faults("syntax-error", at=""):
        pm.import_timeloop(tmp_path / "empty.yaml")


def test_a_storage_of_less_than_a_word_keeps_its_bits() -> None:
    text = (HERE / "rows_written_out.yaml").read_text(encoding="utf-8")
    wider = text.replace("width: 1, depth: 1, datawidth: 1,", "width: 1, depth: 1, datawidth: 8,")
    assert wider != text
    assert "{name: inter_PE_column_spatial, size: 1}" in pm.import_timeloop(yaml.safe_load(wider)).text
