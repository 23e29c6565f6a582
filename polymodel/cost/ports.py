"""How long one instance's port is busy."""

from __future__ import annotations

from polymodel.architecture.hierarchy import Component
from polymodel.cost.actions import movement_actions

Moved = tuple[int, int]


def port_time(component: Component, moved: Moved) -> float:
    """Seconds for (read bits, write bits) at one instance: the sum at a shared port, else the larger."""
    read, write = movement_actions(component)
    sides = moved[0] / read.throughput, moved[1] / write.throughput
    return sum(sides) if component.ports == "shared" else max(sides)
