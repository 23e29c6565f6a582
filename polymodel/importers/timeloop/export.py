"""`export_timeloop`: write a spec of one Einsum as Timeloop's YAML, so that Timeloop can evaluate the same
mapping.

The output is imported again and compared with the spec: a file that describes another problem is not
returned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import NoneType

from polymodel.architecture.hierarchy import Component, FanoutDim
from polymodel.arithmetic import Affine
from polymodel.errors import Diagnostic, SpecError
from polymodel.importers.imported import lacking_of, refuse_lacking, refuse_recurrences
from polymodel.importers.timeloop.reading import CYCLE as CYCLE_SECONDS
from polymodel.importers.timeloop.reading import DEFAULT_BITS, EXECUTIONS, OPERATIONS, RENAMES, VALUE_BITS
from polymodel.importers.timeloop.run import import_timeloop
from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split, StorageNode
from polymodel.polyhedra.sets import is_box
from polymodel.reuse import Reuse
from polymodel.spec.faults import not_a_spec
from polymodel.spec.yaml_text import dump
from polymodel.workload.einsum import Einsum, TensorAccess

WIDTH = 110
_WORD = re.compile(r"[A-Za-z_]\w*")
_FILES = {"variables": "arch.yaml", "architecture": "arch.yaml"}  # other sections: file of the same name
CYCLE = 1e-9  # seconds, where no compute unit has a throughput
PICO, SQUARE_MICRO = 1e12, 1e12  # joules to pJ, square metres to um^2


def export_timeloop(spec: Spec, *, allow: Collection[str] = ()) -> str:
    """Return the spec as Timeloop's YAML (version 0.4): problem, architecture with its energies (ERT) and
    areas (ART), and the mapping if there is one.

    One Einsum can be written. If there is no mapping, a space that is not a box that starts at 0, and an
    index with a constant, are written in the set notation that the LoopTree model reads. Timeloop evaluates
    one execution: if the spec has several (`n_instances`), their number is written in `variables:`, where the
    import finds it; so are renames, operators, and the width of values if there is no architecture. If the
    spec has something that has no counterpart in Timeloop, or that Timeloop counts by another rule, the
    export is refused unless `allow` names it: `reuse`, `multicast`, `broadcast_partials`, `link` and others;
    the message lists them. Symbols need values: `spec.bind(...)`.

    For example `Path("theirs.yaml").write_text(export_timeloop(spec))`. Raises SpecError.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("export_timeloop", spec)
    return "\n".join(timeloop_files(spec, allow).values())


def timeloop_files(spec: Spec, allow: Collection[str] = ()) -> dict[str, str]:
    """Return the exported spec as files: name -> YAML."""
    if len(spec.workload.einsums) != 1:
        what = f"the workload has {len(spec.workload.einsums)} Einsums, a problem of Timeloop's is one"
        remedy = 'choose one: spec.only("NAME") (--einsum NAME)'
        raise SpecError([Diagnostic(what, remedy, "workload", code="no-counterpart")])
    einsum = spec.workload.einsums[0]
    refuse_recurrences(spec.workload, "Timeloop")
    refuse_lacking(_lacking(spec, einsum), allow)
    names = _names(einsum)
    sections: dict[str, object] = {"problem": _problem(einsum, names, spec.mapping is not None)}
    times: dict[str, object] = {EXECUTIONS: einsum.n_instances} if einsum.n_instances != 1 else {}
    done = dict(einsum.operations)
    times |= {key: done[what] for key, what in OPERATIONS.items() if done.get(what)}
    if einsum.renames:
        times[RENAMES] = "; ".join(f"{n}: {' | '.join(sorted(m)) or 'Nothing'}" for n, m in einsum.renames)
    width = max(a.bits_per_value for a in einsum.accesses)
    if spec.raw_arch is None and (times or width != DEFAULT_BITS):
        sections["variables"] = {"version": 0.4, VALUE_BITS: width, **times}
    if spec.raw_arch is not None:
        parts = _written(spec.arch.components)
        cycle = _cycle(parts)
        nest = _nest(spec.mapping, parts, einsum) if spec.mapping is not None else None
        sections["variables"] = {"version": 0.4, CYCLE_SECONDS: cycle, **times}
        sections["architecture"] = {"version": 0.4, "nodes": _nodes(parts, einsum, nest, cycle)}
        sections["ERT"] = {"version": 0.4, "tables": list(_energies(parts, einsum, cycle))}
        areas = list(_areas(parts))
        sections |= {"ART": {"version": 0.4, "tables": areas}} if areas else {}
        if nest is not None:
            sections["mapping"] = list(_directives(nest, parts, einsum, names))
    result: dict[str, str] = {}
    for key, value in sections.items():
        name = _FILES.get(key, f"{key}.yaml")
        before = f"{result[name]}\n" if name in result else ""
        result[name] = before + dump({key: value}, WIDTH)
    _check(spec, einsum, "\n".join(result.values()))
    return result


