"""What commands write besides stdout: pages, folders, and that none of it is an input."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from errno import EISDIR, ENOENT
from pathlib import Path

from polymodel.errors import writing
from polymodel.inputs import claim, claim_in

# What commands write into a folder, by option: all of it, or as much as can be told before work begins.
_WRITTEN: dict[str, dict[str, tuple[str, ...]]] = {
    "evaluate": {
        "out": ("sparse_*.csv", "tiling_*.csv", "sparse.html", "report.json", "report.html", "report.txt")
        + ("cascade.svg", "architecture.svg", "looptree.svg")
    },
    "show": {"out": ("cascade.svg", "architecture.svg", "looptree.svg")},
    "timeline": {"out": ("timeline_*",)},
    "sweep": {
        "out": ("sweep.csv", "sweep.parquet", "best.yaml"),
        "store": ("state-*.parquet", "front-*.parquet", "rows.parquet", "lock.json"),
    },
    "explore": {
        "out": ("front.*", "stages.csv", "mapping-*.yaml"),
        "store": ("found-*.parquet", "lock.json"),
    },
    "tile": {"out": ("*.csv", "*.svg", "tiling.json"), "export": ("index.json", "tile_*")},
    "sparse": {"out": ("*.csv", "*.svg")},
    "execute": {"out": ("*.csv", "*.svg", "*.html", "*.json")},
    "traffic": {"out": ("*.csv",)},
    "tensaurus": {"out": ("*.csv",)},
    "schema": {"out": ("*.schema.json",)},
}


def add_html(parser: argparse.ArgumentParser, more: str = "") -> None:
    """The option of all that a command tells as a page; `more`: what stands on it besides."""
    parser.add_argument("--html", metavar="FILE", help=f"also save all of it as one page{more}")


def save_page(file: str | None, page: Callable[[], str]) -> list[str]:
    """Write the page, if a file was named; what to say of it."""
    from polymodel.spec.output import write_text

    if not file:
        return []
    with writing(file):
        write_text(Path(file), page())
    return [f"saved {file}"]


def claim_outputs(options: argparse.Namespace) -> None:
    """Declare what the command will write, so that an input among it is refused when it is read."""
    for name in ("html", "plot"):
        if getattr(options, name, None):
            claim(getattr(options, name))
    for name, patterns in _WRITTEN.get(options.name_of_command, {}).items():
        if getattr(options, name, None):
            claim_in(getattr(options, name), *patterns)
    if options.name_of_command == "evaluate" and options.out:
        _claim_tables(options.out, options.parquet)


def _claim_tables(folder: str, parquet: bool) -> None:
    """Those of a report."""
    from polymodel.report.report import TABLES

    claim_in(folder, *(f"{name}.csv" for name in TABLES))
    if parquet:
        claim_in(folder, "sparse_*.parquet", "tiling_*.parquet", *(f"{name}.parquet" for name in TABLES))


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
