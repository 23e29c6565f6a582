"""The command `polymodel execute`: run a TeAAL spec on sparse data, or compute a workload."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from polymodel.cli.codes import FINE, INFEASIBLE, REFUSED
from polymodel.cli.output import check_html, check_table, saved_files, tell, write_file
from polymodel.cli.parser import symbols
from polymodel.cli.progress import waiting
from polymodel.cli.teaal import (
    add_data,
    add_outputs,
    carried,
    last_generation,
    load_with_data,
    require_teaal,
    title_of,
)
from polymodel.cli.tensors import rank_sizes, tensors_of
from polymodel.errors import writing

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.report.execution import ExecutionReport, Pictures
    from polymodel.sparse.execute.check import Check
    from polymodel.sparse.execute.records import Execution
    from polymodel.sparse.tensor import SparseTensor
    from polymodel.spec.teaal.records import TeaalSpec

NAME = "execute"
ABOUT = (
    "Run a TeAAL spec on sparse data: results, exact work, accesses, time; or compute a workload's values."
)
UNCHECKED = REFUSED
PICTURES = TREES, PAGE = "fibertrees.svg", "activity.html"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the spec, its data and outputs."""
    add_data(parser)
    parser.add_argument(
        "--var", action="append", default=[], metavar="NAME=VALUE", help="template variable of a workload"
    )
    parser.add_argument("--check", action="store_true", help="compare the results with dense arithmetic")
    parser.add_argument(
        "--kept-slices", action="store_true", help="later Einsums use the slices of the first one"
    )
    add_outputs(parser, "the results as .mtx or .tns, pictures of a small run")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Run a TeAAL spec on data, count all actions, and print the counts; or compute a workload's values."""
    from polymodel.cli.computed import computed

    with waiting("counting"):
        spec = load_with_data(options)
        if spec.teaal is None and spec.raw_workload is not None:
            return computed(options, spec)
        return _executed(options, require_teaal(options, spec))


def _executed(options: argparse.Namespace, spec: Spec) -> tuple[str, int]:
    from polymodel.report.execution import ExecutionReport, drawn_blocks, is_small, pictures
    from polymodel.sparse.execute.run import run
    from polymodel.spec.files import claim
    from polymodel.view.answer import formatted_tables, notes, sections_of

    assert spec.teaal is not None, "load_teaal has looked"
    check_table(options.table, tuple(ExecutionReport.declared))
    check_html(options.html)
    if options.out:
        made = [(e.name, len(spec.teaal.declaration[e.name])) for e in spec.teaal.expressions]
        claim(*(_result_file(Path(options.out), *one) for one in made))
    given, sizes = symbols(options.set), rank_sizes(options.size)
    slices: Literal["own", "kept"] = "kept" if options.kept_slices else "own"
    tensors = tensors_of(options, spec, sizes)
    again = partial(run, spec.teaal, rank_sizes=sizes, symbols=given, slices=slices)
    found = _generations(options, again, spec.teaal, tensors)
    again = partial(again, found.tensors)
    report = ExecutionReport(found)
    told, code = _checks(found) if options.check else ("", FINE)
    tables = sections_of(report, options.table)
    whole = "" if options.table is not None else str(report)
    drawn = None
    if options.out or options.html or (options.format == "html" and options.table is None):
        drawn = pictures(again(keep_loops=True) if is_small(found) else found)
    title = f"polymodel execute {title_of(options.spec)}"
    checked = notes(told.splitlines())
    if options.format == "table":
        text = (whole or formatted_tables(tables, "table", title)) + told
    else:
        pictured = drawn_blocks(drawn if whole else None)
        text = formatted_tables(tables, options.format, title, [*pictured, *checked])
        tell(told if options.format != "html" else "")
    files: list[Path] = []
    if options.out:
        files += _saved(Path(options.out), report, found, drawn)
    if options.html:
        page = formatted_tables(sections_of(report), "html", title, [*drawn_blocks(drawn), *checked])
        files.append(write_file(Path(options.html), page))
    return text + (saved_files(files, options.format) if files else ""), code


def _generations(
    options: argparse.Namespace,
    run: Callable[[Mapping[str, SparseTensor]], Execution],
    teaal: TeaalSpec,
    tensors: Mapping[str, SparseTensor],
) -> Execution:
    """Return the results of the cascade, of one run or of one run per generation."""
    from polymodel.sparse.execute.generations import execute_generations

    carry, until = carried(options), last_generation(options)
    if carry is None and until is None:
        return run(tensors)
    return execute_generations(run, teaal, tensors, carry or {}, until)


def _checks(found: Execution) -> tuple[str, int]:
    """Print the results of the checks; returns 1 if a result differs, otherwise 3 if one could not be
    checked."""
    from polymodel.sparse.execute.check import Unchecked

    lines, codes = [], {FINE}
    for one in found.checks():
        if isinstance(one, Unchecked):
            remedy = f"\n  remedy: {one.refused.remedy}" if one.refused.remedy else ""
            lines.append(f"{one.einsum} was not checked: {one.refused.message}{remedy}\n")
            codes.add(UNCHECKED)
        else:
            lines.append(f"{_checked(one)}\n")
            codes.add(FINE if one.agrees else INFEASIBLE)
    return "".join(lines), INFEASIBLE if INFEASIBLE in codes else max(codes)


def _checked(check: Check) -> str:
    how = "agrees with" if check.agrees else f"differs by {check.largest_difference:g} from"
    return f"{check.einsum} {how} {check.reference} in {check.points:,} points"


def _saved(folder: Path, report: ExecutionReport, found: Execution, drawn: Pictures | None) -> list[Path]:
    """Save all tables and results; for a small run also its fibertrees and a page that steps through it."""
    files = list(report.to_csv(folder))
    files += [_result(folder, result) for result in found.results.values() if result.ranks]
    if drawn is not None and drawn.trees is not None:
        files.append(write_file(folder / TREES, drawn.trees.svg))
    if drawn is not None and drawn.page is not None:
        files.append(write_file(folder / PAGE, drawn.page.html))
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
