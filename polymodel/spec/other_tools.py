"""Recognises TeAAL specs, and files and keys of other tools that are given by mistake."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.errors import Diagnostic
from polymodel.spec.faults import YamlEntry, YamlNode

# Recognition of TeAAL specs. Their reader is imported only for such a spec.

OLD = "expression"  # `expressions` in older specs
_OF_MAPPING = ("rank-order", "partitioning", "loop-order", "spacetime")
SECTIONS = ("einsum", "mapping", "format", "architecture", "bindings", "binding")


def is_teaal(root: YamlNode) -> bool:
    """True if a document is a TeAAL spec: `einsum:` with a `declaration:` or `expressions:`."""
    entry = root.entry("einsum")
    return entry is not None and any(entry.value.entry(k) for k in ("declaration", "expressions", OLD))


def teaal_sections(root: YamlNode) -> set[str]:
    """The sections of a document that belong to a TeAAL spec, whose Einsums may stand in another file."""
    names = {e.key for e in root.entries or ()} & {*SECTIONS}
    if is_teaal(root) or not names:
        return names
    mapping, architecture = root.entry("mapping"), root.entry("architecture")
    if mapping is not None and not any(mapping.value.entry(k) for k in _OF_MAPPING):
        names -= {"mapping"}
    if architecture is not None:
        lists = any(e.value.elements is not None for e in architecture.value.entries or ())
        if not lists or _of_timeloop(architecture, root):
            names -= {"architecture"}
    return names - {"einsum"}


# Files and keys of other tools, given by mistake: their tool, and how to convert them.

# Sections that only Timeloop and Accelergy have.
_TIMELOOP = (
    "architecture_constraints", "architecture_components", "mapspace_constraints", "mapspace", "ERT", "ART",
    "compound_components",
)  # fmt: skip
# Sections that two tools call the same -> keys inside that only the one has, and only the other.
_TIMELOOPS_MAPPER = {
    "algorithm", "optimization_metric", "optimization_metrics", "live_status", "num_threads", "timeout",
    "victory_condition", "search_size", "sync_interval", "log_stats", "log_suboptimal", "diagnostics",
    "max_permutations_per_if_visit", "filter_revert", "template", "out_prefix",
}  # fmt: skip
_ACCELFORGES = {
    "mapper": {
        "metrics", "info_metrics", "force_memory_hierarchy_order", "max_fused_loops", "max_loops",
        "max_fused_loops_per_rank_variable", "max_loops_minus_ranks", "memory_limit", "time_limit", "ffm",
        "memory_limit_per_process", "time_limit_per_pmapping_template", "max_pmapping_templates_per_einsum",
        "prioritize_reuse_of_unfused_tensors",
    },
    "config": {"component_models", "use_installed_component_models", "expression_custom_functions"},
    "model": {"metrics"},
}  # fmt: skip
# Sections that only AccelForge has -> what to write instead.
_SECTIONS = {
    "mapper": "leave it out; what its search looks for and at is said in `explore:`",
    "config": "leave it out; energy models are named at the components: `energy_model: {name: hwcomponents}`",
    "model": "leave it out; a report has energy, latency and all counts",
    "sparse_optimizations": "write `densities:` of the workload and `sparse:` of the components",
    "variables": "write them under `symbols:`",
}
_SHARED = ("mapper", "sparse_optimizations", "variables")
_OURS = ("arch", "workload", "renames")
_MIGRATE = "see docs/migrate/accelforge.md"
# Tags of AccelForge's YAML -> what to write instead.
TAGS = {
    "Fanout": "write !Container with `spatial:`",
    "Array": "write !Container with `spatial:`",
    "Network": "write `link:` of the fanout dimension, or !Toll",
    "Hierarchical": "list its nodes one below the other; a group is a !Container",
    "Fork": "write the nodes of the fork in the list itself, each with `branch: NAME`",
    "Reservation": "leave it out: what a tile reserves follows from its !Storage",
    "ProcessingStage": "write !Toll",
}
# Keys of AccelForge's and Timeloop's components and nodes -> the tool, and what to write instead.
_AF, _TL = "AccelForge", "Timeloop"
KEYS: dict[str, tuple[str, str]] = {
    "version": (_AF, "leave it out, or write `schema_version: 1` at the top of the file"),
    "component_model": (_AF, "write `energy_model: {name: hwcomponents, component: CLASS}`"),
    "latency_scale": (_AF, "divide `throughput:` of the actions"),
    "n_parallel_instances": (_AF, "write a !Container with `spatial:` above it"),
    "bits_per_value_scale": (_AF, "write `bits_per_value:` in the workload"),
    "total_latency": (_AF, "give each action its `throughput:` in bits per second"),
    "latency": (
        _AF,
        "leave it out if it is 0; else write `throughput:`, bits (compute: operations) per action / latency",
    ),
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


# AccelForge's keys that occur in no other kind of file.
_PLAINLY = {
    "component_class", "total_latency", "extra_attributes_for_component_model", "no_refetch_from_above",
    "extra_attributes_for_all_component_models", "force_memory_hierarchy_order", "leak_power_scale",
}  # fmt: skip
# The same below one key alone: elsewhere they are words of ours, or slips.
_BELOW: dict[str, dict[str, str]] = {
    "tensors": {
        "tile_shape": "leave it out: the mapping's loops say the sizes; `where:` of a sweep limits them",
        "back": "write `keep:`: the outermost memory that keeps a tensor backs it",
        "bypass": "leave it out: what is neither in `keep:` nor in `may_keep:` passes by",
        "tensor_order_options": "leave it out: the mapping has the order",
    },
    "einsums": {"einsum": "write the text alone, `- Z[m] = A[m]`; with other keys write `tensor_accesses:`"},
    "spatial": {"reuse": "write `may_reuse:`; what must be shared is said by the mapping"},
}


def foreign(root: YamlNode) -> Diagnostic | None:
    """The tool that a document belongs to and how to import it; None for a document of polymodel."""
    if of_zigzag(root):
        name = root.source.file or "FILE"
        remedy = f"polymodel import zigzag {name} --out spec.yaml (see docs/migrate/zigzag.md)"
        return Diagnostic("this looks like a ZigZag file", remedy, "", root.place(), code="foreign-file")
    timeloop, accelforge, either = _marks(root)
    ours = _ours(root)
    if not timeloop and (accelforge or ours or not either):
        return None  # AccelForge's files are similar to ours; differences are reported key by key
    first = min((*timeloop, *accelforge, *either), key=lambda e: (e.line, e.column))
    name = first.source.file or "FILE"
    convert = f"polymodel import timeloop {name} --out spec.yaml (see docs/migrate/timeloop.md)"
    what, remedy = "this looks like a Timeloop or Accelergy file", convert
    if accelforge:
        what = f"this looks like a Timeloop file ({_listed(timeloop)}) and"
        what += f" like an AccelForge file ({_listed(accelforge)})"
        remedy = f"keep each tool's sections in files of their own; then for Timeloop's {convert}"
        remedy += f", for AccelForge's {_MIGRATE}"
    elif timeloop and ours:
        what = f"this looks like a Timeloop file ({_listed(timeloop)}), but Timeloop has no {_listed(ours)}"
        remedy = f"keep {_listed(ours)} in a file of its own; then {convert}"
    elif not timeloop:
        what = f"this looks like a file of Timeloop's or AccelForge's: both have {_listed(either)}"
        remedy = f"Timeloop's: {convert}; AccelForge's: {_SECTIONS[first.key]} ({_MIGRATE})"
    return Diagnostic(
        what, remedy, first.key, first.source.place(first.line, first.column), code="foreign-file"
    )


def _listed(entries: Sequence[YamlEntry]) -> str:
    return ", ".join(f"`{e.key}`" for e in entries)


def _ours(root: YamlNode) -> list[YamlEntry]:
    """Sections that AccelForge has as we do, and Timeloop has not."""
    trees = [e for e in root.entries or () if e.key == "mapping" and e.value.entry("nodes")]
    return [e for e in root.entries or () if e.key in _OURS or e in trees if not _of_timeloop(e, root)]


def none_of_timeloops(root: YamlNode) -> Diagnostic | None:
    """The message of Timeloop's importer for a file of polymodel, AccelForge or ZigZag."""
    if of_zigzag(root):
        return foreign(root)
    ours = _ours(root)
    if not ours or _marks(root)[0]:
        return None
    first, name = ours[0], root.source.file or "FILE"
    what = f"Timeloop has no {_listed(ours)}; files of ours and of AccelForge's have"
    remedy = f"such a file is read as it is: polymodel validate {name} ({_MIGRATE})"
    return Diagnostic(what, remedy, "", first.source.place(first.line, first.column), code="foreign-file")


