"""Einsums as most rooms know them: each tensor in one access. What reaches further says so by name."""

from __future__ import annotations

from collections.abc import Iterable

from polymodel.errors import Refused
from polymodel.workload.einsum import Einsum


def require_single_accesses(einsums: Iterable[Einsum], what: str, remedy: str) -> None:
    """Raise Refused if an Einsum accesses a tensor several times; `what` covers only others."""
    for one in einsums:
        for tensor in one.tensors:
            many = len(one.accesses_of(tensor))
            if many > 1:
                found = (
                    f"{one.name} accesses {tensor} {many} times; {what} Einsums that access each tensor once"
                )
                raise Refused(found, remedy)
