"""Why a search found nothing: its diagnosis, or what its stages tell."""

from __future__ import annotations

from polymodel.mapper.records import Found


def why_empty(found: Found) -> str:
    """Which constraint rules out how much where, and the least that admits a mapping, a line each; without a
    diagnosis the first step that left nothing, and what became of its points."""
    if found.diagnosis is not None and found.diagnosis.text:
        return found.diagnosis.text
    if not found.complete:
        return "the search ended before it had a whole mapping"
    for stage in found.stages:
        if stage.kept:
            continue
        what = stage.of.removeprefix("join ")
        if stage.too_large and stage.of.startswith("join "):
            return (
                f"with Einsum {what} joined to those before it, all {stage.points} combinations exceed "
                "the size of a memory"
            )
        if stage.too_large:
            return f"all tile sizes of Einsum {what} exceed the size of a memory ({stage.points} mappings)"
        if not stage.templates and not stage.of.startswith("join "):
            return f"the rules on what memories keep leave Einsum {what} no placement of its tensors"
        if not stage.templates:
            return f"no mappings of Einsum {what} share their fused loops with those before it"
    return "nothing fits"
