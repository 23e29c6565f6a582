"""The protocol of answers: every call that returns figures returns an `Answer`, and all of them look alike.

An answer declares its tables once, each by a method that makes it; text, HTML, CSV, parquet, JSON and folders
of them follow from that. A class may override more: `content` (what is printed), `parts` (further sections of
a page), `plot`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, overload

from polymodel.errors import Diagnostic, Refused, SpecError, masked
from polymodel.frozen import dataclass
from polymodel.libraries import command_for, installed
from polymodel.spec.faults import suggestion
from polymodel.spec.files import keeping
from polymodel.view.figures import pinned
from polymodel.view.files import (
    Json,
    ensure_folder,
    json_rows,
    json_table,
    json_text,
    saved_text,
    table_json,
    write_csv,
    write_parquet,
)
from polymodel.view.table import Table

if TYPE_CHECKING:
    import pandas


# The content of an answer, as plain records for the writers of text and of HTML.


@dataclass(frozen=True)
class Line:
    """One paragraph. An empty one is a blank line in text, and is omitted on a page.

    `kind`: a heading (`title`, `subtitle`), a `note`, `small` print on pages only, or a `bad` one.
    """

    text: str = ""
    kind: Literal["", "title", "subtitle", "note", "small", "bad"] = ""
    tag: ClassVar[str] = "line"


@dataclass(frozen=True)
class Facts:
    """Names and their values. `bad`: the names whose values are marked as bad."""

    pairs: Sequence[tuple[str, str]]
    bad: frozenset[str] = frozenset()
    indent: str = ""
    tag: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Section:
    """A table with its title.

    `total`: columns that are summed in text; `opened`: initially unfolded in a notebook; `about`: a line
    above it on pages; `more`: what is omitted, below it. `exact(row, column)`: the tooltip of a cell whose
    figure is already text, empty for other cells. `link(row)`: the target on the page of a row's first cell,
    empty for none. `rows`: prefix of the names that link to rows, such as `rows-0`; empty for none.
    """

    title: str
    table: Table
    total: tuple[str, ...] = ()
    opened: bool = False
    about: str = ""
    more: str = ""
    exact: Callable[[int, int], str] | None = None
    link: Callable[[int], str] | None = None
    rows: str = ""
    indent: str = "  "
    tag: ClassVar[str] = "section"


@dataclass(frozen=True)
class Picture:
    """An SVG element. `plot`: as wide as the page; otherwise in its own size, in a frame that scrolls."""

    name: str
    svg: str
    plot: bool = False
    opened: bool = True
    tag: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Code:
    """Preformatted text. `file`: the file name under which a reader may save it from a page."""

    text: str
    file: str = ""
    tag: ClassVar[str] = "code"


@dataclass(frozen=True)
class Fold:
    """A part of a page that folds under its title; `anchor`: its link target."""

    title: str
    blocks: tuple[Block, ...]
    opened: bool = False
    anchor: str = ""
    tag: ClassVar[str] = "fold"


@dataclass(frozen=True)
class Html:
    """Markup from the HTML writer, or from another writer of safe markup."""

    markup: str
    tag: ClassVar[str] = "html"


Block = Line | Facts | Section | Picture | Code | Fold | Html


@dataclass(frozen=True)
class Part:
    """A section of a page: its heading, its content, and whether it is initially unfolded."""

    title: str
    blocks: Sequence[Block]
    opened: bool = False

    @property
    def half(self) -> bool:
        """Whether it is a plot, two of which are placed side by side on a wide page."""
        plots = [isinstance(b, Picture) and b.plot for b in self.blocks]
        return any(plots) and not any(isinstance(b, Section) for b in self.blocks)

    @property
    def table(self) -> bool:
        """Whether it is one table, which may be placed beside another table or a plot."""
        kinds = [type(b) for b in self.blocks]
        return kinds.count(Section) == 1 and not {Picture, Code, Fold, Html} & set(kinds)

    @property
    def anchor(self) -> str:
        """Its link target: the heading in lower case."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "part"


def notes(texts: Iterable[str]) -> list[Block]:
    """A paragraph per note."""
    return [Line(text, "note") for text in texts]


def printed(blocks: Iterable[Block]) -> str:
    """The blocks as text for a terminal, ending with a newline."""
    return "".join(f"{line}\n" for block in blocks for line in _lines(block))


