"""The command line: `polymodel validate | show | evaluate | compare | timeline | sweep | explore | ...`.

Exit codes: 0 fine, 1 infeasible, 2 bad input, 3 refused, or out of memory or time, 70 a bug
of polymodel's own, 130 interrupted. Output is written whole or not at all; faults go to stderr.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from polymodel.cli_common import (
    OUT_OF_MEMORY,
    Parser,
    formatted,
    pairs,
    parsed,
    saved_text,
    symbols,
    with_told,
)
from polymodel.cli_explore import add_options as add_explore_options
from polymodel.cli_explore import run_explore
from polymodel.cli_import import add_import_command
from polymodel.cli_limits import add_limits, governed
from polymodel.cli_new import add_new_commands
from polymodel.cli_process import environment, put_out, streams_open, unforeseen
from polymodel.cli_sparse import add_sparse_commands
from polymodel.cli_sweep import INTERRUPTED, add_options, run_sweep
from polymodel.cli_tile import add_tile_command
from polymodel.cli_timeline import add_options as add_timeline_options
from polymodel.cli_timeline import run_timeline
from polymodel.cli_written import add_html, check_html, claim_outputs, save_page
from polymodel.errors import Diagnostic, LimitReached, Refused, SpecError, mending
from polymodel.inputs import reading, watching
from polymodel.processes import terminable

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.report.report import Report

FINE, INFEASIBLE, BAD_INPUT, REFUSED, BUG = 0, 1, 2, 3, 70
DATA = ("json", "csv", "html")  # formats for other programs
CODES = (
    "exit codes: 0 fine, 1 infeasible, 2 bad input, 3 refused (outside what is counted exactly), or "
    "out of memory or time, 70 a bug of polymodel's own, 130 interrupted (a sweep or an exploration prints "
    "what it has found)"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    command = shlex.join(["polymodel", *(sys.argv[1:] if arguments is None else arguments)])
    try:
        streams_open()
        with terminable():
            return _run(arguments, command)
    except MemoryError:
        print(OUT_OF_MEMORY, file=sys.stderr)
        return REFUSED
    except ImportError as error:
        told = environment(error)
        print(told or unforeseen(error, command, _version()), file=sys.stderr)
        return BAD_INPUT if told else BUG
    except Exception as error:  # noqa: BLE001  # the last barrier: nobody foresaw it, and nobody is behind it
        print(unforeseen(error, command, _version()), file=sys.stderr)
        return BUG


def _run(arguments: Sequence[str] | None, command: str) -> int:
    options = parsed(build_parser(), arguments)
    options.command = command
    try:
        with watching(), governed(options, alone=arguments is None):
            claim_outputs(options)
            text, code = options.run(options)
    except SpecError as error:
        print("\n".join(d.render() for d in error.diagnostics), file=sys.stderr)
        return BAD_INPUT
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return REFUSED
    except LimitReached as error:
        print(f"stopped: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        fault = Diagnostic(f"{error.filename or 'file'}: {error.strerror or error}", mending(error))
        print(fault.render(), file=sys.stderr)
        return BAD_INPUT
    found: int = code
    return found if put_out(text, getattr(options, "format", "table") in DATA) else BAD_INPUT


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser: argparse.ArgumentParser = Parser(
        prog="polymodel",
        description="What a tensor workload costs on a memory hierarchy under a mapping, counted exactly.",
        epilog=CODES,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=_version())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _validate_command(commands)
    _show_command(commands)
    _evaluate_command(commands)
    _compare_command(commands)
    _timeline_command(commands)
    _sweep_command(commands)
    _explore_command(commands)
    add_sparse_commands(partial(_add, commands), _load)
    add_tile_command(partial(_add, commands))
    add_import_command(partial(_add, commands))
    add_new_commands(partial(_add, commands))
    return parser


def _version() -> str:
    from polymodel import __version__

    return f"polymodel {__version__}"


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add(commands: Commands, name: str, about: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=about, epilog=CODES, allow_abbrev=False)
    parser.set_defaults(name_of_command=name)
    add_limits(parser, name)
    return parser


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sources", nargs="+", metavar="SPEC", help="YAML file or library name; several are joined"
    )
    _add_values(parser)


def _add_values(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=NUMBER", help="value of a symbol, e.g. TN2=3"
    )
    parser.add_argument(
        "--var",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="template variable, e.g. N_TOKENS=2048",
    )


def _add_engine(parser: argparse.ArgumentParser) -> None:
    names = ("auto", "exact", "enumerate", "symbolic")
    parser.add_argument("--engine", choices=names, default="auto", help="who counts (default: auto)")


def _validate_command(commands: Commands) -> None:
    parser = _add(commands, "validate", "Check a spec and its mapping's legality; evaluate nothing.")
    _add_sources(parser)
    parser.set_defaults(run=run_validate)


def _show_command(commands: Commands) -> None:
    parser = _add(commands, "show", "Show the workload, the architecture and the LoopTree of a spec.")
    _add_sources(parser)
    parser.add_argument(
        "--format", choices=("table", "html"), default="table", help="text (default) or a page"
    )
    add_html(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="also write cascade.svg, architecture.svg and looptree.svg"
    )
    parser.set_defaults(run=run_show)


def _evaluate_command(commands: Commands) -> None:
    parser = _add(commands, "evaluate", "Evaluate a spec and print the report.")
    _add_sources(parser)
    _add_engine(parser)
    parser.add_argument(
        "--format", choices=("table", "json", "csv", "html"), default="table", help="default: table"
    )
    parser.add_argument(
        "--table", metavar="NAME", help="print this table alone (default with --format csv: summary)"
    )
    parser.add_argument(
        "--live", action="store_true", help="also count lifetimes of single elements (slower)"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="also save CSV tables, report.json, report.html and SVGs"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="also save the whole report as one page, with pictures and plots"
    )
    parser.add_argument(
        "--parquet", action="store_true", help="with --out: save the tables as parquet as well"
    )
    parser.set_defaults(run=run_evaluate)


def _compare_command(commands: Commands) -> None:
    parser = _add(commands, "compare", "Evaluate two specs and put them side by side.")
    parser.add_argument("a", metavar="A", help="spec A: a file or name, or several joined by commas")
    parser.add_argument("b", metavar="B", help="spec B")
    parser.add_argument(
        "--with",
        dest="common",
        action="append",
        default=[],
        metavar="SPEC",
        help="joined to both, e.g. the workload; several joined by commas",
    )
    _add_values(parser)
    _add_engine(parser)
    parser.add_argument("--format", choices=("table", "json", "csv", "html"), default="table")
    add_html(parser)
    parser.set_defaults(run=run_compare)


def _timeline_command(commands: Commands) -> None:
    parser = _add(commands, "timeline", "Show what a memory holds phase by phase, and explain its peak.")
    _add_sources(parser)
    add_timeline_options(parser)
    parser.set_defaults(
        engine="auto", run=lambda options: run_timeline(options, _evaluated(options, options.sources))
    )


def _sweep_command(commands: Commands) -> None:
    parser = _add(commands, "sweep", "Evaluate every combination of symbols' values and keep the best.")
    _add_sources(parser)
    add_options(parser)
    parser.set_defaults(run=lambda options: run_sweep(options, _load(options, options.sources)))


def _explore_command(commands: Commands) -> None:
    parser = _add(
        commands, "explore", "Find the best whole mappings: the Pareto front of all that are valid."
    )
    _add_sources(parser)
    add_explore_options(parser)
    parser.set_defaults(run=lambda options: run_explore(options, _load(options, options.sources)))


def _load(options: argparse.Namespace, sources: Sequence[str]) -> Spec:
    from polymodel.loading import load

    return _read(load(*sources, variables=_variables(options), symbols=symbols(options.set)))


def _read(spec: Spec) -> Spec:
    """The spec; files that it names are inputs too, and some of them are not read before the end."""
    from polymodel.loading.named import named_files

    for file in named_files(spec).values():
        reading(file)
    return spec


def _variables(options: argparse.Namespace) -> dict[str, object]:
    """The values of `--var`; numbers where they are some."""
    from polymodel.spec.numbers import plain_number

    given = pairs(options.var, "--var")
    numbers = {name: plain_number(text) for name, text in given.items()}
    return {name: text if numbers[name] is None else numbers[name] for name, text in given.items()}


def run_validate(options: argparse.Namespace) -> tuple[str, int]:
    """Everything that can be checked without counting."""
    spec = _load(options, options.sources)
    unbound = [name for name, value in spec.symbols.items() if value is None]
    parts, notes = [], ""
    if spec.raw_arch is not None and not unbound:
        parts.append(f"architecture with {len(spec.arch.components)} components")
        free = ", ".join(" ".join(pair) for pair in spec.arch.free_actions)
        notes = f"note: no energy is given for {free}, so they cost none\n" if free else ""
    if spec.teaal is not None:
        parts.append(f"TeAAL spec with {len(spec.teaal.expressions)} Einsums")
    if spec.raw_workload is not None and not unbound:
        parts.append(f"workload with {len(spec.workload)} Einsums")
    if spec.template is not None and not unbound:
        from polymodel.analysis.engine import Problem
        from polymodel.analysis.pipelined import pipelines_of
        from polymodel.schedule.gate import require_legal

        assert spec.mapping is not None
        problem = Problem(spec.workload, spec.arch, spec.mapping)
        require_legal(problem)
        pipelines_of(problem)
        parts.append(f"legal mapping with {sum(1 for _ in spec.mapping.walk())} nodes")
    notes += "".join(f"note: {remark}\n" for remark in spec.remarks)
    if unbound:
        parts.append(f"symbols without a value: {', '.join(unbound)} (dependences wait for them)")
    if not parts:
        nothing = f"{', '.join(options.sources)}: there is no workload, architecture or mapping in it"
        raise SpecError([Diagnostic(nothing, "begin a section with `workload:`, `arch:` or `mapping:`")])
    return f"fine: {', '.join(parts)}\n{notes}", FINE


def run_show(options: argparse.Namespace) -> tuple[str, int]:
    """The parts of a spec as text or pictures."""
    from polymodel.report.show import show_html, show_pictures, show_text

    spec = _load(options, options.sources)
    parts = spec.resolved
    if spec.teaal is None:
        parts = (
            spec.workload if spec.raw_workload is not None else None,
            spec.arch if spec.raw_arch is not None else None,
            spec.mapping,
        )
    whole = f"{spec}\n" if spec.teaal is not None else ""
    drawn = partial(show_html, *parts, whole)
    text = drawn() if options.format == "html" else whole or show_text(*parts)
    saved = save_page(options.html, drawn)
    if options.out:
        saved.append(f"saved {', '.join(map(str, show_pictures(Path(options.out), *parts)))}")
    return with_told(text, saved, options.format != "html"), FINE


def _evaluated(options: argparse.Namespace, sources: Sequence[str]) -> Report:
    from polymodel.evaluate import evaluate

    return evaluate(_load(options, sources), engine=options.engine)


def run_evaluate(options: argparse.Namespace) -> tuple[str, int]:
    """The report in the chosen format; exit code 1 if something does not fit."""
    from polymodel.report.beside import verdict
    from polymodel.report.export import check_table

    if options.table is not None:
        check_table(options.table)
    if options.parquet and not options.out:
        raise SpecError([Diagnostic("--parquet needs a folder", "add --out DIR")])
    check_html(options.html)
    report = _evaluated(options, options.sources)
    text, told = formatted(report, options), []
    if options.html:
        report.to_html(options.html, live=options.live, command=options.command)
        told.append(f"saved {options.html}")
    if options.out:
        from polymodel.report.export import save

        saved = save(report, options.out, live=options.live, parquet=options.parquet, command=options.command)
        told.append(saved_text(saved))
    text = with_told(text, told, options.format == "table")
    return text, FINE if verdict(report)[0] else INFEASIBLE


def run_compare(options: argparse.Namespace) -> tuple[str, int]:
    """Two reports side by side; exit code 1 if either does not fit."""
    from polymodel.evaluate import evaluate
    from polymodel.loading.beside import load_beside
    from polymodel.report.compare import compare

    common = [name for text in options.common for name in text.split(",")]
    sides = {"a": [*common, *options.a.split(",")], "b": [*common, *options.b.split(",")]}
    specs, notes = load_beside(sides, _variables(options), symbols(options.set))
    a, b = (evaluate(_read(spec), engine=options.engine) for spec in specs)
    found = compare(a, b)
    code = FINE if a.feasible and b.feasible else INFEASIBLE
    written = partial(found.written, options.a, options.b, [f"note: {n}" for n in notes])
    told = save_page(options.html, partial(written, "html"))
    return with_told(written(options.format), told, options.format == "table"), code


if __name__ == "__main__":
    sys.exit(main())
