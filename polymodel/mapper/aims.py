"""The objectives and limits of a search, and the candidates that its bounds exclude.

A *row* is a figure that the search bounds and compares: energy, latency, other figures that add up over
Einsums (`Added`), and peaks of memories. Each objective or limit is a row, or a function that is
monotonically increasing in the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from polymodel import objectives as vocabulary
from polymodel.frozen import dataclass
from polymodel.mapper.records import CLOSE
from polymodel.objectives import (
    FigureLimit,
    InstancesUsed,
    SearchFigures,
    is_sum,
    objective_of,
    terms_of,
    uses,
)
from polymodel.pareto import undominated

Array = Any
ROUNDING = 1e-9  # relative: sums of floats in different orders may differ by this much
WORKING_SET, BUSIEST, USED = "working_set", "busiest_", "used"
WAYS = ("reads", "writes")


@dataclass(frozen=True)
class Added:
    """A figure that adds up over Einsums, as a weighted sum.

    `energy`, `latency`: their weights. `moved`: (component, `reads` or `writes`, weight) of the bits that
    components move. `places`: weight of the operations that all instances of a compute unit could execute
    during the cycles of the busiest instance. `busiest`: (component, `reads`, `writes` or `operations`,
    weight) of what the busiest instance of a component moves or executes. `used`: the instances in use along
    a fanout dimension. `einsums`: those over which it adds up (empty: all).
    """

    energy: float = 0.0
    latency: float = 0.0
    moved: tuple[tuple[str, str, float], ...] = ()
    places: float = 0.0
    busiest: tuple[tuple[str, str, float], ...] = ()
    used: InstancesUsed | None = None
    einsums: tuple[str, ...] = ()

    def of(self, einsum: str) -> Added:
        """What one Einsum adds."""
        return self if not self.einsums or einsum in self.einsums else Added()

    def stepped(self, value: Array) -> Array:
        """Return, for numbers of instances in use, the weight of the next step of `used` (for 0, unknown, 0);
        without `used` the values unchanged."""
        if self.used is None:
            return value
        at = np.searchsorted(self.used.steps, value * (1 - ROUNDING))
        weights = np.array(self.used.weights, float)
        return np.where(value > 0, weights[np.minimum(at, len(weights) - 1)], 0.0)

    def slope(self, leak: float) -> float:
        """Return the increase per second of latency, if the leakage is `leak` watts."""
        return self.latency + self.energy * leak

    @property
    def timed(self) -> bool:
        """Return whether the latency has a weight of its own."""
        return self.latency > 0


ENERGY, LATENCY = Added(energy=1.0), Added(latency=1.0)


def added_of(name: str, operations: float) -> Added | None:
    """Return an objective as a weighted sum, or None if it is not a sum over Einsums. `operations`:
    operations of all Einsums, relative to which the reciprocal of the utilisation is computed. Searches for
    pipelines have sums over some Einsums, `latency::E1:E2` and `busiest_reads:DRAM:E1:E2`."""
    energy = latency = places = 0.0
    moved: dict[tuple[str, str], float] = {}
    busiest: dict[tuple[str, str], float] = {}
    einsums: list[str] = []
    if name.startswith(f"{USED}:"):
        return Added(used=InstancesUsed.read(name.partition(":")[2]))
    for weight, one in terms_of(name):
        word, _, component = one.partition(":")
        component, *einsums = component.split(":")
        if word == "energy":
            energy += weight
        elif word == "latency":
            latency += weight
        elif word == "utilisation" and operations:
            places += weight / operations
        elif word.removeprefix(BUSIEST) in (*WAYS, "accesses", "operations"):
            way = word.removeprefix(BUSIEST)
            here = moved if way == word else busiest
            for each in WAYS if way == "accesses" else (way,):
                here[component, each] = here.get((component, each), 0.0) + weight
        else:
            return None
    moving, at_most = (tuple((c, way, w) for (c, way), w in x.items()) for x in (moved, busiest))
    return Added(energy, latency, moving, places, at_most, einsums=tuple(einsums))


def follows(name: str) -> bool:
    """Return whether an objective is a function of energy, latency, peaks of memories and area only."""
    return {figure for figure, _ in uses(name)} <= {"energy", "latency", WORKING_SET, "area"}


def grows_with_peaks(name: str) -> bool:
    """Whether an objective depends on the peak of a memory."""
    return any(figure == WORKING_SET for figure, _ in uses(name))


@dataclass(frozen=True)
class Aims:
    """Objectives and limits, and the rows that they need.

    Rows in order: energy and latency (if `energy`, `latency`), then `more`, then the peaks of the memories
    `peaks`. `area`: that of the architecture.
    """

    objectives: tuple[str, ...]
    limits: tuple[FigureLimit, ...]
    energy: bool
    latency: bool
    more: tuple[Added, ...]
    peaks: tuple[str, ...]
    area: float = 0.0
    operations: float = 0.0

    @property
    def added(self) -> tuple[Added, ...]:
        """The rows that add up over Einsums."""
        return (*([ENERGY] if self.energy else []), *([LATENCY] if self.latency else []), *self.more)

    @property
    def plain(self) -> bool:
        """Return whether every row is an objective and there are no limits, so that comparing rows is
        sufficient."""
        rows = {self._row(o) for o in self.objectives}
        return not self.limits and None not in rows and len(rows) == len(self.added) + len(self.peaks)

    def _row(self, name: str) -> int | None:
        """The index of the row that equals the objective; None if no row does."""
        added = added_of(name, self.operations)
        if added is not None and added in self.added:
            return self.added.index(added)
        word, _, memory = name.partition(":")
        if word == WORKING_SET and memory in self.peaks:
            return len(self.added) + self.peaks.index(memory)
        return None

    def score(self, name: str, rows: Sequence[Array] | Array) -> Array:
        """The minimised value of an objective or limit, from rows [rows, ...]; it is monotone in each row."""
        row = self._row(name)
        if row is not None:
            return rows[row]
        if is_sum(name):
            first, *rest = (w * self.score(one, rows) for w, one in terms_of(name))
            return sum(rest, start=first)
        at = dict(zip(self.added, rows, strict=False))
        figures = SearchFigures(at.get(ENERGY), at.get(LATENCY), {}, self.area)
        return vocabulary.score(name, vocabulary.value(name, figures))

    def value(self, name: str, rows: Sequence[Array] | Array) -> Array:
        """The value of an objective or limit as reports show it (the score of a maximised one inverted)."""
        score = self.score(name, rows)
        return vocabulary.score(name, score) if objective_of(name).most else score

    def admits(self, rows: Sequence[Array] | Array) -> Array:
        """Return whether rows satisfy the limits; for lower bounds of rows, whether the limits can still be
        satisfied."""
        result: Array = np.ones(np.shape(rows[0]) if len(rows) else 1, bool)
        for limit in self.limits:
            result = result & (self.score(limit.name, rows) <= limit.score * (1 + ROUNDING))
        return result

    def scores(self, rows: Sequence[Array] | Array) -> Array:
        """The minimised values of all objectives [objectives, n]."""
        n = len(rows[0]) if len(rows) else 1
        each = [np.broadcast_to(self.score(o, rows), n) for o in self.objectives]
        return np.stack(each).astype(float)

    def least_scores(self, rows: Array, mixed: Array, weights: Array) -> Array:
        """Lower bounds of the scores [objectives, n], from lower bounds of rows and of mixtures.

        `weights` [mixtures, 2]: weights of energy and latency; `mixed` [mixtures, n]: lower bounds of these
        weighted sums.
        """
        result = self.scores(rows)
        if not len(weights):
            return result
        energy, latency = rows[0], rows[1]
        for k in (k for k, o in enumerate(self.objectives) if o == "edp"):
            for (w, v), line in zip(weights, mixed, strict=True):
                # On a line of constant weighted sum the product has its minimum at one of the ends.
                with np.errstate(invalid="ignore"):  # infinite bounds, where nothing fits
                    ends = (
                        energy * np.maximum(latency, (line - w * energy) / v),
                        latency * np.maximum(energy, (line - v * latency) / w),
                    )
                result[k] = np.fmax(result[k], np.minimum(*ends))
        return result


def aims_of(
    objectives: Sequence[str],
    limits: Sequence[FigureLimit],
    operations: float = 0.0,
    area: float = 0.0,
) -> Aims:
    """Return the objectives, the limits and the rows that they need, without repetition."""
    energy = latency = False
    more: dict[Added, None] = {}
    peaks: dict[str, None] = {}
    for name in _parts((*objectives, *(limit.name for limit in limits)), operations):
        added = added_of(name, operations)
        if added == ENERGY:
            energy = True
        elif added == LATENCY:
            latency = True
        elif added is not None:
            more[added] = None
        elif name.partition(":")[0] == WORKING_SET:
            peaks[name.partition(":")[2]] = None
        elif uses(name) <= {("energy", ""), ("latency", "")}:
            energy = latency = True
        else:
            assert name == "area", name
    energy = energy or not (latency or more or peaks)  # ties are broken by energy
    return Aims(
        tuple(objectives), tuple(limits), energy, latency, tuple(more), tuple(peaks), area, operations
    )


def _parts(names: Iterable[str], operations: float) -> Iterable[str]:
    """Return the names as rows or functions of energy and latency; sums of other figures are split into
    terms."""
    for name in names:
        if added_of(name, operations) is not None:
            yield name
        else:
            yield from (one for _, one in terms_of(name))


# Lower bounds on the costs of every whole mapping of a space, as known so far in a search.

Line = tuple[float, float, float]  # weights of energy and latency, and a lower bound of their weighted sum


@dataclass
class LeastFigures:
    """Lower bounds for one part of the space: sums, energy times latency, and the sums `einsums` of each."""

    sums: Array
    edp: float = 0.0
    einsums: list[Array] | None = None


def corner(energy: float, latency: float, mixtures: Sequence[Line]) -> float:
    """Return a lower bound of energy times latency, at a corner of the region that the bounds leave.

    `mixtures`: lower bounds of weighted sums of energy and latency.
    """
    lines = [(1.0, 0.0, energy), (0.0, 1.0, latency), *mixtures]
    corners = [
        e * t
        for a, b in combinations(lines, 2)
        for e, t in _crossing(a, b)
        if all(w * e + v * t >= least * (1 - CLOSE) for w, v, least in lines)
    ]
    return min(corners, default=energy * latency) * (1 - 2 * CLOSE)


def _crossing(a: Line, b: Line) -> Iterator[tuple[float, float]]:
    scale = a[0] * b[1] - a[1] * b[0]
    if scale:
        yield (a[2] * b[1] - a[1] * b[2]) / scale, (a[0] * b[2] - a[2] * b[0]) / scale


@dataclass
class LeastCosts:
    """Lower bounds for all parts of the space, which are searched one after another; bounds only rise.

    Without `aims` there are no bounds. `peaks`: lower bounds for memories, in the order of the aims (0 if
    missing).
    """

    aims: Aims | None = None
    parts: list[LeastFigures] = field(default_factory=list)
    peaks: tuple[float, ...] = ()

    def raised(self, part: int, sums: Array, mixtures: Sequence[Line] = ()) -> None:
        """Raise the bounds of a part: of the figures that add up, and of mixtures of the first two."""
        if self.aims is None:
            return
        mine = self.parts[part]
        mine.sums = np.maximum(mine.sums, sums)
        if self.aims.energy and self.aims.latency:
            energy, latency = mine.sums[:2].tolist()
            mine.edp = max(mine.edp, corner(energy, latency, mixtures))

    def of_einsums(self, part: int) -> list[Array] | None:
        """The lower bounds of every Einsum in a part, raised in place; None if there are none."""
        return None if self.aims is None else self.parts[part].einsums

    def of(self, objective: str) -> float:
        """The lower bound of the score of an objective."""
        if self.aims is None:
            return 0.0
        if objective == "edp":
            return min(part.edp for part in self.parts)
        peaks = self.peaks or (0.0,) * len(self.aims.peaks)
        return min(float(self.aims.score(objective, [*part.sums.tolist(), *peaks])) for part in self.parts)


def nothing_known(aims: Aims, parts: int, peaks: tuple[float, ...] = ()) -> LeastCosts:
    """Return bounds of 0 for each part, with lower bounds of the peaks of memories."""
    return LeastCosts(aims, [LeastFigures(np.zeros(len(aims.added))) for _ in range(parts)], peaks)


# Branch and bound: the candidates that known whole mappings exclude. Undecided choices add at least
# `rest` to energy and latency, and adds more where the whole mapping may use less memory. So `rest` is
# known per level of the first peak: a mapping whose peak lies between two levels pays at least the bound of
# the upper level.

STEP = 3  # every third level is kept where few levels are sufficient
TOGETHER = 8  # known mappings that are compared at once


@dataclass(frozen=True)
class KnownMappings:
    """Figures [figures, m] of known whole mappings, with which candidates are compared.

    The first `sums` figures add up over Einsums, the others are peaks. `edges` [levels], ascending: upper
    ends of the ranges of the first peak (one infinite level if there are no peaks). `eps`: relative margin
    within which a candidate is not worth keeping. `weights` [mixtures, sums]: weighted sums of two figures
    that are bounded as well. `aims`: objectives and limits, if they differ from the figures; all known
    mappings satisfy the limits.
    """

    figures: Array
    sums: int
    edges: Array
    eps: float = 0.0
    weights: Array = field(default_factory=lambda: np.zeros((0, 0)))
    aims: Aims | None = None

    @cached_property
    def low(self) -> Array:
        """Thresholds [figures, m]: a candidate must lie below them to be worth keeping."""
        result: Array = self.figures * ((1 + ROUNDING) / (1 + self.eps))
        return result

    @cached_property
    def low_scores(self) -> Array:
        """The thresholds `low` as scores [objectives, n], without dominated columns."""
        assert self.aims is not None
        scores = self.aims.scores(self.figures) * ((1 + ROUNDING) / (1 + self.eps))
        result: Array = scores[:, undominated(scores)]
        return result

    def aimed(self, values: Array, mixed: Array) -> Array:
        """Return False where `values` violate a limit or are worse in every objective than a known mapping.

        `values` [figures, n] and `mixed` [mixtures, n] are lower bounds of figures and mixtures.
        """
        if self.aims is None:
            return np.ones(values.shape[1], bool)
        left: Array = self.aims.admits(values)
        if self.figures.shape[1]:
            open_ = np.flatnonzero(left)
            scores = self.aims.least_scores(values[:, open_], mixed[:, open_], self.weights)
            left[open_] = _against(self.low_scores, scores)
        return left

    @cached_property
    def stairs(self) -> tuple[Array, ...]:
        """Per level, a staircase of the known mappings whose first peak lies below the level.

        Without peaks it has all known mappings. Columns rise in the first figure; the other figures are
        running minima.
        """
        result = []
        for k in range(len(self.edges)):
            some = self.low
            if len(some) > self.sums:
                some = some[: self.sums, some[self.sums] < (self.edges[k - 1] if k else 0.0)]
            if self.sums:
                some = some[:, np.argsort(some[0], kind="stable")].copy()
                np.minimum.accumulate(some[1:], axis=1, out=some[1:])
            result.append(some)
        return tuple(result)

    @cached_property
    def within(self) -> tuple[Array, ...]:
        """Per level, the known mappings whose first peak lies in it (all, if there are several peaks)."""
        if len(self.low) != self.sums + 1:
            return (self.low,) * len(self.edges)
        starts = [0.0, *self.edges[:-1]]
        peak = self.low[-1]
        return tuple(self.low[:, (peak >= a) & (peak < b)] for a, b in zip(starts, self.edges, strict=True))

    @property
    def coarse_levels(self) -> Array:
        """Every STEP-th level, including the last one."""
        return np.arange(len(self.edges) - 1, -1, -STEP)[::-1]

    @cached_property
    def coarser(self) -> KnownMappings:
        """The same known mappings with fewer levels."""
        return replace(self, edges=self.edges[self.coarse_levels])

    def joined(self, more: Array) -> KnownMappings:
        """Return these mappings with the figures of more whole mappings, without dominated ones."""
        figures = np.concatenate([self.figures, more], axis=1)
        kept = undominated(figures)
        return replace(self, figures=figures[:, kept])

    @cached_property
    def corners(self) -> tuple[tuple[Array, ...], ...]:
        """Sparse tables of range maxima: per level and mixture, its largest values at corners of `stairs`.

        A corner lies below the second sum of one column and below the first sum of the next. Entry [j, i]
        is the maximum over the corners i to i + 2**j - 1.
        """
        result = []
        for some in self.stairs:
            tables = []
            for w in self.weights if some.shape[1] > 1 else ():
                rows = [w[0] * some[0, 1:] + w[1] * some[1, :-1]]
                while 2 ** len(rows) <= len(rows[0]):
                    half = 2 ** (len(rows) - 1)
                    row = rows[-1].copy()
                    row[:-half] = np.maximum(rows[-1][:-half], rows[-1][half:])
                    rows.append(row)
                tables.append(np.stack(rows))
            result.append(tuple(tables))
        return tuple(result)

    def _roomy(self, level: int, values: Array, mixed: Array, place: Array) -> Array:
        """Return False where no corner of the staircase admits the mixtures of a point.

        `place`: the position of the last known mapping whose first sum is less than that of the point.
        """
        some = self.stairs[level]
        last = some.shape[1] - 1
        result = np.ones(values.shape[1], bool)
        # Second sums fall: find the last known mapping whose second sum is above that of the point.
        to = last - np.searchsorted(some[1][::-1], values[1], side="right")
        inside = np.flatnonzero((place >= 0) & (to < last) & (to >= place))
        low, high = place[inside], to[inside]
        step = np.floor(np.log2(high - low + 1)).astype(np.int64)
        for table, value in zip(self.corners[level], mixed, strict=True):
            most = np.maximum(table[step, low], table[step, high - 2**step + 1])
            result[inside] &= most >= value[inside]
        return result

    def unbeaten(self, level: int, values: Array, mixed: Array | None = None) -> Array:
        """False where some known mapping is better than `values` [figures, n] in every figure.

        The first peak is at least the lower edge of `level`. `mixed` [mixtures, n]: lower bounds of the
        mixtures.
        """
        n = values.shape[1]
        if len(values) > self.sums + 1 or self.sums > 2:
            return _against(self.low, values)
        some = self.stairs[level]
        left = np.ones(n, bool)
        if some.shape[1]:
            if not self.sums:
                return np.zeros(n, bool)
            place = np.searchsorted(some[0], values[0], side="left") - 1
            left = place < 0
            if self.sums == 2:
                left |= some[1][np.maximum(place, 0)] >= values[1]
                if mixed is not None and len(mixed) and some.shape[1] > 1:
                    left &= self._roomy(level, values, mixed, place)
        if len(values) > self.sums and self.within[level].shape[1]:
            open_ = np.flatnonzero(left & (values[-1] > (self.edges[level - 1] if level else 0.0)))
            left[open_] = _against(self.within[level], values[:, open_])
        return left


@dataclass(frozen=True)
class Bound:
    """Known mappings, and lower bounds on what undecided choices add, for pruning partial mappings.

    `rest` [sums and mixtures, levels]: least addition to the sums and their mixtures. `sizes`: per fused
    loop the tile sizes to consider (empty: all). `whole`: no choice is left, so that candidates are whole
    mappings. `seconds`: lower bound of the latency of every mapping of the Einsum.
    """

    known: KnownMappings
    rest: Array
    sizes: tuple[Array, ...] = ()
    whole: bool = False
    seconds: float = 0.0

    def hopeful(self, figures: Sequence[Array], rest: Array | None = None) -> Array:
        """Return False where some known mapping is better in every figure, whatever is added.

        Peaks that are not among `figures` count as 0. `rest` [sums and mixtures, levels, n]: least addition
        per candidate, instead of that of this bound.
        """
        values = np.zeros((len(self.known.figures), len(figures[0])))
        values[: len(figures)] = figures
        added = self.rest[:, :, None] if rest is None else rest
        possible = np.isfinite(added).all(axis=0)
        sums, n, edges = self.known.sums, values.shape[1], self.known.edges
        mixed = self.known.weights @ values[:sums] if len(self.known.weights) else np.zeros((0, n))
        result = np.zeros(n, bool)
        peaks = len(values) > sums
        for k in range(len(edges) - 1, -1, -1):
            some = ~result & possible[k]
            if peaks:
                some &= values[sums] <= edges[k]
            where = np.flatnonzero(some)
            if not len(where):
                continue
            mine = added[:, k] if added.shape[2] == 1 else added[:, k, where]
            v = values[:, where]
            v[:sums] += mine[:sums]
            if peaks and k:
                np.maximum(v[sums], edges[k - 1], out=v[sums])
            together = mixed[:, where] + mine[sums:]
            left = self.known.aimed(v, together)
            left[left] = self.known.unbeaten(k, v[:, left], together[:, left])
            result[where] = left
        return result

    def improved_by(self, figures: Sequence[Array]) -> bool:
        """Return, for a bound of whole mappings, whether some of these figures [n] are better than those of
        known mappings by more than rounding."""
        values = np.stack(list(figures))
        low = self.known.figures * ((1 - ROUNDING) / (1 + self.known.eps))
        return len(values) < len(low) or bool(_against(low, values).any())

    def plus(self, more: Sequence[float]) -> Bound:
        """Return the bound with these amounts added to the sums."""
        sums = np.array(more).reshape(-1, 1)
        mixed = self.known.weights @ sums if len(self.known.weights) else sums[:0]
        return replace(self, rest=self.rest + np.concatenate([sums, mixed]))

    def against(self, figures: Array) -> Bound:
        """Return the bound with whole mappings of these figures [figures, n] added to the known ones."""
        aims = self.known.aims
        kept = figures if aims is None else figures[:, aims.admits(figures)]
        return replace(self, known=self.known.joined(kept))

    @cached_property
    def coarser(self) -> Bound:
        """The bound with fewer levels: faster to check, but it prunes less."""
        return Bound(self.known.coarser, self.rest[:, self.known.coarse_levels])


def _against(known: Array, values: Array) -> Array:
    """Return False where some column of `known` is lower in every row.

    Columns with the lowest ranks come first: they exclude most points, so that fewer points remain for later
    columns.
    """
    ranks = np.argsort(np.argsort(known, axis=1), axis=1)
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    left = np.arange(values.shape[1])
    for begin in range(0, known.shape[1], TOGETHER):
        some = known[:, order[begin : begin + TOGETHER]]
        better = np.ones((some.shape[1], len(left)), bool)
        for k, v in zip(some, values[:, left], strict=True):
            better &= k[:, None] < v[None, :]
        left = left[~better.any(axis=0)]
        if not len(left):
            break
    result = np.zeros(values.shape[1], bool)
    result[left] = True
    return result
