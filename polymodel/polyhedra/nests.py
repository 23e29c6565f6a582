"""Nests of tiles, counted by classes: equal tiles once, times their number.

A nest cuts each of a few variables into tiles, and these into smaller ones. What lies inside a tile depends
on its extent along every variable, and on how far the bounds that tie variables together (a diagonal, the
edge of a padded row) are from its corner; a bound that no point of the tile breaks does not matter. So
however many tiles there are, they fall into few classes: whole ones, last ones, and those that a bound
cuts, which are alike where it meets them at the same distance. A state is such a class. Loops turn states
into states, as arrays; what is counted in a state is a set with parameters, which `parametric` counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from polymodel.frozen import dataclass
from polymodel.integers import distinct_rows, dtype_of, largest, np
from polymodel.polyhedra import isl
from polymodel.polyhedra.sets import count_of, parse_set, size

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[Any]"
FREE = 2**61  # the slack of a bound that no point of the tile breaks
MOST = 2**58  # bound of every number computed with 64 bits here
ROWS = 6_000_000  # tiles that may be treated one by one
FEW, MANY = 8, 2_000  # different tiles that may be counted one by one


@dataclass(frozen=True)
class LoopCut:
    """A loop that cuts a variable into tiles of `tile` values; the first tile has `first`."""

    variable: int
    tile: int
    first: int


@dataclass(frozen=True)
class LinearInequality:
    """`sum of coefficient * variable + constant >= 0`."""

    coefficients: tuple[int, ...]
    constant: int


@dataclass(frozen=True)
class Nest:
    """The points of a box with origin 0 within `bounds`, the loops that cut it, and what is touched at each
    point.

    `extents` are those of the variables. `loops` are in the order of their counters (spatial before
    temporal); `path` lists their positions from the outermost loop inwards. `ranks` holds the coefficients of
    each variable.
    """

    extents: tuple[int, ...]
    loops: tuple[LoopCut, ...]
    path: tuple[int, ...]
    bounds: tuple[LinearInequality, ...]
    ranks: tuple[tuple[int, ...], ...]

    @property
    def countable(self) -> bool:
        """True if every intermediate number fits in 64 bits."""
        sizes = (abs(c) * e for b in self.bounds for c, e in zip(b.coefficients, self.extents, strict=True))
        constants = (abs(b.constant) for b in self.bounds)
        return max((*self.extents, sum(sizes) + sum(constants))) * 2 < MOST

    def of(self, variable: int) -> list[int]:
        """Positions of the loops of a variable, outermost first."""
        return [i for i in self.path if self.loops[i].variable == variable]


@dataclass(frozen=True)
class TileClasses:
    """Classes of equal tiles, one class per row.

    `sizes` holds the extents along each variable; `slack` the value of each bound at the first point of a
    tile; `times` the number of tiles in the class; `marks` the counters that keep classes apart.
    """

    sizes: Ints
    slack: Ints
    times: Ints
    marks: Ints

    def __len__(self) -> int:
        return len(self.times)

    def take(self, rows: Ints) -> TileClasses:
        return TileClasses(self.sizes[rows], self.slack[rows], self.times[rows], self.marks[rows])


class TooManyTiles(Exception):
    """Raised where there are too many different tiles to list."""


def start(nest: Nest) -> TileClasses:
    """The whole box as one tile."""
    sizes = np.array([nest.extents], dtype=np.int64).reshape(1, -1)
    slack = np.array([[b.constant for b in nest.bounds]], dtype=np.int64).reshape(1, -1)
    times = np.ones(1, dtype=dtype_of(prod(nest.extents)))
    return _settled(nest, TileClasses(sizes, slack, times, np.zeros((1, 0), np.int64)))


def _reach(nest: Nest, bound: int, sizes: Ints, low: bool) -> Ints:
    """The largest decrease (`low`) or increase of the value of a bound from the first point of a tile to any
    other."""
    result = np.zeros(len(sizes), dtype=np.int64)
    for v, c in enumerate(nest.bounds[bound].coefficients):
        if (c < 0) == low and c:
            result += c * (sizes[:, v] - 1)
    return result


def _settled(nest: Nest, states: TileClasses) -> TileClasses:
    """Marks bounds that no point of a tile violates as free, and removes tiles in which every point violates
    a bound."""
    slack = states.slack.copy()
    there = np.ones(len(states), dtype=bool)
    for j in range(len(nest.bounds)):
        column = slack[:, j]
        there &= column + _reach(nest, j, states.sizes, low=False) >= 0
        slack[:, j] = np.where(column + _reach(nest, j, states.sizes, low=True) >= 0, FREE, column)
    return replace(states, slack=slack).take(np.flatnonzero(there))


def expand(nest: Nest, states: TileClasses, loop: LoopCut, marked: bool) -> TileClasses:
    """The tiles that a loop makes of each tile. With `marked`, the loop's counter becomes one more mark."""
    e, first, tile = states.sizes[:, loop.variable], loop.first, loop.tile
    runs = []
    behind, base = e, np.zeros_like(e)
    if first != tile:
        runs.append((np.minimum(e, first), base, np.ones_like(e), base))
        behind, base = np.maximum(e - first, 0), np.full_like(e, first)
    whole = behind // tile
    counter = (base > 0).astype(np.int64)
    runs.append((np.full_like(e, tile), base, whole, counter))
    left = behind - whole * tile
    runs.append((left, base + whole * tile, (left > 0).astype(np.int64), counter + whole))
    parts = [_run(nest, states, loop, *run, marked) for run in runs]
    return merged(_joined(parts))


