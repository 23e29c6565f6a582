"""One process at a time for a store: two that save their states there would overwrite each other's."""

from __future__ import annotations

import contextlib
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

NAME = "lock.json"
BEAT, LOST = (
    5.0,
    120.0,
)  # seconds between signs of life; without one for so long, another host's holder is gone
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
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it is there, and another user's
            return False
        return bool(self.born) and _born(self.pid) not in (self.born, "")


def _born(pid: int) -> str:
    """When the process was started, in the system's own words; empty where it does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


@contextlib.contextmanager
def locked(store: Path | None) -> Iterator[None]:
    """Hold the store, if there is one, for as long as the block runs. A holder that has died is replaced.

    Raises Refused while another process is at work there, and SpecError where nothing can be written.
    """
    if store is None:
        yield
        return
    file = store / NAME
    mine = Holder(socket.gethostname(), os.getpid(), _born(os.getpid()), uuid4().hex)
    for _ in range(100):
        if _taken(file, mine):
            break
        _step_aside(file, mine.host)
    else:
        raise Refused(f"{store}: others keep taking the lock", "wait, or give another store")
    done = Event()
    beat = Thread(target=_beat, args=(file, done), daemon=True)
    beat.start()
    try:
        yield
    finally:
        done.set()
        beat.join()
        if _holder(file) == mine:
            file.unlink(missing_ok=True)


def _taken(file: Path, mine: Holder) -> bool:
    """True if the file could be made, so that it is ours."""
    with writing(file):
        # It is written under another name first: half a lock would be nobody's.
        fresh = file.with_name(f".{mine.token}.new")
        try:
            fresh.write_text(json.dumps(vars(mine)), encoding="utf-8")
            try:
                os.link(fresh, file)
            except (PermissionError, NotImplementedError, AttributeError):  # no second names on this disk
                with file.open("x", encoding="utf-8") as other:
                    other.write(json.dumps(vars(mine)))
        except FileExistsError:
            return False
        finally:
            fresh.unlink(missing_ok=True)
    return True


def _step_aside(file: Path, host: str) -> None:
    """Remove the lock of a holder that is gone. Refused if it is at work."""
    there = _holder(file)
    if there is None and not file.exists():
        return
    if file.is_dir():
        what = f"{file} is a folder, and a store keeps its lock there"
        raise SpecError([Diagnostic(what, "give another store, or move it away")])
    silent = _silence(file)
    if there is not None and (not there.gone if there.host == host else silent < LOST):
        where = f"process {there.pid}" + (f" on {there.host}" if there.host != host else "")
        raise Refused(
            f"{file.parent}: {where} is at work in this store",
            f"wait until it is done, or give another store; if it is no more, remove {file}",
        )
    if there is None and silent < BEAT:
        time.sleep(0.05)
        return
    # Of several that see this, one moves it away; the others find nothing to move, and try again.
    aside = file.with_name(f".{uuid4().hex}.new")
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.rename(file, aside)
        if _holder(aside) != there:  # somebody was quicker, and this is the lock of who came next
            os.link(aside, file)
    aside.unlink(missing_ok=True)


def _holder(file: Path) -> Holder | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        pid = int(found["pid"])
        if not 0 < pid < _PIDS:  # the system asks a group of processes, or none at all
            return None
        return Holder(str(found["host"]), pid, str(found["born"]), str(found["token"]))
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def _silence(file: Path) -> float:
    """Seconds since the last sign of life, by the clock of the disk: hosts may disagree about the time."""
    probe = file.with_name(f".{uuid4().hex}.new")
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
