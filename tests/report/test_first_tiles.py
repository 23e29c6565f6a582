"""Closed forms in the sizes of first tiles, as they are read."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from tests.sweep.small import written
from tests.sweep.test_first_tiles import SPEC, TREE

SIZES = {"TP": 4, "FP": 3, "TQ": 3, "TM": 2, "FM": 2}


def _spec(symbols: bool) -> pm.Spec:
    def size(value: Any) -> Any:
        return SIZES.get(value, value) if isinstance(value, str) and not symbols else value

    return written(SPEC, [{key: size(value) for key, value in node.items()} for node in TREE])


@pytest.mark.slow
def test_first_tiles_are_read_in_the_forms() -> None:
    import sympy

    found = pm.closed_forms(_spec(symbols=True))
    first, tile = (found.symbols[name] for name in ("FM", "TM"))
    table = found.latency
    (instances,) = table.loc[table["component"] == "MAC", "instances_used"]
    assert instances == sympy.ceiling((6 - first) / tile) + 1
    table = found.accesses
    (read,) = table.loc[(table["component"] == "GLB") & (table["tensor"] == "I"), "read_elements"]
    # Instances share what they read at one time: as often as the largest of them goes through its columns.
    assert read == 27 * sympy.Max(first, sympy.Min(tile, 6 - first))
    report = pm.evaluate(_spec(symbols=False))
    (number,) = report.accesses.query("component == 'GLB' and tensor == 'I'")["read_elements"]
    assert read.subs({first: 2, tile: 2}) == number


def test_numbers_become_symbols_too() -> None:
    """FM is as large as TM, and so is not a size of its own."""
    found = pm.closed_forms(_spec(symbols=False), tiles=True)
    assert set(found.symbols) == {"TP0", "FP0", "TP1", "FP1", "TM0"}
    report = pm.evaluate(_spec(symbols=False))
    table = found.at(TP0=4, FP0=3, TP1=3, FP1=2, TM0=2).accesses
    for column in ("read_elements", "write_elements"):
        assert [int(x) for x in table[column]] == list(report.accesses[column])
    for sizes, message in (
        ({"FP0": 10}, "FP0 = 10 is outside the domain of these closed forms: FP0 <= 9"),
        ({"TP0": 4, "FP0": 5, "TP1": 6}, r"FP0 = 5, TP0 = 4, TP1 = 6 are outside .*: TP1 <= Max\(FP0, TP0\)"),
    ):
        with pytest.raises(pm.SpecError, match=message):
            found.at(**sizes)


def test_an_explanation_names_the_first_tile() -> None:
    text = str(pm.evaluate(_spec(symbols=False)).explain("O", "GLB", "I"))
    assert "tiles of 4 (first tile 3) of p, time" in text
