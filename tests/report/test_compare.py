"""Two reports side by side: what each Einsum costs, and the picture of their differences."""

from __future__ import annotations

from math import inf, log2

import pytest

from polymodel.api.comparison import compare
from polymodel.report.plots_compare import ratio_axes, ratio_bars
from polymodel.report.report import Report
from polymodel.view.table import Column, Table
from tests.cost.cases import chain
from tests.faults import faults
from tests.report.conftest import report_of


def test_compare_has_energy_and_accesses_of_every_einsum(fused: Report) -> None:
    other = report_of(chain(shared_tile=4))
    frame = compare(fused, other).frame
    for report, side in ((fused, "a"), (other, "b")):
        einsums = [t.einsum for t in report.costs.latency]
        rows = dict(zip(zip(frame["quantity"], frame["where"], strict=True), frame[side], strict=True))
        assert len(einsums) == 2
        assert sum(rows["energy", e] for e in einsums) == pytest.approx(report.total_energy)
        moved = sum(rows["accesses:DRAM", e] for e in einsums)
        assert moved == rows["reads", "DRAM"] + rows["writes", "DRAM"] > 0


def test_the_picture_of_a_comparison_has_a_bar_per_difference(fused: Report) -> None:
    """Ratios on one scale, those of the whole first, then the largest; words and equal rows are no bars."""
    found = compare(fused, report_of(chain(shared_tile=4)), ("mine", "theirs"))
    bars, equal = ratio_bars(found.rows)
    assert [b.name for b in bars if b.whole] == [b.name for b in bars][: sum(b.whole for b in bars)]
    rest = [abs(b.power) for b in bars if not b.whole]
    apart = rest.count(inf)  # what one side alone has comes last
    assert rest == [*sorted(rest, reverse=True)[apart:], *[inf] * apart]
    rows = [r for r in found.table().records() if r["quantity"] != "feasible"]
    assert len(bars) + equal == len(rows)
    (kept,) = (b for b in bars if b.name == "working set GLB")
    assert 2**kept.power == pytest.approx(672 / 512)
    assert kept.figures == "512 b → 672 b   × 1.31"
    ax = found.plot()
    assert [t.get_text() for t in ax.get_yticklabels()] == [b.name for b in bars[:40]]
    assert ax.get_title(loc="left").splitlines()[1:] == ["a: mine", "b: theirs"]
    assert {t.get_text() for t in found.plot("working set").get_yticklabels()} == {"working set GLB"}
    assert "Plot: b against a" in found.to_html()
    assert "<svg" in found.written("A", "B", (), "html")
    with faults("unknown-name", "no quantity", "working sets", at="what"):
        found.plot("working sets")


def test_one_sided_rows_of_a_comparison_have_no_ratio() -> None:
    columns = tuple(Column(n) for n in ("quantity", "where", "unit", "a", "b", "ratio"))
    pairs = (("X", 8, None), ("Y", 0, 8), ("Z", 1e-200, 1e200))
    rows = tuple(("reads", where, "bit", a, b, None) for where, a, b in pairs)
    bars, _ = ratio_bars(Table("compare", columns, rows))
    assert {b.name: b.power for b in bars} == {
        "reads X": -inf, "reads Y": inf, "reads Z": pytest.approx(400 * log2(10)),
    }  # fmt: skip
    assert ratio_axes(Table("compare", columns, rows), ("a", "b")).get_xlim()[1] > 1000
