"""The command `polymodel import`: translate files of other tools into a spec; features without a counterpart
are named."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE
from polymodel.cli.limits import add_limits
from polymodel.cli.output import tell
from polymodel.cli.parser import Parser
from polymodel.cli.progress import waiting
from polymodel.cli.specs import variables

if TYPE_CHECKING:
    from polymodel.importers.imported import Imported

NAME, ABOUT = "import", "Turn files of another tool into a spec, and name what has no counterpart."
# Formats that users may try to import but that need no importer, or have none.
OTHERS = {
    "teaal": "its specs load as they stand: polymodel execute FILE ... (docs/migrate/teaal.md)",
    **dict.fromkeys(
        ("torch", "pytorch"),
        "a program is no file: in Python, pm.import_torch(torch.export.export(net, inputs)).save(FILE) "
        "(docs/howto/import.md)",
    ),
    "stream": "its layers and cores have ZigZag's form: polymodel import zigzag (docs/migrate/zigzag.md)",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add one subcommand for each kind of file."""
    if isinstance(parser, Parser):
        parser.others = OTHERS
    kinds = parser.add_subparsers(title="what is read", required=True, metavar="KIND")
    _timeloop_command(kinds.add_parser)
    _accelforge_command(kinds.add_parser)
    _zigzag_command(kinds.add_parser)
    _onnx_command(kinds.add_parser)


def _timeloop_command(add: Callable[..., argparse.ArgumentParser]) -> None:
    about = "Read Timeloop's YAML: problem, architecture, mapping, and energies (ERT) where they are given."
    parser = add("timeloop", help=about, description=about, allow_abbrev=False)
    _add_files(parser, "timeloop", "Timeloop files; several are joined")
    parser.set_defaults(run_kind=run_timeloop)


def _accelforge_command(add: Callable[..., argparse.ArgumentParser]) -> None:
    about = "Read AccelForge's YAML: workload, renames, architecture, mapping, and what they include."
    parser = add("accelforge", help=about, description=about, allow_abbrev=False)
    _add_files(parser, "accelforge", "AccelForge files; of a section in several, the last one counts")
    parser.set_defaults(run_kind=run_accelforge)


def _zigzag_command(add: Callable[..., argparse.ArgumentParser]) -> None:
    about = "Read ZigZag's YAML: layers, accelerator, and the operand links of a mapping."
    parser = add("zigzag", help=about, description=about, allow_abbrev=False)
    _add_files(parser, "zigzag", "ZigZag files: layers, accelerator, mapping", templates=False)
    parser.add_argument(
        "--clock", type=float, metavar="HZ", help="cycles per second (default: 1e9, with a note)"
    )
    parser.set_defaults(run_kind=run_zigzag)


def _add_files(parser: argparse.ArgumentParser, kind: str, about: str, templates: bool = True) -> None:
    """Add the options of the importers that read YAML."""
    add_limits(parser, kind)
    parser.add_argument("files", nargs="+", metavar="FILE", help=about)
    if templates:
        parser.add_argument(
            "--var", action="append", default=[], metavar="NAME=VALUE", help="template variable, e.g. M=256"
        )
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="KEY",
        help="import although this key is left out and changes counts; may be repeated",
    )
    add_out(parser)


def _onnx_command(add: Callable[..., argparse.ArgumentParser]) -> None:
    about = "Read an ONNX model: its operators become Einsums. Weights are not read."
    parser = add("onnx", help=about, description=about, allow_abbrev=False)
    add_limits(parser, "onnx")
    parser.add_argument("model", metavar="MODEL.onnx")
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=SIZE", help="number for a symbolic dimension"
    )
    parser.add_argument("--name", metavar="NAME", help="name of the workload (default: that of the graph)")
    parser.add_argument("--bits", type=int, metavar="N", help="bits per value; default: those of the types")
    parser.add_argument(
        "--fuse",
        choices=("elementwise", "none"),
        default="elementwise",
        help="whether activations and biases are part of the Einsum before them (default: elementwise)",
    )
    parser.add_argument(
        "--softmax",
        choices=("one", "cascade"),
        default="one",
        help="one operation per score, or maximum, exponential, sum and quotient (default: one)",
    )
    parser.add_argument(
        "--padding",
        choices=("skipped", "stored"),
        default="skipped",
        help="padding zeros are skipped, or are elements of a tensor (default: skipped; explore takes both)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="report features that would be left out as faults (code 2)"
    )
    add_out(parser)
    parser.set_defaults(run_kind=run_onnx)


def run_onnx(options: argparse.Namespace) -> tuple[str, int]:
    """Write the workload to stdout or to a new file, and notes about what was left out to stderr."""
    from polymodel.importers.onnx import import_onnx

    result = import_onnx(
        options.model,
        name=options.name,
        sizes=sizes(options.size),
        bits=options.bits,
        fuse=options.fuse,
        softmax=options.softmax,
        padding=options.padding,
        strict=options.strict,
    )
    return write_import(result, options.out)


def sizes(texts: Sequence[str]) -> dict[str, int]:
    """Return the values of `--size`. Raises SpecError for a value that is not a whole number."""
    from polymodel.errors import Diagnostic, SpecError

    result, faults = {}, []
    for text in texts:
        name, sign, number = text.rpartition("=")
        if sign and name and number.strip().isdecimal() and len(number) < 20:
            result[name.strip()] = int(number)
        else:
            remedy = "write a name and a whole number: batch=4"
            faults.append(Diagnostic(f"--size {text} is not a size", remedy, code="wrong-type"))
    if faults:
        raise SpecError(faults)
    return result


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add `--out`, which all kinds of file share."""
    parser.add_argument("--out", metavar="FILE", help="write the spec there; an existing file is left alone")


def run_timeloop(options: argparse.Namespace) -> tuple[str, int]:
    """Write the spec to stdout or to a new file, and notes about what was left out to stderr."""
    from polymodel.importers.timeloop import import_timeloop

    result = import_timeloop(*options.files, variables=variables(options.var), allow=options.allow)
    return write_import(result, options.out)


def run_accelforge(options: argparse.Namespace) -> tuple[str, int]:
    """Write the spec to stdout or to a new file, and notes about what was left out to stderr."""
    from polymodel.importers.accelforge import import_accelforge

    words = {"true": True, "false": False}
    given = {n: words.get(str(v).lower(), v) for n, v in variables(options.var).items()}
    return write_import(import_accelforge(options.files, allow=options.allow, **given), options.out)


def run_zigzag(options: argparse.Namespace) -> tuple[str, int]:
    """Write the spec to stdout or to a new file, and notes about what was left out to stderr."""
    from polymodel.importers.zigzag import import_zigzag

    return write_import(import_zigzag(options.files, clock=options.clock, allow=options.allow), options.out)


@waiting("reading")
def run(options: argparse.Namespace) -> tuple[str, int]:
    """Read the files of the tool named on the command line."""
    kind: Callable[[argparse.Namespace], tuple[str, int]] = options.run_kind
    return kind(options)


def write_import(imported: Imported, out: str | None) -> tuple[str, int]:
    """Return the text to print: the YAML, or the path of the file it was written to. Notes are printed to
    stderr, so that stdout is a valid spec."""
    for remark in imported.remarks:
        tell(f"{remark}\n")
    if out is None:
        return imported.text, FINE
    path = imported.save(Path(out))
    return f"wrote {path}\n", FINE
