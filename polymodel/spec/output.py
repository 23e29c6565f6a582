"""Files that are written whole or not at all, whatever happens on the way."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from polymodel.inputs import spare
from polymodel.processes import born, gone

JOURNAL = "polymodel-files.txt"  # names of what polymodel has made in a store
_UNFINISHED = re.compile(r"\..*\.new(\.\w+)?")
# Names of unfinished files, with who writes them: host, process, and when it was started.
_WRITER = re.compile(r"\..*\.polymodel-([0-9a-f]{8})-([1-9]\d{0,9})-(\d*)-[0-9a-f]{8}\.new(\.[^.]*)?")


@contextlib.contextmanager
def whole(path: str | os.PathLike[str], *, durable: bool = True, recorded: bool = False) -> Iterator[Path]:
    """A fresh name beside `path`, with its ending; what is written there takes the place of `path` in one
    step. `path` stays as it was if the writer fails or is killed; only a kill leaves the fresh file behind,
    until the next process that writes into this folder.

    `durable`: only after it has reached the disk, so that a power failure leaves no half of it either, which
    costs some milliseconds. A pipe or a device is written to as it stands; of a link, the file it names is
    replaced. `recorded`: the names of both are noted in the folder's journal before. Raises OSError, and
    SpecError for a file that is read as well.
    """
    spare(path)
    given = Path(path)
    if (given.exists() and not given.is_file()) or given.absolute().is_relative_to("/dev"):
        yield given
        return
    target = Path(os.path.realpath(given))
    fresh = unfinished(target)
    _clear_killed(fresh.parent)
    if recorded:
        record(fresh, target)
    try:
        yield fresh
        if durable:
            _to_disk(fresh)
        if target.exists():
            os.chmod(fresh, target.stat().st_mode & 0o7777)
        os.replace(fresh, target)
    finally:
        fresh.unlink(missing_ok=True)


def unfinished(target: Path) -> Path:
    """A fresh name for what will become the target, or a part of it. It says which process writes there."""
    me = os.getpid()
    writer = f"polymodel-{_host()}-{me}-{born(me)}"
    return target.with_name(f".{target.stem[:40]}.{writer}-{uuid4().hex[:8]}.new{target.suffix}")


def _host() -> str:
    """What tells where numbers of processes are the same ones: the host, and on it the container."""
    try:
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        numbers = ""
    return sha256(f"{socket.gethostname()} {numbers}".encode()).hexdigest()[:8]


@cache  # thousands of files may be written into one folder, and whoever is killed later has a next run
def _clear_killed(folder: Path) -> None:
    """Remove what processes of this host were writing when they were killed; nothing of any other name."""
    here = _host()
    with contextlib.suppress(OSError):  # a folder that cannot be listed, a file that is somebody else's
        for file in folder.iterdir():
            name = _WRITER.fullmatch(file.name)
            if name and name[1] == here and gone(int(name[2]), name[3]) and not file.is_symlink():
                file.unlink()


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


def record(*files: Path) -> None:
    """Note in the journal of their folder that polymodel makes these files. Raises OSError."""
    known = recorded(files[0].parent)
    text = "".join(f"{f.name}\n" for f in files if f.name not in known)
    if text:
        with (files[0].parent / JOURNAL).open("a", encoding="utf-8") as journal:
            journal.write(text)


def recorded(folder: Path) -> frozenset[str]:
    """Names of files in a folder that polymodel has made, whatever became of them."""
    try:
        return frozenset((folder / JOURNAL).read_text(encoding="utf-8").split("\n")) - {""}
    except (OSError, UnicodeDecodeError):
        return frozenset()


def clear_unfinished(folder: Path) -> None:
    """Remove what killed processes were writing, as far as it is recorded: all else is somebody else's."""
    known = recorded(folder)
    for name in sorted(known):
        if _UNFINISHED.fullmatch(name) and "/" not in name and os.sep not in name:
            (folder / name).unlink(missing_ok=True)
    forget(folder)


def forget(folder: Path, *files: Path) -> None:
    """Leave out of the journal what is there no more, and these files; an empty journal goes."""
    known = recorded(folder)
    gone = {f.name for f in files}
    left = sorted(n for n in known if n not in gone and "/" not in n and (folder / n).is_file())
    if len(left) == len(known):
        return
    journal = folder / JOURNAL
    if left:
        write_text(journal, "".join(f"{n}\n" for n in left))
    else:
        journal.unlink(missing_ok=True)
