"""Determine the pattern of two operands: given tensors, or a second one derived from the first.

The pattern is the sorted union of the points of both operands, with the operands that hold each of them.
Coordinates are packed into one number each where 62 bits suffice (in bit fields, not products, because
unpacking them then needs no division), and the two sorted lists are merged. Other operands are sorted rank by
rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.fibertree import blocks
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a, suggestion
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern

# The name of the rank of one row that is added to operands of a single rank.
ROW = "row"


@dataclass(frozen=True)
class Rolled:
    """B is A with its rows moved down cyclically by `rows` (any integer; the rank that gives rows is rolled).
    The only rank of a vector is rolled itself."""

    rows: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int | np.integer):
            what = f"Rolled: {self.rows!r} is not a number of rows"
            raise SpecError([Diagnostic(what, "a whole number, e.g. 5", "rows", code="not-an-integer")])


@dataclass(frozen=True)
class Transposed:
    """B is A with the two tiled ranks exchanged; they must have the same size."""


@dataclass(frozen=True)
class Alone:
    """There is no B: tiles of one operand."""


Second = SparseTensor | Rolled | Transposed | Alone


def pattern_of(a: SparseTensor, second: Second | None = None, ranks: Sequence[str] | None = None) -> Pattern:
    """Return the positions of the entries of two operands on the plane of two ranks.

    `ranks`: the two tiled ranks, the one of the rows first; by default the first two. Other ranks are whole
    within every tile, below the two, in their own order. A vector is one row. `second`: a tensor with A's
    ranks (in any order) and sizes, or a rule that derives B from A; by default B is A with its rows rolled by
    5, as in the evaluation of Tiler-Swift. Raises SpecError with all faults: ranks that A does not have or
    that are named twice, ranks or sizes of B that differ from A's, a transposed plane that is not square.
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
    """The tiled ranks: two, or the one of a vector."""
    if not a.ranks:
        return [
            Diagnostic(f"{a.name} has no ranks", "give a tensor with one or more ranks", code="wrong-count")
        ], ()
    wanted = min(2, len(a.ranks))
    if ranks is None:
        return [], a.ranks[:wanted]
    if (
        isinstance(ranks, str)
        or not isinstance(ranks, Sequence)
        or not all(isinstance(r, str) for r in ranks)
    ):
        example = ", ".join(map(repr, a.ranks[:wanted]))
        return [
            Diagnostic(
                f"ranks: {ranks!r} is not a list of names", f"write e.g. [{example}]", code="wrong-type"
            )
        ], ()
    faults = [
        Diagnostic(
            f"rank {rank!r} is not among the ranks of {a.name}",
            suggestion(rank, a.ranks, "its ranks are"),
            "ranks",
            code="unknown-name",
        )
        for rank in dict.fromkeys(ranks)
        if rank not in a.ranks
    ]
    faults += [
        Diagnostic(
            f"rank {rank} is named {ranks.count(rank)} times",
            "name two different ranks",
            "ranks",
            code="duplicate-name",
        )
        for rank in dict.fromkeys(ranks)
        if ranks.count(rank) > 1
    ]
    if len(ranks) != wanted:
        many = "one rank is" if wanted == 1 else "two ranks are"
        message = f"{len(ranks)} ranks are named"
        faults.append(Diagnostic(message, f"{many} cut of {a.name}", "ranks", code="wrong-count"))
    return faults, () if faults else tuple(ranks)


def _unlike(a: SparseTensor, given: Second, cut: tuple[str, ...]) -> list[Diagnostic]:
    """The faults that prevent deriving B from A, or combining B with A. `cut`: () if it is not known."""
    if isinstance(given, SparseTensor):
        return _different(a, given)
    if isinstance(given, Transposed) and len(a.ranks) == 1:
        return [
            Diagnostic(
                f"{a.name} has one rank: it has no transpose", "roll it: Rolled(5)", code="wrong-count"
            )
        ]
    if isinstance(given, Transposed) and cut:
        rows, cols = (a.shape[a.ranks.index(rank)] for rank in cut)
        if rows != cols:
            what = f"{a.name} is {rows} x {cols} in {cut[0]} and {cut[1]}: its transpose is {cols} x {rows}"
            return [
                Diagnostic(
                    what,
                    "only a square plane lies on its transpose: roll it, or give B",
                    code="shape-mismatch",
                )
            ]
    return []


