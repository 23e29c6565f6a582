"""Reuse policies of storage nodes: what may stay from one visit of a node to the next.

The rule itself is in docs/semantics.md (Carry). A step from one visit to the next is told by the outermost
loop that it advances; a policy says over which kinds of steps elements stay, and that is all that there is to
know of one. Each engine finds out in its own terms of which kind a step is.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from polymodel.frozen import dataclass

StepKind = Literal["inner", "moving", "outer"]
"""The outermost loop that a step advances, seen from the innermost loop on which the tile depends.

`inner`: it is further in, so that the tile stays as it is; of a tile that depends on no loop, every step is
one of these. `moving`: it is that loop itself. `outer`: it is further out."""

_KINDS: tuple[StepKind, ...] = ("inner", "moving", "outer")


@dataclass(frozen=True)
class _Rule:
    """Elements stay over steps up to the kind `reach`; None: over none.

    `words`: the rule in a sentence; `moved`: what its column in the table `reuse` says.
    """

    reach: StepKind | None
    words: str
    moved: str


class Reuse(StrEnum):
    """One policy; its value is the name that mappings write. The later ones never move more."""

    REFILL = "refill"
    SLIDE = "slide"
    KEEP_PREVIOUS = "keep_previous"

    def stays_over(self, kind: StepKind) -> bool:
        """True if elements of a tile may stay over steps of this kind."""
        reach = _RULES[self].reach
        return reach is not None and _KINDS.index(kind) <= _KINDS.index(reach)

    def stays(self, axis: int, innermost: int) -> bool:
        """The same for steps that advance the loop `axis` and none further out, where `innermost` is the
        innermost loop on which the tile depends (-1 if it depends on none)."""
        return self.stays_over("outer" if axis < innermost else "moving" if axis == innermost else "inner")

    @property
    def carries(self) -> bool:
        """True if elements may stay over steps of some kind."""
        return self.stays_over("inner")

    def keeps(self, other: Reuse) -> bool:
        """True if all that stays under another policy stays under this one."""
        return all(self.stays_over(kind) for kind in _KINDS if other.stays_over(kind))

    @property
    def by_tile(self) -> bool:
        """True if it matters on which loops the tile depends."""
        return self.carries and not self.stays_over("outer")

    @property
    def words(self) -> str:
        """The rule in a sentence."""
        return _RULES[self].words

    @property
    def moved(self) -> str:
        """What would move under it, in words that follow those of what moves under the mapping's own."""
        return _RULES[self].moved

    @property
    def label(self) -> str:
        """What pictures and texts say of a node with this policy; empty for the default."""
        return "" if self is Reuse.REFILL else self.value


_RULES = {
    Reuse.REFILL: _Rule(
        None,
        "each stamp fills its tile anew",
        "the same if every iteration of the loops above filled its tile anew",
    ),
    Reuse.SLIDE: _Rule(
        "moving",
        "a step of the innermost loop that moves the tile fills only what the last tile did not hold",
        "the same if only what is new in a window were filled",
    ),
    Reuse.KEEP_PREVIOUS: _Rule(
        "outer",
        "only what the tile of the preceding visit did not hold is filled",
        "the same if all that the next step needs stayed: the least for this placement",
    ),
}


def override(reuse: str | None) -> Reuse | None:
    """The policy of every storage node in the place of its own; None for the nodes' own policies."""
    return None if reuse is None else Reuse(reuse)
