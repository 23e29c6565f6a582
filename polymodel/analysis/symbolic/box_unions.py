"""Elements that several accesses at constant distances touch, each within a box: counted without listing the
points of all variables together.

Each variable indexes one rank at most, so that an access touches a product of sets, one for each rank. Of
each rank every element is marked by the accesses that reach it (bit a: access a), and an element of the
tensor is touched if some access reaches it along all ranks: if the bitwise "and" of its marks is not 0. How
many elements have which marks is found rank by rank, and the numbers of combinations are products. The time
grows with the sum of the extents, not with their product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

from polymodel.analysis.symbolic.regions import BoxUnion, LoopStep, Tiles, Turn, values_under
from polymodel.frozen import dataclass

Ints = Any
Ranks = tuple[tuple[int, ...], ...]
MOST_ACCESSES = 60  # bits of a mark
MOST_VALUES = 2**22  # of all variables, once for each access
MOST_STAMPS = 2**20
MOST_CLASSES = 2**14  # combinations of tiles that differ in what is held


@dataclass(frozen=True)
class Coordinate:
    """One rank, or a variable that indexes none: the variable (-1: none), its factor (0: it indexes none),
    and the offset of each access."""

    variable: int
    factor: int
    shifts: tuple[int, ...]


@dataclass(frozen=True)
class Marked:
    """Elements of tiles of one variable: the number of the tile, the element, and its marks; `counters`: for
    each tile the counters of its loops, outermost first; `widths`: how many values each counter may take."""

    tile: Ints
    element: Ints
    marks: Ints
    counters: Ints
    widths: tuple[int, ...]

    def numbers(self, places: Sequence[int]) -> Ints:
        """For each tile, one number that encodes the counters of some loops."""
        import numpy as np

        result = np.zeros(len(self.counters), np.int64)
        for place in places:
            result = result * self.widths[place] + self.counters[:, place]
        return result

    def under(self, places: Sequence[int]) -> tuple[Ints, Ints, Ints]:
        """(Number, element, marks), with tiles that differ only in the other counters merged."""
        return joined(self.numbers(places)[self.tile], self.element, self.marks)

    def touching(self) -> Ints:
        """For each tile, the accesses that touch anything in it."""
        import numpy as np

        result = np.zeros(len(self.counters), np.int64)
        np.bitwise_or.at(result, self.tile, self.marks)
        return result


def joined(number: Ints, element: Ints, marks: Ints) -> tuple[Ints, Ints, Ints]:
    """Distinct (number, element), each with the union of the marks."""
    import numpy as np

    low = int(element.min(initial=0))
    span = int(element.max(initial=0)) - low + 1
    code = number * span + (element - low)
    order = np.argsort(code, kind="stable")
    code, marks = code[order], marks[order]
    first = np.nonzero(np.diff(code, prepend=-1))[0]
    found = np.bitwise_or.reduceat(marks, first) if len(first) else marks[:0]
    return code[first] // span, code[first] % span + low, found


def coordinates(region: BoxUnion, ranks: Ranks) -> tuple[Coordinate, ...] | None:
    """The ranks, then the variables that index none; None if variables share a rank, or ranks a variable."""
    result: list[Coordinate] = []
    free = set(range(region.own))
    for rank in ranks:
        mine = [k for k in range(region.own) if rank[k]]
        if len(mine) > 1 or not free.issuperset(mine):
            return None
        free -= {*mine}
        shifts = (0, *rank[region.own :])
        result.append(Coordinate(mine[0], rank[mine[0]], shifts) if mine else Coordinate(-1, 0, shifts))
    none = (0,) * len(region.guards)
    many = len(region.guards) > MOST_ACCESSES or sum(region.extents) * len(region.guards) > MOST_VALUES
    return None if many else (*result, *(Coordinate(k, 0, none) for k in sorted(free)))


@lru_cache(maxsize=1024)
def marked(region: BoxUnion, one: Coordinate, tiles: Tiles) -> Marked:
    """The elements of one rank in all tiles of its variable."""
    import numpy as np

    k = one.variable
    values, counters = values_under(1 if k < 0 else region.extents[k], tiles, None)
    table = np.stack(counters, axis=1) if counters else np.zeros((len(values), 0), np.int64)
    begins = np.ones(len(values), bool)
    begins[1:] = (table[1:] != table[:-1]).any(axis=1)
    tile = np.cumsum(begins) - 1
    rows = []
    for a, (shift, guard) in enumerate(zip(one.shifts, region.guards, strict=True)):
        low, high = guard[k] if k >= 0 else (0, 0)
        (inside,) = np.nonzero((values >= low) & (values <= high))
        rows.append((tile[inside], one.factor * values[inside] + shift, np.full(len(inside), 1 << a)))
    found = joined(*(np.concatenate(column) for column in zip(*rows, strict=True)))
    widths = tuple(int(c.max(initial=0)) + 1 for c in counters)
    return Marked(*found, table[begins], widths)


# What is counted.


@dataclass(frozen=True)
class LoopUses:
    """The loops of one variable, grouped by the use of their counters: those kept apart, those over which the
    largest count is requested, and the others that distinguish tiles."""

    apart: tuple[int, ...] = ()
    most: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()


def number_by_marks(
    region: BoxUnion, ranks: Ranks, tiles: Sequence[Tiles], turns: Sequence[Turn], step: LoopStep | None
) -> tuple[tuple[int, ...], Ints] | None:
    """The number of values of each counter, and of distinct (kept counters, element) at each number of the
    counters kept `apart`; with `step` of those that stay. None where marks do not determine it."""
    import numpy as np

    every = coordinates(region, ranks)
    if every is None:
        return None
    rows = [marked(region, c, tiles[c.variable] if c.variable >= 0 else ()) for c in every]
    of = {c.variable: mine for c, mine in zip(every, rows, strict=True)}
    places = _places(turns)
    widths = tuple(of[t.variable].widths[p] for t, p in zip(turns, places, strict=True))
    if step is not None:
        steps = _steps(every, turns, step)
        if steps is None or not is_always_touched(rows):
            return None
        return widths, np.array([number_that_stays(rows, steps)])
    loops = [
        LoopUses(*(_loops_of(turns, k, (use,)) for use in ("apart", "most", "keep")))
        for k in range(region.own)
    ]
    counts = number_of_elements(region, every, tiles, loops)
    if counts is None:
        return None
    # One axis for each loop that is kept apart, in the order of the loops.
    order = [(c.variable, p) for c in every if c.variable >= 0 for p in loops[c.variable].apart]
    at = [order.index((t.variable, p)) for t, p in zip(turns, places, strict=True) if t.use == "apart"]
    shape = [of[v].widths[p] for v, p in order]
    return widths, counts.reshape(shape).transpose(at).reshape(-1)


def _places(turns: Sequence[Turn]) -> list[int]:
    """For each loop, its place among the loops over its variable."""
    return [sum(other.variable == t.variable for other in turns[:i]) for i, t in enumerate(turns)]


def _loops_of(turns: Sequence[Turn], variable: int, uses: Sequence[object]) -> tuple[int, ...]:
    """The places of those loops over a variable whose counters have one of these uses."""
    places = zip(turns, _places(turns), strict=True)
    return tuple(p for t, p in places if t.variable == variable and t.use in uses)


def _steps(every: Sequence[Coordinate], turns: Sequence[Turn], step: LoopStep) -> list[StepLoops] | None:
    """The loops of each coordinate, split into those outside the loop that steps and the others; None if
    instances, or the largest of some counts, would have to be distinguished."""
    if any(t.spatial or t.use not in ("keep", "merge") for t in turns):
        return None
    if step.moves and turns[step.outside].use != "keep":
        return None
    places, result = _places(turns), []
    for one in every:
        mine = [i for i, t in enumerate(turns) if t.variable == one.variable and t.use == "keep"]
        parts = (
            [i for i in mine if i < step.outside],
            [i for i in mine if i == step.outside and step.moves],
            [i for i in mine if i >= step.outside + step.moves],
        )
        result.append(StepLoops(*(tuple(places[i] for i in part) for part in parts)))
    return result


def is_settled_by_marks(
    region: BoxUnion, ranks: Ranks, tiles: Sequence[Tiles], turns: Sequence[Turn], axis: int
) -> bool | None:
    """True if tiles do not depend on one of the loops; None where marks do not determine it."""
    every = coordinates(region, ranks)
    if every is None or any(t.spatial or t.use != "keep" for t in turns):
        return None
    rows = [marked(region, c, tiles[c.variable] if c.variable >= 0 else ()) for c in every]
    moving = next(n for n, c in enumerate(every) if c.variable == turns[axis].variable)
    return stays_alike(rows, moving, _places(turns)[axis]) if is_always_touched(rows) else None


def peaks_by_marks(
    region: BoxUnion, tiles: Sequence[Tiles], asked: Sequence[tuple[tuple[int, ...], Ranks]]
) -> Ints | None:
    """The tile sizes of some buffets at all stamps where they differ. `asked`: for each buffet the number of
    loops of each variable that determine its tile, and its ranks."""
    found = []
    for depth, ranks in asked:
        every = coordinates(region, ranks)
        if every is None:
            return None
        found.append((depth, every))
    return tiles_that_differ(region, tiles, found)


def number_of_elements(
    region: BoxUnion, every: Sequence[Coordinate], tiles: Sequence[Tiles], loops: Sequence[LoopUses]
) -> Ints | None:
    """The number of distinct (kept counters, element), with one axis for each coordinate's counters that are
    kept apart; None if these are too many. `loops`: those of each variable."""
    import numpy as np

    tables = []
    for one in every:
        k = one.variable
        mine = loops[k] if k >= 0 else LoopUses()
        rows = marked(region, one, tiles[k] if k >= 0 else ())
        number, _, marks = rows.under((*mine.apart, *mine.most, *mine.kept))
        number //= prod(rows.widths[p] for p in mine.kept)
        sizes = [prod(rows.widths[p] for p in places) for places in (mine.apart, mine.most)]
        kinds, kind = np.unique(marks, return_inverse=True)
        counts = np.bincount(kind.reshape(-1) * prod(sizes) + number, minlength=len(kinds) * prod(sizes))
        counts = counts.reshape(len(kinds), *sizes)
        if sizes[0] == 1 and len(kinds):
            counts = np.unique(counts, axis=2)
        tables.append((kinds.tolist(), counts))
    if prod(counts[:1].size for _, counts in tables) > MOST_VALUES:
        return None
    found: dict[int, Ints] = {-1: np.ones((), np.int64)}
    for kinds, counts in tables:
        later: dict[int, Ints] = {}
        for (a, many), (b, count) in product(found.items(), zip(kinds, counts, strict=True)):
            if a & b:
                later[a & b] = later.get(a & b, 0) + many[..., None, None] * count
        found = later
    if not found:
        return np.zeros([counts.shape[1] for _, counts in tables], np.int64)
    total = sum(found.values(), np.zeros((), np.int64))
    return np.asarray(total.max(axis=tuple(range(1, total.ndim, 2))))


def combined(every: Iterable[Iterable[int]]) -> frozenset[int]:
    """Every bitwise "and" of one number from each set, including 0 where it occurs."""
    found = {-1}
    for some in every:
        found = {a & b for a in found for b in some}
    return frozenset(found)


def values_by_marks(region: BoxUnion, factors: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The lowest and highest value of a rank, and the number of its values; None where marks do not determine
    it."""
    every = coordinates(region, (factors,))
    if every is None:
        return None
    rows = [marked(region, one, ()) for one in every]
    others = combined({*r.touching().tolist()} for r in rows[1:])
    reached = [any(m & q for q in others) for m in rows[0].marks.tolist()]
    values = rows[0].element[reached]
    return int(values.min()), int(values.max()), len(values)


