"""Convolutional networks of the library: what their tables amount to, and the engines at small sizes."""

from __future__ import annotations

from typing import Any, cast

import pytest

import polymodel as pm
from polymodel.spec.files import models
from tests.analysis.test_agreement import differences
from tests.library.figures import macs, operations, parameters
from tests.library.published import PUBLISHED
from tests.seeds import seeds

NETWORKS = sorted(n for n, m in models().items() if m.workload == "convnet")
# One layer of each kind, on maps of five or six values.
TABLE = [
    ["A", "conv", "Image", 2, 4, 6, 3, 1, 1, 1, 1],
    ["B", "depthwise", "A", 4, 4, 3, 3, 2, 1, 4, 2],
    ["C", "conv", "B", 4, 4, 3, 1, 1, 0, 2, 2],
    ["D", "conv", "C", 4, 4, 3, 3, 1, 1, 1, 1],
    ["E", "add", ["D", "C"], 4, 4, 3, 1, 1, 0, 1, 1],
    ["F", "max", "E", 4, 4, 2, 3, 2, 1, 1, 1],
    ["G", "mean", "F", 4, 4, 1, 2, 1, 0, 1, 1],
    ["H", "conv", "G", 4, 3, 1, 1, 1, 0, 1, 1],
    ["I", "up", "D", 4, 3, 6, 2, 2, 0, 1, 1],
]


def table(name: str) -> list[list[Any]]:
    """The layers of a published network, as models.json has them."""
    return cast(list[list[Any]], models()[name].variables["LAYERS"])


@pytest.mark.parametrize("name", NETWORKS)
def test_rows_of_a_table_fit_each_other(name: str) -> None:
    """What a layer reads has the channels and the size that the layer before it writes."""
    sides = {"alexnet": 227, "unet": 572}
    shapes = {"Image": (1 if name == "unet" else 3, sides.get(name, 224))}
    for layer, kind, read, c, k, size, kernel, stride, padding, groups, _ in models()[name].variables[
        "LAYERS"
    ]:
        for tensor in read if kind == "add" else [read]:
            channels, side = shapes[tensor]
            assert channels == c, layer
            made = side * kernel if kind == "up" else (side + 2 * padding - kernel) // stride + 1
            assert made == size or (layer.endswith("Skip") and made > size), layer  # cropped
        assert c % groups == k % groups == 0
        shapes[layer] = (k, size)


def test_convolutions_of_alexnet_alone() -> None:
    # Sze et al., "Efficient Processing of Deep Neural Networks", Proc. IEEE 2017, table 2: 666M, 2.3M
    cascade = pm.load("alexnet").workload
    convolutions = [e for e in cascade if e.name.startswith("Conv")]
    assert round(sum(operations(e) for e in convolutions) / 1e6) == 666
    weights = [size for name, size in parameters(cascade).items() if name.startswith("FConv")]
    assert round(sum(weights) / 1e6, 1) == 2.3


def test_zeros_of_the_padding_may_be_skipped() -> None:
    """Of a padded 3 x 3 convolution on n x n values, 3 n - 2 of the 3 n rows and columns meet a value."""
    one = [["A", "conv", "Image", 2, 4, 8, 3, 1, 1, 1, 1]]
    assert macs(pm.load("convnet", LAYERS=one).workload) == 8 * (3 * 8) ** 2
    assert macs(pm.load("convnet", LAYERS=one, PADDING="skipped").workload) == 8 * (3 * 8 - 2) ** 2
    whole, skipped = (macs(pm.load("resnet_18", PADDING=p).workload) for p in ("counted", "skipped"))
    assert 0.9 * whole < skipped < whole


MACHINES = ("edge_npu", "eyeriss_like", "gemmini", "nvdla_like", "simba_chiplet")
CASES = [("edge_npu", "counted"), ("edge_npu", "skipped"), *((m, "counted") for m in MACHINES[1:])]


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "padding"), seeds(2, CASES))
def test_the_engines_agree_on_every_kind_of_layer(machine: str, padding: str) -> None:
    rows = {} if machine in ("eyeriss_like", "simba_chiplet") else {"ROWS": 2}
    spec = pm.load("convnet", machine, LAYERS=TABLE, PADDING=padding, BATCH=2, **rows)
    referee = pm.evaluate(spec, engine="enumerate")
    assert not differences(pm.evaluate(spec).analysis, referee.analysis)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.thin(2)
def test_what_is_left_out_is_two_values_for_each_normalised_channel(name: str) -> None:
    """A scale and a shift after each convolution, or a bias for each output where nothing is normalised."""
    outputs = {e.name: e.outputs[0] for e in pm.load(name).workload if f"F{e.name}" in e.tensors}
    rows = {row[0]: row for row in table(name)}
    normalised = name not in ("alexnet", "unet", "vgg_16")
    left_out = sum(
        rows[layer][4] * rows[layer][10] * (2 if normalised and layer != "Classes" else 1)
        for layer in outputs
        if not layer.endswith("Skip")  # the other half of a convolution that has its bias
    )
    if name != "resnet_50_v1":  # its source counts weights alone
        assert left_out == sum(PUBLISHED[name].beside.values())


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_fits_every_machine(name: str, machine: str) -> None:
    report = pm.evaluate(pm.load(name, machine, BITS=16 if machine == "eyeriss_like" else 8))
    assert report.feasible, report.violations
