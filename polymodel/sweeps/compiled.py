"""`compile`: the figures of a spec as a function of its symbols, for optimisers and samplers.

A sweep enumerates a grid; here the points are given, in any order and number. Both evaluate the same closed
forms with the same costs: the points of one call are one axis of the sweep's kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from polymodel.api.evaluation import closed_forms, evaluate
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import tick
from polymodel.integers import TOLD_APART, dtype_of, largest
from polymodel.loading import Spec
from polymodel.objectives import on_sparse_data, unit_of, value
from polymodel.spec.faults import Faults, as_number, not_a_spec, shown, suggestion
from polymodel.sweeps.axes import SymbolAxis, axis_of
from polymodel.sweeps.grid import Grid, SymbolRoles, roles
from polymodel.sweeps.infeasibility import TILES
from polymodel.sweeps.legal import Verdicts
from polymodel.sweeps.metrics import Block, need
from polymodel.sweeps.objectives import BlockCount, BlockFigures, check_objectives, known_objectives
from polymodel.sweeps.plan import values_of
from polymodel.sweeps.rows import Cells, cells, ordered
from polymodel.sweeps.scenario import MappingForms, Variant, template
from polymodel.sweeps.scratch import BlockMemory, ScalarScratch
from polymodel.sweeps.traced import TracedForms
from polymodel.sweeps.values import Number
from polymodel.view.table import frame_column

if TYPE_CHECKING:
    import pandas as pd

    from polymodel.report.closed import SymbolicReport

Array = Any
Points = Any  # a DataFrame, a dict of arrays, or a dict of numbers
FLOATS = ("energy", "latency", "edp", "utilisation")
PIECE = 16384  # points evaluated at once, so that intermediate arrays stay in the cache
NUMBERS = BlockMemory(ScalarScratch)
PLANS = 256  # closed forms that are cached, one for each choice of workload and architecture


def compile(spec: Spec, objectives: Sequence[str] = ()) -> Compiled:
    """Derive the closed forms of a spec's mapping once, and return them as a function of its symbols.

    `compiled(points)` takes any points: a DataFrame with a column per symbol, a dict of arrays, or a dict of
    numbers; other symbols keep their values from the spec. It returns a DataFrame with one row per point, in
    the same order. `objectives`: further columns, named as in a sweep, such as `accesses:DRAM` or `area`.
    Raises SpecError for a wrong spec, a spec without a mapping, an unknown objective, or one on sparse data.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("compile", spec)
    if spec.template is None:
        raise spec.no_mapping()
    none = isinstance(objectives, (list, tuple)) and not objectives
    names = () if none else known_objectives(objectives, spec)
    faults = Faults()
    for name in filter(on_sparse_data, names):
        remedy = "sweep has these: polymodel sweep, or pm.sweep in Python"
        faults.note(Diagnostic(f"{name} is on sparse data", remedy, "objectives", code="unknown-choice"))
    faults.raise_if_any()
    return Compiled(spec, names)


Slopes = Callable[[Mapping[str, Array]], dict[str, Array]]


def slopes(forms: SymbolicReport, objective: str, fixed: Mapping[str, Number | None]) -> Slopes:
    """The derivatives of an objective by its symbols, as a function of their values.

    `fixed`: values of symbols that are not given.
    """
    import sympy

    # a number of whole actions is relaxed to a quotient, like a number of tiles
    expression = sympy.sympify(forms.value(objective)).replace(sympy.ceiling, lambda quotient: quotient)
    names = list(forms.symbols)
    symbols = [forms.symbols[n] for n in names]
    cells = [sympy.diff(expression, s) for s in symbols]
    function = sympy.lambdify(symbols, cells, "numpy")

    def at(columns: Mapping[str, Array]) -> dict[str, Array]:
        values = (np.asarray(columns[n] if n in columns else fixed[n], float) for n in names)
        return {n: v for n, v in zip(names, function(*values), strict=True) if n in columns}

    return at


