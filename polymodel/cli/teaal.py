"""What the commands that run a TeAAL spec on data share: options, data and outputs."""

from __future__ import annotations

import argparse
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.options import add_format, add_html, add_set
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, Place, SpecError

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.sparse.execute.generations import Until

MADE = ("dense", "random:DENSITY")


def load_teaal(options: argparse.Namespace) -> Spec:
    """Load the spec that the options name. Raises SpecError if it is not a TeAAL spec."""
    return require_teaal(options, load_with_data(options))


def require_teaal(options: argparse.Namespace, spec: Spec) -> Spec:
    """Return the spec. Raises SpecError if it is not a TeAAL spec."""
    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    return spec


def load_with_data(options: argparse.Namespace) -> Spec:
    """Load the spec that the options name; its files precede the data."""
    more = list(takewhile(_is_file, options.tensors))
    del options.tensors[: len(more)]
    return load_spec(options, [options.spec, *more])


def _is_file(text: str) -> bool:
    """Return whether a word after the spec is another of its files; any other word is data, or data without
    its `=`."""
    return "=" not in text and (Path(text).suffix in {".yaml", ".yml"} or Path(text).is_file())


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the spec and for the data of its inputs."""
    about = "file or library name, e.g. tensaurus/spmm; files with further sections may follow"
    parser.add_argument("spec", metavar="SPEC", help=about)
    parser.add_argument(
        "tensors",
        nargs="*",
        default=[],  # missing inputs are reported later, with their ranks
        metavar="TENSOR=DATA",
        help=f"data of an input: a .mtx or .tns file, or {' or '.join(MADE)} of the size of its ranks",
    )
    parser.add_argument("--size", action="append", default=[], metavar="RANK=N", help="size of a rank")
    add_set(parser, "e.g. a split")
    parser.add_argument("--seed", type=int, default=0, help="of random data (default: 0)")
    parser.add_argument(
        "--carry",
        action="append",
        default=[],
        metavar="INPUT=OUTPUT",
        help="run generation after generation: what this input holds in the next one (with --until)",
    )
    parser.add_argument(
        "--until", metavar="N", help="how many generations, or fixed_point: carried inputs do not change"
    )
    parser.set_defaults(var=[])


def carried(options: argparse.Namespace) -> dict[str, str] | None:
    """Return which input takes which output in the next generation; None where the cascade runs once."""
    wrong = [text for text in options.carry if not all(text.partition("=")[::2])]
    if wrong:
        message = f"--carry {wrong[0]}: not INPUT=OUTPUT"
        raise SpecError([Diagnostic(message, "write e.g. --carry D=F", code="wrong-type")])
    return dict(text.split("=", 1) for text in options.carry) or None


def last_generation(options: argparse.Namespace) -> Until | None:
    """Return the number of generations or the end condition; None where the cascade runs once."""
    text = options.until
    return int(text) if text is not None and text.isdecimal() else text


def add_outputs(parser: argparse.ArgumentParser, more: str) -> None:
    """Add the options for printed and saved results; `more` describes what `--out` saves besides tables."""
    add_format(parser)
    parser.add_argument("--table", metavar="NAME", help="print this table alone")
    parser.add_argument(
        "--out", metavar="DIR", help=f"also save the tables as CSV{', ' if more else ''}{more}"
    )
    add_html(parser)


def title_of(spec: str) -> str:
    """Return the name of a spec for a title: the file name without its folder, or the name of the spec."""
    return Path(spec).name if Path(spec).is_file() else spec


def _no_teaal(name: str) -> Diagnostic:
    message = "this is not a TeAAL spec"
    remedy = "it needs `einsum:` with a declaration"
    return Diagnostic(message, remedy, place=Place(name), code="foreign-file")
