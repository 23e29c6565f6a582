"""Command lines, each in a process of its own that begins with everything imported."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = r"""
import contextlib, gc, io, json, os, sys
from polymodel.cli import main
for asked in sys.stdin:
    prelude, folder, line = json.loads(asked)
    if prelude is None:
        os.chdir(folder)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
            code = main(line)
        print(json.dumps([code, told.getvalue()]), flush=True)
        gc.collect()
        gc.freeze()  # or each child would look through, and so copy, all that is here
        continue
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(os.environ["TOLD"] + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 99
        try:
            exec(prelude)
            code = main(line) if line else 0
        except SystemExit as ending:
            code = ending.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.environ["TOLD"] + "err", encoding="utf-8", errors="replace") as file:
        print(json.dumps([ended, file.read()]), flush=True)
"""
# No file may outgrow so many bytes: what the system says then is what it says of a full disk.
FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
"""
# The superuser may write anywhere, unless it gives up that it may (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH).
HUMBLE = """
import ctypes
if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    head, caps = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, caps) == 0
    caps[0] &= ~0b110
    assert libc.capset(head, caps) == 0
"""
# Killed as it is about to open or to rename the file that is counted down to.
DIES = """
import signal
left = [{at}]
def hook(event, args):
    if event in ("open", "os.rename") and ".new" in str(args[0]):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
"""


class Parent:
    """A process that command lines are forked from."""

    def __init__(self, told: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TOLD": f"{told}{os.sep}told."}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CODE],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, folder: Path, line: str, before: str | None = "") -> tuple[int, str]:
        """Exit code (a negative signal) and errors of a command line in a folder.

        `before`: Python that its process runs first, or alone if the line is empty; None: the parent runs
        the line itself, so that all that come later begin with what it imports.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps((before, str(folder), shlex.split(line))) + "\n")
        self.process.stdin.flush()
        code, errors = json.loads(self.process.stdout.readline())
        return code, errors

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
