"""Convert Timeloop's first form of configuration into today's sections: problems without `instance:`, shapes
by name, storages listed from the array outwards, named sets of constraints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from polymodel.importers.timeloop.reading import TimeloopReading, plain_key
from polymodel.spec.faults import Source, YamlEntry, YamlNode, node_of

# A convolutional layer in seven dimensions, the default of a problem without a shape.
_LAYER: dict[str, object] = {
    "name": "Conv",
    "dimensions": ["R", "S", "P", "Q", "C", "K", "N"],
    "coefficients": [
        {"name": f"{axis}{what}", "default": 1} for axis in "WH" for what in ("stride", "dilation")
    ],
    "data_spaces": [
        {"name": "Weights", "projection": [[["C"]], [["K"]], [["R"]], [["S"]]]},
        {
            "name": "Inputs",
            "projection": [
                [["N"]],
                [["C"]],
                [["R", "Wdilation"], ["P", "Wstride"]],
                [["S", "Hdilation"], ["Q", "Hstride"]],
            ],
        },
        {"name": "Outputs", "projection": [[["N"]], [["K"]], [["Q"]], [["P"]]], "read_write": True},
    ],
}
_PRODUCT: dict[str, object] = {
    "name": "MatMul",
    "dimensions": ["M", "N", "K"],
    "data_spaces": [
        {"name": "A", "projection": [[["M"]], [["K"]]]},
        {"name": "B", "projection": [[["N"]], [["K"]]]},
        {"name": "Z", "projection": [[["M"]], [["N"]]], "read_write": True},
    ],
}
_SHAPES = {"cnn_layer": _LAYER, "gemm_abz": _PRODUCT}
_AROUND = ("version", "shape", "densities", "name")  # keys of a problem that are not sizes
_ARCH = ("arch", "architecture")


def as_sections(reading: TimeloopReading, roots: Sequence[YamlNode]) -> list[YamlNode]:
    """Return the files with sections in today's form. `roots`: the content of each file."""
    shapes = {_word(s): s for root in roots for s in _values(root, ("shape",)) if _has_spaces(s)}
    without_problem = not any(list(_values(root, ("problem",))) for root in roots)
    result = []
    for root in roots:
        entries = []
        for entry in root.entries or ():
            key = plain_key(entry.key)
            if key == "shape" and _has_spaces(entry.value):
                if not without_problem:
                    continue
                message = "a shape alone has no sizes"
                remedy = "import it together with the problem that names it: `problem: {shape: NAME, ...}`"
                reading.fault(entry.value, message, remedy, "shape", code="missing-section")
            elif key == "problem":
                entry = replace(entry, value=_problem(reading, entry.value, shapes))
            elif key in _ARCH and entry.value.entry("storage") is not None:
                entry = replace(entry, key="architecture", value=_machine(reading, entry.value))
            elif key == "mapspace":
                entries += _chosen(reading, entry)
                continue
            entries.append(entry)
        result.append(root if root.entries is None else replace(root, entries=tuple(entries)))
    return result


def _values(root: YamlNode, keys: Iterable[str]) -> Iterable[YamlNode]:
    return (e.value for e in root.entries or () if plain_key(e.key) in keys)


def _has_spaces(shape: YamlNode) -> bool:
    return next(iter(_values(shape, ("data_spaces",))), None) is not None


def _word(shape: YamlNode) -> str:
    name = shape.entry("name")
    return "" if name is None else plain_key(str(name.value.scalar))


def _entry(key: str, value: YamlNode) -> YamlEntry:
    return YamlEntry(key, value.line, value.column, value.source, value)


