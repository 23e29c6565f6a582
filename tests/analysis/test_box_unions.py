"""Stencils in time along several ranks: unions of boxes are counted by marks as if points were listed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.exact import lifetimes
from polymodel.analysis.symbolic import listings
from polymodel.analysis.symbolic.atoms import ChainLevel
from polymodel.analysis.symbolic.box_unions import coordinates, sizes_at, tiles_touched
from polymodel.analysis.symbolic.listings import BuffetLoops, Listing, values_of
from polymodel.analysis.symbolic.needed_sets import rows_of
from polymodel.analysis.symbolic.regions import BoxUnion, LoopStep, Region, Tiles, Turn
from tests.analysis.test_agreement import differences
from tests.support.small_specs import leaf, loop, memory, storage, unit

Sizes = tuple[Tiles, ...]


def plane(size: int, steps: int, boundary: object) -> dict[str, Any]:
    """A heated plate in explicit steps."""
    reads = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
    einsum = {
        "name": "U",
        "operations": {"map": "_0 + (_1 + _2 + _3 + _4 - 4 * _0) / 8"},
        "tensor_accesses": [
            *({"name": "U", "projection": {"T": "t", "X": f"x + {i}", "Y": f"y + {j}"}} for i, j in reads),
            {"name": "U", "projection": {"T": "t + 1", "X": "x", "Y": "y"}, "output": True},
        ],
    }
    return {
        "rank_sizes": {"T": steps, "X": size, "Y": size},
        "bits_per_value": {"All": 8},
        "einsums": [einsum],
        "init": {"U": "U0"},
        "boundary": {"U": boundary},
    }


def tiled(
    size: int, steps: int, boundary: object, chain: Chain, reuse: str = "refill", **more: Any
) -> pm.Spec:
    held = ["U", "U0", *(["E"] if boundary == "E" else [])]
    nodes = [
        storage("DRAM", *held),
        *(loop(v, tile) for v, tile in chain),
        storage("GLB", *held, reuse=reuse),
        leaf("U"),
    ]
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, **more), unit()]}
    work = plane(size, steps, boundary)
    return pm.load({"symbols": {"S": None}, "arch": arch, "workload": work, "mapping": {"nodes": nodes}})


Chain = list[tuple[str, Any]]
LOOPS: tuple[Chain, ...] = (
    [("t", 1), ("x", "S")],
    [("t", "S")],
    [("t", 1), ("x", 3), ("y", "S")],
    [("t", 2), ("t", 1), ("y", "S"), ("x", 2)],
)
LARGE = (*LOOPS[:2], [("t", 20), ("t", 1), ("y", "S"), ("x", 128)])


@pytest.mark.parametrize("boundary", [0, "U0", "E"])
@pytest.mark.parametrize("reuse", ["refill", "slide", "keep_previous"])
@pytest.mark.parametrize("loops", LOOPS)
@pytest.mark.thin(6)
def test_a_plate_has_closed_forms(loops: Chain, reuse: str, boundary: object) -> None:
    spec = tiled(7, 4, boundary, loops, reuse)
    found = pm.closed_forms(spec).analysis
    for tile in (1, 2, 3, 4):
        walked = pm.evaluate(spec.bind(S=tile), engine="enumerate").analysis
        assert not differences(found.at({"S": tile}), walked)


@pytest.mark.parametrize("loops", LARGE)
def test_a_large_plate_in_many_steps_is_not_listed(loops: Chain) -> None:
    """26 million points; engine exact counts pieces."""
    spec = tiled(512, 100, "U0", loops)
    found = pm.closed_forms(spec).analysis
    for tile in (20, 64):
        counted = pm.evaluate(spec.bind(S=tile), engine="exact").analysis
        assert not differences(found.at({"S": tile}), counted)
    # Each step reads what it reads, once for each tile of 64 rows: these and their two neighbours, which at
    # the edges are not made.
    rows = tiled(512, 100, "U0", [("t", 1), ("x", 64)]).bind(S=1)
    traffic = pm.evaluate(rows).analysis.traffic
    (moved,) = (t for t in traffic if (t.component, t.tensor) == ("DRAM", "U"))
    assert moved.reads_fill == 99 * 510 * (510 + 2 * 7)
    assert moved.writes_drain == 100 * 510**2


# Against listing the points.


def union(pick: Random) -> tuple[BoxUnion, Region]:
    """Some accesses, each within a box, and the same as points within bounds."""
    extents = [pick.randint(1, 6) for _ in range(pick.randint(1, 3))]
    many, own = pick.randint(1, 4), len(extents)
    guards = [
        tuple((pick.choice((0, 0, 1)), n - 1 - pick.choice((0, 0, 1))) for n in extents) for _ in range(many)
    ]
    bounds = [(*(0,) * own, *(-1,) * (many - 1), 1)] if many > 2 else []
    for a, guard in enumerate(guards):
        ends = [(k, s, c) for k, (low, high) in enumerate(guard) for s, c in ((1, -low), (-1, high))]
        for k, sign, constant in ends:
            least = min(0, sign * (extents[k] - 1)) + constant
            free = [least * (n == a) if a else -least for n in range(1, many)]
            factors = [sign * (n == k) for n in range(own)]
            bounds += [(*factors, *free, constant - least * bool(a))] if least < 0 else []
    every = (*extents, *(2,) * (many - 1))
    return BoxUnion(every, tuple(bounds), tuple(guards)), Region(every, tuple(bounds))


def ranks_and_tiles(pick: Random, region: BoxUnion) -> tuple[tuple[tuple[int, ...], ...], Sizes]:
    own, numbers = region.own, len(region.extents) - region.own
    ranks = []
    for v in pick.sample(range(own), pick.randint(0, own)):
        factors = [pick.choice((1, 2)) * (k == v) for k in range(own)]
        ranks.append((*factors, *(pick.choice((0, 0, 1, -1)) for _ in range(numbers))))
    tiles = []
    for extent in region.extents[:own]:
        mine, size = [], extent
        for _ in range(pick.randint(0, 2)):
            size = pick.randint(1, size)
            mine.append((pick.randint(1, size), size))
        tiles.append(tuple(mine))
    return tuple(ranks), (*tiles, *((),) * numbers)


def turns(pick: Random, tiles: Sizes, uses: tuple[Any, ...], spatial: bool) -> tuple[Turn, ...]:
    order = [k for k, mine in enumerate(tiles) for _ in mine]
    pick.shuffle(order)
    return tuple(Turn(k, spatial and pick.random() < 0.3, pick.choice(uses)) for k in order)


def asked(pick: Random, ranks: Any, tiles: Sizes) -> Listing:
    """What a `Listing` may be asked, but for its region."""
    loops = tuple((ChainLevel(1, "each"),) * len(mine) for mine in tiles)
    kind = pick.choice(("count", "step", "settled"))
    uses = {"count": ("keep", "merge", "most", 0, 1), "step": ("keep", "keep", "merge"), "settled": ("keep",)}
    every = turns(pick, tiles, uses[kind], kind == "count")
    step = None
    if kind != "count" and every:
        step = LoopStep(pick.randrange(len(every)), kind == "settled" or pick.random() < 0.7)
    return Listing(Region((), ()), loops, ranks, every, (), step, kind == "settled" and step is not None)


@pytest.mark.parametrize("seed", range(3))
def test_marks_count_what_listed_points_do(seed: int) -> None:
    pick, compared = Random(seed), 0
    while compared < 300:
        boxes, points = union(pick)
        ranks, tiles = ranks_and_tiles(pick, boxes)
        rows = rows_of(points, tiles, [], [True] * len(tiles)).values
        if not len(rows):
            continue  # no access touches anything
        compared += 1
        assert coordinates(boxes, ranks) is not None
        one = asked(pick, ranks, tiles)
        both = [replace(one, region=region).number(*tiles) for region in (boxes, points)]
        assert both[0] == both[1], (boxes, one, tiles)
        if ranks:
            assert values_of(boxes, ranks[0]) == values_of(points, ranks[0])
        buffets = tuple(BuffetLoops(tuple(pick.randint(0, len(t)) for t in tiles), ranks) for _ in range(2))
        peaks = [listings._peaks(region, tiles, buffets) for region in (boxes, points)]
        assert peaks[0] == peaks[1], (boxes, buffets, tiles)


@pytest.mark.parametrize("seed", range(3))
def test_marks_find_the_sizes_of_single_tiles(seed: int) -> None:
    pick = Random(seed)
    for _ in range(100):
        boxes, points = union(pick)
        ranks, tiles = ranks_and_tiles(pick, boxes)
        order = [t.variable for t in turns(pick, tiles, ("keep",), False)]
        seen = [0] * len(tiles)
        loops = []
        for v in order:
            loops.append((v, seen[v]))
            seen[v] += 1
        rows = rows_of(points, tiles, order, [True] * len(tiles))
        stamps = sorted({tuple(row) for row in rows.counters.tolist()})
        touched = tiles_touched(boxes, [tiles], loops)
        assert touched is not None
        found = touched[0]
        assert sorted(map(tuple, found.tolist())) == stamps
        held: dict[tuple[int, ...], set[tuple[int, ...]]] = {stamp: set() for stamp in stamps}
        for row, point in zip(rows.counters.tolist(), rows.values.tolist(), strict=True):
            index = (sum(f * x for f, x in zip(rank, point, strict=True)) for rank in ranks)
            held[tuple(row)].add(tuple(index))
        sizes = sizes_at(boxes, ranks, [tiles], loops, np.insert(found, 0, 0, axis=1))
        assert sizes is not None
        assert sizes.tolist() == [len(held[tuple(stamp)]) for stamp in found.tolist()]


@pytest.mark.parametrize("boundary", [0, "U0", "E"])
def test_lifetimes_of_a_plate_are_not_listed(boundary: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """`U0` is read by nine accesses: before the first step, and beyond four edges."""

    def listed(*_: object) -> None:
        raise AssertionError("operations are listed one by one")

    monkeypatch.setattr(lifetimes, "_LISTED", 0)
    monkeypatch.setattr(lifetimes, "live_counts", listed)
    for loops in ([("t", 1), ("x", 2)], [("t", 2)], [("t", 1), ("y", 2), ("x", 3)]):
        spec = tiled(7, 4, boundary, loops, allocation="live")
        counted, walked = (pm.evaluate(spec, engine=e).analysis for e in ("exact", "enumerate"))
        assert not differences(counted, walked)
        assert any(w.measure == "live" for w in counted.working_sets)


def test_a_large_plate_needs_room_for_what_is_alive() -> None:
    """A generation in the backing storage, and two rows on chip, whatever the number of steps."""
    spec = tiled(512, 100, "U0", [("t", 1), ("x", 128)], allocation="live")
    found = pm.evaluate(spec).analysis.working_sets
    sizes = {w.component: w.bits for w in found if w.measure == "live"}
    assert sizes == {"DRAM": 2101208, "GLB": 8184}