# Steps of temporal loops. A stamp at which nothing is touched is no visit. If nothing is touched even where
# tiles have elements along every variable, a step need not lead from one tile to the next.


def is_always_touched(every: Sequence[Marked]) -> bool:
    """Return whether all combinations of nonempty tiles of the variables touch something."""
    return 0 not in combined({*rows.touching().tolist()} - {0} for rows in every)


@dataclass(frozen=True)
class StepLoops:
    """The loops of one variable: those outside the loop that steps, that loop itself (none if it is over
    another variable), and those inside it."""

    outside: tuple[int, ...]
    axis: tuple[int, ...]
    inside: tuple[int, ...]


def number_that_stays(every: Sequence[Marked], steps: Sequence[StepLoops]) -> int:
    """The number of elements, over all steps of a loop, that the last tile before the step and the first one
    after it share."""
    found: dict[tuple[int, int], int] = {(-1, -1): 1}
    for rows, mine in zip(every, steps, strict=True):
        pairs, counts = _marks_of_both(rows, mine)
        later: dict[tuple[int, int], int] = {}
        for (a, b), many in found.items():
            for (c, d), count in zip(pairs.tolist(), counts.tolist(), strict=True):
                if a & c and b & d:
                    later[a & c, b & d] = later.get((a & c, b & d), 0) + many * count
        found = later
    return sum(found.values())


