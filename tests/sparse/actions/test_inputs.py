"""What a spec may say of zeros, and what is refused, each with its place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.density import SparseWarning
from polymodel.sparse.files import write_tensor
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")


def lines_and_messages(text: str, tmp_path: Path) -> list[tuple[int, str]]:
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(pm.SpecError) as error:
        pm.load(file)
    return [(d.place.line, d.message) for d in error.value.diagnostics]


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("{A: COO}", "{Q: COO}", "unknown name Q"),
        ("{A: COO}", "{A: CSX}", "format 'CSX' is not known"),
        ("{A: COO}", "{A: [U, CP, CP]}", "3 formats for 2 ranks"),
        ("{A: COO}", "{A: {M: U, J: CP}}", "rank 'J' is not known"),
        ("{skip: B, on: A}", "{skip: W, on: A}", "unknown name W"),
        ("{skip: B, on: A}", "{skip: B, on: W}", "unknown name W"),
        ("{skip: B, on: A}", "{skip: B}", "lacks on:"),
        ("{skip: B, on: A}", "{on: A}", "one of gate: and skip:"),
        ("{skip: B, on: A}", "{skip: compute, on: A}", "a memory cannot skip operations"),
        ("{skip: compute, on: A}", "{skip: Z, on: A}", "a compute unit can skip its operations only"),
        ("{skip: B, on: A}", "{skip: B, on: Nothing}", "no Einsum has both"),
        ("densities: {A: 0.25}", "densities: {A: 1.25}", "density 1.25 is outside [0, 1]"),
        ("densities: {A: 0.25}", "densities: {Q: 0.25}", "unknown tensor Q"),
        ("densities: {A: 0.25}", "densities: {A: {actual: ../a.mtx}}", "leaves the spec's folder"),
    ],
)
def test_faults_have_their_place(old: str, new: str, told: str, tmp_path: Path) -> None:
    text = EXAMPLE.replace(old, new)
    found = lines_and_messages(text, tmp_path)
    assert any(told in message and line == line_of(text, new) for line, message in found), found


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    text = EXAMPLE.replace("{A: COO}", "{A: CSX}").replace("{A: 0.25}", "{A: -1}")
    assert len(lines_and_messages(text, tmp_path)) == 2


def test_data_are_read_beside_the_spec(tmp_path: Path) -> None:
    dense = (np.arange(64).reshape(8, 8) % 4 == 0).astype(float)
    write_tensor(SparseTensor.from_dense("A", ("M", "K"), dense), tmp_path / "a.mtx")
    file = tmp_path / "spec.yaml"
    file.write_text(EXAMPLE.replace("{A: 0.25}", "{A: {actual: a.mtx}}"), encoding="utf-8")
    found = pm.evaluate(pm.load(file)).sparse
    assert found.label == "exact"
    assert found.counts.compute[0].effectual == 16 * 8


def test_tensors_of_other_sizes_and_unknown_ones_are_refused() -> None:
    report = pm.evaluate(pm.load(ROOT / "docs" / "sparse" / "actions.yaml"))
    small = SparseTensor.from_dense("A", ("M", "K"), np.eye(4))
    with faults("shape-mismatch", at=""):
        pm.sparsify(report, {"A": small})
    with faults("unknown-name", "Q", at=""):
        pm.sparsify(report, {"Q": small})
    with faults("out-of-range", "confidence", at=""):
        pm.sparsify(report, confidence=0)
    with faults("wrong-type", "sparsify", at=""):
        pm.sparsify(report.sparse)


def test_data_that_the_model_does_not_fit_are_told() -> None:
    report = pm.evaluate(pm.load(ROOT / "docs" / "sparse" / "actions.yaml"))
    skewed = np.zeros((8, 8))
    skewed[0] = skewed[1] = 1
    with pytest.warns(SparseWarning, match="A"):
        pm.sparsify(report, {"A": SparseTensor.from_dense("A", ("M", "K"), skewed)})
