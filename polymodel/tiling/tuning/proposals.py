"""What the tiler may propose: strips in panels or a tree, cut for a part of the capacity, merged or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.pattern import Cut, Ints, Pattern
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.panels import panels
from polymodel.tiling.tilers.strips import Panels, in_panels
from polymodel.tiling.tilers.trees import btree, qtree, simple

Family = Literal["strips", "columns", "panels", "btree", "qtree", "simple"]
_WHOLE: dict[str, Callable[[Pattern, Op, Fit], Cut]] = {
    "btree": btree,
    "qtree": qtree,
    "panels": panels,
    "simple": simple,
}
# A proposal cuts for so many parts of the capacity; merging then fills tiles up to all of it.
PARTS = 16
_EVERY = 1 << 16


@dataclass(frozen=True, order=True)
class Proposal:
    """One cutting. `panels`: side by side, of strips of rows or of columns (the family of this name chooses
    their number and widths for the fewest tiles); `parts`: sixteenths of the capacity that it is cut for;
    `merge`: neighbours that fit together are joined afterwards."""

    family: Family
    panels: int = 1
    parts: int = PARTS
    merge: bool = False

    @property
    def name(self) -> str:
        """`strips in 4 panels for 15/16 of the capacity, merged`."""
        words: list[str] = [self.family]
        if self.panels > 1:
            words.append(f"in {self.panels} panels")
        if self.parts < PARTS:
            words.append(f"for {self.parts}/{PARTS} of the capacity")
        return " ".join(words) + (", merged" if self.merge else "")

    @property
    def plain(self) -> bool:
        """True if it is cut for the whole capacity and not merged."""
        return self.parts == PARTS and not self.merge

    def cut(self, pattern: Pattern, op: Op, fit: Fit) -> Cut:
        """The tiles. SpecError where an entry fits no tile."""
        rule = replace(fit, capacity=max(1, fit.capacity * self.parts // PARTS))
        if self.family in _WHOLE:
            found = _WHOLE[self.family](pattern, op, rule)
        else:
            by_columns = self.family == "columns"
            edges = edges_of(pattern, self.panels, by_columns)
            found = in_panels(Panels.of(pattern, edges, by_columns, rule), op, rule, self.family)
        if self.merge:
            found = merged(pattern, op, fit, found)
        return replace(found, tiler=self.name)


def most_panels(pattern: Pattern, family: Family) -> int:
    """More panels than this cannot be told apart."""
    return pattern.shape[0 if family == "columns" else 1] if family in ("strips", "columns") else 1


def edges_of(pattern: Pattern, panels: int, by_columns: bool) -> Ints:
    """Where panels begin and end, whole lines each, so that they hold about equally many entries."""
    size = pattern.shape[0 if by_columns else 1]
    over = pattern.rows if by_columns else pattern.cols
    if panels == 1 or not over.size:
        return np.array([0, size], dtype=np.int64)
    if size > 4 * over.size + _EVERY:  # a count of every line would outgrow the points
        lines, held = np.unique(over, return_counts=True)
    else:
        lines, held = np.arange(size), np.bincount(over, minlength=size)
    upto = np.cumsum(held)
    wanted = upto[-1] * np.arange(1, panels) / panels
    inner = lines[np.searchsorted(upto, wanted)].astype(np.int64) + 1
    return np.unique(np.concatenate([[0], inner[inner < size], [size]])).astype(np.int64)
