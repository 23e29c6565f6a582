"""The units of work of a sweep: which process computes which unit, and the saved states.

Units come in the same order in every process and every run. A share of the units is therefore `number % of`,
and a run that was interrupted continues with the first unit that its last saved state does not contain.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import field
from math import inf
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from polymodel.errors import Refused, TimeUp
from polymodel.frozen import dataclass
from polymodel.integers import as_text, from_text
from polymodel.stores.store import ANEW, read_table, write_table

SAVE_EVERY = 2.0
Array = Any


@dataclass(frozen=True)
class Snapshot:
    """The state after some units: point numbers with their objectives, counts, and the number of units.

    `parts`: names of files with further front points; `thinned`: front points dropped for lack of memory;
    `full`: the sweep stopped for lack of memory, `late` for lack of time; `rows`: cells of points that were
    evaluated one by one.
    """

    unit: int
    front_values: Array
    front_ids: Array
    best: Array
    ids: tuple[Array, ...]
    infeasible: Mapping[str, int]
    done: int
    evaluated: int
    parts: tuple[str, ...] = ()
    thinned: int = 0
    full: bool = False
    late: bool = False
    rows: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    feasible: int = 0
    passed: int = 0


class Resumable(Protocol):
    """An object that gives its state at the start of a unit."""

    def snapshot(self, unit: int) -> Snapshot: ...


def _plain(value: Any) -> object:
    """A numpy number as a Python number."""
    return value.item()


@dataclass
class Units:
    """The units of one process. `file`: where the state is saved, if anywhere.

    `sizes`: left combinations per unit and points per block, the same in all processes. `end`: time
    (`time.monotonic`) after which no unit begins.
    """

    share: int = 0
    of: int = 1
    sizes: tuple[int, int] = (1, 1)
    end: float = inf
    file: Path | None = None
    signature: str = ""
    begin: int = 0
    seen: int = 0
    mark: Snapshot | None = None
    saved: float = field(default_factory=time.perf_counter)
    parent: int = field(default_factory=os.getppid)

    def mine(self, state: Resumable) -> bool:
        """True if the next unit is to be done here; saves the state before it when due.

        Raises TimeUp after `end`, and KeyboardInterrupt in a worker whose parent has ended.
        """
        self.look()
        number = self.seen
        self.seen += 1
        if number < self.begin or number % self.of != self.share:
            return False
        self.mark = state.snapshot(number)
        if self.file is not None and time.perf_counter() - self.saved > SAVE_EVERY:
            self.save(self.mark)
        return True

    def look(self) -> None:
        """Raises TimeUp after `end`, and KeyboardInterrupt in a worker whose parent has ended."""
        if self.share and os.getppid() != self.parent:
            raise KeyboardInterrupt
        if time.monotonic() > self.end:
            raise TimeUp("the time of the sweep is over")

    def finish(self, state: Resumable) -> None:
        """Note that all units are done, and save the state."""
        self.mark = state.snapshot(self.seen)
        self.keep()

    def keep(self) -> None:
        """Save the state at the start of the last unit, if that was interrupted."""
        if self.file is not None and self.mark is not None:
            self.save(self.mark)

    def save(self, state: Snapshot) -> None:
        """Write the state to the file, atomically."""
        assert self.file is not None
        ids = np.concatenate([np.empty(0, np.int64), *state.ids])
        every = np.concatenate([state.front_ids, ids])
        objectives = len(state.front_values)
        columns: dict[str, Array] = {"point": every, "front": np.arange(len(every)) < len(state.front_ids)}
        for k in range(objectives):
            best = state.best if k == 0 and len(state.best) == len(ids) else np.full(len(ids), np.nan)
            columns[f"objective_{k}"] = as_text(np.concatenate([state.front_values[k], best]))
        if state.rows:
            cells = (state.rows.get(int(i)) for i in every)
            columns["cells"] = [None if c is None else json.dumps(c, default=_plain) for c in cells]
        about = {
            "signature": self.signature, "unit": state.unit, "infeasible": dict(state.infeasible),
            "done": state.done, "evaluated": state.evaluated, "best": len(state.best), "parts": state.parts,
            "feasible": state.feasible, "passed": state.passed,
        }  # fmt: skip
        write_table(self.file, columns, about)
        self.saved = time.perf_counter()

    def _refuse_other_shares(self, file: Path) -> None:
        """Raises Refused if the sweep was begun with another number of processes, whose shares differ."""
        for other in sorted(file.parent.glob("state-*-of-*.parquet")):
            of = other.stem.rpartition("-")[2]
            if of != str(self.of):
                message = f"{file.parent} was begun with workers={of}"
                raise Refused(message, f"go on with as many, or {ANEW}", code="store-mismatch")

    def load(self, objectives: int) -> Snapshot | None:
        """The saved state, None if there is none. Raises Refused if it belongs to another sweep."""
        if self.file is None:
            return None
        if not self.file.is_file():
            self._refuse_other_shares(self.file)
            return None
        columns, about = read_table(self.file)
        if about.get("signature") != self.signature:
            message = f"{self.file} holds the state of another sweep"
            raise Refused(message, f"give another store, or {ANEW}", code="store-mismatch")
        try:
            result = self._snapshot(columns, about)
            if len(result.front_values) != objectives:
                raise ValueError(f"{len(result.front_values)} objectives")
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Refused(f"{self.file} is not a state of a sweep", ANEW, code="damaged-file") from error
        return result

    def _snapshot(self, columns: Mapping[str, Array], about: Mapping[str, Any]) -> Snapshot:
        every, front = columns["point"].astype(np.int64), columns["front"].astype(bool)
        values = np.stack([from_text(c) for n, c in columns.items() if n.startswith("objective_")])
        self.begin = int(about["unit"])
        rest = every[~front]
        best = values[0, ~front] if about["best"] else np.empty(0)
        cells = zip(every.tolist(), columns.get("cells", ()), strict=False)
        infeasible = {str(reason): int(n) for reason, n in about["infeasible"].items()}
        return Snapshot(
            self.begin, values[:, front], every[front], best, (rest,) if len(rest) else (),
            infeasible, int(about["done"]), int(about["evaluated"]), tuple(map(str, about.get("parts", ()))),
            rows={i: json.loads(c) for i, c in cells if c is not None}, feasible=int(about["feasible"]),
            passed=int(about["passed"]),
        )  # fmt: skip
