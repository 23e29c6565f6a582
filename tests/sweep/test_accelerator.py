"""Sweeps on an accelerator: JAX's own processor device stands in for one, and the results are the same."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from benchmarks.tied import causal, layer
from polymodel.libraries import installed
from tests.faults import faults
from tests.sweep.small import OBJECTIVES, SYMBOLS, matmul, written
from tests.sweep.test_legal import FUSED, SHARED
from tests.sweep.test_prune import OBJECTIVES as EVERY
from tests.sweep.test_prune import sweeps
from tests.sweep.test_wide_counts import TILES
from tests.sweep.test_wide_counts import spec as wide

SMALL = {"FEWEST": 1, "POINTS": 2000, "PIECE": 64, "SEEDS": 20, "MANY": 50, "SAMPLED": 5, "MARKS": 2}
MISSING = "the extra `accelerator` is not installed"
needs_jax = pytest.mark.skipif(not installed("jax"), reason=MISSING)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> Any:
    return on_first_device(monkeypatch)


def on_first_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, with JAX's first device in the place of a GPU, and small blocks for it."""
    jax = pytest.importorskip("jax", reason=MISSING)

    from polymodel.sweeps import accelerator

    monkeypatch.setattr(accelerator, "gpu", lambda: jax.devices()[0])
    for name, value in SMALL.items():
        monkeypatch.setattr(accelerator, name, value)
    return accelerator


def same(spec: pm.Spec, symbols: Any, **asked: Any) -> pm.Sweep:
    """A sweep on the device, which evaluates all of it, after comparing it with that of the processor."""
    found = pm.sweep(spec, symbols, prune=False, device="gpu", **asked)
    assert not any("processor" in note for note in found.notes), found.notes
    return compared(found, spec, symbols, **asked)


def compared(found: pm.Sweep, spec: pm.Spec, symbols: Any, **asked: Any) -> pm.Sweep:
    plain = pm.sweep(spec, symbols, prune=False, **asked)
    assert found.frame.equals(plain.frame), (found.frame, plain.frame)
    assert (found.infeasible, found.feasible) == (plain.infeasible, plain.feasible)
    assert (found.points, found.evaluated, found.pruned) == (plain.points, plain.evaluated, plain.pruned)
    return found


def test_a_front_is_that_of_the_processor(accelerator: Any) -> None:
    found = same(matmul(), {**SYMBOLS, "TN": [1, 7, 20]}, objectives=OBJECTIVES, where=["TM + TK < 40"])
    assert len(found.frame) > 5
    assert len(found.infeasible) == 2


@pytest.mark.slow
@pytest.mark.parametrize("objectives", [("energy",), ("edp", "utilisation"), ("latency", *OBJECTIVES)])
def test_objectives(accelerator: Any, objectives: Any) -> None:
    same(matmul(), SYMBOLS, objectives=objectives)
    assert len(same(matmul(), SYMBOLS, objectives=objectives, keep="top", top=12).frame) == 12


