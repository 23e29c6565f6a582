"""Merge element-wise operations into the Einsum that produces their operand."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from polymodel.importers.onnx.lower import AccessIndices, Lowered
from polymodel.importers.onnx.views import substituted


def fused(
    einsums: Sequence[Lowered], weights: Collection[str], outputs: Collection[str], names: Mapping[str, str]
) -> tuple[list[Lowered], list[tuple[Lowered, Lowered]], list[Lowered]]:
    """Return the remaining Einsums, the operations merged into each, and the operations that were not merged
    because of the size of a weight.

    An operation is merged if it has one computed operand, which is produced by one Einsum, is read by nothing
    else and is not a result of the model. Its other operands are weights with fewer ranks, such as a bias.
    """
    reads: dict[str, int] = {}
    for e in einsums:
        for line in e.inputs:
            reads[line.tensor] = reads.get(line.tensor, 0) + 1
    result: dict[str, Lowered] = {}  # the order is the producers', since later Einsums read results
    place: dict[str, str] = {}  # result -> key of its producer
    taken: list[tuple[Lowered, Lowered]] = []
    apart: list[Lowered] = []
    for e in einsums:
        source = _operand(e, weights)
        key = place.get(source.tensor) if source is not None else None
        maker = result.get(key) if key is not None else None
        whole = source is not None and reads[source.tensor] == 1 and source.tensor not in outputs
        if source is not None and key is not None and maker is not None and whole and not maker.copy:
            joined = _joined(maker, e, source, names)
            if joined is not None and _heavy(e, source):
                apart.append(e)
            elif joined is not None:
                taken.append((e, maker))
                result[key], place[e.output.tensor] = joined, key
                continue
        result[e.output.tensor], place[e.output.tensor] = e, e.output.tensor
    return list(result.values()), taken, apart


def _operand(e: Lowered, weights: Collection[str]) -> AccessIndices | None:
    """Return the only computed operand of an element-wise operation that iterates over all of its
    elements."""
    if e.copy or e.reduce or e.over or e.limits:
        return None
    made = [line for line in e.inputs if line.tensor not in weights]
    every = {v for line in e.lines for v in line.variables}
    if len(made) != 1 or not _bare(made[0]) or set(made[0].variables) != every or not _bare(e.output):
        return None
    return made[0]


def _heavy(e: Lowered, source: AccessIndices) -> bool:
    """Return whether another operand has as many elements as the result, so that its reads are not
    negligible."""
    return any(len(line.variables) >= len(source.variables) for line in e.inputs if line is not source)


def _bare(line: AccessIndices) -> bool:
    simple = all(not x.constant and len(x.terms) == 1 and x.terms[0][1] == 1 for x in line.exprs)
    return simple and len(line.variables) == len(line.ranks)


def _joined(maker: Lowered, e: Lowered, source: AccessIndices, names: Mapping[str, str]) -> Lowered | None:
    if not _bare(maker.output):
        return None
    table = {
        x.terms[0][0]: made for x, made in zip(source.exprs, maker.output.exprs, strict=True)
    }  # variables of the one -> those of the other
    ranks = tuple((axis, substituted(expr, table)) for axis, expr in e.output.ranks)
    words = [*maker.populate, _word(e, source, names), *e.populate]
    return replace(
        maker,
        about=(*maker.about, *e.about),
        output=AccessIndices(e.output.tensor, ranks),
        populate=tuple(words),
    )


def _word(e: Lowered, source: AccessIndices, names: Mapping[str, str]) -> str:
    """Return the operation as written after another: `relu`, `add(_, bias)`."""
    called = ["_" if line is source else names[line.tensor] for line in e.inputs]
    if "(" in e.map:
        return re.sub(r"_(\d+)", lambda m: called[int(m[1])], e.map)
    if len(called) == 1:
        return e.map or "identity"
    return f"{e.map or 'mul'}({', '.join(called)})"  # an Einsum without a word is a product
