"""Time limit, progress report and work counts of a search, and the store of its finished steps."""

from __future__ import annotations

import ctypes
import hashlib
import io
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import numpy as np
from threadpoolctl import threadpool_limits

from polymodel.errors import LimitReached, MemoryUp, Refused
from polymodel.governor import LOOK, Crew, crowded, until
from polymodel.mapper.aims import LeastCosts
from polymodel.mapper.records import Progress, Request, SearchStage, TooManyChains
from polymodel.spec.files import clear_unfinished, recorded
from polymodel.stores.store import ANEW, locked, read_table, write_table

# The store of finished steps: a search that was interrupted resumes from their stored results. The key of a
# step is a fingerprint of everything that its result depends on, so that a stored result equals the one
# that the step would compute, and a resumed search gives the answer of an uninterrupted one.

SAVE_EVERY, SHARE = 2.0, 0.02  # seconds between writes, or this share of the elapsed time if longer
LARGE = 2**26  # bytes of unsaved results that trigger a write
NAME = "found-"
# The only classes and functions that a stored result may name: the unpickler refuses all others.
_ARRAYS = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric")
_KNOWN = {
    "numpy": {"ndarray", "dtype"},
    **{module: {"_reconstruct", "_frombuffer", "scalar"} for module in _ARRAYS},
    "builtins": {"frozenset", "set"},
    "polymodel.mapper.pmappings": {"Pmappings"},
    "polymodel.mapper.regions": {"InnerPoints"},
    "polymodel.mapper.templates": {"Template", "Sharing", "TemplateNode", "ArrayResidency"},
    "polymodel.mapper.join": {"States", "JoinStructure", "Live", "StateSource"},
    "polymodel.mapper.lower_bounds": {"Floors"},
}


def fingerprint(*parts: object) -> bytes:
    """Hash of plain data, arrays and dataclasses; the same in every process.

    Raises TypeError for other types.
    """
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
        """Replace an Einsum by a name: every result refers to one, and the process that reads the result
        already has it."""
        return "space" if type(item).__name__ == "EinsumSpace" else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, space: object) -> None:
        super().__init__(io.BytesIO(data))
        self.space = space

    def persistent_load(self, name: object) -> object:
        return self.space

    def find_class(self, module: str, name: str) -> Any:
        if name not in _KNOWN.get(module, ()):
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a result")
        return super().find_class(module, name)


