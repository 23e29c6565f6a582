"""The costs of a cascade over several chips: pieces and exchanges, and their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.hardware.collectives import ChipSplit, CollectiveWords, Exchange, Interconnect
from polymodel.loading import Spec
from polymodel.mapping.looptree import LoopTree
from polymodel.spec.faults import suggestion
from polymodel.view.answer import Answer, Block, Line, Part, Section, declared
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class ChipPiece:
    """Einsums between two exchanges on all chips.

    `latency`: of the slowest chip; `energy`: of all; infinite with a `reason` if no mapping fits. `trees`:
    the mapping of each chip that has work; `working`: busy seconds summed over chips. In a pipeline, over all
    batches; `trees` by batch and chip of the stage.
    """

    einsums: tuple[str, ...]
    latency: float
    energy: float
    trees: Mapping[int | tuple[int, ...], LoopTree]
    complete: bool
    reason: str = ""
    working: float = 0.0


@dataclass(frozen=True, eq=False)
class ChipExchange:
    """The exchange of one tensor, with its time on the busiest link (slot by slot, without contention) and
    its energy on all links."""

    exchange: Exchange
    moved: CollectiveWords
    latency: float
    energy: float


@dataclass(frozen=True, eq=False)
class ChipCount:
    """The costs for one number of chips: alternating pieces and exchanges.

    For a pipeline (`slots` is not empty), for one number of batches: the pieces of each stage, the seconds of
    the slowest stage in each slot including the exchanges of its chips, and the transfers after the slot;
    `split` has the batches, `within` the rank variables along which the chips of a stage share an Einsum
    (`-`: each computes all of it).
    """

    chips: int
    split: ChipSplit
    pieces: tuple[ChipPiece, ...]
    exchanges: tuple[ChipExchange, ...]
    area: float
    leak: float = 0.0
    slots: tuple[tuple[float, float], ...] = ()
    within: Mapping[str, str] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        """The number of batches that the work is split into: 1 without stages."""
        return self.split.chips if self.slots else 1

    @property
    def waiting(self) -> float:
        """Joules that leak in chips that wait for others or exchange; `leak`: watts of one chip.

        Not part of the energy.
        """
        if not self.leak:
            return 0.0
        every = self.chips * (self.computing + self.exchanging)
        return self.leak * (every - sum(p.working for p in self.pieces))

    @property
    def name(self) -> str:
        """Its name among the alternatives: `4 chips`, or with stages `8 batches`."""
        number, what = (self.batches, "batch") if self.slots else (self.chips, "chip")
        return f"{number} {what}" + ("" if number == 1 else "es" if self.slots else "s")

    @property
    def computing(self) -> float:
        """Seconds of all pieces in sequence; of a pipeline, of all slots."""
        if self.slots:
            return sum(seconds for seconds, _ in self.slots)
        return sum(p.latency for p in self.pieces)

    @property
    def exchanging(self) -> float:
        """Seconds of all exchanges in sequence; of a pipeline, of the transfers after each slot."""
        if self.slots:
            return sum(seconds for _, seconds in self.slots)
        return sum(e.latency for e in self.exchanges)

    @property
    def figures(self) -> Mapping[str, float]:
        """Its figures: chips, latency (s), energy (J) and area (m^2) of all chips."""
        energy = sum(p.energy for p in self.pieces) + sum(e.energy for e in self.exchanges)
        latency = self.computing + self.exchanging
        return {"chips": self.chips, "latency": latency, "energy": energy, "area": self.area}

    @property
    def complete(self) -> bool:
        """False if a search of a piece ended before it had covered every mapping."""
        return all(p.complete for p in self.pieces)

    @property
    def received(self) -> int:
        """Words that the chip with most receives."""
        each = zip(*(e.moved.received for e in self.exchanges), strict=True)
        return max(map(sum, each), default=0)


@dataclass(frozen=True, eq=False)
class Distribution(Answer):
    """A cascade over several numbers of chips, or with stages of several numbers of batches.

    `found[i]` is a `ChipCount`. Pieces and exchanges run in sequence: only stages of a pipeline overlap.
    """

    spec: Spec
    link: Interconnect
    counts: tuple[ChipCount, ...]
    objective: str
    seconds: float

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, number: int) -> ChipCount:
        return self.counts[number]

    @property
    def _numbered(self) -> list[Column]:
        """The columns that identify rows."""
        batches = [Column("batches", given=True)] if any(c.slots for c in self.counts) else []
        return [Column("chips", given=True), *batches]

    def _number(self, count: ChipCount) -> tuple[Cell, ...]:
        return (count.chips, count.batches) if len(self._numbered) > 1 else (count.chips,)

    @declared(title="Chips")
    def chips(self) -> Table:
        """One row per number of chips, or of batches with stages.

        Efficiency: the time on one chip divided by n times that on n, if both were searched completely;
        received: words of the chip that receives most. With leakage: that of chips that wait or exchange,
        which is not part of the energy. With areas: that of all chips.
        """
        leaks, large = any(c.leak for c in self.counts), any(c.area for c in self.counts)
        columns = (
            *self._numbered, Column("latency", "s"), Column("computing", "s"),
            Column("exchanging", "s"), Column("energy", "J"), Column("energy of links", "J"),
            *([Column("leakage while waiting", "J")] if leaks else []),
            Column("received", "words"), *([Column("area", "m^2")] if large else []),
            Column("efficiency", "1"),
        )  # fmt: skip
        # times of incomplete searches reflect the searches more than the chips
        alone = next((c.figures["latency"] for c in self.counts if c.chips == 1 and c.complete), None)
        rows: list[tuple[Cell, ...]] = []
        for c in self.counts:
            took = c.figures["latency"]
            known = alone is not None and c.complete and 0 < took < inf
            share = alone / took / c.chips if alone is not None and known else None
            links = sum(e.energy for e in c.exchanges)
            energy = c.figures["energy"]
            times = took, c.computing, c.exchanging
            waiting = (c.waiting,) if leaks else ()
            area = (c.area,) if large else ()
            rows.append((*self._number(c), *times, energy, links, *waiting, c.received, *area, share))
        return Table("chips", columns, tuple(rows), self.notes)

    @declared(title="What chips exchange")
    def exchanges(self) -> Table:
        """One row per number of chips and tensor: the pattern, elements that are reduced or sent, words of
        the chip that receives most, bits on the busiest link."""
        columns = (
            *self._numbered, Column("tensor"), Column("collective"), Column("elements", "words"),
            Column("received", "words"), Column("busiest link", "bit"), Column("latency", "s"),
            Column("energy", "J"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                *self._number(c), e.exchange.tensor, e.exchange.kind,
                sum(k.elements for k in e.exchange.classes) * e.exchange.times, max(e.moved.received),
                e.moved.busiest, e.latency, e.energy,
            )
            for c in self.counts
            for e in c.exchanges
        ]  # fmt: skip
        return Table("exchanges", columns, tuple(rows))

    @declared(title="Between exchanges")
    def pieces(self) -> Table:
        """One row per number of chips and piece: its Einsums, the rank variables along which they are split
        (in a pipeline over batches, then over the chips of the stage), the time of the slowest chip (of a
        stage, that of all batches), the energy of all."""
        columns = (
            *self._numbered, Column("Einsums"), Column("split"), Column("latency", "s"),
            Column("energy", "J"), Column("complete"), Column("reason"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                *self._number(c), ", ".join(p.einsums), _splits(c, p.einsums), p.latency, p.energy,
                p.complete, p.reason,
            )
            for c in self.counts
            for p in c.pieces
        ]  # fmt: skip
        return Table("pieces", columns, tuple(rows))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on what does not fit, and on incomplete searches."""
        result = []
        for c in self.counts:
            bad = [p for p in c.pieces if p.reason]
            result += [f"{c.name}: {', '.join(p.einsums)}: {p.reason}" for p in bad[:1]]
        cut = [c for c in self.counts if any(not p.complete and not p.reason for p in c.pieces)]
        if cut:
            what = f"not searched to the end: {_counts_text(cut)}"
            result.append(f"{what}; a better mapping may be left")
        return tuple(result)

    @property
    def title(self) -> str:
        """The heading of its page."""
        if any(c.slots for c in self.counts):
            return f"Pipeline over {self.counts[0].chips} chips, {_counts_text(self.counts)}"
        return f"Distribution over {_counts_text(self.counts)}"

    def plot(self, x: str = "latency", y: str = "", ax: Axes | None = None) -> Axes:
        """Plot numbers of chips, or of batches, over two figures of `chips`, `latency`, `energy` and `area`.

        By default the cost (area if the architecture has one, otherwise chips) over the time. Raises
        SpecError for an unknown figure.
        """
        from polymodel.report.plots_machines import machine_axes

        fitting = [c for c in self.counts if c.figures["latency"] < inf]
        across, up = x, y or ("area" if any(c.area for c in fitting) else "chips")
        known = ("chips", "latency", "energy", "area")
        faults = [
            Diagnostic(f"there is no figure {n}", suggestion(n, known, "figures"), code="unknown-name")
            for n in (across, up)
            if n not in known
        ]
        if faults or not fitting:
            raise SpecError(
                faults or [Diagnostic("no number of chips fits", "; ".join(self.notes), code="no-solution")]
            )
        points = [(c.name, c.figures) for c in fitting]
        return machine_axes(points, across, up, "Cost against time", ax)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """A plot of the cost over the time, every table, and the inputs."""
        from polymodel.report.search_page import Plot, plotted

        pictures = []
        if plots and any(c.figures["latency"] < inf for c in self.counts):
            pictures.append(Plot("cost against time", self._drawn))
        return [*plotted(pictures), *super().parts(live, plots, command)]

    def _drawn(self, ax: Axes) -> None:
        self.plot(ax=ax)

    def content(self, live: bool = True) -> list[Block]:
        """Chips and exchanges."""
        exchanged = [Section("", self.table("exchanges"))] if any(c.exchanges for c in self.counts) else []
        head: list[Block] = [Line(self._headline()), Section("", self.table("chips"))]
        return [*head, *exchanged, *(Line(n) for n in self.notes)]

    def _headline(self) -> str:
        link = self.link
        shape = f" of {link.shape[0]} x {link.shape[1]}" if link.shape else ""
        return f"{self.title}, {link.topology}{shape}; best {self.objective}; {self.seconds:.3g} s"

    def __repr__(self) -> str:
        tables = [self.table("chips").text()]
        tables += [self.table("exchanges").text()] if any(c.exchanges for c in self.counts) else []
        return "\n".join([self._headline(), *tables, *(f"  {n}" for n in self.notes)])

    def __str__(self) -> str:
        return repr(self)


def _splits(count: ChipCount, einsums: Sequence[str]) -> str:
    """The rank variables along which some Einsums are split, over chips or batches.

    Followed by those over chips of a stage that share a batch (`m then h`; `-`: each computes all of it).
    """
    each = (
        count.split.along.get(name, "-") + (f" then {count.within[name]}" if name in count.within else "")
        for name in einsums
    )
    return ", ".join(dict.fromkeys(each))


def _counts_text(counts: Sequence[ChipCount]) -> str:
    """Numbers of chips, or of batches: `1, 2, 4 chips`."""
    rows = sorted({(c.batches if c.slots else c.chips): c for c in counts}.items())
    return f"{', '.join(str(n) for n, _ in rows)} {'batches' if counts[0].slots else 'chips'}"