def _different(a: SparseTensor, b: SparseTensor) -> list[Diagnostic]:
    if sorted(b.ranks) != sorted(a.ranks):
        what = f"{b.name} has the ranks {', '.join(b.ranks)}, {a.name} {', '.join(a.ranks)}"
        return [
            Diagnostic(
                what,
                "element-wise operands have the same ranks: rename them, `renamed`",
                code="shape-mismatch",
            )
        ]
    sizes = dict(zip(b.ranks, b.shape, strict=True))
    if all(sizes[rank] == size for rank, size in zip(a.ranks, a.shape, strict=True)):
        return []
    mine, theirs = (", ".join(f"{r}={t.shape[t.ranks.index(r)]}" for r in a.ranks) for t in (a, b))
    what = f"{b.name} has the shape {theirs}, {a.name} {mine}"
    return [Diagnostic(what, "element-wise operands have one shape", code="shape-mismatch")]


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
    result = union([a.rank(rank) for rank in own], made, shape)
    columns = result.columns
    if len(own) == 1:
        rows, plane, sizes = np.zeros(columns[0].size, dtype=np.int32), (ROW, own[0]), (1, shape[0])
        return Pattern(a.name, how, plane, sizes, rows, columns[0], result.in_a, result.in_b, own=own)
    deep = len(own) > 2
    return Pattern(
        a.name,
        how,
        (own[0], own[1]),
        (shape[0], shape[1]),
        columns[0],
        columns[1],
        result.in_a,
        result.in_b,
        prod(shape[2:]),
        len(own),
        inner_fibers(columns, result.in_a) if deep else None,
        inner_fibers(columns, result.in_b) if deep else None,
        own,
        shape[2:],
        np.stack(columns[2:]) if deep else None,
    )


def inner_fibers(columns: Sequence[Index], held: Flags) -> Index:
    """Return, for each point, the number of fibers of one operand that begin there, at the levels between its
    rows and its innermost rank."""
    first = beginnings([column[held] for column in columns[:-1]])
    begun = np.zeros(int(np.count_nonzero(held)), dtype=np.int16)
    for prefix in range(2, len(columns)):
        begun += first(prefix)
    result = np.zeros(held.size, dtype=np.int16)
    result[held] = begun
    return result


# Bits available for packed coordinates; one more bit distinguishes the operands.
PACKED = 62


@dataclass(frozen=True, eq=False)
class Union:
    """Points of both operands in lexicographic order: one array of coordinates per rank (int32 where it
    suffices)."""

    columns: tuple[Index, ...]
    in_a: Flags
    in_b: Flags


@dataclass(frozen=True)
class Roll:
    """B is A with `by` (0 <= by < size) added cyclically to the first coordinate."""

    by: int


@dataclass(frozen=True)
class Swap:
    """B is A with its first two coordinates exchanged."""


# Coordinates of B, one array per rank, or the rule by which they follow from those of A.
Made = Sequence[Ints] | Roll | Swap


def union(a: Sequence[Ints], made: Made, shape: Sequence[int]) -> Union:
    """The union of A (one array per rank, in any order) and B."""
    bits = [(size - 1).bit_length() for size in shape]
    if sum(bits) <= PACKED:
        return _packed(a, made, shape, bits)
    return _by_ranks(a, made, shape)


def _narrow(shape: Sequence[int]) -> list[np.dtype[np.signedinteger]]:
    return [np.dtype(np.int32 if size < 2**31 else np.int64) for size in shape]


def _packed(a: Sequence[Ints], made: Made, shape: Sequence[int], bits: list[int]) -> Union:
    ours = a[0].size
    theirs = ours if isinstance(made, Roll | Swap) else made[0].size
    both = np.empty(ours + theirs, dtype=np.int64)
    first, second = both[:ours], both[ours:]
    _pack(a, bits, first)
    if isinstance(made, Roll):
        _roll(first, second, made.by, shape[0], sum(bits[1:]))
    elif isinstance(made, Swap):
        _pack((a[1], a[0], *a[2:]), bits, second)
    else:
        _pack(made, bits, second)
    both <<= 1
    second |= 1
    both.sort(kind="stable")  # two runs: merged in linear time
    return _unpacked(both, shape, bits)


