"""Each tensor in each storage node, for mappings that the closed forms cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.counts import (
    check_tied,
    moving,
    settled,
    span,
    symbols_refused,
    tied_loops,
    tied_signature,
    whole_rank,
)
from polymodel.analysis.symbolic.forms import Form, number
from polymodel.analysis.symbolic.generations import (
    behind,
    carried_lines,
    first_reader_of_previous,
    of_one_access,
    only_at_first,
    reads,
    tied_generations,
    tile_along_several,
    with_generations,
)
from polymodel.analysis.symbolic.inferred import Path, Undecided, paths
from polymodel.analysis.symbolic.spaces import (
    CarriedDimension,
    CarriedRank,
    LoopAxis,
    Space,
    TiedGroup,
    Unions,
    Window,
    check_space,
    cuts,
)
from polymodel.analysis.symbolic.strides import only_every
from polymodel.analysis.symbolic.tied_groups import (
    accesses_joined,
    loosened,
    runs_through,
    untouched,
    with_choice,
)
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop, StorageNode, storage_chain, users
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum, TensorAccess


@dataclass(frozen=True)
class SymbolicBuffet:
    """One tensor in one storage node. `space`: that of its first user; all users touch the same tiles."""

    id: int
    component: str
    tensor: str
    reuse: Reuse
    parent: int | None
    users: tuple[str, ...]
    space: Space
    producer: str | None

    @property
    def depth(self) -> int:
        """The number of loops above it."""
        return len(self.space.axes)

    @property
    def parts_stay(self) -> bool:
        """Whether parts of windows stay when a loop advances and loops further in wrap."""
        return self.reuse.stays_over("outer")


@dataclass(frozen=True)
class SymbolicLayout:
    """All buffets of a problem, and each Einsum's whole path.

    By Einsum: `decided`: the number of loops that decide what it executes, if these do not all bind it,
    otherwise 0; `windows`: what it then executes; `inferred`: only for Einsums that execute what consumers
    need, the loops (by position) in whose first iteration only they execute; `unions`: the accesses that
    stand for several elements of a tensor; `listed`: for inferred Einsums, the variables whose executed
    values are listed; `choices`: the bounds between several elements of a tensor that it reads and its rank
    variables. By loop (node id): `mixed`: loops that Einsums run within different bounds; `uneven`: loops in
    which some Einsum below does not execute in every iteration or instance. `spaces`: cached spaces, with the
    counts made in them; `further`: those of stamps and of single accesses.
    """

    problem: Problem
    nodes: dict[tuple[int, str], SymbolicBuffet]
    paths: dict[str, tuple[LoopAxis, ...]]
    executed: dict[str, tuple[LoopAxis, ...]]
    decided: dict[str, int]
    windows: dict[str, tuple[tuple[str, Window], ...]]
    inferred: dict[str, frozenset[int]]
    sizes: tuple[tuple[str, str], ...] = ()
    lines: Mapping[str, CarriedRank] = field(default_factory=dict)
    unions: Mapping[str, Unions] = field(default_factory=dict)
    mixed: frozenset[int] = frozenset()
    listed: Mapping[str, tuple[TiedGroup, ...]] = field(default_factory=dict)
    uneven: frozenset[int] = frozenset()
    choices: Mapping[str, Mapping[str, TiedGroup]] = field(default_factory=dict)
    spaces: dict[tuple[str, str, int | None], Space] = field(default_factory=dict)
    further: dict[tuple[str, TensorAccess | tuple[LoopAxis, ...]], Space] = field(default_factory=dict)

    def chain(self, einsum: str, tensor: str) -> tuple[SymbolicBuffet, ...]:
        """The buffets of a tensor on an Einsum's path, outermost first (of a copy only the backing one)."""
        steps = storage_chain(self.problem.tree, einsum, tensor)
        if self.problem.cascade[einsum].is_copy:
            steps = steps[:1]
        return tuple(self.nodes[s.id, tensor] for s in steps)

    def space(self, einsum: str, tensor: str, depth: int | None = None) -> Space:
        """Stamps over the first `depth` loops, with the elements at each; None: the Einsum's operations."""
        key = einsum, tensor, depth
        if key not in self.spaces:
            one = self.problem.cascade[einsum]
            axes = self.executed[einsum] if depth is None else self.paths[einsum][:depth]
            touch = self.access(einsum, tensor)
            listed = self.listed.get(einsum, ())
            found = Space(one, touch, axes, self.sizes, self.windows[einsum], listed=listed)
            choice = self.choices.get(einsum, {}).get(tensor)
            self.spaces[key] = found if choice is None else with_choice(found, choice)
        return self.spaces[key]

    def access(self, einsum: str, tensor: str) -> TensorAccess:
        """The access of an Einsum to all elements of a tensor that one operation touches."""
        return self.unions.get(einsum, {}).get(tensor) or self.problem.cascade[einsum].access_of(tensor)

    def read(self, einsum: str, access: TensorAccess) -> Space:
        """The Einsum's operations and the elements that one access reads."""
        key = einsum, access
        if key not in self.further:
            listed = self.listed.get(einsum, ())
            space = replace(self.space(einsum, access.tensor), access=access, listed=listed)
            plain = not access.guard and not access.stands_for
            self.further[key] = space if plain else of_one_access(space, self.lines.get(access.tensor))
        return self.further[key]

    def is_filled(self, einsum: str, child: SymbolicBuffet | None) -> bool:
        """Whether a fill is booked here: an input's to its first user; none if it is produced below the
        child."""
        if child is None:
            return True
        if child.producer in self.inferred:
            return True  # with what was computed at earlier stamps
        return child.producer is None and child.users[0] == einsum

    def is_filled_from_before(self, einsum: str, child: SymbolicBuffet | None) -> bool:
        """Whether the fill of the previous generation, where the tensor is computed below the child, is
        booked here: it goes to the first Einsum that reads it."""
        if child is None or child.producer is None:
            return False
        if child.space.carried is None:
            return child.space.made is not None
        users = [self.problem.cascade[e] for e in child.users]
        return first_reader_of_previous(users, self.lines[child.tensor]) == einsum

    def stamps(self, einsum: str, axes: tuple[LoopAxis, ...]) -> Space:
        """Stamps of one Einsum over some of its loops, without elements."""
        key = einsum, axes
        if key not in self.further:
            one, listed = self.problem.cascade[einsum], self.listed.get(einsum, ())
            access = TensorAccess("", (), ())
            self.further[key] = Space(one, access, axes, self.sizes, self.windows[einsum], listed=listed)
        return self.further[key]

    def bits(self, tensor: str) -> int:
        """Bits per value of a tensor: those of its first access in cascade order."""
        return self.problem.cascade.accesses_of(tensor)[0].bits_per_value


