"""Pipelines over chips: each stage has its own Einsums, on one chip or several, and batches pass along the
stages.

Iteration spaces are cut in blocks along rank variables, the batches. In slot k stage s computes batch k - s:
its chips share the batch along further rank variables and exchange elements as chips without stages do. Then
everything that was produced in the slot and is read in other stages is sent. Exchanges and transfers follow
from the relations: an element is produced by one batch of one stage, and needed by batches of later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.hardware.collectives import (
    NONE,
    Bounds,
    Chips,
    ChipSplit,
    CollectiveWords,
    ElementClass,
    Exchange,
    Interconnect,
    Link,
    kind_of,
    nth_block,
    owners,
    split_of,
    touched,
)
from polymodel.polyhedra.members import points_by_members
from polymodel.spec.faults import Faults, listed, plainly, suggestion
from polymodel.workload.einsum import Cascade, Einsum

SEND = "send"
Cell = tuple[int, int]  # a batch, and a chip of its stage
BySlot = Mapping[int, Exchange]


@dataclass(frozen=True)
class StageSplit:
    """A cascade over stages, and over batches: `batches.chips` blocks of each Einsum.

    `widths`: the number of chips of each stage (empty: one). `within`: the rank variable along which the
    chips of a stage share an Einsum (none: each computes all of it).
    """

    batches: ChipSplit
    stages: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...] = ()
    within: Mapping[str, str] = field(default_factory=dict)

    @property
    def chips(self) -> int:
        return sum(map(self.width, range(len(self.stages))))

    @property
    def slots(self) -> int:
        return len(self.stages) + self.batches.chips - 1

    def width(self, stage: int) -> int:
        """The number of chips of a stage."""
        return self.widths[stage] if self.widths else 1

    def chip(self, stage: int, place: int) -> int:
        """The number of a chip of a stage among all: those of the first stage come first."""
        return sum(map(self.width, range(stage))) + place

    def cells(self, stage: int) -> list[Cell]:
        """Every batch on every chip of a stage."""
        return [(b, place) for b in range(self.batches.chips) for place in range(self.width(stage))]

    def bounds(self, einsum: Einsum, cell: Cell) -> Bounds | None:
        """The rank variables of an Einsum that are bounded in a cell; None if it has no iterations there."""
        batch, place = cell
        block, along = self.batches.block(einsum, batch), self.batches.along[einsum.name]
        assert block is not None
        name = self.within.get(einsum.name)
        width = self.width(self.stage(einsum))
        if block == NONE or name is None or width == 1:
            return None if block == NONE else ((along, *block),)
        mine = nth_block(block if name == along else einsum.bound(name), width, place)
        if mine == NONE:
            return None
        return ((along, *mine),) if name == along else ((along, *block), (name, *mine))

    def stage(self, einsum: Einsum) -> int:
        """The stage that an Einsum belongs to."""
        return next(s for s, names in enumerate(self.stages) if einsum.name in names)

    def moves(self) -> tuple[tuple[BySlot, ...], tuple[BySlot, ...]]:
        """For each tensor, in order of Einsums: exchanges within its stage in each slot, and transfers to
        other stages after it.

        Raises Refused if batches cannot be computed in sequence.
        """
        inside, sends = [], []
        for einsum in self.batches.cascade:
            for tensor in dict.fromkeys(a.tensor for a in einsum.outputs):
                look(f"what chips send of {tensor}")
                within, sent = self._moves(einsum, tensor)
                inside.append(within)
                sends.append(sent)
        return tuple(i for i in inside if i), tuple(s for s in sends if s)

    def _moves(self, einsum: Einsum, tensor: str) -> tuple[BySlot, BySlot]:
        here = self.stage(einsum)
        shared = einsum.name in self.within and self.width(here) > 1
        readers: dict[int, list[Einsum]] = defaultdict(list)
        for reader in self.batches.cascade.consumers(tensor):
            readers[self.stage(reader)].append(reader)
        exchanged: dict[int, list[ElementClass]] = defaultdict(list)
        sent: dict[int, list[ElementClass]] = defaultdict(list)
        for one in self._elements(einsum, tensor, readers):
            slot = here + one.batch
            own = ElementClass(one.made, one.needed, one.elements)
            read = one.needed or one.later or not readers
            if shared and (one.needed - one.made or (len(one.made) > 1 and read)):
                exchanged[slot].append(own)
            if one.later:
                from_where = owners(own) if shared else _in_equal_shares(one)
                sent[slot] += (ElementClass(frozenset({o}), one.later, n) for o, n in from_where)
        bits = next(a.bits_per_value for a in einsum.outputs if a.tensor == tensor)
        times = einsum.n_instances
        every = frozenset(self.chip(here, place) for place in range(self.width(here)))
        return (
            {
                slot: Exchange(tensor, kind_of(some, every), tuple(some), bits, times)
                for slot, some in sorted(exchanged.items())
            },
            {slot: Exchange(tensor, SEND, _merged(some), bits, times) for slot, some in sorted(sent.items())},
        )

    def _elements(
        self, einsum: Einsum, tensor: str, readers: Mapping[int, Sequence[Einsum]]
    ) -> list[StagedElements]:
        """Elements by where they are produced and needed.

        Raises Refused unless one batch produces each element, before those that read it.
        """
        here = self.stage(einsum)
        roles = [(here, True, cell) for cell in self.cells(here)]
        roles += [(stage, False, cell) for stage in readers for cell in self.cells(stage)]
        sets = [
            touched(
                [(e, self.bounds(e, cell)) for e in ([einsum] if output else readers[stage])],
                tensor,
                output=output,
            )
            for stage, output, cell in roles
        ]
        result: dict[tuple[int, Chips, Chips, Chips], int] = defaultdict(int)
        for members, elements in points_by_members(sets).items():
            mine = [roles[m] for m in sorted(members)]
            made = sorted({batch for _, output, (batch, _) in mine if output})
            if not made:
                continue
            if len(made) > 1:
                what = f"several batches add to the same elements of {tensor}"
                remedy = f"cut the work along a rank variable of {tensor}"
                raise Refused(what, remedy, code="unsupported-recurrence")
            for stage in readers:
                batches = sorted({b for s, output, (b, _) in mine if s == stage and not output})
                _check_order(tensor, made[0], batches, stage == here)
            makers = frozenset(self.chip(here, place) for _, output, (_, place) in mine if output)
            takers = [(s, self.chip(s, place)) for s, output, (_, place) in mine if not output]
            needed = frozenset(c for s, c in takers if s == here)
            later = frozenset(c for s, c in takers if s != here)
            result[made[0], makers, needed, later] += elements
        return [StagedElements(*where, elements) for where, elements in result.items()]


@dataclass(frozen=True)
class StagedElements:
    """Elements that one batch produces, with the chips concerned.

    The chips of the stage that produce parts of them (or that all produce them whole), those that need them
    there, and the chips of later stages that do.
    """

    batch: int
    made: Chips
    needed: Chips
    later: Chips
    elements: int


def _in_equal_shares(one: StagedElements) -> Iterable[tuple[int, int]]:
    """Send elements that several chips have produced completely in equal shares."""
    share, rest = divmod(one.elements, len(one.made))
    for i, chip in enumerate(sorted(one.made)):
        if share + (i < rest):
            yield chip, share + (i < rest)


def _check_order(tensor: str, made: int, needed: Sequence[int], within: bool) -> None:
    """Raises Refused if a batch reads what a later one produces, or, within a stage, what any other one
    does."""
    early = [b for b in needed if b < made]
    if early or (within and any(b != made for b in needed)):
        first = early[0] if early else next(b for b in needed if b != made)
        what = f"batch {first} reads elements of {tensor} that batch {made} produces"
        how = "in the same stage" if within else "later"
        remedy = "cut the work along a rank variable in which batches do not depend on each other"
        raise Refused(f"{what} {how}", remedy, code="unsupported-recurrence")


def _merged(classes: Iterable[ElementClass]) -> tuple[ElementClass, ...]:
    """Classes of the same chips merged."""
    elements: dict[tuple[Chips, Chips], int] = defaultdict(int)
    for c in classes:
        elements[c.made, c.needed] += c.elements
    return tuple(sorted((ElementClass(*chips, n) for chips, n in elements.items()), key=_key))


def _key(c: ElementClass) -> tuple[list[int], list[int], int]:
    return sorted(c.made), sorted(c.needed), c.elements


def times_inside(
    inside: Sequence[BySlot], split: StageSplit, link: Interconnect
) -> dict[tuple[int, int], float]:
    """Seconds of the exchanges within a stage in a slot, by (stage, slot).

    Exchanges are in sequence, each as long as its busiest link, which also carries what all other stages
    exchange in the slot.
    """
    rate = float(link.throughput)
    moved: dict[int, list[tuple[int, CollectiveWords]]] = defaultdict(list)
    at = {a.tensor: split.stage(e) for e in split.batches.cascade for a in e.outputs}
    for by_slot in inside:
        for slot, exchange in by_slot.items():
            moved[slot].append((at[exchange.tensor], exchange.moved(split.chips, link)))
    result: dict[tuple[int, int], float] = defaultdict(float)
    for slot, several in moved.items():
        for stage, words in several:
            others = together([w for s, w in several if s != stage], split.chips).bits
            busiest = max((bits + others.get(way, 0) for way, bits in words.bits.items()), default=0)
            result[stage, slot] += busiest / rate
    return result


def together(several: Sequence[CollectiveWords], chips: int) -> CollectiveWords:
    """The sum over several transfers, by chip and by link."""
    bits: dict[Link, int] = defaultdict(int)
    for one in several:
        for link, amount in one.bits.items():
            bits[link] += amount
    received, sent = (
        tuple(sum(one[i] for one in each) for i in range(chips))
        for each in ([m.received for m in several], [m.sent for m in several])
    )
    return CollectiveWords(received, sent, dict(bits))


def joined(by_slot: BySlot) -> Exchange:
    """Everything that is exchanged of a tensor, over all slots."""
    first = next(iter(by_slot.values()))
    kinds = {one.kind for one in by_slot.values()}
    kind = kinds.pop() if len(kinds) == 1 else "exchange"
    classes = _merged(c for one in by_slot.values() for c in one.classes)
    return Exchange(first.tensor, kind, classes, first.bits_per_value, first.times)


def moved_by_slot(
    sends: Sequence[BySlot], chips: int, link: Interconnect
) -> tuple[tuple[dict[int, CollectiveWords], ...], dict[int, CollectiveWords]]:
    """The transfers after each slot: of each tensor, and of all of them together."""
    each = tuple({slot: e.moved(chips, link) for slot, e in one.items()} for one in sends)
    slots = sorted({slot for one in each for slot in one})
    return each, {slot: together([one[slot] for one in each if slot in one], chips) for slot in slots}


def stages_of(cascade: Cascade, stages: object, faults: Faults) -> tuple[tuple[str, ...], ...]:
    """The stages, each with its Einsums in the order of the cascade. Reports faults."""
    known = [e.name for e in cascade]
    given = plainly(stages)
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    rows = [listed(f"stages[{i}]", row, "['Q', 'K']") for i, row in enumerate(several)]
    if not rows or not all(rows):
        what = "a stage has no Einsums" if rows else f"{stages!r} are not stages"
        remedy = "give lists of Einsums, [['Q', 'K'], ['Z']]"
        faults.note(Diagnostic(what, remedy, "stages", code="wrong-type"))
        return ()
    names = [str(name) for row in rows for name in row]
    for name in dict.fromkeys(names):
        if name not in known:
            faults.note(
                Diagnostic(
                    f"unknown Einsum {name}",
                    suggestion(name, known, "Einsums"),
                    "stages",
                    code="unknown-name",
                )
            )
        elif names.count(name) > 1:
            message = f"Einsum {name} is named twice"
            faults.note(Diagnostic(message, "name it in one stage", "stages", code="duplicate-name"))
    if left := [name for name in known if name not in names]:
        message = f"no stage has {', '.join(left)}"
        faults.note(Diagnostic(message, "name each Einsum in one", "stages", code="unmapped-einsum"))
    return tuple(tuple(name for name in known if name in row) for row in rows)


def stage_split(
    cascade: Cascade,
    stages: tuple[tuple[str, ...], ...],
    batches: int,
    variables: Sequence[str],
    widths: tuple[int, ...] = (),
    within: Sequence[str] = (),
) -> StageSplit:
    """The cascade over these stages, with `batches` batches along the variables.

    The chips of a stage share its Einsums along those of `within`. Raises SpecError for a stage that reads
    what a later one produces; Refused if an Einsum has none of the variables.
    """
    split = split_of(cascade, batches, variables, whole=False)
    if whole := [e.name for e in cascade if e.name not in split.along]:
        what = f"{', '.join(whole)} {'has' if len(whole) == 1 else 'have'} no rank variable of the batches"
        raise Refused(what, "name one of its rank variables in `split` as well", code="unsupported-pipeline")
    result = StageSplit(split, stages, widths, split_of(cascade, 1, within, whole=False, of="within").along)
    at = {name: s for s, names in enumerate(stages) for name in names}
    faults = [
        Diagnostic(
            f"{reader.name} of stage {at[reader.name]} reads {a.tensor}, produced in stage {at[maker.name]}",
            "stages go in the order of the cascade",
            "stages",
            code="order-violated",
        )
        for maker in cascade
        for a in maker.outputs
        for reader in cascade.consumers(a.tensor)
        if at[reader.name] < at[maker.name]
    ]
    if faults:
        raise SpecError(faults)
    return result
