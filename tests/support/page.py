"""The page of the support tables: cells as Markdown with numbered reasons, and the cells of a stored page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import polymodel as pm

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support.md"
YES = "yes"
DIFFERS = "differs"
FAILURES = (  # what a defect behind one cell may raise; the other cells are asked all the same
    AssertionError,
    pm.PolymodelError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)

Row = tuple[str, ...]


class Differs(AssertionError):
    """A door that answers with other numbers."""


def answered(ask: Callable[[], str]) -> str:
    """What a door says: yes, a way, or no with the reason of a refusal."""
    try:
        return ask()
    except pm.Refused as refusal:
        return f"no: {refusal.message}"


def rows(
    names: Iterable[str], doors: Sequence[str], answer: Callable[[str, str], str]
) -> tuple[list[Row], list[str]]:
    """One row per name: the name, then the answer of every door; and a line for each cell that fails."""
    failed: list[str] = []

    def cell(name: str, door: str) -> str:
        try:
            return answer(name, door)
        except FAILURES as error:
            failed.append(f"{name}, {door}: {type(error).__name__}: {error}")
            return DIFFERS

    return [(name, *(cell(name, door) for door in doors)) for name in names], failed


def table_text(head: str, doors: Sequence[str], found: Sequence[Row]) -> str:
    """A table in Markdown: short cells, with the reasons numbered below."""
    reasons: dict[str, int] = {}

    def cell(text: str) -> str:
        if not text.startswith("no: "):
            return text
        number = reasons.setdefault(text.removeprefix("no: "), len(reasons) + 1)
        return f"no [{number}]"

    lines = [f"| {head} | {' | '.join(doors)} |", "|---|" + "---|" * len(doors)]
    lines += [f"| {name} | {' | '.join(map(cell, cells))} |" for name, *cells in found]
    listed = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, "", "Reasons, in the words of the messages:", "", *listed]) + "\n"


def stored(page: Path, mark: str) -> tuple[str, str, str]:
    """The page before a table, the table, and what follows; `mark` names the table in the page."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(f"<!-- {mark}: python -m tests.support.table -->\n")
    table, end, after = rest.partition(f"<!-- end of {mark} -->\n")
    assert begin, f"{page} has no {mark}"
    assert end, f"{page} has no end of {mark}"
    return before + begin, table, end + after


def stored_cells(page: Path, mark: str) -> dict[str, dict[str, str]]:
    """Row -> door -> what the page says, with the reasons in their places."""
    lines = stored(page, mark)[1].splitlines()
    _, *doors = lines[0].strip("| ").split(" | ")
    reasons = dict(line.split(". ", 1) for line in lines if line[:1].isdecimal())
    found = {}
    for line in lines[2:]:
        if not line.startswith("| "):
            break
        name, *cells = line.strip("| ").split(" | ")
        whole = [re.sub(r"no \[(\d+)\]", lambda m: f"no: {reasons[m[1]]}", cell) for cell in cells]
        found[name] = dict(zip(doors, whole, strict=True))
    return found
