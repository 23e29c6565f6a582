"""Buffets that stay while other Einsums run, where it depends on the stamp whether they do.

A buffet stays between two visits that share an element. Which ones do, at a stamp, depends on two steps:
the one that led to it, whose loop is the innermost one that is past its first iteration, and the one that
follows, whose loop is the innermost one that is not at its last. Let every other loop go back to its first
iteration, unless it is at its last one: tiles stay as large, and what was shared before is shared after.
So each loop needs to be looked at in its first and its last iteration only, and that of the step
before also in its second one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product as cartesian

from polymodel.analysis.symbolic.atoms import ONE, SIZE, Leaf, Role, atom
from polymodel.analysis.symbolic.forms import ZERO, Form, Held, number, of_atom, product
from polymodel.analysis.symbolic.layout import Carry, Node, temporal
from polymodel.analysis.symbolic.meets import Meet, Side
from polymodel.analysis.symbolic.spaces import Halo, Space
from polymodel.errors import NotSeparable

MOST_LOOPS = 6  # above the Einsums between whose uses a buffet stays: each doubles the stamps
Stamp = Mapping[int, Role]  # loop -> the iteration that is looked at


@dataclass(frozen=True)
class Stay:
    """A buffet that an Einsum does not use; its users run `before` it, or after it.

    `shared`: how many loops stand above both; `on_path`: the buffet stands above both too. `carry`: loop
    -> 1 where its policy lets elements stay.
    """

    node: Node
    held: Held
    before: bool
    shared: int
    on_path: bool
    carry: Carry


def phases_between(
    bare: Space, lasting: list[Held], used: list[tuple[Node, Held]], stays: list[Stay]
) -> tuple[tuple[Held, ...], ...]:
    """The stamps of an Einsum that may be the peak.

    `bare`: its stamps; `lasting`: what is held at all times; `used`: buffets that it uses.
    """
    found: dict[tuple[Held, ...], None] = {}
    for stamp in _stamps(bare, max(s.shared for s in stays)):
        roles = {i: stamp.get(i, "first") for i in range(len(bare.axes))}
        reached = product(_alone(bare, v, roles) for v in bare.spread)
        here = [replace(h, elements=elements(node.space, roles)) for node, h in used]
        here += [replace(s.held, elements=_resident(bare, s, roles)) for s in stays]
        phase = (replace(h, elements=h.elements * reached) for h in (*lasting, *here))
        found[tuple(h for h in phase if h.elements != ZERO)] = None
    return tuple(phase for phase in found if phase)


def elements(space: Space, roles: Stamp) -> Form:
    """The size of the tile at the stamp that the roles choose."""

    def chain(v: str, leaf: Leaf) -> Form:
        return of_atom(atom(space.extent(v), space.ladder(v, roles), leaf))

    result = product(chain(v, SIZE) for v in sorted(space.single))
    result = result * product(chain(v, ONE) for v in space.spread)
    for h in space.halos:
        over = chain(h.p, Leaf("over", h.shift_p)) * chain(h.r, Leaf("over", h.shift_r))
        result = result * (chain(h.p, SIZE) * chain(h.r, SIZE) - over)
    return result


def _stamps(bare: Space, reach: int) -> Iterator[dict[int, Role]]:
    """First or last iterations of the loops up to `reach`; of one, inside which all are first, the second."""
    loops = [i for i in temporal(bare) if i < reach and _ends(bare, i, {}) != number(1)]
    if len(loops) > MOST_LOOPS:
        raise NotSeparable(
            f"what stays while {bare.einsum.name} runs depends on more than {MOST_LOOPS} loops",
            "use engine exact",
        )
    ends: tuple[Role, ...] = ("first", "last")
    for chosen in cartesian(ends, repeat=len(loops)):
        yield dict(zip(loops, chosen, strict=True))
    for place, loop in enumerate(loops):
        for chosen in cartesian(ends, repeat=place):
            yield {**dict(zip(loops, chosen, strict=False)), loop: "second"}


def _alone(space: Space, variable: str, roles: Stamp) -> Form:
    """1 if the stamp exists along a variable."""
    return of_atom(atom(space.extent(variable), space.ladder(variable, roles), ONE))


def _ends(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no iteration after that of the stamp."""
    role = stamp.get(axis, "first")
    return number(1) if role == "last" else _trips(bare, axis, stamp, "two" if role == "second" else "only")