def _run(
    nest: Nest,
    states: TileClasses,
    loop: LoopCut,
    extent: Ints,
    base: Ints,
    count: Ints,
    counter: Ints,
    marked: bool,
) -> TileClasses:
    """For each state, `count` consecutive tiles of one extent, the first of which starts at `base`."""
    rows = np.flatnonzero(count > 0)
    inner = states.take(rows)
    extent, base, count, counter = extent[rows], base[rows], count[rows], counter[rows]
    sizes = inner.sizes.copy()
    sizes[:, loop.variable] = extent
    inner = replace(inner, sizes=sizes)
    moving = [j for j, b in enumerate(nest.bounds) if b.coefficients[loop.variable]]
    low, high = np.zeros_like(count), count.copy()
    cuts = []
    for j in moving:
        step = nest.bounds[j].coefficients[loop.variable]
        begin, end, there, gone = _cut(nest, inner, j, base, count, step, loop.tile)
        low, high = np.maximum(low, there), np.minimum(high, gone)
        cuts.append((begin, end))
    high = np.maximum(low, high)
    if marked:
        which, at = _listed(low, high)
        return _placed(nest, inner, loop, moving, base, which, at, counter)
    result, free = [], high - low
    for k, (begin, end) in enumerate(cuts):
        begin, end = np.clip(begin, low, high), np.clip(end, low, high)
        which, at = _listed(begin, np.maximum(begin, end))
        fresh = np.ones(len(at), dtype=bool)
        for other, until in cuts[:k]:
            fresh &= (at < other[which]) | (at >= until[which])
        which, at = which[fresh], at[fresh]
        free = free - np.bincount(which, minlength=len(free))
        result.append(_placed(nest, inner, loop, moving, base, which, at, None))
    rest = inner.take(np.flatnonzero(free > 0))
    slack = rest.slack.copy()
    slack[:, moving] = FREE
    result.append(replace(rest, slack=slack, times=rest.times * free[free > 0]))
    return _joined(result)


