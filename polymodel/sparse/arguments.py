"""Check the arguments of density models and of random tensors, and report all faults at once, one message per
fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import inf
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import as_number, as_whole, shown, suggestion


class Arguments:
    """Reads the arguments of one call. The value returned for a wrong argument is a placeholder, because
    `raise_if_any` follows."""

    def __init__(self) -> None:
        self.faults: list[Diagnostic] = []

    def add(self, argument: str, message: str, remedy: str, *, code: str) -> None:
        self.faults.append(Diagnostic(message, remedy, argument, code=code))

    def raise_if_any(self) -> None:
        if self.faults:
            raise SpecError(self.faults)

    def names(
        self, argument: str, given: object, example: str = "['M', 'K']", twice: str = "names {} do not fit"
    ) -> tuple[str, ...]:
        """Return names, which must be distinct. A text is read as one letter each, such as `IJ`."""
        if not isinstance(given, Iterable) or isinstance(given, Mapping):
            message = f"{shown(given)} is not a list of names"
            self.add(argument, message, f"write e.g. {example}", code="wrong-type")
            return ()
        found = tuple(given)
        for i, name in enumerate(found):
            if not isinstance(name, str) or not name:
                message = f"{argument}[{i}]"
                remedy = f"{shown(name)} is not a name"
                self.add(message, remedy, f"write e.g. {example}", code="invalid-name")
        plain = tuple(str(name) for name in found)
        if len(set(plain)) < len(plain):
            self.add(
                argument,
                twice.format(list(plain)) + ": one name stands there twice",
                "name each once",
                code="duplicate-name",
            )
        return plain

    def ranks(self, ranks: object, shape: object) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return names of ranks, and a size of at least 1 for each."""
        names = self.names("ranks", ranks)
        if not self.several("shape", shape):
            return names, (1,) * len(names)
        sizes: tuple[object, ...] = tuple(shape)  # type: ignore[arg-type]  # seen to be iterable just above
        for i, size in enumerate(sizes):
            if (as_whole(size) or 0) < 1:
                what = f"size {shown(size)} of a rank is not a positive integer"
                message = f"shape[{i}]"
                remedy = "sizes are at least 1: write e.g. [400, 300]"
                self.add(message, what, remedy, code="not-positive-integer")
        if len(names) != len(sizes) and not any(f.path == "ranks" for f in self.faults):
            what = f"ranks {list(names)} and shape {[as_whole(s) or 1 for s in sizes]} do not fit"
            self.add(
                "shape",
                what,
                f"give {len(names)} sizes, one per rank" if names else "name the ranks",
                code="wrong-count",
            )
        return names, tuple(max(1, as_whole(s) or 1) for s in sizes)

    def several(self, argument: str, given: object) -> bool:
        """Return whether sizes are given as a list; if not, record a fault."""
        right = isinstance(given, Iterable) and not isinstance(given, (str, Mapping))
        if not right:
            remedy = "write e.g. [400, 300]: one per rank"
            self.add(argument, f"{shown(given)} is not a list of sizes", remedy, code="wrong-type")
        return right

    def name(self, argument: str, given: object) -> None:
        """Check that a value is a name or None."""
        if given is not None and not isinstance(given, str):
            self.add(argument, f"{shown(given)} is not a name", "write e.g. 'A'", code="invalid-name")

    def array(self, argument: str, given: object) -> NDArray[Any]:
        """Return the value as an array. Lists of different lengths are a fault."""
        try:
            return np.asarray(given)
        except ValueError:
            message = f"{shown(given)} is not an array: its lists differ in length"
            self.add(argument, message, "make them equal", code="shape-mismatch")
            return np.zeros(0)

    def sizes(self, argument: str, given: object) -> tuple[int, ...]:
        """Return whole numbers; 4.0 is accepted."""
        if not self.several(argument, given):
            return ()
        sizes: list[object] = list(given)  # type: ignore[call-overload]  # seen to be iterable just above
        numbers = [as_number(size) for size in sizes]
        result = tuple(0 if n is None or n != n // 1 else int(n) for n in numbers)
        for i, (size, number) in enumerate(zip(sizes, result, strict=True)):
            if number != numbers[i]:
                message = f"{argument}[{i}]"
                remedy = f"{shown(size)} is not a whole number"
                self.add(message, remedy, "write e.g. [400, 300]", code="not-an-integer")
        return result

    def whole(self, argument: str, given: object, low: int, high: float = inf, what: str = "") -> int:
        """Return a whole number within bounds; 7.7e7 is accepted."""
        number = as_number(given)
        if number is not None and low <= number <= high and abs(number) != inf and number == int(number):
            return int(number)
        room = f"{low} to {high:,}" if high < inf else f"{low} on"
        fault = what or f"{shown(given)} is not a whole number from {room}"
        self.add(argument, fault, f"give one from {room}", code="not-an-integer")
        return low

    def share(self, argument: str, given: object, what: str, remedy: str) -> Fraction | float:
        """Return a number from 0 to 1; fractions remain exact."""
        result = Fraction(given) if isinstance(given, Rational) else as_number(given)
        if isinstance(given, bool) or result is None:
            self.add(argument, f"{shown(given)} is not a density", remedy, code="out-of-range")
        elif not 0 <= result <= 1:
            self.add(argument, f"density {shown(given)}{what} is outside [0, 1]", remedy, code="out-of-range")
        else:
            return result
        return 0.0

    def one_of(self, argument: str, given: object, ranks: tuple[str, ...], what: str) -> str:
        """Return the name of a rank of the tensor."""
        if not isinstance(given, str) or given not in ranks:
            known = suggestion(str(given), ranks, "name ranks of the tensor")
            self.add(argument, f"{what} rank {given}: there is none", known, code="unknown-name")
        return str(given)
