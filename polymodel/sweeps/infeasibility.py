"""Reasons of infeasible points, without details of single points, so that a sweep can count points by
reason."""

from __future__ import annotations

import re

TILES = "tile size below 1, not whole, or larger than its enclosing extent"
WHERE = "left out by `where`"
# a point's reason, and the reason shared by all such points
_SHARED = (
    (r"the spatial loops over (\S+) need .*", r"\1: more instances needed than available"),
    (r"tile size \d+ of (\w+) is larger .*", r"tile size of \1 larger than its enclosing extent"),
    (r" need \d.*", ""),
    (r" \(for example [^()]*\[[^()]*\]\)", ""),
)


def shared(reason: str) -> str:
    """The reason of one point without its sizes and elements."""
    for said, words in _SHARED:
        reason = re.sub(said, words, reason, count=1)
    return reason
