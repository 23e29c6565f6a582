"""The interconnect of a fanout dimension: who would pay for hops, and that they cannot be counted yet."""

from __future__ import annotations

import math

from polymodel.analysis.engine import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop


def refuse_costly_links(problem: Problem) -> None:
    """Refuse a mapping that unrolls over a dimension whose link costs energy or time.

    The hops of a transfer follow from the set of its destinations, which no engine returns.
    """
    for _, node, _ in problem.tree.walk():
        if not isinstance(node, Loop) or not node.spatial:
            continue
        link = problem.hierarchy[node.component].dim(node.dim).link
        if link is not None and (link.energy_per_bit_hop or not math.isinf(link.throughput)):
            raise Refused(
                f"link of {node.component}.{node.dim} ({link.topology}): hops of transfers are not counted",
                "leave out `link`, and put a !Toll with a price per bit there instead",
            )
