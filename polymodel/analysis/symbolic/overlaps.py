"""Windows of a rank of two rank variables of which several instances share parts, element by element.

A rank `a u + b v` is listed for all values of both variables, with the counters of the loops that lead to
each; so instances may overlap in any way. This is done once for each choice of the sizes of their tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from polymodel.analysis.symbolic.pair_atoms import Tied
from polymodel.analysis.symbolic.regions import Tiles, numbered, repeated
from polymodel.errors import NotSeparable

Ints = Any
MOST_POINTS = 2**22


@dataclass(frozen=True)
class Made:
    """What executes of a variable of an inferred Einsum: of a tile of e values `scale * e` and more.

    `start` more at the first stamp of all, at others what `later` says of the innermost of the loops that cut
    tiles (one entry for each) whose counter is above 0; None: as outside it.
    """

    scale: int
    start: int
    later: tuple[int | None, ...]


@dataclass(frozen=True)
class Turn:
    """One loop: of which variable (`u` or `v`), whether in space, and what happens to its counter.

    It is kept apart (`keep`), merged in a union (`merge`), or held at the first instance (`at0`).
    """

    variable: str
    spatial: bool
    use: str


@dataclass(frozen=True)
class Overlap(Tied):
    """The different (kept counters, element) of a rank; with `step` those that stay over the steps of a loop.

    `turns`: the loops over both variables as they stand. `step`: how many of them stand outside the loop that
    steps, and whether it is the next of them. What stays is what every instance that has it had before.
    """

    rank: tuple[int, int]
    turns: tuple[Turn, ...]
    made: tuple[Made | None, Made | None] = (None, None)
    step: tuple[int, bool] | None = None

    __hash__ = Tied.__hash__

    @property
    def named(self) -> str:
        return "kept" if self.step is not None else "elements"

    def number(self, u: Tiles, v: Tiles) -> int:
        return _counted(replace(self, u=(), v=()), u, v)


@dataclass(frozen=True)
class _Side:
    """All values of one variable, at each stamp at which they execute; per loop over it the counters.

    `places`: where these loops stand among those of both variables.
    """

    values: Ints
    counters: list[Ints]
    places: list[int]

    def some(self, rows: Ints) -> _Side:
        return _Side(self.values[rows], [c[rows] for c in self.counters], self.places)

    def number(self, places: list[int], widths: list[int]) -> Ints:
        """One number for the counters of some loops."""
        import numpy as np

        found = np.zeros(len(self.values), np.int64)
        for place, counter in zip(self.places, self.counters, strict=True):
            if place in places:
                found = found * widths[place] + counter
        return found


@lru_cache(maxsize=4096)
def _counted(asked: Overlap, u: Tiles, v: Tiles) -> int:
    sides = []
    for k, (letter, tiles) in enumerate((("u", u), ("v", v))):
        places = [i for i, t in enumerate(asked.turns) if t.variable == letter]
        sides.append(_Side(*_listed(asked.region.extents[k], tiles, asked.made[k]), places))
    widths = [0] * len(asked.turns)
    for side in sides:
        for place, counter in zip(side.places, side.counters, strict=True):
            widths[place] = int(counter.max(initial=0)) + 2
    held = [i for i, t in enumerate(asked.turns) if t.use == "at0"]
    sides = [_first(side, held) for side in sides]
    most = (c * int(side.values.max(initial=0)) for c, side in zip(asked.rank, sides, strict=True))
    code = _Code(asked, widths, 1 + sum(most))
    if asked.step is None:
        return len(code.of(*sides))
    now = [_first(side, _inside(asked), _moving(asked)) for side in sides]
    before = [_last(asked, side, widths) for side in sides]
    return _staying(code, now, before)


def _listed(extent: int, tiles: Tiles, made: Made | None) -> tuple[Ints, list[Ints]]:
    """Values in order of stamps, and the counters of the loops, outermost first."""
    import numpy as np

    begin, size = np.zeros(1, np.int64), np.array([extent], np.int64)
    counters: list[Ints] = []
    own = len(tiles) if made is None else len(made.later)
    for k, (first, tile) in enumerate(tiles):
        if k == own and made is not None:
            begin, size = _grown(begin, size, counters, made)
        count = 1 + -(-np.maximum(size - first, 0) // tile)
        which, number = repeated(count), numbered(count)
        inside = np.where(number > 0, first + (number - 1) * tile, 0)
        width = np.where(number > 0, tile, first)
        counters = [*(c[which] for c in counters), number]
        begin, size = begin[which] + inside, np.minimum(width, size[which] - inside)
    if own == len(tiles) and made is not None:
        begin, size = _grown(begin, size, counters, made)
    which = repeated(size)
    return begin[which] + numbered(size), [c[which] for c in counters]


def _grown(begin: Ints, size: Ints, counters: list[Ints], made: Made) -> tuple[Ints, Ints]:
    import numpy as np

    more = np.full_like(size, made.start)
    for counter, later in zip(counters, made.later, strict=True):
        more = more if later is None else np.where(counter > 0, later, more)
    end = made.scale * (begin + size) + made.start
    size = made.scale * size + more
    return end - size, size


def _inside(asked: Overlap) -> list[int]:
    """The loops in time inside the one that steps."""
    assert asked.step is not None
    outside, moves = asked.step
    return [i for i in range(outside + moves, len(asked.turns)) if not asked.turns[i].spatial]


def _moving(asked: Overlap) -> int:
    """The loop that steps, -1 if it is over another variable."""
    assert asked.step is not None
    return asked.step[0] if asked.step[1] else -1


def _first(side: _Side, places: list[int], moving: int = -1) -> _Side:
    """The values at the first iteration of some loops, and not at that of the one that steps."""
    import numpy as np

    rows = np.ones(len(side.values), bool)
    for place, counter in zip(side.places, side.counters, strict=True):
        if place in places:
            rows &= counter == 0
        elif place == moving:
            rows &= counter > 0
    return side.some(rows)


def _last(asked: Overlap, side: _Side, widths: list[int]) -> _Side:
    """The values at the last stamp before a step, counted as if that were made."""
    import numpy as np

    inside, moving = _inside(asked), _moving(asked)
    outside = [i for i, t in enumerate(asked.turns) if not t.spatial and i not in inside]
    at, inner = side.number(outside, widths), side.number(inside, widths)
    _, which = np.unique(at, return_inverse=True)
    last = np.zeros(int(which.max(initial=-1)) + 1, np.int64)
    np.maximum.at(last, which, inner)
    found = side.some(inner == last[which])
    stepped = [
        c + 1 if place == moving else c for place, c in zip(found.places, found.counters, strict=True)
    ]
    return _Side(found.values, stepped, found.places)


@dataclass(frozen=True)
class _Code:
    """Points as one number each: of kept counters, then of the element, then of merged instances."""

    asked: Overlap
    widths: list[int]
    elements: int

    def places(self, use: str) -> list[int]:
        inside = _inside(self.asked) if self.asked.step is not None else []
        return [i for i, t in enumerate(self.asked.turns) if t.use == use and i not in inside]

    def size(self, places: list[int]) -> int:
        return prod(self.widths[i] for i in places)

    @property
    def instances(self) -> int:
        """How many numbers stand for one element at one stamp."""
        return self.size(self.places("merge")) if self.asked.step is not None else 1

    def of(self, one: _Side, two: _Side) -> Ints:
        """The numbers of all points, each once."""
        import numpy as np

        kept, merged = self.places("keep"), self.places("merge")
        points = len(one.values) * len(two.values)
        if points > MOST_POINTS or self.size([*kept, *merged]) * self.elements > 2**62:
            raise NotSeparable(
                "instances share parts of windows that are too large to list",
                "use engine exact, or reuse: refill",
            )
        a, b = self.asked.rank
        parts = []
        for side, places in ((one, kept), (two, kept), (one, merged), (two, merged)):
            mine = [i for i in places if i in side.places]
            parts.append((side.number(mine, self.widths), self.size(mine)))
        (k, _), (m, n), (p, _), (q, r) = parts
        found = (k * n)[:, None] + m[None, :]
        found = found * self.elements + (a * one.values)[:, None] + (b * two.values)[None, :]
        if self.asked.step is not None:
            found = found * self.instances + (p * r)[:, None] + q[None, :]
        return np.unique(found)


def _staying(code: _Code, now: list[_Side], before: list[_Side]) -> int:
    """How many elements every instance has had before that has them now."""
    import numpy as np

    here = code.of(*now)
    new = here[~np.isin(here, code.of(*before), assume_unique=True)]
    return len(np.unique(here // code.instances)) - len(np.unique(new // code.instances))
