"""What fuzzing has found, one test each: every input here once ended in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.governor import bytes_of
from polymodel.spec.document import MAX_CHAIN
from polymodel.spec.expressions import MAX_OPERATORS, parse_set
from polymodel.spec.faults import Source
from polymodel.spec.numbers import evaluate_number
from polymodel.spec.teaal.text import parse_level
from polymodel.spec.template import render
from polymodel.stores.store import read_table, write_table
from polymodel.sweeps.choices import choice_of
from polymodel.sweeps.expressions import constraint
from tests.faults import every_fault, faults, refused
from tests.report.test_found_page import MAPPING
from tests.sweep.small import OBJECTIVES, matmul, same

HUGE = "1" * 39
SPEC = (Path(__file__).parents[1] / "spec/two_matmuls.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", ["1" + "0" * 61, "1" + "0" * 399, "-1" + "0" * 61, "1e61"])
def test_numbers_of_a_spec_stay_below_1e60(tmp_path: Path, number: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(f"workload: {{rank_sizes: {{M: {number}}}, einsums: ['Y[m] = X[m]']}}", encoding="utf-8")
    with every_fault(
        ("number-too-large", "workload.rank_sizes.M"),
        ("missing-value", "workload.einsums[0].tensor_accesses"),
    ) as caught:
        pm.load(file)
    assert caught.value.diagnostics[0].place.line == 1


def test_the_largest_number() -> None:
    assert evaluate_number(10**60) == 10**60
    assert evaluate_number("inf") == float("inf")
    for bad in (10**60 + 1, float("nan"), 1e61):
        with pytest.raises(pm.SpecError, match=r"too large|not a number"):
            evaluate_number(bad)


def test_long_chains_of_operators_are_refused() -> None:
    assert evaluate_number("+".join("1" * (MAX_OPERATORS + 1))) == MAX_OPERATORS + 1
    for sign in ("+", "*", "//"):
        with pytest.raises(pm.SpecError, match=f"more than {MAX_OPERATORS} operators"):
            evaluate_number(sign.join("1" * (MAX_OPERATORS + 2)))
    parse_set("|".join("A" * (MAX_OPERATORS + 1)))
    with faults("too-large", "operators", at=""):
        parse_set("|".join("A" * (MAX_OPERATORS + 2)))


@pytest.mark.parametrize(("links", "fine"), [(MAX_CHAIN - 1, True), (MAX_CHAIN, False), (5000, False)])
def test_symbols_that_refer_to_each_other(links: int, fine: bool) -> None:
    symbols = {**{f"S{i}": f"S{i + 1} + 1" for i in range(links)}, f"S{links}": 1}
    source: dict[str, Any] = {
        "symbols": symbols,
        "workload": {"rank_sizes": {"M": "S0"}, "einsums": ["Y[m] = X[m]"]},
    }
    source["workload"]["bits_per_value"] = {"All": 8}
    if fine:
        assert pm.load(source).symbols["S0"] == links + 1
        return
    with pytest.raises(pm.SpecError, match=f"more than {MAX_CHAIN} deep"):
        pm.load(source)


@pytest.mark.parametrize("text", ["{% set x = 1e999 %}{{ x }}", "a: 1\nb: {{ 1e309 ** 9 }}"])
def test_an_endless_number_in_a_template(text: str) -> None:
    rendered, faults = render(text, Source("t.yaml", tuple(text.split("\n"))), {})
    assert rendered is None
    assert "too large" in faults[0].message


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (f"TM * {HUGE} > 3", True),
        (f"TM * 1.5 < {HUGE}", True),
        (f"{HUGE} // TM >= {HUGE} // 8", True),
        (f"ceil(TM / {HUGE}) = 1", True),
        (f"floor({HUGE} / TM) > 1", True),
        (f"ceil({HUGE}) > TM", True),
        (f"min(TM, {HUGE}) = TM", True),
        (f"log2({HUGE}) > TM", True),
        ("sqrt(0 - TM) > 0", False),
        ("(TM - TM) * 18446744073709551616 = 0", True),
        ("0**TM * 18446744073709551616 = 0", True),
    ],
)
@pytest.mark.filterwarnings("error")
def test_huge_numbers_in_a_constraint(text: str, holds: bool) -> None:
    found = constraint(text).holds({"TM": np.arange(1, 9)})
    assert np.broadcast_to(found, 8).tolist() == [holds] * 8


def test_a_product_beyond_all_bounds_in_a_constraint() -> None:
    with faults("number-too-large", at=""):
        constraint(f"{HUGE} * {HUGE} * TM > 1").holds({"TM": np.arange(1, 9)})


@pytest.mark.parametrize("text", ["range(1, " + "9" * 5000 + ")", "divisors(²)"])
def test_digits_that_are_no_number_of_python(text: str) -> None:
    with faults("wrong-type", "TM", at=""):
        choice_of("TM", text)
    assert choice_of("TM", "1 .. " + "9" * 5000)  # an expression, which the grid refuses


def test_sizes_with_several_signs(tmp_path: Path) -> None:
    file = tmp_path / "a.mtx"
    file.write_text("%%MatrixMarket matrix coordinate real general\n--3 4 1\n1 1 1\n", encoding="utf-8")
    with faults("not-an-integer", "3", at=""):
        pm.read_tensor(file)


VALUES: dict[str, Any] = {"TM": [1, 4, 24], "TN": [3, 20], "TK": [18, 5]}
STATE = "state-0-of-1.parquet"


def changed(file: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """A state that says something else, and is sound otherwise."""
    columns, about = read_table(file)
    change(columns, about)
    write_table(file, columns, about)


@pytest.mark.parametrize(
    "change",
    [
        lambda columns, about: about.pop("unit"),
        lambda columns, about: about.update(infeasible=[]),
        lambda columns, about: about.update(done="false"),
        lambda columns, about: about.update(parts=3),
        lambda columns, about: columns.pop("point"),
        lambda columns, about: columns.pop("front"),
        lambda columns, about: columns.pop("objective_1"),
    ],
)
def test_a_state_that_makes_no_sense(tmp_path: Path, change: Callable[..., object]) -> None:
    pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)
    changed(tmp_path / STATE, change)
    with refused("damaged-file", "sweep"):
        pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)


def test_a_changed_figure_in_a_state_is_noticed(tmp_path: Path) -> None:
    """Parquet itself has no sums over its values: one flipped bit would be another result."""
    pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / STATE)
    figures = table["objective_0"].to_numpy().copy()
    figures[0] += 1
    at = table.column_names.index("objective_0")
    parquet.write_table(table.set_column(at, "objective_0", [figures]), tmp_path / STATE)
    with refused("damaged-file", "sweep"):
        pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)
    whole = pm.sweep(matmul(), VALUES, objectives=OBJECTIVES)
    same(pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path, resume=False), whole)


@pytest.mark.parametrize("seal", [None, {"release": "0.0.9", "digest": ""}])
def test_a_state_of_another_release(tmp_path: Path, seal: object) -> None:
    pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / STATE)
    said = {b"polymodel": table.schema.metadata[b"polymodel"]}
    if seal is not None:
        said[b"seal"] = json.dumps(seal).encode()
    parquet.write_table(table.replace_schema_metadata(said), tmp_path / STATE)
    by = "polymodel 0.0.9" if seal else "an earlier release"
    with pytest.raises(pm.Refused, match=f"was written by {by},"):
        pm.sweep(matmul(), VALUES, objectives=OBJECTIVES, store=tmp_path)


def test_a_huge_remainder_in_a_constraint() -> None:
    assert constraint(f"118 % 49 % +{HUGE} = 20").holds({}).all()


@pytest.mark.parametrize("text", ["PE[0..²]", "PE[0.." + "9" * 5000 + "]"])
def test_instances_of_a_level_that_are_no_number(text: str) -> None:
    with faults("syntax-error", "0", at=""):
        parse_level(text)


@pytest.mark.parametrize("size", ["²", "9" * 5000])
def test_sizes_of_ranks_that_are_no_number(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["execute", "tensaurus/spmm", "A=dense", "--size", f"N={size}"]) == 2
    assert "a whole number of at least 1 is expected" in capsys.readouterr().err
    with faults("wrong-type", at=""):
        bytes_of(f"{size}GB")


def test_digits_of_other_scripts_in_a_template() -> None:
    text = "a: {{ 1e3٣08 }}"
    rendered, faults = render(text, Source("t.yaml", (text,)), {})
    assert rendered is None
    assert "digits 0 to 9" in faults[0].message


@pytest.mark.parametrize(
    "text", ["TM ** {} >= 1", "TM / {} <= 4", "log2({}) <= 2", "sqrt({}) < 9", "ceil({}) = {}"]
)
def test_what_becomes_of_a_huge_number_that_is_left_out(text: str) -> None:
    least = f"min(TM, 3, {2**63})"
    assert constraint(text.replace("{}", least)).holds({"TM": np.arange(1, 9)}).all()


@pytest.mark.parametrize("name", ["True", "RAT", "Infinity", "Mod", "NaN", "EXISTS"])
def test_names_that_isl_knows_otherwise(name: str) -> None:
    """Also beside what such a name is spelt as: they stay two variables."""
    source: dict[str, Any] = {
        "rank_sizes": {"A": 3, "B": 5},
        "bits_per_value": {"All": 8},
        "einsums": [
            {
                "name": "Y",
                "tensor_accesses": [
                    {"name": t, "projection": {"A": name, "B": f"_{name}"}, "output": t == "Y"} for t in "XY"
                ],
            }
        ],
    }
    assert pm.load({"workload": source}).workload["Y"].bounds == ((0, 2), (0, 4))


ARRAY = """\
problem:
  shape: {name: C, dimensions: [M], data_spaces: [{name: A, projection: [M]},
    {name: Z, projection: [M], read_write: true}]}
  instance: {M: 4}
