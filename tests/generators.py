"""Hypothesis strategies for whole problems: `problems()` and `problems(simple=True)`.

Mappings are drawn top-down along the rules of docs/semantics.md; the few that break a dependence
are thrown away by the enumerating referee (`legal`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.analysis.enumerate import OrderViolation, violation
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, Kind, TensorRule
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum
from tests.workloads import Sketch, cascades

# Outermost first: (name, kind, fanout dimensions); tolls are dropped from some hierarchies.
PARTS: tuple[tuple[str, Kind, tuple[str, ...]], ...] = (
    ("DRAM", "memory", ()),
    ("Net", "toll", ()),
    ("Core", "container", ("C",)),
    ("GLB", "memory", ()),
    ("Bus", "toll", ()),
    ("PE", "container", ("X", "Y")),
    ("RF", "memory", ()),
    ("MAC", "compute", ("V",)),
)
LEVEL = {name: i for i, (name, _, _) in enumerate(PARTS)}
MEMORIES = ("DRAM", "GLB", "RF")


def legal(problem: Problem) -> OrderViolation | None:
    """The first (producer, consumer, tensor, element) that the mapping breaks; None if it is legal."""
    return violation(problem)


def if_legal(problem: Problem) -> Problem:
    """The problem; hypothesis drops the example if it breaks a dependence, or if nobody can say."""
    try:
        broken = legal(problem)
    except Refused:
        broken = None
        assume(False)
    assume(broken is None)
    return problem


@dataclass
class Above:
    """What stands above the node being drawn, on its path."""

    extent: dict[tuple[str, str], int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)  # tensor -> level of its innermost storage
    deepest_storage: int = 0
    deepest_spatial: int = -1
    trips: dict[tuple[str, str], int] = field(default_factory=dict)

    def copy(self) -> Above:
        kept = self.deepest_storage, self.deepest_spatial
        return Above(dict(self.extent), dict(self.stored), *kept, dict(self.trips))


class Drawing:
    """One mapping in the making; `fanout` and `reduced` collect what the hierarchy must allow."""

    def __init__(self, draw: st.DrawFn, cascade: Cascade, simple: bool) -> None:
        self.draw, self.cascade, self.simple = draw, cascade, simple
        self.fanout: dict[tuple[str, str], int] = {}
        self.reduced: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self.apart = False

    def chance(self, tenths: int) -> bool:
        return self.draw(st.integers(0, 9)) < tenths

    def policy(self) -> Reuse:
        if self.simple:
            return "refill"
        return self.draw(st.sampled_from(["refill", "refill", "slide", "keep_previous"]))

    def whole(self) -> tuple[Node, ...]:
        """Backing storage of what does not stay on chip, then everything below."""
        above, nodes = Above(), []
        outside = []
        for tensor in self.cascade.tensors:
            inner = tensor in self.cascade.intermediates
            lasting = any(tensor in e.tensors and e.access_of(tensor).persistent for e in self.cascade)
            if not self.chance(6 if inner else 2 if lasting else 0):
                outside.append(tensor)
        nodes += self.store(above, "DRAM", outside)
        kept = [t for t in self.cascade.tensors if t not in outside and t not in self.cascade.intermediates]
        nodes += self.store(above, "GLB", kept)
        return (*nodes, *self.below(self.cascade.einsums, above))

    def store(self, above: Above, component: str, tensors: list[str]) -> list[Node]:
        """Storage of `tensors`, in one node or one each."""
        if not tensors:
            return []
        above.stored.update(dict.fromkeys(tensors, LEVEL[component]))
        above.deepest_storage = max(above.deepest_storage, LEVEL[component])
        if self.chance(5):
            return [StorageNode(component, tuple(tensors), self.policy())]
        return [StorageNode(component, (t,), self.policy()) for t in tensors]

    def below(self, group: tuple[Einsum, ...], above: Above) -> tuple[Node, ...]:
        """Loops, storage and splits over a group of Einsums."""
        nodes: list[Node] = []
        for _ in range(self.draw(st.integers(*((0, 3) if len(group) > 1 else (1, 7))))):
            nodes += self.loop(group, above) if self.chance(6) else self.some_storage(group, above)
        if len(group) == 1:
            missing = [t for t in group[0].tensors if t not in above.stored]
            nodes += self.store(above, self.home(above), missing)
            return (*nodes, ComputeNode(group[0].name, "MAC"))
        cut = self.draw(st.integers(1, len(group) - 1))
        parts = [group[:cut], group[cut:]]
        if len(group) == 3 and self.chance(5):
            parts = [(e,) for e in group]
        crossing = [
            t
            for t in self.cascade.tensors
            if t not in above.stored and sum(any(t in e.tensors for e in part) for part in parts) > 1
        ]
        nodes += self.store(above, self.home(above), crossing)
        branches = tuple(self.below(tuple(part), above.copy()) for part in parts)
        return (*nodes, Split(branches))

    def home(self, above: Above) -> str:
        """A memory in which a tensor without storage may begin here."""
        return "GLB" if LEVEL["GLB"] > above.deepest_spatial else "RF"

    def some_storage(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        """Storage of tensors that are not yet held so far in, or of nothing."""
        component = self.draw(st.sampled_from(["GLB", "GLB", "RF"]))
        if LEVEL[component] < above.deepest_spatial:
            component = "RF"
        if LEVEL[component] < above.deepest_spatial:
            return []
        fitting = [
            t
            for t in dict.fromkeys(t for e in group for t in e.tensors)
            if above.stored.get(t, -1) < LEVEL[component]
            and (t in above.stored or t in self.cascade.intermediates)
            and not (component == "RF" and t not in above.stored)
        ]
        chosen = [t for t in fitting if self.chance(6)]
        return self.store(above, component, chosen)

    def variables(
        self, group: tuple[Einsum, ...], above: Above, uneven: bool = False
    ) -> dict[str, str] | None:
        """For each Einsum the variable that a loop over the group binds; of equal extents unless `uneven`."""
        shared = [v for v in group[0].rank_variables if all(v in e.rank_variables for e in group)]
        if len(group) > 1 and not self.chance(2):
            between = [
                a
                for e in group
                for a in e.accesses
                if a.tensor in self.cascade.intermediates and len(group) > 1
            ]
            shared = [v for v in shared if all(v in a.variables for a in between)] or shared
        if shared and not (len(group) > 1 and self.chance(1)):
            name = self.draw(st.sampled_from(shared))
            return {e.name: name for e in group}
        if len(group) == 1:
            return None
        names = {e.name: self.draw(st.sampled_from(e.rank_variables)) for e in group}
        common = [t for t in group[0].tensors if all(t in e.tensors for e in group)]
        if common and self.chance(8):
            firsts = {e.name: e.access_of(common[0]).projection[0].variables for e in group}
            names = {name: self.draw(st.sampled_from(found)) for name, found in firsts.items()}
        extents = {above.extent.get(pair) for pair in names.items()}
        return names if uneven or len(extents) == 1 else None

    def loop(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        """One loop over the group, temporal or spatial, perhaps imperfect or with another first tile."""
        uneven = len(group) > 1 and not self.simple and self.chance(2)
        names = self.variables(group, above, uneven)
        if names is None:
            return []
        if uneven:
            return self.uneven_loop(group, names, above)
        first = group[0].name
        hulls = [e.bound(names[e.name]) for e in group]
        width = max(h for _, h in hulls) - min(low for low, _ in hulls) + 1
        extents = {pair: above.extent.get(pair, width) for pair in names.items()}
        extent = max(extents.values())
        if extent == 1 and self.chance(8):
            return []
        tile = self.draw(st.integers(1, extent))
        initial = self.first_tile(extent)
        where = self.spatial_slot(group, names, above)
        reach = max(tile, initial or 0)
        begin = tile if initial is None else initial
        trips = 1 + -(-max(extent - begin, 0) // tile)
        for pair in names.items():
            above.extent[pair] = min(extents[pair], reach)
        renamed = tuple(names.items()) if len(set(names.values())) > 1 else ()
        if where is None:
            return [Loop(names[first], tile, initial, per_einsum=renamed)]
        self.widen(where, trips, group, names, above)
        return [Loop(names[first], tile, initial, True, *where, per_einsum=renamed)]

    def first_tile(self, extent: int) -> int | None:
        """The size of a first tile of its own, for some loops."""
        return self.draw(st.integers(1, extent)) if not self.simple and self.chance(1) else None

    def uneven_loop(self, group: tuple[Einsum, ...], names: dict[str, str], above: Above) -> list[Node]:
        """One loop over the group in which each Einsum has a tile size of its own."""
        tiles, firsts, trips = {}, {}, 1
        for e in group:
            low, high = e.bound(names[e.name])
            extent = above.extent.get((e.name, names[e.name]), high - low + 1)
            tile = self.draw(st.integers(1, extent))
            begin = tile
            if self.chance(1):
                firsts[e.name] = begin = self.draw(st.integers(1, extent))
            tiles[e.name] = tile
            trips = max(trips, 1 + -(-max(extent - begin, 0) // tile))
            above.extent[e.name, names[e.name]] = min(extent, max(tile, begin))
        where = self.spatial_slot(group, names, above)
        first = names[group[0].name]
        renamed = tuple(names.items()) if len(set(names.values())) > 1 else ()
        own = tuple(tiles.items()), tuple(firsts.items())
        if where is None:
            return [Loop(first, tiles[group[0].name], None, False, "", "", renamed, *own)]
        self.widen(where, trips, group, names, above)
        return [Loop(first, tiles[group[0].name], None, True, *where, renamed, *own)]

    def widen(
        self,
        where: tuple[str, str],
        trips: int,
        group: tuple[Einsum, ...],
        names: dict[str, str],
        above: Above,
    ) -> None:
        """Note what a spatial loop needs of its fanout dimension."""
        above.deepest_spatial = max(above.deepest_spatial, LEVEL[where[0]])
        above.trips[where] = above.trips.get(where, 1) * trips
        self.fanout[where] = max(self.fanout.get(where, 1), above.trips[where])
        for e in group:
            self.reduced.setdefault(where, set()).update(
                (e.name, a.tensor) for a in e.outputs if names[e.name] not in a.variables
            )

    def spatial_slot(
        self, group: tuple[Einsum, ...], names: dict[str, str], above: Above
    ) -> tuple[str, str] | None:
        """A fanout dimension for this loop, None to make it temporal."""
        if any(e.is_copy for e in group) or not self.chance(2 if len(group) > 1 else 4):
            return None
        homeless = [a for e in group for a in e.accesses if a.tensor not in above.stored]
        if any(names[e.name] not in a.variables for e in group for a in homeless if a in e.accesses):
            return None
        slots = [
            (name, dim)
            for name, _, dims in PARTS
            for dim in dims
            if LEVEL[name] > above.deepest_storage and LEVEL[name] >= above.deepest_spatial
        ]
        if homeless:
            slots = [s for s in slots if s[0] != "MAC"]
        return self.draw(st.sampled_from(slots)) if slots else None

    def rule(self, required: set[tuple[str, str]], tenths: int) -> TensorRule:
        """A random choice of tensors per Einsum that contains the required ones."""
        table = []
        for e in self.cascade:
            chosen = {t for t in e.tensors if (e.name, t) in required or self.chance(tenths)}
            table.append((e.name, frozenset(chosen)))
        return TensorRule("drawn", tuple(table))

    def hierarchy(self) -> Hierarchy:
        """Components for the drawn mapping: fanouts just large enough, rules that allow it."""
        components = []
        for name, kind, dims in PARTS:
            if kind == "toll" and (self.simple or not self.chance(3)):
                continue
            spatial = []
            for dim in dims:
                required = self.reduced.get((name, dim), set())
                rule = None if self.simple or self.chance(5) else self.rule(required, 5)
                partials = not self.simple and self.chance(3)
                identical = not self.simple and not self.apart and self.chance(3)
                spatial.append(
                    FanoutDim(
                        dim,
                        self.fanout.get((name, dim), 1),
                        rule,
                        partials,
                        multicast="identical" if identical else "overlapping",
                    )
                )
            components.append(
                Component(
                    name,
                    kind,
                    spatial=tuple(spatial),
                    keep=self.rule(set(), 7) if kind == "toll" else None,
                    read_first=kind == "memory" and not self.simple and self.chance(1),
                )
            )
        return self.multicast(components) if self.apart else Hierarchy(tuple(components))

    def multicast(self, components: list[Component]) -> Hierarchy:
        """With dimensions that send each instance its own elements, drawn after all else."""
        found = []
        for c in components:
            identical = [self.chance(3) for _ in c.spatial]
            pairs = zip(c.spatial, identical, strict=True)
            dims = (replace(d, multicast="identical") if alike else d for d, alike in pairs)
            found.append(replace(c, spatial=tuple(dims)))
        return Hierarchy(tuple(found))


@st.composite
def lawless(
    draw: st.DrawFn,
    simple: bool = False,
    apart: bool = False,
    given: Mapping[str, tuple[Sketch, ...]] | None = None,
    change: Callable[[st.DrawFn, Cascade], Cascade] | None = None,
) -> Problem:
    """A small problem as drawn, its dependences kept or not.

    `apart`: how dimensions multicast is drawn last, so that nothing else that is drawn depends on it.
    `given`: the forms that cascades are drawn from. `change`: what becomes of one before it is mapped.
    """
    cascade = draw(cascades(simple=simple, given=given))
    cascade = change(draw, cascade) if change is not None else cascade
    drawing = Drawing(draw, cascade, simple)
    drawing.apart = apart
    tree = LoopTree(drawing.whole())
    return Problem(cascade, drawing.hierarchy(), tree)


@st.composite
def problems(draw: st.DrawFn, simple: bool = False, apart: bool = False) -> Problem:
    """A small legal problem. `simple`: perfect loops may still be imperfect, but `refill` everywhere,
    no tolls, no sharing rules, no restricted spaces. `apart`: see `lawless`."""
    problem = draw(lawless(simple=simple, apart=apart))
    assume(legal(problem) is None)
    return problem
