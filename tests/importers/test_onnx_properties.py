"""Broadcasting, convolutions and chains of reshapes, drawn at random, against ONNX's reference."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from tests.importers.onnx_cases import Case, compare
from tests.importers.onnx_models import model, node, numbers
from tests.importers.onnx_numbers import operations

FEW = settings(max_examples=25, deadline=None)
sizes = st.integers(1, 4)


@st.composite
def broadcast(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    """Two shapes that fit together."""
    whole = draw(st.lists(sizes, min_size=1, max_size=4))
    shapes = []
    for _ in range(2):
        cut = draw(st.integers(0, len(whole) - 1))
        shapes.append(tuple(draw(st.sampled_from([1, s])) for s in whole[cut:]))
    assume(max(prod(s) for s in shapes) > 1)
    return tuple(shapes)


@FEW
@given(broadcast())
def test_elementwise_broadcasts(shapes: tuple[tuple[int, ...], ...]) -> None:
    count = prod(np.broadcast_shapes(*shapes))
    compare(Case([node("Sub", ["A", "B"], ["Y"])], dict(zip("AB", shapes, strict=True)), count=count))


@FEW
@given(broadcast(), sizes, sizes, sizes)
def test_matmul_broadcasts(batches: tuple[tuple[int, ...], ...], m: int, k: int, n: int) -> None:
    a, b = (*batches[0], m, k), (*batches[1], k, n)
    count = prod(np.broadcast_shapes(*batches)) * m * k * n
    compare(Case([node("MatMul", ["A", "B"], ["Y"])], {"A": a, "B": b}, count=count))


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[dict[str, object], tuple[int, ...], tuple[int, ...]]:
    """Attributes, shape of the input, shape of the weight."""
    dims = draw(st.integers(1, 2))
    each = [st.integers(1, 3)] * dims
    kernel, strides, dilations = (draw(st.tuples(*each)) for _ in range(3))
    pads = [draw(st.integers(0, k)) for k in (*kernel, *kernel)]
    group, rows, channels = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    space = [draw(st.integers(r, r + 4)) for r in reach]
    attributes = {"strides": list(strides), "dilations": list(dilations), "pads": pads, "group": group}
    return attributes, (2, group * channels, *space), (group * rows, channels, *kernel)


def multiplications(attributes: dict[str, object], x: tuple[int, ...], w: tuple[int, ...]) -> int:
    """Pairs of an output element and a weight whose input element exists, listed dimension by dimension."""
    total = x[0] * w[0] * w[1]
    strides, dilations, pads = (attributes[k] for k in ("strides", "dilations", "pads"))
    dims = len(x) - 2
    for k, (size, kernel) in enumerate(zip(x[2:], w[2:], strict=True)):
        stride, dilation, before, after = strides[k], dilations[k], pads[k], pads[dims + k]
        outputs = (size + before + after - dilation * (kernel - 1) - 1) // stride + 1
        places = itertools.product(range(outputs), range(kernel))
        total *= sum(0 <= stride * p + dilation * r - before < size for p, r in places)
    return total


@settings(max_examples=40, deadline=None)
@given(convolutions())
def test_convolutions(drawn: tuple[dict[str, object], tuple[int, ...], tuple[int, ...]]) -> None:
    attributes, x, w = drawn
    count = multiplications(attributes, x, w)
    assume(count)
    compare(Case([node("Conv", ["X", "W"], ["Y"], **attributes)], {"X": x}, {"W": numbers(w)}, count=count))


@FEW
@given(st.permutations([2, 3, 2, 5]), st.data())
def test_reshapes_and_transposes(factors: list[int], data: st.DataObject) -> None:
    """Dimensions are merged and split along whole factors, and put in any order, any number of times."""
    now = [(f,) for f in factors]
    nodes, weights, before = [], {}, "X"
    shape = tuple(factors)
    for k in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(now))))
            now = [now[i] for i in order]
            nodes.append(node("Transpose", [before], [f"t{k}"], perm=order))
        else:
            flat = [f for group in now for f in group]
            cuts = sorted(data.draw(st.sets(st.integers(1, len(flat) - 1))))
            now = [tuple(flat[a:b]) for a, b in itertools.pairwise([0, *cuts, len(flat)])]
            weights[f"s{k}"] = np.array([prod(g) for g in now])
            nodes.append(node("Reshape", [before, f"s{k}"], [f"t{k}"]))
        before = f"t{k}"
    nodes.append(node("Relu", [before], ["Y"]))
    compare(Case(nodes, {"X": shape}, weights, count=60))


@FEW
@given(st.lists(st.permutations([2, 3, 4]), min_size=1, max_size=3))
def test_reshapes_across_factors(shapes: list[list[int]]) -> None:
    """24 elements in any shape after any other, also where no dimension stays whole."""
    nodes, weights, before = [node("Relu", ["X"], ["t"])], {}, "t"
    for k, shape in enumerate(shapes):
        weights[f"s{k}"] = np.array(shape)
        nodes.append(node("Reshape", [before, f"s{k}"], [f"r{k}"]))
        nodes.append(node("Transpose", [f"r{k}"], [before := f"t{k}"], perm=[1, 0, 2]))
    compare(Case([*nodes, node("Relu", [before], ["Y"])], {"X": (2, 3, 4)}, weights))


@FEW
@given(st.integers(1, 9), st.data())
def test_slices(size: int, data: st.DataObject) -> None:
    start, end = data.draw(st.integers(-size, size)), data.draw(st.integers(-size - 1, size + 2))
    step = data.draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
    taken = len(np.arange(size)[slice(start, None if step < 0 and end < -size else end, step)])
    assume(taken)
    weights = {"a": np.array([start]), "b": np.array([end]), "c": np.array([1]), "d": np.array([step])}
    nodes = [node("Slice", ["X", *weights], ["T"]), node("Relu", ["T"], ["Y"])]
    compare(Case(nodes, {"X": (2, size)}, weights, count=2 * taken))


def test_a_dimension_of_one_is_no_rank() -> None:
    proto = model([node("Relu", ["X"], ["Y"])], {"X": (1, 3, 1)}, ["Y"])
    cascade = pm.import_onnx(proto).spec.workload
    assert cascade.rank_sizes == (("M", 3),)
    assert operations(cascade) == {"Y": 3}
