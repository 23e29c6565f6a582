"""Tilings in a report: the tiles of each Einsum at each memory that cuts its operands, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from polymodel.cost.actions import movement_actions, whole_actions
from polymodel.errors import Diagnostic, SpecError
from polymodel.report.page import CSS
from polymodel.report.report import Report
from polymodel.report.table import RATIO, Cell, Column, Table
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a, suggestion
from polymodel.tiling.level import Expected, Level, levels

if TYPE_CHECKING:
    import pandas

TABLES = ("summary", "tiles", "traffic", "energy")
_SHOWN = ("summary", "traffic", "energy")
# What a terminal is wide enough for.
_NARROW = {
    "summary": (
        "einsum", "memory", "op", "capacity", "unit", "tiler", "tiles", "tile_bound", "kernels",
        "kernel_bound", "config_cycles", "run_cycles", "total_cycles", "cycle_bound", "latency_s", "label",
    ),
    "traffic": (
        "einsum", "memory", "parent", "tensor", "role", "tiles", "in_words", "read_words", "written_words",
        "out_words", "moved_bits", "label",
    ),
    "energy": (
        "einsum", "component", "tensor", "action", "bits", "count", "unit", "energy_per_unit_J", "energy_J",
        "label",
    ),
}  # fmt: skip
_ROLES = ("A", "B", "output")
_GUESSED = "an operand is known by its density only: figures are expected ones, without tiles, by "
_NO_CLOCK = "without a clock, so cycles are not turned into seconds; give it clock:"


def tile_levels(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
) -> TilingReport:
    """Cut the operands of the mapping for every memory that says `data_tiles:`.

    `tensors`, `densities`: data in the place of what the workload says, as for `sparsify`. Raises SpecError
    for wrong data and for an entry that fits no tile; Refused for Einsums that are no element-wise add or
    multiply, and for operands of which only a density is known.
    """
    if not isinstance(report, Report):
        raise not_a("report", "tile_levels", report, "pass what pm.evaluate(spec) gives")
    inputs = {a.tensor for e in report.problem.cascade.einsums for a in e.inputs}
    data = tensor_data(report.problem.cascade, tensors, densities, report.folder, inputs)
    found, notes = levels(report.problem, report.analysis, data)
    cut = tuple(x for x in found if isinstance(x, Level))
    return TilingReport(report, cut, tuple(x for x in found if isinstance(x, Expected)), data, notes)


@dataclass(frozen=True, eq=False)
class TilingReport:
    """Tiles of sparse operands at the memories of an architecture. Counts are exact; cycles are a model's.

    `dense`: the report that it was made from. `levels`: one per Einsum and memory, with rectangles, counts
    and costs as arrays; `expected`: the same of operands without data, figures only.
    `table(name)` gives one of `TABLES` as plain data.
    """

    dense: Report
    levels: tuple[Level, ...]
    expected: tuple[Expected, ...]
    data: Mapping[str, TensorData]
    told: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """What the least certain counts are: `exact`, or `expected` where an operand has no data."""
        return "expected" if self.expected else "exact"

    @property
    def total_cycles(self) -> float:
        """Cycles to configure and to run, all Einsums and executions: whole unless some are expected."""
        counted = sum(x.costs.total_cycles * x.executions for x in self.levels)
        return counted + sum(x.estimate.total_cycles * x.executions for x in self.expected)

    @property
    def total_latency(self) -> float | None:
        """Seconds of all Einsums one after the other; None if a memory has no clock."""
        found = [_seconds(x, x.costs.total_cycles) for x in self.levels]
        found += [_seconds(x, x.estimate.total_cycles) for x in self.expected]
        known = [s for s in found if s is not None]
        return math.fsum(known) if len(known) == len(found) else None

    @property
    def total_energy(self) -> float:
        """Joules of moving tiles in, out and past the array."""
        return math.fsum(float(e or 0) for e in self.table("energy").column("energy_J"))

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def table(self, name: str) -> Table:
        """One of `TABLES` as plain data; SpecError for another name."""
        if name not in _MADE:
            raise SpecError([Diagnostic(f"no table {name}", suggestion(name, TABLES, "tables"))])
        if name not in self._tables:
            self._tables[name] = _MADE[name](self)
        return self._tables[name]

    @property
    def summary(self) -> pandas.DataFrame:
        """One row per Einsum and memory: tiles, kernels, bounds, cycles, seconds."""
        return self.table("summary").frame()

    @property
    def tiles(self) -> pandas.DataFrame:
        """One row per tile: its rectangle, entries, words and cycles."""
        return self.table("tiles").frame()

    @property
    def traffic(self) -> pandas.DataFrame:
        """Words that tiles of each tensor move into, past and out of the memory."""
        return self.table("traffic").frame()

    @property
    def energy(self) -> pandas.DataFrame:
        """Joules of these accesses, by the actions of the memory and of its parent."""
        return self.table("energy").frame()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know beside the figures."""
        both: tuple[Level | Expected, ...] = (*self.levels, *self.expected)
        still = dict.fromkeys(f"{x.memory.name} is {_NO_CLOCK}" for x in both if x.memory.clock is None)
        made = [f"{x.einsum} at {x.memory.name}: {n}" for x in self.levels for n in x.costs.cut.notes]
        for e in self.expected:
            said = (_GUESSED + e.estimate.method, *e.estimate.notes)
            made += [f"{e.einsum} at {e.memory.name}: {n}" for n in said]
        return (*self.told, *still, *made)

    def __str__(self) -> str:
        parts = [
            f"{title}\n{self.table(name).only(*_NARROW[name]).text()}" for name, title in _sections(self)
        ]
        return "\n\n".join([*parts, "\n".join(f"note: {n}" for n in self.notes)]).rstrip() + "\n"

    def __repr__(self) -> str:
        kernels: float = sum(x.costs.kernels * x.executions for x in self.levels)
        kernels += sum(x.estimate.kernels * x.executions for x in self.expected)
        cut = len(self.levels) + len(self.expected)
        figures = f"{kernels:,.10g} kernels, {self.total_cycles:,.10g} cycles"
        return f"TilingReport({cut} Einsum{'s' if cut != 1 else ''} cut, {figures}, {self.label})"

    def _repr_html_(self) -> str:
        return f'<style>{CSS}</style><div class="pm">{body(self)}</div>'


