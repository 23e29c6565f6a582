"""The stamps and elements of one access of one Einsum: a box, or windows where an Einsum is inferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd
from typing import Literal

from polymodel.analysis.symbolic.atoms import Leaf, Level, Role
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.regions import MOST_ROWS, Region
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Einsum, TensorAccess

# What happens to a counter in a count: kept apart, merged (a union), or held at the first instance; `hops`:
# kept apart, and counted as often as the counter says, from 1 on.
Use = Literal["keep", "merge", "at0", "hops"]
# Of a tensor that is carried forward, what the tile of its variable holds: `later`: in each tile but the
# first also an element further back, `each`: in each tile; `lacking`: in the first tile an element less.
# `first`: of the tensor that holds what is before the first generation, it is there in the first tile only.
Behind = Literal["", "later", "each", "lacking", "first"]


@dataclass(frozen=True)
class Axis:
    """One loop above a node, or the offset of a variable in its innermost tile (`loop` is None)."""

    variable: str
    tile: int | str
    loop: Loop | None
    node: int

    @property
    def start(self) -> int | str | None:
        """The size of its first tile, if that is another one."""
        first = self.loop.initial_tile_shape if self.loop is not None else None
        return None if first == self.tile else first

    @property
    def grows(self) -> bool:
        """True if tiles behind the first one may be larger."""
        if isinstance(self.start, int) and isinstance(self.tile, int):
            return self.start < self.tile
        return self.start is not None

    @property
    def spatial(self) -> bool:
        return self.loop is not None and self.loop.spatial

    def level(self, role: Role, more: int | None = None) -> Level:
        """The loop in an atom."""
        if not self.grows and role in ("widest", "nominal"):
            role = "first"
        return Level(self.tile, role, self.spatial, more, self.start)


@dataclass(frozen=True)
class Halo:
    """A rank `a p + b r`: with gcd 1, elements i b' further in p meet those a' further in r."""

    p: str
    r: str
    shift_p: int
    shift_r: int


@dataclass(frozen=True)
class Group:
    """Two rank variables that bounds of the iteration space tie together, and their points from the smallest
    values on."""

    u: str
    v: str
    region: Region


@lru_cache(maxsize=1024)
def groups(einsum: Einsum) -> tuple[Group, ...]:
    """The bounds that the box of an Einsum does not imply, by their variables; NotSeparable for others."""
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    found: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
    for c in einsum.constraints:
        if c.kind != "ge":
            raise NotSeparable(f"the iteration space of {einsum.name} is no box: {c}", "use engine exact")
        least = c.expr.constant + sum(min(k * box[v][0], k * box[v][1]) for v, k in c.expr.terms)
        if least >= 0 or (len(c.expr.variables) == 1 and abs(c.expr.terms[0][1]) == 1):
            continue
        # In one order, so that Einsums that share loops over both have equal regions.
        names = sorted(v for v in einsum.rank_variables if v in c.expr.variables)
        if len(names) != 2:
            raise NotSeparable(
                f"the iteration space of {einsum.name} is no box: {c} is no bound on two rank variables",
                "use engine exact",
            )
        (u, v), terms = names, dict(c.expr.terms)
        constant = c.expr.constant + terms[u] * box[u][0] + terms[v] * box[v][0]
        found.setdefault((u, v), []).append((terms[u], terms[v], constant))
    taken = [v for pair in found for v in pair]
    twice = next((v for v in taken if taken.count(v) > 1), None)
    if twice is not None:
        raise NotSeparable(
            f"the iteration space of {einsum.name} ties {twice} to several rank variables", "use engine exact"
        )
    return tuple(Group(u, v, _region(box, u, v, bounds)) for (u, v), bounds in found.items())


def _region(box: Mapping[str, tuple[int, int]], u: str, v: str, bounds: list[tuple[int, int, int]]) -> Region:
    extents = tuple(box[x][1] - box[x][0] + 1 for x in (u, v))
    if max(extents) > MOST_ROWS:
        raise NotSeparable(f"{u} and {v} are tied, and have more than {MOST_ROWS} values", "use engine exact")
    return Region((extents[0], extents[1]), tuple(sorted(set(bounds))))


@dataclass(frozen=True)
class Window:
    """What executes of a rank variable of an inferred Einsum: an interval for each tile of a consumer.

    Loops over the consumer, the first `depth` of the path, cut `extent` into tiles; one of extent e gives
    `scale * e + more`, `more` being `start` at the first stamp and that of `later` (loop position -> more)
    at steps of a loop. It is never more at a step than at one further out. `low`: its smallest value of all.
    """

    extent: int
    low: int
    scale: int
    start: int
    later: tuple[tuple[int, int], ...]
    depth: int

    @property
    def level(self) -> Level:
        return Level(self.scale, "window", more=self.start)

    @property
    def overlaps(self) -> bool:
        """True if some stamp's interval meets that of the one before."""
        return any(more for _, more in self.later)


@dataclass(frozen=True)
class Carried:
    """The rank of an access along which the tensor is carried forward, its variable, and what tiles hold of
    the generation before. `rank` is -1 where the tensor has no such rank."""

    rank: int
    variable: str
    behind: Behind


