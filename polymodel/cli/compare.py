"""The command `polymodel compare`: two specs evaluated and shown side by side."""

from __future__ import annotations

import argparse
from functools import partial

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.options import add_einsum, add_engine, add_format, add_html, add_values
from polymodel.cli.output import check_targets, save_formats, save_page, warn_without_plots, with_saved_files
from polymodel.cli.parser import symbols
from polymodel.cli.progress import waiting
from polymodel.cli.specs import variables, with_files

NAME, ABOUT = "compare", "Evaluate two specs and show them side by side."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for two specs, for values that both take, and for the engine and outputs."""
    parser.add_argument("a", metavar="A", help="spec A: a file or name, or several joined by commas")
    parser.add_argument("b", metavar="B", help="spec B")
    parser.add_argument(
        "--with",
        dest="common",
        action="append",
        default=[],
        metavar="SPEC",
        help="sources added to both, e.g. the workload; several joined by commas",
    )
    add_einsum(parser)
    add_values(parser)
    add_engine(parser)
    add_format(parser)
    parser.add_argument("--out", metavar="DIR", help="also save it as CSV, JSON, text and one page")
    add_html(parser)


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print two reports side by side; exit code 1 if either mapping does not fit."""
    from polymodel.api.comparison import compare
    from polymodel.api.evaluation import evaluate
    from polymodel.loading.reading import load_many
    from polymodel.report.compare import fits

    check_targets(options)
    common = [name for text in options.common for name in text.split(",")]
    sides = {"a": [*common, *options.a.split(",")], "b": [*common, *options.b.split(",")]}
    specs, notes = load_many(sides, variables(options.var), symbols(options.set))
    parts = [with_files(spec).only(*options.einsum) if options.einsum else with_files(spec) for spec in specs]
    with waiting("counting"):
        a, b = (evaluate(spec, engine=options.engine) for spec in parts)
    comparison = compare(a, b, _apart(options.a.split(","), options.b.split(",")))
    code = FINE if fits(a) and fits(b) else INFEASIBLE
    written = partial(comparison.written, options.a, options.b, [f"note: {n}" for n in notes])
    told = save_page(options.html, partial(written, "html"))
    if options.html:
        warn_without_plots()
    told += save_formats(options.out, NAME, written) if options.out else []
    return with_saved_files(written(options.format), told, options.format == "table"), code


def _apart(a: list[str], b: list[str]) -> tuple[str, str]:
    """The names of the two sides: what one has and the other has not, or all."""
    left, right = ([x for x in some if x not in other] or some for some, other in ((a, b), (b, a)))
    return ", ".join(left), ", ".join(right)
