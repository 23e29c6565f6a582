"""Tilings in a report: the tiles of each Einsum at each memory that cuts its operands, and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polymodel.architecture.hierarchy import ActionCost, Component, Hierarchy
from polymodel.cost.records import rounded_actions, whole_actions
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.report.evaluated import Evaluated
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import check_classes
from polymodel.tiling.cost.model import CutCosts
from polymodel.tiling.estimate.expected import Estimate
from polymodel.tiling.fits.fit import Stored
from polymodel.tiling.levels.level import ExpectedTiles, MemoryTiles, levels
from polymodel.tiling.levels.product import ProductLevel
from polymodel.tiling.plane.pattern import Ints
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import RATIO, Cell, Column, Table

if TYPE_CHECKING:
    from polymodel.report.report import Report

_SHOWN = ("summary", "products", "traffic", "energy")
# What a terminal is wide enough for.
_NARROW = {
    "summary": (
        "einsum", "memory", "op", "capacity", "unit", "tiler", "tiles", "tile_bound", "kernels",
        "kernel_bound", "config_cycles", "run_cycles", "total_cycles", "cycle_bound", "latency_s", "label",
    ),
    "products": (
        "einsum", "memory", "strategy", "order", "tile", "capacity_words", "pairs", "multiplies", "words",
        "least_words", "ratio", "label",
    ),
    "traffic": (
        "einsum", "memory", "parent", "tensor", "role", "tiles", "in_words", "read_words", "written_words",
        "out_words", "moved_bits", "label",
    ),
    "energy": (
        "einsum", "memory", "component", "tensor", "action", "bits", "count", "unit", "energy_per_unit_J",
        "energy_J", "label",
    ),
}  # fmt: skip
_ROLES = ("A", "B", "output")
_LISTED = 2 * 10**6  # tiles of a table that are still listed
MODEL = (
    "cycles of products are a model: max(multiplies / PEs, words / bandwidth) + launches x (configuration + "
    "ramp)"
)
_GUESSED = "an operand is known by its density only: figures are expected ones, without tiles, by "
CHARGED = (
    "tiles are counted in addition to the mapping, whose figures they do not change; their energy is that of "
    "reads and writes of a memory and of its parent, without compute and the components between"
)
_UNCUT = "no memory cuts its data into tiles: give one `data_tiles:` in the architecture"
_AGAIN = "{} is cut at {} as if the array worked from there; in all counts it at {} alone"
_NO_CLOCK = "without a clock, so cycles are not turned into seconds; give it clock:"


@dataclass(frozen=True)
class TensorMovement:
    """The transfers of one tensor's tiles in all executions: words in from the parent, read and written by
    the array, out to the parent. `tiles`: those with entries of the tensor. `transfers`: for tiles in a
    format, which are moved whole, (bits, number of tiles); None where words are moved one by one."""

    einsum: str
    memory: Component
    word_bits: int
    tensor: str
    role: str
    parent: str | None
    tiles: int
    into: int
    read: int
    written: int
    out: int
    transfers: tuple[tuple[int, int], ...] | None = None

    def actions(self, action: ActionCost, words: int) -> int:
        """Return the whole actions (bits, if an action is one bit) of one of the four flows."""
        if self.transfers is None or not words:
            result: int = whole_actions(action, words, self.word_bits)
        else:
            result = rounded_actions(action, self.transfers, 1)
        return result


def tiling_report(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
) -> TilingReport:
    """The tiles of an evaluated mapping: see `polymodel.tile_levels`."""
    inputs = {a.tensor for e in report.problem.cascade.einsums for a in e.inputs}
    data = tensor_data(report.problem.cascade, tensors, densities, report.folder, inputs)
    found, notes = levels(report.problem, report.analysis, data)
    cut = tuple(x for x in found if isinstance(x, MemoryTiles))
    guessed = tuple(x for x in found if isinstance(x, ExpectedTiles))
    products = tuple(x for x in found if isinstance(x, ProductLevel))
    return TilingReport(report, cut, guessed, data, notes, products)


@dataclass(frozen=True, eq=False)
class TilingReport(Answer):
    """Tiles of sparse operands at the memories of an architecture. Counts are exact; cycles are those of a
    model.

    `dense`: the report that it was made from. `levels`: one per Einsum and memory, with rectangles, counts
    and costs as arrays; `expected`: the same figures for operands without data; `products`: products of two
    matrices, in tiles that are reused. `table(name)` gives one of `TABLES` as plain data.
    """

    dense: Report
    levels: tuple[MemoryTiles, ...]
    expected: tuple[ExpectedTiles, ...]
    data: Mapping[str, TensorData]
    told: tuple[str, ...] = ()
    products: tuple[ProductLevel, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.tile_levels(...) makes one"
        check_classes(self, remedy, {"dense": Evaluated, "levels": tuple, "expected": tuple})

    @property
    def label(self) -> str:
        """The lowest certainty label among the counts: `exact`, or `expected` if an operand has no data."""
        return "expected" if self.expected else "exact"

    @cached_property
    def counted(self) -> tuple[MemoryTiles | ProductLevel | ExpectedTiles, ...]:
        """The records that totals add up: for each Einsum those of the innermost memory that cuts its
        operands, which feeds the array."""
        every: tuple[MemoryTiles | ProductLevel | ExpectedTiles, ...] = (
            *self.levels,
            *self.products,
            *self.expected,
        )
        place = self.dense.problem.hierarchy.index
        inner = {x.einsum: x.memory.name for x in sorted(every, key=lambda x: place(x.memory.name))}
        return tuple(x for x in every if inner[x.einsum] == x.memory.name)

    @property
    def total_cycles(self) -> float:
        """Cycles to configure and to run, over all Einsums and executions: integers unless some are
        expected."""
        return sum(_cycles(x) * x.executions for x in self.counted)

    @property
    def total_latency(self) -> float | None:
        """Seconds of all Einsums in sequence; None if a memory has no clock."""
        result = [_seconds(x, _cycles(x)) for x in self.counted]
        known = [s for s in result if s is not None]
        return math.fsum(known) if len(known) == len(result) else None

    @property
    def total_energy(self) -> float | None:
        """Joules of moving tiles in, out and through the array; None if some are only expected."""
        if any(isinstance(x, ExpectedTiles) for x in self.counted):
            return None
        places = {(x.einsum, x.memory.name) for x in self.counted}
        rows = self.table("energy").records()
        return math.fsum(float(r["energy_J"] or 0) for r in rows if (r["einsum"], r["memory"]) in places)

    @cached_property
    def moved(self) -> tuple[TensorMovement, ...]:
        """The transfers of every tensor's tiles."""
        return tuple(_moved(self))

    @declared(title="Tiles and kernels")
    def summary(self) -> Table:
        """Per Einsum and memory: tiles, kernels, bounds, cycles, seconds."""
        return _summary(self)

    @declared
    def tiles(self) -> Table:
        """Every tile: its rectangle, entries, words and cycles. For tiles of products see `product_tiles`."""
        return _tiles(self)

    @declared(title="Words moved by tiles")
    def traffic(self) -> Table:
        """Words that tiles of each tensor move into, through and out of the memory."""
        return traffic_table(self.moved)

    @declared(title="Energy of moving tiles")
    def energy(self) -> Table:
        """Joules of these accesses, by the actions of the memory and of its parent."""
        return energy_table(self.moved, self.dense.problem.hierarchy)

    @declared(title="Products in tiles", name="products")
    def product_cuts(self) -> Table:
        """How each product is cut, and the words that this moves."""
        return products_table(self.products)

    @declared
    def product_tiles(self) -> Table:
        """Every tile of A, B and the output of products: its rectangle, entries and words."""
        return product_tiles_table(self.products)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the figures."""
        both: tuple[MemoryTiles | ExpectedTiles | ProductLevel, ...] = (
            *self.levels,
            *self.products,
            *self.expected,
        )
        still = dict.fromkeys(f"{x.memory.name} is {_NO_CLOCK}" for x in both if x.memory.clock is None)
        made = [f"{x.einsum} at {x.memory.name}: {n}" for x in self.levels for n in x.costs.cut.notes]
        made += [f"{x.einsum} at {x.memory.name}: {n}" for x in self.products for n in x.notes]
        made += [MODEL] if self.products else []
        made += dict.fromkeys(filter(None, map(_too_large, both)))
        made += [CHARGED] if both else []
        for x in self.counted:
            if others := [e.memory.name for e in both if e.einsum == x.einsum and e is not x]:
                made.append(_AGAIN.format(x.einsum, ", ".join(others), x.memory.name))
        for e in self.expected:
            said = (_GUESSED + e.estimate.method, *e.estimate.notes)
            made += [f"{e.einsum} at {e.memory.name}: {n}" for n in said]
        return (*self.told, *still, *made)

    def content(self, live: bool = True) -> list[Block]:
        """All tables except the tiles, the totals, and remarks."""
        tables = [(self.declared[n].title, self.table(n).only(*_NARROW[n])) for n in _SHOWN]
        shown = [Section(title, table, opened=True) for title, table in tables if table.rows]
        result: list[Block] = [block for section in shown for block in (section, Line())]
        result += [Line(_in_all(self)), Line()] if self.counted else [] if shown else [Line(_UNCUT), Line()]
        return [*result, *notes(self.notes)]

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Tiles of sparse operands"

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written, none of the files that the spec was read from can be overwritten."""
        return self.dense.keeping()

    def __repr__(self) -> str:
        cut = len(self.levels) + len(self.expected) + len(self.products)
        figures = f"{_figure(_kernels(self))} kernels, {_figure(self.total_cycles)} cycles"
        return f"TilingReport({cut} Einsum{'s' if cut != 1 else ''} cut, {figures}, {self.label})"


