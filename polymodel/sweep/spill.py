"""Parts of a front that outgrew its memory, on disk until the end of the sweep."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from polymodel.errors import Refused
from polymodel.sweep.pareto import Front

Array = Any
ANEW = "start anew: resume=False in Python, --no-resume on the command line"


def write_table(file: Path, columns: Mapping[str, Array], about: Mapping[str, object]) -> None:
    """Write a parquet file in one step: a reader sees the old one or the new one, whatever happens."""
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table(dict(columns)).replace_schema_metadata({b"polymodel": json.dumps(about).encode()})
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f"{file.stem}.{os.getpid()}.new")
    parquet.write_table(table, fresh)
    os.replace(fresh, file)


def clear_unfinished(folder: Path) -> None:
    """Remove what killed processes were writing."""
    for file in folder.glob("*.new"):
        file.unlink(missing_ok=True)


def read_table(file: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The columns as arrays, and what was written about them. Refused if the file is damaged."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(file)
        about = json.loads((table.schema.metadata or {}).get(b"polymodel", b"{}"))
    except (ArrowException, OSError, ValueError) as error:
        raise Refused(f"{file} is damaged, and no state of a sweep can be read from it", ANEW) from error
    return {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}, about


@dataclass(frozen=True)
class Spill:
    """Where one process puts parts of its front: `PREFIX-0-TOKEN.parquet`, `PREFIX-1-TOKEN.parquet`, ...

    A part is never changed once it is there, and counts only if the saved state names it: a part that was
    written just before the process was killed is written again by the run that goes on, under another name,
    since a process may outlive a killed parent for a moment.
    """

    folder: Path
    prefix: str
    signature: str

    def write(self, number: int, front: Front) -> str:
        """Save the points of a front; gives the part's name."""
        name = f"{self.prefix}-{number}-{uuid4().hex[:8]}.parquet"
        columns = {"point": front.ids, **{f"objective_{k}": v for k, v in enumerate(front.values)}}
        write_table(self.folder / name, columns, {"signature": self.signature})
        return name

    def read(self, name: str) -> tuple[Array, Array]:
        """Objectives [objectives, n] and point numbers [n] of any process's part."""
        file = self.folder / name
        if not file.is_file():
            raise Refused(
                f"{file} is missing: it holds a part of the front",
                f"put the store where all processes see it, or {ANEW}",
            )
        columns, about = read_table(file)
        if about.get("signature") != self.signature:
            raise Refused(f"{file} is a part of another sweep", f"give another store, or {ANEW}")
        values = np.stack([c for n, c in columns.items() if n.startswith("objective_")])
        return values, columns["point"].astype(np.int64)

    def clear(self, but: Collection[str]) -> None:
        """Remove this process's parts that no saved state names."""
        for file in self.folder.glob(f"{self.prefix}-*.parquet"):
            if file.name not in but:
                file.unlink(missing_ok=True)
