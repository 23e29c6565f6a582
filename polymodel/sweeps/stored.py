"""Kept rows as parquet, written in chunks and read by columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polymodel.errors import writing
from polymodel.integers import arrow_column, from_arrow, is_text
from polymodel.spec.files import record, unfinished, whole

if TYPE_CHECKING:
    import pyarrow


def arrow_table(columns: Mapping[str, list[Any]]) -> pyarrow.Table:
    """Columns of Python values; integers of any length as `integers.arrow_column` writes them."""
    import pyarrow as pa

    result = {name: arrow_column(values) for name, values in columns.items()}
    schema = pa.schema([field.with_name(name) for name, (field, _) in result.items()])
    return pa.table([array for _, array in result.values()], schema=schema)


def write_rows(file: Path, chunks: Iterable[Mapping[str, list[Any]]], *, kept: bool = False) -> None:
    """Write the chunks as one file; a column that a chunk lacks is 0 there.

    `kept`: the file belongs to a store, whose journal names it.
    """
    from pyarrow import parquet

    pieces: list[Path] = []
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            for chunk in chunks:
                pieces.append(unfinished(file))
                if kept:
                    record(pieces[-1])
                with pieces[-1].open("wb") as sink:
                    parquet.write_table(arrow_table(chunk), sink)
            schemas = [parquet.read_schema(_opened(p)) for p in pieces]
            schema = _joined(schemas)
            with (
                whole(file, recorded=kept) as fresh,
                fresh.open("wb") as sink,
                parquet.ParquetWriter(sink, schema) as writer,
            ):
                for piece in pieces:
                    writer.write_table(_widened(parquet.read_table(_opened(piece)), schema))
        finally:
            for piece in pieces:
                piece.unlink(missing_ok=True)


def _joined(schemas: list[pyarrow.Schema]) -> pyarrow.Schema:
    """A schema for the columns of all chunks; integers that one chunk has as text are text in all."""
    import pyarrow as pa

    text = {f.name: f for schema in schemas for f in schema if is_text(f)}
    same = [pa.schema([text.get(f.name, f) for f in schema]) for schema in schemas]
    return pa.unify_schemas(same, promote_options="permissive")


def _opened(file: Path) -> pyarrow.OSFile:
    """Open a file to read; pyarrow would take a name like `a:b/c` for an address."""
    import pyarrow as pa

    return pa.OSFile(str(file))


def _widened(table: pyarrow.Table, schema: pyarrow.Schema) -> pyarrow.Table:
    import pyarrow as pa

    columns = [
        table[f.name].cast(f.type)
        if f.name in table.column_names
        else pa.array([0] * len(table)).cast(f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


class StoredColumns(Mapping[str, list[Any]]):
    """The columns of a file of rows, each read on first access."""

    def __init__(self, file: Path) -> None:
        from pyarrow import parquet

        self.file = file
        self.about = parquet.read_schema(_opened(file))

    def __getitem__(self, name: str) -> list[Any]:
        from pyarrow import parquet

        if name not in self.about.names:
            raise KeyError(name)
        values: list[Any] = parquet.read_table(_opened(self.file), columns=[name])[name].to_pylist()
        return from_arrow(self.about.field(name), values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.about.names)

    def __len__(self) -> int:
        return len(self.about.names)
