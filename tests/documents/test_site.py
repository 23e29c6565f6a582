"""The site is built as CI and readers build it: notebooks run, a warning is an error, nothing is fetched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents.page import ROOT, pages

# What a browser fetches by itself when it shows a page; a link that one has to click may lead anywhere.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?\b(?:src|data)\s*=\s*["']?(?:https?:)?//"""
    r"""|<link\b[^>]*?\bhref\s*=\s*["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(\s*["']?(?:https?:)?//""",
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", "docs"]
    built = subprocess.run(
        [*command, "-d", str(folder / "trees"), ".", str(folder / "html")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-8000:]
    return folder / "html"


@pytest.mark.slow
def test_the_site_is_whole_and_fetches_nothing(site: Path) -> None:
    """One test, so that the site is built once."""
    for page in pages():
        assert site.joinpath(page.relative_to(ROOT)).with_suffix(".html").exists(), page
    fetching = {
        str(path.relative_to(site)): found[0]
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        if (found := FETCHED.search(path.read_text(encoding="utf-8")))
    }
    assert not fetching
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shown = (site / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
        assert 'class="cell_output' in shown, notebook
    assert "url=docs/index.html" in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("html", "fetches"),
    [
        ('<script async src="https://a.b/c.js">', True),
        ("<link rel='stylesheet' href='//a.b/c.css'>", True),
        ("@import url(http://a.b/c.css)", True),
        ('<a href="https://a.b">', False),
        ('<script src="_static/a.js">', False),
        ('<svg xmlns="http://www.w3.org/2000/svg">', False),
    ],
)
def test_what_counts_as_fetched(html: str, fetches: bool) -> None:
    assert bool(FETCHED.search(html)) == fetches
