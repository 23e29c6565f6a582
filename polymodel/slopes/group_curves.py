"""Curves of groups of Einsums that are tiled fused, or run head by head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from polymodel.errors import Refused
from polymodel.slopes.curves import NOTHING, Curve, CurveLeaf, at_once, in_turn, leaf, lowest
from polymodel.slopes.einsum_mappings import (
    BACKING,
    WHOLE,
    EinsumStructure,
    GraphSetting,
    OperationChoice,
    operation_curve,
)
from polymodel.slopes.fused_graph import FusedGraph, Kinds, Member, SharedTensor, TensorTiling

# Whether Einsums that share fused loops can run in some order: a legality rule for groups with cycles.
# Einsums that pass on tiles of a tensor run in the same iterations of the loops above those tiles, so that
# they share these loops, as does any Einsum that shares loops with both. So the group is a tree of loops and
# branches. A tensor passed on at some depth is complete, or needed, only per iteration of that many loops:
# its consumer may not share a further loop with its producer, and the branches below those loops may not wait
# for each other in a cycle.


@dataclass(frozen=True)
class Handed:
    """A tensor that is passed on below `depth` loops; `producer` is None for a workload input."""

    name: str
    depth: int
    producer: int | None
    users: tuple[int, ...]


def nesting_fault(tensors: Iterable[Handed]) -> str:
    """Return why the Einsums cannot run in shared loops like this; "" if they can."""
    handed = tuple(tensors)
    deepest = max((t.depth for t in handed), default=0)
    for depth in range(1, deepest + 1):
        branch = _branches(handed, depth + 1)
        for t in handed:
            if t.depth == depth and t.producer is not None:
                inside = [u for u in t.users if u != t.producer and branch[u] == branch[t.producer]]
                if inside:
                    return f"a consumer of {t.name} would run before all of its tile is made"
        after: dict[int, set[int]] = {}
        for t in handed:
            if t.depth == depth and t.producer is not None:
                after.setdefault(branch[t.producer], set()).update(
                    branch[u] for u in t.users if u != t.producer
                )
        if _cyclic(after):
            return f"branches below {depth} shared loops wait for one another"
    return ""


def _branches(handed: tuple[Handed, ...], depth: int) -> dict[int, int]:
    """Return, per Einsum, the number of its branch: Einsums that share this many loops have the same one."""
    import networkx

    graph: networkx.Graph = networkx.Graph()
    for t in handed:
        graph.add_nodes_from(t.users)
        if t.depth >= depth:
            graph.add_edges_from(zip(t.users, t.users[1:], strict=False))
    return {u: min(part) for part in networkx.connected_components(graph) for u in part}


def _cyclic(after: dict[int, set[int]]) -> bool:
    import networkx

    graph = networkx.DiGraph([(a, b) for a, later in after.items() for b in later])
    return not networkx.is_directed_acyclic_graph(graph)


def on_cycles(tensors: Iterable[Handed]) -> frozenset[str]:
    """Return tensors on a cycle of Einsums and tensors; others cannot make a nest illegal."""
    import networkx

    graph: networkx.Graph = networkx.Graph()
    graph.add_edges_from((t.name, u) for t in tensors for u in t.users)
    bridges = set(map(frozenset, networkx.bridges(graph)))
    return frozenset(t.name for t in tensors if any(frozenset((t.name, u)) not in bridges for u in t.users))


Option = tuple[tuple[str, TensorTiling], ...]
MOST_OPTIONS = 10_000  # of one Einsum
MOST_CURVES = 20_000  # of all Einsums
FEWER = "give fewer sizes in `tiles`, or equal_outer_sizes=False (a lower bound) without partial_overlap"
Group = tuple[int, ...]


@dataclass(frozen=True)
class EinsumChoice:
    """The mapping of one Einsum. Loops are (rank variable, tile size), outermost first.

    `fused`: loops above tiles of tensors that Einsums pass on; `order`: loops below. `held`: per tensor
    without traffic, the number of fused loops above its storage (0: it is held whole). `uneven`: tensors
    stored right below the fused loops; those neither here nor in `held` are stored below all loops. `freed`:
    the number of fused loops in whose iterations (heads) the buffer is freed.
    """

    einsum: str
    fused: tuple[tuple[str, int], ...]
    order: tuple[tuple[str, int], ...]
    held: tuple[tuple[str, int], ...]
    uneven: tuple[str, ...]
    freed: int = 0


@dataclass(frozen=True, eq=False)
class _Named:
    """Descriptions of an operation's mappings by the names of one Einsum. `held`: as in EinsumChoice."""

    member: Member
    setting: GraphSetting
    held: tuple[tuple[str, int], ...]
    source: CurveLeaf

    def __call__(self, point: int) -> EinsumChoice:
        choice = self.source.describe(point)
        assert isinstance(choice, OperationChoice)
        names, tensors = self.member.variables, self.member.einsum.tensors
        return EinsumChoice(
            self.member.einsum.name,
            tuple((names[v], t) for v, t in choice.fused),
            tuple((names[v], choice.tiles[v]) for v in choice.order),
            self.held,
            tuple(tensors[i] for i in sorted(choice.uneven)),
            self.setting.freed,
        )


