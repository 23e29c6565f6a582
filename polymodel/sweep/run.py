"""`sweep`: every point of a grid, its costs, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from polymodel.errors import Refused, SpecError
from polymodel.loading import Spec
from polymodel.mapping.looptree import LoopTree
from polymodel.spec import MappingSpec
from polymodel.sweep.grid import Grid, Roles, make_grid, roles
from polymodel.sweep.keeper import Keep, Keeper
from polymodel.sweep.kernel import BLOCK
from polymodel.sweep.metrics import Block
from polymodel.sweep.objectives import check_objectives, objective
from polymodel.sweep.parallel import Asked, Order, asked_for, files, keep_rows, signature, together
from polymodel.sweep.pareto import Front
from polymodel.sweep.pointwise import evaluate_points
from polymodel.sweep.prune import pruned
from polymodel.sweep.result import Sweep
from polymodel.sweep.rows import Cells, Found, exact_rows, table
from polymodel.sweep.scenario import Scenario, Variant, scenario
from polymodel.sweep.units import Snapshot, Units
from polymodel.sweep.values import Choice, wrong

Array = Any
Progress = Callable[[int, int, float], None]
MappingLike = LoopTree | MappingSpec | str | Path
TILES = "tile size below 1, not whole, or larger than its enclosing extent"
WHERE = "left out by `where`"
LINES = 2048  # left combinations prepared at once
EXACT_ROWS = 20_000
UNITS = {"energy": "J", "latency": "s", "edp": "J s", "reads": "bit", "writes": "bit"}


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
    memory: str = "1GB",
    progress: Progress | None = None,
    prune: bool | None = None,
) -> Sweep:
    """Evaluate every combination of the symbols' values, and keep the best.

    `symbols`: name -> values (a list, a range, `divisors("m")`, `all_sizes("m")`, `powers(2, "m")`) or an
    expression of other symbols. `mappings`: LoopTrees, files or library names, each swept over the same
    grid. `where`: comparisons that points must satisfy. `objectives`: energy, latency, edp, or reads:X,
    writes:X, accesses:X, working_set:X of a component. `keep`: the Pareto `front`, the `top` ones by the
    first objective, or `all` points with legal tiles. `progress(done, points, seconds)` is called now and
    then. A point that does not fit is counted under its reason. Kept rows are what `evaluate` gives.
    `eps`: thin the front so that each point left out has one within 1 + eps in every objective.
    `prune`: leave out, before axes are combined, tile sizes that cannot be on a front; None: from a million
    points on. Points pruned are counted as such, not under the reasons that they may not fit for.
    What is left out comes from the spec's `sweep:` section, or is no limit, energy and latency, a front.
    Raises SpecError for wrong input, Refused where a large grid has no closed forms.
    """
    asked = asked_for(spec, symbols, where, objectives, keep, top, prune)
    _check_options(eps, workers, asked.keep)
    specs = tuple(spec.with_mapping(m) for m in mappings) if mappings is not None else (spec,)
    if not specs:
        raise wrong("`mappings` is empty", "give at least one, or leave it out")
    grids = [make_grid(s, asked.symbols, asked.where) for s in specs]  # each mapping must know the symbols
    sizes, names = (LINES, BLOCK), tuple(_names(specs, mappings))
    rest = asked.objectives, asked.keep, asked.top, asked.prune, workers, sizes
    about = signature(specs, grids[0], names, rest)
    orders = [
        Order(specs, asked, names, memory, share, workers, sizes, place, about, resume)
        for share, place in enumerate(files(store, workers))
    ]
    search = _search(orders[0], grids[0], progress)
    search.state.eps = eps
    found = search.run(orders[1:])
    if store is not None:
        keep_rows(store, found)
    return found


def _search(order: Order, grid: Grid, progress: Progress | None) -> _Search:
    asked = order.asked
    front = Front(len(asked.objectives))
    state = Keeper(asked.keep, front, asked.top, max(1, _bytes(order.memory) // 1000))
    units = Units(order.share, order.of, order.sizes, order.file, order.signature)
    earlier = units.load() if order.resume else None
    if earlier is not None:
        state.take(earlier)
    return _Search(order.specs, grid, list(order.names), asked, state, progress, units)


def work(order: Order) -> Snapshot:
    """One process's share of a sweep."""
    search = _search(order, make_grid(order.specs[0], order.asked.symbols, order.asked.where), None)
    search.all_units()
    return search.state.snapshot(search.units.seen)


