"""Points and machines of a co-design: a machine with one mapping per layer, and the least costs on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate, evaluate_problem
from polymodel.cost.costs import costs
from polymodel.cost.records import RooflinePoint
from polymodel.errors import Refused
from polymodel.hardware.machines import DesignPoint
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.mapper.confirm import compared
from polymodel.mapper.records import Candidate
from polymodel.mapping.looptree import LoopTree
from polymodel.objectives import canonical
from polymodel.report.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class CodesignPoint:
    """A machine with one mapping per layer. `figures`: objectives, energy (J), latency (s) and area (m^2),
    with those of single networks as `latency of NAME`; `costs`: energy and latency of one execution of each
    layer; `known`: reports of layers that are evaluated, None where `evaluate` refuses."""

    machine: DesignPoint
    figures: Mapping[str, float]
    mappings: tuple[Candidate, ...]
    costs: tuple[tuple[float, float], ...]
    known: dict[int, Report | None] = field(default_factory=dict)

    @cached_property
    def trees(self) -> tuple[LoopTree, ...]:
        """The mapping of each layer."""
        return tuple(m.tree for m in self.mappings)

    @cached_property
    def specs(self) -> tuple[Spec, ...]:
        """Each layer on the machine, with its mapping."""
        return tuple(s.with_mapping(t) for s, t in zip(self.machine.layers, self.trees, strict=True))

    @cached_property
    def reports(self) -> tuple[Report, ...]:
        """The report of `evaluate` for one execution of each layer. Raises InternalError if it differs from
        the search."""
        return tuple(map(self._report, range(len(self.mappings))))

    def _report(self, layer: int) -> Report:
        spec, known = self.specs[layer], self.known.get(layer)
        if known is not None:
            about = replace(known, template=spec.template, names=spec.names)
            return replace(about, spec=spec, folder=spec.data_folder)
        result = evaluate(spec)
        self._compare(layer, result)
        return result

    @property
    def fully_evaluated(self) -> bool:
        """Whether no layer is left to evaluate."""
        return "reports" in self.__dict__ or len(self.known) == len(self.mappings)

    def einsum_costs(self, layer: int) -> tuple[tuple[str, float, float], ...]:
        """Energy (J) and latency (s) of each Einsum of a layer, in one execution of the layer."""
        found = self.reports[layer].costs
        return tuple(
            (t.einsum, fsum(i.energy for i in found.energy if i.einsum == t.einsum), t.seconds)
            for t in found.latency
        )

    def evaluated(self, layer: int, counted: Report | None = None) -> Report | None:
        """The report of a layer, compared with the search; None if `evaluate` refuses to count. `counted`: a
        report of the same mapping on a machine with other sizes and prices, whose counts are reused."""
        spec = self.machine.layers[layer]
        problem = Problem(spec.workload, spec.arch, self.trees[layer])
        if counted is not None:
            result = replace(counted, problem=problem, costs=costs(problem, counted.analysis))
        else:
            try:
                result = evaluate_problem(problem)
            except Refused:
                self.known[layer] = None
                return None
        self._compare(layer, result)
        self.known[layer] = result
        return result

    def _compare(self, layer: int, report: Report) -> None:
        energy, latency = self.costs[layer]
        searched = replace(self.mappings[layer], energy=energy, latency=latency, buffers=(), named=())
        compared(self.machine.layers[layer], searched, report)

    @cached_property
    def roofline(self) -> tuple[tuple[int, RooflinePoint], ...]:
        """Roofline points of groups of fused Einsums on the machine: (layer, point)."""
        return tuple((i, p) for i, report in enumerate(self.reports) for p in report.grouped)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot `roofline`."""
        from polymodel.report.plots import GROUPS, roofline_axes
        from polymodel.view.figures import axes

        return roofline_axes((p for _, p in self.roofline), GROUPS, axes(ax, 8.0, 4.5))

    def value(self, objective: str) -> float:
        """One of its figures. Raises KeyError for a figure that was not requested."""
        return self.figures[canonical(objective)]

    def yaml(self, layer: int = 0) -> str:
        """The mapping of a layer as YAML that loads back."""
        spec = self.specs[layer]
        return mapping_to_yaml(self.trees[layer], spec.used_symbols(), spec.sparse_sections)

    def __repr__(self) -> str:
        figures = ", ".join(f"{n} {v:.6g}" for n, v in self.figures.items())
        return f"CodesignPoint({self.machine.name}: {figures})"


@dataclass(frozen=True, eq=False)
class MachineRow:
    """One machine: the least of each figure over its own front, the number of points there, whether its
    searches were complete, why it has none, and lower bounds of each figure if its searches were not
    complete."""

    machine: DesignPoint
    least: Mapping[str, float | None]
    points: int
    complete: bool
    reason: str
    bounds: Mapping[str, float]
