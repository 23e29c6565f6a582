"""A command that is killed, or done twice at a time: no half file under a final name."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.fuzz.lines import SPEC

ROOT = Path(__file__).resolve().parents[2]
LOOP = """
import sys
from polymodel.cli import main
print("begun", flush=True)
sys.stdout = open("told", "w")
while True:
    main(sys.argv[1:])
"""
LINE = ["evaluate", "s.yaml", "--set", "TM=4", "--out", "saved"]


def whole(folder: Path) -> int:
    """How many files there are under final names; each can be read to its end."""
    found = [f for f in folder.iterdir() if ".new" not in f.name]
    for file in found:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            json.loads(text)
        elif file.suffix == ".svg":
            ElementTree.fromstring(text)
        elif file.suffix == ".html":
            assert text.rstrip().endswith("</html>")
        else:
            assert text.endswith("\n")
    return len(found)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_killed_while_it_saves(processes: int, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SPEC, encoding="utf-8")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{LOOP}", *LINE]
    running = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    until = time.monotonic() + 60
    while not (tmp_path / "saved" / "report.json").exists() and time.monotonic() < until:
        time.sleep(0.05)
    for pause in (0.3, 0.11):
        time.sleep(pause)
        assert whole(tmp_path / "saved") > 3
    for process in running:
        process.kill()
        _, told = process.communicate()
        assert b"Traceback" not in told
        assert b"a bug" not in told
        assert b"cannot write" not in told
    assert whole(tmp_path / "saved") > 3
