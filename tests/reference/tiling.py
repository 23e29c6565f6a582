"""Reference data of tilings: which check a file's content asks for.

Matrices that records name are looked for in a folder `matrices` beside the file or above it, then in
tests/data/matrices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.reference import tiling_elementwise, tiling_guillotine, tiling_matmul, tiling_swift
from tests.reference.common import Outcome

Recognise = Callable[[Mapping[str, Any]], bool]
Check = Callable[[Path], list[Outcome]]

# Topic -> how its files are recognised by their content, and what compares them.
TOPICS: dict[str, tuple[Recognise, Check]] = {
    "matmul": (tiling_matmul.is_matmul, tiling_matmul.check),
    "elementwise": (tiling_elementwise.is_elementwise, tiling_elementwise.check),
    "guillotine": (tiling_guillotine.is_optimum, tiling_guillotine.check),
    "tiler-swift": (tiling_swift.is_reproduction, tiling_swift.check),
}


def topics_of(path: Path) -> list[str]:
    """The topics of a file; none if it is no JSON object or nothing known."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    return [name for name, (recognise, _) in TOPICS.items() if recognise(given)]


def check(path: Path) -> list[Outcome]:
    """Outcomes of all topics of a file."""
    found = [outcome for topic in topics_of(path) for outcome in TOPICS[topic][1](path)]
    return found or [Outcome(path.stem, fault="no case of a known format")]
