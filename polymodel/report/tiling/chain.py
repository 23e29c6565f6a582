"""Reports on two chained products in panels: three schedules next to each other."""

from __future__ import annotations

from polymodel.frozen import dataclass
from polymodel.spec.faults import check_classes
from polymodel.tiling.matmul.chain import ChainPanels
from polymodel.tiling.matmul.pipeline import PanelSchedule, PanelWork, PipelineMachine, Way
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import RATIO, Column, Table

UNITS = ("memory", "array", "part 1", "part 2")


@dataclass(frozen=True, eq=False)
class ChainTiling(Answer):
    """Two products, Z = (A B) C or A (B C), in panels whose intermediate results pass from the first to the
    second.

    `panels`: how they are cut; `work`: the cost of each panel; `ways`: schedules, the fastest first.
    """

    panels_cut: ChainPanels
    work: PanelWork
    machine: PipelineMachine
    ways: tuple[PanelSchedule, ...]
    told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.tile_chain(...) makes one"
        check_classes(self, remedy, {"panels_cut": ChainPanels, "work": PanelWork, "ways": tuple})

    @property
    def best(self) -> PanelSchedule:
        """The fastest way."""
        return self.ways[0]

    def way(self, name: Way) -> PanelSchedule:
        """Return the schedule called `separate`, `fused` or `pipelined`."""
        return next(x for x in self.ways if x.way == name)

    @property
    def cycles(self) -> int:
        """Cycles of the fastest schedule."""
        return self.best.cycles

    @declared
    def summary(self) -> Table:
        """The schedules next to each other: kernels, words, cycles, and the busy time of each unit."""
        columns = (
            Column("way", words="separate: one product after the other; fused: panel by panel on the whole "
                   "array; pipelined: each product on its part of the array"),
            Column("launches", "element"),
            Column("words", "word"),
            Column("total_cycles", "cycle"),
            *(Column(f"{u.replace(' ', '_')}_busy", "cycle", words=f"cycles of steps: {u}") for u in UNITS),
            Column("speedup", RATIO, words="cycles of the separate products over those here"),
        )  # fmt: skip
        slow = self.way("separate").cycles
        rows = tuple(
            (x.way, x.launches, x.words, x.cycles, *(x.busy.get(u) for u in UNITS),
             slow / x.cycles if x.cycles else 1.0)
            for x in self.ways
        )  # fmt: skip
        return Table("summary", columns, rows)

    @declared
    def panels(self) -> Table:
        """One row per launched panel: its first line and how many, words that each step moves, multiplies of
        both products, and when its result is stored."""
        line = "column of C" if self.panels_cut.turned else "row of A"
        columns = (
            Column("panel", words="number of the launched panel"),
            Column("begin", words=f"its first {line}"),
            Column("lines", words="rows of A, or columns of C, in the panel"),
            Column("load_1", "word", words="words loaded for the first product"),
            Column("load_2", "word", words="words loaded for the second product, without T"),
            Column("intermediate", "word", words="words of the panel of T"),
            Column("store", "word", words="words of the panel of Z"),
            Column("multiplies_1", words="multiplies of the first product"),
            Column("multiplies_2", words="multiplies of the second product"),
            *(Column(f"{x.way}_end", "cycle", words="when the result is stored") for x in self.ways),
        )
        on, w = self.panels_cut.launched, self.work
        figures = (
            self.panels_cut.begins[:-1][on], self.panels_cut.first.heights[on], w.load_1, w.load_2, w.store_t,
            w.store_z, w.multiplies_1, w.multiplies_2,
        )  # fmt: skip
        rows = zip(range(w.panels), *(x.tolist() for x in figures), *(x.ends for x in self.ways), strict=True)
        return Table("panels", columns, tuple(rows))

    @property
    def title(self) -> str:
        """The heading: what is multiplied, and the number of panels."""
        one, two = self.panels_cut.first.product, self.panels_cut.second.product
        names = [one.name, one.second, two.second]
        if self.panels_cut.turned:
            names.reverse()
        a, b, c = names if len(set(names)) == len(names) else "ABC"
        what = f"{a} ({b} {c})" if self.panels_cut.turned else f"({a} {b}) {c}"
        lines = "columns" if self.panels_cut.turned else "rows"
        return f"{what}: {self.work.panels:,} panels of {lines}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Explanations of the figures."""
        m = self.machine
        said = [
            "words, launches, multiplies: exact counts of the patterns (values all one, nothing cancels); "
            "cycles: a model of steps that units do one after the other",
            f"{m.pes} multiplies a cycle; pipelined: {m.split} for the first product, {m.pes - m.split} for "
            f"the second; T in {m.buffers} buffers",
        ]
        if m.once:
            said.append("a part that continues with the same kernel stays configured")
        return (*said, *self.told)

    def content(self, live: bool = True) -> list[Block]:
        """The schedules, and explanations of the figures."""
        shown = Section("summary", self.table("summary"), opened=True)
        return [Line(self.title), Line(), shown, Line(), *notes(self.notes)]

    def __repr__(self) -> str:
        best = self.best
        return f"ChainTiling({self.title}; {best.way}: {best.words:,} words, {best.cycles:,} cycles)"
