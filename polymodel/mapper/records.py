"""What the explorer is told and what it returns, as frozen records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf, isinf
from typing import TYPE_CHECKING, Literal, Protocol

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.mapping.looptree import LoopTree
from polymodel.mapping.resolve import LOOP_RULES, LoopRule
from polymodel.objectives import FigureLimit, canonical, objective_of, unit_of
from polymodel.quantities import data_amount, data_unit, engineering

if TYPE_CHECKING:
    from polymodel.governor import Crew
    from polymodel.mapper.budget import Finished
    from polymodel.sparse.actions.records import Certainty

Sizes = Literal["divisors", "all", "few"]
Halos = Literal["retained", "recomputed"]


@dataclass(frozen=True)
class Limits:
    """Which mappings the explorer looks at, besides `keep` and `may_keep` of the memories.

    `max_fused_loops`: loops above a split, per path (None: no limit).
    `max_fused_loops_per_rank_variable`: how often one rank variable may be among them.
    `sizes`: temporal tile sizes are divisors of the enclosing tile, or all; `few` of the divisors are the
    search's own first guess.
    `spatial_sizes`: tiles over fanouts divide the tile around them, or all: as even as any number of
    instances allows, of which the last has what is left.
    `halos`: chains of windows are fused besides, with what overlaps kept from one tile to the next, or made
    again.
    `force_memory_order`: of one Einsum, storage of an outer memory stands above that of an inner one (else
    only of the same tensor), but for memories `side_by_side` with the one before them: (Einsum, memory).
    `loop_order`: (Einsum, rank variables outermost first): fused loops obey it.
    `min_utilisation`: (component, dimension, least share of the fanout in use; infinite: as much as there
    can be).
    `compute`: (Einsum, compute component), where there are several.
    `exchange`: memories in which intermediates may be handed on, besides the first inside the backing storage
    (None: all).
    `fuse`: tensors that must be exchanged inside the backing storage; `unfused`: those that must not.
    `rules`: what `memories` and `fanouts` of an exploration say of loops. `rules` and `side_by_side` are read
    from the spec (`memory_order.side_by_side`).
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

    def units(self, einsum: str, is_copy: bool, hierarchy: Hierarchy) -> list[Component]:
        """The compute units on which an Einsum may execute, all on one branch: Refused where nothing says
        which. A copy executes on none; where nothing is said it goes along no branch."""
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
    """One whole mapping: `values` in the order of the objectives, `buffers` as (memory, peak bits), `named`:
    figures by their names that do not follow from these. Its `tree` is made when it is first looked at:
    fronts may have thousands."""

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
    """What one step of the search looked at. `of`: an Einsum, or `join EINSUM`.

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
    """A constraint that takes mappings away, and where.

    `constraint`: limits, capacity, keep, may_keep, min_utilisation, exchange, fuse, unfused, compute,
    loop_order, max_fused_loops, max_fused_loops_per_rank_variable, force_memory_order or one of LOOP_RULES.
    `level`: the memory, fanout (COMPONENT.DIMENSION) or compute unit, "" without. `einsum`: where;
    `joined`: where it meets those before it. `tensors`: those concerned. `before`: mappings there that
    satisfy all that is not relaxed with it (capacities aside); `left`: those that satisfy it as well; None:
    some, but none that satisfies every other capacity too. `need`, `have`: least and given bits, share of a
    fanout, or loops. `written`: what the exploration says of a memory's `keep` or `may_keep`, if it narrows
    it."""

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
    """One constraint of a relaxation: from `have` to the least that works, `need` (bits, share of a fanout,
    loops); None: it is given up, for these tensors or this Einsum. `written` as in `Obstacle`."""

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
    """Changes that together admit a mapping, while none does without each of them; each is as small as it
    can be, those before it made (one bit, instance or loop less admits none)."""

    changes: tuple[Change, ...]

    @property
    def text(self) -> str:
        return ", and ".join(c.text for c in self.changes)


@dataclass(frozen=True)
class Diagnosis:
    """Why there is no valid mapping. `size`: how many there are, capacities aside. `relaxations`: those of
    one change, or if there are none, some of several. `untried`: constraints for which there was no time.
    `text` says it all, one line each."""

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
    """The answer. `complete`: False if it was cut short, by the time limit unless it was for want of `memory`
    or interrupted; `unsearched` says what is missing. `bounds`: per objective what every mapping of the space
    has at least (none: not known).

    `halos`: whether there was time for all mappings with halos that were to be looked at (None: none were).
    `diagnosis`: why there are no candidates, if all was searched and there are none; its `text` tells users.
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

    @property
    def reason(self) -> str:
        """Why there are no candidates: which constraint rules out how much where, and the least that admits a
        mapping, a line each; without a diagnosis the first step that left nothing, and what became of its
        points."""
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
    """Where the search stands: `done` of `total` steps, what it is `of` now.

    `best`: the best value of the first objective so far, None before any; `bound`: what every mapping has
    at least. `looked`: combinations of tile sizes, and joins of them, that were looked at until now.
    `spent`: the share of the time limit that is over.
    """

    done: int
    total: int
    of: str
    best: float | None = None
    looked: int = 0
    bound: float = 0.0
    spent: float = 0.0

    @property
    def share(self) -> float:
        """How much of the work is done, or of the time."""
        return max(self.done / max(self.total, 1), min(self.spent, 1.0))

    @property
    def gap(self) -> float | None:
        """By how much the best so far may be above the least there is, as a share of that."""
        return None if self.best is None else gap_of(self.best, self.bound)


