"""Faults of what is around polymodel are named with what to do; nothing from a file steers a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.cli.progress import ProgressLine
from polymodel.errors import Diagnostic, masked
from polymodel.view.html import page
from tests.fuzz.forked import ROOT
from tests.fuzz.lines import SPEC
from tests.seeds import seeds

SLOW = pytest.mark.slow
EVALUATE = "evaluate s.yaml --set TM=4"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def told(here: Path, line: str, redirected: str = "", **environment: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line of a shell."""
    paths = os.pathsep.join([environment.pop("FIRST", str(ROOT)), str(ROOT)])
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m polymodel {line} {redirected}'],
        cwd=here,
        env={**os.environ, **environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a shell")
@pytest.mark.parametrize(
    ("redirected", "code"),
    [
        (">&-", 2),
        pytest.param("2>&-", 0, marks=SLOW),
        pytest.param("<&-", 0, marks=SLOW),
        pytest.param(">&- 2>&- <&-", 2, marks=SLOW),
    ],
)
def test_closed_streams(here: Path, redirected: str, code: int) -> None:
    found, _, errors = told(here, f"{EVALUATE} --out saved", redirected)
    assert found == code
    assert "a bug" not in errors
    if redirected == ">&-":
        told_last = errors.splitlines()[-2:]  # a busy machine may tell of progress first
        assert told_last == [
            "cannot write to stdout: it is closed",
            "  remedy: leave it open, or send it to a file",
        ]
    files = [f.read_bytes() for f in (here / "saved").iterdir()]
    assert len(files) > 10
    assert not any(b"cannot write" in data for data in files)


@pytest.mark.thin(99)
@pytest.mark.parametrize(
    ("name", "text", "words"),
    seeds(
        3,
        [
            ("islpy", "class Set: pass\n", "built without barvinok"),
            ("islpy", "", "built without barvinok"),
            ("islpy", "raise ModuleNotFoundError('No module', name='islpy')\n", "pip install islpy-barvinok"),
            ("islpy", "raise ImportError('libisl.so: cannot open shared object')\n", "libisl.so"),
            ("pandas", "raise ModuleNotFoundError('No module', name='pandas')\n", "pip install pandas"),
            ("yaml", "raise ModuleNotFoundError('No module', name='yaml')\n", "pip install pyyaml"),
            (
                "matplotlib",
                "raise ModuleNotFoundError('No module', name='matplotlib')\n",
                "pip install matplotlib",
            ),
        ],
    ),
)
def test_packages_that_are_missing_or_others(here: Path, name: str, text: str, words: str) -> None:
    first = here / "first"
    first.mkdir()
    (first / f"{name}.py").write_text(text, encoding="utf-8")
    line = "sweep s.yaml --symbol TM=2,4 --html saved.html"
    # What asks isl something: dependences between Einsums.
    dependent = "evaluate matmul_chain_2/tiled_fused simple_two_level"
    code, _, errors = told(here, dependent if name == "islpy" else line, FIRST=str(first))
    assert code == 2
    assert words in errors
    assert "remedy: " in errors
    assert "a bug" not in errors


@pytest.mark.slow
@pytest.mark.parametrize("line", seeds(1, [f"{EVALUATE} --html saved.html", EVALUATE]))
def test_nowhere_to_keep_anything(here: Path, line: str) -> None:
    """Neither a home nor a temporary folder: what needs none works."""
    nowhere = str(here / "s.yaml" / "none")
    code, _, errors = told(here, line, HOME=nowhere, TMPDIR=nowhere, XDG_CACHE_HOME=nowhere)
    assert code == 0, errors
    assert "Traceback" not in errors


def test_an_error_of_the_system_has_a_remedy(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere(*_: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr("polymodel.cli.specs.load_spec", nowhere)
    assert main(["evaluate", str(here / "s.yaml")]) == 2
    assert "remedy: set TMPDIR" in capsys.readouterr().err


STEERING = "\x1b[2J\u202egnp\x07\x9b1m\u2066"


def test_what_steers_a_terminal_is_masked() -> None:
    assert masked(f"a{STEERING}b\n\tc µé中") == "a?[2J?gnp??1m?b\n\tc µé中"
    assert "\x1b" not in Diagnostic(STEERING, STEERING, STEERING).render()
    assert "\x1b" not in str(pm.Refused(STEERING, STEERING))
    shown: list[str] = []
    ProgressLine(shown.append).say(STEERING)  # type: ignore[arg-type]  # what it gives is not looked at
    assert "\x1b" not in shown[0]
    assert "\x1b" not in page(STEERING, [])
    assert "\u202e" not in page(STEERING, [])


@pytest.mark.parametrize("command", ["validate", "show", "evaluate", "timeline --component GLB", "nonsense"])
def test_names_of_a_file_are_masked_wherever_they_are_printed(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    escaped = STEERING.encode("unicode_escape").decode()
    text = SPEC.replace("name: MAC", f'name: "MAC{escaped}"').replace(
        "component: MAC", f'component: "MAC{escaped}"'
    )
    file = f"s{STEERING}.yaml"
    (tmp_path / file).write_text(text, encoding="utf-8")
    words = command.split()
    with pytest.raises(SystemExit) if command == "nonsense" else monkeypatch.context():
        main([words[0], file, "--set", "TM=4", *words[1:], *([STEERING] if command == "nonsense" else [])])
    out, err = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2066"} & set(out + err)
