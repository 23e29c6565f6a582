"""Tables: the numbers, their units, their types; and that they leave as they are."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from polymodel.api.comparison import compare
from polymodel.cost.records import CapacityViolation, violation_lines
from polymodel.errors import SpecError
from polymodel.mapping.looptree import Split, StorageNode
from polymodel.report.export import FORMAT
from polymodel.report.report import TABLES, Report
from polymodel.view.table import Column, Table
from tests.analysis.small import dram, einsum, loop, mac, problem
from tests.cost.cases import chain, with_component
from tests.faults import faults
from tests.report.conftest import report_of


def test_every_table_is_a_frame_with_units(fused: Report) -> None:
    for name in TABLES:
        frame = getattr(fused, name)
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) > 0 or name in ("fusion", "pipelines"), name
        assert set(frame.attrs["units"]) <= set(frame.columns)
        for column in frame.columns:
            if column.endswith("_bits"):
                assert frame.attrs["units"][column] == "bit"
            if column.endswith("_J"):
                assert frame.attrs["units"][column] == "J"


def test_tiles_of_the_fused_chain(fused: Report) -> None:
    tiles = fused.tiles.set_index(["einsum", "component", "tensor"])
    assert tiles.loc[("E0", "GLB", "T0"), "tile_bits"] == 96
    assert tiles.loc[("E0", "GLB", "T1"), "tile_bits"] == tiles.loc[("E1", "GLB", "T1"), "tile_bits"] == 64
    assert tiles.loc[("E0", "GLB", "T0"), "visits"] == 4
    assert (tiles["live_bits"] <= tiles["tile_bits"]).all()


def test_live_figures_are_not_counted_until_asked_for(fused: Report) -> None:
    plain = fused.table("tiles", live=False)
    assert set(plain.column("live_bits")) == {None}
    frame = plain.frame()
    assert frame["tile_bits"].dtype == "int64"


def test_accesses_of_the_fused_chain(fused: Report) -> None:
    rows = fused.accesses.set_index(["einsum", "component", "tensor"])
    assert rows.loc[("E0", "GLB", "T1"), ["read_bits", "write_bits"]].tolist() == [1280, 1536]
    assert rows.loc[("E0", "GLB", "T0"), ["fill_bits", "drain_bits"]].tolist() == [384, 0]
    assert rows.loc[("E1", "GLB", "T2"), ["fill_bits", "drain_bits"]].tolist() == [0, 320]
    assert rows["read_bits"].sum() == 8 * rows["read_elements"].sum()


def test_accesses_multiply_executions() -> None:
    problem = chain()
    einsums = tuple(replace(e, n_instances=7) for e in problem.cascade.einsums)
    many = report_of(replace(problem, cascade=replace(problem.cascade, einsums=einsums)))
    one = report_of(problem)
    assert many.accesses["read_bits"].tolist() == (7 * one.accesses["read_bits"]).tolist()
    assert many.tiles["tile_bits"].tolist() == one.tiles["tile_bits"].tolist()


def test_reuse_puts_the_policies_side_by_side(spread: Report) -> None:
    rows = spread.reuse.set_index(["component", "tensor"])
    b = rows.loc[("RF", "B")]
    assert [b["refill_bits"], b["keep_previous_bits"], b["moved_bits"], b["gap_bits"]] == [768, 192, 768, 576]
    assert b["reuse_factor"] == 2
    assert rows.loc[("GLB", "B"), "gap_bits"] == 192
    assert rows.loc[("GLB", "A"), "gap_bits"] == 0
    assert pd.isna(rows.loc[("DRAM", "A"), "reuse_factor"])


def test_a_policy_that_would_break_a_dependence_is_left_out() -> None:
    """E1 reads T in two iterations of n, E0 makes it in the first: only what is carried is there."""
    e0 = einsum("E0", "A[n]", "B[c]", "T[c]", sizes={"n": 1, "c": 2})
    e1 = einsum("E1", "T[b]", "W[n]", "Z[n]", sizes={"b": 2, "n": 4})
    home, inner = StorageNode("GLB", ("T",), "slide"), StorageNode("RF", ("T",), "slide")
    branches = Split(((mac("E0"),), (loop("b", 1), inner, mac("E1"))))
    given = problem((e0, e1), dram("A", "B", "W", "Z"), loop("n", 2), home, branches)
    notes = report_of(given).table("reuse").notes
    assert [n for n in notes if n.startswith("refill is left out: E1 reads T where GLB")]
    assert not [n for n in notes if n.startswith("keep_previous")]


def test_lifetimes_name_the_branches(fused: Report) -> None:
    rows = fused.lifetimes.set_index(["component", "tensor"])
    crossing = rows.loc[("GLB", "T1")]
    assert (crossing["first_einsum"], crossing["last_einsum"], crossing["alive_in"]) == ("E0", "E1", "E0 E1")
    assert bool(crossing["crosses_branches"]) is True
    assert bool(rows.loc[("GLB", "T0"), "crosses_branches"]) is False
    assert rows.loc[("GLB", "T0"), "residencies"] == 4


def test_working_sets_say_who_is_in_them(fused: Report) -> None:
    rows = fused.working_sets
    glb = rows[(rows.component == "GLB") & (rows.einsum == "E0") & (rows.measure == "tile")].iloc[0]
    assert glb["bits"] == 512
    assert glb["residents"] == "W0=192 W1=160 T1=64 T0=96"
    assert rows.attrs["units"]["residents"] == "bit"
    assert set(rows.measure) == {"tile", "live", "reserved"}


def test_printed_residents_have_units_and_pages_the_exact_figures(fused: Report) -> None:
    shown = str(fused).partition("Working sets")[2].partition("Tiles")[0]
    assert "W0 192 b, W1 160 b, T1 64 b, T0 96 b" in shown
    page = fused.table("working_sets")._repr_html_()
    assert '<td title="W0=192 W1=160 T1=64 T0=96 bit">W0 192 b, W1 160 b, T1 64 b, T0 96 b</td>' in page


def test_summary_adds_up(fused: Report) -> None:
    summary = fused.summary.set_index("einsum")
    assert summary.loc["total", "latency_s"] == summary.loc[["E0", "E1"], "latency_s"].sum() == 352
    assert summary.loc["total", "energy_J"] == fused.energy["energy_J"].sum() == 115264
    assert summary["assume_overlap"].all()


def test_frames_are_private_copies(fused: Report) -> None:
    mine = fused.tiles
    mine.loc[0, "tile_bits"] = -1
    assert (fused.tiles["tile_bits"] > 0).all()


def test_integers_beyond_64_bits_stay_exact() -> None:
    large = 3 * 2**70 + 1
    table = Table("t", (Column("a", "bit"), Column("b", "bit")), ((large, None), (1, 2)))
    frame = table.frame()
    assert frame["a"].tolist() == [large, 1]
    assert frame["b"].dtype == "Int64"
    assert str(large) in table.to_csv()


def test_json_keeps_integers_and_has_stable_keys(fused: Report) -> None:
    data = json.loads(fused.to_json())
    assert data["format"] == FORMAT
    assert list(data["tables"]) == list(TABLES)
    assert data["total"] == {"latency_s": 352.0, "energy_J": 115264.0, "area_m2": 0.0}
    row = data["tables"]["tiles"]["rows"][0]
    assert type(row["tile_bits"]) is int
    assert data["tables"]["tiles"]["units"]["tile_bits"] == "bit"
    assert data["feasible"] is True


def test_json_of_an_unbounded_memory_is_strict() -> None:
    problem = chain()
    dram = replace(problem.hierarchy["DRAM"], size_bits=math.inf)
    data = json.loads(report_of(with_component(problem, "DRAM", dram)).to_json(), parse_constant=pytest.fail)
    capacities = {r["component"]: r["capacity_bits"] for r in data["tables"]["working_sets"]["rows"]}
    assert capacities == {"DRAM": "inf", "GLB": 2**20}


@pytest.mark.slow
def test_files_hold_what_the_tables_say(fused: Report, tmp_path: Path) -> None:
    written = fused.save(tmp_path / "out", parquet=True)
    assert all(p.stat().st_size for p in written)
    back = pd.read_parquet(tmp_path / "out" / "accesses.parquet")
    pd.testing.assert_frame_equal(back, fused.accesses, check_like=True)
    assert back.attrs["units"]["read_bits"] == "bit"
    text = pd.read_csv(tmp_path / "out" / "accesses.csv")
    assert text["read_bits"].tolist() == fused.accesses["read_bits"].tolist()


@pytest.mark.slow
def test_places_that_cannot_be_written_are_told(fused: Report, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for write in (fused.to_csv, fused.to_parquet):
        with faults("unwritable-file", "write", at=""):
            write(taken)
    for page in (fused.to_html, fused.to_json):
        with pytest.raises(SpecError, match=f"cannot write {tmp_path}: (.|\n)*name a file, not a folder"):
            page(tmp_path)
        with faults("unwritable-file", "report", "missing", at=""):
            page(tmp_path / "missing" / "report")
    assert taken.read_text() == "mine"


def test_compare_puts_two_reports_side_by_side(fused: Report) -> None:
    frame = compare(fused, report_of(chain(shared_tile=4))).frame
    glb = frame[(frame.quantity == "working set") & (frame["where"] == "GLB")].iloc[0]
    assert (glb["a"], glb["b"], glb["ratio"]) == (512, 672, 672 / 512)
    assert frame.set_index(["quantity", "where"]).loc[("latency", ""), "ratio"] == 1


@pytest.mark.slow
def test_infeasible_report_names_the_memory() -> None:
    problem = chain()
    small = with_component(problem, "GLB", replace(problem.hierarchy["GLB"], size_bits=500))
    report = report_of(small)
    assert not report.feasible
    assert "GLB is too small during E0" in str(report)
    assert "GLB is too small during E0" in report.to_html()


def test_a_memory_that_is_too_small_for_many_einsums_is_told_in_one_line() -> None:
    def violations(memory: str, *needs: int) -> list[CapacityViolation]:
        return [CapacityViolation(memory, f"E{i}", ("A",), n, 800, "tile") for i, n in enumerate(needs)]

    few, many = violations("GLB", 1600, 2400), violations("RF", 1600, 4000, 2400, 8000)
    assert violation_lines([*few, *many]) == (
        *map(str, few),
        "RF is too small during 4 Einsums (tile): it has 800, and most is needed by E3 8000 bits, E1 4000 "
        "bits, E2 2400 bits; the table `summary` has all",
    )


def test_unknown_table_names_the_known_ones(fused: Report) -> None:
    with faults("unknown-name", at="table"):
        fused.table("tile")


def test_sensitivity_says_what_matters_most(fused: Report) -> None:
    found = fused.sensitivity("latency")
    assert found.loc[0, ["component", "action", "number"]].tolist() == ["MAC", "compute", "throughput"]
    assert found.loc[0, "elasticity_growing"] == -1
    assert "slope_growing_s_per_unit" in found.columns
    energy = fused.sensitivity()
    assert energy.loc[energy["number"] == "energy", "elasticity_growing"].sum() == pytest.approx(1)
    with faults("unknown-choice", "area", at=""):
        fused.sensitivity("area")  # type: ignore[arg-type]  # what a user may type


def test_headings_that_would_be_the_same_have_their_units() -> None:
    columns = (Column("actual", "element"), Column("actual_bits", "bit"), Column("bound_bits", "bit"))
    table = Table("t", columns, ((2, 16, 24),))
    assert table.headings == ["actual", "actual bits", "bound"]
    assert "actual bits" in table.text()
    assert "actual bits" in table._repr_html_()
