"""Export a spec as an AccelForge file, so that AccelForge can evaluate the same mapping.

The text is imported again and compared with the spec, so that a file that describes another problem is never
returned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from polymodel.architecture.hierarchy import KINDS, ActionCost, Component, FanoutDim, FanoutLink
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.importers.accelforge.run import TAGS, import_accelforge
from polymodel.importers.imported import lacking_of, refuse_lacking, refuse_recurrences
from polymodel.loading import Spec
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, StorageNode
from polymodel.mapping.resolve import mapping_to_yaml
from polymodel.reuse import Reuse
from polymodel.spec.arch_schema import branches_to
from polymodel.spec.faults import Source, not_a_spec
from polymodel.spec.yaml_text import dump, parse_yaml
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

WIDTH = 110
_TAGS = {"memory": "Memory", "toll": "Toll", "container": "Container", "compute": "Compute"}


def export_accelforge(spec: Spec, *, allow: Collection[str] = ()) -> str:
    """Return the spec as AccelForge's YAML: workload, renames, architecture, and the mapping if there is one.

    Features without a counterpart in AccelForge refuse the export, unless `allow` names them: `reuse`,
    `pipeline`, `link`, `sparse`, `densities` and others; the message lists them. Symbols need values:
    `spec.bind(...)`. For example `Path("theirs.yaml").write_text(export_accelforge(spec))`. Raises SpecError.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("export_accelforge", spec)
    return "\n".join(accelforge_files(spec, allow).values())


def accelforge_files(spec: Spec, allow: Collection[str] = ()) -> dict[str, str]:
    """Return the export as files: name -> YAML."""
    refuse_lacking(_lacking(spec), allow)
    result: dict[str, str] = {}
    cascade = tree = None
    names: dict[str, dict[str, str]] = {}
    if spec.raw_workload is not None:
        refuse_recurrences(spec.workload, "AccelForge")
        cascade = replace(spec.workload, einsums=tuple(_from_zero(e) for e in spec.workload))
        names = _names_apart(cascade)
        cascade = replace(cascade, einsums=tuple(_renamed(e, names[e.name]) for e in cascade))
        result["workload.yaml"] = dump({"workload": _workload(cascade)}, WIDTH)
    if spec.raw_arch is not None:
        nodes = list(_forked(spec.arch.components))
        result["arch.yaml"] = dump({"arch": {"nodes": nodes}}, WIDTH)
    if spec.mapping is not None:
        tree = _written(spec.mapping, spec.workload, names)
        result["mapping.yaml"] = mapping_to_yaml(tree).removeprefix("schema_version: 1\n")
    _check(spec, cascade, tree, "\n".join(result.values()))
    return result


