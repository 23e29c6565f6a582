"""Dynamic tiles: ranges of coordinates grow at run time until the buffers are full.

After dynamic reflexive tiling (Odemuyiwa et al., ASPLOS 2023): a tile of the stationary operand grows first;
its range of the shared rank k is imposed on the other operand, whose tile then grows along its own rank. What
is modelled, and what not, is in docs/tiling/matmul.md.

Each tile begins where the last one ends and stops where the data fill a buffer, so tiles are found one after
the other; the work within each is one pass over the entries that a buffer can hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import look
from polymodel.tiling.matmul.growing import LEAST, Listed, Sides, band_end, limits_of, sides_of
from polymodel.tiling.matmul.product import Product, changes
from polymodel.tiling.matmul.walk import Traffic
from polymodel.tiling.plane.pattern import Flags, Ints

Stationary = Literal["A", "B"]
Grow = Literal["k", "outer", "alternate"]
GROWS: tuple[Grow, ...] = ("k", "outer", "alternate")
STEPS = 10**6  # tiles tried: about a minute
# Columns of `Dynamic.visits`: ranges of the stationary operand's own rank, of k, of the other's own rank.
_COLUMNS = ("outer", "outer_end", "k", "k_end", "inner", "inner_end", "s", "v", "before", "after",
            "s_nnz", "v_nnz", "after_nnz")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dynamic:
    """Pairs of tiles in the order in which they are launched.

    `visits`: pairs x (first and last + 1 along the stationary operand's own rank, along k, along the other's
    own rank; words of the stationary tile, of the other; words that Z's region has before and after;
    entries of the stationary tile, of the other and of Z's region after).
    """

    product: Product
    stationary: Stationary
    grow: Grow
    visits: Ints

    @property
    def order(self) -> str:
        return "ikj" if self.stationary == "A" else "jki"

    @property
    def launches(self) -> int:
        return int(self.visits.shape[0])

    def column(self, name: str) -> Ints:
        found: Ints = self.visits[:, _COLUMNS.index(name)]
        return found

    @cached_property
    def largest(self) -> tuple[int, int, int]:
        """Words of the fullest tile of A, of B and of Z."""
        s, v, z = (int(self.column(name).max(initial=0)) for name in ("s", "v", "after"))
        return (s, v, z) if self.stationary == "A" else (v, s, z)

    @cached_property
    def new(self) -> tuple[Flags, Flags, Flags]:
        """Where the tile of the stationary operand, of the other one and the region of Z change."""
        at = self.column
        outer, k, inner = ((at(f"{name}"), at(f"{name}_end")) for name in ("outer", "k", "inner"))
        return changes(*outer, *k), changes(*k, *inner), changes(*outer, *inner)

    def traffic(self) -> Traffic:
        """A tile is read when it differs from the resident one; a region of Z is written when it is left and
        what it has accumulated is read when it is entered."""
        new_s, new_v, new_z = self.new
        left = np.ones(self.launches, dtype=np.bool_)
        left[:-1] = new_z[1:]
        s, v = (int(self.column(n)[new].sum()) for n, new in (("s", new_s), ("v", new_v)))
        s_count, v_count, visits = (int(np.count_nonzero(new)) for new in self.new)
        z_read, z_write = int(self.column("before")[new_z].sum()), int(self.column("after")[left].sum())
        if self.stationary == "B":
            s, v, s_count, v_count = v, s, v_count, s_count
        return Traffic(self.order, s_count, v_count, visits, s, v, z_read, z_write)


def dynamic(
    product: Product,
    buffers: tuple[int, int, int],
    stationary: Stationary = "A",
    grow: Grow = "k",
    stop: Callable[[int], bool] | None = None,
) -> Dynamic | None:
    """Tiles that grow until their buffer (words for A, B and Z) is full; none exceeds it.

    `grow`: what the stationary tile does first: `k` takes all of the shared rank that fits, then its own;
    `outer` the other way round; `alternate` doubles both in turn. `stop` is asked after each band, with the
    launches so far: if it says True, or after 10^6 tiles, None is returned. SpecError where a buffer does not
    hold one entry (7 words).
    """
    small = [(name, m) for name, m in zip("ABZ", buffers, strict=True) if m < LEAST]
    if small:
        raise SpecError(
            [
                Diagnostic(
                    f"the buffer of {n} holds {m} words, a tile with one entry takes {LEAST}", "enlarge it"
                )
                for n, m in small
            ]
        )
    sides = sides_of(product, buffers, stationary)
    limits = limits_of(sides)
    found: list[tuple[int, ...]] = []
    steps, outer = 0, 0
    while outer < sides.s.shape[0]:
        end = band_end(sides, outer, int(limits[0][outer]), int(limits[1][0]), grow)
        steps += _band(sides, (outer, end), limits[1], found)
        outer = end
        if steps > STEPS or (stop is not None and stop(len(found))):
            return None
    visits = np.array(found, dtype=np.int64).reshape(-1, len(_COLUMNS))
    return Dynamic(product, stationary, grow, visits)


def _band(sides: Sides, band: tuple[int, int], k_limit: Ints, found: list[tuple[int, ...]]) -> int:
    """All pairs of one range of the stationary operand's own rank; returns how many tiles were grown."""
    ours = sides.part(sides.s, band)
    z, z_first = sides.result(band)
    at, k, steps, extent = 0, 0, 0, sides.s.shape[1]
    before = z.taken(z_first < 0)
    while at < ours.x.size:
        look()
        end = min(ours.reach(at, sides.buffers[0], extent), int(k_limit[k]))
        to = ours.at(end)
        if to > at:
            after = z.taken(z_first < end)
            sides.touched[ours.x[at:to]] = True
            tile = (*band, k, end), ours.words(at, to), to - at
            steps += _swept(sides, tile, before, after, found)
            sides.touched[ours.x[at:to]] = False
            before = after
        at, k, steps = to, end, steps + 1
    return steps


def _swept(
    sides: Sides,
    tile: tuple[tuple[int, int, int, int], int, int],
    before: Listed,
    after: Listed,
    found: list[tuple[int, ...]],
) -> int:
    """The other operand's tiles under one stationary tile; those without a shared k are passed over."""
    (outer, outer_end, k, k_end), words, nnz = tile
    theirs, shared, grown = sides.other(k, k_end)
    met = np.flatnonzero(sides.touched[shared]).tolist()
    at, at_z, inner, steps, extent = 0, 0, 0, 0, sides.v.shape[1]
    while at < theirs.x.size:
        if at not in grown:
            end = theirs.reach(at, sides.buffers[1], extent)
            grown[at] = end, theirs.at(end)
        end, to = grown[at]
        to_z = after.at(end)
        if not after.fits(at_z, to_z, sides.buffers[2]):
            end = after.reach(at_z, sides.buffers[2], extent)
            to, to_z = theirs.at(end), after.at(end)
        first = bisect_left(met, at)
        if first < len(met) and met[first] < to:
            held = before.words(before.at(inner), before.at(end))
            both = theirs.words(at, to), held, after.words(at_z, to_z)
            found.append((outer, outer_end, k, k_end, inner, end, words, *both, nnz, to - at, to_z - at_z))
        at, at_z, inner, steps = to, to_z, end, steps + 1
    return steps
