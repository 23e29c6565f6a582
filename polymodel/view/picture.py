"""A finished picture or page: shown by a notebook, saved as a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.spec.output import write_text


def _saved(text: str, path: str | Path, ending: str) -> Path:
    file = Path(path)
    if file.suffix.lower() != ending:
        message = f"{file} does not end in {ending}, and that is what it would hold"
        raise SpecError([Diagnostic(message, f"name it {file.with_suffix(ending).name}")])
    with writing(file):
        write_text(file, text)
    return file


@dataclass(frozen=True)
class Drawing:
    """An SVG document with its title."""

    title: str
    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file that ends in .svg; SpecError for another ending or a bad place."""
        return _saved(self.svg, path, ".svg")


@dataclass(frozen=True)
class Page:
    """A self-contained HTML document: nothing in it is fetched from elsewhere.

    `height`: of its frame in a notebook, in pixels.
    """

    title: str
    html: str = field(repr=False)
    height: int = 640

    def _repr_html_(self) -> str:
        """The page in a frame of its own, in which its script runs and from which it reaches nothing."""
        from polymodel.view.html import filled

        return filled("frame.html", title=self.title, document=self.html, height=self.height)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file that ends in .html; SpecError for another ending or a bad place."""
        return _saved(self.html, path, ".html")
