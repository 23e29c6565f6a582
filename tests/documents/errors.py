"""The error reference: every case of tests/bad, as it is written and as it is told.

A case that is added there, in a folder of its own or not, is on the page with the next build.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BAD = Path(__file__).resolve().parents[1] / "bad"
# The first word of a case's name -> heading, and why such faults are refused rather than guessed at.
GROUPS = {
    "yaml": (
        "YAML",
        "Faults of the text itself, before any key is looked at. YAML would drop one of two equal keys.",
    ),
    "template": (
        "Templates",
        "They are rendered in a sandbox: an undefined name is not an empty text, and nothing may reach "
        "outside or run without end.",
    ),
    "schema": ("Schema version", "It says how the file is meant; a newer one might mean other things."),
    "key": ("Keys", "A key that nothing reads is a misspelt one. All keys: [files](files.md)."),
    "type": ("Kinds of values", "Nothing is turned into what it might have meant."),
    "value": ("Values", "Some values come from a fixed list of words."),
    "node": ("Tags of nodes", "A node says by its tag, or by `type:`, what it is."),
    "expression": (
        "Expressions",
        "A few operators and functions compute numbers; no code is run.",
    ),
    "symbols": ("Symbols", "Each needs one value in the end."),
    "set": (
        "Sets of tensors",
        "Set expressions say which tensors a key is for. A name of nothing would be the empty set.",
    ),
    "shape": ("Iteration spaces", "Comparisons of affine expressions, joined by `and`."),
    "affine": (
        "Projections",
        "A rank is a sum of integer multiples of rank variables; no other is counted.",
    ),
    "einsum": ("Einsums as text", "One line of text stands for accesses that are all simple."),
    "copy": ("Copies", "A copy moves one tensor into another."),
    "rename": ("Renames", "They give tensors of all Einsums a common name, for architectures to speak of."),
    "workload": (
        "Workloads",
        "Spaces must be bounded and not empty, and a tensor has one producer, before its consumers.",
    ),
    "arch": ("Architectures", "A number that no machine can have would give figures all the same."),
    "energy": ("Energy models", "A table must have the rows that are asked of it, in the spec's folder."),
    "mapping": (
        "Mappings",
        "A LoopTree that breaks these rules cannot be executed, or not on this machine: "
        "[semantics](../semantics.md).",
    ),
}
GROUPS["projection"] = GROUPS["affine"]
FOLDERS = {
    "": ("Specs", "What `load` and every command say of a spec."),
    "commands": ("Commands", "Options that do not fit each other or the spec."),
    "tensors": ("Tensor files", "Matrix Market and FROSTT files."),
    "teaal": ("TeAAL specs", "Their sections, expressions, partitionings and bindings."),
    "importers": ("Importers", "Files of other tools."),
}
COUNT = re.compile(r"\d+ faults? in the input")
PLACE = re.compile(r"^(?P<file>[^\s:]+(?::\d+(?::\d+)?)?): (?:(?P<path>[\w.\[\]<>-]+): )?(?P<message>.*)$")
REMEDY = "  remedy: "


@dataclass(frozen=True)
class Told:
    """One fault as it is printed."""

    head: str
    source: tuple[str, ...]
    remedy: str

    @property
    def path(self) -> str:
        """Where in the spec, e.g. `arch.nodes[1].size`."""
        found = PLACE.match(self.head)
        return (found["path"] or "") if found else ""

    @property
    def message(self) -> str:
        """What is wrong, without the place."""
        found = PLACE.match(self.head)
        return found["message"] if found else self.head


def faults(text: str) -> Iterator[Told]:
    """The faults of a printed error, in order."""
    lines = [line for line in text.splitlines() if line.strip() and not COUNT.fullmatch(line)]
    starts = [i for i, line in enumerate(lines) if not line.startswith(" ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        inside = lines[start + 1 : end]
        source = tuple(line[4:] for line in inside if line.startswith("    "))
        remedy = next((line.removeprefix(REMEDY) for line in inside if line.startswith(REMEDY)), "")
        yield Told(lines[start], source, remedy)


def literal(text: str) -> str:
    """Text as code, whatever backticks it has."""
    if "`" not in text:
        return f"`{text}`"
    return f"`` {text} ``"


def case(path: Path) -> Iterator[str]:
    """A case as Markdown: its name, then for each fault what was written, what is said, and the remedy."""
    name = path.stem.replace("_", " ")
    # A heading of the fourth level would fill the table of contents.
    yield from (f"**{name}**", "")
    for told in faults(path.read_text(encoding="utf-8")):
        if told.source:
            yield from ("```text", *told.source, "```", "")
        at = f"At `{told.path}`: " if 0 < len(told.path) < 100 else ""
        yield from (f"{at}{literal(told.message)}", "")
        if told.remedy:
            yield from (f"*Remedy:* {literal(told.remedy)}", "")


def folders() -> list[tuple[str, list[Path]]]:
    """Folders of the corpus with their cases, known ones first."""
    found: dict[str, list[Path]] = {}
    for path in sorted(BAD.rglob("*.txt")):
        found.setdefault(path.parent.relative_to(BAD).as_posix().removeprefix("."), []).append(path)
    order = [*FOLDERS, *sorted(set(found) - set(FOLDERS))]
    return [(name, found[name]) for name in order if name in found]


def grouped(cases: list[Path]) -> list[tuple[str, str, list[Path]]]:
    """Heading, reason and cases, by the first word of their names, in the order of `GROUPS`."""
    kinds: dict[tuple[str, str], list[Path]] = {}
    order = list(GROUPS)
    first = {p: p.stem.split("_")[0] for p in cases}
    for path in sorted(cases, key=lambda p: (order.index(first[p]) if first[p] in GROUPS else len(order), p)):
        heading = GROUPS.get(first[path], (first[path].capitalize(), ""))
        kinds.setdefault(heading, []).append(path)
    return [(heading, why, found) for (heading, why), found in kinds.items()]


def page() -> str:
    """All cases as Markdown."""
    lines: list[str] = []
    for folder, cases in folders():
        heading, about = FOLDERS.get(folder, (folder.replace("/", ": ").capitalize(), ""))
        lines += [f"## {heading}", "", about, ""]
        for group, why, found in grouped(cases):
            lines += [f"### {group}" if not folder else f"### {heading}: {group.lower()}", "", why, ""]
            for path in found:
                lines += case(path)
    return "\n".join(lines) + "\n"