def _marks(root: YamlNode) -> tuple[list[YamlEntry], list[YamlEntry], list[YamlEntry]]:
    """Return the keys that only Timeloop's files have, those of AccelForge's only, and those of either."""
    timeloop: list[YamlEntry] = []
    accelforge: list[YamlEntry] = []
    either: list[YamlEntry] = []
    for entry in root.entries or ():
        keys = {e.key.lower().replace("-", "_") for e in entry.value.entries or ()}
        theirs = entry.key == "mapper" and keys & _TIMELOOPS_MAPPER
        if theirs or _of_timeloop(entry, root):
            timeloop.append(entry)
        if _of_accelforge(entry, root):
            accelforge.append(entry)
        elif entry.key in _SHARED and not theirs:
            either.append(entry)
    return timeloop, accelforge, either


def _of_accelforge(entry: YamlEntry, root: YamlNode) -> bool:
    keys = {e.key for e in entry.value.entries or ()}
    if keys & _ACCELFORGES.get(entry.key, set()):
        return True
    if entry.key == "variables":
        return bool(_ours(root)) and not any(_of_timeloop(e, root) for e in root.entries or ())
    inside = {e.key for node in entry.value.walk() for e in node.entries or ()}
    return entry.key in _OURS and bool(inside & _PLAINLY)