def _lacking(spec: Spec, einsum: Einsum) -> Iterator[tuple[str, str]]:
    """Yield (name, description) of what the spec has but Timeloop lacks or counts by another rule."""
    nodes = [n for _, n, _ in spec.mapping.walk()] if spec.mapping is not None else []
    if any(isinstance(n, StorageNode) and n.reuse is not Reuse.SLIDE for n in nodes):
        yield "reuse", "a storage node reuses by another policy than `slide`"
    if len({a.bits_per_value for a in einsum.accesses}) > 1:
        yield "bits_per_value", "tensors have values of different widths, the widest is written for all"
    if einsum.is_copy:
        yield "is_copy_operation", "the Einsum copies its input, there it computes"
    if any(a.accumulates for a in einsum.accesses):
        yield "accumulate", "the output has values before, to which results are added"
    if any(not _uniform(a) for a in einsum.accesses):
        yield "densities", "a tensor has another density than a uniform one"
    if spec.raw_arch is None:
        return
    parts = spec.arch.components
    dims = [d for c in parts for d in c.spatial]
    windows = any(len(e.variables) > 1 for a in einsum.accesses for e in a.projection)
    if any(not d.broadcast_partials for d in dims):
        yield (
            "broadcast_partials",
            "a fanout without `broadcast_partials: true` sends partial sums to one instance",
        )
    if windows and any(d.multicast != "identical" for d in dims):
        yield "multicast", "a fanout without `multicast: identical` shares what tiles have in common"
    if sum(c.computes for c in parts) > 1:
        yield "compute", "there are several compute units"
    if any(c.passes for c in parts):
        yield "toll", "a toll takes a price for what passes"
    if any(c.read_first for c in parts):
        yield "read_first", "a memory reads outputs before the first sum"
    if any(a.bits_per_action for c in parts for a in c.actions):
        yield "bits_per_action", "an action moves so many bits at once"
    yield from lacking_of(spec.arch)


def _refuse(message: str, remedy: str, path: str) -> SpecError:
    what = f"{message}, which Timeloop has no form for"
    return SpecError([Diagnostic(what, remedy, path, code="no-counterpart")])


def _names(einsum: Einsum) -> dict[str, str]:
    """Return rank variable -> dimension: in capitals if these are distinct."""
    names = {v: v.upper() for v in einsum.rank_variables}
    return names if len(set(names.values())) == len(names) else {v: v for v in names}


def _uniform(access: TensorAccess) -> bool:
    """Return whether a tensor is dense, or has one density everywhere, given as a number."""
    return isinstance(access.density, (NoneType, int, float)) and not isinstance(access.density, bool)


def _problem(einsum: Einsum, names: dict[str, str], mapped: bool) -> dict[str, object]:
    """Return `problem:`. `mapped`: there is a mapping, whose loops require a box."""
    listed = not _boxed(einsum)
    if listed and (mapped or any(a.density is not None for a in einsum.accesses)):
        raise _refuse(f"the iteration space of {einsum.name} is not a box from 0 on", "", "workload")
    factors = {c for a in einsum.accesses for e in a.projection for _, c in e.terms if c != 1}
    shape: dict[str, object] = {"name": einsum.name, "dimensions": list(names.values())}
    if factors:
        shape["coefficients"] = [{"name": f"by_{c}", "default": c} for c in sorted(factors)]
    for tensor in einsum.tensors:
        if len(einsum.accesses_of(tensor)) > 1:
            remedy = "write a copy of it as another tensor"
            raise _refuse(f"{einsum.name} accesses {tensor} in two places", remedy, "workload")
    shape["data_spaces"] = [_data_space(a, names, mapped) for a in einsum.accesses]
    if listed:
        return {"version": 0.4, "shape": shape, "instance": " and ".join(_constraints_of(einsum, names))}
    sizes: dict[str, object] = {names[v]: high + 1 for v, (_, high) in zip(names, einsum.bounds, strict=True)}
    densities = {
        a.tensor: {"distribution": "hypergeometric", "density": a.density}
        for a in einsum.accesses
        if a.density is not None and _uniform(a)
    }
    instance = {**sizes, "densities": densities} if densities else sizes
    return {"version": 0.4, "shape": shape, "instance": instance}


