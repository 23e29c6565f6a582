"""Einsums as most rooms know them: each tensor is read or made, in one access. Others are refused by name."""

from __future__ import annotations

from collections.abc import Iterable

from polymodel.errors import Refused
from polymodel.workload.einsum import Einsum


def require_plain(einsums: Iterable[Einsum], what: str, remedy: str) -> None:
    """Raise Refused if an Einsum accesses a tensor several times or adds to what is there; `what` (such as
    "slopes cover") does so for others only."""
    for one in einsums:
        for access in one.outputs:
            if access.accumulates:
                found = f"{one.name} adds to {access.tensor}; {what} Einsums that make their results anew"
                raise Refused(found, remedy)
        for tensor in one.tensors:
            many = len(one.accesses_of(tensor))
            if many > 1:
                found = (
                    f"{one.name} accesses {tensor} {many} times; {what} Einsums that access each tensor once"
                )
                raise Refused(found, remedy)