def _marks_of_both(tiles: Marked, mine: StepLoops) -> tuple[Ints, Ints]:
    """The pairs of marks that elements have before and after steps, and how often each pair occurs."""
    import numpy as np

    number, element, marks = tiles.under((*mine.outside, *mine.axis, *mine.inside))
    group = number // prod(tiles.widths[p] for p in mine.inside)
    groups, which = np.unique(group, return_inverse=True)
    which = which.reshape(-1)
    lowest, highest = np.full(len(groups), number.max(initial=0)), np.zeros(len(groups), np.int64)
    np.minimum.at(lowest, which, number)
    np.maximum.at(highest, which, number)
    last, first = number == highest[which], number == lowest[which]
    before, after = which[last], which[first]
    if mine.axis:  # a step leads to the next iteration within the same outer iterations
        width = tiles.widths[mine.axis[0]]
        follows = np.zeros(len(groups), bool)
        follows[1:] = groups[1:] // width == groups[:-1] // width
        kept = follows[after]
        first[first] = kept
        after = after[kept] - 1
    low = int(element.min(initial=0))
    span = int(element.max(initial=0)) - low + 1
    codes = [w * span + element[rows] - low for w, rows in ((before, last), (after, first))]
    _, a, b = np.intersect1d(codes[0], codes[1], assume_unique=True, return_indices=True)
    pairs, counts = np.unique(np.stack([marks[last][a], marks[first][b]], axis=1), axis=0, return_counts=True)
    return pairs, counts


