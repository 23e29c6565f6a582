"""Forms as straight-line code: each operation once, for one point in Python integers or for many in arrays.

The recursion that evaluates an atom runs once, on values that record operations; sums of products are
factored. The compiled code consists of these operations alone: it contains no text of a spec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from polymodel.analysis.symbolic.forms import Factor, Form
from polymodel.frozen import dataclass
from polymodel.integers import SUMMED

Array = Any
Operand = int  # an index into a program's steps
Terms = frozenset[tuple[tuple[Operand, ...], int]]
LARGE = 2**31  # sizes from which on atoms are computed in Python integers
_TEXT = {
    "+": "{} + {}", "-": "{} - {}", "*": "{} * {}", "//": "{} // {}", "ceil": "-(-{} // {})",
    "least": "least({}, {})", "most": "most({}, {})", "le": "le({}, {})",
}  # fmt: skip


def _le(a: Any, b: Any) -> Any:
    return np.less_equal(a, b).astype(np.int64)


ONE_POINT: dict[str, Callable[[Any, Any], Any]] = {"least": min, "most": max, "le": lambda a, b: int(a <= b)}
MANY_POINTS: dict[str, Callable[[Any, Any], Any]] = {"least": np.minimum, "most": np.maximum, "le": _le}
_FOLD: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "//": lambda a, b: a // b,
    "ceil": lambda a, b: -(-a // b), **ONE_POINT,
}  # fmt: skip
_SYMMETRIC = ("+", "*", "least", "most")


@dataclass
class Program:
    """Operations in order, without repetition.

    A step is an input, a constant, or an operation on earlier steps.
    """

    steps: list[tuple[Any, ...]] = field(default_factory=list)
    _places: dict[tuple[Any, ...], Operand] = field(default_factory=dict)

    def place(self, *step: Any) -> Operand:
        """The index of a step, which is added if it is new."""
        if step not in self._places:
            self._places[step] = len(self.steps)
            self.steps.append(step)
        return self._places[step]

    def constant(self, number: int) -> Operand:
        return self.place("constant", number)

    def number(self, at: Operand) -> int | None:
        """The value of a constant; None for other steps."""
        step = self.steps[at]
        return step[1] if step[0] == "constant" else None

    def apply(self, operation: str, a: Operand, b: Operand) -> Operand:
        """The result of an operation, simplified where its value is known."""
        x, y = self.number(a), self.number(b)
        if x is not None and y is not None:
            return self.constant(_FOLD[operation](x, y))
        if operation == "*" and 0 in (x, y):
            return self.constant(0)
        if (operation in ("*", "//", "ceil") and y == 1) or (operation in ("+", "-") and y == 0):
            return a
        if (operation == "*" and x == 1) or (operation == "+" and x == 0):
            return b
        if operation in _SYMMETRIC and b < a:
            a, b = b, a
        return self.place(operation, a, b)

    def call(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Operand:
        """The result of a function of several values, which accepts numbers and arrays."""
        given = (self.constant(a) if isinstance(a, int) else a.at for a in arguments)
        return self.place("call", function, *given)

    def function(
        self, results: Sequence[Operand], names: Mapping[str, Any]
    ) -> Callable[..., tuple[Any, ...]]:
        """The results as a function of the inputs, in the order of `inputs`."""
        inputs = self.inputs
        needed = self._needed(results)
        last: dict[Operand, int] = {}
        for at in needed:
            for part in self._parts(at):
                last[part] = at
        kept, free, texts, lines = set(results), [], {}, []
        scope: dict[str, Any] = dict(names)
        variables = 0
        for at in needed:
            step = self.steps[at]
            if step[0] == "input":
                texts[at] = step[1]
                continue
            if step[0] == "constant":
                texts[at] = f"({step[1]})"
                continue
            parts = [texts[p] for p in self._parts(at)]
            if step[0] == "call":
                scope[f"call{at}"] = step[1]
                text = f"call{at}({', '.join(parts)})"
            else:
                text = _TEXT[step[0]].format(*parts)
            free += [
                texts[p]
                for p in dict.fromkeys(self._parts(at))
                if last[p] == at and p not in kept and self.steps[p][0] not in ("input", "constant")
            ]
            if free:
                texts[at] = free.pop()
            else:
                texts[at], variables = f"v{variables}", variables + 1
            lines.append(f"    {texts[at]} = {text}")
        head = f"def traced({', '.join(inputs)}):"
        end = f"    return ({''.join(texts[r] + ', ' for r in results)})"
        exec(compile("\n".join([head, *lines, end]), "<traced forms>", "exec"), scope)
        result: Callable[..., tuple[Any, ...]] = scope["traced"]
        return result

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(step[1] for step in self.steps if step[0] == "input")

    def _parts(self, at: Operand) -> tuple[Operand, ...]:
        step = self.steps[at]
        return () if step[0] in ("input", "constant") else step[2 if step[0] == "call" else 1 :]

    def _needed(self, results: Sequence[Operand]) -> list[Operand]:
        result, waiting = set(results), list(results)
        while waiting:
            for part in self._parts(waiting.pop()):
                if part not in result:
                    result.add(part)
                    waiting.append(part)
        return sorted(result)


@dataclass(frozen=True)
class Traced:
    """A value that is not known yet; operations on it become steps of its program."""

    program: Program
    at: Operand

    def _with(self, operation: str, other: Any, turned: bool = False) -> Traced:
        b = self.program.constant(other) if isinstance(other, int) else other.at
        a, b = (b, self.at) if turned else (self.at, b)
        return Traced(self.program, self.program.apply(operation, a, b))

    def __add__(self, other: Any) -> Traced:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Traced:
        return self._with("+", other, turned=True)

    def __sub__(self, other: Any) -> Traced:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Traced:
        return self._with("-", other, turned=True)

    def __mul__(self, other: Any) -> Traced:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Traced:
        return self._with("*", other, turned=True)


class TracedOps:
    """`atoms.Ops` on traced values."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def _both(self, operation: str, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return _FOLD[operation](a, b)
        one = Traced(self.program, self.program.constant(a)) if isinstance(a, int) else a
        return one._with(operation, b)

    def floordiv(self, a: Any, b: Any) -> Any:
        return self._both("//", a, b)

    def ceildiv(self, a: Any, b: Any) -> Any:
        return self._both("ceil", a, b)

    def least(self, a: Any, b: Any) -> Any:
        return self._both("least", a, b)

    def most(self, a: Any, b: Any) -> Any:
        return self._both("most", a, b)

    def above_zero(self, a: Any) -> Any:
        return self._both("most", a, 0)

    def beyond(self, a: Any, b: Any) -> Any:
        return self._both("most", a - b, 0)

    def le(self, a: Any, b: Any) -> Any:
        return self._both("le", a, b)

    def positive(self, a: Any) -> Any:
        return self._both("le", 1, a)

    def counted(self, table: Any, sizes: Sequence[Any]) -> Any:
        if all(isinstance(s, int) for s in sizes):
            return table.at(*sizes)
        return Traced(self.program, self.program.call(table.of, sizes))


