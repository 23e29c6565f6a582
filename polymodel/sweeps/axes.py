"""Axes of a grid: symbols that share a tile chain of a rank variable, or a factor; legal combinations
only."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from polymodel.analysis.symbolic.forms import Chain, names_in, size_in
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sweeps.expressions import SymbolConstraint, names_of, of_text
from polymodel.sweeps.grid import Grid, Ids, SymbolUses
from polymodel.sweeps.values import MAX_CHOICES

MAX_TOGETHER = 2**20  # combinations of one axis, if factors need fewer of them


@dataclass(frozen=True)
class SymbolAxis:
    """The legal combinations of some symbols.

    `names`: independent symbols; `columns`: each symbol's value (independent or derived) per choice; `ids`:
    share of the point number. `whole`: number of all choices; `legal`: of those with legal tiles; `size`: of
    those that also satisfy the constraints, without `pruned` ones that no front needs (`sweeps.prune`).
    """

    names: tuple[str, ...]
    columns: Mapping[str, Any]
    ids: Ids
    whole: int
    legal: int
    pruned: int = 0

    @property
    def size(self) -> int:
        return len(self.ids)


def make_axes(
    grid: Grid,
    tiles: Sequence[str],
    chains: Sequence[Chain],
    texts: Mapping[str, str],
    fixed: Mapping[str, Any],
    where: Sequence[SymbolConstraint],
    factors: Iterable[frozenset[str]] = (),
    once: Iterable[frozenset[str]] = (),
) -> tuple[SymbolAxis, ...]:
    """One axis per group of tile symbols that share a chain, an expression or a factor.

    `texts`: derived symbols; `fixed`: values of symbols that do not vary here; `factors`: symbols of factors
    of counts that depend on more than one chain; `once`: symbols that together decide whether a loop runs
    once.
    """
    uses = SymbolUses(grid, texts)
    meetings = [uses.of_all(names) for names in (*map(names_in, chains), *once)]
    meetings += [uses.of(n) for n in texts]
    apart = _merged([frozenset({n}) for n in tiles], meetings)
    met = [uses.of_all(names) for names in factors]
    groups = [g for whole in _merged(apart, met) for g in _in_factors(grid, whole, apart, met)]
    order = {n: i for i, n in enumerate(tiles)}
    groups.sort(key=lambda g: min(order[n] for n in g))
    return tuple(
        _axis(grid, tuple(n for n in tiles if n in g), chains, texts, fixed, where, uses) for g in groups
    )


def _merged(groups: list[frozenset[str]], meetings: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """The groups, with those that share a `meeting` merged."""
    for meeting in meetings:
        touched = [g for g in groups if g & meeting]
        if len(touched) > 1:
            groups = [g for g in groups if not g & meeting] + [frozenset().union(*touched)]
    return groups


def _in_factors(
    grid: Grid, whole: frozenset[str], apart: list[frozenset[str]], met: Sequence[frozenset[str]]
) -> list[frozenset[str]]:
    """The groups that factors connect, unmerged where no factor needs all of them.

    If all combinations are many, factors are tabulated over the groups that they depend on: groups in the
    same factors are one axis, others several.
    """
    inside = [g for g in apart if g <= whole]
    factors = [meeting for meeting in met if sum(bool(g & meeting) for g in inside) > 1]
    most = max((_choices(grid, frozenset().union(*(g for g in inside if g & f))) for f in factors), default=0)
    if _choices(grid, whole) <= MAX_TOGETHER or most == _choices(grid, whole) or most > MAX_CHOICES:
        return [whole]
    alike: dict[tuple[bool, ...], frozenset[str]] = {}
    for group in inside:
        taken = tuple(bool(group & f) for f in factors)
        alike[taken] = alike.get(taken, frozenset()) | group
    return list(alike.values())


def _choices(grid: Grid, names: Iterable[str]) -> int:
    return math.prod(len(grid.of(n)) for n in names)


def _axis(
    grid: Grid,
    names: tuple[str, ...],
    chains: Sequence[Chain],
    texts: Mapping[str, str],
    fixed: Mapping[str, Any],
    where: Sequence[SymbolConstraint],
    uses: SymbolUses,
) -> SymbolAxis:
    lengths = [len(grid.of(n)) for n in names]
    total = math.prod(lengths)
    if total > MAX_CHOICES:
        message = f"{', '.join(names)} have {total} combinations, which are counted together"
        remedy = f"give them fewer values: at most {MAX_CHOICES} combinations"
        raise Refused(message, remedy, code="too-large")
    digits = np.unravel_index(np.arange(total), lengths)
    for n in names:
        if any(abs(v) >= 2**62 for v in grid.of(n)):
            what = f"symbol {n} takes values beyond 2^62"
            raise Refused(what, "sweep smaller sizes", code="number-too-large")
    columns: dict[str, Any] = {n: np.asarray(grid.of(n))[d] for n, d in zip(names, digits, strict=True)}
    ids = np.zeros(total, np.int64)
    for n, d in zip(names, digits, strict=True):
        ids += d * grid.strides[n]
    return axis_of(columns, ids, chains, texts, fixed, where, uses)


def axis_of(
    given: Mapping[str, Any],
    ids: Ids,
    chains: Sequence[Chain],
    texts: Mapping[str, str],
    fixed: Mapping[str, Any],
    where: Sequence[SymbolConstraint],
    uses: SymbolUses,
) -> SymbolAxis:
    """The axis of choices of some symbols, with values `given` (one array each, as long as `ids`).

    It has the choices with legal tiles that satisfy the constraints, and the symbols derived from these
    symbols alone.
    """
    mine, total = frozenset(given), len(ids)
    columns = dict(given)
    for name in following(texts):
        if uses.of(name) and uses.of(name) <= mine:
            columns[name] = of_text(texts[name], {**fixed, **columns})
    legal = np.ones(total, bool)
    known = {**fixed, **columns}
    for chain in chains:
        # Constant chains are checked too: the legal tiles of an inferred loop depend on loops above it.
        if known.keys() >= set(names_in(chain)):
            legal &= _fits(chain, known)
    kept = legal.copy()
    for c in where:
        if uses.of_all(c.names) and uses.of_all(c.names) <= mine:
            kept &= c.holds({**fixed, **columns})
    columns = {
        n: _integers((c if np.shape(c) else np.broadcast_to(c, (total,)))[kept]) for n, c in columns.items()
    }
    return SymbolAxis(tuple(given), columns, ids[kept], total, int(legal.sum()))


def _fits(chain: Chain, values: Mapping[str, Any]) -> Any:
    """Whether each tile is an integer from 1 to the enclosing extent."""
    sizes = [size_in(s, values, np.maximum) for s in chain]
    good: Any = np.True_
    for outer, tile in pairwise(sizes):
        good = good & (tile >= 1) & (tile <= outer) & (np.floor(tile) == tile)
    return good


def _integers(column: Any) -> Any:
    """The column as int64 if all its values are integers."""
    if column.dtype.kind == "f" and np.all(np.floor(column) == column) and np.all(np.abs(column) < 2**53):
        return column.astype(np.int64)
    return column


def following(texts: Mapping[str, str]) -> tuple[str, ...]:
    """The names in dependency order: each after those that it uses."""
    result: dict[str, None] = {}

    def visit(name: str, above: frozenset[str]) -> None:
        if name in result or name in above:
            return
        for used in sorted(names_of(texts[name])):
            if used in texts:
                visit(used, above | {name})
        result[name] = None

    for name in texts:
        visit(name, frozenset())
    return tuple(result)