@pytest.mark.slow
@pytest.mark.parametrize("given", [layer(2, 28, 8), causal(64)], ids=["padded", "causal"])
def test_factors_of_several_axes(accelerator: Any, given: Any) -> None:
    spec, tiles = given
    some = {name: values[:: max(1, len(values) // 3)] for name, values in tiles.items()}
    same(spec, some, objectives=["energy", "working_set:GLB"])


@pytest.mark.slow
def test_dependences_that_are_broken(accelerator: Any) -> None:
    grid = {"TM": list(range(1, 6)), "TK": list(range(1, 5)), "TI": list(range(1, 5))}
    found = same(written(FUSED, SHARED), grid)
    assert any("T" in reason for reason in found.infeasible)


@pytest.mark.slow
def test_several_machines_and_several_workloads(accelerator: Any) -> None:
    sized = matmul("M")
    same(sized, {"M": [12, 24], **SYMBOLS, "TN": [3, 20]}, objectives=OBJECTIVES)


@pytest.mark.slow
@pytest.mark.parametrize("power", [0, 40, 47])
def test_wide_counts_that_fit(accelerator: Any, power: int) -> None:
    same(wide(2**power), {"T": TILES}, objectives=["energy", "accesses:DRAM"])


@pytest.mark.parametrize("power", [54, 62, 70])
def test_what_does_not_suit_is_evaluated_by_the_processor(accelerator: Any, power: int) -> None:
    asked = {"objectives": ["accesses:DRAM"], "keep": "top", "top": 2}
    found = pm.sweep(wide(2**power), {"T": TILES}, device="gpu", **asked)
    assert [note for note in found.notes if "not the accelerator" in note and "2^" in note]
    compared(found, wide(2**power), {"T": TILES}, **asked)


def test_small_blocks_and_whole_tables_stay_with_the_processor(accelerator: Any, monkeypatch: Any) -> None:
    few = {"TM": [3], "TN": [4, 20], "TK": [1, 5]}
    every = pm.sweep(matmul(), few, device="gpu", keep="all")
    assert any("all points are kept" in note for note in every.notes)
    monkeypatch.setattr(accelerator, "FEWEST", 10**9)
    small = pm.sweep(matmul(), few, device="gpu", prune=False)
    assert any("fewer than" in note for note in small.notes)


@pytest.mark.slow
def test_launches_are_of_the_memory_that_there_is(accelerator: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(accelerator._DeviceBlock, "_room", lambda self: 20_000.0)
    same(matmul(), SYMBOLS, objectives=OBJECTIVES)
    monkeypatch.setattr(accelerator._DeviceBlock, "_room", lambda self: 1.0)
    found = pm.sweep(matmul(), SYMBOLS, device="gpu", prune=False)
    assert any("no memory left" in note for note in found.notes)


@pytest.mark.slow
def test_a_device_that_fails(accelerator: Any, monkeypatch: Any) -> None:
    import jax

    def failing(*_: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nand more")

    monkeypatch.setattr(accelerator._DeviceBlock, "_coded", failing)
    with pytest.raises(pm.Refused) as refused:
        pm.sweep(matmul(), SYMBOLS, device="gpu", prune=False)
    assert refused.value.message == "the accelerator failed: RESOURCE_EXHAUSTED: out of memory"
    assert refused.value.code == "missing-device"


@pytest.mark.slow
def test_a_store_goes_on(accelerator: Any, monkeypatch: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    asked: dict[str, Any] = {"objectives": OBJECTIVES, "prune": False, "store": tmp_path / "store"}
    kept = accelerator._DeviceBlock._keep

    def interrupted(self: Any, *given: Any) -> None:
        kept(self, *given)
        if self.state.done > 3000:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(accelerator._DeviceBlock, "_keep", interrupted)
        begun = pm.sweep(matmul(), SYMBOLS, device="gpu", **asked)
    assert not begun.complete
    compared(pm.sweep(matmul(), SYMBOLS, device="gpu", **asked), matmul(), SYMBOLS, objectives=OBJECTIVES)
    with pytest.raises(pm.Refused, match="another sweep"):
        pm.sweep(matmul(), SYMBOLS, **asked)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=sweeps(), objectives=st.lists(st.sampled_from(EVERY), min_size=1, max_size=3, unique=True))
def test_generated_sweeps(case: Any, objectives: list[str]) -> None:
    tree, symbols, size = case
    assume(size <= 5000)
    with pytest.MonkeyPatch.context() as monkeypatch:
        on_first_device(monkeypatch)
        try:
            spec = pm.load(tree)
            pm.sweep(spec, symbols, objectives=objectives, prune=False)
        except (pm.SpecError, pm.Refused):
            assume(False)
        for keep in ("front", "top"):
            found = pm.sweep(spec, symbols, objectives=objectives, keep=keep, prune=False, device="gpu")
            compared(found, spec, symbols, objectives=objectives, keep=keep)


@needs_jax
def test_floats_are_those_of_numpy_bit_for_bit() -> None:
    """Products and sums are rounded one by one, and quotients of whole numbers are exact."""
    import jax

    from polymodel.sweeps.staged import Staged

    pick = np.random.default_rng(1)
    a, b, c = pick.uniform(1, 2, (3, 1000))
    whole, by = pick.integers(-(2**52), 2**52, 1000).astype(float), 640.0
    near = by * pick.integers(1, 2**42, 1000) + pick.integers(-1, 2, 1000)

    def worked_out(a: Any, b: Any, c: Any, whole: Any) -> tuple[Any, ...]:
        return a * b + c, a * 3.3 * 1e-12 + 1e-13, a / b / c, np.floor_divide(whole, by) * -2.0

    with jax.enable_x64(True):
        for numbers in (whole, near, -near):
            traced = jax.jit(lambda z, *x: [y.value for y in worked_out(*(Staged(v, z) for v in x))])
            for mine, theirs in zip(traced(0, a, b, c, numbers), worked_out(a, b, c, numbers), strict=True):
                assert np.array_equal(np.asarray(mine), theirs)


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with faults("unknown-choice", at="device"):
        pm.sweep(matmul(), SYMBOLS, device="tpu")
    with faults("conflicting-arguments", at=""):
        pm.sweep(matmul(), SYMBOLS, device="gpu", workers=2)
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "polymodel.sweeps.accelerator", raising=False)
    with pytest.raises(ImportError):
        pm.sweep(matmul(), SYMBOLS, device="gpu")


@needs_jax
def test_jax_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    def none(_: str) -> Any:
        raise RuntimeError("Unknown backend")

    monkeypatch.setattr(jax, "devices", none)
    with faults("missing-device", at="device"):
        pm.sweep(matmul(), SYMBOLS, device="gpu")
