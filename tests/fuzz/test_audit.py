"""Nothing in a spec runs code, nothing goes to a network, nothing is written but where it was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What no command may bring about. Imports compile and run Python's own files, so only our text is looked for.
CODE = r"""
import json, os, sys
seen = []
def writes(mode, flags):
    if isinstance(mode, str):
        return any(c in mode for c in "wax+")
    return bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
def allowed(path):
    path = os.path.realpath(os.fsdecode(path))
    here = os.path.realpath(os.getcwd())
    if path == os.devnull:
        return True
    scratch = os.path.realpath(os.environ["TMPDIR"])
    return any(path == place or path.startswith(place + os.sep) for place in (here, scratch))
def hook(event, args):
    if event == "open" and writes(args[1], args[2]) and not isinstance(args[0], int) and not allowed(args[0]):
        seen.append(["writes", os.fsdecode(args[0])])
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.truncate", "os.chmod", "os.symlink"):
        if not allowed(args[1] if event == "os.rename" else args[0]):
            seen.append([event, os.fsdecode(args[0])])
    elif event.startswith(("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "webbrowser")):
        if event != "socket.gethostname":
            seen.append([event, repr(args)[:80]])
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "pty.spawn"):
        seen.append([event, repr(args)[:80]])
    elif event == "compile" and args[0] is not None:
        text = args[0] if isinstance(args[0], (str, bytes)) else b""
        if b"POISON" in (text.encode() if isinstance(text, str) else text):
            seen.append(["compile", repr(text)[:80]])
    elif event == "import" and args[0].startswith("POISON"):
        seen.append(["import", args[0]])
sys.dont_write_bytecode = True
from polymodel.cli import main
sys.addaudithook(hook)
code = main(sys.argv[1:])
sys.stderr.write("\n" + json.dumps({"code": code, "seen": seen}))
"""
MATRIX = "%%MatrixMarket matrix coordinate real general\n4 4 5\n1 1 1\n2 2 2\n3 1 3\n4 4 4\n4 1 6\n"
POISON = """\
schema_version: 1
symbols: {POISON: 4}
workload: {rank_sizes: {M: POISON}, bits_per_value: {All: 8}, einsums: ["Y[m] = X[m]"]}
arch: {nodes: [!Memory {name: POISON, size: inf}, !Compute {name: MAC}]}
mapping: {nodes: [!Storage {component: POISON, tensors: [X, Y]}, !Compute {einsum: Y, component: MAC}]}
"""
LINES = (
    "validate POISON.yaml",
    "evaluate POISON.yaml",
    "evaluate matmul/output_stationary simple_two_level --out saved --parquet",
    "evaluate matmul_chain_2/pipeline two_engines --format html",
    "show matmul/output_stationary simple_two_level --out pictures",
    "compare matmul/output_stationary,simple_two_level matmul/weight_stationary,simple_two_level",
    "timeline matmul/output_stationary simple_two_level --component GLB --out times",
    "sweep sweep.yaml --symbol TM=divisors(m) --out best --store state",
    "sweep sweep.yaml --symbol TM=divisors(m) --workers 2 --html found.html",
    "evaluate matmul/output_stationary simple_two_level --html report.html",
    "explore matmul simple_two_level --objective energy --out found",
    "tile a.mtx --capacity 3 --plot tiles.png --out tiles --export parts",
    "sparse a.mtx --tiles 2 --out sparse",
    "execute tensaurus/spmm A=a.mtx B=dense --size K=4",
    "schema spec",
    "new fresh.yaml",
)


FAST = ("evaluate POISON", "sweep sweep.yaml --symbol TM=divisors(m) --out")


@pytest.mark.parametrize(
    "line", [line if line.startswith(FAST) else pytest.param(line, marks=pytest.mark.slow) for line in LINES]
)
def test_commands_keep_to_themselves(line: str, tmp_path: Path) -> None:
    from tests.fuzz.lines import SPEC

    folder, home, temporary = tmp_path / "work", tmp_path / "home", tmp_path / "temporary"
    for place in (folder, home, temporary):
        place.mkdir()
    (folder / "POISON.yaml").write_text(POISON, encoding="utf-8")
    (folder / "sweep.yaml").write_text(SPEC, encoding="utf-8")
    (folder / "a.mtx").write_text(MATRIX, encoding="utf-8")
    environment = {
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE, *line.split()],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    told = json.loads(done.stderr.rstrip().splitlines()[-1])
    assert told["code"] == 0, done.stderr
    # matplotlib asks the system for its fonts, and keeps their list in the temporary folder until the end.
    other = [s for s in told["seen"] if not (s[0] == "subprocess.Popen" and "fc-list" in s[1])]
    assert not other
    assert not list(home.iterdir())
    assert not list(temporary.iterdir())
