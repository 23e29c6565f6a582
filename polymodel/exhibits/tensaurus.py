"""Tensaurus: peak rates, area, power, dense kernels, and bounds of the sparse ones."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.sparse.tensaurus import published


def figures() -> Iterator[PublishedFigure]:
    for record in published():
        yield PublishedFigure(record.quantity, record.unit, record.published, record.ours, record.note)


EXHIBIT = Exhibit(
    "tensaurus",
    "Tensaurus: peak, area, power, kernels and their bounds",
    "Srivastava et al., HPCA 2020, tables and figures of section 6",
    "The machine's model on uniform data of the published sizes; speed-ups over others are not computed.",
    figures,
)
