"""One browser for all tests of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.visit import QUIET, browser_path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = browser_path()
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=[*QUIET, *root])
        yield running
        running.close()
