"""Switches of fusion across a graph, and the ranks that are special: heads and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from polymodel.errors import Refused
from polymodel.workload.einsum import Einsum, TensorAccess

ROLES = ("head", "batch")
Operands = Literal["as_written", "flipped", "both"]


@dataclass(frozen=True)
class FusionRules:
    """What fused mappings are looked at.

    `head`: with any fused loop, a head rank (of size > 1) is outermost. `batch`: then a batch rank is next,
    if it indexes all tensors and there are three of them. A rank is a head or a batch if its name or its rank
    variable's contains the word, or if `roles` lists it: `(("head", ("H",)), ("batch", ("B",)))`.
    `head_is_tiled_fusion`: footprints of Einsums that share a tensor head by head add; if not, buffers are
    freed between heads and the largest counts.
    `uneven`: tensors that may be stored right below the fused loops rather than below all: True for any that
    is not fused, or names of tensors and renames (`weight`). `operands`: whether names in `uneven` mean input
    and weight as written, swapped, or both in turn; nothing else tells the two apart.
    `partial_overlap`: a producer may tile more ranks of a tensor than its consumer, which waits and buffers.
    `equal_outer_sizes`: of the fused loops over a tensor only the innermost may have sizes that differ
    between its users. The notes allow it of all, and count one tile on each side; but where an outer size
    differs, what lies between is larger than these tiles.
    `layout`: penalties for an order of access that differs between Einsums; refused until built.
    """

    head: bool = True
    batch: bool = True
    head_is_tiled_fusion: bool = True
    uneven: bool | tuple[str, ...] = True
    operands: Operands = "both"
    partial_overlap: bool = False
    equal_outer_sizes: bool = False
    roles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    layout: object = None

    def __post_init__(self) -> None:
        if self.layout is not None:
            raise Refused(
                "penalties for an order of access that differs between Einsums (`layout`) are not counted",
                "leave `layout` out; compare orders with pm.evaluate and the energies of your memory",
            )

    def has_role(self, role: str, access: TensorAccess, variable: str) -> bool:
        """Whether a rank variable indexes a rank of this role in a tensor."""
        for rank, index in zip(access.ranks, access.projection, strict=True):
            if variable not in index.variables:
                continue
            given: Mapping[str, tuple[str, ...]] = dict(self.roles)
            if role in given:
                if rank in given[role] or variable in given[role]:
                    return True
            elif role in rank.lower() or role in variable.lower():
                return True
        return False

    def heads(self, one: Einsum) -> tuple[str, ...]:
        """Rank variables that go over heads, with more than one of them."""
        return tuple(
            v
            for v in one.rank_variables
            if _long(one, v) and any(self.has_role("head", a, v) for a in one.accesses)
        )

    def batches(self, one: Einsum) -> tuple[str, ...]:
        """Rank variables that are a batch of all tensors alike, as heads are: of exactly three tensors."""
        if len(one.accesses) != 3:
            return ()
        return tuple(
            v
            for v in one.rank_variables
            if _long(one, v) and all(self.has_role("batch", a, v) for a in one.accesses)
        )

    def outermost(self, one: Einsum) -> tuple[str, ...]:
        """Rank variables that its fused loops must start with, if there are any: heads, then batches."""
        heads = self.heads(one) if self.head else ()
        return (
            heads + tuple(v for v in self.batches(one) if v not in heads) if heads and self.batch else heads
        )

    def uneven_sets(self, one: Einsum) -> frozenset[frozenset[int]]:
        """Sets of tensors (positions in the Einsum) of which any may be stored at another depth."""
        if isinstance(self.uneven, bool):
            return frozenset({frozenset(range(len(one.accesses)) if self.uneven else ())})
        swapped = {"input": "weight", "weight": "input"}
        turns = {
            "as_written": [self.uneven],
            "flipped": [tuple(swapped.get(n, n) for n in self.uneven)],
        }
        chosen = [
            names for turn, every in turns.items() if self.operands in (turn, "both") for names in every
        ]
        meant = dict(one.renames)
        return frozenset(
            frozenset(
                i for i, t in enumerate(one.tensors) if any(t == n or t in meant.get(n, ()) for n in names)
            )
            for names in chosen
        )


def _long(one: Einsum, variable: str) -> bool:
    low, high = one.bound(variable)
    return high > low
