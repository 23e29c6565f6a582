"""Numbers of regions in SymPy: terms that stay as they are until every tile size is a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy

from polymodel.analysis.symbolic.regions import Asked, Region
from polymodel.errors import NotSeparable

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.cuts import Cut

_NAMES = {"none": "tiles", "u": "elements", "v": "elements", "both": "points", "rank": "elements"}


class RegionCount(sympy.Function):  # type: ignore[misc]  # SymPy has no types
    """`RegionCount(what is counted, tile sizes...)`, a whole number once all sizes are.

    The first argument has all that is fixed: extents, bounds, which tiles.
    """

    nargs = None

    @classmethod
    def eval(cls, fixed: Any, *sizes: Any) -> Any:
        """The number, if the sizes are numbers."""
        if all(s.is_Integer for s in sizes):
            return sympy.Integer(_cut(fixed).at(*(int(s) for s in sizes)))
        return None

    def _eval_derivative(self, s: Any) -> Any:
        """No derivative is given for a number that no formula gives."""
        raise NotSeparable(
            f"{self._label} is a count at whole tile sizes, and has no derivative by them",
            "leave gradients out where the iteration space is no box",
        )

    def _eval_is_integer(self) -> bool:
        return True

    def _eval_is_nonnegative(self) -> bool:
        return True

    def _sympystr(self, printer: Any) -> str:
        return f"{self._label}({', '.join(printer.doprint(s) for s in self._shown)})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        inside = ", ".join(printer.doprint(s) for s in self._shown)
        text = rf"\operatorname{{{self._label}}}\left({inside}\right)"
        return text if exp is None else f"{text}^{{{exp}}}"

    @property
    def _label(self) -> str:
        cut = _cut(self.args[0])
        name = "peak" if cut.asked else _NAMES[cut.what]
        return f"{name}_within_{'x'.join(map(str, cut.region.extents))}"

    @property
    def _shown(self) -> list[Any]:
        return list(self.args[2::2])


def term(cut: Cut, sizes: Sequence[Any]) -> Any:
    """A cut as a SymPy term of its tile sizes."""
    region = (*cut.region.extents, *(x for bound in cut.region.bounds for x in bound))
    kinds = ("none", "u", "v", "both", "rank")
    asked = [(a.u, a.v, kinds.index(a.what), *a.rank) for a in cut.asked]
    fixed = (
        len(cut.u), len(cut.v), kinds.index(cut.what), *cut.rank, cut.item, cut.place, len(asked),
        *(x for a in asked for x in a), *region,
    )  # fmt: skip
    return RegionCount(sympy.Tuple(*map(sympy.Integer, fixed)), *(sympy.sympify(s) for s in sizes))


def _cut(fixed: Any) -> Cut:
    """The cut of a term's first argument; its tile sizes are told apart by number only."""
    from polymodel.analysis.symbolic.atoms import Level
    from polymodel.analysis.symbolic.cuts import Cut

    kinds: tuple[Any, ...] = ("none", "u", "v", "both", "rank")
    numbers = [int(x) for x in fixed]
    u, v, what, a, b, item, place, count = numbers[:8]
    rows = [numbers[8 + 5 * k : 13 + 5 * k] for k in range(count)]
    asked = tuple(Asked(r[0], r[1], kinds[r[2]], (r[3], r[4])) for r in rows)
    rest = numbers[8 + 5 * count :]
    bounds = tuple((rest[i], rest[i + 1], rest[i + 2]) for i in range(2, len(rest), 3))
    region = Region((rest[0], rest[1]), bounds)
    levels = tuple(Level(1, "each") for _ in range(u)), tuple(Level(1, "each") for _ in range(v))
    return Cut(region, *levels, kinds[what], (a, b), asked, item, place)
