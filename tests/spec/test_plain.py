"""Numbers of other libraries are numbers of exactly the same value, wherever a call takes a number."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sympy

import polymodel as pm
from polymodel.report.starter import STARTER
from polymodel.spec.faults import as_number, as_whole, plainly

GRID = pd.DataFrame({"TM": [16, 32], "share": [0.5, 0.25]})
WHOLE: dict[str, Callable[[int], object]] = {
    "int64": np.int64,
    "int8": np.int8,
    "uint32": np.uint32,
    "array": np.array,
    "sympy": sympy.Integer,
    "Fraction": Fraction,
    "Series": lambda n: pd.Series([n, 1])[0],
    "row": lambda n: pd.DataFrame({"n": [n], "t": ["x"]}).iloc[0]["n"],
}


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> pm.Spec:
    file = tmp_path_factory.mktemp("plain") / "spec.yaml"
    file.write_text(STARTER, encoding="utf-8")
    return pm.load(file)


def test_the_value_is_exactly_the_same() -> None:
    same: list[tuple[object, int | float]] = [
        (np.int64(2**62 + 1), 2**62 + 1), (np.uint64(2**64 - 1), 2**64 - 1), (np.float64(16), 16.0),
        (np.float32(0.1), float(np.float32(0.1))), (np.array(7), 7), (np.array(0.5), 0.5),
        (Fraction(1, 4), 0.25), (Fraction(8, 2), 4), (sympy.Integer(10**30), 10**30),
        (2**200, 2**200), (float("inf"), float("inf")),
    ]  # fmt: skip
    for given, wanted in same:
        found = as_number(given)
        assert found == wanted
        assert type(found) is type(wanted)
    assert as_number(np.float32("nan")) != as_number(np.float32("nan"))
    none = [True, np.bool_(True), "16", b"3", None, Fraction(1, 3), Fraction(10**400, 3), Decimal(3), 1j, [3]]
    assert [as_number(value) for value in (*none, np.array([3]))] == [None] * 11
    assert as_whole(np.int16(3)) == 3
    assert as_whole(3.0) is None
    nested = plainly({"a": [np.int64(1), ("x", np.float32(0.5))], "b": None, "c": True})
    assert nested == {"a": [1, ("x", 0.5)], "b": None, "c": True}
    assert type(nested["a"][0]) is int  # type: ignore[index]  # a list, as was given


@pytest.mark.parametrize("number", WHOLE.values(), ids=WHOLE)
@pytest.mark.thin(2)
def test_symbols_and_sizes(spec: pm.Spec, number: Any) -> None:
    assert spec.bind(TM=number(32)).symbols == {"TM": 32}
    report = pm.evaluate(spec, symbols={"TM": number(32)})
    assert report.table("tiles").rows == pm.evaluate(spec, symbols={"TM": 32}).table("tiles").rows
    assert report.spec is not None
    assert "TM=32" in repr(report.spec)
    assert pm.load(spec.files[0], symbols={"TM": number(8)}).symbols == {"TM": 8}
    forms = pm.closed_forms(spec)
    assert forms.at(TM=number(8)).table("tiles").at({}) == forms.table("tiles").at({"TM": 8})
    symbols = {"TM": pm.powers(number(2), number(16))}
    swept = pm.sweep(spec, symbols, keep="top", top=number(2), workers=number(1))
    assert swept.grid.values == ((1, 2, 4, 8, 16),)
    assert len(swept.frame) == 2
    assert pm.sweep(spec, {"TM": number(8)}).grid.values == ((8,),)
    assert swept.spec(number(3)).symbols == {"TM": 8}
    assert swept.point(number(3)) == {"TM": 8}


def test_shares_and_parts_of_specs(spec: pm.Spec) -> None:
    share: Any = GRID["share"].iloc[0]
    assert pm.sweep(spec, {"TM": GRID["TM"]}, eps=np.float32(0.5)).grid.values == ((16, 32),)
    one = pm.load("matmul", "simple_two_level", M=np.int64(4), N=np.float32(4), K=np.array(4))
    assert dict(one.workload.rank_sizes) == {"M": 4, "N": 4, "K": 4}
    front = pm.explore(one, objectives=("energy",), eps=share, time_limit=np.int64(30), workers=np.int8(1))
    assert front[0].energy > 0
    built = pm.Memory(
        name="GLB", size=np.int64(8192), leak_power=np.float64(0), area=np.int32(0),
        actions=[{"name": "read", "energy": np.float32(0.5)}, {"name": "write", "energy": 1}],
    )  # fmt: skip
    assert (built.size, built.actions[0].energy) == (8192, 0.5)
    assert pm.Temporal(rank_variable="m", tile_shape=np.int64(3)).tile_shape == 3
    sizes = {"rank_sizes": {"M": np.int64(4)}, "bits_per_value": {"All": np.uint8(8)}}
    copied = pm.load({"workload": {**sizes, "einsums": ["Y[m] = A[m]"]}})
    assert [a.bits_per_value for a in copied.workload.einsums[0].accesses] == [8, 8]


def test_tiles_and_random_data() -> None:
    drawn: Any = np.array([32, 32]), np.float32(0.25), np.int64(1)
    a = pm.random_tensor(["I", "J"], *drawn)
    assert a.nnz == 256
    capacity: Any = np.int64(64)
    assert pm.elements(capacity) == pm.elements(64)
    given: Any = {"ramp": np.int64(9), "clock_mhz": np.float32(500)}
    assert pm.Launch(**given) == pm.Launch(ramp=9, clock_mhz=500.0)
    numbers: Any = {"capacity": np.int64(128), "overbook": np.float32(0.25), "pes": np.int64(4)}
    product = pm.tile_matmul(a, a, **numbers)
    assert product.table("summary").rows[0][1:4] == pm.tile_matmul(
        a, a, capacity=128, overbook=0.25, pes=4
    ).table("summary").rows[0][1:4]  # fmt: skip


def test_what_is_no_number_is_told(spec: pm.Spec) -> None:
    wrongs: list[Any] = [True, np.bool_(True), "16", None, Fraction(1, 3), float("nan"), np.array([16])]
    for wrong in (*wrongs, GRID["TM"]):
        with pytest.raises(pm.SpecError) as caught:
            spec.bind(TM=wrong)
        (fault,) = caught.value.diagnostics
        assert fault.path == "symbols.TM"
        assert "is not a number" in fault.message
        assert "\n" not in fault.message
        assert fault.remedy == "give a number, e.g. TM=16"
        with pytest.raises(pm.SpecError) as again:
            pm.load(Path(spec.files[0]), symbols={"TM": wrong})
        assert [d.message for d in again.value.diagnostics] == [fault.message]
