"""`polymodel sparse`, `execute` and `tensaurus`, as a user calls them."""

from __future__ import annotations

import csv
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.cli.progress import waiting
from polymodel.report.execution import ExecutionReport
from polymodel.report.traffic import TrafficReport
from polymodel.sparse.files import read_tensor
from tests.faults import faults
from tests.seeds import seeds

EXECUTED = {name: table.title for name, table in ExecutionReport.declared.items()}
MOVED = {name: table.title for name, table in TrafficReport.declared.items()}
MATRIX = str(Path(__file__).resolve().parents[1] / "data" / "matrices" / "relations.mtx.gz")
SIZES = ("--size", "I=4", "--size", "J=4", "--size", "K=4")
GAMMA = ("A=random:0.5", "B=random:0.5", "--size", "M=4", "--size", "K=4", "--size", "N=4")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_sparse_prints_and_saves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "sparse", MATRIX, "--tiles", "8", "--out", str(tmp_path))
    assert code == 0
    assert "nonempty tiles of 8 x 8" in out
    assert "note: relations: " in out
    rows = list(csv.DictReader((tmp_path / "predictions.csv").open()))
    assert next(r for r in rows if r["quantity"] == "nonempty rows")["actual"] == "189"
    made = {p.name for p in tmp_path.iterdir()}
    assert made == {"predictions.csv", "relations_rows.svg", "relations_spy.svg"}
    picture = (tmp_path / "relations_rows.svg").read_text()
    assert "<title>Rows of relations by their nonzeros</title>" in picture


def test_ranks_tell_how_many_columns_are_coordinates(capsys: pytest.CaptureFixture[str]) -> None:
    graph = str(Path(MATRIX).with_name("facts.tns.gz"))
    code, out, _ = run(capsys, "sparse", graph, "--ranks", "R,E1,E2,E3", "--format", "csv")
    assert code == 0
    rows = {r["quantity"]: r for r in csv.DictReader(out.splitlines())}
    assert rows["nonempty rows"]["actual"] == "55"
    assert rows["nonempty (R, E1, E2) fibers"]["actual"] == "5065"
    code, _, err = run(capsys, "sparse", MATRIX, "--ranks", "I,J,K")
    assert code == 2
    assert "a matrix has 2 ranks" in err


@pytest.mark.slow
def test_sparse_tells_which_model_fits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    given = ("sparse", MATRIX, "--fit", "--tiles", "8,32", "--slices", "4")
    code, out, _ = run(capsys, *given, "--out", str(tmp_path))
    assert code == 0
    found = pm.fit_density(MATRIX, tiles=[8, 32], units=4)
    assert out.startswith(f"{found.title}\n\n{found}")
    assert {p.name for p in tmp_path.iterdir()} == {f"{name}.csv" for name in found.tables}
    _, out, _ = run(capsys, *given, "--format", "json")
    chosen = next(m for m in json.loads(out)["models"] if m["chosen"])
    assert chosen["model"] == found.name


def test_sparse_formats(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "sparse", MATRIX, "--format", "json")
    assert json.loads(out)
    _, out, _ = run(capsys, "sparse", MATRIX, "--format", "csv")
    assert out.startswith("tensor,quantity,unit,actual,uniform,uniform_error,rows,rows_error\n")
    _, out, _ = run(capsys, "sparse", MATRIX, "--format", "html")
    assert out.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("words", "heads"),
    seeds(
        4,
        [
            (("sparse", MATRIX), ["Expectations of density models, next to exact counts"]),
            (("tensaurus", "SpMM", MATRIX), ["Kernel on the Tensaurus accelerator"]),
            (
                ("execute", "tensaurus/spmm", "A=random:0.5", "B=dense", *SIZES),
                [*EXECUTED.values(), "Fibertrees", "Y in space and time"],
            ),
            (("traffic", "teaal/gamma_traffic", *GAMMA), list(MOVED.values())),
            (("tensaurus", "--published"), ["What the paper states"]),
        ],
    ),
)
def test_pages_name_their_tables(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], heads: list[str]
) -> None:
    code, page, _ = run(capsys, *words, "--format", "html")
    assert code == 0
    named = f" {words[1]}" if words[0] in ("execute", "traffic") else ""
    assert f"<h1>polymodel {words[0]}{named}</h1>" in page
    # A table that is too wide scrolls.
    assert page.count("<table") == page.count('<div class="wide" tabindex="0"><table')
    assert re.findall("<h2>(.*?)</h2>", page) == heads


