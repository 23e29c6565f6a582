"""How few cycles a cutting can cost, however the plane is cut (numbers labelled `bound`).

The bound holds for every exact partition whose tiles fit, with the cycles of `model`. Of the launched tiles,
u can have a result (add: A or B nonempty; multiply: both). Such a tile takes the ramp and its tokens, two at
least; any other one `empty` cycles.

Tokens. Add: every place that A or B holds is an entry of its tile, and every row counts once in each tile
that it reaches. A row of n entries reaches at least ceil(n / c) tiles if none takes more than c of one row.
Multiply: a place that both hold lies in a tile with a result, and so does its row; there the two streams are
at least these places with an end for their rows, and these rows with one end for the tile.

Kernels. u is at least `kernel_bound`. run="nonempty" launches these tiles alone, run="all" at least
T = max(1, `lower_bound`) and at least u. So the cost is at least, for some u,
max(T, u) (configuration + empty) + u (ramp - empty) + max(tokens, 2 u): convex in u, made of straight lines,
so that its least value lies where two of them meet.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from polymodel.tiling.cost.bounds import kernel_bound, lower_bound
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.pattern import Flags, Ints, Pattern

Objective = Literal["tiles", "cycles", "total"]

# Words of a compressed tile beside two for each of its entries in one row.
_ONE_ROW = 5


def cost_bound(
    pattern: Pattern, op: Op, fit: Fit, launch: Launch | None = None, objective: Objective = "total"
) -> int:
    """No cutting has less of the objective: kernels ("tiles"), run cycles, or run and configuration cycles.

    SpecError where no entry fits.
    """
    launch = launch or Launch()
    useful = kernel_bound(pattern, op, fit)
    all_tiles = launch.run == "all"
    tiles = max(1, useful, lower_bound(pattern, op, fit)) if all_tiles else useful
    if objective == "tiles":
        return tiles
    configuration = launch.config(op) if objective == "total" else 0
    tokens = _tokens(pattern, op, fit, useful)
    if not all_tiles:
        return useful * (configuration + launch.ramp) + max(tokens, 2 * useful)
    return min(
        max(tiles, u) * (configuration + launch.empty) + u * (launch.ramp - launch.empty) + max(tokens, 2 * u)
        for u in (useful, tiles, tokens // 2, -(-tokens // 2))
        if u >= useful
    )


def _tokens(pattern: Pattern, op: Op, fit: Fit, useful: int) -> int:
    """Tokens of all tiles with a result, at least; `useful`: how many such tiles there are, at least."""
    if op == "add":
        weights = (pattern.in_a.astype(np.int64) + pattern.in_b) if isinstance(fit, Elements) else None
        return pattern.points + _row_parts(pattern.rows, weights, fit)
    met: Flags = pattern.in_a & pattern.in_b
    rows = _row_parts(pattern.rows[met], None, fit)
    return max(int(np.count_nonzero(met)), useful) + rows


def _row_parts(rows: np.typing.NDArray[np.integer], weights: Ints | None, fit: Fit) -> int:
    """Tiles that the rows reach, summed over rows; `rows` ascend, one number for each place."""
    if not rows.size:
        return 0
    begin = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
    held = np.diff(begin, append=rows.size) if weights is None else np.add.reduceat(weights, begin)
    most = _of_one_row(fit)
    return int(begin.size if most is None else (-(-held // most)).sum())


def _of_one_row(fit: Fit) -> int | None:
    """How much of one row a tile takes at most, None if that is not known."""
    if isinstance(fit, Elements):
        return fit.capacity
    return (fit.capacity - _ONE_ROW) // 2 if isinstance(fit, Words) else None
