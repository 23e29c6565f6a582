"""The time that pages and pictures carry where a build is to come out the same twice."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from polymodel.errors import Diagnostic, SpecError

NAME = "SOURCE_DATE_EPOCH"


def pinned() -> datetime | None:
    """What SOURCE_DATE_EPOCH says, in UTC; None where it is not set.

    SpecError for what is not a number of seconds since 1970, or beyond the calendar: matplotlib reads it too.
    """
    given = os.environ.get(NAME, "")
    if not given:
        return None
    try:
        return datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError):
        what = f"{given[:40]!r} is not a number of seconds since 1970"
        raise SpecError([Diagnostic(what, "take it out of the environment, or give e.g. 0", NAME)]) from None
