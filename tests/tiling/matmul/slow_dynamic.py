"""Dynamic tiles as a machine would grow them: one coordinate at a time, each tile a set of places.

It shares no formula with the library: before every step it looks whether what would be in the buffers fits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.tiling.matmul.slow import Machine, Points, points, times, words

Range = tuple[int, int]


def within(entries: Points, rows: Range, cols: Range) -> Points:
    return {(r, c) for r, c in entries if rows[0] <= r < rows[1] and cols[0] <= c < cols[1]}


def grown(begin: int, most: int, fits: Callable[[int], bool]) -> int:
    """The furthest end that is reached step by step; one step is always taken."""
    end = begin + 1
    while end < most and fits(end + 1):
        end += 1
    return end


class Walk:
    """One run: `outer` is i for a stationary A (then `inner` is j), j for a stationary B."""

    def __init__(
        self, a: np.ndarray, b: np.ndarray, buffers: tuple[int, int, int], stationary: str, grow: str
    ) -> None:
        self.a, self.b, self.z = points(a), points(b), points(a @ b)
        self.buffers, self.is_a, self.grow = dict(zip("abz", buffers, strict=True)), stationary == "A", grow
        (rows, self.inside), cols = a.shape, b.shape[1]
        self.outside, self.within = (rows, cols) if self.is_a else (cols, rows)
        self.memory: Points = set()
        self.resident: dict[str, object] = {"a": None, "b": None, "z": None}
        names = "a_fetches b_fetches z_visits a_read b_read z_read z_write pairs multiplies".split()
        self.found: Machine = dict.fromkeys(names, 0)
        self.fullest: Machine = dict.fromkeys("abz", 0)

    def ours(self, outer: Range, k: Range) -> Points:
        return within(self.a, outer, k) if self.is_a else within(self.b, k, outer)

    def theirs(self, k: Range, inner: Range) -> Points:
        return within(self.b, k, inner) if self.is_a else within(self.a, inner, k)

    def result(self, entries: Points, outer: Range, inner: Range) -> Points:
        return within(entries, outer, inner) if self.is_a else within(entries, inner, outer)

    def outer_allowed(self, outer: Range) -> bool:
        """Each k alone, and each coordinate of the result across, would fit under this range."""
        mine = self.buffers["a" if self.is_a else "b"]
        return all(words(self.ours(outer, (k, k + 1))) <= mine for k in range(self.inside)) and all(
            words(self.result(self.z, outer, (n, n + 1))) <= self.buffers["z"] for n in range(self.within)
        )

    def k_allowed(self, k: Range) -> bool:
        other = self.buffers["b" if self.is_a else "a"]
        return all(words(self.theirs(k, (n, n + 1))) <= other for n in range(self.within))

    def first(self, begin: int) -> int:
        """The end of a band, from its first tile."""

        def fits(high: int, wide: int) -> bool:
            return (
                begin + high <= self.outside
                and wide <= self.inside
                and self.outer_allowed((begin, begin + high))
                and self.k_allowed((0, wide))
                and words(self.ours((begin, begin + high), (0, wide))) <= mine
            )

        mine = self.buffers["a" if self.is_a else "b"]
        if self.grow == "alternate":
            return begin + self.alternated(begin, fits)
        wide = 1
        while self.grow == "k" and fits(1, wide + 1):
            wide += 1
        high = 1
        while fits(high + 1, wide):
            high += 1
        return begin + high

    def alternated(self, begin: int, fits: Callable[[int, int], bool]) -> int:
        """Doubled in turn; a doubling ends where the rank does, or where a slice would overflow."""
        most_high, most_wide = 1, 1
        while begin + most_high < self.outside and self.outer_allowed((begin, begin + most_high + 1)):
            most_high += 1
        while most_wide < self.inside and self.k_allowed((0, most_wide + 1)):
            most_wide += 1
        high = wide = 1
        grows = True
        while grows:
            grows = False
            if high < most_high and fits(min(2 * high, most_high), wide):
                high, grows = min(2 * high, most_high), True
            if wide < most_wide and fits(high, min(2 * wide, most_wide)):
                wide, grows = min(2 * wide, most_wide), True
        return high

    def run(self) -> Machine:
        mine = self.buffers["a" if self.is_a else "b"]
        begin = 0
        while begin < self.outside:
            outer = begin, self.first(begin)
            k = 0
            while k < self.inside:
                end = grown(
                    k,
                    self.inside,
                    lambda e, k=k, outer=outer: (
                        self.k_allowed((k, e)) and words(self.ours(outer, (k, e))) <= mine
                    ),
                )
                self.sweep(outer, (k, end))
                k = end
            begin = outer[1]
        if self.resident["z"] is not None:
            self.found["z_write"] += words(self.result(self.memory, *self.resident["z"]))
        return self.found

    def sweep(self, outer: Range, k: Range) -> None:
        tile = self.ours(outer, k)
        n = 0
        while n < self.within:

            def fits(end: int, n: int = n) -> bool:
                other = self.theirs(k, (n, end))
                made = self.made(tile, other) | self.result(self.memory, outer, (n, end))
                return (
                    words(other) <= self.buffers["b" if self.is_a else "a"]
                    and words(made) <= self.buffers["z"]
                )

            end = grown(n, self.within, fits)
            self.launch(tile, outer, k, (n, end))
            n = end

    def made(self, tile: Points, other: Points) -> Points:
        return times(tile, other)[0] if self.is_a else times(other, tile)[0]

    def launch(self, tile: Points, outer: Range, k: Range, inner: Range) -> None:
        other = self.theirs(k, inner)
        one, two = (tile, other) if self.is_a else (other, tile)
        made, multiplies = times(one, two)
        if not made:
            return
        self.found["pairs"] += 1
        self.found["multiplies"] += multiplies
        self.fetch("a" if self.is_a else "b", (outer, k), tile)
        self.fetch("b" if self.is_a else "a", (k, inner), other)
        if self.resident["z"] != (outer, inner):
            if self.resident["z"] is not None:
                self.found["z_write"] += words(self.result(self.memory, *self.resident["z"]))
            self.found["z_read"] += words(self.result(self.memory, outer, inner))
            self.found["z_visits"] += 1
            self.resident["z"] = outer, inner
        self.memory |= made
        self.fullest["z"] = max(self.fullest["z"], words(self.result(self.memory, outer, inner)))

    def fetch(self, name: str, at: object, tile: Points) -> None:
        if self.resident[name] != at:
            self.found[f"{name}_fetches"] += 1
            self.found[f"{name}_read"] += words(tile)
            self.resident[name] = at
        self.fullest[name] = max(self.fullest[name], words(tile))
