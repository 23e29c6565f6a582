"""Bad input to every command, loader and call: a place, a reason and a remedy for each fault, no traceback.

A case and what it is answered with stand side by side in tests/bad/FOLDER; POLYMODEL_REGENERATE=1 writes the
answers anew. Specs stand in tests/bad itself (tests/spec/test_bad_inputs.py).
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

import polymodel as pm
from polymodel import cli
from polymodel.errors import PolymodelError, Refused, SpecError
from polymodel.report.starter import STARTER

BAD = Path(__file__).parents[1] / "bad"
MATRIX = BAD.parent / "data/matrices/circuit.mtx.gz"
PARTS = ("commands", "tensors", "teaal", "tables", "python", "stores")
CASES = {p: sorted(f for f in (BAD / p).iterdir() if f.is_file() and f.name != "tm.yaml") for p in PARTS}
TOLD = sorted(BAD.rglob("*.txt"))
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
# Options whose values are read by a grammar or a loader of their own.
OPTIONS = (
    "--set --var --symbol --where --objective --mapping --store --memory --fuse --unfused --size",
    "--with --fit --published --tune --estimate --op --tile --ranks --plot --export",
    "--out --html --table --component",
)
CALLS = ("pm.load", "pm.sweep", "pm.explore", "pm.tile", "pm.read_tensor", "pm.evaluate", "slope")
ENDINGS = (".mtx", ".tns", ".gz")
# Words that say that Python speaks, not polymodel.
PYTHON = re.compile(
    r"Traceback|<class|<function|NoneType|object at 0x|\b\w+Error\b|Exception|pydantic|\bnumpy\."
    r"|\bpolymodel\.\w+\.|\b(dict|tuple|str|ndarray|DataFrame|PosixPath)\b|\[Errno"
)


# A file, an option, an argument (`eps=2`), a path in a spec, a call, or a name that was given.
PLACE = re.compile(
    r"(refused: )?(--[\w-]+|[\w./\[\]=-]+(:\d+)*:|\w+=|where `|no template uses|'[\w./]+' |symbol \w+ "
    r"|[\w./-]+\.\w+ |cannot write [\w./-]+: |'': )",
    re.ASCII,
)


def checked(text: str, golden: Path) -> None:
    """The answer is the stored one."""
    if os.environ.get("POLYMODEL_REGENERATE"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_every_answer() -> None:
    """Each of its faults has a place, a reason and a remedy, and none speaks of Python.

    What makes the answers compares them with the stored ones: the tests below, tests/spec/test_bad_inputs.py
    and tests/importers/test_timeloop_bad_inputs.py and test_onnx_faults.py.
    """
    assert len(TOLD) > 300
    for golden in TOLD:
        text = golden.read_text(encoding="utf-8")
        assert not PYTHON.search(text), (golden, text)
        lines = [
            line
            for line in text.removeprefix("refused: ").splitlines()
            if not re.match(r"\d+ faults? in the input$|\$ |exit code ", line)
        ]
        heads = [line for line in lines if not line.startswith((" ", "\t"))]
        remedies = [line for line in lines if line.startswith("  remedy: ") and len(line) > 14]
        assert heads, golden
        assert len(remedies) == len(heads), (golden, text)
        for head in heads:
            assert PLACE.match(head), (golden, head)


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
    # Packaged files are named where they are; here, where they are in any checkout.
    checked(f"{line}\n{err.replace(f'{BAD.parents[1]}/', '')}exit code {code}\n", path)


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
    for case in INPUTS:
        assert case.with_name(case.name + ".txt").is_file()
    others = {"onnx": ".", "timeloop": ".yaml", "": ".yaml"}  # onnx: its models are built by the tests
    for folder, ending in others.items():
        for told in (BAD / folder).glob("*.txt"):
            assert ending == "." or told.with_suffix(ending).is_file()
    assert len(TOLD) >= 300


def test_every_command_and_loader_has_cases() -> None:
    lines = [p.read_text(encoding="utf-8").split("\n")[0] for p in CASES["commands"]]
    words = [shlex.split(line)[2:] for line in lines]
    (commands,) = (a for a in cli.build_parser()._actions if isinstance(a.choices, dict))
    kinds = [c for c in commands.choices if c != "import"]
    first = Counter(" ".join(w[: 2 if w[0] == "import" else 1]) for w in words)
    few = {c: first[c] for c in (*kinds, "import timeloop", "import onnx") if first[c] < 3}
    assert not few
    missing = {o for c in OPTIONS for o in c.split() if not any(o in w for w in words)}
    assert not missing
    loaders = {
        "specs": len(list(BAD.glob("*.yaml"))),
        **{p: len([f for f in CASES[p] if f.suffix != ".txt"]) for p in PARTS[1:]},
        **{p: len(list((BAD / p).glob("*.txt"))) for p in ("timeloop", "onnx")},
        **{e: len([f for f in CASES["tensors"] if f.suffix != ".txt" and e in f.suffixes]) for e in ENDINGS},
    }
    assert {name: n for name, n in loaders.items() if n < 3} == {}
    cases = [p.read_text(encoding="utf-8") for p in INPUTS if p.suffix == ".case"]
    calls = Counter(c for text in cases for c in CALLS if f"{c}(" in text)
    assert {c: calls[c] for c in CALLS if calls[c] < 3} == {}
