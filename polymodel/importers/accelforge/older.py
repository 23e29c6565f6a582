"""Convert components of older AccelForge files to the current form, with keys at their current locations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from polymodel.importers.tables import KeyedTable, Reading, lifted
from polymodel.spec.expressions import KEYWORDS
from polymodel.spec.faults import YamlEntry, YamlNode

_WRAPPERS = ("attributes", "constraints")
_INNER = ("misc", "dataflow")  # tables in `constraints:`
_LIFTED = (
    "size", "leak_power", "area", "tensors", "total_latency", "energy_scale", "area_scale",
    "leak_power_scale", "enabled", "datawidth",
)  # fmt: skip
_WITHOUT = ("gated_", "skipped_", "metadata_", "leak")  # actions that not all kinds of components have
_MODEL = ("attributes", "extra_attributes_for_component_model")


def as_now(node: YamlNode) -> YamlNode:
    """Return the component in the current form."""
    node = lifted(_opened(node), _WRAPPERS, _LIFTED)
    constraints = node.entry("constraints")
    bound = constraints.value.entry("spatial") if constraints is not None else None
    spatial = node.entry("spatial")
    if constraints is None or bound is None or spatial is None or spatial.value.elements is None:
        return node
    rest: list[YamlNode] = []
    dimensions = list(spatial.value.elements)
    for one in bound.value.elements or ():
        place = next((i for i, d in enumerate(dimensions) if _concerns(one, d)), None)
        if place is None:
            rest.append(one)
        else:
            more = (e for e in one.entries or () if e.key != "name")
            dimensions[place] = replace(
                dimensions[place], entries=(*(dimensions[place].entries or ()), *more)
            )
    left = [e for e in constraints.value.entries or () if e is not bound]
    if rest:
        left.append(replace(bound, value=replace(bound.value, elements=tuple(rest))))
    entries = [e for e in node.entries or () if e.key not in ("spatial", "constraints")]
    entries.append(replace(spatial, value=replace(spatial.value, elements=tuple(dimensions))))
    if left:
        entries.append(replace(constraints, value=replace(constraints.value, entries=tuple(left))))
    return replace(node, entries=tuple(entries))


def _concerns(bound: YamlNode, dimension: YamlNode) -> bool:
    """Return whether a constraint belongs to a fanout dimension and does not contradict it."""
    one, other = bound.entry("name"), dimension.entry("name")
    if one is None or other is None or one.value.scalar != other.value.scalar:
        return False
    own = {e.key.removeprefix("may_") for e in dimension.entries or ()}
    return not any(e.key.removeprefix("may_") in own and e.key != "name" for e in bound.entries or ())


def _opened(node: YamlNode) -> YamlNode:
    """Return the component with the content of tables in `constraints:` moved one level outwards."""
    entries = []
    for entry in node.entries or ():
        if entry.key == "constraints" and entry.value.entries is not None:
            inner: list[YamlEntry] = []
            for one in entry.value.entries:
                inner += one.value.entries or () if one.key in _INNER else [one]
            entry = replace(entry, value=replace(entry.value, entries=tuple(inner)))
        entries.append(entry)
    return node if node.entries is None else replace(node, entries=tuple(entries))


_NAMED = {  # the location of a tensor's name: key -> the keys of the lists that contain it
    "name": ("tensor_accesses", "representation_format"),
    "target": ("action_optimization", "compute_optimization"),
}
_LISTS = ("tensors", "condition_on")


def without_words(reading: Reading, sections: dict[str, YamlNode]) -> dict[str, YamlNode]:
    """Return the sections with new names for tensors whose names are keywords of set expressions, such as
    Inputs."""
    called: dict[str, str] = {}
    workload = sections.get("workload")
    for node in workload.walk() if workload is not None else ():
        for access in (e.value for e in node.entries or () if e.key == "tensor_accesses"):
            for name in (a.entry("name") for a in access.elements or ()):
                word = str(name.value.scalar) if name is not None else ""
                if word in (*KEYWORDS, "Other") and word not in called:
                    called[word] = word.removesuffix("s") if word.endswith("s") else f"{word}_"
                    what = f"{word} is called {called[word]} here"
                    why = "set expressions keep the other name for sets of their own"
                    reading.note(access, what, why, "workload")
    if not called:
        return sections
    asked = ("workload", "mapping", "arch", "sparse_optimizations")
    return {k: _called(n, called, "", k) if k in asked else n for k, n in sections.items()}


def _called(node: YamlNode, called: dict[str, str], above: str, section: str) -> YamlNode:
    """Return the node with the names of tensors replaced. `above`: the key of the enclosing list."""
    if node.elements is not None:
        return replace(node, elements=tuple(_called(n, called, above, section) for n in node.elements))
    if node.entries is None:
        listed = above in _LISTS and (above != "tensors" or section == "mapping")
        new = called.get(str(node.scalar)) if listed else None
        return node if new is None else replace(node, scalar=new)
    entries = []
    for entry in node.entries:
        value = entry.value
        if above in _NAMED.get(entry.key, ()) and value.scalar is not None and str(value.scalar) in called:
            value = replace(value, scalar=called[str(value.scalar)])
        else:
            value = _called(value, called, entry.key, section)
        entries.append(replace(entry, value=value))
    return replace(node, entries=tuple(entries))


def own_variables(node: YamlNode) -> dict[str, object]:
    """Return the names that expressions of a component may use: the attributes of its model, and its size."""
    result: dict[str, object] = {}
    tables = [node, *(e.value for e in node.entries or () if e.key in _MODEL)]
    for table in tables:
        for entry in table.entries or ():
            text = entry.value.scalar
            if (table is node and entry.key != "size") or isinstance(text, bool):
                continue
            if isinstance(text, (int, float)) or (isinstance(text, str) and entry.key not in text):
                result[entry.key.removeprefix("_")] = text
    return result


def widths_of(reading: Reading, table: KeyedTable) -> None:
    """Note that the bits of values in a component of an older file, whose workload has none, are not read."""
    given = table.take("datawidth")
    if given is not None:
        what = f"`datawidth` of {table.owner} is not read: widths are those of the workload"
        reading.note(given, what, "write `bits_per_value:` of the workload", table.path)


def sorted_actions(
    reading: Reading, nodes: Iterable[YamlNode], known: Iterable[str], table: KeyedTable
) -> Iterable[YamlNode]:
    """Yield the actions that a component has in polymodel; others are noted where they have a price."""
    for node in nodes:
        name = node.entry("name")
        word = "" if name is None else str(name.value.scalar)
        energy = node.entry("energy")
        if word in known or not word.startswith(_WITHOUT):
            yield node
        elif energy is not None and energy.value.scalar not in (0, 0.0, "0"):
            why, remedy = f"an action {word} has no price here", "compare the energy of the component"
            changes = "leakage" if word == "leak" else "energy"
            reading.leave(node, word, why, remedy, table.path, owner=table.owner, changes=changes)
