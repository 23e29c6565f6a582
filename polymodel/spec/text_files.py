"""Text files from the disk, of bounded size and noted as inputs."""

from __future__ import annotations

import stat
from pathlib import Path

from polymodel.errors import Diagnostic, Place
from polymodel.inputs import reading
from polymodel.spec.faults import Faults

MAX_FILE = 8_000_000


def text_of(path: Path, name: str, faults: Faults) -> str | None:
    """The text of a file; None, and a fault, for one that is no text of moderate size."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            faults.note(Diagnostic("not a regular file", "name a YAML file", "", Place(name)))
            return None
        if info.st_size > MAX_FILE:
            faults.note(
                Diagnostic(f"the file has {info.st_size} bytes", f"keep it under {MAX_FILE}", "", Place(name))
            )
            return None
        reading(path)
        return path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        faults.note(Diagnostic(f"cannot be read: {error.strerror}", "check the path", "", Place(name)))
    except UnicodeDecodeError as error:
        remedy = "save the file as UTF-8"
        faults.note(Diagnostic(f"byte {error.start} is not UTF-8 text", remedy, "", Place(name)))
    return None
