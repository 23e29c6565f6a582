"""The relation (time, space) -> data, kept as a product of independent factors.

`Touch` is the relation "at this stamp, Einsums below this node touch this element". Rank variables that share
no rank, no constraint and no loop are independent, so that the relation is a product of small ones. Each
factor is ISL text over `[p..., t..., x...]` (spatial counters, temporal counters, ranks), with canonical
names: equal shapes anywhere in a spec give equal text, so that they are parsed and counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop, LoopTree, users
from polymodel.polyhedra import needs, sets
from polymodel.polyhedra.nests import LinearInequality, LoopCut, Nest
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# Iteration spaces and loops in ISL's notation.


@lru_cache(maxsize=1024)
def essential_constraints(einsum: Einsum) -> tuple[Constraint, ...]:
    """The iteration space as its bounding box and the constraints that the box does not imply.

    Rank sizes of a halo (`p + r < H`) are usually implied; keeping them would tie p and r together.
    """
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    result = []
    for variable, (low, high) in box.items():
        result.append(Constraint(Affine(((variable, 1),), -low)))
        result.append(Constraint(Affine(((variable, -1),), high)))
    for constraint in einsum.constraints:
        least = constraint.expr.constant + sum(
            min(c * box[v][0], c * box[v][1]) for v, c in constraint.expr.terms
        )
        if constraint.kind != "ge" or least < 0:
            result.append(constraint)
    return tuple(result)


def _sum_text(parts: Iterable[tuple[int, str]], constant: int) -> str:
    text = "".join(f"{c:+d}*{n}" if n else f"{c:+d}" for c, n in parts if c)
    text = f"{text}{constant:+d}" if constant or not text else text
    return text.removeprefix("+")  # isl has no unary plus


def tile_sizes(loop: Loop) -> tuple[int, int | None]:
    """A loop's tile size, and that of its first tile if it has one. Raises Refused if it is a symbol."""
    if isinstance(loop.tile_shape, str) or isinstance(loop.initial_tile_shape, str):
        message = f"tile size {loop.tile_shape} is a symbol"
        raise Refused(message, "give it a value with bind() or --set", code="unbound-symbol")
    return loop.tile_shape, loop.initial_tile_shape


def chain(variable: str, loops: Sequence[tuple[str, Loop]], origin: int | str) -> list[tuple[list[str], str]]:
    """Alternatives (constraints, text of the innermost tile's start) for one variable's loops."""
    options: list[tuple[list[str], str]] = [([], f"{origin}")]
    for counter, loop in loops:
        tile, initial = tile_sizes(loop)
        grown: list[tuple[list[str], str]] = []
        for constraints, base in options:
            if initial is None or initial == tile:
                start = f"{base} + {tile}*{counter}"
                grown.append(
                    ([*constraints, f"{start} <= {variable} < {start} + {tile}", f"{counter} >= 0"], start)
                )
                continue
            first = f"{base} <= {variable} < {base} + {initial}"
            grown.append(([*constraints, f"{counter} = 0", first], base))
            start = f"{base} + {initial} - {tile} + {tile}*{counter}"
            later = f"{start} <= {variable} < {start} + {tile}"
            grown.append(([*constraints, f"{counter} >= 1", later], start))
        options = grown
    return options


def constraint_facts(einsum: Einsum, names: dict[str, str]) -> list[str]:
    """The constraints on these variables, which no constraint ties to others, as ISL text."""
    return [*_facts(einsum, tuple(names.items()))]