def _cycles(x: MemoryTiles | ProductLevel | ExpectedTiles) -> float:
    return x.total_cycles if isinstance(x, ProductLevel) else _made_of(x).total_cycles


def _kernels(found: TilingReport) -> float:
    total: float = 0
    for x in found.counted:
        one = x.best.launches if isinstance(x, ProductLevel) else _made_of(x).kernels
        total += one * x.executions
    return total


def _too_large(x: MemoryTiles | ProductLevel | ExpectedTiles) -> str | None:
    """A note if the buffer that `capacity:` gives one operand is larger than the whole memory."""
    room = x.asked.buffers[0] if isinstance(x, ProductLevel) else x.fit.capacity
    if room * x.word_bits <= x.memory.size_bits:
        return None
    unit = "bits" if x.word_bits == 1 else f"words of {x.word_bits} bits"
    buffer = f"a buffer of {room:,} {unit}"
    return f"{x.memory.name} has {engineering(x.memory.size_bits, 'bit')}, less than {buffer}: see capacity:"


def _figure(value: float) -> str:
    """Return whole numbers with all their digits, others with two decimal places."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:,.2f}"


def _made_of(x: MemoryTiles | ExpectedTiles) -> CutCosts | Estimate:
    return x.costs if isinstance(x, MemoryTiles) else x.estimate


def _in_all(found: TilingReport) -> str:
    """Return the total kernels, cycles, seconds and joules of all Einsums in sequence."""
    joules, seconds = found.total_energy, found.total_latency
    said = [f"{_figure(_kernels(found))} kernels", f"{_figure(found.total_cycles)} cycles"]
    if seconds is not None:
        said.append(engineering(seconds, "s"))
    if joules is not None:
        said.append(f"{engineering(joules, 'J')} of moving tiles")
    return f"In all: {', '.join(said)} ({found.label})"


def _seconds(level: MemoryTiles | ExpectedTiles | ProductLevel, cycles: float) -> float | None:
    if level.memory.clock is None:
        return None
    return cycles * level.executions / level.memory.clock


def _summary(found: TilingReport) -> Table:
    """Counts cover all executions; `over_bound`: kernels over the least number of kernels. Tiles of products
    are those of A, B and the output together."""
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
    for p in found.products:
        spent_by, n = (p.config_cycles, p.run_cycles, p.total_cycles), p.executions
        rows.append((
            p.einsum, p.memory.name, "product", *p.tensors, p.asked.buffers[0], "words", p.best.strategy,
            sum(t.tiles for t in p.tiles) * n, None, p.best.launches * n, None, None,
            *(s * n for s in spent_by), None, p.config_cycles / p.total_cycles if p.total_cycles else None,
            _seconds(p, p.total_cycles), dense.get(p.einsum), "exact",
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
    """Tiles of one execution. `load`: the quantity that the capacity limits; words are 0 for tiles that are
    not launched."""
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
            rects.row, rects.col, rects.height, rects.width, *x.entries, c.loads, c.fits, *x.words, c.runs,
            c.cycles,
        )  # fmt: skip
        listed = zip(*(array.tolist() for array in arrays), strict=True)
        rows += [(x.einsum, x.memory.name, i, *cells, "exact") for i, cells in enumerate(listed)]
    return Table("tiling_tiles", columns, tuple(rows))


def _moved(found: TilingReport) -> list[TensorMovement]:
    moved = []
    for x in found.levels:
        for tensor, role, parent, words in zip(x.tensors, _ROLES, x.parents, x.words, strict=True):
            total, filled = int(words.sum()) * x.executions, int((words > 0).sum()) * x.executions
            crossing = 0 if parent is None else total
            flows = (0, 0, total, crossing) if role == "output" else (crossing, total, 0, 0)
            each = _transfers(words, x.executions) if isinstance(x.costs.fit, Stored) else None
            moved.append(
                TensorMovement(x.einsum, x.memory, x.word_bits, tensor, role, parent, filled, *flows, each)
            )
    for product in found.products:
        moved += moved_by(product)
    return moved


def _transfers(bits: Ints, executions: int) -> tuple[tuple[int, int], ...]:
    """Return (bits, number of tiles of that size), without tiles that move nothing."""
    sizes, tiles = np.unique(bits[bits > 0], return_counts=True)
    return tuple(zip(sizes.tolist(), (tiles * executions).tolist(), strict=True))


def products_table(products: Sequence[ProductLevel]) -> Table:
    """How each product is cut and the words that this moves, in all executions. `pairs` are launched, one
    kernel each; `least_words` are moved by any tiling, `ratio` is words over `least_words`."""
    columns = (
        Column("einsum"), Column("memory"), Column("a"), Column("b"), Column("output"), Column("strategy"),
        Column("order"), Column("tile"), Column("capacity_words"), Column("pairs"), Column("multiplies"),
        Column("config_cycles", "cycle"), Column("run_cycles", "cycle"), Column("total_cycles", "cycle"),
        Column("words"), Column("streamed_words"), Column("least_words"), Column("ratio", RATIO),
        Column("label"),
    )  # fmt: skip
    return Table("tiling_products", columns, tuple(_product(x) for x in products))


def _product(x: ProductLevel) -> tuple[Cell, ...]:
    best, n, t = x.best, x.executions, x.best.traffic
    least = x.product.compulsory_words
    return (
        x.einsum, x.memory.name, *x.tensors, best.strategy, t.order, best.tile, x.asked.buffers[0],
        best.launches * n, x.product.multiplies * n, x.config_cycles * n, x.run_cycles * n,
        x.total_cycles * n, t.words * n, t.streamed * n, least * n, t.words / least if least else 1.0,
        "exact",
    )  # fmt: skip


def product_tiles_table(products: Sequence[ProductLevel]) -> Table:
    """Tiles of A, B and the output of each product, in one execution; those of B have rows along the shared
    rank. Raises Refused above two million."""
    columns = (
        Column("einsum"), Column("memory"), Column("tensor"), Column("role"), Column("tile"), Column("row"),
        Column("col"), Column("height"), Column("width"), Column("nnz"), Column("words"), Column("fits"),
        Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for x in products:
        for tensor, role, tiles, room in zip(x.tensors, _ROLES, x.tiles, x.asked.buffers, strict=True):
            if tiles.tiles + len(rows) > _LISTED:
                fault = f"{x.einsum}: {tiles.tiles:,} tiles of {tensor} are too many for a table"
                raise Refused(fault, "look at the table products", code="too-large")
            rects = tiles.rects
            arrays = (rects.row, rects.col, rects.height, rects.width, tiles.nnz, tiles.words)
            cells = zip(*(a.tolist() for a in (*arrays, tiles.words <= room)), strict=True)
            rows += [(x.einsum, x.memory.name, tensor, role, i, *c, "exact") for i, c in enumerate(cells)]
    return Table("tiling_product_tiles", columns, tuple(rows))


def moved_by(x: ProductLevel) -> list[TensorMovement]:
    """Return the transfers of tiles of A, B and the output. Tiles that stay resident are used again at every
    launch."""
    result = []
    for tensor, role, parent, words, tiles in zip(
        x.tensors, _ROLES, x.parents, x.words, x.tiles, strict=True
    ):
        into, read, written, out = (w * x.executions for w in words)
        if parent is None:  # the tensor is here for good
            into = out = 0
        count = tiles.tiles * x.executions
        result.append(
            TensorMovement(
                x.einsum, x.memory, x.word_bits, tensor, role, parent, count, into, read, written, out
            )
        )
    return result


def traffic_table(moved: Iterable[TensorMovement]) -> Table:
    """Words in all executions. `in_words` come from the parent, `out_words` go to it; the array reads and
    writes the words of a kernel's tiles once. `tiles`: launched ones with entries of the tensor."""
    names = ("in_words", "read_words", "written_words", "out_words")
    columns = (
        Column("einsum"), Column("memory"), Column("parent"), Column("tensor"), Column("role"),
        Column("tiles"), *(Column(n) for n in names), Column("word_bits", "bit"), Column("moved_bits", "bit"),
        Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for m in moved:
        flows = (m.into, m.read, m.written, m.out)
        crossing = (m.into + m.out) * m.word_bits
        rows.append((
            m.einsum, m.memory.name, m.parent, m.tensor, m.role, m.tiles, *flows, m.word_bits, crossing,
            "exact",
        ))  # fmt: skip
    return Table("tiling_traffic", columns, tuple(rows))


def energy_table(moved: Iterable[TensorMovement], hierarchy: Hierarchy) -> Table:
    """Every access of a word: in and out of the memory, and what it exchanges with its parent.

    `memory`: whose tiles; `component`: which is read or written.
    """
    columns = (
        Column("einsum"), Column("memory"), Column("component"), Column("tensor"), Column("action"),
        Column("bits", "bit"), Column("count"), Column("unit"), Column("energy_per_unit_J", "J"),
        Column("energy_J", "J"), Column("provenance"), Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for m in moved:
        # (component, reads, writes): the memory takes and gives every word, its parent does the other half.
        accesses: list[tuple[Component, tuple[int, ...], tuple[int, ...]]] = [
            (m.memory, (m.read, m.out), (m.written, m.into))
        ]
        if m.parent is not None:
            accesses.append((hierarchy[m.parent], (m.into,), (m.out,)))
        for component, *flows in accesses:
            for action, parts in zip(component.ways, flows, strict=True):
                words = sum(parts)
                if not words:
                    continue
                number = sum(m.actions(action, part) for part in parts)
                unit = "bit" if action.bits_per_action is None else "action"
                rows.append((
                    m.einsum, m.memory.name, component.name, m.tensor, action.name, words * m.word_bits,
                    number, unit, action.energy, number * action.energy, action.provenance, "exact",
                ))  # fmt: skip
    return Table("tiling_energy", columns, tuple(rows))


TABLES = tuple(TilingReport.declared)
