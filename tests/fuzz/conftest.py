"""The process that command lines are forked from, one for all tests of what commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fuzz.forked import Parent
from tests.fuzz.test_written import FIRST, made


@pytest.fixture(scope="session")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    """It has run the first lines once, so that what is forked later has the imports."""
    running = Parent(tmp_path_factory.mktemp("told"))
    for number, line in enumerate(FIRST if os.environ.get("POLYMODEL_LONG") else FIRST[:3]):
        code, errors = running.run(made(tmp_path_factory.mktemp("fine"), str(number)), line, None)
        assert code == 0, (line, errors)
    yield running
    running.end()
