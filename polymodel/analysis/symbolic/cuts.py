"""Factors of closed forms for two rank variables that a bound ties together: sums and peaks over their tiles.

They stand where an atom stands for a single variable. Their values come from the region itself (`regions`),
once for each different choice of tile sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property

from polymodel.analysis.symbolic.atoms import Level, Ops, Size, Value
from polymodel.analysis.symbolic.peaks import Asked, front
from polymodel.analysis.symbolic.regions import Region, Tiles, What, total
from polymodel.analysis.symbolic.visits import Kind, Loops, asked_of_loop
from polymodel.errors import NotSeparable

_NAMES = {"none": "tiles", "u": "elements", "v": "elements", "both": "points", "rank": "elements"}
PEAKS = 3  # tiles of which now one, now another is larger: so many stamps may be the peak


@dataclass(frozen=True)
class Tied:
    """A number of a region under tiles of its variables `u` and `v` (outermost first)."""

    region: Region
    u: tuple[Level, ...]
    v: tuple[Level, ...]

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return (*self.region.extents, *(s for lv in (*self.u, *self.v) for s in (lv.begin, lv.tile)))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((type(self).__name__, *(getattr(self, f.name) for f in fields(self))))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        return ops.counted(self, [values[s] if isinstance(s, str) else s for s in self.sizes[2:]])

    def at(self, *sizes: int) -> int:
        """The number for the sizes of all tiles: first and others of each loop of u, then of v."""
        pairs: Tiles = tuple(zip(sizes[::2], sizes[1::2], strict=True))
        return self.number(pairs[: len(self.u)], pairs[len(self.u) :])

    def number(self, u: Tiles, v: Tiles) -> int:
        """The same for the tiles of either variable."""
        raise NotImplementedError

    @property
    def named(self) -> str:
        """What is counted, in a word."""
        raise NotImplementedError

    def of(self, *sizes: Value) -> Value:
        """The same for numbers or arrays of them, once for each different row of sizes."""
        import numpy as np

        arrays = np.broadcast_arrays(*(np.asarray(s, np.int64) for s in sizes)) if sizes else []
        if not sizes or not arrays[0].ndim:
            return self.at(*(int(s) for s in sizes))
        rows, which = np.unique(
            np.stack(arrays, axis=-1).reshape(-1, len(sizes)), axis=0, return_inverse=True
        )
        found = [self.at(*row) for row in rows.tolist()]
        return np.array(found, np.int64)[which.reshape(-1)].reshape(arrays[0].shape)


@dataclass(frozen=True)
class Cut(Tied):
    """The different (tile of u, tile of v, element of `what`).

    With `asked` the size of the tile number `item` of those at the stamp number `place` that may be the peak;
    the outermost `stamps` loops of either variable tell stamps, others are buffets' own.
    """

    what: What = "none"
    rank: tuple[int, int] = (0, 0)
    asked: tuple[Asked, ...] = ()
    item: int = 0
    place: int = 0
    stamps: tuple[int, int] | None = None

    __hash__ = Tied.__hash__

    @property
    def named(self) -> str:
        return "peak" if self.asked else _NAMES[self.what]

    def number(self, u: Tiles, v: Tiles) -> int:
        if not self.asked:
            return total(self.region, u, v, self.what, self.rank)
        rows = front(self.region, u, v, self.asked, self.stamps)
        if len(rows) > PEAKS:
            raise NotSeparable(
                f"at tiles {', '.join(str(t) for _, t in (*u, *v))} more than {PEAKS} stamps may be the peak",
                "use engine exact there",
            )
        return rows[min(self.place, len(rows) - 1)][self.item]


@dataclass(frozen=True)
class Step(Tied):
    """What `kind` asks of a loop (`visits`): what stays over its steps, or whether tiles depend on it.

    `order`: the loops over both variables as they stand, `axis` of them outside.
    """

    order: str
    axis: int
    kind: Kind
    what: What
    rank: tuple[int, int] = (0, 0)

    __hash__ = Tied.__hash__

    @property
    def named(self) -> str:
        return "independent" if self.kind == "settled" else "kept"

    def number(self, u: Tiles, v: Tiles) -> int:
        loops = Loops(self.region, u, v, self.order)
        return asked_of_loop(loops, self.axis, self.kind, self.what, self.rank)
