"""Generated examples are the same in every run of `make test`, and new ones under POLYMODEL_RANDOM=1.

A run that passes on one machine then passes on all; the slow suite looks for new cases. `make test` draws a
part of the examples of each property, the slow suite (POLYMODEL_LONG=1) all of them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from typing import Any

from hypothesis import is_hypothesis_test, settings

SHARE, LEAST = 10, 3  # `make test` draws a tenth of the examples, but no fewer than this

settings.register_profile("steady", derandomize=True, database=None)
settings.register_profile("searching", print_blob=True)
settings.load_profile("searching" if os.environ.get("POLYMODEL_RANDOM") else "steady")


def pytest_collection_finish() -> None:
    """What modules hold stays: the collector of garbage need not look through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: Iterable[Any]) -> None:
    """Draw fewer examples of each property that is not marked slow, unless the run is the long one."""
    if os.environ.get("POLYMODEL_LONG"):
        return
    for item in items:
        test = getattr(item, "obj", None)
        if test is not None and is_hypothesis_test(test) and item.get_closest_marker("slow") is None:
            # Hypothesis has no public way to set the examples of a test from outside; it reads them here.
            given = getattr(test, "_hypothesis_internal_use_settings", settings.default)
            fewer = max(given.max_examples // SHARE, min(LEAST, given.max_examples))
            test.__dict__["_hypothesis_internal_use_settings"] = settings(given, max_examples=fewer)
