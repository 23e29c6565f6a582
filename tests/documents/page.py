"""The fenced blocks of a Markdown page, and where they stand in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
NOT_RUN = re.compile(r"<!--\s*not run:\s*(\S.*?)\s*-->", re.DOTALL)
FILES = re.compile(r"<!--\s*files:\s*(\S.*?)\s*-->", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the lines (from 0) between its fences."""

    language: str
    text: str
    first: int
    last: int
    indent: str
    # Why it is not run, or None.
    skipped: str | None
    # The block before this one, with nothing but blank lines between them.
    follows: int | None


def pages() -> list[Path]:
    """README.md and every page below docs/ that is written by hand."""
    found = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "_generated" not in p.parts]
    return [ROOT / "README.md", *found]


def files(text: str) -> list[Path]:
    """Files of the repository that a page asks for in a comment, `<!-- files: PATH PATH -->`."""
    html = [t.content for t in MarkdownIt("commonmark").parse(text) if t.type == "html_block"]
    return [ROOT / name for content in html for told in FILES.findall(content) for name in told.split()]


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    lines = text.splitlines()
    found: list[Block] = []
    reason: tuple[int, str] | None = None
    for token in MarkdownIt("commonmark").parse(text):
        if token.map is None:
            continue
        if token.type == "html_block" and (told := NOT_RUN.search(token.content)):
            reason = (token.map[1], told[1])
        if token.type != "fence":
            continue
        start, end = token.map
        closed = lines[end - 1].strip().startswith(token.markup) and end - 1 > start
        before = found[-1].last + 1 if found else None
        alone = before is not None and not any(line.strip() for line in lines[before:start])
        found.append(
            Block(
                language=(token.info.split() or [""])[0],
                text=token.content,
                first=start + 1,
                last=end - 1 if closed else end,
                indent=re.match(r"\s*", lines[start])[0],  # type: ignore[index]  # an empty match is a match
                skipped=reason[1] if reason and not any(map(str.strip, lines[reason[0] : start])) else None,
                follows=len(found) - 1 if alone else None,
            )
        )
        reason = None
    return found
