"""`sweep`: evaluates every point of a grid, and keeps the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import uncut_text
from polymodel.errors import InternalError, NotSeparable, Refused, SpecError, TimeUp
from polymodel.governor import Share, at_work, bytes_of, limits, share, terminable, within
from polymodel.loading import Spec
from polymodel.pareto import Archive
from polymodel.spec.faults import Faults, not_a_spec
from polymodel.spec.files import clear_unfinished
from polymodel.spec.section_schemas import mentions_sparsity
from polymodel.stores.store import locked, spare_others
from polymodel.sweeps.blocks import prepare, run_block
from polymodel.sweeps.boxes import bounded, run_boxes
from polymodel.sweeps.compiled import Compiled, PointColumns, PointFigures
from polymodel.sweeps.grid import Grid, SymbolRoles, make_grid, roles
from polymodel.sweeps.kernel import BLOCK
from polymodel.sweeps.objectives import check_objectives
from polymodel.sweeps.parallel import (
    SweepRequest,
    WorkerTask,
    in_section,
    options,
    orders_of,
    read_sweep_request,
    together,
)
from polymodel.sweeps.pointwise import evaluate_points, point_cells
from polymodel.sweeps.prune import pruned
from polymodel.sweeps.request import MappingLike, swept
from polymodel.sweeps.result import INTERRUPTED, Sweep
from polymodel.sweeps.result_collector import Keep, Outgrown, ResultCollector
from polymodel.sweeps.rows import Cells, Found, exact_cells, table
from polymodel.sweeps.scenario import Scenario, scenario
from polymodel.sweeps.sparse.rows import agree, is_sparse
from polymodel.sweeps.spill import Spill
from polymodel.sweeps.stored import StoredColumns, write_rows
from polymodel.sweeps.values import Choice, Number
from polymodel.sweeps.work_units import Snapshot, Units

Array = Any
Progress = Callable[[int, int, float], None]
ROWS = "rows.parquet"
LINES = 2048  # left combinations prepared at once
EXACT_ROWS = 5000  # kept rows from which on they are evaluated as arrays
ROW = 1000  # bytes of one kept row
KEPT_ROWS = "1GB"  # memory of kept rows by default


def sweep(
    spec: Spec,
    symbols: Mapping[str, Choice] | None = None,
    *,
    mappings: Sequence[MappingLike] | None = None,
    where: Sequence[str] | None = None,
    objectives: Sequence[str] | None = None,
    keep: Keep | None = None,
    eps: float = 0,
    top: int | None = None,
    store: str | Path | None = None,
    resume: bool = True,
    workers: int = 1,
    memory: str | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
    prune: bool | None = None,
    device: str = "cpu",
) -> Sweep:
    """Evaluate every combination of the symbols' values, and keep the best.

    `symbols`: name -> values (a list, a range, `divisors("m")`, `all_sizes("m")`, `powers(2, "m")`) or an
    expression of other symbols. `mappings`: LoopTrees, files or library names, each swept over the same grid.
    `where`: comparisons that points must satisfy. `objectives`: energy, latency, edp, area, utilisation (the
    most is the best), or reads:X, writes:X, accesses:X, working_set:X of a component; with `sparse_` before
    it (not area, utilisation) that on the data that the spec describes, and then sparse tiles decide what
    fits. `keep`: the Pareto `front`, the `top` ones by the first objective, or `all` mappings.
    `progress(done, points, seconds)` reports progress. A point that breaks a dependence, is no mapping for
    another reason, or does not fit is counted under its reason. Kept rows are `evaluate`'s (joules and
    seconds of more than 5,000 up to the order of additions). `eps`: thin the front so that each point left
    out has one within 1 + eps in every objective. `store`: a folder for the state, saved every two seconds,
    and for the kept rows; the same sweep goes on there unless `resume` is False. `workers`: processes.
    `device`: "gpu" evaluates on an accelerator what pruning leaves of large blocks, bit for bit the same;
    `notes` says where not. `memory`: bound of all processes, e.g. "2GB", and of kept rows, at 1 kB each
    (default: 1GB of rows). A front beyond it goes to the store; without a store it is thinned by `eps`;
    without either the sweep stops, keeps what it has and says so (`complete` is False). `time_limit`: seconds
    after which no unit of work is begun. A store goes on from there. `prune`: leave out tile sizes that
    cannot be on a front, and boxes of a large grid where no point can be kept; None: from a million points
    on. They are counted apart. What is left out comes from the spec's `sweep:` section, or is no limit,
    energy and latency, a front. Raises SpecError for wrong input, Refused where a large grid has no forms.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("sweep", spec)
    faults = Faults()
    asked = read_sweep_request(spec, symbols, where, objectives, keep, top, prune, device, faults)
    with faults.noting():
        eps, workers = options(eps, workers, asked, resume, memory, time_limit, progress, store)
    accelerator = _gpu() if device == "gpu" and not faults.found else None
    with limits(memory=None if faults.found else memory):
        specs, grids = swept(spec, mappings, asked, faults)
        if faults.found:
            raise in_section(faults.found, spec.locator, given=symbols is not None)
        names, each = tuple(_names(specs, mappings)), share(workers, time_limit)
        size, grid = memory or KEPT_ROWS, grids[0]
        orders = orders_of(specs, grid, asked, names, size, workers, (LINES, BLOCK), store, resume, eps, each)
        place = Path(store) if store is not None else None
        with terminable(), locked(place):
            result = _search(orders[0], grid, progress, accelerator).run(orders[1:], place)
    return replace(result, notes=(*result.notes, *_request_notes(spec, specs, asked)), eps=eps)


