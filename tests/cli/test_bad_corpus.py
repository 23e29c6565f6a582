"""Bad input to every command, loader and call: a place, a reason and a remedy for each fault, no traceback.

A case and what it is answered with stand side by side in tests/bad/FOLDER; POLYMODEL_REGENERATE=1 writes the
answers anew. Specs stand in tests/bad itself (tests/spec/test_bad_inputs.py).
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

import polymodel as pm
from polymodel import cli
from polymodel.errors import PolymodelError, Refused, SpecError
from polymodel.report.starter import STARTER

BAD = Path(__file__).parents[1] / "bad"
MATRIX = BAD.parent / "data/matrices/add32.mtx.gz"
PARTS = ("commands", "tensors", "teaal", "tables", "python", "stores")
CASES = {
    part: sorted(p for p in (BAD / part).iterdir() if p.is_file() and p.name != "tm.yaml") for part in PARTS
}
INPUTS = [p for p in (c for part in PARTS[1:] for c in CASES[part]) if p.suffix != ".txt"]
SPEC = """\
arch:
  nodes:
  - !Memory {{name: DRAM, size: inf, leak_power: 0, area: 0,
      actions: [{{name: read, energy: 1}}, {{name: write, energy: 1}}]}}
  - !Memory {{name: GLB, size: 1000, leak_power: 0, area: 0, energy_model: {{name: table, file: {file}}},
      actions: [{{name: read}}, {{name: write}}]}}
  - !Compute {{name: MAC, leak_power: 0, area: 0, actions: [{{name: compute, energy: 1}}]}}
"""
# Words that say that Python speaks, not polymodel.
PYTHON = re.compile(r"Traceback|<class|NoneType|object at 0x|\b\w+Error:|Exception")


# A file, an option, an argument (`eps=2`), a path in a spec, a call, or a name that was given.
PLACE = re.compile(
    r"(refused: )?(--[\w-]+|[\w./\[\]=-]+(:\d+)*:|\w+=|where `|no template uses|'[\w./]+' |symbol \w+ "
    r"|(cannot write )?[\w./-]+\.\w+:? )",
    re.ASCII,
)


def checked(text: str, golden: Path) -> None:
    """The answer is the stored one, and each of its faults has a reason, a place and a remedy."""
    if os.environ.get("POLYMODEL_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert not PYTHON.search(text), text
    body = text.removeprefix("refused: ")
    lines = [
        line for line in body.splitlines() if not re.match(r"\d+ faults? in the input$|\$ |exit code ", line)
    ]
    heads = [line for line in lines if not line.startswith((" ", "\t"))]
    remedies = [line for line in lines if line.startswith("  remedy: ") and len(line) > 14]
    assert heads
    assert len(remedies) == len(heads), text
    for head in heads:
        assert PLACE.match(head), head


@pytest.mark.parametrize("path", CASES["commands"], ids=lambda p: p.stem)
def test_commands(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(BAD / "commands")
    line = path.read_text(encoding="utf-8").split("\n")[0]
    assert line.startswith("$ polymodel ")
    try:
        code: object = cli.main(shlex.split(line)[2:])
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert out == ""
    assert code in (2, 3)
    checked(f"{line}\n{err}exit code {code}\n", path)


@pytest.mark.parametrize("path", INPUTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_loaders_and_calls(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = path.suffix == ".case"
    monkeypatch.chdir(tmp_path if calls else path.parent)
    if path.parent.name == "tables":
        (tmp_path / path.name).write_bytes(path.read_bytes())
        monkeypatch.chdir(tmp_path)
        Path("spec.yaml").write_text(SPEC.format(file=path.name), encoding="utf-8")
    with pytest.raises(PolymodelError) as caught:
        answered(path)
    error = caught.value
    assert isinstance(error, (SpecError, Refused))
    for found in error.diagnostics if isinstance(error, SpecError) else ():
        assert "\n" not in found.message
    checked(str(error).replace(f"{BAD.parents[1]}/", "") + "\n", path.with_name(path.name + ".txt"))


def answered(path: Path) -> None:
    """Give the case to what reads it."""
    if path.suffix == ".case":
        called(path.read_text(encoding="utf-8"))
    elif path.parent.name == "tensors":
        pm.read_tensor(path.name, "A")
    else:
        pm.load("spec.yaml" if path.parent.name == "tables" else path.name).check()


def called(code: str) -> None:
    """Run a case with what it may name."""
    names = {"pm": pm, "Path": Path, "MATRIX": str(MATRIX)}
    if "spec" in code:
        Path("spec.yaml").write_text(STARTER, encoding="utf-8")
        names["spec"] = pm.load("spec.yaml")
    if "A," in code:
        names["A"] = pm.read_tensor(str(MATRIX), "A")
    exec(compile(code, "case", "exec"), names)  # the case is ours


def test_the_corpus_is_complete() -> None:
    found = {part: len([p for p in CASES[part] if p.suffix != ".txt"]) for part in PARTS[1:]}
    assert found == {"tensors": 16, "teaal": 15, "tables": 15, "python": 30, "stores": 10}
    assert len(CASES["commands"]) == 44
    for case in INPUTS:
        assert case.with_name(case.name + ".txt").is_file()
