"""Keys at the top of a file that are no section: what is told of them, and which are left alone."""

from __future__ import annotations

from collections.abc import Mapping

from polymodel.errors import Diagnostic
from polymodel.spec.base import SchemaObject
from polymodel.spec.faults import close_to
from polymodel.spec.source import Entry
from polymodel.spec.teaal.schema import SECTIONS as TEAAL

# What a file may say of itself, and the beginning of keys for whatever else, such as anchors.
FREE, OWN = ("name", "description", "notes"), "x-"
# Keys that people write at the top -> what to write instead.
_ELSEWHERE = {
    "constraints": "what a search may look at is said in `explore:`, e.g. explore: {max_fused_loops: 0}; "
    "what a memory keeps in its `tensors: {keep: ...}`",
    "metrics": "write `objectives:` in `explore:`",
    "problem": "the Einsums stand in `workload:`",
    "architecture": "the machine stands in `arch:`; of a TeAAL spec, in a file with `einsum:`",
}


def unknown_section(entry: Entry, sections: Mapping[str, type[SchemaObject]]) -> Diagnostic | None:
    """The fault of a key at the top that nothing reads; None for those that are free."""
    key = entry.key
    if key in FREE or key.startswith(OWN):
        return None
    known = (*sections, "symbols", "schema_version")
    above = [f"`{name}:`" for name, model in sections.items() if key in model.model_fields]
    near = close_to(key, known)
    if key in _ELSEWHERE:
        remedy = _ELSEWHERE[key]
    elif above:
        remedy = f"write it in {' or '.join(above)}"
    elif key in TEAAL:
        remedy = "it belongs to a TeAAL spec: keep it in the file that has `einsum:` with `declaration:`"
    elif near:
        remedy = f"did you mean {near}?"
    else:
        remedy = f"sections: {', '.join(known)}; for notes of your own, and anchors: `x-{key}:`"
    place = entry.source.place(entry.line, entry.column)
    return Diagnostic(f"unknown section `{key}`", remedy, key, place)
