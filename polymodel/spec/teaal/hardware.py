"""The `architecture` section: named trees of levels with the components in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from polymodel.spec.base import shown
from polymodel.spec.faults import Path, TextFault, close_to, suggestion
from polymodel.spec.numbers import evaluate_number, symbols_in
from polymodel.spec.teaal.records import Attribute, Class, HardwareComponent, HardwareLevel, NamedArchitecture
from polymodel.spec.teaal.text import parse_level
from polymodel.spec.teaal.walk import NAME, TreeWalk

LEVEL = ("name", "num", "attributes", "local", "subtree")
_EXAMPLE = "[{name: System, local: [{name: Memory, class: DRAM}]}]"
# Lower-cased class -> the record's, and the type it stands for.
CLASSES: dict[str, tuple[Class, str]] = {
    "dram": ("DRAM", ""),
    "buffet": ("Buffet", ""),
    "sram": ("Buffet", ""),
    "cache": ("Cache", ""),
    "compute": ("Compute", ""),
    "intersector": ("Intersector", ""),
    "twofinger": ("Intersector", "two-finger"),
    "leaderfollower": ("Intersector", "leader-follower"),
    "skipahead": ("Intersector", "skip-ahead"),
    "merger": ("Merger", ""),
    "sequencer": ("Sequencer", ""),
}
SHOWN = ("DRAM", "Buffet", "Cache", "Compute", "Intersector", "Merger", "Sequencer")
# Joules per bit of a memory, per operation of a unit. TeAAL's own files give none.
MEMORY_ENERGIES = ("read_energy", "write_energy")
ENERGIES = (*MEMORY_ENERGIES, "energy")
# Numeric attributes of each class; those of a level have the empty name.
NUMBERS: dict[str, tuple[str, ...]] = {
    "DRAM": ("bandwidth", "datawidth", "clock_frequency", *MEMORY_ENERGIES),
    "Buffet": ("bandwidth", "width", "depth", "clock_frequency", *MEMORY_ENERGIES),
    "Cache": ("bandwidth", "width", "depth", "clock_frequency", *MEMORY_ENERGIES),
    "Compute": ("clock_frequency", "energy"),
    "Intersector": ("clock_frequency", "energy"),
    "Merger": ("inputs", "comparator_radix", "outputs", "radix", "next_latency", "clock_frequency", "energy"),
    "Sequencer": ("num_ranks", "clock_frequency", "energy"),
    "": ("clock_frequency",),
}
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "Compute": {"type": ("mul", "add"), "op": ("mul", "add")},
    "Intersector": {"type": ("two-finger", "leader-follower", "skip-ahead")},
    "Merger": {"order": ("fifo", "opt")},
}


@dataclass(frozen=True)
class _LevelTree:
    """`names`: components seen so far."""

    walk: TreeWalk
    names: set[str] = field(default_factory=set)


def read_architecture(data: object, walk: TreeWalk) -> tuple[NamedArchitecture, ...]:
    """Read and check the section; all faults are collected."""
    path: Path = ("architecture",)
    result = []
    for name, tree in walk.mapping(data, path, f"architecture: {{Accelerator: {_EXAMPLE}}}").items():
        at = (*path, name)
        roots = walk.items([tree] if isinstance(tree, dict) else tree, at, _EXAMPLE)
        if len(roots) != 1:
            message = f"an architecture has one root level, not {len(roots)}"
            walk.add(at, message, "put them under a common level", code="wrong-count")
        several = not isinstance(tree, dict)
        for i, root in enumerate(roots[:1]):
            level = _level(root, (*at, i) if several else at, (), 1, _LevelTree(walk))
            result.append(NamedArchitecture(name, level))
    return tuple(result)


def _level(data: object, path: Path, above: tuple[str, ...], copies: int, tree: _LevelTree) -> HardwareLevel:
    walk = tree.walk
    given = walk.mapping(data, path, _EXAMPLE)
    walk.keys(given, path, LEVEL)
    name, count = "", 1
    if "name" not in given:
        walk.add(path, "the level has no name", "add `name:`", code="missing-key")
    else:
        name, count = walk.parsed(given["name"], (*path, "name"), parse_level, "PE[0..31]") or ("", 1)
    if "num" in given:
        size = walk.count(given["num"], (*path, "num"), 1)
        if size is not None and count not in (1, size):
            message = f"{size} instances here and {count} in the name"
            walk.add((*path, "num"), message, "keep one of them", code="inconsistent-values")
        count = size or count
    here, copies = (*above, name), copies * count
    attributes = _attributes(given.get("attributes"), (*path, "attributes"), "", walk)
    local: list[HardwareComponent] = []
    trees: list[tuple[Path, object]] = []
    for i, item in enumerate(walk.items(given.get("local"), (*path, "local"), "[{name: ..., class: ...}]")):
        component = _component(item, (*path, "local", i), here, copies, tree)
        local += [] if component is None else [component]
        if isinstance(item, dict):  # in older files levels may stand below a component
            trees.append(((*path, "local", i, "subtree"), item.get("subtree")))
    trees.append(((*path, "subtree"), given.get("subtree")))
    below = [
        _level(level, (*at, i), here, copies, tree)
        for at, levels in trees
        for i, level in enumerate(walk.items(levels, at, "[{name: PE[0..31]}]"))
    ]
    return HardwareLevel(name, count, attributes, tuple(local), tuple(below))


def _component(
    data: object, path: Path, levels: tuple[str, ...], instances: int, tree: _LevelTree
) -> HardwareComponent | None:
    walk = tree.walk
    given = walk.mapping(data, path, "{name: Memory, class: DRAM, attributes: {bandwidth: 1e12}}")
    walk.keys({k: v for k, v in given.items() if k != "subtree"}, path, ("name", "class", "attributes"))
    lacking = [key for key in ("name", "class") if key not in given]
    for key in lacking:
        walk.add(path, f"the component has no {key}", f"add `{key}:`", code="missing-key")
    name, word = given.get("name"), given.get("class")
    if lacking:
        return None
    if not isinstance(name, str) or not NAME.match(name):
        message = f"{shown(name)} is not a name"
        walk.add((*path, "name"), message, "names are letters, digits and _", code="missing-value")
        return None
    if name in tree.names:
        what = f"component {name} stands twice in this architecture"
        walk.add((*path, "name"), what, "rename one", code="duplicate-name")
    tree.names.add(name)
    kind, implied = CLASSES.get(str(word).lower(), (None, ""))
    if kind is None:
        near = close_to(str(word), SHOWN)
        remedy = f"did you mean {near}?" if near else f"classes: {', '.join(SHOWN)}"
        walk.add((*path, "class"), f"unknown class {shown(word)}", remedy, code="unknown-choice")
        return None
    attributes = _attributes(given.get("attributes"), (*path, "attributes"), kind, walk)
    if kind == "Compute" and "op" in attributes:  # the type in older files
        attributes = {"type": attributes["op"], **{k: v for k, v in attributes.items() if k != "op"}}
    if implied:
        attributes = {"type": implied, **attributes}
    options = WORDS.get(kind, {}).get("type")
    # A compute unit without a type executes every operation bound to it.
    if options and "type" not in attributes and kind != "Compute":
        walk.add(
            path,
            f"{kind} {name} has no type",
            f"add `attributes: {{type: {options[0]}}}`: {', '.join(options)}",
            code="missing-key",
        )
    return HardwareComponent(name, kind, instances, levels, attributes)


def _attributes(data: object, path: Path, kind: str, walk: TreeWalk) -> dict[str, Attribute]:
    """Known attributes are checked; others are kept, unless they look like misspellings."""
    numbers, words = NUMBERS[kind], WORDS.get(kind, {})
    result: dict[str, Attribute] = {}
    for key, value in walk.mapping(data, path, "{bandwidth: 1e12}").items():
        at = (*path, key)
        if key in numbers:
            number = _number(value, at, walk)
            if number is not None:
                result[key] = number
        elif key in words:
            if value not in words[key]:
                near = suggestion(str(value), words[key], "write one of")
                walk.add(at, f"{shown(value)} is not a valid {key} of {kind}", near, code="unknown-choice")
            result[key] = str(value)
        elif close_to(key, (*numbers, *words)):
            walk.unknown(at, "attribute", key, (*numbers, *words))
        elif isinstance(value, (int, float, str)):
            result[key] = value
        else:
            message = f"{shown(value)} is not a value of an attribute"
            walk.add(at, message, "write a number or a word", code="wrong-type")
    return result


def _number(value: object, path: Path, walk: TreeWalk) -> int | float | str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        walk.add(path, f"{shown(value)} is not a number", "write a number", code="not-a-number")
        return None
    try:
        if symbols_in(value):
            return value
        number = evaluate_number(value)
    except TextFault as fault:
        walk.faults.text(path, fault)
        return None
    if path[-1] in ENERGIES:
        if not 0 <= number < math.inf:
            message = f"{path[-1]} is {value}"
            walk.add(path, message, "write joules: a finite number, 0 or more", code="out-of-range")
            return None
    elif not number > 0:
        walk.add(path, f"{path[-1]} is {value}", "write a number above 0, or inf", code="out-of-range")
        return None
    return number
