"""Dataflows of blocks for one tile: element-wise, matrix-vector and matrix-matrix products.

When a tile starts, its operands are in place as DCSR: the coordinates of the nonempty rows and the entries of
each. Every block is one pipeline stage, so a dataflow takes as many cycles before the first token is written
as there are blocks on its longest path.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polymodel.integers import distinct_numbers
from polymodel.tiling.cost.blocks import Kind
from polymodel.tiling.plane.pattern import Index, Ints
from polymodel.tiling.simulate.blocks import (
    FiberLevel,
    alu,
    array,
    dropper,
    is_stop,
    merger,
    reducer,
    repeater,
    root,
    row_reducer,
    scanner,
    writer,
)
from polymodel.tiling.simulate.streams import BlockMachine, Port, Stream, Token


@dataclass(frozen=True, eq=False)
class TileOperand:
    """Entries of a tile in row-major order, with coordinates relative to its corner; `shape`: its rows and
    columns."""

    rows: Index
    cols: Index
    values: Sequence[float]
    shape: tuple[int, int]

    @classmethod
    def ones(cls, rows: Index, cols: Index, shape: tuple[int, int]) -> TileOperand:
        """The operand of a pattern: every value is one."""
        return cls(rows, cols, [1.0] * rows.size, shape)

    @property
    def nonempty(self) -> Ints:
        """Rows with entries, in ascending order."""
        return distinct_numbers(self.rows).astype(np.int64)

    @property
    def outer(self) -> FiberLevel:
        """The rank of the rows, as one fiber."""
        rows = self.nonempty.tolist()
        return FiberLevel([0, len(rows)], rows)

    @property
    def inner(self) -> FiberLevel:
        """The rank of the columns, with one fiber for each nonempty row."""
        begins = np.searchsorted(self.rows, self.nonempty).tolist()
        return FiberLevel([*begins, self.rows.size], self.cols.tolist())

    @property
    def located(self) -> FiberLevel:
        """The rank of the columns with one fiber for every row, so that the number of a row is its
        reference.
        """
        begins = np.searchsorted(self.rows, np.arange(self.shape[0] + 1)).tolist()
        return FiberLevel(begins, self.cols.tolist())


@dataclass(frozen=True, eq=False)
class SimulatedTile:
    """The simulation of one tile: its cycles, the activity of each block by cycle, the cycle in which each
    block ended, and the entries of the result."""

    kind: Kind
    cycles: int
    did: dict[str, Counter[str]]
    ended: dict[str, int]
    rows: tuple[int, ...]
    cols: tuple[int, ...]
    values: tuple[float, ...]


def simulate(kind: Kind, a: TileOperand, b: TileOperand) -> SimulatedTile:
    """Simulate one tile on the dataflow of its kind; `spmv` and `spmm` locate rows of B by their number."""
    machine, written = BlockMachine(), _Written()
    build = {"add": _elementwise, "multiply": _elementwise, "spmv": _vector, "spmm": _matrix}[kind]
    build(machine, kind, a, b, written)
    cycles = machine.run()
    rows, cols, values = written.entries()
    return SimulatedTile(kind, cycles, machine.did, machine.ended, rows, cols, values)


class _Written:
    """The tokens that the writers of the result's coordinates and values received."""

    def __init__(self) -> None:
        self.rows: list[Token] = []
        self.cols: list[Token] = []
        self.values: list[Token] = []

    def join(self, machine: BlockMachine, rows: Port, cols: Port, values: Port) -> None:
        machine.add("writer of rows", writer(rows.join(), self.rows))
        machine.add("writer of columns", writer(cols.join(), self.cols))
        machine.add("writer of values", writer(values.join(), self.values))

    def entries(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]:
        """Rows, columns and values; a fiber without entries has no row. A vector has one entry per row."""
        if not self.cols:
            totals = [x for x in self.values if isinstance(x, float)]
            of = [i for i in self.rows if isinstance(i, int)]
            return tuple(of), (0,) * len(of), tuple(totals)
        rows = iter(token for token in self.rows if isinstance(token, int))
        found: list[tuple[int, int, float]] = []
        row = None
        for col, value in zip(self.cols, self.values, strict=True):
            if isinstance(col, int) and isinstance(value, float):
                row = next(rows) if row is None else row
                found.append((row, col, value))
            elif is_stop(col):
                row = None
        if next(rows, None) is not None:
            raise AssertionError("a row without entries was written")
        i, j, x = zip(*found, strict=True) if found else ((), (), ())
        return i, j, x


