"""The pattern of two operands: given tensors, or a second one made from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a, suggestion
from polymodel.tiling.plane.pattern import Flags, Index, Pattern
from polymodel.tiling.plane.union import Made, Roll, Swap, beginnings, union

# What a made-up rank of one row is called, where the operands have a single rank.
ROW = "row"


@dataclass(frozen=True)
class Rolled:
    """B is A with its rows moved down by `rows` (any whole number; the rank that gives rows is rolled),
    those that fall off the end coming back at the top. The one rank of a vector is rolled itself."""

    rows: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int | np.integer):
            what = f"Rolled: {self.rows!r} is no number of rows"
            raise SpecError([Diagnostic(what, "a whole number, e.g. 5", "rows")])


@dataclass(frozen=True)
class Transposed:
    """B is A with the two ranks that are cut exchanged; they must have one size."""


@dataclass(frozen=True)
class Alone:
    """There is no B: tiles of one operand."""


Second = SparseTensor | Rolled | Transposed | Alone


def pattern_of(a: SparseTensor, second: Second | None = None, ranks: Sequence[str] | None = None) -> Pattern:
    """The places that two operands hold on the plane of two ranks.

    `ranks`: the two that are cut, the one that gives rows first; the first two without it. Ranks that are
    not cut lie whole within every tile, below the two, in their own order. A vector is one row.
    `second`: a tensor with A's ranks (in any order) and sizes, or how B is made of A; without it B is A with
    its rows rolled by 5, as in the evaluation of Tiler-Swift.
    Raises SpecError with all faults: ranks that A does not have or named twice, ranks or sizes of B that are
    not A's, a transposed plane that is not square.
    """
    given = Rolled() if second is None else second
    if not isinstance(a, SparseTensor):
        raise not_a("tensor", "pattern_of", a, "pass e.g. pm.read_tensor('matrix.mtx.gz')")
    if not isinstance(given, Second):
        raise not_a(
            "second operand", "pattern_of", second, "pass a tensor, Rolled(5), Transposed() or Alone()"
        )
    faults, cut = _cut(a, ranks)
    faults += _unlike(a, given, cut)
    if faults:
        raise SpecError(faults)
    own = (*cut, *(rank for rank in a.ranks if rank not in cut))
    shape = tuple(a.shape[a.ranks.index(rank)] for rank in own)
    made, how = _made(a, given, own, shape)
    return _pattern(a, own, shape, made, how)


def _cut(a: SparseTensor, ranks: Sequence[str] | None) -> tuple[list[Diagnostic], tuple[str, ...]]:
    """The ranks that are cut: two, of a vector one."""
    if not a.ranks:
        return [Diagnostic(f"{a.name} has no ranks", "give a tensor with one or more ranks")], ()
    wanted = min(2, len(a.ranks))
    if ranks is None:
        return [], a.ranks[:wanted]
    if (
        isinstance(ranks, str)
        or not isinstance(ranks, Sequence)
        or not all(isinstance(r, str) for r in ranks)
    ):
        example = ", ".join(map(repr, a.ranks[:wanted]))
        return [Diagnostic(f"ranks: {ranks!r} is no list of names", f"write e.g. [{example}]")], ()
    faults = [
        Diagnostic(
            f"rank {rank!r} is not among the ranks of {a.name}",
            suggestion(rank, a.ranks, "its ranks are"),
            "ranks",
        )
        for rank in dict.fromkeys(ranks)
        if rank not in a.ranks
    ]
    faults += [
        Diagnostic(f"rank {rank} is named {ranks.count(rank)} times", "name two different ranks", "ranks")
        for rank in dict.fromkeys(ranks)
        if ranks.count(rank) > 1
    ]
    if len(ranks) != wanted:
        many = "one rank is" if wanted == 1 else "two ranks are"
        faults.append(Diagnostic(f"{len(ranks)} ranks are named", f"{many} cut of {a.name}", "ranks"))
    return faults, () if faults else tuple(ranks)


def _unlike(a: SparseTensor, given: Second, cut: tuple[str, ...]) -> list[Diagnostic]:
    """What keeps B from being made, or from lying beside A. `cut`: () where it is not known."""
    if isinstance(given, SparseTensor):
        return _different(a, given)
    if isinstance(given, Transposed) and len(a.ranks) == 1:
        return [Diagnostic(f"{a.name} has one rank: it has no transpose", "roll it: Rolled(5)")]
    if isinstance(given, Transposed) and cut:
        rows, cols = (a.shape[a.ranks.index(rank)] for rank in cut)
        if rows != cols:
            what = f"{a.name} is {rows} x {cols} in {cut[0]} and {cut[1]}: its transpose is {cols} x {rows}"
            return [Diagnostic(what, "only a square plane lies on its transpose: roll it, or give B")]
    return []


def _different(a: SparseTensor, b: SparseTensor) -> list[Diagnostic]:
    if sorted(b.ranks) != sorted(a.ranks):
        what = f"{b.name} has the ranks {', '.join(b.ranks)}, {a.name} {', '.join(a.ranks)}"
        return [Diagnostic(what, "element-wise operands have the same ranks: rename them, `renamed`")]
    sizes = dict(zip(b.ranks, b.shape, strict=True))
    if all(sizes[rank] == size for rank, size in zip(a.ranks, a.shape, strict=True)):
        return []
    mine, theirs = (", ".join(f"{r}={t.shape[t.ranks.index(r)]}" for r in a.ranks) for t in (a, b))
    what = f"{b.name} has the shape {theirs}, {a.name} {mine}"
    return [Diagnostic(what, "element-wise operands have one shape")]


def _made(a: SparseTensor, given: Second, own: tuple[str, ...], shape: tuple[int, ...]) -> tuple[Made, str]:
    if isinstance(given, SparseTensor):
        return [given.rank(rank) for rank in own], given.name
    if isinstance(given, Alone):
        return [np.zeros(0, dtype=np.int64)] * len(own), "nothing"
    if isinstance(given, Transposed):
        return Swap(), f"{a.name} transposed"
    what = "rows" if len(a.ranks) == 2 and own == a.ranks else own[0]
    return Roll(int(given.rows) % shape[0]), f"{a.name}, {what} rolled by {given.rows}"


def _pattern(a: SparseTensor, own: tuple[str, ...], shape: tuple[int, ...], made: Made, how: str) -> Pattern:
    found = union([a.rank(rank) for rank in own], made, shape)
    columns = found.columns
    if len(own) == 1:
        rows, plane, sizes = np.zeros(columns[0].size, dtype=np.int32), (ROW, own[0]), (1, shape[0])
        return Pattern(a.name, how, plane, sizes, rows, columns[0], found.in_a, found.in_b, own=own)
    deep = len(own) > 2
    return Pattern(
        a.name,
        how,
        (own[0], own[1]),
        (shape[0], shape[1]),
        columns[0],
        columns[1],
        found.in_a,
        found.in_b,
        prod(shape[2:]),
        len(own),
        inner_fibers(columns, found.in_a) if deep else None,
        inner_fibers(columns, found.in_b) if deep else None,
        own,
        shape[2:],
        np.stack(columns[2:]) if deep else None,
    )


def inner_fibers(columns: Sequence[Index], held: Flags) -> Index:
    """Fibers of one operand below its rows and above its innermost rank that begin at each point."""
    first = beginnings([column[held] for column in columns[:-1]])
    begun = np.zeros(int(np.count_nonzero(held)), dtype=np.int16)
    for prefix in range(2, len(columns)):
        begun += first(prefix)
    found = np.zeros(held.size, dtype=np.int16)
    found[held] = begun
    return found