def stays_alike(every: Sequence[Marked], moving: int, axis: int) -> bool:
    """True if tiles do not depend on a loop: number `axis` among those of coordinate `moving`."""
    import numpy as np

    rows = every[moving]
    others = sorted(combined({*r.marks.tolist()} for n, r in enumerate(every) if n != moving) - {0})
    kinds, kind = np.unique(rows.marks, return_inverse=True)
    # Marks are equivalent if, together with those of other ranks, they reach the same elements.
    met = [tuple(bool(m & q) for q in others) for m in kinds.tolist()]
    number = {row: n for n, row in enumerate(dict.fromkeys(met)) if any(row)}
    alike = np.array([number.get(row, -1) for row in met], np.int64)[kind.reshape(-1)]
    places = [p for p in range(len(rows.widths)) if p != axis]
    group = rows.numbers(places)
    groups, of = np.unique(group, return_inverse=True)
    visits = np.bincount(of.reshape(-1)[rows.touching() != 0], minlength=len(groups))
    table = np.stack([of.reshape(-1)[rows.tile], alike, rows.element], axis=1)[alike >= 0]
    found, times = np.unique(table, axis=0, return_counts=True)
    return bool((times == visits[found[:, 0]]).all())


# The largest tiles of several buffets.


def tiles_that_differ(
    region: BoxUnion, tiles: Sequence[Tiles], asked: Sequence[tuple[Sequence[int], Sequence[Coordinate]]]
) -> Ints | None:
    """The tile sizes of some buffets at all stamps where they differ; None if these are too many. `asked`:
    for each buffet the number of loops of each variable that determine its tile, and its coordinates."""
    import numpy as np

    classes = [_classes(region, k, tiles[k], asked) for k in range(region.own)]
    if prod(map(len, classes)) > MOST_CLASSES:
        return None
    rows = []
    for chosen in product(*classes):
        if not _all_of(touching for touching, _ in chosen):
            continue
        rows.append([_size(region, n, every, chosen) for n, (_, every) in enumerate(asked)])
    return np.array(rows, np.int64).reshape(-1, len(asked))


def _all_of(marks: Iterable[int]) -> int:
    result = -1
    for m in marks:
        result &= m
    return result


Counts = Mapping[int, int]  # marks -> number of elements


def _classes(
    region: BoxUnion, k: int, tiles: Tiles, asked: Sequence[tuple[Sequence[int], Sequence[Coordinate]]]
) -> list[tuple[int, list[Counts]]]:
    """The different tiles of a variable at stamps: the accesses that touch anything, and for each buffet its
    elements by their marks."""
    import numpy as np

    columns, kinds = [], []
    inner: Marked | None = None
    for depth, every in asked:
        one = next(c for c in every if c.variable == k)
        rows = marked(region, one, tiles)
        inner = rows
        of_stamp = rows.numbers(range(depth[k]))
        number, _, marks = rows.under(range(depth[k]))
        mine, kind = np.unique(marks, return_inverse=True)
        size = int(of_stamp.max(initial=0)) + 1
        counts = np.bincount(number * len(mine) + kind.reshape(-1), minlength=size * len(mine))
        columns.append(counts.reshape(size, len(mine))[of_stamp])
        kinds.append(mine.tolist())
    assert inner is not None
    found = np.unique(np.concatenate([inner.touching()[:, None], *columns], axis=1), axis=0)
    result = []
    for row in found.tolist():
        place = 1
        held: list[Counts] = []
        for mine in kinds:
            held.append(dict(zip(mine, row[place : place + len(mine)], strict=True)))
            place += len(mine)
        result.append((row[0], held))
    return result


