"""What a component says about sparse tensors: formats, gating, skipping, intersections. Plain frozen data.

Dense evaluation looks at none of it. What the words mean is decided in the room `sparse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ActionKind = Literal["gate", "skip"]
IntersectionKind = Literal["two_finger", "leader_follower", "skip_ahead"]


@dataclass(frozen=True)
class SparseAction:
    """Accesses of `targets`, at the component that says so, where what is used of a leader is all zero.

    `by_einsum`: per Einsum the tensors concerned and their leaders. At a compute unit `targets` are empty,
    and the leaders are those whose zero values make an operation idle.
    """

    kind: ActionKind
    by_einsum: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]

    def of(self, einsum: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The targets and leaders in one Einsum."""
        for name, targets, leaders in self.by_einsum:
            if name == einsum:
                return targets, leaders
        return (), ()


@dataclass(frozen=True)
class Intersection:
    """How coordinates of two or more tensors are matched; `leader` of leader_follower only."""

    kind: IntersectionKind
    tensors: tuple[str, ...]
    leader: str = ""


@dataclass(frozen=True)
class SparseRules:
    """The section `sparse:` of one component. `formats`: (tensor, format as written) where one is given.
    `dense_outputs`: outputs that move here as the dense schedule says, whatever was computed."""

    formats: tuple[tuple[str, Any], ...] = ()
    actions: tuple[SparseAction, ...] = ()
    intersections: tuple[Intersection, ...] = ()
    dense_outputs: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return hash((self.actions, self.intersections, self.dense_outputs))  # formats may be lists as written

    def format_of(self, tensor: str) -> Any:
        """The format of a tensor as written, None where none is given: all its points are stored."""
        return dict(self.formats).get(tensor)
