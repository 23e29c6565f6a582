"""Which action of a component a movement is, and how many whole actions it takes.

A memory and a toll have `read` (out of a memory or down through a toll) and `write` (into a memory or
up through a toll), compute has `compute`. An action that a component does not name is free.
"""

from __future__ import annotations

from polymodel.architecture.hierarchy import Action, Component
from polymodel.errors import Refused


def movement_actions(component: Component) -> tuple[Action, Action]:
    """The actions `read` and `write` of a memory or toll."""
    return component.action("read"), component.action("write")


def whole_actions(action: Action, *, values: int, in_tiles: int, bits_per_value: int, where: str) -> int:
    """How many actions move these elements; each transfer rounds up to whole actions.

    `values` elements move one by one (operands and results of compute), `in_tiles` elements move in
    tiles, one transfer each. Without the sizes of the single transfers a tile's rounding is known only
    if no element needs any.
    """
    per_action = action.bits_per_action
    if per_action is None:
        return (values + in_tiles) * bits_per_value
    if bits_per_value % per_action and in_tiles:
        raise Refused(
            f"{where}: {action.name} moves {per_action} bits per action, which does not divide the "
            f"{bits_per_value} bits of a value, and tiles of it are moved as one transfer each",
            "leave out bits_per_action, or give one that divides bits_per_value",
        )
    return (values + in_tiles) * -(-bits_per_value // per_action)


def rounds(action: Action, bits_per_value: int) -> bool:
    """True if moving one value by whole actions takes more bits than the value has."""
    return action.bits_per_action is not None and bits_per_value % action.bits_per_action != 0
