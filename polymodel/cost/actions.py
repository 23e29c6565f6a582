"""Which action of a component a movement is, and how many whole actions it takes.

A memory and a toll have `read` (out of a memory or down through a toll) and `write` (into a memory or
up through a toll), compute has `compute`. An action that a component does not name is free.
"""

from __future__ import annotations

from collections.abc import Iterable

from polymodel.architecture.hierarchy import KINDS, Action, Component
from polymodel.cost.algebra import Number


def movement_actions(component: Component) -> tuple[Action, Action]:
    """The actions of a memory or toll for data that go down, and for those that go up."""
    down, up = KINDS[component.kind].actions
    return component.action(down), component.action(up)


def whole_actions(action: Action, elements: Number, bits_per_value: int) -> Number:
    """How many actions (bits, if the action is one bit) move elements one by one.

    So do larger transfers too, where a value takes whole actions.
    """
    return elements * (action.whole_bits(bits_per_value) // (action.bits_per_action or 1))


def rounded_actions(action: Action, sizes: Iterable[tuple[int, Number]], bits_per_value: int) -> Number:
    """How many actions move transfers of these sizes: (elements, how many transfers)."""
    return sum(n * whole_actions(action, 1, elements * bits_per_value) for elements, n in sizes)
