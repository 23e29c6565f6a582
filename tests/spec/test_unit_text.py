"""Texts with units: what they are worth, exactly, and what is refused where."""

from __future__ import annotations

import pytest

import polymodel as pm
from polymodel.spec.faults import TextFault
from polymodel.spec.numbers import AREA, DATA, ENERGY, FREQUENCY, RATE, TIME, WORK, Dimension, in_base_units


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("2.5 pJ", ENERGY, 2.5e-12),
        ("2.5pJ", ENERGY, 2.5e-12),
        ("20.3 pJ", ENERGY, 20.3e-12),  # the float nearest to it, not one that was multiplied
        ("200e-12 J", ENERGY, 200e-12),
        ("300 fJ", ENERGY, 300e-15),
        ("(3 + 4) pJ", ENERGY, 7e-12),
        ("64 KiB", DATA, 64 * 1024 * 8),
        ("64KiB", DATA, 64 * 1024 * 8),
        ("8 * 108 KiB", DATA, 8 * 108 * 1024 * 8),
        ("1.5 kB", DATA, 12_000),
        ("512 kb", DATA, 512_000),
        ("12 bits", DATA, 12),
        ("25.6 GB/s", RATE, 204_800_000_000),
        ("1 Tib/s", RATE, 2**40),
        ("1 Gop/s", WORK, 10**9),
        ("1.05 GHz", FREQUENCY, 1_050_000_000),
        ("20 ns", TIME, 20e-9),
        ("3 µs", TIME, 3e-6),
        ("0.8 mm^2", AREA, 0.8e-6),
        ("500 um2", AREA, 500e-12),
    ],
)
def test_a_text_with_a_unit_is_the_number_in_base_units(
    text: str, dimension: Dimension, value: float
) -> None:
    found = in_base_units(text, dimension)
    assert found == value
    assert isinstance(found, int) == isinstance(value, int)


@pytest.mark.parametrize("text", ["inf", "8 * 614e9", "8 * B", "2 * TN", "B", "1e9", 7, 2.5, None, "TN"])
def test_what_has_no_unit_stays_as_it_is(text: object) -> None:
    assert in_base_units(text, DATA) is text


@pytest.mark.parametrize(
    ("text", "dimension", "message", "offset"),
    [
        ("2.5 W", ENERGY, "W is a unit of power", 4),
        ("64 KB", DATA, "KB may mean two sizes", 3),
        ("2.5 pj", ENERGY, "unknown unit pj", 4),
        ("2.5 pJ/b", ENERGY, "pJ/b is not a unit here", 4),
        ("16 pJ/B", ENERGY, "pJ/B is not a unit here", 3),
        ("1 Gop/s", RATE, "Gop/s is a unit of throughput", 2),
        ("2x B", DATA, "", 0),
    ],
)
def test_a_unit_that_does_not_belong_there(
    text: str, dimension: Dimension, message: str, offset: int
) -> None:
    with pytest.raises(TextFault) as caught:
        in_base_units(text, dimension)
    assert message in caught.value.message
    assert caught.value.offset == offset or not message
    assert caught.value.remedy


def test_symbols_stay_symbols_and_classes_take_units_too() -> None:
    memory = pm.load(
        {
            "symbols": {"KIB": 64},
            "arch": {
                "nodes": [
                    {
                        "type": "Memory",
                        "name": "GLB",
                        "size": "2 * KIB KiB",
                        "actions": [{"name": "read", "energy": "2.5 pJ", "throughput": "8 GB/s"}],
                    },
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "exp", "throughput": "1 Gop/s"}]},
                ]
            },
        }
    ).arch
    assert memory is not None
    assert memory["GLB"].size_bits == 2 * 64 * 1024 * 8
    assert memory["GLB"].actions[0].energy == 2.5e-12
    assert memory["GLB"].actions[0].throughput == 64e9
