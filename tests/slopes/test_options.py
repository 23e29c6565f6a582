"""Options of the slopes: whatever is wrong is told at once, each with the option's name and a remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults
from tests.slopes.test_chain_slope import PAIR, chain

SPEC = chain(PAIR, {"m": 4, "k": 2, "n": 6, "p": 2})
GRAPH: dict[str, tuple[object, str]] = {
    "curves": (["fused", "tiled_fused"], "curves[0]: there is no curve 'fused'"),
    "tiles": ({"M": [2], "m": [1, 2.5]}, "tiles.M: there is no rank variable 'M'"),
    "unit": ("bytes", "unit: there is no unit 'bytes'"),
    "head": ("yes", "head: 'yes' is neither True nor False"),
    "batch": (None, "batch: None is neither True nor False"),
    "head_is_tiled_fusion": (1, "head_is_tiled_fusion: 1 is neither True nor False"),
    "uneven": (["weights"], "uneven[0]: there is no tensor or rename 'weights'"),
    "operands": ("swapped", "operands: there is no choice 'swapped'"),
    "partial_overlap": ("no", "partial_overlap: 'no' is neither True nor False"),
    "equal_outer_sizes": ([], "equal_outer_sizes: a list is neither True nor False"),
    "roles": ({"head": ["m", "Y"], "heads": []}, "roles.head[1]: there is no rank 'Y'"),
    "progress": (True, "progress: True is not a function"),
}
CHAIN: dict[str, tuple[object, str]] = {
    "einsums": (["T", "Q9"], "einsums[1]: there is no Einsum 'Q9'"),
    "curves": ("fused", "curves: there is no curve 'fused'"),
    "whole": ("yes", "whole: 'yes' is neither True nor False"),
    "tiles": ("most", "tiles: 'most' is neither divisors nor all"),
    "unit": (8, "unit: there is no unit 8"),
}
SKI: dict[str, tuple[object, str]] = {
    "einsum": ("Q9", "einsum: there is no Einsum 'Q9'"),
    "tiles": ({"m": 2}, "tiles.m: 2 is not a list of tile sizes"),
    "bypass": ("yes", "bypass: 'yes' is neither True nor False"),
    "unit": ("word", "unit: there is no unit 'word'"),
}
CALLS: list[tuple[Callable[..., object], dict[str, tuple[object, str]]]] = [
    (pm.graph_slope, GRAPH),
    (pm.chain_slope, CHAIN),
    (pm.ski_slope, SKI),
]


@pytest.mark.parametrize(("call", "wrong"), CALLS)
def test_all_wrong_options_are_told_at_once(
    call: Callable[..., object], wrong: dict[str, tuple[object, str]]
) -> None:
    with pytest.raises(pm.SpecError) as caught:
        call(SPEC, **{name: value for name, (value, _) in wrong.items()})
    told = [d.render() for d in caught.value.diagnostics]
    for _, message in wrong.values():
        (found,) = [t for t in told if t.startswith(message)]
        assert "\n  remedy: " in found


@pytest.mark.parametrize("call", [pm.graph_slope, pm.chain_slope, pm.ski_slope])
def test_every_option_is_checked(call: Callable[..., object]) -> None:
    """A new option of a slope has to be added above; `layout` is refused by name."""
    assert {*inspect.getfullargspec(call).kwonlyargs} - {"layout"} == dict(CALLS)[call].keys()


@pytest.mark.parametrize(
    ("options", "code", "at"),
    [
        ({"tiles": {"m": [2, 2.5]}}, "not-an-integer", "tiles.m[1]"),
        ({"tiles": {"m": np.array(2)}}, "wrong-type", "tiles.m"),
        ({"tiles": {"m": "24"}}, "wrong-type", "tiles.m"),
        ({"tiles": {"m": [True]}}, "not-an-integer", "tiles.m[0]"),
        ({"tiles": {"m": [0]}}, "out-of-range", "tiles.m"),
        ({"tiles": {"m": [8]}}, "out-of-range", "tiles.m"),
        ({"tiles": 4}, "wrong-type", "tiles"),
    ],
)
@pytest.mark.parametrize("call", [pm.graph_slope, pm.chain_slope, pm.ski_slope])
def test_wrong_tiles(call: Callable[..., object], options: dict[str, object], code: str, at: str) -> None:
    named = {"einsum": "T"} if call is pm.ski_slope else {}
    with faults(code, at=at):
        call(SPEC, **named, **options)


@pytest.mark.parametrize(
    ("options", "code", "at", "named"),
    [
        ({"curves": []}, "missing-argument", "curves", ""),
        ({"curves": 3}, "wrong-type", "curves", ""),
        ({"roles": ["head"]}, "wrong-type", "roles", ""),
        ({"roles": {"heads": ["M"]}}, "unknown-choice", "roles.heads", "head"),
        ({"uneven": 1}, "wrong-type", "uneven", ""),
        ({"uneven": [1]}, "unknown-choice", "uneven[0]", ""),
    ],
)
def test_wrong_options_of_a_graph(options: dict[str, Any], code: str, at: str, named: str) -> None:
    with faults(code, *named.split(), at=at):
        pm.graph_slope(SPEC, **options)


def test_one_name_is_a_list_of_it() -> None:
    one = pm.graph_slope(SPEC, curves="unfused", uneven="B", roles={"head": "M"})
    assert [*one.curves] == ["unfused"]
    assert one.graph.rules.uneven == ("B",)
    assert one.graph.rules.roles == (("head", ("M",)),)


def test_arrays_of_sizes_and_their_truth_values_are_taken() -> None:
    tiles = {"m": np.array([1, 2])}
    given: Any = pm.ski_slope(SPEC, einsum="T", tiles=tiles, bypass=np.True_)  # type: ignore[arg-type]  # of numpy
    plain = pm.ski_slope(SPEC, einsum="T", tiles={"m": [1, 2]}, bypass=True)
    assert given.points == plain.points
    assert pm.ski_slope(SPEC, einsum="T", tiles={"m": {2, 1}}, bypass=True).points == plain.points  # type: ignore[dict-item]  # a set


def test_wrong_constraints_hide_no_other_fault() -> None:
    spec = pm.load("matmul_chain_2", "simple_two_level")
    with pytest.raises(pm.SpecError) as caught:
        pm.explore(spec, constraints=7, eps=-1, workers=0)  # type: ignore[arg-type]  # wrong on purpose
    assert {d.path for d in caught.value.diagnostics} == {"constraints", "eps", "workers"}
    with faults("wrong-type", at="constraints"):
        pm.mapspace(spec, 7)  # type: ignore[arg-type]  # wrong on purpose