@dataclass(frozen=True)
class Space:
    """The stamps over `axes` (path order) of one Einsum's box, and the elements of one access.

    `sizes`: (rank variable, symbol) of extents that are symbols. `windows`: of inferred rank variables.
    `carried`: of a tensor of which tiles hold something of the generation before.
    """

    einsum: Einsum
    access: TensorAccess
    axes: tuple[Axis, ...]
    sizes: tuple[tuple[str, str], ...] = ()
    windows: tuple[tuple[str, Window], ...] = ()
    carried: Carried | None = None

    @cached_property
    def alone(self) -> Space:
        """Without what tiles hold of the generation before."""
        return replace(self, carried=None)

    @cached_property
    def before(self) -> Space:
        """What a tile holds of the generation before, as if it were a tensor without the carried rank."""
        assert self.carried is not None
        rest = tuple(x for r, x in enumerate(self.access.projection) if r != self.carried.rank)
        ranks = tuple(x for r, x in enumerate(self.access.ranks) if r != self.carried.rank)
        return replace(self, access=replace(self.access, projection=rest, ranks=ranks), carried=None)

    @cached_property
    def generations(self) -> tuple[int, ...]:
        """Positions of the loops over the variable along which the tensor is carried."""
        return tuple(self.of(self.carried.variable)) if self.carried is not None else ()

    def window(self, variable: str) -> Window | None:
        return next((w for v, w in self.windows if v == variable), None)

    def extent(self, variable: str) -> int | str:
        window = self.window(variable)
        if window is not None:
            return window.extent
        for name, symbol in self.sizes:
            if name == variable:
                return symbol
        low, high = self.einsum.bound(variable)
        return high - low + 1

    @cached_property
    def halos(self) -> tuple[Halo, ...]:
        return halos(self.einsum, self.access)

    @cached_property
    def single(self) -> frozenset[str]:
        """Variables that are the only one of their rank."""
        return frozenset(e.variables[0] for e in self.access.projection if len(e.variables) == 1)

    @cached_property
    def spread(self) -> tuple[str, ...]:
        """Variables that do not index the tensor; also those of loops that infer the Einsum again."""
        again = (v for v, _ in self.windows if v not in self.einsum.rank_variables)
        return tuple(v for v in (*self.einsum.rank_variables, *again) if v not in self.access.variables)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """Pairs of variables that bounds tie together."""
        return groups(self.einsum)

    @cached_property
    def tied(self) -> frozenset[str]:
        """The variables of the groups."""
        return frozenset(v for g in self.groups for v in (g.u, g.v))

    def of(self, variable: str) -> list[int]:
        return [i for i, a in enumerate(self.axes) if a.variable == variable]

    def ladder(
        self, variable: str, roles: Mapping[int, Role], since: int = -1, until: int | None = None
    ) -> tuple[Level, ...]:
        """The levels of a variable's loops at the positions that have a role, and its window among them.

        With `since` or `until` only loops from or up to that position are wanted.
        """
        window = self.window(variable)
        later = dict(window.later) if window and any(m != window.start for _, m in window.later) else {}
        found = {i: self.axes[i].level(roles[i], later.get(i)) for i in self.of(variable) if i in roles}
        if window is None:
            return tuple(found.values())
        outer = tuple(lv for i, lv in found.items() if i < window.depth)
        if since >= window.depth or (until is not None and until < window.depth):
            return tuple(found.values())
        return (*outer, window.level, *(lv for i, lv in found.items() if i >= window.depth))

    @cached_property
    def counted(self) -> dict[tuple[Use, ...], Form]:
        """Counts that were worked out before: what happens to each counter -> (counters, elements)."""
        return {}

    @cached_property
    def sized(self) -> dict[tuple[Role | None, ...], Form]:
        """Sizes of tiles that were worked out before: the role of each loop -> elements."""
        return {}

    @cached_property
    def chains(self) -> dict[tuple[str, tuple[Role | None, ...], Leaf, int | None], Form]:
        """The same along single variables: (variable, roles, what is summed, up to which loop)."""
        return {}

    @property
    def shrinking(self) -> list[int]:
        """Positions of loops at whose later steps windows of the tensor are smaller than at first."""
        windows = (w for v, w in self.windows if v in self.access.variables)
        found = (i for w in windows for i, more in w.later if more != w.start)
        return [i for i in found if i < len(self.axes)]

    def bare(self) -> Space:
        """The stamps alone, at which anything is touched, without elements."""
        first = self.carried is not None and self.carried.behind == "first"
        carried = replace(self.carried, rank=-1) if self.carried is not None and first else None
        return replace(self, access=TensorAccess(self.access.tensor, (), ()), carried=carried)


def halos(einsum: Einsum, access: TensorAccess) -> tuple[Halo, ...]:
    """The coupled ranks of an access; NotSeparable for accesses that are no products of such."""
    seen: set[str] = set()
    found = []
    for rank, expr in zip(access.ranks, access.projection, strict=True):
        terms = [(v, c) for v, c in expr.terms if c]
        if any(c < 0 for _, c in terms) or len(terms) > 2 or seen & {v for v, _ in terms}:
            raise NotSeparable(
                f"rank {rank} of {access.tensor} in {einsum.name} ({expr}) is not a sum of one or two "
                "rank variables of its own",
                "use engine exact",
            )
        seen |= {v for v, _ in terms}
        if len(terms) == 2:
            (p, a), (r, b) = terms
            g = gcd(a, b)
            found.append(Halo(p, r, b // g, a // g))
    return tuple(found)


def unlike_first(space: Space) -> NotSeparable:
    return NotSeparable(
        f"tiles of {space.access.tensor} in {space.einsum.name} lack at first what is read of the generation "
        "before, which has no closed form",
        "use engine exact",
    )


def begins_again(space: Space) -> NotSeparable:
    assert space.carried is not None
    return NotSeparable(
        f"{space.access.tensor} may stay in {space.einsum.name} while {space.carried.variable}, over which "
        "it is carried forward, begins again",
        "use engine exact, or reuse: slide",
    )
