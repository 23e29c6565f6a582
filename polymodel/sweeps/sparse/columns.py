"""Rank variables of one Einsum over a grid; the tiles of each depend on few tile sizes, and are listed once
each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.result import Problem
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.sparse.actions.counters import Counters, Ints, counters_of
from polymodel.spec.faults import Faults
from polymodel.sweeps.axes import SymbolAxis

# values of one rank variable, over all settings, that are cached
KEPT = 3_000_000
Settings = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class VariableColumn:
    """One rank variable. `axis`: the symbols of the axis that its tiles depend on, () if they are fixed.

    `place`: the setting (distinct combination of its tile sizes) of each choice along the axis; `values`: the
    symbols of each setting.
    """

    problem: Problem
    einsum: str
    variable: str
    axis: tuple[str, ...]
    place: Ints
    values: tuple[Mapping[str, int], ...]
    known: dict[int, Counters] = field(default_factory=dict, compare=False)

    @property
    def settings(self) -> int:
        return len(self.values)

    def counters(self, setting: int) -> Counters:
        """The tile of each loop that every value is in."""
        if setting in self.known:
            return self.known[setting]
        bound = bound_problem(self.problem, self.values[setting])
        (result,) = counters_of(bound, self.einsum, {self.variable})
        if result.size * self.settings <= KEPT:
            self.known[setting] = result
        return result


def bound_problem(problem: Problem, values: Mapping[str, int]) -> Problem:
    """The problem with these tile sizes."""
    faults = Faults()
    tree = bind_tree(ResolvedMapping(problem.tree), values, faults).tree
    faults.raise_if_any()
    return replace(problem, tree=tree)


def columns_of(
    problem: Problem, einsum: str, axes: Sequence[SymbolAxis], fixed: Mapping[str, int]
) -> tuple[VariableColumn, ...]:
    """One record per rank variable of the Einsum, and per variable that only repeats it.

    Raises NotSeparable if the tiles of one variable depend on several axes.
    """
    loops = problem.tree.loops(einsum)
    names = [loop.variable_in(einsum) for _, loop in loops]
    base = {**fixed, **{n: int(c[0]) for a in axes for n, c in a.columns.items()}}
    result = []
    for variable in dict.fromkeys((*problem.cascade[einsum].rank_variables, *names)):
        sizes = (s for (_, x), name in zip(loops, names, strict=True) if name == variable for s in x.sizes)
        symbols = sorted({s for s in sizes if isinstance(s, str)})
        mine = [a for a in axes if any(s in a.columns for s in symbols)]
        if len(mine) > 1:
            message = f"{einsum}: tiles of {variable} depend on symbols of several axes"
            raise NotSeparable(message, code="unsupported-symbol")
        if not mine:
            place: Any = np.zeros(1, np.int64)
            result.append(VariableColumn(problem, einsum, variable, (), place, (base,)))
            continue
        varying = [s for s in symbols if s in mine[0].columns]
        table = np.array([mine[0].columns[s] for s in varying])
        distinct, place = np.unique(table, axis=1, return_inverse=True)
        values = tuple(
            base | {s: int(x) for s, x in zip(varying, column, strict=True)} for column in distinct.T
        )
        result.append(VariableColumn(problem, einsum, variable, mine[0].names, place.reshape(-1), values))
    return tuple(result)
