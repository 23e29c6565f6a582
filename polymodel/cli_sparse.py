"""The commands on sparse data: `polymodel sparse`, `execute`, `traffic` and `tensaurus`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polymodel.cli_tensors import rank_sizes, tensors_of
from polymodel.errors import Diagnostic, Place, SpecError, writing

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.report.table import Table
    from polymodel.sparse.execute.check import Check
    from polymodel.sparse.tensor import SparseTensor

Run = Callable[[argparse.Namespace], tuple[str, int]]
INFEASIBLE = 1
FORMATS = ("table", "json", "csv", "html")
MADE = ("dense", "random:DENSITY")


def add_sparse_commands(
    add: Callable[[str, str], argparse.ArgumentParser], load: Callable[[argparse.Namespace, list[str]], Spec]
) -> None:
    """The four commands; `add` makes a parser of a name and what it does, `load` reads a spec."""
    parser = add("sparse", "What density models expect of real tensors, beside exact counts.")
    add_sparse_options(parser)
    parser.set_defaults(run=_waited(run_sparse))
    parser = add("execute", "Run a TeAAL spec on sparse data: results, exact work, accesses, time.")
    add_execute_options(parser)
    parser.set_defaults(
        var=[], run=_waited(lambda options: run_execute(options, load(options, [options.spec])))
    )
    parser = add("traffic", "What a TeAAL spec with format, architecture and bindings moves on data.")
    add_traffic_options(parser)
    parser.set_defaults(
        var=[], run=_waited(lambda options: run_traffic(options, load(options, [options.spec])))
    )
    parser = add("tensaurus", "Predict a kernel on the Tensaurus accelerator.")
    add_tensaurus_options(parser)
    parser.set_defaults(run=_waited(run_tensaurus))


def _waited(run: Run) -> Run:
    from polymodel.cli_common import waiting

    def waited(options: argparse.Namespace) -> tuple[str, int]:
        with waiting("counting"):
            return run(options)

    return waited


def add_sparse_options(parser: argparse.ArgumentParser) -> None:
    """Predicted against actual."""
    parser.add_argument("files", nargs="+", metavar="FILE", help=".mtx, .mtx.gz, .tns or .tns.gz")
    parser.add_argument(
        "--tiles", default="16,128", metavar="SIZES", help="sizes of tiles, in every rank (default: 16,128)"
    )
    parser.add_argument(
        "--slices", type=int, default=8, metavar="N", help="parts that rows are dealt to (default: 8)"
    )
    parser.add_argument(
        "--ranks",
        metavar="NAMES",
        help="of the files, e.g. I,J,K; a .tns file with as many columns as ranks has no values",
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument(
        "--out", metavar="DIR", help="also save the table as CSV and a picture of every matrix"
    )


def run_sparse(options: argparse.Namespace) -> tuple[str, int]:
    """What density models expect of real tensors, beside exact counts of their data."""
    from polymodel.report.predictions import predict

    ranks = tuple(options.ranks.split(",")) if options.ranks is not None else None
    found = predict(*options.files, tiles=_sizes(options.tiles), slices=options.slices, ranks=ranks)
    plain = options.format == "table"
    text = str(found) if plain else _formatted([found.table], options.format, found.notes, "sparse")
    if options.out:
        files = [_write(Path(options.out) / "predictions.csv", found.table.to_csv())]
        files += _pictures(Path(options.out), options.files, ranks)
        text += _told(files, options.format)
    return text, 0


def _sizes(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        fault = Diagnostic(f"--tiles {text}: whole numbers are expected", "write e.g. --tiles 16,128")
        raise SpecError([fault]) from None


def _pictures(folder: Path, files: list[str], ranks: tuple[str, ...] | None) -> list[Path]:
    from polymodel.report.figures import write_figure
    from polymodel.report.plots_sparse import plot_occupancies, plot_spy
    from polymodel.sparse.files import read_tensor
    from polymodel.spec.output import whole

    made = []
    for file in files:
        tensor = read_tensor(file, ranks=ranks)
        plots = {"rows": plot_occupancies, **({"spy": plot_spy} if len(tensor.ranks) == 2 else {})}
        for name, plot in plots.items():
            path = folder / f"{tensor.name}_{name}.svg"
            with writing(path), whole(path) as fresh:
                drawn = plot(tensor)  # type: ignore[operator]  # of several signatures
                write_figure(drawn.get_figure(root=True), fresh)
            made.append(path)
    return made


def add_execute_options(parser: argparse.ArgumentParser) -> None:
    """Run a cascade on data."""
    _add_data(parser)
    parser.add_argument("--check", action="store_true", help="compare the results with dense arithmetic")
    parser.add_argument(
        "--kept-slices", action="store_true", help="later Einsums keep the slices of the first"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument("--table", metavar="NAME", help="print this table alone")
    parser.add_argument(
        "--out", metavar="DIR", help="also save the tables as CSV, the results as .mtx or .tns"
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="TeAAL file or library name, e.g. tensaurus/spmm")
    parser.add_argument(
        "tensors",
        nargs="*",
        default=[],  # which are missing is told with their ranks
        metavar="TENSOR=DATA",
        help=f"data of an input: a .mtx or .tns file, or {' or '.join(MADE)} of the size of its ranks",
    )
    parser.add_argument("--size", action="append", default=[], metavar="RANK=N", help="size of a rank")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help="value of a symbol, e.g. a split"
    )
    parser.add_argument("--seed", type=int, default=0, help="of random data (default: 0)")


def add_traffic_options(parser: argparse.ArgumentParser) -> None:
    """Count what moves."""
    _add_data(parser)
    parser.add_argument(
        "--replacement", choices=("lru",), help="what a full cache drops (default: none, refused)"
    )
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")


def run_traffic(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    """Bits per memory and tensor, counts per unit, and times."""
    from polymodel.cli_common import symbols
    from polymodel.evaluate import traffic
    from polymodel.report.traffic import TrafficReport

    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    tensors = tensors_of(options, spec, rank_sizes(options.size))
    found = traffic(spec, tensors, symbols=symbols(options.set), replacement=options.replacement)
    report = TrafficReport(found)
    tables = list(report.tables.values())
    if options.format == "table":
        return str(report), 0
    return _formatted(tables, options.format, report.notes, "traffic"), 0


def _no_teaal(name: str) -> Diagnostic:
    return Diagnostic("this is no TeAAL spec", "it needs `einsum:` with a declaration", place=Place(name))


def run_execute(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    """Run a TeAAL spec on data, count everything, and print it."""
    from polymodel.cli_common import symbols
    from polymodel.report.execution import ExecutionReport
    from polymodel.sparse.execute.run import run

    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    given = symbols(options.set)
    sizes = rank_sizes(options.size)
    tensors = tensors_of(options, spec, sizes)
    slices: Literal["own", "kept"] = "kept" if options.kept_slices else "own"
    found = run(spec.teaal, tensors, rank_sizes=sizes, symbols=given, slices=slices)
    report = ExecutionReport(found)
    tables = list(report.tables.values()) if options.table is None else [report.table(options.table)]
    plain = options.format == "table" and options.table is None
    text = str(report) if plain else _formatted(tables, options.format, (), "execute")
    code = 0
    if options.check:
        checks = found.check()
        told = "".join(f"{_checked(c)}\n" for c in checks)
        code = 0 if all(c.agrees for c in checks) else INFEASIBLE
        text += told if options.format == "table" else ""
    if options.out:
        folder = Path(options.out)
        files = [_write(folder / f"{t.name}.csv", t.to_csv()) for t in tables]
        files += [_result(folder, result) for result in found.results.values() if result.ranks]
        text += _told(files, options.format)
    return text, code


def _checked(check: Check) -> str:
    how = "agrees with" if check.agrees else f"differs by {check.largest_difference:g} from"
    return f"{check.einsum} {how} {check.reference} in {check.points:,} points"


def _result(folder: Path, tensor: SparseTensor) -> Path:
    from polymodel.sparse.files import write_tensor

    path = folder / f"{tensor.name}.{'mtx' if len(tensor.ranks) == 2 else 'tns'}"
    folder.mkdir(parents=True, exist_ok=True)
    with writing(path):
        write_tensor(tensor, path)
    return path


def add_tensaurus_options(parser: argparse.ArgumentParser) -> None:
    """Predict a kernel on Tensaurus."""
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="MTTKRP, TTMc, SpMM or SpMV")
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the sparse tensor: .mtx or .tns (or --shape)"
    )
    parser.add_argument("--shape", metavar="SIZES", help="instead of a file, e.g. 12000,9000,28000 ...")
    parser.add_argument("--nnz", type=int, metavar="N", help="... with so many nonzeros, uniformly random")
    parser.add_argument("--across", type=int, metavar="N", help="columns of the dense operands (default: 32)")
    parser.add_argument("--published", action="store_true", help="the paper's numbers beside the model's")
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")


def run_tensaurus(options: argparse.Namespace) -> tuple[str, int]:
    """Time, balance, traffic and energy of one kernel, or the published table."""
    from polymodel.report.tensaurus import published_table, report_table, report_text
    from polymodel.sparse.tensaurus import tensaurus
    from polymodel.sparse.tensaurus.kernels import kernel_of

    if options.published:
        table = published_table()
    else:
        if options.kernel is None:
            fault = Diagnostic("no kernel is named", "MTTKRP, TTMc, SpMM or SpMV; or --published", "KERNEL")
            raise SpecError([fault])
        kernel_of(options.kernel)
        a = _operand(options)
        across = kernel_of(options.kernel).across
        if options.across is not None and not across:
            fault = Diagnostic(
                f"--across: {options.kernel} has no columns of a dense operand", "leave it out"
            )
            raise SpecError([fault])
        sizes = {across: options.across} if across and options.across is not None else {}
        report = tensaurus(options.kernel, a, **sizes)
        if options.format == "table":
            return report_text(report), 0
        table = report_table(report)
    notes = "".join(f"note: {n}\n" for n in table.notes)
    if options.format == "table":
        return f"{table.text(indent='')}\n{notes}", 0
    return _formatted([table], options.format, table.notes, "tensaurus"), 0


def _operand(options: argparse.Namespace) -> Any:
    from polymodel.sparse.density import Uniform
    from polymodel.sparse.files import read_tensor

    if options.file is not None:
        if options.shape is not None or options.nnz is not None:
            raise SpecError(
                [Diagnostic("a file and a shape are given", "leave out --shape and --nnz, or FILE")]
            )
        return read_tensor(options.file)
    if options.shape is None or options.nnz is None:
        raise SpecError([Diagnostic("no tensor is given", "name a file, or give --shape and --nnz")])
    try:
        shape = tuple(int(s) for s in options.shape.split(","))
    except ValueError:
        fault = Diagnostic(
            f"--shape {options.shape}: whole numbers are expected", "write e.g. --shape 100,200"
        )
        raise SpecError([fault]) from None
    return Uniform.of("IJKLMN"[: len(shape)], shape, nnz=options.nnz)


# Headings of a page, by the names of its tables.
_HEADS = {
    "einsums": "Work and time per Einsum", "ranks": "Coordinate accesses per loop rank",
    "slices": "Parts of partitioned inputs", "space": "Load per space point", "memories": "Bits moved",
    "units": "Work of units", "predictions": "What density models expect, beside exact counts",
    "tensaurus": "Kernel on the Tensaurus accelerator", "published": "What the paper states",
}  # fmt: skip


def _formatted(tables: list[Table], style: str, notes: tuple[str, ...], command: str) -> str:
    from html import escape

    from polymodel.report.export import table_json
    from polymodel.report.page import page

    if style == "csv":
        return "\n".join(t.to_csv() for t in tables)
    if style == "json":
        return table_json(tables[0]) if len(tables) == 1 else _object(tables)
    if style == "html":
        told = "".join(f'<p class="note">{escape(n)}</p>' for n in notes)
        shown = "".join(f"<h2>{_HEADS[t.name]}</h2>{t.html()}" for t in tables if t.rows)
        return page(f"polymodel {command}", shown + told)
    return "\n\n".join(t.text(indent="") for t in tables) + "\n"


def _object(tables: list[Table]) -> str:
    import json

    return json.dumps({t.name: t.records() for t in tables}, indent=1) + "\n"


def _write(path: Path, text: str) -> Path:
    from polymodel.spec.output import write_text

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    return path


def _told(files: list[Path], style: str) -> str:
    told = f"saved {', '.join(map(str, files))}\n"
    if style == "table":
        return f"\n{told}"
    sys.stderr.write(told)
    return ""
