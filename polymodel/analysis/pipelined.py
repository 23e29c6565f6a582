"""What no engine counts of pipelines, refused by name before any of them begins."""

from __future__ import annotations

from math import isinf

from polymodel.analysis.engine import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import Pipeline, StorageNode, pipelines, shared_units


def pipelines_of(problem: Problem) -> tuple[Pipeline, ...]:
    """The pipelines of the mapping, outer ones first; Refused for what docs/semantics.md leaves out."""
    found = pipelines(problem.tree)
    if not found:
        return ()
    idle = [e.name for e in problem.cascade.einsums if e.is_copy]
    for p, unit, one, other in shared_units(problem.tree, idle):
        raise Refused(
            f"stages of the Pipeline (node {p.node}) share a compute unit: {one} and {other} both execute "
            f"on {unit}",
            f"let {other} execute on another compute unit, or write Sequential",
        )
    for p in found:
        _refuse_instances(problem, p)
    _refuse_components(problem, found)
    return found


def _refuse_instances(problem: Problem, p: Pipeline) -> None:
    counts = {problem.cascade[e].n_instances: e for e in reversed(p.einsums)}
    if len(counts) > 1:
        named = " and ".join(f"{e} ({n})" for n, e in sorted(counts.items()))
        raise Refused(
            f"Einsums of the Pipeline (node {p.node}) execute different numbers of times: {named}",
            "give them the same n_instances, or write Sequential",
        )


def _refuse_components(problem: Problem, found: tuple[Pipeline, ...]) -> None:
    hierarchy = problem.hierarchy
    below = {e for p in found for e in p.einsums}
    tensors = {t for e in below for t in problem.cascade[e].tensors}
    paths = [s.node for e in below for s in problem.tree.path(e)]
    held = {n.component for n in paths if isinstance(n, StorageNode)}
    waiting = [c for c in sorted(held) if hierarchy.waits(c)]
    if waiting:
        raise Refused(
            f"refills of {waiting[0]} wait (assume_overlap: false, buffering: single), which is not "
            "evaluated in a Pipeline",
            "use buffering: double or assume_overlap: true, or write Sequential",
        )
    lively = [c for c in sorted(held) if hierarchy[c].allocation == "live"]
    if lively:
        raise Refused(
            f"{lively[0]} has allocation: live, and stages of a Pipeline have no common order of operations",
            "use allocation: tile, or write Sequential",
        )
    for component, dim in hierarchy.costly_links:
        if dim.link is not None and not isinf(dim.link.throughput):
            raise Refused(
                f"the link of {component}.{dim.name} has a throughput, which is not evaluated in a Pipeline",
                "leave out the throughput of the link, or write Sequential",
            )
    for c, tensor, action in problem.rounding():
        if tensor in tensors:
            raise Refused(
                f"{c.name} moves {action.bits_per_action} bits per {action.name}, which does not divide the "
                f"bits of {tensor}: rounded transfers are not evaluated in a Pipeline",
                "give bits_per_action that divide bits_per_value, or write Sequential",
            )