@dataclass(frozen=True)
class _Plan:
    """The costs of one choice of workload and architecture, for any tile sizes."""

    base: MappingForms
    forms: TracedForms
    variant: Variant
    verdicts: Verdicts

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of its columns of counts."""
        costing = self.variant.costing
        held = (f"working_set:{limit.name}" for limit in costing.limits if not limit.illegal)
        return (*(f"{way}:{component}" for component, way, _ in costing.accesses), *held)


@dataclass(frozen=True, eq=False)
class Compiled:
    """The figures of a spec as a function of its symbols.

    Columns: the symbols of the points; `energy` (J), `latency` (s), `edp` (J s), `utilisation` (1), `reads:X`
    and `writes:X` (bit) of each component that moves data, `working_set:X` (bit) of each memory that holds
    any; those of `objectives`; `legal`, `feasible` and `reason`. Counts are exact; joules and seconds equal
    those of `evaluate` up to the order in which floats are added. A point that is not a legal mapping has no
    figures: they are NaN (None among integers beyond 2^53).

    Closed forms are derived once for each choice of the symbols that change the workload or the architecture;
    tile sizes are evaluated as arrays. The points of a mapping without closed forms are evaluated one by one,
    and `notes` says why.
    """

    spec: Spec
    objectives: tuple[str, ...] = ()
    _plans: dict[object, _Plan | Refused | SpecError] = field(default_factory=dict, repr=False)
    _roles: dict[tuple[str, ...], tuple[Grid, SymbolRoles]] = field(default_factory=dict, repr=False)
    _slopes_of: dict[object, Slopes] = field(default_factory=dict, repr=False)
    _notes: dict[str, None] = field(default_factory=dict, repr=False)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that points may give."""
        return tuple(self.spec.symbols)

    @property
    def open(self) -> tuple[str, ...]:
        """The symbols that points must give: those without a value in the spec."""
        texts = {n for n, t in self.spec.declared.items() if isinstance(t, str)}
        return tuple(n for n, v in self.spec.symbols.items() if v is None and n not in texts)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why points of earlier calls were evaluated one by one, and which counts exceed float64."""
        return tuple(self._notes)

    def __call__(self, points: Points) -> pd.DataFrame:
        """One row per point; `attrs["units"]` has the unit of each figure.

        Raises SpecError for points that lack a symbol, have an unknown one, or are not numbers.
        """
        import pandas as pd

        columns = self.arrays(points)
        result = pd.DataFrame({n: frame_column(v) for n, v in columns.items()})
        if isinstance(points, pd.DataFrame):
            result.index = points.index
        result.attrs["units"] = {n: unit_of(n) for n in result.columns if unit_of(n)}
        return result

    def arrays(self, points: Points) -> dict[str, Array]:
        """The same columns as arrays, without pandas, for inner loops."""
        given, count = self._columns(points)
        result = PointColumns(count)
        for held, places in self._groups(given, count):
            tiles = {n: c[places] for n, c in given.items() if n not in held}
            self._evaluate(held, tiles, places, result)
            tick("evaluating points")
        return {**given, **result.finished()}

    def gradient(self, points: Points, objective: str = "energy") -> dict[str, Array]:
        """Derivatives of an objective by each tile size, at any points (real ones as well).

        They are those of the relaxed forms, `closed_forms(spec, assume="divides")`: numbers of tiles are
        quotients instead of their ceilings, so that a step along the gradient is a guess that `arrays`
        confirms. At a kink of a maximum, the mean of both one-sided derivatives. Raises NotSeparable if there
        are no closed forms, and SpecError as `arrays` does.
        """
        given, count = self._columns(points)
        result = {n: np.zeros(count) for n in self._parts(tuple(given))[1].tiles}
        for held, places in self._groups(given, count):
            tiles = {n: c[places].astype(float) for n, c in given.items() if n not in held}
            for name, values in self._slopes(held, objective)(tiles).items():
                result[name][places] = values
        return result

    def _slopes(self, held: Mapping[str, Number], objective: str) -> Slopes:
        key = ("slopes", objective, *held.items())
        if key not in self._slopes_of:
            if len(self._slopes_of) >= PLANS:
                del self._slopes_of[next(iter(self._slopes_of))]
            bound = self.spec.bind(**held) if held else self.spec
            self._slopes_of[key] = slopes(closed_forms(bound, assume="divides"), objective, bound.symbols)
        return self._slopes_of[key]

    def _columns(self, points: Points) -> tuple[dict[str, Array], int]:
        """The symbols' values, as arrays of equal length, and that length."""
        table = hasattr(points, "columns")
        if not table and not isinstance(points, Mapping):
            remedy = "give a DataFrame, or a dict such as {'TM': [1, 2, 4]}"
            message = f"{shown(points)} has no points"
            raise SpecError([Diagnostic(message, remedy, "points", code="nothing-to-show")])
        names = [str(n) for n in (points.columns if table else points)]
        faults, known = Faults(), self.symbols
        result: dict[str, Array] = {}
        for name in names:
            if name in known:
                with faults.noting():
                    result[name] = _numbers(name, points[name])
            elif not table:  # a table may have other columns, such as the result of an earlier call
                faults.note(
                    Diagnostic(
                        f"unknown symbol {name}",
                        suggestion(name, known, "symbols"),
                        name,
                        code="unknown-name",
                    )
                )
        lacking = [n for n in self.open if n not in names]
        if lacking:
            remedy = "give every point a value of each, e.g. {'TM': [1, 2, 4]}"
            message = f"no values for {', '.join(lacking)}"
            faults.note(Diagnostic(message, remedy, "points", code="missing-value"))
        lengths = {len(c) for c in result.values() if c.ndim}
        if len(lengths) > 1:
            said = ", ".join(f"{n}: {len(c)}" for n, c in result.items() if c.ndim)
            message = f"columns differ in length ({said})"
            faults.note(Diagnostic(message, "give as many values of each", "points", code="shape-mismatch"))
        faults.raise_if_any()
        count = len(points) if table else next(iter(lengths), 1)
        return {n: _repeated(c, count) for n, c in result.items()}, count

    def _parts(self, names: tuple[str, ...]) -> tuple[Grid, SymbolRoles]:
        """The roles of these symbols, with a grid that has only their names."""
        if names not in self._roles:
            grid = Grid(names, tuple((1,) for _ in names))
            self._roles[names] = grid, roles(self.spec, grid)
        return self._roles[names]

    def _groups(self, given: Mapping[str, Array], count: int) -> Iterator[tuple[dict[str, Number], Array]]:
        """Points that share closed forms: values of the symbols that these depend on, and the points'
        positions."""
        parts = self._parts(tuple(given))[1]
        names = [n for n in given if n in parts.blocks or n in parts.arch]
        if not names or not count:
            yield {}, np.arange(count)
            return
        codes = np.stack([np.unique(given[n], return_inverse=True)[1].reshape(-1) for n in names], axis=1)
        _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        which = which.reshape(-1)
        order = np.argsort(which, kind="stable")
        for at, places in zip(
            first.tolist(), np.split(order, np.cumsum(np.bincount(which))[:-1]), strict=True
        ):
            yield {n: given[n][at].item() for n in names}, places

    def _plan(self, held: Mapping[str, Number], tiles: tuple[str, ...]) -> _Plan | Refused | SpecError:
        key = (tuple(held.items()), tiles)
        if key not in self._plans:
            if len(self._plans) >= PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = self._made(held, tiles)
        return self._plans[key]

    def _made(self, held: Mapping[str, Number], tiles: tuple[str, ...]) -> _Plan | Refused | SpecError:
        grid, parts = self._parts(tiles)
        try:
            bound = self.spec.bind(**held) if held else self.spec
            base = template(bound, grid, SymbolRoles((), (), parts.tiles), {})
            rows, variants = base.costed()
        except (Refused, SpecError) as fault:
            return fault
        check_objectives(self.objectives, [v.costing for v in variants])
        verdicts = Verdicts(base.problem, base.varying, base.forms, base.fixed)
        return _Plan(base, TracedForms(rows.forms, rows.scales, values_of(base.fixed)), variants[0], verdicts)

    def _evaluate(
        self, held: Mapping[str, Number], tiles: Mapping[str, Array], places: Array, found: PointColumns
    ) -> None:
        """Write the figures of points that share closed forms to `found`."""
        plan = self._plan(held, tuple(tiles))
        if isinstance(plan, SpecError):
            found.reason[places] = plan.diagnostics[0].message
            return
        refusal = plan if isinstance(plan, Refused) else None
        if not isinstance(plan, Refused):
            try:
                self._from_forms(plan, tiles, places, found)
            except NotSeparable as fault:
                refusal = fault
        if refusal is not None:
            self._notes[f"{refusal.message}: points evaluated one by one"] = None
            self._one_by_one(held, tiles, places, found)

    def _from_forms(
        self, plan: _Plan, tiles: Mapping[str, Array], places: Array, found: PointColumns
    ) -> None:
        base, count = plan.base, len(places)
        found.declare(plan.counts)
        axis = axis_of(tiles, np.arange(count), base.forms.chains, base.texts, base.fixed, (), base.uses)
        found.reason[places] = TILES
        if not axis.size:
            return
        broken, reasons = plan.verdicts.reasons(axis)
        found.reason[places[axis.ids]] = np.array(["", *reasons], object)[broken] if reasons else ""
        if reasons:
            kept = np.flatnonzero(broken == 0)
            columns = {n: c[kept] for n, c in axis.columns.items()}
            axis = SymbolAxis(axis.names, columns, axis.ids[kept], count, len(kept))
        for begin in range(0, axis.size, PIECE):
            piece = slice(begin, begin + PIECE)
            columns = {n: c[piece] for n, c in axis.columns.items()}
            ids = axis.ids[piece]
            block = _block(plan.forms, columns, len(ids))
            found.put(places[ids], _figures(plan.variant, block, self.objectives))
            tick("evaluating points")

    def _one_by_one(
        self, held: Mapping[str, Number], tiles: Mapping[str, Array], places: Array, found: PointColumns
    ) -> None:
        for i, place in enumerate(places.tolist()):
            tick("evaluating points one by one")
            point = {**held, **{n: c[i].item() for n, c in tiles.items()}}
            try:
                report = evaluate(self.spec.bind(**point))
            except SpecError as fault:
                found.reason[place] = fault.diagnostics[0].message
            except Refused as refusal:
                found.reason[place] = refusal.message
            else:
                row = cells(report.counts, report.costs, ("utilisation", *self.objectives))
                found.put(places[i : i + 1], PointFigures.of(row))