class TracedForms:
    """Many forms as two functions: atoms of symbols, and forms of atoms.

    In between, a bound of every form decides whether int64 suffices: sums and products in int64 are correct
    modulo 2^64, so that a form whose terms' magnitudes sum to less than 2^62 is correct whatever its steps
    do.
    """

    def __init__(self, forms: Sequence[Form], scales: Sequence[int], fixed: Mapping[str, int]) -> None:
        atoms = tuple(dict.fromkeys(a for f in forms for product, _ in f.terms for a in product))
        program = Program()
        free = sorted({s for a in atoms for s in a.symbols if s not in fixed})
        values: dict[str, Any] = dict(fixed)
        values |= {s: Traced(program, program.place("input", s)) for s in free}
        ops, found = TracedOps(program), []
        for atom in atoms:
            value = atom.value(ops, values)
            found.append(program.constant(value) if isinstance(value, int) else value.at)
        self.symbols = tuple(free)
        self._atoms = _both_kinds(program, found)
        sums = Program()
        names = [sums.place("input", f"a{i}") for i in range(len(atoms))]
        places = dict(zip(atoms, names, strict=True))
        maker = _Sums(sums)
        results = [maker.form(f, places, 1) for f in forms]
        bounds = _Sums(sums)
        magnitudes = [bounds.form(f, places, -1) for f in forms]
        self._forms = _both_kinds(sums, results)
        self._bounds = sums.function(magnitudes, ONE_POINT)
        self.scales = tuple(scales)
        self.sizes = max([0, *(abs(int(v)) for v in fixed.values())])

    def at(self, point: Mapping[str, int]) -> tuple[int, ...]:
        """The forms at one point, in Python integers."""
        result: tuple[int, ...] = self._forms[0](*self._atoms[0](*(point[s] for s in self.symbols)))
        return result

    def arrays(self, columns: Mapping[str, Array], count: int) -> tuple[Array, ...]:
        """The forms at many points: int64, or Python integers where int64 may overflow."""
        given = [columns[s] for s in self.symbols]
        sizes = [int(np.max(np.abs(c))) for c in given]
        if max([0, self.sizes, *sizes]) >= LARGE:
            given = [c.astype(object) for c in given]
        atoms = self._atoms[1](*given)
        bounds = self._bounds(*(int(np.max(np.abs(a))) for a in atoms))
        if max([0, *(b * s for b, s in zip(bounds, self.scales, strict=True))]) >= SUMMED:
            atoms = tuple(np.asarray(a).astype(object) for a in atoms)
        return tuple(np.broadcast_to(f, (count,)) for f in self._forms[1](*atoms))


def _both_kinds(
    program: Program, results: Sequence[Operand]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return program.function(results, ONE_POINT), program.function(results, MANY_POINTS)


class _Sums:
    """Sums of products, factored: the most frequent factor is taken out first, and equal sums are shared."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.made: dict[Terms, Operand] = {}

    def form(self, form: Form, places: Mapping[Factor, Operand], sign: int) -> Operand:
        """A form of atoms; `sign` -1: its bound, with the magnitude of every coefficient."""
        terms: Counter[tuple[Operand, ...]] = Counter()
        for product, coefficient in form.terms:
            key = tuple(sorted(places[a] for a in product))
            terms[key] += coefficient if sign > 0 else abs(coefficient)
        return self.total(frozenset((k, c) for k, c in terms.items() if c))

    def total(self, terms: Terms) -> Operand:
        if terms not in self.made:
            self.made[terms] = self._total(terms)
        return self.made[terms]

    def _total(self, terms: Terms) -> Operand:
        counts = Counter(a for product, _ in terms for a in set(product))
        if not counts:
            return self.program.constant(sum(c for _, c in terms))
        most = max(counts.values())
        chosen = min(a for a, n in counts.items() if n == most)
        inside, outside = [], []
        for product, c in terms:
            if chosen in product:
                i = product.index(chosen)
                inside.append((product[:i] + product[i + 1 :], c))
            else:
                outside.append((product, c))
        part = self.program.apply("*", self.total(frozenset(inside)), chosen)
        if not outside:
            return part
        return self.program.apply("+", part, self.total(frozenset(outside)))
