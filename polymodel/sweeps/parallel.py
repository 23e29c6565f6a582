"""Shares of a sweep in several processes, and the folder with their saved states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import Share, bytes_of, elsewhere, seconds_of
from polymodel.loading import Spec
from polymodel.spec.faults import Faults, Locator, by_name, listed, plainly, shown
from polymodel.spec.section_schemas import SweepSection
from polymodel.stores.store import RELEASE, check_store, folder_of, marked, parts_of
from polymodel.sweeps.choices import choices_of
from polymodel.sweeps.expressions import constraint
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.objectives import known_objectives
from polymodel.sweeps.result_collector import Keep
from polymodel.sweeps.sparse.rows import is_sparse
from polymodel.sweeps.values import Choice, wrong
from polymodel.sweeps.work_units import Snapshot

PRUNE_FROM = 10**6  # points of a block from which on pruning pays off for certain


@dataclass(frozen=True)
class SweepRequest:
    """What is swept and what is kept, with defaults from the spec's `sweep:` section."""

    symbols: Mapping[str, Choice]
    where: tuple[str, ...]
    objectives: tuple[str, ...]
    keep: Keep
    top: int
    prune: bool | None = None
    broken: tuple[str, ...] = ()  # symbols with wrong values, already reported
    device: str = "cpu"

    def prunes(self, points: int) -> bool:
        """True if a block of this many points is pruned."""
        wanted = points >= PRUNE_FROM if self.prune is None else self.prune
        # objectives on sparse data may fall where a dense count rises
        return wanted and self.keep != "all" and not is_sparse(self.objectives)


def read_sweep_request(
    spec: Spec,
    symbols: Mapping[str, Choice] | None,
    where: Sequence[str] | None,
    objectives: Sequence[str] | None,
    keep: Keep | None,
    top: int | None,
    prune: bool | None,
    device: str,
    faults: Faults,
) -> SweepRequest:
    """The valid arguments of `sweep`; those that are None come from the section. Reports faults."""
    plan = spec.raw_sweep or SweepSection()
    (chosen, broken), limits = _symbols(plan, symbols, faults), _limits(plan, where, faults)
    most: int | None = None
    wanted: tuple[str, ...] = ()
    with faults.noting():
        most = _most(plan.top if top is None else top)
    with faults.noting():
        wanted = known_objectives(plan.objectives if objectives is None else objectives, spec)
    return SweepRequest(
        chosen,
        limits,
        wanted,
        plan.keep if keep is None else keep,
        10 if most is None else most,
        prune,
        broken,
        device,
    )


def _symbols(
    plan: SweepSection, symbols: Mapping[str, Choice] | None, faults: Faults
) -> tuple[Mapping[str, Choice], tuple[str, ...]]:
    """The valid symbols, and the names of those whose values are not."""
    given: object = symbols
    chosen: Mapping[str, Choice] = {}
    broken: tuple[str, ...] = ()
    with faults.noting():
        if given is not None and not isinstance(given, Mapping):
            message = f"symbols={shown(given)} has no values"
            raise wrong(message, 'give them by name: {"TM": divisors("m")}', code="missing-value")
        if symbols is not None:
            by_name("symbols", symbols, '{"TM": divisors("m")}')
        every = plan.symbols if symbols is None else symbols
        if not every:
            message = "there is no symbol to sweep"
            raise wrong(message, 'give {"TM": divisors("m")}, or a `sweep:` section', code="missing-argument")
        chosen = choices_of(every, faults)
        broken = tuple(n for n in every if n not in chosen)
    return chosen, broken


def _limits(plan: SweepSection, where: Sequence[str] | None, faults: Faults) -> tuple[str, ...]:
    limits: tuple[object, ...] = ()
    with faults.noting():
        limits = listed("where", plan.where if where is None else where, "['TM <= 64']")
    for i, limit in enumerate(limits):
        if not isinstance(limit, str):
            what = f"{shown(limit)} is not a comparison"
            faults.note(Diagnostic(what, "write e.g. 'TM <= 64'", f"where[{i}]", code="wrong-type"))
            continue
        with faults.noting():
            constraint(limit)
    return tuple(limit for limit in limits if isinstance(limit, str))


def _most(top: int | None) -> int | None:
    most = plainly(top)
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise wrong(f"top={most!r} keeps no point", "use a whole number from 1 on", code="nothing-to-show")
    return most


