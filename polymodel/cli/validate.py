"""The command `polymodel validate`: all checks that need no counting."""

from __future__ import annotations

import argparse
import json

from polymodel.cli.codes import BAD_INPUT, FINE, REFUSED
from polymodel.cli.options import add_sources
from polymodel.cli.progress import waiting
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, Refused, SpecError

NAME, ABOUT = "validate", "Check a spec and its mapping's legality; evaluate nothing."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources and the output format."""
    add_sources(parser)
    explained = "text (default), or JSON with the code and place of every fault, for editors and scripts"
    parser.add_argument("--format", choices=("table", "json"), default="table", help=explained)


@waiting("reading")
def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print a summary of the spec, or all its faults."""
    if options.format == "table":
        parts, notes = _checked(options)
        return "\n".join([f"fine: {', '.join(parts)}", *(f"note: {note}" for note in notes), ""]), FINE
    parts, notes = [], []
    faults: tuple[Diagnostic, ...] = ()
    code = FINE
    try:
        parts, notes = _checked(options)
    except SpecError as error:
        faults, code = error.diagnostics, BAD_INPUT
    except Refused as error:
        faults, code = (Diagnostic(error.message, error.remedy, code=error.code),), REFUSED
    found = {"fine": not faults, "parts": parts, "notes": notes, "faults": [f.record() for f in faults]}
    return json.dumps(found, indent=2) + "\n", code


def _checked(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the summary of the spec and remarks about it. Raises SpecError listing all faults, or
    Refused.
    """
    spec = load_spec(options)
    unbound = [name for name, value in spec.symbols.items() if value is None]
    parts: list[str] = []
    notes: list[str] = []
    if spec.raw_arch is not None and not unbound:
        parts.append(f"architecture with {_number(len(spec.arch.components), 'component')}")
        free = ", ".join(" ".join(pair) for pair in spec.arch.free_actions)
        notes += [f"no energy is given for {free}, so they cost none"] if free else []
    if spec.teaal is not None:
        parts.append(f"TeAAL spec with {_number(len(spec.teaal.expressions), 'Einsum')}")
    if spec.raw_workload is not None and not unbound:
        parts.append(f"workload with {_number(len(spec.workload), 'Einsum')}")
    if spec.template is not None and not unbound:
        from polymodel.analysis.result import Problem, pipelines_of
        from polymodel.schedule.legality import require_legal

        assert spec.mapping is not None
        problem = Problem(spec.workload, spec.arch, spec.mapping)
        require_legal(problem)
        pipelines_of(problem)
        parts.append(f"legal mapping with {_number(sum(1 for _ in spec.mapping.walk()), 'node')}")
    notes += spec.remarks
    if unbound:
        parts.append(f"symbols without a value: {', '.join(unbound)} (dependences wait for them)")
    if not parts:
        nothing = f"{', '.join(options.sources)}: there is no workload, architecture or mapping in it"
        message = "begin a section with `workload:`, `arch:` or `mapping:`"
        raise SpecError([Diagnostic(nothing, message, code="missing-section")])
    return parts, notes


def _number(many: int, what: str) -> str:
    return f"{many} {what}" if many == 1 else f"{many} {what}s"
