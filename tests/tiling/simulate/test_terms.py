"""Simulated tiles: results are right, and cycles are those that the rules come to, in every term.

The model is exact where no token is waited for; every difference has its cause among the terms.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.report.tiling.simulation import CAUSES, TileSimulation
from polymodel.tiling.cost.blocks import TERMS, Kind
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul import streams
from polymodel.tiling.simulate import launched
from polymodel.tiling.simulate.dataflows import SimulatedTile, TileOperand, simulate
from polymodel.tiling.simulate.terms import TileTerms, by_rule, measured, modelled
from tests.faults import refused

KINDS: tuple[Kind, ...] = ("add", "multiply", "spmv", "spmm")
DIFFER: dict[Kind, set[str]] = {
    "add": {"waiting"},
    "multiply": {"waiting"},
    "spmv": {"entries", "ends", "waiting"},
    "spmm": {"ends", "waiting", "sending", "ramp"},
}


def operand(dense: np.ndarray) -> TileOperand:
    rows, cols = np.nonzero(dense)
    return TileOperand(rows, cols, dense[rows, cols].tolist(), (dense.shape[0], dense.shape[1]))


def drawn(rng: np.random.Generator, shape: tuple[int, int], share: float) -> np.ndarray:
    return np.where(rng.random(shape) < share, rng.integers(1, 9, shape), 0).astype(float)


def factors(rng: np.random.Generator, kind: Kind, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Two operands of random sizes and shares of entries, sparse ones more often."""
    i, k, j = (int(n) for n in rng.integers(1, most, 3))
    other = {"add": (i, k), "multiply": (i, k), "spmv": (k, 1), "spmm": (k, j)}[kind]
    return drawn(rng, (i, k), rng.random() ** 2), drawn(rng, other, rng.random() ** 2)


def result(tile: SimulatedTile, shape: tuple[int, int]) -> np.ndarray:
    found = np.zeros(shape)
    np.add.at(found, (list(tile.rows), list(tile.cols)), tile.values)
    return found


def check(kind: Kind, a: np.ndarray, b: np.ndarray) -> tuple[TileTerms, TileTerms]:
    one, other = operand(a), operand(b)
    tile = simulate(kind, one, other)
    wanted = a + b if kind == "add" else a * b if kind == "multiply" else a @ b
    assert np.array_equal(result(tile, wanted.shape), wanted)
    found, model = measured(tile), modelled(kind, one, other, Launch())
    assert found == by_rule(kind, one, other)
    assert found.cycles == tile.cycles
    useful = (a.any() or b.any()) if kind == "add" else (a.any() and b.any())
    if useful:
        assert {term for term in TERMS if getattr(found, term) != getattr(model, term)} <= DIFFER[kind]
    return model, found


@pytest.mark.parametrize("kind", KINDS)
def test_cycles_follow_from_the_data(kind: Kind) -> None:
    rng = np.random.default_rng(7)
    for _ in range(12):
        check(kind, *factors(rng, kind, 12))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_cycles_of_200_random_tiles_follow_from_the_data(kind: Kind) -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        check(kind, *factors(rng, kind, 40))


def test_the_model_is_exact_where_no_token_is_waited_for() -> None:
    """Operands whose rows begin and end at the same columns: every row's end is known in time."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        sides = [drawn(rng, (9, 8), 0.4) for _ in range(2)]
        for side in sides:
            side[:, [0, -1]] = 1
        for kind in KINDS[:2]:
            model, found = check(kind, *sides)
            assert model == found


def test_a_tile_without_a_result_takes_the_ten_cycles_of_the_model() -> None:
    """What Tiler-Swift's charts say of empty tiles comes out of the blocks."""
    none = np.zeros((3, 4))
    for kind in KINDS[:2]:
        model, found = check(kind, none, none)
        assert (model.cycles, found.cycles) == (10, 10)


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_tiles_without_a_result_have_causes_in_their_terms(op: str) -> None:
    """Their end was in no term of the model, so that `ends` and `ramp` differed without a cause."""
    a = pm.random_tensor(["I", "J"], [30, 30], 0.02, seed=3)
    ran = pm.tile(a, op=op, fit=pm.elements(3), tiler="qtree", launch=Launch(run="all")).simulate()
    empty = [x for x in ran.tiles_run if not (x.nnz_a and x.nnz_b if op == "multiply" else x.nnz_a + x.nnz_b)]
    assert len(empty) >= 4
    assert {(x.modelled.entries, x.modelled.ends, x.modelled.waiting, x.modelled.ramp) for x in empty} == {
        (0, 1, 1, 8)
    }
    assert set(ran.terms["term"][ran.terms["difference"] != 0]) <= {"waiting"}
    assert not any(ran.causes(x) for x in empty if not x.nnz_a + x.nnz_b)