def _gpu() -> Any:
    """The GPU device.

    Called before memory is limited: a device maps more addresses than the memory it takes.
    """
    from polymodel.sweeps.accelerator import gpu  # only accelerators need JAX

    return gpu()


def _request_notes(spec: Spec, specs: Sequence[Spec], asked: SweepRequest) -> tuple[str, ...]:
    """Return notes on requests that may be misunderstood."""
    return (*spec.variable_remarks, *_replaced(spec, specs), *_dense(specs, asked), *_uncut(specs))


def _replaced(spec: Spec, specs: Sequence[Spec]) -> list[str]:
    """A note if the spec's own mapping is not among those that are swept."""
    if spec.template is None or any(s.template == spec.template for s in specs):
        return []
    name = spec.names.get("mapping", "")
    own = f"the spec's own mapping{f', {name},' if name else ''}"
    return [f"{own} was not swept: the mappings given take its place"]


def _dense(specs: Sequence[Spec], asked: SweepRequest) -> list[str]:
    """A note if figures on sparse data are requested, and no spec has zeros."""
    if not is_sparse(asked.objectives) or any(mentions_sparsity(s.raw_workload, s.raw_arch) for s in specs):
        return []
    return ["the spec describes no zeros: sparse figures are the dense ones: give `densities:` or `sparse:`"]


def _uncut(specs: Sequence[Spec]) -> tuple[str, ...]:
    return uncut_text(n for s in specs if s.raw_arch is not None for n in s.raw_arch.nodes)


def _search(order: WorkerTask, grid: Grid, progress: Progress | None, device: Any = None) -> _RunningSweep:
    asked = order.asked
    state = ResultCollector(
        asked.keep, Archive(len(asked.objectives)), asked.top, _limit(order), eps=order.eps
    )
    end = monotonic() + order.limits.seconds
    units = Units(order.share, order.of, order.sizes, end, order.file, order.signature)
    earlier = units.load(len(asked.objectives)) if order.resume else None
    if order.file is not None:
        if not order.resume:
            spare_others(order.file)
        prefix = f"front-{order.share}-of-{order.of}"
        state.spill = Spill(order.file.parent, prefix, order.signature)
        if order.share == 0:  # before the others start
            spare_others(order.file.with_name(ROWS))
            clear_unfinished(order.file.parent)
        state.spill.clear(earlier.parts if earlier is not None else ())
    if earlier is not None:
        state.take(earlier)
    return _RunningSweep(
        order.specs, grid, list(order.names), asked, state, progress, units, order.memory, order.limits,
        device,
    )  # fmt: skip


