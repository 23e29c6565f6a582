"""Every page runs and prints what it says; a page that is added is tested at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.page import ROOT, pages
from tests.documents.runner import run
from tests.seeds import seeds

# Searches, sweeps and files of seconds: the slow run looks at these pages.
LONG = (
    "howto/analog.md",
    "howto/fuse.md", "howto/explore.md", "howto/codesign.md", "howto/chips.md", "reference/api/explore.md",
    "gallery.md", "sparse/gcn.md", "sparse/capacity.md", "howto/sweep.md", "reference/api/slopes.md",
    "reference/cli.md", "howto/import.md", "howto/forms.md",
    "explore.md", "howto/sparse.md",
)  # fmt: skip
# Tests of their own run these pages in every run.
ELSEWHERE = (
    "sparse/actions.md", "sparse/density.md", "sparse/exploration.md", "sparse/formats.md",
    "tiling/estimates.md", "tiling/matmul.md", "tiling/model.md", "tiling/operands.md",
)  # fmt: skip


def later(page: Path) -> bool:
    """Whether a page is left to the slow run."""
    return page.relative_to(ROOT).as_posix().removeprefix("docs/") in (*LONG, *ELSEWHERE)


ORDERED = sorted(pages(), key=later)


@pytest.mark.parametrize(
    "page",
    seeds(len(ORDERED) - sum(map(later, ORDERED)), ORDERED),
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_page_runs_as_it_says(page: Path) -> None:
    faults, _ = run(page)
    told = "\n".join(f"{page.relative_to(ROOT)}:{f.line}\n{f.message}" for f in faults)
    assert not faults, f"{told}\nrefresh: python -m tests.documents.run {page.relative_to(ROOT)} --write"
