"""The loop between tiler and model: figures decide, the answer is the best of its steps, time is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Pattern
from polymodel.tiling.tilers.trees import btree
from polymodel.tiling.tuning.tune import (
    OBJECTIVES,
    SEEDS,
    Ending,
    Figure,
    Proposal,
    Tuned,
    TuningSearch,
    edges_of,
    figure_of,
    tune,
)
from tests.faults import faults

MATRICES = Path(__file__).parent.parent / "data" / "matrices"


def matrix(name: str) -> Pattern:
    return pattern_of(read_tensor(MATRICES / f"{name}.mtx.gz"))


def drawn(data: st.DataObject, most: int = 12) -> Pattern:
    height, width = data.draw(st.integers(1, most)), data.draw(st.integers(1, most))
    places = st.lists(st.booleans(), min_size=height * width, max_size=height * width)
    a, b = (np.array(data.draw(places), dtype=int).reshape(height, width) for _ in "ab")
    return pattern_of(*(SparseTensor.from_dense(n, ("M", "N"), x) for n, x in (("A", a), ("B", b))))


def covered(found: Tuned, pattern: Pattern) -> np.ndarray:
    """How many tiles cover each place."""
    times = np.zeros(pattern.shape, dtype=int)
    for row, col, height, width in found.costs.cut.rects.table():
        times[row : row + height, col : col + width] += 1
    return times


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_partition_that_fits_and_is_the_best_of_all_steps(data: st.DataObject) -> None:
    pattern = drawn(data)
    op: Op = data.draw(st.sampled_from(["add", "multiply"]))
    fit: Fit = data.draw(st.sampled_from([Elements(2), Elements(5), Elements(40), Words(9), Words(30)]))
    launch = Launch(run=data.draw(st.sampled_from(["nonempty", "all"])))
    objective = data.draw(st.sampled_from(OBJECTIVES))
    found = tune(pattern, op, fit, objective, launch)
    assert (covered(found, pattern) == 1).all()
    assert not found.costs.overflowing
    steps = [s for s in found.steps if s.fits]
    assert found.chosen.figure == min(s.figure for s in steps) == found.steps[-1].best
    assert found.chosen.figure == figure_of(found.costs, objective)[0]
    tree = costs(pattern, btree(pattern, op, fit), op, fit, launch)
    assert found.chosen.figure <= figure_of(tree, objective)[0] == found.steps[0].figure
    assert found.bound <= found.chosen.figure
    assert found.bound_cycles <= found.costs.total_cycles


@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_nothing_is_drawn_by_chance(op: Op, objective: str) -> None:
    pattern = matrix("programme")
    one, two = (tune(pattern, op, Elements(128), objective) for _ in "12")
    assert [(s.proposal, s.why, s.figure) for s in one.steps] == [
        (s.proposal, s.why, s.figure) for s in two.steps
    ]
    assert (one.costs.cut.rects.table() == two.costs.cut.rects.table()).all()


def test_steps_tell_the_best_so_far_and_no_proposal_comes_twice() -> None:
    found = tune(matrix("programme"), "multiply", Elements(128))
    best = [s.best for s in found.steps]
    assert best == [min(s.figure for s in found.steps[: i + 1] if s.fits) for i in range(len(best))]
    assert [s.improved for s in found.steps] == [b < a for a, b in zip([10**9, *best], best, strict=False)]
    assert len({s.proposal for s in found.steps}) == len(found.steps)
    assert [s.number for s in found.steps] == list(range(1, len(found.steps) + 1))


# What the loop finds at 128 elements (configuration and run); the bounds of add are reached on all.
REACHED = {
    "diagonal": (45782, 31558),
    "chessboard": (30564, 19324),
    "matching": (14949, 11621),
    "pairs": (7577, 6745),
    "relations": (13972, 10644),
    "relations2": (18785, 15423),
}


@pytest.mark.parametrize("name", REACHED)
def test_the_bound_ends_the_loop_on_whole_matrices(name: str) -> None:
    found = tune(matrix(name), "add", Elements(128))
    tree, best = REACHED[name]
    assert (found.steps[0].figure, found.chosen.figure, found.bound) == (tree, best, best)
    assert found.ended == "the lower bound is reached"
    assert len(found.steps) == len(SEEDS)


def answered(figure: Callable[[Proposal], Figure], steps: int = 60) -> Iterator[Proposal]:
    """What is proposed when the model answers with `figure`."""
    search = TuningSearch(
        pattern_of(SparseTensor.from_dense("A", ("M", "N"), np.ones((300, 300), dtype=int)))
    )
    for _ in range(steps):
        idea = search.next()
        if idea is None:
            return
        search.record(idea[0], figure(idea[0]))
        yield idea[0]


def by_panels(least: int, family: str = "strips") -> Callable[[Proposal], Figure]:
    """A model to which `least` panels of one family are best, everything else far worse."""

    def figure(p: Proposal) -> Figure:
        first = 1000 + abs(p.panels - least) if p.family == family else 5000
        return first + (10 if not p.plain else 0), 1, 1

    return figure


@pytest.mark.parametrize("least", [1, 2, 3, 7, 24, 100])
@pytest.mark.parametrize("family", ["strips", "columns"])
def test_figures_lead_to_the_best_number_of_panels(least: int, family: str) -> None:
    """Doubling and closing in: about two steps per bit of the answer."""
    found = list(answered(by_panels(least, family)))
    assert Proposal(family, least) in found
    assert sum(p.family == family and p.plain for p in found) <= 3 + 4 * least.bit_length()


def test_a_hundred_panels_are_the_seventeenth_number() -> None:
    """As docs/tiling/feedback.md says."""
    tried = [p.panels for p in answered(by_panels(100)) if p.family == "strips" and p.plain]
    assert tried.index(100) == 16
    assert "are the 17th" in (MATRICES.parents[2] / "docs/tiling/feedback.md").read_text(encoding="utf-8")


def test_other_figures_lead_elsewhere() -> None:
    """The proposals after the seeds depend on nothing but the figures."""
    few, many = ([p.panels for p in answered(by_panels(n)) if p.family == "strips"] for n in (1, 100))
    assert max(few) == 2
    assert max(many) >= 100


def test_the_family_with_the_best_figure_is_refined() -> None:
    trees = list(answered(lambda p: (1000 if p.family == "btree" else 3000, 1, 1)))
    assert Proposal("btree", merge=True) in trees
    assert not [p for p in trees if p.panels > 1]
    merging = list(answered(lambda p: (1000 - 100 * p.merge - 10 * (16 - p.parts), 1, 1)))
    assert min(p.parts for p in merging if p.merge) < 15


def test_a_proposal_that_does_not_fit_is_told_and_passed_over() -> None:
    """Words for one entry: 7, so that 15/16 of them hold none."""
    pattern = pattern_of(SparseTensor.from_dense("A", ("M", "N"), np.eye(6, dtype=int)))
    found = tune(pattern, "multiply", Words(7), "tiles", ending=Ending(patience=99))
    wrong = [s for s in found.steps if not s.fits]
    assert wrong
    assert all(s.proposal.parts < 16 and not s.improved and not s.tiles for s in wrong)
    assert not found.costs.overflowing


def test_an_entry_that_fits_nowhere_is_a_fault() -> None:
    with faults("over-capacity", at=""):
        tune(pattern_of(SparseTensor.from_dense("A", ("M", "N"), np.eye(6, dtype=int))), "add", Words(6))


def ticking(*seconds: float) -> Callable[[], float]:
    """A clock by which each step takes so long, the last for good."""
    told: list[float] = []

    def clock() -> float:
        begun = len(told) % 2 == 0
        took = 0.0 if begun else seconds[min(len(told) // 2, len(seconds) - 1)]
        told.append((told[-1] if told else 0.0) + took)
        return told[-1]

    return clock


def test_time_spent_and_time_saved() -> None:
    """One run at 1 MHz takes 32.0 ms with the tree and 21.6 ms in the end; every step takes 0.5 s."""
    pattern, launch = matrix("programme"), Launch(clock_mhz=1)
    found = tune(pattern, "multiply", Elements(128), "total", launch, clock=ticking(0.5))
    assert found.seconds == pytest.approx(0.5 * len(found.steps))
    saved = (found.steps[0].total_cycles - found.costs.total_cycles) * 1e-6
    assert found.saved(found.steps[-1]) == pytest.approx(saved)
    assert found.saved(found.steps[0]) == 0
    runs = found.break_even
    assert runs is not None
    assert runs * saved >= 0.5 * (len(found.steps) - 1) > (runs - 1) * saved


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (Ending(budget=1.2), "the budget of 1.2 s is spent"),
        (Ending(runs=1), "1 runs could save"),
        (Ending(patience=1), "1 proposals in a row improved nothing"),
    ],
)
def test_each_ending(ending: Ending, said: str) -> None:
    """At 1 MHz and 0.5 s a step: after three steps the budget, after the seeds what one run could save."""
    pattern, launch = matrix("programme"), Launch(clock_mhz=1)
    found = tune(pattern, "multiply", Elements(128), "total", launch, ending, ticking(0.5))
    assert said in found.ended
    assert len(found.steps) == {1.2: 3}.get(ending.budget or 0, 2 if ending.runs else len(found.steps))


def test_enough_runs_are_worth_the_time() -> None:
    pattern = matrix("programme")
    many = tune(pattern, "multiply", Elements(128), ending=Ending(runs=10**12))
    assert len(many.steps) == len(tune(pattern, "multiply", Elements(128)).steps)


def test_endings_are_checked_all_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Ending(patience=0, budget=-1, runs=float("nan"))
    assert [d.message.split()[0] for d in caught.value.diagnostics] == ["patience", "budget", "runs"]
    assert all(d.remedy for d in caught.value.diagnostics)
    with faults("unknown-choice", "time", at=""):
        tune(matrix("relations"), "add", Elements(128), "time")  # type: ignore[arg-type]  # a wrong word on purpose


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 7)])
def test_empty_and_narrow_matrices(shape: tuple[int, int]) -> None:
    for dense in (np.zeros(shape, dtype=int), np.ones(shape, dtype=int)):
        pattern = pattern_of(SparseTensor.from_dense("A", ("M", "N"), dense))
        for op in ("add", "multiply"):
            found = tune(pattern, op, Elements(4))
            assert (covered(found, pattern) == 1).all()
            assert not found.costs.overflowing


def test_panels_hold_about_equally_many_entries() -> None:
    pattern = pattern_of(SparseTensor.from_dense("A", ("M", "N"), np.triu(np.ones((40, 40), dtype=int))))
    for by_columns, over in ((False, pattern.cols), (True, pattern.rows)):
        edges = edges_of(pattern, 4, by_columns)
        held = np.histogram(over, edges)[0]
        assert edges[0] == 0
        assert edges[-1] == 40
        assert held.max() - held.min() <= 2 * 40


@pytest.mark.parametrize("shape", [(10**12, 10**12), (10**12, 3), (1, 10**18)])
def test_planes_far_larger_than_their_points(shape: tuple[int, int]) -> None:
    """Lines without entries take no room, however panels are tried."""
    draw = np.random.default_rng(0)
    coords = np.unique(np.stack([draw.integers(0, n, 300) for n in shape]), axis=1)
    few = SparseTensor.from_coo("F", ("I", "J"), shape, coords, np.ones(coords.shape[1]))
    pattern = pattern_of(few)
    found = tune(pattern, "add", Words(60))
    assert found.costs.overflowing == 0
    assert found.chosen.figure <= found.steps[0].figure
    for by_columns, size in ((False, shape[1]), (True, shape[0])):
        edges = edges_of(pattern, 4, by_columns)
        assert (edges[0], edges[-1]) == (0, size)
        assert (np.diff(edges) > 0).all()
        held = np.histogram(pattern.rows if by_columns else pattern.cols, edges)[0]
        assert size < 4 or held.max() <= 2 * held.min()