def _lacking(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield pairs (name, description) of features of the spec that AccelForge does not have."""
    nodes = [n for _, n, _ in spec.mapping.walk()] if spec.mapping is not None else []
    if any(isinstance(n, StorageNode) and n.reuse is not Reuse.REFILL for n in nodes):
        yield "reuse", "storages reuse by another policy than `refill`"
    if any(isinstance(n, Split) and n.pipeline for n in nodes):
        yield "pipeline", "branches run as a pipeline"
    if any(isinstance(n, Loop) and (n.uneven or n.initial_tile_shape is not None) for n in nodes):
        yield "tile_shape", "a loop has several tile sizes"
    if spec.raw_workload is not None and any(
        a.density is not None for e in spec.workload for a in e.accesses
    ):
        yield "densities", "tensors have densities"
    if spec.raw_workload is not None and any(a.accumulates for e in spec.workload for a in e.accesses):
        yield "accumulate", "an output has values before, to which results are added"
    if spec.raw_arch is None:
        return
    parts = spec.arch.components
    dims = [d for c in parts for d in c.spatial]
    if any(d.broadcast_partials for d in dims):
        yield "broadcast_partials", "a fanout broadcasts partial sums"
    if any(d.multicast != "overlapping" for d in dims):
        yield "multicast", "a fanout shares equal tiles only"
    if len({c.read_first for c in parts if c.stores}) > 1:
        yield "read_first", "some memories read outputs before the first sum, and others do not"
    written = {"branch"} | ({"link"} if _are_networks(parts) else set())
    yield from (found for found in lacking_of(spec.arch) if found[0] not in written)


def _workload(cascade: Cascade) -> dict[str, object]:
    result: dict[str, object] = {}
    if cascade.rank_sizes:
        result["rank_sizes"] = dict(cascade.rank_sizes)
    result["einsums"] = [_einsum(e) for e in cascade]
    return result


def _einsum(einsum: Einsum) -> dict[str, object]:
    result: dict[str, object] = {"name": einsum.name}
    if einsum.is_copy:
        result["is_copy_operation"] = True
    if einsum.n_instances != 1:
        result["n_instances"] = einsum.n_instances
    result["iteration_space_shape"] = [str(c) for c in einsum.constraints]
    result["tensor_accesses"] = [_access(a) for a in einsum.accesses]
    result["renames"] = {n: " | ".join(sorted(members)) or "Nothing" for n, members in einsum.renames}
    return result


def _access(access: TensorAccess) -> dict[str, object]:
    projection = {r: str(e) for r, e in zip(access.ranks, access.projection, strict=True)}
    result: dict[str, object] = {"name": access.tensor, "projection": projection}
    if access.output:
        result["output"] = True
    result["bits_per_value"] = access.bits_per_value
    if access.persistent:
        result["persistent"] = True
    if access.backing_scale != 1:
        result["backing_storage_size_scale"] = float(access.backing_scale)
    return result


def _forked(parts: Iterable[Component], depth: int = 0) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the components in order; those of a branch are in a fork, and those of a branch inside it in a
    nested fork."""
    for branch, found in groupby(parts, lambda c: branches_to(c.branch)[: depth + 2]):
        if len(branch) > depth + 1:
            yield "Fork", {"nodes": list(_forked(found, depth + 1))}
        else:
            yield from (node for c in found for node in (*_network(c), _component(c)))


# Topologies that have the same hops as a network of AccelForge.
_NETWORKS = {"line": "mesh", "all_to_all": "all_to_all"}


def _links(part: Component) -> set[FanoutLink]:
    return {d.link for d in part.spatial if d.link is not None and d.link.costs}


def _are_networks(parts: Iterable[Component]) -> bool:
    """Return whether the links can be written as AccelForge's networks. A network has the hops of all fanouts
    after it up to the next memory or compute unit, so that there may be no other fanout in between."""
    apart = True  # whether no fanout follows the previous memory
    for part in parts:
        alone = apart and (part.stores or part.computes) and _is_network(part)
        if _links(part) and not alone:
            return False
        apart = part.stores or (apart and not part.spatial)
    return True


def _is_network(part: Component) -> bool:
    """Return whether an AccelForge network can have the links of all fanout dimensions of a component. They
    must have one price and one topology, no throughput limit (which AccelForge counts after the first
    instance), and no delay along a line (where AccelForge's longest route has one hop more)."""
    links = _links(part)
    alike = len(links) == 1 and all(d.link in links for d in part.spatial)
    counted = (k.topology in _NETWORKS and math.isinf(k.throughput) for k in links)
    return not links or (alike and all(counted) and not any(k.timed and k.topology == "line" for k in links))


def _network(part: Component) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the network before a component whose fanouts have a link."""
    for link in _links(part) if _is_network(part) else ():
        hop = {"name": "hop", "energy": link.energy_per_bit_hop, "throughput": "inf"}
        hop["latency"] = link.hop_latency or 0
        fields: dict[str, object] = {"name": f"{part.name}_network", "topology": _NETWORKS[link.topology]}
        yield "Network", {**fields, "area": 0, "leak_power": 0, "actions": [hop]}


def _component(part: Component) -> tuple[str, dict[str, object]]:
    if part.kind not in _TAGS:
        message = f"AccelForge has no {part.kind}, as {part.name} is"
        raise Refused(message, "leave it out of the export", code="no-counterpart")
    result: dict[str, object] = {"name": part.name}
    if part.stores:
        result["size"] = "inf" if math.isinf(part.size_bits) else int(part.size_bits)
    if part.read_first:
        result["skip_initial_output_write"] = False
    if part.spatial:
        result["spatial"] = [_fanout(d) for d in part.spatial]
    if part.acts:
        result |= {"leak_power": part.leak_power, "area": part.area}
    tensors = {
        k: rule.text for k, rule in (("keep", part.keep), ("may_keep", part.may_keep)) if rule is not None
    }
    if tensors:
        result["tensors"] = tensors
    if part.ports == "separate":
        result["total_latency"] = "max(a.n_calls / a.throughput for a in actions)"
    actions = [_action(part.action(name)) for name in KINDS[part.kind].actions]
    if part.passes:
        actions, result["direction"] = _direction(actions)
    if actions:
        result["actions"] = actions
    return _TAGS[part.kind], result


def _fanout(dim: FanoutDim) -> dict[str, object]:
    result: dict[str, object] = {"name": dim.name, "fanout": dim.fanout}
    return result if dim.may_reuse is None else {**result, "may_reuse": dim.may_reuse.text}


def _action(action: ActionCost) -> dict[str, object]:
    throughput: object = "inf" if math.isinf(action.throughput) else action.throughput
    bits = action.bits_per_action
    result: dict[str, object] = {"name": action.name, "energy": action.energy}
    if bits is not None:
        result["bits_per_action"] = bits
        throughput = throughput if isinstance(throughput, str) else action.throughput / bits
    return {**result, "throughput": throughput, "latency": 0}


def _direction(actions: list[dict[str, object]]) -> tuple[list[dict[str, object]], str]:
    """Return the actions and the direction of a toll, which has only one action in AccelForge. Raises
    SpecError where both directions differ."""
    down, up = actions
    free = {"energy": 0.0, "throughput": "inf", "latency": 0}
    if {**down, "name": ""} == {**up, "name": ""}:
        return [down], "up_and_down"
    if {k: v for k, v in up.items() if k != "name"} == free:
        return [down], "down"
    if {k: v for k, v in down.items() if k != "name"} == free:
        return [{**up, "name": "read"}], "up"
    message = "a toll there has one price for both directions"
    raise SpecError([Diagnostic(message, "give both the same price", code="no-counterpart")])


# The exported form is equivalent to the spec: rank variables have one range of values each, and the mapping
# has loops down to single values.


def _names_apart(cascade: Cascade) -> dict[str, dict[str, str]]:
    """Return new names of rank variables by Einsum, because in AccelForge a name has one range of values in
    all Einsums."""
    ranges: dict[str, tuple[int, int]] = {}
    taken = {v for e in cascade for v in e.rank_variables}
    result: dict[str, dict[str, str]] = {e.name: {} for e in cascade}
    for einsum in cascade:
        for name, bound in zip(einsum.rank_variables, einsum.bounds, strict=True):
            if ranges.setdefault(name, bound) != bound:
                new = f"{name}_{einsum.name}"
                while new in taken:
                    new += "_"
                taken.add(new)
                result[einsum.name][name] = new
    return result


def _from_zero(einsum: Einsum) -> Einsum:
    """Return the Einsum with rank variables that count from 0, because in AccelForge the constant of an
    index, `p - 1`, reduces the number of elements of a tile."""
    least = {v: low for v, (low, _) in zip(einsum.rank_variables, einsum.bounds, strict=True)}

    def moved(given: Affine) -> Affine:
        return replace(given, constant=given.constant + sum(c * least[v] for v, c in given.terms))

    return _rewritten(einsum, moved)


def _renamed(einsum: Einsum, names: Mapping[str, str]) -> Einsum:
    def called(given: Affine) -> Affine:
        return replace(given, terms=tuple((names.get(v, v), c) for v, c in given.terms))

    variables = tuple(names.get(v, v) for v in einsum.rank_variables)
    return replace(_rewritten(einsum, called), rank_variables=variables)


def _rewritten(einsum: Einsum, expr: Callable[[Affine], Affine]) -> Einsum:
    def held(given: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
        return tuple(replace(c, expr=expr(c.expr)) for c in given)

    accesses = (
        replace(a, projection=tuple(map(expr, a.projection)), guard=held(a.guard)) for a in einsum.accesses
    )
    return replace(einsum, constraints=held(einsum.constraints), accesses=tuple(accesses))


def _written(tree: LoopTree, cascade: Cascade, names: Mapping[str, Mapping[str, str]]) -> LoopTree:
    """Return the tree with AccelForge's reuse, without pipelines, and with a loop above each compute node
    over each rank variable that is not yet down to single values. `names`: new names of rank variables, by
    Einsum."""
    numbers = iter(range(10**9))  # nodes in the order of `walk`

    def plain(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(other for n in nodes for other in one(n))

    def new(einsum: str, name: str) -> str:
        return names.get(einsum, {}).get(name, name)

    def loop(number: int, node: Loop) -> Loop:
        below = tree.below.get(number, ())
        variables = {e: new(e, node.variable_in(e)) for e in below}
        if not any(names.get(e) for e in below):
            return node
        first = next(iter(variables.values()))
        others = tuple((e, v) for e, v in variables.items() if v != first)
        return replace(node, rank_variable=first, per_einsum=others)

    def one(node: Node) -> tuple[Node, ...]:
        number = next(numbers)
        if isinstance(node, StorageNode):
            return (replace(node, reuse=Reuse.REFILL),)
        if isinstance(node, Split):
            return (replace(node, pipeline=False, branches=tuple(plain(b) for b in node.branches)),)
        if isinstance(node, Loop):
            return (loop(number, node),)
        einsum = cascade[node.einsum]
        tiles = {x.variable_in(einsum.name): x.tile_shape for _, x in tree.loops(einsum.name)}
        bounds = zip(einsum.rank_variables, einsum.bounds, strict=True)
        left = (v for v, (low, high) in bounds if high > low and tiles.get(v) != 1)
        return (*(Loop(new(einsum.name, v), 1) for v in left), node)

    return replace(tree, nodes=plain(tree.nodes))


def _check(spec: Spec, cascade: Cascade | None, tree: LoopTree | None, text: str) -> None:
    """Check that the exported text imports as the spec, except for what is allowed. `cascade`, `tree`: in the
    exported form."""
    root, faults = parse_yaml(text, Source("", tuple(text.split("\n"))), TAGS)
    plain = root.plain() if root is not None else None
    if faults or not isinstance(plain, dict):
        raise SpecError(faults)
    again = import_accelforge(plain).spec
    found = list(_differences(spec, cascade, tree, again))
    if found:
        remedy = "leave out what AccelForge has no counterpart for"
        raise SpecError(
            [
                Diagnostic(f"what is written there is read otherwise: {d}", remedy, code="no-counterpart")
                for d in found
            ]
        )


def _differences(spec: Spec, cascade: Cascade | None, tree: LoopTree | None, again: Spec) -> Iterator[str]:
    if cascade is not None:
        for one, other in zip(cascade, again.workload, strict=True):
            if _facts(one) != _facts(other) or not one.iteration_space.is_equal(other.iteration_space):
                yield f"Einsum {one.name}"
    if spec.raw_arch is not None:
        for part, like in zip(spec.arch.components, again.arch.components, strict=True):
            if _prices(part) != _prices(like):
                yield f"component {part.name}"
    there = again.mapping.nodes if again.mapping is not None else ()
    if tree is not None and tree.nodes != there:
        yield "the mapping"


def _facts(einsum: Einsum) -> tuple[object, ...]:
    accesses = tuple(replace(a, density=None, accumulates=False) for a in einsum.accesses)
    return einsum.name, accesses, einsum.is_copy, einsum.n_instances, dict(einsum.renames)


def _prices(part: Component) -> tuple[object, ...]:
    actions = tuple(replace(part.action(n), provenance="") for n in KINDS[part.kind].actions)
    spatial = tuple((d.name, d.fanout, d.may_reuse and d.may_reuse.by_einsum) for d in part.spatial)
    links = _links(part) if _is_network(part) else set()
    kept = tuple(rule and rule.by_einsum for rule in (part.keep, part.may_keep))
    static = (part.leak_power, part.area) if part.acts else ()
    static = (*static, part.read_first, bool(part.branch))
    return part.name, part.kind, part.size_bits, actions, static, part.ports, spatial, kept, links