def aligned(pairs: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """A line per name and value, with aligned values."""
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
        lines = [*([block.more] if block.more else []), *(f"note: {n}" for n in block.table.notes)]
        body = block.table.text(total=block.total, indent=block.indent)
        return [*title, body, *(f"{block.indent}{line}" for line in lines)]
    if isinstance(block, Code):
        return [block.text.removesuffix("\n")]
    if isinstance(block, Fold):
        return [block.title, *(line for one in block.blocks for line in _lines(one))]
    return []


# The protocol.

A = TypeVar("A")


class Framed(Protocol):
    """A table that can be shown as a DataFrame."""

    def frame(self) -> pandas.DataFrame: ...


FORMAT = "polymodel-answer/1"


class Declared(Generic[A]):
    """A table of an answer: `answer.NAME` is a DataFrame, `answer.table("NAME")` the same as plain data.

    `make`: makes the table of one answer. `title`: shown to readers instead of the name. `name`: the name of
    the table, if the attribute has another one because the answer has records of that name. `words`: what a
    row is, from the docstring; shown above the table on pages.
    """

    def __init__(self, make: Callable[[A], Framed], title: str, name: str) -> None:
        self.make, self.given, self.name = make, title, name
        self.__doc__ = make.__doc__
        self.words = " ".join((make.__doc__ or "").split())

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    @property
    def title(self) -> str:
        """The heading of the table."""
        return self.given or self.name.replace("_", " ").capitalize()

    @overload
    def __get__(self, answer: None, owner: type) -> Self: ...

    @overload
    def __get__(self, answer: Answer, owner: type) -> pandas.DataFrame: ...

    def __get__(self, answer: Answer | None, owner: type) -> Self | pandas.DataFrame:
        return self if answer is None else answer.table(self.name).frame()


@overload
def declared(make: Callable[[A], Framed]) -> Declared[A]: ...


@overload
def declared(*, title: str = "", name: str = "") -> Callable[[Callable[[A], Framed]], Declared[A]]: ...


def declared(
    make: Callable[[A], Framed] | None = None, *, title: str = "", name: str = ""
) -> Declared[A] | Callable[[Callable[[A], Framed]], Declared[A]]:
    """Decorator that declares a table: the method becomes an attribute that is the DataFrame.

    See `Declared`.
    """
    if make is not None:
        return Declared(make, title, name)
    return lambda made: Declared(made, title, name)


def bars(answer: Answer, what: str = "", ax: Any = None) -> Any:
    """A bar chart of the first table, of one of its figures (the first, unless `what` names another)."""
    from polymodel.view.figures import bar_axes

    return bar_axes(answer.table(), what, ax)


class Answer:
    """The result of a call: figures in tables, to be printed, plotted and saved."""

    declared: ClassVar[dict[str, Declared[Any]]] = {}
    plot: Callable[..., Any] = bars
    notes: Any = ()
    sources: Any = ()  # files that it was made from

    def __init_subclass__(cls) -> None:
        own = {d.name: d for d in vars(cls).values() if isinstance(d, Declared)}
        cls.declared = {**cls.declared, **own}

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, the main one first."""
        return tuple(self.declared)

    def table(self, name: str = "", *, live: bool = True) -> Table:
        """One table as plain data, by default the first. Raises SpecError for an unknown name.

        `live=False` omits figures that would have to be computed now, such as lifetimes of elements.
        """
        found = self._known(name)
        made: dict[str, Any] = self.__dict__.setdefault("_tables", {})
        if found.name not in made:
            made[found.name] = found.make(self)
        table: Table = made[found.name]
        return table

    def plain(self, name: str = "", *, live: bool = True) -> Table:
        """The table as it is printed and written: numbers and words only."""
        return self.table(name, live=live)

    def exported(self, name: str = "", *, live: bool = True) -> Table:
        """The table as written to CSV and JSON."""
        return self.plain(name, live=live)

    def _known(self, name: str) -> Declared[Any]:
        chosen = str(name) or self.tables[0]
        if chosen not in self.declared:
            remedy = suggestion(chosen, self.tables, "tables")
            raise SpecError([Diagnostic(f"there is no table {chosen}", remedy, "table", code="unknown-name")])
        return self.declared[chosen]

    @property
    def frame(self) -> pandas.DataFrame:
        """The first table as a DataFrame; units are in `attrs["units"]`."""
        return self.table().frame()

    @property
    def summary(self) -> pandas.DataFrame:
        """The main table, as a DataFrame."""
        return self.frame

    @property
    def title(self) -> str:
        """The heading of its page."""
        return repr(self).splitlines()[0]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the figures, as text."""
        return tuple(self.notes)

    def content(self, live: bool = True) -> list[Block]:
        """The printed content, also shown in a notebook: the main figures, then the tables that have rows."""
        shown = [(d, self.plain(n, live=live)) for n, d in self.declared.items()]
        sections = [Section(d.title, t.bare(), opened=not i) for i, (d, t) in enumerate(shown) if t.rows]
        spaced = [b for s in sections for b in (Line(), s)]
        return [Line(self.title), *spaced, *notes(self.remarks)]

    def head(self, live: bool = True) -> list[Block]:
        """The content at the top of its page, below the title."""
        result = self.content(live)
        return result[1:] if result[:1] == [Line(self.title)] else result

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """The sections of its page: every table in full, and the inputs."""

        result = []
        for name, table in self.listed(live):
            one, known = self.declared[name], set(self.remarks)
            own = [n for n in table.notes if n not in known]  # what is at the top is not repeated
            blocks = [Section("", table.bare(), about=one.words), *notes(own)]
            result.append(Part(f"Table: {one.title}", blocks))
        return [*result, made_part(command)]

    def listed(self, live: bool = True) -> Iterator[tuple[str, Table]]:
        """The tables that can be listed, by name; one that is too large is omitted."""
        for name in self.tables:
            try:
                yield name, self.plain(name, live=live)
            except Refused:
                continue

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written, protects the files that the answer was made from against overwriting."""
        return keeping(self.sources)

    @overload
    def to_csv(self, place: None = None, *, live: bool = True) -> str: ...

    @overload
    def to_csv(self, place: str | PathLike[str], *, live: bool = True) -> tuple[Path, ...]: ...

    def to_csv(
        self, place: str | PathLike[str] | None = None, *, live: bool = True
    ) -> str | tuple[Path, ...]:
        """The first table as CSV text; or, if a place is given, the paths of the files written.

        A name that ends in `.csv` receives the first table; any other is a folder that receives every table.
        """
        if place is None:
            return self.exported(live=live).to_csv()
        return self._files(
            place, ".csv", live, lambda name, path: write_csv(self.exported(name, live=live), path)
        )

    def to_parquet(self, place: str | PathLike[str], *, live: bool = True) -> tuple[Path, ...]:
        """Write parquet files, as `to_csv` does; units are in the schema's pandas attributes."""

        def write(name: str, path: Path) -> None:
            write_parquet(self.plain(name, live=live).frame(), path)

        return self._files(place, ".parquet", live, write)

    def _files(
        self, place: str | PathLike[str], ending: str, live: bool, write: Callable[[str, Path], None]
    ) -> tuple[Path, ...]:
        with self.keeping():
            if str(place).lower().endswith(ending):
                write(self.tables[0], Path(place))
                return (Path(place),)
            folder, result = ensure_folder(place), []
            for name, _ in self.listed(live):
                result.append(folder / f"{name}{ending}")
                write(name, result[-1])
        return tuple(result)

    def as_data(self, *, live: bool = True) -> dict[str, Json]:
        """The answer as plain data: `format`, `kind`, `notes`, and `tables` by name with units and rows."""
        head: dict[str, Json] = {"format": FORMAT, "kind": type(self).__name__, "notes": list(self.remarks)}
        return {**head, "tables": self.tables_data(live)}

    def tables_data(self, live: bool = True) -> dict[str, Json]:
        """Its tables by name; for one that is too large, the reason."""
        tables: dict[str, Json] = {}
        for name in self.tables:
            try:
                tables[name] = json_table(self.exported(name, live=live))
            except Refused as refusal:
                tables[name] = {"refused": refusal.message, "remedy": refusal.remedy}
        return tables

    def to_json(self, file: str | PathLike[str] | None = None, *, live: bool = True) -> str:
        """`as_data` as JSON text, also written to `file` if given."""
        with self.keeping():
            return saved_text(json_text(self.as_data(live=live)), file)

    def to_html(
        self,
        file: str | PathLike[str] | None = None,
        *,
        live: bool = True,
        plots: bool = True,
        command: str = "",
    ) -> str:
        """The answer as one self-contained HTML page, also written to `file` if given.

        `plots=False` omits what needs matplotlib, as does an installation without it, which the page states;
        `command`: the command line, to be shown.
        """
        from polymodel.view.html import page

        with self.keeping():
            left_out = missing_plots() if plots else ""
            head, drawn = self.head(live), plots and not left_out
            if left_out:
                head = [*head, Line(left_out)]
            return saved_text(page(self.title, head, self.parts(live, drawn, command)), file)

    def save(
        self, folder: str | PathLike[str], *, live: bool = False, parquet: bool = False, command: str = ""
    ) -> tuple[Path, ...]:
        """Write everything to one folder: the tables as CSV (and parquet), the data, the page and the
        text."""
        name = type(self).__name__.lower()
        with self.keeping():
            target = ensure_folder(folder)
            result = [*self.to_csv(target, live=live)]
            result += self.to_parquet(target, live=live) if parquet else ()
            files = [target / f"{name}{ending}" for ending in (".json", ".html", ".txt")]
            self.to_json(files[0], live=live)
            self.to_html(files[1], live=live, command=command)
            saved_text(masked(self.whole_text(live=live)), files[2])
        return (*result, *files)

    def whole_text(self, *, live: bool = True) -> str:
        """The whole answer as text, as a command prints it."""
        return printed(self.content(live))

    def __str__(self) -> str:
        return printed(self.content())

    def _repr_html_(self) -> str:
        from polymodel.view.html import fragment

        return fragment(self.content())


def missing_plots() -> str:
    """Why pages have no plots, and the remedy; "" if they can be drawn."""
    return "" if installed("matplotlib") else f"plots are left out: {command_for('matplotlib')} brings them"


# Several tables as one text, one JSON object or one page, as commands print them.


def sections_of(answer: Answer, name: str | None = None) -> list[Section]:
    """The tables of an answer with their titles, or the named one."""
    names = answer.tables if name is None else (name,)
    return [Section(answer.declared[n].title, answer.plain(n), opened=True) for n in names]


def formatted_tables(
    sections: Sequence[Section], style: str, heading: str, more: Sequence[Block] = ()
) -> str:
    """The tables as `csv`, `json`, `html` (a page) or `table` (text).

    A page has the `heading` and, below the tables that have rows, `more`; text and data have tables only.
    """
    tables = [s.table for s in sections]
    if style == "csv":
        return "\n".join(t.to_csv() for t in tables)
    if style == "json":
        if len(tables) == 1:
            return table_json(tables[0])
        return json_text({t.name: json_rows(t) for t in tables})
    if style == "html":
        from polymodel.view.html import page

        shown = [Section(s.title, s.table.bare()) for s in sections if s.table.rows]
        return page(heading, [*shown, *more])
    return "\n\n".join(t.text(indent="") for t in tables) + "\n"


# The time, command and versions of a result, so that it can be reproduced.

Pairs = Sequence[tuple[str, str]]
PACKAGES = ("islpy-barvinok", "numpy", "scipy", "sympy", "pandas", "matplotlib")
TITLE = "How it was made"


def now() -> str:
    """The time in UTC, or `SOURCE_DATE_EPOCH` if set, so that a page is reproducible."""
    when = pinned() or datetime.now(UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def versions() -> list[tuple[str, str]]:
    """The versions of polymodel, Python and the packages that compute numbers and draw plots."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from polymodel import __version__

    result = [("polymodel", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            result.append((name, version(name)))
        except PackageNotFoundError:  # pandas and others are not needed for a page
            continue
    return [*result, ("system", f"{platform.system()}-{platform.release()}")]


def made(command: str, asked: Pairs = ()) -> list[Block]:
    """Return date, command and versions; `asked`: further facts, by name."""
    pairs = [("date", now()), *([("command", command)] if command else []), *asked]
    return [Facts(pairs), Line("Versions", "subtitle"), Facts(versions())]


def made_part(command: str, asked: Pairs = ()) -> Part:
    """The section of a page with date, command and versions."""
    return Part(TITLE, made(command, asked))
