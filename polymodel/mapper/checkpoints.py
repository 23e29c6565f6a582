"""Steps of a search that are done, in a folder: a search that was ended goes on with what they gave.

A step is known by a fingerprint of all that its result depends on. So what is taken from the store is what
the step would give, whatever the run before did, and the answer is that of an undisturbed run.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from polymodel.errors import Refused
from polymodel.spec.output import clear_unfinished, recorded
from polymodel.stores.lock import locked
from polymodel.stores.tables import ANEW, read_table, write_table

SAVE_EVERY, SHARE = 2.0, 0.02  # seconds between saves, or this share of the run if that is more
LARGE = 2**26  # bytes that are saved at once
NAME = "found-"
# All that may stand in a result: nothing that is read from a store can name any other class or function.
_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_KNOWN = {
    "numpy": {"ndarray", "dtype"},
    **{module: {"_reconstruct", "_frombuffer", "scalar"} for module in _ARRAYS},
    "builtins": {"frozenset", "set"},
    "polymodel.mapper.pmappings": {"Pmappings"},
    "polymodel.mapper.regions": {"InnerPoints"},
    "polymodel.mapper.templates": {"Template", "Shape", "Node"},
    "polymodel.mapper.states": {"States", "Structure", "Live", "StateSource"},
    "polymodel.mapper.lower_bounds": {"Floors"},
}


def fingerprint(*parts: object) -> bytes:
    """Of plain data, arrays and records of them; the same in every process."""
    result = hashlib.blake2b(digest_size=20)
    _feed(parts, result.update)
    return result.digest()


def _feed(part: object, update: Callable[[bytes], object]) -> None:
    if isinstance(part, np.ndarray):
        update(f"array {part.dtype.str} {part.shape} ".encode())
        update(np.ascontiguousarray(part).tobytes())
    elif is_dataclass(part) and not isinstance(part, type):
        update(f"{type(part).__name__}(".encode())
        for f in fields(part):
            if f.compare:
                _feed(getattr(part, f.name), update)
    elif isinstance(part, Mapping):
        _several("table", (fingerprint(k, v) for k, v in part.items()), update)
    elif isinstance(part, (set, frozenset)):
        _several("set", map(fingerprint, part), update)
    elif isinstance(part, (tuple, list)):
        update(f"list {len(part)} ".encode())
        for item in part:
            _feed(item, update)
    elif part is None or isinstance(part, (bool, int, float, str, bytes, np.generic)):
        update(f"{type(part).__name__} {part!r};".encode())
    else:
        raise TypeError(f"a {type(part).__name__} has no fingerprint")


def _several(what: str, marks: Iterable[bytes], update: Callable[[bytes], object]) -> None:
    result = sorted(marks)
    update(f"{what} {len(result)} ".encode() + b"".join(result))


class _Pickler(pickle.Pickler):
    def persistent_id(self, item: object) -> str | None:
        """Einsums are in every result, and known to who reads it."""
        return "space" if type(item).__name__ == "EinsumSpace" else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, space: object) -> None:
        super().__init__(io.BytesIO(data))
        self.space = space

    def persistent_load(self, name: object) -> object:
        return self.space

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a result")
        return super().find_class(module, name)


@dataclass
class Finished:
    """The store of one search: results as they were read, and those to be saved next."""

    folder: Path
    signature: str
    known: dict[bytes, bytes] = field(default_factory=dict)
    fresh: dict[bytes, bytes] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    saved: float = field(default_factory=time.perf_counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    used: int = 0

    def get(self, key: bytes, space: object) -> Any:
        """The result and what it counted, or None."""
        data = self.known.get(key)
        if data is None:
            return None
        try:
            result = _Unpickler(data, space).load()
        except (
            pickle.UnpicklingError,
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            EOFError,
        ) as error:
            raise Refused(f"{self.folder} holds what is no result of a search", ANEW) from error
        self.used += 1
        return result

    def put(self, key: bytes, result: object) -> None:
        """Keep a result; saved now and then."""
        sink = io.BytesIO()
        _Pickler(sink, protocol=5).dump(result)
        with self.lock:
            self.fresh[key] = sink.getvalue()
            now = time.perf_counter()
            due = now - self.saved > max(SAVE_EVERY, SHARE * (now - self.begun))
            if due or sum(map(len, self.fresh.values())) > LARGE:
                self.save()

    def save(self) -> None:
        """Write what is not saved yet, in one step."""
        if not self.fresh:
            return
        names = [k.hex() for k in self.fresh]
        file = self.folder / f"{NAME}{uuid4().hex[:12]}.parquet"
        columns = {"step": names, "result": list(self.fresh.values())}
        write_table(file, columns, {"signature": self.signature})
        self.known |= self.fresh
        self.fresh = {}
        self.saved = time.perf_counter()

    def load(self) -> None:
        """Read what earlier runs have saved. Refused if that is another search's, or damaged."""
        for file in self._files():
            columns, about = read_table(file, "a search")
            if about.get("signature") != self.signature:
                remedy = f"give another store, or {ANEW}"
                raise Refused(f"{file} holds steps of another exploration", remedy)
            try:
                steps = zip(columns["step"].tolist(), columns["result"].tolist(), strict=True)
                self.known |= {bytes.fromhex(k): bytes(v) for k, v in steps}
            except (LookupError, ValueError, TypeError, AttributeError) as error:
                raise Refused(f"{file} holds no steps of a search", ANEW) from error

    def clear(self) -> None:
        """Remove what earlier runs have saved."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        names = sorted(n for n in recorded(self.folder) if n.startswith(NAME) and Path(n).name == n)
        return [self.folder / n for n in names if (self.folder / n).is_file()]


@contextmanager
def store_of(folder: Path | None, signature: str, resume: bool) -> Iterator[Finished | None]:
    """The store in a folder, if one is named, held for as long as the block runs."""
    with locked(folder):
        if folder is None:
            yield None
            return
        clear_unfinished(folder)
        store = Finished(folder, signature)
        if resume:
            store.load()
        else:
            store.clear()
        try:
            yield store
        finally:
            store.save()
