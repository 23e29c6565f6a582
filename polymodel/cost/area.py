"""Area (m^2) per component, all instances."""

from __future__ import annotations

import math

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.cost.records import AreaItem


def area_items(hierarchy: Hierarchy) -> tuple[AreaItem, ...]:
    """One item per component that can have an area; outermost first."""
    found = []
    for c in hierarchy.components:
        if not c.acts and not c.area:
            continue
        n = hierarchy.instances(c.name)
        found.append(AreaItem(c.name, n, c.area, n * c.area, c.area_provenance))
    return tuple(found)


def total_area(hierarchy: Hierarchy) -> float:
    """Square metres of all components."""
    return math.fsum(item.area for item in area_items(hierarchy))
