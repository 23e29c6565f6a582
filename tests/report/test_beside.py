"""Sparse figures, or where they are, stand at the top of reports that count every zero."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import main
from tests.seeds import seeds


@pytest.mark.slow
def test_sparse_figures_stand_beside_those_that_count_zeros() -> None:
    report = pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands"))
    top, _, rest = report.whole_text().partition("\n\n")
    cycles = f"{report.tiling.total_cycles:,} cycles"
    assert cycles == "12,614 cycles"
    assert (
        f"in tiles      12.61 µs ({cycles}) to configure and run the tiles of sparse operands (exact)" in top
    )
    assert 'sparse data   23.8 µs, 11.8 µJ (exact): see "On sparse data" below' in top
    assert "\nOn sparse data\n" in rest
    assert "\nCut into tiles\n" in rest
    assert cycles in report.to_html().partition("<h2>")[0]


def test_reports_alone_say_where_the_sparse_figures_are() -> None:
    """Printing counts nothing more."""
    report = pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands"))
    top = str(report).partition("\n\n")[0]
    assert "which count every zero: report.sparse" in top
    assert "which count every zero: report.tiling" in top
    assert "report.tiling" in report._repr_html_()
    assert not {"sparse", "tiling"} & set(vars(report))
    dense = pm.evaluate(pm.load("matmul", "simple_two_level", "matmul/output_stationary"))
    assert "zero" not in str(dense)


SPEC = """
workload:
  rank_sizes: {{M: 10}}
  bits_per_value: {{All: 8}}
  densities: {{A: {density}}}
  einsums: ["Z[m] = A[m]"]
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {{keep: All}}
    actions: [{{name: read, energy: 1}}, {{name: write, energy: 1}}]
  - !Memory
    name: GLB
    size: 120
    tensors: {{may_keep: All}}
    sparse: {{format: {{A: {{M: {{format: CP, cbits: 8, pbits: 8}}}}}}}}
    actions: [{{name: read, energy: 1}}, {{name: write, energy: 1}}]
  - !Compute {{name: MAC, actions: [{{name: compute, energy: 1, throughput: 1}}]}}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [A, Z]}}
  - !Storage {{component: GLB, tensors: [A{more}]}}
  - !Temporal {{rank_variable: m, tile_shape: 1}}
  - !Compute {{einsum: Z, component: MAC}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("density", "more", "code", "told"),
    seeds(
        3,
        [
            # 10 values of 8 bits; compressed 16 bits each that is not zero.
            (0.1, "", 0, "yes"),
            (0.9, "", 1, "NO on sparse data (expected: GLB is too small"),
            (0.1, ", Z", 0, "yes on sparse data (expected); NO with every zero stored"),
            (0.9, ", Z", 1, "NO"),
        ],
    ),
)
def test_what_fits_is_decided_by_the_sparse_data_as_in_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], density: float, more: str, code: int, told: str
) -> None:
    file, page = tmp_path / "s.yaml", tmp_path / "s.html"
    file.write_text(SPEC.format(density=density, more=more), encoding="utf-8")
    assert main(["evaluate", str(file), "--html", str(page)]) == code
    line = next(x for x in capsys.readouterr().out.split("\n") if x.startswith("feasible"))
    assert line.removeprefix("feasible").strip().startswith(told)
    shown = page.read_text(encoding="utf-8").partition("feasible</th><td>")[2].partition("</td>")[0]
    assert told.lower().split(" (")[0] in shown.lower()
    assert ('class="bad"' in shown) == (code == 1)
