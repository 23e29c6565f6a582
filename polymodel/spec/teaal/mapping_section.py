"""The `mapping` section: rank orders, partitioning, loop orders and space-time of each Einsum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.spec.faults import Path, suggestion
from polymodel.spec.teaal.checks import check_loop_order, check_partitions, check_spacetime
from polymodel.spec.teaal.einsum_section import EinsumSection
from polymodel.spec.teaal.ranks import Ranks, partitioned, ranks_of
from polymodel.spec.teaal.records import Directive, EinsumMapping, Expression, Partition, SpaceTime, Stamp
from polymodel.spec.teaal.text import parse_directive, parse_ranks, parse_stamp
from polymodel.spec.teaal.walk import Walk

KEYS = ("rank-order", "partitioning", "loop-order", "spacetime")
PATH: Path = ("mapping",)
_SPACETIME = "{space: [K1], time: [M, K0]}"


@dataclass(frozen=True)
class MappingSection:
    """`ranks`: Einsum -> its ranks after partitioning."""

    rank_order: Mapping[str, tuple[str, ...]]
    mappings: tuple[EinsumMapping, ...]
    ranks: Mapping[str, Ranks]


def read_mappings(data: object, einsums: EinsumSection, walk: Walk) -> MappingSection:
    """Read and check the section; every fault is noted."""
    section = walk.mapping(data, PATH, "mapping: {loop-order: {Z: [M, N, K]}}")
    walk.keys(section, PATH, KEYS)
    order = _rank_order(section.get("rank-order"), einsums, walk)
    names = [e.name for e in einsums.expressions]
    # Where an expression could not be read, the Einsum that it makes is not unknown as well.
    lost = () if einsums.whole else einsums.declaration
    tables: dict[str, dict[str, object]] = {}
    for key in KEYS[1:]:
        table = walk.mapping(section.get(key), (*PATH, key), f"{key}: {{Z: ...}}")
        for name in table:
            if name not in names and name not in lost:
                walk.unknown((*PATH, key, name), "Einsum", name, names)
        tables[key] = table
    ranks: dict[str, Ranks] = {}
    mappings: dict[str, EinsumMapping] = {}
    for expression in einsums.expressions:
        if expression.name in mappings:
            continue
        found, mappings[expression.name] = _mapping_of(expression, einsums, order, tables, walk)
        ranks[expression.name] = found
    return MappingSection(order, tuple(mappings.values()), ranks)


def _rank_order(data: object, einsums: EinsumSection, walk: Walk) -> dict[str, tuple[str, ...]]:
    """As stored; the declared order where none is given."""
    path = (*PATH, "rank-order")
    found = dict(einsums.declaration)
    for tensor, given in walk.mapping(data, path, "rank-order: {A: [M, K]}").items():
        declared = einsums.declaration.get(tensor)
        if declared is None:
            walk.unknown((*path, tensor), "tensor", tensor, einsums.declaration)
            continue
        ranks = walk.names(given, (*path, tensor), "rank", f"{tensor}: [{', '.join(declared)}]")
        if sorted(ranks) == sorted(declared):
            found[tensor] = ranks
            continue
        other = next((r for r in ranks if r not in declared), "")
        message = f"[{', '.join(ranks)}] is no order of the ranks [{', '.join(declared)}] of {tensor}"
        near = suggestion(other, declared, "ranks") if other else f"list each of {', '.join(declared)} once"
        walk.add((*path, tensor), message, near)
    return found


def _mapping_of(
    expression: Expression,
    einsums: EinsumSection,
    order: Mapping[str, tuple[str, ...]],
    tables: Mapping[str, dict[str, object]],
    walk: Walk,
) -> tuple[Ranks, EinsumMapping]:
    name = expression.name
    before = len(walk.faults)
    parts = _partitions(tables["partitioning"].get(name), (*PATH, "partitioning", name), walk)
    ranks = ranks_of(expression, einsums.declaration, order)
    check_partitions(expression, parts, ranks, einsums.declaration, order, walk)
    partitions = tuple(p for _, p in parts)
    left = partitioned(ranks, partitions)
    sound = not left and len(walk.faults) == before
    loops = tuple(ranks.order)
    if name in tables["loop-order"]:
        path = (*PATH, "loop-order", name)
        given = walk.names(tables["loop-order"][name], path, "rank", f"{name}: [{', '.join(loops)}]")
        sound = sound and check_loop_order(given, ranks, path, walk)
        loops = given
    spacetime = None
    if tables["spacetime"].get(name) is not None:
        before = len(walk.faults)
        spacetime = _spacetime(tables["spacetime"][name], (*PATH, "spacetime", name), walk)
        if sound and len(walk.faults) == before:
            check_spacetime(spacetime, loops, (*PATH, "spacetime", name), walk)
    return ranks, EinsumMapping(name, partitions, loops, spacetime)


def _partitions(data: object, path: Path, walk: Walk) -> list[tuple[Path, Partition]]:
    found: list[tuple[Path, Partition]] = []
    for key, operations in walk.mapping(data, path, "K: [uniform_shape(32)]").items():
        at = (*path, key)
        ranks = walk.parsed_key(key, at, parse_ranks)
        directives: list[Directive] = []
        whole = True
        for i, item in enumerate(walk.items(operations, at, f"{key}: [uniform_shape(32)]")):
            here = (*at, i) if isinstance(operations, (list, tuple)) else at
            read = walk.parsed(item, here, parse_directive, "uniform_shape(32)")
            whole = whole and read is not None
            directives += [read] if read is not None else []
        if ranks is not None and whole and directives:
            found.append((at, Partition(ranks, tuple(directives))))
    return found


def _spacetime(data: object, path: Path, walk: Walk) -> SpaceTime:
    section = walk.mapping(data, path, _SPACETIME)
    walk.keys(section, path, ("space", "time", "opt", "fanout"))
    found: dict[str, tuple[Stamp, ...]] = {}
    for key in ("space", "time"):
        if key not in section:
            walk.add(path, f"key `{key}` is missing", f"write e.g. {_SPACETIME}")
        items = walk.items(section.get(key), (*path, key), f"{key}: [K1, K0.coord]")
        several = isinstance(section.get(key), (list, tuple))
        stamps = [
            walk.parsed(s, (*path, key, i) if several else (*path, key), parse_stamp, "K0 or K0.coord")
            for i, s in enumerate(items)
        ]
        found[key] = tuple(s for s in stamps if s is not None)
    opt = section.get("opt")
    if opt not in (None, "slip"):
        near = suggestion(str(opt), ("slip",), "the only one is")
        walk.add((*path, "opt"), f"unknown spacetime optimization {opt}", near)
    space = [s.rank for s in found["space"]]
    fanout: list[tuple[str, str]] = []
    for rank, place in walk.mapping(section.get("fanout"), (*path, "fanout"), "fanout: {K1: row}").items():
        if rank not in space:
            walk.unknown((*path, "fanout", rank), "rank", rank, space, "space ranks")
        elif not isinstance(place, str):
            walk.add((*path, "fanout", rank), "a fanout dimension is a name", "write e.g. row or PE.row")
        else:
            fanout.append((rank, place))
    return SpaceTime(found["space"], found["time"], opt == "slip", tuple(fanout))
