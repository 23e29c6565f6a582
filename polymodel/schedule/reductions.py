"""May instances add up what they sum: outputs spread over fanout dimensions that do not index them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic
from polymodel.mapping.looptree import LoopTree, storage_chain
from polymodel.polyhedra import needs
from polymodel.schedule.touch import Part, View, loop_origins, partition, touch
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

UNREDUCED = "unreduced-output"


def unreduced(
    cascade: Cascade, hierarchy: Hierarchy, tree: LoopTree, parts: Mapping[str, tuple[Part, ...]]
) -> Iterator[Diagnostic]:
    """Each spatial loop over what an output is summed over whose dimension may not reduce that output.

    Of loops above the output's outermost storage `legality` tells: nothing at all adds up what they spread.
    """
    for name in tree.einsums:
        einsum = cascade[name]
        for output in () if einsum.is_copy else einsum.outputs:
            home = storage_chain(tree, name, output.tensor)[0].id
            for position, (node, loop) in enumerate(tree.loops(name)):
                variable = loop.variable_in(name)
                if not loop.spatial or node < home or variable in output.variables:
                    continue
                dim = hierarchy[loop.component].dim(loop.dim)
                if variable not in einsum.rank_variables or dim.reuses(name, output.tensor):
                    continue
                if not _runs_apart(cascade, tree, einsum, output, parts[name], position):
                    continue
                yield Diagnostic(
                    f"output {output.tensor} of {name} is spread over {loop.component}.{loop.dim} by the loop"
                    f" over {variable} (node {node}), which does not index it, but the dimension may not "
                    "reduce it",
                    f"add {output.tensor} to may_reuse of {loop.component}.{loop.dim}, or unroll another "
                    "rank variable there",
                    path="mapping",
                    code=UNREDUCED,
                )


def _runs_apart(
    cascade: Cascade,
    tree: LoopTree,
    einsum: Einsum,
    output: TensorAccess,
    parts: tuple[Part, ...],
    position: int,
) -> bool:
    """True if the loop at a position of the Einsum's path uses more than one instance."""
    view = View(einsum, output, loop_origins(cascade, tree, einsum.name), parts=parts)
    for factor in touch((view,), partition((view,))).factors:
        if position in factor.spatial:
            low, high = needs.extent(factor.text, factor.spatial.index(position))
            return high > low
    return False
