"""The command `polymodel distribute`: a cascade distributed over several chips."""

from __future__ import annotations

import argparse
import sys

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.options import add_search, add_sources
from polymodel.cli.output import check_search, tell, write_page
from polymodel.cli.progress import Searches
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, SpecError

NAME = "distribute"
ABOUT = "Split a cascade over several chips: what they exchange, and what that costs."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, chips, the split, the interconnect and outputs."""
    add_sources(parser)
    parser.add_argument(
        "--chips",
        metavar="N,N,...",
        help="numbers of chips (default: 1,2,4,8); with --stages the number of each stage (default: 1)",
    )
    parser.add_argument(
        "--split",
        required=True,
        metavar="NAME,NAME,...",
        help="rank variables; each Einsum is split along the first that it has, and computed by every chip "
        "if it has none",
    )
    parser.add_argument(
        "--stages",
        metavar="NAME,...;NAME,...",
        help="a pipeline: the Einsums of each stage, stages separated by `;`; work passes through in batches",
    )
    parser.add_argument(
        "--batches", metavar="N,N,...", help="into how many blocks of --split the work is cut (default: 1)"
    )
    parser.add_argument(
        "--within",
        metavar="NAME,NAME,...",
        help="rank variables along which the chips of a stage share its work, each Einsum along the first "
        "that it has",
    )
    parser.add_argument(
        "--topology", default="ring", metavar="NAME", help="ring, mesh, switch or all-to-all (default: ring)"
    )
    parser.add_argument("--shape", metavar="ROWSxCOLUMNS", help="of a mesh, e.g. 2x4")
    parser.add_argument(
        "--throughput", default="inf", metavar="RATE", help="of a link in one direction, e.g. '50 GB/s'"
    )
    parser.add_argument(
        "--energy-per-bit-hop", default="0", metavar="ENERGY", help="of one bit over one link, e.g. '5 pJ'"
    )
    parser.add_argument(
        "--sharded",
        action="store_true",
        help="results stay where they are made (default: every chip gets them)",
    )
    parser.add_argument(
        "--objective", default="latency", metavar="NAME", help="energy, latency or edp (default: latency)"
    )
    add_search(parser, "processes, one search each", "save the tables", ", with the picture of the chips")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Search and print the result; exit code 1 if the cascade fits on no number of chips."""
    from polymodel.hardware.collectives import Interconnect
    from polymodel.hardware.distribution import distribute
    from polymodel.view.files import table_json

    spec = load_spec(options)
    check_search(options)
    link = Interconnect(
        options.topology, options.throughput, options.energy_per_bit_hop, _shape(options.shape)
    )
    bar = Searches(sys.stderr.write, live=sys.stderr.isatty())
    result = distribute(
        spec,
        _counts("chips", options.chips),
        split=_names(options.split),
        stages=None if options.stages is None else [_names(one) for one in options.stages.split(";")],
        batches=_counts("batches", options.batches),
        within=None if options.within is None else _names(options.within),
        link=link,
        whole=not options.sharded,
        objective=options.objective,
        time_limit=options.seconds,
        workers=options.workers,
        progress=bar,
        store=options.store,
        resume=not options.no_resume,
    )
    bar.finish()
    if options.out:
        tell(f"saved {len(result.to_csv(options.out))} tables in {options.out}\n")
    write_page(result, options)
    code = FINE if any(not piece.reason for count in result.counts for piece in count.pieces) else INFEASIBLE
    if options.format == "table":
        return f"{result}\n", code
    table = result.table("chips")
    return table_json(table) if options.format == "json" else table.to_csv(), code


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(option: str, text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(n) for n in text.split(",")]
    except ValueError:
        what = f"--{option} {text}: not numbers of {option}"
        raise SpecError([Diagnostic(what, "write e.g. 1,2,4", code="not-a-number")]) from None


def _shape(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    rows, _, columns = text.partition("x")
    try:
        return int(rows), int(columns)
    except ValueError:
        message = f"--shape {text}: not rows and columns"
        raise SpecError([Diagnostic(message, "write e.g. 2x4", code="not-a-number")]) from None
