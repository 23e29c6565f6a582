"""Buffets that stay while other Einsums run, where the stamp decides whether they do.

A buffet stays between two visits that share an element. Which visits share one depends, at a stamp, on two
steps: the step that led to the stamp, of the innermost loop that is past its first iteration, and the step
that follows, of the innermost loop that is not at its last. The relevant loops differ between buffets: a
buffet of a branch further out steps with the outer loops only, others with those inside as well. So each loop
is considered separately, in its first iteration, in its last one and in one between, and all combinations are
formed. The second iteration represents those between: its tile is as large as theirs, and shares as much with
the tiles before and after it. If the first iteration differs from the others (the loop has a first tile of
its own, or an inferred Einsum makes a larger window at first), the second iteration is considered separately
too, and the third one represents those that follow an iteration between. Iterations that no buffet
distinguishes from the first one are omitted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from itertools import product as cartesian
from math import prod

from polymodel.analysis.symbolic.atoms import ONE, SIZE, Leaf, Role
from polymodel.analysis.symbolic.counts import settled
from polymodel.analysis.symbolic.forms import (
    ZERO,
    Form,
    HeldBuffet,
    leading,
    number,
    of_atom,
    product,
    summed,
)
from polymodel.analysis.symbolic.generations import begins_again, unlike_first
from polymodel.analysis.symbolic.layout import (
    Carry,
    SymbolicBuffet,
    SymbolicLayout,
    iteration_keys,
    other_ranges,
    temporal,
)
from polymodel.analysis.symbolic.listings import DistinctValues, interval
from polymodel.analysis.symbolic.pair_atoms import Side, StepOverlap
from polymodel.analysis.symbolic.spaces import Space
from polymodel.analysis.symbolic.tied_groups import listed_group_of
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Split

MOST_STAMPS = 1000
Stamp = Mapping[int, Role]  # loop -> the iteration that is considered
LAST: dict[Role, Role] = {"first": "only", "second": "two", "third": "three"}  # if it is the last one
BEFORE: dict[Role, Role] = {"second": "first", "third": "second", "last": "before last"}
AFTER: dict[Role, Role] = {"first": "to second", "second": "to third", "third": "to fourth"}


@dataclass(frozen=True)
class Stay:
    """A buffet that an Einsum does not use; its users run `before` it, or after it.

    `shared`: the number of loops above both; `on_path`: the buffet is above both too. `carry`: loop -> 1 if
    its policy lets elements stay.
    """

    node: SymbolicBuffet
    held: HeldBuffet
    before: bool
    shared: int
    on_path: bool
    carry: Carry

    def asks_for_step(self, axis: int) -> bool:
        """Whether a step of the loop at `axis` may have left the buffet there."""
        return not self.before and self._steps(axis)

    def asks_for_last(self, axis: int) -> bool:
        """Whether the buffet may be there at the last iteration of the loop only.

        In that case it steps with a loop further out, or the last tile, which is smaller, holds tiles that
        are closer together.
        """
        space = self.node.space
        v = space.axes[axis].variable if axis < self.node.depth else ""
        partial = v in space.access.variables and any(i > axis for i in space.of(v))
        return partial or (self.before and any(self._steps(i) for i in range(axis)))

    def begins_larger(self, axis: int) -> bool:
        """Whether the buffet's windows are larger in the loop's first iteration than in others.

        The first instance then advances by more in the step to the second iteration than in later steps.
        """
        return axis < self.shared and axis in self.node.space.shrinking

    def _steps(self, axis: int) -> bool:
        """Whether the buffet may stay over the steps of the loop."""
        goes_on = self.on_path and axis >= self.node.depth
        stays = axis in self.carry and not _parts(self.node.space, axis)
        return axis < self.shared and (goes_on or stays)


def peak_candidates(
    bare: Space, lasting: list[HeldBuffet], used: list[tuple[SymbolicBuffet, HeldBuffet]], stays: list[Stay]
) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The stamps of an Einsum that may be the peak.

    `bare`: its stamps; `lasting`: buffets that hold the same at all times; `used`: buffets that it uses.
    """
    for node in (*(n for n, _ in used), *(s.node for s in stays)):
        if node.space.generations:  # they stay over other steps than other tensors
            raise begins_again(node.space)
    result: list[tuple[Form, tuple[HeldBuffet, ...]]] = []
    for stamp in _stamps(bare, stays):
        roles = {i: stamp.get(i, "widest") for i in range(len(bare.axes))}
        reached = product(chain(bare, v, roles) for v in bare.spread)
        here = [h.of(elements(node.space, roles)) for node, h in used]
        here += [s.held.of(_resident(bare, s, roles)) for s in stays]
        result.append((reached, (*lasting, *here)))
    return leading(result)