def _numbers(name: str, values: Any) -> Array:
    """A number, or a column of numbers. Raises SpecError for anything else."""
    array = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if array.ndim > 1:
        what = f"symbol {name}: an array of {array.ndim} dimensions"
        raise SpecError([Diagnostic(what, "give one number per point", name, code="wrong-type")])
    if array.dtype.kind in "iu" or (array.dtype.kind == "f" and not np.isnan(array).any()):
        return array
    numbers = [as_number(v) for v in array.reshape(-1).tolist()]
    wrong = [v for v, n in zip(array.reshape(-1).tolist(), numbers, strict=True) if n is None or n != n]
    if wrong:
        what = f"symbol {name}: {shown(wrong[0])} is not a number"
        raise SpecError([Diagnostic(what, "give one number per point", name, code="not-a-number")])
    return np.array(numbers, dtype=None if numbers else np.int64).reshape(array.shape)


def _repeated(values: Array, count: int) -> Array:
    """A column, or one number for all points."""
    if values.ndim:
        return values
    return values.reshape(1) if count == 1 else np.broadcast_to(values, (count,))


@dataclass(frozen=True)
class PointFigures:
    """Figures of some points, whether each is legal and feasible, and if not why."""

    columns: Mapping[str, Array]
    legal: Array
    fits: Array
    reason: Array

    @staticmethod
    def of(row: Cells) -> PointFigures:
        """Those of one point that was evaluated by itself."""
        fits, reason = np.array([row["feasible"]]), np.array([row["reason"]], object)
        others = {n: v for n, v in row.items() if n not in ("feasible", "reason")}
        floats = {n for n, v in others.items() if n in FLOATS or isinstance(v, float)}
        columns = {n: np.array([v], float if n in floats else dtype_of(abs(v))) for n, v in others.items()}
        return PointFigures(columns, np.ones(1, bool), fits, reason)


