"""Remarks on valid specs that are probably mistyped: names of tensors, and numbers of an architecture."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Set
from math import inf

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.quantities import engineering
from polymodel.spec.arch_schema import Acting, Arch
from polymodel.spec.faults import YamlEntry, YamlNode, close_to
from polymodel.workload.einsum import Cascade, Einsum


def likely_typos(cascade: Cascade) -> tuple[str, ...]:
    """A remark for each tensor that is read but never written while a similarly named one is written but
    never read, and for each rank in chunks of which there are too few or too many.

    The two must have the same ranks, and the Einsum that writes the one must come before every reader of the
    other.
    """
    place = {e.name: i for i, e in enumerate(cascade)}
    ranks = {a.tensor: {*a.ranks} for e in cascade for a in e.accesses}
    unread = {}  # written but never read -> by which Einsum
    for tensor in cascade.tensors:
        maker = cascade.producer(tensor)
        if maker is not None and not cascade.consumers(tensor):
            unread[tensor] = maker.name
    result = []
    for tensor in (t for t in cascade.tensors if cascade.producer(t) is None):
        first = min(place[e.name] for e in cascade.consumers(tensor))
        made = [t for t, maker in unread.items() if place[maker] < first and ranks[t] == ranks[tensor]]
        near = close_to(tensor, made)
        if near:
            result.append(
                f"{near} is written and never read; {tensor} is read and never written: did you mean {near}?"
            )
    return (*result, *dict.fromkeys(text for e in cascade for text in _parted(e)))


def _parted(einsum: Einsum) -> Iterator[str]:
    """A remark for each rank that is divided into chunks (`8*c + m < 100`) if their number does not match its
    length: the chunks together are shorter, or some are empty."""
    alone = [c.expr for c in einsum.constraints if c.kind == "ge" and len(c.expr.terms) == 1]
    most = {v: e.constant // -k for e in alone for v, k in e.terms if k < 0}
    for c in einsum.constraints:
        terms = sorted(c.expr.terms, key=lambda term: term[1])
        if c.kind != "ge" or len(terms) != 2 or terms[1][1] >= 0 or not {v for v, _ in terms} <= most.keys():
            continue
        (outer, step), (inner, unit) = terms
        tile, chunks, length = most[inner] + 1, most[outer] + 1, c.expr.constant // -unit + 1
        if step != unit * tile:
            continue
        needed, bound = -(-length // tile), f"{tile}*{outer} + {inner} < {length}"
        if chunks < needed:
            yield (
                f"{bound} excludes nothing: {chunks} values of {outer} times {tile} of {inner} are "
                f"{chunks * tile}, {length - chunks * tile} fewer than it allows; {outer} needs {needed}"
            )
        elif chunks > needed:
            yield (
                f"{bound} leaves the last {chunks - needed} of {chunks} values of {outer} without {inner}; "
                f"Einsums without {inner} execute them nevertheless: {needed} are enough"
            )


JOULES = 1e-6  # joules per bit or operation; real components take less
PLAIN = 0.5  # numbers probably meant as picojoules
_OCTAL = re.compile(r"[-+]?0[0-9_]*[1-9][0-9_]*(?![\w.])")
_FLOAT = re.compile(r"[-+]?[0-9_.]*[1-9][0-9_.]*[eE][-+]?[0-9]+")


def unlikely_numbers(
    sections: dict[str, YamlEntry], raw: Arch | None, arch: Hierarchy | None
) -> tuple[str, ...]:
    """Remarks on unusual spellings of numbers in the sections, and on implausible figures of the
    architecture."""
    given = [n for n in (raw.nodes if raw is not None else ()) if isinstance(n, Acting)]
    timed = {(n.name, a.name) for n in given for a in n.actions if "throughput" in a.model_fields_set}
    result = [note for entry in sections.values() for note in _written(entry.value)]
    for component in arch.components if arch is not None else ():
        result += _figures(component, timed)
    return tuple(dict.fromkeys(result))


def _written(node: YamlNode) -> Iterator[str]:
    """For every number: leading zeros, and magnitudes that are treated as zero."""
    for entry in node.entries or ():
        yield from _written(entry.value)
    for element in node.elements or ():
        yield from _written(element)
    if node.quoted or isinstance(node.scalar, bool) or not isinstance(node.scalar, (int, float)):
        return
    lines = node.source.lines
    text = lines[node.line - 1][node.column - 1 :] if 0 < node.line <= len(lines) else ""
    where = f"{node.source.file}:{node.line}" if node.source.file else f"line {node.line}"
    octal, small = _OCTAL.match(text), _FLOAT.match(text)
    if isinstance(node.scalar, int) and octal:
        yield f"{where}: {octal[0]} is read as {node.scalar}; others read it as octal: leave out the zero"
    if node.scalar == 0 and isinstance(node.scalar, float) and small:
        yield f"{where}: {small[0]} is below the smallest number and counts as 0"


def _figures(component: Component, timed: Set[tuple[str, str]]) -> Iterator[str]:
    energies = [a.energy / (a.bits_per_action or 1) for a in component.actions]
    for action, energy in zip(component.actions, energies, strict=True):
        name = f"{component.name} {action.name}"
        # A cost of 1 is used to count actions; the other costs are relative to it.
        if energy >= JOULES and 1 not in energies:
            per = "bit" if component.stores else "action"
            meant = f", so that {energy:g} pJ is written {energy:g}e-12" if energy >= PLAIN else ""
            yield f"{name}: {engineering(energy, 'J')} per {per}; energies are in joules per {per}{meant}"
        if 0 < action.energy < sys.float_info.min:
            yield f"{name}: {action.energy:g} J is so small that its figures are not precise"
        if component.computes and action.throughput == inf and (component.name, action.name) in timed:
            yield f"{name}: its throughput is inf, so that it takes no time"
