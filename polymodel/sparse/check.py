"""Check the densities and formats of a spec when it is loaded, and report every fault with its location."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import SpecError
from polymodel.sparse.actions.inputs import density_model, tensor_shape
from polymodel.sparse.actions.storage import written_format
from polymodel.spec.arch_schema import Arch, ComputeUnit, Memory
from polymodel.spec.faults import Faults, Path
from polymodel.spec.section_schemas import Workload
from polymodel.workload.einsum import Cascade


def check_sparse(
    workload: Workload,
    cascade: Cascade,
    arch: Arch | None,
    hierarchy: Hierarchy | None,
    folder: str,
    faults: Faults,
    chosen: Collection[str] = (),
) -> None:
    """Add all faults in densities and formats to `faults`. `folder`: where data files are searched.
    `chosen`: components whose formats stand in the mapping."""
    accesses = {a.tensor: a for e in cascade.einsums for a in reversed(e.accesses)}
    for path, tensor, density in _densities(workload):
        shape = tensor_shape(cascade, tensor)
        _collect(partial(density_model, accesses[tensor], shape, density, folder), path, faults)
    for path, tensor, written in _formats(arch, hierarchy, chosen):
        _collect(partial(written_format, accesses[tensor], written), path, faults)


def _densities(workload: Workload) -> Iterator[tuple[Path, str, object]]:
    for tensor, value in workload.densities.items():
        yield ("workload", "densities", tensor), tensor, value
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if access.density is not None:
                path = ("workload", "einsums", i, "tensor_accesses", j, "density")
                yield path, access.name, access.density


def _formats(
    arch: Arch | None, hierarchy: Hierarchy | None, chosen: Collection[str]
) -> Iterator[tuple[Path, str, object]]:
    if arch is None or hierarchy is None:
        return
    for i, (node, component) in enumerate(zip(arch.nodes, hierarchy.components, strict=True)):
        if (
            component.sparse is not None
            and isinstance(node, Memory | ComputeUnit)
            and node.sparse is not None
        ):
            path = ("mapping", "sparse", node.name) if node.name in chosen else ("arch", "nodes", i, "sparse")
            for tensor, written in component.sparse.formats:
                key = next(k for k, v in node.sparse.format.items() if v is written)
                yield (*path, "format", key), tensor, written


def _collect(read: Callable[[], object], path: Path, faults: Faults) -> None:
    try:
        read()
    except SpecError as error:
        for fault in error.diagnostics:
            faults.add(path, fault.message, fault.remedy, code=fault.code)