def _problem(reading: TimeloopReading, node: YamlNode, shapes: Mapping[str, YamlNode]) -> YamlNode:
    """Return a problem with a shape and an instance; problems in today's form are returned unchanged."""
    if node.entries is None:
        return node
    entries = list(node.entries)
    shape = node.entry("shape")
    named = shape is not None and isinstance(shape.value.scalar, str)
    instance = node.entry("instance")
    flat = instance is None
    sizes_in = node if instance is None else instance.value
    if named or (shape is None and sizes_in.entry("C") is not None):
        word = plain_key(str(shape.value.scalar)).removesuffix(".yaml") if shape is not None else "cnn_layer"
        found = shapes.get(word)
        if found is None and word in _SHAPES:
            found = node_of(_SHAPES[word], Source("", ()), 0)
            what = f"the shape is the built-in one: {word}"
            reading.note(node, what, "import the file of another shape of this name as well", "problem.shape")
        if found is not None:
            entries = [_entry("shape", found), *(e for e in entries if e is not shape)]
    if flat and any(plain_key(e.key) == "shape" for e in entries):
        sizes = [e for e in entries if plain_key(e.key) not in _AROUND]
        if sizes:
            inner = replace(node, entries=tuple(sizes))
            entries = [e for e in entries if e not in sizes] + [_entry("instance", inner)]
    return replace(node, entries=tuple(entries))


def _machine(reading: TimeloopReading, node: YamlNode) -> YamlNode:
    """Return storages, listed from the array outwards, and the array itself as one subtree, outermost
    first."""
    storage = next(iter(_values(node, ("storage",))), node)
    local = [_part(reading, n, "") for n in reversed(storage.elements or ())]
    local += [_part(reading, n, "intmac") for n in _values(node, ("arithmetic",))]
    system = replace(node, entries=(_text("name", "system", node), _list("local", local, node)))
    rest = (e for e in node.entries or () if plain_key(e.key) not in ("storage", "arithmetic"))
    return replace(node, entries=(*rest, _list("subtree", [system], node)))


def _part(reading: TimeloopReading, node: YamlNode, kind: str) -> YamlNode:
    """Return a component: its name, its class, and attributes."""
    name = node.entry("name")
    technology = node.entry("technology")
    if not kind:
        kind = "DRAM" if technology is not None and technology.value.scalar == "DRAM" else "SRAM"
    own = tuple(e for e in node.entries or () if e is not name and not (kind == "DRAM" and e is technology))
    title = name.value if name is not None else replace(node, scalar="MAC", entries=None, elements=None)
    return replace(
        node,
        entries=(
            _entry("name", title),
            _text("class", kind, node),
            _entry("attributes", replace(node, entries=own)),
        ),
    )


def _text(key: str, text: str, at: YamlNode) -> YamlEntry:
    return _entry(key, YamlNode(at.source, at.line, at.column, scalar=text))


def _list(key: str, elements: Sequence[YamlNode], at: YamlNode) -> YamlEntry:
    return _entry(key, YamlNode(at.source, at.line, at.column, elements=tuple(elements)))


def _chosen(reading: TimeloopReading, section: YamlEntry) -> list[YamlEntry]:
    """Return the constraints of a mapspace as a section of their own; if there are several sets, the named
    one."""
    node = section.value
    targets = node.entry("targets")
    if targets is not None:
        return [_entry("mapspace_constraints", _spread(targets.value))]
    word = node.entry("constraints")
    if word is None:
        return [section]
    sets = {e.key: e for e in node.entries or () if e.key.startswith("constraints_")}
    found: YamlEntry | None = word
    if isinstance(word.value.scalar, str):
        found = sets.pop(f"constraints_{word.value.scalar}", None)
    if found is None:
        return [section]
    for other in sets.values():
        reading.note(
            other.value, f"`{other.key}` is not the set of constraints that is named", "", "mapspace"
        )
    used = {"constraints", *(e.key for e in node.entries or () if e.key.startswith("constraints_"))}
    rest = tuple(e for e in node.entries or () if e.key not in used)
    result = [_entry("mapspace_constraints", found.value)]
    return [*result, replace(section, value=replace(node, entries=rest))] if rest else result


def _spread(targets: YamlNode) -> YamlNode:
    """Return constraints that are listed below each target as one flat list: `{target, type, ...}`."""
    result = []
    for target in targets.elements or ():
        named = tuple(replace(e, key="target") for e in target.entries or () if plain_key(e.key) == "name")
        for one in (n for inner in _values(target, ("constraints",)) for n in inner.elements or ()):
            inside = tuple(e for n in _values(one, ("attributes",)) for e in n.entries or ())
            own = tuple(e for e in one.entries or () if plain_key(e.key) != "attributes")
            result.append(replace(one, entries=(*named, *own, *inside)))
    return replace(targets, elements=tuple(result))
