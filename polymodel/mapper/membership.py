"""Whether a mapping is in the space that `explore` searches, and what excludes it.

A node that slides over loops that do not index its tensor costs the same as one that refills above these
loops, and is treated as such, if no instances are in between. Nodes without loops between them are in any
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations, product
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from polymodel.api.evaluation import evaluate
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapper.einsum_rules import (
    NO_RULES,
    in_order,
    loop_rules,
    numbered_bands,
    spread_choices,
)
from polymodel.mapper.kept_tiles import block_orders
from polymodel.mapper.records import Limits
from polymodel.mapper.request import Constraints, read_search_request
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.templates import (
    ArrayResidency,
    Sharing,
    Template,
    TemplateNode,
    exchanges_of,
    may_stay,
    with_homes,
)
from polymodel.mapper.tile_chains import TileChains, broken_rules
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split, StorageNode, pipelines
from polymodel.mapping.resolve import LoopRule
from polymodel.reuse import Reuse
from polymodel.spec.faults import not_a_spec

if TYPE_CHECKING:
    from polymodel.architecture.hierarchy import Hierarchy
    from polymodel.loading import Spec
    from polymodel.report.report import Report

LESS = 1e-9  # relative, for a utilisation that is a quotient of floats


def excluded_by(spec: Spec, constraints: Constraints | None = None) -> tuple[str, ...]:
    """What excludes the spec's mapping from the space that `explore` searches, one sentence per reason.

    The space is that of these constraints and of the section `explore:`. Empty if the mapping is in the
    space. Of Einsums that share loops only reasons are found that hold whatever the loops are. Raises
    SpecError for a spec without one of its sections, for wrong constraints and for illegal mappings; Refused
    for what the search does not cover, and where Einsums share loops and no reason is found.

    >>> import polymodel as pm
    >>> spec = pm.load("matmul/output_stationary", "simple_two_level")
    >>> pm.excluded_by(spec, {"memories": {"GLB": {"bypass": "A"}}})
    ('Matmul: GLB must not keep A',)
    """
    from polymodel.loading.spec import Spec

    if not isinstance(spec, Spec):
        raise not_a_spec("excluded_by", spec)
    return with_reasons(spec, constraints)[1]


def with_reasons(spec: Spec, constraints: Constraints | None) -> tuple[Report, tuple[str, ...]]:
    """The report of the spec, and the reasons and errors of `excluded_by`."""
    asked = read_search_request(spec, None, constraints, None, None, 1, None)
    report = evaluate(spec)
    tree, limits = report.problem.tree, asked.request.limits
    spaces = einsum_spaces(spec.workload, asked.hierarchy, limits)
    _require_templates(spaces)
    result = [str(v) for v in report.violations]
    sharing = {space.name for space in spaces if _shared_loops(tree, space)}
    for space in spaces:
        path = _Path(space, tree, limits, asked.hierarchy)
        reasons = path.certain(_shared_loops(tree, space)) if space.name in sharing else path.reasons()
        result += [f"{space.name}: {reason}" for reason in reasons]
    result += [
        f"{', '.join(p.einsums)}: they overlap as stages of a pipeline; Einsums of the space run one after "
        "the other (`moves: pipelines` searches pipelines in addition)"
        for p in pipelines(tree)
    ]
    result += [
        f"the limit {limit}, as it has {report.value(limit.name):.6g}"
        for limit in asked.request.at_most
        if not limit.admits(report.value(limit.name))
    ]
    if sharing and not result:
        names = ", ".join(s.name for s in spaces if s.name in sharing)
        what = (
            f"no rule excludes the mapping; whether explore has these loops that {names} share is not known"
        )
        raise Refused(what, REMEDY, code="unsupported-loop")
    return report, tuple(dict.fromkeys(result))


def outside(space: EinsumSpace, tree: LoopTree, limits: Limits, hierarchy: Hierarchy) -> tuple[str, ...]:
    """What excludes an Einsum's part of a mapping that `evaluate` accepts; capacities aside.

    It shares no loops. Raises Refused for what has no templates.
    """
    _require_templates((space,))
    return tuple(_Path(space, tree, limits, hierarchy).reasons())


def ordered(space: EinsumSpace, limits: Limits, held: Sequence[tuple[str, str]]) -> bool:
    """Whether nodes (memory, tensor), outermost first, may have loops between any two of them."""
    memories, tensors = [m.name for m in space.memories], [o.tensor for o in space.operands]
    nodes = tuple(TemplateNode(tensors.index(t), memories.index(m), k) for k, (m, t) in enumerate(held))
    return in_order(nodes, numbered_bands(space, limits))


ADMITS_FIRST = "`moves: initial_tiles` searches such loops in addition"
REMEDY = "explore, and compare the figures of what is found with those of the mapping"


def _require_templates(spaces: Sequence[EinsumSpace]) -> None:
    """Raises Refused for Einsums whose nodes no template has."""
    for space in spaces:
        if space.copy or any(o.carried is not None or o.forward or o.boxes for o in space.operands):
            what = f"whether mappings of {space.name}, a copy or carried forward, are explored is not known"
            raise Refused(what, REMEDY, code="unsupported-einsum")


def _shared_loops(tree: LoopTree, space: EinsumSpace) -> tuple[Loop, ...]:
    """The loops of an Einsum above its innermost split."""
    path = [step.node for step in tree.path(space.name)]
    split = max((k for k, n in enumerate(path) if isinstance(n, Split)), default=0)
    return tuple(n for n in path[:split] if isinstance(n, Loop))


@dataclass
class _Node:
    """One tensor in one memory.

    `slides`: the variable along which it slides (-1: it refills); `stays`: whether it keeps its tile over
    loops above its instances.
    """

    operand: int
    memory: int
    reuse: Reuse
    slides: int = -1
    stays: bool = False


@dataclass(frozen=True)
class _Step:
    """A loop with more than one iteration. `fanout`: -1 for temporal loops."""

    variable: int
    outer: int
    inner: int
    fanout: int = -1

    @property
    def trips(self) -> int:
        return -(-self.outer // self.inner)


class _Path:
    """The path of one Einsum, read from the outside in."""

    def __init__(self, space: EinsumSpace, tree: LoopTree, limits: Limits, hierarchy: Hierarchy) -> None:
        self.space, self.limits, self.hierarchy = space, limits, hierarchy
        self.found: list[str] = []
        self.items: list[_Node | _Step] = []
        self.unit = 0
        self.spread: dict[tuple[int, int], int] = {}  # instances by fanout and variable
        self._read(tree)

    def reasons(self) -> list[str]:
        """What excludes the mapping."""
        self._settle()
        self._lower_spatial()
        nodes = self._nodes()
        self._check_memories()
        self._check_outermost()
        sound = not self.found
        self._check_spread()
        self._check_use()
        if sound:
            self.found += self._broken(nodes)
        return self.found

    def certain(self, shared: Sequence[Loop]) -> list[str]:
        """What excludes the mapping whatever it shares: where tensors are, instances in use, tile sizes,
        policies, and which loops are shared.

        `shared`: the loops that it shares with other Einsums.
        """
        for node in (x for x in self.items if isinstance(x, _Node) and x.memory):
            self._check_policy(node, shared=True)
        self._check_shared(self._iterating(shared))
        self._check_memories()
        self._check_use()
        return self.found

    def _iterating(self, loops: Sequence[Loop]) -> list[tuple[str, Loop]]:
        """The outermost loops of a path that have more than one iteration, with their variables."""
        now, result = dict(zip(self.space.variables, self.space.extents, strict=True)), []
        for loop in loops:
            name, tile = loop.variable_in(self.space.name), int(loop.within(self.space.name).tile_shape)
            if tile < now.get(name, 1):
                now[name] = tile
                result.append((name, loop))
        return result

    def _check_shared(self, shared: Sequence[tuple[str, Loop]]) -> None:
        """Loops that Einsums share are temporal, and no more than are allowed."""
        names = [name for name, loop in shared if not loop.spatial]
        spread = [name for name, loop in shared if loop.spatial]
        if spread:
            self.found.append(
                f"it shares the spatial loop over {', '.join(spread)}: shared loops of the space are temporal"
            )
        most, each = self.limits.max_fused_loops, self.limits.max_fused_loops_per_rank_variable
        if most is not None and len(names) > most:
            self.found.append(f"it shares loops over {', '.join(names)} (`max_fused_loops: {most}`)")
        if often := sorted({name for name in names if names.count(name) > each}):
            key = f"max_fused_loops_per_rank_variable: {each}"
            self.found.append(f"it shares several loops over {', '.join(often)} (`{key}`)")

    def _read(self, tree: LoopTree) -> None:
        space, memories = self.space, [m.name for m in self.space.memories]
        fans = [(f.component, f.name) for f in space.fanouts]
        now = list(space.extents)
        for node in (step.node for step in tree.path(space.name)):
            if isinstance(node, StorageNode):
                held = (o for t in node.tensors for o in [space.operand(t)] if o is not None)
                for o in held if node.component in memories else ():
                    m = memories.index(node.component)
                    self.items.append(_Node(space.operands.index(o), m, node.reuse))
            elif isinstance(node, ComputeNode):
                names = [u.name for u in space.units]
                if node.component in names:
                    self.unit = names.index(node.component)
                else:
                    self.found.append(f"it must not run on {node.component} (`compute`)")
            elif isinstance(node, Loop):
                self._read_loop(node.within(space.name), node.variable_in(space.name), now, fans)

    def _read_loop(self, loop: Loop, name: str, now: list[int], fans: Sequence[tuple[str, str]]) -> None:
        if name not in self.space.variables:
            return
        v, tile = self.space.variables.index(name), int(loop.tile_shape)
        outer, now[v] = now[v], min(tile, now[v])
        if loop.initial_tile_shape is not None:
            self.found.append(f"the loop over {name} has a first tile of its own ({ADMITS_FIRST})")
        if now[v] == outer:
            return
        fanout = fans.index((loop.component, loop.dim)) if loop.spatial else -1
        step = _Step(v, outer, now[v], fanout)
        self.items.append(step)
        if loop.spatial:
            self.spread[fanout, v] = self.spread.get((fanout, v), 1) * step.trips
        divides = self.space.even if loop.spatial else self.space.divide
        if divides and outer % now[v]:
            key = "spatial_sizes" if loop.spatial else "sizes"
            self.found.append(f"the tile {now[v]} of {name} does not divide {outer} (`{key}: all` admits it)")
        elif loop.spatial and now[v] != -(-outer // step.trips):
            self.found.append(
                f"{step.trips} instances could have less than {now[v]} of {outer} of {name} each"
            )

    def _settle(self) -> None:
        """Replace sliding nodes by nodes that refill, or that slide along one loop."""
        for node in [x for x in self.items if isinstance(x, _Node) and x.memory]:
            self._check_policy(node)
            while node.reuse is Reuse.SLIDE and not self._settled(node):
                pass

    def _check_policy(self, node: _Node, shared: bool = False) -> None:
        """Check whether a node keeps only where it may, and where it must. `shared`: the Einsum shares
        loops."""
        rules, memory = self.space.rules, self.space.memories[node.memory].name
        if node.reuse is Reuse.KEEP_PREVIOUS and shared:
            told = f"has the reuse policy `{node.reuse}`, and the Einsum shares loops"
            self.found.append(f"{self._at(node)} {told}")
        elif node.reuse is Reuse.KEEP_PREVIOUS and node.memory not in rules.keeping:
            admits = f"`explore: {{memories: {{{memory}: {{reuse: [refill, keep_previous]}}}}}}` admits it"
            asked = any(r.kind == "reuse" and node.reuse in r.names for r in self.limits.rules)
            admits = "the search does not count that here" if asked else admits
            self.found.append(f"{self._at(node)} has the reuse policy `{node.reuse}` ({admits})")
        elif node.reuse is not Reuse.KEEP_PREVIOUS and node.memory in rules.always:
            self.found.append(f"{self._at(node)} has the reuse policy `{node.reuse}` (`reuse` of {memory})")

    def _check_order(self, groups: Sequence[Sequence[_Node]]) -> None:
        """Check whether the loops above nodes that keep stand in an order of the search space. `groups`:
        nodes in the branch without loops between them."""
        if not any(n.reuse is Reuse.KEEP_PREVIOUS for group in groups for n in group):
            return
        band = numbered_bands(self.space, self.limits)
        ways = [
            [x for x in permutations(g) if all(band[a.memory] <= band[b.memory] for a, b in pairwise(x))]
            for g in groups
        ]
        if not any(self._stands_in_order([n for g in some for n in g]) for some in product(*ways)):
            what = "its loops stand in no order that is looked at where nodes keep"
            self.found.append(f"{what} (docs/explore.md says which are)")

    def _stands_in_order(self, nodes: Sequence[_Node]) -> bool:
        """Return whether the loops above these nodes stand in an order of the search space."""
        first = {v: members[0] for members in self.space.bundles for v in members}
        place = {id(n): k for k, n in enumerate(self.ordered)}
        blocks: list[list[int]] = [[] for _ in range(len(nodes) + 1)]
        passed = 0
        for item in self.items:
            if isinstance(item, _Node):
                passed += id(item) in place
            elif item.fanout < 0 and blocks[passed][-1:] != [first[item.variable]]:
                blocks[passed].append(first[item.variable])
        branch = [
            TemplateNode(n.operand, n.memory, k, slides=n.slides, keeps=n.reuse is Reuse.KEEP_PREVIOUS)
            for k, n in enumerate(nodes, start=1)
        ]
        return any(
            all(
                [v for v in order if v in block] == block
                for order, block in zip(orders, blocks, strict=False)
            )
            for orders in block_orders(self.space, branch)
        )

    def _settled(self, node: _Node) -> bool:
        """Return whether the node now slides along the loop above it or refills; otherwise it is moved above
        that loop."""
        at = next(k for k, x in enumerate(self.items) if x is node)
        above = next((k for k in range(at - 1, -1, -1) if self._in_time(self.items[k])), None)
        if above is None:
            return True
        step, o = self.items[above], self.space.operands[node.operand]
        assert isinstance(step, _Step)
        v, name = step.variable, self.space.variables[step.variable]
        if v in o.alone:
            return True
        if v in o.windowed | o.tied:
            node.slides = v
            if v not in self.space.slides(node.memory, node.operand):
                memory = self.space.memories[node.memory].name
                why = f"`explore: {{memories: {{{memory}: {{reuse: [refill, slide]}}}}}}` admits it"
                if v in o.tied and node.memory in self.space.rules.sliding:
                    why = "which bounds tie to another rank variable; there the search has no such nodes"
                self.found.append(f"{self._at(node)} slides along {name} ({why})")
            return True
        if any(isinstance(x, _Step) and x.fanout >= 0 for x in self.items[above:at]):
            node.stays = self._may_stay(node)
            if not node.stays:
                self.found.append(
                    f"{self._at(node)} keeps it over the loop over {name}, which stands above its instances "
                    "(`reuse` of its memory; of inputs without windows)"
                )
            return True
        del self.items[at]
        self.items.insert(above, node)
        return False

    def _may_stay(self, node: _Node) -> bool:
        return may_stay(self.space, TemplateNode(node.operand, node.memory, 0))

    def _stay(self, node: _Node) -> ArrayResidency:
        """Determine the loops above its instances over which a node stays.

        These are the loops inside the innermost one that indexes its tensor; there must be none further
        outside in the same block.
        """
        alone = self.space.operands[node.operand].alone
        at = next(k for k, x in enumerate(self.items) if x is node)
        above = [k for k in range(at) if self._in_time(self.items[k])]
        after = next((k for k in reversed(above) if self._variable(k) in alone), -1)
        if after < 0:
            return ArrayResidency(0, -1)
        begin = max((k for k in range(after) if isinstance(self.items[k], _Node)), default=-1)
        outer = next((k for k in above if begin < k < after and self._variable(k) not in alone), None)
        if outer is not None:
            name, other = (self.space.variables[self._variable(k)] for k in (outer, after))
            self.found.append(
                f"{self._at(node)} stays over loops, but not over that over {name} above {other}"
            )
        since = sum(any(x is n for n in self.ordered) for x in self.items[:after])
        return ArrayResidency(since, self._variable(after))

    def _variable(self, at: int) -> int:
        """The variable of a loop."""
        step = self.items[at]
        assert isinstance(step, _Step)
        return step.variable

    def _in_time(self, item: _Node | _Step) -> bool:
        return isinstance(item, _Step) and item.fanout < 0

    def _at(self, node: _Node) -> str:
        tensor, memory = self.space.operands[node.operand].tensor, self.space.memories[node.memory].name
        return f"the node of {tensor} in {memory}"

    def _lower_spatial(self) -> None:
        """Move spatial loops right above the next node, past temporal loops over other variables."""
        result: list[_Node | _Step] = []
        waiting: list[_Step] = []
        for item in self.items:
            if isinstance(item, _Node):
                result += [*waiting, item]
                waiting = []
            elif item.fanout >= 0:
                waiting.append(item)
            else:
                name = self.space.variables[item.variable]
                self.found += [
                    f"a loop over {name} in time stands between a spatial one and the storage inside it"
                    for other in waiting
                    if other.variable == item.variable
                ]
                result.append(item)
        self.items = [*result, *waiting]

    def _nodes(self) -> tuple[TemplateNode, ...]:
        """Nodes by level; those without loops between them are in the order of the search space."""
        groups: list[list[_Node]] = [[]]  # the first group is above all loops
        for before, item in zip((None, *self.items), self.items, strict=False):
            if isinstance(item, _Node):
                if isinstance(before, _Step):
                    groups.append([])
                groups[-1].append(item)
        nodes: list[TemplateNode] = []
        branch: list[list[_Node]] = []
        self.ordered: list[_Node] = []
        handed_on = self._shape().exchanges
        for number, group in enumerate(groups):
            branch.append([])
            for node in sorted(group, key=lambda n: (n.slides < 0, n.memory)):
                if not node.memory:
                    if number:
                        self.found.append(f"{self._at(node)} stands below loops")
                elif (node.operand, node.memory) in handed_on:
                    nodes.append(TemplateNode(node.operand, node.memory, 0, True))
                else:
                    self.ordered.append(node)
                    branch[-1].append(node)
                    level = len(self.ordered)
                    nodes.append(TemplateNode(node.operand, node.memory, level, slides=node.slides))
            if sum(n.slides >= 0 for n in group) > 1:
                self.found.append(f"{self._at(group[0])} slides along a loop along which another node slides")
        nodes = [
            replace(n, stays=self._stay(self.ordered[n.level - 1]))
            if n.level and self.ordered[n.level - 1].stays
            else n
            for n in nodes
        ]
        if sum(n.stays is not None for n in nodes) > 1:
            self.found.append("several nodes stay over loops above their instances")
        self._check_order(branch)
        band = numbered_bands(self.space, self.limits)
        for one, other in combinations(self.ordered, 2):
            mine = [
                n for n in nodes if (n.operand, n.memory) in {(x.operand, x.memory) for x in (one, other)}
            ]
            if not in_order(tuple(mine), band):
                self.found.append(f"{self._at(other)} stands below {self._at(one)} (`force_memory_order`)")
        return tuple(nodes)

    def _loops_above(self, node: _Node) -> bool:
        at = next(k for k, x in enumerate(self.items) if x is node)
        return any(isinstance(x, _Step) for x in self.items[:at])

    def _check_memories(self) -> None:
        """Check the memories that hold each tensor."""
        space, reach = self.space, self.space.units[self.unit].memories
        held = [(x.operand, x.memory) for x in self.items if isinstance(x, _Node)]
        for i, o in enumerate(space.operands):
            mine = [m for k, m in held if k == i]
            outermost = min(mine, default=0)
            if outermost not in exchanges_of(space, o, self.limits, reach):
                where = space.memories[outermost].name
                self.found.append(
                    f"{o.tensor} must not have its outermost tile in {where} (`exchange`, `fuse`, `unfused`)"
                )
            for m in range(outermost + 1, reach):
                if o.tensor in space.keep[m] and m not in mine:
                    self.found.append(f"{space.memories[m].name} must keep {o.tensor}")
            for m in mine:
                if m and o.tensor not in space.may[m]:
                    self.found.append(f"{space.memories[m].name} must not keep {o.tensor}")
            for m in {m for m in mine if mine.count(m) > 1}:
                self.found.append(f"{space.memories[m].name} has {o.tensor} twice")

    def _check_outermost(self) -> None:
        """Check that what no memory further out holds stands above all loops."""
        for i in range(len(self.space.operands)):
            mine = [n for n in self.items if isinstance(n, _Node) and n.operand == i]
            if mine and all(n.memory for n in mine) and self._loops_above(mine[0]):
                self.found.append(f"{self._at(mine[0])} stands below loops, and nothing outside holds it")

    def _check_spread(self) -> None:
        """Check what is spread over each fanout."""
        space = self.space
        bare = replace(space, rules=NO_RULES)
        inside = self._shape().innermost
        for (f, v), instances in self.spread.items():
            fan = space.fanouts[f]
            if instances not in spread_choices(bare, self.unit, inside, v)[f]:
                spread = (
                    f"{instances} instances of {fan.component}.{fan.name} (docs/explore.md says which are)"
                )
                self.found.append(f"{space.variables[v]} is not spread over {spread}")

    def _check_use(self) -> None:
        """Check the number of instances in use, and the rules on what is spread."""
        space, reach = self.space, self.space.units[self.unit].fanouts
        for f, fan in enumerate(space.fanouts[:reach]):
            used = prod(n for (g, _), n in self.spread.items() if g == f)
            if used < fan.least * fan.width * (1 - LESS):
                in_use = f"{used} of {fan.width} instances of {fan.component}.{fan.name} are in use"
                self.found.append(f"{in_use} (`min_utilisation` asks for {fan.least * fan.width:g})")
        for rule in (r for r in self.limits.rules if r.spatial):
            if not self._spreads_by(rule):
                self.found.append(f"{rule.place} {rule.written}")

    def _spreads_by(self, rule: LoopRule) -> bool:
        space = self.space
        f = [f"{x.component}.{x.name}" for x in space.fanouts].index(rule.place)
        if f >= space.units[self.unit].fanouts:
            return True
        mine = {space.variables[v]: n for (g, v), n in self.spread.items() if g == f}
        if rule.kind == "factors":
            return all(rule.admits(mine.get(v, 1)) for v in rule.names if v in space.einsum.rank_variables)
        if rule.kind == "variables":
            return mine.keys() <= rule.names
        shared = [a for a in space.einsum.accesses if a.tensor in rule.tensors(space.name)]
        return not any(v in a.variables for a in shared for v in mine)

    def _shape(self) -> Sharing:
        """The exchanges: tensors that are not in the backing storage are exchanged in their outermost
        memories."""
        held: dict[int, list[int]] = {}
        for x in self.items:
            if isinstance(x, _Node):
                held.setdefault(x.operand, []).append(x.memory)
        return Sharing((), tuple((i, min(m), 0) for i, m in sorted(held.items()) if min(m)))

    def _broken(self, nodes: tuple[TemplateNode, ...]) -> Iterator[str]:
        """Return rules on temporal loops that the mapping violates, individually or together."""
        rules = tuple(r for r in self.limits.rules if not r.spatial)
        telling = [r for r in rules if r.kind != "reuse"]
        if not telling or self._obeys(self._under(replace(self.limits, rules=rules)), nodes):
            return
        policies = [r for r in rules if r.kind == "reuse"]
        limits = [replace(self.limits, rules=(r, *policies)) for r in telling]
        broken = [r for r, x in zip(telling, limits, strict=True) if not self._obeys(self._under(x), nodes)]
        yield from (f"{r.place} {r.written}" for r in broken)
        if not broken:
            together = "; ".join(f"{r.place} {r.written}" for r in telling)
            yield f"its loops cannot be parted among memories so that they obey all of: {together}"

    def _under(self, limits: Limits) -> EinsumSpace:
        space = self.space
        position = {v: i for i, v in enumerate(space.variables)}
        memories = [self.hierarchy[m.name] for m in space.memories]
        machine = self.hierarchy
        return replace(space, rules=loop_rules(space.einsum, machine, memories, position, limits))

    def _obeys(self, space: EinsumSpace, nodes: tuple[TemplateNode, ...]) -> bool:
        template = Template(self._shape(), nodes, self.unit)
        chains = [self._chains(v, len(nodes)) for v in range(len(space.variables))]
        return any(
            not any(broken_rules(space, t, v, c)[0] for v, c in enumerate(chains))
            for t in with_homes(space, template)
        )

    def _chains(self, v: int, levels: int) -> TileChains:
        """The tile sizes of one variable, in the form of a template's chains."""
        place = {id(n): k + 1 for k, n in enumerate(self.ordered)}
        tiles, now = [self.space.extents[v]] * (levels + 1), self.space.extents[v]
        fans = len(self.space.fanouts)
        spread, shared = [1] * fans, [self.space.extents[v]] * fans
        for item in self.items:
            if isinstance(item, _Node):
                if id(item) in place:
                    tiles[place[id(item)]] = now
            elif item.variable == v:
                if item.fanout >= 0:
                    spread[item.fanout] *= item.trips
                    shared[item.fanout] = item.outer
                now = item.inner
        even = self.space.even and self.space.divide
        column = (np.array(x, np.int64).reshape(-1, 1) for x in (tiles, spread, shared))
        sizes, wide, above = column
        none = np.zeros((0, 1), np.int64)
        return TileChains(self.space.extents[v], sizes, wide, none, even, None if self.space.even else above)
