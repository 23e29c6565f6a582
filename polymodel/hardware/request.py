"""What a co-design is asked: objectives, limits on figures, and the objectives that its searches need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from polymodel import objectives as vocabulary
from polymodel.errors import Diagnostic
from polymodel.objectives import uses
from polymodel.spec.coerce import listed, shown
from polymodel.spec.faults import Faults, suggestion

_LIMIT = re.compile(r"\s*([A-Za-z_][\w:]*)\s*<=\s*([0-9.eE+-]+)\s*\Z")
_MACHINE = ("area",)  # figures of a machine, whatever is mapped on it
_EINSUMS = ("utilisation",)  # figures that do not follow from those of the layers


@dataclass(frozen=True)
class Limit:
    """A figure that may be at most so much, in its own unit."""

    name: str
    most: float

    def __str__(self) -> str:
        return f"{self.name} <= {self.most:g}"


@dataclass(frozen=True)
class CodesignRequest:
    """`objectives`: of the joint front; `searched`: of the searches on single machines, from which objectives
    and limits follow."""

    objectives: tuple[str, ...]
    limits: tuple[Limit, ...]
    searched: tuple[str, ...]

    @property
    def figures(self) -> tuple[str, ...]:
        """Every figure that is asked for, each once."""
        return tuple(dict.fromkeys([*self.objectives, *(limit.name for limit in self.limits)]))


def read_request(
    objectives: Sequence[str],
    limits: Sequence[str],
    memories: Sequence[str],
    tolls: Sequence[str],
    faults: Faults,
) -> CodesignRequest:
    """The request; what is wrong is noted."""
    names = _known(
        listed("objectives", objectives, "['energy', 'area']"), "objectives", memories, tolls, faults
    )
    if not names and not faults.found:
        faults.note(
            Diagnostic("a co-design needs an objective", "name energy, latency or area", "objectives")
        )
    found: list[Limit] = []
    for i, text in enumerate(listed("limits", limits, "['area <= 4e-6']")):
        match = _LIMIT.match(text) if isinstance(text, str) else None
        if match is None:
            remedy = "write e.g. 'area <= 4e-6' or 'latency <= 2e-3', in m^2, s, J and bits"
            faults.note(Diagnostic(f"{shown(text)} is no limit", remedy, f"limits[{i}]"))
            continue
        known = _known((match[1],), f"limits[{i}]", memories, tolls, faults)
        found += (Limit(name, float(match[2])) for name in known)
    every = dict.fromkeys([*names, *(limit.name for limit in found)])
    searched = dict.fromkeys(
        f + (f":{component}" if component else "")
        for name in every
        for f, component in sorted(uses(name))
        if f not in _MACHINE
    )
    return CodesignRequest(tuple(names), tuple(found), tuple(searched) or ("energy",))


def _known(
    names: Sequence[object], where: str, memories: Sequence[str], tolls: Sequence[str], faults: Faults
) -> tuple[str, ...]:
    found, unknown = vocabulary.read_objectives(names, memories, tolls)
    for u in unknown:
        place = f"{where}[{u.place}]" if where == "objectives" else where
        faults.note(
            Diagnostic(f"unknown objective {u.name}", suggestion(u.name, u.known, "objectives"), place)
        )
    for name in found:
        if name.startswith(vocabulary.SPARSE) or name in _EINSUMS:
            remedy = "name energy, latency, edp, area or working_set:MEMORY"
            faults.note(Diagnostic(f"a co-design has no {name}", remedy, where))
    return tuple(found)
