"""Nodes that contradict themselves are refused; results of a node that nothing makes are named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import polymodel as pm
from tests.faults import faults
from tests.importers.onnx_models import model, node, numbers

X = {"X": (2, 4, 6, 6)}
Act = node("Relu", ["T"], ["Y"])
REFUSED: dict[str, tuple[str, Callable[[], onnx.ModelProto]]] = {
    "channels of a convolution": (
        "must be equal have sizes 4 and 1",
        lambda: model([node("Conv", ["X", "W"], ["Y"])], X, ["Y"], {"W": numbers((8, 1, 3, 3))}),
    ),
    "kernel_shape": (
        r"kernel_shape \[5, 5\] is not that of its weight",
        lambda: model(
            [node("Conv", ["X", "W"], ["Y"], kernel_shape=[5, 5])], X, ["Y"], {"W": numbers((8, 4, 3, 3))}
        ),
    ),
    "bias of one filter": (
        "not one number for each of 1 filters",
        lambda: model(
            [node("Conv", ["X", "W", "b"], ["Y"])],
            X,
            ["Y"],
            {"W": numbers((1, 4, 3, 3)), "b": numbers((9,))},
        ),
    ),
    "inner size 1 of Gemm": (
        "must be equal have sizes 1 and 5",
        lambda: model([node("Gemm", ["X", "W"], ["Y"])], {"X": (3, 1)}, ["Y"], {"W": numbers((5, 4))}),
    ),
    "inner size 1 of MatMul": (
        "must be equal have sizes 1 and 5",
        lambda: model([node("MatMul", ["X", "W"], ["Y"])], {"X": (3, 1)}, ["Y"], {"W": numbers((5, 4))}),
    ),
    "C of Gemm": (
        r"C \[5, 4\] does not fit the product \[1, 4\]",
        lambda: model(
            [node("Gemm", ["X", "W", "C"], ["Y"])],
            {"X": (1, 3)},
            ["Y"],
            {"W": numbers((3, 4)), "C": numbers((5, 4))},
        ),
    ),
    "strides of a transposed convolution": (
        "strides, dilations or pads do not fit 2 dimensions",
        lambda: model(
            [node("ConvTranspose", ["X", "W"], ["Y"], strides=[2])], X, ["Y"], {"W": numbers((4, 2, 3, 3))}
        ),
    ),
    "strides of 0": (
        "strides, dilations or pads do not fit 2 dimensions",
        lambda: model(
            [node("ConvTranspose", ["X", "W"], ["Y"], strides=[0, 0])], X, ["Y"], {"W": numbers((4, 2, 3, 3))}
        ),
    ),
    "output_padding": (
        "output_padding or output_shape do not fit 2 dimensions",
        lambda: model(
            [node("ConvTranspose", ["X", "W"], ["Y"], output_padding=[1])],
            X,
            ["Y"],
            {"W": numbers((4, 2, 3, 3))},
        ),
    ),
    "index of a result": (
        "index z of the result in ijkl->iz is not once there and in an operand",
        lambda: model([node("Einsum", ["X"], ["Y"], equation="ijkl->iz")], X, ["Y"]),
    ),
    "axis of Pad": (
        r"axes \[7\] are not in a tensor of 4 dimensions",
        lambda: model(
            [node("Pad", ["X", "p", "", "a"], ["T"]), Act],
            X,
            ["Y"],
            {"p": np.array([1, 1]), "a": np.array([7])},
        ),
    ),
    "axis of Flatten": (
        "axis 9 is not in a tensor of 4 dimensions",
        lambda: model([node("Flatten", ["X"], ["T"], axis=9), Act], X, ["Y"]),
    ),
    "index of Gather": (
        r"its indices \(10\) do not lie in a dimension of size 4",
        lambda: model([node("Gather", ["X", "i"], ["T"], axis=1), Act], X, ["Y"], {"i": np.array([10])}),
    ),
    "no index of Gather": (
        r"its indices \(none\)",
        lambda: model(
            [node("Gather", ["X", "i"], ["T"], axis=1), Act], X, ["Y"], {"i": np.zeros(0, np.int64)}
        ),
    ),
    "ends of Slice": (
        "starts, ends, axes and steps are not equally many",
        lambda: model(
            [node("Slice", ["X", "s", "e"], ["T"]), Act],
            X,
            ["Y"],
            {"s": np.array([0]), "e": np.array([1, 2])},
        ),
    ),
    "two open sizes": (
        r"its shape \[-1, -1, 6\] is none",
        lambda: model(
            [node("Reshape", ["X", "s"], ["T"]), Act], {"X": (2, 3)}, ["Y"], {"s": np.array([-1, -1, 6])}
        ),
    ),
    "negative sizes": (
        r"its shape \[-2, -3\] is none",
        lambda: model(
            [node("Reshape", ["X", "s"], ["T"]), Act], {"X": (2, 3)}, ["Y"], {"s": np.array([-2, -3])}
        ),
    ),
    "range of step 0": (
        "its input r has shape",
        lambda: model(
            [node("Range", list("abc"), ["r"]), node("Add", ["X", "r"], ["Y"])],
            {"X": (2, 4)},
            ["Y"],
            {n: np.array(v) for n, v in zip("abc", (0, 4, 0), strict=True)},
        ),
    ),
    "channels of BatchNormalization": (
        "a is not one number for each of 4 channels",
        lambda: model(
            [node("BatchNormalization", ["X", *"abcd"], ["Y"])], X, ["Y"], {n: numbers((5,)) for n in "abcd"}
        ),
    ),
    "keys and values of Attention": (
        "must be equal have sizes 5 and 1",
        lambda: model(
            [node("Attention", ["X", "K", "V"], ["Y"])],
            {"X": (1, 2, 3, 4), "K": (1, 2, 5, 4), "V": (1, 2, 1, 4)},
            ["Y"],
            opset=23,
        ),
    ),
    "rank of C": (
        r"C \[1, 2, 4\] does not fit the product \[2, 4\]",
        lambda: model(
            [node("Gemm", ["X", "W", "C"], ["Y"])],
            {"X": (2, 3)},
            ["Y"],
            {"W": numbers((3, 4)), "C": numbers((1, 2, 4))},
        ),
    ),
    "rank of a scale": (
        "g has 3 dimensions, more than it can scale",
        lambda: model(
            [node("LayerNormalization", ["X", "g"], ["Y"])], {"X": (2, 3)}, ["Y"], {"g": numbers((4, 2, 3))}
        ),
    ),
    "rank of a mask": (
        "its mask has 5 dimensions",
        lambda: model(
            [node("Attention", ["X", "K", "K", "M"], ["Y"])],
            {"X": (1, 2, 3, 4), "K": (1, 2, 5, 4), "M": (1, 1, 1, 3, 5)},
            ["Y"],
            opset=23,
        ),
    ),
    "rank of InstanceNormalization": (
        "its input has 1 dimensions",
        lambda: model(
            [node("InstanceNormalization", ["X", "a", "b"], ["Y"])],
            {"X": (3,)},
            ["Y"],
            {"a": numbers((3,)), "b": numbers((3,))},
        ),
    ),
    "axes of a number": (
        "its input is a single number, which has no axes",
        lambda: model([node("Softmax", ["X"], ["Y"])], {"X": ()}, ["Y"]),
    ),
    "axes given twice": (
        r"axes \[0, 0\] name a dimension twice",
        lambda: model(
            [node("Unsqueeze", ["X", "a"], ["T"]), Act], {"X": (2, 3)}, ["Y"], {"a": np.array([0, 0])}
        ),
    ),
    "shapes of Concat": (
        "its inputs differ in more than dimension 0",
        lambda: model(
            [node("Concat", ["a", "b"], ["c"], axis=0), node("Add", ["X", "c"], ["Y"])],
            {"X": (140, 90)},
            ["Y"],
            {"a": numbers((70, 90)), "b": numbers((70, 91))},
        ),
    ),
    "old axis": (
        "axis 3 leaves no room for 2 of 4 dimensions",
        lambda: model(
            [node("Add", ["X", "b"], ["Y"], broadcast=1, axis=3)], X, ["Y"], {"b": numbers((6, 6))}, opset=6
        ),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_node_that_contradicts_itself_is_refused(name: str) -> None:
    said, made = REFUSED[name]
    with pytest.raises(pm.SpecError, match=said) as error:
        pm.import_onnx(made())
    assert all(d.remedy for d in error.value.diagnostics)


def test_two_sizes_of_one_dimension() -> None:
    proto = model([node("Relu", ["X"], ["Y"])], {"X": ("n", 3)}, ["Y"])
    with faults("inconsistent-values", "X", "X.0", at=""):
        pm.import_onnx(proto, sizes={"n": 2, "X.0": 5})
    assert pm.import_onnx(proto, sizes={"n": 2, "X.0": 2}).spec.workload.rank_sizes[0] == ("N", 2)


def test_results_that_nothing_makes_are_named() -> None:
    """Of LayerNormalization the mean is there, the inverse deviation is not; it matters where it is read."""
    made = ["T", "mean", "inverse"]
    norm = node("LayerNormalization", ["X", "g"], made, name="norm")
    for read, left in (("mean", []), ("inverse", ["its result inverse is not computed"])):
        proto = model([norm, node("Mul", ["T", read], ["Y"])], {"X": (3, 5)}, ["Y"], {"g": numbers((5,))})
        found = pm.import_onnx(proto, fuse="none")
        assert [d.message.removeprefix("no counterpart: ") for d in found.left_out] == left
        assert "mean" in found.spec.workload.tensors
    unread = model([norm, node("Relu", ["T"], ["Y"])], {"X": (3, 5)}, ["Y"], {"g": numbers((5,))})
    assert pm.import_onnx(unread).complete


def test_zeros_around_a_result_are_named() -> None:
    nodes = [node("Relu", ["X"], ["T"]), node("Pad", ["T", "p"], ["Y"])]
    found = pm.import_onnx(model(nodes, {"X": (2, 3)}, ["Y"], {"p": np.array([0, 1, 0, 1])}))
    assert [(d.path, d.message) for d in found.left_out] == [
        ("output Y", "no counterpart: the zeros that a Pad puts around it are not stored")
    ]


def test_a_shape_that_the_file_says_otherwise_is_told() -> None:
    proto = model(
        [node("Conv", ["X", "W"], ["C"]), node("Relu", ["C"], ["Y"])], X, ["Y"], {"W": numbers((8, 4, 3, 3))}
    )
    proto.graph.value_info.append(helper.make_tensor_value_info("C", TensorProto.FLOAT, [2, 8, 6, 6]))
    notes = [d.message for d in pm.import_onnx(proto).notes]
    assert "the file says that C is [2, 8, 6, 6]; it is taken as [2, 8, 4, 4], as computed" in notes


def test_neighbours_at_factors_that_are_not_whole_are_left_out() -> None:
    """2.1 times 4 elements are 8, whose neighbours are not those of 2 times 4."""
    attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    nodes = [node("Resize", ["X", "", "s"], ["T"], mode="nearest", **attributes), Act]
    for factor in (2.0, 2.1):
        proto = model(nodes, {"X": (4, 4)}, ["Y"], {"s": np.array([1, factor], np.float32)})
        assert pm.import_onnx(proto).complete == (factor == 2)


def test_types_without_bits_are_left_out() -> None:
    proto = model(
        [node("Cast", ["X"], ["T"], to=TensorProto.STRING, name="text"), node("Relu", ["X"], ["Y"])],
        {"X": (3,)},
        ["T", "Y"],
    )
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    found = pm.import_onnx(proto)
    assert [d.message for d in found.left_out] == ["no counterpart: T has elements of type string"]


def test_a_mean_for_each_place_is_left_out() -> None:
    weights = {n: numbers((4, 6, 6)) for n in "abcd"}
    normed = node("BatchNormalization", ["X", *"abcd"], ["T"], spatial=0, name="norm")
    found = pm.import_onnx(model([normed, Act], X, ["Y"], weights, opset=7))
    assert [d.path for d in found.left_out] == ["node norm (BatchNormalization)"]
