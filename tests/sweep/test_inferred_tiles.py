"""Sweeps of fused windows, where a producer's extent follows from the loops over its consumer."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from benchmarks.fused import SWEPT, front
from polymodel.sweeps import axes, kernel, run
from tests.seeds import seeds
from tests.support.small_specs import leaf, loop, memory, split, spread, storage, unit
from tests.sweep.test_grids import compiled
from tests.sweep.test_sweep import check_blocks, check_rows


def fused(*, outer: int | str, inner: int | str) -> pm.Spec:
    """Two fused convolutions: loops over p2 above the split, a loop over p1, which is inferred, below."""
    actions = [{"name": n, "energy": 2.0, "throughput": 1e9} for n in ("read", "write")]
    document: dict[str, Any] = {
        "arch": {
            "nodes": [
                {"type": "Memory", "name": "DRAM", "actions": actions},
                {"type": "Memory", "name": "GLB", "size": 1600, "actions": actions},
                {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1e9}]},
            ]
        },
        "workload": {
            "rank_sizes": {"P2": 6, "R2": 2, "P1": 7, "R1": 2, "P0": 8},
            "bits_per_value": {"All": 1},
            "einsums": ["T1[p1] = T0[P0=p1+r1] * W1[r1]", "T2[p2] = T1[P1=p2+r2] * W2[r2]"],
        },
        "mapping": {
            "nodes": [
                {"type": "Storage", "component": "DRAM", "tensors": ["T0", "W1", "W2", "T2"]},
                {"type": "Temporal", "rank_variable": "p2", "tile_shape": outer},
                {"type": "Temporal", "rank_variable": "p2", "tile_shape": 2},
                {"type": "Storage", "component": "GLB", "tensors": ["T0", "T1"]},
                {
                    "type": "Sequential",
                    "nodes": [
                        {
                            "type": "Nested",
                            "nodes": [
                                {"type": "Temporal", "rank_variable": "p1", "tile_shape": inner},
                                {"type": "Storage", "component": "GLB", "tensors": ["W1"]},
                                {"type": "Compute", "einsum": "T1", "component": "MAC"},
                            ],
                        },
                        {
                            "type": "Nested",
                            "nodes": [{"type": "Compute", "einsum": "T2", "component": "MAC"}],
                        },
                    ],
                },
            ]
        },
    }
    return pm.load(document)


def test_a_factor_has_symbols_of_the_consumer_and_of_the_inferred_producer() -> None:
    spec = fused(outer="TO", inner="TI")
    grid = {"TO": [2, 3, 4, 5, 6], "TI": [1, 2, 3]}
    check_blocks(spec, grid, count=15)
    swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    assert swept.points == 15
    check_rows(swept)


def test_a_tile_beyond_the_inferred_extent_leaves_no_point() -> None:
    # Tiles of 2 of p2 need 3 of T1, however p2 is split above.
    swept = pm.sweep(fused(outer="TO", inner=4), {"TO": [2, 3, 4]}, objectives=("energy",), keep="all")
    assert (swept.evaluated, sum(swept.infeasible.values())) == (0, 3)
    fits = pm.sweep(fused(outer="TO", inner=3), {"TO": [2, 3, 4]}, objectives=("energy",), keep="all")
    assert fits.evaluated == len(fits.frame) == 3


def test_own_tiles_fit_windows_also_where_a_loop_in_space_may_have_one_instance() -> None:
    """Closed forms differ by whether there is one instance; what tiles have to fit is asked either way."""
    fan = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 3, "may_reuse": "All"}]}
    arch = {"nodes": [memory("DRAM", 8e-12), fan, memory("RF", 1e-12), unit()]}
    workload = {
        "rank_sizes": {"P": 3, "R": 1, "S": 1, "Y": 3, "W": 3}, "bits_per_value": {"All": 8},
        "einsums": ["T[Y=y] = I[W=y+r] * F[r]", "O[p] = T[Y=p+s] * G[s]"],
    }  # fmt: skip
    branches = split([loop("y", "TY"), leaf("T")], [leaf("O")])
    nodes = [storage("DRAM", "I", "F", "G", "O"), spread("p", "TP"), storage("RF", "T"), branches]
    document = {"arch": arch, "workload": workload, "mapping": {"nodes": nodes}}
    found = pm.compile(pm.load({**document, "symbols": {"TP": 1, "TY": 1}}))
    legal = found({"TP": [1, 1, 2, 2, 3, 3], "TY": [1, 2, 2, 3, 3, 4]})["legal"]
    assert list(legal) == [True, False, True, False, True, False]


CASES = [(True, 8, "live"), (True, 20, "tile"), (False, 20, "live"), (False, 8, "tile")]


@pytest.mark.slow
@pytest.mark.parametrize(("retained", "size", "allocation"), seeds(1, CASES))
def test_the_front_of_vgg_is_swept_by_closed_forms(
    retained: bool, size: int, allocation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its padded windows, nor what is live of them, nor verdicts ask for a point by itself."""
    spec, tiles = front(size, 1, retained=retained, allocation=allocation)
    tiles |= {name: sizes[-1:] for name, sizes in tiles.items() if name[:4] in ("MADE", "READ")}
    with monkeypatch.context() as patch:
        patch.delattr(run, "evaluate_points")
        swept = pm.sweep(spec, tiles, objectives=("energy", "latency"), keep="all")
    assert (swept.points, swept.notes) == ((size // 4) ** 2, ())
    check_rows(swept, 2 if size == 8 else 12)


@pytest.mark.slow
@pytest.mark.parametrize("right", seeds(1, [4096, 4]))
def test_factors_of_several_axes_equal_evaluate(right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is live depends on the tips and on the channels of one layer each: no axis has all of them."""
    spec, tiles = front(8, 1, retained=True, allocation="live")
    tiles |= {n: sizes[-1:] for n, sizes in tiles.items() if n[:4] != "TIP_" and n[5:] not in SWEPT[1:]}
    monkeypatch.setattr(axes, "MAX_TOGETHER", 1)
    monkeypatch.setattr(kernel, "RIGHT", right)
    assert [a.size for a in compiled(spec, tiles)[1].axes if a.size > 1] == [4, 4, 6]
    check_blocks(spec, tiles, count=3)


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["tile", "live"])
@pytest.mark.parametrize("retained", [True, False])
def test_drawn_points_of_the_front_of_vgg_equal_evaluate(retained: bool, allocation: str) -> None:
    """Every number of a row, with tiles of channels in some layers as well."""
    spec, tiles = front(16, 2, retained=retained, allocation=allocation)
    fixed = ("Conv1_1", "Pool1", "Conv2_1", "Conv2_2", "Conv3_1")
    tiles |= {name: sizes[:1] for name, sizes in tiles.items() if name[5:] in fixed}
    check_blocks(spec, tiles, count=40)
