"""A sweep in units of work: whose turn each one is, and what has been saved of them.

Units come in the same order in every process and every run, so a share of them is `number % of`, and a
run that was interrupted goes on at the first unit that its last saved state does not contain.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from polymodel.errors import Refused

SAVE_EVERY = 2.0
Array = Any


@dataclass(frozen=True)
class Snapshot:
    """What is kept after some units: point numbers with their objectives, counts, and how far it got."""

    unit: int
    front_values: Array
    front_ids: Array
    best: Array
    ids: tuple[Array, ...]
    infeasible: Mapping[str, int]
    done: int
    evaluated: int


class Kept(Protocol):
    """What can tell its state at the start of a unit."""

    def snapshot(self, unit: int) -> Snapshot: ...


@dataclass
class Units:
    """The units of one process. `file`: where the state is saved, if anywhere.

    `sizes`: left combinations per unit and points per block, the same in all processes.
    """

    share: int = 0
    of: int = 1
    sizes: tuple[int, int] = (1, 1)
    file: Path | None = None
    signature: str = ""
    begin: int = 0
    seen: int = 0
    mark: Snapshot | None = None
    saved: float = field(default_factory=time.perf_counter)

    def mine(self, state: Kept) -> bool:
        """True if the next unit is to be done here; saves the state before it now and then."""
        number = self.seen
        self.seen += 1
        if number < self.begin or number % self.of != self.share:
            return False
        self.mark = state.snapshot(number)
        if self.file is not None and time.perf_counter() - self.saved > SAVE_EVERY:
            self.save(self.mark)
        return True

    def finish(self, state: Kept) -> None:
        """All units are done."""
        self.mark = state.snapshot(self.seen)
        self.keep()

    def keep(self) -> None:
        """Save the state at the start of the last unit, which a broken-off one did not finish."""
        if self.file is not None and self.mark is not None:
            self.save(self.mark)

    def save(self, state: Snapshot) -> None:
        """Write a parquet file in one step: a reader sees the old state or the new one."""
        import pyarrow as pa
        from pyarrow import parquet

        assert self.file is not None
        ids = np.concatenate([np.empty(0, np.int64), *state.ids])
        every = np.concatenate([state.front_ids, ids])
        objectives = len(state.front_values)
        columns: dict[str, Array] = {"point": every, "front": np.arange(len(every)) < len(state.front_ids)}
        for k in range(objectives):
            best = state.best if k == 0 and len(state.best) == len(ids) else np.full(len(ids), np.nan)
            columns[f"objective_{k}"] = np.concatenate([state.front_values[k], best])
        about = {
            "signature": self.signature, "unit": state.unit, "infeasible": dict(state.infeasible),
            "done": state.done, "evaluated": state.evaluated, "best": len(state.best),
        }  # fmt: skip
        table = pa.table(columns).replace_schema_metadata({b"polymodel": json.dumps(about).encode()})
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.file.with_suffix(".new")
        parquet.write_table(table, fresh)
        os.replace(fresh, self.file)
        self.saved = time.perf_counter()

    def load(self) -> Snapshot | None:
        """The saved state, None if there is none. Refused if it belongs to another sweep."""
        if self.file is None or not self.file.is_file():
            return None
        from pyarrow import parquet

        table = parquet.read_table(self.file)
        about = json.loads((table.schema.metadata or {}).get(b"polymodel", b"{}"))
        if about.get("signature") != self.signature:
            raise Refused(
                f"{self.file} holds the state of another sweep",
                "give another store, delete it, or pass resume=False",
            )
        every = table["point"].to_numpy().astype(np.int64)
        front = table["front"].to_numpy(zero_copy_only=False).astype(bool)
        names = [n for n in table.column_names if n.startswith("objective_")]
        values = np.stack([table[n].to_numpy() for n in names])
        self.begin = int(about["unit"])
        rest = every[~front]
        best = values[0, ~front] if about["best"] else np.empty(0)
        return Snapshot(
            self.begin, values[:, front], every[front], best, (rest,) if len(rest) else (),
            about["infeasible"], int(about["done"]), int(about["evaluated"]),
        )  # fmt: skip
