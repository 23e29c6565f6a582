"""Whether every consumer finds what it reads and every sum is complete: the reference for the legality
check."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from polymodel.analysis.enumerate.buffets import BuffetWalk, Chains, build_buffets
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.walk import EinsumWalk, Element, Place, Time, points
from polymodel.analysis.result import Problem
from polymodel.reuse import override


@dataclass(frozen=True)
class OrderViolation:
    """`consumer` reads `element` of `tensor` before `producer` has written it, or where it has not written
    it.

    Both are the same Einsum if one of its own sums is never completed.
    """

    producer: str
    consumer: str
    tensor: str
    element: Element
    reason: str


def phases_of(walks: dict[str, EinsumWalk]) -> dict[Time, int]:
    """Every operation time with its position in the global order."""
    return {t: i for i, t in enumerate(sorted({o.time for w in walks.values() for o in w.operations}))}


def _use_times(walk: EinsumWalk, tensor: str, writes: bool) -> dict[Element, tuple[Time, Time]]:
    """First and last operation time at which the Einsum writes (else reads) each element."""
    times: dict[Element, tuple[Time, Time]] = {}
    for op, x in walk.touches(tensor, writes):
        first, last = times.get(x, (op.time, op.time))
        times[x] = (min(first, op.time), max(last, op.time))
    return times


def _read_too_early(producer: EinsumWalk, consumer: EinsumWalk, tensor: str) -> OrderViolation | None:
    """Return an element that is read before its last production, or is never produced."""
    made, read = _use_times(producer, tensor, True), _use_times(consumer, tensor, False)
    names = producer.einsum.name, consumer.einsum.name, tensor
    for x in sorted(read):
        if x not in made:
            return OrderViolation(*names, x, "it is never produced")
        if made[x][1] >= read[x][0]:
            return OrderViolation(*names, x, "it is read before all operations that produce it")
    return None


def _missing_at_visit(buffet: BuffetWalk, producer: str, consumer: str) -> OrderViolation | None:
    """An element that a consumer reads at a visit of its backing node that does not hold it."""
    made: dict[Element, set[tuple[Place, Time]]] = {}
    for t, places in buffet.tiles.items():
        for p, tile in places.items():
            for x, use in tile.items():
                if use.written:
                    made.setdefault(x, set()).add((p, buffet.run[t][p][x]))
    for t in buffet.visits:
        for p, tile in sorted(buffet.tiles[t].items()):
            for x in sorted(tile):
                if consumer in tile[x].readers and made.get(x) != {(p, buffet.run[t][p][x])}:
                    reason = f"storage node {buffet.node} ({buffet.component}) does not hold all of it then"
                    return OrderViolation(producer, consumer, buffet.tensor, x, reason)
    return None


def _broken_dependence(
    made: EinsumWalk, read: EinsumWalk, tensor: str, chains: Chains
) -> OrderViolation | None:
    """The first broken dependence of one tensor between two Einsums."""
    producer, consumer = made.einsum.name, read.einsum.name
    home = chains[producer, tensor][0]
    again = made.decided != (0, 0)
    late = None if again else _read_too_early(made, read, tensor)
    if late:
        return late
    if chains[consumer, tensor][0] is not home:
        element = min(_use_times(read, tensor, False))
        return OrderViolation(producer, consumer, tensor, element, "they share no storage node of it")
    if again:
        return _incomplete_read(home, made, read, tensor)
    shared = (b for b in chains[producer, tensor][1:] if b in chains[consumer, tensor])
    result = [
        _missing_at_visit(home, producer, consumer),
        *(_unfinished(b, producer, consumer) for b in shared),
    ]
    return next((f for f in result if f), None)


def _incomplete_read(
    home: BuffetWalk, made: EinsumWalk, read: EinsumWalk, tensor: str
) -> OrderViolation | None:
    """An element that is executed repeatedly, and that a read finds missing or incomplete."""
    position = made.einsum.accesses.index(made.einsum.access_of(tensor))
    whole = _operation_counts(made, position)
    last: dict[tuple[Place, Element, Time], Time] = {}
    held: dict[tuple[Place, Element, Time], int] = defaultdict(int)
    names = made.einsum.name, read.einsum.name, tensor
    for o, x in made.touches(tensor, writes=True):
        p = o.place[: home.n_place]
        run = home.run[o.time[: home.n_time]][p][x]
        last[p, x, run] = max(o.time, last.get((p, x, run), o.time))
        held[p, x, run] += 1
    for o, x in read.touches(tensor, writes=False):
        p = o.place[: home.n_place]
        run = home.run[o.time[: home.n_time]][p][x]
        finished = last.get((p, x, run))
        if finished is None or held[p, x, run] % whole[x]:
            reason = f"storage node {home.node} ({home.component}) does not hold all of it then"
            return OrderViolation(*names, x, reason)
        if finished >= o.time:
            return OrderViolation(*names, x, "it is read before all operations that produce it")
    return None


def _unfinished(buffet: BuffetWalk, producer: str, consumer: str) -> OrderViolation | None:
    """An element that a consumer reads in one instance while a run that wrote it continues in another.

    The parts of a sum are combined at the parent, when the runs that hold them have ended.
    """
    last: dict[Element, dict[tuple[Place, Time], Time]] = {}
    wrote: set[tuple[Element, Place, Time]] = set()
    for t in buffet.visits:
        for p, tile in buffet.tiles[t].items():
            for x, use in tile.items():
                run = buffet.run[t][p][x]
                last.setdefault(x, {})[p, run] = t
                if use.written:
                    wrote.add((x, p, run))
    for t in buffet.visits:
        for p, tile in sorted(buffet.tiles[t].items()):
            for x in sorted(x for x, use in tile.items() if consumer in use.readers):
                begun = buffet.run[t][p][x]
                if any(q != p and e >= begun and (x, q, b) in wrote for (q, b), e in last[x].items()):
                    reason = (
                        f"other instances of node {buffet.node} ({buffet.component}) still hold parts of it"
                    )
                    return OrderViolation(producer, consumer, buffet.tensor, x, reason)
    return None


def _split_sum(buffet: BuffetWalk, producer: str) -> OrderViolation | None:
    """An element that the producer writes in several instances of its backing node."""
    where: dict[Element, Place] = {}
    for places in buffet.tiles.values():
        for p, tile in sorted(places.items()):
            for x in sorted(tile):
                if tile[x].written and where.setdefault(x, p) != p:
                    reason = f"instances of storage node {buffet.node} ({buffet.component}) hold parts of it"
                    return OrderViolation(producer, producer, buffet.tensor, x, reason)
    return None


def _unreduced(problem: Problem, walks: dict[str, EinsumWalk], chains: Chains) -> OrderViolation | None:
    """An output that several instances sum along a dimension that may not reduce it."""
    for (einsum, tensor), chain in chains.items():
        walk = walks[einsum]
        access = walk.einsum.access_of(tensor)
        if not access.output or walk.einsum.is_copy:
            continue
        for position in range(chain[0].n_place, len(walk.spatial)):
            loop = walk.spatial[position]
            if loop.variable in access.variables or loop.variable not in walk.einsum.rank_variables:
                continue  # instances execute different elements
            dim = problem.hierarchy[loop.component].dim(loop.dim)
            if not dim.reuses(einsum, tensor) and len({o.place[position] for o in walk.operations}) > 1:
                _, element = next(walk.touches(tensor, writes=True))
                reason = f"instances sum it up along {loop.component}.{loop.dim}, which may not reduce it"
                return OrderViolation(einsum, einsum, tensor, element, reason)
    return None


def _incomplete_element(walk: EinsumWalk) -> OrderViolation | None:
    """An element that lacks one of its operations: no stamp of the loops above includes that operation."""
    if walk.lacking is None:
        return None
    point = dict(zip(walk.einsum.rank_variables, walk.lacking, strict=True))
    output, name = walk.einsum.outputs[0], walk.einsum.name
    element = tuple(e.value(point) for e in output.projection)
    return OrderViolation(name, name, output.tensor, element, "some operations that produce it never execute")


def _operation_counts(walk: EinsumWalk, position: int) -> dict[Element, int]:
    """The number of operations that produce each element of the access at `position`."""
    whole: dict[Element, int] = defaultdict(int)
    for values in points(walk.einsum):
        point = dict(zip(walk.einsum.rank_variables, values, strict=True))
        whole[tuple(e.value(point) for e in walk.einsum.accesses[position].projection)] += 1
    return whole


def _partially_produced(walk: EinsumWalk) -> OrderViolation | None:
    """An element that some stamp of the loops above produces only in part, although results start afresh at
    each stamp."""
    if walk.decided == (0, 0):
        return None
    times, places = walk.decided
    for access in walk.einsum.outputs:
        position = walk.einsum.accesses.index(access)
        whole = _operation_counts(walk, position)
        touched = walk.touches(access.tensor, writes=True)
        done = Counter((o.time[:times], o.place[:places], x) for o, x in touched)
        for (_, _, x), count in sorted(done.items()):
            if count != whole[x]:
                reason = "an iteration of the loops above produces only a part of it"
                return OrderViolation(walk.einsum.name, walk.einsum.name, access.tensor, x, reason)
    return None


def _repeated_accumulation(walk: EinsumWalk) -> OrderViolation | None:
    """An Einsum that adds to existing values, below a loop that does not bind it."""
    for access in walk.einsum.outputs:
        if access.accumulates and walk.decided != (0, 0) and walk.operations:
            _, element = next(walk.touches(access.tensor, writes=True))
            reason = "it would be added to in every iteration of a loop above"
            return OrderViolation(walk.einsum.name, walk.einsum.name, access.tensor, element, reason)
    return None


def first_violation(problem: Problem, walks: dict[str, EinsumWalk], chains: Chains) -> OrderViolation | None:
    """The first rule that the mapping violates, None if it is legal."""
    for alone in (_incomplete_element, _partially_produced, _repeated_accumulation):
        result = next((f for f in map(alone, walks.values()) if f), None)
        if result:
            return result
    for tensor in problem.cascade.tensors:
        producer = problem.cascade.producer(tensor)
        if producer is None or producer.name not in walks:
            continue
        once = walks[producer.name].decided == (0, 0) and not producer.is_copy
        apart = None if not once else _split_sum(chains[producer.name, tensor][0], producer.name)
        if apart:
            return apart
        for consumer in problem.cascade.consumers(tensor):
            if consumer.name not in walks:
                continue
            result = _broken_dependence(walks[producer.name], walks[consumer.name], tensor, chains)
            if result:
                return result
    return _unreduced(problem, walks, chains)


def violation(problem: Problem, reuse: str | None = None) -> OrderViolation | None:
    """The first rule that a problem violates, by enumeration, None if it is legal.

    Raises Refused only for what cannot be enumerated at all.
    """
    policy = override(reuse)
    walks = walk_all(problem, policy)
    _, chains = build_buffets(problem, walks, phases_of(walks), policy)
    return first_violation(problem, walks, chains)