def under_policy(problem: Problem, reuse: Reuse | None) -> SymbolicLayout:
    """All buffets under a policy; None for their own. Counts under one policy are reused under the others,
    since their layouts have the same spaces unless a policy also decides what executes."""
    try:
        own = _under_own(problem)
    except (NotSeparable, Undecided):
        return lay_out(problem, reuse)
    if reuse is None:
        return own
    if any(own.decided.values()) or own.inferred or any(own.windows.values()) or any(own.listed.values()):
        return lay_out(problem, reuse)
    return replace(own, nodes={key: replace(node, reuse=reuse) for key, node in own.nodes.items()})


@lru_cache(maxsize=1)  # a report evaluates one problem under every policy
def _under_own(problem: Problem) -> SymbolicLayout:
    return lay_out(problem, None)


def lay_out(
    problem: Problem,
    reuse: Reuse | None,
    ranks: Mapping[str, str] | None = None,
    single: Mapping[int, bool] | None = None,
    points: bool = False,
) -> SymbolicLayout:
    """All buffets. Raises NotSeparable for mappings without closed forms. `ranks`: rank variable -> symbol
    that stands for its extent. `single`: for loops (by node id), whether they have a single trip, where
    symbols do not decide it; raises Undecided for other loops on which the layout depends. `points`: what
    executes of inferred Einsums is listed even if it is a product of intervals."""
    tree = problem.tree
    lines = carried_lines(problem) if problem.cascade.shifted else {}
    for name in tree.einsums:
        if ranks:
            _check_ranks(problem.cascade[name])
        check_space(problem.cascade[name], lines, _joined(problem.cascade[name], lines)[1])
    mixed, uneven = tied_loops(problem)
    _check_loops(problem, bool(ranks))
    found = paths(problem, reuse, single or {}, points)
    check_tied(problem, {e: _deciding(p) for e, p in found.items()})
    problem = _in_strides(problem, found)
    axes = {e: path.axes for e, path in found.items()}
    for path in axes.values():
        _check_instances(path)
    decided = {e: path.depth for e, path in found.items()}
    windows = {e: path.windows for e, path in found.items()}
    if ranks and any(windows.values()):
        raise symbols_refused("Einsums are inferred")
    executed = {e: axes[e] + _offsets(problem.cascade[e], found[e], ranks or {}) for e in tree.einsums}
    for tensor in lines:
        if any(decided[e] for e in tree.einsums if tensor in problem.cascade[e].tensors):
            message = f"{tensor} is carried forward by Einsums that loops infer or repeat"
            raise NotSeparable(message, code="unsupported-recurrence")
    inferred = {e: path.once for e, path in found.items() if path.inferred}
    sizes = tuple((ranks or {}).items())
    joined = [_joined(e, lines) for e in problem.cascade]
    problem = replace(problem, cascade=replace(problem.cascade, einsums=tuple(e for e, _, _ in joined)))
    unions = {e.name: every for e, every, _ in joined}
    layout = SymbolicLayout(
        problem, {}, axes, executed, decided, windows, inferred, sizes, lines, unions, mixed,
        {e: path.groups for e, path in found.items()}, uneven, {e.name: tied for e, _, tied in joined},
    )  # fmt: skip
    for node_id, node, _ in tree.walk():
        if isinstance(node, StorageNode):
            for tensor in node.tensors:
                made = _node(layout, node_id, node, tensor, reuse)
                if made is not None:
                    layout.nodes[node_id, tensor] = made
    return layout


