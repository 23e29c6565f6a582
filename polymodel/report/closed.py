"""The report in closed form: the tables of a report with SymPy expressions as cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from polymodel.analysis.result import Buffet, Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.domain import Domain
from polymodel.analysis.symbolic.forms import ChainSize, Form, HeldBuffet, SymbolicAnalysis, names_in, size_in
from polymodel.analysis.symbolic.region_terms import RegionCount
from polymodel.analysis.symbolic.render import Assume, Renderer
from polymodel.cost.algebra import FORMULAS, ExactCount, Ratio
from polymodel.cost.algebra import value as number_of
from polymodel.cost.costs import CostFigures, closed_costs, in_formulas, objective_value
from polymodel.cost.records import Costs, Counts, row_order
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, Tile
from polymodel.mapping.resolve import ResolvedMapping, bind_tree, unbound_symbols
from polymodel.report.closed_table import MOST, Cell, SymbolicTable, filled
from polymodel.report.formula import factored
from polymodel.report.growth import negative_where
from polymodel.report.minimum import DIVIDING, Minimum, minimum
from polymodel.schedule.legality import require_legal
from polymodel.spec.faults import Faults, as_whole, close_to, plainly, shown
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    import sympy
    from matplotlib.axes import Axes

KEY = ("einsum", "component", "tensor")


@dataclass(frozen=True, eq=False)
class SymbolicReport(Answer):
    """Closed forms of a mapping whose tile sizes are symbols. Tables are DataFrames of SymPy expressions.

    `domain`: the conditions under which they hold, e.g. `print(forms.domain)`: tile sizes from 1 to the
    enclosing tile, fanouts with enough instances, satisfied dependences. `assume="divides"` (see `assuming`)
    gives the textbook forms, which hold if also each tile size divides its enclosing one. Units are in the
    column names: bits, elements, joules, seconds. `without_peaks`: why peaks of live elements have no closed
    form; only what depends on them (working sets) is refused.
    """

    problem: Problem
    analysis: SymbolicAnalysis
    domain: Domain
    assume: Assume = None
    values: Mapping[str, int] = field(default_factory=dict)
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)
    without_peaks: NotSeparable | None = field(default=None, repr=False, compare=False)

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.analysis.chains, self.assume)

    @property
    def symbols(self) -> dict[str, sympy.Symbol]:
        """The tile sizes (and extents) that are symbols, by name, as SymPy symbols of the tables.

        They are positive integers, which simplifies the forms; so write `cell.subs(forms.symbols["TM"], 10)`:
        in `cell.subs("TM", 10)` SymPy creates another symbol, and nothing changes. Or see `at`.
        """
        return self.renderer.symbols

    def at(self, **values: int) -> SymbolicReport:
        """The same tables with numbers for some or all symbols: `forms.at(TM=10).accesses`.

        With all of them the cells are the numbers of `evaluate`. Raises SpecError for an unknown symbol, and
        for values outside the `domain`.
        """
        faults = []
        for name, size in values.items():
            if name not in self.analysis.symbols:
                faults.append(self._unknown(name))
            elif (as_whole(size) or 0) < 1:
                message = f"{name} = {size!r} is not a size"
                remedy = "give a whole number from 1 on"
                faults.append(Diagnostic(message, remedy, name, code="not-positive-integer"))
        chosen = {**self.values, **plainly(values)}
        faults = faults or self.domain.faults(chosen)
        if faults:
            raise SpecError(faults)
        self._require_legal(chosen)
        return replace(self, values=chosen)

    def _require_legal(self, chosen: Mapping[str, int]) -> None:
        """Raise SpecError if every symbol of the mapping has a value and the mapping is illegal."""
        sizes = unbound_symbols(self.problem.tree)
        extents = set(self.analysis.symbols) - set(sizes)
        if sizes and not extents and all(s in chosen for s in sizes):
            bound = bind_tree(ResolvedMapping(self.problem.tree), chosen, Faults())
            require_legal(replace(self.problem, tree=bound.tree))

    def _unknown(self, name: str) -> Diagnostic:
        symbols = self.analysis.symbols
        of = (
            f"these closed forms are in {', '.join(symbols)}"
            if symbols
            else "these closed forms have no symbol"
        )
        near = close_to(name, symbols)
        first = "numbers of the architecture and the workload come before"
        remedy = f"{first}: --set {name}=..., spec.bind({name}=...) in Python"
        message = f"unknown symbol {name}: {of}"
        return Diagnostic(message, f"did you mean {near}?" if near else remedy, code="unknown-name")

    def assuming(self, assume: Assume) -> SymbolicReport:
        """The same under an assumption on the tile sizes: `"divides"` or None."""
        _check_assume(assume)
        domain = replace(self.domain, divides=assume == "divides")
        return replace(self, assume=assume, domain=domain)

    def table(  # type: ignore[override]  # its tables have formulas in their cells; `plain` has text
        self, name: str = "", *, live: bool = True
    ) -> SymbolicTable:
        """One table whose cells are rendered on demand; by default the summary. Raises SpecError for an
        unknown name."""
        result: object = super().table(name)
        assert isinstance(result, SymbolicTable)
        return result

    def _formulas(
        self, name: str, columns: tuple[str, ...], rows: Iterable[tuple[Cell, ...]]
    ) -> SymbolicTable:
        return SymbolicTable(name, columns, tuple(rows), self.renderer, self.domain, self.values)

    def plain(self, name: str = "", *, live: bool = True) -> Table:
        """The table with its formulas as text."""
        return self.table(name).shown()

    def _rows_of(self) -> list[tuple[str, Buffet[Form]]]:
        return [(e, b) for e in self.problem.tree.einsums for b in self.analysis.buffets if e in b.einsums]

    def _bits(self, tensor: str) -> int:
        return self.figures.counts.bits(tensor)

    def _stored(self, b: Buffet[Form]) -> HeldBuffet:
        accesses = [a for e in self.problem.cascade.einsums for a in e.accesses if a.tensor == b.tensor]
        scale = accesses[0].backing_scale
        top, bottom = (scale.numerator, scale.denominator) if b.parent is None else (1, 1)
        return HeldBuffet(b.node, b.tensor, b.tile_max, self._bits(b.tensor), top, bottom)

    @declared
    def summary(self) -> SymbolicTable:
        """Operations, seconds and joules per Einsum and in total."""
        columns = ("einsum", "n_instances", "operations", "latency_s", "energy_J")
        rows: list[tuple[Cell, ...]] = []
        for t in self.costs.latency:
            joules = FORMULAS.total(i.energy for i in self.costs.energy if i.einsum == t.einsum)
            rows.append((t.einsum, t.n_instances, t.operations, t.seconds, joules))
        operations: Cell = sum(t.operations for t in self.costs.latency)
        rows.append(("total", None, operations, self.figures.latency, self.figures.energy))
        return self._formulas("summary", columns, rows)

    @declared
    def tiles(self) -> SymbolicTable:
        """Tile sizes, their sums over all stamps, and the number of stamps."""
        columns = (
            *KEY, "node", "reuse", "tile_elements", "tile_bits", "total_elements", "visits", "instances",
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                e, b.component, b.tensor, b.node, b.reuse, b.tile_max, self._stored(b), b.tile_total,
                b.visits, b.instances,
            )
            for e, b in self._rows_of()
        ]  # fmt: skip
        return self._formulas("tiles", columns, rows)

    def _moves(self) -> dict[tuple[str, str, str], list[Form]]:
        result: dict[tuple[str, str, str], list[Form]] = {}
        for t in self.analysis.traffic:
            sums = result.setdefault((t.einsum, t.component, t.tensor), [Form()] * 4)
            added = (
                t.reads_fill + t.reads_drain,
                t.writes_fill + t.writes_drain,
                t.writes_fill,
                t.reads_drain,
            )
            sums[:] = [a + b for a, b in zip(sums, added, strict=True)]
        for p in self.analysis.tolls:
            result[p.einsum, p.component, p.tensor] = [p.down, p.up, Form(), Form()]
        return result

    @declared
    def accesses(self) -> SymbolicTable:
        """Bits read, written, filled and drained by all instances in all executions."""
        names = ("read", "write", "fill", "drain")
        columns = (*KEY, *(f"{n}_bits" for n in names), *(f"{n}_elements" for n in names))
        moves = self._moves()
        order = row_order(self.problem)
        rows: list[tuple[Cell, ...]] = []
        for key in sorted(moves, key=lambda k: order(k[0], k[1])):
            elements = [f * self.problem.cascade[key[0]].n_instances for f in moves[key]]
            rows.append((*key, *(f * self._bits(key[2]) for f in elements), *elements))
        return self._formulas("accesses", columns, rows)

    @declared
    def reuse(self) -> SymbolicTable:
        """Different elements held, bits exchanged with the parent, accesses."""
        columns = (
            *KEY,
            "node",
            "reuse",
            "distinct_elements",
            "moved_bits",
            "access_elements",
            "reuse_factor",
        )
        rows: list[tuple[Cell, ...]] = []
        for e, b in self._rows_of():
            mine = [t for t in self.analysis.traffic if (t.einsum, t.node, t.tensor) == (e, b.node, b.tensor)]
            moved, touched, reads, fills = Form(), Form(), Form(), Form()
            for t in mine:
                reads, fills = reads + t.reads_fill, fills + t.writes_fill
                moved = moved + t.writes_fill + t.reads_drain
                touched = touched + t.reads_fill + t.reads_drain + t.writes_fill + t.writes_drain
            bits = moved * (self._bits(b.tensor) * self.problem.cascade[e].n_instances)
            # Where nothing is filled there is nothing to use again.
            factor = Ratio(ExactCount(reads), ExactCount(fills)) if fills != Form() else None
            rows.append((e, b.component, b.tensor, b.node, b.reuse, b.distinct, bits, touched, factor))
        return self._formulas("reuse", columns, rows)

    @declared
    def working_sets(self) -> SymbolicTable:
        """Peak occupancy of each memory over the phases, by each `measure`."""
        if self.without_peaks is not None:
            raise self.without_peaks
        columns = ("component", "einsum", "measure", "bits", "capacity_bits")
        order = row_order(self.problem)
        held = sorted(
            self.analysis.working_sets, key=lambda w: (*order(w.einsum, w.component)[::-1], w.measure)
        )
        rows: list[tuple[Cell, ...]] = [
            (w.component, w.einsum, w.measure, w.peak, self.problem.hierarchy[w.component].size_bits)
            for w in held
        ]
        return self._formulas("working_sets", columns, rows)

    @cached_property
    def costs(self) -> Costs:
        """Energy, latency, area and needed bits by the rules of an evaluation: `Formula`s for numbers."""
        return closed_costs(self.problem, self.analysis)

    @cached_property
    def figures(self) -> CostFigures:
        """The quantities of which objectives are composed, as formulas."""
        counts = Counts(self.problem, in_formulas(self.analysis))
        return CostFigures(counts, self.costs, FORMULAS, self.without_peaks)

    def value(self, objective: str) -> object:
        """The value of an objective named as in searches (`edp`, `area`, `accesses:DRAM` ...): a SymPy
        expression with common factors extracted, or a number if every symbol has a value. Raises SpecError
        for an unknown name."""
        result: Cell = objective_value(objective, self.problem.hierarchy, self.figures)
        if self.values.keys() >= self.symbols.keys():
            return number_of(result, self.values)
        return factored(filled(result, self.renderer, self.values))

    def listed_formulas(self, name: str, formulas: Mapping[str, object]) -> SymbolicTable:
        """A table of named formulas, such as `{"edp": forms.value("edp")}`: a name and a formula per row."""
        rows = tuple((quantity, formula) for quantity, formula in formulas.items())
        return self._formulas(name, ("quantity", "formula"), rows)  # type: ignore[arg-type]  # SymPy cells stay

    def minimize(
        self, objective: object, held: object, capacity: object, over: Iterable[str] | None = None
    ) -> Minimum:
        """The least value of an objective while another figure is at most a capacity, as a formula.

        `objective`, `held`: names as for `value`, such as `accesses:DRAM` and `working_set:GLB` (bits), or
        SymPy expressions of `symbols`; `capacity`: a number, a name for a symbol, or an expression; `over`:
        the tile sizes to choose, by default all that are symbols. Forms are taken under `assume="divides"`,
        with real tile sizes. Raises Refused where there is no formula, SpecError for unknown names.
        """
        import sympy

        forms = self if self.assume else self.assuming("divides")
        ends = forms._ends()
        asked = list(ends) if over is None else [str(n) for n in over]
        for name in asked:
            if name not in ends:
                message = f"{name} is not a tile size to choose"
                raise SpecError([Diagnostic(message, f"choose of {', '.join(ends)}", code="unknown-name")])
        if isinstance(capacity, str) and capacity in forms.analysis.symbols:
            message = f"{capacity} is a symbol of these closed forms, and no name for the capacity"
            raise SpecError([Diagnostic(message, "take another name", code="name-conflict")])
        size = sympy.Symbol(capacity, positive=True) if isinstance(capacity, str) else capacity
        symbols = forms.symbols
        least, most = (forms.value(f) if isinstance(f, str) else f for f in (objective, held))
        return minimum(least, most, size, {symbols[n]: ends[n] for n in asked})

    def _ends(self) -> dict[str, tuple[sympy.Expr, sympy.Expr]]:
        """Range of each tile size without a value: the tile inside it (or 1), and the one around it."""
        import sympy

        def shown_size(size: ChainSize) -> sympy.Expr:
            return sympy.sympify(size_in(size, {**self.symbols, **self.values}, sympy.Max))

        extents = {s for c in self.analysis.chains for s in names_in(c[:1])}
        result: dict[str, tuple[sympy.Expr, sympy.Expr]] = {}
        for chain in self.analysis.chains:
            sizes = (*map(shown_size, chain), sympy.Integer(1))
            for i, name in enumerate(chain[1:], 1):
                if isinstance(name, str) and name not in extents and name not in self.values:
                    inner, outer = sizes[i + 1], sizes[i - 1]
                    if name in result:
                        inner, outer = sympy.Max(inner, result[name][0]), sympy.Min(outer, result[name][1])
                    result[name] = inner, outer
        return result

    def difference(self, other: SymbolicReport, objective: str) -> sympy.Expr:
        """An objective of this mapping minus that of another; negative where this mapping is better.

        A symbol of the same name has the same value in both. Raises SpecError for an unknown objective.
        """
        import sympy

        return sympy.factor(sympy.sympify(self.value(objective)) - sympy.sympify(other.value(objective)))

    def lower_where(self, other: SymbolicReport, objective: str) -> sympy.Basic:
        """Return where an objective of this mapping is below that of another: a SymPy relation, or true or
        false.

        Symbols are at least 1, and tile sizes at most the tile around them, in both mappings.
        """
        return negative_where(self.difference(other, objective), {**self._limits(), **other._limits()})

    def limit(self, objective: str, symbol: str) -> sympy.Expr:
        """An objective as a symbol grows without bound: oo if the objective also does. Raises SpecError for
        unknown names; Refused for tiles that are rounded up, whose forms `assume="divides"` has without
        rounding."""
        import sympy

        if symbol not in self.symbols:
            raise SpecError([self._unknown(symbol)])
        value, name = sympy.sympify(self.value(objective)), self.symbols[symbol]
        kinds = (sympy.ceiling, sympy.floor, sympy.Piecewise, sympy.Mod, RegionCount)
        rough = [r for r in value.atoms(*kinds) if r.has(name)]
        if rough:
            what = f"{min(map(str, rough), key=len)} has no limit in closed form for large {symbol}"
            raise Refused(what, DIVIDING, code="unsupported-symbol")
        return sympy.limit(value, name, sympy.oo)

    def _limits(self) -> dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]:
        """`_ends` by symbol, outer tiles first."""
        return {self.symbols[n]: ends for n, ends in self._ends().items()}

    @declared
    def latency(self) -> SymbolicTable:
        """Seconds that each component works for each Einsum."""
        columns = (
            "einsum", "component", "read_bits", "write_bits", "operations", "latency_s", "instances_used",
            "instances",
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                t.einsum, t.component, t.read_bits, t.write_bits, t.operations, t.seconds, t.instances,
                t.available,
            )
            for t in self.costs.times
        ]  # fmt: skip
        return self._formulas("latency", columns, rows)

    @declared
    def energy(self) -> SymbolicTable:
        """Joules of every action, and the provenance of each number."""
        columns = (*KEY, "action", "count", "unit", "energy_per_unit_J", "energy_J", "provenance")
        rows: list[tuple[Cell, ...]] = [
            (
                i.einsum, i.component, i.tensor, i.action, i.count, i.unit, i.energy_each, i.energy,
                i.provenance,
            )
            for i in self.costs.energy
        ]  # fmt: skip
        return self._formulas("energy", columns, rows)

    def __repr__(self) -> str:
        names = ", ".join(f"{n}={self.values[n]}" if n in self.values else n for n in self.analysis.symbols)
        return f"SymbolicReport({len(self.problem.cascade)} Einsums, symbols: {names or 'none'})"

    @property
    def title(self) -> str:
        """What is in closed form, and over which symbols."""
        many = len(self.problem.cascade)
        names = (f"{n} = {self.values[n]}" if n in self.values else n for n in self.analysis.symbols)
        over = f"; symbols: {symbols}" if (symbols := ", ".join(names)) else ""
        return f"Closed forms of {many} Einsum{'' if many == 1 else 's'}{over}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The conditions under which the forms hold, and why any is missing."""
        missing = (f"no working sets: {self.without_peaks.message}",) if self.without_peaks else ()
        return (*((f"they hold for {self.domain}",) if self.analysis.symbols else ()), *missing)

    def content(self, live: bool = True) -> list[Block]:
        """The summary, and the conditions under which the forms hold."""
        other = ", ".join(f'.table("{name}")' for name in self.tables[1:])
        summary = Section("", self.table().shown(MOST), indent="")
        rest = Line(f"Other tables: {other}", "small")
        return [Line(self.title), Line(), summary, rest, *notes(self.notes)]

    def plot(self, what: str = "energy", ax: Axes | None = None) -> Axes:
        """A picture of the figures at the values that the symbols have. SpecError unless all have one."""
        from polymodel.view.figures import bar_axes

        summary, rows = self.table(), self.table().at({})
        columns = tuple(Column(n) for n in summary.columns)
        cells = tuple(tuple(r.values()) for r in rows)
        chosen = {"energy": "energy_J", "latency": "latency_s"}.get(what, what)
        return bar_axes(Table("summary", columns, cells), chosen, ax)  # type: ignore[arg-type]  # all are numbers

    def __str__(self) -> str:
        return f"{self!r}\n\n{self.table()!r}\n\nhold for {self.domain}\n"


