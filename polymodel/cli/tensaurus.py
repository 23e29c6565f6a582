"""The command `polymodel tensaurus`: a kernel on the Tensaurus accelerator."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from polymodel.cli.codes import FINE
from polymodel.cli.options import add_format, add_html
from polymodel.cli.output import check_targets, save_formats, save_page, with_saved_files
from polymodel.cli.progress import waiting
from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.sparse.tensaurus import TensaurusReport
    from polymodel.view.table import Table

NAME, ABOUT = "tensaurus", "Predict a kernel on the Tensaurus accelerator."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the kernel, its data and outputs."""
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="MTTKRP, TTMc, SpMM or SpMV")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the sparse tensor: .mtx or .tns (or --shape)"
    )
    parser.add_argument("--shape", metavar="SIZES", help="instead of a file, e.g. 12000,9000,28000 ...")
    parser.add_argument("--nnz", type=int, metavar="N", help="... with so many nonzeros, uniformly random")
    parser.add_argument("--across", type=int, metavar="N", help="columns of the dense operands (default: 32)")
    parser.add_argument("--published", action="store_true", help="the paper's numbers beside the model's")
    add_format(parser)
    parser.add_argument("--out", metavar="DIR", help="also save it as CSV, JSON, text and one page")
    add_html(parser)


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print time, load balance, traffic and energy of one kernel, or the published table."""
    from polymodel.report.tensaurus import published_table

    check_targets(options)
    with waiting("counting"):
        report = None if options.published else _predicted(options)
        written = partial(_written, report, published_table() if report is None else report.table())
    told = save_page(options.html, partial(written, "html"))
    told += save_formats(options.out, NAME, written) if options.out else []
    return with_saved_files(written(options.format), told, options.format == "table"), FINE


def _predicted(options: argparse.Namespace) -> TensaurusReport:
    from polymodel.sparse.tensaurus import tensaurus
    from polymodel.sparse.tensaurus.machine import kernel_of

    if options.kernel is None:
        fault = Diagnostic(
            "no kernel is named",
            "MTTKRP, TTMc, SpMM or SpMV; or --published",
            "KERNEL",
            code="missing-argument",
        )
        raise SpecError([fault])
    kernel_of(options.kernel)
    a = _operand(options)
    across = kernel_of(options.kernel).across
    if options.across is not None and not across:
        fault = Diagnostic(
            f"--across: {options.kernel} has no columns of a dense operand",
            "leave it out",
            code="ineffective-argument",
        )
        raise SpecError([fault])
    sizes = {across: options.across} if across and options.across is not None else {}
    return tensaurus(options.kernel, a, **sizes)


def _written(report: TensaurusReport | None, table: Table, style: str) -> str:
    """A prediction, or the published table, in one format."""
    from polymodel.report.tensaurus import TITLES, report_text
    from polymodel.view.answer import Section, formatted_tables, notes

    if report is not None and style == "table":
        return report_text(report)
    if style == "table":
        return f"{table.text(indent='')}\n" + "".join(f"note: {n}\n" for n in table.notes)
    section = Section(TITLES[table.name], table)
    return formatted_tables([section], style, "polymodel tensaurus", notes(table.notes))


def _operand(options: argparse.Namespace) -> Any:
    from polymodel.sparse.density import Uniform
    from polymodel.sparse.files import read_tensor

    if options.file is not None:
        if options.shape is not None or options.nnz is not None:
            raise SpecError(
                [
                    Diagnostic(
                        "a file and a shape are given",
                        "leave out --shape and --nnz, or FILE",
                        code="conflicting-arguments",
                    )
                ]
            )
        return read_tensor(options.file)
    if options.shape is None or options.nnz is None:
        message = "no tensor is given"
        remedy = "name a file, or give --shape and --nnz"
        raise SpecError([Diagnostic(message, remedy, code="missing-argument")])
    try:
        shape = tuple(int(s) for s in options.shape.split(","))
    except ValueError:
        fault = Diagnostic(
            f"--shape {options.shape}: whole numbers are expected",
            "write e.g. --shape 100,200",
            code="not-an-integer",
        )
        raise SpecError([fault]) from None
    return Uniform.of("IJKLMN"[: len(shape)], shape, nnz=options.nnz)
