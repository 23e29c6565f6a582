"""Reports as files: CSV, parquet, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, Refused, SpecError, writing
from polymodel.integers import arrow_column, is_whole
from polymodel.loading.named import kept_files
from polymodel.report.counted import says_sparse, says_tiles
from polymodel.report.report import TABLES, Report
from polymodel.report.table import Cell, Table
from polymodel.spec.output import whole, write_text

if TYPE_CHECKING:
    import pandas

    from polymodel.report.tiling.level import TilingReport

FORMAT = "polymodel-report/1"
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def to_csv(report: Report, folder: str | Path, live: bool = True) -> tuple[Path, ...]:
    """One file `<table>.csv` per table."""
    return _saved(report, folder, live, "csv", lambda t, path: write_text(path, t.to_csv()))


def to_parquet(report: Report, folder: str | Path, live: bool = True) -> tuple[Path, ...]:
    """One file `<table>.parquet` per table; units are in the schema's pandas attributes.

    Integers beyond int64 are decimals of 38 digits and no fraction; beyond these the column is text, marked
    `polymodel`: `integer` in its field's metadata.
    """
    return _saved(report, folder, live, "parquet", lambda t, path: write_parquet(t.frame(), path))


def write_parquet(frame: pandas.DataFrame, path: Path) -> None:
    """A DataFrame as a parquet file that loses no digit of a whole number."""
    import pyarrow
    from pyarrow import parquet

    objects = {n: frame[n].tolist() for n in frame.columns if frame[n].dtype == object}
    long = {n: arrow_column(values) for n, values in objects.items() if is_whole(values)}
    data = pyarrow.Table.from_pandas(frame.assign(**dict.fromkeys(long, 0)))
    for name, (field, values) in long.items():
        data = data.set_column(data.column_names.index(name), field.with_name(name), values)
    with whole(path) as fresh, fresh.open("wb") as sink:
        parquet.write_table(data, sink)


def _saved(
    report: Report, folder: str | Path, live: bool, suffix: str, write: Callable[[Table, Path], object]
) -> tuple[Path, ...]:
    with writing(folder):
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
    paths = tuple(target / f"{name}.{suffix}" for name in TABLES)
    for name, path in zip(TABLES, paths, strict=True):
        table = report.table(name, live=live)
        with kept_files(report.spec), writing(path):
            write(table, path)
    return paths


def check_table(name: str) -> None:
    """SpecError unless a report has a table of this name; before anything is counted."""
    from polymodel.report.sparse import TABLES as SPARSE
    from polymodel.report.tiling.level import TABLES as TILING

    known = (*TABLES, *(f"sparse_{n}" for n in SPARSE), *(f"tiling_{n}" for n in TILING))
    if name not in known:
        raise SpecError(
            [Diagnostic(f"--table {name}: there is no such table", "tables: " + ", ".join(known))]
        )


def table_json(table: Table) -> str:
    """The rows of one table as JSON text, figures as in `as_data`."""
    rows = [{k: _plain(v) for k, v in r.items()} for r in table.records()]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def as_data(report: Report, live: bool = True) -> dict[str, Json]:
    """The report as plain data with stable keys.

    `format`, `engine`, `feasible`, `total` (`latency_s`, `energy_J`, `area_m2`), `violations`, `notes`,
    and `tables`: name -> `units` and `rows`, one object per row. Exact counts are integers; an infinite
    figure (an unbounded memory) is the string "inf", an absent one null. Where the spec says anything of
    zeros, `sparse` has the same on sparse data, and the label of its numbers; where a memory cuts operands
    into tiles, `tiling` has these, or why there are none.
    """
    tables = {name: _table_data(report.table(name, live=live)) for name in TABLES}
    return {
        "format": FORMAT,
        "engine": report.analysis.engine,
        "feasible": report.feasible,
        "total": {
            "latency_s": _plain(report.total_latency),
            "energy_J": _plain(report.total_energy),
            "area_m2": _plain(report.total_area),
        },
        "violations": [
            {
                "component": v.component,
                "einsum": v.einsum,
                "tensors": list(v.tensors),
                "need_bits": v.need_bits,
                "have_bits": _plain(v.have_bits),
                "allocation": v.allocation,
            }
            for v in report.violations
        ],
        "notes": list(report.notes),
        "tables": tables,
        **({"sparse": _sparse_data(report)} if says_sparse(report.problem) else {}),
        **({"tiling": _tiling_data(report)} if says_tiles(report.problem) else {}),
    }


def _table_data(table: Table) -> Json:
    rows: list[Json] = [{k: _plain(v) for k, v in r.items()} for r in table.records()]
    return {"units": dict(table.units), "rows": rows, "notes": list(table.notes)}


def _sparse_data(report: Report) -> Json:
    from polymodel.report.sparse import TABLES as SPARSE

    sparse = report.sparse
    return {
        "label": sparse.label,
        "feasible": sparse.feasible,
        "total": {"latency_s": _plain(sparse.total_latency), "energy_J": _plain(sparse.total_energy)},
        "notes": list(sparse.notes),
        "tables": {name: _table_data(sparse.table(name)) for name in SPARSE},
    }


def _tiling_data(report: Report) -> Json:
    from polymodel.report.tiling.level import TABLES as TILING

    try:
        found = report.tiling
    except Refused as refusal:
        return {"refused": refusal.message, "remedy": refusal.remedy}
    return {
        "label": found.label,
        "total": {
            "cycles": found.total_cycles,
            "latency_s": found.total_latency,
            "energy_J": found.total_energy,
        },
        "notes": list(found.notes),
        "tables": {name: _tiling_table(found, name) for name in TILING},
    }


def _tiling_table(found: TilingReport, name: str) -> Json:
    """A table, or why it is too large to be listed."""
    try:
        return _table_data(found.table(name))
    except Refused as refusal:
        return {"refused": refusal.message, "remedy": refusal.remedy}


def _plain(value: Cell) -> Json:
    if isinstance(value, float):
        if math.isinf(value):
            return "-inf" if value < 0 else "inf"
        if math.isnan(value):
            return None
    return value


def to_json(report: Report, file: str | Path | None = None, live: bool = True) -> str:
    """JSON text of `as_data`, indented."""
    text = json.dumps(as_data(report, live), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if file is not None:
        with kept_files(report.spec), writing(file):
            write_text(file, text)
    return text


def whole_text(report: Report, live: bool = False) -> str:
    """The report for a terminal, behind it what the spec says of zeros: the sparse report, and tiles."""
    from polymodel.report.beside import beside, verdict
    from polymodel.report.text import report_text

    text = report_text(report, live=live, more=beside(report), fits=verdict(report)[1])
    if says_sparse(report.problem):
        text += f"\nOn sparse data\n{report.sparse}"
    if says_tiles(report.problem):
        try:
            text += f"\nCut into tiles\n{report.tiling}"
        except Refused as refusal:
            text += f"\nNot cut into tiles: {refusal}\n"
    return text


def _save_sparse(report: Report, target: Path, parquet: bool) -> list[Path]:
    """What sparse data make of it: a page, and files of its tables, named `sparse_...`."""
    from polymodel.report.sparse import TABLES as SPARSE

    found = _written(((f"sparse_{n}", report.sparse.table(n)) for n in SPARSE), target, parquet)
    report.sparse.to_html(target / "sparse.html")
    return [*found, target / "sparse.html"]


def _save_tiling(report: Report, target: Path, parquet: bool) -> list[Path]:
    """Files of the tables of tiles, named `tiling_...`; report.json says what is refused."""
    from polymodel.report.tiling.level import TABLES as TILING

    tables = []
    for name in TILING:
        try:
            tables.append((f"tiling_{name}", report.tiling.table(name)))
        except Refused:
            continue
    return _written(tables, target, parquet)


def _written(tables: Iterable[tuple[str, Table]], target: Path, parquet: bool) -> list[Path]:
    """A CSV file per table, and one of parquet if asked for."""
    found = []
    with writing(target):
        for name, table in tables:
            found.append(target / f"{name}.csv")
            write_text(found[-1], table.to_csv())
            if parquet:
                found.append(target / f"{name}.parquet")
                write_parquet(table.frame(), found[-1])
    return found


def save(
    report: Report, folder: str | Path, *, live: bool = False, parquet: bool = False, command: str = ""
) -> tuple[Path, ...]:
    """Everything in one folder: CSV tables, report.json, report.html, report.txt and the pictures.

    `command`: what asked for it, to be told by the page.
    """
    from polymodel.report.report_page import to_html
    from polymodel.report.show import show_pictures

    target = Path(folder)
    with kept_files(report.spec):
        found = [*to_csv(report, target, live)]
        if parquet:
            found += to_parquet(report, target, live)
        found += [target / name for name in ("report.json", "report.html", "report.txt")]
        to_json(report, target / "report.json", live)
        to_html(report, target / "report.html", live, command=command)
        text = whole_text(report, live)
        with writing(target):
            write_text(target / "report.txt", text)
        if says_sparse(report.problem):
            found += _save_sparse(report, target, parquet)
        if says_tiles(report.problem):
            found += _save_tiling(report, target, parquet)
        found += show_pictures(target, report.problem.cascade, report.problem.hierarchy, report.problem.tree)
    return tuple(found)