def symbolic_report(
    problem: Problem, *, tiles: bool = False, ranks: bool = False, assume: Assume = None
) -> SymbolicReport:
    """The report in closed form of a problem whose tile sizes may be symbols.

    `tiles`: each tile size above 1 becomes a symbol of its own (T, rank variable, number from outside in; F:
    of a first tile), even if it is a number. `ranks`: so does each extent (the rank variable in upper case).
    Raises NotSeparable.
    """
    _check_assume(assume)
    chosen = replace(problem, tree=_named(problem.tree)) if tiles else problem
    mixed = _mixed(problem) if ranks else []
    sizes = _extents(problem, chosen.tree) if ranks and not mixed else {}
    try:
        result, without = _formed(chosen, sizes)
    except NotSeparable as refusal:
        raise _advised(refusal, problem) from refusal
    if mixed:
        # A case without any closed form is refused before, with another remedy.
        raise NotSeparable(
            f"{', '.join(mixed)}: extents differ between Einsums, so that one symbol does not stand for them",
            "leave extents numbers: no --ranks, ranks=False in Python",
            code="unsupported-symbol",
        )
    domain = Domain(chosen, result, sizes, assume == "divides")
    reason = without and _advised(without, problem)
    return SymbolicReport(chosen, result, domain, assume, without_peaks=reason)


