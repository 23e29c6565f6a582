"""Calls that go wrong say what to pass; texts of symbols mean the same wherever they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.mapping.looptree import Loop
from tests.faults import every_fault, faults, refused
from tests.matmul import matmul


@pytest.fixture
def spec() -> pm.Spec:
    return matmul("DRAM m:TM GLB", {"M": 16, "N": 8, "K": 8}, {"GLB": 4096})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: pm.evaluate("mlp.yaml"), r"evaluate: 'mlp.yaml' is not a spec.*pm.load\('mlp.yaml'\)"),
        (lambda s: pm.closed_forms("mlp.yaml"), "closed_forms: 'mlp.yaml' is not a spec"),
        (lambda s: pm.sweep("x", {}), "sweep: 'x' is not a spec"),
        (lambda s: pm.sweep(s, ["TM"]), "symbols.*divisors"),
        (lambda s: pm.compare(1, 2), "compare: 1 is not a report.*evaluate"),
        (lambda s: pm.compare(s, s), "is not a report"),
        (lambda s: pm.ski_slope("x"), "ski_slope: 'x' is not a spec"),
        (lambda s: pm.sweep(pm.load("matmul", "simple_two_level"), {"TM": [1]}), "matmul/weight_stationary"),
        (lambda s: pm.sweep(s, {"TM": [1]}, top=0), "top=0"),
        (lambda s: pm.sweep(s, {"TM": [1]}, top=-1, keep="top"), "top=-1"),
        (lambda s: pm.sweep(s, {"TM": "divisor(m)"}), r"did you mean divisors\(m\)"),
        (lambda s: pm.sweep(s, {"TM": "divisors(mm)"}), "symbols.TM.*unknown rank variable mm"),
    ],
)
def test_a_wrong_call_says_what_to_pass(spec: pm.Spec, call: Any, message: str) -> None:
    with pytest.raises(pm.SpecError) as caught:
        call(spec)
    import re

    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)


def test_wrong_values_of_one_symbol_hide_no_other_fault(spec: pm.Spec) -> None:
    symbols = {"TM": "foo(m)", "TN": "1,x", "TK": "2*TQ + TM", "TL": "2 +"}
    with pytest.raises(pm.SpecError) as caught:
        pm.sweep(spec, symbols, where=["TM <= TZ", "TN"], objectives=["enrgy"])
    told = [d.render().splitlines()[0] for d in caught.value.diagnostics]
    assert told == [
        "symbols.TM: symbol TM: unknown function foo",
        "symbols.TN: symbol TN: `1,x` is not a list of numbers",
        "where `TN`: a constraint needs a comparison",
        "objectives[0]: unknown objective enrgy",
        "symbols.TK: symbol TK = `2*TQ + TM`: unknown symbol TQ",
        "symbols.TL: `2 +`: expected a number, a name or '(', found the end",
        "symbols.TK: unknown symbol TK",
        "symbols.TL: unknown symbol TL",
        "symbols.TN: unknown symbol TN",
        "where `TM <= TZ`: unknown symbol TZ",
    ]


def test_right_symbols_are_checked_beside_wrong_ones_of_the_workload() -> None:
    """Without a value of M, what `divisors(m)` means is not known; nothing is told of that."""
    given = matmul("DRAM m:TM GLB", {"M": 16, "N": 8, "K": 8}, {"GLB": 4096})
    workload = given.raw_workload.model_copy(update={"rank_sizes": {"M": "SM", "N": 8, "K": 8}})
    spec = replace(given, raw_workload=workload, declared={**given.declared, "SM": None})
    with pytest.raises(pm.SpecError) as caught:
        pm.sweep(spec, {"SM": "4..8,x", "TM": "divisors(m)"})
    assert [d.path for d in caught.value.diagnostics] == ["symbols.SM"]


def test_a_template_variable_is_no_symbol() -> None:
    with faults("unknown-name", at="symbols.N_TOKENS"):
        pm.sweep(pm.load("tpu_v4i", "gpt3_6.7B"), {"N_TOKENS": [512, 1024]})


def test_texts_mean_the_same_in_python(spec: pm.Spec) -> None:
    ours = pm.sweep(spec, {"TM": "divisors(m)"}, keep="all").frame
    assert ours.equals(pm.sweep(spec, {"TM": pm.divisors("m")}, keep="all").frame)
    assert pm.sweep(spec, {"TM": "1, 4"}, keep="all").frame["TM"].tolist() == [1, 4]


def test_objectives_that_are_listed_are_taken(spec: pm.Spec) -> None:
    with faults("unknown-choice", at="objectives[0]") as caught:
        pm.sweep(spec, {"TM": [1]}, objectives=["wattage"])
    listed = caught.value.diagnostics[0].remedy.removeprefix("objectives: ").split(", ")
    assert "accesses:DRAM" in listed
    assert listed.pop() == "...", "more than a dozen"
    assert pm.sweep(spec, {"TM": [1]}, objectives=listed).evaluated == 1
    with faults("unknown-choice", at="objectives[0]"):
        pm.sweep(spec, {"TM": [1]}, objectives=["reads:MAC"])


def test_a_damaged_store_is_told(spec: pm.Spec, tmp_path: Path) -> None:
    pm.sweep(spec, {"TM": [1, 2]}, store=tmp_path)
    (state,) = tmp_path.glob("state-*.parquet")
    state.write_bytes(state.read_bytes()[:100])
    with refused("damaged-file", "damaged"):
        pm.sweep(spec, {"TM": [1, 2]}, store=tmp_path)
    assert pm.sweep(spec, {"TM": [1, 2]}, store=tmp_path, resume=False).evaluated == 2
    with faults("unreadable-file", "store", at=""):
        pm.sweep(spec, {"TM": [1, 2]}, store=state)


def test_a_symbol_of_one_mapping_is_a_symbol_of_the_sweep(spec: pm.Spec) -> None:
    other = matmul("DRAM n:SH GLB", {"M": 16, "N": 8, "K": 8}, {"GLB": 4096}).template
    assert spec.template is not None
    assert other is not None
    found = pm.sweep(spec, {"TM": [4, 8], "SH": [1, 2]}, mappings=[spec.template, other], keep="all")
    assert len(found.frame) == 8
    for _, row in found.frame.iterrows():
        report = pm.evaluate(found.spec(row))
        assert report.total_energy == row["energy"]
    with every_fault(("unknown-name", "symbols.SX"), ("unknown-name", "symbols.SX")):
        pm.sweep(spec, {"TM": [4], "SX": [1]}, mappings=[spec.template, other])


def test_a_winner_as_yaml_brings_its_symbols(tmp_path: Path) -> None:
    folder = Path(tmp_path)
    (folder / "mapping.yaml").write_text(
        "symbols: {KIB: 8 * 1024, TM: }\n"
        "mapping:\n  nodes:\n"
        "  - !Storage {component: DRAM, tensors: [A, B, C]}\n"
        "  - !Temporal {rank_variable: m, tile_shape: TM}\n"
        "  - !Storage {component: GLB, tensors: [A, B, C]}\n"
        "  - !Compute {einsum: C, component: MAC}\n"
    )
    (folder / "rest.yaml").write_text(
        "arch:\n  nodes:\n"
        "  - !Memory {name: DRAM, size: inf, actions: [{name: read, energy: 1}]}\n"
        "  - !Memory {name: GLB, size: 4 * KIB, actions: [{name: read, energy: PX}]}\n"
        "  - !Compute {name: MAC}\n"
        "workload:\n  rank_sizes: {M: 16, N: 8, K: 8}\n  bits_per_value: {All: 8}\n"
        "  einsums:\n  - C[m, n] = A[m, k] * B[k, n]\n"
    )
    rest, mapping = str(folder / "rest.yaml"), str(folder / "mapping.yaml")
    with faults("undeclared-name", at="arch.nodes[1].actions[0].energy"):
        pm.load(rest, mapping)
    spec = pm.load(rest, mapping, symbols={"PX": 2.5})
    assert spec.symbols["PX"] == 2.5
    with faults("unknown-name", at="symbols.PY"):
        pm.load(rest, mapping, symbols={"PX": 2.5, "PY": 1})
    found = pm.sweep(spec, {"TM": [2, 4], "PX": [3, 5]})
    best = folder / "best.yaml"
    best.write_text(found.mapping_yaml(found.best()))
    assert "TM" not in best.read_text()
    again = pm.evaluate(pm.load(rest, str(best)))
    assert again.total_energy == found.best()["energy"]
    # A source that declares the same symbol alike is not a contradiction.
    (folder / "kib.yaml").write_text("symbols: {KIB: 8192}\n")
    assert pm.evaluate(pm.load(rest, str(best), str(folder / "kib.yaml"))).total_energy == again.total_energy
    (folder / "kib.yaml").write_text("symbols: {KIB: 8000}\n")
    with faults("duplicate-name", at="symbols.KIB"):
        pm.load(rest, str(best), str(folder / "kib.yaml"))


def test_the_best_row_prints_unrounded_with_units() -> None:
    energies = {"DRAM": [{"name": "read", "energy": 7e-12}], "GLB": [{"name": "read", "energy": 1e-13}]}
    big = matmul("DRAM m:TM GLB", {"M": 2**40 + 1, "N": 8, "K": 8}, actions=energies)
    best = pm.sweep(big, {"TM": [1, 4]}).best()
    shown = dict(line.split(maxsplit=1) for line in str(best).splitlines() if len(line.split()) > 1)
    for name in ("TM", "energy", "reads:DRAM", "working_set:DRAM"):
        number, _, unit = shown[name].partition(" ")
        assert (int if ":" in name or name == "TM" else float)(number) == best[name]
        assert unit == {"TM": "", "energy": "J"}.get(name, "bit")
    assert int(shown["reads:DRAM"].split()[0]) > 2**43


def test_the_frame_has_the_unit_of_every_column_that_has_one() -> None:
    frame = pm.sweep(matmul("DRAM m:TM GLB", {"M": 16, "N": 8, "K": 8}), {"TM": [1, 4]}).frame
    traffic = [c for c in frame.columns if ":" in c]
    assert {"reads:DRAM", "writes:GLB", "working_set:GLB"} <= {*traffic}
    costs = {"energy": "J", "latency": "s", "edp": "J s"}
    costs = {name: unit for name, unit in costs.items() if name in frame.columns}
    assert frame.attrs["units"] == {**costs, **dict.fromkeys(traffic, "bit")}


def test_a_mapping_that_others_replace_is_noted(spec: pm.Spec) -> None:
    other = matmul("DRAM n:TM GLB", {"M": 16, "N": 8, "K": 8}, {"GLB": 4096}).template
    assert spec.template is not None
    assert other is not None
    told = "the spec's own mapping was not swept: the mappings given take its place"
    assert told in pm.sweep(spec, {"TM": [4]}, mappings=[other]).notes
    for mappings in (None, [spec.template], [other, spec.template]):
        assert pm.sweep(spec, {"TM": [4]}, mappings=mappings).notes == ()
    library = pm.load("matmul/output_stationary", "simple_two_level")
    own = "the spec's own mapping, matmul/output_stationary, was not swept"
    assert own in str(pm.sweep(library, {"TM": [4]}, mappings=[_rows(library)]))


def _rows(spec: pm.Spec) -> pm.LoopTree:
    """Rows of the product, TM at a time."""
    assert spec.template is not None
    first, *rest = spec.template.nodes
    return pm.LoopTree((first, Loop("m", "TM"), *rest))
