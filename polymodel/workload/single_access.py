"""Einsums as most rooms handle them: one access per tensor, and nothing carried between iterations.

Rooms that handle more do not ask for this restriction.
"""

from __future__ import annotations

from collections.abc import Iterable

from polymodel.errors import Refused
from polymodel.workload.einsum import Cascade, Einsum


def require_plain(einsums: Iterable[Einsum], what: str, remedy: str) -> None:
    """Raise Refused for others; `what` (such as "slopes cover") says who asks. Others are an Einsum that
    accesses a tensor several times or adds to what is there, and a cascade that carries a tensor forward."""
    if isinstance(einsums, Cascade) and einsums.recurrent:
        found = (
            f"{einsums.recurrent[0]} is carried from one iteration to the next; {what} cascades without that"
        )
        raise Refused(found, remedy)
    for one in einsums:
        for access in one.accesses:
            if access.accumulates:
                found = f"{one.name} adds to {access.tensor}; {what} Einsums that make their results anew"
                raise Refused(found, remedy)
            if access.guard:
                found = f"{one.name} reads {access.tensor} in some iterations only; {what} others"
                raise Refused(found, remedy)
        for tensor in one.tensors:
            many = len(one.accesses_of(tensor))
            if many > 1:
                found = (
                    f"{one.name} accesses {tensor} {many} times; {what} Einsums that access each tensor once"
                )
                raise Refused(found, remedy)
