"""`polymodel tile` with --op matmul, --tune and --estimate."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import matplotlib
import pytest

import polymodel as pm
from polymodel.cli import main

matplotlib.use("agg")
MATRICES = Path(__file__).resolve().parents[1] / "data" / "matrices"
SMALL = str(MATRICES / "pairs.mtx.gz")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["tile", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_products_are_those_of_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    product = (SMALL, "--op", "matmul", "--with", "transposed", "--tile", "32,8,32", "--order", "ikj")
    code, out, _ = run(capsys, *product, "--out", str(tmp_path), "--plot", str(tmp_path / "p.png"))
    assert code == 0
    assert "uniform, 32 x 8 x 32" in out
    assert (tmp_path / "p.png").is_file()
    found = pm.tile_matmul(SMALL, pm.Transposed(), tile=(32, 8, 32), order="ikj")
    with (tmp_path / "orders.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert int(row["total_words"]) == found.words
    _, out, _ = run(capsys, *product, "--format", "json")
    assert json.loads(out)["notes"] == list(found.notes)


def test_products_are_searched_under_a_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, SMALL, "--op", "matmul", "--with", "transposed", "--capacity", "300")
    assert code == 0
    assert "candidates" in out
    code, out, _ = run(
        capsys, SMALL, "--op", "matmul", "--with", "transposed", "--tiler", "panels", "--objective", "words"
    )
    assert code == 0
    assert "panels of rows" in out


def test_the_loop_of_tiler_and_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, SMALL, "--tune", "--export", str(tmp_path / "t"))
    assert code == 0
    assert "the loop ended" in out
    assert (tmp_path / "t" / "index.json").is_file()
    _, out, _ = run(capsys, SMALL, "--tune", "--objective", "tiles", "--format", "csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert rows[0]["proposal"] == "btree"
    assert int(rows[-1]["best"]) == 7


@pytest.mark.slow
def test_estimates_stand_beside_data_or_alone(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, SMALL, "--estimate", "--format", "csv", "--tiler", "btree")
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    assert {r["tiler"] for r in rows} == {"btree"}
    assert {int(r["actual_tiles"]) for r in rows} == {8}
    code, out, _ = run(capsys, "--estimate", "--shape", "100,90", "--density", "0.1", "--tiler", "strips")
    assert code == 0
    assert "expected" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no file is named"),
        (("--estimate",), "of a file, or of a shape and a density"),
        (("--estimate", "--shape", "3,4"), "a shape needs a density"),
        (("--estimate", "--shape", "3", "--density", "0.5"), "give two sizes, rows and columns"),
        (
            ("--estimate", "--shape", "3,4", "--density", "2"),
            "--density 2 is not a share of nonzero points, from 0 to 1",
        ),
        (("--estimate", "--shape", "3,x", "--density", "0.5"), "write e.g. --shape 1000,1000"),
        ((SMALL, "--estimate", "--with", SMALL), "an estimate does not use data of B"),
        ((SMALL, "--estimate", "--tune"), "do not go together"),
        ((SMALL, "--tune", "--tiler", "btree"), "--tiler has no meaning with --tune"),
        ((SMALL, "--tune", "--objective", "words"), "cycles, tiles or total"),
        ((SMALL, "--pes", "3"), "--pes has no meaning with element-wise operations"),
        ((SMALL, "--op", "matmul", "--with", "rolled:3"), "name a file, or transposed"),
        ((SMALL, "--op", "matmul", "--with", "transposed", "--tile", "3,x"), "write e.g. --tile 32,32,32"),
        ((SMALL, "--op", "matmul", "--with", "transposed", "--tiler", "foo"), "no strategy 'foo'"),
        ((SMALL, "--op", "matmul", "--tiler", "panels", "--tile", "3,3,3"), "--tiler panels chooses its own"),
        ((SMALL, "--op", "matmul", "--tiler", "foo", "--tile", "3,3,3"), "write one of uniform, panels"),
        ((SMALL, "--op", "matmul", "--objective", "tiles"), "cycles or words"),
        ((SMALL, "--op", "matmul"), "--with transposed"),
        ((SMALL, "--shape", "3,3"), "add --estimate, or leave it out"),
        ((SMALL, "--order", "ikj"), "add --op matmul, or leave it out"),
        ((SMALL, "--op", "matmul", "--compare", "--fit", "words"), "--fit has no meaning"),
        ((SMALL, "--op", "matmul", "--compare", "--fit", "words"), "--compare has no meaning"),
        (
            ("--estimate", "--shape", "1e2,2.5", "--density", "0.5"),
            "whole numbers above 0 are expected",
        ),
        ((SMALL, "--capacity", "1.5"), "--capacity 1.5 is not a positive integer"),
        ((SMALL, "--capacity", "4k"), "write e.g. --capacity 128"),
        ((SMALL, "--op", "matmul", "--bandwidth", "nan"), "--bandwidth nan is not a number of words a cycle"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err


def test_numbers_are_read_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, SMALL, "--capacity", "1e3", "--clock", "5e2", "--config", "1_00")
    assert code == 0
    for text in ("1,000 elements a tile", "100 cycles = 200 ns: 1 kernel x 100 cycles", "at 500 MHz"):
        assert text in out, text
    code, out, _ = run(capsys, "--estimate", "--shape", "1e2,1_00", "--density", "1e-1", "--tiler", "strips")
    assert (code, "100 x 100" in out) == (0, True)


def test_wrong_numbers_are_told_once_each_and_all_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, SMALL, "--config", "-1", "--clock", "-3", "--capacity", "0", "--most", "x")
    assert (code, out) == (2, "")
    assert [line for line in err.splitlines() if "remedy" not in line] == [
        "--capacity 0 is not a positive integer",
        "--config -1 is not a whole number of cycles from 0 to 10^9",
        "--clock -3 is not a number of MHz from 1e-9 to 1e9",
        "--most x is not a positive integer",
    ]
    assert "config_add" not in err


def test_overbooked_tiles_of_given_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    product = (SMALL, "--op", "matmul", "--with", "transposed", "--tile", "32,8,32", "--capacity", "40")
    code, out, _ = run(capsys, *product, "--tiler", "overbooked", "--format", "json")
    found = pm.tile_matmul(
        SMALL, pm.Transposed(), tile=(32, 8, 32), capacity=40, strategy="overbooked", objective="time"
    )
    assert code == 0
    assert json.loads(out)["notes"] == list(found.notes)
    assert any("overbooked: some tiles exceed their buffer" in note for note in found.notes)
    assert json.loads(out)["summary"] == json.loads(json.dumps(found.table("summary").records()))
    assert run(capsys, *product)[0] == 1  # without it they do not fit


def test_tensors_of_three_ranks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Cut on two ranks; products and estimates, which are of matrices, say what takes them."""
    tensor = (str(MATRICES / "facts.tns.gz"), "--names", "I,J,K", "--capacity", "4_096")
    where = ("--export", str(tmp_path / "t"), "--plot", str(tmp_path / "p.png"))
    code, out, _ = run(capsys, *tensor, "--ranks", "J,K", "--tiler", "strips", *where)
    assert code == 0
    assert "J and K are cut, I (59) lies whole in each tile" in out
    index = json.loads((tmp_path / "t" / "index.json").read_text())
    assert index["cut"] == ["J", "K"]
    assert sum(tile["nnz"]["A"] for tile in index["tiles"]) == 5_065
    assert (tmp_path / "p.png").is_file()
    code, out, err = run(capsys, *tensor, "--op", "matmul")
    assert (code, out) == (2, "")
    assert "facts has 3 ranks" in err
    assert "pm.tile (--op add, multiply) cuts tensors" in err
    code, out, err = run(capsys, *tensor, "--estimate")
    assert (code, out) == (3, "")
    assert "pm.tile (no --estimate) takes two ranks of any tensor" in err
    code, out, _ = run(capsys, *tensor, "--tune", "--format", "csv")
    assert (code, out.startswith("step,proposal")) == (0, True)


