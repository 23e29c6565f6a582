"""A store: sealed tables in a folder locked by one process."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import uuid4

from polymodel.errors import Diagnostic, Refused, SpecError, writing
from polymodel.governor import born, gone
from polymodel.loading import Spec
from polymodel.spec.files import forget, record, recorded, unfinished, whole

# Folders of stores, and fingerprints of what the figures in them depend on.


def parts_of(s: Spec) -> list[object]:
    """Everything that a spec's figures depend on, except its mapping and the blocks of Einsums."""
    workload = s.raw_workload
    if workload is not None and any(workload.blocks.values()):
        plain = tuple(e.model_copy(update={"block": ""}) for e in workload.einsums)
        workload = workload.model_copy(update={"einsums": plain})
    parts: list[object] = [workload, s.raw_renames, s.raw_arch, sorted(s.declared.items(), key=str)]
    return [*parts, sorted(s.given.items()), sorted(s.variables.items(), key=str)]


def marked(parts: Sequence[object]) -> str:
    """A fingerprint of serialisable data."""
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()


def check_store(store: object) -> None:
    """Raise SpecError if the path is not a folder and cannot become one."""
    if store is None:
        return
    if not isinstance(store, (str, Path)):
        raise _wrong(f"store={store!r} is not a folder", "name a folder, e.g. store='out'", code="wrong-type")
    if Path(store).is_file():
        message = f"store={str(store)!r} is a file"
        raise _wrong(message, "name a folder; it is made if it is missing", code="unreadable-file")


def folder_of(store: str | Path) -> Path:
    """The folder of a store, created if it is missing. Raises SpecError."""
    check_store(store)
    with writing(store):
        Path(store).mkdir(parents=True, exist_ok=True)
    return Path(store)


def _wrong(message: str, remedy: str, code: str) -> SpecError:
    return SpecError([Diagnostic(message, remedy, code=code)])


# One process at a time for a store: two that save their states there would overwrite each other's.

NAME = "lock.json"
BEAT, LOST = (
    5.0,
    120.0,
)  # seconds between heartbeats; seconds without one after which a holder on another host counts as dead
PAUSE, TRIES = 0.05, 300  # seconds between looks at an incomplete lock; in total longer than a BEAT
# Errors of file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_PIDS = 2**31  # numbers of processes are below


@dataclass(frozen=True)
class Holder:
    """The process that holds a store; `born`: its start time, which distinguishes it from a later process of
    the same number."""

    host: str
    pid: int
    born: str
    token: str

    @property
    def gone(self) -> bool:
        """True if the process has ended; valid on this host only."""
        return gone(self.pid, self.born)


@contextlib.contextmanager
def locked(store: Path | None) -> Iterator[None]:
    """Hold the lock of the store, if there is one, while the block runs. A dead holder is replaced.

    Raises Refused while another process holds it, and SpecError if the folder cannot be written.
    """
    if store is None:
        yield
        return
    file = store / NAME
    mine = Holder(socket.gethostname(), os.getpid(), born(os.getpid()), uuid4().hex)
    for tried in range(TRIES):
        if _taken(file, mine):
            if tried:
                time.sleep(PAUSE)  # one that judged the previous lock stale may have removed ours
            if not tried or _holder(file) == mine:
                break
        else:
            _step_aside(file, mine.host)
    else:
        message = f"{store}: the lock could not be taken in {TRIES} attempts"
        remedy = f"wait, or give another store; if no other process is at work there, remove {file}"
        raise Refused(message, remedy, code="store-in-use")
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
    """True if the lock file could be created, so that this process holds the store."""
    with writing(file):
        # It is written under another name first: an incomplete lock has no holder.
        fresh = unfinished(file)
        if file.exists():
            return False
        record(fresh, file)
        try:
            fresh.write_text(json.dumps(vars(mine)), encoding="utf-8")
            _linked(fresh, file)
        except FileExistsError:
            return False
        except FileNotFoundError:  # the holder has just removed the files of dead processes
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
    """Give the file its second name, atomically where the file system can. Raises FileExistsError if the name
    exists."""
    try:
        os.link(source, file)
    except (OSError, NotImplementedError, AttributeError) as error:  # a Python or a file system without links
        if isinstance(error, OSError) and error.errno not in _NO_LINKS:
            raise
        # A process killed between creating and writing it leaves an empty lock, removed after a BEAT.
        with file.open("xb") as other:
            try:
                other.write(source.read_bytes())
                other.flush()
            except OSError:
                file.unlink(missing_ok=True)
                raise


