"""Kept rows as parquet, written a chunk at a time and read a column at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from polymodel.errors import writing
from polymodel.spec.output import record, whole

if TYPE_CHECKING:
    import pyarrow

DIGITS = 38  # of the widest integers that parquet's readers share


def arrow_table(columns: Mapping[str, list[Any]]) -> pyarrow.Table:
    """Columns of Python values; integers beyond int64 as decimals of 38 digits, beyond these as text."""
    import pyarrow as pa

    return pa.table({name: _column(values) for name, values in columns.items()})


def _column(values: list[Any]) -> pyarrow.Array:
    import pyarrow as pa

    most = max((abs(v) for v in values if isinstance(v, int)), default=0)
    if most < 2**63 or any(isinstance(v, float) for v in values):
        return pa.array(values)
    if most < 10**DIGITS:
        return pa.array([Decimal(v) for v in values], pa.decimal128(DIGITS, 0))
    return pa.array([str(v) for v in values])


def write_rows(file: Path, chunks: Iterable[Mapping[str, list[Any]]], *, kept: bool = False) -> None:
    """Write the chunks as one file; a column that a chunk lacks is 0 there. `kept`: it is a store's, whose
    journal names what is written."""
    import pyarrow as pa
    from pyarrow import parquet

    pieces: list[Path] = []
    mine = uuid4().hex[:8]  # another process may be writing to the same place
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            for i, chunk in enumerate(chunks):
                pieces.append(file.with_name(f".{file.stem}-{i}.{mine}.new"))
                if kept:
                    record(pieces[-1])
                with pieces[-1].open("wb") as sink:
                    parquet.write_table(arrow_table(chunk), sink)
            schemas = [parquet.read_schema(_opened(p)) for p in pieces]
            schema = pa.unify_schemas(schemas, promote_options="permissive")
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


def _opened(file: Path) -> pyarrow.OSFile:
    """A file to read; pyarrow would take a name like `a:b/c` for an address."""
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
    """The columns of a file of rows, each read when it is asked for."""

    def __init__(self, file: Path) -> None:
        from pyarrow import parquet

        self.file = file
        self.about = parquet.read_schema(_opened(file))

    def __getitem__(self, name: str) -> list[Any]:
        from pyarrow import parquet

        if name not in self.about.names:
            raise KeyError(name)
        values: list[Any] = parquet.read_table(_opened(self.file), columns=[name])[name].to_pylist()
        return [int(v) for v in values] if "decimal" in str(self.about.field(name).type) else values

    def __iter__(self) -> Iterator[str]:
        return iter(self.about.names)

    def __len__(self) -> int:
        return len(self.about.names)
