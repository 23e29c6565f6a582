"""Libraries that are imported when something of them is first asked for.

What every evaluation loads takes NumPy and islpy from here: a small example is evaluated without an array and
without a set of isl, and importing the two would take a quarter of its time.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any


class Later:
    """The attributes of a module, each of which is looked up there once."""

    def __init__(self, load: Callable[[], ModuleType]) -> None:
        self._load = load

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._load(), name)
        setattr(self, name, result)
        return result
