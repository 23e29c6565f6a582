"""`distribute`: a cascade split over chips, with what they exchange, in time and energy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, prod
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from polymodel.cost.costs import total_area
from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import seconds_of, spare, terminable
from polymodel.hardware.collectives import NONE, ChipSplit, CollectiveWords, Exchange, Interconnect, split_of
from polymodel.hardware.search import Answered, SearchTask, answered, mark_of
from polymodel.loading import Spec
from polymodel.mapper.records import Limits
from polymodel.mapper.request import Constraints, of_part, read_search_request, section_of_arguments
from polymodel.mapping.looptree import LoopTree
from polymodel.objectives import read_objectives
from polymodel.spec.faults import Faults, not_a_spec, plainly, suggestion
from polymodel.stores.store import check_store, folder_of
from polymodel.view.answer import Answer, Block, Line, Section, declared
from polymodel.view.table import Cell, Column, Table
from polymodel.workload.einsum import Einsum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Progress = Callable[[int, int, float], None]
FIGURES = ("energy", "latency")
MOST_CHIPS = 4096  # each is looked at by itself


@dataclass(frozen=True, eq=False)
class ChipPiece:
    """Einsums between two exchanges on all chips. `latency`: of the slowest chip, `energy`: of all;
    infinite with a `reason` where no mapping fits. `trees`: the mapping of each chip that has work;
    `working`: seconds that all chips work, added up."""

    einsums: tuple[str, ...]
    latency: float
    energy: float
    trees: Mapping[int, LoopTree]
    complete: bool
    reason: str = ""
    working: float = 0.0


@dataclass(frozen=True, eq=False)
class ChipExchange:
    """What one tensor is exchanged for, with its time on the busiest link and its energy on all."""

    exchange: Exchange
    moved: CollectiveWords
    latency: float
    energy: float


@dataclass(frozen=True, eq=False)
class ChipCount:
    """One number of chips: pieces and exchanges in turn."""

    chips: int
    split: ChipSplit
    pieces: tuple[ChipPiece, ...]
    exchanges: tuple[ChipExchange, ...]
    area: float
    leak: float = 0.0

    @property
    def waiting(self) -> float:
        """Joules that leak in chips which wait for others or exchange; `leak`: watts of one chip. They are no
        part of the energy."""
        if not self.leak:
            return 0.0
        every = self.chips * (self.computing + self.exchanging)
        return self.leak * (every - sum(p.working for p in self.pieces))

    @property
    def computing(self) -> float:
        """Seconds of all pieces, one after the other."""
        return sum(p.latency for p in self.pieces)

    @property
    def exchanging(self) -> float:
        """Seconds of all exchanges, one after the other."""
        return sum(e.latency for e in self.exchanges)

    @property
    def figures(self) -> Mapping[str, float]:
        """Its figures: chips, latency (s), energy (J) and area (m^2) of all chips."""
        energy = sum(p.energy for p in self.pieces) + sum(e.energy for e in self.exchanges)
        latency = self.computing + self.exchanging
        return {"chips": self.chips, "latency": latency, "energy": energy, "area": self.area}

    @property
    def complete(self) -> bool:
        """False if a search of a piece ended before it had looked at every mapping."""
        return all(p.complete for p in self.pieces)

    @property
    def received(self) -> int:
        """Words that the chip receives that receives most."""
        each = zip(*(e.moved.received for e in self.exchanges), strict=True)
        return max(map(sum, each), default=0)


@dataclass(frozen=True, eq=False)
class Distribution(Answer):
    """A cascade over several numbers of chips; `found[i]` is a `ChipCount`. Pieces and exchanges run one
    after the other: nothing overlaps."""

    spec: Spec
    link: Interconnect
    counts: tuple[ChipCount, ...]
    objective: str
    seconds: float

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, number: int) -> ChipCount:
        return self.counts[number]

    @declared(title="Chips")
    def chips(self) -> Table:
        """One row per number of chips. Efficiency: the time on one chip over n times that on n, where both
        were searched to the end; received: words of the chip that receives most. Where chips leak: what
        leaks in those that wait or exchange, which is no part of the energy."""
        leaks = any(c.leak for c in self.counts)
        columns = (
            Column("chips", given=True), Column("latency", "s"), Column("computing", "s"),
            Column("exchanging", "s"), Column("energy", "J"), Column("energy of links", "J"),
            *([Column("leakage while waiting", "J")] if leaks else []),
            Column("received", "words"), Column("area", "m^2"), Column("efficiency", "1"),
        )  # fmt: skip
        # Times of searches that were cut short say more of the searches than of the chips.
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
            rows.append((c.chips, *times, energy, links, *waiting, c.received, c.area, share))
        return Table("chips", columns, tuple(rows), self.notes)

    @declared(title="What chips exchange")
    def exchanges(self) -> Table:
        """One row per number of chips and tensor: the pattern, elements that are reduced or sent, words of
        the chip that receives most, bits on the busiest link."""
        columns = (
            Column("chips", given=True), Column("tensor"), Column("collective"), Column("elements", "words"),
            Column("received", "words"), Column("busiest link", "bit"), Column("latency", "s"),
            Column("energy", "J"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                c.chips, e.exchange.tensor, e.exchange.kind,
                sum(k.elements for k in e.exchange.classes) * e.exchange.times, max(e.moved.received),
                e.moved.busiest, e.latency, e.energy,
            )
            for c in self.counts
            for e in c.exchanges
        ]  # fmt: skip
        return Table("exchanges", columns, tuple(rows))

    @declared(title="Between exchanges")
    def pieces(self) -> Table:
        """One row per number of chips and piece: its Einsums, along which rank variables they are split,
        the time of the slowest chip, the energy of all."""
        columns = (
            Column("chips", given=True), Column("Einsums"), Column("split"), Column("latency", "s"),
            Column("energy", "J"), Column("complete"), Column("reason"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = [
            (
                c.chips, ", ".join(p.einsums), _splits(c.split, p.einsums), p.latency, p.energy, p.complete,
                p.reason,
            )
            for c in self.counts
            for p in c.pieces
        ]  # fmt: skip
        return Table("pieces", columns, tuple(rows))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What does not fit, and what was not searched to the end."""
        found = []
        for c in self.counts:
            bad = [p for p in c.pieces if p.reason]
            found += [f"{c.chips} chips: {', '.join(p.einsums)}: {p.reason}" for p in bad[:1]]
        cut = sorted({c.chips for c in self.counts for p in c.pieces if not p.complete and not p.reason})
        if cut:
            which = ", ".join(map(str, cut))
            found.append(f"not searched to the end: {which} chips; a better mapping may be left")
        return tuple(found)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Distribution over {', '.join(str(c.chips) for c in self.counts)} chips"

    def plot(self, x: str = "latency", y: str = "", ax: Axes | None = None) -> Axes:
        """Numbers of chips over two figures of `chips`, `latency`, `energy` and `area`: the cost (area
        where the architecture has one, else chips) against the time. SpecError for an unknown figure."""
        from polymodel.report.plots_machines import machine_axes

        fitting = [c for c in self.counts if c.figures["latency"] < inf]
        across, up = x, y or ("area" if any(c.area for c in fitting) else "chips")
        known = ("chips", "latency", "energy", "area")
        faults = [
            Diagnostic(f"there is no figure {n}", suggestion(n, known, "figures"))
            for n in (across, up)
            if n not in known
        ]
        if faults or not fitting:
            raise SpecError(faults or [Diagnostic("no number of chips fits", "; ".join(self.notes))])
        points = [(f"{c.chips} chip{'s' * (c.chips > 1)}", c.figures) for c in fitting]
        return machine_axes(points, across, up, "Cost against time", ax)

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


