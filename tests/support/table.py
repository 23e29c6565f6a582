"""Which door offers what, asked of the running code: `python -m tests.support.table [--check]`.

Each cell of docs/reference/support.md is an answer of the code: "yes" where a door counts the feature and
agrees with the engine that walks every operation, else the reason with which the door refuses it. Without
--check the tables in the page are written anew; with it nothing is written, and exit code 1 says that the
page is outdated. Where a door gives other numbers or fails, its cell says "differs", the error goes to
stderr, and the exit code is 1; the other cells are written all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support import requests
from tests.support.doors import DOORS
from tests.support.features import FEATURES
from tests.support.page import PAGE, answered, rows, stored, table_text


@dataclass(frozen=True)
class SupportTable:
    """`mark`: its name in the page; `head`: of its first column; `answer(row, column)`: a cell."""

    mark: str
    head: str
    rows: Mapping[str, Any]
    columns: Sequence[str]
    answer: Callable[[Any, str], str]

    def cell(self, row: str, column: str) -> str:
        """What a column says of a row."""
        return self.answer(self.rows[row], column)


TABLES = (
    SupportTable(
        "the table",
        "feature",
        {f.name: f for f in FEATURES},
        tuple(DOORS),
        lambda feature, door: answered(lambda: DOORS[door](feature)),
    ),
    SupportTable(
        "the requests",
        "request",
        {r.name: r for r in requests.REQUESTS},
        tuple(requests.ASKED),
        requests.answer,
    ),
)


def main(arguments: list[str] | None = None, tables: Sequence[SupportTable] = TABLES) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    wrong = False
    for table in tables:
        found, failed = rows(table.rows, table.columns, table.cell)
        fresh = table_text(table.head, table.columns, found)
        sys.stderr.writelines(f"{line}\n" for line in failed)
        before, old, after = stored(PAGE, table.mark)
        wrong |= bool(failed)
        if not options.check:
            PAGE.write_text(before + fresh + after, encoding="utf-8")
        elif fresh != old:
            sys.stdout.write(f"{table.mark} of {PAGE} differs:\n{fresh}")
            wrong = True
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
