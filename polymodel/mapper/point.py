"""One mapping of a front: its figures, its LoopTree, its report."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.api.evaluation import evaluate
from polymodel.cost.area import total_area
from polymodel.errors import writing
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.loading.spec import kept_files
from polymodel.mapper.aims import SearchFigures
from polymodel.mapper.confirm import MappingFigures, compared, confirmed, fitting
from polymodel.mapper.records import Candidate
from polymodel.mapping.looptree import Loop, LoopTree, StorageNode
from polymodel.mapping.mapspace_constraints import WORKING_SET, measured_memory
from polymodel.objectives import canonical, on_dense_data, on_sparse_data, renamed, score, unit_of, value
from polymodel.quantities import engineering
from polymodel.report.report import Report
from polymodel.spec.output import write_text
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from polymodel.report.sparse import SparseReport


@dataclass(frozen=True, eq=False)
class Point:
    """A mapping of a front. `number`: its place there. Energy in joules, latency in seconds.

    `sparse_energy`, `sparse_latency` and `speedup` are None where sparse objectives were not asked for.
    """

    number: int
    base: Spec
    candidate: Candidate
    objectives: tuple[str, ...]
    found: MappingFigures

    @cached_property
    def figures(self) -> MappingFigures:
        """What `evaluate` says; raises InternalError if the search said something else."""
        return self.found if self.found.confirmed else confirmed(self.base, self.candidate)

    @property
    def energy(self) -> float:
        return self.found.energy

    @property
    def latency(self) -> float:
        return self.found.latency

    @property
    def edp(self) -> float:
        """Energy-delay product, in joule seconds."""
        return self.energy * self.latency

    @property
    def energy_delay(self) -> float:
        """The same as `edp`, by its older name."""
        return self.edp

    @property
    def sparse_energy(self) -> float | None:
        return None if self.found.sparse is None else self.found.sparse[0]

    @property
    def sparse_latency(self) -> float | None:
        return None if self.found.sparse is None else self.found.sparse[1]

    @property
    def speedup(self) -> float | None:
        """Dense latency over sparse latency."""
        if self.sparse_latency is None:
            return None
        return self.latency / self.sparse_latency if self.sparse_latency else inf

    @property
    def buffers(self) -> dict[str, float]:
        """Peak bits of each memory below the backing storage (of one instance)."""
        return dict(self.found.buffers)

    def value(self, objective: str) -> float:
        """One of its figures: energy, latency, edp, area, working_set:MEMORY, other objectives and limits of
        the exploration; on sparse data sparse_energy, sparse_latency, sparse_edp, speedup. Older names are
        known too. KeyError for what it has not."""
        name = meant(objective, self.base)
        sparse, known = self.found.sparse, dict(self.found.named)
        if name == "speedup" and sparse is not None:
            return self.speedup or 0.0
        of_sparse = on_sparse_data(name)
        if (of_sparse and sparse is None) or not unit_of(name):
            raise KeyError(objective)
        if name in known:
            return known[name]
        energy, latency = sparse if of_sparse and sparse else (self.energy, self.latency)
        figures = SearchFigures(energy, latency, self.buffers, total_area(self.base.arch))
        found: float = value(on_dense_data(name), figures)
        return found

    @property
    def values(self) -> tuple[float, ...]:
        """Its figures in the order of the objectives."""
        return tuple(self.value(o) for o in self.objectives)

    @property
    def scores(self) -> tuple[float, ...]:
        """What is minimised of each: of what is best at its most the reciprocal."""
        return tuple(float(score(o, v)) for o, v in zip(self.objectives, self.values, strict=True))

    @cached_property
    def spec(self) -> Spec:
        """The spec with this mapping: `evaluate` finds the same figures."""
        return self.base.with_mapping(self.candidate.tree)

    @property
    def mapping(self) -> LoopTree:
        result = self.spec.mapping
        assert result is not None
        return result

    @cached_property
    def report(self) -> Report:
        """The whole report of this mapping, made when it is first looked at. Raises InternalError if its
        figures are not those of the search."""
        result = evaluate(self.spec)
        check = compared if self.found.sparse is None else fitting
        check(self.base, self.candidate, result)
        return result

    @property
    def sparse(self) -> SparseReport:
        """The report on sparse data, by the densities of the workload."""
        return self.report.sparse

    @property
    def yaml(self) -> str:
        """The mapping as YAML that loads back, with the symbols of workload and architecture."""
        return mapping_to_yaml(self.candidate.tree, self.base.used_symbols())

    def save(self, path: str | Path) -> Path:
        """Write the mapping to a file: `pm.load(workload, architecture, path)` has it unchanged."""
        with kept_files(self.base), writing(path):
            write_text(path, self.yaml)
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
        if self.found.sparse is not None:
            joules, seconds = self.found.sparse
            figures = f"sparse {engineering(joules, 'J')}, {engineering(seconds, 's')}; dense {figures}"
        return f"Mapping {self.number}: {figures}\n{self.mapping!r}"

    def _repr_html_(self) -> str:
        from polymodel.report.svg import looptree_svg
        from polymodel.view.blocks import Code, Picture
        from polymodel.view.html import fragment

        return fragment([Code(repr(self).splitlines()[0]), Picture("LoopTree", looptree_svg(self.mapping))])


def meant(objective: str, spec: Spec) -> str:
    """The objective that a name means: older words, and a working set without a memory."""

    def known(name: str) -> str:
        return f"{WORKING_SET}:{measured_memory(spec.arch)}" if name == WORKING_SET else name

    return renamed(canonical(objective), known)


def backing(spec: Spec) -> str:
    """The outermost memory."""
    return next(c.name for c in spec.arch.components if c.kind == "memory")


def fused_tensors(tree: LoopTree, cascade: Cascade, backing: str) -> tuple[str, ...]:
    """Intermediates that no node of the backing storage holds, in order of first appearance."""
    held = {
        t
        for _, n, _ in tree.walk()
        if isinstance(n, StorageNode) and n.component == backing
        for t in n.tensors
    }
    return tuple(t for t in cascade.tensors if t in cascade.intermediates and t not in held)


def fused_loops(tree: LoopTree) -> str:
    """Loops above several Einsums with their tile shapes, by Einsums: `A-C: m 16, n 8; D-E: m 4`."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for number, node, _ in tree.walk():
        if isinstance(node, Loop) and len(below := tree.below[number]) > 1:
            groups.setdefault(below, []).append(f"{node.rank_variable} {node.tile_shape}")
    return "; ".join(f"{e[0]}-{e[-1]}: {', '.join(loops)}" for e, loops in groups.items())
