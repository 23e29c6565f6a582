"""When, by which command and by which versions something was made, so that it can be made again."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from polymodel.view.blocks import Block, Facts, Line, Part
from polymodel.view.epoch import pinned

Pairs = Sequence[tuple[str, str]]
PACKAGES = ("islpy-barvinok", "numpy", "scipy", "sympy", "pandas", "matplotlib")
TITLE = "How it was made"


def now() -> str:
    """The time in UTC, or `SOURCE_DATE_EPOCH` if that is set, so that a page comes out the same twice."""
    when = pinned() or datetime.now(UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def versions() -> list[tuple[str, str]]:
    """polymodel, Python and the packages that numbers and pictures come from."""
    from polymodel import __version__

    found = [("polymodel", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # pandas and others are not needed for a page
            continue
    return [*found, ("system", f"{platform.system()}-{platform.release()}")]


def made(command: str, asked: Pairs = ()) -> list[Block]:
    """Date, command and versions; `asked`: what else is to be told, by name."""
    pairs = [("date", now()), *([("command", command)] if command else []), *asked]
    return [Facts(pairs), Line("Versions", "subtitle"), Facts(versions())]


def made_part(command: str, asked: Pairs = ()) -> Part:
    """The section of a page that says so."""
    return Part(TITLE, made(command, asked))
