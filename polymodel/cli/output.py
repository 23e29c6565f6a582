"""What commands print and write: reports, pages, folders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from errno import EISDIR, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError, masked, writing

if TYPE_CHECKING:
    from polymodel.report.report import Report
    from polymodel.view.answer import Answer
    from polymodel.view.table import Table


def tell(text: str) -> None:
    """Write to stderr, without what would steer a terminal: names come from files."""
    sys.stderr.write(masked(text))


def save_page(file: str | None, page: Callable[[], str]) -> list[str]:
    """Write the page, if a file was named; what to say of it."""
    from polymodel.spec.files import write_text

    if not file:
        return []
    with writing(file):
        write_text(Path(file), page())
    return [f"saved {file}"]


def check_html(file: str | None) -> None:
    """SpecError for a file that cannot be written, before hours of work."""
    if not file:
        return
    with writing(file):
        place = Path(file)
        if place.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder", file)
        if not place.absolute().parent.is_dir():
            raise FileNotFoundError(ENOENT, "there is no such folder", str(place.parent))


def check_table(name: str | None, known: tuple[str, ...]) -> None:
    """SpecError for a table that there is not, before anything is counted."""
    if name is not None and name not in known:
        message = f"--table {name}: there is no such table"
        raise SpecError([Diagnostic(message, f"tables: {', '.join(known)}", code="unknown-name")])


def saved_text(files: Sequence[Path]) -> str:
    """Where everything went: the pages and pictures by name, the tables by number."""
    kinds = (".csv", ".parquet", ".json", ".txt")
    seen = ", ".join(str(f) for f in files if f.suffix not in kinds)
    tables = sum(f.suffix == ".csv" for f in files)
    return f"saved {seen}, and {tables} table{'' if tables == 1 else 's'} beside them"


def with_saved_files(text: str, told: Sequence[str], below: bool) -> str:
    """What was saved, below a text for people; beside any other text, on stderr."""
    if below:
        return text + "".join(f"\n{line}\n" for line in told)
    if told:
        tell("".join(f"{line}\n" for line in told))
    return text


def one_table(options: argparse.Namespace) -> bool:
    """Whether a table is printed alone, without what the whole report says at its top."""
    return options.table is not None or options.format == "csv"


def formatted(report: Report, options: argparse.Namespace) -> str:
    """A report, or one table of it, as `evaluate` prints it: options `format`, `table`, `live`, `command`."""
    if one_table(options):
        return _table(report.table(options.table or "summary", live=options.live), options.format)
    if options.format == "json":
        return report.to_json(live=options.live)
    if options.format == "html":
        return report.to_html(live=options.live, command=options.command)
    return report.whole_text(live=options.live)


def _table(table: Table, style: str) -> str:
    """One table alone."""
    from polymodel.view.answer import Section, formatted_tables

    if style != "table":
        return formatted_tables([Section("", table)], style, table.name.replace("_", " "))
    notes = "".join(f"  note: {n}\n" for n in table.notes)
    return f"{table.text(indent='')}\n{notes}"


def write_file(path: Path, text: str) -> Path:
    """Write a text file, and the folder that it is in; returns its path."""
    from polymodel.spec.files import write_text

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return path


def check_targets(options: argparse.Namespace) -> None:
    """Refuse a folder (`--out`) or a page (`--html`) that cannot be written, before minutes of work."""
    if options.out:
        with writing(options.out):
            Path(options.out).mkdir(parents=True, exist_ok=True)
    check_html(options.html)


def write_page(found: Answer, options: argparse.Namespace) -> None:
    """Write the page that `--html` asks for, and say so."""
    if options.html:
        found.to_html(options.html, command=options.command)
        tell(f"saved {options.html}\n")
        tell_plots_left_out()


def tell_plots_left_out() -> None:
    """Say what a page says that was just made without plots: nobody may look at its head."""
    from polymodel.view.answer import plots_left_out

    if told := plots_left_out():
        tell(f"note: {told}\n")


def saved_files(files: Sequence[Path], style: str) -> str:
    """Where files are: behind a text for people, or, where stdout is data, on stderr."""
    if not files:
        return ""
    told = f"saved {', '.join(map(str, files))}\n"
    if style == "table":
        return f"\n{told}"
    tell(told)
    return ""
