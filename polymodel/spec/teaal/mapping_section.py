"""The `mapping` section: rank orders, partitioning, loop orders and space-time of each Einsum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.spec.faults import Path, suggestion
from polymodel.spec.teaal.einsum_section import EinsumSection, declared_list
from polymodel.spec.teaal.ranks import Ranks, determines, operand_ranks, partitioned, ranks_of
from polymodel.spec.teaal.records import (
    DATA_DEPENDENT,
    Directive,
    EinsumMapping,
    Expression,
    Partition,
    SpaceTime,
    Stamp,
)
from polymodel.spec.teaal.text import parse_directive, parse_ranks, parse_stamp
from polymodel.spec.teaal.walk import TreeWalk

KEYS = ("rank-order", "partitioning", "loop-order", "spacetime")
_OLD = {"display": "spacetime", "partitions": "partitioning"}  # keys of older files
PATH: Path = ("mapping",)
_SPACETIME = "{space: [K1], time: [M, K0]}"


@dataclass(frozen=True)
class MappingSection:
    """`ranks`: Einsum -> its ranks after partitioning."""

    rank_order: Mapping[str, tuple[str, ...]]
    mappings: tuple[EinsumMapping, ...]
    ranks: Mapping[str, Ranks]


def read_mappings(data: object, einsums: EinsumSection, walk: TreeWalk) -> MappingSection:
    """Read and check the section; all faults are collected."""
    given = walk.mapping(data, PATH, "mapping: {loop-order: {Z: [M, N, K]}}")
    section = {_OLD.get(k, k) if _OLD.get(k, k) not in given else k: v for k, v in given.items()}
    walk.keys(section, PATH, KEYS)
    order = _rank_order(section.get("rank-order"), einsums, walk)
    names = [e.name for e in einsums.expressions]
    # The Einsum of an expression that could not be read is not reported as unknown as well.
    lost = () if einsums.whole else einsums.declaration
    tables: dict[str, dict[str, object]] = {}
    for key in KEYS[1:]:
        table = walk.mapping(_joined(section.get(key), names), (*PATH, key), f"{key}: {{Z: ...}}")
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


def _joined(data: object, einsums: Sequence[str]) -> object:
    """Lists of older files as the mapping that they denote: `Z: ...` entries, or one text for each Einsum."""
    if not isinstance(data, list):
        return data
    if len(data) == len(einsums) and all(isinstance(one, str) for one in data):
        return dict(zip(einsums, data, strict=True))
    if not all(isinstance(one, dict) and len(one) == 1 for one in data):
        return data
    joined = {name: value for one in data for name, value in one.items()}
    return joined if len(joined) == len(data) else data


def _listed(data: object) -> object:
    """Ranks in one text, `K, M`, as a list."""
    return [r.strip() for r in data.split(",")] if isinstance(data, str) and "," in data else data


def _rank_order(data: object, einsums: EinsumSection, walk: TreeWalk) -> dict[str, tuple[str, ...]]:
    """The order as stored; the declared order by default."""
    path = (*PATH, "rank-order")
    result = dict(einsums.declaration)
    if isinstance(data, list):
        data = declared_list(data, path, walk)
    for tensor, given in walk.mapping(data, path, "rank-order: {A: [M, K]}").items():
        declared = einsums.declaration.get(tensor)
        if declared is None:
            walk.unknown((*path, tensor), "tensor", tensor, einsums.declaration)
            continue
        ranks = walk.names(_listed(given), (*path, tensor), "rank", f"{tensor}: [{', '.join(declared)}]")
        if sorted(ranks) == sorted(declared):
            result[tensor] = ranks
            continue
        other = next((r for r in ranks if r not in declared), "")
        message = f"[{', '.join(ranks)}] is not an order of the ranks [{', '.join(declared)}] of {tensor}"
        near = suggestion(other, declared, "ranks") if other else f"list each of {', '.join(declared)} once"
        walk.add((*path, tensor), message, near, code="shape-mismatch")
    return result


def _mapping_of(
    expression: Expression,
    einsums: EinsumSection,
    order: Mapping[str, tuple[str, ...]],
    tables: Mapping[str, dict[str, object]],
    walk: TreeWalk,
) -> tuple[Ranks, EinsumMapping]:
    name = expression.name
    before = len(walk.faults)
    parts = _partitions(tables["partitioning"].get(name), (*PATH, "partitioning", name), walk)
    ranks = ranks_of(expression, einsums.declaration, order)
    parts, names = _by_variable(parts, ranks)
    check_partitions(expression, parts, ranks, einsums.declaration, order, walk)
    partitions = tuple(p for _, p in parts)
    left = partitioned(ranks, partitions)
    sound = not left and len(walk.faults) == before
    loops = tuple(ranks.order)
    if name in tables["loop-order"]:
        path = (*PATH, "loop-order", name)
        written = _listed(tables["loop-order"][name])
        given = walk.names(written, path, "rank", f"{name}: [{', '.join(loops)}]")
        given = _renamed(given, names, ranks)
        sound = sound and check_loop_order(given, ranks, path, walk)
        loops = given
    spacetime = None
    if tables["spacetime"].get(name) is not None:
        before = len(walk.faults)
        spacetime = _spacetime(tables["spacetime"][name], (*PATH, "spacetime", name), walk)
        spacetime = _stamped(spacetime, names, ranks)
        if sound and len(walk.faults) == before:
            check_spacetime(spacetime, loops, (*PATH, "spacetime", name), walk)
    return ranks, EinsumMapping(name, partitions, loops, spacetime)


def _by_variable(
    parts: list[tuple[Path, Partition]], ranks: Ranks
) -> tuple[list[tuple[Path, Partition]], dict[str, str]]:
    """Partitions by the ranks of rank variables, and the ranks that are these by another name.

    V of `R[d]` has the coordinates of D: where it follows D or is not split, its parts are those of D, and
    where V alone is split, D is. Where both are split, or V is flattened, it keeps its name.
    """
    split = {p.ranks[0]: p for _, p in parts if len(p.ranks) == 1}
    flattened = {r for _, p in parts if len(p.ranks) > 1 for r in p.ranks}
    names: dict[str, str] = {}
    for rank, index in ranks.indices.items():
        own = index.variable.upper() if index.variable is not None else rank
        if own == rank or any(r.rstrip("0123456789") == rank for r in flattened):
            continue
        if rank not in split:
            names[rank] = own
        elif own not in split and all(d.kind != "follow" for d in split[rank].directives):
            names[rank], split[own] = own, split[rank]
        elif own in split and _follows_all(split[rank], split[own]):
            names[rank] = own
    kept = [(at, p) for at, p in parts if p.ranks[0] not in names or split[names[p.ranks[0]]] is p]
    return [(at, replace(p, ranks=tuple(names.get(r, r) for r in p.ranks))) for at, p in kept], names


def _follows_all(partition: Partition, led: Partition) -> bool:
    """True if a rank follows another in all its splits, declared once or once per split."""
    said = {(d.kind, d.leader) for d in partition.directives}
    return said == {("follow", led.ranks[0])} and len(partition.directives) in (1, len(led.directives))


def _renamed(written: tuple[str, ...], names: Mapping[str, str], ranks: Ranks) -> tuple[str, ...]:
    """Ranks and parts of ranks by the names of rank variables; as written where two would be one."""
    result: list[str] = []
    for rank in written:
        stem = rank if rank in names or rank in ranks.origin else rank.rstrip("0123456789")
        result.append(names.get(stem, stem) + rank[len(stem) :])
    return tuple(result) if len(set(result)) == len(result) else written


def _stamped(found: SpaceTime, names: Mapping[str, str], ranks: Ranks) -> SpaceTime:
    written = tuple(s.rank for s in (*found.space, *found.time))
    now = dict(zip(written, _renamed(written, names, ranks), strict=True))
    space, time = (tuple(replace(s, rank=now[s.rank]) for s in x) for x in (found.space, found.time))
    return replace(found, space=space, time=time, fanout=tuple((now[r], p) for r, p in found.fanout))


def _partitions(data: object, path: Path, walk: TreeWalk) -> list[tuple[Path, Partition]]:
    result: list[tuple[Path, Partition]] = []
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
            result.append((at, Partition(ranks, tuple(directives))))
    return result


def _spacetime(data: object, path: Path, walk: TreeWalk) -> SpaceTime:
    section = walk.mapping(data, path, _SPACETIME)
    walk.keys(section, path, ("space", "time", "opt", "fanout"))
    result: dict[str, tuple[Stamp, ...]] = {}
    for key in ("space", "time"):
        if key not in section:
            walk.add(path, f"key `{key}` is missing", f"write e.g. {_SPACETIME}", code="missing-key")
        items = walk.items(section.get(key), (*path, key), f"{key}: [K1, K0.coord]")
        several = isinstance(section.get(key), (list, tuple))
        stamps = [
            walk.parsed(s, (*path, key, i) if several else (*path, key), parse_stamp, "K0 or K0.coord")
            for i, s in enumerate(items)
        ]
        result[key] = tuple(s for s in stamps if s is not None)
    opt = section.get("opt")
    if opt not in (None, "slip"):
        near = suggestion(str(opt), ("slip",), "the only one is")
        walk.add((*path, "opt"), f"unknown spacetime optimization {opt}", near, code="unknown-choice")
    space = [s.rank for s in result["space"]]
    fanout: list[tuple[str, str]] = []
    for rank, place in walk.mapping(section.get("fanout"), (*path, "fanout"), "fanout: {K1: row}").items():
        if rank not in space:
            walk.unknown((*path, "fanout", rank), "rank", rank, space, "space ranks")
        elif not isinstance(place, str):
            message = "a fanout dimension is a name"
            walk.add((*path, "fanout", rank), message, "write e.g. row or PE.row", code="invalid-name")
        else:
            fanout.append((rank, place))
    return SpaceTime(result["space"], result["time"], opt == "slip", tuple(fanout))


Declaration = Mapping[str, Sequence[str]]
SHAPE = ("uniform_shape", "nway_shape")


def check_partitions(
    expression: Expression,
    parts: list[tuple[Path, Partition]],
    ranks: Ranks,
    declaration: Declaration,
    order: Declaration,
    walk: TreeWalk,
) -> None:
    """Collect every fault of the partitionings of one Einsum; `ranks` are those before partitioning."""
    before = len(walk.faults)
    _check_keys(parts, ranks, walk)
    flattened = {"".join(p.ranks): p.ranks for _, p in parts if len(p.ranks) > 1}
    for path, partition in parts:
        _check_flatten(path, partition, parts, ranks, flattened, walk)
        _check_sequence(path, partition, flattened, walk)
        for i, directive in enumerate(partition.directives):
            at = (*path, i)
            roots = _roots(partition.ranks[0], ranks, flattened)
            if directive.kind == "uniform_occupancy":
                _check_leader(at, directive, roots, expression, declaration, walk)
            elif directive.kind == "follow":
                _check_follow(at, directive, partition, parts, walk)
            elif directive.kind == "uniform_slice":
                _check_slice(at, partition, expression, order, walk)
    if len(walk.faults) == before:
        _check_names_made(parts, ranks, walk)


def _split_of(rank: str, parts: list[tuple[Path, Partition]]) -> Partition | None:
    """The partition of one rank that produces `rank`."""
    for _, p in parts:
        if len(p.ranks) == 1 and rank in [f"{p.ranks[0]}{i}" for i in range(len(p.directives) + 1)]:
            return p
    return None


def _check_keys(parts: list[tuple[Path, Partition]], ranks: Ranks, walk: TreeWalk) -> None:
    """Every partitioned rank exists or is produced by another partition, and is partitioned once."""
    known = [*ranks.known(), *("".join(p.ranks) for _, p in parts if len(p.ranks) > 1)]
    seen: dict[str, str] = {}
    for path, partition in parts:
        for rank in dict.fromkeys(partition.ranks):
            if partition.ranks.count(rank) > 1:
                message = f"rank {rank} is listed twice"
                walk.add(path, message, "list it once", key=True, code="duplicate-name")
            if rank in seen:
                what = f"rank {rank} is partitioned twice, also as {seen[rank]}"
                walk.add(path, what, "keep one", key=True, code="duplicate-name")
            elif rank not in known and _split_of(rank, parts) is None:
                walk.add(
                    path,
                    f"unknown rank {rank}",
                    suggestion(rank, known, "ranks of this Einsum"),
                    key=True,
                    code="unknown-name",
                )
            seen[rank] = str(path[-1])


def _roots(rank: str, ranks: Ranks, flattened: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The declared ranks that a rank, or a flattened one, comes from."""
    if rank in ranks.origin:
        return ranks.origin[rank]
    if rank in flattened:
        return tuple(o for r in flattened[rank] for o in _roots(r, ranks, flattened))
    stem = rank.rstrip("0123456789")
    return ranks.origin.get(next((r for r in ranks.origin if rank[: len(r)] == r and stem == r), ""), ())


