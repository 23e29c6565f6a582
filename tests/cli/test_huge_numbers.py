"""Every command and every writer on specs whose counts lie from 2^40 to beyond 2^70."""

from __future__ import annotations

import csv
import json
import re
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

import polymodel as pm
from polymodel.cli import FINE, main
from tests.cli.test_cli import Captured, run
from tests.huge import POWERS, SPECS, fused, triangle
from tests.seeds import seeds

FEW = [p if p == 70 else pytest.param(p, marks=pytest.mark.slow) for p in POWERS]
SOME = [p if p in (63, 70) else pytest.param(p, marks=pytest.mark.slow) for p in POWERS]
UNIT = 8  # bits of a value that all others are compared with
SWEEP = (
    "--symbol TM=1,2,4,6 --keep all --objective energy --objective accesses:DRAM --objective working_set:GLB"
)
COMMANDS = {
    "validate": "validate SPEC",
    "show": "show SPEC --html OUT/show.html --out OUT",
    "show page": "show SPEC --format html",
    "evaluate": "evaluate SPEC --engine exact --live",
    "evaluate enumerate": "evaluate SPEC --engine enumerate --live --format json",
    "evaluate symbolic": "evaluate SPEC --engine symbolic --format json",
    "evaluate csv": "evaluate SPEC --table accesses --format csv",
    "evaluate json": "evaluate SPEC --format json --live",
    "evaluate page": "evaluate SPEC --format html --live",
    "evaluate saved": "evaluate SPEC --html OUT/page.html --out OUT --parquet --live",
    "compare": "compare SPEC SPEC --html OUT/compare.html",
    "compare json": "compare SPEC SPEC --format json",
    "timeline": "timeline SPEC --component GLB --html OUT/timeline.html --out OUT",
    "timeline live": "timeline SPEC --component GLB --measure live --html OUT/timeline.html --out OUT",
    "sweep": f"sweep SPEC {SWEEP} --store OUT/store --html OUT/sweep.html --out OUT",
    "sweep front": "sweep SPEC --symbol TM=1,2,4,6 --objective accesses:DRAM --objective working_set:GLB",
    "explore": "explore SPEC --objective energy --objective buffer --html OUT/explore.html --out OUT",
}


def words(command: str, spec: Path, out: Path) -> list[str]:
    return [w.replace("SPEC", str(spec)).replace("OUT", str(out)) for w in command.split(" ")]


@pytest.mark.slow
@pytest.mark.parametrize("power", FEW)
@pytest.mark.parametrize("kind", seeds(1, SPECS))
def test_every_command_and_writer(capsys: Captured, tmp_path: Path, kind: str, power: int) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPECS[kind](2**power + 1), encoding="utf-8")
    for name, command in COMMANDS.items():
        if name == "explore" and power not in (53, 70):
            continue
        (tmp_path / name).mkdir()
        code, out, err = run(capsys, *words(command, spec, tmp_path / name))
        assert code == FINE, (name, out[-500:], err)
        assert "Traceback" not in err
        assert out, name


@pytest.mark.parametrize("power", SOME)
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("engine", ["exact", "enumerate", "symbolic"])
@pytest.mark.thin(8)
def test_figures_in_bits_grow_with_the_bits_of_a_value(
    tmp_path: Path, kind: str, power: int, engine: str
) -> None:
    """Digit by digit, in every table, and in what the files of a report say."""
    if (kind, engine) == ("triangle", "symbolic"):
        return
    factor = 2**power + 1
    found = [tmp_path / "one.yaml", tmp_path / "many.yaml"]
    for path, bits in zip(found, (UNIT, UNIT * factor), strict=True):
        path.write_text(SPECS[kind](bits), encoding="utf-8")
    one, many = (pm.evaluate(pm.load(str(path)), engine=engine) for path in found)
    for name in ("tiles", "accesses", "reuse", "working_sets", "lifetimes"):
        a, b = one.table(name, live=engine != "symbolic"), many.table(name, live=engine != "symbolic")
        for column in a.columns:
            if column.unit != "bit" or column.name in ("capacity_bits", "residents"):
                continue
            cells = a.column(column.name)
            if any(isinstance(v, float) for v in cells):
                continue  # a mean
            expected = tuple(v * factor if isinstance(v, int) else None for v in cells)
            assert b.column(column.name) == expected, (name, column.name)
            assert b.frame()[column.name].replace({pd.NA: None}).tolist() == list(expected)


