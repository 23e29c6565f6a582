"""How long one instance's port is busy."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.architecture.hierarchy import Component
from polymodel.cost.actions import movement_actions
from polymodel.cost.algebra import NUMBERS, Algebra, Number


def port_time(component: Component, moved: tuple[Number, Number], do: Algebra = NUMBERS) -> Number:
    """Seconds for (read bits, write bits) at one instance: the sum at a shared port, else the larger."""
    read, write = movement_actions(component)
    sides = moved[0] / read.throughput, moved[1] / write.throughput
    return sides[0] + sides[1] if component.ports == "shared" else do.largest(sides)


def slowest_pair(
    component: Component, loads: Sequence[tuple[Number, Number]], do: Algebra = NUMBERS
) -> tuple[Number, Number]:
    """Of several instances' (read bits, write bits) those that take longest."""
    if len(loads) == 1:
        return loads[0]
    return max(loads, key=lambda pair: (port_time(component, pair, do), pair))


def busy_time(component: Component, moved: Number, seconds: Number, times: int, do: Algebra) -> Number:
    """Seconds of `times` executions: those of the work, and `fill_drain_latency` if anything moves."""
    return (seconds + do.where_moved(moved, component.fill_drain_latency)) * times
