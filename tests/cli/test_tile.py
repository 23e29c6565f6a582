"""`polymodel tile`, as a user calls it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import matplotlib
import pytest

from polymodel.cli import main
from polymodel.sparse.files import read_tensor

matplotlib.use("agg")
MATRICES = Path(__file__).resolve().parents[1] / "data" / "matrices"
MATRIX = str(MATRICES / "diagonal.mtx.gz")
SMALL = str(MATRICES / "pairs.mtx.gz")
OVERLAPPING = str(MATRICES / "programme.mtx.gz")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["tile", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_says_how_to_cut_what_it_costs_and_how_near_the_bound(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, MATRIX, "--op", "add", "--capacity", "128")
    assert code == 0
    for text in (
        "add, at most 128 elements a tile",
        "lower bound    31 tiles with entries; this is 1.00 x that",
        "31 kernels x 824 cycles",
        "> best: ",
        "What to do next",
        "no cutting launches fewer kernels than these 31",
        "against simple at 1,000 MHz",
        "--export DIR",
    ):
        assert text in out, text


def test_comparison_grows_with_compare(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, SMALL, "--format", "csv")
    usual = list(csv.DictReader(out.splitlines()))
    _, out, _ = run(capsys, SMALL, "--format", "csv", "--compare")
    every = list(csv.DictReader(out.splitlines()))
    assert {"simple", "qtree", "btree", "strips"} <= {r["tiler"] for r in usual}
    assert {r["tiler"] for r in usual[:-1]} < {r["tiler"] for r in every}
    assert {"qtree+merge", "btree+fixpoint"} <= {r["tiler"] for r in every}
    assert min(int(r["run_cycles"]) for r in every) == int(every[-1]["run_cycles"])
    assert every[-1]["tiler"].startswith("best: ")


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, SMALL, "--format", "json", "--tiler", "btree")
    data = json.loads(out)
    assert data["tiler"] == "btree"
    assert len(data["rows"]) == data["tiles"]
    assert data["summary"][0]["tiler"] == "simple"
    assert data["advice"]
    _, out, _ = run(capsys, SMALL, "--format", "html")
    assert out.startswith("<!DOCTYPE html>")
    assert "lower bound" in out


@pytest.mark.slow
def test_files_and_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = ("--out", str(tmp_path / "o"), "--export", str(tmp_path / "t"), "--plot", str(tmp_path / "p.png"))
    code, out, err = run(capsys, SMALL, "--tiler", "btree", *where)
    assert (code, err) == (0, "")
    assert f"saved {tmp_path / 'p.png'}" in out
    assert {p.name for p in (tmp_path / "o").iterdir()} == {
        "tiles.csv", "tiling.json", "tiling.html", "tiling.txt", "summary.csv", "tiles.svg", "tilers.svg",
        "comparison.svg",
    }  # fmt: skip
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    index = json.loads((tmp_path / "t" / "index.json").read_text())
    entries = [read_tensor(tmp_path / "t" / tile["files"]["A"]).nnz for tile in index["tiles"]]
    assert sum(entries) == 420
    code, out, err = run(capsys, SMALL, "--format", "csv", "--plot", str(tmp_path / "p.svg"))
    assert "saved" not in out
    assert "saved" in err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--with", "rolled:1"), "rows rolled by 1"),
        (("--with", "rolled"), "rows rolled by 5"),
        (("--with", "nothing"), "B: nothing"),
        (("--with", SMALL), "B: pairs"),
        (("--fit", "words", "--capacity", "300"), "300 words"),
        (("--fit", "CSR", "--capacity", "9000"), "9,000 bits in CSR"),
        (("--op", "mul"), "multiply"),
        (("--run", "all", "--config", "10", "--clock", "200"), "x 10 cycles"),
        (("--ranks", "J,I"), "pairs (21 x 210"),
        (("--names", "P,Q", "--ranks", "Q,P"), "pairs (21 x 210"),
        (("--objective", "tiles"), "fewest kernels"),
        (("--tiler", "qtree+fixpoint"), "qtree+fixpoint"),
    ],
)
def test_options(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    code, out, _ = run(capsys, SMALL, *arguments)
    assert code == 0
    assert told in out


def test_tiles_of_tiler_swift_may_overflow(capsys: pytest.CaptureFixture[str]) -> None:
    swift = str(MATRICES / "chessboard.mtx.gz")
    code, out, _ = run(capsys, swift, "--op", "multiply", "--compat", "tiler-swift")
    assert code == 1
    assert "WARNING: 1 tile does not fit 128 elements" in out
    assert run(capsys, swift, "--op", "multiply", "--tiler", "qtree+merge")[0] == 0


def test_tensors_of_more_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(MATRICES / "facts.tns.gz")
    code, out, _ = run(capsys, graph, "--ranks", "J,K", "--capacity", "2048", "--tiler", "btree")
    assert code == 0
    assert "2,048 elements" in out


def test_names_are_those_of_both_files(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, SMALL, "--with", SMALL, "--names", "X,Y", "--tiler", "strips")
    assert code == 0
    assert "add, at most 128 elements" in out


@pytest.mark.parametrize(
    "text",
    [
        "1 9 3\n1 1 1\n1 5 2\n1 9 -1\n",
        "7 5 0\n",
        "1 1 1\n1 1 3\n",
        "3 4 4\n1 1 1\n1 1 2\n2 2 0\n3 4 5\n",
    ],
)
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_odd_matrices(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, op: str) -> None:
    path = tmp_path / "odd.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n" + text)
    code, out, err = run(
        capsys, str(path), "--op", op, "--capacity", "2", "--with", "nothing", "--export", str(tmp_path / "t")
    )
    assert (code, err) == (0, "")
    assert "What to do next" in out
    assert (tmp_path / "t" / "index.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere.mtx",), "nowhere.mtx"),
        ((MATRIX, "--capacity", "0"), "not a positive integer"),
        ((OVERLAPPING, "--capacity", "1"), "at least 2 elements"),
        ((MATRIX, "--tiler", "btre"), "btree"),
        ((MATRIX, "--with", "rolled:x"), "write e.g. rolled:5"),
        ((MATRIX, "--with", "nothng"), "transposed or nothing"),
        ((MATRIX, "--with", SMALL), "element-wise operands have one shape"),
        ((SMALL, "--with", "transposed"), "only a square plane"),
        ((MATRIX, "--ranks", "I"), "two ranks are cut"),
        ((MATRIX, "--ranks", "I,Q"), "rank 'Q'"),
        ((MATRIX, "--fit", "foo"), "format 'foo' is not known"),
        ((MATRIX, "--fit", "foo"), "elements, words"),
        ((MATRIX, "--fit", "CSR"), "--fit CSR --capacity 8192"),
        ((MATRIX, "--most", "5"), "--most has no meaning without --export"),
        ((MATRIX, "--export", "x", "--most", "0"), "--most 0 is not a positive integer"),
        ((MATRIX, "--fit", "words", "--capacity", "6"), "at least 7 words"),
        ((MATRIX, "--plot", "tiles.xyz"), "tiles.png"),
        (("nowhere.mtx", "--plot", "tiles.xyz"), "tiles.png"),  # before anything is read or searched
        (("nowhere.mtx", "--export", MATRIX), "name a folder, not a file"),
        ((MATRIX, "--config", "-1"), "not a whole number of cycles"),
        ((MATRIX, "--clock", "0"), "--clock 0 is not a number of MHz"),
        ((MATRIX, "--compat", "tiler-swift", "--tiler", "strips"), "tiler-swift has no tiler"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err


def test_many_files_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wide.mtx"
    entries = "".join(f"1 {k} 1\n" for k in range(1, 20_003))
    path.write_text("%%MatrixMarket matrix coordinate real general\n1 20002 20002\n" + entries)
    options = ("--with", "nothing", "--capacity", "1", "--tiler", "strips", "--export", str(tmp_path / "t"))
    code, _, err = run(capsys, str(path), *options)
    assert code == 3
    assert "20,002 files" in err
    assert not (tmp_path / "t").exists()
