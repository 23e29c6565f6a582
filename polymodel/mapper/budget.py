"""How far a search has got: whether it goes on, and the finished steps that a later run takes up."""

from __future__ import annotations

import hashlib
import io
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np
from threadpoolctl import threadpool_limits

from polymodel.errors import LimitReached, MemoryUp, Refused
from polymodel.governor import Crew, crowded, until
from polymodel.mapper.aims import LeastCosts
from polymodel.mapper.records import Progress, Request, SearchStage
from polymodel.spec.files import clear_unfinished, recorded
from polymodel.stores.store import ANEW, locked, read_table, write_table

# Steps of a search that are done, in a folder: a search that was ended goes on with what they gave.
#
# A step is known by a fingerprint of all that its result depends on. So what is taken from the store is what
# the step would give, whatever the run before did, and the answer is that of an undisturbed run.

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
    "polymodel.mapper.templates": {"Template", "Sharing", "TemplateNode"},
    "polymodel.mapper.join": {"States", "JoinStructure", "Live", "StateSource"},
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
            raise pickle.UnpicklingError(f"{module}.{name} is not part of a result")
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
            message = f"{self.folder} holds what is not a result of a search"
            raise Refused(message, ANEW, code="damaged-file") from error
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
                raise Refused(f"{file} holds steps of another exploration", remedy, code="store-mismatch")
            try:
                steps = zip(columns["step"].tolist(), columns["result"].tolist(), strict=True)
                self.known |= {bytes.fromhex(k): bytes(v) for k, v in steps}
            except (LookupError, ValueError, TypeError, AttributeError) as error:
                raise Refused(f"{file} holds no steps of a search", ANEW, code="damaged-file") from error

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


# How much was looked at, and whether to go on: every long step of a search asks, and is broken off where it
# does not ask in time, or memory runs out.

S = TypeVar("S")
T = TypeVar("T")
BEAT = 0.5  # seconds after which the search tells again where it is
GRACE = 1.0  # seconds, or the share below of the limit, to make a whole mapping when time is over
GRACE_SHARE = 0.1


EVALUATION = 0.1  # of a time limit, for the evaluation of what a search has found
ANSWER = 0.15  # seconds for one answer: evaluated, and told


def time_of_search(limit: float) -> float | None:
    """Of a limit of an exploration (s) what the search itself may take: where other processes use the
    processors, the answer takes longer."""
    if limit == inf:
        return None
    return limit - max(EVALUATION * limit, min(ANSWER * crowded(), limit / 2))


class Late(Exception):
    """The time of a search is over; never leaves the search."""


CUT = (Late, LimitReached, MemoryError)  # what ends a step before it is done


def always() -> bool:
    """No limit."""
    return True


def without_end() -> float:
    """No limit of seconds."""
    return inf


def ignored(error: BaseException) -> None:
    """Nobody is told that a step was broken off."""


@dataclass
class SearchTally:
    """How much was looked at; `going_on`: whether there is time for more; `ended` is told what broke off a
    step that goes on with what it has; `finished`: steps done before; `crew`: who shares the steps, each for
    as long as there is time `left` (s)."""

    templates: int = 0
    points: int = 0
    kept: int = 0
    too_large: int = 0
    going_on: Callable[[], bool] = field(default=always, repr=False, compare=False)
    ended: Callable[[BaseException], None] = field(default=ignored, repr=False, compare=False)
    finished: Finished | None = field(default=None, repr=False, compare=False)
    crew: Crew | None = field(default=None, repr=False, compare=False)
    left: Callable[[], float] = field(default=without_end, repr=False, compare=False)

    @property
    def counts(self) -> tuple[int, ...]:
        return self.templates, self.points, self.kept, self.too_large

    def add(self, counts: Sequence[int]) -> None:
        """What a step looked at that was done before."""
        templates, points, kept, too_large = counts
        self.templates += templates
        self.points += points
        self.kept += kept
        self.too_large += too_large

    def ask(self) -> None:
        """Raises Late once time is over."""
        if not self.going_on():
            raise Late


