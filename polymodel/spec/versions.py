"""Versions of the file format, and how older files become newer ones while they are read.

A file says its version with `schema_version:`; one that does not is of version 1. Each later version has a
`Step` here: keys that have another name since then, and keys that are gone. Places stay those of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from polymodel.errors import Diagnostic
from polymodel.spec.source import Entry, Node

CURRENT = 1
FIRST = 1
Pattern = tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """What version `to` changed. Patterns are paths of keys; `*` stands for each item of a list or any key.

    `renamed`: path of a key -> its new name. `removed`: path of a key -> what to write instead.
    """

    to: int
    renamed: Mapping[Pattern, str] = field(default_factory=dict)
    removed: Mapping[Pattern, str] = field(default_factory=dict)


# Version 1 is the first; a version 2 would add Step(2, ...) here.
STEPS: tuple[Step, ...] = ()


def version_fault(entry: Entry, current: int = CURRENT) -> Diagnostic | None:
    """What is wrong with the value of `schema_version:`, None if nothing is."""
    given, place = entry.value.scalar, entry.value.place()
    what = "schema_version"
    if isinstance(given, bool) or not isinstance(given, int):
        shown = repr(given) if entry.value.kind == "scalar" else f"a {entry.value.kind}"
        remedy = f"write `schema_version: {current}`"
        return Diagnostic(
            f"schema_version {shown} is no version: versions are 1, 2, ...", remedy, what, place
        )
    if given > current:
        message = f"schema_version {given} is newer than this release, which reads up to version {current}"
        remedy = (
            f"install a newer polymodel; a file that needs nothing new may say `schema_version: {current}`"
        )
        return Diagnostic(message, remedy, what, place)
    if given < FIRST:
        message = f"schema_version {given} is not known: the first version is {FIRST}"
        return Diagnostic(message, f"write `schema_version: {current}`", what, place)
    return None


def upgraded(root: Node, steps: Iterable[Step] = STEPS) -> tuple[Node, tuple[Diagnostic, ...]]:
    """The document with the keys of today, and a fault for each key that is gone.

    A file without `schema_version` is of version 1, one of an unknown version is left as it is.
    """
    entry = root.entry("schema_version")
    version = entry.value.scalar if entry else FIRST
    if isinstance(version, bool) or not isinstance(version, int):
        return root, ()
    faults: list[Diagnostic] = []
    for step in steps:
        if step.to > version >= FIRST:
            root = _step(root, (), step, faults)
    return root, tuple(faults)


def _step(node: Node, path: Pattern, step: Step, faults: list[Diagnostic]) -> Node:
    if node.entries is not None:
        entries = []
        for entry in node.entries:
            here = (*path, entry.key)
            gone = _look(step.removed, here)
            if gone is not None:
                place = entry.source.place(entry.line, entry.column)
                message = f"`{entry.key}` is gone since version {step.to}"
                faults.append(Diagnostic(message, gone, ".".join(here), place))
                continue
            name = _look(step.renamed, here) or entry.key
            entries.append(replace(entry, key=name, value=_step(entry.value, here, step, faults)))
        return replace(node, entries=tuple(entries))
    if node.elements is not None:
        below = (_step(e, (*path, "*"), step, faults) for e in node.elements)
        return replace(node, elements=tuple(below))
    return node


def _look(table: Mapping[Pattern, str], path: Pattern) -> str | None:
    for pattern, found in table.items():
        if len(pattern) == len(path) and all(p in ("*", k) for p, k in zip(pattern, path, strict=True)):
            return found
    return None