def _boxed(einsum: Einsum) -> bool:
    """Return whether all variables start at 0 and are independent of each other."""
    return not any(low for low, _ in einsum.bounds) and is_box(einsum.iteration_space)


def _constraints_of(einsum: Einsum, names: Mapping[str, str]) -> list[str]:
    """Return the iteration space as text, with variables renamed according to `names`."""
    return [_WORD.sub(lambda m: names.get(m[0], m[0]), str(c)) for c in einsum.constraints]


def _data_space(access: TensorAccess, names: dict[str, str], mapped: bool) -> dict[str, object]:
    projection = [_rank(access.tensor, e, names, mapped) for e in access.projection]
    result: dict[str, object] = {"name": access.tensor, "projection": projection}
    return {**result, "read_write": True} if access.output else result


def _rank(tensor: str, expr: Affine, names: dict[str, str], mapped: bool) -> list[list[str]] | str:
    plain = not expr.constant and all(c >= 1 for _, c in expr.terms)
    if not plain and not mapped:
        return _WORD.sub(lambda m: names.get(m[0], m[0]), str(expr))
    if not plain:
        raise _refuse(f"{tensor} is indexed by {expr}", "write it without the constant", "workload")
    return [[names[v]] if c == 1 else [names[v], f"by_{c}"] for v, c in expr.terms]


def _written(parts: Sequence[Component]) -> tuple[Component, ...]:
    """Return the components that are written: no tolls, and of compute units only the innermost one."""
    units = [c for c in parts if c.computes]
    return tuple(c for c in parts if not c.passes and c not in units[:-1])


def _cycle(parts: Sequence[Component]) -> float:
    rates = [c.action("compute").throughput for c in parts if c.computes]
    finite = [r for r in rates if not math.isinf(r)]
    return 1 / finite[-1] if finite else CYCLE


@dataclass
class _Level:
    """What the mapping has at one component: spatial loops over it, tensors in it, loops below them."""

    spatial: list[Loop] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    temporal: list[Loop] = field(default_factory=list)


@dataclass(frozen=True)
class _Nest:
    """A mapping by component. `bounds`: by id of a loop, its bound, and its bound in the last iteration of
    the loops outside it."""

    levels: dict[str, _Level]
    bounds: dict[int, tuple[int, int]]


