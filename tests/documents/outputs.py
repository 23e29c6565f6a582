"""Whether what was printed is what a page says."""

from __future__ import annotations

import difflib
import re

ANY = "..."


def tidy(text: str) -> list[str]:
    """Lines without blanks at their ends and without empty lines around them."""
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def agree(expected: str, printed: str) -> bool:
    """Whether the two are equal line by line.

    A line `...` stands for any lines, and `...` within a line for anything in it, such as a time.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ANY else ".*".join(map(re.escape, line.split(ANY))) + r"\n"
        for line in tidy(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in tidy(printed))) is not None


def difference(expected: str, printed: str) -> str:
    """What a reader needs to see to mend the page: - the page says, + was printed."""
    return "\n".join(difflib.unified_diff(tidy(expected), tidy(printed), "page", "printed", lineterm=""))
