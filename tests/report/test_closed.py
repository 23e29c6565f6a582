"""Tables in closed form: their numbers are the report's, they open fast enough, they render."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.mapping.looptree import Loop, LoopTree
from polymodel.report.closed import TABLES, SymbolicReport
from tests.faults import faults, refused
from tests.matmul import matmul

LIBRARY = (
    ("simple_two_level", "matmul/weight_stationary", {}),
    ("simple_two_level", "matmul_chain_3/tiled_fused", {}),
    ("simple_two_level", "conv2d/row_bands", {}),
    ("eyeriss_like", "conv2d/row_stationary", {"BITS": 16}),
    ("simple_two_level", "attention/tiled_fused", {}),
    ("tpu_v4i", "gpt3_6.7B/fused", {"N_TOKENS": 2048}),
)
SHARED = {
    "tiles": ("tile_elements", "tile_bits", "total_elements", "visits", "instances"),
    "accesses": ("read_bits", "write_bits", "fill_bits", "drain_bits", "read_elements"),
    "reuse": ("distinct_elements", "moved_bits", "reuse_factor"),
    "latency": ("read_bits", "write_bits", "operations", "latency_s", "instances_used", "instances"),
    "energy": ("count", "energy_per_unit_J", "energy_J"),
    "summary": ("operations", "latency_s", "energy_J"),
}


def tile_values(open_: LoopTree, bound: LoopTree) -> dict[str, int]:
    """The sizes that the symbols of one tree have in the other."""
    found = {}
    for (_, a, _), (_, b, _) in zip(open_.walk(), bound.walk(), strict=True):
        if isinstance(a, Loop) and isinstance(b, Loop) and isinstance(a.tile_shape, str):
            assert isinstance(b.tile_shape, int)
            found[a.tile_shape] = b.tile_shape
    return found


@pytest.mark.parametrize(("arch", "name", "variables"), LIBRARY, ids=[n for _, n, _ in LIBRARY])
def test_numbers_of_closed_tables_are_the_reports(arch: str, name: str, variables: dict[str, int]) -> None:
    report = pm.evaluate(pm.load(arch, name, **variables))
    closed = report.symbolic
    values = tile_values(closed.problem.tree, report.problem.tree)
    assert values
    for table, columns in SHARED.items():
        ours = closed.table(table).at(values)
        theirs = report.table(table, live=False).records()
        if table in ("energy", "latency"):
            theirs = [r for r in theirs if any(r[c] for c in columns[:3])]
            ours = [r for r in ours if any(r[c] for c in columns[:3])]
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            for column in columns:
                x, y = a[column], b[column]
                assert x == y or math.isclose(x, y, rel_tol=1e-12), (table, a, b)
    held = {(n.component, n.einsum, n.measure): n.bits for n in report.costs.needs}
    for row in closed.table("working_sets").at(values):
        assert row["bits"] == held.get((row["component"], row["einsum"], row["measure"]), 0)


def test_tables_are_sympy_and_text() -> None:
    import sympy

    closed = pm.closed_forms(pm.load("simple_two_level", "matmul/weight_stationary"), tiles=True)
    assert set(closed.symbols) == set(closed.analysis.symbols)
    tiles = closed.tiles
    cell = tiles.loc[tiles["component"] == "GLB", "tile_bits"].iloc[0]
    assert isinstance(cell, sympy.Expr)
    assert cell.free_symbols <= set(closed.symbols.values())
    assert "$" not in closed._repr_html_()  # a notebook sets no formula in a table
    for name in TABLES:
        assert len(getattr(closed, name)) == len(closed.table(name))
    for wrong, near in (("nonsense", "summary"), ("tile", "tiles")):
        with faults("unknown-name", wrong, near, at="table"):
            closed.table(wrong)
    with faults("unknown-name", at="column"):
        closed.table("tiles").cell(0, "tile_bit")


def test_symbols_of_the_spec_stay_open_and_can_be_bound() -> None:
    spec = matmul("DRAM m:TM GLB", {"M": 64, "N": 8, "K": 8}, {"GLB": 4096})
    closed = pm.closed_forms(spec)
    rows = closed.accesses
    fills = rows[(rows["component"] == "GLB") & (rows["tensor"] == "B")]["fill_elements"].iloc[0]
    tm = closed.symbols["TM"]
    assert fills.subs(tm, 10) == 7 * 64
    assert str(fills) == "64*ceiling(64/TM)"
    textbook = closed.assuming("divides")
    assert isinstance(textbook, SymbolicReport)
    rows = textbook.accesses
    row = rows[(rows["component"] == "GLB") & (rows["tensor"] == "B")]
    assert str(row["fill_elements"].iloc[0]) == "4096/TM"
    ranks = pm.closed_forms(spec, ranks=True)
    assert {"M", "N", "K", "TM"} == set(ranks.symbols)
    assert str(ranks.summary["operations"].iloc[0]) == "K*M*N"
    report = pm.evaluate(spec, symbols={"TM": 10})
    assert str(report.symbolic.tiles["tile_elements"].iloc[-1]) == "8*TM"
    with faults("unbound-symbol", "closed_forms", at=""):
        pm.evaluate_problem(closed.problem)


def test_values_for_symbols_give_the_reports_numbers() -> None:
    spec = matmul("DRAM m:TM k:TK GLB", {"M": 64, "N": 8, "K": 8}, {"GLB": 4096})
    forms = pm.closed_forms(spec)
    report = pm.evaluate(spec, symbols={"TM": 10, "TK": 4})
    numbers = forms.at(TM=10, TK=4)
    shared = ["component", "tensor", "fill_bits", "fill_elements"]
    assert numbers.accesses[shared].to_dict("list") == report.accesses[shared].to_dict("list")
    assert numbers.accesses["fill_bits"].dtype.kind == "i"
    assert numbers.summary["energy_J"].dtype.kind == "f"
    half = forms.at(TM=10)
    row = half.accesses.query("component == 'GLB' and tensor == 'B'")
    assert str(row["fill_elements"].iloc[0]) == "448"  # a loop over k above B does not change its fills
    assert str(half.tiles["tile_elements"].iloc[3]) == "10*TK"
    assert half.at(TK=4).tiles.equals(numbers.tiles)
    assert "TM=10" in repr(half)
    for wrong, remedy in (("TMM", "did you mean TM"), ("BW", r"spec.bind\(BW=...\)")):
        with pytest.raises(pm.SpecError, match=rf"unknown symbol {wrong}: .* in TM, TK\n.*{remedy}"):
            forms.at(**{wrong: 3})
    for bad in (0, 2.5, "ten", 65):
        with pytest.raises(pm.SpecError, match="TM"):
            forms.at(TM=bad)


def test_columns_of_numbers_have_the_dtype_of_numbers() -> None:
    closed = pm.closed_forms(pm.load("simple_two_level", "matmul/weight_stationary"), tiles=True)
    each = closed.energy["energy_per_unit_J"]
    assert each.dtype == float
    small = float(each[each > 0].min())
    assert f"{small:e}"[:4] in repr(each)
    assert closed.working_sets["capacity_bits"].dtype == float
    assert closed.tiles["node"].dtype.kind == "i"


@pytest.mark.parametrize("arch", ["simple_two_level", "edge_npu"])
def test_working_sets_come_in_the_order_of_the_report(arch: str) -> None:
    report = pm.evaluate(pm.load(arch, "matmul_chain_3" if arch == "simple_two_level" else "matmul"))
    columns = ["component", "einsum", "measure"]
    theirs = report.table("working_sets", live=False).only(*columns, "bits").rows
    closed = report.symbolic
    numbers = closed.at(**tile_values(closed.problem.tree, report.problem.tree)).working_sets
    shown = numbers[[*columns, "bits"]].itertuples(index=False, name=None)
    assert list(shown) == [r for r in theirs if r[2] != "live"]
    assert len({r[1] for r in theirs}) == (3 if arch == "simple_two_level" else 1)


@pytest.mark.parametrize(
    ("names", "reason", "remedy"),
    [
        (
            ("edge_npu", "resnet_bottleneck_block/tiled_fused"),
            "Down and Add run the loop over p in other ranges",
            r"count it in numbers: polymodel evaluate, pm.evaluate\(spec\) in Python$",
        ),
    ],
)
@pytest.mark.thin(2)
def test_what_has_no_closed_form_ends_with_a_remedy(names: tuple[str, str], reason: str, remedy: str) -> None:
    spec = pm.load(*names)
    with pytest.raises(pm.NotSeparable, match=rf"{reason}.*\n  remedy: {remedy}"):
        pm.closed_forms(spec)
    with refused("unsupported-loop", "pm.evaluate", kind=pm.NotSeparable):
        _ = pm.evaluate(spec).symbolic


def test_the_refusal_that_no_option_lifts_is_told() -> None:
    """A fused padded block has no closed forms, with numbers for extents or without."""
    spec = pm.load("edge_npu", "resnet_bottleneck_block/tiled_fused")
    with pytest.raises(pm.NotSeparable, match=r"in other ranges\n  remedy: count it in numbers"):
        pm.closed_forms(spec, ranks=True)


def test_closed_forms_wrap_in_a_notebook() -> None:
    forms = pm.closed_forms(pm.load("matmul_chain_2/tiled_fused", "simple_two_level"), tiles=True)
    page = forms._repr_html_()
    assert "<p>Closed forms of 2 Einsums; symbols: " in page
    assert "SymbolicReport" not in page
    assert page.count('<td class="f">') == page.count("<td")
    assert "td.f{white-space:normal;max-width:32em" in page
    assert ".table(&#34;reuse&#34;)" in page


def test_the_reuse_factor_is_no_number_where_nothing_is_filled(tmp_path: Path) -> None:
    """Partial sums of C are filled again for each further tile of k, and not at all with one."""
    file = tmp_path / "mapping.yaml"
    file.write_text("""
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: k, tile_shape: TK}
  - !Storage {component: GLB, tensors: [A, B, C]}
  - !Compute {einsum: Matmul, component: MAC}
""")
    spec = pm.load("matmul", "simple_two_level", str(file))
    assert "1.0·" not in repr(pm.closed_forms(spec).table("summary"))
    reuse = pm.closed_forms(spec).table("reuse")
    for size in (8, 64):
        ours = [row["reuse_factor"] for row in reuse.at({"TK": size})]
        theirs = [r["reuse_factor"] for r in pm.evaluate(spec, symbols={"TK": size}).table("reuse").records()]
        assert ours[:3] == theirs[:3] == [None, None, None], "all of DRAM is there from the start"
        assert ours[3:5] == theirs[3:5]
        assert ours[5] == theirs[5] if size == 8 else (math.isnan(ours[5]) and theirs[5] is None)
