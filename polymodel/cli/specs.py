"""The spec named on a command line, with its symbols and template variables."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from polymodel.cli.parser import pairs, symbols
from polymodel.spec.files import reading

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.report.report import Report


def load_spec(
    options: argparse.Namespace, sources: Sequence[str] | None = None, swept: Collection[str] = ()
) -> Spec:
    """Load the spec from `sources` (None: those of the options). Raises SpecError with all faults.

    `swept`: names of symbols whose values a sweep sets; symbols introduced by template variables need no
    declaration.
    """
    from polymodel.loading import load
    from polymodel.spec.document import words_of

    names = options.sources if sources is None else sources
    given = variables(options.var)
    brought = sorted(words_of(given) & {*swept})
    more = [{"symbols": dict.fromkeys(brought)}] if brought else []
    result = with_files(load(*names, *more, variables=given, symbols=symbols(options.set)))
    einsums: Sequence[str] = getattr(options, "einsum", ())
    return result.only(*einsums) if einsums else result


def with_files(spec: Spec) -> Spec:
    """Load the spec and declare the files that it names as inputs, since some of them are read only at the
    end."""
    from polymodel.loading.spec import named_files

    for file in named_files(spec).values():
        reading(file)
    return spec


def variables(texts: Sequence[str]) -> dict[str, object]:
    """Return the values of `--var`, as numbers or lists where they are written as these. Raises SpecError."""
    return {name: _value(text) for name, text in pairs(texts, "--var").items()}


def _value(text: str) -> object:
    """A number, a list in JSON, or the text itself."""
    from polymodel.spec.numbers import plain_number

    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    number = plain_number(text)
    return text if number is None else number


def evaluated(options: argparse.Namespace, engine: str) -> Report:
    """Return the report of the spec that the options name."""
    from polymodel.api.evaluation import evaluate

    return evaluate(load_spec(options), engine=engine)