def _step_aside(file: Path, host: str) -> None:
    """Remove the lock of a dead holder, or an incomplete one. Raises Refused if its holder is running."""
    seen, there = _mark(file), _holder(file)
    if seen is None:
        return
    if file.is_dir():
        what = f"{file} is a folder, and a store keeps its lock there"
        raise SpecError([Diagnostic(what, "give another store, or move it away", code="file-exists")])
    if there is None and file.name not in recorded(file.parent):
        remedy = "give another store, or move the file away"
        message = f"{file} is not polymodel's, and a store keeps its lock there"
        raise Refused(message, remedy, code="file-exists")
    silent = _silence(file)
    if there is not None and (not there.gone if there.host == host else silent < LOST):
        where = f"process {there.pid}" + (f" on {there.host}" if there.host != host else "")
        raise Refused(
            f"{file.parent}: {where} is at work in this store",
            f"wait until it is done, or give another store; if it is no more, remove {file}",
            code="store-in-use",
        )
    if there is None and silent < BEAT:
        time.sleep(PAUSE)
        return
    if _mark(file) != seen:
        return
    # If several processes see this, one moves the lock; the others find nothing to move, and retry.
    aside = unfinished(file)
    with contextlib.suppress(FileNotFoundError, FileExistsError):
        os.rename(file, aside)
        if _mark(aside) != seen:  # another process was quicker, and this is the lock of its successor
            _linked(aside, file)
    aside.unlink(missing_ok=True)


def _mark(file: Path) -> tuple[int, int, int] | None:
    """The identity of a file, which distinguishes it from a later one of the same name; None if there is
    none."""
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
    """Seconds since the last heartbeat, by the clock of the file system: clocks of hosts may differ."""
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


# Sealed tables of a store: parquet files that are whole or not there, and tell when a byte has changed.

Array = Any
ANEW = "start anew: resume=False in Python, --no-resume on the command line"
RELEASE = 7  # the version of the layout: columns, metadata and seal
# The fingerprint of a whole file stands inside it; it is taken with zeros in its own place. Parquet itself
# does not notice a changed byte.
_SEAL = re.compile(rb'"file_sha256": "([0-9a-f]{64})"')
_ZEROS = "0" * 64
_STATE = "state-"


def write_table(file: Path, columns: Mapping[str, Array], about: Mapping[str, object]) -> None:
    """Write a parquet file atomically: a reader sees the old one or the new one."""
    import pyarrow as pa
    from pyarrow import parquet

    seal = {"release": _release(), "file_sha256": _ZEROS}
    said = {b"polymodel": json.dumps(about).encode(), b"seal": json.dumps(seal).encode()}
    table = pa.table(dict(columns)).replace_schema_metadata(said)
    file.parent.mkdir(parents=True, exist_ok=True)
    with writing(file), whole(file, recorded=True) as fresh:
        with fresh.open("wb") as sink:
            parquet.write_table(table, sink)
        data = fresh.read_bytes()
        zeros = f'"file_sha256": "{_ZEROS}"'.encode()
        fresh.write_bytes(data.replace(zeros, zeros.replace(_ZEROS.encode(), _digest(data).encode())))


def _release() -> str:
    """The release, since numbers of different releases may differ and must not be combined in one front."""
    from polymodel import __version__

    return f"{__version__}, stores of kind {RELEASE}"


def _digest(data: bytes) -> str:
    """The fingerprint of a file, independent of the bytes where the fingerprint is stored."""
    result = _SEAL.search(data)
    start, end = result.span(1) if result else (0, 0)
    return hashlib.sha256(data[:start] + _ZEROS.encode() * bool(result) + data[end:]).hexdigest()


def read_table(file: Path, of: str = "a sweep") -> tuple[dict[str, Array], dict[str, Any]]:
    """The columns as arrays, and their metadata.

    Raises Refused if any byte of the file has changed, or if it is of another release.
    """
    import pyarrow as pa
    from pyarrow import parquet

    damaged = Refused(
        f"{file} is damaged, and no state of {of} can be read from it", ANEW, code="damaged-file"
    )
    try:
        data = file.read_bytes()
        sealed = _SEAL.search(data)
        if sealed is not None and sealed.group(1).decode() != _digest(data):
            raise damaged
        table = parquet.read_table(pa.BufferReader(data))
        metadata = table.schema.metadata or {}
        about, seal = (json.loads(metadata.get(name, b"{}")) for name in (b"polymodel", b"seal"))
        columns = {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged from error
    if not isinstance(seal, dict) or not isinstance(about, dict):
        raise damaged
    if seal.get("release") != _release():
        by = f"polymodel {seal['release']}" if seal.get("release") else "an earlier release"
        message = f"{file} was written by {by}, this is {_release()}"
        raise Refused(message, f"go on with that one, or {ANEW}", code="store-mismatch")
    if sealed is None:
        raise damaged
    return columns, about


def spare_others(file: Path) -> None:
    """Refuses to replace a file in a store that polymodel did not write."""
    if not file.is_file() or file.name in recorded(file.parent):
        return
    states = [file] if _STATE in file.name else sorted(file.parent.glob(f"{_STATE}*.parquet"))
    if not any(map(_sealed, states)):  # stores of earlier releases have no journal
        remedy = "give another store, or move the file away"
        message = f"{file} is not polymodel's, and the store keeps a file of that name"
        raise Refused(message, remedy, code="file-exists")


def _sealed(file: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with pa.OSFile(str(file)) as source:
            return b"seal" in (parquet.read_schema(source).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return False
