"""docs/reference/files.md is what the schemas say, and knows every key."""

from __future__ import annotations

from polymodel.spec.schemas.teaal import TEXTS as TEAAL
from polymodel.spec.schemas.texts import TEXTS

from .files_page import INTRO, PAGE, text
from .server import SETTINGS


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(), "run python -m tests.editors.files_page"


def test_every_key_is_on_it() -> None:
    page = text()
    keys = {key for texts in TEXTS.values() for key in texts} | {name.split(".")[-1] for name in TEAAL}
    assert {key for key in keys if f"| `{key}`" not in page} == set()


def test_each_editor_is_told_every_tag() -> None:
    intro = INTRO.read_text(encoding="utf-8")
    assert all(intro.count(f'"{tag}"') == 3 for tag in SETTINGS["yaml.customTags"])