def _joined(
    einsum: Einsum, lines: Mapping[str, CarriedRank]
) -> tuple[Einsum, Unions, Mapping[str, TiedGroup]]:
    """One access to all elements of each tensor that an operation reads at several."""
    several = any(len(einsum.accesses_of(t)) > 1 for t in einsum.tensors)
    return accesses_joined(einsum, lines) if several else (einsum, {}, {})


def _deciding(path: Path) -> set[int]:
    """The loops (by node id) that decide what executes, where that is a product of intervals."""
    return set() if path.groups else {a.node for a in path.axes[: path.depth]}


def _in_strides(problem: Problem, found: Mapping[str, Path]) -> Problem:
    """The problem with each Einsum in terms of only those of its values that execute."""
    if not any(path.strides for path in found.values()):
        return problem
    reduced = {e: (dict(path.strides), dict(path.windows)) for e, path in found.items()}
    einsums = tuple(only_every(e, *reduced[e.name]) if e.name in reduced else e for e in problem.cascade)
    return replace(problem, cascade=replace(problem.cascade, einsums=einsums))


def _node(
    layout: SymbolicLayout, node_id: int, node: StorageNode, tensor: str, reuse: Reuse | None
) -> SymbolicBuffet | None:
    problem = layout.problem
    result, parent, producer = [], None, None
    for einsum in users(problem.tree, node_id):
        one = problem.cascade[einsum]
        if tensor not in one.tensors:
            continue
        ids = [s.id for s in storage_chain(problem.tree, einsum, tensor)]
        if one.is_copy and ids[0] != node_id:
            continue
        result.append(einsum)
        place = ids.index(node_id)
        parent = ids[place - 1] if place else None
        if one.access_of(tensor).output:
            producer = einsum
    if not result:
        return None
    depth = sum(1 for a in layout.paths[result[0]] if a.node < node_id)
    readers = [e for e in result if e != producer]
    inferred = producer in layout.inferred
    # What an inferred Einsum computes is part of what its consumer touches.
    spaces = [layout.space(e, tensor, depth) for e in (readers if inferred and readers else result)]
    if any(a.node in layout.mixed for a in spaces[0].axes):
        spaces = [loosened(space) for space in spaces]
    check_visits(layout, result, depth)
    line = layout.lines.get(tensor)
    if line is not None and producer is not None:
        spaces.insert(0, layout.space(producer, tensor, depth))
    if line is None:  # what is computed holds what others read of it
        spaces.sort(key=lambda space: space.einsum.name != producer)
    for other in spaces[1:]:
        made = line is None and spaces[0].einsum.name == producer
        if tile_signature(other, line) != tile_signature(spaces[0], line) and not (
            made and _holds(spaces[0], other)
        ):
            raise NotSeparable(
                f"{spaces[0].einsum.name} and {other.einsum.name} touch different tiles of {tensor} in "
                f"{node.component}",
                f"give {tensor} storage of its own in the branch of each of them, or use engine exact",
                code="unsupported-memory",
            )
    space = spaces[0]
    if line is not None and line.several is not None:
        space = tile_along_several(spaces, line, producer is not None)
    elif line is not None:
        space = _with_generations(problem, space, line, result, producer)
    elif space.access.stands_for:
        space = only_at_first(space)
    policy = reuse or node.reuse
    return SymbolicBuffet(node_id, node.component, tensor, policy, parent, tuple(result), space, producer)


