"""Networks drawn at random, against ONNX's reference, result by result; each time the same text."""

from __future__ import annotations

import numpy as np
import pytest

import polymodel as pm
from tests.importers.onnx_models import answers
from tests.importers.onnx_numbers import operations, run
from tests.importers.onnx_random import Network


def check(seed: int) -> bool:
    """Compares a network; False for one that is not converted as a whole."""
    network = Network(seed)
    proto, results = network.whole()
    if not results:
        return False
    found = pm.import_onnx(proto, fuse="none", softmax="cascade")
    assert found.text == pm.import_onnx(proto, fuse="none", softmax="cascade").text
    joined = pm.import_onnx(proto, softmax="cascade")
    assert found.complete == joined.complete
    if not found.complete or any("made of weights alone" in n.message for n in found.notes):
        return False
    want = answers(proto, network.feeds)
    got = run(found.spec, {**network.feeds, **network.weights})
    for name in results:
        close = 1e-3 * max(1.0, float(np.abs(want[name]).max()))
        np.testing.assert_allclose(got[name].ravel(), want[name].ravel(), rtol=0, atol=close)
    every = operations(found.spec.workload)
    kept = operations(joined.spec.workload)
    assert all(kept[e] == every[e] for e in kept if e in every)
    return True


@pytest.mark.slow
def test_networks_compute_what_onnx_computes() -> None:
    """Most are compared whole; the rest sum over what is only repeated, which no Einsum does."""
    assert sum(check(seed) for seed in range(40)) >= 30


@pytest.mark.slow
def test_many_networks_compute_what_onnx_computes() -> None:
    assert sum(check(seed) for seed in range(1000, 2500)) >= 1000