def _splits(split: ChipSplit, einsums: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(split.along.get(name, "-") for name in einsums))


def distribute(
    spec: Spec,
    chips: Sequence[int] | int = (1, 2, 4, 8),
    *,
    split: Sequence[str] | str,
    link: Interconnect | None = None,
    whole: bool = True,
    objective: str = "latency",
    constraints: Constraints | None = None,
    time_limit: float | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    store: str | Path | None = None,
    resume: bool = True,
) -> Distribution:
    """What a cascade costs on several chips of the spec's architecture.

    `chips`: one number or several. `split`: rank variables; each Einsum is split in blocks of equal size
    along the first of them that it has, and computed by every chip if it has none. `link`: what connects
    the chips (a ring without cost, if None). `whole`: the results of the cascade are wanted on every chip,
    as the next layer reads them; if False they stay where they are made, and parts of sums are reduced
    there. Inputs lie where they are needed.

    Einsums between two exchanges are searched together with `explore` for the least `objective` (energy,
    latency or edp) within `constraints`; an exchange begins when all chips have made the tensor, and
    nothing overlaps. `time_limit`: seconds, shared out over the searches. `workers`, `progress(done,
    searches, seconds)`, `store`, `resume`: as for `codesign`. Raises SpecError for wrong input; Refused for
    cascades that iterate and for what `explore` does not cover.
    """
    begun = perf_counter()
    if not isinstance(spec, Spec):
        raise not_a_spec("distribute", spec)
    cascade, link = spec.workload, link if link is not None else Interconnect()
    names = (split,) if isinstance(split, str) else split
    counts, name = _checked(chips, names, link, objective, time_limit, store)
    splits = [split_of(cascade, n, names, whole=whole) for n in counts]
    exchanges = [s.exchanges() for s in splits]
    work = [_pieces(spec, s, {e.tensor for e in found}) for s, found in zip(splits, exchanges, strict=True)]
    _check_fused(
        read_search_request(spec, (name,), constraints, None, None, 1, None).request.limits.fuse, work
    )
    orders = _orders(spec, work, name, constraints, store, resume)
    with terminable():
        answers = answered(orders, monotonic() + spare(time_limit), workers, progress, begun)
    area = total_area(spec.arch)
    leak = sum(spec.arch.instances(c.name) * c.leak_power for c in spec.arch.components)
    rows = tuple(
        ChipCount(
            s.chips,
            s,
            tuple(_piece(einsums, here, answers, name) for einsums, here in parts),
            tuple(_timed(e, s.chips, link) for e in found),
            area * s.chips,
            leak,
        )
        for s, found, parts in zip(splits, exchanges, work, strict=True)
    )
    return Distribution(spec, link, rows, name, perf_counter() - begun)


