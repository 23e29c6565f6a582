"""docs/validation.md from a run of the reference checker: python -m tests.documents.validation [--write]
[--cases DIR] [--data DIR].

Every case has a row, with what differs from the other tool's figures and why. A difference without a reason
here is an error, so is a reason without a difference. The repository has a few of the cases, and no matrices
of public collections: a section is made where the folders that it needs are named, and stays as it is
elsewhere.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.documents import published
from tests.documents.page import ROOT
from tests.documents.validation_words import ABOUT, FOLDERS, REASONS
from tests.reference import check
from tests.reference.common import Outcome, comparing
from tests.reference.tiling_matrices import reading

PAGE = ROOT / "docs" / "validation.md"
WITH_DATA = ("tiling",)  # folders of cases about matrices that are not part of the repository


@dataclass(frozen=True)
class Row:
    """One case, or one file of many cases."""

    name: str
    about: str
    outcomes: tuple[Outcome, ...]

    @property
    def checked(self) -> int:
        """Numbers compared."""
        return sum(o.checked for o in self.outcomes)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is known to differ."""
        return tuple(note for o in self.outcomes for note in o.notes)

    def reason(self, folder: str) -> str:
        """Why; KeyError if nobody has said."""
        for start, why in REASONS.items():
            if f"{folder}/{self.name}".startswith(start) or self.name.startswith(start):
                return why
        raise KeyError(f"{folder}/{self.name}: {self.notes[0]}")

    def text(self, folder: str) -> str:
        """The row as Markdown."""
        for outcome in self.outcomes:
            if outcome.fault or outcome.mismatches:
                raise ValueError(f"{outcome.name}: {outcome.fault or outcome.mismatches[0]}")
        told = "all equal"
        if self.notes:
            # Bits first: energies and times follow from them.
            first = sorted(self.notes, key=lambda n: "differs" not in n)[:3]
            more = f"; {len(self.notes) - len(first)} more" if len(self.notes) > len(first) else ""
            told = f"{self.reason(folder)} {'; '.join(map(worded, first))}{more}."
        return f"| {self.name} | {self.about} | {self.checked:,} | {told} |"


def worded(note: str) -> str:
    """A note of the checker, shorter and fit for a table."""
    for old, new in (
        ("the tool says", "theirs"), ("reference", "theirs"), ("tool differs: ", ""), ("tool ", ""),
        ("|", "\\|"), ("_", "\\_"), ("*", "\\*"),
    ):  # fmt: skip
        note = note.replace(old, new)
    return note


def described(path: Path) -> str:
    """What a case says of itself, in a line."""
    given = check.load(path) if path.suffix in (".yaml", ".json") and path.stat().st_size < 4_000_000 else {}
    meta = given.get("meta") if isinstance(given.get("meta"), dict) else {}
    told = given.get("description") or ABOUT.get(
        path.parent.name if path.name == "spec.yaml" else path.stem, ""
    )
    return " ".join(str(told or (meta or {}).get("description", "")).split()).replace("|", "\\|")


def folder_rows(cases: Path, folder: str) -> Iterator[Row]:
    """The rows of one folder of the cases, in order; running them takes seconds."""
    root = cases / folder
    if folder in check.DATA:
        for path in check.files(root, ".json"):
            yield Row(
                path.stem, described(path), tuple(check.check_data(path, check.kinds_of(path, root.parent)))
            )
        return
    places: Mapping[str, Path] = {
        **{
            p.stem: p
            for p in check.files(root, ".yaml", ".json")
            if p.name not in ("spec.yaml", "result.json")
        },
        **{p.parent.name: p for p in root.rglob("spec.yaml")},
    }
    for outcome in check.run(root, "exact"):
        name = outcome.name.rsplit("/", 1)[-1]
        yield Row(name, described(places[name]), (outcome,))


def section(cases: Path, folder: str) -> str:
    """One folder of the cases as Markdown."""
    rows = list(folder_rows(cases, folder))
    heading, about = FOLDERS[folder]
    count = sum(len(row.outcomes) for row in rows)
    lines = [
        f"## {heading}", "", about, "",
        f"{count} cases, {sum(row.checked for row in rows):,} numbers.", "",
        "| case | what it is | numbers | equal, or why not |", "|---|---|---|---|",
        *(row.text(folder) for row in rows), "",
    ]  # fmt: skip
    return "\n".join(lines)


HEAD = """# Validation

Whether the numbers are right: every case that is compared with another tool, an independent program or a
paper. Counts are compared with tolerance zero. `make reference CASES=DIR` runs the cases, of which the
repository has a few in `tests/reference/cases`, with `DATA=DIR` also those about matrices of public
collections. This page is made by `python -m tests.documents.validation --write` with both folders, and `make
reference` with both compares it with a run. The rules behind the reasons: [where other tools count
differently](differences.md).

"""


def split(text: str) -> dict[str, str]:
    """Heading -> section of the page, heading included."""
    parts = text.split("\n## ")
    return {part.splitlines()[0]: f"## {part}".rstrip() + "\n" for part in parts[1:]}


def makers(cases: Path | None, data: Path | None) -> dict[str, Callable[[], str] | None]:
    """Heading of a section -> what makes it; None where a folder that it needs is not named."""
    found: dict[str, Callable[[], str] | None] = {
        published.PUBLISHED: published.section,
        published.TILER_SWIFT: published.tiler_swift_section if data is not None else None,
    }
    for folder, (heading, _) in FOLDERS.items():
        there = cases is not None and (data is not None or folder not in WITH_DATA)
        found[heading] = partial(section, cases, folder) if there else None
    return found


def page(cases: Path | None, data: Path | None) -> str:
    """The whole page; sections whose folders are not named are as they were."""
    old = split(PAGE.read_text(encoding="utf-8"))
    with reading(data):
        parts = [old[title] if make is None else make() for title, make in makers(cases, data).items()]
    return HEAD + "\n".join(parts).rstrip() + "\n"


def compared(cases: Path, data: Path) -> list[Outcome]:
    """Whether the page has what a run with the data that are read now gives: an outcome per section. Only
    folders of cases that have every kind are those that the page is about."""
    found = []
    there = split(PAGE.read_text(encoding="utf-8"))
    whole = cases != check.HERE and all((cases / folder).is_dir() for folder in FOLDERS)
    for title, make in makers(cases if whole else None, data).items():
        if make is None or title == published.PUBLISHED:  # a test compares that one
            continue
        outcome = Outcome(f"docs/validation.md, {title}")
        with comparing(outcome):
            made = make()
            outcome.checked += made.count("\n| ") - 1
            if there.get(title) != made:
                outcome.mismatches.append("the section is not what a run gives: write the page anew")
        found.append(outcome)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if the page is not what a run gives."""
    parser = argparse.ArgumentParser(prog="python -m tests.documents.validation", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/validation.md")
    parser.add_argument("--cases", type=Path, help="folder of all cases")
    parser.add_argument("--data", type=Path, help="folder of the matrices that cases name")
    options = parser.parse_args(arguments)
    text = page(options.cases, options.data)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")
    return int(PAGE.read_text(encoding="utf-8") != text)


if __name__ == "__main__":
    sys.exit(main())
