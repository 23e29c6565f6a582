"""Parsing of a command line: all invalid options are reported at once, and `NAME=VALUE` options are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NoReturn

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass

if TYPE_CHECKING:
    from polymodel.sweeps.values import Choice

_REQUIRED = re.compile(r"the following arguments are required: (.*)\Z")
_TOO_MANY = re.compile(r"unrecognized arguments: (.*)\Z", re.DOTALL)
_ARGUMENT = re.compile(r"argument ([^:]+): (.*)\Z", re.DOTALL)


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the options of a command line."""
    options, rest = parser.parse_known_args(arguments)
    if rest:
        if hasattr(options, "common") and isinstance(parser, Parser):
            parser.beyond = "what both specs share goes with --with {}"
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


class _Wrong(str):
    """The text of a value that has already been reported as invalid."""


class WideHelp(argparse.HelpFormatter):
    """Help whose second column begins behind the longest name of a command, which argparse forgets to indent
    when it measures names."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        indented = self._current_indent + self._indent_increment
        for one in action._get_subactions() if hasattr(action, "_get_subactions") else ():
            self._action_max_length = max(self._action_max_length, len(one.metavar or one.dest) + indented)


class Parser(argparse.ArgumentParser):
    """A parser that reports all invalid options at once, each with its remedy, and exits with code 2.

    argparse stops at the first invalid option; all its versions check values with `_get_value` and
    `_check_value`, which are overridden here. `others`: words that are not choices of this command -> what to
    use instead.
    """

    others: Mapping[str, str] = MappingProxyType({})
    beyond = "leave it out"  # the remedy for a surplus argument

    def parse_known_args(  # type: ignore[override]  # overloads for namespaces of other classes, never used
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self.faults: list[Diagnostic] = []
        result, rest = super().parse_known_args(args, namespace)
        rest = self._interspersed(result, rest)
        known = [o for a in self._actions for o in a.option_strings]
        for text in [t for t in rest if t.startswith("-")]:
            name = text.partition("=")[0]
            message = "there is no such option"
            self.faults.append(Diagnostic(message, self._near(name, known), name, code="unknown-key"))
        if self.faults:
            self._stop()
        return result, rest

    def _interspersed(self, result: argparse.Namespace, rest: list[str]) -> list[str]:
        """Move arguments that stand after options to the list of positional arguments of this command, which
        argparse fills from one position only; returns the remaining words of `rest`."""
        taken = next((a for a in self._actions if not a.option_strings and a.nargs in ("*", "+")), None)
        words = [t for t in rest if t and not t.startswith("-")]
        if taken is None or not words:
            return rest
        values = [self._get_value(taken, w) for w in words]
        setattr(result, taken.dest, [*(getattr(result, taken.dest) or []), *values])
        return [t for t in rest if t not in words]

    def error(self, message: str) -> NoReturn:
        found = _REQUIRED.match(message)
        if found:
            names = found[1].split(", ")
            self.faults += [
                Diagnostic("is missing", f"{self.prog} --help shows an example", n, code="missing-argument")
                for n in names
            ]
            self._stop()
        found = _TOO_MANY.match(message)
        if found:
            self.faults += [
                # An empty word, which a shell makes of an unset variable, is shown as a pair of quotes.
                Diagnostic("is one argument too many", self.beyond.format(n), n, code="wrong-count")
                for n in found[1].split() or ["''"]
            ]
            self._stop()
        found = _ARGUMENT.match(message)
        path, text = (found[1].split("/")[-1], found[2]) if found else ("", message)
        if text.startswith("expected "):
            text, remedy = "a value is missing", f"write e.g. {path} VALUE"
        else:
            remedy = "leave one of them out" if "not allowed with" in text else self._help
        code = "conflicting-arguments" if "not allowed with" in text else "missing-argument"
        self.faults.append(Diagnostic(text, remedy, path, code=code))
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
            message = f"{arg_string!r} is not a {what}"
            self.faults.append(Diagnostic(message, remedy, path, code="unknown-choice"))
            return _Wrong(arg_string)

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if isinstance(value, _Wrong) or action.choices is None or value in action.choices:
            return
        known = [str(c) for c in action.choices]
        message = f"{value!r} is none of {', '.join(known)}"
        remedy = self.others.get(str(value).lower()) or self._near(str(value), known)
        self.faults.append(Diagnostic(message, remedy, _named(action), code="unknown-choice"))
        if action.nargs == argparse.PARSER:
            self._stop()  # the available options are not known here


def _named(action: argparse.Action) -> str:
    """Return the display name of an option, or the description of a positional argument."""
    return action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)


_EXAMPLES = {
    "--set": "TN2=3", "--var": "N_TOKENS=2048", "--size": "I=400",
    "--at": "TM=16", "--under": "working_set:GLB=S", "--network": "resnet=resnet_18.yaml",
    "--weight": "resnet=3",
}  # fmt: skip


def no_symbol(option: str, name: str, value: str) -> Diagnostic | None:
    """Return the fault of a name such as `GLB.size`, which is an attribute of a component and not a symbol;
    None for any other name."""
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        return None
    symbol = "_".join(parts).upper()
    known = "template variable" if option == "--var" else "symbol"
    message = f"{option} {name}={value}: {name} is not the name of a {known}"
    option = "--set" if option == "--var" else option
    remedy = f"in a copy of the machine write `{parts[-1]}: {symbol}` and `symbols: {{{symbol}: NUMBER}}`"
    return Diagnostic(message, f"{remedy}, then give {option} {symbol}={value}", code="unknown-name")


def pairs(texts: Sequence[str], option: str, *, words: bool = True) -> dict[str, str]:
    """Return `NAME=VALUE` texts as a dictionary; `option` is "" for positional arguments. Raises SpecError
    with all faults. Names must be identifiers, unless `words` is False."""
    lead, example = (f"{option} ", f"{option} {_EXAMPLES[option]}") if option else ("", "A=matrix.mtx")
    result: dict[str, str] = {}
    faults = []
    for text in texts:
        name, equals, value = text.partition("=")
        named = no_symbol(option, name, value) if option in ("--set", "--var") and value else None
        if named is not None:
            faults.append(named)
        elif not equals or not name or (words and not name.isidentifier()) or not value:
            message = f"{lead}{text}: expected NAME=VALUE"
            faults.append(Diagnostic(message, f"write e.g. {example}", code="wrong-type"))
        elif name in result:
            faults.append(Diagnostic(f"{lead}{name} is given twice", "give it once", code="duplicate-name"))
        result[name] = value
    if faults:
        raise SpecError(faults)
    return result


def named_values(texts: Sequence[str], option: str) -> dict[str, Choice]:
    """Return the texts NAME=VALUES of an option by name. Raises SpecError with the faults of all texts that
    are not such pairs."""
    from polymodel.spec.faults import Faults
    from polymodel.sweeps.choices import FORMS, choices_of

    result: dict[str, Choice] = {}
    faults = Faults()
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        named = no_symbol(option, name, values) if values.strip() else None
        if named is not None:
            faults.note(named)
        elif not equals or not name.isidentifier() or not values.strip():
            message = f"{option} {text}: expected NAME=VALUES"
            faults.note(Diagnostic(message, f"values: {FORMS}", code="wrong-type"))
        elif name in result:
            faults.note(Diagnostic(f"{option} {name} is given twice", "give it once", code="duplicate-name"))
        else:
            result[name] = values
    if faults.found:
        choices_of(result, faults)
    faults.raise_if_any()
    return result


def symbols(texts: Sequence[str], option: str = "--set") -> dict[str, int | float]:
    """Return the values of `--set`, or of another option of that form. Raises SpecError."""
    from polymodel.spec.numbers import plain_number

    values = {name: (plain_number(v), v) for name, v in pairs(texts, option).items()}
    faults = [
        Diagnostic(
            f"{option} {name}={text}: {text} is not a number",
            f"write e.g. {option} {name}=3",
            code="not-a-number",
        )
        for name, (v, text) in values.items()
        if v is None
    ]
    if faults:
        raise SpecError(faults)
    return {name: v for name, (v, _) in values.items() if v is not None}


@dataclass(frozen=True)
class NumberOption:
    """The numbers that an option accepts: integers unless `real`, from `least` to `most`; `example` is shown
    in the remedy."""

    what: str
    example: int | float
    least: float = -inf
    most: float = inf
    real: bool = False

    def read(self, text: str) -> int | float | None:
        """Return the number, which may also be written as 1e9 or 1_000; None for a text that is not an
        accepted number."""
        from polymodel.spec.numbers import plain_number

        value = plain_number(text)
        if value is None or not abs(value) < inf or not self.least <= value <= self.most:
            return None
        if self.real:
            return value
        return int(value) if value == int(value) else None


def read_numbers(options: argparse.Namespace, known: Mapping[str, NumberOption]) -> None:
    """Replace the texts of these options by their numbers. Raises SpecError with all faults."""
    faults = []
    for name, number in known.items():
        text = getattr(options, name)
        if isinstance(text, str):
            setattr(options, name, found := number.read(text))
            if found is None:
                fault = f"--{name} {text} is not a {number.what}"
                faults.append(Diagnostic(fault, f"write e.g. --{name} {number.example}", code="not-a-number"))
    if faults:
        raise SpecError(faults)
