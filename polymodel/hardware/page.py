"""The page of a co-design: points of the front link to their machine and its mappings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polymodel.objectives import unit_of
from polymodel.quantities import engineering
from polymodel.report.search_page import MOST_TREES, ROWS, Plot, mapping_blocks, picked, plotted
from polymodel.report.svg import architecture_svg
from polymodel.view.answer import Block, Fold, Part, Picture, Section, notes

if TYPE_CHECKING:
    from polymodel.hardware.answer import Codesign

MOST_LAYERS = 8 * MOST_TREES  # LoopTrees on a page, over all points


def links(count: int) -> list[str]:
    """The link targets of the points of a front: the rows of its table."""
    return [f"#{ROWS}-{row}" for row in range(count)]


def codesign_parts(found: Codesign, pictures: Sequence[Plot], tables: Sequence[Part]) -> list[Part]:
    """The sections of the page. `tables`: that of the front first."""
    front, *others = tables
    shown = _shown(found)
    return [*plotted(pictures), _linked(front, shown), *_machines(found, shown), *others]


def _shown(found: Codesign) -> tuple[int, ...]:
    """The points shown with their mappings: the best of each objective, and some others."""
    points = list(found.points)
    first = [points.index(found.best(o)) for o in found.objectives] if points else []
    return picked(len(points), first, max(1, min(MOST_TREES, MOST_LAYERS // len(found.layers))))


def _linked(front: Part, shown: Sequence[int]) -> Part:
    """The table of the front, whose rows are link targets of plots, and link to what is shown of them."""
    links = {row: f"point-{row}" for row in shown}
    blocks = [
        replace(b, link=lambda row: links.get(row, ""), rows=ROWS) if isinstance(b, Section) else b
        for b in front.blocks
    ]
    legend = notes(["Where a number is a link, it leads to the machine and its mappings."] if links else [])
    return replace(front, blocks=[*legend, *blocks], opened=True)


def _machines(found: Codesign, shown: Sequence[int]) -> Iterator[Part]:
    if not shown:
        return
    folds = []
    for k, row in enumerate(shown):
        point = found[row]
        figures = ", ".join(f"{n} {engineering(v, unit_of(n))}" for n, v in point.figures.items())
        title = f"point-{row}: {point.machine.name}: {figures}"
        folds.append(Fold(title, (*_of_point(found, row),), opened=not k, anchor=f"point-{row}"))
    total = len(found.points)
    some = f"{len(shown)} of {total:,}: the best in each objective, others from all along the front. "
    use = "Each YAML has the symbols of its machine and a mapping: load it after machine and workload."
    yield Part("Machines and mappings", [*notes([some * (total > len(shown)) + use]), *folds], opened=True)


def _of_point(found: Codesign, row: int) -> Iterator[Block]:
    """The machine, and the mapping of each layer."""
    point, einsums = found[row], found.table("layer_costs").column("layer")
    yield Fold(
        "machine", (Picture(f"Machine of point {row}", architecture_svg(point.machine.arch)),), opened=True
    )
    for j, (spec, tree, times) in enumerate(zip(point.specs, point.trees, found.times, strict=True)):
        often = f", {times} times" if times > 1 else ""
        blocks = mapping_blocks(f"point-{row}-layer-{j}", spec, tree, point.yaml(j))
        yield Fold(f"layer {j}: {einsums[j]}{often}", blocks, opened=not j)
