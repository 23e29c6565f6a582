"""What a co-design is asked: objectives, limits on figures, and the objectives that its searches need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

from polymodel import objectives as vocabulary
from polymodel.errors import Diagnostic, SpecError
from polymodel.loading import Spec
from polymodel.objectives import FigureLimit, uses
from polymodel.spec.faults import Faults, Path, listed, path_text, plainly, shown, suggestion
from polymodel.spec.numbers import amount_in
from polymodel.spec.section_schemas import CodesignSection, limit_texts

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


@dataclass(frozen=True)
class CodesignArguments:
    """The arguments of a call; what is None comes from the `codesign:` section."""

    hardware: object
    objectives: object
    limits: object
    where: object
    layer_by_layer: object
    eps: object
    time_limit: object

    @property
    def given(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def over(self, section: CodesignSection | None) -> CodesignSection:
        """The section with the arguments in place of its own values, not yet checked."""
        given = {name: plainly(value) for name, value in self.given.items()}
        if "limits" in given:
            given["limits"] = limit_texts(given["limits"])
        return (section or CodesignSection()).model_copy(update=given)

    @contextmanager
    def in_section(self, spec: Spec) -> Iterator[None]:
        """Faults of values that the section gives are raised with their place in it."""
        try:
            yield
        except SpecError as error:
            raise SpecError([self._placed(d, spec) for d in error.diagnostics]) from None

    def _placed(self, fault: Diagnostic, spec: Spec) -> Diagnostic:
        parts = re.findall(r"[^.\[\]]+", fault.path)
        head = "hardware" if parts[:1] == ["symbols"] else next(iter(parts), "")
        rest: Path = tuple(int(part) if part.isdigit() else part for part in parts[1:])
        if head not in (f.name for f in fields(self)):
            return fault
        if head in self.given or spec.raw_codesign is None:
            return replace(fault, path=path_text((head, *rest)))
        path: Path = ("codesign", head, *rest)
        return replace(fault, path=path_text(path), place=spec.locator.place(path))


def read_request(
    wanted: CodesignSection, memories: Sequence[str], tolls: Sequence[str], faults: Faults
) -> CodesignRequest:
    """The request; what is wrong is noted."""
    objectives = listed("objectives", wanted.objectives, "['energy', 'area']")
    names = _known(objectives, "objectives", memories, tolls, faults)
    if not names and not faults.found:
        faults.note(
            Diagnostic("a co-design needs an objective", "name energy, latency or area", "objectives")
        )
    found: list[FigureLimit] = []
    for i, text in enumerate(listed("limits", wanted.limits, "['area <= 4e-6']")):
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