@dataclass
class Finished:
    """The store of one search: results that were read (`known`) and results not written yet (`fresh`)."""

    folder: Path
    signature: str
    known: dict[bytes, bytes] = field(default_factory=dict)
    fresh: dict[bytes, bytes] = field(default_factory=dict)
    begun: float = field(default_factory=time.perf_counter)
    saved: float = field(default_factory=time.perf_counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    used: int = 0

    def get(self, key: bytes, space: object) -> Any:
        """The stored result of a step and the work counts of that step; None if it is not stored.

        Raises Refused if the stored bytes are damaged.
        """
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
            message = f"{self.folder} holds what is not a result of a search"
            raise Refused(message, ANEW, code="damaged-file") from error
        self.used += 1
        return result

    def put(self, key: bytes, result: object) -> None:
        """Keep a result; write all unsaved results when a write is due."""
        sink = io.BytesIO()
        _Pickler(sink, protocol=5).dump(result)
        with self.lock:
            self.fresh[key] = sink.getvalue()
            now = time.perf_counter()
            due = now - self.saved > max(SAVE_EVERY, SHARE * (now - self.begun))
            if due or sum(map(len, self.fresh.values())) > LARGE:
                self.save()

    def save(self) -> None:
        """Write all unsaved results as one new file."""
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
        """Read the results of earlier runs.

        Raises Refused if they belong to another search or are damaged.
        """
        for file in self._files():
            columns, about = read_table(file, "a search")
            if about.get("signature") != self.signature:
                remedy = f"give another store, or {ANEW}"
                raise Refused(f"{file} holds steps of another exploration", remedy, code="store-mismatch")
            try:
                steps = zip(columns["step"].tolist(), columns["result"].tolist(), strict=True)
                self.known |= {bytes.fromhex(k): bytes(v) for k, v in steps}
            except (LookupError, ValueError, TypeError, AttributeError) as error:
                raise Refused(f"{file} holds no steps of a search", ANEW, code="damaged-file") from error

    def clear(self) -> None:
        """Delete the files of earlier runs."""
        for file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        names = sorted(n for n in recorded(self.folder) if n.startswith(NAME) and Path(n).name == n)
        return [self.folder / n for n in names if (self.folder / n).is_file()]


@contextmanager
def store_of(folder: Path | None, signature: str, resume: bool) -> Iterator[Finished | None]:
    """The store in `folder`, locked while the block runs; None if there is no folder."""
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


# Work counts and the time limit. Every long step of a search checks the time regularly; a step that does
# not check in time, or that runs out of memory, is interrupted.

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
REPORT_EVERY = 0.5  # seconds between two progress reports
GRACE = 1.0  # seconds beyond the limit for completing one whole mapping, or the share below if that is more
GRACE_SHARE = 0.1


EVALUATION = 0.1  # share of a time limit that is kept for evaluating the mappings found
ANSWER = 0.15  # seconds that evaluating and reporting one answer takes


def time_of_search(limit: float) -> float | None:
    """Return the seconds of an exploration's limit that the search itself may use (None: no limit).

    The rest is for evaluating the answer, which takes longer if other processes use the processors.
    """
    if limit == inf:
        return None
    return limit - max(EVALUATION * limit, min(ANSWER * crowded(), limit / 2))


class Late(Exception):
    """The time limit of a search has passed; caught inside the search."""


CUT = (Late, LimitReached, MemoryError, TooManyChains)  # exceptions that interrupt a step


def always() -> bool:
    """Return True: the time check of a search without a limit."""
    return True


def without_end() -> float:
    """Return infinity: the remaining seconds of a search without a limit."""
    return inf


def ignored(error: BaseException) -> None:
    """Ignores an interrupted step."""


@dataclass
class SearchTally:
    """How much a step examined, and the time limit that it checks.

    `has_time`: whether there is time left; `ended`: called with the exception that interrupted a step which
    continues with a partial result; `finished`: the store of finished steps; `crew`: the worker processes
    that share the steps; `left`: remaining seconds, which bound the work of each worker.
    """

    templates: int = 0
    points: int = 0
    kept: int = 0
    too_large: int = 0
    has_time: Callable[[], bool] = field(default=always, repr=False, compare=False)
    ended: Callable[[BaseException], None] = field(default=ignored, repr=False, compare=False)
    finished: Finished | None = field(default=None, repr=False, compare=False)
    crew: Crew | None = field(default=None, repr=False, compare=False)
    left: Callable[[], float] = field(default=without_end, repr=False, compare=False)

    @property
    def counts(self) -> tuple[int, ...]:
        return self.templates, self.points, self.kept, self.too_large

    def add(self, counts: Sequence[int]) -> None:
        """Add the counts of a stored step."""
        templates, points, kept, too_large = counts
        self.templates += templates
        self.points += points
        self.kept += kept
        self.too_large += too_large

    def ask(self) -> None:
        """Raises Late once the time limit has passed."""
        if not self.has_time():
            raise Late


@dataclass
class Tallies:
    """The work counts and the seconds of each step of a search, by the step's name."""

    fresh: Callable[[], SearchTally]
    known: dict[str, tuple[SearchTally, float]] = field(default_factory=dict)

    @contextmanager
    def counted(self, of: str) -> Iterator[SearchTally]:
        """Count the work and time of a step, added to those of earlier runs of the step."""
        tally, seconds = self.known.get(of) or (self.fresh(), 0.0)
        begun = time.perf_counter()
        yield tally
        self.known[of] = tally, seconds + time.perf_counter() - begun

    def records(self) -> tuple[SearchStage, ...]:
        return tuple(
            SearchStage(of, t.templates, t.points, t.kept, t.too_large, seconds)
            for of, (t, seconds) in self.known.items()
        )


@dataclass
class Watch:
    """Time limit and progress report of one search. A part of a step reports through `outer`."""

    request: Request
    begun: float
    total: int
    done: int = 0
    late: bool = False
    memory: bool = False  # whether memory ended it
    too_many: TooManyChains | None = None  # what else ended it
    end: float | None = None
    outer: Watch | None = None
    at: str = ""
    best: float | None = None
    last_report: float = 0.0
    tallies: list[SearchTally] = field(default_factory=list)
    least: LeastCosts = field(default_factory=LeastCosts)

    def __post_init__(self) -> None:
        limit = self.request.time_limit
        self.end = None if limit is None else self.begun + limit

    def has_time(self) -> bool:
        if self.end is not None and time.perf_counter() > self.end:
            self.late = True
        if self.request.stop is not None and self.request.stop():
            self.late = True
        reporter = self.outer or self
        if time.perf_counter() - reporter.last_report > REPORT_EVERY:
            reporter.report()
        return not self.late

    def left(self) -> float:
        """Seconds until the limit."""
        return inf if self.end is None else max(self.end - time.perf_counter(), 0.0)

    def ended(self, error: BaseException) -> None:
        """Note that a step was interrupted: the search ends with the results so far."""
        self.late = True
        self.memory = self.memory or isinstance(error, (MemoryUp, MemoryError))
        if isinstance(error, TooManyChains):
            self.too_many = error

    def step(self, work: Callable[[], T]) -> T | None:
        """Run a step of the search. None if time or memory ran out before it was done."""
        end = inf if self.end is None else time.monotonic() + self.end - time.perf_counter()
        try:
            with until(end):
                return work()
        except CUT as error:
            self.ended(error)
            return None

    def silent(self) -> Watch:
        """Return the same time limit for a part of a step, which reports through this one and counts no
        steps."""
        other = Watch(replace(self.request, progress=None), self.begun, 1, outer=self.outer or self)
        other.least = self.least
        return other

    def grace(self) -> Watch:
        """Return a time limit slightly beyond this one, for completing a mapping.

        If the search was stopped before its limit, the additional time starts now.
        """
        other = Watch(replace(self.request, stop=None, progress=None), self.begun, 1)
        limit, now = self.request.time_limit, time.perf_counter()
        by_limit = inf if limit is None else self.begun + limit + max(GRACE, GRACE_SHARE * limit)
        other.end = min(now + GRACE, by_limit) if limit is None or now < self.begun + limit else by_limit
        return other

    def share(self, part: float) -> Callable[[], bool]:
        """Return a time check that ends after this share of the limit from now, or at the limit."""
        limit = self.request.time_limit
        end = None if limit is None else time.perf_counter() + part * limit
        return lambda: self.has_time() and (end is None or time.perf_counter() < end)

    def tally(self, has_time: Callable[[], bool] | None = None) -> SearchTally:
        """Return a new tally, whose points are part of the progress report."""
        tally = SearchTally(
            has_time=has_time or self.has_time, ended=self.ended, finished=self.request.finished,
            crew=self.request.crew, left=self.left,
        )  # fmt: skip
        (self.outer or self).tallies.append(tally)
        return tally

    def begin_step(self, at: str) -> None:
        """Report that the search now works on `at`."""
        reporter = self.outer or self
        reporter.at = at if self.outer is None else f"first guess, {at}"
        reporter.report()

    def improve(self, best: float | None) -> None:
        """Note the value of the first objective of a whole mapping, if it is the best so far."""
        reporter = self.outer or self
        if best is not None and (reporter.best is None or best < reporter.best):
            reporter.best = best

    def finish_step(self, of: str, best: float | None = None) -> None:
        """Report that a step is done. If there are more steps than expected, the total grows with them."""
        self.done += 1
        if self.done > self.total:
            self.total = self.done + 1
        self.at = of
        self.improve(best)
        self.report()

    def report(self) -> None:
        """Send a progress report."""
        self.last_report = time.perf_counter()
        if self.request.progress is not None:
            looked = sum(t.points for t in self.tallies)
            bound = self.least.of(self.request.objectives[0])
            limit = self.request.time_limit
            spent = (self.last_report - self.begun) / limit if limit else 0.0
            self.request.progress(Progress(self.done, self.total, self.at, self.best, looked, bound, spent))


def once(
    tally: SearchTally,
    parts: Callable[[], tuple[object, ...]],
    work: Callable[[], T],
    whole: Callable[[T], bool],
    space: object = None,
) -> T:
    """Return the result of `work`, from the store if the step is stored there.

    `parts`: everything that the result depends on. The result is stored if it is `whole`, that is, if the
    time limit did not interrupt it.
    """
    if tally.finished is None:
        return work()
    step = StoredStep(tally, fingerprint(*parts()))
    if step.load(space):
        found: T = step.result
        return found
    before = tally.counts
    found = work()
    if whole(found):
        step.save(found, [b - a for a, b in zip(before, tally.counts, strict=True)])
    return found


@dataclass
class StoredStep:
    """A step of a search and its key in the store, if there is a store.

    `load` returns whether the step is stored, and sets `result`.
    """

    tally: SearchTally
    key: bytes
    result: Any = None

    def load(self, space: object) -> bool:
        store = self.tally.finished
        known = None if store is None else store.get(self.key, space)
        if known is None:
            return False
        self.result, counts = known
        self.tally.add(counts)
        return True

    def save(self, found: object, counts: Sequence[int]) -> None:
        if self.tally.finished is not None:
            self.tally.finished.put(self.key, (_lean(found), tuple(counts)))


# Parts of a step run one after another here, or in parallel on worker processes, with the same results.

C = TypeVar("C")
PARTS = 4  # parts per worker, since parts take unequal times


def runs_of(count: int, tally: SearchTally) -> list[range]:
    """Split the numbers below `count` into ranges, one for each part that runs in parallel."""
    if tally.crew is None:
        return [range(count)] if count else []
    size = max(1, -(-count // (PARTS * tally.crew.count)))
    return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


def each_part(
    action: Callable[[C, S, SearchTally], T], common: C, parts: Sequence[S], tally: SearchTally
) -> Iterator[T]:
    """Yield `action(common, part, tally)` for each part, in order.

    Raises Late once the time limit has passed.
    """
    if tally.crew is None:
        for part in parts:
            yield action(common, part, tally)
        return
    several = tally.crew.each(_counted, (action, common), ((p, tally.left()) for p in parts), tally.ask)
    for result, counts in several:
        tally.add(counts)
        yield result


def _counted(
    given: tuple[Callable[[C, S, SearchTally], T], C], item: tuple[S, float]
) -> tuple[T, tuple[int, ...]]:
    """On a worker: the result of one part within `seconds`, and its work counts."""
    (action, common), (part, seconds) = given, item
    end = time.monotonic() + seconds
    tally = SearchTally(has_time=lambda: time.monotonic() <= end)
    with threadpool_limits(1, "blas"):
        return action(common, part, tally), tally.counts


def _lean(result: Any) -> Any:
    """Return the result without regions that contain no point, and without the caches of regions."""
    if isinstance(result, tuple) and not is_dataclass(result):
        return tuple(map(_lean, result))
    if type(result).__name__ != "Pmappings":
        return result
    used, lower = np.unique(result.lower[result.lower >= 0], return_inverse=True)
    regions = tuple(replace(result.regions[int(i)], fitting={}, compared=[]) for i in used)
    numbers = result.lower.copy()
    numbers[numbers >= 0] = lower
    return replace(result, regions=regions, lower=numbers)


# Threads of a search.


class Broken(BaseException):
    """Raised in a thread whose result is no longer needed."""


class Threads(ThreadPoolExecutor):
    """Threads that end with their `with` block: an exception that ends it interrupts them at the next
    instruction of the interpreter. A call into a library runs to its end."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.busy: set[int] = set()
        self.guard = threading.Lock()
        self.broken = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def run() -> T:
            with self.guard:
                if self.broken:
                    raise Broken
                self.busy.add(threading.get_ident())
            try:
                return fn(*args, **kwargs)
            finally:
                with self.guard:
                    self.busy.discard(threading.get_ident())

        return super().submit(run)

    def each(self, action: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """The results of the action for each item, in order. Unlike `map` it waits in small steps, so that
        signals are handled while it waits."""
        for run in [self.submit(action, item) for item in items]:
            while not wait([run], LOOK).done:
                pass
            yield run.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            with self.guard:
                self.broken = True
                for number in self.busy:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(number), ctypes.py_object(Broken)
                    )
        self.shutdown(wait=True)
