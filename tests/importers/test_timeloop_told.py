"""What an import tells: notes and what is left out, of one kind together; cycle times; conditions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.cli import main
from polymodel.errors import Diagnostic
from polymodel.importers.expressions import evaluate
from polymodel.importers.imported import LeftOut, gathered
from tests.faults import faults

HERE = Path(__file__).parent / "timeloop"
FILE = HERE / "eyeriss_like.yaml"
SHAPE = {
    "name": "Product",
    "dimensions": ["M", "K"],
    "data_spaces": [
        {"name": "A", "projection": [[["M"]], [["K"]]]},
        {"name": "Z", "projection": [[["M"]]], "read_write": True},
    ],
}


def machine(**variables: Any) -> dict[str, object]:
    """A small architecture whose buffer is as deep as the variable `deep` says."""
    levels = [
        {"name": "DRAM", "class": "DRAM", "attributes": {"datawidth": 8, "read_bandwidth": 4}},
        {"name": "Buffer", "class": "SRAM", "attributes": {"depth": "deep", "width": 8, "datawidth": 8}},
        {"name": "MAC", "class": "intmac"},
    ]
    problem = {"shape": SHAPE, "instance": {"M": 4, "K": 6}}
    return {"variables": variables, "problem": problem, "architecture": {"version": 0.4, "nodes": levels}}


def buffer_bits(deep: object, **variables: Any) -> float:
    spec = pm.import_timeloop(machine(**variables, deep=deep)).spec
    (size,) = (c.size_bits for c in spec.arch.components if c.name == "Buffer")
    return float(size)


def diagnostics(**variables: Any) -> list[Diagnostic]:
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(machine(**{"deep": 64, **variables}))
    return list(caught.value.diagnostics)


def test_keys_of_one_kind_are_told_together_with_every_place(capsys: pytest.CaptureFixture[str]) -> None:
    imported = pm.import_timeloop(FILE)
    assert len(imported.left_out) == 5
    assert main(["import", "timeloop", str(FILE)]) == 0
    told = capsys.readouterr().err
    assert told.count("left out: ") == 1
    assert "left out: 5 keys are not converted: they serve estimators of energy and area" in told
    assert "`n_banks` of shared_glb (23:59)" in told
    for d in imported.left_out:
        assert isinstance(d, LeftOut)
        assert f"`{d.key}`" in told
        assert f"({d.place.line}:{d.place.column})" in told
        assert d.remedy in told
        assert d.remedy in str(imported)


def test_a_kind_that_is_there_once_shows_its_line() -> None:
    (one,) = gathered([Diagnostic("a", "b"), Diagnostic("c", "")])[:1]
    assert one == ": a\n  remedy: b"
    several = gathered([Diagnostic("noc", "name it", "ERT.tables[1]"), Diagnostic("net", "name it")])
    assert several == [": 2 of one kind\n  ERT.tables[1]: noc\n  net\n  remedy: name it"]
    assert gathered([Diagnostic("a"), Diagnostic("b")]) == [": a", ": b"]  # nothing to mend: told apart


def test_keys_in_several_files_are_told_by_file(tmp_path: Path) -> None:
    text = FILE.read_text()
    at = text.index("\nproblem:")
    (tmp_path / "arch.yaml").write_text(text[:at])
    rest = text[at:].replace("  instance:", "  technology: 45nm\n  instance:", 1)
    (tmp_path / "rest.yaml").write_text(rest)
    (told,) = (r for r in pm.import_timeloop(*sorted(tmp_path.iterdir())).remarks if "6 keys" in r)
    assert f"  {tmp_path / 'rest.yaml'}: `problem.technology` (" in told
    assert f"  {tmp_path / 'arch.yaml'}: `variables.technology` (7:3)" in told


@pytest.mark.parametrize("given", [-1e-9, 0, ".inf", "inf", "0 - 2"])
def test_a_cycle_time_that_is_none_is_told_with_its_place(given: object, tmp_path: Path) -> None:
    text = FILE.read_text().replace("global_cycle_seconds: 5e-9", f"global_cycle_seconds: {given}")
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tmp_path / "spec.yaml")
    (d,) = caught.value.diagnostics
    value = {".inf": "inf", "0 - 2": "-2"}.get(str(given), str(given))
    bound = "finite" if value == "inf" else "above 0"
    assert d.message == f"a cycle of {value} seconds: it has to be {bound}"
    assert (d.path, d.place.line, d.place.column) == ("variables.global_cycle_seconds", 5, 25)
    assert d.remedy == "write the seconds of one cycle, e.g. `global_cycle_seconds: 1e-9`"


def test_a_cycle_time_that_is_no_number_is_told() -> None:
    (d,) = diagnostics(global_cycle_seconds="one_ns")
    assert d.path == "variables.global_cycle_seconds"
    assert d.message == "unknown symbol one_ns"


def test_a_cycle_time_of_a_component_is_checked_too() -> None:
    given = machine(deep=64)
    nodes = given["architecture"]["nodes"]  # type: ignore[index]  # plain data of a known shape
    nodes[1]["attributes"]["global_cycle_seconds"] = -2
    with faults(
        "out-of-range", "2", "0", at="architecture.nodes[1].attributes.global_cycle_seconds"
    ) as caught:
        pm.import_timeloop(given)
    path = "architecture.nodes[1].attributes.global_cycle_seconds"
    assert [d.path for d in caught.value.diagnostics] == [path]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("32 if wide else 16", 32),
        ("16 if wide > 4 else 8 * 4", 32),
        ("(2 if wide == 3 else 4) * 8 + (1 if not wide != 3 else 0)", 17),
        ("8 if wide > 9 else 16 if wide > 2 else 64", 16),
        ("8 if 1 < wide <= 3 and wide < 4 else 4", 8),
        ("8 if wide < 1 or wide >= 3 else 4", 8),
        ("min(8 if wide else 4, 100)", 8),
        ("1 / 0 if wide < 3 else 24", 24),
        ("24 if wide == 3 or 1 / 0 else 1", 24),
        ("(wide > 2) * 16 + True * 4", 20),
        ("(wide)", 3),
    ],
)
def test_conditions_as_python_reads_them(text: str, words: int) -> None:
    assert buffer_bits(text, wide=3) == 8 * words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8 if wide", "expected 'else' after the condition, found the end"),
        ("8 if else 3", "expected a number, a name or '(', found 'else'"),
        ("8 if wild else 3", "unknown symbol wild"),
        ("8 if wide = 3 else 3", "expected 'else' after the condition, found '='"),
        ("8 if wide else 3 / 0 if wide < 0 else 1 +", "expected a number, a name or '(', found the end"),
    ],
)
def test_conditions_that_cannot_be_read(text: str, message: str) -> None:
    given = machine(wide=3)
    nodes = given["architecture"]["nodes"]  # type: ignore[index]  # plain data of a known shape
    nodes[1]["attributes"]["depth"] = text
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(given)
    assert [d.message for d in caught.value.diagnostics] == [message]


def test_conditions_stay_bounded() -> None:
    given = machine()
    nodes = given["architecture"]["nodes"]  # type: ignore[index]  # plain data of a known shape
    nodes[1]["attributes"]["depth"] = "1 if 1 else " * 60 + "1"
    with faults("not-a-number", at="architecture.nodes[1].attributes.depth"):
        pm.import_timeloop(given)
    nodes[1]["attributes"]["depth"] = "(" * 60 + "1" + ")" * 60
    with faults("not-a-number", at="architecture.nodes[1].attributes.depth"):
        pm.import_timeloop(given)


def test_a_variable_that_is_a_word_is_told_as_one() -> None:
    given = machine(technology="45nm", later="2 *")
    nodes = given["architecture"]["nodes"]  # type: ignore[index]  # plain data of a known shape
    nodes[1]["attributes"] = {"depth": "technology", "width": "later"}
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(given)
    told = ["later is '2 *', which is not a number", "technology is '45nm', which is not a number"]
    assert sorted(d.message for d in caught.value.diagnostics) == told


def test_true_and_false_are_numbers_in_expressions() -> None:
    assert buffer_bits("192 if big else 96", big=True) == 8 * 192
    assert buffer_bits("192 if big else 96", big=False) == 8 * 96
    assert buffer_bits("big", big=True) == 8


def test_without_a_mapping_the_next_step_is_told() -> None:
    imported = pm.import_timeloop(machine(deep=8))
    assert imported.spec.mapping is None
    (note,) = (d for d in imported.notes if d.message == "no mapping is given, so the spec has none")
    assert "polymodel explore" in note.remedy
    assert not any("no mapping" in d.message for d in pm.import_timeloop(FILE).notes)


def test_the_form_of_older_versions_is_told() -> None:
    local = [{"name": "B", "class": "SRAM", "attributes": {"depth": 8, "width": 8}}]
    local.append({"name": "MAC", "class": "intmac"})
    older = {"architecture": {"version": 0.3, "subtree": [{"name": "system", "local": local}]}}
    (note,) = (d for d in pm.import_timeloop(older).notes if "version 0.4" in d.message)
    assert "polymodel export timeloop" in note.remedy
    assert not any("version 0.4" in d.message for d in pm.import_timeloop(machine(deep=8)).notes)


VALUES = st.sampled_from(["a", "b", "0", "1", "2", "7", "True", "False"])
TEXTS = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+ - * < <= > >= == != and or".split()), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("{} if {} else {}".format, VALUES, VALUES, VALUES).map("({})".format),
        st.builds("(not {})".format, inner),
        st.builds("({} < {} <= {})".format, VALUES, inner, VALUES),
        st.builds("max({}, {})".format, inner, inner),
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(TEXTS)
def test_conditions_agree_with_python(text: str) -> None:
    names = {"a": 3, "b": 0}
    theirs = eval(text, {"__builtins__": {"max": max}}, names)  # made above, of known words
    assert evaluate(text, names) == theirs


def test_words_are_never_run() -> None:
    for text in (
        "__import__('os')",
        "a.b",
        "open(1) if 1 else 2",
        "[1][0]",
        "lambda: 1",
        "1 if x := 2 else 3",
    ):
        with pytest.raises(pm.SpecError):
            evaluate(text, {"a": 1})


def test_constraints_on_dimensions_and_on_all_data_spaces() -> None:
    """`*` is all that the other list does not name; dimensions that a level may not iterate over have one
    iteration there."""
    tree: dict[str, Any] = machine(deep=64)
    buffer = tree["architecture"]["nodes"][1]
    buffer["constraints"] = {
        "dataspace": {"keep": ["Z"], "bypass": "*"},
        "temporal": {"no_iteration_over_dimensions": ["K"]},
    }
    found = pm.import_timeloop(tree)
    assert "tensors: {keep: Z, may_keep: Nothing}" in found.text
    assert "Buffer: {factors: {k: 1}}" in found.text
    assert found.left_out == ()
    buffer["constraints"] = {"temporal": {"no_iteration_over_dimensions": ["J"]}}
    with faults("unknown-name", "J", at="architecture.nodes[1].constraints.temporal"):
        pm.import_timeloop(tree)
    buffer["constraints"] = {"spatial": {"min_utilization": 0.5}}
    assert "min_utilisation" in pm.import_timeloop(tree).left_out[0].remedy