def _formed(problem: Problem, sizes: Mapping[str, str]) -> tuple[SymbolicAnalysis, NotSeparable | None]:
    """Return the forms, and the refusal of peaks of live elements if only these have no form.

    Nothing else depends on how memories allocate.
    """
    try:
        return closed_counts(problem, ranks=sizes), None
    except NotSeparable as refusal:
        hierarchy = problem.hierarchy
        if all(c.allocation == "tile" for c in hierarchy.components):
            raise
        whole = tuple(replace(c, allocation="tile") for c in hierarchy.components)
        counted = replace(problem, hierarchy=replace(hierarchy, components=whole))
        return closed_counts(counted, ranks=sizes), refusal


def _advised(refusal: NotSeparable, problem: Problem) -> NotSeparable:
    return NotSeparable(refusal.message, _remedy(refusal.remedy, problem), code=refusal.code)


def _check_assume(assume: object) -> None:
    if assume not in ("divides", None):
        what = f"there is no assumption {shown(assume)}"
        remedy = "write assume='divides', or leave it out"
        raise SpecError([Diagnostic(what, remedy, "assume", code="unknown-choice")])


def _remedy(advised: str, problem: Problem) -> str:
    """The remedy of an engine's refusal, for a caller who asked for closed forms and chose no engine."""
    names = sorted({*_symbols_in(problem.tree)})
    values = ", ".join(f'"{n}": ...' for n in names)
    given = f", symbols={{{values}}}" if names else ""
    options = "".join(f" --set {n}=..." for n in names)
    numbers = f"count it in numbers: polymodel evaluate{options}, pm.evaluate(spec{given}) in Python"
    others = [a for a in advised.split(", or ") if a not in ("", "use engine exact", "engine exact")]
    return ", or ".join((*others, numbers))


