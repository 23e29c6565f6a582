"""How published figures of the models in workloads/models.json are printed, which the gallery has."""

from __future__ import annotations

import re

from polymodel.exhibits.models import PUBLISHED, Published

__all__ = ["PUBLISHED", "Published", "as_printed"]


def as_printed(value: int, printed: str) -> str:
    """`value` with as many digits as `printed` has, in its unit: `8.03 G`, `600 M`, or all of them."""
    number, _, unit = printed.partition(" ")
    if not unit:
        return f"{value:,}"
    scaled = value / {"k": 1e3, "M": 1e6, "G": 1e9}[unit]
    zeros = len(number) - len(number.rstrip("0")) if re.fullmatch(r"[0-9,]+", number) else 0
    decimals = len(number.partition(".")[2])
    return f"{round(scaled, -zeros):,.0f} {unit}" if zeros else f"{scaled:,.{decimals}f} {unit}"
