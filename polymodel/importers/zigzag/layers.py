"""Convert ZigZag's layers into Einsums: equations, relations of dimensions, and which layer produces which
operand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polymodel.arithmetic import Affine
from polymodel.importers.tables import KeyedTable, Reading
from polymodel.spec.faults import TextFault, YamlNode
from polymodel.spec.numbers import parse_affine

ROLES = {"I1": "input", "I2": "weight", "O": "output"}  # memory operands: names in architectures
_TERM = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<dims>(?:\[\s*\w*\s*\]\s*)*)\Z")  # W[]: no ranks
_EQUATION = re.compile(r"(?P<left>[^=+]+?)\s*\+?=\s*(?P<right>.+)\Z", re.DOTALL)
_IGNORED = ("operator_type", "constant_operands", "pr_loop_dims", "pr_loop_sizes")
_STEERING = ("spatial_mapping", "spatial_mapping_hint", "temporal_ordering", "core_allocation")
MOST = 2**53


@dataclass
class _Layer:
    """One layer as it was read. `accesses`: operand -> its dimensions, the output first; `relations`:
    dimensions that follow from loops."""

    id: str
    name: str
    table: KeyedTable
    sizes: dict[str, int] = field(default_factory=dict)
    accesses: dict[str, list[str]] = field(default_factory=dict)
    output: str = "O"
    adds: bool = False
    relations: dict[str, Affine] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    padding: dict[str, tuple[int, int]] = field(default_factory=dict)
    ranks: dict[str, dict[str, str]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def index(self, dim: str) -> Affine:
        """Return the expression of a dimension in terms of the loops."""
        return self.relations.get(dim, Affine.variable(dim))

    def reach(self, dim: str) -> int:
        """Return the number of values that a dimension takes, from 0 on."""
        expr = self.index(dim)
        return 1 + expr.constant + sum(c * (self.sizes.get(v, 1) - 1) for v, c in expr.terms)


def workload_of(reading: Reading, root: YamlNode, links: Mapping[str, str]) -> dict[str, object]:
    """Return the section `workload:`. `links`: operand -> memory operand, for layers that have none of their
    own."""
    layers = [_layer(reading, node, i) for i, node in enumerate(root.elements or ())]
    by_id = {layer.id: layer for layer in layers}
    for layer in layers:
        if sum(other.id == layer.id for other in layers) > 1:
            message = f"two layers have the id {layer.id}"
            reading.fault(layer.table.node, message, "give each its own", "id", code="duplicate-name")
    if len(reading.faults):
        return {}
    _trim(reading, layers, by_id)
    _wide_sums(reading, layers)
    several = len(layers) > 1
    return {"einsums": [_einsum(reading, layer, by_id, links, several) for layer in layers]}


def _trim(reading: Reading, layers: Sequence[_Layer], by_id: Mapping[str, _Layer]) -> None:
    """Leave out ranks of size 1 of a tensor that one layer produces and another layer reads with another
    number of ranks, such as a depthwise convolution after a convolution."""
    reads: dict[str, list[tuple[_Layer, str]]] = {}
    for layer in layers:
        for operand in layer.accesses:
            source = layer.sources.get(operand, layer.id)
            if operand != layer.output and source != layer.id and source in by_id:
                reads.setdefault(source, []).append((layer, operand))
    for source, readers in reads.items():
        made = by_id[source]
        places = [(made, made.output), *readers]
        if len({len(x.accesses[o]) for x, o in places}) == 1:
            continue
        left = [[d for d in x.accesses[o] if x.reach(d) > 1] for x, o in places]
        if len({len(dims) for dims in left}) > 1:
            continue
        for (layer, operand), dims in zip(places, left, strict=True):
            layer.accesses[operand] = dims
        what = f"{made.output} of {made.name}: its ranks of one element are left out"
        reading.note(made.table.node, what, "give its readers as many ranks to keep them")


def _wide_sums(reading: Reading, layers: Sequence[_Layer]) -> None:
    """Report partial sums that are wider than results, because a tensor has one width in polymodel."""
    wide = [x for x in layers if x.bits.get(x.output) not in (None, x.bits.get(f"{x.output}_final"), 0)]
    wide = [x for x in wide if f"{x.output}_final" in x.bits]
    if not wide:
        return
    shown = ", ".join(x.name for x in wide[:4]) + (f" and {len(wide) - 4} more" if len(wide) > 4 else "")
    why = f"a tensor has one width, that of its final values; partial sums of {shown} move in as many bits"
    first = wide[0]
    node = first.table.take("operand_precision") or first.table.node
    reading.leave(
        node, first.output, why, f"set `{first.output}_final` to their width to count all as wide",
        "operand_precision", changes="bits of partial sums",
    )  # fmt: skip


def _layer(reading: Reading, node: YamlNode, number: int) -> _Layer:
    table = KeyedTable(reading, node, f"layers[{number}]")
    layer = _Layer(table.text("id") or str(number), table.text("name"), table)
    layer.name = re.sub(r"\W+", "_", layer.name or f"layer{layer.id}", flags=re.ASCII)
    table.owner = layer.name
    _equation(reading, layer)
    _sizes(reading, layer)
    for node_ in table.items("dimension_relations"):
        _relation(reading, layer, node_)
    layer.bits = _numbers(reading, table, "operand_precision")
    for key, value in _entries(table, "operand_source"):
        given = value.elements[0].scalar if value.elements else value.scalar
        layer.sources[key] = layer.id if value.elements == () or given is None else str(given)
    for key, value in _paddings(reading, table):
        pair = [n.scalar for n in value.elements or ()]
        if len(pair) == 2 and all(isinstance(n, int) and n >= 0 for n in pair):
            layer.padding[key.lower()] = int(str(pair[0])), int(str(pair[1]))
        else:
            what = f"the padding of {key} is not a pair of numbers"
            reading.fault(value, what, "write e.g. [1, 1]", table.path, code="wrong-type")
    for key, value in _entries(table, "operand_source_dimension_mapping"):
        layer.ranks[key] = {e.key.lower(): str(e.value.scalar).lower() for e in value.entries or ()}
    layer.links = {key: str(value.scalar) for key, value in _entries(table, "memory_operand_links")}
    for key in _IGNORED:
        table.take(key)
    for entry in table.rest:
        if entry.key in _STEERING:
            why, remedy = "it limits a search", "say what to search in `explore:` (docs/howto/explore.md)"
            reading.leave(entry.value, entry.key, why, remedy, table.path, owner=layer.name)
        else:
            why, remedy = "a layer here has no such key", "check that the counts do not need it"
            reading.leave(
                entry.value, entry.key, why, remedy, table.path, owner=layer.name,
                changes="counts", refused=True,
            )  # fmt: skip
    return layer


def _paddings(reading: Reading, table: KeyedTable) -> list[tuple[str, YamlNode]]:
    """Return the padding of each dimension: by name, or a list in the order of `pr_loop_dims`."""
    node = table.take("padding")
    if node is None or node.elements is None:
        return _entries(table, "padding")
    names = [str(n.scalar) for n in table.items("pr_loop_dims")]
    if len(names) != len(node.elements):
        what = f"the padding has {len(node.elements)} entries, `pr_loop_dims` has {len(names)}"
        remedy = "give each of these dimensions a pair such as [1, 1]"
        if not names:
            remedy = "name the dimensions that are padded, in its order: `pr_loop_dims: [IX, IY]`"
        reading.fault(node, what, remedy, table.path, code="wrong-count")
        return []
    return list(zip(names, node.elements, strict=True))


def _entries(table: KeyedTable, key: str) -> list[tuple[str, YamlNode]]:
    inner = table.table(key)
    return [] if inner is None else [(e.key, e.value) for e in inner.node.entries or ()]


def _numbers(reading: Reading, table: KeyedTable, key: str) -> dict[str, int]:
    result = {}
    for name, value in _entries(table, key):
        number = _count(reading, value, f"{table.path}.{key}", least=0)
        if number is not None:
            result[name] = number
    return result


def _count(reading: Reading, node: YamlNode, path: str, least: int = 1) -> int | None:
    value = node.scalar
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST:
        return value
    message = f"{value} is not a whole number from {least} on"
    reading.fault(node, message, "write e.g. 64", path, code="not-an-integer")
    return None


def _equation(reading: Reading, layer: _Layer) -> None:
    """Read `O[b][k] += W[k][c] * I[b][c]`, or a sum of two operands."""
    node = layer.table.take("equation")
    text = "" if node is None else str(node.scalar)
    match = _EQUATION.match(text.strip())
    remedy = "write e.g. O[b][k]+=W[k][c]*I[b][c]"
    where = node if node is not None else layer.table.node
    right = match["right"] if match else ""
    layer.adds = "+" in right
    terms = [_TERM.match(part) for part in ([match["left"], *re.split(r"[*+]", right)] if match else [])]
    if len(terms) < 2 or any(t is None for t in terms) or ("*" in right and layer.adds):
        what = f"{text!r} is not an equation of a layer"
        reading.fault(where, what, remedy, f"{layer.table.path}.equation", code="syntax-error")
        return
    for i, term in enumerate(t for t in terms if t is not None):
        name, dims = term["name"], [d.lower() for d in re.findall(r"\w+", term["dims"])]
        if name in layer.accesses:
            what = f"operand {name} stands twice in the equation"
            reading.fault(
                where, what, "give each its own letter", f"{layer.table.path}.equation", code="duplicate-name"
            )
        layer.output = name if i == 0 else layer.output
        layer.accesses[name] = dims


def _sizes(reading: Reading, layer: _Layer) -> None:
    table = layer.table
    names = [str(n.scalar).lower() for n in table.items("loop_dims")]
    values = [_count(reading, n, f"{table.path}.loop_sizes") for n in table.items("loop_sizes")]
    if len(names) != len(values):
        what = f"{len(names)} loop_dims and {len(values)} loop_sizes"
        reading.fault(table.node, what, "give each dimension its size", table.path, code="wrong-count")
        return
    layer.sizes = {n: v for n, v in zip(names, values, strict=True) if v is not None}
    older = _numbers(reading, table, "loop_dim_size")
    layer.sizes |= {n.lower(): v for n, v in older.items()}


def _relation(reading: Reading, layer: _Layer, node: YamlNode) -> None:
    """Read a relation such as `ix=2*ox+1*fx`."""
    name, equals, text = str(node.scalar).partition("=")
    path = f"{layer.table.path}.dimension_relations"
    try:
        expr = parse_affine(text.lower(), {}) if equals else None
    except TextFault as fault:
        reading.fault(node, fault.message, fault.remedy, path, code=fault.code)
        return
    strange = sorted(set(expr.variables) - set(layer.sizes)) if expr is not None else []
    if expr is None or strange:
        what = f"{node.scalar!r} is not a relation"
        what = f"{', '.join(strange)} is not in loop_dims" if strange else what
        reading.fault(node, what, "write e.g. ix=2*ox+1*fx, of loop_dims", path, code="unknown-name")
        return
    layer.relations[name.strip().lower()] = expr


def _einsum(
    reading: Reading, layer: _Layer, by_id: Mapping[str, _Layer], links: Mapping[str, str], several: bool
) -> dict[str, object]:
    used = [d for dims in layer.accesses.values() for d in dims]
    for dim in dict.fromkeys(v for d in used for v in layer.index(d).variables):
        if dim not in layer.sizes:
            what = f"{layer.name}: {dim} has no size, 1 is taken"
            reading.note(layer.table.node, what, "add it to loop_dims")
            layer.sizes[dim] = 1
    variables = dict.fromkeys(v for d in used for v in layer.index(d).variables)
    constraints = [f"0 <= {v} < {layer.sizes[v]}" for v in variables]
    accesses: list[dict[str, object]] = []
    roles: dict[str, str] = {}
    own = _roles(layer, links)
    for operand, dims in layer.accesses.items():
        bits = _bits(reading, layer, operand)
        if bits == 0:
            reading.note(layer.table.node, f"{layer.name}: {operand} has values of 0 bits, so it is not read")
            continue
        made = _source(reading, layer, operand, by_id)
        tensor = f"{operand}{layer.id if several else ''}"
        if made is not None:
            tensor, bits = f"{made.output}{made.id}", _bits(reading, made, made.output)
        projection, outside = _projection(reading, layer, operand, dims, made)
        constraints += [c for c in outside if c not in constraints]
        access = {"name": tensor, "projection": projection, "bits_per_value": bits}
        accesses.append({**access, "output": True} if operand == layer.output else access)
        roles[own[operand]] = tensor
    return {
        "name": layer.name,
        **({"operations": {"map": "add"}} if layer.adds else {}),
        "iteration_space_shape": constraints,
        "tensor_accesses": accesses,
        "renames": {role: roles.get(role, "Nothing") for role in ROLES.values()},
    }


def _roles(layer: _Layer, links: Mapping[str, str]) -> dict[str, str]:
    """Return operand -> input, weight or output: from the links, from the usual letters, otherwise in
    order."""
    given = {**links, **layer.links}
    result = {layer.output: "output"}
    left = [ROLES["I1"], ROLES["I2"]]
    waiting = []
    for operand in (o for o in layer.accesses if o != layer.output):
        usual = {"I": "I1", "X": "I1", "W": "I2", "Y": "I2"}.get(operand, "")
        role = ROLES.get(given.get(operand, usual), "")
        if role in left:
            left.remove(role)
            result[operand] = role
        else:
            waiting.append(operand)
    for operand in waiting:
        result[operand] = left.pop(0) if left else "input"
    return result


def _bits(reading: Reading, layer: _Layer, operand: str) -> int:
    """Return the bits of a value; the bits of a result are those of its final values."""
    if operand == layer.output:
        return layer.bits.get(f"{operand}_final", layer.bits.get(operand, 8))
    if operand not in layer.bits:
        reading.note(layer.table.node, f"{layer.name}: {operand} has no precision, 8 bits are taken")
    return layer.bits.get(operand, 8)


def _source(reading: Reading, layer: _Layer, operand: str, by_id: Mapping[str, _Layer]) -> _Layer | None:
    """Return the layer that produces an operand; None if the operand comes from outside."""
    source = layer.sources.get(operand, layer.id)
    if operand == layer.output or source == layer.id or source == "-1":
        return None
    made, path = by_id.get(source), f"{layer.table.path}.operand_source"
    if made is None:
        what, remedy = f"{operand} comes from layer {source}, which is not there", f"ids: {', '.join(by_id)}"
        reading.fault(layer.table.node, what, remedy, path, code="unknown-name")
        return None
    if len(made.accesses[made.output]) != len(layer.accesses[operand]):
        ranks = len(made.accesses[made.output])
        why = f"{made.name} makes a tensor of {ranks} ranks, {operand} has another number"
        reading.leave(
            layer.table.node, "operand_source", why, "give both the same ranks", layer.table.path,
            owner=layer.name, changes="what may be fused", refused=True,
        )  # fmt: skip
        return None
    return made


def _projection(
    reading: Reading, layer: _Layer, operand: str, dims: Sequence[str], made: _Layer | None
) -> tuple[dict[str, str], list[str]]:
    """Return rank -> expression, and constraints that exclude accesses to the padding."""
    ranks = {d: d for d in dims} if made is None else _matched(layer, operand, dims, made)
    projection: dict[str, str] = {}
    outside: list[str] = []
    for dim in dims:
        rank, expr, reach = ranks[dim], layer.index(dim), layer.reach(dim)
        given = layer.padding.get(dim)
        extent = reach - sum(given or (0, 0)) if made is None else made.reach(rank)
        low = given[0] if given is not None else max(0, reach - extent) // 2
        if reach > extent:
            expr = Affine(expr.terms, expr.constant - low)
            outside.append(f"0 <= {expr} < {extent}")
            if given is None:
                what = f"{layer.name}: {operand} reaches {reach} values of {dim}, {extent} are made"
                what += f": of padding {low} stand before them"
                reading.note(layer.table.node, what, "say it: `padding:`")
        projection[rank.upper()] = str(expr)
    return projection, outside


def _matched(layer: _Layer, operand: str, dims: Sequence[str], made: _Layer) -> dict[str, str]:
    """Return dimension -> rank of the tensor that another layer produces: as specified, by name, otherwise in
    order."""
    theirs = list(made.accesses[made.output])
    said = layer.ranks.get(operand, {})
    result: dict[str, str] = {}
    for dim in dims:
        for name in (said.get(dim, ""), dim, f"o{dim[1:]}" if dim.startswith("i") else ""):
            if name in theirs:
                result[dim] = name
                theirs.remove(name)
                break
    for dim in (d for d in dims if d not in result):
        result[dim] = theirs.pop(0)
    return result