def _check_flatten(
    path: Path,
    partition: Partition,
    parts: list[tuple[Path, Partition]],
    ranks: Ranks,
    flattened: Mapping[str, tuple[str, ...]],
    walk: TreeWalk,
) -> None:
    kinds = [d.kind for d in partition.directives]
    shown = ", ".join(partition.ranks)
    if "flatten" not in kinds:
        if len(partition.ranks) > 1:
            remedy = f"flatten them, then split {''.join(partition.ranks)}"
            what = f"{kinds[0]} splits one rank, not ({shown})"
            walk.add(path, what, remedy, key=True, code="invalid-partitioning")
        return
    if len(kinds) > 1:
        at = (*path, next(i for i, k in enumerate(kinds) if k != "flatten" or i))
        remedy = f"split the flattened rank under its own key: {''.join(partition.ranks)}: [...]"
        walk.add(at, f"flatten() stands alone on its ranks ({shown})", remedy, code="invalid-partitioning")
    if len(partition.ranks) < 2:
        message = f"flatten() combines two ranks or more, not {shown} alone"
        walk.add(path, message, "write (R, S)", key=True, code="invalid-partitioning")
        return
    for rank in partition.ranks:
        split = _split_of(rank, parts)
        if rank in flattened:
            remedy = "flatten all of them at once: (R, S, T)"
            fault = f"{rank} is a flattened rank and cannot be flattened again"
            walk.add(path, fault, remedy, key=True, code="invalid-partitioning")
        elif rank not in ranks.origin and split is not None and rank != f"{split.ranks[0]}0":
            remedy = f"flatten {split.ranks[0]}0, the innermost"
            walk.add(
                path,
                f"{rank} is not the innermost part of {split.ranks[0]}",
                remedy,
                key=True,
                code="invalid-partitioning",
            )
        elif ranks.in_index_math(split.ranks[0] if split and rank not in ranks.origin else rank):
            remedy = "leave it out: ranks of index math cannot be flattened"
            walk.add(
                path, f"rank {rank} takes part in index math", remedy, key=True, code="invalid-partitioning"
            )


