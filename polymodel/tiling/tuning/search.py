"""Which cutting to try next, decided by what the model said of those before.

Two seeds first: the binary tree of Tiler-Swift, and strips. Then, for strips of rows and of columns whose
figure is not far from the best, the number of panels is doubled while that helps and its best value closed in
on from both sides; panels of unequal width are tried where strips are hopeful. What every family has best is
merged, and the winner is cut for less than its capacity before it is merged, for as long as that helps.
Nothing here is drawn by chance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from polymodel.tiling.plane.pattern import Pattern
from polymodel.tiling.tuning.proposals import PARTS, Family, Proposal, most_panels

# The objective first, then what decides between equals: kernels, tiles. None: some entry did not fit.
Figure = tuple[int, int, int] | None
SEEDS = (
    (Proposal("btree"), "seed: the binary tree of Tiler-Swift, which time is saved against"),
    (Proposal("strips"), "seed: whole rows, the fewest tiles where work has no reuse"),
)
# A family whose best figure is within this factor of the best of all may still win by refining it.
_HOPEFUL = 1.25
# Those that cut by size alone: into halves, into quarters, or all tiles alike.
_TREES: tuple[Family, ...] = ("btree", "qtree", "simple")
_LEAST_PARTS, _FEWER = 12, 2


@dataclass
class Search:
    """The figures so far and, from them, the next proposal."""

    pattern: Pattern
    figures: dict[Proposal, Figure] = field(default_factory=dict)

    def told(self, proposal: Proposal, figure: Figure) -> None:
        """What the model says of a proposal."""
        self.figures[proposal] = figure

    def next(self) -> tuple[Proposal, str] | None:
        """A proposal that was not tried yet and why, None if nothing is left that might help."""
        for proposal, why in self._ideas():
            if proposal not in self.figures:
                return proposal, why
        return None

    def best(self, *families: Family, plain: bool = False) -> Proposal | None:
        """The proposal with the least figure, of these families (none: of all); the earliest of equals."""
        known = [
            (figure, number, p)
            for number, (p, figure) in enumerate(self.figures.items())
            if figure is not None and (not families or p.family in families) and (p.plain or not plain)
        ]
        return min(known)[2] if known else None

    def _ideas(self) -> Iterator[tuple[Proposal, str]]:
        yield from SEEDS
        yield from self._climb("strips")
        yield from self._unequal()
        yield Proposal("columns"), "whole columns instead of rows"
        yield from self._climb("columns")
        yield from self._merging()
        yield from self._lesser()
        yield from self._around()

    def _first(self, proposal: Proposal) -> int:
        """The objective of a proposal that fitted."""
        figure = self.figures[proposal]
        assert figure is not None
        return figure[0]

    def _hopeful(self, proposal: Proposal | None) -> bool:
        best = self.best()
        if proposal is None or best is None:
            return False
        return self._first(proposal) <= _HOPEFUL * self._first(best)

    def _climb(self, family: Family) -> Iterator[tuple[Proposal, str]]:
        """The next number of panels: twice the best while that is the largest tried, else beside the best."""
        best = self.best(family, plain=True)
        if best is None or not self._hopeful(best):
            return
        tried = sorted(p.panels for p in self.figures if p.family == family and p.plain)
        at, said = tried.index(best.panels), f"{best.panels} of {family} gave {self._first(best):,}"
        if best.panels == tried[-1]:
            doubled = min(2 * best.panels, most_panels(self.pattern, family))
            if doubled > best.panels:
                yield replace(best, panels=doubled), f"panels: {said}, the least so far; twice as many"
            return
        gaps = [(tried[at + 1] - best.panels, best.panels)]
        if at:
            gaps.append((best.panels - tried[at - 1], tried[at - 1]))
        gap, low = max(gaps)
        if gap > 1:
            why = f"panels: {said}, less than its neighbours; between {low} and {low + gap}"
            yield replace(best, panels=low + gap // 2), why

    def _unequal(self) -> Iterator[tuple[Proposal, str]]:
        """Panels of unequal width, where strips are not far from the best."""
        best = self.best("strips")
        if best is not None and self._hopeful(best):
            said = f"{best.panels} of strips gave {self._first(best):,}"
            yield Proposal("panels"), f"panels: {said}; of unequal width, chosen for the fewest tiles"

    def _merging(self) -> Iterator[tuple[Proposal, str]]:
        """The best of each family with its neighbours joined, the most hopeful first; trees also as quads."""
        families: list[tuple[Family, ...]] = [("strips",), ("columns",), ("panels",), _TREES]
        winners = [self.best(*f) for f in families]
        known = sorted((self._first(p), p) for p in winners if p is not None)
        for figure, winner in known:
            if self._hopeful(winner) or winner.family == "btree":
                why = f"merging: the best of its family gave {figure:,}"
                yield replace(winner, merge=True), why
        tree = self.best(*_TREES)
        if tree is not None and tree.merge and self._hopeful(tree):
            why = f"trees: merged, {tree.family} is not far from the best with {self._first(tree):,}"
            yield from ((replace(tree, family=family), why) for family in _TREES)

    def _lesser(self) -> Iterator[tuple[Proposal, str]]:
        """The winner cut for less of the capacity, so that merging has pieces that fill tiles better."""
        best = self.best()
        if best is None:
            return
        for parts in range(best.parts - 1, max(best.parts - 1 - _FEWER, _LEAST_PARTS - 1), -1):
            why = (
                f"pieces: cut for {parts}/{PARTS} and merged, to fill tiles better than {self._first(best):,}"
            )
            yield replace(best, parts=parts, merge=True), why

    def _around(self) -> Iterator[tuple[Proposal, str]]:
        """A panel more or less than the winner."""
        best = self.best()
        if best is None or best.family not in ("strips", "columns"):
            return
        for panels in (best.panels + 1, best.panels - 1):
            if 1 <= panels <= most_panels(self.pattern, best.family):
                why = f"panels: beside the best, {best.panels} with {self._first(best):,}"
                yield replace(best, panels=panels), why