def test_execute_checks_and_saves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ("execute", "tensaurus/spmm", f"A={MATRIX}", "B=random:0.5", "--size", "K=8", "--seed", "3")
    code, out, _ = run(capsys, *arguments, "--check", "--out", str(tmp_path))
    assert code == 0
    assert "Y agrees with numpy.einsum in 2,720 points" in out
    assert read_tensor(tmp_path / "Y.mtx").shape == (340, 8)
    assert (tmp_path / "einsums.csv").is_file()
    assert out.split("saved")[0] == run(capsys, *arguments, "--check")[1].rstrip("\n") + "\n\n"


def test_data_may_stand_behind_options(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "K=3", "--size", "M=4", "--size", "N=5"]
    assert main(["execute", "teaal/gamma", "A=dense", "B=dense", *sizes]) == 0
    ahead = capsys.readouterr().out
    assert main(["execute", "teaal/gamma", *sizes[:2], "A=dense", *sizes[2:], "B=dense"]) == 0
    assert capsys.readouterr().out == ahead
    with pytest.raises(SystemExit):
        main(["execute", "teaal/gamma", *sizes, "A=dense", "--oops", "B=dense"])
    assert capsys.readouterr().err.startswith("--oops: there is no such option")


def test_execute_tells_all_faults(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "execute", "tensaurus/spmm", f"A={MATRIX}", "B=random:2", "C=dense")
    assert code == 2
    assert "the size of rank K is not known" in err
    assert "C is not an input" in err
    code, _, err = run(capsys, "traffic", "matmul", f"A={MATRIX}")
    assert code == 2
    assert "not a TeAAL spec" in err
    code, _, err = run(capsys, "execute", "matmul", "A=dense", "C=dense")
    assert code == 2
    assert "B: there are no data of this input, 64 x 64" in err
    assert "C is not an input" in err
    code, _, err = run(capsys, "execute", "matmul", "A=dense", "B=dense", "--size", "M=3")
    assert code == 2
    assert "--size: matmul is a workload" in err


def test_a_workload_is_computed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Conjugate gradients, a cycle of nine Einsums, solve a system; the library's scan adds up."""
    random = np.random.default_rng(5)
    half = random.normal(size=(6, 6))
    matrix, right = half @ half.T + 6 * np.eye(6), random.normal(size=6)
    for name, values in (("A", matrix), ("B", right[:, None])):
        tensor = pm.SparseTensor.from_dense(name, ["U", "V"], values)
        pm.write_tensor(tensor, tmp_path / f"{name}.mtx")
    page = (Path(__file__).parents[2] / "docs" / "howto" / "workload.md").read_text(encoding="utf-8")
    text = page.partition("# file: gradients.yaml\n")[2].partition("```")[0]
    (tmp_path / "cg.yaml").write_text(text, encoding="utf-8")
    data = [f"{name}={tmp_path / name}.mtx" for name in "AB"]
    out = tmp_path / "out"
    words = ("execute", str(tmp_path / "cg.yaml"), *data, "--until", "7", "--out", str(out))
    code, told, _ = run(capsys, *words)
    assert code == 0
    assert "k: 7 generations" in told
    found = pm.read_tensor(out / "X.mtx").to_dense()
    np.testing.assert_allclose(found[-1], np.linalg.solve(matrix, right), rtol=1e-9)
    code, told, _ = run(capsys, "execute", "prefix_sum", "X=dense", "--var", "P=3", "--format", "json")
    assert code == 0
    rows = json.loads(told)
    assert {row["tensor"]: row["shape"] for row in rows} == {"S": "4 x 64", "X": "3 x 64"}


def test_inputs_without_data_are_told_with_their_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    for command, name in (("execute", "tensaurus/spmm"), ("traffic", "teaal/gamma_traffic")):
        teaal = pm.load(name).teaal
        assert teaal is not None
        code, _, err = run(capsys, command, name)
        assert code == 2
        for tensor in "AB":
            ranks = teaal.declaration[tensor]
            sizes = " ".join(f"--size {r}=64" for r in ranks)
            assert f"{tensor}: there are no data of this input with ranks {', '.join(ranks)}\n" in err
            remedy = f"add a file, {tensor}={tensor}.mtx, or random data, {tensor}=random:0.1 {sizes}\n"
            assert remedy in err
    # What a file or an option says is not asked for; other faults are told in the same round.
    code, _, err = run(capsys, "execute", "tensaurus/spmm", f"A={MATRIX}", "C=dense")
    assert code == 2
    assert "B=random:0.1 --size K=64\n" in err
    assert "C is not an input" in err
    _, _, err = run(capsys, "execute", "tensaurus/spmm", f"A={MATRIX}", "B=dense", "--set", "K=5")
    assert "the size of rank K is not known\n  remedy: write --size K=5\n" in err
    code, _, err = run(capsys, "execute", "tensaurus/mttkrp", "B=dense", "--size", "J=3")
    assert code == 2
    assert "A: there are no data of this input with ranks I, J, K\n" in err
    assert "A=A.tns" in err


