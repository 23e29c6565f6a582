"""`pm.compile`: points from anywhere equal `evaluate`, one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

import polymodel as pm
from tests.faults import faults
from tests.matmul import matmul
from tests.sweep.small import matmul as small
from tests.sweep.small import without_forms
from tests.sweep.test_symbols import COSTS, TILES, spec


def drawn(values: dict[str, list[Any]], count: int, seed: int = 1) -> dict[str, list[Any]]:
    pick = Random(seed)
    return {n: [pick.choice(v) for _ in range(count)] for n, v in values.items()}


def report_at(one: pm.Spec, point: dict[str, Any]) -> pm.Report | str:
    """What `evaluate` finds at a point, or why there is nothing to find."""
    try:
        return pm.evaluate(one.bind(**point))
    except pm.SpecError as fault:
        return fault.diagnostics[0].message


def equals_evaluate(one: pm.Spec, points: dict[str, Any]) -> pd.DataFrame:
    frame = pm.compile(one)(points)
    table = pd.DataFrame(points)
    assert len(frame) == len(table)
    for i, point in enumerate(table.to_dict("records")):
        row, report = frame.iloc[i], report_at(one, point)
        assert row["legal"] == isinstance(report, pm.Report), (point, row["reason"], report)
        if not isinstance(report, pm.Report):
            assert row["reason"]
            assert not row["feasible"]
            assert np.isnan([row["energy"], row["latency"]]).all()
            continue
        assert row["energy"] == pytest.approx(report.costs.total_energy, rel=1e-12)
        assert row["latency"] == pytest.approx(report.costs.total_latency, rel=1e-12)
        assert row["feasible"] == (not report.costs.violations)
        for name in frame.columns:
            if ":" in name or name in ("edp", "utilisation"):
                exact = report.value(name)
                same = row[name] == exact if ":" in name else row[name] == pytest.approx(exact, rel=1e-12)
                assert same, (name, point)
    return frame


def test_tiles_sizes_energies_and_fanouts_at_drawn_points() -> None:
    frame = equals_evaluate(spec(), drawn(TILES | COSTS, 60))
    assert 5 < frame["legal"].sum() < 60
    assert set(frame.attrs["units"].values()) == {"J", "s", "J s", "bit", "1"}


def test_symbols_left_out_keep_their_values() -> None:
    one = pm.compile(spec())
    every = one({"TM": 4, "TN": 6, "TS": 2, "TK": 3})
    assert one({}).equals(every.drop(columns=["TM", "TN", "TS", "TK"]))
    assert one.open == ()


def test_a_frame_keeps_its_index_and_may_have_further_columns() -> None:
    points = pd.DataFrame({"TM": [9, 4], "note": ["a", "b"]}, index=["x", "y"])
    found = pm.compile(spec())(points)
    assert list(found.index) == ["x", "y"]
    assert found.loc["y", "energy"] == pm.compile(spec())({"TM": 4})["energy"][0]
    assert pm.compile(spec())(found).equals(found)


def test_many_points_equal_the_same_points_one_by_one() -> None:
    """Above the width of the kernel's right half, points go through its left half."""
    points, one = drawn(TILES, 9000), pm.compile(spec())
    many = one.arrays(points)
    for i in range(0, 9000, 997):
        single = one.arrays({n: v[i] for n, v in points.items()})
        for name, values in single.items():
            assert values[0] == many[name][i] or (values[0] != values[0]), name


@pytest.mark.parametrize(
    ("points", "code", "at"),
    [
        ({"TX": [1]}, "unknown-name", "TX"),
        ({"TM": ["a"]}, "not-a-number", "TM"),
        ({"TM": [1, 2], "TN": [1, 2, 3]}, "shape-mismatch", "points"),
        ({"TM": [[1, 2]]}, "wrong-type", "TM"),
        (7, "nothing-to-show", "points"),
    ],
)
def test_wrong_points_say_what_to_give(points: Any, code: str, at: str) -> None:
    with faults(code, at=at):
        pm.compile(spec())(points)


def test_what_is_no_spec_is_refused() -> None:
    with faults("wrong-type", "x", at=""):
        pm.compile("x")  # type: ignore[arg-type]  # what it refuses


def test_the_gradient_is_that_of_the_textbook_form() -> None:
    one = matmul("DRAM m:TM n:TN GLB k:TK", {"M": 512, "N": 256, "K": 64}, {"GLB": 65536})
    found = pm.compile(one).gradient({"TM": [16, 32.5], "TN": 8, "TK": 1}, "accesses:DRAM")
    volume = 8 * 512 * 256 * 64  # bits of A are read once per tile of N, of B once per tile of M
    assert found["TM"] == pytest.approx([-volume / 16**2, -volume / 32.5**2])
    assert found["TN"] == pytest.approx([-volume / 8**2] * 2)
    assert found["TK"] == pytest.approx([0, 0])


def test_an_optimiser_and_a_random_search_find_the_optimum_of_a_sweep() -> None:
    one = matmul("DRAM m:TM n:TN GLB k:TK", {"M": 64, "N": 48, "K": 32}, {"GLB": 4096})
    sizes = {"TM": pm.all_sizes("m"), "TN": pm.all_sizes("n"), "TK": [1]}
    best = pm.sweep(one, sizes, objectives=("accesses:DRAM",)).best()["accesses:DRAM"]
    compiled = pm.compile(one)

    def words(x: Any) -> Any:
        tiles = np.floor(x).astype(int)
        found = compiled.arrays({"TM": tiles[0], "TN": tiles[1], "TK": 1})
        return np.where(found["feasible"], found["reads:DRAM"] + found["writes:DRAM"], np.inf)

    result = optimize.differential_evolution(
        words, [(1, 64.99), (1, 48.99)], rng=1, vectorized=True, updating="deferred", polish=False, maxiter=60
    )
    assert result.fun == best
    pick = np.random.default_rng(1)
    drawn_there = words(np.stack([pick.integers(1, 65, 40_000), pick.integers(1, 49, 40_000)]))
    assert drawn_there.min() == best


def test_a_mapping_without_closed_forms_is_evaluated_point_by_point() -> None:
    one = without_forms(small())
    compiled = pm.compile(one)
    points = {"TM": [4, 24, 5, 30], "TN": [4, 2, 20, 1], "TK": 3}
    frame = equals_evaluate(one, {n: v if isinstance(v, list) else [v] * 4 for n, v in points.items()})
    assert list(frame["legal"]) == [True, True, True, False]
    assert compiled(points).equals(frame)
    assert any("one by one" in n for n in compiled.notes)


def test_a_symbol_of_the_workload_has_forms_of_its_own() -> None:
    frame = equals_evaluate(
        small("M"), {"M": [8, 24, 24, 7], "TM": [8, 6, 24, 8], "TN": [1] * 4, "TK": [2] * 4}
    )
    assert list(frame["legal"]) == [True, True, True, False]
    with faults("missing-value", at="points"):
        pm.compile(small("M"))({"TK": 1})