def body(found: TilingReport) -> str:
    """All tables but the tiles, as a part of a page."""
    parts = [
        f'<h2>{escape(title)}</h2><div class="wide">{found.table(name).html()}</div>'
        for name, title in _sections(found)
    ]
    return "\n".join([*parts, *(f'<p class="note">{escape(n)}</p>' for n in found.notes)])


def _sections(found: TilingReport) -> list[tuple[str, str]]:
    titles = ("Tiles and kernels", "Words moved by tiles", "Energy of moving tiles")
    return [(n, t) for n, t in zip(_SHOWN, titles, strict=True) if found.table(n).rows]


def _seconds(level: Level | Expected, cycles: float) -> float | None:
    if level.memory.clock is None:
        return None
    return cycles * level.executions / level.memory.clock


def _summary(found: TilingReport) -> Table:
    """Counts are of all executions; `over_bound`: kernels over the least number of kernels."""
    cycles = ("config_cycles", "run_cycles", "total_cycles")
    columns = (
        Column("einsum"), Column("memory"), Column("op"), Column("a"), Column("b"), Column("output"),
        Column("capacity"), Column("unit"), Column("tiler"), Column("tiles"), Column("tile_bound"),
        Column("kernels"), Column("kernel_bound"), Column("over_bound", RATIO),
        *(Column(c, "cycle") for c in cycles), Column("cycle_bound", "cycle"), Column("config_share"),
        Column("latency_s", "s"), Column("dense_latency_s", "s"), Column("label"),
    )  # fmt: skip
    dense = {t.einsum: t.seconds for t in found.dense.costs.latency}
    rows: list[tuple[Cell, ...]] = []
    for x in found.levels:
        c, n = x.costs, x.executions
        spent = (c.config_cycles, c.run_cycles, c.total_cycles)
        rows.append((
            x.einsum, x.memory.name, c.op, *x.tensors, c.fit.capacity, c.fit.unit, c.cut.tiler, c.tiles * n,
            x.bound * n, c.kernels * n, x.kernel_bound * n,
            c.kernels / x.kernel_bound if x.kernel_bound else None, *(s * n for s in spent),
            x.cycle_bound * n, c.config_cycles / c.total_cycles if c.total_cycles else None,
            _seconds(x, c.total_cycles), dense.get(x.einsum), "exact",
        ))  # fmt: skip
    for e in found.expected:
        said, n = e.estimate, e.executions
        share = said.config_cycles / said.total_cycles if said.total_cycles else None
        rows.append((
            e.einsum, e.memory.name, said.op, *e.tensors, e.fit.capacity, e.fit.unit, said.tiler,
            said.tiles * n, None, said.kernels * n, None, None, said.config_cycles * n, said.run_cycles * n,
            said.total_cycles * n, None, share, _seconds(e, said.total_cycles), dense.get(e.einsum),
            said.label,
        ))  # fmt: skip
    return Table("tiling_summary", columns, tuple(rows))


