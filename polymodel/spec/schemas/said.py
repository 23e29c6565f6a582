"""How a key is described: a text with its unit, and examples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """What a key means. Defaults and possible words come from the model, examples stand here."""

    text: str
    examples: tuple[object, ...] = ()


def said(text: str, *examples: object) -> Said:
    """One description."""
    return Said(text, examples)


Texts = dict[str, dict[str, Said]]
