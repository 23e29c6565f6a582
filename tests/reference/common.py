"""What every adapter shares: outcomes, index expressions, and the pieces of a spec."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from importlib import import_module
from typing import cast

from polymodel.analysis.result import Analysis, Engine
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import PolymodelError


@dataclass
class Outcome:
    """One case: how many numbers were compared, which differ, and what else is worth knowing.

    `fault`: why nothing could be compared. `seconds`: of our own search, where the case has one.
    `uncomputed`: figures of the case that are not computed here, each with the reason. `listed`: differences
    from the reference that are known and explained.
    """

    name: str
    checked: int = 0
    mismatches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fault: str = ""
    seconds: float | None = None
    uncomputed: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)

    def equal(self, what: str, ours: int | float | Fraction, theirs: int | float) -> None:
        """Count one comparison. Counts have tolerance zero; energies, times and ratios that of a float."""
        self.checked += 1
        exact = isinstance(ours, int) or float(ours).is_integer()
        if ours != theirs and (exact or not math.isclose(ours, theirs, rel_tol=1e-12)):
            self.mismatches.append(f"{what}: ours {_show(ours)}, reference {theirs}")

    def at_most(self, what: str, ours: int | float | Fraction, bound: int | float) -> None:
        """Count one bound from above; as in `equal`, only a fraction may be off by rounding."""
        self.checked += 1
        exact = isinstance(ours, int) or float(ours).is_integer()
        if ours > bound and (exact or not math.isclose(ours, bound, rel_tol=1e-12)):
            self.mismatches.append(f"{what}: ours {_show(ours)} exceeds {bound}")

    def inform(self, what: str, ours: int | float | Fraction, theirs: int | float) -> None:
        """Note a difference that is expected, without counting it."""
        if not math.isclose(ours, theirs, rel_tol=1e-12):
            self.notes.append(f"{what}: ours {_show(ours)}, the tool says {theirs}")

    def unknown(self, where: str, found: Iterable[str], known: Iterable[str]) -> None:
        """Report keys of a case file that the adapter does not understand."""
        strange = sorted(set(found) - set(known))
        if strange:
            self.notes.append(f"{where}: keys not understood: {', '.join(strange)}")


class Absent(Exception):
    """What a case is about is not part of the repository, and no folder that has it was named."""


@contextmanager
def comparing(outcome: Outcome) -> Iterator[Outcome]:
    """What is raised inside is the outcome's fault: a refusal, a case that is none; absent data is not."""
    try:
        yield outcome
    except Absent as told:
        outcome.uncomputed.append(str(told))
    except PolymodelError as fault:
        outcome.fault = f"not evaluated: {fault}"
    except KeyError as fault:
        outcome.fault = f"malformed case: {fault.args[0]} is missing or not known"
    except (AttributeError, IndexError, OSError, TypeError, ValueError) as fault:
        outcome.fault = f"malformed case: {type(fault).__name__}: {fault}"


def sections(case: Mapping[str, object], kinds: Mapping[str, type]) -> None:
    """Check that a case has these sections. ValueError names the first that is missing or of another kind."""
    for name, kind in kinds.items():
        if not isinstance(case.get(name), kind):
            there = type(case[name]).__name__ if name in case else "nothing"
            raise ValueError(f"{name} must be a {kind.__name__}, there is {there}")


def _show(value: int | float | Fraction) -> str:
    return str(float(value)) if isinstance(value, Fraction) else str(value)


_TERM = re.compile(r"\s*([+-])?\s*(?:(\d+)\s*\*?\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)(?:\s*\*\s*(\d+))?|(\d+))\s*")


def affine(text: str | int) -> Affine:
    """An index expression such as `p`, `2*p + r`, `2p+r`, `m - n + 3`; ValueError if it is not affine."""
    rest, total = str(text), Affine()
    while rest:
        match = _TERM.match(rest)
        if not match or match.end() == 0 or (total != Affine() and match.group(1) is None):
            raise ValueError(f"not an affine expression: {text!r}")
        sign = -1 if match.group(1) == "-" else 1
        name = match.group(3) or match.group(4)
        if name:
            factor = int(match.group(2) or match.group(5) or 1)
            total = total + Affine.variable(name).scaled(sign * factor)
        else:
            total = total + Affine((), sign * int(match.group(6)))
        rest = rest[match.end() :]
    return total


def box(sizes: dict[str, int]) -> tuple[Constraint, ...]:
    """`0 <= v < size` for each rank variable."""
    bounds: list[Constraint] = []
    for name, size in sizes.items():
        bounds.append(Constraint(Affine.variable(name)))
        bounds.append(Constraint(Affine(((name, -1),), size - 1)))
    return tuple(bounds)


def engine(name: str) -> Engine:
    """The engine `exact` or `enumerate`."""
    return cast(Engine, import_module(f"polymodel.analysis.{name}").ENGINE)


def accesses(result: Analysis) -> dict[tuple[str, str, str], tuple[int, int]]:
    """(Einsum, component, tensor) -> (reads, writes), in elements, summed over storage nodes."""
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for row in result.traffic:
        key = (row.einsum, row.component, row.tensor)
        reads, writes = found.get(key, (0, 0))
        found[key] = reads + row.reads, writes + row.writes
    return found
