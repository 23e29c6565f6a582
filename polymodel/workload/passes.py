"""How often a cascade has to walk the fibers of a tensor's rank, whatever the mapping (FuseMax, MICRO 2024).

An Einsum that needs what was summed up over a rank, and walks that rank as well, begins another pass: nothing
of the sum is known before the walk that makes it has ended. Softmax over a row of scores takes three: for its
maximum, for its sum, for the quotient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polymodel.workload.einsum import Cascade, Einsum


@dataclass(frozen=True)
class Passes:
    """How many times each fiber of `rank` of an input is walked at least, itself or in what is made of it
    along that rank, and which Einsums begin a pass."""

    tensor: str
    rank: str
    passes: int
    begun_by: tuple[str, ...]


def passes(cascade: Cascade) -> tuple[Passes, ...]:
    """One row for each rank of each workload input, in their order.

    Walks are followed through ranks that are indexed by one rank variable. A tensor that is carried forward
    along the rank is known as far as the walk has come, so that it begins no pass.
    """
    inputs = [t for t in cascade.tensors if cascade.producer(t) is None]
    first = {t: cascade.accesses_of(t)[0] for t in inputs}
    return tuple(_walked(cascade, t, rank) for t in inputs for rank in first[t].ranks)


def _walked(cascade: Cascade, tensor: str, rank: str) -> Passes:
    along: dict[tuple[str, str], int] = {
        (tensor, rank): 1
    }  # (tensor, rank) -> the pass in which it is walked
    ended: dict[str, int] = {}  # tensors that are known at the end of a pass
    begun: dict[int, str] = {}
    for e in cascade:
        walking = {v: along[key] for key, v in _indices(e) if key in along}
        known = [ended[a.tensor] for a in e.inputs if a.tensor in ended]
        known += [along[key] for key, v in _indices(e) if key in along and not v]
        walking.pop("", None)
        if not walking:
            ended.update((a.tensor, max(known)) for a in e.outputs if known)
            continue
        level = max([*walking.values(), *(n + 1 for n in known)])
        begun.setdefault(level, e.name)
        for access in e.outputs:
            ranks = zip(access.ranks, access.projection, strict=True)
            kept = [r for r, x in ranks if set(x.variables) & set(walking)]
            along.update(((access.tensor, r), level) for r in kept)
            if not kept:
                ended[access.tensor] = level
    return Passes(tensor, rank, max(begun, default=0), tuple(begun[n] for n in sorted(begun)))


def _indices(e: Einsum) -> Iterator[tuple[tuple[str, str], str]]:
    """((tensor, rank), the rank variable that indexes it), of what an Einsum reads; "" for constants."""
    for access in e.operands:
        for rank, expr in zip(access.ranks, access.projection, strict=True):
            if len(expr.variables) <= 1:
                yield (access.tensor, rank), (*expr.variables, "")[0]
