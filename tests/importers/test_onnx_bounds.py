"""Sizes that no machine holds, and graphs that are deep: read in little time and memory, or refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

from polymodel.importers.onnx import import_onnx
from polymodel.importers.onnx.graph import Unsupported
from polymodel.importers.onnx.products import _hole
from polymodel.importers.onnx.text import distinct
from tests.faults import every_fault, faults
from tests.importers.onnx_models import model, node, numbers
from tests.importers.onnx_numbers import operations

resource = pytest.importorskip("resource")  # not on Windows
STATM = Path("/proc/self/statm")
HUGE = 10**12


def sized(proto: onnx.ModelProto) -> int:
    """Operations in the boxes of the import."""
    cascade = import_onnx(proto).spec.workload
    return sum(int(np.prod([high - low + 1 for low, high in e.bounds], dtype=object)) for e in cascade)


@pytest.mark.skipif(not STATM.exists(), reason="what is in use is read from Linux's /proc")
@pytest.mark.parametrize(
    "proto",
    [
        model([node("Add", ["X", "X"], ["Y"])], {"X": (HUGE,)}, ["Y"]),
        model(
            [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["X", "c"], ["Y"])],
            {"X": (1,)},
            ["Y"],
            {"s": np.array([HUGE])},
        ),
        model(
            [node("Expand", ["X", "s"], ["c"]), node("Mul", ["X", "c"], ["Y"])],
            {"X": (1,)},
            ["Y"],
            {"s": np.array([HUGE])},
        ),
        model([node("ConvTranspose", ["X", "W"], ["Y"])], {"X": (1, 1, HUGE - 1), "W": (1, 1, 2)}, ["Y"]),
    ],
    ids=["list", "filled", "expanded", "transposed convolution"],
)
def test_lists_without_end_take_no_memory(proto: onnx.ModelProto) -> None:
    """Nothing of the package's own may list elements: a gigabyte more than now would end in MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(STATM.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**30, hard))
    try:
        assert sized(proto) >= HUGE
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_shapes_that_follow_from_shapes_are_worked_out_at_any_depth() -> None:
    """Each Reshape asks for the shape of what the one before it made, as exporters write it."""
    nodes, weights, last = [], {"W": numbers((6, 6)), "k": np.array([-1, 2, 3]), "i": np.array([0])}, "X"
    for k in range(30):
        nodes += [
            node("MatMul", [last, "W"], [f"m{k}"]),
            node("Reshape", [f"m{k}", "k"], [f"h{k}"]),
            node("Shape", [f"h{k}"], [f"s{k}"]),
            node("Gather", [f"s{k}", "i"], [f"g{k}"]),
            node("Concat", [f"g{k}", "six"], [f"c{k}"], axis=0),
            node("Reshape", [f"h{k}", f"c{k}"], [f"x{k}"]),
        ]
        last = f"x{k}"
    nodes.append(node("Relu", [last], ["Y"]))
    found = import_onnx(model(nodes, {"X": (4, 6)}, ["Y"], {**weights, "six": np.array([6])}), fuse="none")
    assert found.complete
    assert sum(operations(found.spec.workload).values()) == 30 * 4 * 6 * 6 + 4 * 6


def test_holes_of_a_transposed_convolution() -> None:
    """Against every sum of every place and window."""
    for size, data, kernel, stride, dilation, before in itertools.product(
        (1, 5, 17, 40, 63), (1, 4, 20), (1, 2, 3), (1, 2, 3), (1, 2), (0, 1, 3)
    ):
        made = {stride * p + dilation * r - before for p in range(data) for r in range(kernel)}
        holes = [o for o in range(size) if o not in made]
        found = _hole(size, data, kernel, (stride, dilation, before))
        assert (found is None) == (not holes)
        assert found is None or found in holes
    with pytest.raises(Unsupported, match="windows are too large"):
        _hole(10**9, 10**9, 10**6, (10**6, 1, 0))


def nested(depth: int, overloads: bool) -> onnx.ModelProto:
    """Functions that call the one before twice, by overloads of one name, or in a branch of an If."""
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("own", 1)]
    found = model([], {"X": (2, 3)}, ["Y"])
    found.opset_import.append(opsets[1])

    def call(k: int, given: str, made: str) -> onnx.NodeProto:
        if k < 0:
            return node("Relu", [given], [made])
        name = "F" if overloads else f"F{k}"
        return node(name, [given], [made], domain="own", overload=f"o{k}" if overloads else "")

    for k in range(depth):
        body = [call(k - 1, "a", "t"), call(k - 1, "t", "b")]
        if not overloads:
            result = onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)
            branch = onnx.helper.make_graph(body, "branch", [], [result])
            body = [node("If", ["a"], ["b"], then_branch=branch, else_branch=branch)]
        name = "F" if overloads else f"F{k}"
        own = onnx.helper.make_function("own", name, ["a"], ["b"], body, opsets)
        own.overload = f"o{k}" if overloads else ""
        found.functions.append(own)
    found.graph.node.append(call(depth - 1, "X", "Y"))
    return found


def test_functions_grow_without_bound_in_no_way() -> None:
    """A million nodes, and 2**24 in branches, which are not looked at: written out they fill all memory."""
    with faults("too-large", "1,048,576", at=""):
        import_onnx(nested(20, overloads=True))
    with every_fault(("no-counterpart", ""), ("no-counterpart", "node of Y (If)")):
        import_onnx(nested(24, overloads=False))
    assert len(import_onnx(nested(3, overloads=True), fuse="none").spec.workload.einsums) == 2**3


def test_names_that_are_all_alike_take_linear_time() -> None:
    """Each wish is counted on from its last number; looking from 2 on again takes hours for these."""
    signs = [chr(0x4E00 + k % 20_000) for k in range(100_000)]
    found = distinct([*signs, "t_5", "t"])
    assert len({*found}) == len(found)
    assert found[:3] == ["t", "t_2", "t_3"]
