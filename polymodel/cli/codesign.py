"""The command `polymodel codesign`: its options, progress line, and printed and saved results."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE, INFEASIBLE, INTERRUPTED, REFUSED
from polymodel.cli.options import add_search, add_sources
from polymodel.cli.output import check_search, check_table, tell, write_page
from polymodel.cli.parser import named_values, pairs, symbols
from polymodel.cli.progress import Searches
from polymodel.cli.specs import load_spec, variables, with_files
from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.hardware.answer import Codesign
    from polymodel.loading import Spec

NAME = "codesign"
ABOUT = "Find the best machines together with their mappings: one front of both."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, networks, symbols of the hardware, objectives, limits and outputs."""
    add_sources(parser)
    _add_networks(parser)
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
        help="energy, latency, edp, area, working_set:MEMORY, or weighted sums of them, also 'latency of "
        "NETWORK' and 'latency of each'; repeat it (default: those of the `codesign:` section, else energy, "
        "latency and area)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        metavar="TEXT",
        help="a figure that may be at most so much, e.g. 'area <= 4 mm^2', 'latency <= 2 ms' or 'latency of "
        "each <= 2 ms'",
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
    parser.add_argument(
        "--table",
        metavar="NAME",
        help="print this table alone: front, networks, machines, symbols, layer_costs, blocks or roofline",
    )
    parser.add_argument(
        "--eps", type=float, metavar="E", help="omit points within a factor 1 + E of one that is kept"
    )
    add_search(
        parser,
        "processes, one search each",
        "save the tables, and every mapping of the front as YAML",
        ", with the picture of the front",
    )


def _add_networks(parser: argparse.ArgumentParser) -> None:
    """Add the options for several networks on one machine, and for their weights."""
    parser.add_argument(
        "--network",
        action="append",
        default=[],
        metavar="NAME=SPEC",
        help="a workload that runs on the machine of the other sources, several files joined by commas; "
        "repeat it for several networks on one machine (default: those of the `codesign:` section)",
    )
    parser.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="how much a network counts in figures of all together (default: 1)",
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Search and print the joint front; exit code 1 if no machine has a mapping within the limits."""
    from polymodel.hardware.answer import Codesign
    from polymodel.hardware.search import codesign

    check_table(options.table, tuple(Codesign.declared))
    layers = _networks(options) if options.network else load_spec(options)
    check_search(options)
    bar = Searches(sys.stderr.write, live=sys.stderr.isatty())
    result = codesign(
        layers,
        named_values(options.hardware, "--hardware") or None,
        objectives=options.objective,
        limits=options.limit,
        where=options.where,
        weights=_weights(options.weight) or None,
        layer_by_layer=options.layer_by_layer,
        eps=options.eps,
        time_limit=options.seconds,
        workers=options.workers,
        progress=bar,
        store=options.store,
        resume=not options.no_resume,
    )
    bar.finish()
    text = _text(result, options.format, options.table)
    if options.out:
        saved = result.save(options.out)
        mappings = "point-I-layer-J.yaml for each point and layer"
        tell(f"saved {len(saved)} files in {options.out}: tables, and {mappings}\n")
    write_page(result, options)
    if result.interrupted:
        return text, INTERRUPTED
    if not len(result) and not result.complete:
        return text, REFUSED  # the time limit has passed: whether anything fits is unknown
    return text, FINE if len(result) else INFEASIBLE


def _networks(options: argparse.Namespace) -> dict[str, Spec]:
    """Return the networks, each on the machine of the sources; a template variable is passed to the networks
    that use it."""
    from polymodel.loading.reading import load_many

    sides = {
        name: [*options.sources, *text.split(",")]
        for name, text in pairs(options.network, "--network", words=False).items()
    }
    specs, notes = load_many(sides, variables(options.var), symbols(options.set))
    tell("".join(f"note: {n}\n" for n in notes))
    some = [with_files(s).only(*options.einsum) if options.einsum else with_files(s) for s in specs]
    return dict(zip(sides, some, strict=True))


def _weights(texts: list[str]) -> dict[str, float]:
    """Return the weights by network. Raises SpecError for a weight that is not a number."""
    from polymodel.spec.numbers import plain_number

    result: dict[str, float] = {}
    faults = []
    for name, text in pairs(texts, "--weight", words=False).items():
        number = plain_number(text)
        if number is None:
            what = f"--weight {name}={text}: {text} is not a number"
            faults.append(Diagnostic(what, f"write e.g. --weight {name}=3", code="not-a-number"))
        else:
            result[name] = number
    if faults:
        raise SpecError(faults)
    return result


def _text(found: Codesign, style: str, name: str | None) -> str:
    from polymodel.view.files import table_json

    if style == "table" and name is None:
        return f"{found!r}\n"
    table = found.table(name or "front")
    if style == "table":
        return f"{table.text()}\n"
    tell("".join(f"{n}\n" for n in found.notes))
    return table_json(table) if style == "json" else table.to_csv()
