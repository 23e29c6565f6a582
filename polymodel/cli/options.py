"""Options shared by several commands, each declared once."""

from __future__ import annotations

import argparse

from polymodel.quantities import UNITS

REPORTED = ("table", "json", "csv", "html")  # formats of the printed result
LISTED = ("table", "json", "csv")
PICTURED = ("table", "html")


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the spec, from one or several files, and for the values of its symbols and
    template variables."""
    parser.add_argument(
        "sources", nargs="+", metavar="SPEC", help="YAML file or library name; several are joined"
    )
    add_einsum(parser)
    add_values(parser)


def add_einsum(parser: argparse.ArgumentParser) -> None:
    """Add `--einsum`, which restricts the command to a part of the workload."""
    parser.add_argument(
        "--einsum",
        action="append",
        default=[],
        metavar="NAME",
        help="only this Einsum, with its part of the mapping; repeat it for several",
    )


def add_values(parser: argparse.ArgumentParser) -> None:
    """Add `--set` for symbols and `--var` for template variables."""
    add_set(parser)
    parser.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="template variable, e.g. N_TOKENS=2048",
    )


def add_set(parser: argparse.ArgumentParser, example: str = "e.g. TN2=3") -> None:
    """Add `--set` without `--var`."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help=f"value of a symbol, {example}"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Add `--engine`."""
    names = ("auto", "exact", "enumerate", "symbolic")
    parser.add_argument(
        "--engine", choices=names, default="auto", help="the engine that counts (default: auto)"
    )


def add_format(parser: argparse.ArgumentParser, choices: tuple[str, ...] = REPORTED) -> None:
    """Add `--format`; the format `table` is for human readers."""
    parser.add_argument("--format", choices=choices, default="table", help="default: table")


def add_units(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--units`, the units of amounts of data in text for human readers; commands that show no amounts of
    data do not have it."""
    if name in ("validate", "schema", "new", "import", "export", "gallery", "forms"):
        return
    parser.add_argument(
        "--units", choices=UNITS, default=UNITS[0],
        help="of amounts of data in text, pages and plots; CSV and JSON are in bits (default: bits)",
    )  # fmt: skip


def add_html(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the option that saves all results of a command as a page; `more` describes additional content of
    the page."""
    parser.add_argument("--html", metavar="FILE", help=f"also save all of it as one page{more}")


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option for the file in which a search stores its progress."""
    parser.add_argument("--store", metavar="DIR", help="save progress there, and resume from it")
    parser.add_argument(
        "--no-resume", action="store_true", help="start anew: ignore the progress in the store"
    )


def add_workers(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--workers`, the number of processes that share the work, where `what` describes the work of each;
    and `--dask`, for the workers of a cluster."""
    parser.add_argument("--workers", type=int, default=1, metavar="N", help=f"{what} (default: 1)")
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="scheduler of a Dask cluster, or its file: its workers do this work, as many as there are, or N",
    )


def add_search(parser: argparse.ArgumentParser, workers: str, out: str, page: str) -> None:
    """Add the options that all searches share: `workers` describes the work of each process, `out` what is
    saved in a folder, `page` additional content of the page."""
    add_workers(parser, workers)
    add_format(parser, LISTED)
    parser.add_argument("--out", metavar="DIR", help=out)
    add_html(parser, page)
    add_store(parser)