def _mixed(problem: Problem) -> list[str]:
    """Rank variables whose range differs between the Einsums that have them."""
    ranges: dict[str, set[tuple[int, int]]] = {}
    for e in problem.cascade.einsums:
        for v, bounds in zip(e.rank_variables, e.bounds, strict=True):
            ranges.setdefault(v, set()).add(bounds)
    return sorted(v for v, found in ranges.items() if len(found) > 1)


def _extents(problem: Problem, tree: LoopTree) -> dict[str, str]:
    """A symbol for each extent: the rank variable in upper case, unless another symbol has that name."""
    taken, result = {*_symbols_in(tree)}, {}
    for v in dict.fromkeys(v for e in problem.cascade.einsums for v in e.rank_variables):
        name = v.upper()
        while name in taken:
            name = f"{name}_extent"
        result[v] = name
        taken.add(name)
    return result


def _symbols_in(tree: LoopTree) -> Iterator[str]:
    sizes = (n.sizes for _, n, _ in tree.walk() if isinstance(n, Loop))
    return (s for each in sizes for s in each if isinstance(s, str))


def _named(tree: LoopTree) -> LoopTree:
    """The tree with a symbol for every size above 1 of tiles and first tiles that is a number."""
    used: dict[str, int] = {}
    taken = {*_symbols_in(tree)}

    def named(size: Tile | None, letter: str, loop: Loop) -> Tile | None:
        if not isinstance(size, int) or size == 1:
            return size
        name = f"{letter}{loop.rank_variable.upper()}"
        used[name] = used.get(name, -1) + 1
        while f"{name}{used[name]}" in taken:
            used[name] += 1
        return f"{name}{used[name]}"

    def renamed(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            if isinstance(node, Split):
                node = replace(node, branches=tuple(renamed(b) for b in node.branches))
            elif isinstance(node, Loop):
                first = None if node.initial_tile_shape == node.tile_shape else node.initial_tile_shape
                tile = named(node.tile_shape, "T", node) or node.tile_shape
                node = replace(node, tile_shape=tile, initial_tile_shape=named(first, "F", node))
            result.append(node)
        return tuple(result)

    return replace(tree, nodes=renamed(tree.nodes))


TABLES = tuple(SymbolicReport.declared)
