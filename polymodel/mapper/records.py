"""Requests and results of the search, as frozen records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from math import ceil, inf, isinf
from typing import TYPE_CHECKING, Literal, Protocol

from polymodel.architecture.hierarchy import Component, FanoutLink, Hierarchy, Topology
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import LoopTree
from polymodel.mapping.resolve import LOOP_RULES, LoopRule
from polymodel.objectives import FigureLimit, canonical, objective_of, unit_of
from polymodel.quantities import data_amount, data_unit, engineering

if TYPE_CHECKING:
    from polymodel.governor import Crew
    from polymodel.mapper.budget import Finished
    from polymodel.sparse.actions.records import Certainty

CLOSE = 1e-9  # relative: sums of floats in different orders differ by less
Sizes = Literal["divisors", "all", "few"]
Halos = Literal["retained", "recomputed"]
Move = Literal["pipelines", "initial_tiles"]
FROM_ABOVE = "working sets bounded from above"


class TooManyChains(Refused):
    """A template has more chains of tile sizes than are listed. A search ends there with the best so far."""

    code = "unsupported-constraint"


@dataclass(frozen=True)
class Limits:
    """The constraints of a search, besides `keep` and `may_keep` of the memories.

    `max_fused_loops`: number of loops above a split, per path (None: no limit).
    `max_fused_loops_per_rank_variable`: how many of these may be over one rank variable. `sizes`: temporal
    tile sizes are divisors of the enclosing tile, or all sizes; `few` of the divisors are used by the
    search's own first guess. `spatial_sizes`: spatial tiles divide the enclosing tile, or all: the tile is
    split as evenly as possible over any number of instances, of which the last one has the remainder.
    `halos`: also fuse chains of windows, with overlaps `retained` from tile to tile or `recomputed`. `moves`:
    also run splits as `pipelines`, and give loops `initial_tiles`.
    `force_memory_order`: storage of an outer memory is above that of an inner one (otherwise only for the
    same tensor), except for memories `side_by_side` with the one before them: (Einsum, memory).
    `loop_order`: (Einsum, rank variables outermost first), which fused loops obey. `min_utilisation`:
    (component, dimension, least share of the fanout in use; infinite: the maximum). `compute`: (Einsum,
    compute component), where there are several. `exchange`: memories in which intermediates may be
    exchanged, besides the first one inside the backing storage (None: all). `fuse`: tensors that must be
    exchanged inside the backing storage; `unfused`: those that must not. `rules`: the rules of an
    exploration's `memories` and `fanouts` on loops. `rules` and `side_by_side` are read from the spec
    (`memory_order.side_by_side`).
    """

    max_fused_loops: int | None = None
    max_fused_loops_per_rank_variable: int = 1
    sizes: Sizes = "divisors"
    force_memory_order: bool = True
    loop_order: tuple[tuple[str, tuple[str, ...]], ...] = ()
    min_utilisation: tuple[tuple[str, str, float], ...] = ()
    compute: tuple[tuple[str, str], ...] = ()
    exchange: frozenset[str] | None = None
    fuse: frozenset[str] = frozenset()
    unfused: frozenset[str] = frozenset()
    rules: tuple[LoopRule, ...] = ()
    side_by_side: tuple[tuple[str, str], ...] = ()
    spatial_sizes: Literal["divisors", "all"] = "divisors"
    halos: tuple[Halos, ...] = ()
    moves: tuple[Move, ...] = ()

    def fused_loops(self, einsum: str) -> tuple[str, ...] | None:
        """The rank variables of the fused loops that an Einsum must have; None: any. Searches for pipelines
        (`fusions.FusedLimits`) set them."""
        return None

    def below_loops(self, tensor: str) -> bool:
        """Whether the tensor is exchanged below fused loops, if inside the backing storage."""
        return False

    def units(self, einsum: str, is_copy: bool, hierarchy: Hierarchy) -> list[Component]:
        """The compute units on which an Einsum may execute, all on one branch.

        A copy without a `compute` entry uses no branch. Raises Refused if units of several branches are
        possible.
        """
        chosen = dict(self.compute).get(einsum)
        units = [c for c in hierarchy.components if c.computes and (not chosen or c.name == chosen)]
        if is_copy and not chosen:
            units = [u for u in units if not u.branch] or units
        if len({u.branch for u in units}) > 1:
            names = ", ".join(u.name for u in units)
            raise Refused(
                f"{einsum} may execute on units of several branches ({names}), among which no search chooses",
                f"say on which one, such as `compute: {{{einsum}: {units[0].name}}}` in `explore:`",
                code="missing-argument",
            )
        return units


@dataclass(frozen=True)
class Candidate:
    """One whole mapping.

    `values`: in the order of the objectives; `buffers`: (memory, peak bits); `named`: figures by name that
    do not follow from these. `tree` is built on first access, since fronts may have thousands of mappings.
    """

    values: tuple[float, ...]
    energy: float
    latency: float
    buffers: tuple[tuple[str, float], ...]
    planted: Callable[[], LoopTree] = field(repr=False, compare=False)
    named: tuple[tuple[str, float], ...] = ()

    @cached_property
    def tree(self) -> LoopTree:
        return self.planted()


@dataclass(frozen=True)
class SearchStage:
    """Work counts of one step of the search. `of`: an Einsum, or `join EINSUM`.

    `templates`: placements and orders; `points`: mappings combined from them; `kept`: those left after
    dominance; `too_large`: those that exceed a memory.
    """

    of: str
    templates: int
    points: int
    kept: int
    too_large: int
    seconds: float


@dataclass(frozen=True)
class Obstacle:
    """A constraint that rules out mappings, and where.

    `constraint`: limits, capacity, keep, may_keep, min_utilisation, exchange, fuse, unfused, compute,
    loop_order, max_fused_loops, max_fused_loops_per_rank_variable, force_memory_order or one of LOOP_RULES.
    `level`: the memory, fanout (COMPONENT.DIMENSION) or compute unit, if any. `einsum`: the Einsum;
    `joined`: when it is joined to the Einsums before it. `tensors`: the tensors concerned. `before`:
    mappings that satisfy all constraints which are not relaxed together with it (capacities aside); `left`:
    those that also satisfy it; None: some do, but none that also satisfies every other capacity. `need`,
    `have`: least and given bits, share of a fanout, or loops. `written`: what the exploration says of a
    memory's `keep` or `may_keep`, if it narrows it.
    """

    constraint: str
    level: str
    einsum: str
    tensors: tuple[str, ...]
    before: int
    left: int | None
    need: float | None = None
    have: float | None = None
    joined: bool = False
    written: str = ""

    @property
    def text(self) -> str:
        if self.constraint == "limits" and self.joined:
            return f"no mapping keeps all of the limits: {self.level}"
        if self.constraint == "limits":
            limit = FigureLimit(self.level, self.have or 0.0)
            return f"no mapping has {limit}: the {objective_of(self.level).extreme} is {self.need:.6g}"
        where = f"{self.einsum} beside the Einsums before it" if self.joined else f"Einsum {self.einsum}"
        held = f" ({', '.join(self.tensors)})" if self.tensors else ""
        gone = "some" if self.left is None else f"{self.before - self.left:,}"
        what = f"{self.constraint}{f' of {self.level}' if self.level else ''}"
        held += f", narrowed by `{self.written}`," if self.written else ""
        figures = ""
        if self.need is not None and self.constraint == "min_utilisation":
            figures = f": needs {self.need:.6g}, has {self.have:.6g}"
        elif self.need is not None:
            figures = f": needs {data_amount(self.need)} {data_unit()}, has {data_amount(self.have or 0)}"
        figures += " (spatial tiles divide)" if self.constraint == "min_utilisation" else ""
        return f"{where}: {what}{held} rules out {gone} of {self.before:,} mappings{figures}"


@dataclass(frozen=True)
class Change:
    """One constraint of a relaxation, changed from `have` to the least figure that works, `need`.

    Bits, fraction of a fanout, or loops; None: the constraint is dropped for these tensors or this Einsum.
    `written` as in `Obstacle`.
    """

    constraint: str
    level: str = ""
    einsum: str = ""
    tensors: tuple[str, ...] = ()
    need: float | None = None
    have: float | None = None
    written: str = ""

    @property
    def text(self) -> str:
        tensors = ", ".join(self.tensors)
        loops = (
            f"{self.constraint} is {self.need:g} instead of {self.have:g}" if self.need is not None else ""
        )
        against = f" (`{self.written}` rules it out)" if self.written else ""
        return {
            "capacity": f"the size of {self.level} is {data_amount(self.need or 0)} {data_unit()} instead of "
            f"{data_amount(self.have or 0)}",
            "min_utilisation": f"min_utilisation of {self.level} is {self.need or 0:.6g} instead of "
            f"{self.have or 0:.6g}",
            "keep": f"{self.level} need not keep {tensors} (`may_keep` it instead"
            f"{f' of `{self.written}`' if self.written else ''})",
            "may_keep": f"{self.level} may keep {tensors}{against}",
            "exchange": f"intermediates may be exchanged in {self.level}",
            "fuse": f"{tensors} need not be fused",
            "unfused": f"{tensors} may be fused",
            "compute": f"Einsum {self.einsum} may be on any compute unit, not only {self.level}",
            "loop_order": f"Einsum {self.einsum} has no loop_order",
            "force_memory_order": "force_memory_order is false",
            "limits": f"the limit of {self.level} is {self.need or 0:.6g} instead of {self.have or 0:.6g}",
            **dict.fromkeys(LOOP_RULES, f"{self.level} has no `{self.written}`"),
        }.get(self.constraint, loops)


@dataclass(frozen=True)
class Relaxation:
    """A minimal set of changes that together admit a mapping.

    Each is as small as possible, given those before it (one bit, instance or loop less admits none).
    """

    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        return ", and ".join(c.text for c in self.changes)


@dataclass(frozen=True)
class Diagnosis:
    """Why there is no valid mapping.

    `size`: the number of mappings, capacities aside. `relaxations`: single changes; if there are none, sets
    of changes. `untried`: constraints for which there was no time. `text`: all of it, one line each.
    """

    size: int
    obstacles: tuple[Obstacle, ...]
    relaxations: tuple[Relaxation, ...]
    untried: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        lines = [o.text for o in self.obstacles]
        lines += [f"a mapping exists if {r.text}" for r in self.relaxations]
        if not self.relaxations and not self.untried:
            lines.append("no relaxation of these constraints admits one")
        if self.untried:
            lines.append(f"not tried for want of time: {', '.join(self.untried)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    `complete`: False if it was cut short by the time limit, for want of `memory`, by an interrupt or by
    `too_many` chains of tile sizes; `unsearched` says what is missing. `bounds`: per objective a lower bound
    over all mappings of the space (empty: unknown). `halos`: whether there was time for all mappings with
    halos (None: none were requested), `moves`: for all that moves make. `diagnosis`: why there are no
    candidates after a complete search; its `text` is for users.
    """

    objectives: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    stages: tuple[SearchStage, ...]
    complete: bool = True
    unsearched: tuple[str, ...] = ()
    eps: float = 0.0
    seconds: float = 0.0
    diagnosis: Diagnosis | None = None
    memory: bool = False
    bounds: tuple[float, ...] = ()
    halos: bool | None = None
    moves: bool | None = None
    too_many: TooManyChains | None = None

    @property
    def reason(self) -> str:
        """Return why there are no candidates: what each constraint excludes, and the least relaxation, one
        line each.

        Without a diagnosis, the first step that kept nothing, and why.
        """
        if self.diagnosis is not None and self.diagnosis.text:
            return self.diagnosis.text
        if not self.complete:
            return "the search ended before it had a whole mapping"
        for stage in self.stages:
            if stage.kept:
                continue
            what = stage.of.removeprefix("join ")
            if stage.too_large and stage.of.startswith("join "):
                return (
                    f"with Einsum {what} joined to those before it, all {stage.points} combinations exceed "
                    "the size of a memory"
                )
            if stage.too_large:
                return (
                    f"all tile sizes of Einsum {what} exceed the size of a memory ({stage.points} mappings)"
                )
            if not stage.templates and not stage.of.startswith("join "):
                return f"the rules on what memories keep leave Einsum {what} no placement of its tensors"
            if not stage.templates:
                return f"no mappings of Einsum {what} share their fused loops with those before it"
        return "nothing fits"