@dataclass
class _Search:
    """One sweep at work. `places`: where the costs of a point come from; `points`: rows that were
    evaluated one by one."""

    specs: tuple[Spec, ...]
    grid: Grid
    names: list[str]
    asked: Asked
    state: Keeper
    progress: Progress | None
    units: Units
    start: float = field(default_factory=perf_counter)
    notes: list[str] = field(default_factory=list)
    places: dict[tuple[object, ...], Found] = field(default_factory=dict)
    points: dict[int, Cells] = field(default_factory=dict)
    pruned: int = 0

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.asked.objectives

    @property
    def total(self) -> int:
        return self.grid.size * len(self.specs)

    @cached_property
    def parts(self) -> list[Roles]:
        return [roles(s, self.grid) for s in self.specs]

    def all_units(self) -> None:
        """All mappings and blocks, as far as they are this process's."""
        try:
            for i, part in enumerate(self.parts):
                for share, given in self.grid.combinations(part.blocks):
                    self.block(i, part, share, given)
        except KeyboardInterrupt:
            self.units.keep()
            raise
        self.units.finish(self.state)

    def run(self, others: Sequence[Order] = ()) -> Sweep:
        """This share beside the others, then the kept rows."""
        try:
            for found in together(self.all_units, work, others):
                self.state.take(found)
        except KeyboardInterrupt:
            self.notes.append(
                f"interrupted after {self.state.done} of {self.total} points; what was found is kept"
            )
        parts = self.parts
        seconds = perf_counter() - self.start
        numbers = self.state.numbers()
        whole = len(self.state.front.ids)
        if self.state.eps and self.state.keep == "front" and len(numbers) < whole:
            self.notes.append(
                f"{len(numbers)} of {whole} front points are shown: each other one has one of them within a "
                f"factor of {1 + self.state.eps:g} in every objective"
            )
        if len(numbers) > EXACT_ROWS:
            self.notes.append(f"{len(numbers)} rows are recomputed one by one")

        def locate(number: int) -> Found:
            i = number // self.grid.size
            return self.places[_place(i, parts[i], self.grid.point(number % self.grid.size))]

        open_ = (n for n in numbers if n not in self.points)
        rows = {**self.points, **dict(exact_rows(self.grid, open_, locate, self.objectives))}
        shown = (*self.grid.names, *(n for n, _ in self.grid.linked))
        columns = table(self.grid, self.names, ((n, rows[n]) for n in numbers), shown)
        state = self.state
        return Sweep(
            self.specs, self.grid, self.objectives, columns, state.infeasible, self.total, state.evaluated,
            seconds, tuple(self.notes), UNITS, state.keep, self.pruned,
        )  # fmt: skip

    def report(self) -> None:
        """Tell how far it is; the other processes are about as far."""
        if self.progress is not None:
            done = min(self.total, self.state.done * self.units.of)
            self.progress(done, self.total, perf_counter() - self.start)

    def block(self, i: int, part: Roles, share: int, given: Mapping[str, Any]) -> None:
        """One mapping under one choice of what changes its counts."""
        one, grid = self.specs[i], self.grid
        try:
            found = scenario(one, grid, part, i, self.names[i], share, given)
        except SpecError as fault:
            if self.units.mine(self.state):
                _misfit(fault, grid, part, self.state)
            return
        except Refused as reason:
            if self.units.file is not None or self.units.of > 1:
                raise Refused(
                    f"{reason.message}; points that are evaluated one by one have no store and no workers",
                    "leave out store and workers",
                ) from reason
            rows = evaluate_points(one, grid, i, share, part, self.objectives, reason, self.notes)
            _take(rows, self.objectives, self.points, self.state)
            return
        check_objectives(self.objectives, [v.costing for v in found.variants])
        if self.asked.prunes(found.points):
            found = pruned(found, self.objectives, grid)
            self.pruned += found.pruned
        for v in found.variants:
            self.places[_place(i, part, {**given, **v.given})] = found, v
        _run(found, self.objectives, grid, self.state, self.units, self.report)
        if found.legal:
            self.notes += [n for n in found.kernel.notes if n not in self.notes]


def _check_options(eps: float, workers: int, keep: str) -> None:
    if keep not in ("front", "all", "top"):
        raise wrong(f"keep={keep!r} is not known", "front, top or all")
    if workers < 1:
        raise wrong(f"workers={workers} is no number of processes", "use 1 or more")
    if not 0 <= eps < float("inf"):
        raise wrong(f"eps={eps} is no share", "use 0 for the exact front, 0.01 for one per cent")


def _bytes(text: str) -> int:
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    head, unit = text.strip()[:-2], text.strip()[-2:].upper()
    if unit not in units or not head.strip().replace(".", "", 1).isdigit():
        raise wrong(f"memory={text!r} is no amount of memory", "write e.g. 500MB or 2GB")
    return int(float(head) * units[unit])


def _names(specs: Sequence[Spec], given: Sequence[MappingLike] | None) -> list[str]:
    found = []
    for i, one in enumerate(specs):
        asked = given[i] if given is not None else ""
        tree = one.template
        name = str(asked) if isinstance(asked, (str, Path)) and str(asked) else (tree.name if tree else "")
        found.append(name or (f"mapping {i}" if len(specs) > 1 else "mapping"))
    return found


def _place(mapping: int, parts: Roles, point: Mapping[str, object]) -> tuple[object, ...]:
    return (mapping, *(point[n] for n in (*parts.blocks, *parts.arch)))


