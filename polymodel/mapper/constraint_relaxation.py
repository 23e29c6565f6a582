"""The constraints of a search, one by one: what it is like without each, and how little of it suffices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from polymodel.architecture.hierarchy import Component, Hierarchy, TensorRule
from polymodel.mapper.records import Change, Limits, Relaxation, Request, SearchResult
from polymodel.mapping.loop_rules import LOOP_RULES
from polymodel.mapping.mapspace_constraints import narrowing_text
from polymodel.workload.einsum import Cascade

# Giving these up makes a search long, and seldom helps.
SELDOM = ("force_memory_order", "max_fused_loops_per_rank_variable")


@dataclass(frozen=True)
class RelaxedProblem:
    """What is searched: an architecture and limits."""

    hierarchy: Hierarchy
    limits: Limits


@dataclass(frozen=True)
class SearchConstraint:
    """One constraint; `have` is its figure, if it has one; `written`: what the exploration says of a rule."""

    kind: str
    level: str = ""
    einsum: str = ""
    tensors: tuple[str, ...] = ()
    have: float | None = None
    written: str = ""

    @property
    def of_blocks(self) -> bool:
        """Whether it is a rule on temporal loops."""
        return self.kind in ("no_refetch", "order") or (self.kind == "factors" and "." not in self.level)

    def concerns(self, einsum: str, tensors: Sequence[str]) -> bool:
        """Whether an Einsum of these tensors feels it."""
        return self.einsum in ("", einsum) and (not self.tensors or bool(set(self.tensors) & set(tensors)))

    def dropped(self, p: RelaxedProblem) -> RelaxedProblem:
        """The problem without the constraint."""
        return self.at(p, None)

    def at(self, p: RelaxedProblem, figure: float | None) -> RelaxedProblem:
        """The problem with another figure (None: without the constraint)."""
        limits, kind = p.limits, self.kind
        if kind == "capacity":
            return _with(
                p, self.level, lambda c: replace(c, size_bits=math.inf if figure is None else figure)
            )
        if kind in ("keep", "may_keep"):
            return _with(p, self.level, self._ruled)
        if kind == "min_utilisation":
            rest = tuple(x for x in limits.min_utilisation if f"{x[0]}.{x[1]}" != self.level)
            if figure is not None:
                component, _, dim = self.level.rpartition(".")
                rest = (*rest, (component, dim, figure))
            limits = replace(limits, min_utilisation=rest)
        elif kind == "max_fused_loops":
            limits = replace(limits, max_fused_loops=None if figure is None else int(figure))
        elif kind == "max_fused_loops_per_rank_variable":
            limits = replace(limits, max_fused_loops_per_rank_variable=int(figure or (self.have or 1) + 1))
        elif kind == "fuse":
            limits = replace(limits, fuse=limits.fuse - set(self.tensors))
        elif kind == "exchange":
            limits = replace(limits, exchange=(limits.exchange or frozenset()) | {self.level})
        elif kind == "unfused":
            limits = replace(limits, unfused=limits.unfused - set(self.tensors))
        elif kind == "force_memory_order":
            limits = replace(limits, force_memory_order=False)
        elif kind == "loop_order":
            limits = replace(limits, loop_order=tuple(x for x in limits.loop_order if x[0] != self.einsum))
        elif kind in LOOP_RULES:
            mine = kind, self.level, self.written
            rest_of = tuple(r for r in limits.rules if (r.kind, r.place, r.written) != mine)
            limits = replace(limits, rules=rest_of)
        elif kind == "compute":
            limits = replace(limits, compute=tuple(x for x in limits.compute if x[0] != self.einsum))
        return replace(p, limits=limits)

    def _ruled(self, c: Component) -> Component:
        """The memory that need not keep the tensors, but may, in every Einsum."""
        mine = frozenset(self.tensors)
        keep = c.keep or TensorRule("Nothing")
        keeps = tuple((e, ts - mine if self.kind == "keep" else ts) for e, ts in keep.by_einsum)
        if c.may_keep is None:
            return replace(c, keep=replace(keep, by_einsum=keeps))
        mays = tuple((e, ts | keep.tensors(e) | mine) for e, ts in c.may_keep.by_einsum)
        return replace(
            c,
            keep=replace(keep, by_einsum=keeps),
            may_keep=replace(c.may_keep, by_einsum=mays),
        )

    def change(self, need: float | None = None) -> Change:
        return Change(self.kind, self.level, self.einsum, self.tensors, need, self.have, self.written)


def _with(p: RelaxedProblem, name: str, changed: Callable[[Component], Component]) -> RelaxedProblem:
    components = tuple(changed(c) if c.name == name else c for c in p.hierarchy.components)
    return replace(p, hierarchy=replace(p.hierarchy, components=components))


def constraints(cascade: Cascade, p: RelaxedProblem) -> tuple[SearchConstraint, ...]:
    """Every constraint that can be relaxed; those given up first are last."""
    return (*_of_limits(p), *_of_memories(cascade, p))


def _of_limits(p: RelaxedProblem) -> Iterator[SearchConstraint]:
    limits = p.limits
    for e, unit in limits.compute:
        yield SearchConstraint("compute", unit, e)
    for e, _ in limits.loop_order:
        yield SearchConstraint("loop_order", "", e)
    for rule in (r for r in limits.rules if r.kind in LOOP_RULES):
        yield SearchConstraint(rule.kind, rule.place, written=rule.written)
    memories = [c.name for c in p.hierarchy.components if c.kind == "memory"]
    handed = frozenset(memories) if limits.exchange is None else limits.exchange
    for name in memories[2:]:
        if name not in handed:
            yield SearchConstraint("exchange", name)
    for t in sorted(limits.fuse):
        yield SearchConstraint("fuse", tensors=(t,))
    for t in sorted(limits.unfused):
        yield SearchConstraint("unfused", tensors=(t,))
    if limits.force_memory_order and len(memories) > 2:
        yield SearchConstraint("force_memory_order")
    if limits.max_fused_loops is not None:
        yield SearchConstraint("max_fused_loops", have=limits.max_fused_loops)
    per = limits.max_fused_loops_per_rank_variable
    yield SearchConstraint("max_fused_loops_per_rank_variable", have=per)
    for component, dim, least in limits.min_utilisation:
        if least:
            yield SearchConstraint("min_utilisation", f"{component}.{dim}", have=least)


def _of_memories(cascade: Cascade, p: RelaxedProblem) -> Iterator[SearchConstraint]:
    memories = [c for c in p.hierarchy.components if c.kind == "memory"]
    outermost = memories[0].name
    for c in memories:
        for t in cascade.tensors:
            users = [e for e in cascade if t in e.tensors]
            kept = any(c.keep is not None and t in c.keep.tensors(e.name) for e in users)
            barred = c.may_keep is not None and not all(
                t in c.may_keep.tensors(e.name) or (c.keep is not None and t in c.keep.tensors(e.name))
                for e in users
            )
            # What is no intermediate has to be in the outermost memory.
            if kept and (c.name != outermost or t in cascade.intermediates):
                yield SearchConstraint("keep", c.name, tensors=(t,), written=narrowing_text(c.keep))
            if barred:
                yield SearchConstraint("may_keep", c.name, tensors=(t,), written=narrowing_text(c.may_keep))
    for c in memories[1:]:
        if not math.isinf(c.size_bits):
            yield SearchConstraint("capacity", c.name, have=c.size_bits)


Search = Callable[[Cascade, Hierarchy, Request], SearchResult]


@dataclass
class Relaxer:
    """Searches relaxed problems. `going_on` says whether there is time for another."""

    cascade: Cascade
    search: Search
    going_on: Callable[[], bool]

    def admits(self, p: RelaxedProblem) -> bool:
        """Whether there is any mapping; the first one ends the search."""
        best: list[float] = []
        result = self.search(
            self.cascade,
            p.hierarchy,
            Request(
                ("latency",),
                p.limits,
                progress=lambda told: best.append(told.best) if told.best is not None else None,
                stop=lambda: bool(best) or not self.going_on(),
            ),
        )
        return bool(result.candidates or best)

    def least(self, c: SearchConstraint, p: RelaxedProblem) -> float | None:
        """The least figure of a constraint with which the problem admits a mapping, if it has figures."""
        if c.kind == "capacity":
            request = Request((f"working_set:{c.level}",), p.limits, stop=lambda: not self.going_on())
            result = self.search(self.cascade, c.dropped(p).hierarchy, request)
            return min((x.values[0] for x in result.candidates), default=math.inf)
        if c.kind == "min_utilisation":
            return self._utilisation(c, p)
        if c.kind == "max_fused_loops":
            figure = int(c.have or 0) + 1
            while self.going_on() and not self.admits(c.at(p, figure)):
                figure += 1
            return figure
        return (c.have or 1) + 1 if c.kind == "max_fused_loops_per_rank_variable" else None

    def _utilisation(self, c: SearchConstraint, p: RelaxedProblem) -> float:
        """The largest share of the fanout that still works, by halving."""
        component, _, dim = c.level.rpartition(".")
        width = p.hierarchy[component].dim(dim).fanout
        low, high = 0, math.ceil(min(c.have or 0, 1) * width - 1e-9)
        while high - low > 1 and self.going_on():
            middle = (low + high) // 2
            if self.admits(c.at(p, middle / width)):
                low = middle
            else:
                high = middle
        return low / width

    def relaxation(self, chosen: Sequence[SearchConstraint], p: RelaxedProblem) -> Relaxation | None:
        """All of these constraints relaxed, each as little as the others allow once those before it are;
        None if the time did not suffice."""
        changes = []
        for k, c in enumerate(chosen):
            rest = p
            for other in chosen[k + 1 :]:
                rest = other.dropped(rest)
            need = self.least(c, rest)
            changes.append(c.change(need))
            p = c.at(p, need)
        return Relaxation(tuple(changes)) if self.going_on() else None

    def smallest(self, some: Sequence[SearchConstraint], p: RelaxedProblem) -> tuple[SearchConstraint, ...]:
        """Some of the constraints, none of which is dispensable, without which there is a mapping; empty if
        there is none without all of them. Later ones are given up rather than earlier ones."""
        for few in ([c for c in some if c.kind not in SELDOM], some):
            loose = p
            for c in few:
                loose = c.dropped(loose)
            if self.admits(loose):
                some = few
                break
        else:
            return ()
        left = list(some)
        for c in some:
            without = p
            for other in left:
                without = without if other == c else other.dropped(without)
            if self.going_on() and self.admits(without):
                left.remove(c)
        return tuple(left)
