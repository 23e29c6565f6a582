"""Copy Einsums: elements go from one backing node to another, without compute."""

from __future__ import annotations

from polymodel.analysis.enumerate.buffets import Chains
from polymodel.analysis.enumerate.traffic import Ledger
from polymodel.analysis.enumerate.walk import EinsumWalk


def play_copies(walks: dict[str, EinsumWalk], chains: Chains, ledger: Ledger) -> None:
    """Copies: one read at the source's backing node and one write at the destination's per element."""
    for name, walk in walks.items():
        if not walk.einsum.is_copy:
            continue
        source = next(a for a in walk.einsum.accesses if not a.output)
        origin = chains[name, source.tensor][0]
        for position, access in enumerate(walk.einsum.accesses):
            if not access.output:
                continue
            target = chains[name, access.tensor][0]
            if target.component == origin.component:
                continue
            done = set()
            for op in walk.operations:
                stamp = (op.time[: target.n_time], op.place[: target.n_place], op.elements[position])
                if stamp not in done:
                    done.add(stamp)
                    ledger.moment = stamp[0], False
                    together = target.tensor, *stamp[:2]
                    ledger.access(name, origin, op.place[: origin.n_place], "reads_fill", together)
                    ledger.access(name, target, op.place[: target.n_place], "writes_fill", together)
                    ends = origin.component, target.component
                    ledger.wires.transfer(
                        target.tensor, ends, [(name, walk.spatial, op.place[: target.n_place])], 0
                    )
