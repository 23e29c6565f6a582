"""Schema of `sweep:`: which symbols are swept over which values, and what is kept."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from polymodel.spec.base import NameText, SchemaObject


class SweepSection(SchemaObject):
    """`symbols`: name -> list of numbers, or a text such as `divisors(m)`, `range(1, 65)` or `2*TM`."""

    symbols: dict[NameText, int | float | str | tuple[int | float, ...]] = Field(default_factory=dict)
    where: tuple[str, ...] = ()
    objectives: tuple[str, ...] = ("energy", "latency")
    keep: Literal["front", "all", "top"] = "front"
    top: int | None = None
