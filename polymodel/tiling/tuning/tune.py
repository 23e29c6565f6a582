"""The feedback loop between tiler and model: a proposal is cut, and the model's figure of it determines the
next one.

Finding tiles takes time for every new input. So each step reports its time and its savings compared with the
first one, the binary tree of Tiler-Swift, and the loop may end when it no longer pays off.

The first two proposals are the binary tree of Tiler-Swift, and strips. Then, for strips of rows and of
columns whose figure is not far from the best, the number of panels is doubled while that improves the figure,
and the best value is approached from both sides; panels of unequal width are tried if strips are promising.
The best cut of every family is merged, and the winner is cut for less than its capacity before merging, as
long as that improves the figure. The procedure is deterministic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.faults import plainly
from polymodel.tiling.cost.model import CutCosts, Launch, Objective, cost_bound, costs
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.pattern import Cut, Ints, Pattern
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.panels import panels
from polymodel.tiling.tilers.strips import StripPanels, in_panels
from polymodel.tiling.tilers.trees import btree, qtree, simple

# The proposals: strips in panels or a tree, cut for a fraction of the capacity, merged or not.

Family = Literal["strips", "columns", "panels", "btree", "qtree", "simple"]
_WHOLE: dict[str, Callable[[Pattern, Op, Fit], Cut]] = {
    "btree": btree,
    "qtree": qtree,
    "panels": panels,
    "simple": simple,
}
# The capacity in parts: a proposal cuts for some of them; merging then fills tiles up to all of it.
PARTS = 16
_EVERY = 1 << 16


@dataclass(frozen=True, order=True)
class Proposal:
    """One way of cutting. `panels`: number of adjacent panels, each of strips of rows or of columns (the
    family `panels` chooses their number and widths for the fewest tiles); `parts`: sixteenths of the capacity
    that it is cut for; `merge`: whether neighbours that fit together are joined afterwards."""

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
        """Return the tiles. SpecError if an entry fits no tile."""
        rule = replace(fit, capacity=max(1, fit.capacity * self.parts // PARTS))
        if self.family in _WHOLE:
            result = _WHOLE[self.family](pattern, op, rule)
        else:
            by_columns = self.family == "columns"
            edges = edges_of(pattern, self.panels, by_columns)
            result = in_panels(StripPanels.of(pattern, edges, by_columns, rule), op, rule, self.family)
        if self.merge:
            result = merged(pattern, op, fit, result)
        return replace(result, tiler=self.name)


def most_panels(pattern: Pattern, family: Family) -> int:
    """The largest number of panels that differ from each other."""
    return pattern.shape[0 if family == "columns" else 1] if family in ("strips", "columns") else 1


def edges_of(pattern: Pattern, panels: int, by_columns: bool) -> Ints:
    """Edges of panels of whole lines with about equally many entries."""
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


PATIENCE = 8
OBJECTIVES: tuple[Objective, ...] = ("tiles", "cycles", "total")


@dataclass(frozen=True)
class Ending:
    """The conditions under which the loop ends, in addition to reaching the bound and having no further
    proposal.

    `patience`: proposals in a row that improve nothing. `budget`: seconds that tiler and model may take.
    `runs`: how often the tiles will be run; the loop ends when it has taken longer than all runs together
    could still save. The seeds are always tried. With `budget` or `runs` the result depends on the machine.
    """

    patience: int = PATIENCE
    budget: float | None = None
    runs: float | None = None

    def __post_init__(self) -> None:
        faults = []
        for name in ("patience", "budget", "runs"):
            object.__setattr__(self, name, plainly(getattr(self, name)))
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            message = f"patience {self.patience!r} is not a positive integer"
            faults.append(Diagnostic(message, "write e.g. 8", code="not-positive-integer"))
        for name, value, example in (("budget", self.budget, "0.5"), ("runs", self.runs, "1000")):
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and (not real or math.isnan(value) or value <= 0):
                fault = f"{name} {value!r} is not a number above 0"
                faults.append(Diagnostic(fault, f"write e.g. {example}", code="out-of-range"))
        if faults:
            raise SpecError(faults)


@dataclass(frozen=True)
class Step:
    """One iteration of the loop. `fits`: no entry is too large for the proposal; then counts are exact, else
    0.

    `figure`: the value of the objective; `best`: the least so far. `seconds`: time of tiler and model.
    """

    number: int
    proposal: Proposal
    why: str
    fits: bool
    tiles: int
    kernels: int
    config_cycles: int
    run_cycles: int
    figure: int
    best: int
    improved: bool
    seconds: float

    @property
    def total_cycles(self) -> int:
        return self.config_cycles + self.run_cycles


@dataclass(frozen=True, eq=False)
class Tuned:
    """All steps, the costs of the best cutting, and the reason why the loop ended.

    `bound`: a lower bound of the objective over all cuttings; `bound_cycles`: a lower bound of the total
    cycles (`bound`).
    """

    steps: tuple[Step, ...]
    chosen: Step
    costs: CutCosts
    objective: Objective
    bound: int
    bound_cycles: int
    ended: str

    @property
    def seconds(self) -> float:
        """Cumulative time of cutting and costing after each step."""
        return math.fsum(s.seconds for s in self.steps)

    def saved(self, step: Step) -> float:
        """Seconds that one run of the best cutting up to a step saves compared with one of the first
        cutting.
        """
        best = min((s for s in self.steps[: step.number] if s.fits), key=lambda s: (s.figure, s.number))
        return self.costs.launch.seconds(self.steps[0].total_cycles - best.total_cycles)

    @property
    def break_even(self) -> int | None:
        """The number of runs after which the time of the loop beyond its first step is recovered; None:
        never."""
        gain = self.saved(self.steps[-1])
        return math.ceil((self.seconds - self.steps[0].seconds) / gain) if gain > 0 else None


def figure_of(found: CutCosts, objective: Objective) -> tuple[int, int, int]:
    """The value of the objective, then kernels and tiles as tie-breakers."""
    first = {"tiles": found.kernels, "cycles": found.run_cycles, "total": found.total_cycles}[objective]
    return first, found.kernels, found.tiles


def tune(
    pattern: Pattern,
    op: Op,
    fit: Fit,
    objective: Objective = "total",
    launch: Launch | None = None,
    ending: Ending | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Tuned:
    """Cut, evaluate the model, and let its figure choose the next proposal, until one of the endings.

    The answer is the best of all steps, never worse than the binary tree. SpecError for an entry that fits no
    tile.
    """
    loop = _Loop(pattern, op, fit, objective, launch or Launch(), ending or Ending(), clock)
    return loop.run()


class _Loop:
    def __init__(
        self,
        pattern: Pattern,
        op: Op,
        fit: Fit,
        objective: Objective,
        launch: Launch,
        ending: Ending,
        clock: Callable[[], float],
    ) -> None:
        if objective not in OBJECTIVES:
            fault = Diagnostic(
                f"objective {objective!r} is unknown",
                f"write one of {', '.join(OBJECTIVES)}",
                code="unknown-choice",
            )
            raise SpecError([fault])
        self.pattern, self.op, self.fit, self.objective, self.launch = pattern, op, fit, objective, launch
        self.ending, self.clock = ending, clock
        self.bound = cost_bound(pattern, op, fit, launch, objective)
        self.bound_cycles = cost_bound(pattern, op, fit, launch, "total")
        self.search = TuningSearch(pattern)
        self.steps: list[Step] = []
        self.best: tuple[Step, Figure, CutCosts] | None = None
        self.idle = 0  # steps since the last improvement
        self.spent = 0.0

    def run(self) -> Tuned:
        while True:
            idea = self.search.next()
            ended = "nothing is left to try" if idea is None else self._ended()
            if idea is None or (ended and len(self.steps) >= len(SEEDS)):
                break
            self._step(*idea)
        assert self.best is not None  # the seeds were tried, and a fault would have been raised
        chosen, _, result = self.best
        return Tuned(tuple(self.steps), chosen, result, self.objective, self.bound, self.bound_cycles, ended)

    def _ended(self) -> str:
        """Return the reason why the loop ends; empty if it continues."""
        if self.best is None:
            return ""
        chosen, ending = self.best[0], self.ending
        if chosen.figure <= self.bound:
            return "the lower bound is reached"
        if self.idle >= ending.patience:
            return f"{ending.patience} proposals in a row improved nothing"
        if ending.budget is not None and self.spent >= ending.budget:
            return f"the budget of {ending.budget:g} s is spent"
        left = self.launch.seconds(chosen.total_cycles - self.bound_cycles)
        if ending.runs is not None and self.spent >= left * ending.runs:
            more = f"{ending.runs:g} runs could save {left * ending.runs:.3g} s more"
            return f"{self.spent:.3g} s are spent, {more}"
        return ""

    def _step(self, proposal: Proposal, why: str) -> None:
        started = self.clock()
        found, figure = self._tried(proposal)
        seconds = self.clock() - started
        self.spent += seconds
        self.search.record(proposal, figure)
        known = self.best[1] if self.best else None
        improved = figure is not None and (known is None or figure < known)
        self.idle = 0 if improved else self.idle + 1
        least = figure if improved else known
        assert least is not None  # the first seed fits, or an exception was raised
        counted = (
            (0, 0, 0, 0, 0)
            if found is None or figure is None
            else (found.tiles, found.kernels, found.config_cycles, found.run_cycles, figure[0])
        )
        step = Step(
            len(self.steps) + 1, proposal, why, found is not None, *counted, least[0], improved, seconds
        )
        self.steps.append(step)
        if improved and found is not None:
            self.best = step, figure, found

    def _tried(self, proposal: Proposal) -> tuple[CutCosts | None, Figure]:
        """Costs and figure of a proposal; None if its capacity is less than an entry, or its tiler
        refuses.
        """
        try:
            cut = proposal.cut(self.pattern, self.op, self.fit)
        except SpecError:
            if proposal.parts == PARTS:
                raise
            return None, None
        except Refused:
            if proposal in dict(SEEDS):
                raise
            return None, None
        result = costs(self.pattern, cut, self.op, self.fit, self.launch)
        return result, figure_of(result, self.objective)


# The objective, then the tie-breakers kernels and tiles. None: some entry did not fit.
Figure = tuple[int, int, int] | None
SEEDS = (
    (Proposal("btree"), "seed: the binary tree of Tiler-Swift, which time is saved against"),
    (Proposal("strips"), "seed: whole rows, the fewest tiles where work has no reuse"),
)
# A family whose best figure is within this factor of the overall best may still improve on it by refinement.
_HOPEFUL = 1.25
# Families that cut by size alone: into halves, into quarters, or into tiles of one size.
_TREES: tuple[Family, ...] = ("btree", "qtree", "simple")
_LEAST_PARTS, _FEWER = 12, 2


@dataclass
class TuningSearch:
    """The figures so far and the next proposal that follows from them."""

    pattern: Pattern
    figures: dict[Proposal, Figure] = field(default_factory=dict)

    def record(self, proposal: Proposal, figure: Figure) -> None:
        """Record the model's figure of a proposal."""
        self.figures[proposal] = figure

    def next(self) -> tuple[Proposal, str] | None:
        """Return a proposal that was not tried yet and the reason for it, or None if no promising one is
        left."""
        for proposal, why in self._ideas():
            if proposal not in self.figures:
                return proposal, why
        return None

    def best(self, *families: Family, plain: bool = False) -> Proposal | None:
        """Return the proposal with the least figure among these families (None: all); the earliest of equal
        ones."""
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
        """The value of the objective of a proposal that fitted."""
        figure = self.figures[proposal]
        assert figure is not None
        return figure[0]

    def _hopeful(self, proposal: Proposal | None) -> bool:
        best = self.best()
        if proposal is None or best is None:
            return False
        return self._first(proposal) <= _HOPEFUL * self._first(best)

    def _climb(self, family: Family) -> Iterator[tuple[Proposal, str]]:
        """Return the next number of panels: twice the best if the best is the largest tried, otherwise a
        number next to the best."""
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
        """Return the best of each family with its neighbours merged, the most promising first; trees also as
        quad trees."""
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
        """Return the best proposal cut for less of the capacity, so that merging has pieces that fill tiles
        better."""
        best = self.best()
        if best is None:
            return
        for parts in range(best.parts - 1, max(best.parts - 1 - _FEWER, _LEAST_PARTS - 1), -1):
            why = (
                f"pieces: cut for {parts}/{PARTS} and merged, to fill tiles better than {self._first(best):,}"
            )
            yield replace(best, parts=parts, merge=True), why

    def _around(self) -> Iterator[tuple[Proposal, str]]:
        """One panel more or fewer than the best proposal."""
        best = self.best()
        if best is None or best.family not in ("strips", "columns"):
            return
        for number in (best.panels + 1, best.panels - 1):
            if 1 <= number <= most_panels(self.pattern, best.family):
                why = f"panels: beside the best, {best.panels} with {self._first(best):,}"
                yield replace(best, panels=number), why
