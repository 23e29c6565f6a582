"""What tests in a browser share: where it is, and a page with everything that it asked for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = [
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
    "--no-default-browser-check", "--disable-gpu", "--disable-extensions", "--mute-audio",
]  # fmt: skip
SIZES = {1280: 900, 400: 800}
PATIENCE = 180_000  # ms: where other processes have the processors, pages take long to load
WIDEST = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)"


def browser_path() -> str:
    """A browser to run; skips where there is none, and fails where CI is set."""
    named = os.environ.get("POLYMODEL_BROWSER")
    if named and not Path(named).is_file():
        pytest.fail(f"POLYMODEL_BROWSER names {named}, which is not a file")
    path = named or next(filter(None, map(shutil.which, NAMES)), None)
    if path:
        return path
    reason = f"no browser: set POLYMODEL_BROWSER, or put one of {', '.join(NAMES)} on the PATH"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class Visit:
    """A page with everything that it asked for or complained about."""

    def __init__(self, browser: Any, width: int, **more: Any) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": SIZES[width]}, **more)
        self.page.set_default_timeout(PATIENCE)
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))

    def column(self, part: str, at: int) -> list[str]:
        """Exact figures, or texts, of one column of the table in a part, as they stand."""
        cells = f"#{part} tbody tr td:nth-child({at + 1})"
        script = "cells => cells.map(c => c.title.split(' ')[0] || c.textContent)"
        found: list[str] = self.page.eval_on_selector_all(cells, script)
        return found
