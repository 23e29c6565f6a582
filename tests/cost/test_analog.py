"""An array that computes in memory, as docs/howto/analog.md has it, counted by hand."""

from __future__ import annotations

from math import ceil, log2
from pathlib import Path

import pytest

import polymodel as pm
from tests.documents.page import ROOT, blocks

M, K, N, ROWS, COLUMNS = 32, 256, 32, 64, 16


def spec(folder: Path, dac_bits: int, cell_bits: int) -> pm.Spec:
    """The three files of the page."""
    texts = [b.text for b in blocks((ROOT / "docs/howto/analog.md").read_text()) if b.language == "yaml"]
    paths = [folder / f"{k}.yaml" for k in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return pm.load(*paths, symbols={"DAC_BITS": dac_bits, "CELL_BITS": cell_bits})


@pytest.mark.parametrize(("dac_bits", "cell_bits"), [(1, 2), (4, 1)])
def test_conversions_and_cells_are_counted_by_slices(dac_bits: int, cell_bits: int, tmp_path: Path) -> None:
    inputs, weights, cuts = 8 // dac_bits, 8 // cell_bits, K // ROWS
    report = pm.evaluate(spec(tmp_path, dac_bits, cell_bits))
    found = {
        (i.component, i.action): (i.count, i.energy) for i in report.costs.energy if i.component != "DRAM"
    }
    counts = {key: count for key, (count, _) in found.items() if key[0] != "GLB"}
    partial = M * N * inputs * cuts  # sums that are added one after the other
    assert counts == {
        ("DAC", "read"): M * K * inputs * (N // COLUMNS),
        ("ADC", "write"): partial * weights,
        ("ADC", "read"): (partial - M * N) * 24,
        ("ShiftAdd", "write"): partial * 24,
        ("ShiftAdd", "read"): partial * 24,  # all but the first come back, and each result leaves
        ("Cell", "write"): K * N * 8,
        ("Cell", "read"): M * K * N * inputs * weights * cell_bits,
        ("Bitline", "compute"): M * K * N * inputs * weights,
    }
    resolution = ceil(log2(ROWS)) + dac_bits + cell_bits - 1
    assert found["ADC", "write"][1] == pytest.approx(partial * weights * 5e-15 * 2**resolution)
    assert report.total_latency == pytest.approx(M * inputs * cuts * (N // COLUMNS) / 200e6)
