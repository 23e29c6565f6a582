"""Derivation of the numbers of one Einsum, component and tensor, in words and in ISL's notation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import product
from typing import TYPE_CHECKING

from polymodel.analysis.result import Buffet, Problem, Traffic
from polymodel.arithmetic import Affine
from polymodel.cost.records import Counts
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.loading.spec import files_of
from polymodel.mapping.looptree import Loop, around, pipeline_notes, storage_chain
from polymodel.quantities import engineering
from polymodel.schedule.relations import executed_tiles, retained_window
from polymodel.schedule.touch import loop_origins
from polymodel.spec.faults import suggestion
from polymodel.view.answer import Answer, Block, Code, Line, declared
from polymodel.view.table import Column, Table
from polymodel.workload.einsum import Einsum

if TYPE_CHECKING:
    from polymodel.report.report import Report


# Relations in ISL's notation, with readable names: counters `m_0`, `m_1`, ranks, rank variables.


@dataclass(frozen=True)
class Counter:
    """One coordinate of a stamp: its name, the loop, and the value that its variable starts at."""

    name: str
    loop: Loop
    variable: str
    origin: int


def counters(problem: Problem, einsum: str, node: int) -> tuple[Counter, ...]:
    """The counters of the loops above a node on the path of an Einsum, outermost first."""
    seen: dict[str, int] = {}
    result = []
    for at, loop, origin in loop_origins(problem.cascade, problem.tree, einsum):
        variable = loop.variable_in(einsum)
        number = seen.get(variable, 0)
        seen[variable] = number + 1
        if at < node:
            result.append(Counter(f"{variable}_{number}", loop, variable, origin))
    return tuple(result)


def tile_relation(problem: Problem, einsum: str, node: int, tensor: str) -> str:
    """`{ [stamp] -> tensor[element] : ... }`: the elements that one Einsum touches below a node at each
    stamp.

    Raises Refused where the executed iterations of the Einsum are not covered.
    """
    e = problem.cascade[einsum]
    executes = executed_tiles(problem.cascade, problem.tree, einsum, node, tensor)
    if executes is not None:
        return str(executes)
    stamp = counters(problem, einsum, node)
    accesses = tuple(dict.fromkeys(a.projection for a in e.accesses_of(tensor)))
    places = [f"x{i}" for i in range(len(accesses[0]))]
    bodies = []
    for projection, choice in product(accesses, _alternatives(stamp)):
        parts = [*_iteration_space(e), *choice]
        parts += [f"{p} = {_text(x)}" for p, x in zip(places, projection, strict=True)]
        bodies.append(f"exists {', '.join(e.rank_variables)} : " + " and ".join(parts))
    body = " or ".join(f"({b})" for b in bodies) if len(bodies) > 1 else bodies[0]
    head = f"[{', '.join(c.name for c in stamp)}]"
    return f"{{ {head} -> {tensor}[{', '.join(places)}] : {body} }}"


def _iteration_space(e: Einsum) -> list[str]:
    result = []
    for c in e.constraints:
        if c.kind == "mod":
            result.append(f"({_text(c.expr)}) mod {c.modulus} = 0")
        else:
            result.append(f"{_text(c.expr)} {'>=' if c.kind == 'ge' else '='} 0")
    return result


def _text(x: Affine) -> str:
    return str(x)


def _alternatives(stamp: tuple[Counter, ...]) -> list[list[str]]:
    """Constraints that relate counters to rank variables; a first tile of its own size is a separate case."""
    options: list[tuple[list[str], dict[str, str]]] = [([], {})]
    for c in stamp:
        grown = []
        for constraints, starts in options:
            base = starts.get(c.variable, str(c.origin))
            grown += [
                ([*constraints, *extra], {**starts, c.variable: start}) for extra, start in _steps(c, base)
            ]
        options = grown
    return [constraints for constraints, _ in options]


def _steps(c: Counter, base: str) -> list[tuple[list[str], str]]:
    """(constraints, start of the tile) for each case of one counter."""
    tile, initial = c.loop.tile_shape, c.loop.initial_tile_shape
    lead = "" if base == "0" else f"{base} + "
    if initial is None or initial == tile:
        start = f"{lead}{tile}{c.name}"
        return [([f"{c.name} >= 0", f"{start} <= {c.variable} < {start} + {tile}"], start)]
    start = f"{lead}{initial} + {tile}{c.name} - {tile}"
    return [
        ([f"{c.name} = 0", f"{base} <= {c.variable} < {lead}{initial}"], base),
        ([f"{c.name} >= 1", f"{start} <= {c.variable} < {start} + {tile}"], start),
    ]


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """Subject, then sections of (heading, lines); `relations` are the tile relations, one per Einsum."""

    subject: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]
    relations: tuple[str, ...]
    equations: tuple[str, ...]
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @declared
    def lines(self) -> Table:
        """One row per statement, with the heading of its section."""
        columns = Column("heading", words="what the line is about"), Column("line", words="the statement")
        return Table("lines", columns, tuple((h, line) for h, body in self.sections for line in body))

    @property
    def title(self) -> str:
        """What is explained."""
        return self.subject

    def content(self, live: bool = True) -> list[Block]:
        """The sections one below the other."""
        result: list[Block] = [Line(self.subject)]
        for heading, body in self.sections:
            result += [Line(f"  {heading}"), *(Line(f"    {b}") for b in body)]
        return result

    def __repr__(self) -> str:
        return str(self).rstrip()

    def _repr_html_(self) -> str:
        """Lines as they are printed; `_repr_latex_` has the equations."""
        from polymodel.view.html import fragment

        return fragment([Code(str(self))])

    def _repr_latex_(self) -> str:
        rows = r" \\ ".join(self.equations)
        return rf"$$\begin{{aligned}} {rows} \end{{aligned}}$$"


def _known(name: str, names: Sequence[str], kind: str) -> None:
    if name not in names:
        message = f"unknown {kind} {name}"
        raise SpecError([Diagnostic(message, suggestion(name, names, f"{kind}s"), code="unknown-name")])


def explain(report: Report, einsum: str, component: str, tensor: str) -> Explanation:
    """The buffets of one tensor at one component that one Einsum uses. Raises SpecError if there are none."""
    counts = report.counts
    cascade, hierarchy = report.problem.cascade, report.problem.hierarchy
    _known(einsum, [e.name for e in cascade], "Einsum")
    _known(tensor, cascade[einsum].tensors, "tensor")
    _known(component, [c.name for c in hierarchy.components], "component")
    mine = [
        b
        for b in counts.analysis.buffets
        if (b.component, b.tensor) == (component, tensor) and einsum in b.einsums
    ]
    if not mine:
        chain = storage_chain(report.problem.tree, einsum, tensor)
        held = ", ".join(dict.fromkeys(counts.component_of[s.id] for s in chain))
        message = f"{einsum} keeps {tensor} in {held or 'no storage'}, not in {component}"
        raise SpecError(
            [Diagnostic(message, f"explain it at {held}" if held else "", code="nothing-to-show")]
        )
    sections: list[tuple[str, tuple[str, ...]]] = []
    equations: list[str] = []
    relations: list[str] = []
    for b in mine:
        found = tuple(tile_relation(report.problem, e, b.node, tensor) for e in b.einsums)
        relations += found
        sections += [
            ("where", _where(counts, b)),
            ("stamps", _stamps(counts, einsum, b)),
            ("tile relation, one per Einsum that uses it", found),
            ("tile", _tile(counts, b)),
            *_retained(counts, b),
            ("accesses", _accesses(counts, einsum, b)),
        ]
        equations += _equations(counts, b)
        closed, formulas = _closed(report, einsum, b)
        sections.append(("closed form", closed))
        equations += formulas
    sections.append(("energy", _energy(report, einsum, component, tensor)))
    overlapped = _overlapped(report, einsum, mine)
    if overlapped:
        sections.append(("pipeline", overlapped))
    title = f"{tensor} in {einsum} at {component}"
    return Explanation(title, tuple(sections), tuple(relations), tuple(equations), files_of(report.spec))


def _where(counts: Counts, b: Buffet) -> tuple[str, ...]:
    used = f"storage node {b.node}, used by {', '.join(b.einsums)}"
    if b.parent is None:
        return (used, "the outermost storage of the tensor: nothing fills it")
    return used, f"filled from {counts.component_of[b.parent]} (node {b.parent}); {b.reuse}: {b.reuse.words}"


def _stamps(counts: Counts, einsum: str, b: Buffet) -> tuple[str, ...]:
    lines = []
    for c in counters(counts.problem, einsum, b.node):
        where = f"instances along {c.loop.component}.{c.loop.dim}" if c.loop.spatial else "time"
        first = "" if c.loop.initial_tile_shape is None else f" (first tile {c.loop.initial_tile_shape})"
        lines.append(f"{c.name}: tiles of {c.loop.tile_shape}{first} of {c.variable}, {where}")
    return tuple(lines) or ("no loop stands above: one stamp",)


def _tile(counts: Counts, b: Buffet) -> tuple[str, ...]:
    bits = counts.bits(b.tensor)
    lines = [
        f"largest {b.tile_max} elements x {bits} bits = {b.tile_max * bits} bits",
        f"average {float(b.tile_average):.6g} = {b.tile_total} elements over {b.visits} stamps with a tile, "
        f"in {b.instances} instances",
        f"{b.distinct} different elements are ever held",
    ]
    if b.live is not None:
        lines.append(f"{b.live} elements at most between first and last use ({b.live * bits} bits)")
    return tuple(lines)


def _retained(counts: Counts, b: Buffet) -> list[tuple[str, tuple[str, ...]]]:
    """The data kept from the previous visit; given unless fills or drains of partial sums decide it."""
    cascade, tree = counts.problem.cascade, counts.problem.tree
    producer = cascade.producer(b.tensor)
    written = producer is not None and producer.name in b.einsums
    if not b.reuse.carries or (written and b.parent is not None):
        return []
    names = [c.name for c in counters(counts.problem, b.einsums[0], b.node)]
    try:
        result = retained_window(cascade, tree, (b.node, b.tensor), b.einsums, b.reuse, names)
    except Refused as refusal:
        return [("kept from the visit before", (refusal.message,))]
    if result is None:
        return [("kept from the visit before", ("nothing",))]
    bits = counts.bits(b.tensor)
    most = f"at most {result[1]} elements x {bits} bits = {result[1] * bits} bits"
    return [("kept from the visit before", (str(result[0]), most))]


def _accesses(counts: Counts, einsum: str, b: Buffet) -> tuple[str, ...]:
    result = next(
        (t for t in counts.analysis.traffic if (t.einsum, t.node, t.tensor) == (einsum, b.node, b.tensor)),
        Traffic(einsum, b.node, b.component, b.tensor),
    )
    below = (
        "operands and partial sums of compute" if counts.is_innermost(result) else "fills of storage below"
    )
    above = "results of compute" if counts.is_innermost(result) else "drains from below"
    bits, times = counts.bits(b.tensor), counts.executions(einsum)
    each = f"x {bits} bits" + (f" x {times} executions" if times > 1 else "")
    return (
        f"reads: {result.reads_fill} for {below} + {result.reads_drain} to drain to the parent "
        f"= {result.reads} elements {each} = {result.reads * bits * times} bits",
        f"writes: {result.writes_fill} by fills from the parent + {result.writes_drain} by {above} "
        f"= {result.writes} elements {each} = {result.writes * bits * times} bits",
    )


def _energy(report: Report, einsum: str, component: str, tensor: str) -> tuple[str, ...]:
    items = [
        i for i in report.costs.energy if (i.einsum, i.component, i.tensor) == (einsum, component, tensor)
    ]
    return tuple(
        f"{i.action}: {i.count} {i.unit}s x {i.energy_each:.6g} J = {engineering(i.energy, 'J')}"
        f", {i.provenance}"
        for i in items
    ) or ("no access, no energy",)


def _overlapped(report: Report, einsum: str, mine: list[Buffet]) -> tuple[str, ...]:
    """When the Einsum runs in the pipelines around it, and how many tiles its buffets hold."""
    tree, lines = report.problem.tree, []
    said = pipeline_notes(tree)
    for p in around(tree, einsum):
        stage = p.stage_of(einsum)
        lines.append(
            f"stage {stage + 1} of {len(p.stages)} of the pipeline at node {p.node} ({said[p.node]}): "
            f"slot s runs iteration s - {stage}"
        )
        for b in mine:
            copies = p.copies(b.node, b.einsums) if b.node < p.node else 0
            if copies > 1:
                lines.append(
                    f"node {b.node} holds the tiles of {copies} iterations at once, from the first stage "
                    "that uses them to the last"
                )
    return tuple(lines)


def _closed(report: Report, einsum: str, b: Buffet) -> tuple[tuple[str, ...], list[str]]:
    """The tile and the accesses as functions of the tile sizes, in words and in LaTeX."""
    try:
        result = report.symbolic
    except NotSeparable as refusal:
        return (f"none: {refusal.message}",), []
    from polymodel.report.formula import latex

    key = (b.node, b.tensor)
    buffet = next(f for f in result.analysis.buffets if (f.node, f.tensor) == key)
    parts = [("tile", buffet.tile_max), ("visits", buffet.visits)]
    for t in result.analysis.traffic:
        if (t.einsum, t.node, t.tensor) == (einsum, *key):
            parts += [("reads", t.reads_fill + t.reads_drain), ("writes", t.writes_fill + t.writes_drain)]
    shown = [(name, result.renderer.form(form)) for name, form in parts]
    lines = [f"{name} = {form} elements" if name != "visits" else f"{name} = {form}" for name, form in shown]
    equations = [rf"\text{{{name}}} &= {latex(form)}" for name, form in shown]
    return (f"in {', '.join(result.symbols) or 'no symbol'}", *lines), equations


def _equations(counts: Counts, b: Buffet) -> list[str]:
    name = b.tensor.replace("_", r"\_")
    place = b.component.replace("_", r"\_")
    tile = rf"\mathrm{{tile}}_{{\text{{{place}}}}}(\text{{{name}}})"
    bits = counts.bits(b.tensor)
    return [
        rf"\max_s |{tile}(s)| &= {b.tile_max} = {b.tile_max * bits}\ \text{{bits}}",
        rf"\sum_s |{tile}(s)| &= {b.tile_total}\ \text{{over}}\ {b.visits}\ \text{{stamps}}",
    ]