def _misfit(fault: SpecError, grid: Grid, parts: Roles, state: Keeper) -> None:
    """A block that is no legal spec: an error of the caller if it is all there is, else infeasible."""
    size = 1
    for n in (*parts.arch, *parts.tiles):
        size *= len(grid.of(n))
    if size == grid.size:
        raise fault
    state.done += size
    state.refuse(fault.diagnostics[0].message, size)


def _take(
    found: Iterable[tuple[int, Cells]], objectives: Sequence[str], points: dict[int, Cells], state: Keeper
) -> None:
    """Points that were evaluated one by one."""
    for number, row in found:
        state.done += 1
        state.evaluated += "energy" in row
        if not row["feasible"]:
            state.refuse(row["reason"].partition(" need ")[0], 1)
        if state.keep == "all" and "energy" in row:
            points[number] = row
            state.everything(np.array([number]))
        elif row["feasible"]:
            points[number] = row
            state.offer(np.array([[float(row[o])] for o in objectives]), np.array([number]))


def _run(
    block: Scenario,
    objectives: Sequence[str],
    grid: Grid,
    state: Keeper,
    units: Units,
    report: Callable[[], None],
) -> None:
    whole = prod(a.whole for a in block.axes)
    legal = prod(a.legal for a in block.axes)
    n = len(block.variants)
    if units.mine(state):
        state.refuse(TILES, (whole - legal) * n)
        state.refuse(WHERE, (legal - block.legal) * n - block.pruned)
        state.done += (whole - block.legal) * n
    if not block.legal:
        return
    masks = _Masks(block, grid)
    kernel = block.kernel
    tall = max(1, units.sizes[1] // kernel.width)
    lines = max(units.sizes[0], tall)
    for begin in range(0, kernel.height, lines):
        if not units.mine(state):
            continue
        end = min(begin + lines, kernel.height)
        digits = kernel.left_digits(begin, end)
        lefts = kernel.left(digits, end - begin)
        ids = kernel.left_ids(digits, end - begin) + block.first
        for cut, columns in _cuts(end - begin, tall, kernel.width):
            rows = Block(kernel.rows, lefts, cut, columns)
            shape = (cut.stop - cut.start, columns.stop - columns.start)
            for v in block.variants:
                allowed = masks.allowed(v, tuple(d[cut] for d in digits), columns)
                _one(block, v, rows, shape, allowed, objectives, state, (ids[cut], kernel.right_ids[columns]))
            state.done += shape[0] * shape[1] * n
            state.evaluated += shape[0] * shape[1] * n
        report()


def _cuts(height: int, tall: int, width: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, height, tall):
        yield slice(i, min(i + tall, height)), slice(0, width)


class _Masks:
    """`where` constraints that several axes, or the architecture, take part in."""

    def __init__(self, block: Scenario, grid: Grid) -> None:
        self.block = block
        self.where = block.crossing(grid)

    def allowed(self, variant: Variant, digits: tuple[Array, ...], columns: slice) -> Array:
        """True, or a mask that broadcasts to [left, right]."""
        if not self.where:
            return True
        kernel = self.block.kernel
        values: dict[str, Any] = {**self.block.fixed, **variant.given}
        for axis, d in zip(kernel.axes, digits, strict=False):
            values |= {n: c[d][:, None] for n, c in axis.columns.items()}
        for axis, d in zip(kernel.axes[kernel.split :], kernel.right_digits, strict=True):
            values |= {n: c[d[columns]][None, :] for n, c in axis.columns.items()}
        found: Array = True
        for c in self.where:
            found = np.logical_and(found, c.holds(values))
        return found


def _one(
    block: Scenario,
    variant: Variant,
    rows: Block,
    shape: tuple[int, int],
    allowed: Array,
    objectives: Sequence[str],
    state: Keeper,
    ids: tuple[Array, Array],
) -> None:
    found = variant.evaluator(rows)
    values = [np.broadcast_to(objective(o, found, rows, variant.costing), shape) for o in objectives]
    good, legal, left = allowed, allowed, shape[0] * shape[1]
    limits = zip(variant.costing.limits, found.fits, strict=True)
    for reason, illegal, mask in ((WHERE, True, allowed), *((x.reason, x.illegal, f) for x, f in limits)):
        if mask is True:
            continue
        good = mask if good is True else np.logical_and(good, mask)
        legal = good if illegal else legal  # what makes a mapping illegal comes before what does not fit
        now = int(np.count_nonzero(np.broadcast_to(good, shape)))
        state.refuse(reason, left - now)
        left = now
    if state.keep == "all":
        kept = np.flatnonzero(np.broadcast_to(legal, shape))
        state.everything(ids[0][kept // shape[1]] + ids[1][kept % shape[1]] + variant.share)
        return
    if not left:
        return
    hope = state.front.hopeful(values) if state.keep == "front" else True
    if state.keep == "top" and len(state.best) >= state.top:
        hope = values[0] <= state.best[-1]
    chosen = np.flatnonzero(np.broadcast_to(np.logical_and(good, hope), shape))
    if len(chosen):
        i, j = chosen // shape[1], chosen % shape[1]
        state.offer(np.stack([v[i, j] for v in values]), ids[0][i] + ids[1][j] + variant.share)
