"""Reference data of sparse tensors: which check a file's content asks for.

A file may hold data for several checks; all that recognise it are run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.reference import (
    teaal_density,
    teaal_facts,
    teaal_formats,
    teaal_partition,
    teaal_tensaurus,
    teaal_traffic,
)
from tests.reference.common import Outcome

Recognise = Callable[[Mapping[str, Any]], bool]
Check = Callable[[Path], list[Outcome]]

# Topic -> how its files are recognised by their content, and what compares them.
TOPICS: dict[str, tuple[Recognise, Check]] = {
    "density": (teaal_density.is_statistics, teaal_density.check),
    "expectations": (teaal_density.is_expectations, teaal_density.check),
    "kernels": (teaal_tensaurus.is_kernels, teaal_tensaurus.check),
    "partitionings": (teaal_partition.is_partitions, teaal_partition.check),
    "slices": (teaal_partition.is_slices, teaal_partition.check_slices),
    "footprints": (teaal_formats.is_footprints, teaal_formats.check),
    "ciss": (teaal_formats.is_facts, teaal_formats.check),
    "facts": (teaal_facts.is_facts, teaal_facts.check),
    "artifact": (teaal_facts.is_artifact, teaal_facts.check),
    "accelerators": (teaal_traffic.is_accelerators, teaal_traffic.check),
    "buffets": (teaal_traffic.is_buffets, teaal_traffic.check),
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
