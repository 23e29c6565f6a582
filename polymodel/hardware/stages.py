"""Pipelines over chips: each chip has Einsums of its own, a stage, and batches of work pass along them.

Iteration spaces are cut in blocks along rank variables, the batches. In slot k the chip of stage s computes
batch k - s; then all that was made in the slot and is read on other chips is sent. What is sent follows from
the relations: an element is made by one batch of one stage, and needed by batches of later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.hardware.collectives import (
    ChipSplit,
    CollectiveWords,
    ElementClass,
    Exchange,
    Interconnect,
    Link,
    split_of,
)
from polymodel.polyhedra.members import points_by_members
from polymodel.spec.faults import Faults, listed, plainly, suggestion
from polymodel.workload.einsum import Cascade, Einsum

SEND = "send"


@dataclass(frozen=True)
class StageSplit:
    """A cascade over chips, one for each of `stages`, and over batches: `batches.chips` blocks of each
    Einsum."""

    batches: ChipSplit
    stages: tuple[tuple[str, ...], ...]

    @property
    def chips(self) -> int:
        return len(self.stages)

    @property
    def slots(self) -> int:
        return self.chips + self.batches.chips - 1

    def sends(self) -> tuple[Mapping[int, Exchange], ...]:
        """Of each tensor that later stages read, in order of Einsums: what is sent behind each slot. Refused
        where batches cannot be computed one after the other."""
        found = []
        for einsum in self.batches.cascade:
            for tensor in dict.fromkeys(a.tensor for a in einsum.outputs):
                look(f"what chips send of {tensor}")
                found.append(self._sends(einsum, tensor))
        return tuple(f for f in found if f)

    def _stage(self, einsum: Einsum) -> int:
        return next(s for s, names in enumerate(self.stages) if einsum.name in names)

    def _sends(self, einsum: Einsum, tensor: str) -> dict[int, Exchange]:
        count, here = self.batches.chips, self._stage(einsum)
        readers: dict[int, list[Einsum]] = defaultdict(list)
        for reader in self.batches.cascade.consumers(tensor):
            readers[self._stage(reader)].append(reader)
        sets = [self.batches.touched([einsum], tensor, b, output=True) for b in range(count)]
        for several in readers.values():
            sets += [self.batches.touched(several, tensor, b, output=False) for b in range(count)]
        sent: dict[int, list[ElementClass]] = defaultdict(list)
        for members, elements in points_by_members(sets).items():
            made = sorted(m for m in members if m < count)
            if not made:
                continue
            if len(made) > 1:
                what = f"several batches add to the same elements of {tensor}"
                raise Refused(what, f"cut the work along a rank variable of {tensor}")
            takers = set[int]()
            for i, stage in enumerate(readers, 1):
                needed = [m - i * count for m in members if i * count <= m < (i + 1) * count]
                self._check_order(tensor, made[0], needed, stage == here)
                takers |= {stage} if needed and stage != here else set()
            if takers:
                kind = ElementClass(frozenset({here}), frozenset(takers), elements)
                sent[here + made[0]].append(kind)
        bits = next(a.bits_per_value for a in einsum.outputs if a.tensor == tensor)
        return {
            slot: Exchange(tensor, SEND, tuple(sorted(some, key=_key)), bits, einsum.n_instances)
            for slot, some in sorted(sent.items())
        }

    def _check_order(self, tensor: str, made: int, needed: Sequence[int], within: bool) -> None:
        """Refused where a batch reads what a later one makes, or, within a stage, any other one."""
        early = [b for b in needed if b < made]
        if early or (within and any(b != made for b in needed)):
            first = early[0] if early else next(b for b in needed if b != made)
            what = f"batch {first} reads elements of {tensor} that batch {made} makes"
            how = "in the same stage" if within else "later"
            remedy = "cut the work along a rank variable in which batches do not depend on each other"
            raise Refused(f"{what} {how}", remedy)


def _key(c: ElementClass) -> tuple[list[int], int]:
    return sorted(c.needed), c.elements


def together(several: Sequence[CollectiveWords], chips: int) -> CollectiveWords:
    """All of them together, by chip and by link."""
    bits: dict[Link, int] = defaultdict(int)
    for one in several:
        for link, amount in one.bits.items():
            bits[link] += amount
    received, sent = (
        tuple(sum(one[i] for one in each) for i in range(chips))
        for each in ([m.received for m in several], [m.sent for m in several])
    )
    return CollectiveWords(received, sent, dict(bits))


def joined(sends: Mapping[int, Exchange]) -> Exchange:
    """All that is sent of a tensor, whatever the slot."""
    first = next(iter(sends.values()))
    elements: dict[tuple[frozenset[int], frozenset[int]], int] = defaultdict(int)
    for c in (c for one in sends.values() for c in one.classes):
        elements[c.made, c.needed] += c.elements
    classes = tuple(sorted((ElementClass(*chips, n) for chips, n in elements.items()), key=_key))
    return Exchange(first.tensor, SEND, classes, first.bits_per_value, first.times)


def moved_by_slot(
    sends: Sequence[Mapping[int, Exchange]], chips: int, link: Interconnect
) -> tuple[tuple[dict[int, CollectiveWords], ...], dict[int, CollectiveWords]]:
    """What moves behind each slot: of each tensor, and of all of them together."""
    each = tuple({slot: e.moved(chips, link) for slot, e in one.items()} for one in sends)
    slots = sorted({slot for one in each for slot in one})
    return each, {slot: together([one[slot] for one in each if slot in one], chips) for slot in slots}


def stages_of(cascade: Cascade, stages: object, faults: Faults) -> tuple[tuple[str, ...], ...]:
    """The stages, each with its Einsums in the order of the cascade; what is wrong is noted."""
    known = [e.name for e in cascade]
    given = plainly(stages)
    several = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    rows = [listed(f"stages[{i}]", row, "['Q', 'K']") for i, row in enumerate(several)]
    if not rows or not all(rows):
        what = "a stage has no Einsums" if rows else f"{stages!r} are not stages"
        faults.note(Diagnostic(what, "give lists of Einsums, [['Q', 'K'], ['Z']]", "stages"))
        return ()
    names = [str(name) for row in rows for name in row]
    for name in dict.fromkeys(names):
        if name not in known:
            faults.note(Diagnostic(f"unknown Einsum {name}", suggestion(name, known, "Einsums"), "stages"))
        elif names.count(name) > 1:
            faults.note(Diagnostic(f"Einsum {name} is named twice", "name it in one stage", "stages"))
    if left := [name for name in known if name not in names]:
        faults.note(Diagnostic(f"no stage has {', '.join(left)}", "name each Einsum in one", "stages"))
    return tuple(tuple(name for name in known if name in row) for row in rows)


def stage_split(
    cascade: Cascade, stages: tuple[tuple[str, ...], ...], batches: int, variables: Sequence[str]
) -> StageSplit:
    """The cascade over these stages and so many batches along the variables. Raises SpecError for a stage
    that reads what a later one makes; Refused where an Einsum has none of the variables."""
    split = split_of(cascade, batches, variables, whole=False)
    if whole := [e.name for e in cascade if e.name not in split.along]:
        what = f"{', '.join(whole)} {'has' if len(whole) == 1 else 'have'} no rank variable of the batches"
        raise Refused(what, "name one of its rank variables in `split` as well")
    found = StageSplit(split, stages)
    at = {name: s for s, names in enumerate(stages) for name in names}
    faults = [
        Diagnostic(
            f"{reader.name} of stage {at[reader.name]} reads {a.tensor}, which stage {at[maker.name]} makes",
            "stages go in the order of the cascade",
            "stages",
        )
        for maker in cascade
        for a in maker.outputs
        for reader in cascade.consumers(a.tensor)
        if at[reader.name] < at[maker.name]
    ]
    if faults:
        raise SpecError(faults)
    return found
