"""Tensors that look like one whose name was written in two ways: no fault, but worth a remark."""

from __future__ import annotations

from polymodel.spec.faults import close_to
from polymodel.workload.einsum import Cascade


def likely_slips(cascade: Cascade) -> tuple[str, ...]:
    """A remark for each tensor that is read and never made, beside a similar one that is made and never read.

    Only where the two have the same ranks, and every Einsum that reads the one comes after the Einsum that
    makes the other: several outputs and inputs are as good as one.
    """
    place = {e.name: i for i, e in enumerate(cascade)}
    ranks = {a.tensor: {*a.ranks} for e in cascade for a in e.accesses}
    unread = {}  # made, never read -> by which Einsum
    for tensor in cascade.tensors:
        maker = cascade.producer(tensor)
        if maker is not None and not cascade.consumers(tensor):
            unread[tensor] = maker.name
    found = []
    for tensor in (t for t in cascade.tensors if cascade.producer(t) is None):
        first = min(place[e.name] for e in cascade.consumers(tensor))
        made = [t for t, maker in unread.items() if place[maker] < first and ranks[t] == ranks[tensor]]
        near = close_to(tensor, made)
        if near:
            found.append(
                f"{near} is made and never read; {tensor} is read and never made: did you mean {near}?"
            )
    return tuple(found)
