"""What a co-design is asked: objectives, limits on figures, and the objectives that its searches need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from polymodel import objectives as vocabulary
from polymodel.errors import Diagnostic
from polymodel.objectives import FigureLimit, uses
from polymodel.spec.coerce import listed, shown
from polymodel.spec.faults import Faults, suggestion
from polymodel.spec.unit_text import amount_in

_MACHINE = ("area",)  # figures of a machine, whatever is mapped on it
_EINSUMS = ("utilisation",)  # figures that do not follow from those of the layers


@dataclass(frozen=True)
class CodesignRequest:
    """`objectives`: of the joint front; `searched`: of the searches on single machines, from which objectives
    and limits follow."""

    objectives: tuple[str, ...]
    limits: tuple[FigureLimit, ...]
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
    found: list[FigureLimit] = []
    for i, text in enumerate(listed("limits", limits, "['area <= 4e-6']")):
        parts = vocabulary.read_limit(text)
        if parts is None:
            faults.note(Diagnostic(f"{shown(text)} is not a limit", vocabulary.LIMIT_REMEDY, f"limits[{i}]"))
            continue
        for name in _known(parts[:1], f"limits[{i}]", memories, tolls, faults):
            limit = vocabulary.limit_of(name, *parts[1:], amount_in(parts[2], vocabulary.unit_of(name)))
            if isinstance(limit, str):
                faults.note(Diagnostic(limit, vocabulary.LIMIT_REMEDY, f"limits[{i}]"))
            else:
                found.append(limit)
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
        if vocabulary.on_sparse_data(name) or name in _EINSUMS:
            remedy = "name energy, latency, edp, area or working_set:MEMORY"
            faults.note(Diagnostic(f"a co-design has no {name}", remedy, where))
    return tuple(found)
