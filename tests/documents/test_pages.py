"""Every page runs and prints what it says; a page that is added is tested at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.page import ROOT, pages
from tests.documents.runner import run
from tests.seeds import seeds

LONG = "fuse.md"  # a search of seconds; the site shows many


@pytest.mark.parametrize(
    "page",
    seeds(len(pages()) - 1, sorted(pages(), key=lambda p: p.name == LONG)),
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_page_runs_as_it_says(page: Path) -> None:
    faults, _ = run(page)
    told = "\n".join(f"{page.relative_to(ROOT)}:{f.line}\n{f.message}" for f in faults)
    assert not faults, f"{told}\nrefresh: python -m tests.documents.run {page.relative_to(ROOT)} --write"