def _figures(variant: Variant, block: Block, objectives: Sequence[str]) -> PointFigures:
    found = variant.evaluator(block)
    costing, size = variant.costing, block.size
    figures = BlockFigures(found, block, costing)
    columns = {n: _flat(value(n, figures).array, size) for n in ("energy", "latency", "edp", "utilisation")}
    for component, way, linear in costing.accesses:
        columns[f"{way}:{component}"] = _exact_integers(_flat(block.linear(linear), size))
    legal, fitting, reason = np.ones(size, bool), np.ones(size, bool), np.full(size, "", object)
    for limit in costing.limits:
        needed = _flat(need(limit.phases, block), size)
        if not limit.illegal:
            columns[f"working_set:{limit.name}"] = _exact_integers(needed)
        if math.isinf(limit.have):
            continue
        broken = needed > math.floor(limit.have)
        if broken.any():
            again = broken & ~fitting
            reason[again] += f"; {limit.reason}"
            reason[broken & fitting] = limit.reason
            fitting &= ~broken
            if limit.illegal:
                legal &= ~broken
    for name in (n for n in objectives if n not in columns):
        other = value(name, figures)
        values = _flat(other.array, size)
        columns[name] = _exact_integers(values) if isinstance(other, BlockCount) else values
    return PointFigures(columns, legal, fitting, reason)


