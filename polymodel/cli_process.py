"""The process around a command: what it does when it is told to end, cannot print, or meets a bug."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from pathlib import Path

from polymodel.cli_common import TRACEBACK, WORDS
from polymodel.errors import Diagnostic, InternalError


def unforeseen(error: Exception, command: str, version: str) -> str:
    """What an exception that no one foresaw tells the user: where it was raised, and what to report.

    The whole traceback comes before it if POLYMODEL_TRACEBACK is set to anything but 0.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f"{os.sep}polymodel{os.sep}" in f.filename] or list(frames)
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    if isinstance(error, InternalError):
        what, at = str(error), ""
    else:
        what = type(error).__name__ + (f": {str(error)[:WORDS]}" if str(error) else "")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    shown = os.environ.get(TRACEBACK, "0") not in ("", "0")
    lines = [*(line.rstrip() for line in traceback.format_exception(error) if shown)]
    lines += [
        f"a bug in polymodel: {what}{at}",
        "  remedy: please report it, with the three lines below and the files that the command names",
        f"  command: {command[:WORDS]}",
        f"  version: {version}, Python {platform.python_version()}, {system}",
        f"  where: {TRACEBACK}=1 in the environment shows the whole traceback",
    ]
    return "\n".join(lines)


def put_out(text: str) -> bool:
    """Print to stdout; False, and told, if that cannot be written. Signs that it cannot show become `?`."""
    out = sys.stdout
    try:
        try:
            out.write(text)
        except UnicodeEncodeError:
            known = out.encoding or "ascii"
            out.write(text.encode(known, "replace").decode(known))
        out.flush()
    except BrokenPipeError:
        # The reader has seen enough; Python would complain again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        fault = Diagnostic(f"cannot write to stdout: {error.strerror or error}", "write to another place")
        sys.stderr.write(f"{fault.render()}\n")
        return False
    return True
