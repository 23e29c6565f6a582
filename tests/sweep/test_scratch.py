"""Memory that blocks take from each other: figures as without it, and few pages asked from the system."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.pareto import Archive
from polymodel.sweeps import kernel as kernels
from polymodel.sweeps import metrics
from polymodel.sweeps.blocks import hopeful
from polymodel.sweeps.grid import make_grid, roles
from polymodel.sweeps.metrics import Block, need
from polymodel.sweeps.objectives import objective
from polymodel.sweeps.scenario import Scenario, scenario
from polymodel.sweeps.scratch import BlockMemory, Scratch
from tests.sweep.test_sweep import opened

ROOT = Path(__file__).resolve().parents[2]
PAGES = """
import resource
import polymodel as pm
from benchmarks.bench import CHAIN, grids

spec, symbols = grids()[CHAIN]
pm.sweep(spec, {**symbols, **{n: v[:2] for n, v in symbols.items()}})
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = pm.sweep(spec, {**symbols, "TM": [1]}, prune=False)
print(found.evaluated, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def compiled(arch: str, workload: str) -> Scenario:
    spec, values = opened(pm.load(arch, workload), most=5)
    grid = make_grid(spec, values, ())
    return scenario(spec, grid, roles(spec, grid), 0, "", 0, {})


def figures(
    block: Scenario, kernel: kernels.ArrayKernel, cut: slice, memory: BlockMemory | None
) -> list[bytes]:
    """Everything that is found of a few left combinations, to the last bit."""
    lefts = kernel.left(kernel.left_digits(0, kernel.height), kernel.height)
    rows = Block(kernel.rows, lefts, cut, slice(0, kernel.width), memory)
    shape = cut.stop - cut.start, kernel.width
    values: list[Any] = []
    for variant in block.variants:
        rows.memory.variant(shape)
        found, costing = variant.evaluator(rows), variant.costing
        names = ["energy", "latency", "edp", *(f"accesses:{c}" for c, _, _ in costing.accesses)]
        mine = [objective(n, found, rows, costing) for n in names]
        mine += [need(limit.phases, rows) for limit in costing.limits]
        front = Archive(2)
        every = np.stack([np.broadcast_to(v, shape).ravel() for v in mine[:2]])
        front.offer(every[:, ::7], np.arange(every.shape[1])[::7])
        both = [np.broadcast_to(v, shape) for v in mine[:2]]
        mine += [*found.fits, hopeful(front.landmarks, both, rows.memory.masks)]
        # What was found first is still there after all else was.
        values += [np.broadcast_to(v, shape).tobytes() for v in mine]
    return values


@pytest.mark.parametrize(
    ("arch", "workload"),
    [
        ("edge_npu", "matmul"),
        ("eyeriss_like", "conv2d"),
        ("simple_two_level", "attention"),
        ("simple_two_level", "matmul_chain_3/tiled_fused"),
    ],
)
def test_blocks_that_share_memory_find_the_same(
    arch: str, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "RIGHT", 8)
    monkeypatch.setattr(metrics, "MOST", 20)
    block, memory = compiled(arch, workload), BlockMemory()
    kernel = block.kernel
    assert kernel.height > 9
    for cut in (slice(0, 4), slice(4, 8), slice(8, 9), slice(0, 4), slice(0, 9)):
        assert figures(block, kernel, cut, memory) == figures(block, kernel, cut, None)


def test_arrays_are_used_again_once_they_are_back() -> None:
    scratch = Scratch(shape=(2, 3))
    first, second = scratch.array(), scratch.array()
    assert not np.shares_memory(first, second)
    scratch.back(first)
    scratch.back(np.ones((2, 3)))  # not from here
    assert np.shares_memory(scratch.array(), first)
    assert not np.shares_memory(scratch.array(), second)
    scratch.clear((1, 3))
    assert {a.shape for a in (scratch.array(), scratch.array())} == {(1, 3)}
    scratch.clear((4, 3))
    assert scratch.array().shape == (4, 3)


def test_only_what_is_from_here_is_overwritten() -> None:
    scratch = Scratch(shape=(2, 3))
    given, column = np.full((2, 3), 5.0), np.array([[1.0], [2.0]])
    doubled = scratch.apply(np.multiply, given, 2)
    assert scratch.into(np.add, given, column) is not given
    assert scratch.into(np.add, column, doubled) is doubled
    assert doubled.tolist() == [[11.0] * 3, [12.0] * 3]
    assert (given == 5).all()
    whole = np.full((2, 3), 2**60)
    assert scratch.apply(np.add, whole, 1).dtype == np.int64
    assert scratch.into(np.add, doubled, whole).tolist() == (doubled + whole).tolist()
    assert scratch.into(np.add, 1.5, 2.5) == 4


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted as Linux does")
def test_a_fresh_process_asks_for_few_pages() -> None:
    plain = {n: v for n, v in os.environ.items() if not n.startswith("MALLOC_")}
    done = subprocess.run(
        [sys.executable, "-c", PAGES],
        env=plain,
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    points, faults = map(int, done.stdout.split())
    assert points > 10**6
    assert faults < points / 250  # it was one for every 33 points while each block had arrays of its own
