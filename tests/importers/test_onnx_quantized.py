"""Quantised models: bits of what is made, and the range that is found while the model runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import polymodel as pm
from tests.importers.onnx_cases import Case, compare
from tests.importers.onnx_models import answers, model, node, numbers
from tests.importers.onnx_numbers import operations, run

BYTES = np.ones((5, 4), np.int8)


def typed(proto: onnx.ModelProto, kinds: Mapping[str, int]) -> onnx.ModelProto:
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = kinds.get(value.name, TensorProto.FLOAT)
    return proto


@pytest.mark.parametrize("declared", [TensorProto.INT32, TensorProto.FLOAT])
@pytest.mark.parametrize(
    ("op", "x", "w"),
    [("MatMulInteger", (3, 5), BYTES), ("ConvInteger", (1, 1, 6), np.ones((2, 1, 3), np.int8))],
)
def test_sums_of_bytes_are_words(op: str, x: tuple[int, ...], w: np.ndarray, declared: int) -> None:
    """Also where the file says another type of the result, so that its shape is not inferred."""
    proto = typed(
        model([node(op, ["X", "W"], ["Y"])], {"X": x}, ["Y"], {"W": w}),
        {"X": TensorProto.UINT8, "Y": declared},
    )
    (einsum,) = pm.import_onnx(proto, fuse="none").spec.workload
    assert [a.bits_per_value for a in einsum.accesses] == [8, 8, 32]


def test_a_product_with_a_dequantised_weight_has_bits_of_its_own() -> None:
    """The weight stands first, and is stored in bytes; what is made of it is not."""
    nodes = [node("DequantizeLinear", ["W", "s"], ["F"]), node("Gemm", ["F", "X"], ["Y"])]
    weights = {"W": np.ones((4, 5), np.int8), "s": np.array(0.5, np.float32)}
    (einsum,) = pm.import_onnx(model(nodes, {"X": (5, 3)}, ["Y"], weights)).spec.workload
    assert {a.tensor: a.bits_per_value for a in einsum.accesses} == {"W": 8, "X": 32, "Y": 32}


def test_the_range_of_a_dynamic_quantisation_is_found_by_two_passes() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["X"], ["q", "s", "z"], name="dyn"),
        node("MatMulInteger", ["q", "W", "z"], ["m"]),
        node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "s"], ["Y"]),
    ]
    found = pm.import_onnx(model(nodes, {"X": (3, 5)}, ["Y"], {"W": BYTES}), fuse="none")
    assert found.complete
    cascade = found.spec.workload
    assert operations(cascade) == {
        "dyn_max": 15, "dyn_min": 15, "dyn_scale": 1, "dyn_zero": 1, "dyn": 15, "m": 60, "f": 12, "Y": 12,
    }  # fmt: skip
    bits = {a.tensor: a.bits_per_value for e in cascade for a in e.accesses}
    assert (bits["q"], bits["z"], bits["s"], bits["m"]) == (8, 8, 32, 32)


@pytest.mark.parametrize("shift", [-9, 0, 9])
def test_a_dynamic_quantisation_computes_what_onnx_computes(shift: int) -> None:
    """Scale, zero point and elements, also where all elements are of one sign."""
    names = ["q", "s", "z"]
    proto = model([node("DynamicQuantizeLinear", ["X"], names)], {"X": (3, 5)}, names)
    proto = typed(proto, {"q": TensorProto.UINT8, "z": TensorProto.UINT8})
    x = numbers((3, 5)) + np.float32(shift)
    found = run(pm.import_onnx(proto, fuse="none").spec, {"X": x})
    for name, want in answers(proto, {"X": x}).items():
        np.testing.assert_allclose(found[name].ravel(), want.ravel().astype(float), rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_channels_are_read(axis: int) -> None:
    proto = typed(
        model(
            [node("QuantizeLinear", ["X", "s"], ["Y"], axis=axis)],
            {"X": (3, 3)},
            ["Y"],
            {"s": np.ones(3, np.float32)},
        ),
        {"Y": TensorProto.UINT8},
    )
    (einsum,) = pm.import_onnx(proto, fuse="none").spec.workload
    place = {a.tensor: [str(x) for x in a.projection] for a in einsum.accesses}
    assert place["s"] == [place["X"][axis]]


@pytest.mark.parametrize("axis", [0, 1, -2, None])
def test_old_axes_of_element_wise_operations(axis: int | None) -> None:
    """Before operator set 7 the second operand begins at an axis of the first, or ends where it ends."""
    shape, wide = (2, 3, 3), {0: (2, 3), 1: (3, 3), -2: (3,), None: (3,)}[axis]
    extra = {} if axis is None else {"axis": axis}
    nodes = [node("Mul", ["X", "b"], ["Y"], broadcast=1, **extra)]
    found = pm.import_onnx(model(nodes, {"X": shape}, ["Y"], {"b": numbers(wide, 1)}, opset=6), fuse="none")
    x, b = numbers(shape), numbers(wide, 1)
    at = 3 - len(wide) if axis is None else axis % 3
    want = x * b.reshape((*wide, *(1,) * (3 - at - len(wide))))
    np.testing.assert_array_equal(run(found.spec, {"X": x, "b": b})["Y"], want)


def test_sums_take_up_zeros_around() -> None:
    """A sum, a mean and a norm; the largest element may be a zero, so it is left out."""
    pads = {"p": np.array([0, 1, 0, 2]), "a": np.array([1])}
    for op in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare"):
        nodes = [node("Pad", ["X", "p"], ["T"]), node(op, ["T", "a"], ["Y"])]
        compare(Case(nodes, {"X": (2, 3)}, pads, exact=False, count=6))
    nodes = [node("Pad", ["X", "p"], ["T"]), node("ReduceMax", ["T", "a"], ["M"]), node("Relu", ["X"], ["Y"])]
    proto = model(nodes, {"X": (2, 3)}, ["M", "Y"], pads)
    assert [d.path for d in pm.import_onnx(proto).left_out] == ["node of M (ReduceMax)"]


SCALE, ZERO = np.array(0.5, np.float32), np.array(0, np.uint8)
AT = ["s", "z"]  # scale and zero point


def of_bytes(
    op: str, inputs: list[str], shape: tuple[int, ...], more: Mapping[str, object]
) -> onnx.ModelProto:
    """An operator over bytes, between a quantisation and what takes it back."""
    nodes = [
        node("QuantizeLinear", ["X", *AT], ["q"], name="before"),
        node(op, inputs, ["r"], name="op", domain="com.microsoft", **more),
        node("DequantizeLinear", ["r", *AT], ["Y"], name="after"),
    ]
    weights = {"s": SCALE, "z": ZERO, "W": BYTES, "w": np.array(0, np.int8), "c": np.ones(4, np.int32)}
    proto = model(nodes, {"X": shape}, ["Y"], weights, opset=13)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    return proto


@pytest.mark.parametrize(
    ("op", "inputs", "shape", "more", "count"),
    [
        ("QLinearAdd", ["q", *AT, "q", *AT, *AT], (1, 2, 4, 6), {}, 48),
        ("QLinearMul", ["q", *AT, "q", *AT, *AT], (1, 2, 4, 6), {}, 48),
        ("QLinearSigmoid", ["q", *AT, *AT], (3, 5), {}, 15),
        ("QLinearLeakyRelu", ["q", *AT, *AT], (3, 5), {"alpha": 0.25}, 15),
        ("QLinearSoftmax", ["q", *AT, *AT], (3, 5), {"opset": 13, "axis": -1}, 15),
        ("QLinearGlobalAveragePool", ["q", *AT, *AT], (1, 2, 4, 6), {}, 48),
        (
            "QLinearAveragePool",
            ["q", *AT, *AT],
            (1, 2, 4, 6),
            {"kernel_shape": [2, 3], "strides": [2, 3]},
            48,
        ),
        ("QGemm", ["q", *AT, "W", "s", "w", "", *AT], (3, 5), {}, 60),
    ],
)
def test_operators_over_bytes(
    op: str, inputs: list[str], shape: tuple[int, ...], more: Mapping[str, object], count: int
) -> None:
    found = pm.import_onnx(of_bytes(op, inputs, shape, more), fuse="none")
    assert found.complete
    cascade = found.spec.workload
    assert operations(cascade)["op"] == count
    assert [a.bits_per_value for a in cascade["op"].accesses if a.tensor in ("q", "W", "r")] in (
        [8, 8],
        [8, 8, 8],
    )


def test_channels_that_stand_last_are_named() -> None:
    proto = of_bytes("QLinearGlobalAveragePool", ["q", *AT, *AT], (1, 4, 6, 2), {"channels_last": 1})
    (left, *_) = pm.import_onnx(proto).left_out
    assert left.code == "no-counterpart"
    assert "channels" in left.message


def test_a_product_of_bytes_that_is_scaled_is_the_steps_it_joins() -> None:
    nodes = [node("DynamicQuantizeMatMul", ["X", "W", "s"], ["Y"], name="op", domain="com.microsoft")]
    proto = model(nodes, {"X": (3, 5)}, ["Y"], {"W": BYTES, "s": SCALE}, opset=13)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    found = pm.import_onnx(proto, fuse="none")
    assert found.complete
    counted = operations(found.spec.workload)
    assert (counted.pop("op"), sum(counted.values())) == (60, 15 + 15 + 1 + 1 + 15)
    assert [a.bits_per_value for a in found.spec.workload["op"].accesses] == [8, 8, 32]


@pytest.mark.parametrize(
    ("activation", "more", "params"),
    [
        ("Relu", {}, {}),
        ("LeakyRelu", {"alpha": 0.25}, {"activation_params": [0.25]}),
        ("Clip", {"min": -1.0, "max": 2.0}, {"activation_params": [-1.0, 2.0]}),
    ],
)
def test_products_with_an_activation_compute_what_their_steps_compute(
    activation: str, more: Mapping[str, float], params: Mapping[str, object]
) -> None:
    x, weights = numbers((1, 2, 5, 5)), {"W": numbers((3, 2, 3, 3), 1), "b": numbers((3,), 2)}
    plain = [node("Conv", ["X", "W", "b"], ["T"]), node(activation, ["T"], ["Y"], **more)]
    fused = [
        node("FusedConv", ["X", "W", "b"], ["Y"], domain="com.microsoft", activation=activation, **params)
    ]
    proto = model(fused, {"X": x.shape}, ["Y"], weights)
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    found = pm.import_onnx(proto, fuse="none")
    (want,) = answers(model(plain, {"X": x.shape}, ["Y"], weights, 10), {"X": x}).values()
    np.testing.assert_allclose(run(found.spec, {"X": x, **weights})["Y"].ravel(), want.ravel(), rtol=1e-5)


def test_a_normalisation_of_the_runtime_may_have_no_domain() -> None:
    nodes = [node("SimplifiedLayerNormalization", ["X", "g"], ["Y"], name="norm")]
    found = pm.import_onnx(model(nodes, {"X": (3, 5)}, ["Y"], {"g": np.ones(5, np.float32)}))
    assert found.complete
    assert set(operations(found.spec.workload)) == {"norm_variance", "norm_normed"}
