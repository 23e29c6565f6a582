"""Which checks a file of reference data asks for, told by what it holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.reference.common import Outcome

Recognise = Callable[[Mapping[str, Any]], bool]
Check = Callable[[Path], list[Outcome]]


@dataclass(frozen=True)
class Topics:
    """Topic -> how its files are recognised by their content, and what compares them."""

    known: Mapping[str, tuple[Recognise, Check]]

    def of(self, path: Path) -> list[str]:
        """The topics of a file; none if it is not a JSON object or nothing known."""
        try:
            given = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return []
        if not isinstance(given, dict):
            return []
        return [name for name, (recognise, _) in self.known.items() if recognise(given)]

    def check(self, path: Path) -> list[Outcome]:
        """Outcomes of all topics of a file."""
        found = [outcome for topic in self.of(path) for outcome in self.known[topic][1](path)]
        return found or [Outcome(path.stem, fault="no case of a known format")]
