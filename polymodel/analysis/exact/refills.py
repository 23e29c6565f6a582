"""What refills of single-buffered storages move per instance (docs/semantics.md, Time without overlap)."""

from __future__ import annotations

from collections import defaultdict

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.cached_counts import Product
from polymodel.analysis.exact.rounding import Booking

Groups = list[tuple[int, list[Product]]]


def refill_groups(
    layout: Layout, booked: tuple[Booking, ...]
) -> dict[tuple[str, str, str], tuple[Groups, Groups]]:
    """(Einsum, component, storage) -> (reads, writes) that refills of `storage` make at `component`.

    With `storage` empty: all else that happens there.
    """
    found: dict[tuple[str, str, str], tuple[Groups, Groups]] = defaultdict(lambda: ([], []))
    for b in booked:
        einsum, node_id, component, tensor, kind = b.row
        if node_id is not None:
            storage = _refilled(layout, einsum, layout.nodes[node_id, tensor], kind)
            found[einsum, component, storage][0 if b.reads else 1].append((b.bits, list(b.products)))
    return dict(found)


def _refilled(layout: Layout, einsum: str, node: Node, kind: str) -> str:
    """The single-buffered storage whose refill an access is part of, or ""."""
    if kind in ("writes_fill", "reads_drain"):
        storage = node.component if node.parent is not None else ""
    else:
        chain = [n.id for n in layout.chain(einsum, node.tensor)]
        below = chain[chain.index(node.id) + 1 :]
        storage = layout.nodes[below[0], node.tensor].component if below else ""
    return storage if storage and layout.problem.hierarchy.waits(storage) else ""
