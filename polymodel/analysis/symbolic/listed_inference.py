"""The path of an inferred Einsum whose executed iterations are listed value by value (`needed_sets`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.forms import ChainSize, Larger, Spanned, names_in, size_in
from polymodel.analysis.symbolic.regions import NeededRegion, Region
from polymodel.analysis.symbolic.spaces import LoopAxis, TiedGroup, Window, groups, terms_of
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Tie, ties
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum

Image = tuple[int, ...] | None
# For values of own variables, the terms in the consumer's variables and the constant.
Images = Mapping[str, tuple[tuple[tuple[str, int], ...], int]]


@dataclass(frozen=True)
class Above:
    """The loops that decide what executes, outermost first, and the place of the intermediate's storage among
    them.

    `kinds`: how the Einsum is tied to each; `theirs`: the same loops over variables of the consumer, followed
    by loops further in that decide what the consumer executes. `home`: the number of loops above the storage;
    `reuse`: its policy.
    """

    axes: tuple[LoopAxis, ...]
    kinds: tuple[Tie, ...]
    theirs: tuple[LoopAxis, ...]
    home: int
    reuse: Reuse


@dataclass(frozen=True)
class ConsumerPoints:
    """The consumer.

    `einsum`: its Einsum; `windows`, `listed`: its executed iterations, as far as they are not a box;
    `widths`: the widest windows of its variables below the loops that decide.
    """

    einsum: Einsum
    windows: Mapping[str, Window]
    listed: tuple[TiedGroup, ...]
    widths: Mapping[str, ChainSize]

    def bound(self, variable: str) -> tuple[int, int]:
        """The lowest value, and the number of values, of a variable or of a loop that does not bind the
        consumer."""
        if variable in self.einsum.rank_variables:
            low, high = self.einsum.bound(variable)
            return low, high - low + 1
        return 0, self.windows[variable].extent

    def together(self, names: Sequence[str]) -> list[TiedGroup]:
        """Return the groups of some variables; a variable without a group is a group of its own."""
        every = [*self.listed, *groups(self.einsum)]
        result: dict[tuple[str, ...], TiedGroup] = {}
        for v in names:
            group = next((g for g in every if v in g.variables), None)
            group = group or TiedGroup((v,), Region((self.bound(v)[1],), ()))
            result[group.variables] = group
        return list(result.values())


def listed_groups(einsum: Einsum, tensor: str, reader: ConsumerPoints, above: Above) -> tuple[TiedGroup, ...]:
    """The executed iterations of an inferred Einsum, without rank variables of which all values execute.

    They are the product of these groups. There are none if everything executes.
    """
    access, output = reader.einsum.access_of(tensor), einsum.outputs[0]
    deciding = {a.variable for a in above.theirs}
    tied = {v for g in (*reader.listed, *groups(reader.einsum)) for v in g.variables}
    bound = {a.variable for a, kind in zip(above.axes, above.kinds, strict=True) if kind == "bound"}
    cut = bound | {v for g in groups(einsum) for v in g.variables}
    images: dict[str, tuple[tuple[tuple[str, int], ...], int]] = {}
    for mine, expr in zip(output.projection, access.projection, strict=True):
        terms = [(v, c) for v, c in mine.terms if c]
        if len(terms) != 1 or terms[0][1] != 1:
            raise NotSeparable(
                f"{einsum.name} makes {tensor} along {mine}, not a rank variable of its own",
                code="unsupported-inference",
            )
        v = terms[0][0]
        needs = tuple((w, c) for w, c in expr.terms if c)
        shift = expr.constant - mine.constant - einsum.bound(v)[0]
        shift += sum(c * reader.bound(w)[0] for w, c in needs)
        touched = {w for w, _ in needs}
        extent = einsum.bound(v)[1] - einsum.bound(v)[0] + 1
        whole = len(needs) == 1 and needs[0][1] == 1 and shift == 0 and reader.bound(needs[0][0])[1] == extent
        if not whole or touched & (deciding | tied | set(reader.windows)) or v in cut:
            images[v] = needs, shift
    return tuple(_group(einsum, reader, *part) for part in _factors(einsum, reader, above, images))


def _factors(
    einsum: Einsum, reader: ConsumerPoints, above: Above, images: Images
) -> Iterator[tuple[Above, Images]]:
    """The factors of what executes: loops and own variables that are independent of those of the other
    factors.

    What an operation needs is a product over the factors, and so are the stamps at which an element is
    needed: the first of them is the first one along each factor. An element stays from the previous visit if
    it was held along each factor; a single factor decides that if no other one has a loop above the storage.
    """
    own, theirs = _closed(einsum, list(images)), [a.variable for a in above.theirs]
    wanted = [w for needs, _ in images.values() for w, _ in needs]
    together: list[set[tuple[str, str]]] = [{("own", v)} for v in own]
    together += [{("own", v), *(("theirs", w) for w, _ in needs)} for v, (needs, _) in images.items()]
    together += [{("own", v) for v in names & set(own)} for names in _tied_names(einsum)]
    together += [{("theirs", w) for w in g.variables} for g in reader.together([*theirs, *wanted])]
    for axis, kind, w in zip(above.axes, above.kinds, theirs, strict=False):
        if kind == "bound" and axis.variable in own:
            together.append({("own", axis.variable), ("theirs", w)})
    if above.reuse.carries:
        together.append({("theirs", w) for w in theirs[: above.home]})
    for names in _merged(together):
        chosen = [i for i, w in enumerate(theirs) if ("theirs", w) in names]
        mine = [i for i in chosen if i < len(above.axes)]
        part = Above(
            tuple(above.axes[i] for i in mine),
            tuple(above.kinds[i] for i in mine),
            tuple(above.theirs[i] for i in chosen),
            sum(i < above.home for i in chosen),
            above.reuse,
        )
        needed = {v: image for v, image in images.items() if ("own", v) in names}
        if part.theirs or needed:
            yield part, needed


def _merged(sets: Iterable[set[tuple[str, str]]]) -> list[set[tuple[str, str]]]:
    """The sets, with those that have something in common merged."""
    result: list[set[tuple[str, str]]] = []
    for one in sets:
        apart = [other for other in result if not other & one]
        result = [*apart, one.union(*(other for other in result if other & one))]
    return result


def _group(einsum: Einsum, reader: ConsumerPoints, above: Above, images: Images) -> TiedGroup:
    own = _closed(einsum, list(images))
    wanted = [w for needs, _ in images.values() for w, _ in needs]
    sources = reader.together([*(a.variable for a in above.theirs), *wanted])
    names = [w for g in sources for w in g.variables]
    extents = [n for g in sources for n in g.region.extents]
    image: list[Image] = []
    for v in own:
        if v not in images:
            image.append(None)
            continue
        coefficients, shift = dict(images[v][0]), images[v][1]
        image.append((*(coefficients.get(w, 0) for w in names), shift))
    loops = tuple(names.index(a.variable) for a in above.theirs)
    over = [names[k] for k in dict.fromkeys(loops)]
    width = len(own) + len(over)
    bounds = set()
    for g in groups(einsum):
        for *factors, constant in g.region.bounds if set(g.variables) <= set(own) else ():
            row = [0] * width
            for v, factor in zip(g.variables, factors, strict=True):
                row[own.index(v)] = factor
            bounds.add((*row, constant))
    mine = [einsum.bound(v)[1] - einsum.bound(v)[0] + 1 for v in own]
    region = NeededRegion(
        (*mine, *(extents[names.index(w)] for w in over)),
        tuple(sorted(bounds)),
        len(own),
        tuple(g.region for g in sources),
        loops,
        _binds(einsum, above, own, image),
        tuple(a.spatial for a in above.theirs),
        tuple(image),
        above.home,
        len(above.axes),
        above.reuse,
    )
    variables = (*own, *(named(reader.einsum, w) for w in over))
    widths = tuple((v, _width(einsum, v, images[v][0], reader, above)) for v in own if v in images)
    renamed = [replace(a, variable=named(reader.einsum, a.variable)) for a in above.theirs]
    depth = len(above.axes)
    return TiedGroup(variables, region, tuple(renamed[:depth]), widths, tuple(renamed[depth:]))


def _width(
    einsum: Einsum, v: str, needs: tuple[tuple[str, int], ...], reader: ConsumerPoints, above: Above
) -> ChainSize:
    """The widest window of a variable below the tiles of the consumer, treated as boxes."""
    low, high = einsum.bound(v)
    mine = [a for a, kind in zip(above.axes, above.kinds, strict=True) if kind == "bound" and a.variable == v]
    terms = tuple((abs(factor), reader.widths.get(w, reader.bound(w)[1])) for w, factor in needs)
    return Spanned((high - low + 1, *map(_largest_tile, mine[-1:])), terms)


def widest_windows(problem: Problem, name: str, depth: int) -> dict[str, ChainSize]:
    """The widest window of each variable of an Einsum inside its outermost `depth` loops, with everything
    treated as boxes: its tiles, or, if one of these loops infers the Einsum, what its consumer needs."""
    cascade, tree = problem.cascade, problem.tree
    einsum, kinds = cascade[name], ties(cascade, tree, name)
    loops = [(i, LoopAxis(n.variable_in(name), n.tile_shape, n, i)) for i, n in tree.loops(name)[:depth]]
    result: dict[str, ChainSize] = {}
    for v in einsum.rank_variables:
        mine = [a for i, a in loops if kinds[i] == "bound" and a.variable == v]
        low, high = einsum.bound(v)
        result[v] = _largest_tile(mine[-1]) if mine else high - low + 1
    if not any(kinds[i] == "inferred" for i, _ in loops):
        return result
    for output in einsum.outputs:
        readers = [e for e in cascade.consumers(output.tensor) if e.name in tree.paths and e.name != name]
        if len(readers) != 1:
            continue
        above = {i for i, _ in loops}  # its loops further in do not bind the reader
        theirs = widest_windows(
            problem, readers[0].name, sum(i in above for i, _ in tree.loops(readers[0].name))
        )
        access = readers[0].access_of(output.tensor)
        for rank, expr in zip(output.projection, access.projection, strict=True):
            low, high = einsum.bound(rank.variables[0]) if rank.variables else (0, 0)
            if len(rank.variables) == 1:
                terms = tuple((abs(c), theirs[w]) for w, c in expr.terms if c)
                v = rank.variables[0]
                result[v] = Spanned(tuple(dict.fromkeys((high - low + 1, result[v]))), terms)
    return result


def _largest_tile(axis: LoopAxis) -> ChainSize:
    return axis.tile if axis.start is None else Larger(axis.tile, axis.start)


def _closed(einsum: Einsum, own: list[str]) -> list[str]:
    """Some variables, and those coupled with them by bounds or by ranks of several variables."""
    result, together = list(own), _tied_names(einsum)
    while True:
        more = [v for names in together if names & set(result) for v in sorted(names) if v not in result]
        if not more:
            return result
        result += list(dict.fromkeys(more))


def _tied_names(einsum: Einsum) -> list[set[str]]:
    """Sets of variables of one bound, or of one rank."""
    result = [set(g.variables) for g in groups(einsum)]
    for access in einsum.accesses:
        every = [{v for v, _ in terms_of(einsum, e)} for e in access.projection]
        result += [names for names in every if len(names) > 1]
    return result


def _binds(einsum: Einsum, above: Above, own: list[str], image: Sequence[Image]) -> tuple[int, ...]:
    """For each deciding loop, the own variable that it cuts as well, or -1."""
    result = []
    for axis, kind in zip(above.axes, above.kinds, strict=True):
        v = axis.variable
        if kind != "bound":
            result.append(-1)
        elif v in own and image[own.index(v)] is not None:
            result.append(own.index(v))
        else:
            low, high = einsum.bound(v)
            if axis.start is not None or not isinstance(axis.tile, int) or axis.tile < high - low + 1:
                raise NotSeparable(
                    f"the loop over {v} above the one that decides what {einsum.name} executes cuts a "
                    "variable that its result does not have",
                    code="unsupported-inference",
                )
            result.append(-1)
    return (*result, *[-1] * (len(above.theirs) - len(result)))


def runs_once_inside(einsum: Einsum, listed: Sequence[TiedGroup], axis: LoopAxis) -> bool:
    """Whether a loop inside the deciding ones has one trip in the widest window."""
    low, high = einsum.bound(axis.variable)
    widths = {v: width for group in listed for v, width in group.widths}
    width = widths.get(axis.variable, high - low + 1)
    if any(True for _ in names_in((width,))) or not isinstance(axis.tile, int) or axis.start is not None:
        return False
    return axis.tile >= int(size_in(width, {}))


def named(consumer: Einsum, variable: str) -> str:
    """The producer's name for a variable of the consumer that a deciding loop is over."""
    return variable if "." in variable else f"{consumer.name}.{variable}"


def listed_windows(
    einsum: Einsum, group: TiedGroup, above: Above, reader: ConsumerPoints
) -> tuple[tuple[str, Window], ...]:
    """The group's variables as windows around everything that may execute."""
    assert isinstance(group.region, NeededRegion)
    depth, result = len(above.axes), []
    for v, extent in zip(group.variables, group.region.extents, strict=True):
        if v in einsum.rank_variables:
            result.append((v, Window(extent, einsum.bound(v)[0], 1, 0, (), depth)))
        else:
            loops = [i for i, a in enumerate(above.theirs) if named(reader.einsum, a.variable) == v]
            result.append((v, Window(extent, 0, 1, 0, tuple((i, 0) for i in loops), depth)))
    return tuple(result)
