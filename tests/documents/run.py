"""Checks pages, or refreshes the outputs they show: python -m tests.documents.run PAGE... [--write]

To have the output of a command filled in, write a line `?` below it; an empty text block below a python
block is filled in too. Without pages, all are checked.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from polymodel.cli import progress
from tests.documents.page import ROOT, pages
from tests.documents.runner import run


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0 if every page is as it says (or was made so), else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.documents.run", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--write", action="store_true", help="put what was printed into the pages")
    options = parser.parse_args(arguments)
    progress.LINE_EVERY = math.inf  # how long a command has taken is no part of a page
    bad = 0
    for page in [p.resolve() for p in options.pages] or pages():
        began = time.perf_counter()
        faults, text = run(page)
        if options.write and text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            faults, _ = run(page)
        name = page.relative_to(ROOT) if page.is_relative_to(ROOT) else page
        sys.stdout.write(f"{name}: {time.perf_counter() - began:.1f} s, {len(faults)} faults\n")
        for fault in faults:
            sys.stdout.write(f"{name}:{fault.line}\n{fault.message}\n\n")
        bad += bool(faults)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
