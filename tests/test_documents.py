"""Links, names and keys that pages tell exist. Blocks of pages and notebooks are run in tests/documents."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from polymodel.cli import build_parser
from polymodel.spec.arch_schema import DataTiles, SparseSection
from polymodel.spec.base import SchemaObject
from polymodel.spec.document import SECTIONS
from tests.documents.page import pages

ROOT = Path(__file__).resolve().parent.parent
PAGES = pages()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        # Tables of the reference are made when the documentation is built.
        if "://" not in target and "api/" not in target:
            assert (page.parent / target).exists(), target


def test_readme_names_workloads_commands_and_targets() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"^\| `([^|]+)` \|", text, re.MULTILINE):
        for workload in name.split("`, `"):
            assert (ROOT / "workloads" / f"{workload}.yaml").exists(), workload
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    (told,) = re.findall(r"`polymodel validate`.*?\(a commented", text, re.DOTALL)
    assert set(re.findall(r"`(?:polymodel )?(\w+)`", told)) == set(commands.choices)
    for target in ("demo", "test", "test-slow", "docs", "bench", "reference"):
        assert f"make {target}" in text


def keys(*models: type[SchemaObject]) -> set[str]:
    """All keys that a part of a spec may have, at any depth."""
    schemas = [model.model_json_schema() for model in models]
    parts = [part for schema in schemas for part in (*schema.get("$defs", {}).values(), schema)]
    return {key for part in parts for key in part.get("properties", {})} - {"type"}


@pytest.mark.parametrize("page", ["workload", "architecture", "mapping"])
def test_howto_has_every_key(page: str) -> None:
    """Keys of sparse data and of their tiles have chapters of their own."""
    sections = {"workload": ("workload", "renames"), "architecture": ("arch",), "mapping": ("mapping",)}[page]
    text = (ROOT / "docs" / "howto" / f"{page}.md").read_text(encoding="utf-8")
    elsewhere = keys(SparseSection, DataTiles) - {"name", "tensors", "actions"}
    wanted = keys(*(SECTIONS[name] for name in sections)) - elsewhere
    assert len(wanted) >= 8
    assert not {key for key in wanted if not re.search(rf"\b{key}\b", text)}


def test_glossary_has_the_words_that_pages_use() -> None:
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = set(re.findall(r"^(\w[\w -]*)\n  \S", glossary, re.MULTILINE))
    assert len(words) > 50
    used = {w for p in PAGES for w in re.findall(r"\{term\}`([^`]+)`", p.read_text(encoding="utf-8"))}
    assert {re.sub(r".*<(.*)>", r"\1", w) for w in used} <= words
