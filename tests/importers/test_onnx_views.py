"""Operators that move no data become views: transposes, reshapes, slices, padding, resizing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polymodel.arithmetic import Affine
from polymodel.importers.onnx import import_onnx
from polymodel.importers.onnx.axes import Axes
from polymodel.importers.onnx.views import AxisSlots
from tests.importers.onnx_cases import Case, Weights, compare, ints
from tests.importers.onnx_models import model, node, numbers


def chain(
    *nodes: tuple[str, dict[str, object]],
    x: tuple[int, ...],
    last: str = "Relu",
    weights: Weights | None = None,
    count: int | None = None,
) -> Case:
    """Nodes one after the other; weights called w and the number of a node are its further inputs."""
    made, before = [], "X"
    for k, (op, attributes) in enumerate((*nodes, (last, {}))):
        extra = [n for n in weights or {} if n.startswith(f"w{k}")]
        after = "Y" if k == len(nodes) else f"T{k}"
        made.append(node(op, [before, *extra], [after], **attributes))
        before = after
    return Case(made, {"X": x}, weights or {}, count=count)


VIEWS = {
    "transpose": chain(("Transpose", {"perm": [2, 0, 1]}), x=(2, 3, 4)),
    "merge": chain(
        ("Reshape", {}), x=(2, 3, 4), last="MatMul", weights={"w0s": ints(2, -1), "w1W": numbers((12, 5))}
    ),
    "split_and_merge": chain(
        ("Reshape", {}),
        ("Transpose", {"perm": [0, 2, 1]}),
        ("Reshape", {}),
        x=(3, 8),
        weights={"w0s": ints(0, 2, 4), "w2s": ints(3, -1)},
        count=24,
    ),
    "flatten": chain(
        ("Conv", {}),
        ("Flatten", {}),
        x=(2, 3, 4, 4),
        last="MatMul",
        weights={"w0W": numbers((2, 3, 2, 2)), "w2V": numbers((18, 5))},
    ),
    "squeeze": chain(
        ("Unsqueeze", {}), ("Squeeze", {}), x=(2, 1, 3), weights={"w0a": ints(0), "w1a": ints(0, 2)}
    ),
    "slice": chain(
        ("Slice", {}),
        x=(9, 8),
        weights={"w0a": ints(1, -2), "w0b": ints(9, -100), "w0c": ints(0, 1), "w0d": ints(2, -1)},
        count=28,
    ),
    "slice_under_conv": chain(
        ("Slice", {}),
        x=(1, 2, 9),
        last="Conv",
        weights={"w0a": ints(2), "w0b": ints(8), "w0c": ints(2), "w1W": numbers((3, 2, 3))},
    ),
    "pad_under_conv": chain(
        ("Pad", {}),
        x=(1, 2, 9),
        last="Conv",
        weights={"w0p": ints(0, 0, 1, 0, 0, 2), "w1W": numbers((3, 2, 3))},
        count=6 * (10 * 3 - 4),
    ),
    "reshape_across": chain(
        ("Relu", {}), ("Reshape", {}), x=(2, 3, 4), weights={"w1s": ints(3, 2, 4)}, count=72
    ),
    "gather_one": chain(("Gather", {"axis": 1}), x=(2, 3, 8), weights={"w0i": np.array(1)}, count=16),
    "gather_range": chain(("Gather", {"axis": 1}), x=(2, 5), weights={"w0i": ints(3, 2, 1)}, count=6),
    "expand": chain(
        ("Expand", {}), x=(3, 1), last="Add", weights={"w0s": ints(2, 3, 4), "w1B": numbers((3, 4))}
    ),
    "depth_to_space": chain(("DepthToSpace", {"blocksize": 2}), x=(1, 8, 3, 4), count=96),
    "space_to_depth": chain(("SpaceToDepth", {"blocksize": 2}), x=(1, 2, 4, 6), count=48),
    "nearest": chain(
        (
            "Resize",
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        ),
        x=(1, 2, 3, 4),
        last="Conv",
        weights={"w0a": np.float32([]), "w0b": np.float32([1, 1, 2, 2]), "w1W": numbers((3, 2, 3, 3))},
    ),
    "conv_over_merged": chain(
        ("Reshape", {}),
        x=(1, 2, 3, 4),
        last="Conv",
        weights={"w0s": ints(1, 2, 12), "w1W": numbers((3, 2, 3))},
    ),
    "times_its_transpose": Case(
        [node("Transpose", ["X"], ["T"]), node("MatMul", ["X", "T"], ["Y"])], {"X": (3, 4)}
    ),
    "shape_arithmetic": Case(
        [
            node("Shape", ["X"], ["s"]),
            node("Gather", ["s", "z"], ["n"]),
            node("Unsqueeze", ["n", "a"], ["n1"]),
            node("Concat", ["n1", "m"], ["to"], axis=0),
            node("Reshape", ["X", "to"], ["T"]),
            node("Relu", ["T"], ["Y"]),
        ],
        {"X": (2, 3, 4)},
        {"z": np.array(0), "a": ints(0), "m": ints(-1)},
    ),
}


def test_parts_that_do_not_fit_are_copied() -> None:
    """2 x 3 elements as 3 x 2: the copy goes through one rank that both index."""
    case = VIEWS["reshape_across"]
    found = import_onnx(model(case.nodes, case.inputs, ["Y"], case.weights), fuse="none")
    (copy,) = (e for e in found.spec.workload if e.is_copy)
    assert [str(x) for x in copy.outputs[0].projection] == ["3*b + m", "n"]
    assert [n.message for n in found.notes] == [
        "T0 is copied to T0_copy: it is read in other parts than it is made"
    ]


@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str) -> None:
    compare(VIEWS[name])


def test_a_convolution_that_reads_nothing_but_zeros_is_left_out() -> None:
    """Both places of its window lie beside the only element."""
    conv = node("Conv", ["X", "W"], ["T"], name="conv", auto_pad="SAME_UPPER", dilations=[2])
    nodes = [conv, node("Relu", ["T"], ["Y"])]
    found = import_onnx(model(nodes, {"X": (2, 3, 1)}, ["Y"], {"W": numbers((4, 3, 2))}))
    assert [d.message for d in found.left_out] == [
        "no counterpart: all that it reads lies in the zeros around, so that nothing is computed"
    ]
    assert [e.name for e in found.spec.workload] == ["Y"]


@pytest.mark.parametrize("step", [-3, -1, 1, 2, 5])
def test_whether_an_index_is_ever_in_range(step: int) -> None:
    """Against every index."""
    slots = AxisSlots(Axes())
    a, b = slots.new(slots.axes.new(4, "")), slots.new(slots.axes.new(3, ""))
    for constant, other, size in itertools.product(range(-14, 15), (1, -2, 7), (1, 3)):
        expr = Affine(((a, step), (b, other)), constant)
        values = [constant + step * i + other * k for i in range(4) for k in range(3)]
        assert slots.reaches(expr, size) == any(0 <= v < size for v in values)
