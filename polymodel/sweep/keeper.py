"""What a sweep keeps while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from polymodel.errors import Refused
from polymodel.sweep.pareto import Front
from polymodel.sweep.units import Snapshot

Array = Any
Keep = Literal["front", "all", "top"]


@dataclass
class Keeper:
    """What is kept so far, and why points do not count."""

    keep: Keep
    front: Front
    top: int
    limit: int
    infeasible: dict[str, int] = field(default_factory=dict)
    ids: list[Array] = field(default_factory=list)
    best: Array = field(default_factory=lambda: np.empty(0))
    done: int = 0
    evaluated: int = 0
    eps: float = 0.0

    def refuse(self, reason: str, count: int) -> None:
        if count:
            self.infeasible[reason] = self.infeasible.get(reason, 0) + count

    def offer(self, values: Array, ids: Array) -> None:
        """Feasible points: values [objectives, n], ids [n]."""
        if self.keep == "front":
            self.front.offer(values, ids)
        elif self.keep == "top":
            every = np.concatenate([self.best, values[0]])
            numbers = np.concatenate([*self.ids, ids])
            order = np.lexsort((numbers, every))[: self.top]
            self.best, self.ids = every[order], [numbers[order]]

    def everything(self, ids: Array) -> None:
        if sum(map(len, self.ids)) + len(ids) > self.limit:
            raise Refused(
                f"keep='all' would keep more than {self.limit} rows",
                "use keep='front' or keep='top', or a smaller grid",
            )
        self.ids.append(ids)

    def snapshot(self, unit: int) -> Snapshot:
        """The state before a unit; arrays are replaced, never changed, so they need no copies."""
        return Snapshot(
            unit, self.front.values, self.front.ids, self.best, tuple(self.ids), dict(self.infeasible),
            self.done, self.evaluated,
        )  # fmt: skip

    def take(self, other: Snapshot) -> None:
        """Add what another process, or an earlier run, has found."""
        if len(other.front_ids):
            self.front.offer(other.front_values, other.front_ids)
        if self.keep == "top" and len(other.best):
            self.offer(other.best[None], np.concatenate(other.ids))
        elif self.keep == "all":
            for ids in other.ids:
                self.everything(ids)
        for reason, count in other.infeasible.items():
            self.refuse(reason, count)
        self.done += other.done
        self.evaluated += other.evaluated

    def numbers(self) -> list[int]:
        """Point numbers of the kept rows: a front by its first objective, all by number, top best first."""
        if self.keep == "front":
            return [int(i) for i in self.front.ids[self.front.thinned(self.eps)]]
        found = np.concatenate([np.empty(0, np.int64), *self.ids])
        return [int(i) for i in (np.sort(found) if self.keep == "all" else found)]
