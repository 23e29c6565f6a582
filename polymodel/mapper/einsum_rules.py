"""What an exploration says of the loops of one Einsum, by positions of its rank variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Protocol

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.mapper.records import Limits
from polymodel.mapping.loop_rules import OTHERS, LoopRule
from polymodel.workload.einsum import Einsum

Factor = tuple[int, LoopRule]  # of a variable (position)
OTHER = -1  # in an order of loops: variables that it does not name


@dataclass(frozen=True)
class LoopRules:
    """What an exploration says of the loops of one Einsum. `only`: per fanout the variables that may be
    spread over it (None: all); `spread`: per fanout the factors of variables; `blocks`: per memory those of
    temporal loops right below it; `once`: (memory, operand) that is fetched once; `orders`: (memory,
    variables of temporal loops right below it from the outermost in, OTHER for those that are not named);
    `sliding`: memories whose nodes may slide."""

    only: tuple[frozenset[int] | None, ...] = ()
    spread: tuple[tuple[Factor, ...], ...] = ()
    blocks: tuple[tuple[Factor, ...], ...] = ()
    once: tuple[tuple[int, int], ...] = ()
    orders: tuple[tuple[int, tuple[int, ...]], ...] = ()
    sliding: frozenset[int] = frozenset()

    @property
    def of_blocks(self) -> bool:
        """Whether temporal loops have rules: which node a loop stands below then matters."""
        return self.placed or bool(self.once)

    @property
    def placed(self) -> bool:
        """Whether it matters below which node of a memory a loop stands, and in which order."""
        return any(self.blocks) or bool(self.orders)

    def apart(self, variable: int) -> object:
        """Variables that rules tell apart have different values."""
        named = any(v == variable for row in (*self.spread, *self.blocks) for v, _ in row)
        named = named or any(variable in sequence for _, sequence in self.orders)
        return variable if named else -1, tuple(o is None or variable in o for o in self.only)

    def spreads(self, fanout: int, variable: int, choices: tuple[int, ...]) -> tuple[int, ...]:
        """Of numbers of instances those that the rules admit."""
        allowed = self.only[fanout] if self.only else None
        if allowed is not None and variable not in allowed:
            choices = tuple(c for c in choices if c == 1)
        for v, rule in self.spread[fanout] if self.spread else ():
            if v == variable:
                choices = tuple(c for c in choices if rule.admits(c))
        return choices


NO_RULES = LoopRules()


def loop_rules(
    one: Einsum, hierarchy: Hierarchy, memories: list[Component], position: dict[str, int], limits: Limits
) -> LoopRules:
    """Those that concern an Einsum, by positions."""
    if not limits.rules:
        return LoopRules()
    fans = [f"{c.name}.{d.name}" for c in hierarchy.components for d in c.spatial]
    names = [m.name for m in memories]
    only: list[frozenset[int] | None] = [None] * len(fans)
    factors: dict[str, list[Factor]] = {n: [] for n in (*fans, *names)}
    once: list[tuple[int, int]] = []
    orders: list[tuple[int, tuple[int, ...]]] = []
    for rule in limits.rules:
        tensors = rule.tensors(one.name)
        if rule.kind == "variables":
            allowed = frozenset(position[v] for v in rule.names if v in position)
        elif rule.kind == "must_reuse":
            indexing = {v for a in one.accesses if a.tensor in tensors for v in a.variables}
            allowed = frozenset(i for v, i in position.items() if v not in indexing)
        elif rule.kind == "order":
            if any(m.allocation == "live" for m in memories):
                what = f"{rule.place} {rule.written} beside `allocation: live`, which depends on the order"
                raise Refused(what, "leave one of them out")
            sequence = tuple(
                OTHER if v == OTHERS else position[v] for v in rule.sequence if v == OTHERS or v in position
            )
            orders += [(names.index(rule.place), sequence)] if len(sequence) > 1 else []
            continue
        elif rule.kind == "reuse":
            continue
        elif rule.kind == "factors":
            single = [v for v in rule.names if v in one.rank_variables and v not in position]
            if single and not rule.admits(1):
                what = f"{rule.place} {rule.written}: rank variable {single[0]} of {one.name} has one value"
                raise Refused(f"no mapping obeys {what}", "leave the factor out, or ask for 1")
            factors[rule.place] += [(position[v], rule) for v in rule.names if v in position]
            continue
        else:
            held = (i for i, a in enumerate(one.accesses) if a.tensor in tensors)
            once += [(names.index(rule.place), i) for i in held]
            continue
        f = fans.index(rule.place)
        before = only[f]
        only[f] = allowed if before is None else allowed & before
    sliding = frozenset(names.index(r.place) for r in limits.rules if r.kind == "reuse")
    if sliding and orders:
        what = "`order` of loops beside nodes that slide, which depend on it"
        raise Refused(f"the search does not cover {what}", "leave `order` or `reuse` out")
    return LoopRules(
        tuple(only),
        tuple(tuple(factors[f]) for f in fans),
        tuple(tuple(factors[m]) for m in names),
        tuple(once),
        tuple(orders),
        sliding,
    )


class Placed(Protocol):
    """A storage node: its memory and the level it stands at."""

    @property
    def memory(self) -> int: ...

    @property
    def level(self) -> int: ...


def held_above(nodes: Sequence[Placed], levels: int) -> list[int]:
    """Per level the memory of the last node above the loops there."""
    order = sorted(nodes, key=lambda n: (n.level, n.memory))
    return [next((n.memory for n in reversed(order) if n.level <= level), 0) for level in range(levels)]


Barred = frozenset[tuple[int, int]]


def barred_loops(rules: LoopRules, variables: int, nodes: Sequence[Placed], levels: int) -> list[Barred]:
    """What orders of loops admit, as sets of (variable, level) at which no loop stands: each obeys the
    orders, and together they admit all that does. Loops at one level may be written in any order."""
    above = held_above(nodes, levels)
    each = [list(_barred_by(sequence, above, m, variables)) for m, sequence in rules.orders]
    every = {frozenset().union(*chosen) for chosen in product(*each)}
    return sorted((b for b in every if not any(other < b for other in every)), key=sorted)


def _barred_by(
    sequence: tuple[int, ...], above: Sequence[int], memory: int, variables: int
) -> Iterator[Barred]:
    """Of one order: the levels below its memory are parted among the places of the order."""
    levels = [level for level, m in enumerate(above) if m == memory]
    if not levels:
        yield frozenset()
        return
    last = len(levels) - 1
    for cuts in combinations_with_replacement(range(len(levels)), len(sequence) - 1):
        spans = list(zip((0, *cuts), (*cuts, last), strict=True))
        allowed: dict[int, set[int]] = {}
        for v, (low, high) in zip(sequence, spans, strict=True):
            allowed.setdefault(v, set()).update(levels[low : high + 1])
        free = allowed.get(OTHER, set(levels))
        yield frozenset(
            (v, level) for v in range(variables) for level in levels if level not in allowed.get(v, free)
        )
