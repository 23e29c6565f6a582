"""What polymodel did not write stays: files of other people in a folder, and the inputs of a command."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import build_parser, main
from polymodel.spec.files import write_text
from tests.faults import faults
from tests.fuzz.forked import Parent
from tests.fuzz.test_written import EVERY, ORDERED, SOME, made
from tests.seeds import seeds

# What is not a polymodel's, whatever it is called.
OTHERS = (
    "notes.new", ".draft.new.txt", "x.new.parquet", ".state-0-of-1.01234567.new.parquet",
    "front-0-of-1-mine.parquet", "front-0-of-1-0-01234567.parquet", "found-0-mine.bin",
)  # fmt: skip
KINDS = {"--html": "*.html", "--plot": "*.svg"}
SOURCES = (
    "validate", "show", "evaluate", "forms", "timeline", "sweep", "explore", "codesign", "distribute",
    "export",
)  # fmt: skip
# Arguments without an option that are read. Any other is taken to name a place to write to.
READ = frozenset(
    [f"{name} sources" for name in SOURCES]
    + [f"{name} {given}" for name in ("execute", "traffic") for given in ("spec", "tensors")]
    + ["compare a", "compare b", "sparse files", "tile files", "tensaurus kernel", "tensaurus file"]
    + ["import timeloop files", "import onnx model", "import accelforge files", "import zigzag files"]
    + ["schema kind", "gallery exhibits", "export tool"]
)


def options_that_write() -> Iterator[str]:
    """`COMMAND --option`, or `COMMAND argument`, of all that name a place to write to."""

    def of(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    yield from of(inner, f"{name} {word}".strip())
            elif action.option_strings and action.metavar in ("DIR", "FILE"):
                yield f"{name} {action.option_strings[-1]}"
            elif not action.option_strings and f"{name} {action.dest}" not in READ:
                yield f"{name} {action.dest}"

    return of(build_parser(), "")


def test_every_writing_option_is_tried() -> None:
    """Whoever adds one adds a line to `EVERY`."""
    tried = {f"{line.split()[0]} {word}" for line in EVERY for word in line.split() if word.startswith("--")}
    tried |= {f"import {line.split()[1]} --out" for line in EVERY if line.startswith("import")}
    tried |= {"new file" for line in EVERY if line.startswith("new saved/")}
    assert set(options_that_write()) <= tried


@pytest.mark.parametrize("line", SOME)
def test_files_of_others_stay(line: str, parent: Parent, tmp_path: Path) -> None:
    here = made(tmp_path, "here")
    for name in OTHERS:
        (here / "saved" / name).write_text(f"mine: {name}", encoding="utf-8")
    code, errors = parent.run(here, line)
    assert code == 0, errors
    for name in OTHERS:
        assert (here / "saved" / name).read_text(encoding="utf-8") == f"mine: {name}"
    source = {f.name: f.read_bytes() for f in here.iterdir() if f.is_file()}
    assert source == {f.name: f.read_bytes() for f in made(tmp_path, "again").iterdir() if f.is_file()}


def linked(source: Path, target: Path, how: str) -> None:
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    {"hard": os.link, "soft": os.symlink}[how](source, target)


@pytest.mark.parametrize("how", ["hard", pytest.param("soft", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "line", seeds(2, [w for w in ORDERED if not w.startswith(("schema", "new", "import", "gallery"))])
)
def test_an_output_that_is_an_input(line: str, how: str, parent: Parent, tmp_path: Path) -> None:
    """Under each name that the command writes, a link to what it reads: nothing is written at all."""
    first = made(tmp_path, "first")
    assert parent.run(first, line)[0] == 0
    names = [f.name for f in (first / "saved").iterdir() if f.name != "polymodel-files.txt"]
    source = next(w for w in line.replace("=", " ").split() if w in ("s.yaml", "e.yaml", "h.yaml", "a.mtx"))
    here = made(tmp_path, "here")
    before = (here / source).read_bytes()
    for name in (names[0], names[-1]):
        shutil.rmtree(here / "saved")
        linked(here / source, here / "saved" / name, how)
        code, errors = parent.run(here, line)
        assert (here / source).read_bytes() == before
        assert code == 2, errors
        assert f"it is the input {source}" in errors
        assert "remedy: " in errors
        assert [f.name for f in (here / "saved").iterdir()] == [name]


def test_an_index_of_somebody_else_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = made(tmp_path, "here")
    monkeypatch.chdir(here)
    (here / "saved" / "index.json").write_text("{}", encoding="utf-8")
    assert main(["tile", "a.mtx", "--capacity", "3", "--export", "saved"]) == 2
    assert [f.name for f in (here / "saved").iterdir()] == ["index.json"]


@pytest.mark.parametrize("name", ["rows.parquet", "state-0-of-1.parquet"])
def test_rows_of_somebody_else_stay(name: str, tmp_path: Path) -> None:
    here = made(tmp_path, "here")
    (here / "saved" / name).write_text("mine", encoding="utf-8")
    spec = pm.load(here / "s.yaml")
    for resume in (True, False):
        with pytest.raises(pm.Refused):
            pm.sweep(spec, {"TM": [2, 4]}, store=here / "saved", resume=resume)
        assert [f.name for f in (here / "saved").iterdir()] == [name]
        assert (here / "saved" / name).read_text(encoding="utf-8") == "mine"


COPY = "einsum:\n  declaration:\n    A: [K, M]\n    Z: [K, M]\n  expressions:\n  - Z[k, m] = A[k, m]\n"


@pytest.mark.slow
def test_writers_in_python_spare_the_files_of_the_spec(tmp_path: Path) -> None:
    here = made(tmp_path, "here")
    text = (here / "s.yaml").read_text(encoding="utf-8")
    report = pm.evaluate(pm.load(here / "s.yaml", symbols={"TM": 4}))
    front = pm.explore(pm.load(here / "e.yaml"), objectives=["energy"])
    both, slope = pm.compare(report, report), pm.ski_slope(pm.load(here / "e.yaml"))
    (here / "copy.yaml").write_text(COPY, encoding="utf-8")
    run = pm.execute(pm.load(here / "copy.yaml"), {"A": pm.read_tensor(here / "a.mtx")})
    (here / "saved" / "report.json").symlink_to(here / "s.yaml")
    (here / "saved" / "front.csv").hardlink_to(here / "e.yaml")
    for write in (
        lambda: report.to_html(here / "s.yaml"),
        lambda: report.to_json(here / "s.yaml"),
        lambda: report.save(here / "saved"),
        lambda: front.to_html(here / "e.yaml"),
        lambda: front.to_csv(here / "e.yaml"),
        lambda: front.save(here / "saved"),
        lambda: front[0].save(here / "e.yaml"),
        lambda: both.to_html(here / "s.yaml"),
        lambda: slope.to_csv(here / "e.yaml"),
        lambda: pm.closed_forms(pm.load(here / "s.yaml")).to_json(here / "s.yaml"),
        lambda: report.explain("Z", "GLB", "A").to_html(here / "s.yaml"),
        lambda: report.peak("GLB").to_html(here / "s.yaml"),
        lambda: pm.mapspace(pm.load(here / "e.yaml")).to_json(here / "e.yaml"),
        lambda: pm.import_timeloop(here / "t.yaml").to_html(here / "t.yaml"),
        lambda: run.to_html(here / "copy.yaml"),
        lambda: pm.ExecutionReport(run).to_html(here / "copy.yaml"),
    ):
        with faults("unwritable-file", "input", at=""):
            write()
    assert (here / "s.yaml").read_text(encoding="utf-8") == text
    write_text(here / "s.yaml", "mine to change")  # outside of a command a file is its owner's


@pytest.mark.parametrize(("suffix", "ranks"), [("mtx", "K, M"), ("tns", "M")])
def test_a_result_that_is_an_input_is_told_before_anything_runs(
    suffix: str,
    ranks: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of `execute --out`: results are named after tensors of the spec."""
    here = made(tmp_path, "here")
    monkeypatch.chdir(here)
    text = f"einsum:\n  declaration:\n    A: [K, M]\n    Z: [{ranks}]\n  expressions:\n"
    (here / "copy.yaml").write_text(f"{text}  - Z[{ranks.lower()}] = A[k, m]\n", encoding="utf-8")
    source = f"saved/Z.{suffix}"
    shutil.copy(here / "a.mtx", here / source)
    if suffix == "tns":
        (here / source).write_text("1 1 1.0\n2 2 2.0\n", encoding="utf-8")
    monkeypatch.setattr("polymodel.sparse.execute.run.run", None)
    assert main(["execute", "copy.yaml", f"A={source}", "--out", "saved"]) == 2
    assert "it is an input" in capsys.readouterr().err


