"""The command `polymodel validate`: everything that can be checked without counting."""

from __future__ import annotations

import argparse

from polymodel.cli.codes import FINE
from polymodel.cli.options import add_sources
from polymodel.cli.specs import load_spec
from polymodel.errors import Diagnostic, SpecError

NAME, ABOUT = "validate", "Check a spec and its mapping's legality; evaluate nothing."
add_options = add_sources


def run(options: argparse.Namespace) -> tuple[str, int]:
    """What the spec has, or every fault of it."""
    spec = load_spec(options)
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
        from polymodel.analysis.result import Problem, pipelines_of
        from polymodel.schedule.legality import require_legal

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
        message = "begin a section with `workload:`, `arch:` or `mapping:`"
        raise SpecError([Diagnostic(nothing, message, code="missing-section")])
    return f"fine: {', '.join(parts)}\n{notes}", FINE