def _nest(tree: LoopTree, parts: Sequence[Component], einsum: Einsum) -> _Nest:
    """Return the mapping by component, each with spatial loops, storage and temporal loops, in this order."""
    order = {c.name: i for i, c in enumerate(parts)}
    levels = {c.name: _Level() for c in parts}
    lasts = {v: high for v, (_, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    tiles: dict[str, int] = {}
    bounds: dict[int, tuple[int, int]] = {}
    at, memory = -1, ""  # the component that was reached last; the memory that contains temporal loops
    for _, node, _ in tree.walk():
        if isinstance(node, Split):
            raise _refuse("the mapping has branches", "", "mapping")
        if isinstance(node, ComputeNode):
            if node.component != parts[-1].name:
                what = f"{node.einsum} executes on {node.component}, not on the innermost compute unit"
                raise _refuse(what, "", "mapping")
            continue
        if isinstance(node, StorageNode):
            stays = order[node.component] == at and memory == node.component
            if order[node.component] < at or (stays and levels[node.component].temporal):
                held = f"{', '.join(node.tensors)} in {node.component}"
                remedy = f"write all of {node.component} in one place"
                raise _refuse(f"{held} stands below loops or memories further in", remedy, "mapping")
            at, memory = order[node.component], node.component
            levels[node.component].kept += node.tensors
            continue
        bounds[id(node)] = _bound(node, lasts[node.rank_variable], tiles)
        if node.spatial:
            if order[node.component] < at or (order[node.component] == at and memory == node.component):
                what = f"the spatial loop over {node.component} stands below its storage"
                raise _refuse(what, "write it above", "mapping")
            at = order[node.component]
            levels[node.component].spatial.append(node)
        elif not memory or order[memory] != at:
            what = f"the loop over {node.rank_variable} stands between a spatial loop and the next storage"
            raise _refuse(what, "write it above the spatial loop, or below the storage", "mapping")
        else:
            levels[memory].temporal.append(node)
    _require_single_operations({v: tiles.get(v, last + 1) for v, last in lasts.items()})
    return _Nest(levels, bounds)


def _require_single_operations(tiles: dict[str, int]) -> None:
    """Refuse a mapping whose Compute node executes more than one iteration, since in Timeloop's files loops
    cover the whole iteration space. `tiles`: for each variable, the tile of its innermost loop."""
    left = [f"{v} (tile {tile})" for v, tile in tiles.items() if tile > 1]
    if left:
        remedy = "write loops down to tile 1"
        raise _refuse(f"the Compute node has iterations over {', '.join(left)} inside", remedy, "mapping")


def _bound(loop: Loop, last: int, tiles: dict[str, int]) -> tuple[int, int]:
    """Return the loop's two bounds. `last`: the last value of its variable; `tiles`: for each variable, the
    enclosing tile.

    Tiles below the outermost loop divide each other, so that the last value has one digit for each loop's
    bound.
    """
    tile, above = loop.tile_shape, tiles.get(loop.rank_variable)
    if loop.initial_tile_shape is not None or not isinstance(tile, int) or (above or tile) % tile:
        what = f"the loop over {loop.rank_variable} cuts {above or last + 1} in tiles of {tile}"
        raise _refuse(what, "use tiles that divide what is above them", "mapping")
    tiles[loop.rank_variable] = tile
    bound = above // tile if above is not None else last // tile + 1
    return bound, last // tile % bound + 1


def _axes(part: Component, level: _Level | None) -> tuple[FanoutDim, ...]:
    """Return the fanout dimensions that become X and Y: loops along Y are above those along X."""
    if len(part.spatial) > 2:
        raise _refuse(f"{part.name} has {len(part.spatial)} fanout dimensions", "two can be written", "arch")
    along = [x.dim for x in level.spatial] if level is not None else []
    if along != sorted(along, key=along.index):
        raise _refuse(f"the spatial loops over {part.name} alternate", "group them by dimension", "mapping")
    outermost = list(dict.fromkeys(along))
    if len(part.spatial) == 2 and outermost and outermost[0] == part.spatial[0].name:
        return part.spatial[::-1]
    return part.spatial


def _nodes(
    parts: Sequence[Component], einsum: Einsum, nest: _Nest | None, cycle: float
) -> list[tuple[str, dict[str, object]]]:
    result: list[tuple[str, dict[str, object]]] = []
    bits = max(a.bits_per_value for a in einsum.accesses)
    for part in parts:
        fields: dict[str, object] = {"name": part.name}
        axes = _axes(part, nest.levels[part.name] if nest is not None else None)
        if axes:
            fields["spatial"] = {f"mesh{x}": d.fanout for x, d in zip("XY", axes, strict=False)}
        if part.acts:
            backing = part.stores and math.isinf(part.size_bits) and part is parts[0]
            fields["class"] = "intmac" if part.computes else "DRAM" if backing else "SRAM"
            fields["attributes"] = _attributes(part, bits, cycle)
        constraints = _constraints(part, einsum)
        if constraints:
            fields["constraints"] = constraints
        result.append(("Container" if not part.acts else "Component", fields))
    return result


def _attributes(part: Component, bits: int, cycle: float) -> dict[str, object]:
    result: dict[str, object] = {"datawidth": bits}
    if part.computes:
        return result
    result["width"] = bits
    if not math.isinf(part.size_bits):
        result["depth"] = int(part.size_bits // bits)
    rates = {way: part.action(way).throughput * cycle / bits for way in ("read", "write")}
    finite = {way: rate for way, rate in rates.items() if not math.isinf(rate)}
    if part.ports == "shared" and len(finite) == 2 and rates["read"] == rates["write"]:
        return {**result, "shared_bandwidth": rates["read"]}
    return {**result, **{f"{way}_bandwidth": rate for way, rate in finite.items()}}


def _constraints(part: Component, einsum: Einsum) -> dict[str, object]:
    """Return what a memory keeps, and what a fanout does not share."""
    result: dict[str, object] = {}
    if part.stores and (part.keep is not None or part.may_keep is not None):
        keep, may = _keep_sets(part, einsum)
        result["dataspace"] = {
            "keep": [t for t in einsum.tensors if t in keep],
            "bypass": [t for t in einsum.tensors if t not in keep | may],
        }
    alone = [t for t in einsum.tensors if any(not d.reuses(einsum.name, t) for d in part.spatial)]
    if alone:
        result["spatial"] = {"no_reuse": alone}
    return result


def _keep_sets(part: Component, einsum: Einsum) -> tuple[frozenset[str], frozenset[str]]:
    """Return the tensors of the Einsum that the memory has to keep, and those that it may keep."""
    every = frozenset(einsum.tensors)
    keep = part.keep.tensors(einsum.name) & every if part.keep is not None else frozenset()
    may = part.may_keep.tensors(einsum.name) & every if part.may_keep is not None else every
    return keep, may | keep


def _energies(parts: Sequence[Component], einsum: Einsum, cycle: float) -> Iterator[dict[str, object]]:
    bits = max(a.bits_per_value for a in einsum.accesses)
    for part in parts:
        if not part.acts:
            continue
        if part.computes:
            prices = {"compute": part.action("compute").energy * PICO}
        else:
            read, write = (
                a.energy * (bits / (a.bits_per_action or 1)) * PICO
                for a in (part.action("read"), part.action("write"))
            )
            prices = {"read": read, "write": write, "update": write}
        prices["leak"] = part.leak_power * cycle * PICO
        actions = [{"name": name, "energy": price} for name, price in prices.items()]
        yield {"name": f"system.{part.name}", "actions": actions}


def _areas(parts: Sequence[Component]) -> Iterator[dict[str, object]]:
    for part in parts:
        if (part.stores or part.computes) and part.area:
            yield {"name": f"system.{part.name}", "area": part.area * SQUARE_MICRO}


def _directives(
    nest: _Nest, parts: Sequence[Component], einsum: Einsum, names: dict[str, str]
) -> Iterator[dict[str, object]]:
    for part in parts:
        level = nest.levels[part.name]
        if level.spatial:
            axes = _axes(part, level)
            split = sum(x.dim == axes[0].name for x in level.spatial)
            loops = _loops(level.spatial, nest, names)
            yield {"target": part.name, "type": "spatial", **loops, "split": split}
        if not part.stores:
            continue
        gone = [t for t in einsum.tensors if t not in level.kept]
        yield {"target": part.name, "type": "dataspace", "keep": level.kept, "bypass": gone}
        if level.temporal:
            yield {"target": part.name, "type": "temporal", **_loops(level.temporal, nest, names)}


def _loops(loops: Sequence[Loop], nest: _Nest, names: dict[str, str]) -> dict[str, object]:
    """Return factors and their order, innermost first; a variable has one loop at a level."""
    variables = [x.rank_variable for x in loops]
    twice = {v for v in variables if variables.count(v) > 1}
    if twice:
        what = f"{', '.join(sorted(twice))} has two loops at one level"
        raise _refuse(what, "write one loop, with the smaller tile", "mapping")
    pairs = [(names[x.rank_variable], *nest.bounds[id(x)]) for x in loops]
    factors = [f"{v}={bound}" if bound == last else f"{v}={bound},{last}" for v, bound, last in pairs]
    return {"factors": factors, "permutation": [names[v] for v in variables[::-1]]}


def _check(spec: Spec, einsum: Einsum, text: str) -> None:
    """Check that the exported text imports as the spec, except for what is allowed."""
    with TemporaryDirectory(prefix="polymodel-") as folder:
        path = Path(folder) / "theirs.yaml"
        path.write_text(text, encoding="utf-8")
        again = import_timeloop(path).spec
    found = list(_differences(spec, einsum, again))
    if found:
        remedy = "leave out what Timeloop has no counterpart for"
        raise SpecError(
            [
                Diagnostic(f"what is written there is read otherwise: {d}", remedy, code="no-counterpart")
                for d in found
            ]
        )


def _differences(spec: Spec, einsum: Einsum, again: Spec) -> Iterator[str]:
    like = again.workload.einsums[0]
    names = _names(einsum)
    # The import writes dimensions in lower case if the names remain distinct.
    small = len({n.lower() for n in names.values()}) == len(names)
    ours = {n.lower() if small else n: v for v, n in names.items()}
    if _problem_of(einsum, {v: v for v in names}) != _problem_of(like, ours):
        yield f"Einsum {einsum.name}"
    if spec.raw_arch is None:
        return
    theirs = {c.name: c for c in again.arch.components}
    parts = _written(spec.arch.components)
    for part in parts:
        if not part.acts and all(d.fanout == 1 for d in part.spatial):
            continue
        changed = _changed(part, theirs[part.name], einsum, like) if part.name in theirs else ["all of it"]
        yield from (f"component {part.name}, {what}" for what in changed)
    if spec.mapping is not None:
        nest, back = (
            _nest(t, p, e)
            for t, p, e in ((spec.mapping, parts, einsum), (again.mapping, again.arch.components, like))
            if t is not None
        )
        if _plain(nest, {v: v for v in names}) != _plain(back, ours):
            yield "the mapping"


def _problem_of(einsum: Einsum, names: Mapping[str, str]) -> tuple[object, ...]:
    """Return everything that defines the problem, with variables renamed according to `names`."""
    accesses = {
        (
            a.tensor,
            tuple(_called(e, names) for e in a.projection),
            a.output,
            a.density if _uniform(a) else None,
        )
        for a in einsum.accesses
    }
    variables = [names[v] for v in einsum.rank_variables]
    width = max(a.bits_per_value for a in einsum.accesses)
    done = {k: v for k, v in einsum.operations if v and k in OPERATIONS.values()}
    space = None if _boxed(einsum) else sorted(_constraints_of(einsum, names))
    bounds = dict(zip(variables, einsum.bounds, strict=True))
    return einsum.n_instances, width, done, accesses, bounds, space, dict(einsum.renames)


def _called(expr: Affine, names: Mapping[str, str]) -> Affine:
    total = Affine((), expr.constant)
    for variable, factor in expr.terms:
        total = total + Affine.variable(names[variable]).scaled(factor)
    return total


def _plain(nest: _Nest, names: Mapping[str, str]) -> dict[str, object]:
    """Return the loops and storage nodes of each component that has any; of fanouts only how they are
    grouped."""
    return {
        name: (
            [(names[x.rank_variable], x.tile_shape, x.dim == level.spatial[0].dim) for x in level.spatial],
            sorted(level.kept),
            [(names[x.rank_variable], x.tile_shape) for x in level.temporal],
        )
        for name, level in nest.levels.items()
        if level.spatial or level.kept or level.temporal
    }


def _changed(part: Component, like: Component, einsum: Einsum, again: Einsum) -> Iterator[str]:
    """Yield the properties of a component that differ after the import."""
    bits = max(a.bits_per_value for a in einsum.accesses)
    room = part.size_bits if math.isinf(part.size_bits) else part.size_bits // bits * bits
    if (part.kind, room) != (like.kind, like.size_bits):
        yield "its size"
    if [sorted(d.fanout for d in c.spatial if d.fanout > 1) for c in (part, like)] != [
        sorted(d.fanout for d in c.spatial) for c in (like, like)
    ]:
        yield "its fanouts"
    if part.stores and _keep_sets(part, einsum) != _keep_sets(like, again):
        yield "what it keeps"
    if not part.acts:
        return
    rates = [part.action(way).throughput for way in ("read", "write")]
    if part.stores and part.ports != like.ports and not all(map(math.isinf, rates)):
        yield "its ports"
    pairs = [("leakage", part.leak_power, like.leak_power), ("area", part.area, like.area)]
    for name in ("read", "write") if part.stores else ("compute",):
        one, other = part.action(name), like.action(name)
        pairs.append((f"energy of {name}", one.energy / (one.bits_per_action or 1), other.energy))
        if part.stores or not math.isinf(one.throughput):
            pairs.append((f"throughput of {name}", one.throughput, other.throughput))
    yield from (name for name, one, other in pairs if not math.isclose(one, other, rel_tol=1e-9))