def _with_generations(
    problem: Problem, space: Space, line: CarriedRank, users: Sequence[str], producer: str | None
) -> Space:
    """The tile of a tensor that is carried forward, which all its users touch together."""
    variables = space.access.projection[line.rank].variables
    looped = any(space.of(v) for v in variables)
    if producer is not None and not looped:
        return space  # whatever is read was computed in the same visit
    mine = [problem.cascade[e] for e in users]
    generations = {frozenset((place, bool(access.guard)) for place, access in reads(e, line)) for e in mine}
    if producer is None and len(generations) > 1:  # fills are booked to the first user
        raise NotSeparable(
            f"{users[0]} and others read {line.tensor} of different generations",
            code="unsupported-recurrence",
        )
    ranges = {e.access_of(line.tensor).projection[line.rank].variables for e in mine}
    if len(users) > 1 and not looped and () in ranges:
        raise NotSeparable(
            f"{users[0]} and {users[1]} read {line.tensor} of different generations",
            code="unsupported-recurrence",
        )
    return with_generations(space, line, behind(mine, line))


def check_visits(layout: SymbolicLayout, einsums: Sequence[str], depth: int) -> None:
    """Refuse storage that Einsums share below a loop of which one runs more iterations than another."""
    spaces = [layout.stamps(e, layout.paths[e]) for e in einsums]
    for i in range(depth):
        loop = spaces[0].axes[i].loop
        plain = [s for s in spaces if s.window(s.axes[i].variable) is None]
        node = spaces[0].axes[i].node
        bounded = node in layout.uneven and not all(runs_through(layout.problem, e, node) for e in einsums)
        ways = {(iteration_keys(s, i), tied_signature(s) if bounded else ()) for s in plain}
        if loop is not None and len(ways) > 1 and any(settled(s, i).constant != 1 for s in spaces):
            raise other_ranges(tuple(einsums), loop, "within other bounds" if bounded else "in other ranges")


def iteration_keys(space: Space, axis: int) -> tuple[object, ...]:
    """Return a key of the iterations of a loop: equal if two Einsums have the same iterations."""
    v = space.axes[axis].variable
    return (str(space.extent(v)), *(i for i in space.of(v) if i < axis))


def _holds(one: Space, other: Space) -> bool:
    """True if at every stamp everything that the other Einsum touches is in the tile of the one that produces
    it."""
    if is_whole_tile(one):
        return True
    if one.tied or other.tied or other.sizes:
        return False
    for mine, theirs in zip(one.access.projection, other.access.projection, strict=True):
        whole = whole_rank(one, mine)
        ends = [(c, span(other, v)) for v, c in theirs.terms]
        low = theirs.constant + sum(c * first for c, (first, _) in ends)
        high = low + sum(c * (count - 1) for c, (_, count) in ends)
        inside = whole is not None and all(c >= 0 for c, _ in ends) and whole[0] <= low and high <= whole[1]
        if not inside and _rank_signature(one, mine) != _rank_signature(other, theirs):
            return False
    return True


def is_whole_tile(space: Space) -> bool:
    """Whether an Einsum that is not inferred touches all its elements of a tensor at every stamp."""
    if space.sizes or space.windows or space.listed:
        return False
    names = set(space.access.variables)
    names |= {v for g in space.groups if names & set(g.variables) for v in g.variables}
    return not any(moving(space, v) for v in names)


def tile_signature(space: Space, line: CarriedRank | None = None) -> tuple[object, ...]:
    """What decides which elements are touched at which stamp: equal signatures, equal tiles.

    `line`: the carried rank of a tensor; along it, tiles need only be moved by the same loops.
    """
    ranks: list[tuple[object, ...]] = []
    for rank, expr in enumerate(space.access.projection):
        if line is None or rank not in line.ranks:
            ranks.append(_rank_signature(space, expr))
            continue
        nodes = [tuple(space.axes[i].node for i in space.of(v)) for v in expr.variables]
        ranks.append(tuple(n for n in nodes if n))
    return (*ranks, *tied_signature(space))


