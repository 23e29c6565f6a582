"""Each operator of ONNX against the reference implementation, on whole numbers, element by element."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import polymodel as pm
from tests.importers.onnx_cases import Case, compare, ints, one, two, w
from tests.importers.onnx_models import answers, model, node, numbers
from tests.importers.onnx_numbers import multiplications, operations, run

PRODUCTS = {
    "matmul": two("MatMul", (3, 4), (4, 5), 60),
    "matmul_broadcast": two("MatMul", (2, 1, 3, 4), (5, 4, 2), 2 * 5 * 3 * 4 * 2),
    "matmul_vector_left": two("MatMul", (4,), (5, 4, 2), 40),
    "matmul_vector_right": two("MatMul", (3, 4), (4,), 12),
    "matmul_vectors": two("MatMul", (4,), (4,), 4),
    "gemm": one("Gemm", (3, 4), w(B=(5, 4), C=(5,)), count=60 + 15, transB=1, alpha=2.0),
    "gemm_transposed": one("Gemm", (4, 3), w(B=(4, 5), C=(3, 1)), count=60 + 15, transA=1),
    "conv_strided": one("Conv", (2, 3, 7, 6), w(W=(4, 3, 3, 3), B=(4,)), pads=[1, 1, 1, 1], strides=[2, 1]),
    "conv_grouped": one(
        "Conv", (2, 4, 7, 6), w(W=(6, 2, 3, 3)), group=2, dilations=[2, 1], auto_pad="SAME_UPPER"
    ),
    "conv_same_lower": one("Conv", (1, 2, 6, 5), w(W=(3, 2, 2, 4)), auto_pad="SAME_LOWER", strides=[2, 3]),
    # Of 5 x 3 places in a direction, the first and the last lack one of three: 13.
    "conv_depthwise": one(
        "Conv", (1, 4, 5, 5), w(W=(4, 1, 3, 3)), count=4 * 13 * 13, group=4, pads=[1, 1, 1, 1]
    ),
    "conv_depth_multiplied": one("Conv", (1, 4, 5, 5), w(W=(8, 1, 3, 3)), count=8 * 81, group=4),
    "conv_1d": one("Conv", (1, 2, 9), w(W=(3, 2, 4), B=(3,)), strides=[3], pads=[2, 1]),
    "conv_3d": one("Conv", (1, 2, 4, 4, 3), w(W=(3, 2, 2, 3, 2)), pads=[1, 0, 1, 0, 1, 1]),
    "conv_pointwise_strided": one("Conv", (1, 2, 5, 5), w(W=(3, 2, 1, 1)), count=6 * 9, strides=[2, 2]),
    "conv_on_a_row": one("Conv", (1, 2, 1, 5), w(W=(3, 2, 3, 3)), count=6 * 13, pads=[1, 1, 1, 1]),
    "conv_transpose": one(
        "ConvTranspose", (2, 3, 4, 3), w(W=(3, 2, 3, 2), B=(2,)), strides=[2, 2], pads=[1, 0, 0, 1]
    ),
    "conv_transpose_same": one(
        "ConvTranspose", (2, 4, 4), w(W=(4, 3, 3)), strides=[2], auto_pad="SAME_UPPER"
    ),
    "einsum": two("Einsum", (2, 2, 3, 4), (2, 2, 5, 4), 240, equation="bhmd,bhnd->bhmn"),
    "einsum_implicit": two("Einsum", (3, 4), (4, 5), 60, equation="ij,jk"),
    "einsum_ellipsis": two("Einsum", (2, 3, 4, 5), (2, 3, 5, 6), 720, equation="...ij,...jk->...ik"),
    "einsum_ellipsis_implicit": two("Einsum", (2, 3, 4, 5), (5, 6), 720, equation="...ij,jk"),
    "einsum_ellipsis_broadcast": two("Einsum", (4, 2, 1, 5), (3, 5, 6), 720, equation="i...j,...jk->...ik"),
    "einsum_transpose": one("Einsum", (2, 3), equation="ij->ji"),
    "einsum_diagonal": one("Einsum", (3, 3), count=3, equation="ii->i"),
    "attention": Case(
        [node("Attention", ["Q", "K", "V"], ["Y"], q_num_heads=4, kv_num_heads=2)],
        {"Q": (2, 3, 16), "K": (2, 5, 8), "V": (2, 5, 8)},
        {},
        False,
        23,
        2 * 4 * 3 * 5 * (4 + 1 + 4),
    ),
    "attention_masked": Case(
        [node("Attention", ["Q", "K", "V", "M"], ["Y"])],
        {"Q": (2, 2, 3, 4), "K": (2, 2, 5, 4), "V": (2, 2, 5, 6), "M": (3, 5)},
        {},
        False,
        23,
    ),
}

POINTWISE = {
    "square": Case([node("Mul", ["X", "X"], ["Y"])], {"X": (3, 4)}, count=12),
    "add_broadcast": two("Add", (3, 1, 4), (2, 1), 24),
    "sub": two("Sub", (3, 4), (4,), 12),
    "less_dimensions": two("Mul", (4,), (2, 3, 4), 24),
    "constant": one("Div", (3, 4), {"c": np.float32(2)}, count=12),
    "constant_first": Case([node("Sub", ["c", "X"], ["Y"])], {"X": (3,)}, {"c": np.float32([2])}),
    "clip": one("Clip", (3, 4), {"low": np.float32(-1), "high": np.float32(2)}),
    "clip_below": one("Clip", (3, 4), {"low": np.float32(-1)}),
    "clip_above": Case([node("Clip", ["X", "", "high"], ["Y"])], {"X": (3, 4)}, {"high": np.float32(1)}),
    "tile": Case(
        [node("Tile", ["X", "r"], ["T"]), node("Mul", ["T", "Z"], ["Y"])],
        {"X": (2, 3), "Z": (4, 9)},
        {"r": ints(2, 3)},
        count=36,
    ),
    "local_response": one("LRN", (5, 5, 2, 2), exact=False, size=3, alpha=0.3, beta=0.5, bias=2.0),
    "leaky": one("LeakyRelu", (3, 4), exact=False, alpha=0.25),
    "relu": one("Relu", (3, 4)),
    "prelu": one("PRelu", (2, 3, 4), w(s=(3, 1))),
    "where": Case(
        [
            node("Relu", ["A"], ["C0"]),
            node("Cast", ["C0"], ["C"], to=onnx.TensorProto.BOOL),
            node("Where", ["C", "A", "B"], ["Y"]),
        ],
        {"A": (2, 3), "B": (3,)},
    ),
    "sum_of_three": Case([node("Sum", ["A", "B", "A"], ["Y"])], {"A": (2, 3), "B": (3,)}),
    "by_a_scalar_tensor": Case(
        [node("ReduceSum", ["X"], ["T"], keepdims=0), node("Mul", ["X", "T"], ["Y"])], {"X": (2, 3)}, count=12
    ),
}

SUMS = {
    **{
        op: one(op, (2, 3, 4), {"axes": ints(1, -1)}, exact=False, keepdims=0)
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
    },
    "reduce_all": one("ReduceSum", (2, 3, 4), count=24),
    "reduce_exponentials": one("ReduceLogSumExp", (2, 3, 4), {"axes": ints(1)}, exact=False),
    "max_pool": one(
        "MaxPool", (1, 2, 6, 5), count=2 * 8 * 4, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]
    ),
    "max_pool_ceil": one(
        "MaxPool", (1, 2, 5, 5), count=2 * 25, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1
    ),
    "max_pool_dilated": one("MaxPool", (1, 2, 7), kernel_shape=[3], dilations=[2]),
    "average_pool": one("AveragePool", (1, 2, 6, 5), exact=False, kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    "average_pool_padded": one(
        "AveragePool", (1, 2, 6, 5), exact=False, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1
    ),
    "global_average": one("GlobalAveragePool", (1, 2, 6, 5), exact=False, count=60),
    "global_max": one("GlobalMaxPool", (1, 2, 6, 5), count=60),
    "softmax": one("Softmax", (2, 3, 4), exact=False, axis=1, count=4 * 24),
    "log_softmax": one("LogSoftmax", (2, 3, 4), exact=False, axis=-1),
    "layer_norm": one("LayerNormalization", (2, 3, 4), w(g=(4,), b=(4,)), exact=False, count=6 * 24),
    "layer_norm_over_two": one("LayerNormalization", (2, 3, 4), w(g=(3, 4)), exact=False, axis=1),
    "rms_norm": one("RMSNormalization", (2, 3, 4), w(g=(4,)), exact=False, opset=23),
    "group_norm": one(
        "GroupNormalization", (2, 6, 4, 2), w(g=(6,), b=(6,)), exact=False, opset=21, num_groups=3
    ),
    "instance_norm": one("InstanceNormalization", (2, 3, 4, 4), w(g=(3,), b=(3,)), exact=False),
}


CASES = PRODUCTS | POINTWISE | SUMS


@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    compare(CASES[name], "one" if name.startswith("attention") else "cascade")


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ([node("Einsum", ["X", "X"], ["Y"], equation="abc,abc->a")], (3, 2, 4)),
        ([node("Transpose", ["X"], ["T"], perm=[1, 0]), node("MatMul", ["X", "T"], ["Y"])], (1, 5)),
        ([node("Identity", ["X"], ["T"]), node("Sub", ["X", "T"], ["Y"])], (3, 4)),
        ([node("Identity", ["X"], ["T"]), node("Where", ["X", "X", "T"], ["Y"])], (3, 4)),
        ([node("Identity", ["X"], ["T"]), node("Max", ["b", "X", "T"], ["Y"])], (3, 4)),
    ],
    ids=["Einsum", "MatMul", "Sub", "Where", "Max"],
)
def test_a_tensor_at_one_place_is_read_once_and_used_twice(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...]
) -> None:
    """The operation says so: what stands there for two operands of one place was their only one."""
    weights = {"b": numbers(shape[-1:])} if nodes[-1].op_type == "Max" else {}
    if nodes[-1].op_type == "Where":
        nodes = [nodes[0], node("Cast", ["X"], ["c"], to=onnx.TensorProto.BOOL), nodes[1]]
        nodes[-1].input[0] = "c"
    compare(Case(nodes, {"X": shape}, weights))


def branch(name: str, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray]) -> onnx.GraphProto:
    """A graph of an `If`; both have the same names inside."""
    stored = [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()]
    made = [onnx.helper.make_tensor_value_info("made", onnx.TensorProto.FLOAT, None)]
    return onnx.helper.make_graph(nodes, name, [], made, stored)


@pytest.mark.parametrize("size", [1, 2])
def test_an_if_whose_condition_follows_from_shapes_is_the_graph_that_it_chooses(size: int) -> None:
    """Twice, as exporters write it around a Squeeze: each reads values of the graph around it."""
    one_of = {"b": np.float32([2, 3, 4])}
    yes = branch("yes", [node("Mul", ["OUTER", "b"], ["inner"]), node("Relu", ["inner"], ["made"])], one_of)
    no = branch("no", [node("Add", ["OUTER", "b"], ["made"])], one_of)
    nodes = [
        node("Shape", ["X"], ["s"]),
        node("Gather", ["s", "first"], ["n"]),
        node("Equal", ["n", "one"], ["c"]),
    ]
    for read, out in (("X", "T"), ("T", "Y")):
        graphs = {}
        for key, graph in (("then_branch", yes), ("else_branch", no)):
            graphs[key] = onnx.GraphProto.FromString(graph.SerializeToString())
            graphs[key].node[0].input[0] = read
        nodes.append(node("If", ["c"], [out], **graphs))
    weights = {"first": np.array(0), "one": np.array(1)}
    proto = model(nodes, {"X": (size, 3)}, ["Y"], weights)
    x = numbers((size, 3))
    found = pm.import_onnx(proto, fuse="none")
    assert found.complete
    got = run(
        found.spec, {"X": x, **{t: one_of["b"] for t in found.spec.workload.tensors if t.endswith("_b")}}
    )
    np.testing.assert_array_equal(got["Y"].ravel(), answers(proto, {"X": x})["Y"].ravel())


def test_an_if_over_data_is_named() -> None:
    same = branch("same", [node("Relu", ["X"], ["made"])], {})
    nodes = [
        node("ReduceSum", ["X"], ["t"], keepdims=0),
        node("Cast", ["t"], ["c"], to=onnx.TensorProto.BOOL),
        node("If", ["c"], ["Y"], then_branch=same, else_branch=same),
    ]
    (left,) = pm.import_onnx(model(nodes, {"X": (2, 3)}, ["Y"])).left_out
    assert (left.code, left.path) == ("no-counterpart", "node of Y (If)")


def test_what_is_made_of_weights_alone_is_a_weight() -> None:
    """A triangle of a stored mask has no counterpart as an operator, and is computed once."""
    nodes = [node("Trilu", ["m"], ["t"], upper=0), node("Add", ["X", "t"], ["Y"])]
    found = pm.import_onnx(model(nodes, {"X": (4, 4)}, ["Y"], w(m=(4, 4))))
    assert found.left_out == ()
    (einsum,) = found.spec.workload
    assert [a.tensor for a in einsum.inputs] == ["X", "t"]
    nodes[0] = node("Trilu", ["X"], ["t"], upper=0)
    assert [d.path for d in pm.import_onnx(model(nodes, {"X": (4, 4)}, ["Y"])).left_out] == [
        "node of t (Trilu)"
    ]


@pytest.mark.parametrize("tokens", [6, 100])
def test_a_causal_mask_as_exporters_write_it_is_a_weight(tokens: int) -> None:
    """A triangle of ones, compared and chosen from: small ones are worked out, large ones are weights."""
    nodes = [
        node("Expand", ["one", "shape"], ["ones"]),
        node("Trilu", ["ones"], ["lower"], upper=0),
        node("Equal", ["lower", "zero"], ["hidden"]),
        node("Where", ["hidden", "least", "zero"], ["mask"]),
        node("Add", ["X", "mask"], ["Y"]),
    ]
    numbers_ = {"one": np.ones(1, np.float32), "shape": ints(tokens, tokens)}
    numbers_ |= {"zero": np.zeros(1, np.float32), "least": np.full(1, -np.inf, np.float32)}
    found = pm.import_onnx(model(nodes, {"X": (2, tokens, tokens)}, ["Y"], numbers_))
    assert (found.left_out, len(found.spec.workload)) == ((), 1)
    assert sum(operations(found.spec.workload).values()) == 2 * tokens**2


def test_what_is_computed_of_weights_is_computed_once() -> None:
    nodes = [node("Exp", ["s"], ["e"]), node("Mul", ["w", "e"], ["v"]), node("MatMul", ["X", "v"], ["Y"])]
    found = pm.import_onnx(model(nodes, {"X": (2, 4)}, ["Y"], w(w=(4, 3), s=(3,))))
    assert operations(found.spec.workload) == {"Y": 2 * 4 * 3}
    assert any("made of weights alone" in n.message for n in found.notes)


@pytest.mark.parametrize(("opset", "count"), [(18, 2), (20, 2), (21, 6)])
def test_weights_of_group_normalisation_belong_to_groups_before_operator_set_21(
    opset: int, count: int
) -> None:
    """The checker of onnx refuses the withdrawn operator, which exporters still write."""
    weights = w(s=(count,), b=(count,))
    made = node("GroupNormalization", ["X", "s", "b"], ["Y"], num_groups=2, epsilon=0.5)
    found = pm.import_onnx(model([made], {"X": (3, 6, 4)}, ["Y"], weights, opset), fuse="none")
    x = numbers((3, 6, 4))
    groups = x.reshape(3, 2, 12)
    spread = np.sqrt(groups.var(axis=2, keepdims=True) + 0.5)
    normed = ((groups - groups.mean(axis=2, keepdims=True)) / spread).reshape(3, 6, 4)
    scale, bias = (np.repeat(weights[n], 6 // count)[:, None] for n in "sb")
    got = run(found.spec, {"X": x, **weights})["Y"].reshape(3, 6, 4)
    np.testing.assert_allclose(got, normed * scale + bias, rtol=1e-4, atol=1e-5)


def test_a_product_of_elements_by_einsum_is_taken_in_as_one() -> None:
    nodes = [
        node("MatMul", ["X", "w"], ["m"]),
        node("Einsum", ["m", "v"], ["e"], equation="ij,j->ij"),
        node("Einsum", ["e"], ["same"], equation="ij->ij"),
        node("Relu", ["same"], ["Y"]),
    ]
    found = pm.import_onnx(model(nodes, {"X": (2, 4)}, ["Y"], w(w=(4, 3), v=(3,))))
    (einsum,) = found.spec.workload
    steps = [s for s in dict(einsum.operations)["populate"].split("; ") if s != "identity"]
    assert (steps, operations(found.spec.workload)) == (["mul(_, v)", "relu"], {einsum.name: 24})


def test_upsample_of_a_later_operator_set_is_read() -> None:
    nodes = [node("Upsample", ["X", "scales"], ["U"], mode="nearest"), node("Relu", ["U"], ["Y"])]
    scales = {"scales": np.array([1, 1, 2, 2], np.float32)}
    found = pm.import_onnx(model(nodes, {"X": (1, 3, 4, 4)}, ["Y"], scales, 11))
    assert (found.left_out, operations(found.spec.workload)) == ((), {"Y": 3 * 64})


CACHE = {"pk": (1, 2, 7, 16), "pv": (1, 2, 7, 16)}


@pytest.mark.parametrize("packed", ["apart", "keys", "all"])
def test_attention_of_com_microsoft_with_bias_cache_and_packed_inputs(packed: str) -> None:
    """4 heads of 16: 8 queries over 9 keys (8 where all is packed), twice a product of 16 for each."""
    given = {
        "apart": {"q": (1, 8, 64), "k": (1, 9, 64), "v": (1, 9, 64)},
        "keys": {"q": (1, 8, 64), "k": (1, 9, 4, 2, 16)},
        "all": {"q": (1, 8, 4, 3, 16)},
    }[packed]
    inputs = [n if n in given else "" for n in ("q", "k", "v")] + ["b"]
    made = node("MultiHeadAttention", inputs, ["Y"], domain="com.microsoft", num_heads=4)
    found = pm.import_onnx(shaped(model([made], given, ["Y"], w(b=(192,))), (1, 8, 64)), fuse="none")
    keys = 8 if packed == "all" else 9
    assert (found.left_out, multiplications(found.spec.workload)) == ((), 2 * 4 * 8 * keys * 16)
    added = [e.name for e in found.spec.workload if dict(e.operations).get("map") == "add"]
    assert len(added) == 3


def test_a_convolution_with_channels_last() -> None:
    made = node("NhwcConv", ["X", "k", "b"], ["Y"], domain="com.microsoft", pads=[1, 0], group=2)
    weights = w(k=(6, 2, 3), b=(6,))
    proto = shaped(model([made], {"X": (2, 7, 4)}, ["Y"], weights), (2, 6, 6))
    x = numbers((2, 7, 4))
    plain = node("Conv", ["X", "k", "b"], ["Y"], pads=[1, 0], group=2)
    feeds = {"X": x.transpose(0, 2, 1)}
    wanted = answers(model([plain], {"X": (2, 4, 7)}, ["Y"], weights), feeds)["Y"]
    found = pm.import_onnx(proto, fuse="none")
    (result,) = found.spec.workload.einsums[-1].outputs
    got = run(found.spec, {"X": x, **weights})[result.tensor]
    np.testing.assert_array_equal(got.ravel(), wanted.ravel())  # its ranks are as the convolution makes them
    assert (found.left_out, multiplications(found.spec.workload)) == ((), 2 * 6 * 6 * 2 * 3)


def test_attention_with_keys_and_values_of_earlier_tokens() -> None:
    """One new token over 7 of the cache and itself, 4 heads that share 2."""
    heads = {"q": (1, 4, 1, 16), "k": (1, 2, 1, 16), "v": (1, 2, 1, 16), **CACHE}
    made = node("Attention", ["q", "k", "v", "", "pk", "pv"], ["Y", "nk", "nv"])
    found = pm.import_onnx(model([made], heads, ["Y"], opset=23))
    assert (found.left_out, multiplications(found.spec.workload)) == ((), 2 * 4 * 8 * 16)
    assert any("of all tokens are read from the cache" in n.message for n in found.notes)


def shaped(proto: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """With operators of another domain, and the shape of the result that inference does not know."""
    proto.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    proto.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, shape))
    return proto
