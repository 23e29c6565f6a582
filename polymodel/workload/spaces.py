"""Iteration spaces: constraints from rank sizes and shapes, and their bounding boxes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from polymodel.affine import Affine, Constraint
from polymodel.polyhedra.build import bounding_box, set_from_constraints
from polymodel.spec import Workload
from polymodel.spec.affine_text import parse_constraints
from polymodel.spec.faults import Faults, Path, TextFault, close_to, suggestion
from polymodel.spec.numbers import Value, evaluate_number

Symbols = Mapping[str, Value | None]


def rank_sizes_of(
    sizes: Mapping[str, Value | str], path: Path, symbols: Symbols, faults: Faults
) -> list[tuple[str, int]]:
    """Rank sizes as numbers; sizes below 1 are faults."""
    found: list[tuple[str, int]] = []
    for rank, text in sizes.items():
        try:
            size = evaluate_number(text, symbols)
        except TextFault as fault:
            faults.text((*path, rank), fault)
            continue
        if math.isinf(size) or size < 1 or size != int(size):
            what = "unbounded" if math.isinf(size) else "empty" if size < 1 else "not a range of integers"
            message = f"rank {rank} has size {text}: its iteration space is {what}"
            faults.add((*path, rank), message, "write a whole number of at least 1")
            continue
        found.append((rank, int(size)))
    return found


def constraints_of(
    workload: Workload,
    index: int,
    variables: tuple[str, ...],
    projections: Sequence[Mapping[str, Affine]],
    extended: Mapping[tuple[str, str], tuple[int, int]],
    symbols: Symbols,
    faults: Faults,
) -> tuple[Constraint, ...] | None:
    """All constraints of one Einsum; None after a fault.

    `extended`: (tensor, rank) -> how many values the rank has there below 0, and beyond its size.
    """
    # Its own: faults that an earlier Einsum has as well are told once, but the space is no less unknown for
    # it.
    own = Faults(faults.locator)
    einsum = workload.einsums[index]
    path: Path = ("workload", "einsums", index)
    sizes = dict(rank_sizes_of(workload.rank_sizes, ("workload", "rank_sizes"), symbols, own))
    sizes.update(rank_sizes_of(einsum.rank_sizes, (*path, "rank_sizes"), symbols, own))
    found: list[Constraint] = []
    for access, projection in zip(einsum.tensor_accesses, projections, strict=True):
        for rank, expr in projection.items():
            if rank in sizes:
                below, above = extended.get((access.name, rank), (0, 0))
                low, high = Affine((), below) + expr, Affine((), sizes[rank] - 1 + above) - expr
                found += [Constraint(low), Constraint(high)]
    shapes: list[tuple[str, Path]] = [
        (text, (*path, "iteration_space_shape", k)) for k, text in enumerate(einsum.iteration_space_shape)
    ]
    shapes += [
        (text, ("workload", "iteration_space_shape", v))
        for v, text in workload.iteration_space_shape.items() if v in variables
    ]  # fmt: skip
    for text, where in shapes:
        found += _shape(text, where, einsum.name, variables, symbols, own)
    faults.extend(own.found)
    return None if own.found else tuple(dict.fromkeys(found))


def _shape(
    text: str, path: Path, einsum: str, variables: tuple[str, ...], symbols: Symbols, faults: Faults
) -> tuple[Constraint, ...]:
    try:
        found = parse_constraints(text, symbols)
    except TextFault as fault:
        faults.text(path, fault)
        return ()
    for name in dict.fromkeys(v for c in found for v in c.expr.variables):
        if name not in variables:
            at = text.find(name)
            near = suggestion(name, [*variables, *symbols], "rank variables")
            faults.add(path, f"unknown rank variable {name} in Einsum {einsum}", near, offset=max(at, 0))
            return ()
    return found


def bounds_of(
    einsum: str, variables: tuple[str, ...], constraints: tuple[Constraint, ...], path: Path, faults: Faults
) -> tuple[tuple[int, int], ...] | None:
    """Inclusive (low, high) of each rank variable; an empty or unbounded space is a fault."""
    if any(not c.expr.terms and not c.holds({}) for c in constraints):
        faults.add(
            path, f"the iteration space of {einsum} is empty", "check constant projections and rank sizes"
        )
        return None
    points = set_from_constraints(einsum, variables, constraints)
    box = bounding_box(points)
    if box is not None:
        return box
    if points.is_empty():
        faults.add(
            path, f"the iteration space of {einsum} is empty", "check rank_sizes and iteration_space_shape"
        )
        return None
    loose = [v for v in variables if not _bounded(v, constraints)] or list(variables)
    near = close_to(loose[0], [v for v in variables if v not in loose])
    remedy = f"give the rank of {loose[0]} a size in rank_sizes, or a range in iteration_space_shape"
    remedy = f"did you mean {near}? If not, {remedy}" if near else remedy
    faults.add(path, f"the iteration space of {einsum} is unbounded in {', '.join(loose)}", remedy)
    return None


def check_sizes(
    projections: Sequence[Mapping[str, Affine]],
    sized: set[str],
    shapes: Sequence[str],
    bounds: Mapping[str, tuple[int, int]],
    path: Path,
    faults: Faults,
) -> None:
    """A rank that is one bare variable, has no size, and would hold negative coordinates, was left out."""
    bare = dict.fromkeys(
        (r, e.variables[0]) for p in projections for r, e in p.items()
        if len(e.terms) == 1 and e == Affine(e.terms) and e.terms[0][1] == 1
    )  # fmt: skip
    shaped = set(re.findall(r"\w+", " ".join(shapes)))
    settled = shaped | {v for r, v in bare if r in sized}
    for rank, v in bare:
        low, high = bounds[v]
        if rank not in sized and v not in settled and low < 0:
            message = f"rank {rank} has no size: {v} would run {low}..{high}"
            faults.add(path, message, f"give it one, such as rank_sizes: {{{rank}: {high + 1}}}")


def _bounded(variable: str, constraints: tuple[Constraint, ...]) -> bool:
    signs = {math.copysign(1, c.expr.coefficient(variable)) for c in constraints
             if c.kind == "ge" and c.expr.coefficient(variable)}  # fmt: skip
    return len(signs) == 2 or any(c.kind == "eq" and c.expr.coefficient(variable) for c in constraints)
