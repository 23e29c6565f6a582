"""Files and keys of other tools, given by mistake: what they are, and how to get a spec from them."""

from __future__ import annotations

from polymodel.errors import Diagnostic
from polymodel.spec.source import Entry, Node

# Sections that only Timeloop and Accelergy have.
_TIMELOOP = (
    "architecture_constraints", "architecture_components", "mapspace_constraints", "mapspace", "mapper",
    "sparse_optimizations", "ERT", "ART", "compound_components",
)  # fmt: skip
_MIGRATE = "see docs/migrate/accelforge.md"
# Tags of AccelForge's YAML -> what to write instead.
TAGS = {
    "Fanout": "write !Container with `spatial:`",
    "Array": "write !Container with `spatial:`",
    "Network": "write `link:` of the fanout dimension, or !Toll",
    "Hierarchical": "list its nodes one below the other; a group is a !Container",
    "Fork": "a machine is one list of nodes: leave the branches out, or model them as two machines",
    "Reservation": "leave it out: what a tile reserves follows from its !Storage",
    "ProcessingStage": "write !Toll",
}
# Keys of AccelForge's and Timeloop's components and nodes -> the tool, and what to write instead.
_AF, _TL = "AccelForge", "Timeloop"
KEYS: dict[str, tuple[str, str]] = {
    "total_latency": (_AF, "give each action its `throughput:` in bits per second"),
    "latency": (_AF, "write `throughput:`, 1 / latency, in bits (compute: operations) per second"),
    "component_class": (_AF, "write `energy_model: {name: hwcomponents, component: CLASS}`"),
    "attributes": (_AF, "write `energy_model: {name: hwcomponents, options: {...}}`"),
    "extra_attributes_for_component_model": (
        _AF,
        "write `energy_model: {name: hwcomponents, options: {...}}`",
    ),
    "constraints": (_AF, "write `tensors: {keep: ..., may_keep: ...}` here, what else in `explore:`"),
    "arguments": (_AF, "write `bits_per_action:` and `energy:` of the action"),
    "energy_scale": (_AF, "multiply `energy:` of the actions"),
    "leak_power_scale": (_AF, "multiply `leak_power:`"),
    "area_scale": (_AF, "multiply `area:`"),
    "min_usage": (_AF, "write `min_utilisation:` in `explore:`"),
    "no_refetch_from_above": (_AF, "leave it out: the mapping says where tiles are kept"),
    "force_memory_hierarchy_order": (_AF, "write `force_memory_order:` in `explore:`"),
    "loop_bounds": (
        _AF,
        "leave it out: the mapping has the loops; `explore:` has `min_utilisation:`",
    ),
    "loop_bound": (_AF, "write `tile_shape:`, the size of the tile below the loop"),
    "enabled": (_AF, "leave it out; `compute:` in `explore:` says which unit runs an Einsum"),
    "variables": (_AF, "write `symbols:` beside this section"),
    "extra_attributes_for_all_component_models": (
        _AF,
        "write `energy_model: {name: hwcomponents, options: {...}}` of each component",
    ),
    "class": (_TL, "write a tag: !Memory, !Toll, !Container or !Compute"),
    "word-bits": (_TL, "write `bits_per_value:` in the workload"),
    "read_bandwidth": (_TL, "write `throughput:` of the action `read`, in bits per second"),
    "write_bandwidth": (_TL, "write `throughput:` of the action `write`, in bits per second"),
    "factors": (_TL, "write one !Temporal for each loop, with the size of the tile below it"),
    "permutation": (_TL, "write one !Temporal for each loop, outermost first"),
    "target": (_TL, "write `component:`"),
}


def foreign(root: Node) -> Diagnostic | None:
    """What a document of another tool is told by, with the way to read it; None for one of ours."""
    if of_zigzag(root):
        remedy = "write its parts as docs/migrate/zigzag.md shows; there is no importer"
        return Diagnostic("this looks like a ZigZag file", remedy, "", root.place())
    for entry in root.entries or ():
        what = _what(entry, root)
        if what:
            place = entry.source.place(entry.line, entry.column)
            name = entry.source.file or "FILE"
            remedy = f"polymodel import timeloop {name} --out spec.yaml (see docs/migrate/timeloop.md)"
            return Diagnostic(f"this looks like a {what} file", remedy, entry.key, place)
    return None


def of_zigzag(root: Node) -> bool:
    """True for a workload, accelerator or mapping of ZigZag's, which no importer reads."""
    if {"memories", "operational_array"} <= {e.key for e in root.entries or ()}:
        return True
    keys = [{e.key for e in item.entries or ()} for item in root.elements or ()]
    return any({"operator_type", "equation"} <= k or {"name", "spatial_mapping"} <= k for k in keys)


def _what(entry: Entry, root: Node) -> str:
    value, keys = entry.value, {e.key for e in entry.value.entries or ()}
    if entry.key in _TIMELOOP:
        return "Timeloop or Accelergy"
    if entry.key == "problem" and (value.elements or keys & {"shape", "instance", "version"}):
        return "Timeloop"
    levels = {"version", "subtree", "nodes", "local", "arithmetic", "storage"}
    if entry.key == "architecture" and root.entry("einsum") is None and keys & levels:
        return "Timeloop"
    if entry.key == "mapping":
        items = [{e.key for e in item.entries or ()} for item in value.elements or ()]
        if any({"target", "type"} <= k for k in items):
            return "Timeloop"
        kind = value.entry("type")
        if kind is not None and isinstance(kind.value.scalar, str) and kind.value.scalar.startswith("fused"):
            return "Timeloop"
    return ""


def key_of_another_tool(key: str) -> tuple[str, str] | None:
    """For an unknown key: the tool that has it, and what to write instead."""
    found = KEYS.get(key)
    if found is None:
        return None
    page = "docs/migrate/timeloop.md" if found[0] == _TL else "docs/migrate/accelforge.md"
    return found[0], f"{found[1]} (see {page})"


def tag_of_another_tool(tag: str) -> str:
    """What to write in the place of a tag of AccelForge's, empty for others."""
    return f"AccelForge's tag; {TAGS[tag]} ({_MIGRATE})" if tag in TAGS else ""
