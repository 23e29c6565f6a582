"""Tiler-Swift's charts: configuration and execution cycles of the matrices that can be generated."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.api.tilings import tiler_swift_comparison
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.report.tiling.swift import TilerSwift
from polymodel.sparse.generate import generate_tensor


@cache
def comparison() -> TilerSwift:
    """Return the charts of four of the six matrices, those with a mathematical definition."""
    made = {
        "bcsstm26": generate_tensor("banded", rows=1922),
        "ch7-6-b1": generate_tensor("chessboard", rows=7, columns=6),
        "mk9-b1": generate_tensor("matching", points=9),
        "n4c6-b1": generate_tensor("simplex", points=21),
    }
    return tiler_swift_comparison([tensor.renamed(name) for name, tensor in made.items()])


def figures() -> Iterator[PublishedFigure]:
    why = "theirs is read off a chart, to about 1 % of its scale; ours is the program as it was built"
    for bar in comparison().comparison.bars:
        what = f"{bar.matrix}, {bar.op}, {bar.tiler}"
        if bar.published_config is not None:
            yield PublishedFigure(
                f"{what}: configuration", "cycles", round(bar.published_config), bar.as_built_config, why
            )
        if bar.published_run is not None:
            yield PublishedFigure(f"{what}: run", "cycles", round(bar.published_run), bar.as_built_run, why)


EXHIBIT = Exhibit(
    "tiler_swift",
    "Tiler-Swift: cycles to configure and to run a CGRA on sparse tiles",
    "github.com/pohantw/tiler_swift, README.md and its four charts",
    "Tilings with the defects of the program behind the charts; docs/tiling/tiler_swift.md corrects them.",
    figures,
)
