"""Tables and texts as files: CSV, parquet, JSON, written atomically."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polymodel.errors import writing
from polymodel.integers import arrow_column, is_whole
from polymodel.spec.files import whole, write_text
from polymodel.view.table import Cell, Table

if TYPE_CHECKING:
    import pandas


Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def saved_text(text: str, file: str | PathLike[str] | None) -> str:
    """The text, also written to `file` if given. Raises SpecError if it cannot be written."""
    if file is not None:
        with writing(file):
            write_text(file, text)
    return text


def ensure_folder(folder: str | PathLike[str]) -> Path:
    """The folder, created if missing. Raises SpecError if it cannot be created."""
    with writing(folder):
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
    return target


def write_csv(table: Table, path: Path) -> None:
    """A table as CSV."""
    with writing(path):
        write_text(path, table.to_csv())


def write_parquet(frame: pandas.DataFrame, path: Path) -> None:
    """A DataFrame as a parquet file that loses no digit of an integer.

    Integers beyond int64 are decimals of 38 digits without fraction; beyond these the column is text, marked
    `polymodel`: `integer` in its field's metadata. A column of numbers and words is text.
    """
    import pyarrow
    from pyarrow import parquet

    objects = {n: frame[n].tolist() for n in frame.columns if frame[n].dtype == object}
    long = {n: arrow_column(values) for n, values in objects.items() if is_whole(values)}
    mixed: dict[str, Any] = {
        n: _as_text(values) for n, values in objects.items() if n not in long and _is_mixed(values)
    }
    data = pyarrow.Table.from_pandas(frame.assign(**dict.fromkeys(long, 0), **mixed))
    for name, (column, values) in long.items():
        data = data.set_column(data.column_names.index(name), column.with_name(name), values)
    with writing(path), whole(path) as fresh, fresh.open("wb") as sink:
        parquet.write_table(data, sink)


def _is_mixed(values: Sequence[object]) -> bool:
    """True for a column with cells of several kinds, or of a kind that parquet has no type for."""
    kinds = {type(v) for v in values if v is not None}
    return len(kinds) > 1 or not kinds <= {str, bool, int, float}


def _as_text(values: Sequence[object]) -> list[str | None]:
    return [None if v is None else str(v) for v in values]


def json_text(data: Json) -> str:
    """Plain data as JSON, indented; ends with a newline."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_rows(table: Table) -> list[Json]:
    """The rows of a table for JSON: an infinite figure is the string "inf", a missing number is null."""
    return [{k: plain(v) for k, v in r.items()} for r in table.records()]


def json_table(table: Table) -> Json:
    """Units, rows and notes of a table."""
    return {"units": dict(table.units), "rows": json_rows(table), "notes": list(table.notes)}


def table_json(table: Table) -> str:
    """The rows of one table as JSON text."""
    return json_text(json_rows(table))


def plain(value: Cell) -> Json:
    """A cell as a JSON value."""
    if isinstance(value, float):
        if math.isinf(value):
            return "-inf" if value < 0 else "inf"
        if math.isnan(value):
            return None
    return value
