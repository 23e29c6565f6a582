"""One form out of several, each of which holds where certain loops have one trip or more.

What stays under `slide` depends on which loop is the innermost that moves a tile, and so on whether those
further in have a single trip: tile sizes decide. Each case has forms of its own; the whole is their sum,
each times a form that is 1 where its case holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from polymodel.analysis.result import (
    Buffet,
    Compute,
    InstanceLoad,
    LinkTraffic,
    RefillLoad,
    TollTraffic,
    Traffic,
)
from polymodel.analysis.symbolic.forms import ZERO, Form, Held, Peak
from polymodel.analysis.symbolic.records import (
    SymbolicAnalysis,
    WorkingSetForm,
)

World = tuple[Form, SymbolicAnalysis]
Row = TypeVar(
    "Row",
    Buffet[Form],
    Traffic[Form],
    Compute[Form],
    InstanceLoad[Form],
    TollTraffic[Form],
    RefillLoad[Form],
    LinkTraffic[Form],
)
Phase = tuple[Held, ...]


def joined(worlds: Sequence[World]) -> SymbolicAnalysis:
    """All cases in one; the forms of the cases are 1 in one of them for any legal tiles."""
    if len(worlds) == 1:
        return worlds[0][1]
    first = worlds[0][1]
    return replace(
        first,
        buffets=_rows([(w, a.buffets) for w, a in worlds]),
        traffic=_rows([(w, a.traffic) for w, a in worlds]),
        compute=_rows([(w, a.compute) for w, a in worlds]),
        loads=_rows([(w, a.loads) for w, a in worlds]),
        tolls=_rows([(w, a.tolls) for w, a in worlds]),
        refills=_rows([(w, a.refills) for w, a in worlds]),
        links=_rows([(w, a.links) for w, a in worlds]),
        working_sets=_working_sets(worlds),
    )


def _rows(tables: Sequence[tuple[Form, tuple[Row, ...]]]) -> tuple[Row, ...]:
    longest = max((table for _, table in tables), key=len)
    found: dict[tuple[object, ...], list[tuple[Form, Row]]] = {_key(row): [] for row in longest}
    for world, table in tables:
        for row in table:
            found.setdefault(_key(row), []).append((world, row))
    return tuple(_row(rows, len(tables)) for rows in found.values())


def _key(row: Row) -> tuple[object, ...]:
    """What a row is about: everything in it that is not a number."""
    values = ((f.name, getattr(row, f.name)) for f in fields(row))
    return tuple(v for name, v in values if name not in ("loads", "hops") and not isinstance(v, Form))


def _row(rows: list[tuple[Form, Row]], worlds: int) -> Row:
    """The sum of the cases of one row; in a case without the row nothing moves."""
    first = rows[0][1]
    changed: dict[str, Any] = {}
    for f in fields(first):
        value = getattr(first, f.name)
        if isinstance(value, Form):
            changed[f.name] = _sum([(world, getattr(row, f.name)) for world, row in rows], worlds)
        elif f.name == "hops":
            changed[f.name] = _hops(rows, worlds)
        elif f.name == "loads" and value:
            sides = ([(world, _pair(row)[k]) for world, row in rows] for k in (0, 1))
            changed[f.name] = (tuple(_sum(side, worlds) for side in sides),)
    return replace(first, **changed)


def _hops(rows: Sequence[tuple[Form, Any]], worlds: int) -> tuple[tuple[str, Form], ...]:
    """Element-hops by tensor; the order is that of the case with most tensors."""
    names = dict.fromkeys(t for _, row in sorted(rows, key=lambda x: -len(x[1].hops)) for t, _ in row.hops)
    each = {t: [(world, n) for world, row in rows for name, n in row.hops if name == t] for t in names}
    return tuple((t, _sum(parts, worlds)) for t, parts in each.items())


def _pair(row: Any) -> tuple[Form, Form]:
    """What the busiest instance reads and writes."""
    (pair,) = row.loads
    reads, writes = pair
    return reads, writes


def _sum(parts: list[tuple[Form, Form]], worlds: int) -> Form:
    if len(parts) == worlds and all(form == parts[0][1] for _, form in parts):
        return parts[0][1]
    total = ZERO
    for world, form in parts:
        total = total + world * form
    return total


def _working_sets(worlds: Sequence[World]) -> tuple[WorkingSetForm, ...]:
    """Phases of all cases; those that are not the same in all are empty outside their own."""
    found: dict[tuple[str, str, str], tuple[WorkingSetForm, dict[Phase, list[Form]]]] = {}
    for world, analysis in worlds:
        for row in analysis.working_sets:
            key = row.component, row.einsum, row.measure
            phases = found.setdefault(key, (row, {}))[1]
            for phase in row.peak.phases:
                phases.setdefault(phase, []).append(world)
    return tuple(
        replace(
            row,
            peak=Peak(
                tuple(p for phase, where in phases.items() for p in _within(phase, where, len(worlds)))
            ),
        )
        for row, phases in found.values()
    )


def _within(phase: Phase, where: list[Form], worlds: int) -> list[Phase]:
    if len(where) == worlds:
        return [phase]
    return [tuple(replace(h, elements=world * h.elements) for h in phase) for world in where]