@pytest.mark.slow
@pytest.mark.thin(3)
@pytest.mark.parametrize("power", SOME)
def test_files_hold_every_digit(capsys: Captured, tmp_path: Path, power: int) -> None:
    spec, out = tmp_path / "spec.yaml", tmp_path / "out"
    spec.write_text(fused(2**power + 1), encoding="utf-8")
    assert main(["evaluate", str(spec), "--out", str(out), "--parquet", "--live"]) == FINE
    capsys.readouterr()
    table = pm.evaluate(pm.load(str(spec))).table("accesses")
    exact = [int(str(v)) for v in table.column("read_bits")]
    rows = list(csv.DictReader((out / "accesses.csv").open(encoding="utf-8")))
    assert [int(r["read_bits"]) for r in rows] == exact
    told = json.loads((out / "report.json").read_text(encoding="utf-8"))["tables"]["accesses"]["rows"]
    assert [r["read_bits"] for r in told] == exact
    stored = pd.read_parquet(out / "accesses.parquet")["read_bits"].tolist()
    assert [int(v) for v in stored] == exact
    assert all(isinstance(v, (int, Decimal)) for v in stored)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert all(f"{v} bit" in page for v in exact)
    assert "<svg" in page


@pytest.mark.parametrize("power", SOME)
def test_sweeps_and_their_stores_hold_every_digit(capsys: Captured, tmp_path: Path, power: int) -> None:
    bits = 2**power + 1
    spec, out, store = tmp_path / "spec.yaml", tmp_path / "out", tmp_path / "store"
    spec.write_text(fused(bits), encoding="utf-8")
    command = words(f"sweep SPEC {SWEEP} --store {store} --format json --out OUT", spec, out)
    first = run(capsys, *command)
    again = run(capsys, *command)
    assert first[0] == again[0] == FINE
    found = pm.sweep(pm.load(str(spec)), {"TM": [1, 2, 4, 6]}, keep="all", objectives=["accesses:DRAM"])
    exact = {int(t): int(v) for t, v in zip(found.frame["TM"], found.frame["accesses:DRAM"], strict=True)}
    small = tmp_path / "small.yaml"
    small.write_text(fused(1), encoding="utf-8")
    for tile, value in exact.items():
        rows_ = pm.evaluate(pm.load(str(small), symbols={"TM": tile})).accesses
        one = rows_[rows_["component"] == "DRAM"]
        assert value == (int(one["read_bits"].sum()) + int(one["write_bits"].sum())) * bits
    for _, text, _ in (first, again):
        assert {row["TM"]: row["accesses:DRAM"] for row in json.loads(text)} == exact
    saved = pd.read_parquet(out / "sweep.parquet")
    assert {int(t): int(v) for t, v in zip(saved["TM"], saved["accesses:DRAM"], strict=True)} == exact
    lines = list(csv.DictReader((out / "sweep.csv").open(encoding="utf-8")))
    assert {int(r["TM"]): int(r["accesses:DRAM"]) for r in lines} == exact


def test_long_triangles_are_counted_by_auto(tmp_path: Path) -> None:
    """A spec at 10^6 rows, beyond 64 bits, against a formula."""
    m, bits = 10**6, 2**30
    path = tmp_path / "spec.yaml"
    path.write_text(triangle(bits, m), encoding="utf-8")
    report = pm.evaluate(pm.load(str(path), symbols={"TM": m // 4}))
    rows = {(r["component"], r["tensor"]): r for r in report.table("accesses").records()}
    area = m * (m + 1) // 2
    assert rows["DRAM", "A"]["read_bits"] == area * bits
    assert rows["GLB", "A"]["read_bits"] == rows["GLB", "Z"]["write_bits"] == area * bits
    assert rows["DRAM", "B"]["read_bits"] == sum(k * m // 4 for k in range(1, 5)) * bits
    assert area * bits > 2**63 - 1 > bits * m
    assert report.feasible


def test_closed_forms_and_symbolic_reports_have_every_digit(tmp_path: Path) -> None:
    for power in POWERS:
        path = tmp_path / "spec.yaml"
        path.write_text(fused(2**power + 1), encoding="utf-8")
        spec, at = pm.load(str(path)), pm.load(str(path), symbols={"TM": 6})
        forms = pm.closed_forms(spec)
        assert re.search(r"\d{12}", forms.accesses.to_string())
        told = forms.at(TM=6).accesses
        exact = pm.evaluate(at).accesses
        assert told["read_bits"].tolist() == exact["read_bits"].tolist()
        report = pm.evaluate(at)
        assert [int(str(v)) for v in report.symbolic.accesses["read_bits"]] == exact["read_bits"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("power", SOME)
def test_what_a_report_derives(tmp_path: Path, power: int) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(fused(2**power + 1), encoding="utf-8")
    report = pm.evaluate(pm.load(str(path)))
    for of in ("energy", "latency"):
        assert len(report.sensitivity(of))
    for frame in (
        report.bottleneck,
        report.roofline,
        report.area,
        report.fusion,
        report.pipelines,
        report.ffmr,
    ):
        assert frame is not None
    for what in ("working_sets", "energy", "roofline"):
        axes = report.plot(what)
        axes.figure.savefig(tmp_path / f"{what}.png")
    assert report._repr_html_()
