"""What the built documentation has beside its hand-written pages, made anew for every build.

The fragments go to docs/_generated, which is not kept in the repository; pages include them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.documents import columns, commands, errors


def fragments() -> Mapping[str, Callable[[], str]]:
    """File -> what makes its text."""
    sections = {
        f"cli/{name.replace(' ', '_')}.md": partial(commands.section, parser)
        for name, parser in commands.commands().items()
    }
    return {"tables.md": columns.page, "errors.md": errors.page, **sections}


def put(path: Path, text: str) -> None:
    """Write a file, if it is not as it should be: Sphinx reads again what is newer."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def write_all(docs: Path) -> None:
    """All fragments, below the folder `docs`."""
    for name, make in fragments().items():
        put(docs / "_generated" / name, make())