@pytest.mark.slow
def test_published_figures_beside_ours(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = str(MATRICES / "relations.mtx.gz")
    code, out, _ = run(capsys, SMALL, other, "--published", "--out", str(tmp_path))
    assert code == 0
    assert "Speed-up of the run against simple" in out
    assert "means over what is given here" in out
    made = {p.name for p in tmp_path.iterdir()}
    charts = {f"{op}_{what}.svg" for op in ("add", "multiply") for what in ("run", "config")}
    assert made == {"means.csv", "bars.csv", "means.svg", *charts}
    _, out, err = run(capsys, SMALL, "--published", "--format", "csv", "--plot", str(tmp_path / "m.png"))
    assert [r["claimed_speed_up"] for r in csv.DictReader(out.splitlines())] == [
        "2.97",
        "2.62",
        "3.89",
        "3.75",
    ]
    assert "m.png" in err
    code, _, err = run(capsys, SMALL, "--published", "--tiler", "btree", "--op", "mul")
    assert code == 2
    assert "--tiler has no meaning with --published" in err
    assert "--op has no meaning with --published" in err
    code, _, err = run(capsys, SMALL, other)
    assert code == 2
    assert "2 files are named" in err


def test_simulated_tiles_are_those_of_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(
        capsys, SMALL, "--op", "multiply", "--simulate", "3", "--seed", "2", "--out", str(tmp_path)
    )
    assert code == 0
    ran = pm.tile(SMALL, op="multiply").simulate(most=3, seed=2)
    assert str(ran).splitlines()[0] in out
    assert (tmp_path / "tiles.csv").read_text() == ran.table("tiles").to_csv()
    product = ("--op", "matmul", "--with", "transposed", "--tile", "32,8,32")
    _, out, _ = run(capsys, SMALL, *product, "--simulate", "2", "--format", "csv")
    matched = pm.tile_matmul(SMALL, pm.Transposed(), tile=(32, 8, 32)).simulate(most=2)
    assert out == matched.table("terms").to_csv()


def test_two_products_are_those_of_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    square = str(MATRICES / "circuit.mtx.gz")
    machine = ("--pes", "16", "--split", "5", "--bandwidth", "4", "--buffers", "3", "--keep-configured")
    given = ("--op", "chain", "--order", "A(BC)", "--capacity", "4096,4096,2048,4096,2048", *machine)
    code, _, _ = run(capsys, square, square, square, *given, "--config", "100", "--out", str(tmp_path))
    assert code == 0
    found = pm.tile_chain(
        square, square, square, order="A(BC)", capacity=(4096, 4096, 2048, 4096, 2048), pes=16, split=5,
        bandwidth=4, buffers=3, keep_configured=True, launch=pm.Launch(config_multiply=100),
    )  # fmt: skip
    for name in found.tables:
        assert (tmp_path / f"{name}.csv").read_text() == found.table(name).to_csv()
