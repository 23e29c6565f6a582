"""Schema objects -> `LoopTree`, and back to YAML; and the rules on loops of an `explore:` section."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.architecture.resolve import Rules
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode, Tile
from polymodel.reuse import Reuse
from polymodel.spec.arch_schema import SparseSection
from polymodel.spec.faults import Faults, Path, not_a, suggestion
from polymodel.spec.numbers import Numbers, Value, evaluate_number, symbols_in
from polymodel.spec.section_schemas import (
    Compute,
    FanoutRule,
    MappingSpec,
    MemoryRule,
    Nested,
    Pipeline,
    Sequential,
    Spatial,
    Storage,
    Temporal,
)
from polymodel.spec.yaml_text import Scalar, dump
from polymodel.workload.einsum import Cascade

Written = Storage | Temporal | Spatial | Compute | Nested | Sequential | Pipeline
DEFAULT = "default"


@dataclass(frozen=True)
class ResolvedMapping:
    """A LoopTree and, for each node id, the path of the node in the spec (empty without one)."""

    tree: LoopTree
    paths: tuple[Path, ...] = ()


def resolve_mapping(spec: MappingSpec, faults: Faults) -> ResolvedMapping | None:
    """Flatten `Nested` nodes and build the tree; None after a fault.

    A loop whose `rank_variable` is a dictionary takes the variable of `default`, or of the first
    Einsum, as its own; the other entries become `per_einsum`.
    """
    before = len(faults)
    paths: list[Path] = []
    nodes = _sequence(spec.nodes, ("mapping",), paths, faults)
    if not spec.nodes:
        message = "the mapping has no nodes"
        remedy = "add storage, loops and compute nodes"
        faults.add(("mapping", "nodes"), message, remedy, code="invalid-structure")
    if len(faults) > before:
        return None
    return ResolvedMapping(LoopTree(nodes, spec.name), tuple(paths))


def _sequence(nodes: Sequence[Written], above: Path, paths: list[Path], faults: Faults) -> tuple[Node, ...]:
    result: list[Node] = []
    for i, node in enumerate(nodes):
        path: Path = (*above, "nodes", i)
        if result and isinstance(result[-1], (Split, ComputeNode)):
            what = "a compute node" if isinstance(result[-1], ComputeNode) else "a split"
            message = f"{what} must be the last of its nodes"
            faults.add(path, message, "put this node above it, or in a branch", code="invalid-structure")
            return tuple(result)
        result.extend(_node(node, path, paths, faults))
    return tuple(result)


def _node(node: Written, path: Path, paths: list[Path], faults: Faults) -> tuple[Node, ...]:
    if isinstance(node, Nested):
        return _sequence(node.nodes, path, paths, faults)
    paths.append(path)
    if isinstance(node, Storage):
        return (StorageNode(node.component, node.tensors, Reuse(node.reuse)),)
    if isinstance(node, Compute):
        return (ComputeNode(node.einsum, node.component),)
    if isinstance(node, (Sequential, Pipeline)):
        if not node.nodes:
            message = "the split has no branches"
            faults.add(path, message, "add a branch for each Einsum", code="invalid-structure")
        branches = tuple(_node(b, (*path, "nodes", i), paths, faults) for i, b in enumerate(node.nodes))
        return (Split(branches, isinstance(node, Pipeline)),)
    return (_loop(node, path, faults),)


def _loop(node: Temporal | Spatial, path: Path, faults: Faults) -> Loop:
    per_einsum: tuple[tuple[str, str], ...] = ()
    if isinstance(node.rank_variable, str):
        variable = node.rank_variable
    else:
        given = node.rank_variable
        if not given:
            message = "no rank variable is given"
            remedy = "write m or {EinsumA: p, EinsumB: q}"
            faults.add((*path, "rank_variable"), message, remedy, code="missing-value")
        variable = given.get(DEFAULT, next(iter(given.values()), ""))
        per_einsum = tuple((e, v) for e, v in given.items() if e != DEFAULT)
    tile, tiles = _tiles(node.tile_shape, (*path, "tile_shape"), faults)
    initial, firsts = _tiles(node.initial_tile_shape, (*path, "initial_tile_shape"), faults)
    place = (True, node.component, node.name) if isinstance(node, Spatial) else (False, "", "")
    return Loop(
        variable, 1 if tile is None else tile, None if firsts else initial, *place, per_einsum, tiles, firsts
    )


def _tiles(
    given: Value | str | dict[str, Value | str] | None, path: Path, faults: Faults
) -> tuple[Tile | None, tuple[tuple[str, Tile], ...]]:
    """The tile size shared by all Einsums, or the first one and those of each Einsum."""
    if not isinstance(given, dict):
        return None if given is None else _tile(given, path, faults), ()
    if not given:
        message = "no tile size is given"
        faults.add(path, message, "write 8, or {EinsumA: 8, EinsumB: 4}", code="missing-value")
    result = tuple((e, _tile(t, (*path, e), faults)) for e, t in given.items())
    return (result[0][1] if result else None), result


def _tile(text: Value | str, path: Path, faults: Faults) -> Tile:
    """A positive integer, or the name of a symbol."""
    names = symbols_in(text)
    if names:
        if isinstance(text, str) and text.strip() == names[0]:
            return names[0]
        message = f"`{text}` is an expression, and a tile size is a number or a symbol"
        remedy = f"name the expression, `symbols: {{TILE: {text}}}`, and write `tile_shape: TILE`"
        faults.add(path, message, remedy, code="wrong-type")
        return 1
    value = evaluate_number(text)
    if math.isinf(value) or value < 1 or value != int(value):
        what = f"tile size {text} is not a whole number of at least 1"
        faults.add(path, what, "write 1 or more", code="not-positive-integer")
        return 1
    return int(value)


def bind_tree(
    mapping: ResolvedMapping, symbols: Mapping[str, Value | None], faults: Faults
) -> ResolvedMapping:
    """The tree with every symbol that has a value replaced by it; values below 1 are faults."""
    counter = iter(range(10**9))

    def bound(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        result: list[Node] = []
        for node in nodes:
            here = next(counter)
            if isinstance(node, Split):
                node = replace(node, branches=tuple(bound(b) for b in node.branches))
            elif isinstance(node, Loop):
                node = _bound_loop(node, tree_locator(mapping, here), symbols, faults)
            result.append(node)
        return tuple(result)

    tree = replace(mapping.tree, nodes=bound(mapping.tree.nodes))
    return ResolvedMapping(tree, mapping.paths)


def _bound_loop(loop: Loop, path: Path, symbols: Mapping[str, Value | None], faults: Faults) -> Loop:
    where, begin = (*path, "tile_shape"), (*path, "initial_tile_shape")
    tiles, firsts = (
        tuple((e, _bound_tile(t, (*at, e), symbols, faults)) for e, t in given)
        for at, given in ((where, loop.tiles), (begin, loop.first_tiles))
    )
    tile = tiles[0][1] if tiles else _bound_tile(loop.tile_shape, where, symbols, faults)
    first = loop.initial_tile_shape
    initial = None if first is None else _bound_tile(first, begin, symbols, faults)
    return replace(loop, tile_shape=tile, initial_tile_shape=initial, tiles=tiles, first_tiles=firsts)


def _bound_tile(value: Tile, path: Path, symbols: Mapping[str, Value | None], faults: Faults) -> Tile:
    number = symbols.get(value) if isinstance(value, str) else value
    if number is None:
        return value
    if math.isinf(number) or number < 1 or number != int(number):
        what = f"{value} = {number}" if isinstance(value, str) else f"{number}"
        remedy = "use a whole number, 1 or more"
        message = f"tile size {what} is not a whole number of at least 1"
        faults.add(path, message, remedy, code="not-positive-integer")
        return 1
    return int(number)


def check_bound(mapping: ResolvedMapping, faults: Faults) -> None:
    """Add a fault (code `unbound-symbol`) for every symbol that stands for a tile size."""
    for i, node, _ in mapping.tree.walk():
        if isinstance(node, Loop):
            for key, tile in written_sizes(node):
                if isinstance(tile, str):
                    path = (*tree_locator(mapping, i), *key)
                    remedy = f"give it one: --set {tile}=..., in Python spec.bind({tile}=...)"
                    faults.add(path, f"symbol {tile} has no value", remedy, code="unbound-symbol")


def written_sizes(loop: Loop) -> tuple[tuple[Path, Tile], ...]:
    """Every tile size of a loop with the keys of its place in the YAML document."""
    whole: list[tuple[Path, Tile]] = [] if loop.tiles else [(("tile_shape",), loop.tile_shape)]
    if loop.initial_tile_shape is not None:
        whole.append((("initial_tile_shape",), loop.initial_tile_shape))
    each = [(("tile_shape", e), t) for e, t in loop.tiles]
    return (*whole, *each, *((("initial_tile_shape", e), t) for e, t in loop.first_tiles))


def unbound_symbols(tree: LoopTree) -> tuple[str, ...]:
    """Names of the symbols that stand for tile sizes, in preorder."""
    result: list[str] = []
    for _, node, _ in tree.walk():
        if isinstance(node, Loop):
            result += [t for t in node.sizes if isinstance(t, str)]
    return tuple(dict.fromkeys(result))


def mapping_to_yaml(
    tree: LoopTree,
    symbols: Mapping[str, Value | str] | None = None,
    sparse: Mapping[str, SparseSection] | None = None,
) -> str:
    """The tree as a YAML document (`mapping:`) that loads back to an equal tree; `symbols` go with it.
    `sparse`: sections of components that it requires (`spec.sparse_sections`)."""
    if not isinstance(tree, LoopTree):
        raise not_a("LoopTree", "mapping_to_yaml", tree, "pass e.g. spec.mapping")
    body: dict[str, object] = {"nodes": [_written(n) for n in tree.nodes]}
    if tree.name:
        body = {"name": tree.name, **body}
    if sparse:
        sections = {n: s.model_dump(exclude_defaults=True, by_alias=True) for n, s in sparse.items()}
        body["sparse"] = sections
    head: dict[str, object] = {"schema_version": 1}
    if symbols:
        head["symbols"] = dict(symbols)
    return dump({**head, "mapping": body})


def _written(node: Node) -> object:
    if isinstance(node, StorageNode):
        fields: dict[str, Scalar | list[str]] = {"component": node.component, "tensors": list(node.tensors)}
        if node.reuse is not Reuse.REFILL:
            fields["reuse"] = node.reuse.value
        return ("Storage", fields)
    if isinstance(node, ComputeNode):
        return ("Compute", {"einsum": node.einsum, "component": node.component})
    if isinstance(node, Split):
        branches = [
            _written(b[0]) if len(b) == 1 else ("Nested", {"nodes": [_written(n) for n in b]})
            for b in node.branches
        ]
        return ("Pipeline" if node.pipeline else "Sequential", {"nodes": branches})
    return _written_loop(node)


def _written_loop(loop: Loop) -> object:
    variable: object = loop.rank_variable
    if loop.per_einsum:
        pairs = dict(loop.per_einsum)
        first = next(iter(pairs.values()))
        variable = pairs if first == loop.rank_variable else {DEFAULT: loop.rank_variable, **pairs}
    fields: dict[str, object] = {"rank_variable": variable, "tile_shape": dict(loop.tiles) or loop.tile_shape}
    if loop.initial_tile_shape is not None or loop.first_tiles:
        fields["initial_tile_shape"] = dict(loop.first_tiles) or loop.initial_tile_shape
    if loop.spatial:
        return ("Spatial", {**fields, "component": loop.component, "name": loop.dim})
    return ("Temporal", fields)


def tree_locator(mapping: ResolvedMapping, node: int) -> Path:
    """The path of a node for diagnostics; trees built in Python have only `mapping`."""
    return mapping.paths[node] if node < len(mapping.paths) else ("mapping",)


# The rules on loops of an `explore:` section, per memory and per fanout dimension.

LOOP_RULES = ("factors", "order", "variables", "must_reuse", "no_refetch")
OTHERS = "..."  # in a loop order: all rank variables that are not named
_FACTOR = re.compile(r"\s*(<=|>=|==|=|)\s*(.*)")


@dataclass(frozen=True)
class LoopRule:
    """One rule on loops. `kind`: factors, order, no_refetch or reuse (of a memory); factors, variables or
    must_reuse (of a fanout COMPONENT.DIMENSION). `place`: the memory or fanout. `names`: rank variables,
    policies or, per Einsum, tensors. `relation` and `number`: of factors. `sequence`: of an order, with
    `OTHERS`. `written`: the rule as it is written in the section."""

    kind: str
    place: str
    written: str
    names: frozenset[str] = frozenset()
    by_einsum: tuple[tuple[str, frozenset[str]], ...] = ()
    relation: str = "="
    number: int = 1
    sequence: tuple[str, ...] = ()

    def tensors(self, einsum: str) -> frozenset[str]:
        """Return the tensors to which it applies in one Einsum."""
        return dict(self.by_einsum).get(einsum, frozenset())

    @property
    def spatial(self) -> bool:
        """True if it is a rule on a fanout."""
        return self.kind in ("variables", "must_reuse") or "." in self.place

    def admits(self, number: Any) -> Any:
        """True if the factor satisfies it; elementwise for an array."""
        if self.relation == "=":
            return number == self.number
        return number <= self.number if self.relation == "<=" else number >= self.number


@dataclass
class LoopRuleReader:
    """Reads the rules of one section and collects their faults."""

    cascade: Cascade
    hierarchy: Hierarchy
    sets: Rules
    numbers: Numbers

    def memories(self, given: Mapping[str, MemoryRule], path: Path) -> Iterator[LoopRule]:
        """The rules of memories; unknown memories are reported elsewhere."""
        known = list(self.hierarchy.memories)
        for name, rule in given.items():
            if name in known:
                yield from self._factors(name, rule.factors, (*path, name, "factors"))
                yield from self._order(name, rule.order, (*path, name, "order"))
                yield from self._tensors("no_refetch", name, rule.no_refetch, (*path, name, "no_refetch"))
                yield from self._policies(name, rule.reuse, (*path, name, "reuse"))

    def fanouts(self, given: Mapping[str, Mapping[str, FanoutRule]], path: Path) -> Iterator[LoopRule]:
        """The rules of fanout dimensions."""
        known: dict[str, list[str]] = {}
        for component, d in self.hierarchy.dimensions:
            known.setdefault(component, []).append(d.name)
        for component, dims in given.items():
            if component not in known:
                near = (
                    suggestion(component, list(known), "components with a fanout")
                    if known
                    else "leave it out"
                )
                message = f"component {component} has no fanout"
                self.numbers.faults.add((*path, component), message, near, key=True, code="unknown-name")
                continue
            for dim, rule in dims.items():
                here = (*path, component, dim)
                if dim not in known[component]:
                    near = suggestion(dim, known[component], "dimensions")
                    what = f"{component} has no dimension {dim}"
                    self.numbers.faults.add(here, what, near, key=True, code="unknown-name")
                    continue
                place = f"{component}.{dim}"
                yield from self._variables(place, rule.variables, (*here, "variables"))
                yield from self._factors(place, rule.factors, (*here, "factors"))
                yield from self._tensors("must_reuse", place, rule.must_reuse, (*here, "must_reuse"))

    def _variables(self, place: str, names: Sequence[str] | None, path: Path) -> Iterator[LoopRule]:
        if names is None:
            return
        for i, name in enumerate(names):
            self._known(name, (*path, i))
        yield LoopRule("variables", place, f"variables: {', '.join(names) or '[]'}", frozenset(names))

    def _factors(self, place: str, factors: Mapping[str, int | str], path: Path) -> Iterator[LoopRule]:
        for name, text in factors.items():
            self._known(name, (*path, name), key=True)
            relation, number = "=", text
            if isinstance(text, str):
                found = _FACTOR.fullmatch(text)
                assert found is not None
                relation, number = found[1] or "=", found[2]
            whole = self.numbers.whole(number, (*path, name), "number of iterations")
            written = f"factors: {{{name}: {text}}}"
            relation = "=" if relation == "==" else relation
            yield LoopRule("factors", place, written, frozenset({name}), (), relation, whole)

    def _order(self, place: str, names: Sequence[str] | None, path: Path) -> Iterator[LoopRule]:
        if names is None:
            return
        named = [n for n in names if n != OTHERS]
        for i, name in enumerate(names):
            if name != OTHERS:
                self._known(name, (*path, i))
                if named.count(name) > 1:
                    message = f"rank variable {name} is given twice"
                    self.numbers.faults.add((*path, i), message, "keep one", code="duplicate-name")
        yield LoopRule(
            "order", place, f"order: [{', '.join(names)}]", frozenset(named), sequence=tuple(names)
        )

    def _policies(self, place: str, policies: Sequence[str], path: Path) -> Iterator[LoopRule]:
        if "refill" not in policies and {*policies} != {"keep_previous"}:
            remedy = "write `reuse: [refill, slide]`: a node that no window slides along refills"
            message = "the policies that nodes may have lack refill"
            self.numbers.faults.add(path, message, remedy, code="missing-key")
        elif {*policies} != {"refill"}:
            yield LoopRule("reuse", place, f"reuse: [{', '.join(policies)}]", frozenset(policies))

    def _tensors(self, kind: str, place: str, text: str | None, path: Path) -> Iterator[LoopRule]:
        rule = self.sets.rule("", text, path)
        if rule is not None:
            yield LoopRule(kind, place, f"{kind}: {text}", by_einsum=rule.by_einsum)

    def _known(self, name: str, path: Path, key: bool = False) -> None:
        known = list(dict.fromkeys(v for e in self.cascade for v in e.rank_variables))
        if name not in known:
            near = suggestion(name, known, "rank variables")
            message = f"no Einsum has a rank variable {name}"
            self.numbers.faults.add(path, message, near, key=key, code="unknown-name")
