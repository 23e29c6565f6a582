"""docs/sparse/actions.md: its example gives its numbers, and those are what counting by hand gives."""

from __future__ import annotations

import re
from math import comb
from pathlib import Path

import pytest

import polymodel as pm

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "sparse" / "actions.md").read_text(encoding="utf-8")
EMPTY = comb(48, 16) / comb(64, 16)


@pytest.fixture(scope="module")
def sparse() -> pm.SparseReport:
    return pm.evaluate(pm.load(ROOT / "docs" / "sparse" / "actions.yaml")).sparse


def test_the_table_is_what_is_counted(sparse: pm.SparseReport) -> None:
    rows = {}
    for line in TEXT.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 6 and re.fullmatch(r"\d+", cells[1]):
            rows[cells[0]] = [float(c) for c in cells[1:] if c]
    (work,) = sparse.counts.compute
    assert rows.pop("operations") == [work.dense, work.effectual, work.gated, work.skipped]
    assert work.ineffectual == 0
    kinds = {"reads": "reads_fill", "writes": "writes_fill", "drains": "writes_drain"}
    assert len(rows) == 6
    for title, (dense, *numbers) in rows.items():
        component, verb, tensor = title.split()
        component = {"buffer": "Buffer"}.get(component, component)
        (a,) = (
            x
            for x in sparse.counts.accesses
            if (x.component, x.tensor, x.kind) == (component, tensor, kinds[verb])
        )
        assert a.dense == dense
        assert [round(x, 2) for x in (a.actual, a.gated, a.skipped, a.absent)] == numbers
        assert a.label == "expected"


def test_the_numbers_by_hand(sparse: pm.SparseReport) -> None:
    by = {(a.component, a.tensor, a.kind): a for a in sparse.counts.accesses}
    assert by["DRAM", "B", "reads_fill"].skipped == pytest.approx(256 * EMPTY, rel=1e-12)
    assert by["Buffer", "B", "reads_fill"].skipped == pytest.approx(512 * EMPTY, rel=1e-12)
    assert by["Buffer", "B", "reads_fill"].actual == pytest.approx(128, rel=1e-12)
    assert by["DRAM", "A", "reads_fill"].metadata_bits == pytest.approx(16 * (1 + 3))
    times = {t.component: t.seconds for t in sparse.result.costs.times}
    touched = 64 * (1 - comb(56, 16) / comb(64, 16))
    assert by["DRAM", "Z", "writes_drain"].actual == pytest.approx(touched, rel=1e-12)
    assert times["DRAM"] == pytest.approx((16 * 8 + 64 + 256 * (1 - EMPTY) * 8 + touched * 8) / 8e9)
    assert f"{times['DRAM'] * 1e9:.2f} ns" in TEXT
    assert times["MAC"] == pytest.approx(128e-9)
    (tile,) = sparse.counts.footprints
    assert tile.bits == pytest.approx(16 * (8 + 3 + 3))
    assert f"{tile.bits:.0f} bits" in TEXT


def edited(tmp_path: Path, old: str, new: str) -> pm.Report:
    text = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    assert old in text
    file = tmp_path / "edited.yaml"
    file.write_text(text.replace(old, new), encoding="utf-8")
    return pm.evaluate(pm.load(file))


def test_gating_saves_energy_and_skipping_time_as_well(tmp_path: Path) -> None:
    gated = edited(tmp_path, "gate: B, on: A", "gate: B, on: A")
    skipped = edited(tmp_path, "gate: B, on: A", "skip: B, on: A")
    plain = edited(tmp_path, "      actions:\n      - {gate: B, on: A}\n", "      actions: []\n")

    def busy(report: pm.Report, component: str) -> float:
        return next(t.seconds for t in report.sparse.result.costs.times if t.component == component)

    def joules(report: pm.Report, component: str) -> float:
        return sum(i.energy for i in report.sparse.result.costs.energy if i.component == component)

    assert busy(gated, "Buffer") == pytest.approx(busy(plain, "Buffer"))
    assert busy(skipped, "Buffer") == pytest.approx(busy(plain, "Buffer") - 512 * 8 * (0.75 - EMPTY) / 16e9)
    assert joules(skipped, "Buffer") < joules(gated, "Buffer") < joules(plain, "Buffer")
    turns = 512 * 8 * (0.75 - EMPTY)
    assert joules(gated, "Buffer") - joules(skipped, "Buffer") == pytest.approx(turns * 0.00125e-12)
    assert joules(plain, "Buffer") - joules(skipped, "Buffer") == pytest.approx(turns * 0.0125e-12)


def test_gated_operations_take_time_and_no_energy(tmp_path: Path) -> None:
    gated = edited(tmp_path, "skip: compute", "gate: compute").sparse
    (work,) = gated.counts.compute
    assert (work.effectual, work.gated) == (128, pytest.approx(384 - 512 * EMPTY))
    times = {t.component: t.seconds for t in gated.result.costs.times}
    assert times["MAC"] == pytest.approx(512 * (1 - EMPTY) * 1e-9)
    joules = [i for i in gated.result.costs.energy if i.component == "MAC"]
    assert {i.action: round(i.energy * 1e12, 9) for i in joules} == {"compute": 64, "gated_compute": 0}


def test_metadata_may_cost_something_else(tmp_path: Path) -> None:
    write = "    - {name: write, energy: 0.125e-12, throughput: 8e9}\n"
    named = edited(tmp_path, write, write + "    - {name: metadata_read, energy: 1e-12}\n").sparse
    items = {(i.tensor, i.action): i for i in named.result.costs.energy if i.component == "DRAM"}
    assert items["A", "metadata_read"].energy == pytest.approx(64e-12)
    assert items["A", "read"].count == pytest.approx(128)
