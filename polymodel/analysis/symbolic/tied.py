"""Rank variables that bounds tie together: which mappings of them have closed forms."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from polymodel.affine import Affine
from polymodel.analysis.engine import Problem
from polymodel.analysis.symbolic.counts import touched
from polymodel.analysis.symbolic.regions import total
from polymodel.analysis.symbolic.spaces import Group, Space, groups
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop, users


def _tied(problem: Problem, einsum: str) -> dict[str, tuple[Group, int]]:
    """Tied rank variable -> its group, and which of the two it is."""
    found = groups(problem.cascade[einsum])
    return {v: (g, k) for g in found for k, v in enumerate((g.u, g.v))}


def check_tied_loops(problem: Problem) -> None:
    """Refuse spatial loops over tied variables, and loops that Einsums share within other bounds."""
    for node_id, loop, _ in problem.tree.walk():
        if not isinstance(loop, Loop):
            continue
        regions = {}
        for e in users(problem.tree, node_id):
            variable = loop.variable_in(e)
            if variable not in problem.cascade[e].rank_variables:
                continue
            group, side = _tied(problem, e).get(variable, (None, 0))
            regions[group and group.region, side] = e
            if group is not None and loop.spatial:
                raise NotSeparable(
                    f"the iteration space of {e} is no box, and {variable}, which a bound ties to another "
                    f"rank variable, is spread over {loop.component}.{loop.dim}",
                    "use engine exact",
                )
        if len(regions) > 1:
            raise NotSeparable(
                f"{' and '.join(regions.values())} run the loop over {loop.rank_variable} within other "
                "bounds",
                "use engine exact",
            )


def shares_tied_loops(problem: Problem) -> bool:
    """True if several Einsums run below one loop over a rank variable that a bound ties to another."""
    for node_id, loop, _ in problem.tree.walk():
        if isinstance(loop, Loop):
            below = users(problem.tree, node_id)
            if len(below) > 1 and any(loop.variable_in(e) in _tied(problem, e) for e in below):
                return True
    return False


def check_tied(problem: Problem, ranks: Mapping[str, str], inferred: bool) -> None:
    """Refuse what goes with boxes only: extents that are symbols, and Einsums that are inferred."""
    name = next((e for e in problem.tree.einsums if groups(problem.cascade[e])), None)
    if name is not None and ranks:
        raise NotSeparable(
            f"extents that are symbols have no closed form where the iteration space is no box ({name})",
            "leave extents numbers (ranks=False)",
        )
    if name is not None and inferred:
        raise NotSeparable(
            f"the iteration space of {name} is no box, and what some Einsum executes is inferred",
            "use engine exact",
        )


def whole_rank(space: Space, expr: Affine) -> tuple[int, int] | None:
    """(lowest, highest) index of a rank that is touched whole, without holes, at every stamp; else None."""
    names = {v for v, c in expr.terms if c}
    group = next((g for g in space.groups if {g.u, g.v} & names), None)
    every = names if group is None else names | {group.u, group.v}
    if space.sizes or any(space.of(v) or space.window(v) is not None for v in every) or len(names) > 2:
        return None
    base = expr.constant + sum(c * space.einsum.bound(v)[0] for v, c in expr.terms)
    found = _box_rank(space, expr) if group is None else _tied_rank(space, expr, group)
    if found is None:
        return None
    low, high, count = found
    return (base + low, base + high) if count == high - low + 1 else None


Values = tuple[int, int, int]  # the lowest, the highest, and how many


def _box_rank(space: Space, expr: Affine) -> Values | None:
    sizes = [(c, space.extent(v)) for v, c in expr.terms if c]
    if any(c < 0 or not isinstance(n, int) for c, n in sizes):
        return None
    (a, n), (b, m) = [*((c, int(n)) for c, n in sizes), (1, 1), (1, 1)][:2]
    common = gcd(a, b)
    count = n * m - max(0, n - b // common) * max(0, m - a // common)
    return 0, a * (n - 1) + b * (m - 1), count


def _tied_rank(space: Space, expr: Affine, group: Group) -> Values | None:
    what, rank = touched(space, group)
    if what in ("none", "both"):
        return None  # what is touched of two ranks is no product
    u, low, high = group.region.rows
    if what == "rank":
        first, last = (rank[0] * u + rank[1] * end for end in (low, high))
        return int(first.min()), int(last.max()), total(group.region, (), (), what, rank)
    rows = u if what == "u" else group.region.turned.rows[0]
    (c,) = (c for _, c in expr.terms if c)
    return (int(rows[0]), int(rows[-1]), len(rows)) if c == 1 else None


def tied_signature(space: Space) -> tuple[object, ...]:
    """What the bounds decide of which elements are touched at which stamp."""
    found: list[object] = []
    for g in space.groups:
        if not (space.of(g.u) or space.of(g.v)) and touched(space, g)[0] != "both":
            continue  # `whole_rank` tells
        nodes = tuple(tuple(space.axes[i].node for i in space.of(v)) for v in (g.u, g.v))
        ranks = tuple(
            tuple(dict(expr.terms).get(v, 0) for expr in space.access.projection) for v in (g.u, g.v)
        )
        found.append((g.region, nodes, ranks))
    return tuple(found)