def _checked(
    chips: object, names: object, link: object, objective: str, time_limit: object, store: object
) -> tuple[tuple[int, ...], str]:
    """Numbers of chips and the objective. SpecError with every fault."""
    faults = Faults()
    given = plainly(chips)
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)
    counts = tuple(n for n in map(plainly, several) if type(n) is int and n >= 1)
    if not counts or len({*counts}) < len(several):
        faults.note(Diagnostic(f"{chips!r} are not numbers of chips", "give e.g. [1, 2, 4]", "chips"))
        counts = ()
    if max(counts, default=0) > MOST_CHIPS:
        faults.note(Diagnostic(f"{max(counts)} are too many chips", f"give {MOST_CHIPS} at most", "chips"))
    if not isinstance(names, Sequence) or not all(isinstance(v, str) for v in names):
        faults.note(Diagnostic(f"{names!r} are not rank variables", "give e.g. ['h', 'c']", "split"))
    if not isinstance(link, Interconnect):
        remedy = "give pm.Interconnect(topology='ring', throughput=4e11)"
        faults.note(Diagnostic(f"{link!r} is not an interconnect", remedy, "link"))
    elif link.shape is not None and any(n != prod(link.shape) for n in counts):
        what = f"a mesh of {link.shape[0]} x {link.shape[1]} has {prod(link.shape)} chips"
        faults.note(Diagnostic(what, "give that number, or another shape", "link.shape"))
    found, unknown = read_objectives((objective,), (), ())
    if unknown or found[0] not in (*FIGURES, "edp"):
        faults.note(Diagnostic(f"unknown objective {objective!r}", "use energy, latency or edp", "objective"))
    with faults.noting():
        check_store(store)
    with faults.noting():
        seconds_of(plainly(time_limit), "time_limit")
    faults.raise_if_any()
    return counts, found[0]


@dataclass(frozen=True)
class ChipWork:
    """What a chip computes of a piece. `later`: intermediates of the piece that later pieces read as well, so
    that they have to be in the backing storage."""

    spec: Spec
    later: tuple[str, ...]

    def mark(self, objective: str) -> str:
        """A mark of all that its search depends on."""
        return mark_of(self.spec, (objective, *self.later))


def _orders(
    spec: Spec,
    work: Sequence[Pieces],
    name: str,
    constraints: Constraints | None,
    store: str | Path | None,
    resume: bool,
) -> dict[str, SearchTask]:
    """The searches of all pieces, by their marks."""
    place = None if store is None else folder_of(store)
    orders: dict[str, SearchTask] = {}
    for one in (one for parts in work for _, here in parts for one in here.values()):
        mark = one.mark(name)
        folder = None if place is None else place / mark[:16]
        told = _written_back(of_part(constraints, one.spec, spec), one)
        orders.setdefault(mark, SearchTask(one.spec, (name,), FIGURES, told, 0.0, folder, resume))
    return orders


Pieces = Sequence[tuple[tuple[str, ...], Mapping[int, ChipWork]]]  # Einsums, and what each chip does of them


def _check_fused(fused: frozenset[str], work: Sequence[Pieces]) -> None:
    """SpecError where tensors are to be fused that another piece reads than makes them."""
    for one in (one for pieces in work for _, here in pieces for one in here.values()):
        made = {a.tensor for e in one.spec.workload for a in e.outputs}
        if apart := sorted(fused & made - ({*_handed_on(one.spec)} - {*one.later})):
            what = f"{', '.join(apart)} cannot be fused: it is read after an exchange between chips"
            raise SpecError([Diagnostic(what, "leave it out of `fuse`", "constraints.fuse")])


