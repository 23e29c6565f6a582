"""What nobody foresaw: one clear message, an exit code of its own, no traceback unless asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import polymodel.cli as cli
from polymodel import __version__
from polymodel.errors import InternalError
from tests.fuzz import lines

ROOT = Path(__file__).resolve().parents[2]
LINE = ["validate", "matmul", "simple two level.yaml"]


def endless(depth: int) -> int:
    return endless(depth + 1) + 1


def raising(error: BaseException) -> Callable[..., object]:
    def fail(*_: object) -> object:
        raise error

    return fail


def beside(*_: object) -> object:
    """An error in code that is not ours, below a folder that has the package's name."""
    eval(compile("1 / 0", "/home/polymodel/tests/some.py", "eval"))
    return None


@pytest.mark.parametrize(
    ("fail", "what"),
    [
        (raising(KeyError("n0")), "KeyError: 'n0' (validate.py:"),
        (raising(AssertionError()), "AssertionError (validate.py:"),
        (beside, "ZeroDivisionError: division by zero (validate.py:"),
        (raising(InternalError("figures differ")), "figures differ\n"),
        (raising(ValueError("x" * 10**6)), "ValueError: xxx"),
        (lambda *_: endless(0), "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_a_bug_is_told_as_one(
    fail: Callable[..., object],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("polymodel.cli.validate.load_spec", fail)
    assert cli.main(LINE) == cli.BUG == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"a bug in polymodel: {what}")
    assert "Traceback" not in err
    assert len(err) < 3000
    assert "\n  command: polymodel validate matmul 'simple two level.yaml'\n" in err
    assert f"\n  version: polymodel {__version__}, Python 3." in err
    assert "report it" in err
    monkeypatch.setenv("POLYMODEL_TRACEBACK", "1")
    assert cli.main(LINE) == 70
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):\n")


def test_a_bug_before_any_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polymodel.cli.app.build_parser", raising(TypeError("no parser")))
    assert cli.main(LINE) == 70
    assert "TypeError: no parser" in capsys.readouterr().err


def test_out_of_memory_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("polymodel.cli.validate.load_spec", raising(MemoryError()))
    assert cli.main(LINE) == cli.REFUSED
    err = capsys.readouterr().err
    assert err.startswith("out of memory: ")
    assert "remedy" in err
    with pytest.raises(AssertionError, match="out of memory"):  # the fuzzer sees it all the same
        lines.run(LINE, tmp_path)


@pytest.mark.parametrize(
    ("ending", "code"), [(SystemExit(5), 5), (KeyboardInterrupt(), cli.INTERRUPTED), (OSError("x"), 2)]
)
def test_what_is_no_bug_passes(
    ending: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polymodel.cli.validate.load_spec", raising(ending))
    try:
        found: object = cli.main(LINE)
    except SystemExit as raised:
        found = raised.code
    assert found == code
    assert "a bug" not in capsys.readouterr().err


def test_the_fuzzer_sees_bugs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("polymodel.cli.validate.load_spec", raising(KeyError("n0")))
    with pytest.raises(AssertionError, match=r"(?s)exit code 70: Traceback.*KeyError: 'n0'"):
        lines.run(LINE, tmp_path)


@pytest.mark.thin(99)
@pytest.mark.parametrize(
    ("environment", "target", "code", "told"),
    [
        ({"PYTHONIOENCODING": "ascii"}, None, 0, ""),
        pytest.param(
            {},
            "/dev/full",
            2,
            "cannot write to stdout: No space left on device",
            marks=pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device"),
        ),
    ],
)
def test_a_stdout_that_takes_not_everything(
    environment: dict[str, str], target: str | None, code: int, told: str
) -> None:
    line = [sys.executable, "-m", "polymodel", "evaluate", "matmul/output_stationary", "simple_two_level"]
    with open(target or os.devnull, "wb") as out:
        done = subprocess.run(
            line,
            env={**os.environ, **environment},
            cwd=ROOT,
            stdout=out if target else subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == code
    err = done.stderr.decode()
    assert err.startswith(told)
    assert "Traceback" not in err
    if not target:
        assert b"?" in done.stdout  # the Greek letter of micro
