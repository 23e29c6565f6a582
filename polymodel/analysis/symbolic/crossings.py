"""Transfers over tolls and over the links of fanout dimensions, between one storage and the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from polymodel.analysis.symbolic.spaces import Use
from polymodel.errors import NotSeparable

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.flows import Dimension, FormLedger, RowForms, TransferPath
    from polymodel.analysis.symbolic.forms import Form


def crossed(link: TransferPath, ledger: FormLedger) -> Iterator[tuple[RowForms, int, Dimension | None]]:
    """Each toll and costly link on the path.

    With the loop position up to which instances are distinct there, and the dimension unless a transfer is
    one hop.
    """
    for toll, level in _tolls(link):
        yield (
            ledger.tolls.setdefault((link.einsum, toll, link.tensor), ledger.row()),
            _inner_spatial_start(link, partial(_below, link, level)),
            None,
        )
    for component, dim in link.costly_dimensions:
        yield (
            ledger.links.setdefault((link.einsum, component, dim, link.tensor), ledger.row()),
            _inner_spatial_start(link, partial(_within, link, link.order((component, dim)))),
            (component, dim) if link.topology((component, dim)) != "bus" else None,
        )


def _below(link: TransferPath, level: int, position: int) -> bool:
    """Whether a spatial loop replicates components further in than a given one."""
    return link.level(position) > level


def _within(link: TransferPath, order: int, position: int) -> bool:
    """Whether data cross the dimension of a spatial loop at the same place as another one, or after it."""
    return link.order(link.coordinate(position)) >= order


def _tolls(link: TransferPath) -> Iterator[tuple[str, int]]:
    """Tolls that the link crosses and that charge for the tensor."""
    hierarchy = link.layout.problem.hierarchy
    for c in hierarchy.path_from(link.parent.component, link.lower_end):
        if c.passes and c.keep is not None and link.tensor in c.keep.tensors(link.einsum):
            yield c.name, hierarchy.index(c.name)


def _inner_spatial_start(link: TransferPath, inside: Callable[[int], bool]) -> int:
    """The loop position from which on spatial loops are `inside`."""
    spatial = [i for i, a in enumerate(link.space.axes) if a.spatial]
    held = min(filter(inside, spatial), default=len(link.space.axes))
    if any(i > held and not inside(i) for i in spatial):
        raise NotSeparable(
            "spatial loops stand in another order than the hierarchy",
            code="unsupported-loop",
        )
    return held


Entering = Callable[[Callable[[int], "Use"]], "Form"]


def hops_of(
    link: TransferPath,
    dim: Dimension,
    between: Callable[[int], Use],
    down: bool,
    entering: Entering,
    first: bool,
) -> Form:
    """The hops in a dimension; `first`: over the link to the first instance of a switch.

    `entering`: the count for a given use of each loop's counter; `down`: the transfers are partial sums,
    which only the first instance receives unless the dimension broadcasts them.
    """
    if first:
        return entering(to_each(link, dim, between, down, "at0"))
    topology = link.topology(dim)
    if topology in ("switch", "all_to_all"):
        hops = entering(to_each(link, dim, between, down, "keep"))
        if topology == "switch":
            return hops
        return hops - entering(to_each(link, dim, between, down, "at0"))
    hops = entering(along_mesh(link, dim, between, down))
    return hops - entering(between) if topology == "line" else hops


def to_each(
    link: TransferPath, dim: Dimension, between: Callable[[int], Use], down: bool, use: Use
) -> Callable[[int], Use]:
    """The use of counters that counts the instances along a dimension that receive something.

    Each by itself (`keep`), or the first of them alone (`at0`).
    """
    space = link.space
    along = [i for i, a in enumerate(space.axes) if a.spatial and link.coordinate(i) == dim]

    def one(i: int) -> Use:
        if i not in along:
            return between(i)
        reduces = link.shares(i) and space.axes[i].variable not in space.access.variables
        alone = down and reduces and not link.dim(i).broadcast_partials
        return "at0" if alone else use

    return one


def along_mesh(
    link: TransferPath, mesh: Dimension, between: Callable[[int], Use], down: bool
) -> Callable[[int], Use]:
    """The use of counters that counts the links which transfers cross along a mesh.

    A transfer crosses as many links as the coordinate of its farthest instance, from 1 on. Instances that
    share an element are the first ones, so their number equals that of the links. `down`: the transfers are
    partial sums, which only the first instance receives unless the dimension broadcasts them.
    """
    space = link.space
    along = [i for i, a in enumerate(space.axes) if a.spatial and link.coordinate(i) == mesh]
    if not along:
        return between  # everything is at coordinate 0, one link away
    here, shares = space.axes[along[0]], link.shares(along[0])
    use: Use = "hops"
    if shares and here.variable not in space.access.variables:
        alone = down and not link.dim(along[0]).broadcast_partials
        use = between(along[0]) if alone else "keep"
    parts = use == "hops" and here.variable not in space.single
    stays = link.carry and any(not space.axes[i].spatial for i in space.of(here.variable))
    if len(along) > 1 or here.start is not None or space.windows or (parts and (shares or stays)):
        what = f"{link.tensor} in {link.einsum} crosses the mesh of {mesh[0]}.{mesh[1]}"
        raise NotSeparable(
            f"{what} to instances that several loops, first tiles, or parts of windows tell apart",
            "use engine exact, or topology: bus",
            code="unsupported-link",
        )
    return lambda i: use if i == along[0] else between(i)
