"""Tilers by name; the best is never worse than any; how near the bound it comes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import Refused, SpecError
from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, cost_bound, costs, lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects
from polymodel.tiling.tilers.named import NAMES, Make, Objective, cut
from tests.faults import every_fault
from tests.tiling import slow
from tests.tiling.test_strips import FITS, MATRICES, is_partition, operands

ALL = [*NAMES, *(f"{name}+{merging}" for name in NAMES for merging in ("merge", "fixpoint"))]
OBJECTIVES: tuple[Objective, ...] = ("tiles", "cycles", "total")


def figures(
    a: np.ndarray, b: np.ndarray, op: str, rects: Rects, launch: Launch
) -> dict[str, tuple[int, int]]:
    """What each objective counts, tile by tile from dense arrays."""
    table = [tuple(rect) for rect in rects.table()]
    launched = [r for r in table if launch.run == "all" or slow.can_run(a, b, r, op)]
    run = sum(slow.cycles(a, b, r, op) for r in launched)
    total = run + len(launched) * launch.config(op)  # type: ignore[arg-type]  # a drawn str
    return {"tiles": (len(launched), len(table)), "cycles": (run, len(launched)), "total": (total, 0)}


@pytest.mark.slow
@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.floats(0, 1.3),
    st.integers(0, 10**6),
    st.sampled_from(sorted(FITS)),
    st.sampled_from(["add", "multiply"]),
    st.integers(0, 25),
    st.sampled_from(["nonempty", "all"]),
)
@settings(max_examples=40, deadline=None)
def test_best_is_never_worse_than_any_tiler(
    shape: tuple[int, int], share: float, seed: int, kind: str, op: Op, room: int, run: str
) -> None:
    a, b, pattern = operands(*shape, share, seed)
    rule, name, least = FITS[kind]
    fit, launch = rule(least + room), Launch(run="all" if run == "all" else "nonempty")
    best = {o: cut(pattern, op, fit, "best", o, launch) for o in OBJECTIVES}
    reached = {o: figures(a, b, op, found.rects, launch)[o] for o, found in best.items()}
    for tiler in ALL:
        try:
            found = cut(pattern, op, fit, tiler, launch=launch)
        except Refused:
            assert "guillotine" in tiler
            continue
        is_partition(found, pattern)
        for rect in found.rects.table():
            assert slow.load(a, b, tuple(rect), (name, fit.capacity), op) <= fit.capacity
        theirs = figures(a, b, op, found.rects, launch)
        for objective in OBJECTIVES:
            assert reached[objective] <= theirs[objective], (objective, tiler, best[objective].tiler)


@pytest.mark.slow
def test_best_comes_near_the_bound() -> None:
    """Geometric mean of tiles / bound: add, 128 entries, all matrices."""
    ratios = []
    for path in sorted(MATRICES.glob("*.mtx.gz")):
        pattern, fit = pattern_of(read_tensor(path)), Elements(128)
        found = costs(pattern, cut(pattern, "add", fit, objective="tiles"), "add", fit)
        assert found.overflowing == 0
        ratios.append(found.tiles / lower_bound(pattern, "add", fit))
    assert len(ratios) == 13
    assert math.exp(sum(map(math.log, ratios)) / 13) <= 1.02


def test_best_says_what_won_and_what_others_reach() -> None:
    pattern = pattern_of(read_tensor(Path(MATRICES / "relations2.mtx.gz")))
    found = cut(pattern, "add", Elements(128), objective="tiles")
    assert found.tiler == "strips"
    assert found.notes[-1].startswith("best of all tilers by kernels: strips 16 (btree 20, ")
    assert "simple+fixpoint 25" in found.notes[-1]


def test_simple_with_many_empty_tiles_is_judged_without_making_them() -> None:
    """Two clusters far apart: 4 x 4 tiles of a plane of 4,000,000 a side."""
    side = 4_000_000
    coords = np.array([[0, 0, 1, side - 1], [0, 5, 9, side - 1]])
    pattern = pattern_of(SparseTensor.from_coo("A", ("I", "J"), (side, side), coords, np.ones(4)))
    for run in ("nonempty", "all"):
        launch = Launch(run="all" if run == "all" else "nonempty")
        found = cut(pattern, "add", Elements(2), "best", "cycles", launch)
        assert costs(pattern, found, "add", Elements(2), launch).overflowing == 0


@pytest.mark.parametrize(
    ("tiler", "message"),
    [
        ("strip", "did you mean strips"),
        ("btree+mrge", "did you mean merge"),
        ("btree+", "after btree"),
        ("", "tilers: simple, qtree"),
    ],
)
def test_unknown_names_are_told(tiler: str, message: str) -> None:
    _, _, pattern = operands(3, 3, 0.5, 1)
    with pytest.raises(SpecError, match=message):
        cut(pattern, "add", Elements(9), tiler)
    with every_fault(("unknown-choice", ""), ("unknown-choice", "")):
        cut(pattern, "add", Elements(9), tiler, "cycle")  # type: ignore[arg-type]  # wrong on purpose


def test_grids_reach_guillotine() -> None:
    _, _, pattern = operands(8, 8, 0.8, 1)
    assert "2 x 3 cells" in cut(pattern, "add", Elements(64), "guillotine", grid=(2, 3)).notes[0]


def test_tilers_that_cannot_win_are_left() -> None:
    """Where strips reach every bound the slow tilers are not made; what wins is the same."""
    tried: list[str] = []

    def noted(name: str, make: Make) -> Make:
        def made(pattern: Pattern, op: Op, fit: Fit) -> Cut:
            tried.append(name)
            return make(pattern, op, fit)

        return made

    a = SparseTensor.from_dense("A", ("I", "J"), np.eye(60))
    pattern = pattern_of(a, Alone())
    for objective in OBJECTIVES:
        tried.clear()
        found = cut(pattern, "add", Elements(10), "best", objective, watch=noted)
        assert found.tiles == 6
        assert not {"panels", "guillotine"} & set(tried)
        assert found.notes[-1].endswith("; panels, guillotine could not be better")
        reached = costs(pattern, found, "add", Elements(10))
        assert reached.kernels == cost_bound(pattern, "add", Elements(10), objective="tiles")
        assert reached.run_cycles == cost_bound(pattern, "add", Elements(10), objective="cycles")
        assert reached.total_cycles == cost_bound(pattern, "add", Elements(10))
    tried.clear()
    far = pattern_of(read_tensor(Path(MATRICES / "relations2.mtx.gz")))
    found = cut(far, "multiply", Elements(128), "best", watch=noted)
    assert found.tiler == "guillotine"
    assert {"panels", "guillotine"} <= set(tried)
    assert "could not be better" not in found.notes[-1]


def test_a_winner_that_cannot_be_listed_does_not_keep_the_others_from_winning() -> None:
    """Tiles of one place would launch least, but they are 10^12: `simple` refuses, `best` does not."""
    draw = np.random.default_rng(0)
    block = np.stack(np.divmod(np.arange(400), 20)) + 500_000
    scattered = [draw.integers(0, 10**6, (2, 100)) for _ in "ab"]
    both = [np.concatenate([block + 19 * n, scattered[n]], axis=1) for n in range(2)]
    a, b = (SparseTensor.from_coo("A", ("I", "J"), (10**6, 10**6), at, np.ones(500)) for at in both)
    pattern, fit = pattern_of(a, b), Elements(2)
    with pytest.raises(Refused):
        cut(pattern, "multiply", fit, "simple")
    rivals = ("qtree+merge", "btree+fixpoint", "strips", "columns", "panels")
    others = [costs(pattern, cut(pattern, "multiply", fit, name), "multiply", fit) for name in rivals]
    for objective, figure in zip(OBJECTIVES, ("kernels", "run_cycles", "total_cycles"), strict=True):
        best = costs(pattern, cut(pattern, "multiply", fit, "best", objective), "multiply", fit)
        assert best.overflowing == 0
        assert getattr(best, figure) <= min(getattr(other, figure) for other in others)


def test_best_says_who_refused_and_why() -> None:
    draw = np.random.default_rng(3)
    places = draw.choice(300 * 300, 21_000, replace=False)
    a = SparseTensor.from_coo("M", ("I", "J"), (300, 300), np.array(np.divmod(places, 300)), np.ones(21_000))
    note = cut(pattern_of(a, Alone()), "add", Elements(512)).notes[-1]
    looked = "guillotine looks at every cut of a grid; M has 21,000 places, more than 20,000"
    assert note.endswith(f"; guillotine refused ({looked})")
    assert "refused" not in cut(pattern_of(a, Alone()), "add", Elements(90_000)).notes[-1]