@dataclass(frozen=True)
class Progress:
    """The progress of a search: `done` of `total` steps, now at step `of`.

    `best`: the best value of the first objective so far, None before any; `bound`: a lower bound of it.
    `looked`: combinations of tile sizes, and joins of them, that were examined so far. `spent`: the elapsed
    share of the time limit. `overall`: the completed share of all searches, if there are more.
    """

    done: int
    total: int
    of: str
    best: float | None = None
    looked: int = 0
    bound: float = 0.0
    spent: float = 0.0
    overall: float | None = None

    @property
    def share(self) -> float:
        """The completed share of the steps, or the elapsed share of the time limit if that is larger."""
        if self.overall is not None:
            return self.overall
        return max(self.done / max(self.total, 1), min(self.spent, 1.0))

    @property
    def gap(self) -> float | None:
        """The largest possible relative gap between the best so far and the optimum."""
        return None if self.best is None else gap_of(self.best, self.bound)


def gap_of(best: float, bound: float) -> float:
    """The largest possible relative gap between a value and the optimum; infinite without a bound."""
    if best <= bound:
        return 0.0
    return best / bound - 1 if bound > 0 else inf


class Bounded(Protocol):
    """A front with lower bounds of its objectives."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def bounds(self) -> Mapping[str, float]: ...
    @property
    def gaps(self) -> Mapping[str, float]: ...
    def __len__(self) -> int: ...


def gap_texts(front: Bounded) -> Iterator[str]:
    """Return sentences on the quality of a front of an interrupted search."""
    if not len(front):
        return
    known = [o for o in front.objectives if not isinf(front.gaps[o])]
    each = (
        f"{o} by up to {share_text(front.gaps[o])} (lower bound {engineering(front.bounds[o], unit_of(o))})"
        for o in known
    )
    if known:
        yield f"the best found may exceed the optimum: {', '.join(each)}"
    rest = [o for o in front.objectives if o not in known]
    if rest:
        none = all(front.bounds.get(o) == 0 for o in rest)
        why = ", since the lower bound is 0" if none else ""
        yield f"the distance of {', '.join(rest)} from the optimum is not known{why}"


def exact_text(space: str, loose: str) -> str:
    """What is proven of a front where the figures of the search are those of its mappings. `loose`: see
    `loose_peaks`."""
    if not loose:
        return f"exact: no valid mapping of {space} is better in one objective and no worse in the others"
    return (
        f"exact with {FROM_ABOVE} ({loose}): no mapping of {space} that fits by these bounds is better in "
        "one objective and no worse in the others"
    )


def attained(sparse: Quality | None) -> bool:
    """True if the front is optimal for its search: always, unless sparse data are only bounded."""
    return sparse is None or sparse.factor <= 1 + CLOSE


def bounded_text(space: str, loose: str, eps: float, sparse: Quality | None) -> str:
    """What is proven of a front that is optimal within a factor."""
    most = 1.0 if sparse is None else sparse.factor
    if isinf(most):
        return "how near to the best is not known: all that other mappings cost may be saved where zeros are"
    valid = f"mapping of {space} that fits by them" if loose else f"valid mapping of {space}"
    each = f"for each {valid} there is one here that is no more than that above it"
    about = [f"eps={eps:g}"] if eps else []
    if not attained(sparse):
        about.append("a bound: what zeros save elsewhere is known at most")
    factor = (1 + eps) * most
    shown = f"{factor:g}" if attained(sparse) else f"{upwards(factor)}"
    sets = f", with {FROM_ABOVE} ({loose})" if loose else ""
    return f"within a factor of {shown} in every objective{sets}: {each} ({', '.join(about)})"


def upwards(factor: float) -> str:
    """A factor rounded up to four decimals."""
    return "any factor" if factor == inf else f"{ceil(factor * 1e4 - CLOSE) / 1e4:.4f}"


def share_text(share: float) -> str:
    """Return a fraction in percent, rounded upwards."""
    digits = 2 if share < 0.1 else 1
    return f"{ceil(share * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f} %"


Toll = tuple[float, float]


@dataclass(frozen=True)
class Shares:
    """Lower bounds on the accesses and operations of one Einsum that remain on sparse data.

    `moved`: per operand, memory and kind of access, the joules and the bits (as far as they take time) per
    element of the dense counts. `units`: per compute unit its name, joules per operation and the fraction of
    operations that take time. `held`: per operand and memory the fraction of its dense bits that a tile takes
    (empty: all are dense).
    """

    moved: tuple[tuple[tuple[tuple[str, Toll], ...], ...], ...]
    units: tuple[tuple[str, float, float], ...]
    held: tuple[tuple[float, ...], ...] = ()

    def of(self, operand: int, memory: int, kind: str) -> Toll:
        """Joules and bits per element."""
        return next(toll for name, toll in self.moved[operand][memory] if name == kind)

    def room(self, operand: int, memory: int) -> float:
        """Return the bits of a tile relative to its dense bits."""
        return self.held[operand][memory] if self.held else 1.0

    def executed(self, unit: str) -> tuple[float, float]:
        """Return joules and fraction of time per operation."""
        return next((joules, share) for name, joules, share in self.units if name == unit)


@dataclass(frozen=True)
class Quality:
    """The quality of a front on sparse data.

    `factor`: each mapping of the space has one on the front that is at most this factor above it in every
    objective (apart from the search's `eps`); 1 is exact. `each`: per objective, the least on the front
    relative to the least of the space. `evaluated`: of the search's `found` mappings; `besides`: other
    mappings; `too_large`: those among all of these whose compressed tiles do not fit. `label`: that of the
    least certain figure on the front.
    """

    factor: float
    each: tuple[float, ...]
    evaluated: int
    found: int
    besides: int
    label: Certainty
    too_large: int = 0

    @property
    def meaning(self) -> str:
        """The label in words."""
        return {
            "exact": "exact: of given data",
            "expected": "expected values",
            "bound": "bounds, at most so much",
            "lower bound": "exact or expected, latencies at least so much",
            "estimate": "estimates",
        }[self.label]


@dataclass(frozen=True)
class Request:
    """Everything that a search depends on besides cascade and hierarchy.

    `objectives`: those of `polymodel.objectives`; older names are converted (`canonical`). `at_most`:
    limits on figures. `area`: that of the architecture. `stop`: polled regularly; once it returns True, the
    search ends as if its time limit had passed. `shares`: per Einsum lower bounds of sparse data, which
    make energy and latency lower bounds (None: dense). `room`: additional bits of memories, which `shares`
    of tiles require. `finished`: the store of steps of earlier runs. `crew`: worker processes that share
    the steps.
    """

    objectives: tuple[str, ...] = ("energy", "latency")
    limits: Limits = Limits()
    eps: float = 0.0
    time_limit: float | None = None
    workers: int = 1
    progress: Callable[[Progress], None] | None = field(default=None, compare=False)
    stop: Callable[[], bool] | None = field(default=None, compare=False)
    shares: tuple[Shares, ...] | None = None
    room: tuple[tuple[str, float], ...] = ()
    finished: Finished | None = field(default=None, compare=False, repr=False)
    crew: Crew | None = field(default=None, compare=False, repr=False)
    at_most: tuple[FigureLimit, ...] = ()
    area: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "objectives", tuple(map(canonical, self.objectives)))


# The hierarchy as the search sees it.


@dataclass(frozen=True)
class MemoryLevel:
    """One memory of the hierarchy, outermost first; `index`: its position among all components."""

    name: str
    index: int
    capacity: float
    read_first: bool
    fixed_time: float
    live: bool = False

    @classmethod
    def of(cls, c: Component, index: int) -> MemoryLevel:
        """The memory that a component is."""
        live = c.allocation == "live"
        return cls(c.name, index, c.size_bits, c.read_first, c.fill_drain_latency, live)


@dataclass(frozen=True)
class TollPayers:
    """A toll, and the tensors that pay it."""

    name: str
    index: int
    tensors: frozenset[str]


ALIKE = ("bus", "switch")  # topologies in which every instance has the same distance in hops


@dataclass(frozen=True)
class FanoutDimension:
    """A fanout dimension of the component at `index`. `below`: the number of memories above it; `reuses`:
    tensors that its instances share; `overlapping`: they also share the overlap of their windows, otherwise
    only equal tiles; `costly`: crossing it has a cost; `topology`: how hops are counted."""

    component: str
    name: str
    width: int
    below: int
    least: float
    reuses: frozenset[str]
    broadcast: bool
    overlapping: bool = True
    index: int = 0
    costly: bool = False
    topology: Topology = "bus"

    def shares_windows(self, tensor: str) -> bool:
        """Whether instances share the overlap of their windows of a tensor."""
        return self.overlapping and tensor in self.reuses


@dataclass(frozen=True)
class Unit:
    """A compute component at `index`; `memories`: the number of memories above it."""

    name: str
    index: int
    memories: int
    fanouts: int

    @classmethod
    def of(cls, c: Component, hierarchy: Hierarchy) -> Unit:
        """The unit that a component is."""
        index = hierarchy.index(c.name)
        above = hierarchy.components[: index + 1]
        return cls(c.name, index, sum(a.stores for a in above), sum(len(a.spatial) for a in above))


def counted_topology(link: FanoutLink | None) -> Topology:
    """Return the topology, or a bus if the number of hops has no cost."""
    return link.topology if link and (link.energy_per_bit_hop or link.topology == "switch") else "bus"