GAMMA = (
    "traffic",
    "teaal/gamma_traffic",
    "A=random:0.2",
    "B=random:0.2",
    *"--size K=9 --size M=7 --size N=8".split(),
)


def test_traffic_is_that_of_python(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, *GAMMA)
    assert code == 0
    assert "T and Z at once" in out
    code, out, _ = run(capsys, *GAMMA, "--format", "json")
    rows = json.loads(out)["memories"]
    run(capsys, "execute", "teaal/gamma", *GAMMA[2:], "--out", str(tmp_path), "--table", "ranks")
    # Products are those of the same data when the cascade runs.
    assert {r["tensor"] for r in rows} == {"A", "B", "Z"}
    products = next(u for u in json.loads(out)["units"] if u["kind"] == "mul")["count"]
    _, ran, _ = run(capsys, "execute", "teaal/gamma", *GAMMA[2:], "--format", "json")
    assert products == next(e for e in json.loads(ran)["einsums"] if e["einsum"] == "Z")["multiplies"]


def test_traffic_report() -> None:
    spec = pm.load("teaal/gamma_traffic")
    a = np.array([[1, 1], [0, 0], [0, 1]])
    b = np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 0]])
    found = pm.traffic(spec, {"A": a, "B": b})
    report = pm.TrafficReport(found)
    assert report.memories["read_bits"].tolist() == [640, 384, 0]
    assert report.units["count"].tolist() == [3, 7, 8, 1]
    assert "<table>" in report._repr_html_()
    with faults("unknown-name", "C", at=""):
        pm.traffic(spec, {"A": a, "B": b, "C": b})
    with faults("unknown-name", at="table"):
        report.table("other")


