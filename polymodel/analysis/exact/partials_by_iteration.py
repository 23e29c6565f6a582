"""When partial sums are read and filled and when their runs end, by iteration of a pipeline.

The closed counts of `partials` say how often this happens, not when; the signed sets of `uneven` say both.
"""

from __future__ import annotations

from dataclasses import replace

from polymodel.analysis.exact.enumerated_partials import ListedChain
from polymodel.analysis.exact.partials import Chain
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused


def timed(chain: Chain | RefilledChain | ListedChain, per: int, tensor: str) -> RefilledChain:
    """The chain with its counts by iteration; Refused where only totals are known."""
    remedy = f"use reuse: refill for {tensor}, or write Sequential"
    if isinstance(chain, ListedChain):
        raise Refused(
            f"output {tensor} is carried and spread over a fanout unevenly, which is not counted by "
            "iteration of a Pipeline",
            remedy,
        )
    if isinstance(chain, RefilledChain):
        return replace(chain, per=per)
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
    return RefilledChain(chain.levels, chain.reduction.shared, chain.reduction.broadcast, per)
