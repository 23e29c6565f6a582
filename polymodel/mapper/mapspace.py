"""The number of mappings in the search space, exactly and without a search, and what each pruning rule
removes.

A whole mapping has, for every Einsum, a compute unit, the memories of its tensors, the intermediates
exchanged inside the backing storage, the fused loops in order, the position of each storage node, and all
tile sizes and spatial spreads. Einsums are joined where their fused loops and exchanges agree. The order of
loops between two nodes does not count; capacities are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import product
from math import factorial, prod
from typing import TYPE_CHECKING, Any

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapper.counting import ChainTables, CountedShape, Joining, Sequences, arrangements
from polymodel.mapper.full_mappings import named_limits
from polymodel.mapper.join import lives_of, passing_of
from polymodel.mapper.pmappings import equal_shapes
from polymodel.mapper.records import Limits, SearchResult
from polymodel.mapper.request import Constraints, read_search_request
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.templates import Passing, Sharing, deepest, shapes
from polymodel.mapper.tile_chains import free_sizes
from polymodel.view.answer import Answer, Block, Line, Section, declared
from polymodel.view.table import Cell, Column, Table
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from polymodel.loading import Spec

Array = Any


def mapspace(spec: Spec, constraints: Constraints | None = None) -> Mapspace:
    """The search space of `explore` under these constraints; nothing is searched.

    `pm.mapspace(spec).size()` is the number of mappings; `.frame` shows what each pruning rule removes.
    Raises SpecError for a spec without workload or architecture and for wrong constraints, and Refused for
    what the search does not cover.
    """
    from polymodel.loading.spec import Spec, files_of
    from polymodel.spec.faults import not_a_spec

    if not isinstance(spec, Spec):
        raise not_a_spec("mapspace", spec)
    asked = read_search_request(spec, None, constraints, None, None, 1, None)
    if of_loops := [r.written for r in asked.request.limits.rules if not r.spatial]:
        message = f"mappings under rules on temporal loops are not counted ({'; '.join(of_loops)})"
        remedy = "leave these rules out of what is counted, or explore with them"
        raise Refused(message, remedy, code="unsupported-constraint")
    besides = {
        "spatial_sizes: all": asked.request.limits.spatial_sizes == "all",
        "halos": bool(asked.request.limits.halos),
        "moves": bool(asked.request.limits.moves),
    }
    for key in (k for k, given in besides.items() if given):
        what = f"mappings that `{key}` adds are not counted"
        remedy = f"leave `{key}` out of what is counted, or explore with it"
        raise Refused(what, remedy, code="unsupported-constraint")
    result = mapspace_of(spec.workload, asked.hierarchy, asked.request.limits)
    result.sources = files_of(spec)
    return result


def mapspace_of(cascade: Cascade, hierarchy: Hierarchy, limits: Limits) -> Mapspace:
    """The search space of a resolved workload and architecture."""
    return Mapspace(einsum_spaces(cascade, hierarchy, limits), limits)


class Mapspace(Answer):
    """The search space of an exploration; numbers are computed on first access."""

    def __init__(self, spaces: Sequence[EinsumSpace], limits: Limits) -> None:
        self.spaces, self.limits = tuple(spaces), limits
        self._lives = lives_of(self.spaces)

    def size(self) -> int:
        """The number of whole mappings."""
        return self._size

    @cached_property
    def _size(self) -> int:
        joining = Joining(self._lives, self.limits.sizes != "all")
        for i, (space, one) in enumerate(zip(self.spaces, self.einsums, strict=True)):
            joining.add(space, i, one.counted)
        return joining.total()

    @cached_property
    def einsums(self) -> tuple[EinsumMapspace, ...]:
        """The search space of each Einsum on its own, in order; computed once for Einsums of equal shape."""
        limits = self.limits
        keys = [(self._passing(i), named_limits(s, limits)) for i, s in enumerate(self.spaces)]
        result: list[EinsumMapspace] = []
        for i, first in equal_shapes(self.spaces, keys):
            result.append(result[first] if first < i else self.alone(i))
        return tuple(result)

    def alone(self, number: int) -> EinsumMapspace:
        """The search space of one Einsum on its own."""
        depths = deepest(self.spaces, self.limits) + 1
        return EinsumMapspace(self.spaces[number], self.limits, self._passing(number), depths)

    def _passing(self, number: int) -> Passing:
        return passing_of(self.spaces, self._lives, number)

    @declared(name="rules")
    def prunings(self) -> Table:
        """One row per Einsum and rule: `templates` (placements and orders) and `mappings` of the Einsum on
        its own, before and after the rule, `chains_per_template` (mean, after), and why the rule loses
        nothing.

        The last row has whole mappings.
        """
        return self.rules()

    def rules(self, found: SearchResult | None = None) -> Table:
        """The table of pruning rules; with the result of a search, also its steps.

        Numbers are Python integers. The first rows count mappings with any order of all rank variables
        between two nodes, as mapspaces are often counted.
        """
        rows: list[ConstraintRow] = []
        for space, one in zip(self.spaces, self.einsums, strict=True):
            rows += [ConstraintRow(space.name, *row) for row in one.rows()]
        for stage in found.stages if found is not None else ():
            of, n, points = stage.of, stage.templates, stage.points
            left = points - stage.too_large
            rows.append(ConstraintRow(of, "capacity", n, n, points, left, WHY["capacity"]))
            rows.append(ConstraintRow(of, "dominance", n, n, left, stage.kept, WHY["dominance"]))
        loose = prod(e.mappings for e in self.einsums)
        rows.append(ConstraintRow("", "joined", None, None, loose, self.size(), WHY["joined"]))
        return Table("rules", tuple(Column(n) for n in COLUMNS), tuple(r.cells() for r in rows))

    def __repr__(self) -> str:
        many = len(self.spaces)
        return f"Mapspace({_rounded(self.size())} mappings of {many} Einsum{'s' if many != 1 else ''})"

    def content(self, live: bool = True) -> list[Block]:
        """The pruning rules, without the reasons."""
        shown = self.table().only(*(c for c in COLUMNS if c != "why"))
        return [Line(self.title), Section("", shown)]


def _rounded(n: int) -> str:
    """Four significant digits, for integers of any size."""
    text = str(n)
    return text if len(text) < 7 else f"{text[0]}.{text[1:4]}e{len(text) - 1}"


@dataclass(frozen=True)
class ConstraintRow:
    """One rule for one Einsum, with the numbers before and after it."""

    einsum: str
    rule: str
    templates_before: int | None
    templates: int | None
    mappings_before: int
    mappings: int
    why: str

    def cells(self) -> tuple[Cell, ...]:
        chains = self.mappings / self.templates if self.templates else None
        return (
            self.einsum, self.rule, self.templates_before, self.templates, chains, self.mappings_before,
            self.mappings, self.mappings_before - self.mappings, self.why,
        )  # fmt: skip


COLUMNS = (
    "einsum", "rule", "templates_before", "templates", "chains_per_template", "mappings_before", "mappings",
    "taken_away", "why",
)  # fmt: skip
WHY = {
    "loop orders": "loops between two storage nodes cost the same in any order",
    "slots": "where the next fused loop indexes a tensor, it is never worse stored below that loop",
    "chains": "a size that shrinks no tile may be that of the node above, one that saves no visit that of "
    "the node below: another chain is at least as good in every product",
    "bundles": "of rank variables that index the same tensors only the product of their sizes counts",
    "capacity": "they exceed a memory (of an Einsum: the points that the search combined, regions of the "
    "hierarchy by themselves; `join`: pairs of what came before and a point of the Einsum)",
    "dominance": "others are at least as good in every product so far, or whole mappings known by then are; "
    "or they need more instances than a fanout has",
    "joined": "mappings of Einsums combine if fused loops, tiles and exchanges agree (before: each alone)",
}


Free = tuple[
    ChainTables, tuple[int, ...]
]  # the tables that count chains, and the number of free sizes in the branch


class EinsumMapspace:
    """The mappings of one Einsum on its own, with any number of fused loops."""

    def __init__(self, space: EinsumSpace, limits: Limits, passing: Passing, depths: int) -> None:
        self.space, self.limits = space, limits
        self.divide = limits.sizes != "all"
        self.tables = ChainTables(space, limits.sizes)
        self.bundled = ChainTables(space, limits.sizes, space.bundles)
        self.shapes: list[tuple[int, Sharing, Sequences]] = []
        known: dict[object, Sequences] = {}
        for unit, depth in product(range(1 if space.copy else len(space.units)), range(depths)):
            for shape in shapes(space, limits, passing, depth, self._reach(unit)):
                key = (unit, depth, shape.shared)
                if key not in known:
                    known[key] = arrangements(space, limits, shape, self._reach(unit), True)
                if known[key]:
                    self.shapes.append((unit, shape, known[key]))

    def __repr__(self) -> str:
        return f"EinsumMapspace({self.space.name}: {_rounded(self.mappings)} mappings)"

    def _reach(self, unit: int) -> int:
        return len(self.space.memories) if self.space.copy else self.space.units[unit].memories

    @cached_property
    def counted(self) -> tuple[CountedShape, ...]:
        """Every shape with the numbers of its pmappings, by tile sizes below the fused loops."""
        result: dict[Sharing, Array] = {}
        for unit, shape, orders in self.shapes:
            many: dict[int, int] = {}
            for order, ways in orders.items():
                many[len(order)] = many.get(len(order), 0) + ways
            for nodes, ways in many.items():
                counts = self.tables.counts(unit, shape.innermost, shape.prefix, nodes) * ways
                result[shape] = result[shape] + counts if shape in result else counts
        return tuple(CountedShape(s, self.tables.keys(s.prefix), counts) for s, counts in result.items())

    @cached_property
    def templates(self) -> int:
        return sum(sum(orders.values()) for _, _, orders in self.shapes)

    @cached_property
    def mappings(self) -> int:
        return sum(int(n) for one in self.counted for n in one.counts)

    @cached_property
    def written(self) -> int:
        """Mappings with every order of all rank variables between any two nodes and below the last."""
        orders = factorial(len(self.space.variables)) if not self.space.copy else 1
        return self._sum(self.shapes, lambda order: orders ** (len(order) + 1), self._every)

    def rows(self) -> Iterator[tuple[str, int, int, int, int, str]]:
        """Return (rule, templates before and after, mappings before and after, reason) for each rule."""
        lower = [
            (unit, shape, arrangements(self.space, self.limits, shape, self._reach(unit), False))
            for unit, shape, _ in self.shapes
        ]
        left = sum(sum(orders.values()) for _, _, orders in lower)
        slots = self._sum(lower, lambda order: 1, self._every)
        chains = self._sum(lower, lambda order: 1, self._collapsed)
        bundles = self._sum(lower, lambda order: 1, self._bundled)
        every = self.templates
        yield "loop orders", every, every, self.written, self.mappings, WHY["loop orders"]
        yield "slots", every, left, self.mappings, slots, WHY["slots"]
        yield "chains", left, left, slots, chains, WHY["chains"]
        yield "bundles", left, left, chains, bundles, WHY["bundles"]

    def _every(self, order: tuple[int, ...]) -> Free:
        return self.tables, (len(order),) * len(self.space.variables)

    def _collapsed(self, order: tuple[int, ...]) -> Free:
        return self.tables, tuple(
            free_sizes(self.space, order, v, self.divide) for v in range(len(self.space.variables))
        )

    def _bundled(self, order: tuple[int, ...]) -> Free:
        return self.bundled, tuple(
            free_sizes(self.space, order, b[0], self.divide) for b in self.space.bundles
        )

    def _sum(
        self,
        some: Sequence[tuple[int, Sharing, Sequences]],
        times: Callable[[tuple[int, ...]], int],
        free: Callable[[tuple[int, ...]], Free],
    ) -> int:
        """The number of chains of all templates, those with one branch order counted `times(order)` times."""
        result = 0
        sizes: dict[tuple[int, ...], Free] = {}
        totals: dict[object, int] = {}
        for unit, shape, orders in some:
            for order, ways in orders.items():
                if order not in sizes:
                    sizes[order] = free(order)
                tables, many = sizes[order]
                key = (unit, shape.innermost, tuple(sorted(shape.prefix)), many)
                if key not in totals:
                    totals[key] = tables.total(unit, shape.innermost, shape.prefix, many)
                result += ways * times(order) * totals[key]
        return result
