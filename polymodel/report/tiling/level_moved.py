"""Words that tiles move at a memory of an architecture, and the energy of these accesses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from polymodel.architecture.hierarchy import Action, Component, Hierarchy
from polymodel.cost.actions import movement_actions, rounded_actions, whole_actions
from polymodel.report.table import Cell, Column, Table


@dataclass(frozen=True)
class Moved:
    """What one tensor's tiles move, all executions: words in from the parent, taken and given by the array,
    out to the parent. `tiles`: those that hold entries of it. `transfers`: of tiles in a format, which are
    moved whole, (bits, how many tiles); None where words are moved one by one."""

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

    def actions(self, action: Action, words: int) -> int:
        """Whole actions (bits, if the action is one bit) of one of the four flows."""
        if self.transfers is None or not words:
            return whole_actions(action, words, self.word_bits)
        return rounded_actions(action, self.transfers, 1)


def traffic_table(moved: Iterable[Moved]) -> Table:
    """All executions. `in_words` come from the parent, `out_words` go to it; the array reads and writes the
    words of a kernel's tiles once. `tiles`: launched ones that hold entries of the tensor."""
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


def energy_table(moved: Iterable[Moved], hierarchy: Hierarchy) -> Table:
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
            for action, parts in zip(movement_actions(component), flows, strict=True):
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
