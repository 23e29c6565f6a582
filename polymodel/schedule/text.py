"""Iteration spaces and loops in ISL's notation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from polymodel.affine import Affine, Constraint
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Einsum


@lru_cache(maxsize=1024)
def essential_constraints(einsum: Einsum) -> tuple[Constraint, ...]:
    """The iteration space as its bounding box and the constraints that the box does not imply.

    Rank sizes of a halo (`p + r < H`) are usually implied; keeping them would tie p and r together.
    """
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    found = []
    for variable, (low, high) in box.items():
        found.append(Constraint(Affine(((variable, 1),), -low)))
        found.append(Constraint(Affine(((variable, -1),), high)))
    for constraint in einsum.constraints:
        least = constraint.expr.constant + sum(
            min(c * box[v][0], c * box[v][1]) for v, c in constraint.expr.terms
        )
        if constraint.kind != "ge" or least < 0:
            found.append(constraint)
    return tuple(found)


def _sum_text(parts: Iterable[tuple[int, str]], constant: int) -> str:
    text = "".join(f"{c:+d}*{n}" if n else f"{c:+d}" for c, n in parts if c)
    text = f"{text}{constant:+d}" if constant or not text else text
    return text.removeprefix("+")  # isl knows no unary plus


def tile_sizes(loop: Loop) -> tuple[int, int | None]:
    """A loop's tile size, and that of its first tile if it has one; Refused where it is a symbol."""
    if isinstance(loop.tile_shape, str) or isinstance(loop.initial_tile_shape, str):
        raise Refused(f"tile size {loop.tile_shape} is a symbol", "give it a value with bind() or --set")
    return loop.tile_shape, loop.initial_tile_shape


def chain(variable: str, loops: Sequence[tuple[str, Loop]], origin: int | str) -> list[tuple[list[str], str]]:
    """Alternatives (constraints, text of the innermost tile's start) for one variable's loops."""
    options: list[tuple[list[str], str]] = [([], f"{origin}")]
    for counter, loop in loops:
        tile, initial = tile_sizes(loop)
        grown: list[tuple[list[str], str]] = []
        for constraints, base in options:
            if initial is None or initial == tile:
                start = f"{base} + {tile}*{counter}"
                grown.append(
                    ([*constraints, f"{start} <= {variable} < {start} + {tile}", f"{counter} >= 0"], start)
                )
                continue
            first = f"{base} <= {variable} < {base} + {initial}"
            grown.append(([*constraints, f"{counter} = 0", first], base))
            start = f"{base} + {initial} - {tile} + {tile}*{counter}"
            later = f"{start} <= {variable} < {start} + {tile}"
            grown.append(([*constraints, f"{counter} >= 1", later], start))
        options = grown
    return options


def constraint_facts(einsum: Einsum, names: dict[str, str]) -> list[str]:
    """The constraints on some variables, which no constraint ties to others, as ISL text."""
    found = []
    for constraint in essential_constraints(einsum):
        if constraint.expr.variables and constraint.expr.variables[0] in names:
            text = affine_in(constraint.expr, names)
            tail = {"ge": ">= 0", "eq": "= 0"}.get(constraint.kind)
            found.append(f"{text} {tail}" if tail else f"({text}) mod {constraint.modulus} = 0")
    return found


def affine_in(expr: Affine, names: dict[str, str]) -> str:
    """The expression in ISL's notation, with the given names of its variables."""
    return _sum_text([(c, names[v]) for v, c in expr.terms], expr.constant)