@dataclass(frozen=True, eq=False)
class GroupCurves:
    """Cached curves of one graph: groups with the same first Einsums share partial results."""

    graph: FusedGraph
    _options: dict[tuple[int, frozenset[str]], tuple[Option, ...]] = field(default_factory=dict)
    _loops: dict[tuple[int, str], list[tuple[TensorTiling, tuple[str, ...]]]] = field(default_factory=dict)
    _made: set[tuple[EinsumStructure, GraphSetting]] = field(default_factory=set)
    _curves: dict[tuple[object, ...], dict[Option, Curve]] = field(default_factory=dict)

    def curve(self, group: Group, kinds: Kinds) -> Curve | None:
        """Return accesses over footprint of a group, both without tensors held whole. None if their fused
        loops are incompatible."""
        shared = [t for t in self._touched(group) if kinds[t.name] == "headed"]
        if not shared:
            apart = [t for t in self._touched(group) if kinds[t.name] != "tiled" and t.producer in group]
            complete = not any(u in group for t in apart for u in t.users if u != t.producer)
            return self._tiled(group, kinds, 0) if complete else None
        lead = max(len(self.graph.members[i].outermost) for i in group)
        if any(len(t.heads) != lead for t in shared):
            return None
        return self._head_by_head(group, kinds, lead)

    def _head_by_head(self, group: Group, kinds: Kinds, lead: int) -> Curve | None:
        """Return the curve if one head runs after another, and within it one part after another, each of
        Einsums that pass on tiles.

        A head's slice of a tensor that parts exchange is held from the part that produces it to the last
        user's.
        """
        parts = self._parts(group, kinds)
        where = {i: n for n, part in enumerate(parts) for i in part}
        headed = [t for t in self._touched(group) if kinds[t.name] == "headed"]
        for t in self._touched(group):
            if kinds[t.name] == "tiled" or t.producer is None:
                continue
            users = [u for u in t.users if u in where and u != t.producer]
            if t.producer in where and any(where[u] <= where[t.producer] for u in users):
                return None
            if t.producer in where and users and len(t.heads) != lead:
                return None  # complete only when all heads are
        total: Curve | None = None
        for n, part in enumerate(parts):
            mine = self._tiled(part, kinds, lead)
            if mine is None:
                return None
            spans = [(t, [where[u] for u in t.users]) for t in headed]
            live = sum(t.slice for t, at in spans if min(at) <= n <= max(at))
            total = mine.raised(live) if total is None else in_turn(total, mine.raised(live))
        fetched = sum(t.times * t.elements for t in headed if t.producer is None)
        return None if total is None else total.raised(0, fetched)

    def _parts(self, group: Group, kinds: Kinds) -> list[Group]:
        """Return Einsums of the group connected by tiles, ordered by their last members."""
        import networkx

        tied: networkx.Graph = networkx.Graph()
        tied.add_nodes_from(group)
        for t in self._touched(group):
            if kinds[t.name] == "tiled":
                tied.add_edges_from(zip(t.users, t.users[1:], strict=False))
        return sorted((tuple(sorted(p)) for p in networkx.connected_components(tied)), key=max)

    def _touched(self, group: Group) -> list[SharedTensor]:
        return list({t.name: t for i in group for t in self.graph.touched(i)}.values())

    def _tiled(self, group: Group, kinds: Kinds, lead: int) -> Curve | None:
        handed = [t for t in self._touched(group) if kinds[t.name] == "tiled"]
        cyclic = on_cycles([Handed(t.name, 1, t.producer, t.users) for t in handed])
        result = self._partial(self._connected(group, kinds), kinds, cyclic, lead)
        legal = []
        for option, curve in result.items():
            depths = [(self.graph.shared[t], tiling.shared) for t, tiling in option]
            if not nesting_fault(Handed(t.name, d, t.producer, t.users) for t, d in depths):
                legal.append(curve)
        return lowest(legal) if legal else None

    def _connected(self, group: Group, kinds: Kinds) -> Group:
        """Return the group in an order in which each Einsum shares a tile with an earlier one."""
        order, left = [group[0]], set(group[1:])
        while left:
            near = {u for t in self._touched(tuple(order)) if kinds[t.name] == "tiled" for u in t.users}
            order.append(min(near & left))
            left.remove(order[-1])
        return tuple(order)

    def _partial(self, order: Group, kinds: Kinds, cyclic: frozenset[str], lead: int) -> dict[Option, Curve]:
        """Return curves of the first Einsums of a group, for each way to tile the tensors that others also
        use, and those in `cyclic`."""
        if not order:
            return {(): NOTHING}
        mine = {t.name: kinds[t.name] for t in self._touched(order)}
        key = (order, tuple(sorted(mine.items())), cyclic & frozenset(mine), lead)
        if key not in self._curves:
            self._curves[key] = self._grown(order, mine, cyclic, lead)
        return self._curves[key]

    def _grown(self, order: Group, kinds: Kinds, cyclic: frozenset[str], lead: int) -> dict[Option, Curve]:
        at, done, shared = order[-1], set(order), self.graph.shared
        tiled = frozenset(t.name for t in self.graph.touched(at) if kinds[t.name] == "tiled")
        headed = [t for t in self.graph.touched(at) if kinds[t.name] == "headed"]
        result: dict[Option, list[Curve]] = {}
        earlier = self._partial(order[:-1], kinds, cyclic, lead)
        open_names = [t for t, _ in next(iter(earlier), ())]
        common = [t for t in open_names if t in tiled]
        known: dict[tuple[TensorTiling, ...], list[tuple[dict[str, TensorTiling], Curve]]] = {}
        for before, curve in earlier.items():
            open_ = dict(before)
            known.setdefault(tuple(open_[t] for t in common), []).append((open_, curve))
        for option in self.options(at, tiled):
            chosen = dict(option)
            if lead and not self._starts_with_heads(at, option, headed, lead):
                continue
            fitting = known.get(tuple(chosen[t] for t in common), [])
            mine = self.operation_curve(at, kinds, option, lead) if fitting else NOTHING
            for open_, curve in fitting if len(mine) else ():
                every = open_ | chosen
                left = {t: r for t, r in every.items() if t in cyclic or not done >= set(shared[t].users)}
                new = [shared[t] for t in chosen if t not in open_]
                fetched = sum(t.times * t.elements for t in new if t.producer is None)
                joined = at_once(curve, mine).raised(0, fetched)
                result.setdefault(tuple(sorted(left.items())), []).append(joined)
        return {left: lowest(curves) for left, curves in result.items()}

    def _starts_with_heads(self, at: int, option: Option, headed: list[SharedTensor], lead: int) -> bool:
        member, graph = self.graph.members[at], self.graph
        result = {member.indexed(t.name, graph.head_tiling(t)) for t in headed}
        for t, tiling in option:
            if set(tiling.ranks[:lead]) != graph.shared[t].heads:
                return False
            result.add(member.indexed(t, tiling)[:lead])
        (loops, *others) = result
        return not others and loops[: len(member.outermost)] == member.outermost

    def options(self, at: int, tiled: frozenset[str]) -> tuple[Option, ...]:
        """Return the ways in which the fused loops of an Einsum may tile these tensors together.

        The loops above each tile must index its tensor, so that for any two tensors the loops above one are
        the outermost loops above the other; heads and batches are outermost.
        """
        key = at, tiled
        if key not in self._options:
            names = tuple(t for t in self.graph.members[at].einsum.tensors if t in tiled)
            result = tuple(islice(self._nested(at, names, (), ()), MOST_OPTIONS + 1))
            if len(result) > MOST_OPTIONS:
                raise Refused(
                    f"there are more than {MOST_OPTIONS} ways to tile {', '.join(names)} together in "
                    f"{self.graph.members[at].einsum.name}",
                    FEWER,
                    code="too-large",
                )
            self._options[key] = result
        return self._options[key]

    def _nested(
        self, at: int, names: tuple[str, ...], loops: tuple[str, ...], chosen: Option
    ) -> Iterator[Option]:
        member = self.graph.members[at]
        if not names:
            if not loops or loops[: len(member.outermost)] == member.outermost:
                yield chosen
            return
        for tiling, mine in self._tilings(at, names[0]):
            if mine[: len(loops)] == loops[: len(mine)]:
                longer = max(loops, mine, key=len)
                more: Option = (*chosen, (names[0], tiling))
                if not tiling.bounds or _consistent(_bounds(member, more)):
                    yield from self._nested(at, names[1:], longer, more)

    def _tilings(self, at: int, tensor: str) -> list[tuple[TensorTiling, tuple[str, ...]]]:
        """Return the ways to pass on a tensor, each with the rank variables of the loops above its tile in
        the Einsum."""
        key = at, tensor
        if key not in self._loops:
            every = self.graph.shared[tensor].tilings(self.graph.rules)
            self._loops[key] = [(t, self.graph.members[at].indexed(tensor, t)) for t in every]
        return self._loops[key]

    def operation_curve(self, at: int, kinds: Kinds, option: Option, lead: int) -> Curve:
        """Return accesses over footprint of one Einsum under these fused loops."""
        member = self.graph.members[at]
        setting, held = self._setting(at, kinds, option, lead)
        self._made.add((member.operation, setting))
        if len(self._made) > MOST_CURVES:
            raise Refused(
                f"there are more than {MOST_CURVES} ways to fix fused loops and sizes, each with a curve",
                FEWER,
                code="too-large",
            )
        result = operation_curve(member.operation, setting)
        (source,) = result.sources
        assert isinstance(source, CurveLeaf)
        return leaf(result.capacity, result.accesses, _Named(member, setting, held, source))

    def _setting(
        self, at: int, kinds: Kinds, option: Option, lead: int
    ) -> tuple[GraphSetting, tuple[tuple[str, int], ...]]:
        member = self.graph.members[at]
        loops: tuple[str, ...] = ()
        for t in self.graph.touched(at):
            if kinds[t.name] == "headed":
                loops = member.indexed(t.name, self.graph.head_tiling(t))
        for t_, tiling in option:
            loops = max(loops, member.indexed(t_, tiling), key=len)
        depths = {t_: len(member.indexed(t_, tiling)) for t_, tiling in option}
        away = {t for t, k in kinds.items() if k in ("whole", "headed")}
        held = tuple(WHOLE if t in away else depths.get(t, BACKING) for t in member.einsum.tensors)
        moving = frozenset(i for i, h in enumerate(held) if h == BACKING)
        uneven = frozenset(u & moving for u in member.uneven)
        numbers = tuple(map(member.variables.index, loops))
        depth_of = tuple(
            (t, lead if kinds.get(t) == "headed" else h)
            for t, h in zip(member.einsum.tensors, held, strict=True)
            if h != BACKING
        )
        return GraphSetting(numbers, held, uneven, lead, _bounds(member, option)), depth_of


def _consistent(bounds: tuple[tuple[int, int, bool], ...]) -> bool:
    """Return whether some number of iterations satisfies all bounds on a variable that has an exact one."""
    exact = {v: n for v, n, exactly in bounds if exactly}
    return all(exact[v] == n if exactly else exact.get(v, n) % n == 0 for v, n, exactly in bounds)


def _bounds(member: Member, option: Option) -> tuple[tuple[int, int, bool], ...]:
    """Return the bounds of tilings on the iterations of fused loops: (variable, number, whether exact)."""
    result: set[tuple[int, int, bool]] = set()
    for t, tiling in option:
        producer = member.einsum.access_of(t).output
        for n, (v, bound) in enumerate(zip(member.indexed(t, tiling), tiling.bounds, strict=False)):
            result.add((member.variables.index(v), bound, n < tiling.equal or not producer))
    return tuple(sorted(result))
