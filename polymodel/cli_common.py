"""What several commands share: values of symbols, a progress line, how a report is printed and saved."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from polymodel.errors import Diagnostic, SpecError, masked

if TYPE_CHECKING:
    from polymodel.report.report import Report
    from polymodel.report.table import Table

BAR_AFTER = 2.0
LINE_EVERY = 30.0  # seconds between lines where stderr is a file or a pipe
WIDTH = 24
WORDS = 1000  # characters of a message or a command that are told
_REQUIRED = re.compile(r"the following arguments are required: (.*)\Z")
_TOO_MANY = re.compile(r"unrecognized arguments: (.*)\Z", re.DOTALL)
_ARGUMENT = re.compile(r"argument ([^:]+): (.*)\Z", re.DOTALL)


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line; sources of a spec may stand behind options as well."""
    options, rest = parser.parse_known_args(arguments)
    if not rest:
        return options
    if not hasattr(options, "sources") or any(text.startswith("-") for text in rest):
        if hasattr(options, "common") and isinstance(parser, Parser):
            parser.beyond = "what both specs share goes with --with {}"
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.sources += rest
    return options


OUT_OF_MEMORY = """\
out of memory: the command needs more than this process may have
  remedy: give it more, take a smaller problem, or fewer workers; sweeps keep to --memory"""
TRACEBACK = "POLYMODEL_TRACEBACK"


class _Wrong(str):
    """The text of a value that has been told as wrong."""