def _check_sequence(
    path: Path, partition: Partition, flattened: Mapping[str, tuple[str, ...]], walk: TreeWalk
) -> None:
    rank, dynamic = partition.ranks[0], ""
    for i, directive in enumerate(partition.directives):
        if directive.kind in SHAPE and rank in flattened:
            remedy = f"split it by occupancy: uniform_occupancy({'L'}.{directive.size})"
            what = f"{directive.kind} splits by shape, and the flattened rank {rank} has none"
            walk.add((*path, i), what, remedy, code="invalid-partitioning")
        if directive.kind == "nway_shape" and dynamic:
            remedy = "put nway_shape first"
            fault = f"nway_shape follows {dynamic}, whose parts have no shape"
            walk.add((*path, i), fault, remedy, code="invalid-partitioning")
        if directive.kind in DATA_DEPENDENT:
            dynamic = dynamic or directive.kind
    kinds = [d.kind for d in partition.directives]
    if "uniform_slice" in kinds[1:]:
        at = (*path, kinds.index("uniform_slice", 1))
        message = f"uniform_slice stands first on its rank {rank}"
        walk.add(at, message, "it deals out the fibers of a whole rank", code="invalid-partitioning")


def _check_leader(
    path: Path,
    directive: Directive,
    roots: tuple[str, ...],
    expression: Expression,
    declaration: Declaration,
    walk: TreeWalk,
) -> None:
    """The leader is an operand that has the ranks that are split."""
    leader = directive.leader
    operands = [o for o in expression.operands if o.tensor == leader]
    fitting = [o.tensor for o in expression.operands if _has(o.tensor, roots, expression, declaration)]
    remedy = f"name one of {', '.join(dict.fromkeys(fitting))}" if fitting else "no operand has it"
    if not operands:
        what = "is the output" if leader == expression.name else "is not an operand"
        if leader not in declaration:
            near = suggestion(leader, [o.tensor for o in expression.operands], "operands")
            fault = f"unknown tensor {leader}"
            walk.add(path, fault, near, offset=len(directive.kind) + 1, code="unknown-name")
            return
        message = f"leader {leader} {what} of Einsum {expression.name}"
        walk.add(path, message, remedy, offset=len(directive.kind) + 1, code="invalid-partitioning")
    elif leader not in fitting:
        message = f"leader {leader} has no rank {', '.join(roots)}"
        walk.add(path, message, remedy, offset=len(directive.kind) + 1, code="invalid-partitioning")


