"""How many Einsums may read one tensor: legality compares every two of them."""

from __future__ import annotations

from polymodel.errors import Refused
from polymodel.mapping.looptree import LoopTree
from polymodel.workload.einsum import Cascade

MAX_READERS = 100  # some 0.5 ms of work for each pair


def check_readers(cascade: Cascade, tree: LoopTree, tensor: str) -> None:
    """Refused if more Einsums of the mapping read a tensor than can be compared in a few seconds."""
    readers = sum(e.name in tree.paths for e in cascade.consumers(tensor))
    if readers > MAX_READERS:
        what = f"{tensor} is read by {readers} Einsums of one mapping; of more than {MAX_READERS} it is not "
        raise Refused(what + "decided whether each finds it", "map parts of the workload by themselves")
