"""What the parts of a spec mean together: bound to symbols, held against each other, with every fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.architecture.resolve import resolve_arch
from polymodel.errors import Diagnostic
from polymodel.mapping.checks import check_mapping
from polymodel.mapping.looptree import LoopTree
from polymodel.mapping.mapspace_constraints import check_section
from polymodel.mapping.resolve import (
    ResolvedMapping,
    bind_tree,
    check_bound,
    resolve_mapping,
)
from polymodel.mapping.teaal import EXECUTE, Derived, derive
from polymodel.spec import symbols as naming
from polymodel.spec.faults import Faults, in_reading_order
from polymodel.spec.teaal.arch import arch_of
from polymodel.spec.teaal.convert import workload_of
from polymodel.workload.resolve import Resolved, resolve_workload

if TYPE_CHECKING:
    from polymodel.loading.spec import Spec

UNBOUND = "unbound-symbol"


@dataclass(frozen=True)
class Resolution:
    """The parts as they are used; None where one is absent or at fault."""

    workload: Resolved | None
    arch: Hierarchy | None
    mapping: ResolvedMapping | None
    diagnostics: tuple[Diagnostic, ...]
    derived: Derived | None = None
    refused: tuple[Diagnostic, ...] = ()


def resolve(spec: Spec) -> Resolution:
    """All of a spec, and every fault that can be told without counting."""
    faults = Faults(spec.locator)
    values = naming.symbol_values(spec.declared, spec.given, faults)
    symbols = {**spec.symbols, **values}
    workload = arch = mapping = derived = None
    refused: tuple[Diagnostic, ...] = ()
    if spec.raw_workload is not None:
        own = Faults(spec.locator)
        workload = resolve_workload(spec.raw_workload, spec.raw_renames, symbols, own)
        # A TeAAL spec that has no dense count is no fault: it runs on data.
        waits = [d for d in own.found if d.code == UNBOUND]
        refused = tuple(own.found) if spec.raw_teaal is not None and not waits else ()
        faults.extend(waits if spec.raw_teaal is not None else own.found)
    elif spec.raw_teaal is not None:
        refused = (Diagnostic(str(workload_of(spec.raw_teaal)), EXECUTE),)
    if spec.raw_arch is not None and (workload is not None or spec.raw_workload is None):
        arch = resolve_arch(spec.raw_arch, workload.scopes if workload else (), symbols, faults, spec.folder)
    elif spec.raw_arch is not None:
        # Its set expressions have no meaning yet; its numbers are checked all the same.
        resolve_arch(spec.raw_arch, (), symbols, faults, spec.folder)
    if isinstance(spec.raw_mapping, LoopTree):
        mapping = ResolvedMapping(spec.raw_mapping)
    elif spec.raw_mapping is not None:
        mapping = resolve_mapping(spec.raw_mapping, faults)
    if mapping is None and spec.raw_teaal is not None:
        cascade = workload.cascade if workload else None
        its_own = spec.raw_arch is not None and spec.raw_arch == arch_of(spec.raw_teaal)[0]
        derived = derive(spec.raw_teaal, symbols, cascade, arch, its_own, refused, faults)
        if derived.tree is not None:
            mapping = ResolvedMapping(derived.tree)
            check_bound(mapping, faults)
    elif mapping is not None:
        mapping = bind_tree(mapping, symbols, faults)
        check_bound(mapping, faults)
        if workload is not None and arch is not None:
            check_mapping(mapping, workload.cascade, arch, faults)
    if workload is not None and spec.raw_workload is not None and says_sparse(spec):
        from polymodel.sparse.check import check_sparse

        check_sparse(spec.raw_workload, workload.cascade, spec.raw_arch, arch, spec.data_folder, faults)
    if spec.raw_arch is not None and any(getattr(n, "data_tiles", None) for n in spec.raw_arch.nodes):
        from polymodel.tiling.levels.checked import check_data_tiles

        check_data_tiles(spec.raw_arch, arch, workload.cascade if workload else None, faults)
    check_section(spec.raw_explore, symbols, workload, spec.raw_arch, arch, faults)
    return Resolution(workload, arch, mapping, in_reading_order(faults.found), derived, refused)


def says_sparse(spec: Spec) -> bool:
    """True if anything is said of zeros; only then the room that knows about them is entered."""
    nodes = spec.raw_arch.nodes if spec.raw_arch else ()
    raw = spec.raw_workload
    accesses = [a for e in raw.einsums for a in e.tensor_accesses] if raw else []
    said = raw is not None and (bool(raw.densities) or any(a.density is not None for a in accesses))
    return said or any(getattr(n, "sparse", None) is not None for n in nodes)