def _cut(
    nest: Nest, inner: TileClasses, bound: int, base: Ints, count: Ints, step: int, tile: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """For a run of consecutive tiles: the first and the last tile that a bound cuts, and the first and the
    last one that has any point within the bound."""
    slack = inner.slack[:, bound]
    free = slack == FREE
    at = np.where(free, 0, slack) + step * base
    least = at + _reach(nest, bound, inner.sizes, low=True)
    most = at + _reach(nest, bound, inner.sizes, low=False)
    pace, none = abs(step) * tile, np.zeros_like(count)
    if step > 0:
        there, clear = np.maximum(-(most // pace), 0), np.maximum(-(least // pace), 0)
        found = there, clear, there, count
    else:
        clear, gone = np.maximum(least // pace + 1, 0), np.maximum(most // pace + 1, 0)
        found = clear, gone, none, gone
    begin, end, there, gone = (np.minimum(x, count) for x in found)
    return (
        np.where(free, none, begin), np.where(free, none, end),
        np.where(free, none, there), np.where(free, count, gone),
    )  # fmt: skip


def _listed(begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """All pairs (row, number) where the number runs from `begin` to `end` of the row."""
    count = end - begin
    if int(count.sum()) > ROWS:
        raise TooManyTiles
    which = np.repeat(np.arange(len(count)), count)
    first = np.cumsum(count) - count
    return which, np.arange(len(which)) - first[which] + begin[which]


def _placed(
    nest: Nest,
    inner: TileClasses,
    loop: LoopCut,
    moving: list[int],
    base: Ints,
    which: Ints,
    at: Ints,
    counter: Ints | None,
) -> TileClasses:
    """Single tiles: the ones at number `at` of each run."""
    result = inner.take(which)
    slack = result.slack.copy()
    for j in moving:
        step = nest.bounds[j].coefficients[loop.variable]
        moved = slack[:, j] + step * (base[which] + loop.tile * at)
        slack[:, j] = np.where(slack[:, j] == FREE, FREE, moved)
    result = replace(result, slack=slack)
    if counter is not None:
        marks = np.concatenate([result.marks, (counter[which] + at)[:, None]], axis=1)
        result = replace(result, marks=marks)
    return _settled(nest, result)


def _joined(parts: Sequence[TileClasses]) -> TileClasses:
    columns = zip(*((p.sizes, p.slack, p.times, p.marks) for p in parts), strict=True)
    return TileClasses(*(np.concatenate(c) for c in columns))


def merged(states: TileClasses) -> TileClasses:
    """The states, with equal ones joined and their numbers of tiles added."""
    if len(states) < 2:
        return states
    table = np.concatenate([states.sizes, states.slack, states.marks], axis=1)
    _, first, which = _distinct(table)
    order = np.argsort(which, kind="stable")
    begin = np.searchsorted(which[order], np.arange(len(first)))
    return replace(states.take(first), times=np.add.reduceat(states.times[order], begin))


def _distinct(table: Ints) -> tuple[Ints, Ints, Ints]:
    """The distinct rows of a table, the first position of each, and for every row the distinct row that it
    equals."""
    code, width = np.zeros(len(table), dtype=np.int64), 1
    for column in table.T:
        low = int(column.min())
        known = column != FREE
        top = int(column[known].max()) if known.any() else low
        width *= top - low + 2
        if width >= 2**62:
            rows, which = distinct_rows(table)
            order = np.argsort(which, kind="stable")
            return rows, order[np.searchsorted(which[order], np.arange(len(rows)))], which
        code = code * (top - low + 2) + np.where(known, column - low, top - low + 1)
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return table[first], first, which.reshape(-1)


def counted(nest: Nest, states: TileClasses, variables: Sequence[int], ranks: Sequence[int]) -> Ints:
    """For each state, the number of different values that some variables and ranks take together."""
    if not len(states):
        return np.zeros(0, dtype=np.int64)
    parts: list[tuple[Ints, Ints]] = []
    free = states.slack == FREE
    patterns, _, which = _distinct(free.astype(np.int64)) if len(nest.bounds) else (free[:1], None, None)
    for k, pattern in enumerate(patterns):
        rows = np.arange(len(states)) if which is None else np.flatnonzero(which == k)
        tight = tuple(j for j in range(len(nest.bounds)) if not pattern[j])
        columns = np.concatenate([states.sizes[rows], states.slack[rows][:, list(tight)]], axis=1)
        inside = _inside(nest, tight, tuple(variables), tuple(ranks))
        parts.append((rows, _counts(inside, columns, _is_plain(nest, tight, ranks))))
    result = np.zeros(len(states), dtype=np.result_type(np.int64, *(p.dtype for _, p in parts)))
    for rows, values in parts:
        result[rows] = values
    return result


def _is_plain(nest: Nest, tight: tuple[int, ...], ranks: Sequence[int]) -> bool:
    """True if a parametric count has few pieces: two variables, or few bounds with unit coefficients."""
    rows = [*(nest.bounds[j].coefficients for j in tight), *(nest.ranks[r] for r in ranks)]
    tied = [v for v in range(len(nest.extents)) if any(row[v] for row in rows)]
    return len(tied) <= 2 or (len(tight) <= 2 and all(abs(c) <= 1 for row in rows for c in row))


def _counts(text: str, columns: Ints, plain: bool) -> Ints:
    """The counts of a parametric set: from one parametric count if there are many, otherwise one by one."""
    if plain and len(columns) > FEW:
        return count_of(text).at(columns)
    rows, _, which = _distinct(columns)
    if len(rows) > MANY:
        raise TooManyTiles
    result = np.array([_count(text, tuple(row)) for row in rows.tolist()], dtype=object)
    return result.astype(dtype_of(largest(result)))[which]


@lru_cache(maxsize=65536)
def _count(text: str, values: tuple[int, ...]) -> int:
    points = parse_set(text)
    for i, value in enumerate(values):
        points = points.fix_val(isl.dim_type.param, i, isl.Val(value))
    return size(points.project_out(isl.dim_type.param, 0, len(values)))


def _inside(nest: Nest, tight: tuple[int, ...], variables: tuple[int, ...], ranks: tuple[int, ...]) -> str:
    """The points of a tile as a set, with its extents and the slack of the bounds that matter as
    parameters.
    """
    every = range(len(nest.extents))
    params = [f"e{v}" for v in every] + [f"k{j}" for j in tight]
    dims = [f"v{v}" for v in variables] + [f"x{r}" for r in ranks]
    facts = [f"0 <= v{v} < e{v}" for v in every]
    for j in tight:
        facts.append(f"{_sum(nest.bounds[j].coefficients)} + k{j} >= 0")
    facts += [f"x{r} = {_sum(nest.ranks[r])}" for r in ranks]
    inner = [f"v{v}" for v in every if v not in variables]
    some = f"exists {', '.join(inner)} : " if inner else ""
    return f"[{', '.join(params)}] -> {{ [{', '.join(dims)}] : {some}{' and '.join(facts)} }}"


def _sum(coefficients: tuple[int, ...]) -> str:
    return " + ".join(f"{c}*v{v}" for v, c in enumerate(coefficients) if c) or "0"


def rounds(nest: Nest, wanted: Sequence[int]) -> list[int]:
    """Positions of the requested loops; the outermost loops of all variables come first."""
    depth = {i: k for v in range(len(nest.extents)) for k, i in enumerate(nest.of(v))}
    return sorted(wanted, key=lambda i: (depth[i], nest.path.index(i)))


def tally(nest: Nest, shown: tuple[int, ...], kept: tuple[int, ...], data: bool) -> Ints | None:
    """The number of distinct pairs (counters at positions `kept`, touched element), per value of the counters
    `shown`.

    With `data` False, elements are left out. Returns None where the classes do not determine the number
    because tiles with different counters were merged.
    """
    whole = {v for v in range(len(nest.extents)) if _resolved(nest, v, kept, data)}
    wanted: list[int] = []
    for v in range(len(nest.extents)):
        mine = nest.of(v)
        if v in whole:
            last = max((k for k, i in enumerate(mine) if i in shown), default=-1)
            wanted += mine[: last + 1]
            continue
        inner = [i for i in mine if i in kept]
        if inner != mine[: len(inner)]:
            return None
        wanted += inner
    mixed = (r for r, c in enumerate(nest.ranks) if any(x and v not in whole for v, x in enumerate(c)))
    states, marked = start(nest), []
    try:
        for i in rounds(nest, wanted):
            states = expand(nest, states, nest.loops[i], i in shown)
            marked += [i] if i in shown else []
        found = counted(nest, states, sorted(whole), list(mixed) if data else [])
    except TooManyTiles:
        return None
    held = dtype_of(largest(found) * sum(states.times.tolist()))
    each = found.astype(held) * states.times.astype(held)
    return _spread(each, states.marks[:, [marked.index(i) for i in shown]])


def _resolved(nest: Nest, variable: int, kept: tuple[int, ...], data: bool) -> bool:
    """True if what is counted determines the value of the variable: through an element, or through counters
    down to single values."""
    alone = any(c[variable] and not any(x for v, x in enumerate(c) if v != variable) for c in nest.ranks)
    mine = nest.of(variable)
    ends = bool(mine) and nest.loops[mine[-1]].tile == nest.loops[mine[-1]].first == 1
    return (data and alone) or (ends and all(i in kept for i in mine))


def _spread(values: Ints, places: Ints) -> Ints:
    """The sums of values by place, as a dense array of Python integers with one axis per column of places."""
    some = np.flatnonzero(values != 0)
    values, places = values[some], places[some]
    if not places.shape[1]:
        out = np.empty((), dtype=object)
        out[()] = int(values.sum())
        return out
    shape = tuple(int(column.max()) + 1 for column in places.T) if len(values) else (0,) * places.shape[1]
    result = np.zeros(shape, dtype=values.dtype)
    np.add.at(result, tuple(places.T), values)
    return result.astype(object)


def widest(nest: Nest) -> int | None:
    """The largest number of elements that any tile touches; None if there are too many different tiles."""
    states = start(nest)
    try:
        for i in rounds(nest, range(len(nest.loops))):
            states = expand(nest, states, nest.loops[i], False)
        return int(max(counted(nest, states, (), range(len(nest.ranks))), default=0))
    except TooManyTiles:
        return None


@dataclass(frozen=True)
class NestPrefix:
    """The outermost loops of a nest down to `depth` of its path, some of its variables, and the elements that
    they touch.

    `bounds` holds the positions of the bounds over these variables.
    """

    depth: int
    variables: tuple[int, ...]
    bounds: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]


def part_of(
    whole: Nest, names: Sequence[str], inner: Nest, own: Sequence[str], loops: Sequence[int]
) -> NestPrefix | None:
    """Reads the nest `inner` over the variables `own`, whose loops are at positions `loops`, as a part of the
    nest `whole` over `names`.

    Returns None if `inner` is not the restriction of `whole` to these variables and loops.
    """
    if not set(own) <= set(names):
        return None
    places = tuple(names.index(v) for v in own)

    def row(inside: tuple[int, ...]) -> tuple[int, ...]:
        result = [0] * len(names)
        for place, coefficient in zip(places, inside, strict=True):
            result[place] = coefficient
        return tuple(result)

    bounds = [LinearInequality(row(b.coefficients), b.constant) for b in inner.bounds]
    theirs = [j for j, b in enumerate(whole.bounds) if any(b.coefficients[v] for v in places)]
    cuts = [replace(c, variable=places[c.variable]) for c in inner.loops]
    depth = max((whole.path.index(i) + 1 for i in loops), default=0)
    above = [i for i in whole.path[:depth] if whole.loops[i].variable in places]
    fits = (
        inner.extents == tuple(whole.extents[v] for v in places)
        and set(bounds) == {whole.bounds[j] for j in theirs}
        and sorted(loops) == sorted(above)
        and cuts == [whole.loops[i] for i in loops]
    )
    return NestPrefix(depth, places, tuple(theirs), tuple(row(r) for r in inner.ranks)) if fits else None


def size_rows(nest: Nest, parts: Sequence[NestPrefix]) -> list[tuple[int, ...]] | None:
    """The distinct rows of tile sizes, one size per part, over all tiles; None if there are too many."""
    states = start(nest)
    order: list[int] = []
    try:
        for depth in range(len(nest.path) + 1):
            if depth:
                states = expand(nest, states, nest.loops[nest.path[depth - 1]], False)
            for k, part in enumerate(parts):
                if part.depth == depth:
                    sizes = _part_sizes(nest, states, part)
                    marks = np.concatenate([states.marks, sizes[:, None]], axis=1)
                    states, order = merged(replace(states, marks=marks)), [*order, k]
        there = counted(nest, states, (), ()) > 0
    except TooManyTiles:
        return None
    rows = _distinct(states.marks[there])[0] if there.any() else states.marks[:0]
    return [tuple(int(row[order.index(k)]) for k in range(len(parts))) for row in rows]


def _part_sizes(nest: Nest, states: TileClasses, part: NestPrefix) -> Ints:
    """The number of elements of the part that each state touches."""
    variables, bounds = list(part.variables), list(part.bounds)
    inner = Nest(
        tuple(nest.extents[v] for v in variables),
        (),
        (),
        tuple(
            LinearInequality(
                tuple(nest.bounds[j].coefficients[v] for v in variables), nest.bounds[j].constant
            )
            for j in bounds
        ),
        tuple(tuple(r[v] for v in variables) for r in part.ranks),
    )
    here = replace(
        states,
        sizes=states.sizes[:, variables],
        slack=states.slack[:, bounds],
    )
    return counted(inner, here, (), range(len(part.ranks)))
