"""Counts of regions in SymPy: terms that remain unevaluated until every tile size is a number."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from zlib import crc32

import sympy

from polymodel.errors import NotSeparable

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.pair_atoms import Tabled


class CountedRegion(sympy.Atom):  # type: ignore[misc]  # SymPy has no types
    """The counted quantity of a region, without the sizes of its tiles."""

    __slots__ = ("table",)
    is_commutative = True

    def __new__(cls, table: Tabled) -> Any:
        made = super().__new__(cls)
        made.table = table
        return made

    def __getnewargs__(self) -> tuple[Tabled]:
        return (self.table,)

    def _hashable_content(self) -> tuple[str]:
        return (repr(self.table),)

    def _sympystr(self, printer: Any) -> str:
        return repr(self.table)


_MARKS: dict[str, bytes] = {}  # mark -> digest of what it stands for


def _mark(text: str) -> str:
    """Return three digits that identify a text; twelve if another text of this process has the same three."""
    digest = sha256(text.encode()).digest()
    short = f"{crc32(text.encode()) % 16**3:03x}"
    return short if _MARKS.setdefault(short, digest) == digest else digest.hex()[:12]


class RegionCount(sympy.Function):  # type: ignore[misc]  # SymPy has no types
    """`RegionCount(what is counted, tile sizes...)`, an integer once all sizes are integers."""

    nargs = None

    @classmethod
    def eval(cls, counted: Any, *sizes: Any) -> Any:
        """The number, if the sizes are numbers."""
        if all(s.is_Integer for s in sizes):
            return sympy.Integer(counted.table.at(*(int(s) for s in sizes)))
        return None

    def _eval_derivative(self, s: Any) -> Any:
        """Refuse: a number without a formula has no derivative."""
        raise NotSeparable(
            f"{self._region} is a count at integer tile sizes and has no derivative with respect to them",
            "leave gradients out where the iteration space is not a box",
            code="unsupported-symbol",
        )

    def _eval_is_integer(self) -> bool:
        return True

    def _eval_is_nonnegative(self) -> bool:
        return True

    def _sympystr(self, printer: Any) -> str:
        label = f"{self._region}_{self._named[2]}" if self._named[1] else self._region
        return f"{label}({', '.join(printer.doprint(s) for s in self._shown)})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        inside = ", ".join(printer.doprint(s) for s in self._shown)
        name, extents, mark = self._named
        title = name.replace("_", r"\ ")
        sizes = r" \times ".join(extents)
        below = rf"_{{{sizes},\,\mathrm{{{mark}}}}}" if extents else ""
        text = rf"\operatorname{{{title}}}{below}\left({inside}\right)"
        return text if exp is None else f"{text}^{{{exp}}}"

    @property
    def _region(self) -> str:
        name, extents, _ = self._named
        return f"{name}_within_{'x'.join(extents)}" if extents else name

    @property
    def _named(self) -> tuple[str, tuple[str, ...], str]:
        """Return the counted quantity, the extents of the region, and a mark that distinguishes regions of
        equal extents."""
        table = self.args[0].table
        return table.named, tuple(map(str, table.region.extents)), _mark(repr(table.without_sizes()))

    @property
    def _shown(self) -> list[Any]:
        result: list[Any] = self.args[0].table.shown(self.args[1:])
        return result


def term(table: Tabled, sizes: Sequence[Any]) -> Any:
    """A count of a region as a SymPy term of its tile sizes, which are distinguished only by their place."""
    return RegionCount(CountedRegion(table.without_sizes()), *(sympy.sympify(s) for s in sizes))
