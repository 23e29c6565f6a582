"""Two reports side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import fsum
from typing import TYPE_CHECKING

from polymodel.architecture.hierarchy import uncut_text
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.loading.spec import Spec, protected_files
from polymodel.report.evaluated import Evaluated
from polymodel.report.fusion import recompute_factors
from polymodel.report.report import Report
from polymodel.report.tables import says_sparse, total_cycles
from polymodel.view.answer import Answer, Block, Facts, Line, Part, Section, declared, missing_plots, notes
from polymodel.view.files import table_json
from polymodel.view.table import RATIO, Cell, Column, Table, shown

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from polymodel.report.sparse import SparseReport

Sums = dict[str, int | float]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Answer):
    """The same quantities of two reports, one row each.

    Columns: `quantity`, `where` (an Einsum, a component, or `component: tensor`; empty for the whole),
    `unit`, `a`, `b`, `ratio` b/a. `names`: of the two, for pictures.
    """

    rows: Table
    specs: tuple[Spec | None, ...] = ()
    names: tuple[str, str] = ("a", "b")

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written, none of the files that the specs were read from can be overwritten."""
        return protected_files(*self.specs)

    @declared
    def quantities(self) -> Table:
        """One row per quantity of the two reports."""
        return self.rows

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the figures."""
        return self.rows.notes

    @property
    def frame(self) -> pandas.DataFrame:
        """The comparison as a DataFrame; `a` and `b` are floats there, feasible is 1 and not feasible 0."""
        return self.rows.frame().astype({"a": float, "b": float})

    def readable(self, title: str = "") -> Section:
        """Figures with prefixes and units, each row in its own; exact values as tooltips."""
        columns = (*(Column(n) for n in ("quantity", "where", "a", "b")), Column("ratio", RATIO))
        rows = tuple(
            (str(q), str(w), shown(a, Column("a", str(u))), shown(b, Column("b", str(u))), ratio)
            for q, w, u, a, b, ratio in self.rows.rows
        )
        records = self.rows.records()

        def exact(row: int, column: int) -> str:
            name, result = columns[column].name, records[row]
            value = result[name] if name in ("a", "b") else None
            return "" if value is None else f"{value} {result['unit']}".strip()

        return Section(title, Table("compare", columns, rows), exact=exact, indent="")

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Two reports compared"

    def content(self, live: bool = True) -> list[Block]:
        """The rows, and the remarks on them."""
        return [self.readable(), *notes(self.notes)]

    def plot(self, what: str = "", ax: Axes | None = None) -> Axes:
        """A bar per row that differs, from 1 to b/a on a logarithmic scale, the largest differences first.

        `what`: the rows of one quantity, e.g. `energy`. Raises SpecError for an unknown one.
        """
        from polymodel.report.plots_compare import ratio_axes

        return ratio_axes(self.rows, self.names, what, ax)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """The plot, the table, and how it was made."""
        return [*(self._plots() if plots else ()), *super().parts(live, plots, command)]

    def _plots(self) -> Iterator[Part]:
        from polymodel.report.plots_compare import height_of, ratio_bars
        from polymodel.report.search_page import Plot, plotted

        height = height_of(len(ratio_bars(self.rows)[0]))
        return plotted([Plot("b against a", lambda ax: self.plot(ax=ax), 9, height)])

    def __repr__(self) -> str:
        return str(self).rstrip()

    def written(self, a: str, b: str, remarks: Sequence[str], style: str) -> str:
        """The comparison as `csv`, `json`, a page (`html`) or a text (`table`); the last two name a and b."""
        if style == "csv":
            return self.to_csv()
        if style == "json":
            return table_json(self.rows)
        if style == "html":
            from polymodel.view.html import page

            left_out = missing_plots()
            told = [Line(left_out)] if left_out else []
            blocks = [Facts((("a", a), ("b", b))), *notes((*self.notes, *remarks)), *told]
            table = Part("Quantities", [self.readable()], opened=True)
            return page(f"{a} and {b} compared", blocks, [*(() if left_out else self._plots()), table])
        return f"a: {a}\nb: {b}\n\n{self}" + "".join(f"{n}\n" for n in remarks)


def comparison(a: Evaluated, b: Evaluated, names: tuple[str, str] | None = None) -> Comparison:
    """Two reports side by side: see `polymodel.compare`."""
    rows: list[tuple[Cell, ...]] = []

    def add(quantity: str, where: str, unit: str, left: Cell, right: Cell) -> None:
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (left, right))
        ratio = float(right) / float(left) if numbers and left and right is not None else None
        rows.append((quantity, where, unit, left, right, ratio))

    add("feasible", "", "", a.feasible, b.feasible)
    add("latency", "", "s", a.total_latency, b.total_latency)
    cycles = total_cycles(a.costs.latency), total_cycles(b.costs.latency)
    if cycles != (None, None):
        add("cycles", "", "cycle", *cycles)
    add("energy", "", "J", a.total_energy, b.total_energy)
    if a.total_area or b.total_area:
        add("area", "", "m^2", a.total_area, b.total_area)
    if any(says_sparse(one.problem) for one in (a, b)):
        for quantity, unit, figure in ON_SPARSE_DATA:
            known = (
                None if isinstance(one, Refused) else figure(one) for one in map(_on_sparse_data, (a, b))
            )
            add(quantity, "on sparse data", unit, *known)
    for quantity, unit, figures in FIGURES:
        left, right = figures(a), figures(b)
        for where in dict.fromkeys([*left, *right]):
            pair = left.get(where), right.get(where)
            # Tensors that neither mapping moves, and Einsums that neither recomputes, are left out.
            dull = 1 if figures is _factors else 0 if ": " in where else None
            if dull is None or any(v not in (None, dull) for v in pair):
                add(quantity, where, unit, *pair)
        if figures is _energy:  # off chip, by Einsum, beside what it costs
            for memory in dict.fromkeys(map(_outermost, (a, b))):
                left, right = _accesses(a, memory), _accesses(b, memory)
                for where in dict.fromkeys([*left, *right]):
                    pair = left.get(where), right.get(where)
                    if any(pair):
                        add(f"accesses:{memory}", where, "bit", *pair)
    columns = ("quantity", "where", "unit", "a", "b", "ratio")
    nodes = (*a.problem.hierarchy.components, *b.problem.hierarchy.components)
    unknown = [
        (n, r) for n, r in (("a", _on_sparse_data(a)), ("b", _on_sparse_data(b))) if isinstance(r, Refused)
    ]
    told = tuple(f"{name} on sparse data is not counted: {reason.message}" for name, reason in unknown)
    table = Table("compare", tuple(Column(n) for n in columns), tuple(rows), (*uncut_text(nodes), *told))
    return Comparison(table, (a.spec, b.spec), names or _names(a, b))


def _names(a: Evaluated, b: Evaluated) -> tuple[str, str]:
    """Return the names that distinguish two reports: those of workloads, machines and mappings that
    differ."""
    pairs = [
        (x.problem.cascade.name, x.problem.hierarchy.name, x.spec.chosen if x.spec else "") for x in (a, b)
    ]
    apart = [both for both in zip(*pairs, strict=True) if both[0] != both[1] and all(both)]
    left, right = (", ".join(both[k] for both in apart) for k in (0, 1))
    return left or "a", right or "b"


def fits(report: Evaluated) -> bool:
    """True if a mapping fits; on sparse data by the compressed sizes, or by the full sizes where these are
    not counted."""
    kept = _on_sparse_data(report)
    return report.feasible if isinstance(kept, Refused) else kept.feasible


def _on_sparse_data(report: Evaluated) -> Evaluated | SparseReport | Refused:
    """The report on the data that a spec describes, or the reason why it is not counted; the report itself if
    the spec describes no data."""
    if not isinstance(report, Report) or not says_sparse(report.problem):
        return report
    try:
        return report.sparse
    except Refused as reason:
        return reason


ON_SPARSE_DATA: tuple[tuple[str, str, Callable[[Evaluated | SparseReport], Cell]], ...] = (
    ("feasible", "", lambda report: report.feasible),
    ("latency", "s", lambda report: report.total_latency),
    ("energy", "J", lambda report: report.total_energy),
)


def _operations(report: Evaluated) -> Sums:
    each = {t.einsum: t.operations for t in report.costs.latency}
    return {"": sum(each.values()), **each}


def _factors(report: Evaluated) -> Sums:
    """Operations over distinct iterations, per Einsum."""
    again = recompute_factors(report.counts)
    return {t.einsum: again.get(t.einsum, (0, 1.0))[1] for t in report.costs.latency}


def _latency(report: Evaluated) -> Sums:
    return {t.einsum: t.seconds for t in report.costs.latency}


def _energy(report: Evaluated) -> Sums:
    """Joules of each component, leakage included."""
    result: Sums = {}
    for i in report.costs.energy:
        result[i.component] = result.get(i.component, 0.0) + i.energy
    return result


def _energy_of_einsums(report: Evaluated) -> Sums:
    """Joules of each Einsum, leakage included."""
    parts: dict[str, list[float]] = {t.einsum: [] for t in report.costs.latency}
    for i in report.costs.energy:
        parts.setdefault(i.einsum, []).append(i.energy)
    return {einsum: fsum(each) for einsum, each in parts.items()}


def _outermost(report: Evaluated) -> str:
    """The name of the memory farthest out, empty if there is none."""
    return next(iter(report.problem.hierarchy.memories), "")


def _accesses(report: Evaluated, memory: str) -> Sums:
    """Return the bits that each Einsum reads from a memory and writes to it, if that memory exists."""
    if memory not in report.problem.hierarchy.memories:
        return {}
    result: Sums = {t.einsum: 0 for t in report.costs.latency}
    for row in report.table("accesses").records():
        if row["component"] == memory:
            einsum, read, written = str(row["einsum"]), row["read_bits"], row["write_bits"]
            assert isinstance(read, int)
            assert isinstance(written, int)
            result[einsum] = result.get(einsum, 0) + read + written
    return result


def _moved(report: Evaluated, kind: str) -> Sums:
    """Bits read or written at each component, in total and per tensor."""
    each: dict[str, Sums] = {}
    for row in report.table("accesses").records():
        component, bits = str(row["component"]), row[f"{kind}_bits"]
        assert isinstance(bits, int)
        sums = each.setdefault(component, {component: 0})
        for where in (component, f"{component}: {row['tensor']}"):
            sums[where] = sums.get(where, 0) + bits
    return {where: bits for sums in each.values() for where, bits in sums.items()}


def _peaks(report: Evaluated) -> Sums:
    """Largest need of each component, by the measure that its capacity is checked against."""
    result: Sums = {}
    for n in report.costs.needs:
        if n.counts:
            result[n.component] = max(result.get(n.component, 0), n.bits)
    return result


FIGURES: tuple[tuple[str, str, Callable[[Evaluated], Sums]], ...] = (
    ("operations", "operation", _operations),
    ("recompute factor", "", _factors),
    ("latency", "s", _latency),
    ("energy", "J", _energy_of_einsums),
    ("energy", "J", _energy),
    ("reads", "bit", partial(_moved, kind="read")),
    ("writes", "bit", partial(_moved, kind="write")),
    ("working set", "bit", _peaks),
)
