"""The process around a command: its reaction to signals, to output that cannot be written, and to unexpected
exceptions."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path

from polymodel.errors import Diagnostic, InternalError, PackageFault, masked

WORDS = 1000  # the number of characters shown of a message or a command
OUT_OF_MEMORY = """\
out of memory: the command needs more than this process may have
  remedy: allow more memory, or use a smaller problem or fewer workers; sweeps keep to --memory"""
TRACEBACK = "POLYMODEL_TRACEBACK"
COLLECTED_AFTER = 200_000  # new objects between collections (default: 700); a small evaluation makes half

# Distribution names of packages, where they differ from the import names.
_PACKAGES = {
    "yaml": "pyyaml", "islpy": "islpy-barvinok", "distributed": "polymodel[dask]", "onnx": "polymodel[onnx]",
}  # fmt: skip


def unforeseen(error: Exception, command: str, version: str) -> str:
    """Return the message for an unexpected exception: where it was raised, and what to include in a report.

    The whole traceback precedes it if POLYMODEL_TRACEBACK is set to anything but 0.
    """
    frames = traceback.extract_tb(error.__traceback__)
    package = f"{Path(__file__).parent.parent}{os.sep}"  # a folder around it may have its name
    own = [f for f in frames if f.filename.startswith(package)] or list(frames)
    at = f" ({Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
    if isinstance(error, InternalError):
        what, at = str(error), ""
    else:
        what = type(error).__name__ + (f": {str(error)[:WORDS]}" if str(error) else "")
    import platform

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


def started_for_one_command() -> None:
    """Reduce the start-up time of a process that runs one command and ends: the garbage collector runs
    rarely, since most objects live until the end, and pydantic does not search all installed packages for
    plugins."""
    gc.set_threshold(COLLECTED_AFTER, 20, 20)
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


def ended() -> None:
    """End a process at once after its only command: the interpreter would search all objects twice for cycles
    to free, although the operating system frees the whole process."""
    gc.freeze()


def streams_open() -> None:
    """Reopen stdin, stdout or stderr where the shell has closed them: the next opened file would otherwise
    get the same descriptor number and receive the printed text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor number
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives


def environment(error: ImportError) -> str:
    """Return which package could not be imported, and the remedy; an empty text if the module belongs to
    polymodel."""
    if isinstance(error, PackageFault):
        return str(error)
    name = (error.name or "").partition(".")[0]
    if not name or name == "polymodel":
        return ""
    package = _PACKAGES.get(name, name)
    return Diagnostic(
        f"the package {name} cannot be imported: {error}", f"pip install {package}", code="missing-package"
    ).render()


def write_stdout(text: str, data: bool = False) -> bool:
    """Print to stdout; returns False, after reporting it, if writing fails. Characters that the stream cannot
    encode are replaced by `?`, and so are terminal control characters, unless the text is `data` for another
    program."""
    out = sys.stdout
    if out is None:
        fault = Diagnostic(
            "cannot write to stdout: it is closed",
            "leave it open, or send it to a file",
            code="unwritable-file",
        )
        sys.stderr.write(f"{fault.render()}\n")
        return not text
    if not data or out.isatty():
        text = masked(text)
    try:
        try:
            out.write(text)
        except UnicodeEncodeError:
            known = out.encoding or "ascii"
            out.write(text.encode(known, "replace").decode(known))
        out.flush()
    except BrokenPipeError:
        # The reader has closed the pipe; Python would report that again when it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
        fault = Diagnostic(
            f"cannot write to stdout: {error.strerror or error}",
            "write to another place",
            code="unwritable-file",
        )
        sys.stderr.write(f"{fault.render()}\n")
        return False
    return True
