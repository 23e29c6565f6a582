"""How the documentation is built: python -m sphinx -W --keep-going -b html -c docs . out/docs

The source folder is that of the repository, so that links between pages, notebooks and other files are the
same wherever they are read. Notebooks are executed in their own folder. Tables of errors, commands and
columns are made from the program, for every build. Nothing of it needs a network, nor does what it makes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

import polymodel  # noqa: E402  # it stands beside this folder, which is put on the path above
from tests.documents.generate import write_all  # noqa: E402  # likewise

project = "polymodel"
author = "the polymodel authors"
copyright = "the polymodel authors, MIT licence"
version = release = polymodel.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "notebooks/*.ipynb",
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSES/README.md"),
]
exclude_patterns = [".*", "**/.*", "**/__pycache__", "out", "build", "dist", "docs/_generated"]
nitpicky = True
# Types in signatures: their pages are elsewhere, or they are not public. All else has to be found.
nitpick_ignore_regex = [(r"py:(class|obj|data|exc)", r".*")]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 4

# Saves half the time of a build while one writes.
nb_execution_mode = "off" if os.environ.get("POLYMODEL_DOCS_QUICK") else "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds of a cell, also on a machine that is busy with other things
nb_merge_streams = True
# Formulas as text: a page that draws them fetches a program from elsewhere.
nb_mime_priority_overrides = [("html", "text/latex", None)]
myst_update_mathjax = False

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 90
python_use_unqualified_type_names = True
add_module_names = False
default_role = "code"

templates_path: list[str] = []
html_theme = "furo"
html_title = f"polymodel {release}"
html_static_path = ["_static"]
# An index.html that leads on to docs/index.html.
html_extra_path = ["_extra"]
html_css_files = ["wide.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"top_of_page_buttons": []}
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

write_all(DOCS)


# Classes that one makes oneself; of all others, which functions give, arguments would be in the way.
MADE = frozenset(
    "Actual Alone Banded Blocks Diagnostic Diagonals ExecutionReport FixedStructured Hierarchical Launch "
    "Limits LoopTree Machine Place Problem RankNnz Rolled RowColumn Sampled SparseTensor Tiles TrafficReport "
    "Transposed Uniform".split()
)


def signature(
    app: Sphinx, what: str, name: str, obj: object, options: object, arguments: str | None, answer: str | None
) -> tuple[str, str] | None:
    """Of schema classes the fields as they are written; none of classes that functions give."""
    if what != "class" or not isinstance(obj, type) or issubclass(obj, Exception):
        return None
    fields = getattr(obj, "model_fields", None)
    if fields is not None:
        written = {n: t for c in reversed(obj.__mro__) for n, t in vars(c).get("__annotations__", {}).items()}
        shown = [n for n in fields if n != "type"]
        usual = {n: "..." if fields[n].default_factory else repr(fields[n].default) for n in shown}
        words = [f"{n}: {written[n]}" + ("" if fields[n].is_required() else f" = {usual[n]}") for n in shown]
        return f"({', '.join(words)})", ""
    return None if obj.__name__ in MADE else ("", "")


def for_screen_readers(app: Sphinx, failed: Exception | None) -> None:
    """Headings of the menu get a level, and whoever has no mouse can scroll what is wider than the page."""
    if failed is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            text = path.read_text(encoding="utf-8")
            better = text.replace('role="heading"', 'role="heading" aria-level="2"')
            better = better.replace("<pre>", '<pre tabindex="0">')
            if better != text:
                path.write_text(better, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-signature", signature)
    app.connect("build-finished", for_screen_readers)


# Files with template tags are shown as YAML, which they become.
suppress_warnings = ["misc.highlighting_failure"]