def _rank_signature(space: Space, expr: Affine) -> tuple[object, ...]:
    whole = whole_rank(space, expr)
    if whole is not None:
        return whole
    return (expr.constant, *(facts for facts, _ in _rank_terms(space, expr)))


def _rank_terms(space: Space, expr: Affine) -> list[tuple[tuple[object, ...], int | str]]:
    """Return the terms that determine each rank variable of a rank, and its extent."""
    parts: list[tuple[tuple[object, ...], int | str]] = []
    for v, c in expr.terms:
        low, high = space.einsum.bound(v)
        window, nodes = space.window(v), tuple(space.axes[i].node for i in moving(space, v))
        if window is not None and (window.scale, window.start) == (1, 0):
            low, high, window = window.low, window.low + window.extent - 1, None
        parts.append(((c, low, high, nodes, repr(window)), space.extent(v)))
    return sorted(parts, key=lambda part: (*part[0], str(part[1])))


def same_extents(layout: SymbolicLayout) -> Iterator[tuple[int | str, int | str, str]]:
    """Extents that the layout assumes equal, as they are in the spec, and the tensor or loop that requires
    it: tiles and ranges that Einsums share under variables of different names."""
    if not layout.sizes:
        return
    for node in layout.nodes.values():
        first, *others = (layout.space(e, node.tensor, node.depth) for e in node.users)
        for other in others:
            for mine, theirs in zip(first.access.projection, other.access.projection, strict=True):
                if len(mine.terms) != len(theirs.terms):
                    continue  # the last generation of a tensor that is carried forward
                terms = zip(_rank_terms(first, mine), _rank_terms(other, theirs), strict=True)
                yield from ((a, b, node.tensor) for (_, a), (_, b) in terms if a != b)
    cascade = layout.problem.cascade
    for node_id, loop, _ in layout.problem.tree.walk():
        if isinstance(loop, Loop):
            every = [(e, loop.variable_in(e)) for e in users(layout.problem.tree, node_id)]
            sizes = [layout.stamps(e, ()).extent(v) for e, v in every if v in cascade[e].rank_variables]
            yield from ((sizes[0], s, f"the loop over {loop.rank_variable}") for s in sizes if s != sizes[0])


def _check_ranks(einsum: Einsum) -> None:
    """If extents are symbols, refuse spaces that are not boxes, and ranks of more than two rank variables."""
    for _ in cuts(einsum):
        raise symbols_refused(f"the iteration space is not a box ({einsum.name})")
    for access in einsum.accesses:
        if any(len(e.terms) > 2 for e in access.projection):
            raise symbols_refused(
                f"a rank of {access.tensor} in {einsum.name} has more than two rank variables"
            )


def check_box(einsum: Einsum) -> None:
    """Refuse spaces that are not boxes."""
    for c in cuts(einsum):
        raise NotSeparable(
            f"the iteration space of {einsum.name} is not a box: {c}", code="unsupported-space"
        )
    check_space(einsum)


def other_ranges(einsums: tuple[str, ...], loop: Loop, how: str = "in other ranges") -> NotSeparable:
    return NotSeparable(
        f"{' and '.join(einsums)} run the loop over {loop.rank_variable} {how}", code="unsupported-loop"
    )


def _check_loops(problem: Problem, named: bool) -> None:
    """Refuse loops that Einsums begin at different values. If sizes are symbols, also loops that they run in
    different ranges: extents are symbols (`named`), or loops further out over the variable differ."""
    cascade, tree = problem.cascade, problem.tree
    loops = [node for _, node, _ in tree.walk() if isinstance(node, Loop)]
    symbols = named or any(isinstance(x, str) for n in loops for x in (n.tile_shape, n.initial_tile_shape))
    for node_id, node, _ in tree.walk():
        if not isinstance(node, Loop):
            continue
        if node.uneven:
            own = ", ".join(e for e, _ in (*node.tiles, *node.first_tiles))
            raise NotSeparable(
                f"the loop over {node.rank_variable} has tile sizes of its own for {own}",
                code="unsupported-loop",
            )
        ranges = {}
        for e in users(tree, node_id):
            variable = node.variable_in(e)
            if variable in cascade[e].rank_variables:
                above = tuple(i for i, x in tree.loops(e) if i < node_id and x.variable_in(e) == variable)
                ranges[cascade[e].bound(variable), above] = e
        apart = len({above for _, above in ranges}) > 1 or named
        if len({low for (low, _), _ in ranges}) > 1 or (len(ranges) > 1 and symbols and apart):
            raise other_ranges(tuple(ranges.values()), node)


