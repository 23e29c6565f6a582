"""The displayed unit of amounts of data: bits or bytes."""

from __future__ import annotations

from types import TracebackType

from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import UNITS, data_unit, show_in


class UnitsContext:
    """The result of `units`: in a `with` block the previous unit is restored at the end."""

    def __init__(self, before: str) -> None:
        self._before = before

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        show_in(self._before)

    def __repr__(self) -> str:
        return f"amounts of data are shown in {data_unit()}"


def units(name: str) -> UnitsContext:
    """Show amounts of data in `"bits"` (the default) or in `"bytes"`: in text, on pages and plots.

    It holds for the whole process from now on, in `with units("bytes"):` until the end of the block. Tables
    as data (DataFrames, CSV, JSON, parquet) stay in bits, as their column names say. Raises SpecError for
    another word.
    """
    if name not in UNITS:
        message = f"there are no units {name!r}"
        raise SpecError([Diagnostic(message, f"units: {', '.join(UNITS)}", code="unknown-choice")])
    return UnitsContext(show_in(name))
