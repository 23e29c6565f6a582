"""What a search is after: which figures of partial mappings matter, and what follows from them.

A *row* is a figure that the search bounds and compares: energy, latency, other figures that add up over
Einsums (`Added`), and peaks of memories. Objectives and limits are rows, or functions that grow with rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from polymodel import objectives as vocabulary
from polymodel.objectives import FigureLimit, is_sum, objective_of, terms_of, uses

Array = Any
ROUNDING = 1e-9  # sums of floats in another order may differ by less
WORKING_SET = "working_set"


@dataclass(frozen=True)
class Added:
    """A figure that adds up over Einsums: a weighted sum of energy, latency, the bits that components move
    ((component, `reads` or `writes`, weight) each), and the operations that all instances of a compute unit
    would execute in as many steps as the busiest one takes (`places`)."""

    energy: float = 0.0
    latency: float = 0.0
    moved: tuple[tuple[str, str, float], ...] = ()
    places: float = 0.0

    def slope(self, leak: float) -> float:
        """How much it grows per second, where so many watts leak."""
        return self.latency + self.energy * leak

    @property
    def timed(self) -> bool:
        """Whether it has a part of the latency by itself."""
        return self.latency > 0


ENERGY, LATENCY = Added(energy=1.0), Added(latency=1.0)


def added_of(name: str, operations: float) -> Added | None:
    """What an objective adds up, if it is a sum over Einsums. `operations`: those of all Einsums, by which
    the reciprocal of the utilisation is counted."""
    energy = latency = places = 0.0
    moved: dict[tuple[str, str], float] = {}
    for weight, one in terms_of(name):
        word, _, component = one.partition(":")
        if word == "energy":
            energy += weight
        elif word == "latency":
            latency += weight
        elif word == "utilisation" and operations:
            places += weight / operations
        elif word in ("reads", "writes", "accesses"):
            for way in ("reads", "writes") if word == "accesses" else (word,):
                moved[component, way] = moved.get((component, way), 0.0) + weight
        else:
            return None
    return Added(energy, latency, tuple((c, way, w) for (c, way), w in moved.items()), places)


def follows(name: str) -> bool:
    """Whether an objective follows from energy, latency, peaks of memories and the area."""
    return {figure for figure, _ in uses(name)} <= {"energy", "latency", WORKING_SET, "area"}


def grows_with_peaks(name: str) -> bool:
    """Whether an objective depends on the peak of a memory."""
    return any(figure == WORKING_SET for figure, _ in uses(name))


@dataclass(frozen=True)
class SearchFigures:
    """What the search knows of whole mappings, for `polymodel.objectives.value`: numbers, or arrays of them.
    `peaks`: per memory the bits of its working set."""

    energy: Any
    latency: Any
    peaks: Mapping[str, Any]
    area: float = 0.0

    @property
    def utilisation(self) -> Any:
        raise KeyError("utilisation")

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Any:
        raise KeyError(f"{way}:{component}")

    def working_set(self, component: str) -> Any:
        return self.peaks[component]


@dataclass(frozen=True)
class Aims:
    """Rows in their order: energy and latency as far as they are wanted, then `more`, then the peaks of
    memories (`peaks`: as objectives name them). `area`: that of the architecture."""

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
        """Whether every row is an objective, and there are no limits: nothing else is to be compared."""
        rows = {self._row(o) for o in self.objectives}
        return not self.limits and None not in rows and len(rows) == len(self.added) + len(self.peaks)

    def _row(self, name: str) -> int | None:
        """The row that an objective is."""
        added = added_of(name, self.operations)
        if added is not None and added in self.added:
            return self.added.index(added)
        word, _, memory = name.partition(":")
        if word == WORKING_SET and memory in self.peaks:
            return len(self.added) + self.peaks.index(memory)
        return None

    def score(self, name: str, rows: Sequence[Array] | Array) -> Array:
        """What is minimised of an objective or a limit, of rows [rows, ...]; it grows with each of them."""
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
        """The same as it is told."""
        score = self.score(name, rows)
        return vocabulary.score(name, score) if objective_of(name).most else score

    def admits(self, rows: Sequence[Array] | Array) -> Array:
        """Whether rows obey the limits, or if they only grow still may."""
        result: Array = np.ones(np.shape(rows[0]) if len(rows) else 1, bool)
        for limit in self.limits:
            result = result & (self.score(limit.name, rows) <= limit.score * (1 + ROUNDING))
        return result

    def scores(self, rows: Sequence[Array] | Array) -> Array:
        """What is minimised of every objective [objectives, n]."""
        n = len(rows[0]) if len(rows) else 1
        each = [np.broadcast_to(self.score(o, rows), n) for o in self.objectives]
        return np.stack(each).astype(float)

    def least_scores(self, rows: Array, mixed: Array, weights: Array) -> Array:
        """The same at least, where mixtures (`weights` [mixtures, 2] of energy and latency) are at least
        `mixed` [mixtures, n] besides."""
        result = self.scores(rows)
        if not len(weights):
            return result
        energy, latency = rows[0], rows[1]
        for k in (k for k, o in enumerate(self.objectives) if o == "edp"):
            for (w, v), line in zip(weights, mixed, strict=True):
                # The least product on a line is at one of its ends.
                with np.errstate(invalid="ignore"):  # infinite ones, where nothing fits
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
    """The rows that objectives and limits need, each once."""
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
    energy = energy or not (latency or more or peaks)  # where mappings are alike, that of least energy
    return Aims(
        tuple(objectives), tuple(limits), energy, latency, tuple(more), tuple(peaks), area, operations
    )


def _parts(names: Iterable[str], operations: float) -> Iterable[str]:
    """Names that are rows or made of energy and latency: sums of other figures as their terms."""
    for name in names:
        if added_of(name, operations) is not None:
            yield name
        else:
            yield from (one for _, one in terms_of(name))
