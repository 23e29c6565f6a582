"""The contents of a memory over time, as a table, and its peak in words."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING

from polymodel.analysis.result import Buffet, Problem
from polymodel.analysis.timeline import Measure, Timeline
from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop, LoopTree
from polymodel.quantities import engineering
from polymodel.spec.faults import as_whole, shown
from polymodel.view.answer import Answer, Block, Code, declared
from polymodel.view.figures import bar_axes
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.report import Report

MEASURES = ("tile", "live")
LIMIT = 100_000
MEANING = {"tile": "whole tiles while resident", "live": "elements from first to last use"}


def timeline(report: Report, component: str, measure: Measure = "tile", limit: int = LIMIT) -> Timeline:
    """The timeline of one memory. SpecError for another component or measure; Refused as the engine says."""
    from polymodel.analysis.exact.timeline import timeline as counted

    memories = list(report.problem.hierarchy.memories)
    if component not in memories:
        message = f"component: there is no memory {component!r} to follow over time"
        raise SpecError([Diagnostic(message, "memories: " + ", ".join(memories), code="unknown-name")])
    if measure not in MEASURES:
        message = f"there is no measure {measure!r}"
        raise SpecError([Diagnostic(message, "measures: " + ", ".join(MEASURES), code="unknown-choice")])
    most = as_whole(limit) or 0
    if most < 1:
        what = f"a timeline of {shown(limit)} phases shows nothing"
        remedy = "allow a whole number, at least 1"
        raise SpecError([Diagnostic(what, remedy, "limit", code="not-positive-integer")])
    return counted(report.problem, component, measure, most)


def saved_names(component: str, measure: str) -> tuple[str, str, str]:
    """Return the names of the files of a timeline, which contain the memory and the measure: table, text,
    picture."""
    stem = f"timeline_{component}_{measure}"
    return f"{stem}.csv", f"{stem}.txt", f"{stem}.png"


def table(problem: Problem, found: Timeline) -> Table:
    """One row per phase in order of time: Einsum, counters of the loops, bits per tensor and in all.

    A loop's column is empty where the loop is not above the Einsum. A tensor that the memory keeps in
    several storage nodes has a column for each.
    """
    names, tensors = loop_names(problem.tree, found.loops), buffet_names(found)
    columns = (
        Column("phase"),
        Column("einsum"),
        *(Column(n, given=True) for n in names),
        *(Column(f"{t}_bits", "bit", given=True) for t in tensors),
        Column("total_bits", "bit"),
    )
    rows: list[tuple[Cell, ...]] = []
    parts = zip(
        found.einsum.tolist(), found.stamps.tolist(), found.bits.tolist(), found.total.tolist(), strict=True
    )
    for number, (einsum, stamp, bits, total) in enumerate(parts):
        counters = (c if c >= 0 else None for c in stamp)
        rows.append((number, found.einsums[einsum], *counters, *bits, total))
    notes = [f"{found.component}{_instance(found)}: {MEANING[found.measure]}"] if found.buffets else []
    return Table("timeline", columns, tuple(rows), (*notes, *found.notes))


def loop_names(tree: LoopTree, loops: tuple[int, ...]) -> tuple[str, ...]:
    """The rank variable of each loop, numbered from the outermost where several have the same."""
    known = {i: n.rank_variable for i, n, _ in tree.walk() if isinstance(n, Loop)}
    names = [known[i] for i in loops]
    told: list[str] = []
    for k, name in enumerate(names):
        if names.count(name) > 1:
            end = f"_{names[:k].count(name)}"
            while name + end in names:  # a rank variable may be called so itself
                end = "_" + end
            name += end
        told.append(name)
    return tuple(told)


def buffet_names(found: Timeline) -> tuple[str, ...]:
    """The tensor of each buffet, with its node where several hold the same."""
    tensors = [t for _, t in found.buffets]
    return tuple(t if tensors.count(t) == 1 else f"{t}@{node}" for node, t in found.buffets)


def _instance(found: Timeline) -> str:
    where = ", ".join(f"{name} = {at}" for name, at in found.instance)
    return f" (instance {where})" if where else ""


@dataclass(frozen=True)
class Held:
    """One buffet at the peak: its bits, its largest number of bits at any time, and the reason why it is
    resident."""

    tensor: str
    node: int
    bits: int
    largest: int
    reason: str


@dataclass(frozen=True, repr=False)
class Peak(Answer):
    """The first phase in which a memory holds most; str() describes it in words."""

    component: str
    measure: Measure
    bits: int
    capacity_bits: float
    phase: int
    phases: int
    reached: int
    einsum: str
    stamp: tuple[tuple[str, int], ...]
    held: tuple[Held, ...]
    where: str = ""
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @declared(title="Who is in the memory at its peak", name="held")
    def holders(self) -> Table:
        """One row per tensor at the peak, the largest first: its bits, its most bits, and the reason why it
        is resident."""
        columns = (
            Column("tensor"), Column("node"), Column("bits", "bit", words="bits at the peak"),
            Column("largest", "bit", words="the most bits that it ever takes there"),
            Column("reason", words="why it is there"),
        )  # fmt: skip
        rows = ((h.tensor, h.node, h.bits, h.largest, h.reason) for h in self.held)
        return Table("held", columns, tuple(rows))

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"The peak of {self.component}"

    def content(self, live: bool = True) -> list[Block]:
        """The peak in words."""
        return [Code(self._words())]

    def plot(self, what: str = "bits", ax: Axes | None = None) -> Axes:
        """Bars of the bits of each tensor at the peak."""
        return bar_axes(self.table(), what, ax)

    def __repr__(self) -> str:
        return self._words().rstrip()

    def _words(self) -> str:
        if not self.held:
            return f"{self.component} holds nothing\n"
        at = ", ".join(f"{name} = {counter}" for name, counter in self.stamp)
        size = "without a bound"
        if not math.isinf(self.capacity_bits):
            share = 100 * self.bits / self.capacity_bits
            size = f"{share:.1f} % of {engineering(self.capacity_bits, 'bit')}"
        lines = [
            f"{self.component}{self.where} holds most, {_bits(self.bits)} ({size}), in phase {self.phase} of "
            f"0 to {self.phases - 1}: {self.einsum}{' at ' + at if at else ''}; measured: "
            f"{MEANING[self.measure]}",
            f"  as much is held in {_times(self.reached, self.phases)}",
        ]
        for h in self.held:
            part = "its largest" if h.bits == h.largest else f"at other times up to {_bits(h.largest)}"
            share = 100 * h.bits / self.bits
            lines.append(f"  {h.tensor} (node {h.node}): {_bits(h.bits)}, {share:.1f} %, {part}; {h.reason}")
        return "\n".join(lines) + "\n"


def _bits(count: int) -> str:
    """Return the exact number of bits, followed by a rounded text if that differs."""
    short = engineering(count, "bit")
    return short if count < 10_000 else f"{count} b = {short}"


def _times(reached: int, phases: int) -> str:
    return "no other phase" if reached == 1 else f"{reached} of {phases} phases"


def peak(problem: Problem, buffets: tuple[Buffet, ...], found: Timeline) -> Peak:
    """The tensors in the memory at its peak, and why."""
    capacity = problem.hierarchy[found.component].size_bits
    if not found.buffets or not len(found.total):
        return Peak(found.component, found.measure, 0, capacity, 0, len(found.total), 0, "", (), ())
    at = found.peak
    einsum = found.einsums[found.einsum[at]]
    names = loop_names(problem.tree, found.loops)
    stamp = tuple((n, int(c)) for n, c in zip(names, found.stamps[at], strict=True) if c >= 0)
    rows = []
    for k, (node, tensor) in enumerate(found.buffets):
        bits = int(found.bits[at, k])
        if bits:
            buffet = next(b for b in buffets if (b.node, b.tensor) == (node, tensor))
            reason = _reason(problem, buffet, einsum)
            rows.append(Held(tensor, node, bits, int(found.bits[:, k].max()), reason))
    most = int(found.total[at])
    return Peak(
        found.component,
        found.measure,
        most,
        capacity,
        at,
        len(found.total),
        int((found.total == most).sum()),
        einsum,
        stamp,
        tuple(sorted(rows, key=lambda h: -h.bits)),
        _instance(found),
    )


def _reason(problem: Problem, buffet: Buffet, einsum: str) -> str:
    """Why a buffet is resident while an Einsum runs: its users, and the loops that keep it."""
    cascade, tree = problem.cascade, problem.tree
    accesses = [a for e in cascade for a in e.accesses if a.tensor == buffet.tensor]
    stored = _stored(tree, buffet)
    if buffet.parent is None and any(a.persistent for a in accesses):
        return "persistent: stays for the whole run"
    producer = cascade.producer(buffet.tensor)
    others = tuple(e for e in buffet.einsums if e != einsum)
    if einsum in buffet.einsums:
        if producer is not None and producer.name == einsum:
            return f"{einsum} writes it{f' for {_list(others)}' if others else ''}, {stored}"
        made = f", {producer.name} made it" if producer is not None and producer.name in others else ""
        return f"{einsum} reads it{made}, {stored}"
    order = tree.einsums
    before = tuple(e for e in others if order.index(e) < order.index(einsum))
    after = tuple(e for e in others if e not in before)
    if before and after:
        return f"{_list(before)} used it, and it waits for {_list(after)}, {stored}"
    shared = {user: loop for user in others if (loop := _next_loop(tree, buffet.node, user, einsum))}
    if shared:
        loop = next(iter(shared.values()))
        mine = tuple(user for user in shared if shared[user] == loop)
        return f"{_list(mine)} {_use(mine)} it in other iterations of the loop over {loop}, {stored}"
    return f"{buffet.reuse} keeps what {_list(others)} {_use(others)} again at the next visit, {stored}"


def _stored(tree: LoopTree, buffet: Buffet) -> str:
    """Return the position of the node among the temporal loops, in words."""
    above = [loop for i, loop in tree.loops(buffet.einsums[0]) if i < buffet.node and not loop.spatial]
    if not above:
        return "stored above all loops"
    return f"stored below the loop over {above[-1].rank_variable} (tile {above[-1].tile_shape})"


def _next_loop(tree: LoopTree, node: int, user: str, einsum: str) -> str:
    """Return the outermost temporal loop below a node that two Einsums share; empty if there is none."""
    for one, other in zip(tree.path(einsum), tree.path(user), strict=False):
        if one.id != other.id or one.branch != other.branch:
            break
        if one.id > node and isinstance(one.node, Loop) and not one.node.spatial:
            return one.node.rank_variable
    return ""


def _use(names: tuple[str, ...]) -> str:
    return "uses" if len(names) == 1 else "use"


def _list(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
