"""The request to an energy model, its answer, and its error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from polymodel.spec.faults import TextFault, suggestion
from polymodel.spec.numbers import Value


@dataclass(frozen=True)
class EnergyRequest:
    """The component and the requested quantities (action names, `area`, `leak_power`).

    Energies are per `bits_per_action` of the action (default 1), per operation for compute. `size`: bits of a
    memory.
    """

    component: str
    quantities: tuple[str, ...]
    values: Mapping[str, Value] = field(default_factory=dict)
    file: str | None = None
    source: str | None = None
    folder: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    bits_per_action: Mapping[str, int] = field(default_factory=dict)
    size: float = math.inf


@dataclass(frozen=True)
class EnergyAnswer:
    """Quantity -> value (joules, square metres, watts), and quantity -> its provenance.

    For quantities without an answer the values of the spec hold. The provenance of an entry point is prefixed
    with its name and version.
    """

    values: Mapping[str, float]
    provenance: Mapping[str, str]


def fault_of(message: str, remedy: str, code: str = "failed-energy-model") -> TextFault:
    return TextFault(message, 0, remedy, code=code)


def unknown_of(message: str, word: str, known: Iterable[str], plural: str) -> TextFault:
    return fault_of(message, suggestion(word, known, plural), "unknown-name")


def option_number(
    options: Mapping[str, object], name: str, default: float, least: float | None = None
) -> float:
    """The value of an option: a positive number, or one of at least `least`."""
    given = options.get(name, default)
    number = float(given) if isinstance(given, (int, float)) and not isinstance(given, bool) else math.nan
    if number > 0 if least is None else number >= least:
        return number
    remedy = "write a number above 0" if least is None else f"write a number of at least {least:g}"
    raise fault_of(f"{name} is {given!r}", remedy, "not-a-number")