def _limit(order: WorkerTask) -> int:
    """Rows that one process may keep; the total is divided among processes."""
    of = order.of if order.asked.keep == "front" else 1
    return max(1, int(bytes_of(order.memory)) // (ROW * of))


def _grid(order: WorkerTask) -> Grid:
    return make_grid(order.specs[0], order.asked.symbols, order.asked.where, order.specs)


def work(order: WorkerTask) -> Snapshot:
    """One process's share of a sweep."""
    search = _search(order, _grid(order), None)
    with at_work():
        search.all_units()
    return search.state.snapshot(search.units.seen)


@dataclass
class _RunningSweep:
    """A running sweep. `places`: the block and variant that give the costs of a point; None: `evaluate`."""

    specs: tuple[Spec, ...]
    grid: Grid
    names: list[str]
    asked: SweepRequest
    state: ResultCollector
    progress: Progress | None
    units: Units
    memory: str
    limits: Share
    device: Any = None
    start: float = field(default_factory=perf_counter)
    notes: list[str] = field(default_factory=list)
    places: dict[tuple[object, ...], Found | None] = field(default_factory=dict)
    pruned: int = 0
    skipped: int = 0  # points that are illegal, constrained or pruned, which take no time
    before: int = 0

    def __post_init__(self) -> None:
        self.before = self.state.evaluated

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.asked.objectives

    @property
    def total(self) -> int:
        return self.grid.size * len(self.specs)

    @cached_property
    def parts(self) -> list[SymbolRoles]:
        return [roles(s, self.grid) for s in self.specs]

    def all_units(self) -> None:
        """Do all mappings and blocks, as far as they are this process's."""
        try:
            with within(self.limits.with_tail()):
                for i, part in enumerate(self.parts):
                    for share, given in self.grid.combinations(part.blocks):
                        self.block(i, part, share, given)
        except KeyboardInterrupt:
            self.units.keep()
            raise
        except Outgrown:
            self.state.full = True
            return
        except TimeUp:
            self.state.late = True
            self.units.keep()
            return
        self.units.finish(self.state)

    def run(self, others: Sequence[WorkerTask] = (), store: Path | None = None) -> Sweep:
        """Run this share besides the others, then compute the kept rows."""
        state, complete = self.state, True
        try:
            for found in together(self.all_units, work, others):
                state.bounded = False
                state.take(found)
        except KeyboardInterrupt:
            complete = False
            text = f"{INTERRUPTED} {state.done} of {self.total} points; what was found is kept"
            self.notes.append(text)
        state.bounded = False
        state.gather()
        numbers = state.numbers()
        self._tell(len(numbers))
        columns = self._columns(numbers, store)
        seconds = perf_counter() - self.start
        return Sweep(
            self.specs, self.grid, self.objectives, columns, state.infeasible, self.total, state.evaluated,
            seconds, tuple(self.notes), state.keep, self.pruned + state.passed,
            complete and not state.full and not state.late,
            self.before, state.feasible,
        )  # fmt: skip

    def _tell(self, kept: int) -> None:
        """Add notes on the events of the front."""
        state, whole = self.state, len(self.state.front.ids)
        if state.full:
            self.notes.append(
                f"stopped after {state.done} of {self.total} points: the front outgrew memory={self.memory}; "
                "what was found is kept. Give a store, a larger eps, more memory, or fewer objectives"
            )
        if state.late:
            self.notes.append(
                f"stopped at the time limit after {state.done} of {self.total} points; what was found is kept"
            )
        if state.parts:
            self.notes.append(
                f"the front of {whole} points outgrew memory={self.memory}: {len(state.parts)} parts of it "
                "went to the store"
            )
        if state.thinned:
            self.notes.append(
                f"the front outgrew memory={self.memory} and was thinned: each of {state.thinned} points "
                f"left out on the way has a kept one within a factor of {1 + state.eps:g} in every objective"
            )
        if state.eps and state.keep == "front" and kept < whole:
            self.notes.append(
                f"{kept} of {whole} front points are shown: each other one has one of them within a "
                f"factor of {1 + state.eps:g} in every objective"
            )
        self.notes.extend(state.ties(self.objectives))
        if self._many(kept):
            self.notes.append(
                f"the {kept} kept rows were evaluated as arrays: counts are exact, joules and seconds are "
                "those of `evaluate` up to the order in which floats are added, and a reason names a memory "
                "without bits"
            )

    def _columns(self, numbers: Sequence[int], store: Path | None) -> Mapping[str, Any]:
        """The kept rows; with a store also written there, and only there if they exceed the memory."""
        shown = (*self.grid.names, *(n for n, _ in self.grid.linked))
        step = self.state.limit if store is not None else max(1, len(numbers))
        chunks: Iterator[Mapping[str, Any]]
        if self._many(len(numbers)):
            chunks = (
                self._arrays(np.array(numbers[i : i + step]), shown) for i in range(0, len(numbers), step)
            )
        else:
            chunks = (
                table(self.grid, self.names, ((n, self._cells(n)) for n in numbers[i : i + step]), shown)
                for i in range(0, max(1, len(numbers)), step)
            )
        if store is None:
            return next(chunks)
        file = store / ROWS
        if len(numbers) <= step:
            whole = next(chunks)
            write_rows(file, [whole], kept=True)
            return whole
        write_rows(file, chunks, kept=True)
        return StoredColumns(file)

    def _many(self, kept: int) -> bool:
        """Whether this many rows are evaluated as arrays; figures on sparse data never are."""
        return kept > EXACT_ROWS and not is_sparse(self.objectives)

    def _arrays(self, numbers: Array, shown: Sequence[str]) -> dict[str, Array]:
        """Kept rows as columns, by the compiled forms of each mapping; as those of `table`."""
        which, inside = np.divmod(numbers, self.grid.size)
        symbols = self.grid.columns(inside)
        rows = PointColumns(len(numbers))
        single = np.isin(numbers, list(self.state.rows))  # these rows are evaluated one by one
        for place in np.flatnonzero(single).tolist():
            rows.put(np.array([place]), PointFigures.of(self.state.rows[numbers[place]]))
        for i in np.unique(which).tolist():
            places = np.flatnonzero((which == i) & ~single)
            known = {n: c[places] for n, c in symbols.items() if n in self.specs[i].symbols}
            found = Compiled(self.specs[i], self.objectives).arrays(known) if len(places) else {}
            verdict = [found.pop(n) for n in ("legal", "feasible", "reason") if n in found]
            if verdict:
                if not verdict[0].all():
                    number = numbers[places[np.argmin(verdict[0])]]
                    raise InternalError(f"point {number} is legal in the sweep, but not by itself")
                figures = {n: v for n, v in found.items() if n not in known}
                rows.put(places, PointFigures(figures, *verdict))
        names = np.array(self.names, object)
        first = {"point": numbers, "mapping": names[which], **{n: symbols[n] for n in shown}}
        figures = rows.finished()
        wanted = (n for n in figures if n not in ("utilisation", "legal") or n in self.objectives)
        return first | {n: figures[n] for n in wanted}

    def _cells(self, number: int) -> Cells:
        """A kept row, by the code of `evaluate`."""
        if number in self.state.rows:
            return self.state.rows[number]
        i, inside = divmod(number, self.grid.size)
        part, point = self.parts[i], self.grid.point(inside)
        key = _place(i, part, point)
        if key not in self.places:  # found by an earlier run or another process
            share = sum(self.grid.of(n).index(point[n]) * self.grid.strides[n] for n in part.blocks)
            self._open(i, part, share, {n: point[n] for n in part.blocks}, key)
        place = self.places[key]
        if place is None:
            return point_cells(self.specs[i], self.grid, inside, self.objectives)
        try:
            result = exact_cells(*place, point, self.objectives)
        except NotSeparable:  # not computed by this sweep, such as the peak of an unbounded memory
            return point_cells(self.specs[i], self.grid, inside, self.objectives)
        if is_sparse(self.objectives):
            agree(result, self.state.values(number), self.objectives)
        return result

    def _open(
        self, i: int, part: SymbolRoles, share: int, given: Mapping[str, Number], key: tuple[object, ...]
    ) -> None:
        self.places[key] = None
        try:
            one, sparse = self.specs[i], is_sparse(self.objectives)
            found = scenario(one, self.grid, part, i, self.names[i], share, given, sparse=sparse)
        except Refused:
            return
        for v in found.variants:
            self.places[_place(i, part, {**given, **v.given})] = found, v

    def _mine(self) -> bool:
        return self.units.mine(self.state)

    def report(self) -> None:
        """Report the progress, without skipped points; other processes are assumed to have made equal
        progress."""
        if self.progress is not None:
            of, total = self.units.of, self.total - self.skipped
            done = self.state.done - self.skipped if of == 1 else self.state.evaluated * of
            self.progress(max(0, min(total, done)), total, perf_counter() - self.start)

    def block(self, i: int, part: SymbolRoles, share: int, given: Mapping[str, Any]) -> None:
        """Evaluate one mapping under one choice of the symbols that change its counts."""
        one, grid = self.specs[i], self.grid
        try:
            found = scenario(
                one, grid, part, i, self.names[i], share, given, sparse=is_sparse(self.objectives)
            )
        except SpecError as fault:
            if self.units.mine(self.state):
                _misfit(fault, grid, part, self.state)
            return
        except Refused as reason:
            self._one_by_one(i, part, share, reason)
            return
        check_objectives(self.objectives, [v.costing for v in found.variants])
        used = None
        try:
            if self.asked.prunes(found.points):
                if self.asked.keep == "front":
                    found = pruned(found, self.objectives, grid)
                used = bounded(found, self.objectives)
            prepare(found, self.objectives)
        except NotSeparable as reason:  # no closed form at some tile sizes, for the requested figures
            self._one_by_one(i, part, share, reason)
            return
        self.pruned += found.pruned
        self.skipped += found.skipped
        for v in found.variants:
            self.places[_place(i, part, {**given, **v.given})] = found, v
        if used is not None:
            run_boxes(found, used, self.objectives, grid, self.state, self.units, self.report)
        elif self.device is None or not self._accelerated(found):
            run_block(found, self.objectives, grid, self.state, self.units, self.report)
        if found.legal:
            self.notes += [n for n in found.kernel.notes if n not in self.notes]

    def _accelerated(self, block: Scenario) -> bool:
        """Whether the accelerator evaluated the block."""
        from polymodel.sweeps.accelerator import run_accelerated
        from polymodel.sweeps.staged import Unsuited

        try:
            run_accelerated(
                self.device, block, self.objectives, self.grid, self.state, self.units, self.report
            )
        except Unsuited as reason:
            note = f"the processor, not the accelerator, evaluated points: {reason}"
            self.notes += [note] if note not in self.notes else []
            return False
        return True

    def _one_by_one(self, i: int, part: SymbolRoles, share: int, reason: Refused) -> None:
        """Evaluate the points of a block without closed forms by `evaluate`."""
        rows = evaluate_points(
            self.specs[i], self.grid, i, share, part, self.objectives, reason, self.notes, self._mine
        )
        for number, row in rows:
            self.state.single(number, row, self.objectives)
            self.report()


def _names(specs: Sequence[Spec], given: Sequence[MappingLike] | None) -> list[str]:
    result = []
    for i, one in enumerate(specs):
        asked = given[i] if given is not None else ""
        tree = one.template
        name = str(asked) if isinstance(asked, (str, Path)) and str(asked) else (tree.name if tree else "")
        result.append(name or (f"mapping {i}" if len(specs) > 1 else "mapping"))
    return result


def _place(mapping: int, parts: SymbolRoles, point: Mapping[str, object]) -> tuple[object, ...]:
    return (mapping, *(point[n] for n in (*parts.blocks, *parts.arch)))


def _misfit(fault: SpecError, grid: Grid, parts: SymbolRoles, state: ResultCollector) -> None:
    """Handle a block that is not a legal spec: an error if it is the whole grid, otherwise infeasible
    points."""
    size = 1
    for n in (*parts.arch, *parts.tiles):
        size *= len(grid.of(n))
    if size == grid.size:
        raise fault
    state.done += size
    state.refuse(fault.diagnostics[0].message, size)
