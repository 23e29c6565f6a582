"""The front of VGGNet-E as fused by Alwani et al. (MICRO 2016): traffic, buffer and recomputation."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact import lifetimes
from polymodel.analysis.result import Analysis, Engine, Problem
from tests.analysis.test_agreement import differences
from tests.seeds import seeds

EXACT: Engine = exact_engine
WORD = 4  # bytes: single precision
WEIGHTS = ("F11", "F12", "F21", "F22", "F31")
# Per layer: channels and side of its map; kernel, stride and padding; channels that one output reads.
MAPS = {
    "Conv1_1": (64, 224, 3, 1, 1, 3),
    "Conv1_2": (64, 224, 3, 1, 1, 64),
    "Pool1": (64, 112, 2, 2, 0, 1),
    "Conv2_1": (128, 112, 3, 1, 1, 64),
    "Conv2_2": (128, 112, 3, 1, 1, 128),
    "Pool2": (128, 56, 2, 2, 0, 1),
    "Conv3_1": (256, 56, 3, 1, 1, 128),
}
IMAGE = (3, 224)


def loaded(variant: str, **symbols: int) -> pm.Spec:
    spec = pm.load("fused_layer_fpga", f"vgg_e_front/{variant}")
    return spec.bind(**symbols) if symbols else spec


def off_chip(found: Analysis) -> dict[str, int]:
    """Bytes that each feature map moves to and from DRAM."""
    moved: dict[str, int] = {}
    for t in found.traffic:
        if t.component == "DRAM" and t.tensor not in WEIGHTS:
            moved[t.tensor] = moved.get(t.tensor, 0) + WORD * (t.reads + t.writes)
    return moved


def buffer(found: Analysis, measure: str = "live") -> int:
    """Bytes of the joint peak of the feature maps; the weights have a memory of their own."""
    rows = [w for w in found.working_sets if (w.component, w.measure) == ("FeatureBuffer", measure)]
    return max(w.bits for w in rows) // 8


def operations(found: Analysis) -> dict[str, int]:
    return {c.einsum: c.operations for c in found.compute}


def size(channels: int, side: int) -> int:
    return WORD * channels * side * side


def inside(low: int, high: int, layer: str) -> int:
    """Multiplications of one column of weights with rows low..high of a layer's map: padding has none."""
    _, side, kernel, stride, padding, _ = MAPS[layer]
    before = IMAGE[1] if layer == "Conv1_1" else list(MAPS.values())[list(MAPS).index(layer) - 1][1]
    return sum(
        0 <= stride * p + r - padding < before
        for p in range(max(low, 0), min(high, side - 1) + 1)
        for r in range(kernel)
    )


def windows(tip: int) -> dict[str, list[tuple[int, int]]]:
    """Per layer (and I, the image) the rows of its map that each tile of `tip` rows of the last needs."""
    last = MAPS["Conv3_1"][1]
    rows = [(a, min(a + tip, last) - 1) for a in range(0, last, tip)]
    found = {}
    for layer, (_, side, kernel, stride, padding, _) in reversed(MAPS.items()):
        found[layer] = [(max(a, 0), min(b, side - 1)) for a, b in rows]
        rows = [(stride * a - padding, stride * b + kernel - 1 - padding) for a, b in found[layer]]
    found["I"] = [(max(a, 0), min(b, IMAGE[1] - 1)) for a, b in rows]
    return found


@pytest.mark.slow
def test_fused_maps_go_in_and_out_once() -> None:
    moved = off_chip(pm.evaluate(loaded("tiled_fused")).analysis)
    assert moved == {"I": size(*IMAGE), "O": size(256, 56)}
    assert sum(moved.values()) == 3_813_376


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "skipped", "mebibytes"),
    [("unfused", (), 86.32), ("pool_fused", ("Conv1_2", "Conv2_2"), 49.57)],
)
def test_layer_by_layer_each_map_goes_out_and_comes_back(
    variant: str, skipped: tuple[str, ...], mebibytes: float
) -> None:
    found = pm.evaluate(loaded(variant)).analysis
    between = sum(size(*shape[:2]) for layer, shape in MAPS.items() if layer not in (*skipped, "Conv3_1"))
    total = sum(off_chip(found).values())
    assert total == size(*IMAGE) + 2 * between + size(256, 56)
    assert round(total / 2**20, 2) == mebibytes
    assert operations(found) == operations(pm.evaluate(loaded("tiled_fused")).analysis)


def test_nothing_is_made_twice_while_rows_stay() -> None:
    made = operations(pm.evaluate(loaded("tiled_fused")).analysis)
    for layer, (channels, side, _, _, _, depth) in MAPS.items():
        assert made[layer] == channels * depth * inside(0, side - 1, layer) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("tip", seeds(1, [1, 4, 7, 28]))
def test_without_retained_maps_whole_windows_are_made_again(tip: int) -> None:
    report = pm.evaluate(loaded("recomputed_fused", TIP_ROWS=tip, TIP_COLUMNS=tip))
    needed, found = windows(tip), report.analysis
    made = operations(found)
    factors = dict(report.fusion.groupby("einsum")["recompute_factor"].first())
    for layer, (channels, side, _, _, _, depth) in MAPS.items():
        assert made[layer] == channels * depth * sum(inside(a, b, layer) for a, b in needed[layer]) ** 2
        if layer != "Conv3_1":
            assert factors[layer] == made[layer] / (channels * depth * inside(0, side - 1, layer) ** 2)
    fetched = WORD * IMAGE[0] * sum(b - a + 1 for a, b in needed["I"]) ** 2
    assert off_chip(found) == {"I": fetched, "O": size(256, 56)}


