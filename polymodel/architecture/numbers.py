"""Evaluating the numbers of an architecture, each with its bounds and its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.spec.faults import Faults, Path, TextFault
from polymodel.spec.numbers import Value, evaluate_number


@dataclass(frozen=True)
class Numbers:
    """Evaluates expressions against symbols; a value out of bounds is a fault and becomes the default."""

    symbols: Mapping[str, Value | None]
    faults: Faults

    def _value(self, text: Value | str, path: Path) -> Value | None:
        try:
            return evaluate_number(text, self.symbols)
        except TextFault as fault:
            self.faults.text(path, fault)
            return None

    def at_least_zero(self, text: Value | str, path: Path, what: str) -> float:
        """A finite number of at least 0."""
        value = self._value(text, path)
        if value is None:
            return 0.0
        if value < 0:
            self.faults.add(path, f"negative {what} {value}", "write a number of at least 0")
            return 0.0
        if math.isinf(value):
            self.faults.add(path, f"infinite {what}", "write a finite number")
            return 0.0
        return float(value)

    def positive(self, text: Value | str, path: Path, what: str, *, finite: bool = False) -> float:
        """A number above 0; `inf` unless it must be finite."""
        value = self._value(text, path)
        if value is None:
            return 1.0
        if value == 0:
            remedy = "write a finite number above 0" if finite else "write a number above 0, or inf"
            self.faults.add(path, f"zero {what}", remedy)
            return 1.0
        if value < 0:
            self.faults.add(path, f"negative {what} {value}", "write a number above 0")
            return 1.0
        if finite and math.isinf(value):
            self.faults.add(path, f"infinite {what}", "write a finite number")
            return 1.0
        return float(value)

    def whole(self, text: Value | str, path: Path, what: str) -> int:
        """A whole number of at least 1."""
        value = self._value(text, path)
        if value is None:
            return 1
        if math.isinf(value) or value < 1 or value != int(value):
            self.faults.add(path, f"{what} {value} is not a whole number of at least 1", "write 1, 2, 3, ...")
            return 1
        return int(value)