def _pack(columns: Sequence[Ints], bits: list[int], out: Ints) -> None:
    """The points as numbers in ascending order."""
    out[:] = columns[0]
    for column, width in zip(columns[1:], bits[1:], strict=True):
        out <<= width
        out |= column
    if not _ascending(out):
        out.sort()


def _ascending(numbers: Ints) -> bool:
    return all(bool((numbers[s][1:] >= numbers[s][:-1]).all()) for s in _overlapping(numbers.size))


def _overlapping(size: int) -> list[slice]:
    """Return pieces of a range such that consecutive pieces share an element."""
    return [slice(max(0, s.start - 1), s.stop) for s in blocks(size)]


def _roll(numbers: Ints, out: Ints, by: int, height: int, below: int) -> None:
    """Rows that wrap around come first, so the order is kept."""
    wrapped = int(np.searchsorted(numbers, (height - by) << below)) if by else numbers.size
    tail = numbers.size - wrapped
    np.subtract(numbers[wrapped:], (height - by) << below, out=out[:tail])
    np.add(numbers[:wrapped], by << below, out=out[tail:])


def _unpacked(both: Ints, shape: Sequence[int], bits: list[int]) -> Union:
    """Coordinates from packed points; of two equal points the first, A's, is kept."""
    met = np.zeros(both.size, dtype=np.bool_)
    for s in _overlapping(both.size):
        met[s][:-1] |= (both[s][1:] ^ both[s][:-1]) == 1
    # Numbers 2p and 2p + 1 are one point; 2p - 1 and 2p, which differ in more bits, are two.
    total = both.size - int(np.count_nonzero(met))
    columns = tuple(np.empty(total, dtype=kind) for kind in _narrow(shape))
    in_a, in_b = np.empty(total, dtype=np.bool_), np.empty(total, dtype=np.bool_)
    start = 0
    for s in blocks(both.size):
        kept = np.ones(s.stop - s.start, dtype=np.bool_)
        kept[1:] = ~met[s][:-1]
        kept[:1] = s.start == 0 or not met[s.start - 1]
        part = both[s][kept]
        here = slice(start, start + part.size)
        owner = (part & 1).astype(np.bool_)
        np.logical_not(owner, out=in_a[here])
        np.logical_or(owner, met[s][kept], out=in_b[here])
        part >>= 1
        for column, width in zip(reversed(columns), reversed(bits), strict=True):
            column[here] = part & ((1 << width) - 1)
            part >>= width
        start = here.stop
    return Union(columns, in_a, in_b)


def _by_ranks(a: Sequence[Ints], made: Made, shape: Sequence[int]) -> Union:
    b: Sequence[Ints]
    if isinstance(made, Roll):
        edge = shape[0] - made.by
        b = (np.where(a[0] >= edge, a[0] - edge, a[0] + made.by), *a[1:])
    elif isinstance(made, Swap):
        b = (a[1], a[0], *a[2:])
    else:
        b = made
    kinds = _narrow(shape)
    columns = [np.concatenate([x, y]).astype(k) for x, y, k in zip(a, b, kinds, strict=True)]
    theirs = np.arange(columns[0].size) >= a[0].size
    order = np.lexsort((theirs, *reversed(columns)))
    columns = [column.take(order) for column in columns]
    theirs = theirs.take(order)
    first = beginnings(columns)(len(columns))
    met = np.zeros(first.size, dtype=np.bool_)
    met[:-1] = ~first[1:]
    return Union(tuple(c[first] for c in columns), ~theirs[first], (theirs | met)[first])


def beginnings(columns: Sequence[Index]) -> Callable[[int], Flags]:
    """For sorted points: the positions at which the first coordinates of a point differ from those of the
    preceding point.

    The function that is returned takes the number of first coordinates; call it with ascending numbers.
    """
    done, new = 0, np.zeros(columns[0].size, dtype=np.bool_)
    new[:1] = True

    def first(prefix: int) -> Flags:
        nonlocal done
        for column in columns[done:prefix]:
            new[1:] |= column[1:] != column[:-1]
        done = max(done, prefix)
        return new

    return first
