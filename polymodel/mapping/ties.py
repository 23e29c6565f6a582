"""How a loop ties the Einsums below it: by a rank variable, through a consumer, or not at all.

An Einsum executes once per iteration of a loop whose rank variable it has. Without one, it executes what its
consumers below the loop need (`inferred`), or all over again (`repeated`): docs/develop/rules.md, Loops and
executions.
"""

from __future__ import annotations

from typing import Literal

from polymodel.mapping.looptree import Loop, LoopTree
from polymodel.mapping.placement import users
from polymodel.workload.einsum import Cascade

Tie = Literal["bound", "inferred", "repeated"]


def tie(cascade: Cascade, tree: LoopTree, einsum: str, node: int, loop: Loop) -> Tie:
    """How loop `node`, which stands above `einsum`, decides what of it executes in an iteration."""
    if loop.variable_in(einsum) in cascade[einsum].rank_variables:
        return "bound"
    made = {a.tensor for a in cascade[einsum].outputs}
    below = (cascade[e] for e in users(tree, node) if e != einsum)
    consumed = any(a.tensor in made for e in below for a in e.accesses if not a.output)
    return "inferred" if consumed else "repeated"


def ties(cascade: Cascade, tree: LoopTree, einsum: str) -> dict[int, Tie]:
    """The tie of every loop on the Einsum's path, by node id, outermost first."""
    return {i: tie(cascade, tree, einsum, i, loop) for i, loop in tree.loops(einsum)}


def marks(cascade: Cascade, tree: LoopTree) -> dict[int, str]:
    """Of loops that do not bind every Einsum below them, by node id, what they do: `infers Conv1`."""
    found: dict[int, dict[Tie, list[str]]] = {}
    for einsum in tree.einsums:
        for node, kind in ties(cascade, tree, einsum).items():
            if kind != "bound":
                found.setdefault(node, {}).setdefault(kind, []).append(einsum)
    verbs: tuple[tuple[Tie, str], ...] = (("inferred", "infers"), ("repeated", "repeats"))
    return {
        node: "; ".join(f"{verb} {', '.join(names[kind])}" for kind, verb in verbs if kind in names)
        for node, names in found.items()
    }


def decided_above(found: dict[int, Tie]) -> int:
    """The id of the innermost loop that binds no rank variable of the Einsum, -1 if every loop does.

    What executes is decided once for each stamp of the loops down to this one.
    """
    return max((i for i, t in found.items() if t != "bound"), default=-1)
