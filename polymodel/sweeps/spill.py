"""Parts of a front that outgrew its memory, on disk until the end of the sweep."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import as_text, from_text
from polymodel.pareto import Archive
from polymodel.spec.files import recorded
from polymodel.stores.store import ANEW, read_table, write_table

Array = Any


@dataclass(frozen=True)
class Spill:
    """The files of one process's parts of a front: `PREFIX-0-TOKEN.parquet`, `PREFIX-1-TOKEN.parquet`, ...

    A part is never modified, and counts only if the saved state names it: a part that was written just before
    the process was killed is written again by the resumed run, under another name, since a process may
    briefly outlive a killed parent.
    """

    folder: Path
    prefix: str
    signature: str

    def write(self, number: int, front: Archive) -> str:
        """Save the points of a front; returns the part's name."""
        name = f"{self.prefix}-{number}-{uuid4().hex[:8]}.parquet"
        columns = {"point": front.ids, **{f"objective_{k}": as_text(v) for k, v in enumerate(front.values)}}
        write_table(self.folder / name, columns, {"signature": self.signature})
        return name

    def read(self, name: str) -> tuple[Array, Array]:
        """Objectives [objectives, n] and point numbers [n] of any process's part."""
        file = self.folder / Path(name).name
        if not file.is_file():
            message = f"{file} is missing: it holds a part of the front"
            remedy = f"put the store where all processes see it, or {ANEW}"
            raise Refused(message, remedy, code="damaged-file")
        columns, about = read_table(file)
        if about.get("signature") != self.signature:
            what = f"{file} is a part of another sweep"
            raise Refused(what, f"give another store, or {ANEW}", code="store-mismatch")
        try:
            values = np.stack([from_text(c) for n, c in columns.items() if n.startswith("objective_")])
            return values, columns["point"].astype(np.int64)
        except (LookupError, ValueError) as error:
            raise Refused(f"{file} is not part of a front", ANEW, code="damaged-file") from error

    def clear(self, but: Collection[str]) -> None:
        """Delete this process's parts that no saved state names."""
        for name in recorded(self.folder):
            if name.startswith(f"{self.prefix}-") and Path(name).name == name and name not in but:
                (self.folder / name).unlink(missing_ok=True)