@dataclass
class Tallies:
    """Tallies and seconds of the steps of a search, by name."""

    fresh: Callable[[], SearchTally]
    known: dict[str, tuple[SearchTally, float]] = field(default_factory=dict)

    @contextmanager
    def counted(self, of: str) -> Iterator[SearchTally]:
        """Count what a step looks at, together with what it looked at before."""
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
    """The clock of a search, and what it tells. `outer`: who tells instead, of a part that is not a step."""

    request: Request
    begun: float
    total: int
    done: int = 0
    late: bool = False
    memory: bool = False  # whether memory ended it
    end: float | None = None
    outer: Watch | None = None
    at: str = ""
    best: float | None = None
    told: float = 0.0
    tallies: list[SearchTally] = field(default_factory=list)
    least: LeastCosts = field(default_factory=LeastCosts)

    def __post_init__(self) -> None:
        limit = self.request.time_limit
        self.end = None if limit is None else self.begun + limit

    def going_on(self) -> bool:
        if self.end is not None and time.perf_counter() > self.end:
            self.late = True
        if self.request.stop is not None and self.request.stop():
            self.late = True
        teller = self.outer or self
        if time.perf_counter() - teller.told > BEAT:
            teller.say()
        return not self.late

    def left(self) -> float:
        """Seconds until the limit."""
        return inf if self.end is None else max(self.end - time.perf_counter(), 0.0)

    def ended(self, error: BaseException) -> None:
        """A step was broken off: the search ends with what there is."""
        self.late = True
        self.memory = self.memory or isinstance(error, (MemoryUp, MemoryError))

    def step(self, work: Callable[[], T]) -> T | None:
        """Do a step of the search, or a part of it where time or memory is over meanwhile: None."""
        end = inf if self.end is None else time.monotonic() + self.end - time.perf_counter()
        try:
            with until(end):
                return work()
        except CUT as error:
            self.ended(error)
            return None

    def silent(self) -> Watch:
        """The same clock, whose steps do not count; what it looks at is told all the same."""
        other = Watch(replace(self.request, progress=None), self.begun, 1, outer=self.outer or self)
        other.least = self.least
        return other

    def grace(self) -> Watch:
        """A clock that goes on a little beyond the limit, or from now on if it is not time that is over."""
        other = Watch(replace(self.request, stop=None, progress=None), self.begun, 1)
        limit, now = self.request.time_limit, time.perf_counter()
        by_limit = inf if limit is None else self.begun + limit + max(GRACE, GRACE_SHARE * limit)
        other.end = min(now + GRACE, by_limit) if limit is None or now < self.begun + limit else by_limit
        return other

    def share(self, part: float) -> Callable[[], bool]:
        """Whether there is time left, of this part of the limit from now on."""
        limit = self.request.time_limit
        end = None if limit is None else time.perf_counter() + part * limit
        return lambda: self.going_on() and (end is None or time.perf_counter() < end)

    def tally(self, going_on: Callable[[], bool] | None = None) -> SearchTally:
        """A new tally, which counts to what is told."""
        tally = SearchTally(
            going_on=going_on or self.going_on, ended=self.ended, finished=self.request.finished,
            crew=self.request.crew, left=self.left,
        )  # fmt: skip
        (self.outer or self).tallies.append(tally)
        return tally

    def look(self, at: str) -> None:
        """Tell what is looked at from now on."""
        teller = self.outer or self
        teller.at = at if self.outer is None else f"first guess, {at}"
        teller.say()

    def improve(self, best: float | None) -> None:
        """The best value of the first objective among all whole mappings that are known."""
        teller = self.outer or self
        if best is not None and (teller.best is None or best < teller.best):
            teller.best = best

    def tell(self, of: str, best: float | None = None) -> None:
        """Tell that a step is done. Where there are more than were foreseen, one more is to come."""
        self.done += 1
        if self.done > self.total:
            self.total = self.done + 1
        self.at = of
        self.improve(best)
        self.say()

    def say(self) -> None:
        """Tell where the search stands."""
        self.told = time.perf_counter()
        if self.request.progress is not None:
            looked = sum(t.points for t in self.tallies)
            bound = self.least.of(self.request.objectives[0])
            limit = self.request.time_limit
            spent = (self.told - self.begun) / limit if limit else 0.0
            self.request.progress(Progress(self.done, self.total, self.at, self.best, looked, bound, spent))


def once(
    tally: SearchTally,
    parts: Callable[[], tuple[object, ...]],
    work: Callable[[], T],
    whole: Callable[[T], bool],
    space: object = None,
) -> T:
    """What `work` gives, from the store if it was done before; `parts`: all that it depends on. Kept if it
    is `whole`: time was not over before."""
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
    """A step of a search in the store, if there is one. `load`: whether it was done before, with what
    `result`."""

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


# Parts of a step, one after another here or side by side on a cluster: what each gives is the same.

C = TypeVar("C")
PARTS = 4  # per worker: parts differ in how long they take


def runs_of(count: int, tally: SearchTally) -> list[range]:
    """The numbers below `count` in as many runs as there is work for side by side."""
    if tally.crew is None:
        return [range(count)] if count else []
    size = max(1, -(-count // (PARTS * tally.crew.count)))
    return [range(begin, min(begin + size, count)) for begin in range(0, count, size)]


def each_part(
    action: Callable[[C, S, SearchTally], T], common: C, parts: Sequence[S], tally: SearchTally
) -> Iterator[T]:
    """What `action(common, part, tally)` gives for each part, in order. Raises Late once time is over."""
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
    """On a worker: what a part of a step gives within so many seconds, and how much it looked at."""
    (action, common), (part, seconds) = given, item
    end = time.monotonic() + seconds
    tally = SearchTally(going_on=lambda: time.monotonic() <= end)
    with threadpool_limits(1, "blas"):
        return action(common, part, tally), tally.counts


def _lean(result: Any) -> Any:
    """Without regions that no point lies in, and without what regions remember to be quick."""
    if isinstance(result, tuple) and not is_dataclass(result):
        return tuple(map(_lean, result))
    if type(result).__name__ != "Pmappings":
        return result
    used, lower = np.unique(result.lower[result.lower >= 0], return_inverse=True)
    regions = tuple(replace(result.regions[int(i)], fitting={}, compared=[]) for i in used)
    numbers = result.lower.copy()
    numbers[numbers >= 0] = lower
    return replace(result, regions=regions, lower=numbers)