def test_tensaurus_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "tensaurus", "SpMM", MATRIX, "--across", "8")
    assert code == 0
    assert "5,200" in out  # 650 nonzeros x 8 columns
    code, out, _ = run(capsys, "tensaurus", "MTTKRP", "--shape", "120,90,280", "--nnz", "7700")
    assert code == 0
    assert "expected" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("tensaurus",), "no kernel is named"),
        (("tensaurus", "FFT", MATRIX), "FFT"),
        (("tensaurus", "SpMM"), "no tensor is given"),
        (("tensaurus", "SpMM", MATRIX, "--nnz", "3"), "leave out --shape"),
        (("tensaurus", "SpMM", "--shape", "a,b", "--nnz", "3"), "whole numbers"),
        (("tensaurus", "SpMM", "--shape", "2,2", "--nnz", "9"), "do not fit"),
        (("sparse", MATRIX, "--tiles", "x"), "whole numbers"),
        (("sparse", "nothing.mtx"), "nothing.mtx"),
        (("sparse", MATRIX, "--slices", "99999999999"), "at most 65,536"),
        (("execute", "tensaurus/spmm", "A"), "\n  remedy: write e.g. A=matrix.mtx"),
        (("execute", "tensaurus/spmm", "A=dense", "A=dense"), "A is given twice"),
        (("execute", "tensaurus/spmm", f"A={MATRIX}", "B=dense", "--size", "Q=2"), "has no rank Q"),
        (("tensaurus", "SpMV", MATRIX, "--across", "3"), "leave it out"),
        (("tensaurus", "FFT", "--shape", "3,4"), "no kernel FFT"),
        (("traffic", "tensaurus/spmm", f"A={MATRIX}", "B=dense", "--size", "K=2"), "binds nothing"),
        (("execute", "tensaurus/spmm", f"A={MATRIX}", "B=dense", "--size", "K=0"), "at least 1"),
    ],
)
def test_bad_input(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert told in err
    assert "Traceback" not in err


def test_show_tells_densities_and_what_is_done_about_zeros(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", str(Path(__file__).resolve().parents[2] / "docs/sparse/actions.yaml"))
    assert code == 0
    for line in (
        "densities: A 0.25",
        "sparse: A in COO; skip B on A",
        "sparse: gate B on A",
        "skip compute on A",
    ):
        assert line in out


def test_damaged_text_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "a.mtx"
    file.write_bytes(b"%%Matrix\x1b[31m\x07\xff\n1 1 1\n")
    code, _, err = run(capsys, "sparse", str(file))
    assert code == 2
    assert not any(c in err for c in "\x1b\x07\ufffd")


def test_what_takes_long_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymodel.cli.progress.BAR_AFTER", 0.0)
    monkeypatch.setattr("polymodel.cli.progress.LINE_EVERY", 0.0)
    with waiting("counting"):
        time.sleep(0.5)
    assert "counting: 0 s so far\n" in capsys.readouterr().err
    code, out, _ = run(capsys, "sparse", MATRIX)
    assert code == 0
    assert "so far" not in out


def test_a_spec_of_which_an_einsum_is_not_checked_is_reported_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "gather.yaml"
    file.write_text(
        "einsum:\n"
        "  declaration: {A: [K, M], B: [K, N], T: [K, M, N], Z: [M, N]}\n"
        "  expressions:\n"
        "  - T[k, m, n] = A[k, m] * B[k, n]\n"
        "  - Z[m, n] = take(T[k, m, n], A[k, m], 0)\n"
    )
    words = (
        "execute",
        str(file),
        "A=random:0.5",
        "B=random:0.5",
        *"--size K=3 --size M=4 --size N=5".split(),
    )
    code, out, _ = run(capsys, *words, "--check", "--out", str(tmp_path / "o"))
    assert code == 3
    assert "Work and time per Einsum" in out
    assert "T agrees with numpy.einsum in 60 points\nZ was not checked: a take that" in out
    assert (tmp_path / "o/Z.mtx").is_file()
    code, out, err = run(capsys, *words, "--check", "--format", "json")
    assert (code, list(json.loads(out))) == (3, list(EXECUTED))
    assert "Z was not checked" in err


def test_execute_saves_a_page_and_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A small run is drawn; a large one says what is not."""
    page, folder = tmp_path / "x.html", tmp_path / "o"
    small = ("execute", "tensaurus/spmm", "A=random:0.5", "B=dense", *SIZES)
    code, out, _ = run(capsys, *small, "--html", str(page), "--out", str(folder), "--check")
    assert code == 0
    assert str(page) in out
    text = page.read_text()
    for part in (
        "polymodel execute tensaurus/spmm",
        "Fibertrees",
        "Y in space and time",
        "Y agrees with numpy",
    ):
        assert part in text
    assert (folder / "fibertrees.svg").read_text().startswith("<svg")
    assert "Play" in (folder / "activity.html").read_text()
    large = ("execute", "tensaurus/spmm", f"A={MATRIX}", "B=dense", "--size", "K=8")
    code, _, _ = run(capsys, *large, "--html", str(page), "--out", str(tmp_path / "l"))
    assert code == 0
    assert "steps in space and time are not drawn: an Einsum has more than 60 computes" in page.read_text()
    assert not (tmp_path / "l/activity.html").exists()


def test_traffic_prints_a_table_and_saves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "t.html"
    code, out, _ = run(capsys, *GAMMA, "--table", "units", "--out", str(tmp_path), "--html", str(page))
    assert code == 0
    assert out.split()[:5] == ["einsum", "component", "kind", "count", "time"]
    assert "MainMemory" not in out
    assert (tmp_path / "memories.csv").is_file()
    assert "<h2>Bits moved</h2>" in page.read_text()
    for command in (GAMMA, ("execute", "tensaurus/spmm", "A=dense", "B=dense", *SIZES)):
        code, _, err = run(capsys, *command, "--table", "energy")
        assert code == 2
        assert "--table energy: there is no such table" in err
        assert "remedy: tables: " in err
        code, _, err = run(capsys, *command, "--html", str(tmp_path / "no/x.html"))
        assert code == 2
        assert "no such folder" in err


def test_sizes_of_a_file_are_not_told_as_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, rows, columns in (("a", 3, 5), ("b", 4, 2)):
        (tmp_path / f"{name}.mtx").write_text(
            f"%%MatrixMarket matrix coordinate real general\n{rows} {columns} 1\n1 1 1\n"
        )
    data = (f"A={tmp_path}/a.mtx", f"B={tmp_path}/b.mtx")
    code, _, err = run(capsys, "execute", "tensaurus/spmm", *data)
    assert code == 2
    assert "rank J has size 4 in B and 5 in A" in err
    _, _, err = run(capsys, "execute", "tensaurus/spmm", *data, "--size", "J=4")
    assert "rank J has size 5 in A and 4 in the rank sizes given" in err
