"""Networks: an MLP, a ResNet block, attention, GPT-style layers. Results, operations, evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import polymodel as pm
from polymodel.importers.onnx import import_onnx
from polymodel.importers.onnx.graph import blocks_of, scope_of_name
from polymodel.workload.einsum import Cascade
from tests.faults import every_fault
from tests.importers.onnx_models import answers, model, node, numbers
from tests.importers.onnx_networks import MICROSOFT, NETWORKS, external
from tests.importers.onnx_numbers import box, multiplications, operations, run


def compared(proto: onnx.ModelProto, shape: tuple[int, ...], weights: Mapping[str, np.ndarray]) -> Cascade:
    """The workload with everything counted, after its results were compared."""
    x = numbers(shape)
    found = import_onnx(proto, fuse="none", softmax="cascade")
    assert found.complete
    got = run(found.spec, {"X": x, **weights})
    for name, want in answers(proto, {"X": x}).items():
        np.testing.assert_allclose(got[name].ravel(), want.ravel(), rtol=1e-4, atol=1e-4)
    return found.spec.workload


def accesses(cascade: Cascade, name: str) -> list[str]:
    return [f"{a.tensor}[{', '.join(map(str, a.projection))}]" for a in cascade[name].accesses]


MLP_WEIGHTS = {"W1": numbers((16, 32)), "B1": numbers((32,)), "W2": numbers((32, 8))}
MLP = model(
    [
        node("MatMul", ["X", "W1"], ["t"], name="fc1"),
        node("Add", ["t", "B1"], ["u"], name="bias"),
        node("Relu", ["u"], ["v"], name="relu"),
        node("MatMul", ["v", "W2"], ["Y"], name="fc2"),
    ],
    {"X": (4, 16)},
    ["Y"],
    MLP_WEIGHTS,
)


def test_mlp_with_everything_counted() -> None:
    counts = operations(compared(MLP, (4, 16), MLP_WEIGHTS))
    assert counts == {"fc1": 4 * 16 * 32, "bias": 4 * 32, "relu": 4 * 32, "fc2": 4 * 32 * 8}


def test_mlp_with_bias_and_activation_taken_in() -> None:
    found = import_onnx(MLP)
    assert operations(found.spec.workload) == {"fc1": 4 * 16 * 32, "fc2": 4 * 32 * 8}
    assert [(n.path, n.message) for n in found.notes] == [
        ("Add bias", "taken as part of the Einsum before it; reading its weights is not counted"),
        ("Relu relu", "taken as part of the Einsum before it"),
    ]
    assert dict(found.spec.workload["fc1"].operations) == {"populate": "add(_, B1); relu"}


def test_roles_are_those_of_constants_and_of_what_is_computed() -> None:
    """A residual sum has two inputs and no weight; scores have their second operand as weight."""
    proto = model(
        [
            node("MatMul", ["X", "W"], ["t"], name="first"),
            node("Add", ["t", "X"], ["u"], name="residual"),
            node("Mul", ["S", "u"], ["v"], name="scale"),
            node("MatMul", ["v", "K"], ["Y"], name="scores"),
        ],
        {"X": (4, 16), "K": (16, 8)},
        ["Y"],
        {"W": numbers((16, 16)), "S": numbers((4, 16))},
    )
    found = import_onnx(proto, fuse="none").spec.workload
    roles = {e.name: {n: set(s) for n, s in e.renames if n != "output"} for e in found}
    assert roles == {
        "first": {"input": {"X"}, "weight": {"W"}},
        "residual": {"input": {"t", "X"}, "weight": set()},
        "scale": {"input": {"u"}, "weight": {"S"}},
        "scores": {"input": {"v"}, "weight": {"K"}},
    }


def test_mlp_explores_and_evaluates_as_it_stands(tmp_path: object) -> None:
    file = import_onnx(MLP, name="mlp", bits=8).save(f"{tmp_path}/mlp.yaml")
    spec = pm.load(file, "simple_two_level")
    front = pm.explore(spec, objectives=("energy",))
    summary = pm.evaluate(front[0].spec).summary
    counted = dict(zip(summary["einsum"], summary["operations"], strict=True))
    assert counted == {"fc1": 2048, "fc2": 1024, "total": 3072}
    assert spec.workload.name == "mlp"


RESNET_WEIGHTS = {
    "F1": numbers((4, 4, 3, 3), 1), "F2": numbers((4, 4, 3, 3), 2),
    **{f"{p}{k}": numbers((4,), k) for k in (1, 2) for p in "sbm"},
    "v1": np.full(4, 3, np.float32), "v2": np.full(4, 8, np.float32),
}  # fmt: skip


def resnet() -> onnx.ModelProto:
    same = {"pads": [1, 1, 1, 1]}
    return model(
        [
            node("Conv", ["X", "F1"], ["a"], name="Conv1", **same),
            node("BatchNormalization", ["a", "s1", "b1", "m1", "v1"], ["b"], name="Norm1"),
            node("Relu", ["b"], ["c"], name="Relu1"),
            node("Conv", ["c", "F2"], ["d"], name="Conv2", **same),
            node("BatchNormalization", ["d", "s2", "b2", "m2", "v2"], ["e"], name="Norm2"),
            node("Add", ["e", "X"], ["f"], name="Add"),
            node("Relu", ["f"], ["Y"], name="Relu2"),
        ],
        {"X": (1, 4, 6, 5)},
        ["Y"],
        RESNET_WEIGHTS,
    )


def folded_norm(k: int) -> tuple[np.ndarray, np.ndarray]:
    factor = RESNET_WEIGHTS[f"s{k}"] / np.sqrt(RESNET_WEIGHTS[f"v{k}"] + 1e-5)
    return factor, RESNET_WEIGHTS[f"b{k}"] - RESNET_WEIGHTS[f"m{k}"] * factor


def test_resnet_block() -> None:
    named = {f"{out}_{part}": value for k, out in ((1, "b"), (2, "e"))
             for part, value in zip(("factor", "offset"), folded_norm(k), strict=True)}  # fmt: skip
    counts = operations(compared(resnet(), (1, 4, 6, 5), RESNET_WEIGHTS | named))
    # Along 6 rows a window of 3 has 3 x 6 - 2 rows inside, along 5 columns 3 x 5 - 2.
    assert counts["Conv1"] == counts["Conv2"] == 4 * 4 * 16 * 13
    assert counts["Add"] == 4 * 6 * 5


def test_resnet_block_counts_as_the_shipped_one() -> None:
    """Normalisation and activations are part of the products there, as they are here by default."""
    found = import_onnx(resnet())
    shipped = pm.load("resnet_basic_block", variables={"CHANNELS": 4, "SIZE": 6}).workload
    mine = import_onnx(sized(resnet(), (1, 4, 6, 6))).spec.workload
    assert [e.name for e in found.spec.workload] == ["Conv1", "Conv2", "Add"]
    assert operations(mine) == operations(shipped)
    assert [len(e.inputs) for e in mine] == [len(e.inputs) for e in shipped]


def sized(proto: onnx.ModelProto, shape: tuple[int, ...]) -> onnx.ModelProto:
    """The model for an input of another shape."""
    for dim, size in zip(proto.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = size
    return proto


def heads(source: str, made: str, order: list[int]) -> list[onnx.NodeProto]:
    return [
        node("Reshape", [source, "split"], [f"{made}_r"]),
        node("Transpose", [f"{made}_r"], [made], perm=order),
    ]


def attention(d: int, h: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Projections, heads by reshape and transpose, scores, softmax, weighted sum, output projection."""
    nodes = [n for p in "QKV" for n in (node("MatMul", ["X", f"W{p}"], [f"{p}0"], name=p),
             *heads(f"{p}0", p.lower(), [0, 2, 3, 1] if p == "K" else [0, 2, 1, 3]))]  # fmt: skip
    nodes += [
        node("MatMul", ["q", "k"], ["s"], name="QK"),
        node("Softmax", ["s"], ["p"], name="QK_softmax"),
        node("MatMul", ["p", "v"], ["a"], name="AV"),
        node("Transpose", ["a"], ["a_t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a_t", "merge"], ["a_m"]),
        node("MatMul", ["a_m", "WZ"], ["Z"], name="Z"),
    ]
    weights = {f"W{p}": numbers((d, d), k) for k, p in enumerate("QKVZ")}
    return nodes, weights | {"split": np.array([0, 0, h, d // h]), "merge": np.array([0, 0, d])}


def test_attention_heads_become_ranks() -> None:
    nodes, weights = attention(8, 2)
    cascade = compared(model(nodes, {"X": (2, 3, 8)}, ["Z"], weights), (2, 3, 8), weights)
    assert accesses(cascade, "Q") == ["X[b, m, k]", "WQ[k, h, e]", "Q0[b, m, h, e]"]
    assert accesses(cascade, "QK") == ["Q0[b, m, h, e]", "K0[b, m1, h, e]", "s[b, h, m, m1]"]
    assert accesses(cascade, "AV") == ["p[b, h, m, m1]", "V0[b, m1, h, e1]", "a[b, h, m, e1]"]
    assert accesses(cascade, "Z") == ["a[b, h, m, e1]", "WZ[h, e1, n]", "Z[b, m, n]"]


@pytest.mark.parametrize("tokens", [2048, 16])
def test_gpt3_layer_counts_as_the_shipped_one(tokens: int) -> None:
    nodes, _ = attention(32, 32)
    nodes += [node("MatMul", ["Z", "WA"], ["f"], name="FFA"), node("MatMul", ["f", "WB"], ["Y"], name="FFB")]
    proto = model(nodes, {"X": ("batch", tokens, 4096)}, ["Y"], {"split": np.array([0, 0, 32, 128]),
                  "merge": np.array([0, 0, 4096])})  # fmt: skip
    square = {f"W{p}": (4096, 4096) for p in "QKVZ"}
    for name, shape in {**square, "WA": (4096, 16384), "WB": (16384, 4096)}.items():
        proto.graph.initializer.append(external(name, shape))
    mine = import_onnx(proto, sizes={"batch": 1}).spec.workload
    shipped = pm.load("gpt3_6.7B", variables={"N_TOKENS": tokens}).workload
    assert [e.name for e in mine] == ["Q", "K", "V", "QK", "QK_softmax", "AV", "Z", "FFA", "FFB"]
    for einsum in mine:
        assert box(mine, einsum.name) == box(shipped, einsum.name)


def gpt2(d: int, h: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer as GPT-2 is exported: one joint projection, split in three; norms, Gelu by Erf, residuals."""
    weights = {
        "g": numbers((d,), 1), "b": numbers((d,), 2),
        "Wqkv": numbers((d, 3 * d), 3), "Bqkv": numbers((3 * d,), 4),
        "Wo": numbers((d, d), 5), "W1": numbers((d, 4 * d), 6), "W2": numbers((4 * d, d), 7),
        "split": np.array([0, 0, h, d // h]), "merge": np.array([0, 0, d]), "root": np.float32(d / h) ** 0.5,
        "r2": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5),
    }  # fmt: skip
    nodes = [
        node("LayerNormalization", ["X", "g", "b"], ["n1"], name="ln1"),
        node("MatMul", ["n1", "Wqkv"], ["qkv0"], name="QKV"),
        node("Add", ["qkv0", "Bqkv"], ["qkv"], name="QKV_bias"),
        node("Split", ["qkv"], ["q0", "k0", "v0"], axis=-1, num_outputs=3),
        *heads("q0", "q", [0, 2, 1, 3]), *heads("k0", "k", [0, 2, 3, 1]), *heads("v0", "v", [0, 2, 1, 3]),
        node("MatMul", ["q", "k"], ["s"], name="QK"),
        node("Div", ["s", "root"], ["s1"], name="scale"),
        node("Softmax", ["s1"], ["p"], name="softmax"),
        node("MatMul", ["p", "v"], ["a"], name="AV"),
        node("Transpose", ["a"], ["a_t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["a_t", "merge"], ["a_m"]),
        node("MatMul", ["a_m", "Wo"], ["z"], name="out"),
        node("Add", ["z", "X"], ["r"], name="residual1"),
        node("LayerNormalization", ["r", "g", "b"], ["n2"], name="ln2"),
        node("MatMul", ["n2", "W1"], ["f"], name="FFA"),
        node("Div", ["f", "r2"], ["f1"]), node("Erf", ["f1"], ["f2"]), node("Add", ["f2", "one"], ["f3"]),
        node("Mul", ["f", "f3"], ["f4"]), node("Mul", ["f4", "half"], ["f5"]),
        node("MatMul", ["f5", "W2"], ["m"], name="FFB"),
        node("Add", ["m", "r"], ["Y"], name="residual2"),
    ]  # fmt: skip
    return model(nodes, {"X": (2, 3, d)}, ["Y"], weights), weights


def test_gpt2_layer() -> None:
    proto, weights = gpt2(8, 2)
    counts = operations(compared(proto, (2, 3, 8), weights))
    assert counts["QKV"] == 2 * 3 * 8 * 24
    assert counts["QK"] == counts["AV"] == 2 * 2 * 3 * 3 * 4
    assert counts["out"] == 2 * 3 * 64
    assert counts["FFA"] == counts["FFB"] == 2 * 3 * 8 * 32


def test_gpt2_layer_joint_projection_has_a_rank_for_its_thirds() -> None:
    proto, _ = gpt2(8, 2)
    found = import_onnx(proto)
    assert accesses(found.spec.workload, "AV")[1] == "qkv[b, m1, 2, h, e]"
    copies = [e for e in found.spec.workload if e.is_copy]
    assert [e.name for e in copies] == ["qkv_copy"]
    assert any("qkv is copied to qkv_copy" in n.message for n in found.notes)
    names = [e.name for e in found.spec.workload]
    assert "QKV_bias" not in names
    assert "scale" not in names


LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# Multiplications of all convolutions and products, padded places included, as published for these networks
# (in 10^9): ResNet-50 4.09, VGG-19 19.6, AlexNet with its two groups 0.65.
PUBLISHED = {"resnet50": 4.09, "vgg19": 19.63, "bvlc_alexnet": 0.655}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "resnet50" else n for n in PUBLISHED]
)
def test_published_networks(name: str) -> None:
    """The onnx package brings the graphs of some networks for its own tests."""
    file = LIGHT / f"light_{name}.onnx"
    if not file.exists():
        pytest.skip("this onnx package comes without its test data")
    cascade = import_onnx(file).spec.workload
    products = [e for e in cascade if len(e.inputs) == 2 and "map" not in dict(e.operations)]
    total = sum(box(cascade, e.name) for e in products)
    assert total / 1e9 == pytest.approx(PUBLISHED[name], rel=1e-3)


QUICK = ("alexnet", "mobilenet_v1")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
)
def test_networks_have_the_multiplications_that_are_published(name: str) -> None:
    family, build, published = NETWORKS[name]
    found = import_onnx(build())
    assert multiplications(found.spec.workload) / 1e9 == pytest.approx(published, rel=5e-4)
    if name == "llama":
        bits = {a.bits_per_value for e in found.spec.workload for a in e.accesses}
        assert bits == {4, 32}
    left = {d.message.split(",")[0] for d in found.left_out}
    assert left <= ({"no counterpart: a tensor has one producer"} if name == "squeezenet" else set()), family


def test_there_are_twelve_of_five_families() -> None:
    assert len(NETWORKS) >= 12
    assert len({family for family, _, _ in NETWORKS.values()}) >= 5


PADDED = model(
    [
        node("Conv", ["X", "W1", "B1"], ["a"], name="conv1", strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["a"], ["p"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "W2"], ["c"], name="conv2", pads=[1, 1, 1, 1]),
        node("Flatten", ["c"], ["f"], name="flat"),
        node("MatMul", ["f", "F"], ["Y"], name="fc"),
    ],
    {"X": (1, 2, 8, 8)},
    ["Y"],
    {"W1": numbers((2, 2, 3, 3)), "B1": numbers((2,)), "W2": numbers((2, 2, 3, 3)), "F": numbers((8, 4))},
)


@pytest.mark.slow
def test_stored_padding_makes_boxes_that_explore(tmp_path: object) -> None:
    """Each window is whole: conv1 makes 4 x 4 places of 3 x 3, for 2 x 2 channels; conv2 2 x 2."""
    found = import_onnx(PADDED, bits=8, padding="stored")
    cascade = found.spec.workload
    assert operations(cascade) == {"conv1": 16 * 9 * 4, "pool": 4 * 4 * 2, "conv2": 4 * 9 * 4, "fc": 8 * 4}
    assert accesses(cascade, "conv1")[0] == "X_padded[c, 2*p + r, 2*q + s]"
    assert accesses(cascade, "conv2")[0] == "p_padded[c2, p2 + r, q2 + s]"
    assert "rank_sizes: {C: 2, H: 9, W: 9," in found.text  # as wide as the windows reach: 2 * 3 + 3
    assert [n.path for n in found.notes if "padding is stored" in n.message] == [
        "node conv1 (Conv), node conv2 (Conv)"
    ]
    front = pm.explore(pm.load(found.save(f"{tmp_path}/cnn.yaml"), "simple_two_level"), objectives="energy")
    best = front.best()
    for engine in ("exact", "enumerate"):
        report = pm.evaluate(best.spec, engine=engine)
        total = report.summary.set_index("einsum").loc["total"]
        assert total["operations"] == 576 + 32 + 144 + 32
        assert report.feasible
        assert report.total_energy == pytest.approx(best.energy)


def test_stored_padding_of_a_pad_and_of_one_tensor_read_twice() -> None:
    padded = [
        node("Pad", ["X", "pads"], ["wide"], name="pad"),
        node("Conv", ["wide", "W1"], ["a"], name="one"),
        node("Conv", ["X", "W1"], ["b"], name="two", pads=[1, 1, 1, 1]),
        node("Conv", ["X", "W1"], ["c"], name="three", pads=[1, 1, 1, 1], strides=[2, 2]),
    ]
    weights = {"W1": numbers((2, 2, 3, 3)), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
    made = model(padded, {"X": (1, 2, 8, 8)}, ["a", "b", "c"], weights)
    cascade = import_onnx(made, padding="stored").spec.workload
    read = {e.name: e.accesses[0].tensor for e in cascade.einsums}
    assert read == {"one": "X_padded", "two": "X_padded", "three": "X_padded_2"}  # 10, 10 and 9 wide
    assert operations(cascade) == {"one": 64 * 36, "two": 64 * 36, "three": 16 * 36}


def test_a_bias_as_large_as_its_result_stays_apart_and_a_note_says_so() -> None:
    weights = {"W": numbers((8, 4)), "B": numbers((4,))}
    gemm = model([node("Gemm", ["X", "W", "B"], ["Y"], name="fc")], {"X": ("N", 8)}, ["Y"], weights)
    one, four = (import_onnx(gemm, sizes={"N": n}) for n in (1, 4))
    assert list(operations(one.spec.workload)) == ["fc", "fc_bias"]
    assert [(n.path, n.message.partition(":")[0]) for n in one.notes] == [("Gemm fc", "an Einsum of its own")]
    assert list(operations(four.spec.workload)) == ["fc"]


def fused(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    made = node(op, inputs, outputs, name=op, **attributes)
    made.domain = MICROSOFT
    return made


def microsoft(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], weights: dict[str, Any]
) -> Any:
    proto = model(nodes, inputs, [nodes[-1].output[0]], weights)
    proto.opset_import.append(onnx.helper.make_opsetid(MICROSOFT, 1))
    return import_onnx(proto)


def test_attention_with_its_projections() -> None:
    weights = {"w": numbers((16, 48)), "b": numbers((48,))}
    one = fused("Attention", ["x", "w", "b"], ["y"], num_heads=4)
    found = microsoft([one], {"x": (2, 6, 16)}, weights).spec.workload
    counts = operations(found)
    assert counts["Attention_qkv"] == 2 * 6 * 16 * 48
    assert counts["Attention_scores"] == counts["Attention"] == 2 * 4 * 6 * 6 * 4
    masked = fused("Attention", ["x", "w", "b", "mask"], ["y"], num_heads=4)
    with every_fault(("no-counterpart", ""), ("no-counterpart", "node Attention (com.microsoft.Attention)")):
        microsoft([masked], {"x": (2, 6, 16), "mask": (2, 6)}, weights)


@pytest.mark.parametrize("packed", [False, True])
def test_grouped_queries_share_keys_and_values(packed: bool) -> None:
    inputs = {"q": (2, 6, 32)} if packed else {"q": (2, 6, 16), "k": (2, 6, 8), "v": (2, 6, 8)}
    one = fused("GroupQueryAttention", list(inputs), ["y"], num_heads=4, kv_num_heads=2)
    found = microsoft([one], inputs, {}).spec.workload
    counts = operations(found)
    assert counts["GroupQueryAttention_scores"] == counts["GroupQueryAttention"] == 2 * 4 * 6 * 6 * 4
    cached = {**inputs, "pk": (2, 2, 7, 4), "pv": (2, 2, 7, 4)} if not packed else None
    if cached:
        one = fused(
            "GroupQueryAttention", list(cached), ["y", "nk", "nv"], num_heads=4, kv_num_heads=2, do_rotary=1
        )
        known = microsoft([one], cached, {})
        assert operations(known.spec.workload)["GroupQueryAttention"] == 2 * 4 * 6 * 13 * 4
        told = [d.message for d in known.notes]
        assert sum("read from the cache" in m or "rotary embedding is not counted" in m for m in told) == 2


def test_weights_of_few_bits_have_a_scale_for_each_block() -> None:
    weights = {"w": np.zeros((8, 2, 16), np.uint8), "s": numbers((16,))}
    one = fused("MatMulNBits", ["x", "w", "s"], ["y"], K=64, N=8, bits=4, block_size=32)
    found = microsoft([one], {"x": (2, 6, 64)}, weights).spec.workload
    (einsum,) = found
    bits = {a.tensor: a.bits_per_value for a in einsum.accesses}
    assert bits == {"x": 32, "w": 4, "s": 32, "y": 32}
    assert box(found, einsum.name) == 2 * 6 * 64 * 8
    assert [str(e) for e in einsum.access_of("s").projection] == ["n", "kb"]
    odd = fused("MatMulNBits", ["x", "w", "s"], ["y"], K=64, N=8, bits=4, block_size=48)
    with every_fault(
        ("no-counterpart", ""), ("no-counterpart", "node MatMulNBits (com.microsoft.MatMulNBits)")
    ):
        microsoft([odd], {"x": (2, 6, 64)}, weights)


def test_steps_that_optimisers_join() -> None:
    weights = {"g": numbers((64,)), "b": numbers((64,)), "c": numbers((64,)), "t": numbers((5, 64))}
    nodes = [
        fused("SkipLayerNormalization", ["x", "s", "g", "b", "c"], ["y", "", "", "sum"]),
        fused("BiasGelu", ["y", "c"], ["a"]),
        fused("FusedMatMul", ["a", "t"], ["o"], transB=1),
        fused("RotaryEmbedding", ["o", "p", "u", "v"], ["z"]),
    ]
    found = microsoft(nodes, {"x": (2, 6, 64), "s": (2, 6, 64), **dict.fromkeys("puv", (6,))}, weights)
    names = [e.name for e in found.spec.workload]
    assert names[0] == "SkipLayerNormalization_sum"
    assert box(found.spec.workload, "FusedMatMul") == 2 * 6 * 64 * 5
    assert "rotary" in found.text
    assert not found.left_out


@pytest.mark.parametrize(
    ("names", "blocks"),
    [
        # PyTorch: members of lists of modules.
        (["/conv1/Conv", "/layer1/layer1.0/conv1/Conv", "/layer1/layer1.1/conv1/Conv", "/fc/Gemm"],
         ["conv1", "layer1.0", "layer1.1", "fc"]),
        (["/bert/embeddings/Add", "/bert/encoder/layer.0/attention/self/query/MatMul",
          "/bert/encoder/layer.11/output/dense/MatMul"],
         ["embeddings", "encoder.layer.0", "encoder.layer.11"]),
        (["/features/features.1/conv/conv.0/conv.0.0/Conv", "/classifier/classifier.1/Gemm"],
         ["features.1", "classifier.1"]),
        # What all have in common says nothing: the blocks of a single layer are its parts.
        (["/h.0/attn/c_attn/MatMul", "/h.0/mlp/c_fc/MatMul"], ["attn", "mlp"]),
        # Keras: numbers of blocks in names.
        (["net/conv1_conv/Conv2D", "net/conv2_block1_1_conv/Conv2D", "net/conv2_block10_out/Relu"],
         ["conv1_conv", "conv2_block1", "conv2_block10"]),
        (["/encoder/layers/encoder_layer_0/ln_1/Mul", "/heads/head/Gemm"],
         ["encoder.layers.encoder_layer_0", "heads"]),
        (["Conv_0", "/fc/Gemm", ""], ["", "fc", ""]),
        (["/fc/Gemm"], ["fc"]),
    ],
)  # fmt: skip
def test_names_of_nodes_say_of_which_block_they_are(names: list[str], blocks: list[str]) -> None:
    assert blocks_of([scope_of_name(name) for name in names]) == blocks


def test_blocks_of_nodes_are_written(tmp_path: object) -> None:
    """By the names of nodes, or by what PyTorch's exporter notes beside them; names are quoted safely."""
    weights = {f"w{k}": numbers((4, 4)) for k in range(3)}
    scopes = ["/up/up.0/MatMul", "/down 'x' {{ 1 }}/MatMul", "node_linear"]
    nodes = [node("MatMul", [f"t{k}", f"w{k}"], [f"t{k + 1}"], name=scope) for k, scope in enumerate(scopes)]
    noted = nodes[2].metadata_props.add()
    noted.key = "pkg.torch.onnx.name_scopes"
    noted.value = "['', 'layers', 'layers.3', 'layers.3.fc', 'linear']"
    found = pm.import_onnx(model(nodes, {"t0": (2, 4)}, ["t3"], weights))
    raw = found.spec.raw_workload
    assert raw is not None
    assert list(raw.blocks.values()) == ["up.0", "down__x_____1___", "layers.3"]
