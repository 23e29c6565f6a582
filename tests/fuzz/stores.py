"""Stores of sweeps, damaged: the sweep goes on to the same result, or says that it cannot."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import polymodel as pm
from tests.fuzz.mutate import NUMBERS, WORDS, bytewise
from tests.sweep.small import OBJECTIVES, matmul

Files = dict[str, bytes]
_VALUES: dict[str, Any] = {"TM": [1, 4, 24], "TN": [3, 20], "TK": [18, 5]}


@cache
def _spec() -> pm.Spec:
    return matmul()


@cache
def _whole() -> tuple[Files, str]:
    """The files of a store, and the rows that it stands for."""
    with tempfile.TemporaryDirectory() as folder:
        found = pm.sweep(_spec(), _VALUES, objectives=OBJECTIVES, store=folder)
        files = {p.name: p.read_bytes() for p in Path(folder).iterdir() if p.suffix == ".parquet"}
    return files, found.frame.to_csv()


@cache
def _whole_pieces() -> tuple[dict[str, Any], dict[str, Any]]:
    """Columns and what is said about them, of the saved state."""
    from polymodel.stores.store import read_table

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state-0-of-1.parquet"
        file.write_bytes(_whole()[0][file.name])
        return read_table(file)


def damaged(random: Random) -> Files:
    """The files with bytes changed, one left out, or a state that is sound but says something else."""
    files = dict(_whole()[0])
    act = random.randrange(4)
    if act == 0:
        return files | {"state-0-of-1.parquet": _said(random), "forged": b""}
    name = random.choice(list(files))
    if act == 1 and random.random() < 0.2:
        del files[name]
        return files
    files[name] = bytewise(random, files[name], [*files.values()], 2)
    return files


def _said(random: Random) -> bytes:
    """A state that is parquet, but says something else."""
    from polymodel.stores.store import write_table

    columns, about = (dict(part) for part in _whole_pieces())
    values = (
        *NUMBERS,
        *WORDS,
        None,
        [],
        {},
        -1,
        2**70,
        1.5,
        True,
        ["front-0-of-1-0-x.parquet"],
        ["/etc/passwd"],
    )
    if random.random() < 0.5:
        about[random.choice(list(about))] = random.choice(values)
    elif random.random() < 0.5:
        del about[random.choice(list(about))]
    else:
        columns.pop(random.choice(list(columns)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "state.parquet"
        write_table(file, columns, json.loads(json.dumps(about)))
        return file.read_bytes()


def resumed(files: Files, folder: Path) -> None:
    """Go on with the store. What is answered must be what an undamaged one answers."""
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir()
    for name, data in files.items():
        (store / name).write_bytes(data)
    found = pm.sweep(_spec(), _VALUES, objectives=OBJECTIVES, store=store)
    if "forged" not in files and found.frame.to_csv() != _whole()[1]:
        raise AssertionError("a damaged store gives another result")
