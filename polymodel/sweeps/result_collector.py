"""Collects the points that a sweep keeps: the front, the best points, or all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from polymodel.errors import Refused
from polymodel.integers import TOLD_APART, distinguishable
from polymodel.objectives import on_sparse_data, score
from polymodel.pareto import Archive
from polymodel.sweeps.infeasibility import shared
from polymodel.sweeps.rows import Cells
from polymodel.sweeps.spill import Spill
from polymodel.sweeps.work_units import Snapshot

Array = Any
Keep = Literal["front", "all", "top"]


class Outgrown(Exception):
    """The front exceeds its memory and cannot be spilled: the sweep stops and keeps what it has."""


@dataclass
class ResultCollector:
    """The points kept so far, and the number of infeasible points by reason.

    `limit`: rows that may be kept; a larger front goes to `spill`, or is thinned by `eps`, or ends the sweep,
    while it is `bounded`. `parts`: spilled parts of the front; `rows`: cells of points that were evaluated
    one by one; `figures`: objectives on sparse data, if all points are kept.
    """

    keep: Keep
    front: Archive
    top: int
    limit: int
    infeasible: dict[str, int] = field(default_factory=dict)
    ids: list[Array] = field(default_factory=list)
    best: Array = field(default_factory=lambda: np.empty(0))
    done: int = 0
    evaluated: int = 0
    feasible: int = 0
    passed: int = 0
    eps: float = 0.0
    spill: Spill | None = None
    parts: tuple[str, ...] = ()
    thinned: int = 0
    full: bool = False
    late: bool = False
    rows: dict[int, Cells] = field(default_factory=dict)
    bounded: bool = True
    figures: dict[int, tuple[float, ...]] = field(default_factory=dict)

    def count(self, points: int, refused: Mapping[str, int]) -> None:
        """Count evaluated points, and the infeasible ones of them by reason."""
        for reason, n in refused.items():
            self.refuse(reason, n)
        self.done += points
        self.evaluated += points
        self.feasible += points - sum(refused.values())

    def count_pruned(self, points: int) -> None:
        """Count points that were pruned, since none of them can be kept."""
        self.done += points
        self.passed += points

    def refuse(self, reason: str, count: int) -> None:
        reason = shared(reason)
        if count:
            self.infeasible[reason] = self.infeasible.get(reason, 0) + count

    def offer(self, values: Array, ids: Array) -> None:
        """Offer feasible points: values [objectives, n], ids [n]. Raises Outgrown."""
        if self.keep == "front":
            self.front.offer(values, ids)
            if self.bounded and len(self.front.ids) > self.limit:
                self._relieve()
        elif self.keep == "top":
            every = np.concatenate([self.best, values[0]])
            numbers = np.concatenate([*self.ids, ids])
            order = np.lexsort((numbers, every))[: self.top]
            self.best, self.ids = every[order], [numbers[order]]

    def _relieve(self) -> None:
        """Reduce the front to its limit. Raises Outgrown."""
        count = len(self.front.ids)
        if self.spill is not None:
            self.parts += (self.spill.write(len(self.parts), self.front),)
            # the other points stay, so that points which they dominate are not added again
            self.front.only(np.arange(0, count, 2) if count > 1 else np.empty(0, int))
            return
        if self.eps:
            self.front.only(self.front.thinned(self.eps))
            self.thinned += count - len(self.front.ids)
        if len(self.front.ids) > self.limit:
            raise Outgrown

    def gather(self) -> None:
        """Read the spilled parts of the front back, whatever its size."""
        for name in self.parts:
            assert self.spill is not None
            self.front.offer(*self.spill.read(name))

    def everything(self, ids: Array) -> None:
        if sum(map(len, self.ids)) + len(ids) > self.limit:
            message = f"keep='all' would keep more than {self.limit} rows"
            remedy = "use keep='front' or keep='top', a smaller grid, or more memory"
            raise Refused(message, remedy, code="too-large")
        self.ids.append(ids)

    def single(self, number: int, row: Cells, objectives: Sequence[str]) -> None:
        """Add a point that was evaluated by itself."""
        self.done += 1
        self.evaluated += "energy" in row
        self.feasible += bool(row["feasible"])
        if not row["feasible"]:
            self.refuse(row["reason"], 1)
        if "energy" not in row or not (row["feasible"] or self.keep == "all"):
            return
        self.rows[number] = row
        if self.keep == "all":
            self.everything(np.array([number]))
            return
        self.offer(distinguishable([np.asarray([score(o, row[o])]) for o in objectives]), np.array([number]))
        if len(self.rows) > 2 * (len(self.front.ids) + self.top) + 1000 and not self.parts:
            kept = {*self.front.ids.tolist(), *(i for ids in self.ids for i in ids.tolist())}
            self.rows = {n: r for n, r in self.rows.items() if n in kept}

    def ties(self, objectives: Sequence[str]) -> Iterator[str]:
        """A note on counts on sparse data that float64 does not distinguish, if points were compared by
        them."""
        compared = {"front": self.front.values, "top": self.best[None]}.get(self.keep, ())
        pairs = zip(objectives, compared, strict=False)
        figures = [(o, each) for o, each in pairs if ":" in o and on_sparse_data(o)]
        wide = [o for o, each in figures if each.max(initial=0) >= TOLD_APART]
        if wide:
            yield (
                f"{', '.join(wide)}: points are compared as float64, so counts from 2^53 on that differ by "
                "less than one part in 2^50 may count as equal; with keep='all' the front and the best "
                "compare every digit"
            )

    def snapshot(self, unit: int) -> Snapshot:
        """The state before a unit; arrays are replaced, never modified, so that they need no copies."""
        return Snapshot(
            unit, self.front.values, self.front.ids, self.best, tuple(self.ids), dict(self.infeasible),
            self.done, self.evaluated, self.parts, self.thinned, self.full, self.late, self.rows,
            self.feasible, self.passed,
        )  # fmt: skip

    def take(self, other: Snapshot) -> None:
        """Add the points of another process or an earlier run. Raises Outgrown when all are added."""
        self.parts += other.parts
        self.thinned += other.thinned
        self.full |= other.full
        self.late |= other.late
        self.rows |= {n: dict(row) for n, row in other.rows.items()}
        if self.keep == "top" and len(other.best):
            self.offer(other.best[None], np.concatenate(other.ids))
        elif self.keep == "all":
            for ids in other.ids:
                self.everything(ids)
        for reason, count in other.infeasible.items():
            self.refuse(reason, count)
        self.done += other.done
        self.evaluated += other.evaluated
        self.feasible += other.feasible
        self.passed += other.passed
        if len(other.front_ids):
            self.offer(other.front_values, other.front_ids)

    def values(self, number: int) -> tuple[float, ...]:
        """The objectives found for a kept point; for the best points only the first one."""
        if self.keep == "all":
            return self.figures.get(number, ())
        if self.keep == "front":
            at = np.flatnonzero(self.front.ids == number)
            return tuple(self.front.values[:, at[0]].tolist()) if len(at) else ()
        at = np.flatnonzero(np.concatenate([np.empty(0, np.int64), *self.ids]) == number)
        return (float(self.best[at[0]]),) if len(at) else ()

    def numbers(self) -> list[int]:
        """Point numbers of the kept rows: a front by its first objective, all by number, top best first."""
        if self.keep == "front":
            return [int(i) for i in self.front.ids[self.front.thinned(self.eps)]]
        result = np.concatenate([np.empty(0, np.int64), *self.ids])
        return [int(i) for i in (np.sort(result) if self.keep == "all" else result)]
