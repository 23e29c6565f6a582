"""Writing the results of commands: reports, pages and folders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from errno import EISDIR, ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError, masked, writing
from polymodel.libraries import command_for, installed, require

if TYPE_CHECKING:
    from polymodel.report.report import Report
    from polymodel.view.answer import Answer
    from polymodel.view.table import Table


def tell(text: str) -> None:
    """Write to stderr with terminal control characters removed, since names come from files."""
    sys.stderr.write(masked(text))


def save_page(file: str | None, page: Callable[[], str]) -> list[str]:
    """Write the page if a file was named; returns the message about it."""
    from polymodel.spec.files import write_text

    if not file:
        return []
    with writing(file):
        write_text(Path(file), page())
    return [f"saved {file}"]


FORMATS = {"csv": "csv", "json": "json", "html": "html", "txt": "table"}  # ending of a file -> --format


def save_formats(folder: str, stem: str, written: Callable[[str], str]) -> list[str]:
    """Write an answer that is one table to a folder, in each format; returns the message about it."""
    files = [write_file(Path(folder) / f"{stem}.{end}", written(style)) for end, style in FORMATS.items()]
    return [saved_text(files)]


def check_html(file: str | None) -> None:
    """Raise SpecError for a file that cannot be written, before hours of work."""
    if not file:
        return
    with writing(file):
        place = Path(file)
        if place.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder", file)
        if not place.absolute().parent.is_dir():
            raise FileNotFoundError(ENOENT, "there is no such folder", str(place.parent))


def check_table(name: str | None, known: tuple[str, ...]) -> None:
    """Raise SpecError for the name of a table that does not exist, before anything is counted."""
    if name is not None and name not in known:
        message = f"--table {name}: there is no such table"
        raise SpecError([Diagnostic(message, f"tables: {', '.join(known)}", code="unknown-name")])


def saved_text(files: Sequence[Path]) -> str:
    """Return the message that lists saved files: pages and pictures by name, tables by their number."""
    kinds = (".csv", ".parquet", ".json", ".txt")
    seen = ", ".join(str(f) for f in files if f.suffix not in kinds)
    tables = sum(f.suffix == ".csv" for f in files)
    return f"saved {seen}, and {tables} table{'' if tables == 1 else 's'} beside them"


def with_saved_files(text: str, told: Sequence[str], below: bool) -> str:
    """Append the list of saved files to a text for human readers; otherwise print it to stderr."""
    if below:
        return text + "".join(f"\n{line}\n" for line in told)
    if told:
        tell("".join(f"{line}\n" for line in told))
    return text


def one_table(options: argparse.Namespace) -> bool:
    """Return whether only one table is printed, without the header of the whole report."""
    return options.table is not None or options.format == "csv"


def formatted(report: Report, options: argparse.Namespace) -> str:
    """Return a report, or one table of it, as `evaluate` prints it: options `format`, `table`, `live`,
    `command`."""
    if one_table(options):
        return _table(report.table(options.table or "summary", live=options.live), options.format)
    if options.format == "json":
        return report.to_json(live=options.live)
    if options.format == "html":
        return report.to_html(live=options.live, command=options.command)
    return report.whole_text(live=options.live)


def _table(table: Table, style: str) -> str:
    """Return only one table."""
    from polymodel.view.answer import Section, formatted_tables

    if style != "table":
        return formatted_tables([Section("", table)], style, table.name.replace("_", " "))
    notes = "".join(f"  note: {n}\n" for n in table.notes)
    return f"{table.text(indent='')}\n{notes}"


def write_file(path: Path, text: str) -> Path:
    """Write a text file, creating its folder if needed; returns its path."""
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


def check_search(options: argparse.Namespace) -> None:
    """The same for a search, whose `--store` needs a library too; notes on what its page and its folder will
    lack are printed before it begins."""
    check_targets(options)
    if options.store:
        require("pyarrow")
    if options.html:
        warn_without_plots()
    if options.out and not installed("pyarrow"):
        tell(f"note: tables are saved without parquet: {command_for('pyarrow')} brings it\n")


def write_page(found: Answer, options: argparse.Namespace) -> None:
    """Write the page requested with `--html`, and report its path."""
    if options.html:
        found.to_html(options.html, command=options.command)
        tell(f"saved {options.html}\n")


def warn_without_plots() -> None:
    """Report that a page to be written will have no plots, before the work for it begins."""
    from polymodel.view.answer import missing_plots

    if told := missing_plots():
        tell(f"note: {told}\n")


def saved_files(files: Sequence[Path], style: str) -> str:
    """Report where files were saved: after a text for human readers, or on stderr where stdout carries
    data.
    """
    if not files:
        return ""
    told = f"saved {', '.join(map(str, files))}\n"
    if style == "table":
        return f"\n{told}"
    tell(told)
    return ""