def _flat(values: Array, size: int) -> Array:
    """One value per point, from an array [left, right] of which one side is 1."""
    if isinstance(values, int):  # NumPy takes some for unsigned, and turns mixtures into floats
        values = np.array(values, dtype_of(abs(values)))
    flat = np.asarray(values).reshape(-1)
    return flat if flat.size == size else np.broadcast_to(flat, (size,))


def _exact_integers(values: Array) -> Array:
    """A count, held in float64 only if that is exact, as integers."""
    return values.astype(np.int64) if values.dtype.kind == "f" else values


class PointColumns:
    """The columns of a call, filled some points at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: dict[str, Array] = {n: np.zeros(count) for n in FLOATS}
        self.legal, self.feasible = np.zeros(count, bool), np.zeros(count, bool)
        self.reason = np.full(count, "", object)

    def declare(self, names: Iterable[str]) -> None:
        """Add columns of counts, which exist even if no point has any."""
        for name in names:
            self.found.setdefault(name, np.zeros(self.count, np.int64))

    def put(self, places: Array, figures: PointFigures) -> None:
        """Set the figures of some points; missing columns are 0 there."""
        ends = int(places[0]), int(places[-1]) + 1
        if ends[1] - ends[0] == len(places):  # consecutive positions: a slice is faster
            places = slice(*ends)
        self.legal[places], self.reason[places] = figures.legal, figures.reason
        self.feasible[places] = figures.legal & figures.fits
        for name, values in figures.columns.items():
            now = self.found.get(name)
            if now is None:
                now = np.zeros(self.count, values.dtype)
            elif now.dtype != values.dtype:
                now = now.astype(np.promote_types(now.dtype, values.dtype))
            now[places] = values
            self.found[name] = now

    def finished(self) -> dict[str, Array]:
        """All columns in the order of a sweep's, with gaps at points that are not mappings."""
        gaps = np.flatnonzero(~self.legal)
        columns = {n: _gapped(self.found[n], gaps) for n in ordered(tuple(self.found)) if n in self.found}
        return {**columns, "legal": self.legal, "feasible": self.feasible, "reason": self.reason}


def _gapped(values: Array, gaps: Array) -> Array:
    """A column with NaN at the gaps, or None if its integers exceed float64."""
    if not len(gaps):
        return values
    if values.dtype.kind == "f" or largest(values) < TOLD_APART:
        values = values.astype(np.float64)
        values[gaps] = np.nan
    else:
        values = values.astype(object)
        values[gaps] = None
    return values


def _block(forms: TracedForms, columns: Mapping[str, Array], count: int) -> PointBlock:
    """The rows of some points."""
    if count == 1:
        return PointBlock(forms.at({n: int(columns[n][0]) for n in forms.symbols}), 1)
    return PointBlock(forms.arrays(columns, count), count)


class PointBlock(Block):
    """Rows whose values are already computed: an array over points, or one number, each."""

    def __init__(self, values: Sequence[Array], count: int) -> None:
        super().__init__((), (), slice(0, count), slice(0, 1), NUMBERS if count == 1 else None)
        self.values, self.points = values, count

    @property
    def size(self) -> int:
        return self.points

    def row(self, index: int) -> Array:
        return self.values[index] if self.points == 1 else self.values[index][:, None]

    def bound(self, index: int, scale: int) -> int:
        value = self.values[index]
        most: int = value if self.points == 1 else largest(value)
        return abs(most * scale)

    def floats(self, index: int) -> Array:
        value = self.row(index)
        return float(value) if self.points == 1 else value.astype(np.float64)
