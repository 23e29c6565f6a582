"""A stored sweep whose process is killed at any moment goes on to the same result."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.sweeps import run as sweeping
from polymodel.sweeps import work_units
from tests.fuzz.forked import Parent
from tests.fuzz.lines import SPEC
from tests.sweep.small import OBJECTIVES, SYMBOLS, matmul, same, without_forms

THREE = (*OBJECTIVES, "energy")
SMALL_UNITS = """
    import os, signal, sys
    import polymodel as pm
    from polymodel.sweeps import run, spill, work_units
    from tests.sweep.small import OBJECTIVES, SYMBOLS, without_forms, matmul
    run.LINES, run.BLOCK, work_units.SAVE_EVERY = 2, 64, 0.0
    store = os.getcwd()
    def die(*ignored, **too):
        os.kill(os.getpid(), signal.SIGKILL)
    def after(times, action, then=die):
        left = [times]
        def counted(*arguments, **named):
            left[0] -= 1
            return then() if left[0] == 0 else action(*arguments, **named)
        return counted
"""
# Where it is killed: after some units; before a state takes the place of the last one; half-way through a
# file; between a spilled part and the state that names it; while the kept rows are written.
KILLS = {
    "a unit": "options['progress'] = after(5, lambda *a: None)",
    "a late unit": "options['progress'] = after(11, lambda *a: None)",
    "before a state": "os.replace = after(4, os.replace)",
    "a late replacement": "os.replace = after(15, os.replace)",
    "half a file": """
        from pyarrow import parquet
        def half(table, place):
            place.write(b'PAR1 half')
            place.flush()
            die()
        whole, left = parquet.write_table, [6]
        def write(table, place, **named):
            left[0] -= 1
            half(table, place) if left[0] == 0 else whole(table, place, **named)
        parquet.write_table = write
    """,
    "a spilled part": "spill.Spill.write = (lambda w: lambda *a: (w(*a), die()))(spill.Spill.write)",
    "the rows": "run.write_rows = die",
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    """It has imported what a sweep takes."""
    running = Parent(tmp_path_factory.mktemp("told"))
    folder = tmp_path_factory.mktemp("fine")
    (folder / "s.yaml").write_text(SPEC, encoding="utf-8")
    line = "sweep s.yaml --symbol TM=divisors(m) --store state"
    assert running.run(folder, line, None) == (0, "")
    yield running
    running.end()


def killed(parent: Parent, store: Path, kill: str, body: str) -> None:
    """Run a sweep in a process that kills itself on the way."""
    parts = (
        SMALL_UNITS,
        "    options = {}\n",
        body,
        kill,
        "    pm.sweep(spec, values, store=store, **options)\n",
    )
    code, errors = parent.run(store, "", "\n".join(textwrap.dedent(p) for p in parts))
    assert code == -signal.SIGKILL, errors


@pytest.fixture
def many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "LINES", 2)
    monkeypatch.setattr(sweeping, "BLOCK", 64)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)


@pytest.mark.usefixtures("many_units")
@pytest.mark.parametrize(
    "kill", [pytest.param(k, marks=pytest.mark.slow) if k == "a late replacement" else k for k in KILLS]
)
@pytest.mark.thin(99)
def test_killed_and_resumed(parent: Parent, tmp_path: Path, kill: str) -> None:
    body = """
        spec, values = matmul(), SYMBOLS
        options = {"objectives": (*OBJECTIVES, "energy"), "memory": "5KB"}
    """
    whole = pm.sweep(matmul(), SYMBOLS, objectives=THREE)
    killed(parent, tmp_path, KILLS[kill], body)
    if kill != "a spilled part":
        killed(parent, tmp_path, "os.replace = after(2, os.replace)", body)
    seen: list[int] = []
    again = pm.sweep(
        matmul(),
        SYMBOLS,
        objectives=THREE,
        memory="5KB",
        store=tmp_path,
        progress=lambda d, t, s: seen.append(d),
    )
    same(again, whole)
    assert not list(tmp_path.glob("*.new"))
    if kill == "a late unit":
        assert again.before > 0
        assert seen[0] > 1000


@pytest.mark.slow
@pytest.mark.usefixtures("many_units")
def test_two_processes_killed_and_resumed(parent: Parent, tmp_path: Path) -> None:
    options: dict[str, Any] = {"objectives": THREE, "workers": 2}
    whole = pm.sweep(matmul(), SYMBOLS, objectives=THREE)
    body = """
        spec, values = matmul(), SYMBOLS
        options = {"objectives": (*OBJECTIVES, "energy"), "workers": 2}
    """
    killed(parent, tmp_path, "options['progress'] = after(3, lambda *a: None)", body)
    same(pm.sweep(matmul(), SYMBOLS, **options, store=tmp_path), whole)


@pytest.mark.slow
@pytest.mark.usefixtures("many_units")
def test_points_one_by_one_killed_and_resumed(parent: Parent, tmp_path: Path) -> None:
    values = {"TM": [1, 4, 24], "TN": [3, 20], "TK": [18, 5]}
    whole = pm.sweep(without_forms(matmul()), values, objectives=OBJECTIVES, keep="all")
    body = """
        spec, values = without_forms(matmul()), {"TM": [1, 4, 24], "TN": [3, 20], "TK": [18, 5]}
        options = {"objectives": OBJECTIVES, "keep": "all"}
    """
    killed(parent, tmp_path, "options['progress'] = after(7, lambda *a: None)", body)
    again = pm.sweep(without_forms(matmul()), values, objectives=OBJECTIVES, keep="all", store=tmp_path)
    assert again.before == 6
    same(again, whole)
