"""The report of an evaluation as HTML: a fragment for notebooks, a page with everything for files."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polymodel.cost.records import violation_lines
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop
from polymodel.quantities import engineering
from polymodel.report.plots import plot, plot_height
from polymodel.report.plots_timeline import timeline_axes
from polymodel.report.provenance import provenance
from polymodel.report.sparse_pointers import capacity_lines, pointers, sparse_figures, verdict
from polymodel.report.svg import architecture_svg, looptree_svg
from polymodel.report.svg_cascade import cascade_svg
from polymodel.report.tables import says_sparse, says_tiles
from polymodel.report.text import headline, sections
from polymodel.report.timeline import timeline
from polymodel.view.answer import Block, Facts, Line, Part, Picture, Section, notes
from polymodel.view.inline import blank, inline

if TYPE_CHECKING:
    from polymodel.report.report import Report
    from polymodel.report.sparse import SparseReport


# Tooltips of the boxes in pictures: the report's figures for a node or component.


def node_tips(report: Report) -> dict[int, str]:
    """Lines for each node of the LoopTree by its number: tiles and traffic, the Einsums below a loop,
    costs."""
    result: dict[int, list[str]] = {}
    moved = _moved(report)
    seen = set()
    for row in report.table("tiles", live=False).records():
        node, tensor = row["node"], str(row["tensor"])
        assert isinstance(node, int)
        if (node, tensor) in seen:  # a node above a split has a row for each Einsum
            continue
        seen.add((node, tensor))
        read, written = moved.get((node, tensor), (0, 0))
        bits, visits = row["tile_bits"], row["visits"]
        assert isinstance(bits, int)
        result.setdefault(node, []).append(
            f"{tensor}: tile {engineering(bits, 'bit')}, {visits} visits; "
            f"reads {engineering(read, 'bit')}, writes {engineering(written, 'bit')}"
        )
    tree = report.problem.tree
    for here, node_, _ in tree.walk():
        if isinstance(node_, Loop):
            result[here] = [f"around {', '.join(tree.below.get(here, ()))}"]
        elif isinstance(node_, ComputeNode):
            result[here] = list(_costs(report, node_.einsum))
    return {here: "\n".join(lines) for here, lines in result.items()}


def _moved(report: Report) -> dict[tuple[int, str], tuple[int, int]]:
    """Bits read and written at each (node, tensor), all instances and executions."""
    counts = report.counts
    result: dict[tuple[int, str], tuple[int, int]] = {}
    for t in report.analysis.traffic:
        scale = counts.bits(t.tensor) * counts.executions(t.einsum)
        read, written = result.get((t.node, t.tensor), (0, 0))
        result[t.node, t.tensor] = read + t.reads * scale, written + t.writes * scale
    return result


def _costs(report: Report, einsum: str) -> Iterator[str]:
    for t in report.costs.latency:
        if t.einsum == einsum:
            yield f"{engineering(t.operations, 'operation')}, {engineering(t.seconds, 's')}"
            if t.limiting:
                yield f"limited by {t.limiting}"
    joules = math.fsum(i.energy for i in report.costs.energy if i.einsum == einsum)
    yield engineering(joules, "J")


def component_tips(report: Report) -> dict[str, str]:
    """Lines for each component by its name: energy, the longest time of use, the largest working set."""
    result: dict[str, list[str]] = {}
    total = report.total_energy
    for c in report.problem.hierarchy.components:
        lines = []
        joules = math.fsum(i.energy for i in report.costs.energy if i.component == c.name)
        if joules:
            lines.append(f"{engineering(joules, 'J')}, {100 * joules / total:.1f} % of all energy")
        busy = math.fsum(t.seconds for t in report.costs.times if t.component == c.name)
        if busy:
            lines.append(f"busy for {engineering(busy, 's')}")
        limits = [t.einsum for t in report.costs.latency if t.limiting == c.name]
        if limits:
            lines.append(f"limits {', '.join(limits)}")
        peaks = [n for n in report.costs.needs if n.component == c.name and n.counts]
        if peaks:
            most = max(peaks, key=lambda n: n.bits)
            lines.append(f"holds at most {engineering(most.bits, 'bit')}, during {most.einsum}")
        result[c.name] = lines
    return {name: "\n".join(lines) for name, lines in result.items()}


OPENED = ("summary", "bottleneck")  # tables that are unfolded at first


def content(report: Report, live: bool) -> list[Block]:
    """The display in notebooks: figures, the LoopTree and the main tables."""
    tree = looptree_svg(report.problem.tree, report.problem.cascade, node_tips(report))
    tables = [
        Section(title, table, total, opened=i < 3)
        for i, (title, table, total) in enumerate(sections(report, live=live))
    ]
    return [*_head(report, pointers(report)), Picture("LoopTree", tree), *tables]


def _head(
    report: Report, more: list[tuple[str, str]], good: bool | None = None, words: str = ""
) -> list[Block]:
    """Return the headline, then what does not fit, and notes; `more`: texts on sparse figures.

    `good`, `words`: whether it fits, considering sparse data, and the verdict as text.
    """
    good = report.feasible if good is None else good
    state = re.sub(r"(^|; )NO\b", r"\1no", words or ("yes" if good else "no"))
    figures = Facts(
        (*headline(report), *more, ("feasible", state)), frozenset() if good else frozenset({"feasible"})
    )
    wrong = [Line(text, "bad") for text in violation_lines(report.violations)]
    if words:
        wrong = capacity_lines(report)
    return [figures, *wrong, *notes(report.notes)]


def head(report: Report) -> list[Block]:
    """The top of a page: the figures, those on sparse data, and remarks."""
    return _head(report, sparse_figures(report), *verdict(report))


def title(report: Report) -> str:
    """The heading of a page: workload and architecture by their names."""
    names = [v for k, v in headline(report) if k in ("workload", "architecture")]
    return " on ".join(names) or "polymodel report"


def parts(report: Report, live: bool, plots: bool, command: str) -> list[Part]:
    """The sections of a page: sparse data and tiles, the tables to read first, pictures, plots, the other
    tables, provenance. Beside sparse data, titles of tables and plots say which count every zero.

    `live=False` leaves out lifetimes of elements, `plots=False` everything that takes matplotlib. `command`:
    the command line, which is shown.
    """
    tables: list[Part] = _tables(report, live)
    drawn: list[Part] = _plots(report) if plots else []
    if says_sparse(report.problem):
        tables, drawn = _with_zeros(tables), _with_zeros(drawn)
    first, rest = ([t for t in tables if t.opened is way] for way in (True, False))
    result = [*_zeros(report, plots), *first, *_pictures(report), *drawn, *rest]
    return [*result, *provenance(report, command)]


def _with_zeros(some: Sequence[Part]) -> list[Part]:
    return [replace(p, title=f"{p.title}, every zero stored") for p in some]


def _pictures(report: Report) -> list[Part]:
    problem = report.problem
    tree = looptree_svg(problem.tree, problem.cascade, node_tips(report))
    machine = architecture_svg(problem.hierarchy, component_tips(report))
    told = notes(["Point at a box for its numbers; large pictures scroll."])
    return [
        Part("LoopTree", [Picture("LoopTree", tree), *told], opened=True),
        Part("Cascade", [Picture("Cascade", cascade_svg(problem.cascade)), *told]),
        Part("Architecture", [Picture("Architecture", machine), *told]),
    ]


def _plots(report: Report) -> list[Part]:

    figures = plots_of(report)
    return [
        Part(title, [*([Picture(title, svg, plot=True)] if svg else []), *notes(told)], opened=i < 2)
        for i, (title, svg, told) in enumerate(figures)
    ]


def _tables(report: Report, live: bool) -> list[Part]:
    result = []
    for name, declared in report.declared.items():
        table = report.table(name, live=live)
        if name in ("fusion", "pipelines", "area") and not table.rows:
            continue
        if "cycles" in table.units and not any(table.column("cycles")):
            table = table.only(*(c.name for c in table.columns if c.name != "cycles"))  # no clock
        section = Section("", table, about=declared.words)
        result.append(Part(f"Table: {declared.title}", [section], opened=name in OPENED))
    return result


def _zeros(report: Report, plots: bool) -> list[Part]:
    """Return the sections on sparse data: the sparse report with its plots, and tiles."""
    result = []
    if says_sparse(report.problem):
        result.append(Part("On sparse data", report.sparse.flat(), opened=True))
        shown = sparse_plots(report.sparse) if plots else []
        result += [Part(title, [Picture(title, svg, plot=True)], opened=True) for title, svg in shown]
    if says_tiles(report.problem):
        result.append(Part("Cut into tiles", _tiling(report), opened=True))
    return result


def _tiling(report: Report) -> list[Block]:
    try:
        return report.tiling.content()
    except Refused as refusal:
        return notes([f"not cut: {refusal}"])


STEPS = 500  # of a timeline; of more phases each step shows the largest of a few
Shown = tuple[str, str, tuple[str, ...]]  # title, picture, notes


def plots_of(report: Report) -> list[Shown]:
    """Return working sets, energy, roofline (of groups as well, if Einsums are fused), and the contents of
    each used memory over time."""
    result: list[Shown] = []
    groups = ["group_roofline"] if len(report.grouped) < len(report.costs.roofline) else []
    for name in ("working_sets", "energy", "roofline", *groups):
        figure, ax = blank(8, plot_height(report, name))
        plot(report, name, ax)
        title = f"Plot: {name.replace('_', ' ')}"
        result.append((title, inline(figure, title, f"p{len(result)}"), ()))
    return [*result, *_over_time(report, len(result))]


def sparse_plots(sparse: SparseReport) -> list[tuple[str, str]]:
    """Working sets, energy and roofline on sparse data, as (title, SVG)."""
    result: list[tuple[str, str]] = []
    for name in ("working_sets", "energy", "roofline"):
        figure, ax = blank(8, plot_height(sparse.result, name))
        sparse.plot(name, ax)
        title = f"Plot: {name.replace('_', ' ')} on sparse data"
        result.append((title, inline(figure, title, f"s{len(result)}")))
    return result


def _over_time(report: Report, number: int) -> Iterator[Shown]:
    for c in report.problem.hierarchy.components:
        if not c.stores:
            continue
        title = f"Plot: {c.name} over time"
        try:
            held = timeline(report, c.name)
        except Refused as refusal:
            yield title, "", (f"left out: {refusal}",)
            continue
        if not held.buffets:
            continue
        figure, ax = blank(9, 4.5)
        timeline_axes(held, c.size_bits, ax, steps=STEPS)
        yield title, inline(figure, title, f"p{number}"), ()
        number += 1