@dataclass(frozen=True)
class _Scanned:
    """The two output streams of a scanner, as ports."""

    crd: Port
    ref: Port


def _scan(machine: BlockMachine, name: str, refs: Stream, level: FiberLevel) -> _Scanned:
    result = _Scanned(machine.port(), machine.port())
    machine.add(f"scanner of {name}", scanner(refs, result.crd, result.ref, level))
    return result


def _root(machine: BlockMachine) -> Port:
    port = machine.port()
    machine.add("root", root(port))
    return port


def _merge(machine: BlockMachine, kind: Kind, name: str, a: _Scanned, b: _Scanned) -> tuple[Port, Port, Port]:
    crd, ref_a, ref_b = (machine.port() for _ in range(3))
    how: Literal["union", "intersect"] = "union" if kind == "add" else "intersect"
    sides = ((side.crd.join(), side.ref.join()) for side in (a, b))
    block = merger(how, next(sides), next(sides), crd, (ref_a, ref_b))
    machine.add(f"{'union' if kind == 'add' else 'intersection'} of {name}", block)
    return crd, ref_a, ref_b


def _values(
    machine: BlockMachine, kind: Kind, a: tuple[Stream, TileOperand], b: tuple[Stream, TileOperand]
) -> Port:
    """Values at references of A and of B, and the ALU that combines them."""
    ports = []
    for name, (refs, operand) in (("A", a), ("B", b)):
        ports.append(machine.port())
        machine.add(f"array of {name}", array(refs, ports[-1], [float(x) for x in operand.values]))
    out = machine.port()
    action = operator.add if kind == "add" else operator.mul
    machine.add("ALU", alu(action, ports[0].join(), ports[1].join(), out))
    return out


def _elementwise(
    machine: BlockMachine, kind: Kind, a: TileOperand, b: TileOperand, written: _Written
) -> None:
    """Rows are merged, then the columns of the rows that remain; each operand has scanners of its own."""
    start = _root(machine)
    rows = [_scan(machine, f"{name}'s rows", start.join(), x.outer) for name, x in (("A", a), ("B", b))]
    row, ref_a, ref_b = _merge(machine, kind, "rows", rows[0], rows[1])
    cols = [
        _scan(machine, f"{name}'s columns", ref.join(), x.inner)
        for name, ref, x in (("A", ref_a, a), ("B", ref_b, b))
    ]
    col, at_a, at_b = _merge(machine, kind, "columns", cols[0], cols[1])
    values = _values(machine, kind, (at_a.join(), a), (at_b.join(), b))
    if kind == "multiply":
        kept = machine.port()
        machine.add("dropper of rows", dropper(row.join(), col.join(), kept))
        row = kept
    written.join(machine, row, col, values)


def _vector(machine: BlockMachine, kind: Kind, a: TileOperand, b: TileOperand, written: _Written) -> None:
    """The sum of a row's entries times the entries of a vector that their columns locate."""
    dense = np.zeros(b.shape[0])
    dense[b.rows] = b.values
    x = TileOperand(b.rows, b.cols, dense.tolist(), b.shape)
    rows = _scan(machine, "A's rows", _root(machine).join(), a.outer)
    cols = _scan(machine, "A's columns", rows.ref.join(), a.inner)
    products = _values(machine, kind, (cols.ref.join(), a), (cols.crd.join(), x))
    sums = machine.port()
    machine.add("reducer", reducer(products.join(), sums))
    machine.add("writer of rows", writer(rows.crd.join(), written.rows))
    machine.add("writer of values", writer(sums.join(), written.values))


def _matrix(machine: BlockMachine, kind: Kind, a: TileOperand, b: TileOperand, written: _Written) -> None:
    """Row by row of A (order ikj): the column of each entry locates a row of B, whose entries, multiplied by
    that entry, are accumulated in the row of the result."""
    rows = _scan(machine, "A's rows", _root(machine).join(), a.outer)
    inner = _scan(machine, "A's columns", rows.ref.join(), a.inner)
    cols = _scan(machine, "B's columns", inner.crd.join(), b.located)
    again = machine.port()
    machine.add("repeater of A", repeater(inner.ref.join(), cols.crd.join(), again))
    products = _values(machine, kind, (again.join(), a), (cols.ref.join(), b))
    crd, sums, kept = (machine.port() for _ in range(3))
    machine.add("reducer of rows", row_reducer(cols.crd.join(), products.join(), crd, sums))
    machine.add("dropper of rows", dropper(rows.crd.join(), crd.join(), kept))
    written.join(machine, kept, crd, sums)