def section_of_accelforge(entry: YamlEntry, root: YamlNode) -> Diagnostic | None:
    """The message for a section of AccelForge next to sections of polymodel; None for any other key."""
    if not _of_accelforge(entry, root) and not (entry.key in _SHARED and _ours(root)):
        return None
    place = entry.source.place(entry.line, entry.column)
    message = f"`{entry.key}` is a section of AccelForge's, not of ours"
    return Diagnostic(message, f"{_SECTIONS[entry.key]} ({_MIGRATE})", entry.key, place, code="foreign-file")


def of_zigzag(root: YamlNode) -> bool:
    """True for a workload, accelerator or mapping of ZigZag."""
    if {"memories", "operational_array"} <= {e.key for e in root.entries or ()}:
        return True
    keys = [{e.key for e in item.entries or ()} for item in root.elements or ()]
    return any({"operator_type", "equation"} <= k or {"name", "spatial_mapping"} <= k for k in keys)


def _of_timeloop(entry: YamlEntry, root: YamlNode) -> bool:
    value, keys = entry.value, {e.key for e in entry.value.entries or ()}
    if entry.key in _TIMELOOP or (entry.key == "arch" and {"storage", "arithmetic"} <= keys):
        return True
    if entry.key == "problem" and (value.elements or keys & {"shape", "instance", "version"}):
        return True
    levels = {"version", "subtree", "nodes", "local", "arithmetic", "storage"}
    if entry.key == "architecture" and root.entry("einsum") is None and keys & levels:
        return "version" in keys or not _clocked(value)
    if entry.key == "mapping":
        nodes = value.entry("nodes")
        listed = (nodes.value if nodes else value).elements or ()
        items = [{e.key for e in item.entries or ()} for item in listed]
        if any({"target", "type"} <= k for k in items):
            return True
        kind = value.entry("type")
        return (
            kind is not None and isinstance(kind.value.scalar, str) and kind.value.scalar.startswith("fused")
        )
    return False


def _clocked(architecture: YamlNode) -> bool:
    """True for a TeAAL tree: its root level has a clock, which Timeloop declares among its variables."""
    tree = architecture.entry("subtree")
    roots = (architecture, *((tree.value.elements or ()) if tree else ()))
    given = (level.entry("attributes") for level in roots)
    return any(a is not None and a.value.entry("clock_frequency") is not None for a in given)


def key_of_another_tool(path: Sequence[str | int]) -> tuple[str, str] | None:
    """Return, for an unknown key, the last of `path`, the tool that has it and its replacement here."""
    names = [p for p in path if isinstance(p, str)]
    above = names[-2] if len(names) > 1 else ""
    below = _BELOW.get(above, {}).get(names[-1])
    result = (_AF, below) if below else KEYS.get(names[-1])
    if result is None:
        return None
    page = "docs/migrate/timeloop.md" if result[0] == _TL else "docs/migrate/accelforge.md"
    return result[0], f"{result[1]} (see {page})"


def tag_of_another_tool(tag: str) -> str:
    """Return the replacement of an AccelForge tag; empty for other tags."""
    return f"AccelForge's tag; {TAGS[tag]} ({_MIGRATE})" if tag in TAGS else ""
