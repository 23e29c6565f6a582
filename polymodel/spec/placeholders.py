"""Templates that only have variables filled in, which is what most files of the library are.

jinja2 takes a fifth of the time of a small evaluation to import, so these files are rendered without it.
What this module renders, `template.render` renders to the same text; everything else is left to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from polymodel.frozen import dataclass
from polymodel.spec.faults import Source

_LONGEST = 100_000  # characters; templates above that are counted by the budget of `template.py`
# A name in capitals is neither a keyword nor a function of jinja2; a literal has nothing to unescape.
_PLACEHOLDER = re.compile(
    r"""\{\{\x20*([A-Z][A-Z0-9_]*)\x20*
    (?:\|\x20*default\((?:(0|[1-9][0-9]{0,17})|"([^"\\\n{}]*)"|'([^'\\\n{}]*)')\)\x20*)?\}\}""",
    re.VERBOSE,
)
_OPENING = re.compile(r"\{[{%#]")
_ELSEWHERE = re.compile("[\r\ue000-\ue003]")  # what `template.render` normalises or refuses


@dataclass(frozen=True)
class Rendered:
    """The text to parse, its source, and the template variables that the file knows."""

    text: str
    source: Source
    variables: frozenset[str]


def is_template(text: str) -> bool:
    """Whether a file has anything to render."""
    return _OPENING.search(text) is not None


def filled(text: str, plain: Source, variables: Mapping[str, object]) -> Rendered | None:
    """Fill in the variables of the file `plain`; None if that takes more than texts and integers."""
    if len(text) > _LONGEST or _ELSEWHERE.search(text):
        return None
    pieces: list[str] = []
    names: set[str] = set()
    end = 0
    for place in _PLACEHOLDER.finditer(text):
        name, *literals = place.groups()
        value = variables[name] if name in variables else next((v for v in literals if v is not None), None)
        written = _written(value)
        if written is None:
            return None
        names.add(name)
        pieces += (text[end : place.start()], written)
        end = place.end()
    pieces.append(text[end:])
    # A brace before a placeholder would make it a dictionary.
    if any(is_template(piece) or piece.endswith("{") for piece in pieces[::2]):
        return None
    lines = tuple("".join(pieces).split("\n"))
    source = Source(plain.file, lines, plain.lines, tuple(range(1, len(lines) + 1)), plain.folder)
    return Rendered("\n".join(lines), source, frozenset(names))


def _written(value: object) -> str | None:
    """A value as a template prints it; None for what is not an integer or a short text of one line."""
    if type(value) is int and abs(value) < 10**18:
        return str(value)
    if type(value) is str and len(value) < 1000 and not _ELSEWHERE.search(value) and "\n" not in value:
        return value
    return None
