"""The request of a co-design: objectives, limits on figures, and the objectives that its searches need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf

from polymodel.errors import Diagnostic, SpecError
from polymodel.loading import Spec
from polymodel.objectives import (
    LIMIT_REMEDY,
    FigureLimit,
    limit_of,
    of_network,
    on_sparse_data,
    read_limit,
    read_objectives,
    unit_of,
    uses,
    whose,
)
from polymodel.spec.faults import Faults, Path, listed, path_text, plainly, shown, suggestion
from polymodel.spec.numbers import amount_in
from polymodel.spec.section_schemas import CodesignSection, limit_texts

COSTS = ("energy", "latency")  # figures that every point has, of all networks together and of each one
_MACHINE = ("area",)  # figures of a machine, independent of the mappings
_EINSUMS = ("utilisation",)  # figures that cannot be computed from those of the layers


@dataclass(frozen=True)
class NetworkLimit:
    """A limit on a figure of one network, or of all together (`network` is empty)."""

    limit: FigureLimit
    network: str = ""

    @property
    def name(self) -> str:
        return of_network(self.limit.name, self.network)

    def share(self, number: float) -> float:
        """The share of the limit that a figure takes."""
        most = self.limit.number
        return number / most if most else (inf if number else 1.0)

    @property
    def for_readers(self) -> str:
        """The limit in the unit of tables, rounded like these."""
        return self.limit.for_readers(self.name)

    def __str__(self) -> str:
        return f"{self.name} {self.limit.relation} {self.limit.number:.15g}"


@dataclass(frozen=True)
class CodesignRequest:
    """The checked request.

    `objectives`: of the joint front, including `latency of NETWORK`; `networks`: their names, empty if layers
    are given without.
    """

    objectives: tuple[str, ...]
    limits: tuple[NetworkLimit, ...]
    networks: tuple[str, ...] = ()

    @cached_property
    def figures(self) -> tuple[str, ...]:
        """Every requested figure, without repetition."""
        return tuple(dict.fromkeys([*self.objectives, *(limit.name for limit in self.limits)]))

    @cached_property
    def searched(self) -> tuple[str, ...]:
        """The objectives of searches on single machines, from which all requested figures follow."""
        return _made_of(whose(n)[0] for n in self.figures) or ("energy",)

    @cached_property
    def totals(self) -> tuple[str, ...]:
        """The objectives of searches for figures of all networks together."""
        return _made_of(n for n in self.figures if not whose(n)[1])

    @cached_property
    def joined(self) -> tuple[str, ...]:
        """The figures by which combinations of mappings of all networks are compared."""
        return (*self.totals, *(n for n in self.objectives if whose(n)[1])) or ("energy",)

    def figures_of(self, network: str) -> tuple[str, ...]:
        """The figures of one network by their own names: its costs, and the requested ones."""
        asked = (whose(n) for n in self.figures)
        return tuple(dict.fromkeys([*COSTS, *(n for n, of in asked if of == network)])) if network else ()

    def limits_of(self, network: str) -> tuple[NetworkLimit, ...]:
        """The limits of one network; of all together for an empty name."""
        return tuple(limit for limit in self.limits if limit.network == network)


def _made_of(names: Iterable[str]) -> tuple[str, ...]:
    """The figures of layers from which these figures follow."""
    every = (f for name in dict.fromkeys(names) for f in sorted(uses(name)) if f[0] not in _MACHINE)
    return tuple(dict.fromkeys(f + (f":{component}" if component else "") for f, component in every))


@dataclass(frozen=True)
class CodesignArguments:
    """The arguments of a call; those that are None come from the `codesign:` section."""

    hardware: object
    objectives: object
    limits: object
    where: object
    weights: object
    layer_by_layer: object
    eps: object
    time_limit: object

    @property
    def provided(self) -> dict[str, object]:
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}

    def over(self, section: CodesignSection | None) -> CodesignSection:
        """The section with its values overridden by the arguments, unchecked."""
        given = {name: plainly(value) for name, value in self.provided.items()}
        if "limits" in given:
            given["limits"] = limit_texts(given["limits"])
        return (section or CodesignSection()).model_copy(update=given)

    @contextmanager
    def in_section(self, spec: Spec) -> Iterator[None]:
        """Adds the position in the section to faults of values from there."""
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
        if head in self.provided or spec.raw_codesign is None:
            return replace(fault, path=path_text((head, *rest)))
        path: Path = ("codesign", head, *rest)
        return replace(fault, path=path_text(path), place=spec.locator.place(path))


EACH = "each"  # `latency of each`: that of every network
NO_NETWORKS = "name networks: {'resnet': [...], 'bert': spec}, --network NAME=SPEC, or `networks:`"


def read_request(
    wanted: CodesignSection,
    memories: Sequence[str],
    tolls: Sequence[str],
    networks: tuple[str, ...],
    faults: Faults,
) -> CodesignRequest:
    """The request. Reports faults."""
    vocabulary = _Vocabulary(memories, tolls, networks, faults)
    names: list[str] = []
    for i, name in enumerate(listed("objectives", wanted.objectives, "['energy', 'area']")):
        names += (of_network(figure, one) for figure, one in vocabulary.read(name, f"objectives[{i}]"))
    if not names and not faults.found:
        what, remedy = "a co-design needs an objective", "name energy, latency or area"
        faults.note(Diagnostic(what, remedy, "objectives", code="unknown-choice"))
    limits: list[NetworkLimit] = []
    for i, text in enumerate(listed("limits", wanted.limits, "['area <= 4e-6']")):
        limits += _limits(text, f"limits[{i}]", vocabulary, faults)
    return CodesignRequest(tuple(dict.fromkeys(names)), tuple(limits), networks)


def _limits(text: object, where: str, vocabulary: _Vocabulary, faults: Faults) -> Iterator[NetworkLimit]:
    """The limit that a text states, one per network if it is one of each."""
    parts = read_limit(text)
    if parts is None:
        faults.note(Diagnostic(f"{shown(text)} is not a limit", LIMIT_REMEDY, where, code="wrong-type"))
        return
    for name, network in vocabulary.read(parts[0], where):
        limit = limit_of(name, *parts[1:], amount_in(parts[2], unit_of(name)))
        if isinstance(limit, str):
            faults.note(Diagnostic(limit, LIMIT_REMEDY, where, code="out-of-range"))
            return
        yield NetworkLimit(limit, network)


@dataclass(frozen=True)
class _Vocabulary:
    """The names that objectives and limits may use."""

    memories: Sequence[str]
    tolls: Sequence[str]
    networks: tuple[str, ...]
    faults: Faults

    def read(self, text: object, where: str) -> list[tuple[str, str]]:
        """The objective that a text names, and its network: empty for all together, several for `of each`.

        Reports faults.
        """
        name, network = whose(text) if isinstance(text, str) else (text, "")
        result, unknown = read_objectives((name,), self.memories, self.tolls)
        for u in unknown:
            what = f"unknown objective {u.name}"
            self.faults.note(
                Diagnostic(what, suggestion(u.name, u.known, "objectives"), where, code="unknown-choice")
            )
        for one in result:
            if on_sparse_data(one) or one in _EINSUMS:
                why = "its searches are on dense data"
                if one in _EINSUMS:
                    why = "each layer has its own, and these do not add up to a total"
                what = f"a co-design has no {one}: {why}"
                remedy = "name energy, latency, edp, area, accesses:MEMORY or working_set:MEMORY"
                self.faults.note(Diagnostic(what, remedy, where, code="unknown-name"))
        if not network:
            return [(one, "") for one in result]
        if not self.networks:
            message = f"there is no network {network}: none has a name"
            self.faults.note(Diagnostic(message, NO_NETWORKS, where, code="unknown-name"))
        elif network not in (EACH, *self.networks):
            remedy = suggestion(network, (*self.networks, EACH), "networks")
            self.faults.note(Diagnostic(f"there is no network {network}", remedy, where, code="unknown-name"))
        for one in result:
            if any(figure in _MACHINE for figure, _ in uses(one)):
                what = f"{one} is a figure of the machine, not of one network"
                self.faults.note(Diagnostic(what, f"write {one} alone", where, code="unknown-choice"))
        return [(one, n) for one in result for n in (self.networks if network == EACH else (network,))]
