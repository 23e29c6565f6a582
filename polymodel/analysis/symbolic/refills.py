"""The transfers of refills of single-buffered storages: both ends, at the first instance.

docs/semantics.md, Time without overlap.
"""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.analysis.result import RefillLoad
from polymodel.analysis.symbolic.flows import FormLedger
from polymodel.analysis.symbolic.forms import READS, TRAFFIC, Form
from polymodel.analysis.symbolic.layout import SymbolicBuffet, SymbolicLayout

Key = tuple[str, str, str]  # Einsum, component, and the storage that is refilled, or "" for everything else


def refills(layout: SymbolicLayout, ledger: FormLedger) -> tuple[RefillLoad[Form], ...]:
    """Both ends of the refills of each storage that waits for them, and the other work at these ends."""
    hierarchy = layout.problem.hierarchy
    waiting = [c.name for c in hierarchy.components if hierarchy.waits(c.name)]
    if not waiting:
        return ()
    loads = _loads(layout, ledger)
    rows = []
    for einsum in layout.problem.tree.einsums:
        ends: dict[str, None] = {}
        for storage in waiting:
            for c in hierarchy.components:
                if (einsum, c.name, storage) in loads:
                    rows.append(_row((einsum, c.name, storage), loads))
                    ends[c.name] = None
        rows += [_row((einsum, c.name, ""), loads) for c in hierarchy.components if c.name in ends]
    return tuple(rows)


def _row(key: Key, loads: dict[Key, list[Form]]) -> RefillLoad[Form]:
    reads, writes = loads.get(key, (Form(), Form()))
    return RefillLoad(*key, ((reads, writes),))


def _loads(layout: SymbolicLayout, ledger: FormLedger) -> dict[Key, list[Form]]:
    """Read and written bits of the first instance, the busiest one."""
    result: dict[Key, list[Form]] = {}
    for (einsum, node_id, tensor), entry in ledger.accesses.items():
        node = layout.nodes[node_id, tensor]
        for kind, storage in _kinds(layout, einsum, node):
            if entry.whole[kind].terms:
                sums = result.setdefault((einsum, node.component, storage), [Form(), Form()])
                side = 0 if kind in READS else 1
                sums[side] = sums[side] + entry.first[kind] * layout.bits(tensor)
    return result


def _kinds(layout: SymbolicLayout, einsum: str, node: SymbolicBuffet) -> Iterator[tuple[str, str]]:
    """Each kind of access with the waiting storage whose refill it is part of, or ""."""
    chain = layout.chain(einsum, node.tensor)
    place = [n.id for n in chain].index(node.id)
    outwards = node.component if node.parent is not None else ""
    inwards = chain[place + 1].component if place + 1 < len(chain) else ""
    for kind in TRAFFIC:
        storage = outwards if kind in ("writes_fill", "reads_drain") else inwards
        yield kind, storage if storage and layout.problem.hierarchy.waits(storage) else ""
