"""The fused loops that consecutive Einsums may have, as limits of searches (`FusedLimits`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from math import prod

from polymodel.mapper.records import Limits
from polymodel.workload.einsum import Cascade, Einsum

Shared = dict[str, str]  # one loop: its rank variable in each Einsum
Fused = tuple[tuple[str, tuple[str, ...]], ...]  # per Einsum the rank variables of its fused loops
MOST_LOOPS = 3  # over one run of Einsums
LONGEST = 6  # Einsums of a run
SPLIT_AGAIN = 3  # Einsums of a run, some of which have more loops


@dataclass(frozen=True)
class FusedLimits(Limits):
    """Limits under which some Einsums have given fused loops, and hand on tensors below at least one of them.

    `fused`: (Einsum, rank variables of its fused loops, outermost first); `handed`: these tensors.
    """

    fused: tuple[tuple[str, tuple[str, ...]], ...] = ()
    handed: frozenset[str] = frozenset()

    def fused_loops(self, einsum: str) -> tuple[str, ...] | None:
        return dict(self.fused).get(einsum)

    def below_loops(self, tensor: str) -> bool:
        return tensor in self.handed


def fusions(cascade: Cascade, limits: Limits) -> Iterator[Fused]:
    """What `FusedLimits.fused` may be: a run of Einsums has the same loops, or some of them have more below
    these. Runs come first in which most operations may overlap with those of another Einsum, with few loops.
    """

    def least_overlap(every: Fused) -> tuple[float, int]:
        several = [_points(cascade[e]) for e, _ in every]
        return max(several) - sum(several), max(len(loops) for _, loops in every)

    yield from sorted(_fusions(cascade, limits), key=least_overlap)


def _fusions(cascade: Cascade, limits: Limits) -> Iterator[Fused]:
    einsums = cascade.einsums
    for length in range(2, min(LONGEST, len(einsums)) + 1):
        for first in range(len(einsums) - length + 1):
            run = einsums[first : first + length]
            for loops in _nests(cascade, run, limits):
                yield tuple((e.name, tuple(loop[e.name] for loop in loops)) for e in run)
                yield from _with_more(cascade, run, loops, limits) if length <= SPLIT_AGAIN else ()


def _with_more(
    cascade: Cascade, run: Sequence[Einsum], outer: Sequence[Shared], limits: Limits
) -> Iterator[Fused]:
    """The run below `outer`, a part of it below more loops."""
    for a, b in product(range(len(run)), range(len(run) + 1)):
        if not 2 <= b - a < len(run):
            continue
        part = run[a:b]
        inside = {e.name for e in part}
        for inner in _nests(cascade, part, limits):
            every = [*outer, *inner]
            if len(every) <= MOST_LOOPS and all(_apart(every, e.name) for e in part):
                mine = {e.name: every if e.name in inside else outer for e in run}
                yield tuple((e, tuple(loop[e] for loop in loops)) for e, loops in mine.items())


def _points(einsum: Einsum) -> float:
    """The size of the box around its iteration space."""
    return float(prod(high - low + 1 for low, high in einsum.bounds))


def _apart(loops: Sequence[Shared], einsum: str) -> bool:
    names = [loop[einsum] for loop in loops]
    return len(set(names)) == len(names)


def _nests(cascade: Cascade, run: Sequence[Einsum], limits: Limits) -> Iterator[tuple[Shared, ...]]:
    """One or more loops that all Einsums of a run can share, in every order."""
    most = MOST_LOOPS if limits.max_fused_loops is None else min(MOST_LOOPS, limits.max_fused_loops)
    found = [_shared(cascade, run, v) for v in run[0].rank_variables]
    several = [loop for loop in found if loop is not None]
    for count in range(1, min(most, len(several)) + 1):
        yield from permutations(several, count)


def _shared(cascade: Cascade, run: Sequence[Einsum], variable: str) -> Shared | None:
    """The loop over a variable of the first Einsum, if it indexes all that the run hands on."""
    if any(e.is_copy for e in run):
        return None
    low, high = run[0].bound(variable)
    result: Shared = {run[0].name: variable} if high > low else {}
    for reader in run[1:]:
        for maker in run[: run.index(reader)]:
            for tensor in {a.tensor for a in maker.outputs} & {a.tensor for a in reader.inputs}:
                there = _tied(maker, reader, tensor, result.get(maker.name, ""))
                if there is None or result.setdefault(reader.name, there) != there:
                    return None
    return result if len(result) == len(run) else None


def _tied(maker: Einsum, reader: Einsum, tensor: str, variable: str) -> str | None:
    """The reader's variable of the rank that a variable of the maker indexes alone."""
    pairs = zip(maker.access_of(tensor).projection, reader.access_of(tensor).projection, strict=True)
    for made, read in pairs:
        if made.variables == (variable,) and len(read.variables) == 1:
            return str(read.variables[0])
    return None


def fused(cascade: Cascade, limits: Limits, loops: Fused) -> FusedLimits:
    """The limits, with these fused loops."""
    run = [cascade[e] for e, _ in loops]
    made = {a.tensor for e in run for a in e.outputs}
    handed = frozenset(made & {a.tensor for e in run for a in e.inputs})
    given = {name: getattr(limits, name) for name in Limits.__dataclass_fields__}
    return FusedLimits(**given, fused=loops, handed=handed)