def _check_instances(axes: tuple[LoopAxis, ...]) -> None:
    """Refuse spatial loops whose busiest instance may vary."""
    for i, a in enumerate(axes):
        if a.spatial and a.grows and any(b.variable == a.variable and not b.spatial for b in axes[:i]):
            raise NotSeparable(
                f"the spatial loop over {a.variable} has a first tile that may be smaller than others, "
                f"below a temporal loop over {a.variable}",
                "make initial_tile_shape larger than tile_shape, or use engine exact",
                code="unsupported-loop",
            )


def _offsets(einsum: Einsum, path: Path, ranks: Mapping[str, str]) -> tuple[LoopAxis, ...]:
    """The offsets inside innermost tiles, which run one by one. An extent of 1 has a single offset; if the
    extent is a symbol there may be more, whatever its value in the spec."""
    result = []
    inferred = dict(path.windows)
    for v in einsum.rank_variables:
        low, high = einsum.bound(v)
        begin = path.depth if v in inferred else 0
        inner = [a for a in path.axes[begin:] if a.variable == v][-1:]
        if any((a.start, a.tile) != (None, 1) for a in inner) or (not inner and (high > low or v in ranks)):
            result.append(LoopAxis(v, 1, None, -1))
    return tuple(result)


Carry = dict[int, Form]


def carries(layout: SymbolicLayout, einsum: str, chain: tuple[SymbolicBuffet, ...]) -> tuple[Carry, ...]:
    """Per buffet of a chain: loop position -> form that is 1 where elements stay over its steps.

    docs/semantics.md, Carry: an element that is written stays only while the parent keeps it.
    """
    result: list[Carry] = []
    for place, node in enumerate(chain):
        inferred = node.producer in layout.inferred
        own = policy(node)
        if inferred and node.producer == einsum:
            # In this case what it computes at a deciding stamp is held nowhere.
            own = {a: form for a, form in own.items() if a >= layout.decided[einsum]}
        if node.producer is not None and place:
            above, reach = result[-1], chain[place - 1].depth
            own = {
                a: form if a >= reach else form * above.get(a, Form())
                for a, form in own.items()
                if a >= reach or a in above
            }
        if node.producer is not None and not place and not inferred:
            # Whatever was written to the backing node stays there.
            own = {a: number(1) for a in temporal(node.space)}
        result.append({a: form for a, form in own.items() if form != Form()})
    return tuple(result)


def policy(node: SymbolicBuffet) -> Carry:
    """The node's own policy: loop position -> 1 where it lets elements stay."""
    space = node.space
    if not node.reuse.carries:
        return {}
    if node.reuse.stays_over("outer"):
        return {a: number(1) for a in temporal(space)}
    result: Carry = {}
    further_in = number(1)  # 1 if the tile depends on none of the loops further in
    for a in reversed(list(temporal(space))):
        from_here = further_in * _independent(space, a)
        result[a] = further_in if node.reuse.stays_over("moving") else from_here
        further_in = from_here
    return result


def _independent(space: Space, axis: int) -> Form:
    """1 where the tile does not depend on the loop at `axis`."""
    if space.axes[axis].variable in space.tied:
        return untouched(space, axis)
    if space.carried is not None and axis in space.generations:
        return _independent_generations(space, space.carried, axis)
    return settled(space, axis) if space.axes[axis].variable in space.access.variables else number(1)


def _independent_generations(space: Space, carried: CarriedDimension, axis: int) -> Form:
    """The same for a tensor that is carried forward: iterations that touch nothing of it are no visits. If
    extents are symbols and some iterations touch nothing, staying over other loops is refused."""
    if carried.is_product and carried.behind == "first":
        return number(1)  # there is one tile
    everywhere = carried.is_product and carried.behind != "lacking"
    if everywhere or not isinstance(space.extent(carried.variable), int):
        return settled(space, axis)
    return untouched(tied_generations(space), axis)


def temporal(space: Space) -> Iterator[int]:
    """Positions of the temporal loops above a node."""
    return (i for i, a in enumerate(space.axes) if not a.spatial)
