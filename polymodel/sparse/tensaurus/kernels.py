"""The four kernels: which ranks they have and how many multiplications they need.

SF3, the common pattern: `fiber_out = sum over D1 of fiber1 op sum over D0 of scalar * fiber0`, op Hadamard
(MTTKRP) or Kronecker (TTMc); the matrix kernels use the inner sum only (paper, section 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from polymodel.errors import Diagnostic, SpecError

Count = TypeVar("Count", int, float)
# What callers and the paper call them.
_NAMES = {
    "MTTKRP": ("MTTKRP", "SpMTTKRP", "DMTTKRP"),
    "TTMc": ("TTMc", "SpTTMc", "DTTMc"),
    "SpMM": ("SpMM", "GEMM"),
    "SpMV": ("SpMV", "GEMV"),
}


@dataclass(frozen=True)
class Kernel:
    """`ranks`: of the sparse tensor, slices first. `across`: the rank of the dense fibers that the columns
    take, `kept`: of the fibers that each output register keeps; "" where there is none."""

    name: str
    ranks: tuple[str, ...]
    across: str = ""
    kept: str = ""

    @property
    def order(self) -> int:
        return len(self.ranks)

    @property
    def dense(self) -> tuple[str, ...]:
        return tuple(r for r in (self.across, self.kept) if r)

    @property
    def factored(self) -> bool:
        """True if T is made first: fibers of the sparse tensor are reduced before the second product."""
        return self.order == 3

    def multiplies(self, nnz: Count, fibers: Count, across: int, kept: int = 1) -> tuple[Count, Count]:
        """Multiplications of the first Einsum and of the second, T made once.

        MTTKRP F nnz, F N_ij; TTMc U nnz, U V N_ij; SpMM K nnz, 0; SpMV nnz, 0. `fibers`: N_ij, the nonempty
        (i, j) fibers.
        """
        return across * nnz, across * kept * fibers if self.factored else 0 * fibers


KERNELS = {
    k.name: k
    for k in (
        Kernel("MTTKRP", ("I", "J", "K"), "F"),
        Kernel("TTMc", ("I", "J", "K"), "U", "V"),
        Kernel("SpMM", ("I", "J"), "K"),
        Kernel("SpMV", ("I", "J")),
    )
}


def kernel_of(name: str) -> Kernel:
    """The kernel of this name, in any case; SpMTTKRP, DMTTKRP, GEMM and so on are the same kernels."""
    for known, names in _NAMES.items():
        if str(name).lower() in (n.lower() for n in names):
            return KERNELS[known]
    raise SpecError([Diagnostic(f"no kernel {name}", f"one of {', '.join(KERNELS)}", "kernel")])
