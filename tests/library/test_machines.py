"""Machines of the library reach the peak that was published of them, and no more."""

from __future__ import annotations

from math import prod

import pytest

import polymodel as pm

# Machine -> (variables, multiply-accumulates per second as published, digits of that number, where)
PEAKS: dict[str, tuple[dict[str, int], float, int, str]] = {
    "eyeriss_like": ({}, 33.6e9, 3, "Chen et al., JSSC 2017: 168 PEs at 200 MHz"),
    "gemmini": ({}, 256e9, 3, "Genc et al., DAC 2021: 16 x 16, here at 1 GHz"),
    "h100_like": ({"BITS": 16}, 989.4e12 / 2, 4, "NVIDIA, H100 white paper, 2022: dense 16-bit"),
    "nvdla_like": ({}, 2048e9, 4, "NVIDIA, nvdlav1: 2,048 multipliers of 8 bits, here at 1 GHz"),
    "simba_chiplet": ({}, 16 * 64 * 1.8e9, 4, "Shao et al., MICRO 2019, table 2: 16 x 8 x 8, up to 1.8 GHz"),
    "snitch_cluster": ({}, 16e9 / 2, 2, "Zaruba et al., 2021: 16 GFLOPS at 1 GHz"),
    "tpu_v1": ({}, 92e12 / 2, 2, "Jouppi et al., ISCA 2017: 92 TOPS"),
    "tpu_v4i": ({}, 138e12 / 2, 2, "Jouppi et al., ISCA 2021, table 1: 138 TFLOPS"),
}


@pytest.mark.parametrize("machine", PEAKS)
def test_peak_is_as_published(machine: str) -> None:
    variables, published, digits, where = PEAKS[machine]
    arch = pm.load(machine, **variables).arch
    mac = next(c for c in arch.components if c.name in ("MAC", "FPU"))
    fanouts = prod(d.fanout for c in arch.components for d in c.spatial)
    peak = fanouts * float(mac.action("compute").throughput)
    assert f"{peak:.{digits - 1}e}" == f"{published:.{digits - 1}e}", where


@pytest.mark.parametrize("machine", ["gemmini", "snitch_cluster"])
def test_a_large_product_keeps_the_machine_busy(machine: str) -> None:
    _, peak, _, _ = PEAKS[machine]
    report = pm.evaluate(pm.load("matmul", machine, M=512, N=512, K=512))
    assert report.feasible
    assert report.total_latency == pytest.approx(512**3 / peak, rel=1e-3)


def test_the_first_tpu_waits_for_its_weights() -> None:
    """A layer of MLP0 (Jouppi et al., 2017, table 1: five layers, 20M weights, batches of 200)."""
    report = pm.evaluate(pm.load("matmul", "tpu_v1", M=200, N=2000, K=2000))
    assert report.total_latency == pytest.approx(2000**2 / 34e9)