architecture:
  version: 0.4
  nodes:
  - !Hierarchical
    nodes:
    - !Component {name: DRAM, class: DRAM, attributes: {width: 64, datawidth: 16}}
    - !Component {name: "Reg[%s]", class: regfile, attributes: {entries: 4, datawidth: 16}}
    - !Component {name: MAC, class: mac, attributes: {datawidth: 16}}
mapping:
- {target: DRAM, type: temporal, factors: M=4}
- {target: Reg, type: temporal, factors: M=1}
"""


@pytest.mark.parametrize("instances", ["9223372036854775807..3", "1..0", f"0..{'9' * 5000}"])
def test_instances_of_timeloop_that_are_none(tmp_path: Path, instances: str) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(ARRAY % "0..0", encoding="utf-8")
    pm.import_timeloop(file)
    file.write_text(ARRAY % instances, encoding="utf-8")
    with faults("syntax-error", at="") as caught:
        pm.import_timeloop(file)
    assert [d.place.line for d in caught.value.diagnostics] == [11]


def test_a_first_line_of_blanks_of_other_scripts(tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text("\u2028\n1 1 1\n", encoding="utf-8")
    with faults("unknown-format", at=""):
        pm.read_tensor(tmp_path / "a.mtx")


def test_tensors_of_more_points_than_floats_know() -> None:
    with refused("number-too-large", "1.00e", "400", "64"):
        pm.Uniform.of(["I", "J"], [10**200, 10**200], density=0.1)


def test_a_binding_whose_einsum_is_no_name(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "einsum: {declaration: {X: [M], Y: [M]}, expressions: ['Y[m] = X[m]']}\n"
        "architecture:\n"
        "  subtree: [{name: S, local: [{name: MAC, class: compute, attributes: {type: mul}}]}]\n"
        "binding: [{name: MAC, bindings: [{einsum: {a: 1}, op: mul}]}]\n",
        encoding="utf-8",
    )
    with faults("unknown-name", at="binding[0].bindings[0].einsum"):
        pm.load(file)


@pytest.mark.parametrize("number", ["1.9e-12", ".nan", ".inf", "99999999999999999999", "1.0e+19"])
def test_a_projection_onto_a_number_that_is_no_index(tmp_path: Path, number: str) -> None:
    file = tmp_path / "s.yaml"
    accesses = f"[{{name: A, projection: {{K: {number}}}}}, {{name: Z, projection: [m], output: true}}]"
    file.write_text(
        f"workload: {{rank_sizes: {{M: 4}}, einsums: [{{name: E, tensor_accesses: {accesses}}}]}}",
        encoding="utf-8",
    )
    with pytest.raises(pm.SpecError, match=r"whole number|too large|expected a number"):
        pm.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["buffer:GLB", "s3:b/c", "file:x"])
def test_a_folder_whose_name_reads_like_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiled.yaml").write_text(MAPPING, encoding="utf-8")
    spec = ["matmul", "simple_two_level", "tiled.yaml"]
    symbols = ["--symbol", "TM=8, 16", "--symbol", "TK=8", "--store", f"{folder}/store"]
    assert main(["sweep", *spec, *symbols, "--out", folder]) == 0
    assert {"sweep.parquet", "sweep.csv", "store"} <= {p.name for p in Path(folder).iterdir()}
    assert main(["evaluate", *spec, "--parquet", "--out", f"{folder}/report"]) == 0
    assert len(list(Path(folder, "report").glob("*.parquet"))) > 5