def cuttings(rng: np.random.Generator) -> Iterator[TileSimulation]:
    """Random tiles of every dataflow, under the model of cycles that is the default."""
    for kind, columns in (("add", 0), ("multiply", 0), ("spmv", 1), ("spmm", 40)):
        share, seed = float(rng.uniform(0.08, 0.2)), int(rng.integers(99))
        a = pm.random_tensor(["I", "K"], [150, 130], share, seed=seed)
        if not columns:
            fit = pm.elements(int(rng.integers(4, 9)))
            yield pm.tile(a, op=kind, fit=fit, launch=Launch(run="all")).simulate(seed=seed)
            continue
        b = pm.random_tensor(["K", "J"], [130, columns], float(rng.uniform(0.05, 0.9)), seed=1)
        yield pm.tile_matmul(a, b, tile=(7, 9, min(columns, 5))).simulate(seed=seed)


@pytest.mark.slow
def test_each_of_200_random_tiles_takes_the_models_cycles_or_has_a_cause() -> None:
    """Tile by tile, term by term, and without any rule of blocks in the model."""
    for ran in cuttings(np.random.default_rng(21)):
        check_causes(ran)
        assert len(ran.tiles_run) == 200, ran.kind


def check_causes(ran: TileSimulation) -> None:
    assert ran.unexplained == 0
    for row, x in zip(ran.tiles.to_dict("records"), ran.tiles_run, strict=True):
        away = {term: row[f"{term}_difference"] for term in TERMS}
        assert row["simulated"] - row["model"] == sum(away.values())
        named = [CAUSES[ran.kind][term] for term in TERMS if away[term]]  # a KeyError: a term without a cause
        assert row["cause"] == "; ".join(named) == ran.causes(x)


def test_tiles_of_a_cutting() -> None:
    a = pm.random_tensor(["I", "J"], [16, 12], 0.2, seed=4)
    cut = pm.tile(a, op="multiply", fit=pm.elements(8), tiler="qtree", launch=Launch(run="all"))
    found = cut.simulate()
    assert (found.launches, len(found.tiles_run)) == (cut.costs.kernels, cut.costs.kernels)
    assert [x.modelled.cycles for x in found.tiles_run] == cut.costs.cycles.tolist()
    assert found.unexplained == 0
    some = cut.simulate(most=10, seed=2)
    assert len(some.tiles_run) == 10
    by_tile = {x.tile: x for x in found.tiles_run}
    assert all(x == by_tile[x.tile] for x in some.tiles_run)
    assert [x.tile for x in some.tiles_run] != [x.tile for x in cut.simulate(most=10).tiles_run]


@pytest.mark.parametrize("strategy", ["uniform", "panels", "dynamic", "overbooked"])
def test_launches_of_a_product(strategy: str) -> None:
    """All launches together do every multiply once, whichever way the product is cut."""
    a = pm.random_tensor(["I", "K"], [20, 24], 0.15, seed=5)
    b = pm.random_tensor(["K", "J"], [24, 18], 0.15, seed=6)
    found = pm.tile_matmul(a, b, capacity=64, strategy=strategy)  # type: ignore[arg-type]  # a parameter
    ran = found.simulate(most=10**4)
    assert (ran.launches, len(ran.tiles_run)) == (found.best.launches, found.best.launches)
    assert sum(x.simulated.entries for x in ran.tiles_run) == found.product.multiplies
    assert ran.unexplained == 0
    vector = pm.tile_matmul(a, pm.random_tensor(["K", "J"], [24, 1], 0.9, seed=7), capacity=64)
    assert vector.simulate().kind == "spmv"