def _tiles(found: TilingReport) -> Table:
    """Tiles of one execution. `load`: what the capacity counts; words are 0 where a tile is not launched."""
    columns = (
        Column("einsum"), Column("memory"), Column("tile"), Column("row"), Column("col"), Column("height"),
        Column("width"), Column("nnz_a"), Column("nnz_b"), Column("nnz_out"), Column("load"), Column("fits"),
        Column("words_a"), Column("words_b"), Column("words_out"), Column("launched"),
        Column("run_cycles", "cycle"), Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for x in found.levels:
        c, rects = x.costs, x.costs.cut.rects
        arrays = (
            rects.row, rects.col, rects.height, rects.width, *x.held, c.loads, c.fits, *x.words, c.runs,
            c.cycles,
        )  # fmt: skip
        listed = zip(*(array.tolist() for array in arrays), strict=True)
        rows += [(x.einsum, x.memory.name, i, *cells, "exact") for i, cells in enumerate(listed)]
    return Table("tiling_tiles", columns, tuple(rows))


@dataclass(frozen=True)
class _Moved:
    """What one tensor's tiles move: words in from the parent, past the array, out to the parent."""

    level: Level
    tensor: str
    role: str
    parent: str | None
    words: int
    tiles: int

    @property
    def output(self) -> bool:
        return self.role == "output"

    @property
    def crossing(self) -> int:
        """Words between the memory and its parent."""
        return 0 if self.parent is None else self.words


def _moved(found: TilingReport) -> list[_Moved]:
    moved = []
    for x in found.levels:
        for tensor, role, parent, words in zip(x.tensors, _ROLES, x.parents, x.words, strict=True):
            total, filled = int(words.sum()) * x.executions, int((words > 0).sum()) * x.executions
            moved.append(_Moved(x, tensor, role, parent, total, filled))
    return moved


def _traffic(found: TilingReport) -> Table:
    """All executions. `in_words` come from the parent, `out_words` go to it; the array reads and writes each
    word once. `tiles`: launched ones that hold entries of the tensor."""
    names = ("in_words", "read_words", "written_words", "out_words")
    columns = (
        Column("einsum"), Column("memory"), Column("parent"), Column("tensor"), Column("role"),
        Column("tiles"), *(Column(n) for n in names), Column("word_bits", "bit"), Column("moved_bits", "bit"),
        Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for m in _moved(found):
        flows = (0, 0, m.words, m.crossing) if m.output else (m.crossing, m.words, 0, 0)
        bits = m.level.word_bits
        rows.append((
            m.level.einsum, m.level.memory.name, m.parent, m.tensor, m.role, m.tiles, *flows, bits,
            m.crossing * bits, "exact",
        ))  # fmt: skip
    return Table("tiling_traffic", columns, tuple(rows))


def _energy(found: TilingReport) -> Table:
    """Every access of a word once: in and out of the memory, and what it exchanges with its parent."""
    columns = (
        Column("einsum"), Column("component"), Column("tensor"), Column("action"), Column("bits", "bit"),
        Column("count"), Column("unit"), Column("energy_per_unit_J", "J"), Column("energy_J", "J"),
        Column("provenance"), Column("label"),
    )  # fmt: skip
    hierarchy = found.dense.problem.hierarchy
    rows: list[tuple[Cell, ...]] = []
    for m in _moved(found):
        memory = m.level.memory
        # (component, reads, writes): the memory takes and gives every word once, its parent does one of them.
        accesses = [
            (memory, m.words if not m.output else m.crossing, m.crossing if not m.output else m.words)
        ]
        if m.parent is not None:
            accesses.append((hierarchy[m.parent], *((0, m.words) if m.output else (m.words, 0))))
        for component, *counts in accesses:
            for action, words in zip(movement_actions(component), counts, strict=True):
                if not words:
                    continue
                number = whole_actions(action, words, m.level.word_bits)
                unit = "bit" if action.bits_per_action is None else "action"
                rows.append((
                    m.level.einsum, component.name, m.tensor, action.name, words * m.level.word_bits, number,
                    unit, action.energy, number * action.energy, action.provenance, "exact",
                ))  # fmt: skip
    return Table("tiling_energy", columns, tuple(rows))


_MADE: dict[str, Callable[[TilingReport], Table]] = {
    "summary": _summary,
    "tiles": _tiles,
    "traffic": _traffic,
    "energy": _energy,
}
