"""The one gate of mappings: what every engine is given has passed it.

Structure first (`mapping.checks`), for what is at fault there has no dependences to speak of; then
dependences and reductions (`legality`). Engines refuse only what they cannot count.
"""

from __future__ import annotations

from polymodel.errors import Diagnostic, SpecError
from polymodel.mapping.checks import check_mapping
from polymodel.mapping.resolve import ResolvedMapping
from polymodel.schedule.legality import Mapped, check
from polymodel.spec.faults import Faults


def faults_of(problem: Mapped) -> tuple[Diagnostic, ...]:
    """Every fault of a mapping whose tile shapes are numbers; none if it may be counted.

    Raises Refused where that takes too long to decide, or is not covered.
    """
    faults = Faults()
    check_mapping(ResolvedMapping(problem.tree), problem.cascade, problem.hierarchy, faults)
    return tuple(faults.found) or check(problem)


def require_legal(problem: Mapped) -> None:
    """Raise SpecError with every fault of the mapping."""
    faults = faults_of(problem)
    if faults:
        raise SpecError(faults)