@lru_cache(maxsize=1024)
def _facts(einsum: Einsum, named: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    names, result = dict(named), []
    for constraint in essential_constraints(einsum):
        if constraint.expr.variables and constraint.expr.variables[0] in names:
            text = affine_in(constraint.expr, names)
            tail = {"ge": ">= 0", "eq": "= 0"}.get(constraint.kind)
            result.append(f"{text} {tail}" if tail else f"({text}) mod {constraint.modulus} = 0")
    return tuple(result)


def affine_in(expr: Affine, names: dict[str, str]) -> str:
    """The expression in ISL's notation, with the given names of its variables."""
    return _sum_text([(c, names[v]) for v, c in expr.terms], expr.constant)


# Factors as nests of tiles, equivalent to their ISL text, which are counted by classes.

Named = tuple[Nest | None, tuple[str, ...]]


def nest_of(views: Sequence[View], block: RankBlock, order: Sequence[int]) -> Named:
    """The nest of one block and its variables, if it is the same for all views; otherwise (None, ())."""
    nest, variables = _nest(views[0], block, order)
    if nest is None or any(_nest(view, block, order)[0] != nest for view in views[1:]):
        return None, ()
    # A nest does not record where its elements are: those of several views have to be the same.
    if len(views) > 1 and len({_first(view, block) for view in views}) > 1:
        return None, ()
    return nest, variables


def _first(view: View, block: RankBlock) -> tuple[int, ...]:
    """The element at the beginning of every variable's range."""
    begin = {v: view.einsum.bound(v)[0] for v in view.einsum.rank_variables}
    for _, loop, origin in reversed(view.loops):
        if loop.variable_in(view.einsum.name) in begin:
            begin[loop.variable_in(view.einsum.name)] = origin
    return tuple(view.access.projection[r].value(begin) for r in block.ranks)


def _nest(view: View, block: RankBlock, order: Sequence[int]) -> Named:
    if view.parts or view.versions or view.access.guard:
        return None, ()
    einsum, name = view.einsum, view.einsum.name
    ranges = zip(einsum.rank_variables, einsum.bounds, strict=True)
    boxes = {v: box for v, box in ranges if (name, v) in block.variables}
    variables = tuple(boxes)
    position = {v: i for i, v in enumerate(variables)}
    origins = {v: low for v, (low, _) in boxes.items()}
    bound = [loop.variable_in(name) for _, loop, _ in view.loops]
    for variable, (_, _, origin) in zip(reversed(bound), reversed(view.loops), strict=True):
        if variable in origins:
            origins[variable] = origin
    extents = tuple(high - origins[v] + 1 for v, (_, high) in boxes.items())
    bounds = _bounds(einsum, variables, tuple(origins.values()), extents)
    loops = []
    for k in order:
        if k >= len(bound):
            loops.append(LoopCut(position[view.offsets[k - len(bound)]], 1, 1))
            continue
        tile, first = tile_sizes(view.loops[k][1])
        loops.append(LoopCut(position[bound[k]], tile, tile if first is None else first))
    if bounds is None:
        return None, ()
    ranks = tuple(_row(view.access.projection[r], variables) for r in block.ranks)
    path = tuple(sorted(range(len(order)), key=lambda k: order[k]))
    nest = Nest(extents, tuple(loops), path, bounds, ranks)
    return (nest, variables) if nest.countable else (None, ())


def _row(expr: Affine, variables: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(expr.coefficient(v) for v in variables)


@lru_cache(maxsize=4096)
def _bounds(
    einsum: Einsum, variables: tuple[str, ...], origins: tuple[int, ...], extents: tuple[int, ...]
) -> tuple[LinearInequality, ...] | None:
    """The bounds that the box does not imply, relative to the origins; None if one is not an inequality."""
    result: dict[LinearInequality, None] = {}
    for constraint in essential_constraints(einsum):
        if not set(constraint.expr.variables) & set(variables):
            continue
        bound = _bound(constraint, variables, origins)
        if bound is None:
            return None
        reach = zip(bound.coefficients, extents, strict=True)
        if bound.constant + sum(min(c, 0) * (e - 1) for c, e in reach) < 0:
            result[bound] = None
    return tuple(result)


def _bound(
    constraint: Constraint, variables: tuple[str, ...], origins: tuple[int, ...]
) -> LinearInequality | None:
    if constraint.kind != "ge":
        return None
    row = _row(constraint.expr, variables)
    moved = sum(c * origin for c, origin in zip(row, origins, strict=True))
    return LinearInequality(row, constraint.expr.constant + moved)


# The elements that each stamp touches.

Vertex = tuple[str, str]


@dataclass(frozen=True)
class StampAxis:
    """One stamp coordinate: a loop (`node` is its id) or the offset of `variable` in its last tile."""

    node: int
    spatial: bool
    variable: str = ""
    component: str = ""
    dim: str = ""


@dataclass(frozen=True)
class ExecutedPart:
    """The executed part of an Einsum, for a class of its loops (node ids) and variables.

    `text`: set over [loops..., variables..., offset of each variable in its innermost tile...].
    """

    loops: tuple[int, ...]
    variables: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class View:
    """One Einsum's share of a node: its loops above the node with their origins, and its access.

    `parts`: what executes, if some loop binds no variable of the Einsum (all its loops and variables; empty
    if the iteration space and the loops determine it). `versions`: node ids of loops whose counters are also
    ranks, since elements are produced anew in each of their iterations.
    """

    einsum: Einsum
    access: TensorAccess
    loops: tuple[tuple[int, Loop, int], ...]
    offsets: tuple[str, ...] = ()
    parts: tuple[ExecutedPart, ...] = ()
    versions: tuple[int, ...] = ()

    def above(self, loops: int) -> View:
        """The same access, as seen by a node below the outermost `loops` loops."""
        return replace(self, loops=self.loops[:loops], offsets=())

    def bare(self, loops: int | None = None) -> View:
        """The stamps alone, without data; of the outermost `loops` loops, or all with offsets."""
        access = TensorAccess("", (), ())
        return replace(self if loops is None else self.above(loops), access=access, versions=())


def every_access(view: View) -> tuple[View, ...]:
    """The view once for each access of its tensor by its Einsum."""
    return tuple(replace(view, access=a) for a in view.einsum.accesses_of(view.access.tensor))


@dataclass(frozen=True)
class RankBlock:
    """One class of the partition of a tensor's ranks, its Einsums' variables and loops (node ids)."""

    ranks: tuple[int, ...]
    variables: frozenset[Vertex]
    loops: frozenset[int] = frozenset()

    def has(self, einsum: str, axis: StampAxis) -> bool:
        """True if a stamp coordinate of the Einsum belongs to this class."""
        return axis.node in self.loops if axis.node >= 0 else (einsum, axis.variable) in self.variables


@dataclass(frozen=True)
class Factor:
    """One factor: its block, positions of its spatial and temporal axes in `axes`, and its text.

    `nest`: the same as nested tiles of `variables`, if it is that for every Einsum below.
    """

    block: int
    spatial: tuple[int, ...]
    temporal: tuple[int, ...]
    ranks: tuple[int, ...]
    text: str
    nest: Nest | None = None
    variables: tuple[str, ...] = ()

    def of_text(self, text: str) -> Factor:
        """The factor with other points."""
        return replace(self, text=text, nest=None, variables=())


@dataclass(frozen=True)
class Touch:
    """The product of factors over the stamp `axes` (path order) and the ranks of one tensor."""

    axes: tuple[StampAxis, ...]
    factors: tuple[Factor, ...]

    @property
    def spatial(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.axes) if a.spatial)

    @property
    def temporal(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(self.axes) if not a.spatial)


def loop_origins(cascade: Cascade, tree: LoopTree, einsum: str) -> tuple[tuple[int, Loop, int], ...]:
    """The loops of an Einsum with the start of the range that each one tiles.

    The outermost loop over a variable starts at the smallest value that any Einsum below it takes; inner
    loops inherit that origin (0 for loops that bind none of its variables). With tiles per Einsum it starts
    at the smallest value of the Einsum's own variable.
    """
    origins: dict[str, int] = {}
    result = []
    for node, loop in tree.loops(einsum):
        variable = loop.variable_in(einsum)
        if variable not in cascade[einsum].rank_variables:
            result.append((node, loop, 0))
            continue
        if variable not in origins:
            below: Sequence[str] = [einsum] if loop.uneven else users(tree, node)
            lows = [
                cascade[e].bound(loop.variable_in(e))[0]
                for e in below
                if loop.variable_in(e) in cascade[e].rank_variables
            ]
            origins[variable] = min(lows)
        result.append((node, loop, origins[variable]))
    return tuple(result)


def inner_offsets(einsum: Einsum, loops: tuple[tuple[int, Loop, int], ...]) -> tuple[str, ...]:
    """Variables whose position inside their innermost tile is a time coordinate of its own."""
    result = []
    for variable in einsum.rank_variables:
        low, high = einsum.bound(variable)
        mine = [loop for _, loop, _ in loops if loop.variable_in(einsum.name) == variable]
        if not mine:
            if high > low:
                result.append(variable)
        elif any(t not in (1, None) for t in (mine[-1].tile_shape, mine[-1].initial_tile_shape)):
            result.append(variable)
    return tuple(result)


def partition(views: Sequence[View]) -> tuple[RankBlock, ...]:
    """Independent classes of the ranks and variables of one tensor over all Einsums that touch it."""
    return _partition(tuple(views))


@lru_cache(maxsize=1024)
def _partition(views: tuple[View, ...]) -> tuple[RankBlock, ...]:
    parent: dict[object, object] = {}

    def find(x: object) -> object:
        parent.setdefault(x, x)
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for view in views:
        name = view.einsum.name
        for variable in view.einsum.rank_variables:
            find((name, variable))
        for part in view.parts:
            together = [*((name, v) for v in part.variables), *(("loop", str(i)) for i in part.loops)]
            for other in together:
                parent[find(other)] = find(together[0])
        for constraint in () if view.parts else essential_constraints(view.einsum):
            names = constraint.expr.variables
            for variable in names[1:]:
                parent[find((name, variable))] = find((name, names[0]))
        for guard in view.access.guard:
            for variable in guard.expr.variables[1:]:
                parent[find((name, variable))] = find((name, guard.expr.variables[0]))
        for rank, expr in enumerate(view.access.projection):
            find(rank)
            for variable in expr.variables:
                parent[find((name, variable))] = find(rank)
        for node, loop, _ in () if view.parts else view.loops:
            parent[find(("loop", str(node)))] = find((name, loop.variable_in(name)))
    classes: dict[object, list[object]] = {}
    for x in parent:
        classes.setdefault(find(x), []).append(x)
    blocks = []
    for members in classes.values():
        ranks = tuple(sorted(x for x in members if isinstance(x, int)))
        variables = frozenset(
            (str(x[0]), str(x[1])) for x in members if isinstance(x, tuple) and x[0] != "loop"
        )
        ids = frozenset(int(x[1]) for x in members if isinstance(x, tuple) and x[0] == "loop")
        blocks.append(RankBlock(ranks, variables, ids))
    return _ordered(blocks)


def _ordered(blocks: Iterable[RankBlock]) -> tuple[RankBlock, ...]:
    """Blocks with ranks first, by rank; the others by name."""
    return tuple(sorted(blocks, key=lambda b: (not b.ranks, b.ranks, sorted(b.variables), sorted(b.loops))))


def axes_of(view: View) -> tuple[StampAxis, ...]:
    """The stamp coordinates of a view: its loops in path order, then offsets."""
    name, known = view.einsum.name, view.einsum.rank_variables
    loops = tuple(
        StampAxis(
            node, loop.spatial, v if (v := loop.variable_in(name)) in known else "", loop.component, loop.dim
        )
        for node, loop, _ in view.loops
    )
    return loops + tuple(StampAxis(-1, False, v) for v in view.offsets)


def executed_text(view: View, block: RankBlock, order: Sequence[int]) -> str:
    """The factor of `block` for an Einsum whose executed iterations are given as parts."""
    name = view.einsum.name
    if view.access.guard:
        raise Refused(
            f"{name} reads {view.access.tensor} from the first generation that is made on, and executes as "
            "other Einsums need it",
            "bind a rank variable of each of its loops",
            code="unsupported-recurrence",
        )
    mine = [
        p
        for p in view.parts
        if block.loops & set(p.loops) or any((name, v) in block.variables for v in p.variables)
    ]
    names: list[str] = []
    for k, part in enumerate(mine):
        names += [f"l{i}" for i in part.loops]
        names += [f"v{k}_{i}" for i in range(len(part.variables))]
        names += [f"o{k}_{i}" for i in range(len(part.variables))]
    variables = {v: f"v{k}_{i}" for k, part in enumerate(mine) for i, v in enumerate(part.variables)}
    outputs = []
    for position in order:
        if position < len(view.loops):
            outputs.append(f"l{view.loops[position][0]}")
        else:
            outputs.append(f"o{variables[view.offsets[position - len(view.loops)]][1:]}")
    outputs += [affine_in(view.access.projection[r], variables) for r in block.ranks]
    outputs += [f"l{i}" for i in view.versions if i in block.loops]
    relation = f"{{ [{', '.join(names)}] -> [{', '.join(outputs)}] }}"
    return needs.image(tuple(p.text for p in mine), relation)


def _bodies(view: View, block: RankBlock, counters: dict[int, str], ranks: dict[int, str]) -> list[str]:
    """Disjuncts of the factor of `block` for one Einsum; `counters`: by axis position of the view."""
    name = view.einsum.name
    mine = [v for v in view.einsum.rank_variables if (name, v) in block.variables]
    names = {v: f"v{i}" for i, v in enumerate(mine)}
    fixed = constraint_facts(view.einsum, names)
    for constraint in view.access.guard:
        if all(v in names for v in constraint.expr.variables):
            fixed.append(f"{affine_in(constraint.expr, names)} >= 0")
    for rank, dim in zip(block.ranks, ranks.values(), strict=False):
        fixed.append(f"{dim} = {affine_in(view.access.projection[rank], names)}")
    for version, dim in zip(_versions(view, block), list(ranks.values())[len(block.ranks) :], strict=True):
        position = next(i for i, (node, _, _) in enumerate(view.loops) if node == version)
        fixed.append(f"{dim} = {counters[position]}")
    options: list[list[str]] = [fixed]
    for variable in mine:
        loops = [
            (counters[i], loop)
            for i, (_, loop, _) in enumerate(view.loops)
            if loop.variable_in(name) == variable
        ]
        origin = next((o for _, loop, o in view.loops if loop.variable_in(name) == variable), 0)
        chains = chain(names[variable], loops, origin)
        if variable in view.offsets:
            offset = counters[len(view.loops) + view.offsets.index(variable)]
            chains = [(c + [f"{offset} = {names[variable]} - ({base})"], base) for c, base in chains]
        options = [a + c for a in options for c, _ in chains]
    head = f"exists {', '.join(names.values())} : " if names else ""
    return [f"{head}{' and '.join(o) or 'true'}" for o in options]


def _versions(view: View, block: RankBlock) -> list[int]:
    return [i for i in view.versions if i in block.loops]


@lru_cache(maxsize=8192)
def touch(views: tuple[View, ...], blocks: tuple[RankBlock, ...]) -> Touch:
    """The union of the views' touches as one product; the caller ensures that it is one.

    Views must be below the same node: their loops agree in number, order and ids.
    """
    axes = axes_of(views[0])
    factors = []
    for number, block in enumerate(blocks):
        mine = [i for i, axis in enumerate(axes) if block.has(views[0].einsum.name, axis)]
        versions = _versions(views[0], block)
        if not mine and not block.ranks and not versions:
            continue
        spatial = tuple(i for i in mine if axes[i].spatial)
        temporal = tuple(i for i in mine if not axes[i].spatial)
        order = [*spatial, *temporal]
        ranks = block.ranks + tuple(len(views[0].access.projection) + i for i in versions)
        text = _text(views, block, order, len(ranks))
        nest, variables = (None, ()) if versions else nest_of(views, block, order)
        factors.append(Factor(number, spatial, temporal, ranks, text, nest, variables))
    return Touch(axes, tuple(factors))


def _text(views: tuple[View, ...], block: RankBlock, order: list[int], ranks: int) -> str:
    """The union of one block's factors over the views, as ISL text."""
    counters = {i: f"c{k}" for k, i in enumerate(order)}
    data = {k: f"x{k}" for k in range(ranks)}
    head = f"[{', '.join([*counters.values(), *data.values()])}]"
    texts = [executed_text(view, block, order) for view in views if view.parts]
    bodies: dict[str, None] = {}
    for view in views:
        if not view.parts:
            for body in _bodies(view, block, counters, data):
                bodies[f"({body})"] = None
    if bodies:
        texts.append(f"{{ {head} : {' or '.join(bodies)} }}")
    return texts[0] if len(texts) == 1 else needs.union(tuple(texts))


def merge_blocks(blocks: tuple[RankBlock, ...], which: Iterable[int]) -> tuple[RankBlock, ...]:
    """The partition with the blocks at positions `which` merged."""
    chosen = sorted(set(which))
    ranks = tuple(sorted(r for i in chosen for r in blocks[i].ranks))
    variables = frozenset(v for i in chosen for v in blocks[i].variables)
    loops = frozenset(v for i in chosen for v in blocks[i].loops)
    rest = [b for i, b in enumerate(blocks) if i not in chosen]
    return _ordered([*rest, RankBlock(ranks, variables, loops)])


def joint_blocks(views: tuple[View, ...], blocks: tuple[RankBlock, ...]) -> tuple[RankBlock, ...]:
    """Merge blocks until the union of the views' touches is a product over them.

    A union of products is a product if at most one factor differs, or one view holds all others.
    """
    if len(views) < 2:
        return blocks
    whole = views[0]
    for view in views[1:]:
        pair = _pair_difference((whole, view), blocks)
        if len(pair) > 1:
            return joint_blocks(views, merge_blocks(blocks, pair))
    if len(views) > 2:
        differing = {i for view in views[1:] for i in _pair_difference((whole, view), blocks)}
        if len(differing) > 1:
            return joint_blocks(views, merge_blocks(blocks, differing))
    return blocks


def _pair_difference(pair: tuple[View, View], blocks: tuple[RankBlock, ...]) -> list[int]:
    """Positions of blocks in which two views' factors are different sets."""
    result = []
    for i, block in enumerate(blocks):
        one = touch((pair[0],), (block,)).factors
        two = touch((pair[1],), (block,)).factors
        if not one and not two:
            continue
        if one[0].text == two[0].text:
            continue
        if not sets.same(one[0].text, two[0].text):
            result.append(i)
    return result
