"""What refills of single-buffered storages move per instance (docs/semantics.md, Time without overlap)."""

from __future__ import annotations

from collections import defaultdict

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.flows import KINDS, Ledger
from polymodel.analysis.exact.occupancy import tensor_bits
from polymodel.analysis.exact.tally import Product

Groups = list[tuple[int, list[Product]]]


def refill_groups(layout: Layout, ledger: Ledger) -> dict[tuple[str, str, str], tuple[Groups, Groups]]:
    """(Einsum, component, storage) -> (reads, writes) that refills of `storage` make at `component`.

    With `storage` empty: all else that happens there.
    """
    found: dict[tuple[str, str, str], tuple[Groups, Groups]] = defaultdict(lambda: ([], []))
    for (einsum, node_id, tensor), kinds in ledger.accesses.items():
        node = layout.nodes[node_id, tensor]
        bits = tensor_bits(layout, tensor)
        for kind in KINDS:
            if kinds.get(kind):
                storage = _refilled(layout, einsum, node, kind)
                side = 0 if kind.startswith("reads") else 1
                found[einsum, node.component, storage][side].append((bits, kinds[kind]))
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
