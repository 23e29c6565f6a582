"""The parts of a spec as pictures, before anything is evaluated."""

from __future__ import annotations

from polymodel.loading import Spec
from polymodel.mapping.looptree import LoopTree
from polymodel.report.svg import architecture_svg, looptree_svg
from polymodel.report.svg_cascade import cascade_svg
from polymodel.spec.faults import not_a_spec
from polymodel.view.inline import Drawing
from polymodel.workload.einsum import Cascade


def draw_looptree(spec: Spec | LoopTree) -> Drawing:
    """The LoopTree of a spec: storage nodes are cylinders, loops rectangles, computes ovals, splits forks.

    For a LoopTree alone, loops do not show what they infer or repeat, since that depends on the Einsums. A
    notebook shows the picture; `save("tree.svg")` writes it. Raises SpecError if there is no mapping.
    """
    if isinstance(spec, LoopTree):
        return Drawing("LoopTree", looptree_svg(spec))
    if not isinstance(spec, Spec):
        raise not_a_spec("draw_looptree", spec)
    cascade, _, tree = spec.resolved
    if tree is None:
        raise spec.no_mapping()
    return Drawing("LoopTree", looptree_svg(tree, cascade))


def draw_architecture(spec: Spec) -> Drawing:
    """The memories, fanouts and compute units of a spec, outermost first.

    A notebook shows the picture; `save("machine.svg")` writes it. Raises SpecError if there is no
    architecture.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("draw_architecture", spec)
    return Drawing("Architecture", architecture_svg(spec.arch))


def draw_cascade(spec: Spec | Cascade) -> Drawing:
    """The Einsums and tensors of a spec as a graph along the data, ranks with their sizes.

    A notebook shows the picture; `save("cascade.svg")` writes it. Raises SpecError if there is no workload.
    """
    if isinstance(spec, Cascade):
        return Drawing("Cascade", cascade_svg(spec))
    if not isinstance(spec, Spec):
        raise not_a_spec("draw_cascade", spec)
    return Drawing("Cascade", cascade_svg(spec.workload))
