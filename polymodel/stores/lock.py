"""One process at a time for a store: two that save their states there would overwrite each other's."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from uuid import uuid4

from polymodel.errors import Diagnostic, Refused, SpecError, writing
from polymodel.processes import born, gone
from polymodel.spec.output import forget, record, recorded, unfinished

NAME = "lock.json"
BEAT, LOST = (
    5.0,
    120.0,
)  # seconds between signs of life; without one for so long, another host's holder is gone
PAUSE, TRIES = 0.05, 300  # seconds until half a lock is looked at again; that is more than a BEAT together
# What disks say that know no second names (hard links).
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_PIDS = 2**31  # numbers of processes are below


@dataclass(frozen=True)
class Holder:
    """Who holds a store; `born`: what tells a process from a later one of the same number."""

    host: str
    pid: int
    born: str
    token: str

    @property
    def gone(self) -> bool:
        """True if the process is no more; for this host only."""
        return gone(self.pid, self.born)


@contextlib.contextmanager
def locked(store: Path | None) -> Iterator[None]:
    """Hold the store, if there is one, for as long as the block runs. A holder that has died is replaced.

    Raises Refused while another process is at work there, and SpecError where nothing can be written.
    """
    if store is None:
        yield
        return
    file = store / NAME
    mine = Holder(socket.gethostname(), os.getpid(), born(os.getpid()), uuid4().hex)
    for tried in range(TRIES):
        if _taken(file, mine):
            if tried:
                time.sleep(PAUSE)  # whoever judged the lock of before may just have taken ours for it
            if not tried or _holder(file) == mine:
                break
        else:
            _step_aside(file, mine.host)
    else:
        raise Refused(
            f"{store}: the lock could not be taken in {TRIES} attempts",
            f"wait, or give another store; if no other process is at work there, remove {file}",
        )
    done = Event()
    beat = Thread(target=_beat, args=(file, done), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()
        if _holder(file) == mine:
            with contextlib.suppress(OSError):
                forget(store, file)
            file.unlink(missing_ok=True)


def _taken(file: Path, mine: Holder) -> bool:
    """True if the file could be made, so that it is ours."""
    with writing(file):
        # It is written under another name first: half a lock would be nobody's.
        fresh = unfinished(file)
        if file.exists():
            return False
        record(fresh, file)
        try:
            fresh.write_text(json.dumps(vars(mine)), encoding="utf-8")
            _linked(fresh, file)
        except FileExistsError:
            return False
        except FileNotFoundError:  # the holder has just cleared what the dead left, and this with it
            if not file.parent.is_dir():
                raise
            return False
        except OSError:
            fresh.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                forget(file.parent)
            raise
        finally:
            fresh.unlink(missing_ok=True)
    return True


def _linked(source: Path, file: Path) -> None:
    """The same under another name, whole at once where the disk can. FileExistsError if it is taken."""
    try:
        os.link(source, file)
    except (OSError, NotImplementedError, AttributeError) as error:  # a Python or a disk without links
        if isinstance(error, OSError) and error.errno not in _NO_LINKS:
            raise
        # Who dies between making and writing it leaves an empty one, which is put away after a BEAT.
        with file.open("xb") as other:
            try:
                other.write(source.read_bytes())
                other.flush()
            except OSError:
                file.unlink(missing_ok=True)
                raise


def _step_aside(file: Path, host: str) -> None:
    """Remove the lock of a holder that is gone, or one of nobody. Refused if its holder is at work."""
    seen, there = _mark(file), _holder(file)
    if seen is None:
        return
    if file.is_dir():
        what = f"{file} is a folder, and a store keeps its lock there"
        raise SpecError([Diagnostic(what, "give another store, or move it away")])
    if there is None and file.name not in recorded(file.parent):
        remedy = "give another store, or move the file away"
        raise Refused(f"{file} is not polymodel's, and a store keeps its lock there", remedy)
    silent = _silence(file)
    if there is not None and (not there.gone if there.host == host else silent < LOST):
        where = f"process {there.pid}" + (f" on {there.host}" if there.host != host else "")
        raise Refused(
            f"{file.parent}: {where} is at work in this store",
            f"wait until it is done, or give another store; if it is no more, remove {file}",
        )
    if there is None and silent < BEAT:
        time.sleep(PAUSE)
        return
    if _mark(file) != seen:
        return
    # Of several that see this, one moves it away; the others find nothing to move, and try again.
    aside = unfinished(file)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.rename(file, aside)
        if _mark(aside) != seen:  # somebody was quicker, and this is the lock of who came next
            _linked(aside, file)
    aside.unlink(missing_ok=True)


def _mark(file: Path) -> tuple[int, int, int] | None:
    """What tells a file from a later one of the same name; None if there is none."""
    try:
        result = file.stat()
    except FileNotFoundError:
        return None
    return result.st_ino, result.st_mtime_ns, result.st_size


def _holder(file: Path) -> Holder | None:
    try:
        result = json.loads(file.read_text(encoding="utf-8"))
        pid = int(result["pid"])
        if not 0 < pid < _PIDS:  # the system asks a group of processes, or none at all
            return None
        return Holder(str(result["host"]), pid, str(result["born"]), str(result["token"]))
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def _silence(file: Path) -> float:
    """Seconds since the last sign of life, by the clock of the disk: hosts may disagree about the time."""
    probe = unfinished(file)
    try:
        probe.touch()
        return probe.stat().st_mtime - file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)


def _beat(file: Path, done: Event) -> None:
    while not done.wait(BEAT):
        with contextlib.suppress(OSError):
            os.utime(file)