class Parser(argparse.ArgumentParser):
    """Tells every wrong option at once, each with its remedy, and exits with code 2.

    argparse stops at the first one; that it looks at values with `_get_value` and `_check_value` has been so
    in all its versions. `others`: words that are no choice of this command -> what to do instead.
    """

    others: Mapping[str, str] = MappingProxyType({})
    beyond = "leave it out"  # what to do with one argument too many

    def parse_known_args(  # type: ignore[override]  # overloads for namespaces of other classes, never used
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.faults: list[Diagnostic] = []
        found, rest = super().parse_known_args(args, namespace)
        known = [o for a in self._actions for o in a.option_strings]
        for text in [t for t in rest if t.startswith("-")]:
            name = text.partition("=")[0]
            self.faults.append(Diagnostic("there is no such option", self._near(name, known), name))
        if self.faults:
            self._stop()
        return found, rest

    def error(self, message: str) -> NoReturn:
        found = _REQUIRED.match(message)
        if found:
            names = found[1].split(", ")
            self.faults += [
                Diagnostic("is missing", f"{self.prog} --help shows an example", n) for n in names
            ]
            self._stop()
        found = _TOO_MANY.match(message)
        if found:
            self.faults += [
                # An empty word, as a shell makes of an unset variable, is named by its quotes.
                Diagnostic("is one argument too many", self.beyond.format(n), n)
                for n in found[1].split() or ["''"]
            ]
            self._stop()
        found = _ARGUMENT.match(message)
        path, text = (found[1].split("/")[-1], found[2]) if found else ("", message)
        if text.startswith("expected "):
            text, remedy = "a value is missing", f"write e.g. {path} VALUE"
        else:
            remedy = "leave one of them out" if "not allowed with" in text else self._help
        self.faults.append(Diagnostic(text, remedy, path))
        self._stop()

    def _stop(self) -> NoReturn:
        self.exit(2, "\n".join(f.render() for f in self.faults) + "\n")

    def _near(self, word: str, known: Sequence[str]) -> str:
        from polymodel.spec.faults import close_to

        plain = {k.lstrip("-"): k for k in known}
        near = close_to(word.lstrip("-"), plain)
        return f"did you mean {plain[near]}?" if near else self._help

    @property
    def _help(self) -> str:
        return f"{self.prog} --help lists what there is"

    def _get_value(self, action: argparse.Action, arg_string: str) -> object:
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError:
            what = "whole number" if action.type is int else "number"
            path = _named(action)
            example = action.default if isinstance(action.default, (int, float)) else 10
            remedy = f"write e.g. {path} {example}"
            self.faults.append(Diagnostic(f"{arg_string!r} is no {what}", remedy, path))
            return _Wrong(arg_string)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(value, _Wrong) or action.choices is None or value in action.choices:
            return
        known = [str(c) for c in action.choices]
        message = f"{value!r} is none of {', '.join(known)}"
        remedy = self.others.get(str(value).lower()) or self._near(str(value), known)
        self.faults.append(Diagnostic(message, remedy, _named(action)))
        if action.nargs == argparse.PARSER:
            self._stop()  # which options there are is not known


def _named(action: argparse.Action) -> str:
    """An option by its name, an argument by what it stands for."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


_EXAMPLES = {"--set": "TN2=3", "--var": "N_TOKENS=2048", "--size": "I=400"}


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary; `option` is "" for arguments. Raises SpecError with every fault."""
    lead, example = (f"{option} ", f"{option} {_EXAMPLES[option]}") if option else ("", "A=matrix.mtx")
    found: dict[str, str] = {}
    faults = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or not value:
            faults.append(Diagnostic(f"{lead}{text}: expected NAME=VALUE", f"write e.g. {example}"))
        elif name in found:
            faults.append(Diagnostic(f"{lead}{name} is given twice", "give it once"))
        found[name] = value
    if faults:
        raise SpecError(faults)
    return found


def symbols(texts: Sequence[str]) -> dict[str, int | float]:
    """The values of `--set`. Raises SpecError."""
    from polymodel.spec.numbers import plain_number

    values = {name: (plain_number(v), v) for name, v in pairs(texts, "--set").items()}
    faults = [
        Diagnostic(f"--set {name}={text}: {text} is not a number", f"write e.g. --set {name}=3")
        for name, (v, text) in values.items()
        if v is None
    ]
    if faults:
        raise SpecError(faults)
    return {name: v for name, (v, _) in values.items() if v is not None}


@dataclass(frozen=True)
class Number:
    """What an option takes: whole numbers unless `real`, from `least` to `most`; `example` for the remedy."""

    what: str
    example: int | float
    least: float = -inf
    most: float = inf
    real: bool = False

    def read(self, text: str) -> int | float | None:
        """The number, also written as 1e9 or 1_000; None for all that is none of these."""
        from polymodel.spec.numbers import plain_number

        value = plain_number(text)
        if value is None or not abs(value) < inf or not self.least <= value <= self.most:
            return None
        if self.real:
            return value
        return int(value) if value == int(value) else None


def read_numbers(options: argparse.Namespace, known: Mapping[str, Number]) -> None:
    """Replaces the texts of these options by their numbers. Raises SpecError with every fault."""
    faults = []
    for name, number in known.items():
        text = getattr(options, name)
        if isinstance(text, str):
            setattr(options, name, found := number.read(text))
            if found is None:
                fault = f"--{name} {text} is no {number.what}"
                faults.append(Diagnostic(fault, f"write e.g. --{name} {number.example}"))
    if faults:
        raise SpecError(faults)


class Line:
    """A line on stderr that is rewritten. Quiet for the first 2 s.

    `live=False`, for files and pipes: a new line now and then.
    """

    def __init__(self, write: Callable[[str], object], live: bool = True) -> None:
        self.write = write
        self.live = live
        self.shown = 0
        self.last = 0.0

    def due(self, seconds: float) -> bool:
        """True if it is time to show something, so many seconds after the start."""
        if seconds < BAR_AFTER or seconds - self.last < (0.2 if self.live else LINE_EVERY):
            return False
        self.last = seconds
        return True

    def show(self, share: float, text: str) -> None:
        """Show a bar of which `share` is done, and a text."""
        filled = int(WIDTH * share)
        self.say(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:5.1f} %  {text}")

    def say(self, line: str) -> None:
        """Show this text in the place of what was there."""
        line = masked(line)
        if not self.live:
            self.write(line + "\n")
            return
        self.write("\r" + line.ljust(self.shown))
        self.shown = len(line)

    def finish(self) -> None:
        """Leave the line."""
        if self.shown:
            self.write("\n")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says on stderr what takes so long, and for how long it has, while work that tells no progress runs."""
    live = sys.stderr.isatty()
    line, done, begun = Line(sys.stderr.write, live), Event(), perf_counter()

    def tell() -> None:
        while not done.wait(0.2):
            seconds = perf_counter() - begun
            if line.due(seconds):
                line.say(f"{what}: {seconds:.0f} s so far")
                sys.stderr.flush()

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        line.finish()


def saved_text(files: Sequence[Path]) -> str:
    """Where everything went: the pages and pictures by name, the tables by number."""
    kinds = (".csv", ".parquet", ".json", ".txt")
    seen = ", ".join(str(f) for f in files if f.suffix not in kinds)
    tables = sum(f.suffix == ".csv" for f in files)
    return f"saved {seen}, and {tables} tables beside them"


def with_told(text: str, told: Sequence[str], below: bool) -> str:
    """What was saved, below a text for people; beside any other text, on stderr."""
    if below:
        return text + "".join(f"\n{line}\n" for line in told)
    if told:
        sys.stderr.write("".join(f"{line}\n" for line in told))
    return text


def formatted(report: Report, options: argparse.Namespace) -> str:
    """A report, or one table of it, as `evaluate` prints it: options `format`, `table`, `live`, `command`."""
    if options.table is not None or options.format == "csv":
        return _table(report.table(options.table or "summary", live=options.live), options.format)
    if options.format == "json":
        return report.to_json(live=options.live)
    if options.format == "html":
        return report.to_html(live=options.live, command=options.command)
    from polymodel.report.export import whole_text

    return whole_text(report, options.live)


def _table(table: Table, style: str) -> str:
    """One table alone."""
    from polymodel.report.export import table_json
    from polymodel.report.page import page

    if style == "csv":
        return table.to_csv()
    if style == "json":
        return table_json(table)
    if style == "html":
        return page(table.name.replace("_", " "), table.html())
    notes = "".join(f"  note: {n}\n" for n in table.notes)
    return f"{table.text(indent='')}\n{notes}"