def elements(space: Space, roles: Stamp) -> Form:
    """The size of the tile at the stamp that the roles choose, except for variables that bounds couple."""
    key = tuple(map(roles.get, range(len(space.axes))))
    if key not in space.sized:
        space.sized[key] = _elements(space, roles)
    return space.sized[key]


def _with_generations(space: Space, roles: Stamp) -> Form:
    """The same with what the tile holds of the previous generation, of which it has nothing at the first
    stamp."""
    assert space.carried is not None
    at = {roles[i] for i in space.generations}
    is_product = space.carried.is_product and at <= {"first", "widest", "second", "third"}
    if space.carried.behind == "first" and is_product:
        return ZERO if at & {"second", "third"} else elements(space.before, roles)
    if space.carried.behind == "lacking" or not is_product:
        raise unlike_first(space)
    later = space.carried.behind == "each" or at & {"second", "third"}
    result = elements(space.alone, roles)
    return result + elements(space.before, roles) if later else result


def _elements(space: Space, roles: Stamp) -> Form:
    if space.carried is not None:
        return _with_generations(space, roles)
    result = product(chain(space, v, roles, SIZE) for v in sorted(space.single - space.tied))
    result = result * product(chain(space, v, roles) for v in space.spread if v not in space.tied)
    for h in space.halos:
        if h.p in space.tied:
            continue
        over = chain(space, h.p, roles, Leaf("over", h.shift_p)) * chain(
            space, h.r, roles, Leaf("over", h.shift_r)
        )
        result = result * (chain(space, h.p, roles, SIZE) * chain(space, h.r, roles, SIZE) - over)
    for one in space.sums:
        if one.variables[0] not in space.tied:
            sides = tuple(Side(space.extent(v), space.ladder(v, roles)) for v in one.variables)
            result = result * of_atom(DistinctValues(sides, one.factors))
    return result


def chain(space: Space, variable: str, roles: Stamp, leaf: Leaf = ONE, until: int | None = None) -> Form:
    """A variable's tile at the stamp: its size, or 1 if it exists. `until`: only loops up to that one."""
    key = (variable, tuple(map(roles.get, space.of(variable))), leaf, until)
    if key not in space.chains:
        levels = space.ladder(variable, roles, until=until)
        space.chains[key] = summed(space.extent(variable), levels, leaf)
    return space.chains[key]


def _stamps(bare: Space, stays: list[Stay]) -> Iterator[dict[int, Role]]:
    """All combinations of the iterations at which loops are considered, nest by nest.

    A nest: loops that are steps of the same buffets. If several of them are past their first iteration and
    not at their last, only the innermost one has stepped: the others go back to their first.
    """
    loops = [i for i in temporal(bare) if i < max(s.shared for s in stays)]
    widest: Stamp = dict.fromkeys(loops, "widest")
    ends = sorted({0, *(s.shared for s in stays if not s.before), len(bare.axes)})
    nests = [[i for i in loops if begin <= i < end] for begin, end in pairwise(ends)]
    choices = [list(islice(_nest_stamps(bare, nest, stays, widest), MOST_STAMPS + 1)) for nest in nests]
    if prod(map(len, choices)) > MOST_STAMPS:
        raise NotSeparable(
            f"what stays while {bare.einsum.name} runs depends on {len(loops)} loops",
            code="unsupported-reuse",
        )
    for chosen in cartesian(*choices):
        yield {i: role for part in chosen for i, role in part.items()}


