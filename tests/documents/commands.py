"""Every command with all its options, from the parser that the program itself uses."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from polymodel.cli import build_parser


def inner(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Name -> parser of the commands below a parser, in their order."""
    found = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command that can be run, `import timeloop` as one."""
    found: dict[str, argparse.ArgumentParser] = {}
    for name, parser in inner(build_parser()).items():
        below = inner(parser)
        found |= {f"{name} {kind}": p for kind, p in below.items()} if below else {name: parser}
    return found


def values(action: argparse.Action) -> str:
    """What an option is followed by."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar or not action.option_strings:
        return action.metavar or ""
    return "|".join(map(str, action.choices or [action.dest.upper()]))


def usual(action: argparse.Action) -> str:
    """What is taken where the option is left out; empty if nothing is."""
    if action.nargs == 0 or action.default in (None, argparse.SUPPRESS, [], ()):
        return ""
    if isinstance(action.default, list | tuple):
        return " ".join(map(str, action.default))
    return str(action.default)


def code(text: str) -> str:
    """Inline code that a table cell can hold."""
    return "`" + text.replace("|", "\\|") + "`" if text else ""


def rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One line of a Markdown table per argument."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = values(action) if action.option_strings else ""
        meaning = (action.help or "").replace("%%", "%").replace("|", "\\|").replace("*", "\\*")
        more = ", several" if action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction) else ""
        yield f"| {code(f'{name} {value}'.strip())}{more} | {code(usual(action))} | {meaning} |"


def section(parser: argparse.ArgumentParser) -> str:
    """What a command does, and its arguments."""
    lines = [parser.description or "", "", "| argument | default | meaning |", "|---|---|---|", *rows(parser)]
    return "\n".join(lines) + "\n"
