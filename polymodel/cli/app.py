"""All commands as one program: the parser, the error handling around a command, and its exit code.

Output is written completely or not at all; faults are printed to stderr.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from keyword import iskeyword
from typing import Any, Protocol, TypeAlias, cast

from polymodel.cli.cluster import on_cluster
from polymodel.cli.codes import BAD_INPUT, BUG, EXPLAINED, INTERRUPTED, REFUSED
from polymodel.cli.limits import add_limits, governed
from polymodel.cli.options import add_units
from polymodel.cli.parser import Parser, WideHelp, parsed
from polymodel.cli.process import (
    OUT_OF_MEMORY,
    ended,
    environment,
    started_for_one_command,
    streams_open,
    unforeseen,
    write_stdout,
)
from polymodel.cli.written import claim_outputs
from polymodel.errors import Diagnostic, LimitReached, Refused, SpecError, mending
from polymodel.governor import terminable
from polymodel.spec.files import watching
from polymodel.view.units import units


class Command(Protocol):
    """The interface of a module of this package that defines a command; `import` sets `run` separately for
    each kind of file."""

    NAME: str
    ABOUT: str

    @property
    def add_options(self) -> Callable[[argparse.ArgumentParser], None]: ...

    @property
    def run(self) -> Callable[[argparse.Namespace], tuple[str, int]]: ...


COMMANDS = (
    "validate", "show", "evaluate", "forms", "compare", "timeline", "sweep", "explore", "codesign",
    "distribute", "sparse", "execute", "traffic", "tensaurus", "tile", "gallery", "import", "export",
    "schema", "new",
)  # fmt: skip
DATA = ("json", "csv", "html", "latex")  # formats for other programs
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    command = shlex.join(["polymodel", *(sys.argv[1:] if arguments is None else arguments)])
    if arguments is None:
        started_for_one_command()
    try:
        streams_open()
        with terminable():
            return _run(arguments, command)
    except MemoryError:
        print(OUT_OF_MEMORY, file=sys.stderr)
        return REFUSED
    except ImportError as error:
        told = environment(error)
        print(told or unforeseen(error, command, _version()), file=sys.stderr)
        return BAD_INPUT if told else BUG
    except Exception as error:  # noqa: BLE001  # the last barrier: unexpected exceptions
        print(unforeseen(error, command, _version()), file=sys.stderr)
        return BUG
    finally:
        if arguments is None:
            ended()


def _run(arguments: Sequence[str] | None, command: str) -> int:
    first = next(iter(sys.argv[1:] if arguments is None else arguments), "")
    options = parsed(build_parser(first), arguments)
    options.command = command
    try:
        shown = units(getattr(options, "units", "bits"))
        with shown, watching(), governed(options, alone=arguments is None), on_cluster(options):
            claim_outputs(options)
            text, code = options.run(options)
    except SpecError as error:
        print("\n".join(d.render() for d in error.diagnostics), file=sys.stderr)
        return BAD_INPUT
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    except LimitReached as error:
        print(f"stopped: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        fault = Diagnostic(
            f"{error.filename or 'file'}: {error.strerror or error}", mending(error), code="unreadable-file"
        )
        print(fault.render(), file=sys.stderr)
        return BAD_INPUT
    printed = write_stdout(text, getattr(options, "format", "table") in DATA)
    return int(code) if printed else BAD_INPUT


def build_parser(first: str = "") -> argparse.ArgumentParser:
    """Return the parser with all commands, or with only the command `first` (the first word of the command
    line) if that is one: describing the options of all commands takes longer than evaluating a small spec."""
    parser: argparse.ArgumentParser = Parser(
        prog="polymodel",
        description="What a tensor workload costs on a memory hierarchy under a mapping, counted exactly.",
        epilog=EXPLAINED,
        allow_abbrev=False,
        formatter_class=WideHelp,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in [first] if first in COMMANDS else COMMANDS:
        _add(commands, _module(name))
    return parser


def _module(name: str) -> Command:
    """Import the module of a command on demand: importing all of them takes longer than describing their
    options."""
    found: Any = import_module(f"polymodel.cli.{name}{'_' if iskeyword(name) else ''}")
    return cast(Command, found)


def _add(commands: Commands, command: Command) -> None:
    about = command.ABOUT
    parser = commands.add_parser(
        command.NAME, help=about, description=about, epilog=EXPLAINED, allow_abbrev=False
    )
    parser.set_defaults(name_of_command=command.NAME, run=command.run)
    add_limits(parser, command.NAME)
    add_units(parser, command.NAME)
    command.add_options(parser)


def _version() -> str:
    from polymodel import __version__

    return f"polymodel {__version__}"
