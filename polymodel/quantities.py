"""Numbers for display: engineering prefixes, at most four significant digits, data in bits or bytes.

Tables as data (DataFrames, CSV, JSON, parquet) are always in bits, as their columns say.
"""

from __future__ import annotations

import math
from importlib import import_module

_PREFIXES = {
    -8: "y", -7: "z", -6: "a", -5: "f", -4: "p", -3: "n", -2: "µ", -1: "m", 0: "",
    1: "k", 2: "M", 3: "G", 4: "T", 5: "P", 6: "E", 7: "Z", 8: "Y",
}  # fmt: skip
SHORT = {"bit": "b", "operation": "op", "operation/bit": "op/b", "operation/s": "op/s", "bit/s": "b/s"}
_COUNTED = frozenset({"", "bit"})
UNITS = ("bits", "bytes")
# A unit of amounts of data -> what it is in bytes, and how many of these one of it is.
_BYTES = {"bit": ("B", 1 / 8), "bit/s": ("B/s", 1 / 8), "operation/bit": ("op/B", 8.0)}
_shown_in = UNITS[0]


def show_in(name: str) -> str:
    """Display amounts of data in these units from now on; returns the previous units."""
    global _shown_in
    before, _shown_in = _shown_in, name
    return before


def in_units(unit: str) -> tuple[str, float]:
    """The displayed short unit for a unit of the tables, and the conversion factor."""
    if _shown_in == "bytes" and unit in _BYTES:
        return _BYTES[unit]
    return SHORT.get(unit, unit), 1.0


def axis_unit(unit: str) -> str:
    """The unit as the label of an axis names it."""
    short, factor = in_units(unit)
    return unit if factor == 1 else short


def data_unit() -> str:
    """The unit in which amounts of data are displayed: `bits` or `bytes`."""
    return _shown_in


def data_amount(bits: float) -> str:
    """An amount of data with all its digits in the displayed unit, without the unit's name."""
    if in_units("bit")[1] == 1:
        return str(bits) if isinstance(bits, int) else f"{bits:.15g}"
    return str(bits // 8) if isinstance(bits, int) and not bits % 8 else f"{bits / 8:.15g}"


_NO_PREFIX = frozenset({"m^2", "operation/bit", "element/element"})


def engineering(value: float, unit: str = "") -> str:
    """`1.57 Mb`, `352 ns`; small whole numbers stay as they are, areas are shown in mm^2. A fraction without
    a unit has no prefix: `0.39`, for `390 m` would be read as a length."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "-inf" if value < 0 else "inf"
    if unit == "m^2":
        return f"{_digits(value * 1e6)} mm²"
    short, factor = in_units(unit)
    if factor != 1:
        value = value // 8 if isinstance(value, int) and not value % 8 and factor < 1 else value * factor
    if unit in _NO_PREFIX:
        return f"{_digits(value)} {short}".rstrip()
    if value == 0:
        return f"0 {short}".rstrip()
    if isinstance(value, int) and abs(value) < 10_000:
        return f"{value} {short}".rstrip()
    if unit in _COUNTED and 1000 <= abs(value) < 9999.5:
        # Expected counts are displayed like exact counts, which have all digits.
        return f"{_digits(value)} {short}".rstrip()
    if not unit and abs(value) < 1:
        return _digits(value)
    power = _thousands(abs(value))
    return f"{_digits(value / 1000.0**power)} {_PREFIXES[power]}{short}".rstrip()


def _thousands(size: float) -> int:
    power = math.floor(math.log10(size) / 3)
    if round(size / 1000.0**power, 1 if size / 1000.0**power >= 100 else 3) >= 1000:
        power += 1
    return max(-8, min(8, power))


def _digits(value: float) -> str:
    """Four significant digits without trailing zeros; exponents only for what no prefix is near."""
    text = f"{value:.4g}"
    if "e" in text and 1 <= abs(value) < 1e9:
        text = f"{value:.0f}"
    return text


def whole(value: float) -> str:
    """A whole number with thin groups of three digits."""
    return f"{value:,.0f}".replace(",", " ")


def drawn(module: str, function: str, *arguments: object) -> str:
    """What a function of the report room makes of objects of rooms below it, for their notebook display.

    Found by name when it is asked for: only a display may look upwards, and nothing is imported before.
    """
    made: str = getattr(import_module(f"polymodel.report.{module}"), function)(*arguments)
    return made