def _has(tensor: str, roots: Sequence[str], expression: Expression, declaration: Declaration) -> bool:
    """True if every one of the ranks, or its variable, indexes the tensor."""
    for operand in expression.operands:
        if operand.tensor == tensor:
            found = operand_ranks(operand, declaration)
            variables = {v.upper() for index in found.values() for v, _ in index.terms}
            if all(r in found or r in variables for r in roots):
                return True
    return False


def _check_follow(
    path: Path,
    directive: Directive,
    partition: Partition,
    parts: list[tuple[Path, Partition]],
    walk: TreeWalk,
) -> None:
    """The followed rank leads an occupancy split of this Einsum, or is another rank that is split."""
    leaders = [d.leader for _, p in parts for d in p.directives if d.kind == "uniform_occupancy"]
    split = [p.ranks[0] for _, p in parts if len(p.ranks) == 1 and p.ranks != partition.ranks]
    if directive.leader in leaders or directive.leader in split:
        return
    remedy = suggestion(directive.leader, [*leaders, *split], "leaders of this Einsum")
    message = f"{directive.leader} leads no partitioning that rank {partition.ranks[0]} could follow"
    walk.add(path, message, remedy, offset=len(directive.kind) + 1, code="unknown-name")


def _check_slice(
    path: Path, partition: Partition, expression: Expression, order: Declaration, walk: TreeWalk
) -> None:
    """Some operand has the rank outermost: its fibers are distributed."""
    rank = partition.ranks[0]
    tops = {o.tensor: order.get(o.tensor, ())[:1] for o in expression.operands}
    if any(rank in top for top in tops.values()):
        return
    shown = ", ".join(f"{t}: {top[0]}" for t, top in tops.items() if top)
    remedy = f"change a rank-order, or slice another rank (outermost ranks: {shown or 'none'})"
    message = f"uniform_slice needs an operand whose outermost rank is {rank}"
    walk.add(path, message, remedy, code="invalid-partitioning")


