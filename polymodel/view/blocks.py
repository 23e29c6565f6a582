"""What an answer shows, as plain records that the writers of text and of HTML both read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from polymodel.view.table import Table


@dataclass(frozen=True)
class Line:
    """One paragraph. An empty one is a blank line of a text, and nothing on a page.

    `kind`: a heading (`title`, `subtitle`), a `note`, `small` print on pages only, or what is `bad`.
    """

    text: str = ""
    kind: Literal["", "title", "subtitle", "note", "small", "bad"] = ""
    tag: ClassVar[str] = "line"


@dataclass(frozen=True)
class Facts:
    """Names and what they are. `bad`: the names whose values are marked as bad."""

    pairs: Sequence[tuple[str, str]]
    bad: frozenset[str] = frozenset()
    indent: str = ""
    tag: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Section:
    """A table under its title.

    `total`: columns that are added up in a text; `opened`: unfolded at first in a notebook; `about`: a line
    above it on pages; `more`: what is left out, below it. `exact(row, column)`: the title of a cell whose
    figure is text already, empty for other cells. `link(row)`: the place on the page that a row's first
    cell leads to, empty for none.
    """

    title: str
    table: Table
    total: tuple[str, ...] = ()
    opened: bool = False
    about: str = ""
    more: str = ""
    exact: Callable[[int, int], str] | None = None
    link: Callable[[int], str] | None = None
    indent: str = "  "
    tag: ClassVar[str] = "section"


@dataclass(frozen=True)
class Picture:
    """An SVG element. `plot`: as wide as the page; else as large as it is, in a frame that scrolls."""

    name: str
    svg: str
    plot: bool = False
    opened: bool = True
    tag: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Code:
    """Text as it stands. `file`: the name under which a reader may save it from a page."""

    text: str
    file: str = ""
    tag: ClassVar[str] = "code"


@dataclass(frozen=True)
class Fold:
    """A part of a page that folds under its title; `anchor`: what links lead to."""

    title: str
    blocks: tuple[Block, ...]
    opened: bool = False
    anchor: str = ""
    tag: ClassVar[str] = "fold"


@dataclass(frozen=True)
class Html:
    """What the HTML writer has made already, or another writer of safe markup."""

    markup: str
    tag: ClassVar[str] = "html"


Block = Line | Facts | Section | Picture | Code | Fold | Html


@dataclass(frozen=True)
class Part:
    """A section of a page: its heading, what stands below it, and whether that is unfolded at first."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False

    @property
    def half(self) -> bool:
        """Whether it is a plot, two of which stand side by side on a wide page."""
        plots = [isinstance(b, Picture) and b.plot for b in self.blocks]
        return any(plots) and not any(isinstance(b, Section) for b in self.blocks)

    @property
    def anchor(self) -> str:
        """What links lead to: the heading in small letters."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "part"


def notes(texts: Iterable[str]) -> list[Block]:
    """A paragraph per note."""
    return [Line(text, "note") for text in texts]


def printed(blocks: Iterable[Block]) -> str:
    """The blocks as text for a terminal, which ends with a newline."""
    return "".join(f"{line}\n" for block in blocks for line in _lines(block))


def aligned(pairs: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """A line per name and value, values below each other."""
    wide = max((len(name) for name, _ in pairs), default=0)
    return [f"{indent}{name.ljust(wide)}  {value}".rstrip() for name, value in pairs]


def _lines(block: Block) -> list[str]:
    if isinstance(block, Line):
        lead = {"note": "note: ", "bad": "  ! "}.get(block.kind, "")
        return [] if block.kind == "small" else [f"{lead}{block.text}"]
    if isinstance(block, Facts):
        return aligned(block.pairs, block.indent)
    if isinstance(block, Section):
        title = [block.title] if block.title else []
        told = [*([block.more] if block.more else []), *(f"note: {n}" for n in block.table.notes)]
        body = block.table.text(total=block.total, indent=block.indent)
        return [*title, body, *(f"{block.indent}{line}" for line in told)]
    if isinstance(block, Code):
        return [block.text.removesuffix("\n")]
    if isinstance(block, Fold):
        return [block.title, *(line for one in block.blocks for line in _lines(one))]
    return []
