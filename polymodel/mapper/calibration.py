"""Shares as one mapping has them: prices that lead the search to others that may be better on sparse data.

They bound nothing: what is found with them is evaluated, and only how good the front is gains by it.
"""

from __future__ import annotations

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapper.sparse_lower_bounds import Shares, Toll, price_of
from polymodel.mapper.terms import READS
from polymodel.report.sparse import SparseReport
from polymodel.sparse.actions.records import KINDS, AccessCount
from polymodel.workload.einsum import Einsum


def calibrated(least: tuple[Shares, ...], sparse: SparseReport) -> tuple[Shares, ...]:
    """One record per Einsum; where the mapping moves nothing, the least shares."""
    problem = sparse.dense.problem
    memories = [c.name for c in problem.hierarchy.components if c.kind == "memory"]
    moved: dict[tuple[str, str, str, str], list[AccessCount]] = {}
    for a in sparse.counts.accesses:
        moved.setdefault((a.einsum, a.tensor, a.component, a.kind), []).append(a)
    found = []
    for one, shares in zip(problem.cascade.einsums, least, strict=True):
        rows = tuple(
            tuple(
                tuple(
                    _toll(problem.hierarchy, bits, moved.get((one.name, tensor, m, kind), []))
                    or shares.of(i, number, kind)
                    for kind in KINDS
                )
                for number, m in enumerate(memories)
            )
            for i, (tensor, bits) in enumerate((x.tensor, x.bits_per_value) for x in one.accesses)
        )
        found.append(Shares(rows, _units(one, shares, sparse)))
    return tuple(found)


def _toll(hierarchy: Hierarchy, bits: int, counts: list[AccessCount]) -> Toll | None:
    """Joules and bits of one element of the dense counts; None where there is none."""
    dense = sum(a.dense for a in counts)
    if not dense:
        return None
    component = hierarchy[counts[0].component]
    way = "read" if counts[0].kind in READS else "write"
    named = any(a.name == f"metadata_{way}" for a in component.actions)
    actual, gated = sum(a.actual for a in counts) * bits, sum(a.gated for a in counts) * bits
    more = sum(a.metadata_bits for a in counts)
    joules = actual * price_of(component, way) + gated * price_of(component, f"gated_{way}")
    joules += more * price_of(component, f"metadata_{way}" if named else way)
    return joules / dense, (actual + gated + more) / dense


def _units(one: Einsum, least: Shares, sparse: SparseReport) -> tuple[tuple[str, float, float], ...]:
    known = {c.component: c for c in sparse.counts.compute if c.einsum == one.name and c.dense}
    found = []
    for name, joules, share in least.units:
        count, component = known.get(name), sparse.dense.problem.hierarchy[name]
        if count is not None:
            each = count.executed * component.action("compute").energy
            each += count.gated * component.action("gated_compute").energy
            joules, share = each / count.dense, count.timed / count.dense
        found.append((name, joules, share))
    return tuple(found)