# Names like those that commands write, and none of them.
ALIKE = (
    "notes.csv", "notes.svg", "notes.html", "notes.json", "front.yaml", "mapping-mine.yaml", "tile_mine.mtx",
    "timeline_mine.csv", "sparse_mine.csv", "tiling_mine.csv", "mine.schema.json",
)  # fmt: skip


@pytest.mark.parametrize("line", [line for line in EVERY if line.endswith(" saved") and "--out" in line])
@pytest.mark.thin(9)
def test_an_input_may_lie_beside_what_is_written(line: str, parent: Parent, tmp_path: Path) -> None:
    """Only what is written over is refused: not for a name that merely looks like one of the command's."""
    here = made(tmp_path, "here")
    read = ("s.yaml", "e.yaml", "h.yaml", "a.mtx")
    source = next((w for w in line.replace("=", " ").split() if w in read), "s.yaml")
    for name in ALIKE:
        linked(here / source, here / "saved" / name, "hard")
    code, errors = parent.run(here, line)
    assert code == 0, errors
    for name in ALIKE:
        assert (here / "saved" / name).samefile(here / source)


@pytest.mark.slow
def test_an_input_that_is_not_written_may_lie_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of `evaluate --out`, which writes files of many names."""
    here = made(tmp_path, "here")
    monkeypatch.chdir(here)
    fine, taken = here / "saved" / "spec.csv", here / "saved" / "energy.csv"
    for file, code in ((fine, 0), (taken, 2)):
        shutil.copy(here / "s.yaml", file)
        assert main(["evaluate", str(file), "--set", "TM=4", "--out", "saved"]) == code
        assert file.read_bytes() == (here / "s.yaml").read_bytes()
    assert "cannot write saved/energy.csv: it is the input" in capsys.readouterr().err