def _written_back(constraints: Constraints | None, work: ChipWork) -> Constraints | None:
    """The constraints of a search, by which what later pieces read is not fused."""
    if not work.later:
        return constraints
    if isinstance(constraints, Limits):
        named: object = constraints.unfused
        before = [f"({named})"] if isinstance(named, str) else [*constraints.unfused]
        return replace(constraints, unfused=frozenset({*before, *work.later}))
    section, faults = section_of_arguments(constraints)
    if faults:
        return constraints  # the search tells them
    given = section if "unfused" in section.model_fields_set else work.spec.raw_explore
    before = [f"({given.unfused})"] if given is not None and given.unfused else []
    return section.model_copy(update={"unfused": " | ".join([*before, *work.later])})


def _pieces(spec: Spec, split: ChipSplit, exchanged: set[str]) -> Pieces:
    """Einsums between exchanges, with what each chip that has work computes of them."""
    groups: list[list[Einsum]] = []
    made: set[str] = set()
    for einsum in split.cascade:
        if not groups or made & exchanged & {a.tensor for a in einsum.inputs}:
            groups.append([])
            made = set()
        groups[-1].append(einsum)
        made |= {a.tensor for a in einsum.outputs}
    found: list[tuple[tuple[str, ...], Mapping[int, ChipWork]]] = []
    for i, group in enumerate(groups):
        later = {a.tensor for others in groups[i + 1 :] for e in others for a in e.inputs}
        alike: dict[object, ChipWork] = {}
        here: dict[int, ChipWork] = {}
        for chip in range(split.chips):
            blocks = {e.name: _block(e, split, chip) for e in group}
            working = tuple(name for name, block in blocks.items() if block != NONE)
            key = tuple((name, blocks[name]) for name in working)
            if working and key not in alike:
                part = _on_chip(spec, split, working, blocks)
                alike[key] = ChipWork(part, tuple(t for t in _handed_on(part) if t in later))
            if working:
                here[chip] = alike[key]
        found.append((tuple(e.name for e in group), here))
    return tuple(found)


def _handed_on(spec: Spec) -> list[str]:
    """Tensors that one Einsum of a spec makes and another reads."""
    made = dict.fromkeys(a.tensor for e in spec.workload for a in e.outputs)
    return [t for t in made if spec.workload.consumers(t)]


def _block(einsum: Einsum, split: ChipSplit, chip: int) -> tuple[int, int] | None:
    """The block of a chip, (0, -1) if it has none. Where nothing depends on its place, in a box of
    iterations, it is shifted to the first: blocks of one size cost the same."""
    block = split.block(einsum, chip)
    bounds = (len(c.expr.variables) == 1 and not c.modulus for c in einsum.constraints)
    if block in (None, NONE) or not all(bounds) or any(a.guard for a in einsum.accesses):
        return block
    assert block is not None
    first, _ = einsum.bound(split.along[einsum.name])
    return first, first + block[1] - block[0]


def _on_chip(
    spec: Spec, split: ChipSplit, working: Sequence[str], blocks: Mapping[str, tuple[int, int] | None]
) -> Spec:
    """Some Einsums of the spec, each on its block."""
    part = spec.only(*working)
    assert part.raw_workload is not None
    einsums = []
    for raw in part.raw_workload.einsums:
        block = blocks[raw.name]
        text = () if block is None else (f"{block[0]} <= {split.along[raw.name]} <= {block[1]}",)
        shape = (*raw.iteration_space_shape, *text)
        einsums.append(raw.model_copy(update={"iteration_space_shape": shape}))
    return replace(part, raw_workload=part.raw_workload.model_copy(update={"einsums": tuple(einsums)}))


def _piece(
    einsums: tuple[str, ...], here: Mapping[int, ChipWork], answers: Mapping[str, Answered], objective: str
) -> ChipPiece:
    found = {chip: answers[work.mark(objective)] for chip, work in here.items()}
    lacking = next((a for a in found.values() if not a.mappings), None)
    if lacking is not None:
        return ChipPiece(einsums, inf, inf, {}, lacking.complete, lacking.reason or "no mapping fits")
    latency = max((float(a.figures["latency"][0]) for a in found.values()), default=0.0)
    energy = sum(float(a.figures["energy"][0]) for a in found.values())
    trees = {chip: a.mappings[0].tree for chip, a in found.items()}
    working = sum(float(a.figures["latency"][0]) for a in found.values())
    complete = all(a.complete for a in found.values())
    return ChipPiece(einsums, latency, energy, trees, complete, working=working)


def _timed(exchange: Exchange, chips: int, link: Interconnect) -> ChipExchange:
    moved = exchange.moved(chips, link)
    rate, energy = float(link.throughput), float(link.energy_per_bit_hop)
    return ChipExchange(exchange, moved, moved.busiest / rate, moved.bit_hops * energy)