@pytest.mark.slow
def test_buffer_of_the_fused_layers() -> None:
    """Within 4 % of the published 362 KB; two rows of each of five maps stay for the next row of pixels."""
    retained = WORD * 2 * (224 * 3 + 224 * 64 + 112 * 64 + 112 * 128 + 56 * 128)
    assert retained == 349_440
    found = pm.evaluate(loaded("tiled_fused")).analysis
    assert buffer(found) == 373_760
    assert retained < buffer(found) < 1.04 * 362_000
    # Whole tiles are largest at the first row of pixels, for which nothing is there yet.
    first = {layer: rows[0][1] - rows[0][0] + 1 for layer, rows in windows(1).items()}
    maps = {"I": IMAGE, **{layer: shape[:2] for layer, shape in MAPS.items() if layer != "Conv3_1"}}
    tiles = sum(first[layer] * channels * side for layer, (channels, side) in maps.items())
    assert buffer(found, "tile") == WORD * (tiles + 256)


# Every variable of a layer, for an array so large that a layer makes what a pixel needs at one time.
VARIABLES = {
    "Conv1_1": "p11 q11 c11 c0 r s",
    "Conv1_2": "p12 q12 c12 c11 r s",
    "Pool1": "p1 q1 c12 r s",
    "Conv2_1": "p21 q21 c21 c12 r s",
    "Conv2_2": "p22 q22 c22 c21 r s",
    "Pool2": "p2 q2 c22 r s",
    "Conv3_1": "c31 c22 r s",
}


def _storage(component: str, tensors: str, reuse: str = "refill") -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": tensors.split(), "reuse": reuse}


def pyramid(together: bool, sizes: dict[str, int] | None = None) -> Problem:
    """The fused mapping without an array, or with one on which each layer's work for a pixel is one step."""
    branches = []
    for layer, variables in VARIABLES.items():
        loops = [
            {"type": "Spatial", "rank_variable": v, "tile_shape": 1, "component": "PE", "name": f"D{i}"}
            for i, v in enumerate(variables.split() if together else ())
        ]
        leaf = {"type": "Compute", "einsum": layer, "component": "MAC"}
        branches.append({"type": "Nested", "nodes": [*loops, leaf]})
    weights = " ".join(WEIGHTS)
    memories = [{"type": "Memory", "name": n} for n in ("DRAM", "WeightBuffer", "FeatureBuffer")]
    fanouts = [{"name": f"D{i}", "fanout": 256} for i in range(6)]
    nodes = [
        _storage("DRAM", f"I O {weights}"),
        _storage("WeightBuffer", weights),
        {"type": "Temporal", "rank_variable": "p31", "tile_shape": 1},
        _storage("FeatureBuffer", "I M11 M12 M1 M21 M22 M2", "slide"),
        {"type": "Temporal", "rank_variable": "q31", "tile_shape": 1},
        _storage("FeatureBuffer", "O"),
        {"type": "Sequential", "nodes": branches},
    ]
    array = [{"type": "Container", "name": "PE", "spatial": fanouts}, {"type": "Compute", "name": "MAC"}]
    spec = pm.load(
        "vgg_e_front", {"arch": {"nodes": [*memories, *array]}, "mapping": {"nodes": nodes}}, variables=sizes
    )
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


@pytest.mark.thin(99)
@pytest.mark.parametrize(("together", "peak"), [(True, 375_136), (False, 374_964)])
def test_the_independent_count_takes_a_layers_work_for_a_pixel_as_one_step(together: bool, peak: int) -> None:
    """An independent count gave 375,136 bytes: inputs stay until their layer is through with the pixel.

    Operation by operation, 43 values of M11 are gone before the last of M12 begins.
    """
    assert buffer(EXACT.analyse(pyramid(together), live=True)) == peak
    assert 43 * WORD == 375_136 - 374_964


def counted_by_pixels() -> int:
    """Peak in bytes from when each value is made and last read; a step is one layer's work for a pixel."""
    steps, layers = len(MAPS), list(MAPS)
    made = np.arange(56 * 56, dtype=np.int64).reshape(56, 56)  # the pixel for which a layer makes each value
    change = np.zeros(made.size * steps + 1, dtype=np.int64)
    first, last = made * steps + steps - 1, made * steps + steps - 1
    for number in reversed(range(steps)):
        channels, side, kernel, stride, padding, _ = MAPS[layers[number]]
        np.add.at(change, first.ravel(), channels)
        np.add.at(change, last.ravel() + 1, -channels)
        before = MAPS[layers[number - 1]][1] if number else IMAGE[1]
        needed = np.full((before + 2 * padding, before + 2 * padding), made.size * steps)
        used = np.full_like(needed, -1)
        for r, s in product(range(kernel), repeat=2):
            window = (slice(r, r + stride * side, stride), slice(s, s + stride * side, stride))
            needed[window] = np.minimum(needed[window], made)
            used[window] = np.maximum(used[window], made)
        inner = slice(padding, padding + before)
        made, used = needed[inner, inner], used[inner, inner]
        first, last = made * steps + max(number - 1, 0), used * steps + number
    np.add.at(change, first.ravel(), IMAGE[0])
    np.add.at(change, last.ravel() + 1, -IMAGE[0])
    return WORD * int(np.cumsum(change).max())


def test_the_peak_by_an_independent_count() -> None:
    assert counted_by_pixels() == 375_136


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.thin(2)
def test_small_pyramids_agree_with_the_referee(together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = pyramid(together, {"SIZE": 12, "CHANNELS": 1, "COLOURS": 1})
    referee = REFEREE.analyse(problem, live=True)
    assert not differences(EXACT.analyse(problem, live=True), referee)
    monkeypatch.setattr(lifetimes, "_LISTED", 0)  # products of factors also here
    assert not differences(EXACT.analyse(problem, live=True), referee)
