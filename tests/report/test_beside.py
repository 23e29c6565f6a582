"""Sparse figures, or where they are, stand at the top of reports that count every zero."""

from __future__ import annotations

import polymodel as pm
from polymodel.report.export import whole_text
from polymodel.report.report_page import to_html


def test_sparse_figures_stand_beside_those_that_count_zeros() -> None:
    report = pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands"))
    top, _, rest = whole_text(report).partition("\n\n")
    cycles = f"{report.tiling.total_cycles:,} cycles"
    assert cycles == "13,484 cycles"
    assert (
        f"in tiles      13.48 µs ({cycles}) to configure and run the tiles of sparse operands (exact)" in top
    )
    assert 'sparse data   23.8 µs, 11.8 µJ (expected): see "On sparse data" below' in top
    assert "\nOn sparse data\n" in rest
    assert "\nCut into tiles\n" in rest
    assert cycles in to_html(report).partition("<h2>")[0]


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