def _nest_stamps(bare: Space, nest: list[int], stays: list[Stay], widest: Stamp) -> Iterator[dict[int, Role]]:
    """The iterations of a nest's loops: first and last ones, and an intermediate one of at most one loop."""
    ends: dict[int, tuple[Role, ...]] = dict.fromkeys(nest, ("first",))
    between: dict[int, Role] = {}
    for i in nest:
        if _ends(bare, i, widest) == number(1):
            continue
        own = bare.axes[i].start is not None or any(s.begins_larger(i) for s in stays)
        ends[i] += ("second",) if own else ()
        ends[i] += ("last",) if any(s.asks_for_last(i) for s in stays) else ()
        if any(s.asks_for_step(i) for s in stays):
            between[i] = "third" if own else "second"
    for chosen in cartesian(*ends.values()):
        yield dict(zip(ends, chosen, strict=True))
    for i, role in between.items():
        for chosen in cartesian(*({**ends, i: (role,)}).values()):
            yield dict(zip(ends, chosen, strict=True))


def _ends(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no iteration after that of the stamp."""
    role = stamp[axis]
    return number(1) if role == "last" else _trips(bare, axis, stamp, LAST.get(role, "only"))


def _begins(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no iteration before that of the stamp."""
    if stamp[axis] == "last":
        return _trips(bare, axis, stamp, "only")
    return number(1) if stamp[axis] == "first" else ZERO


def _trips(bare: Space, axis: int, stamp: Stamp, role: Role) -> Form:
    v = bare.axes[axis].variable
    roles: dict[int, Role] = {i: stamp.get(i, "widest") for i in bare.of(v) if i < axis}
    return chain(bare, v, {**roles, axis: role}, until=axis)


def _resident(bare: Space, stay: Stay, stamp: Stamp) -> Form:
    """The number of elements that a buffet holds at a stamp in which it is not used."""
    space, depth = stay.node.space, stay.node.depth
    at_end = _ends if stay.before else _begins
    total = ZERO
    stepping = number(1)  # the loops inside are at their last iteration, so that the next one steps
    for axis in sorted((i for i in temporal(bare) if i < stay.shared), reverse=True):
        end = at_end(bare, axis, stamp)
        here = stepping * (number(1) - end)
        stepping = stepping * end
        if here == ZERO:
            continue
        if stay.on_path and axis >= depth:
            total = total + here * elements(space, stamp)  # the visit continues
        elif axis in stay.carry:
            here = here * stay.carry[axis] * _shares(stay, axis, stamp)
            total = (
                total + here * elements(space, _resident_tile(stay, axis, stamp)) if here != ZERO else total
            )
    return total


def _resident_tile(stay: Stay, axis: int, stamp: Stamp) -> Stamp:
    """The tile that is held: of the visit that continues, or of the one before the step."""
    if stay.on_path:
        return stamp
    space = stay.node.space
    since = stay.shared if stay.before else axis + 1
    roles = {i: stamp[i] for i in range(since)}
    if not stay.before:
        roles[axis] = BEFORE[stamp[axis]]
    inside = range(since, stay.node.depth)
    return {**roles, **{i: "first" if space.axes[i].spatial else "last" for i in inside}}


def _shares(stay: Stay, axis: int, stamp: Stamp) -> Form:
    """1 if the first instance's tiles before and after a step have an element in common."""
    space = stay.node.space
    moving = space.axes[axis].variable
    if any(a.spatial and a.grows for a in space.axes):
        raise unknown(stay.node)
    if _parts(space, axis):
        return ZERO
    result = number(1)
    for v in sorted(space.single):
        inner = [i for i in temporal(space) if i > axis and space.axes[i].variable == v]
        window = space.window(v)
        if window is not None and (v == moving or any(i < window.depth for i in inner)):
            sides = _side(stay, v, axis, stamp), Side(1, ())
            result = result * of_atom(StepOverlap(*sides, 1, 1, any=True))
        elif inner:
            roles = {i: "only" if i in inner else stamp.get(i, "first") for i in space.of(v)}
            upto = {i: r for i, r in roles.items() if i <= inner[-1]}
            result = result * chain(space, v, upto, until=inner[-1])
    for halo in space.halos:
        both = [*space.of(halo.p), *space.of(halo.r)]
        if moving in (halo.p, halo.r) or any(i > axis and not space.axes[i].spatial for i in both):
            p, r = (_side(stay, v, axis, stamp) for v in (halo.p, halo.r))
            result = result * of_atom(StepOverlap(p, r, halo.shift_r, halo.shift_p, any=True))
    for one in space.sums:
        both = [i for v in one.variables for i in space.of(v)]
        if moving in one.variables or any(i > axis and not space.axes[i].spatial for i in both):
            raise unknown(stay.node)
    return result


def _parts(space: Space, axis: int) -> bool:
    """True if tiles before and after a step of the loop have nothing in common, whatever their sizes."""
    v = space.axes[axis].variable
    return v in space.single and space.window(v) is None


def _side(stay: Stay, variable: str, axis: int, stamp: Stamp) -> Side:
    """A variable's tiles before and after the step."""
    space = stay.node.space
    roles: dict[int, Role] = {}
    for i in space.of(variable):
        if space.axes[i].spatial:
            roles[i] = "first"
        elif i != axis:
            roles[i] = "wrap" if i > axis else stamp[i]
        elif stay.before:
            roles[i] = AFTER[stamp[i]]
        else:
            roles[i] = "to last" if stamp[i] == "last" else AFTER[BEFORE[stamp[i]]]
    return Side(space.extent(variable), space.ladder(variable, roles))


def unknown(node: SymbolicBuffet) -> NotSeparable:
    return NotSeparable(
        f"{node.tensor} may stay in {node.component} in part under {node.reuse} while others run",
        "use engine exact, or reuse: refill",
        code="unsupported-reuse",
    )


def made_once_before(layout: SymbolicLayout, bare: Space, stay: Stay) -> tuple[frozenset[int], Space | None]:
    """Loops above the Einsum that run the buffet's users in their first iteration only, but the Einsum in
    others too.

    They include loops that are not above a user: it ends before they begin. Also returned: the stamps of a
    user that executes in further iterations of loops in which the Einsum does not.
    """
    loops: dict[frozenset[int], Space | None] = {}
    for user in stay.node.users:
        shared, further = shared_loops(layout, bare.einsum.name, user), False
        stamps = layout.stamps(user, layout.paths[user])
        once = set(range(shared, stay.shared))
        for i in (i for i in temporal(bare) if i < shared):
            one, other = _one_trip(bare, i), _one_trip(stamps, i)
            once |= {i} if other and not one else set()
            if not (one or other) and _undecided(stamps, i):
                raise stays_unevenly(stay)
            differ = iteration_keys(bare, i) != iteration_keys(stamps, i)
            further = further or (one and not other)
            loop = bare.axes[i].loop
            if differ and loop is not None and not (one or other):
                raise other_ranges((bare.einsum.name, user), loop)
        key = frozenset(i for i in once if not _one_trip(bare, i))
        loops[key] = stamps if further else loops.get(key)
    fewest = frozenset.intersection(*loops)
    if fewest not in loops or (fewest and not stay.before):
        raise stays_unevenly(stay)
    return fewest, loops[fewest]


def _one_trip(space: Space, axis: int) -> bool:
    return space.extent(space.axes[axis].variable) == 1 or settled(space, axis).constant == 1


def _undecided(space: Space, axis: int) -> bool:
    """Whether symbolic tile sizes decide in how many iterations of a loop an inferred Einsum executes."""
    v = space.axes[axis].variable
    return listed_group_of(space, v) is not None and settled(space, axis).constant is None


def executes_once(layout: SymbolicLayout, bare: Space, user: str) -> frozenset[int]:
    """Loops above both that run a user of a buffet in their first iteration only, but the Einsum in others
    too."""
    stamps = layout.stamps(user, layout.paths[user])
    shared = shared_loops(layout, bare.einsum.name, user)
    mine = (i for i in temporal(bare) if i < shared)
    return frozenset(i for i in mine if _one_trip(stamps, i) and not _one_trip(bare, i))


def stays_unevenly(stay: Stay) -> NotSeparable:
    return NotSeparable(
        f"{stay.node.tensor} may stay in {stay.node.component} over a loop in whose first iteration alone "
        f"{stay.node.users[0]} executes",
        code="unsupported-reuse",
    )


def joined_steps(bare: Space, stay: Stay, once: frozenset[int]) -> dict[int, Form] | None:
    """Loop -> 1 if its steps leave something in the buffet; None if it depends on the iteration.

    If a loop's step leaves anything, so do those inside it. Omitted: loops over coupled variables (`gap_of`),
    and those of `once`, which run the users in their first iteration only.
    """
    node, space = stay.node, stay.node.space
    reach = min(node.depth, stay.shared)
    result: dict[int, Form] = {}
    for axis, form in stay.carry.items():
        tied = axis < reach and bare.axes[axis].variable in bare.tied
        if tied or (axis < reach and space.axes[axis].variable in space.tied):
            continue
        common = _shared_values(space, axis)
        if axis >= reach or common == 0 or axis in once:
            continue
        inner = [i for i in temporal(space) if i > axis and space.axes[i].variable in space.access.variables]
        own = set(space.of(space.axes[axis].variable))
        alone = stay.on_path and all(i in own and _shared_values(space, i) for i in inner)
        if common is None or (node.parts_stay and inner and not alone):
            return None
        result[axis] = form
    if stay.on_path:
        goes_on = (i for i in temporal(bare) if node.depth <= i < stay.shared and i not in once)
        result |= dict.fromkeys((i for i in goes_on if bare.axes[i].variable not in bare.tied), number(1))
    return {i: form for i, form in result.items() if form != Form()}


def steps_are_disjoint(space: Space, axis: int) -> bool:
    """Whether tiles before and after a loop's steps have nothing in common, as far as it is known."""
    return space.axes[axis].variable not in space.tied and _shared_values(space, axis) == 0


def _shared_values(space: Space, axis: int) -> int | None:
    """The number of values of a rank that the tiles before and after a loop's steps share; None if
    unknown."""
    v = space.axes[axis].variable
    if space.carried is not None and not space.carried.is_product and axis in space.generations:
        return None
    if space.carried is not None and space.carried.behind == "first":
        if axis in space.generations:
            return 0
        if any(i > axis for i in space.generations):
            return None
    elif axis in space.generations and space.carried is not None and space.carried.lags:
        return 1
    window = space.window(v)
    met = dict(window.later).get(axis, 0) if window is not None else 0
    if v not in space.access.variables:
        return 1
    if v in space.single:  # the common part of windows may be in another instance before and after
        apart = any(space.axes[i].spatial for i in space.of(v))
        return None if met and apart else met
    if any(a.spatial for a in space.axes):
        return None
    expr = next(e for e in space.access.projection if v in e.variables)
    terms = dict(expr.terms)
    others = [u for u in expr.variables if u != v]
    if any(space.of(u) or space.window(u) is not None for u in others):
        return None
    extents = [n for n in map(space.extent, others) if isinstance(n, int)]
    if len(extents) < len(others) or (window is not None and axis >= window.depth):
        return None
    reach = interval(zip(extents, (terms[u] for u in others), strict=True))
    return None if reach is None else max(0, reach + terms[v] * (met - 1))


def shared_loops(layout: SymbolicLayout, einsum: str, other: str) -> int:
    """The number of loops above both of two Einsums."""
    split, _, _ = divergence(layout, einsum, other)
    return sum(1 for a in layout.paths[einsum] if a.node < split)


def divergence(layout: SymbolicLayout, one: str, other: str) -> tuple[int, int, int]:
    """(id of the split at which two Einsums diverge, branch of the first, branch of the second)."""
    tree = layout.problem.tree
    for a, b in zip(tree.path(one), tree.path(other), strict=False):
        if isinstance(a.node, Split) and a.branch != b.branch:
            return a.id, a.branch, b.branch
    raise KeyError((one, other))
