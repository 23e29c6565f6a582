"""Exact predictions against the walk: balance, lock-step, traffic and steps on small random tensors."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.sparse.execute.run import run
from polymodel.sparse.tensaurus.machine import KERNELS, LOOPS, Machine, Tiles
from polymodel.sparse.tensaurus.predict import tensaurus
from polymodel.sparse.tensaurus.report import TensaurusReport
from polymodel.sparse.tensaurus.statistics import FiberCounts, tile_times
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.tensaurus.walked import points, stages, walk

SMALL = Machine(rows=3, columns=2, vlen=2, olen=2)


def random_tensor(shape: tuple[int, ...], nnz: int, seed: int) -> SparseTensor:
    rng = np.random.default_rng(seed)
    # Squared, so that low coordinates are more frequent: rows differ.
    coords = [(rng.random(nnz) ** 2 * s).astype(np.int64) for s in shape]
    return SparseTensor.from_coo("A", "IJK"[: len(shape)], shape, np.array(coords), np.ones(nnz))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, SparseTensor, dict[str, int], Tiles]:
    kernel = draw(st.sampled_from(sorted(KERNELS)))
    known = KERNELS[kernel]
    shape = tuple(draw(st.integers(1, 20)) for _ in known.ranks)
    tensor = random_tensor(shape, draw(st.integers(0, 60)), draw(st.integers(0, 99)))
    dense = {r: draw(st.integers(1, 7)) for r in known.dense}
    sizes = dict(zip(("i", "j", "k"), (*shape, 1), strict=False))
    tiles = {r: draw(st.integers(1, n)) for r, n in sizes.items()}
    tiles["across"] = draw(st.integers(1, min(4, dense.get(known.across, 1))))
    tiles["kept"] = draw(st.integers(1, min(2, dense.get(known.kept, 1))))
    order = tuple(draw(st.permutations(LOOPS))) if draw(st.booleans()) else LOOPS
    return kernel, tensor, dense, Tiles(**tiles, order=order)


@given(cases(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_everything_equals_the_walk(case: tuple[str, SparseTensor, dict[str, int], Tiles], own: bool) -> None:
    kernel, tensor, dense, tiles = case
    report = tensaurus(kernel, tensor, **dense, machine=SMALL, tiles=tiles, slices="own" if own else "kept")
    walked = walk(report, tensor)
    ours = Counter({(f.memory, f.way, f.tensor): f.elements for f in report.flows})
    assert {k: n for k, n in ours.items() if n} == {k: n for k, n in walked.moved.items() if n}
    assert report.steps == walked.steps
    assert report.executed == walked.multiplies
    across = -(-report.nest.sizes["across"] // SMALL.width)
    for stage, theirs in zip(report.stages, stages(kernel, tensor, SMALL.rows, own), strict=True):
        each = across * (report.nest.sizes["kept"] if stage.einsum == "Y" else 1)
        assert stage.loads == theirs["loads"]
        assert stage.lockstep == theirs["lockstep"] * each
        assert stage.slip == max(stage.loads) * each
        assert stage.lower <= stage.largest <= stage.upper + 1e-9
        assert stage.label == stage.lockstep_label == "exact"


@given(cases())
@settings(max_examples=60, deadline=None)
def test_multiplies_are_effectual_pairs(case: tuple[str, SparseTensor, dict[str, int], Tiles]) -> None:
    kernel, tensor, dense, tiles = case
    report = tensaurus(kernel, tensor, **dense, machine=SMALL, tiles=tiles)
    fibers = {p[:2] for p in points(tensor)}
    across, kept = report.nest.sizes["across"], report.nest.sizes["kept"]
    counted = sum(1 for _ in points(tensor) for _ in range(across))
    if len(tensor.shape) == 3:
        counted += sum(1 for _ in fibers for _ in range(across * kept))
    assert report.multiplies == counted
    assert report.executed >= report.multiplies


@pytest.mark.parametrize("slices", ["own", "kept"])
@pytest.mark.parametrize("kernel", sorted(KERNELS))
@pytest.mark.thin(5)
def test_stages_are_those_of_the_executed_specification(kernel: str, slices: Literal["own", "kept"]) -> None:
    """The packaged TeAAL spec, run on data by the executor, which shares nothing with the closed forms."""
    teaal = pm.load(f"tensaurus/{kernel.lower()}").teaal
    assert teaal is not None
    known = KERNELS[kernel]
    tensor = random_tensor((37, 21, 19)[: known.order], 300, 3)
    dense = dict(zip(known.dense, (40, 9), strict=False))
    sizes = {**dict(zip(known.ranks, tensor.shape, strict=True)), **dense}
    others = {
        name: np.ones([sizes[r] for r in teaal.declaration[name]]) for name in teaal.inputs if name != "A"
    }
    executed = run(teaal, {"A": tensor, **others}, slices=slices)
    report = tensaurus(kernel, tensor, **dense, slices=slices)
    assert report.multiplies == sum(e.multiplies for e in executed.einsums)
    for ours, theirs in zip(report.stages, executed.einsums, strict=True):
        assert theirs.times is not None
        assert (ours.einsum, ours.multiplies) == (theirs.einsum, theirs.multiplies)
        assert (ours.slip, ours.lockstep) == (theirs.times.slip, theirs.times.lock_step)
        assert ours.imbalance == pytest.approx(theirs.times.imbalance)


def test_bits_are_those_of_the_widths() -> None:
    tensor = random_tensor((12, 10, 9), 80, 1)
    report = tensaurus("MTTKRP", tensor, machine=Machine(data_bits=16, index_bits=8))
    for flow in report.flows:
        each = 16 + 2 * 8 if flow.tensor == "A" else 16
        assert flow.bits == flow.elements * each
    assert report.hbm_bytes * 8 == sum(f.bits for f in report.flows if f.memory == "HBM")


def test_many_tiles_side_by_side_equal_one_by_one() -> None:
    """Above 64 tiles lanes are dealt for all tiles together."""
    tensor = random_tensor((40, 40, 40), 3000, 4)
    slices = FiberCounts(tensor).slices((5, 4, 7))
    both = tile_times(slices, 8, 1)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(slices.tile) > 0)))
    assert starts.size > 64
    for n, (a, b) in enumerate(zip(starts, [*starts[1:], slices.number], strict=True)):
        part = type(slices)(slices.tile[a:b], slices.nnz[a:b], slices.fibers[a:b])
        alone = tile_times(part, 8, 1)
        assert (alone.entries[0], alone.steps[0]) == (both.entries[n], both.steps[n])


def summary(report: TensaurusReport) -> dict[str, object]:
    return {r.name: r.value for r in report.rows()}


def test_an_empty_tensor_costs_its_operands_and_output() -> None:
    report = tensaurus("SpMM", random_tensor((20, 30), 0, 0), K=8)
    assert report.multiplies == report.steps == 0
    assert report.moved("HBM", "A") == 0
    assert report.moved("HBM", "B") == 30 * 8 * 32
    assert report.moved("HBM", "Y") == 20 * 8 * 32
    assert report.gops == 0
    assert summary(report)["nonzeros"] == 0


@pytest.mark.parametrize("kernel", ["SpMM", "SpMV"])
def test_the_temporary_register_is_bypassed_without_an_intermediate(kernel: str) -> None:
    report = tensaurus(kernel, random_tensor((20, 30), 50, 0))
    assert not [f for f in report.flows if f.memory == "TSR"]
    assert [s.einsum for s in report.stages] == ["Y"]
    factored = tensaurus("MTTKRP", random_tensor((20, 30, 10), 50, 0))
    assert factored.moved("TSR") > 0
    assert [s.einsum for s in factored.stages] == ["T", "Y"]
