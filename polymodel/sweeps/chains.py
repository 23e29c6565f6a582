"""The front of one mapping over given tile sizes: choices per axis are listed, not those of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from polymodel.errors import NotSeparable, Refused, SpecError
from polymodel.loading import Spec
from polymodel.pareto import Archive
from polymodel.sweeps.axes import SymbolAxis, axis_of
from polymodel.sweeps.blocks import run_block
from polymodel.sweeps.grid import Grid, SymbolRoles, roles
from polymodel.sweeps.kernel import BLOCK
from polymodel.sweeps.legal import illegal
from polymodel.sweeps.plan import values_of
from polymodel.sweeps.result_collector import ResultCollector
from polymodel.sweeps.scenario import MappingForms, Scenario, on_sparse_data, template
from polymodel.sweeps.work_units import Units

Array = Any
LINES = 64  # combinations of choices along the outer axes that are prepared at once


@dataclass(frozen=True)
class ChoiceFront:
    """The points that no other one that fits beats: `choices`, one index per axis, and `values` of the
    objectives, [axes or objectives, points]."""

    choices: Array
    values: Array


def front_of_choices(
    spec: Spec, axes: Sequence[Mapping[str, Array]], objectives: Sequence[str]
) -> ChoiceFront | None:
    """The front over all combinations of the axes' choices; empty if none is legal, or none fits.

    `axes`: symbols of the spec's mapping -> their values, one per choice. `objectives`: at least one on
    sparse data. None where points have to be evaluated one by one.
    """
    names = tuple(n for columns in axes for n in columns)
    grid = Grid(names, tuple((1,) for _ in names))
    try:
        base = template(spec, grid, SymbolRoles((), (), roles(spec, grid).tiles), {})
        block = _block(spec, base, axes)
    except Refused:
        return None
    except SpecError:  # all points break the same rule
        block = None
    count, sizes = len(objectives), [len(next(iter(columns.values()))) for columns in axes]
    if block is None:
        return ChoiceFront(np.zeros((len(axes), 0), np.int64), np.zeros((count, 0)))
    state = ResultCollector("front", Archive(count), 1, prod(sizes))
    run_block(block, objectives, grid, state, Units(sizes=(LINES, BLOCK)), lambda: None)
    numbers = np.asarray(state.front.ids, np.int64)
    choices = np.array(np.unravel_index(numbers, sizes), np.int64).reshape(len(axes), len(numbers))
    return ChoiceFront(choices, np.asarray(state.front.values, np.float64).reshape(count, len(numbers)))


def _block(spec: Spec, base: MappingForms, given: Sequence[Mapping[str, Array]]) -> Scenario | None:
    """The compiled block; None if no point is legal. Raises NotSeparable, Refused or SpecError."""
    forms, axes = base.forms, list[SymbolAxis]()
    sizes = [len(next(iter(columns.values()))) for columns in given]
    for k, columns in enumerate(given):
        ids = np.arange(sizes[k], dtype=np.int64) * prod(sizes[k + 1 :])
        axes.append(axis_of(columns, ids, forms.chains, base.texts, base.fixed, (), base.uses))
    for symbols in forms.coupled_symbols:
        if sum(bool(base.uses.of_all(symbols) & set(a.names)) for a in axes) > 1:
            raise NotSeparable("a factor depends on several axes", code="unsupported-symbol")
    if not all(a.size for a in axes):
        return None
    broken = illegal(base.problem, axes, base.varying, forms, base.fixed)
    rows, made = base.costed()
    block = Scenario(
        0, "", 0, {}, spec, forms, tuple(axes), rows, made, values_of(base.fixed), base.unfit, broken,
    )  # fmt: skip
    return on_sparse_data(block)
