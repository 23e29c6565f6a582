"""Files that are written whole or not at all, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

UNFINISHED = "*.new*"


@contextlib.contextmanager
def whole(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """A fresh name beside `path`, with its ending; what is written there takes the place of `path` in one
    step. `path` stays as it was if the writer fails or is killed; only a kill leaves the fresh file behind.

    `durable`: only after it has reached the disk, so that a power failure leaves no half of it either, which
    costs some milliseconds. A pipe or a device is written to as it stands; of a link, the file it names is
    replaced. Raises OSError.
    """
    given = Path(path)
    if (given.exists() and not given.is_file()) or given.absolute().is_relative_to("/dev"):
        yield given
        return
    target = Path(os.path.realpath(given))
    fresh = target.with_name(f".{target.stem[:40]}.{uuid4().hex[:8]}.new{target.suffix}")
    try:
        yield fresh
        if durable:
            _to_disk(fresh)
        if target.exists():
            os.chmod(fresh, target.stat().st_mode & 0o7777)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)


def _to_disk(path: Path) -> None:
    """Wait until its contents are there; a power failure may still undo the step, and leave the old file."""
    handle = os.open(path, os.O_RDWR)  # Windows wants one that may write
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """The text as UTF-8, whole or not at all. Raises OSError."""
    with whole(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


def clear_unfinished(folder: Path) -> None:
    """Remove what killed processes were writing."""
    for file in folder.glob(UNFINISHED):
        file.unlink(missing_ok=True)
