"""What the commands that run a TeAAL spec on data have in common: options, data, outputs."""

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
    """The spec that the options name, whose files stand before the data. Raises SpecError if it is not
    TeAAL's."""
    more = list(takewhile(_is_file, options.tensors))
    del options.tensors[: len(more)]
    spec = load_spec(options, [options.spec, *more])
    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    return spec


def _is_file(text: str) -> bool:
    """Whether a word behind the spec is one more file of it; any other word is data, or lacks its `=`."""
    return "=" not in text and (Path(text).suffix in {".yaml", ".yml"} or Path(text).is_file())


def add_data(parser: argparse.ArgumentParser) -> None:
    """The spec, and data for its inputs."""
    about = "TeAAL file or library name, e.g. tensaurus/spmm; files with further sections may follow"
    parser.add_argument("spec", metavar="SPEC", help=about)
    parser.add_argument(
        "tensors",
        nargs="*",
        default=[],  # which are missing is told with their ranks
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
    """Which input holds which output later; None where the cascade runs once."""
    wrong = [text for text in options.carry if not all(text.partition("=")[::2])]
    if wrong:
        message = f"--carry {wrong[0]}: not INPUT=OUTPUT"
        raise SpecError([Diagnostic(message, "write e.g. --carry D=F", code="wrong-type")])
    return dict(text.split("=", 1) for text in options.carry) or None


def last_generation(options: argparse.Namespace) -> Until | None:
    """How many generations, or when they end; None where the cascade runs once."""
    text = options.until
    return int(text) if text is not None and text.isdecimal() else text


def add_outputs(parser: argparse.ArgumentParser, more: str) -> None:
    """What is printed and saved; `more`: what else than tables `--out` saves."""
    add_format(parser)
    parser.add_argument("--table", metavar="NAME", help="print this table alone")
    parser.add_argument(
        "--out", metavar="DIR", help=f"also save the tables as CSV{', ' if more else ''}{more}"
    )
    add_html(parser)


def title_of(spec: str) -> str:
    """A spec in a title: a file by its name without folders, another by its own."""
    return Path(spec).name if Path(spec).is_file() else spec


def _no_teaal(name: str) -> Diagnostic:
    message = "this is not a TeAAL spec"
    remedy = "it needs `einsum:` with a declaration"
    return Diagnostic(message, remedy, place=Place(name), code="foreign-file")
