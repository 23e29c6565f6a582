"""The command `polymodel codesign`: options, a progress line, and what is printed and saved."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.options import add_search, add_sources, named_values
from polymodel.cli.output import check_targets, tell, write_page
from polymodel.cli.progress import Searches
from polymodel.cli.specs import load_spec

if TYPE_CHECKING:
    from polymodel.hardware.answer import Codesign

NAME = "codesign"
ABOUT = "Find the best machines together with their mappings: one front of both."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Sources, the hardware's symbols, objectives, limits, and outputs."""
    add_sources(parser)
    parser.add_argument(
        "--hardware",
        action="append",
        default=[],
        metavar="NAME=VALUES",
        help="values of a symbol of the architecture: 8,16,32 or powers(2,64), range(1,9), or 2*F (default: "
        "those of the `codesign:` section)",
    )
    parser.add_argument(
        "--objective",
        action="append",
        metavar="NAME",
        help="energy, latency, edp, area, working_set:MEMORY, or weighted sums of them; repeat it (default: "
        "those of the `codesign:` section, else energy, latency and area)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="TEXT",
        help="a figure that may be at most so much, e.g. 'area <= 4 mm^2' or 'latency <= 2 ms'",
    )
    parser.add_argument(
        "--where",
        action="append",
        metavar="TEXT",
        help="what machines must satisfy, e.g. 'KIB >= F'",
    )
    parser.add_argument(
        "--layer-by-layer",
        action="store_true",
        default=None,
        help="each Einsum is a layer of its own: nothing is fused, equal ones are searched once",
    )
    parser.add_argument("--eps", type=float, metavar="E", help="leave out what is within 1 + E")
    add_search(
        parser,
        "processes, one search each",
        "save the tables, and every mapping of the front as YAML",
        ", with the picture of the front",
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Search and print the joint front; exit code 1 if no machine has a mapping that keeps the limits."""
    from polymodel.hardware.search import codesign

    spec = load_spec(options)
    check_targets(options)
    bar = Searches(sys.stderr.write, live=sys.stderr.isatty())
    found = codesign(
        spec,
        named_values(options.hardware, "--hardware") or None,
        objectives=options.objective,
        limits=options.limit,
        where=options.where,
        layer_by_layer=options.layer_by_layer,
        eps=options.eps,
        time_limit=options.seconds,
        workers=options.workers,
        progress=bar,
        store=options.store,
        resume=not options.no_resume,
    )
    bar.finish()
    text = _text(found, options.format)
    if options.out:
        saved = found.save(options.out)
        mappings = "point-I-layer-J.yaml for each point and layer"
        tell(f"saved {len(saved)} files in {options.out}: tables, and {mappings}\n")
    write_page(found, options)
    return text, FINE if len(found) else INFEASIBLE


def _text(found: Codesign, style: str) -> str:
    from polymodel.view.files import table_json

    if style == "table":
        return f"{found!r}\n"
    tell("".join(f"{n}\n" for n in found.notes))
    return table_json(found.table("front")) if style == "json" else found.table("front").to_csv()
