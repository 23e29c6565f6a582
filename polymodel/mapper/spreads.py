"""Over how many instances of fanouts the rank variables of an Einsum may be spread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING

from polymodel.errors import Refused
from polymodel.factoring import divisors

if TYPE_CHECKING:
    from polymodel.mapper.space import EinsumSpace

MOST_USES = 200_000  # numbers of instances of all fanouts that are told apart


def spread_choices(
    space: EinsumSpace, unit: int, inside: int, variable: int, extent: int | None = None
) -> list[tuple[int, ...]]:
    """Per fanout, over how many instances the variable may be spread; nothing is spread over fanouts above
    an exchanged tensor (`inside`: the innermost memory that holds one).

    `extent`: of several variables that index the same tensors, together.
    """
    reach = 0 if space.copy else space.units[unit].fanouts
    choices: list[tuple[int, ...]] = []
    for number, f in enumerate(space.fanouts):
        reduced = (o for o in space.operands if o.output and variable not in o.alone)
        barred = number >= reach or f.below <= inside or not space.admits(number, variable)
        if barred or any(o.tensor not in f.reuses for o in reduced):
            some: tuple[int, ...] = (1,)
        else:
            some = tuple(d for d in divisors(extent or space.extents[variable]) if d <= f.width)
        # What a fanout must hold it need not hold for compute units that are not below it.
        choices.append(some if number >= reach else space.rules.spreads(number, variable, some))
    return choices


def at_their_most(space: EinsumSpace) -> EinsumSpace:
    """The space with numbers for shares of fanouts that are to be as high as they can be (infinite ones):
    outer dimensions first, as far as the loops over them go, whatever fits the memories. Of several compute
    units none is ruled out."""
    if space.copy or all(f.least < inf for f in space.fanouts):
        return space
    uses = [_best_use(space, unit) for unit in range(len(space.units))]
    fanouts = []
    for number, f in enumerate(space.fanouts):
        mine = [use[number] for use, u in zip(uses, space.units, strict=True) if number < u.fanouts]
        fanouts.append(replace(f, least=min(mine, default=1) / f.width) if f.least == inf else f)
    return replace(space, fanouts=tuple(fanouts))


def _best_use(space: EinsumSpace, unit: int) -> tuple[int, ...]:
    """Instances in use per fanout, at their most one fanout after another."""
    reach = space.units[unit].fanouts
    used = {(1,) * reach}
    for members in space.bundles:
        spreads = list(_spreads(space, unit, members))
        grown = {tuple(a * b for a, b in zip(u, s, strict=True)) for u in used for s in spreads}
        used = {u for u in grown if all(x <= f.width for x, f in zip(u, space.fanouts, strict=False))} or used
        if len(used) > MOST_USES:
            raise Refused(
                f"{space.name} may use its fanouts in more than {MOST_USES:,} ways",
                "write the least utilisation as a number",
            )
    asked = [k for k, f in enumerate(space.fanouts[:reach]) if f.least == inf]
    return max(used, key=lambda u: [u[k] for k in asked])


def _spreads(space: EinsumSpace, unit: int, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """How variables that index the same tensors may be spread together."""
    extent = prod(space.extents[v] for v in members)
    choices = spread_choices(space, unit, 0, members[0], extent)[: space.units[unit].fanouts]
    return (s for s in product(*choices) if extent % prod(s) == 0)
