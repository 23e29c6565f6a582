"""Reuse policies of storage nodes: what may stay from one visit of a node to the next.

The rule itself is in docs/semantics.md (Carry); each engine applies it in its own terms, and asks a policy
only for what stands here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True)
class _Rule:
    carries: bool
    wraps: bool
    words: str


class Reuse(StrEnum):
    """One policy; its value is the name that mappings write."""

    REFILL = "refill"
    SLIDE = "slide"
    KEEP_PREVIOUS = "keep_previous"

    @property
    def carries(self) -> bool:
        """True if elements of a tile may stay from one visit to the next."""
        return _RULES[self].carries

    @property
    def wraps(self) -> bool:
        """True if they may stay where a loop wraps that is further out than the innermost one on which the
        tile depends."""
        return _RULES[self].wraps

    @property
    def words(self) -> str:
        """The rule in a sentence."""
        return _RULES[self].words

    @property
    def label(self) -> str:
        """What pictures and texts say of a node with this policy; empty for the default."""
        return "" if self is Reuse.REFILL else self.value


_RULES = {
    Reuse.REFILL: _Rule(False, False, "each stamp fills its tile anew"),
    Reuse.SLIDE: _Rule(
        True,
        False,
        "a step of the innermost loop that moves the tile fills only what the last tile did not hold",
    ),
    Reuse.KEEP_PREVIOUS: _Rule(
        True, True, "only what the tile of the preceding visit did not hold is filled"
    ),
}


def override(reuse: str | None) -> Reuse | None:
    """The policy of every storage node in the place of its own; None for the nodes' own policies."""
    return None if reuse is None else Reuse(reuse)
