"""Integer affine expressions and constraints over rank variables: plain data, no library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Affine:
    """`sum(coefficient * variable) + constant`; terms sorted by first appearance, coefficients non-zero."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def variable(name: str) -> Affine:
        return Affine(((name, 1),))

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def value(self, point: Mapping[str, int]) -> int:
        return self.constant + sum(c * point[v] for v, c in self.terms)

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for name, c in other.terms:
            total[name] = total.get(name, 0) + c
        kept = tuple((v, c) for v, c in total.items() if c)
        return Affine(kept, self.constant + other.constant)

    def scaled(self, factor: int) -> Affine:
        if factor == 0:
            return Affine()
        return Affine(tuple((v, c * factor) for v, c in self.terms), self.constant * factor)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scaled(-1)

    def __str__(self) -> str:
        text = ""
        for name, c in self.terms:
            sign = "-" if c < 0 else "+"
            body = name if abs(c) == 1 else f"{abs(c)}*{name}"
            text += f" {sign} {body}" if text else (f"-{body}" if c < 0 else body)
        if self.constant or not text:
            sign = "-" if self.constant < 0 else "+"
            text += f" {sign} {abs(self.constant)}" if text else str(self.constant)
        return text


@dataclass(frozen=True)
class Constraint:
    """`expr >= 0` (ge), `expr == 0` (eq) or `expr mod modulus == 0` (mod)."""

    expr: Affine
    kind: Literal["ge", "eq", "mod"] = "ge"
    modulus: int = 0

    def holds(self, point: Mapping[str, int]) -> bool:
        value = self.expr.value(point)
        if self.kind == "ge":
            return value >= 0
        if self.kind == "eq":
            return value == 0
        return value % self.modulus == 0

    def __str__(self) -> str:
        if self.kind == "mod":
            return f"({self.expr}) mod {self.modulus} = 0"
        return f"{self.expr} {'>=' if self.kind == 'ge' else '='} 0"
