"""Numbers with a unit: `2.5 pJ`, `64 KiB`, `25.6 GB/s`, `1 GHz`, `0.8 mm^2`.

They become numbers in the units of the architecture (joules, bits, bits or operations per second, hertz,
watts, seconds, square metres) as they are read; an expression with symbols stays one: `(8 * TN) * 8192`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.spec.faults import TextFault, close_to
from polymodel.spec.numbers import Value, evaluate_number, symbols_in

_DECIMAL = {
    "f": -15, "p": -12, "n": -9, "u": -6, "µ": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15,
}  # fmt: skip
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DATA = {"b": 1, "bit": 1, "bits": 1, "B": 8, "byte": 8, "bytes": 8}
_LENGTHS = {"m": 0, "mm": -6, "um": -12, "µm": -12, "nm": -18}
_WORD = r"(?P<unit>[^\W\d_]+(\^?2)?(/[^\W\d_]+)?)\s*"
_NUMBER = r"\s*[0-9][0-9.]*([eE][+-]?[0-9]+)?"
_LITERAL = re.compile(_NUMBER)
_ADJOINING = re.compile(f"(?P<number>{_NUMBER}){_WORD}")
_APART = re.compile(rf"(?P<number>.*[\w.)])\s+{_WORD}", re.DOTALL)


@dataclass(frozen=True)
class Dimension:
    """What a key is in. `examples`: how it is written; `units`: symbol -> (whole factor, power of ten)."""

    name: str
    base: str
    examples: str
    units: Mapping[str, tuple[int, int]]


def _prefixed(*symbols: str) -> dict[str, tuple[int, int]]:
    return {prefix + s: (1, power) for s in symbols for prefix, power in _DECIMAL.items()}


def _amounts(end: str = "") -> dict[str, tuple[int, int]]:
    large = {p: n for p, n in _DECIMAL.items() if n >= 0}
    found = {f"{p}{s}{end}": (bits, n) for s, bits in _DATA.items() for p, n in large.items()}
    found |= {f"{p}{s}{end}": (bits * n, 0) for s, bits in _DATA.items() for p, n in _BINARY.items()}
    return found


ENERGY = Dimension("energy", "joules", "2.5 pJ", _prefixed("J"))
POWER = Dimension("power", "watts", "28 W or 3 mW", _prefixed("W"))
TIME = Dimension("time", "seconds", "20 ns", _prefixed("s"))
FREQUENCY = Dimension("frequency", "hertz", "1 GHz", _prefixed("Hz"))
DATA = Dimension("size", "bits", "64 KiB or 512 kb", _amounts())
RATE = Dimension("throughput", "bits per second", "25.6 GB/s", _amounts("/s"))
WORK = Dimension("throughput", "operations per second", "1 Gop/s", _prefixed("op/s", "ops/s"))
AREA = Dimension(
    "area", "square metres", "0.8 mm^2",
    {f"{unit}{power}": (1, n) for unit, n in _LENGTHS.items() for power in ("^2", "2")},
)  # fmt: skip
_KNOWN = (ENERGY, POWER, TIME, FREQUENCY, DATA, RATE, WORK, AREA)


def in_base_units(text: object, dimension: Dimension) -> object:
    """A text that ends with a unit as a number, or as an expression where symbols are in it; what has no unit
    as it is. TextFault, with the place of the unit, for one that does not belong here."""
    if not isinstance(text, str):
        return text
    found = _ADJOINING.fullmatch(text) or _APART.fullmatch(text)
    if found is None:
        return text
    # The two signs for micro look alike.
    number, unit, at = found["number"], found["unit"].replace("\u03bc", "\u00b5"), found.start("unit")
    if unit not in dimension.units:
        raise _foreign(unit, at, dimension)
    factor, power = dimension.units[unit]
    if symbols_in(number):
        scale = factor * 10**power if power >= 0 else float(f"{factor}e{power}")
        return f"({number.strip()}) * {scale!r}"
    return _scaled(number.strip(), evaluate_number(number), factor, power)


def amount_in(text: str, unit: str) -> Value | None:
    """A number that may have a unit as one of `unit`; None for any other text."""
    dimension = next((d for d in (ENERGY, TIME, DATA, AREA) if unit in d.units), None)
    try:
        found = in_base_units(text, dimension) if dimension is not None else text
    except TextFault:
        return None
    if isinstance(found, str):
        return float(found) if _LITERAL.fullmatch(found.strip()) else None
    return found if isinstance(found, (int, float)) else None


def _scaled(text: str, value: Value, factor: int, power: int) -> Value:
    """Exact for whole numbers; of a decimal number the float that is nearest to what is written."""
    if isinstance(value, int):
        return value * factor * 10**power if power >= 0 else float(f"{value * factor}e{power}")
    if factor == 1 and _LITERAL.fullmatch(text) and "e" not in text.lower():
        exact = float(f"{text}e{power}")
    else:
        exact = value * factor * (10.0**power if power >= 0 else 1) / (1 if power >= 0 else 10.0**-power)
    return int(exact) if power >= 0 and exact.is_integer() and abs(exact) < 2**53 else exact


def _foreign(unit: str, at: int, dimension: Dimension) -> TextFault:
    other = next((d for d in _KNOWN if unit in d.units), None)
    remedy = f"write e.g. {dimension.examples}, or a number of {dimension.base}"
    if other is not None:
        return TextFault(f"{unit} is a unit of {other.name} ({other.base}), not {dimension.base}", at, remedy)
    if unit.removesuffix("/s") in ("KB", "Kb"):
        right = "kB (1000 bytes) or KiB (1024 bytes)" if "B" in unit else "kb (1000 bits) or Kib (1024 bits)"
        return TextFault(f"{unit} may mean two sizes", at, f"write {right}")
    if dimension is ENERGY and unit.partition("/")[0] in ENERGY.units:
        return TextFault(f"{unit} is no unit here", at, _energy_alone(*unit.split("/", 1)))
    alike = (u for u in dimension.units if u.lower() == unit.lower())
    near = next(alike, None) or close_to(unit, dimension.units)
    return TextFault(f"unknown unit {unit}", at, f"did you mean {near}? {remedy}" if near else remedy)


def _energy_alone(unit: str, per: str) -> str:
    """How an energy per something is written: the key says per what."""
    if per in ("B", "byte", "bytes"):
        return f"energies are per bit: divide by 8, e.g. write 16 / 8 {unit} for 16 {unit}/{per}"
    return f"write {unit} alone: energies of reads and writes are per bit, those of compute per operation"
