"""Machines of the library reach the peak that was published of them, and no more."""

from __future__ import annotations

import pytest

import polymodel as pm
from tests.library.figures import peak
from tests.library.published import PEAKS


@pytest.mark.parametrize("machine", PEAKS)
def test_peak_is_as_published(machine: str) -> None:
    _, published, digits, where = PEAKS[machine]
    assert f"{peak(machine):.{digits - 1}e}" == f"{published:.{digits - 1}e}", where


@pytest.mark.parametrize("machine", ["gemmini", "snitch_cluster"])
def test_a_large_product_keeps_the_machine_busy(machine: str) -> None:
    report = pm.evaluate(pm.load("matmul", machine, M=512, N=512, K=512))
    assert report.feasible
    assert report.total_latency == pytest.approx(512**3 / PEAKS[machine][1], rel=1e-3)


def test_the_first_tpu_waits_for_its_weights() -> None:
    """A layer of MLP0 (Jouppi et al., 2017, table 1: five layers, 20M weights, batches of 200)."""
    report = pm.evaluate(pm.load("matmul", "tpu_v1", M=200, N=2000, K=2000))
    assert report.total_latency == pytest.approx(2000**2 / 34e9)
