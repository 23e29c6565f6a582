"""One mapping of a front: its figures, its LoopTree, its report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from polymodel.errors import writing
from polymodel.evaluate import evaluate
from polymodel.explore.confirm import Figures, compared, confirmed
from polymodel.explore.fusedtext import fused_loops, fused_tensors
from polymodel.explore.records import Candidate
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.mapping.looptree import LoopTree
from polymodel.quantities import engineering
from polymodel.report.report import Report


@dataclass(frozen=True, eq=False)
class Point:
    """A mapping of a front. `number`: its place there. Energy in joules, latency in seconds."""

    number: int
    base: Spec
    candidate: Candidate
    objectives: tuple[str, ...]
    found: Figures

    @cached_property
    def figures(self) -> Figures:
        """What `evaluate` says; raises InternalError if the search said something else."""
        return self.found if self.found.confirmed else confirmed(self.base, self.candidate)

    @property
    def energy(self) -> float:
        return self.found.energy

    @property
    def latency(self) -> float:
        return self.found.latency

    @property
    def energy_delay(self) -> float:
        """Joule seconds."""
        return self.energy * self.latency

    @property
    def buffers(self) -> dict[str, float]:
        """Peak bits of each memory below the backing storage (of one instance)."""
        return dict(self.found.buffers)

    def value(self, objective: str) -> float:
        """One of its figures: energy, latency, energy_delay, buffer, buffer:MEMORY."""
        if objective.startswith("buffer"):
            memory = objective.partition(":")[2] or measured_buffer(self.base)
            return self.buffers[memory]
        return {"energy": self.energy, "latency": self.latency, "energy_delay": self.energy_delay}[objective]

    @property
    def values(self) -> tuple[float, ...]:
        """Its figures in the order of the objectives."""
        return tuple(self.value(o) for o in self.objectives)

    @cached_property
    def spec(self) -> Spec:
        """The spec with this mapping: `evaluate` finds the same figures."""
        return self.base.with_mapping(self.candidate.tree)

    @property
    def mapping(self) -> LoopTree:
        found = self.spec.mapping
        assert found is not None
        return found

    @cached_property
    def report(self) -> Report:
        """The whole report of this mapping, made when it is first looked at. Raises InternalError if its
        figures are not those of the search."""
        found = evaluate(self.spec)
        compared(self.base, self.candidate, found)
        return found

    @property
    def yaml(self) -> str:
        """The mapping as YAML that loads back, with the symbols of workload and architecture."""
        return mapping_to_yaml(self.candidate.tree, self.base.used_symbols())

    def save(self, path: str | Path) -> Path:
        """Write the mapping to a file: `pm.load(workload, architecture, path)` has it unchanged."""
        with writing(path):
            Path(path).write_text(self.yaml, encoding="utf-8")
        return Path(path)

    @cached_property
    def fused(self) -> tuple[str, ...]:
        """Intermediates that never reach the backing storage."""
        return fused_tensors(self.candidate.tree, self.base.workload, backing(self.base))

    @cached_property
    def fused_loops(self) -> str:
        """Loops that several Einsums share, with their tile shapes."""
        return fused_loops(self.candidate.tree)

    def __repr__(self) -> str:
        peaks = ", ".join(f"{m} {engineering(b, 'bit')}" for m, b in self.found.buffers)
        figures = f"{engineering(self.energy, 'J')}, {engineering(self.latency, 's')}, {peaks}"
        return f"Mapping {self.number}: {figures}\n{self.mapping!r}"

    def _repr_html_(self) -> str:
        from html import escape

        from polymodel.report.svg import looptree_svg

        return f"<pre>{escape(repr(self).splitlines()[0])}</pre>{looptree_svg(self.mapping)}"


def backing(spec: Spec) -> str:
    """The outermost memory."""
    return next(c.name for c in spec.arch.components if c.kind == "memory")


def measured_buffer(spec: Spec) -> str:
    """The memory that `buffer` means: the outermost bounded one below the backing storage, else the last."""
    inner = [c for c in spec.arch.components if c.kind == "memory"][1:]
    return next((c.name for c in inner if c.size_bits != float("inf")), inner[-1].name)
