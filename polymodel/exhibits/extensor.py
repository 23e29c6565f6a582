"""ExTensor: tiled sparse products, with intersections of tiles at three levels."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.teaal_designs import ARTIFACT, small_product


def figures() -> Iterator[PublishedFigure]:
    yield from small_product("extensor")


EXHIBIT = Exhibit(
    "extensor",
    "ExTensor: sparse matrix products tile by tile",
    f"Hegde et al., MICRO 2019; Nayak et al., TeAAL, MICRO 2023: scripts/check.py of {ARTIFACT}",
    "Traffic, intersections and operations of the library's TeAAL spec on the small product of the artifact.",
    figures,
)