def test_what_cannot_be_simulated_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = pm.tile(pm.random_tensor(["I", "J"], [20, 20], 0.2, seed=4), fit=pm.elements(16))
    with pytest.raises(SpecError, match=r"most=0 is not a positive integer\n.*\n.*seed='x' is not a whole"):
        cut.simulate(most=0, seed="x")  # type: ignore[arg-type]  # what is refused
    with refused("unsupported-shape", "A"):
        pm.tile(pm.random_tensor(["I", "J", "K"], [5, 5, 5], 0.2, seed=1), fit=pm.elements(64)).simulate()
    monkeypatch.setattr(launched, "CYCLES", 50)
    with refused("too-large", "50"):
        cut.simulate()


@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("run", ["all", "nonempty"])
def test_a_cutting_takes_the_simulated_cycles_when_blocks_are_counted(op: str, run: str) -> None:
    a = pm.random_tensor(["I", "J"], [14, 11], 0.25, seed=8)
    launch = Launch(run=run, cycles="blocks")  # type: ignore[arg-type]  # is a parameter
    cut = pm.tile(a, op=op, fit=pm.elements(12), tiler="qtree", launch=launch)
    ran = cut.simulate()
    assert ran.equal == len(ran.tiles_run) == cut.costs.kernels
    assert cut.costs.run_cycles == ran.cycles
    assert cut.costs.total_cycles >= cut.cycles_bound


@pytest.mark.parametrize("columns", [1, 18])
@pytest.mark.parametrize("strategy", ["uniform", "panels", "dynamic"])
def test_a_product_takes_the_simulated_cycles_when_blocks_are_counted(strategy: str, columns: int) -> None:
    a = pm.random_tensor(["I", "K"], [20, 24], 0.15, seed=5)
    b = pm.random_tensor(["K", "J"], [24, columns], 0.3, seed=6)
    launch = Launch(cycles="blocks", config_multiply=0)
    how = {"capacity": 80, "strategy": strategy, "launch": launch, "bandwidth": 1e6}
    found = pm.tile_matmul(a, b, **how)  # type: ignore[arg-type]  # arguments of several types
    ran = found.simulate(most=10**4)
    assert ran.equal == len(ran.tiles_run) == found.best.launches
    assert found.best.cycles == ran.cycles


def test_pieces_of_launches_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    a = pm.random_tensor(["I", "K"], [20, 24], 0.15, seed=5)
    b = pm.random_tensor(["K", "J"], [24, 18], 0.3, seed=6)
    source = pm.tile_matmul(a, b, tile=(7, 6, 5)).best.source
    whole = streams.launch_cycles(source)
    monkeypatch.setattr(streams, "_PIECE", 3)
    assert np.array_equal(streams.launch_cycles(source), whole)


def test_blocks_are_asked_for_where_they_are_known() -> None:
    a = pm.random_tensor(["I", "J", "K"], [6, 6, 6], 0.2, seed=1)
    square = pm.random_tensor(["I", "K"], [6, 6], 0.3, seed=1)
    blocks = Launch(cycles="blocks")
    with refused("unsupported-shape"):
        _ = pm.tile(a, launch=blocks).costs.run_cycles
    for call in (
        lambda: Launch(cycles="blocks", ramp=9),
        lambda: Launch(cycles="stops"),  # type: ignore[arg-type]  # none of the words
        lambda: pm.tile_matmul(square, square, capacity=64, launch=blocks, pes=2),
        lambda: pm.estimate_tiling(pm.Uniform.of(["I", "J"], [9, 9], density=0.1), launch=blocks),
        lambda: pm.tile_chain(square, square, square, capacity=64, launch=blocks),
        lambda: pm.tiler_swift_comparison([square], launch=blocks),
        lambda: pm.tile(square, launch=blocks, compat="tiler-swift"),
    ):
        with pytest.raises(SpecError, match="cycles"):
            call()


def test_cycles_that_searches_begin_with_are_no_more_than_those_of_blocks() -> None:
    """Searches leave out shapes by one cycle a multiply and the ramp of tokens."""
    a = pm.random_tensor(["I", "K"], [20, 24], 0.15, seed=5)
    for columns in (1, 18):
        b = pm.random_tensor(["K", "J"], [24, columns], 0.3, seed=6)
        found = pm.tile_matmul(a, b, tile=(7, 6, 5 if columns > 1 else 1), launch=Launch(cycles="blocks"))
        machine, best = found.asked.machine, found.best
        least = machine.cycles(found.product.multiplies, best.traffic.words, best.launches)
        assert least <= best.cycles