def _begins(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no iteration before that of the stamp."""
    role = stamp.get(axis, "first")
    if role == "last":
        return _trips(bare, axis, stamp, "only")
    return number(1) if role == "first" else ZERO


def _trips(bare: Space, axis: int, stamp: Stamp, role: Role) -> Form:
    v = bare.axes[axis].variable
    roles: dict[int, Role] = {i: stamp.get(i, "first") for i in bare.of(v) if i < axis}
    return of_atom(atom(bare.extent(v), bare.ladder(v, {**roles, axis: role}, until=axis), ONE))


def _resident(bare: Space, stay: Stay, stamp: Stamp) -> Form:
    """How many elements a buffet holds at a stamp in which it is not used."""
    space, depth = stay.node.space, stay.node.depth
    at_end = _ends if stay.before else _begins
    total = ZERO
    stepping = number(1)  # the loops inside are at the end, so that the next one steps
    for axis in sorted((i for i in temporal(bare) if i < stay.shared), reverse=True):
        end = at_end(bare, axis, stamp)
        here = stepping * (number(1) - end)
        stepping = stepping * end
        if here == ZERO:
            continue
        if stay.on_path and axis >= depth:
            total = total + here * elements(space, stamp)  # the visit goes on
        elif axis in stay.carry:
            here = here * stay.carry[axis] * _shares(stay, axis, stamp)
            total = total + here * elements(space, _held_tile(stay, axis, stamp)) if here != ZERO else total
    return total


def _held_tile(stay: Stay, axis: int, stamp: Stamp) -> Stamp:
    """The tile that is held: of the visit that goes on, or of the one before the step."""
    if stay.on_path:
        return stamp
    space = stay.node.space
    since = stay.shared if stay.before else axis + 1
    roles: dict[int, Role] = {i: stamp.get(i, "first") for i in range(since)}
    if not stay.before:
        roles[axis] = "first"  # as large as any that has one after it
    inside = range(since, stay.node.depth)
    return {**roles, **{i: "first" if space.axes[i].spatial else "last" for i in inside}}


def _shares(stay: Stay, axis: int, stamp: Stamp) -> Form:
    """1 if the first instance's tiles before and after a step have an element in common."""
    space = stay.node.space
    moving = space.axes[axis].variable
    if any(v in space.access.variables for v, _ in space.windows):
        raise unknown(stay.node)
    if moving in space.single:
        return ZERO
    result = number(1)
    for v in sorted(space.single):
        inner = [i for i in temporal(space) if i > axis and space.axes[i].variable == v]
        if inner:
            roles: dict[int, Role] = {i: stamp.get(i, "first") for i in space.of(v)}
            roles |= dict.fromkeys(inner, "only")
            levels = space.ladder(v, {i: r for i, r in roles.items() if i <= inner[-1]}, until=inner[-1])
            result = result * of_atom(atom(space.extent(v), levels, ONE))
    for halo in space.halos:
        both = [*space.of(halo.p), *space.of(halo.r)]
        if moving in (halo.p, halo.r) or any(i > axis and not space.axes[i].spatial for i in both):
            result = result * _overlap(stay, halo, axis, stamp)
    return result


def _overlap(stay: Stay, halo: Halo, axis: int, stamp: Stamp) -> Form:
    """1 if the windows before and after a step overlap."""
    space = stay.node.space
    sides = []
    for v in (halo.p, halo.r):
        roles: dict[int, Role] = {i: stamp.get(i, "first") for i in space.of(v)}
        roles |= {i: "wrap" for i in roles if i > axis and not space.axes[i].spatial}
        if axis in roles:
            roles[axis] = _onto(stamp.get(axis, "first"), stay.before)
        sides.append(Side(space.extent(v), space.ladder(v, roles)))
    return of_atom(Meet(sides[0], sides[1], halo.shift_r, halo.shift_p, any=True))


def _onto(role: Role, forward: bool) -> Role:
    """The step that follows on an iteration, or (not `forward`) that led to it."""
    if forward:
        return "to third" if role == "second" else "to second"
    return "to last" if role == "last" else "to second"


def unknown(node: Node) -> NotSeparable:
    return NotSeparable(
        f"{node.tensor} may stay in {node.component} in part under {node.reuse} while others run",
        "use engine exact, or reuse: refill",
    )
