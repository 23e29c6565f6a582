"""Outputs by iteration: when partial sums are read and filled, and when runs end.

For pipelines. The closed counts of `partials` know how often, not when; the signed sets of `uneven` know
both.
"""

from __future__ import annotations

from dataclasses import dataclass

from polymodel.analysis.exact.listed import ListedChain
from polymodel.analysis.exact.partials import Chain
from polymodel.analysis.exact.tally import Product
from polymodel.analysis.exact.transfers import moved
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused


@dataclass(frozen=True)
class TimedChain(RefilledChain):
    """Same questions as `partials.Chain`, for each value of the temporal counters of `per` outer loops."""

    def runs(self, level: int) -> tuple[Product, ...]:
        """Ends of runs per instance of the level itself."""
        here = self.levels[level]
        return moved(
            here.now, here.held, here.carries, len(here.now.axes), frozenset(), forward=True, per=self.per
        )

    def events(self, level: int, *, forward: bool = False) -> tuple[Product, ...]:
        """Starts (or ends, `forward`) of runs, united over shared instances, per instance of the parent."""
        here = self.levels[level]
        return moved(
            here.now, here.held, here.carries, here.charge, self.shared, forward=forward, per=self.per
        )


def timed(chain: Chain | RefilledChain | ListedChain, per: int, tensor: str) -> TimedChain:
    """The chain with its counts by iteration; Refused where only totals are known."""
    remedy = f"use reuse: refill for {tensor}, or write Sequential"
    if isinstance(chain, ListedChain):
        raise Refused(
            f"output {tensor} is carried and spread over a fanout unevenly, which is not counted by "
            "iteration of a Pipeline",
            remedy,
        )
    if isinstance(chain, RefilledChain):
        return TimedChain(chain.levels, chain.shared, chain.broadcast, per)
    if any(level.carries and level.now != level.held for level in chain.levels[1:]):
        raise Refused(
            f"consumers keep results of {tensor} alive in a node that drains them, which is not counted by "
            "iteration of a Pipeline",
            remedy,
        )
    if chain.reduction.first_touch_formula and any(level.carries for level in chain.levels[1:]):
        raise Refused(
            f"output {tensor} is carried, broadcast and spread over a fanout unevenly, which is not counted "
            "by iteration of a Pipeline",
            remedy,
        )
    return TimedChain(chain.levels, chain.reduction.shared, chain.reduction.broadcast, per)