def _size(
    region: BoxUnion, buffet: int, every: Sequence[Coordinate], chosen: Sequence[tuple[int, list[Counts]]]
) -> int:
    """The number of elements of one buffet's tile."""
    found: dict[int, int] = {-1: 1}
    for one in every:
        if one.variable >= 0:
            held: Counts = chosen[one.variable][1][buffet]
        else:
            marks = marked(region, one, ()).marks.tolist()
            held = {m: marks.count(m) for m in marks}
        later: dict[int, int] = {}
        for a, many in found.items():
            for b, count in held.items():
                if a & b and count:
                    later[a & b] = later.get(a & b, 0) + many * count
        found = later
    return sum(found.values())


# Tiles one by one. A loop is given by its variable and its place among the loops over it.

Turns = Sequence[tuple[int, int]]


def tiles_touched(region: BoxUnion, choices: Sequence[Sequence[Tiles]], loops: Turns) -> list[Ints] | None:
    """For each choice of tiles, the distinct counters of some loops at which anything is touched; None if
    these are too many."""
    every = coordinates(region, ())
    found = [None if every is None else _touched(region, every, tiles, loops) for tiles in choices]
    return None if any(rows is None for rows in found) else found


def _touched(
    region: BoxUnion, every: Sequence[Coordinate], tiles: Sequence[Tiles], loops: Turns
) -> Ints | None:
    import numpy as np

    places = [[p for v, p in loops if v == one.variable] for one in every]
    tables = []
    for one, mine in zip(every, places, strict=True):
        rows = marked(region, one, tiles[one.variable])
        both = np.concatenate([rows.counters[:, mine], rows.touching()[:, None]], axis=1)
        tables.append(np.unique(both[both[:, -1] != 0], axis=0))
    if prod(map(len, tables)) > MOST_STAMPS:
        return None
    grids = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
    touching = np.full(grids.shape[1], -1)
    for table, grid in zip(tables, grids, strict=True):
        touching &= table[grid, -1]
    of = {one.variable: n for n, one in enumerate(every)}
    columns = [tables[of[v]][grids[of[v]], places[of[v]].index(p)] for v, p in loops]
    if not columns:
        return np.zeros((int(touching.any()), 0), np.int64)
    return np.unique(np.stack(columns, axis=1)[touching != 0], axis=0)


def sizes_at(
    region: BoxUnion, ranks: Ranks, choices: Sequence[Sequence[Tiles]], loops: Turns, stamps: Ints
) -> Ints | None:
    """The number of elements of the tile at each stamp. A stamp: the number of a choice of tiles, and the
    counters of the first loops. None where marks do not determine it."""
    import numpy as np

    every = coordinates(region, ranks)
    if every is None:
        return None
    result = np.zeros(len(stamps), np.int64)
    for k, tiles in enumerate(choices):
        mine = stamps[:, 0] == k
        result[mine] = _sizes(region, every, tiles, loops[: stamps.shape[1] - 1], stamps[mine, 1:])
    return result


def _sizes(
    region: BoxUnion, every: Sequence[Coordinate], tiles: Sequence[Tiles], loops: Turns, counters: Ints
) -> Ints:
    import numpy as np

    found: dict[int, Ints] = {-1: np.ones(len(counters), np.int64)}
    for one in every:
        rows = marked(region, one, tiles[one.variable] if one.variable >= 0 else ())
        mine = [(column, p) for column, (v, p) in enumerate(loops) if v == one.variable]
        number, _, marks = rows.under([p for _, p in mine])
        kinds, kind = np.unique(marks, return_inverse=True)
        size = prod(rows.widths[p] for _, p in mine)
        table = np.bincount(kind.reshape(-1) * size + number, minlength=len(kinds) * size)
        at, there = np.zeros(len(counters), np.int64), np.ones(len(counters), bool)
        for column, p in mine:
            there &= counters[:, column] < rows.widths[p]
            at = at * rows.widths[p] + np.minimum(counters[:, column], rows.widths[p] - 1)
        later: dict[int, Ints] = {}
        for (a, many), (b, count) in product(
            found.items(), zip(kinds.tolist(), table.reshape(-1, size), strict=True)
        ):
            if a & b:
                later[a & b] = later.get(a & b, 0) + many * count[at] * there
        found = later
    return sum(found.values(), np.zeros(len(counters), np.int64))
