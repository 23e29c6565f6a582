"""What an operation makes of zeros: products, sums, and functions of one operand that keep zeros."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from polymodel.errors import Refused
from polymodel.operators import keeping_zero, names_of
from polymodel.workload.einsum import Einsum

MULTIPLY = (None, *names_of("mul"))
UNION = names_of("add", "sub", "max", "min")
KEEPS = keeping_zero()  # f(0) = 0, of one operand


class Zeros(Protocol):
    """Whether a tensor has any."""

    @property
    def dense(self) -> bool: ...


def is_union(einsum: Einsum) -> bool:
    """True of sums: one operand alone makes a result, so that a missing one stops nothing."""
    return dict(einsum.operations).get("map") in UNION


def is_known(einsum: Einsum) -> bool:
    """True if it is known what the Einsum's operation makes of zeros."""
    operation = dict(einsum.operations).get("map")
    return operation in (*MULTIPLY, *UNION) or (operation in KEEPS and len(einsum.inputs) == 1)


def require_known(einsum: Einsum, data: Mapping[str, Zeros]) -> None:
    """Refused where zeros reach an operation of which it is not known what it makes of them. Of operands
    without zeros nothing is asked."""
    sparse = [a.tensor for a in einsum.inputs if not data[a.tensor].dense]
    if not sparse or is_known(einsum):
        return
    operation = dict(einsum.operations).get("map")
    if len(einsum.inputs) == 1:
        what = f"polymodel does not know whether {operation} maps zeros to zero"
    else:
        what = f"polymodel does not know whether {operation} of a zero is zero"
    names = ", ".join(sparse)
    given = ", ".join(f"{t}: 1" for t in sparse)
    raise Refused(
        f"{einsum.name}: {what}, and {names} may hold zeros",
        f"say that {names} {'has' if len(sparse) == 1 else 'have'} none (densities: {{{given}}}), "
        "or use mul, add or a function that keeps zeros (relu) for its map",
    )