def gap_of(best: float, bound: float) -> float:
    """By how much a value may be above the least there is, as a share of that; infinite without a bound."""
    if best <= bound:
        return 0.0
    return best / bound - 1 if bound > 0 else inf


class Bounded(Protocol):
    """A front, and what every solution has at least in each of its objectives."""

    @property
    def objectives(self) -> tuple[str, ...]: ...
    @property
    def bounds(self) -> Mapping[str, float]: ...
    @property
    def gaps(self) -> Mapping[str, float]: ...
    def __len__(self) -> int: ...


def gap_texts(front: Bounded) -> Iterator[str]:
    """How good a front is that was cut short."""
    if not len(front):
        return
    known = [o for o in front.objectives if not isinf(front.gaps[o])]
    each = (
        f"{o} by {share_text(front.gaps[o])} (at least {engineering(front.bounds[o], unit_of(o))})"
        for o in known
    )
    if known:
        yield f"the least here may be above the least there is: {', '.join(each)}"
    rest = [o for o in front.objectives if o not in known]
    if rest:
        none = all(front.bounds.get(o) == 0 for o in rest)
        why = ": no mapping has less than 0, and no more is known" if none else ""
        yield f"how near to the least {', '.join(rest)} is not known{why}"


def share_text(share: float) -> str:
    """A share in percent, rounded upwards."""
    digits = 2 if share < 0.1 else 1
    return f"{ceil(share * 100 * 10**digits - 1e-9) / 10**digits:.{digits}f} %"


Toll = tuple[float, float]


@dataclass(frozen=True)
class Shares:
    """What sparse data leave of the accesses and operations of one Einsum at least.

    `moved`: per operand and memory, for each kind of access, the joules and the bits (as far as they take
    time) of one element of the dense counts. `units`: per compute unit its name, joules per operation and the
    share of operations that take time. `held`: per operand and memory the share of its dense bits that a tile
    takes (none: all of them are dense).
    """

    moved: tuple[tuple[tuple[tuple[str, Toll], ...], ...], ...]
    units: tuple[tuple[str, float, float], ...]
    held: tuple[tuple[float, ...], ...] = ()

    def of(self, operand: int, memory: int, kind: str) -> Toll:
        """Joules and bits per element."""
        return next(toll for name, toll in self.moved[operand][memory] if name == kind)

    def room(self, operand: int, memory: int) -> float:
        """What a tile takes over its dense bits."""
        return self.held[operand][memory] if self.held else 1.0

    def executed(self, unit: str) -> tuple[float, float]:
        """Joules and share of the time per operation."""
        return next((joules, share) for name, joules, share in self.units if name == unit)


@dataclass(frozen=True)
class Quality:
    """How good a front on sparse data is. `factor`: each mapping of the space has one on the front that is no
    more than that above it in every objective, `eps` of the search apart; 1 is exact. `each`: the same per
    objective, the least on the front over the least there is. `evaluated`: of the `found` mappings of the
    search, `besides`: of others; `too_large`: those among all of these whose compressed tiles do not fit.
    `label` is that of the least certain figure on the front."""

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
    """All that a search needs to know besides cascade and hierarchy.

    `objectives`: those of `polymodel.objectives`; older names are read as these (`canonical`). `at_most`:
    limits on figures. `area`: that of the architecture.
    `stop`: asked now and then; once it says True, the search ends as if its time were over. `shares`: per
    Einsum what sparse data leave at least, so that energy and latency are lower bounds (None: dense).
    `room`: bits that memories have besides, as `shares` are a bound of what tiles take.
    `finished`: steps that were done by earlier runs. `crew`: workers of a cluster that share the steps.
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
