"""Generated examples are the same in every run of `make test`, and new ones under POLYMODEL_RANDOM=1.

A run that passes on one machine then passes on all; the slow suite looks for new cases. `make test` draws a
part of the examples of each property, the slow suite (POLYMODEL_LONG=1) all of them. Of tests that are
marked `thin(n)` one case in n is for every run; the others, which show the same again, are slow.
"""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

# Kept even where the environment says otherwise: the processes that tests start need not compile the package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Figures may be picojoules, of which pytest's 1e-12 would hide all: what `pytest.approx` compares has to
# be equal in relation to its size, and to zero exactly, unless the test says `abs=`.
type(pytest.approx(1.0)).DEFAULT_ABSOLUTE_TOLERANCE = 0.0

SHARE, LEAST = 32, 3  # `make test` draws so small a part of the examples, but no fewer than this

# As in a command, the collector of garbage looks rarely: from 700 objects on it took a tenth of the time.
gc.set_threshold(50_000, 20, 20)

# Without deadlines: how long an example takes depends on what else the machine does.
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("searching", print_blob=True, deadline=None)
settings.load_profile("searching" if os.environ.get("POLYMODEL_RANDOM") else "steady")


def pytest_collection_finish() -> None:
    """What modules hold stays: the collector of garbage need not look through it again and again."""
    from polymodel.cli import progress

    # Lines such as `counting: 32 s so far` come where a machine is busy; what tests compare has none.
    progress.LINE_EVERY = math.inf
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: Iterable[Any]) -> None:
    """Draw fewer examples of each property that is not marked slow, unless the run is the long one."""
    _thin(items)
    if os.environ.get("POLYMODEL_LONG"):
        return
    for item in items:
        test = getattr(item, "obj", None)
        if test is not None and is_hypothesis_test(test) and item.get_closest_marker("slow") is None:
            # Hypothesis has no public way to set the examples of a test from outside; it reads them here.
            given = getattr(test, "_hypothesis_internal_use_settings", settings.default)
            fewer = max(given.max_examples // SHARE, min(LEAST, given.max_examples))
            test.__dict__["_hypothesis_internal_use_settings"] = settings(given, max_examples=fewer)


def _thin(items: Iterable[Any]) -> None:
    """Mark all cases of thin tests slow but the first, and every n-th after it."""
    seen: Counter[tuple[object, str]] = Counter()
    for item in items:
        thin = item.get_closest_marker("thin")
        if thin is None or item.get_closest_marker("slow") is not None:
            continue
        of = item.module, item.originalname
        if seen[of] % thin.args[0]:
            item.add_marker(pytest.mark.slow)
        seen[of] += 1
