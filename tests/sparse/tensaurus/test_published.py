"""The paper's numbers beside the model's, the chapter that shows them, and the machine in its three forms."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.errors import SpecError
from polymodel.report.tensaurus import report_text
from polymodel.sparse.density import Uniform, random_tensor
from polymodel.sparse.tensaurus import Machine, Tiles, bandwidth, published, tensaurus
from polymodel.sparse.tensaurus.anchors import DENSE, Record, dense, size_table, table
from polymodel.sparse.tensor import SparseTensor
from tests.faults import every_fault, faults
from tests.reference.common import Outcome
from tests.reference.teaal_facts import check
from tests.seeds import seeds

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/sparse/tensaurus.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return {r.quantity: r for r in published()}


@pytest.mark.slow
def test_machine_and_dense_kernels_are_within_three_percent(records: dict[str, Record]) -> None:
    for name in ("peak", "ridge", "area", "power", *(f"dense {k}" for k in DENSE)):
        assert records[name].agrees, records[name]
    assert records["peak"].error == records["ridge"].error == 0


@pytest.mark.slow
def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tensaurus", "--published", "--format", "csv"]) == 0
    assert "dense DMTTKRP,511.9" in capsys.readouterr().out


@pytest.mark.slow
def test_what_differs_is_known_and_told(records: dict[str, Record]) -> None:
    classes = [r for r in records.values() if r.unit == "bound" and r.ours]
    assert len(classes) == 18
    differing = {r.quantity for r in classes if not r.agrees}
    assert differing == {*(f"SpMTTKRP nell-2-m{m}" for m in range(3)), "SpTTMc nell-2-m2"}
    assert all("clustering" in records[name].note for name in differing)
    assert not records["DDR4 bandwidth of CISS, 8 PEs"].agrees
    assert "not modelled" in records["DDR4 bandwidth of CISS, 8 PEs"].note
    missing = [r for r in records.values() if r.ours is None]
    assert len(missing) == 6
    assert all("not" in r.note for r in missing)


@pytest.mark.slow
@pytest.mark.parametrize(("mark", "made"), seeds(1, [("sizes", size_table), ("published", table)]))
def test_the_page_shows_what_the_code_says(mark: str, made: object) -> None:
    shown = re.search(rf"<!-- {mark} -->\n\n(.*?)\n<!-- end -->", PAGE, re.DOTALL)
    assert shown
    assert callable(made)
    assert shown[1] == made()


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    printed = capsys.readouterr().out
    assert printed.startswith("352 (2, 1, 2, 1, 0, 0, 0, 0) 2 ")
    assert "50.91 k" in printed
    report = names["report"]
    assert isinstance(report, pm.tensaurus("SpMV", Uniform(("I", "J"), (3, 3), 2)).__class__)
    assert (report.steps, report.moved("HBM", "A")) == (5, 3 * 512)
    assert (report.fibers, report.slices) == (5, 4)


@pytest.mark.parametrize("kernel", ["mttkrp", "ttmc", "matmul", "matvec"])
def test_the_architecture_is_the_same_machine(kernel: str) -> None:
    """Peak and ridge out of the roofline, capacities, area, and who keeps what."""
    report, machine = pm.evaluate(pm.load("tensaurus", kernel)), Machine()
    point = report.costs.roofline[0]
    assert 2 * point.peak == machine.peak
    assert 2 * point.peak / (point.bandwidth / 8) == pytest.approx(machine.ridge)
    size = {c.name: c.size_bits for c in report.problem.hierarchy.components if c.kind == "memory"}
    assert size["MSU"] == 8 * 2 * machine.msu_bytes
    assert size["SPM"] == 8 * 2 * machine.spm_bytes
    assert size["OSR"] == machine.data_bits * machine.vlen * machine.olen
    assert sum(a.area for a in report.costs.area) == pytest.approx(machine.area_mm2 / 1e6)
    used = {t.component for t in report.analysis.traffic}
    assert ("TSR" in used) == (kernel in ("mttkrp", "ttmc"))
    columns = {c.component: c.instances for c in report.costs.times}["SPM"]
    assert columns == (1 if kernel == "matvec" else 8)


def test_dense_kernels_of_the_library_run_at_the_peak() -> None:
    """What the LoopTree leaves out is what the prediction adds: headers and first tiles."""
    sizes = {"mttkrp": {"I": 512, "J": 512, "K": 512}, "matmul": {"M": 512, "N": 512, "K": 512}}
    for (kernel, given), name in zip(sizes.items(), ("DMTTKRP", "GEMM"), strict=True):
        report = pm.evaluate(pm.load("tensaurus", kernel, **given))
        operations = 2 * sum(p.operations for p in report.costs.roofline)
        assert operations == dense(name).operations
        assert operations / report.total_latency == pytest.approx(Machine().peak)
        assert dense(name).gops < operations / report.total_latency / 1e9


@pytest.mark.thin(99)
@pytest.mark.parametrize("known", ["data", "model"])
def test_the_architecture_on_sparse_data_says_the_same(known: str) -> None:
    """The library mapping with sparse A: the same multiplications, and on data CISS to the last bit."""
    shape, nnz = (64, 32, 32), 3000
    tensor = random_tensor(("I", "J", "K"), shape, nnz / 65536, seed=1)
    a = tensor if known == "data" else Uniform(("I", "J", "K"), shape, nnz)
    ours = tensaurus("MTTKRP", a, F=32)
    dense_report = pm.evaluate(pm.load("tensaurus", "mttkrp", SPARSE="A"))
    given = {"tensors": {"A": tensor}} if known == "data" else {"densities": {"A": a}}
    sparse = pm.sparsify(dense_report, **given)
    work = {c.einsum: c.effectual for c in sparse.counts.compute}
    assert work == pytest.approx({s.einsum: s.multiplies for s in ours.stages})
    stored = next(t for t in sparse.counts.footprints if (t.component, t.tensor) == ("DRAM", "A"))
    assert stored.bits == pytest.approx(ours.moved("HBM", "A"), rel=0.06)
    if known == "data":
        assert stored.bits == ours.moved("HBM", "A")


@pytest.mark.slow
def test_facts_of_the_paper() -> None:
    (found,) = check(ROOT / "tests/reference/cases/teaal/tensaurus_paper_facts.json")
    assert not found.fault
    assert not found.mismatches
    assert found.checked > 50


def artifact() -> dict[str, Any]:
    """Figures of the form that TeAAL's artifact has, all invented: two matrices of 100 and 50 rows, whose
    products have 200 and 40 entries; a table has lost a leading digit of one number."""
    gamma = [
        {"Matrix": "one", "Multiplies": 500, "Adds": 300, "Z": 12 * 200 + 4 * 100, "Time": 90.0},
        {"Matrix": "two", "Multiplies": 60, "Adds": 20, "Z": 12 * 40 + 4 * 50, "Time": 30.0},
    ]
    extensor = [
        {"Matrix": "one", "Multiplies": 500, "Adds": 300, "A": 110, "Time": 50.0},
        {"Matrix": "two", "Multiplies": 6, "Adds": 20, "A": 30, "Time": 10.0},
    ]
    sigma = [{"M": 4, "N": 8, "K": 16, "A": 512, "B": 1024, "Time": 3}]
    made = {"gamma": gamma, "extensor": extensor, "sigma": sigma, "outerspace": [], "sparseloop": []}
    known = {
        "gamma": [{"Matrix": "one", "Time": 100}, {"Matrix": "two", "Time": 0}],
        "extensor": [{"Matrix": "one", "A": 100, "Time": 40}],
        "sigma": [{"M": 4, "N": 8, "K": 16, "Time": 4}],
        "outerspace": [],
    }
    same = {"design": "gamma", "holds": True}
    both = {"design": "extensor vs gamma", "predicted": 60, "artifact": 6, "holds": False}
    errors = (
        ("TeAAL gamma", "one", 90.0, 100),
        ("TeAAL extensor", "one", 50.0, 40),
        ("TeAAL sigma", "4/8/16", 3, 4),
    )
    return {
        "meta": {"mean_abs_rel_time_error": {m: abs(ours / theirs - 1) for m, _, ours, theirs in errors}},
        "pregenerated": made,
        "baselines": known,
        "identities": [
            {**same, "matrix": "one", "predicted": 2800, "artifact": 2800},
            {"design": "sigma", "M": 4, "N": 8, "K": 16, "predicted": 3.0, "artifact": 3, "holds": True},
            {**both, "matrix": "two"},
        ],
        "time_errors": [
            {"model": m, "case": c, "model_time": ours, "published_time": theirs,
             "rel_error": ours / theirs - 1}
            for m, c, ours, theirs in errors
        ],
        "extensor_traffic_errors": [
            {"design": "extensor", "matrix": "one", "stream": "A", "teaal_bytes": 110, "published_bytes": 100,
             "rel_error": 110 / 100 - 1}
        ],
    }  # fmt: skip


def compared(given: dict[str, Any], folder: Path) -> list[Outcome]:
    (folder / "artifact.json").write_text(json.dumps(given))
    return check(folder / "artifact.json")


def test_identities_of_the_artifact(tmp_path: Path) -> None:
    """`make reference CASES=DIR` compares the figures themselves."""
    identities, times, traffic = found = compared(artifact(), tmp_path)
    assert [(o.fault, o.mismatches) for o in found] == [("", [])] * 3
    assert (identities.checked, times.checked, traffic.checked) == (9, 13, 3)
    assert sum("defect" in n for n in identities.notes) == 1
    assert sum("more additions" in n for n in identities.notes) == 1
    given = artifact()
    given["pregenerated"]["gamma"][0]["Z"] += 4
    given["time_errors"][1]["rel_error"] *= 2
    given["extensor_traffic_errors"][0]["stream"] = "B"
    identities, times, traffic = compared(given, tmp_path)
    assert len(identities.mismatches) == 2
    assert len(times.mismatches) == 1
    assert "B is missing" in traffic.fault


def test_formats_lose_what_elements_do_not_share() -> None:
    A = SparseTensor.from_coo(
        "A", "IJK", (4, 2, 2), [[0, 0, 1, 2, 2, 3], [0, 1, 1, 0, 0, 1], [0, 1, 1, 0, 1, 0]], [1] * 6
    )
    found = {(e.format, e.elements): e for e in bandwidth(A, (1, 2))}
    # Figure 3: two lanes of five slots for six nonzeros; a lane has 64 bits.
    assert found["CISS", 2].bits == 10 * 64
    assert found["CISS", 2].storage == 0.6
    assert found["CISS", 2].access == found["COO", 1].access == 1
    assert found["COO", 2].access == 80 / 8 / 64
    assert found["extended CSR", 2].bits == 5 * 32 + 6 * 64
    assert found["extended CSR", 2].bandwidth == pytest.approx(16e9 * 384 / 544 / 8)
    matrix = bandwidth(Uniform(("I", "J"), (50, 40), 200), (8,))
    assert [e.format for e in matrix] == ["COO", "CSR", "CISS"]
    assert {e.label for e in matrix} == {"expected"}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"rows": 2.5}, "rows of the machine is 2.5"),
        ({"rows": "8"}, "rows of the machine is '8'"),
        ({"columns": 10**9}, "at most 65536"),
        ({"bandwidth": math.nan, "clock": math.inf}, "2 faults"),
        ({"bandwidth": -1.0}, "a finite number above 0"),
    ],
)
def test_a_machine_has_numbers_that_there_can_be(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        Machine(**wrong)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"K": 2.5}, "K is 2.5"),
        ({"K": math.nan}, "K is nan"),
        ({"tiles": 5}, "5 is not a record of tiles"),
        ({"machine": "big"}, "'big' is not a machine"),
        ({"a": "matrix.mtx"}, "pass pm.read_tensor"),
        ({"kernel": 3}, "no kernel 3"),
        ({"machine": Machine(index_bits=2)}, r"tiles=Tiles\(i=4\) at most"),
    ],
)
def test_what_a_prediction_cannot_take_is_told(given: dict[str, Any], told: str) -> None:
    arguments: dict[str, Any] = {"kernel": "SpMM", "a": Uniform(("I", "J"), (50, 40), 200), **given}
    with pytest.raises(SpecError, match=told):
        tensaurus(**arguments)


def test_a_prediction_is_read_with_units_and_names_of_ranks() -> None:
    report = tensaurus("SpMM", Uniform(("I", "J"), (50, 40), 200), K=64)
    said = report_text(report)
    assert "tile K " in said
    assert "across" not in said
    assert re.search(r"time of all +[0-9.]+ ns +expected", said)
    cells = {r["quantity"]: r for r in report.table().records()}
    assert (cells["multiplies"]["value"], cells["multiplies"]["unit"]) == (12800.0, "operation")
    assert "GOP/s" in str(report)
    assert "tiles       K 32, I 50, J 40" in str(report)


def test_all_faults_are_told() -> None:
    model = Uniform(("I", "J"), (50, 40), 200)
    with every_fault(("wrong-count", "tensor"), ("not-positive-integer", ""), ("unknown-name", "")) as told:
        tensaurus("MTTKRP", model, K=4, F=0)
    assert "takes a tensor of 3 ranks" in str(told.value)
    assert "no dense rank K" in str(told.value)
    with faults("unknown-choice", at="kernel"):
        tensaurus("MTTKRB", model)
    with faults("not-positive-integer", "51", at=""):
        tensaurus("SpMM", model, tiles=Tiles(i=51))
    with faults("over-capacity", "SPM", at=""):
        tensaurus("SpMM", Uniform(("I", "J"), (50, 4000), 200), tiles=Tiles(j=4000))
    with faults("out-of-range", "VLEN", "32", at=""):
        tensaurus("SpMM", model, K=64, tiles=Tiles(across=64))
    with every_fault(("number-too-large", ""), ("number-too-large", "")):
        tensaurus("SpMM", Uniform(("I", "J"), (300, 400), 200), machine=Machine(index_bits=8))
    with faults("not-a-number", at=""):
        Machine(bandwidth=0)
    with faults("not-positive-integer", at=""):
        bandwidth(model, (0,))


def test_every_number_is_in_the_rows() -> None:
    report = tensaurus("TTMc", Uniform(("I", "J", "K"), (50, 40, 30), 2000), U=40, V=6)
    rows = {r.name: r for r in report.rows()}
    assert rows["multiplies"].value == report.multiplies
    assert rows["time of all"].value == report.seconds
    assert rows["throughput"].value == report.gops
    assert rows["limiting"].value == report.limiting
    assert rows["energy of HBM"].value == pytest.approx(report.moved("HBM") * 450e-12 / 64)
    assert rows["tile V"].value == 4
    assert rows["utilisation"].value == pytest.approx(2 * report.executed / report.seconds / 512e9)
    assert rows["attainable"].value == min(512, report.intensity * 128)
    assert {r.label for r in rows.values()} <= {"", "exact", "expected", "bound"}
    assert report.executed > report.multiplies


def test_a_report_is_read_at_a_glance() -> None:
    report = tensaurus("MTTKRP", Uniform(("I", "J", "K"), (50, 40, 30), 2000))
    assert repr(report).startswith("TensaurusReport(MTTKRP: I=50 x J=40 x K=30 x F=32, 2,000 nonzeros; ")
    lines = str(report).splitlines()
    assert len(lines) == 11
    assert f"{report.bound} (roof), {report.limiting} (time)" in str(report)
    assert "stage T" in lines[3]
