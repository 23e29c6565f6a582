"""LoopTrees as indented text: `[(GLB)]` is a storage node, `((E))` a compute node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.mapping.pipelines import overlaps
from polymodel.mapping.ties import marks
from polymodel.workload.einsum import Cascade


def node_text(node: Node, mark: str = "") -> str:
    """One node in one line; `mark` says what a loop infers or repeats, or a pipeline overlaps."""
    if isinstance(node, StorageNode):
        policy = f"  ({node.reuse.label})" if node.reuse.label else ""
        return f"[({node.component})] {', '.join(node.tensors)}{policy}"
    if isinstance(node, ComputeNode):
        return f"(({node.einsum})) on {node.component}"
    if isinstance(node, Split):
        return f"pipeline  ({mark})" if mark else "pipeline" if node.pipeline else "sequential"
    tile = ", ".join(f"{t} in {e}" for e, t in node.tiles) or f"{node.tile_shape}"
    initial = ", ".join(f"{t} in {e}" for e, t in node.first_tiles) or node.initial_tile_shape
    first = "" if initial is None else f", first tile {initial}"
    bound = "".join(f", {v} in {e}" for e, v in node.per_einsum)
    where = f"parallel over {node.component}.{node.dim}: " if node.spatial else "for "
    noted = f"  ({mark})" if mark else ""
    return f"{where}{node.rank_variable}{bound}, tile {tile}{first}{noted}"


def looptree_text(tree: LoopTree, cascade: Cascade | None = None) -> str:
    """The whole tree; what stands below a loop is indented.

    With the cascade, loops say which Einsums they infer or repeat.
    """
    lines: list[str] = []
    noted = {**(marks(cascade, tree) if cascade else {}), **overlaps(tree)}
    _write(tree.nodes, "", lines, iter(range(10**9)), noted)
    return "\n".join(lines) + "\n"


def _write(
    nodes: tuple[Node, ...], lead: str, lines: list[str], ids: Iterator[int], noted: Mapping[int, str]
) -> None:
    for node in nodes:
        lines.append(lead + node_text(node, noted.get(next(ids), "")))
        if isinstance(node, Loop):
            lead += "  "
        if isinstance(node, Split):
            for i, branch in enumerate(node.branches):
                last = i == len(node.branches) - 1
                start = len(lines)
                _write(branch, lead + ("   " if last else "│  "), lines, ids, noted)
                if len(lines) > start:
                    corner = "└─ " if last else "├─ "
                    lines[start] = lead + corner + lines[start][len(lead) + 3 :]
