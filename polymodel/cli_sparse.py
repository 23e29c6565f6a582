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
    from polymodel.report.execution import ExecutionReport
    from polymodel.report.execution_pictures import Pictures
    from polymodel.sparse.execute.check import Check
    from polymodel.sparse.execute.records import Execution
    from polymodel.sparse.tensor import SparseTensor

Run = Callable[[argparse.Namespace], tuple[str, int]]
INFEASIBLE, UNCHECKED = 1, 3
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
    from polymodel.report.several import formatted_tables

    ranks = tuple(options.ranks.split(",")) if options.ranks is not None else None
    found = predict(*options.files, tiles=_sizes(options.tiles), slices=options.slices, ranks=ranks)
    plain = options.format == "table"
    text = str(found) if plain else formatted_tables([found.table], options.format, found.notes, "sparse")
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
    _add_written(parser, ", the results as .mtx or .tns, pictures of a small run")


def _add_written(parser: argparse.ArgumentParser, more: str) -> None:
    parser.add_argument("--format", choices=FORMATS, default="table", help="default: table")
    parser.add_argument("--table", metavar="NAME", help="print this table alone")
    parser.add_argument(
        "--out", metavar="DIR", help=f"also save the tables as CSV{', ' if more else ''}{more}"
    )
    parser.add_argument("--html", metavar="FILE", help="also save all of it as one page")


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
    _add_written(parser, "")


def run_traffic(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    """Bits per memory and tensor, counts per unit, and times."""
    from polymodel.cli_common import symbols
    from polymodel.cli_written import check_html
    from polymodel.evaluate import traffic
    from polymodel.report.several import formatted_tables
    from polymodel.report.traffic import TITLES, TrafficReport

    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    _check_table(options.table, tuple(TITLES))
    check_html(options.html)
    tensors = tensors_of(options, spec, rank_sizes(options.size))
    found = traffic(spec, tensors, symbols=symbols(options.set), replacement=options.replacement)
    report = TrafficReport(found)
    tables = list(report.tables.values()) if options.table is None else [report.table(options.table)]
    title = f"traffic {_named(options.spec)}"
    plain = options.format == "table" and options.table is None
    text = str(report) if plain else formatted_tables(tables, options.format, report.notes, title)
    files = []
    if options.out:
        files += [_write(Path(options.out) / f"{t.name}.csv", t.to_csv()) for t in report.tables.values()]
    if options.html:
        shown = [table for _, table in report.shown()]
        files.append(_write(Path(options.html), formatted_tables(shown, "html", report.notes, title)))
    return text + (_told(files, options.format) if files else ""), 0


def _check_table(name: str | None, known: tuple[str, ...]) -> None:
    """SpecError for a table that there is not, before anything is counted."""
    if name is not None and name not in known:
        raise SpecError(
            [Diagnostic(f"--table {name}: there is no such table", f"tables: {', '.join(known)}")]
        )


def _named(spec: str) -> str:
    """A spec in a title: a file by its name without folders, another by its own."""
    return Path(spec).name if Path(spec).is_file() else spec


def _no_teaal(name: str) -> Diagnostic:
    return Diagnostic("this is no TeAAL spec", "it needs `einsum:` with a declaration", place=Place(name))


def run_execute(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    """Run a TeAAL spec on data, count everything, and print it."""
    from functools import partial

    from polymodel.cli_common import symbols
    from polymodel.cli_written import check_html
    from polymodel.inputs import claim
    from polymodel.report.execution import TABLES, ExecutionReport
    from polymodel.report.execution_pictures import is_small, pictures
    from polymodel.report.several import formatted_tables
    from polymodel.sparse.execute.run import run

    if spec.teaal is None:
        raise SpecError([_no_teaal(options.spec)])
    _check_table(options.table, TABLES)
    check_html(options.html)
    if options.out:
        made = [(e.name, len(spec.teaal.declaration[e.name])) for e in spec.teaal.expressions]
        claim(*(_result_file(Path(options.out), *one) for one in made))
    given, sizes = symbols(options.set), rank_sizes(options.size)
    slices: Literal["own", "kept"] = "kept" if options.kept_slices else "own"
    tensors = tensors_of(options, spec, sizes)
    again = partial(run, spec.teaal, tensors, rank_sizes=sizes, symbols=given, slices=slices)
    found = again()
    report = ExecutionReport(found)
    told, code = _checks(found) if options.check else ("", 0)
    tables = list(report.tables.values()) if options.table is None else [report.table(options.table)]
    whole = "" if options.table is not None else str(report)
    drawn = None
    if options.out or options.html or (options.format == "html" and options.table is None):
        drawn = pictures(again(keep_loops=True) if is_small(found) else found)
    title = f"execute {_named(options.spec)}"
    notes = tuple(told.splitlines())
    if options.format == "table":
        text = (whole or formatted_tables(tables, "table", (), title)) + told
    else:
        text = formatted_tables(tables, options.format, notes, title, drawn if whole else None)
        sys.stderr.write(told if options.format != "html" else "")
    files: list[Path] = []
    if options.out:
        files += _saved(Path(options.out), report, found, drawn)
    if options.html:
        page = formatted_tables(list(report.tables.values()), "html", notes, title, drawn)
        files.append(_write(Path(options.html), page))
    return text + (_told(files, options.format) if files else ""), code


def _checks(found: Execution) -> tuple[str, int]:
    """What is told of the checks: 1 if a result differs, otherwise 3 if one could not be checked."""
    from polymodel.sparse.execute.check import Unchecked

    lines, codes = [], {0}
    for one in found.checks():
        if isinstance(one, Unchecked):
            remedy = f"\n  remedy: {one.refused.remedy}" if one.refused.remedy else ""
            lines.append(f"{one.einsum} was not checked: {one.refused.message}{remedy}\n")
            codes.add(UNCHECKED)
        else:
            lines.append(f"{_checked(one)}\n")
            codes.add(0 if one.agrees else INFEASIBLE)
    return "".join(lines), INFEASIBLE if INFEASIBLE in codes else max(codes)


def _checked(check: Check) -> str:
    how = "agrees with" if check.agrees else f"differs by {check.largest_difference:g} from"
    return f"{check.einsum} {how} {check.reference} in {check.points:,} points"


def _saved(folder: Path, report: ExecutionReport, found: Execution, drawn: Pictures | None) -> list[Path]:
    """All tables, the results, and of a small run its fibertrees and a page that steps through it."""
    files = [_write(folder / f"{t.name}.csv", t.to_csv()) for t in report.tables.values()]
    files += [_result(folder, result) for result in found.results.values() if result.ranks]
    if drawn is not None and drawn.trees is not None:
        files.append(_write(folder / "fibertrees.svg", drawn.trees.svg))
    if drawn is not None and drawn.page is not None:
        files.append(_write(folder / "activity.html", drawn.page.html))
    return files


def _result(folder: Path, tensor: SparseTensor) -> Path:
    from polymodel.sparse.files import write_tensor

    path = _result_file(folder, tensor.name, len(tensor.ranks))
    folder.mkdir(parents=True, exist_ok=True)
    with writing(path):
        write_tensor(tensor, path)
    return path


def _result_file(folder: Path, name: str, ranks: int) -> Path:
    return folder / f"{name}.{'mtx' if ranks == 2 else 'tns'}"


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
    from polymodel.report.several import formatted_tables
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
    return formatted_tables([table], options.format, table.notes, "tensaurus"), 0


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