def _check_names_made(parts: list[tuple[Path, Partition]], ranks: Ranks, walk: TreeWalk) -> None:
    """No partition produces a rank that already exists."""
    taken = dict.fromkeys(ranks.known(), "declared")
    for path, partition in parts:
        name, count = "".join(partition.ranks), len(partition.directives)
        made = [name] if len(partition.ranks) > 1 else [f"{name}{i}" for i in range(count + 1)]
        for rank in made:
            if rank in taken:
                message = f"the partitioning makes rank {rank}, which is {taken[rank]} too"
                walk.add(path, message, "rename one", key=True, code="name-conflict")
            taken[rank] = f"made by {path[-1]}"


def check_loop_order(given: tuple[str, ...], ranks: Ranks, path: Path, walk: TreeWalk) -> bool:
    """Every rank after partitioning occurs once; a rank of index math may be replaced by one of its
    variables."""
    before = len(walk.faults)
    compound = {leaf: root for root, leaves in ranks.compound.items() for leaf in (*leaves, f"{root}0")}
    known = ranks.known()
    roots: dict[str, None] = {}
    for i, rank in enumerate(given):
        if rank in ranks.order:
            roots.update(dict.fromkeys(ranks.origin[rank]))
        elif rank in compound:
            roots[compound[rank]] = None
        elif rank in ranks.gone:
            shown = ", ".join(ranks.gone[rank])
            walk.add(
                (*path, i),
                f"rank {rank} is partitioned",
                f"write its ranks {shown}",
                code="invalid-partitioning",
            )
        else:
            walk.add(
                (*path, i),
                f"unknown rank {rank}",
                suggestion(rank, known, "ranks after partitioning"),
                code="unknown-name",
            )
    if len(walk.faults) > before:
        return False
    used = [r for r in given if r in compound and r not in ranks.order]
    needed = [r for r in ranks.order if not used or any(o in roots for o in ranks.origin[r])]
    missing = [r for r in needed if r not in given]
    if missing:
        what = f"the loop order lacks {', '.join(missing)}"
        walk.add(path, what, f"its ranks are {', '.join(ranks.order)}", code="invalid-partitioning")
    elif used and not determines(ranks, roots):
        message = f"the loops over {', '.join(given)} do not give each rank variable once"
        remedy = f"its ranks are {', '.join(ranks.order)}; {', '.join(used)} may stand for one"
        walk.add(path, message, remedy, code="invalid-partitioning")
    return len(walk.faults) == before


def check_spacetime(found: SpaceTime, loops: tuple[str, ...], path: Path, walk: TreeWalk) -> None:
    """Every loop is stamped once, in space or in time."""
    before = len(walk.faults)
    seen: dict[str, str] = {}
    for key, stamps in (("space", found.space), ("time", found.time)):
        for i, stamp in enumerate(stamps):
            if stamp.rank not in loops:
                near = suggestion(stamp.rank, loops, "ranks of the loop order")
                walk.add((*path, key, i), f"unknown rank {stamp.rank}", near, code="unknown-name")
            elif stamp.rank in seen:
                message = f"rank {stamp.rank} stands twice, also in {seen[stamp.rank]}"
                walk.add((*path, key, i), message, "list it in space or in time", code="duplicate-name")
            seen[stamp.rank] = key
    missing = [r for r in loops if r not in seen]
    if missing and len(walk.faults) == before:
        what = f"{', '.join(missing)} of the loop order stand neither in space nor in time"
        walk.add(path, what, "add them to time", code="invalid-partitioning")