def options(
    eps: float,
    workers: int,
    asked: SweepRequest,
    resume: object,
    memory: object,
    time_limit: object,
    progress: object,
    store: object,
) -> tuple[float, int]:
    """`eps` and `workers` as plain numbers. Raises SpecError with every value that is out of range."""
    faults = []
    eps, workers = plainly((eps, workers))
    if asked.keep not in ("front", "all", "top"):
        message = f"keep={asked.keep!r} is not known"
        faults.append(Diagnostic(message, "front, top or all", code="unknown-choice"))
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        message = f"workers={workers!r} is not a number of processes"
        faults.append(Diagnostic(message, "use 1 or more", code="not-positive-integer"))
    if asked.device not in ("cpu", "gpu"):
        message = f"device={shown(asked.device)} is not known"
        faults.append(Diagnostic(message, "cpu, or gpu", "device", code="unknown-choice"))
    elif asked.device == "gpu" and workers != 1:
        message = "device='gpu' and several workers: one process drives an accelerator"
        faults.append(Diagnostic(message, "leave out one of the two", code="conflicting-arguments"))
    if isinstance(eps, bool) or not isinstance(eps, (int, float)) or not 0 <= eps < float("inf"):
        remedy = "use 0 for the exact front, 0.01 for one per cent"
        faults.append(Diagnostic(f"eps={eps!r} is not a share", remedy, code="out-of-range"))
    for name, flag in (("resume", resume), ("prune", asked.prune)):
        if flag is not None and not isinstance(flag, bool):
            remedy = "pass True or False"
            message = f"{name}={shown(flag)} is neither True nor False"
            faults.append(Diagnostic(message, remedy, code="wrong-type"))
    faults += _faults(lambda: bytes_of(memory))
    faults += _faults(lambda: seconds_of(time_limit, "time_limit"))
    faults += _faults(lambda: check_store(store))
    if progress is not None and not callable(progress):
        remedy = "pass a function of points done, points in all and seconds"
        faults.append(Diagnostic(f"progress={shown(progress)} is not a function", remedy, code="wrong-type"))
    if faults:
        raise SpecError(faults)
    return eps, workers


def _faults(check: Callable[[], object]) -> tuple[Diagnostic, ...]:
    try:
        check()
    except SpecError as error:
        return error.diagnostics
    return ()


def in_section(faults: Sequence[Diagnostic], locator: Locator, given: bool) -> SpecError:
    """The same faults, with positions in the file for symbols of the `sweep:` section."""
    result = []
    for d in faults:
        head, _, name = d.path.partition(".")
        if head == "symbols" and not given:
            d = replace(d, path=f"sweep.{d.path}", place=locator.place(("sweep", "symbols", name)))
        result.append(d)
    return SpecError(result)


@dataclass(frozen=True)
class WorkerTask:
    """The work of one process: the units with `number % of == share`.

    `limits`: its share of time and memory.
    """

    specs: tuple[Spec, ...]
    asked: SweepRequest
    names: tuple[str, ...]
    memory: str
    share: int
    of: int
    sizes: tuple[int, int]
    file: Path | None
    signature: str
    resume: bool
    eps: float
    limits: Share


def together(
    mine: Callable[[], None], work: Callable[[WorkerTask], Snapshot], others: Sequence[WorkerTask]
) -> Iterator[Snapshot]:
    """Run this process's share alongside those of joblib's workers, and yield their results."""
    if not others:
        mine()
        return
    from joblib import delayed

    # with one job, joblib would run it here, after this process's own share
    count = max(2, len(others))
    with elsewhere(count, (delayed(work)(order) for order in others), "all") as running:
        mine()
        yield from running


def signature(specs: Sequence[Spec], grid: Grid, names: Sequence[str], rest: object) -> str:
    """A fingerprint of everything that the result depends on."""
    parts: list[object] = [RELEASE, grid.names, grid.values, grid.linked, [str(c) for c in grid.where]]
    parts += [tuple(names), rest]
    for s in specs:
        parts += [*parts_of(s)[:3], s.template, *parts_of(s)[3:]]
    return marked(parts)


def files(store: str | Path | None, workers: int) -> list[Path | None]:
    """The file in which each process saves its state."""
    if store is None:
        return [None] * workers
    place = folder_of(store)
    return [place / f"state-{i}-of-{workers}.parquet" for i in range(workers)]


def orders_of(
    specs: tuple[Spec, ...],
    grid: Grid,
    asked: SweepRequest,
    names: tuple[str, ...],
    memory: str,
    workers: int,
    sizes: tuple[int, int],
    store: str | Path | None,
    resume: bool,
    eps: float,
    each: Share,
) -> list[WorkerTask]:
    """The tasks of all processes. Raises Refused if point numbers would exceed 62 bits."""
    if grid.size * len(specs) >= 2**62:
        message = f"{len(specs)} mappings of {grid.size} points each"
        raise Refused(message, "sweep fewer mappings at once", code="too-large")
    rest = asked.objectives, asked.keep, asked.top, asked.prune, workers, sizes
    # units of work differ on an accelerator
    about = signature(specs, grid, names, rest if asked.device == "cpu" else (*rest, asked.device))
    return [
        WorkerTask(specs, asked, names, memory, i, workers, sizes, place, about, resume, eps, each)
        for i, place in enumerate(files(store, workers))
    ]
