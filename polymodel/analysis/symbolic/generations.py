"""Tensors that are carried forward: what a tile holds of the generation before it.

Where an Einsum reads R[p] and writes R[p+1], the tile of iterations a..b of p holds what is written in
them, and one element further back along p for each index of the other ranks: what iteration a reads. The
first tile holds nothing further back if `init` says what is before. So counts are those of the tensor
without the elements further back, plus those of a tensor without that rank, whose elements are there in
each tile of p, or in each but the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from polymodel.analysis.symbolic.atoms import FullAgain
from polymodel.analysis.symbolic.forms import Form, number, of_atom
from polymodel.analysis.symbolic.regions import Region
from polymodel.analysis.symbolic.spaces import (
    Behind,
    CarriedDimension,
    CarriedRank,
    Space,
    TiedGroup,
    Use,
    unlike_before,
)
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.workload.einsum import Einsum, TensorAccess

Uses = Mapping[int, Use]
Count = Callable[[Space, Uses], Form]  # as counts.count
Stays = Callable[[Space, int, Uses, bool], Form]  # as counts.carried


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


def only_at_first(space: Space) -> Space:
    """The space of a tensor that holds what is before the first generation."""
    v = space.access.guard[0].expr.variables[0]
    ranks = [r for r, x in enumerate(space.access.projection) if v in x.variables]
    if len(ranks) > 1:
        raise unlike_before(space.einsum, space.access)
    return _along(space, CarriedDimension(ranks[0] if ranks else -1, v, "first"))


def reads(einsum: Einsum, line: CarriedRank) -> Iterator[tuple[int, TensorAccess]]:
    """The accesses of a tensor, with the first index that each touches along the carried rank."""
    for access in einsum.accesses_of(line.tensor):
        expr = access.projection[line.rank]
        yield expr.constant + sum(einsum.bound(v)[0] for v in expr.variables), access


def behind(einsums: Sequence[Einsum], line: CarriedRank) -> Behind:
    """What the tile that some Einsums touch together holds of the generation before."""
    found = [pair for e in einsums for pair in reads(e, line)]
    last = max(place for place, _ in found)
    before = {bool(a.guard) for place, a in found if place == last - 1}
    if any(place < last - 1 for place, _ in found) or len(before) > 1:
        raise NotSeparable(
            f"{line.tensor} is read of several generations before, which has no closed form",
            "use engine exact",
        )
    if any(a.guard for place, a in found if place == last):
        if before or not all(a.guard for _, a in found):
            raise NotSeparable(
                f"{line.tensor} is read of several generations before, which has no closed form",
                "use engine exact",
            )
        return "lacking"
    return "" if not before else "later" if before == {True} else "each"


def first_behind(einsums: Sequence[Einsum], line: CarriedRank) -> str:
    """The first Einsum that reads the generation before, of those that share a tile."""
    last = max(place for e in einsums for place, _ in reads(e, line))
    return next(e.name for e in einsums for place, _ in reads(e, line) if place < last)


def with_generations(space: Space, line: CarriedRank, held: Behind) -> Space:
    """The space of a tile that holds what is said of the generation before."""
    variables = space.access.projection[line.rank].variables
    if not held or not variables:
        return space
    return _along(space, CarriedDimension(line.rank, variables[0], held), line.alone)


def _is_one_instance(space: Space, axis: int) -> bool:
    """Whether a loop in space has one instance: its tile is as large as any of those that enclose it."""
    own, v = space.axes[axis], space.axes[axis].variable
    above = [space.axes[i] for i in space.of(v) if i < axis]
    if not own.spatial or any(a.start is not None for a in (own, *above)) or not isinstance(own.tile, int):
        return False
    return any(isinstance(n, int) and own.tile >= n for n in (space.extent(v), *(a.tile for a in above)))


def _along(space: Space, carried: CarriedDimension, alone: Set[int] = frozenset()) -> Space:
    v = carried.variable
    spread = [i for i in space.of(v) if not (space.axes[i].node in alone and space.axes[i].start is None)]
    axes = [space.axes[i] for i in spread if not _is_one_instance(space, i)]
    if any(a.spatial or a.start is not None for a in axes) or v in space.tied or space.window(v) is not None:
        raise NotSeparable(
            f"{space.access.tensor} is carried forward over {v}, which is spread over instances, has a first "
            "tile of its own, or is tied to another rank variable",
            "use engine exact",
        )
    return replace(space, carried=carried)


def tied_generations(space: Space) -> Space:
    """The same tiles, told without what is carried: by points of a group of variables.

    What an iteration reads and what it writes are elements of one rank with a variable more, 0 for the
    generation before and 1 for its own, that no loop runs over. Points of the first iteration are left out
    as `behind` says.
    """
    carried = space.carried
    assert carried is not None
    v, extent = carried.variable, space.extent(carried.variable)
    if not isinstance(extent, int):
        raise begins_again(space)
    if carried.behind in ("lacking", "first"):
        bound = (1, -1) if carried.behind == "lacking" else (-1, 0)
        group = TiedGroup((v,), Region((extent,), (bound,)))
        return replace(space, carried=None, listed=(*space.listed, group))
    own = f"{space.access.tensor}.before"
    group = TiedGroup((v, own), Region((extent, 2), ((1, 1, -1),) if carried.behind == "later" else ()))
    projection = list(space.access.projection)
    projection[carried.rank] += Affine(((own, 1),), -1)
    einsum = replace(
        space.einsum,
        rank_variables=(*space.einsum.rank_variables, own),
        bounds=(*space.einsum.bounds, (0, 1)),
    )
    access = replace(space.access, projection=tuple(projection))
    return replace(space, einsum=einsum, access=access, carried=None, listed=(*space.listed, group))


def counted(count: Count, space: Space, uses: Uses) -> Form:
    """What `count` counts, with what tiles hold of the generation before."""
    assert space.carried is not None
    if space.carried.behind == "first":
        return count(space.before, _at_first(space, uses))
    result = count(space.alone, uses)
    if space.carried.behind != "lacking":
        result = result + count(space.before, uses)
    return result if space.carried.behind == "each" else result - count(space.before, _at_first(space, uses))


def _at_first(space: Space, uses: Uses) -> Uses:
    """At the first tile of the variable along which a tensor is carried."""
    return {i: "merge" if i in space.generations else use for i, use in uses.items()}


def more_later(space: Space) -> Form:
    """1 if the largest tile of a variable holds an element of the generation before."""
    assert space.carried is not None
    if space.carried.behind == "each":
        return number(1)
    if not space.generations:
        return Form()
    levels = tuple(space.axes[i].level("each") for i in space.generations)
    return of_atom(FullAgain(space.extent(space.carried.variable), levels))


def generation_stays(carried: Stays, space: Space, axis: int, uses: Uses, sliding: bool) -> Form:
    """What `carried` says stays of a tensor that is carried forward: over a step of its variable, what the
    later tile holds of the generation before; over steps of others the whole tile."""
    assert space.carried is not None
    moves, inside = axis in space.generations, any(i > axis for i in space.generations)
    if space.carried.behind == "first":
        if moves:
            return Form()
        if inside:
            return carried(tied_generations(space), axis, uses, sliding)
        return carried(space.before, axis, _at_first(space, uses), sliding)
    if not (moves and space.carried.behind == "lacking") and (
        space.carried.behind == "lacking" or (not sliding and inside)
    ):
        return carried(tied_generations(space), axis, uses, sliding)
    result = carried(space.alone, axis, uses, sliding)
    if space.carried.behind == "lacking":
        return result
    result = result + carried(space.before, axis, uses, sliding)
    if moves or space.carried.behind == "each":
        return result
    return result - carried(space.before, axis, _at_first(space, uses), sliding)
