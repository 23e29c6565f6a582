"""How much was looked at, and whether to go on: every long step of a search asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


class Late(Exception):
    """The time of a search is over; never leaves the search."""


def always() -> bool:
    """No limit."""
    return True


@dataclass
class Tally:
    """How much was looked at; `going_on`: whether there is time for more."""

    templates: int = 0
    points: int = 0
    kept: int = 0
    too_large: int = 0
    going_on: Callable[[], bool] = field(default=always, repr=False, compare=False)

    def ask(self) -> None:
        """Raises Late once time is over."""
        if not self.going_on():
            raise Late
