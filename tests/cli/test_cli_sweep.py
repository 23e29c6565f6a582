"""`polymodel sweep` as a user meets it, and the `sweep:` section."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import BAD_INPUT, FINE, INFEASIBLE, INTERRUPTED, REFUSED, main, progress
from polymodel.cli.sweep import UNFINISHED, SweepProgress
from polymodel.sweeps import parallel
from polymodel.sweeps.choices import choice_of
from polymodel.sweeps.values import all_sizes, divisors, powers
from tests.cli.test_cli import SMALL

Captured = pytest.CaptureFixture[str]
ROWS = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Storage {component: GLB, tensors: [A, B, C]}
  - !Compute {einsum: Matmul, component: MAC}
"""
SECTION = """
sweep:
  symbols: {TM: divisors(m)}
  objectives: ["accesses:DRAM", "working_set:GLB"]
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL + SECTION, encoding="utf-8")
    return str(path)


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_section_says_what_is_swept(capsys: Captured, spec: str, tmp_path: Path) -> None:
    code, out, err = run(capsys, "sweep", spec, "--out", str(tmp_path / "out"))
    assert (code, err) == (FINE, "")
    assert "accesses:DRAM [bit]" in out
    assert "5 points" in out
    best = tmp_path / "out" / "best.yaml"
    kept = pm.sweep(pm.load(spec))
    tree = pm.load(spec).with_mapping(best).mapping
    assert tree is not None
    assert tree.nodes == kept.spec(kept.best()).mapping.nodes  # type: ignore[union-attr]  # it has one
    assert (tmp_path / "out" / "sweep.parquet").is_file()


def test_amounts_of_data_are_shown_in_bytes_and_saved_in_bits(capsys: Captured, spec: str) -> None:
    _, bits, _ = run(capsys, "sweep", spec)
    _, shown, _ = run(capsys, "sweep", spec, "--units", "bytes")
    _, csv, _ = run(capsys, "sweep", spec, "--units", "bytes", "--format", "csv")
    assert "accesses:DRAM [B]" in shown
    rows = [[line.split() for line in t.splitlines() if line.endswith("True")] for t in (bits, shown)]
    in_bits, in_bytes = ([[int(n) for n in row[1:3]] for row in table] for table in rows)
    assert in_bits == [[8 * n for n in row] for row in in_bytes]
    assert str(in_bits[0][0]) in csv


def test_options_replace_the_section(capsys: Captured, spec: str) -> None:
    arguments = (
        "sweep",
        spec,
        "--symbol",
        "TM=1,2,16",
        "--where",
        "TM < 16",
        "--keep",
        "all",
        "--format",
        "json",
    )
    code, out, _ = run(capsys, *arguments)
    assert code == FINE
    rows = json.loads(out)
    assert [r["TM"] for r in rows] == [1, 2]
    for row in rows:
        report = pm.evaluate(pm.load(spec), symbols={"TM": row["TM"]})
        moved = report.accesses[report.accesses["component"] == "DRAM"]
        assert row["accesses:DRAM"] == int(moved["read_bits"].sum() + moved["write_bits"].sum())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--symbol", "TM"), "expected NAME=VALUES"),
        (("--symbol", "GLB.size=4,8"), "write `size: GLB_SIZE` and `symbols: {GLB_SIZE: NUMBER}`"),
        (("--symbol", "TM=1", "--symbol", "TM=2"), "given twice"),
        (("--symbol", "TM=1,x"), "not a list of numbers"),
        (("--symbol", "TM=1..50"), "write range(1, 51), whose end is left out"),
        (("--symbol", "TM=2:16:2"), "write range(2, 17, 2)"),
        (("--symbol", "TM=1-16"), "write range(1, 17)"),
        (("--symbol", "TM=1,2", "--set", "TM=3"), "--set TM=3: --symbol TM sweeps it"),
        (("--set", "TM=3"), "the `sweep:` section sweeps TM"),
        (("--symbol", "TM=divisors(m, n)"), "is not understood"),
        (("--symbol", "TM=divisors(mm)"), "unknown rank variable mm"),
        (("--symbol", "TX=1,2"), "TX"),
        (("--objective", "speed"), "speed"),
        (("--where", "TM <= TQ"), "TQ"),
    ],
)
def test_mistakes_are_named(capsys: Captured, spec: str, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(capsys, "sweep", spec, *arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert "Traceback" not in err


def test_no_point_that_fits_is_exit_code_one(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    tiny = SMALL.replace("size: 8 * 64 * 1024", "size: 8")
    assert tiny != SMALL
    path.write_text(tiny, encoding="utf-8")
    code, out, _ = run(capsys, "sweep", str(path), "--symbol", "TM=divisors(m)")
    assert code == INFEASIBLE
    assert "infeasible" in out


def test_a_wrong_section_is_located(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SMALL + "\nsweep:\n  symbols: {TM: divisors(m)}\n  keeep: all\n", encoding="utf-8")
    code, _, err = run(capsys, "sweep", str(path))
    assert code == BAD_INPUT
    assert f"{path}:" in err
    assert "did you mean keep" in err


def test_choices_as_text() -> None:
    assert choice_of("T", "1, 2,4") == [1, 2, 4]
    assert choice_of("T", "divisors(m)") == divisors("m")
    assert choice_of("T", "all_sizes(12)") == all_sizes(12)
    assert choice_of("T", "powers(2, m)") == powers(2, "m")
    assert choice_of("T", "range(1, 9, 2)") == range(1, 9, 2)
    assert choice_of("T", "2*TM") == "2*TM"
    assert choice_of("T", "16-1") == "16-1"


def test_the_bar_tells_rate_and_time_left() -> None:
    lines: list[str] = []
    bar = SweepProgress(lines.append)
    bar(10, 100, 1.0)
    assert not lines
    bar(50, 100, 5.0)
    bar.finish()
    assert "50.0 %" in lines[0]
    assert "10/s" in lines[0]
    assert "5 s left" in lines[0]


def test_an_interrupted_sweep_is_exit_code_130(
    capsys: Captured, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: SweepProgress, done: int, total: int, seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SweepProgress, "__call__", interrupt)
    code, out, _ = run(capsys, "sweep", spec)
    assert code == INTERRUPTED == 130
    assert "interrupted after" in out

    def early(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polymodel.loading.load", early)
    code, out, err = run(capsys, "evaluate", spec)
    assert (code, out) == (INTERRUPTED, "")
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--top", "0"), "top=0"),
        (("--top", "-1"), "top=-1"),
        (("--top", "2", "--pareto"), "--top 2 keeps the best by the first objective"),
        (("--symbol", "TM=divisor(m)"), "did you mean divisors(m)?"),
        (("--objective", "powr"), "energy"),
    ],
)
def test_more_mistakes_are_named(
    capsys: Captured, spec: str, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, "sweep", spec, *arguments)
    assert (code, out) == (BAD_INPUT, "")
    assert message in err
    assert "Traceback" not in err


def test_a_section_is_located_also_in_its_symbols(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SMALL + "\nsweep:\n  symbols:\n    TM: divisor(m)\n", encoding="utf-8")
    line = path.read_text(encoding="utf-8").splitlines().index("    TM: divisor(m)") + 1
    code, _, err = run(capsys, "sweep", str(path))
    assert code == BAD_INPUT
    assert f"{path}:{line}:" in err
    assert "did you mean divisors(m)?" in err


def test_set_against_the_section_is_located(capsys: Captured, spec: str) -> None:
    line = Path(spec).read_text(encoding="utf-8").splitlines().index("  symbols: {TM: divisors(m)}") + 1
    code, _, err = run(capsys, "sweep", spec, "--set", "TM=4")
    assert code == BAD_INPUT
    assert f"{spec}:{line}:" in err
    assert "--symbol TM=4" in err
    code, out, _ = run(capsys, "sweep", spec, "--symbol", "TM=4", "--keep", "all", "--format", "json")
    assert [r["TM"] for r in json.loads(out)] == [4]


def test_a_store_can_be_started_anew(capsys: Captured, spec: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert run(capsys, "sweep", spec, "--store", store)[0] == FINE
    code, _, err = run(capsys, "sweep", spec, "--store", store, "--symbol", "TM=1,2")
    assert code == REFUSED
    assert "--no-resume" in err
    assert run(capsys, "sweep", spec, "--store", store, "--symbol", "TM=1,2", "--no-resume")[0] == FINE


def test_nothing_kept_is_said_in_words(capsys: Captured, spec: str) -> None:
    code, out, _ = run(capsys, "sweep", spec, "--where", "TM > 1000")
    assert code == INFEASIBLE
    assert "Empty DataFrame" not in out
    assert "no point is kept" in out


def test_the_bar_writes_few_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY", 30.0)  # seconds; tests write none otherwise
    lines: list[str] = []
    bar = SweepProgress(lines.append, live=False)
    for tenth in range(1200):
        bar(tenth, 1200, tenth / 10)
    bar.finish()
    assert 2 <= len(lines) <= 6
    assert all(line.endswith("\n") and "\r" not in line for line in lines)


def test_the_rate_of_a_resumed_run_is_that_of_this_run() -> None:
    lines: list[str] = []
    bar = SweepProgress(lines.append)
    bar(1_000_010, 2_000_000, 0.1)
    bar(1_000_110, 2_000_000, 10.1)
    assert "10/s" in lines[-1]


def test_pruning_can_be_turned_off(capsys: Captured, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "PRUNE_FROM", 1)
    arguments = ("sweep", spec, "--symbol", "TM=all_sizes(m)")
    pruned, whole = (run(capsys, *arguments, *more)[1] for more in ((), ("--no-prune",)))
    assert "  pruned: " in pruned
    assert "  pruned: " not in whole
    assert pruned.partition("\n\n")[2] == whole.partition("\n\n")[2]


def test_a_front_that_outgrows_its_memory_is_unfinished_or_goes_to_the_store(
    capsys: Captured, tmp_path: Path
) -> None:
    mapping = tmp_path / "rows.yaml"
    mapping.write_text(ROWS, encoding="utf-8")
    wanted = ("--objective", "accesses:DRAM", "--objective", "working_set:GLB", "--format", "csv")
    sweep = ("sweep", "matmul", "simple_two_level", str(mapping), "--symbol", "TM=all_sizes(m)", *wanted)
    _, whole, _ = run(capsys, *sweep)
    assert len(whole.splitlines()) > 8
    code, some, err = run(capsys, *sweep, "--memory", "5KB")
    assert code == UNFINISHED
    assert "the front outgrew memory=5KB" in err
    assert len(some.splitlines()) > 5
    for again in ((), ("--no-resume",), ()):
        stored = run(capsys, *sweep, "--memory", "5KB", "--store", str(tmp_path / "store"), *again)
        assert stored[:2] == (FINE, whole)


def test_a_template_variable_brings_in_a_symbol_that_is_swept(capsys: Captured, tmp_path: Path) -> None:
    """It needs no declaration; rows are those of the number itself, and of a misspelt symbol it is said."""
    source = Path(tmp_path / "sized.yaml")
    source.write_text(SMALL.replace("size: 8 * 64 * 1024", "size: 1024 * {{ SIZE | default(1) }}"))
    symbols = ["--symbol", "UNITS=2,64", "--symbol", "TM=1,8", "--keep", "all", "--format", "csv"]
    code, out, err = run(capsys, "sweep", str(source), "--var", "SIZE=UNITS", *symbols)
    assert (code, err) == (FINE, "")
    rows = [line.split(",") for line in out.splitlines()]
    at = {name: rows[0].index(name) for name in ("UNITS", "TM", "feasible")}
    assert len(rows) == 5
    for row in rows[1:]:
        report = pm.evaluate(pm.load(source, SIZE=int(row[at["UNITS"]]), symbols={"TM": int(row[at["TM"]])}))
        assert str(report.feasible) == row[at["feasible"]]
    assert len({row[at["feasible"]] for row in rows[1:]}) == 2
    opened = pm.load(source, {"symbols": {"UNITS": None}}, SIZE="UNITS")
    swept = pm.sweep(opened, {"UNITS": [2, 64], "TM": [1, 8]}, keep="all")
    assert [str(f) for f in swept.frame["feasible"]] == [row[at["feasible"]] for row in rows[1:]]
    code, _, err = run(capsys, "sweep", str(source), "--var", "SIZE=UNITS", "--symbol", "UNIT=1,2")
    assert code == BAD_INPUT
    assert "unknown symbol UNITS" in err


def test_all_points_are_printed_best_first_and_all_files_are_told(
    capsys: Captured, spec: str, tmp_path: Path
) -> None:
    """The first rows in the order of the grid were printed, and of two saved results one was told."""
    asked = ("--objective", "working_set:GLB", "--symbol", "TM=16,4,8")
    places = ("--out", str(tmp_path / "rows"), "--html", str(tmp_path / "page.html"))
    code, out, err = run(capsys, "sweep", spec, "--keep", "all", *asked, *places)
    assert code == FINE
    found = pm.sweep(pm.load(spec), {"TM": [16, 4, 8]}, objectives=["working_set:GLB"], keep="all")
    rows = [line.split() for line in out.splitlines() if line.endswith(("True", "False"))]
    order = found.frame.sort_values(["feasible", "working_set:GLB"], ascending=[False, True], kind="stable")
    assert [int(row[0]) for row in rows] == order["TM"].tolist() != found.frame["TM"].tolist()
    assert "page.html" in err
    for name in ("sweep.csv", "sweep.parquet", "best.yaml"):
        assert str(tmp_path / "rows" / name) in out


def test_long_names_of_commands_stand_on_one_line_with_what_they_do() -> None:
    from polymodel.cli.app import build_parser

    lines = [line.strip() for line in build_parser().format_help().splitlines()]
    assert not {"distribute", "tensaurus"} & {*lines}
