"""Twelve networks as public exporters write them, with the multiplications that are published for them.

Weights are named and have shapes; their values are in no file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"


def external(name: str, shape: tuple[int, ...], kind: int = 1) -> onnx.TensorProto:
    """A weight in a file outside the model's folder; nobody may open it."""
    place = onnx.TensorProto.EXTERNAL
    tensor = onnx.TensorProto(name=name, data_type=kind, dims=shape, data_location=place)
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../elsewhere/weights.bin"
    return tensor


@dataclass
class Net:
    """A graph under construction; each method adds nodes and answers the name of the result."""

    inputs: dict[str, tuple[int, ...]]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    types: dict[str, int] = field(default_factory=dict)

    def node(self, op: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        made = [name, *(f"{name}_{k}" for k in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), made, name, domain=domain, **attributes))
        return name

    def weight(self, *shape: int, kind: int = 1) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(external(name, shape, kind))
        return name

    def constant(self, *values: int) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def conv(self, x: str, c: int, k: int, r: int, stride: int = 1, group: int = 1, act: str = "Relu") -> str:
        """A convolution with its norm folded in, and what activates it."""
        pads = [r // 2] * 4
        w, b = self.weight(k, c // group, r, r), self.weight(k)
        y = self.node("Conv", x, w, b, kernel_shape=[r, r], strides=[stride] * 2, pads=pads, group=group)
        return self.node(act, y) if act else y

    def pool(self, x: str, r: int, stride: int, pad: int = 0) -> str:
        return self.node("MaxPool", x, kernel_shape=[r, r], strides=[stride] * 2, pads=[pad] * 4)

    def gemm(self, x: str, c: int, k: int, act: str = "") -> str:
        y = self.node("Gemm", x, self.weight(k, c), self.weight(k), transB=1)
        return self.node(act, y) if act else y

    def linear(self, x: str, c: int, k: int, bias: bool = True) -> str:
        y = self.node("MatMul", x, self.weight(c, k))
        return self.node("Add", self.weight(k), y) if bias else y

    def head(self, x: str, c: int, k: int) -> str:
        return self.gemm(self.node("Flatten", self.node("GlobalAveragePool", x)), c, k)

    def norm(self, x: str, width: int) -> str:
        return self.node("LayerNormalization", x, self.weight(width), self.weight(width), axis=-1)

    def gelu(self, x: str) -> str:
        """As older exporters write it."""
        half, one, root = (f"k{v}" for v in ("half", "one", "root"))
        for name, value in ((half, 0.5), (one, 1.0), (root, 2**0.5)):
            if name not in {w.name for w in self.weights}:
                self.weights.append(numpy_helper.from_array(np.float32(value), name))
        e = self.node("Add", self.node("Erf", self.node("Div", x, root)), one)
        return self.node("Mul", self.node("Mul", x, e), half)

    def heads(self, x: str, tokens: int, h: int, e: int, order: list[int]) -> str:
        return self.node("Transpose", self.node("Reshape", x, self.constant(1, tokens, h, e)), perm=order)

    def attention(self, x: str, tokens: int, width: int, h: int, joint: bool = False) -> str:
        """Three projections, or one that is split; scores, softmax, weighted values, projection."""
        e = width // h
        if joint:
            both = self.linear(x, width, 3 * width)
            q = self.node("Split", both, outputs=3, axis=-1, num_outputs=3)
            k, v = f"{q}_1", f"{q}_2"
        else:
            q, k, v = (self.linear(x, width, width) for _ in range(3))
        q, v = (self.heads(n, tokens, h, e, [0, 2, 1, 3]) for n in (q, v))
        k = self.heads(k, tokens, h, e, [0, 2, 3, 1])
        scale = "scale"
        if scale not in {w.name for w in self.weights}:
            self.weights.append(numpy_helper.from_array(np.float32(e**-0.5), scale))
        p = self.node("Softmax", self.node("Mul", self.node("MatMul", q, k), scale), axis=-1)
        a = self.node("Transpose", self.node("MatMul", p, v), perm=[0, 2, 1, 3])
        return self.linear(self.node("Reshape", a, self.constant(1, tokens, width)), width, width)

    def proto(self, out: str) -> onnx.ModelProto:
        kinds = {n: self.types.get(n, 1) for n in self.inputs}
        given = [helper.make_tensor_value_info(n, kinds[n], s) for n, s in self.inputs.items()]
        made = [helper.make_tensor_value_info(out, 1, None)]
        graph = helper.make_graph(self.nodes, "net", given, made, self.weights)
        sets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
        found = helper.make_model(graph, opset_imports=sets)
        found.ir_version = 10
        return found


def alexnet() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    w, b = n.weight(64, 3, 11, 11), n.weight(64)
    first = n.node("Conv", "x", w, b, kernel_shape=[11, 11], strides=[4, 4], pads=[2] * 4)
    x = n.pool(n.node("Relu", first), 3, 2)
    x = n.pool(n.conv(x, 64, 192, 5), 3, 2)
    x = n.conv(n.conv(n.conv(x, 192, 384, 3), 384, 256, 3), 256, 256, 3)
    x = n.node("Flatten", n.pool(x, 3, 2))
    return n.proto(n.gemm(n.gemm(n.gemm(x, 9216, 4096, "Relu"), 4096, 4096, "Relu"), 4096, 1000))


def vgg16() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    x, c = "x", 3
    for k, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(times):
            x, c = n.conv(x, c, k, 3), k
        x = n.pool(x, 2, 2)
    x = n.node("Flatten", x)
    return n.proto(n.gemm(n.gemm(n.gemm(x, 25088, 4096, "Relu"), 4096, 4096, "Relu"), 4096, 1000))


def resnet(blocks: tuple[int, ...], deep: bool) -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    x, c = n.pool(n.conv("x", 3, 64, 7, 2), 3, 2, 1), 64
    for stage, times in enumerate(blocks):
        k = 64 * 2**stage
        wide = 4 * k if deep else k
        for i in range(times):
            stride = 2 if stage and not i else 1
            if deep:
                y = n.conv(n.conv(n.conv(x, c, k, 1), k, k, 3, stride), k, wide, 1, act="")
            else:
                y = n.conv(n.conv(x, c, k, 3, stride), k, k, 3, act="")
            short = n.conv(x, c, wide, 1, stride, act="") if stride > 1 or c != wide else x
            x, c = n.node("Relu", n.node("Add", y, short)), wide
    return n.proto(n.head(x, c, 1000))


def squeezenet() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    w, b = n.weight(64, 3, 3, 3), n.weight(64)
    x = n.node("Relu", n.node("Conv", "x", w, b, kernel_shape=[3, 3], strides=[2, 2], pads=[0] * 4))
    x, c = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), 64
    for i, (s, e) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if i in (2, 4):
            x = n.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
        x = n.conv(x, c, s, 1)
        x, c = n.node("Concat", n.conv(x, s, e, 1), n.conv(x, s, e, 3), axis=1), 2 * e
    return n.proto(n.node("Flatten", n.node("GlobalAveragePool", n.conv(x, c, 1000, 1))))


def mobilenet_v1() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    x, c = n.conv("x", 3, 32, 3, 2), 32
    wide = (64, 128, 128, 256, 256, 512, *(512,) * 5, 1024, 1024)
    for k, stride in zip(wide, (1, 2, 1, 2, 1, 2, *(1,) * 5, 2, 1), strict=True):
        x, c = n.conv(n.conv(x, c, c, 3, stride, c), c, k, 1), k
    return n.proto(n.head(x, c, 1000))


def mobilenet_v2() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    x, c = n.conv("x", 3, 32, 3, 2), 32
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for t, k, times, first in rows:
        for i in range(times):
            stride, inner = (first if not i else 1), c * t
            y = n.conv(x, c, inner, 1) if t > 1 else x
            y = n.conv(n.conv(y, inner, inner, 3, stride, inner), inner, k, 1, act="")
            x, c = (n.node("Add", x, y) if stride == 1 and c == k else y), k
    return n.proto(n.head(n.conv(x, c, 1280, 1), 1280, 1000))


def mixer() -> onnx.ModelProto:
    n = Net({"x": (1, 3, 224, 224)})
    w, b = n.weight(768, 3, 16, 16), n.weight(768)
    x = n.node("Conv", "x", w, b, kernel_shape=[16, 16], strides=[16, 16])
    x = n.node("Transpose", n.node("Reshape", x, n.constant(1, 768, 196)), perm=[0, 2, 1])
    for _ in range(12):
        y = n.node("Transpose", n.norm(x, 768), perm=[0, 2, 1])
        y = n.linear(n.node("Gelu", n.linear(y, 196, 384)), 384, 196)
        x = n.node("Add", x, n.node("Transpose", y, perm=[0, 2, 1]))
        x = n.node("Add", x, n.linear(n.node("Gelu", n.linear(n.norm(x, 768), 768, 3072)), 3072, 768))
    x = n.node("ReduceMean", n.norm(x, 768), n.constant(1), keepdims=0)
    return n.proto(n.gemm(x, 768, 1000))


def vit() -> onnx.ModelProto:
    """ViT-B/16 from its 197 tokens on; the patches are a convolution of their own."""
    n = Net({"image": (1, 3, 224, 224), "tokens": (1, 197, 768)})
    w, b = n.weight(768, 3, 16, 16), n.weight(768)
    n.node("Conv", "image", w, b, kernel_shape=[16, 16], strides=[16, 16])
    x = "tokens"
    for _ in range(12):
        x = n.node("Add", x, n.attention(n.norm(x, 768), 197, 768, 12, joint=True))
        x = n.node("Add", x, n.linear(n.node("Gelu", n.linear(n.norm(x, 768), 768, 3072)), 3072, 768))
    x = n.node("Gather", n.norm(x, 768), n.constant(0), axis=1)
    return n.proto(n.gemm(n.node("Reshape", x, n.constant(1, 768)), 768, 1000))


def bert() -> onnx.ModelProto:
    n = Net({"x": (1, 128, 768)})
    x = n.norm("x", 768)
    for _ in range(12):
        x = n.norm(n.node("Add", x, n.attention(x, 128, 768, 12)), 768)
        x = n.norm(n.node("Add", x, n.linear(n.gelu(n.linear(x, 768, 3072)), 3072, 768)), 768)
    return n.proto(x)


def gpt2() -> onnx.ModelProto:
    n = Net({"x": (1, 1024, 768)})
    x = "x"
    for _ in range(12):
        x = n.node("Add", x, n.attention(n.norm(x, 768), 1024, 768, 12, joint=True))
        x = n.node("Add", x, n.linear(n.gelu(n.linear(n.norm(x, 768), 768, 3072)), 3072, 768))
    return n.proto(n.linear(n.norm(x, 768), 768, 50257, bias=False))


def gpt2_fused() -> onnx.ModelProto:
    """The same after an optimiser: attention, sums and activations are operators of com.microsoft."""
    n = Net({"x": (1, 1024, 768)})
    x, y = "x", n.norm("x", 768)
    for _ in range(12):
        w, b = n.weight(768, 2304), n.weight(2304)
        a = n.node("Attention", y, w, b, domain=MICROSOFT, num_heads=12, unidirectional=1)
        for kind in ("attention", "mlp"):
            if kind == "mlp":
                a = n.node("BiasGelu", n.linear(y, 768, 3072, bias=False), n.weight(3072), domain=MICROSOFT)
            a = n.linear(a, 768 if kind == "attention" else 3072, 768)
            y = n.node(
                "SkipLayerNormalization", a, x, n.weight(768), n.weight(768), domain=MICROSOFT, outputs=4
            )
            x = f"{y}_3"
    return n.proto(n.linear(y, 768, 50257, bias=False))


def llama(past: int = 1023) -> onnx.ModelProto:
    """Llama 3.2 1B at its 1024th token: weights of four bits, grouped queries over a cache."""
    n = Net({"x": (1, 1, 2048)})
    for k in range(16):
        n.inputs |= {f"k{k}": (1, 8, past, 64), f"v{k}": (1, 8, past, 64)}

    def few(x: str, c: int, k: int) -> str:
        w, s = n.weight(k, c // 32, 16, kind=2), n.weight(k * c // 32)
        return n.node("MatMulNBits", x, w, s, domain=MICROSOFT, K=c, N=k, bits=4, block_size=32)

    def skip(x: str, old: str) -> str:
        op = "SkipSimplifiedLayerNormalization"
        return n.node(op, x, old, n.weight(2048), domain=MICROSOFT, outputs=4)

    x, y = "x", n.node("SimplifiedLayerNormalization", "x", n.weight(2048), domain=MICROSOFT)
    for k in range(16):
        q, key, value = few(y, 2048, 2048), few(y, 2048, 512), few(y, 2048, 512)
        a = n.node("GroupQueryAttention", q, key, value, f"k{k}", f"v{k}", domain=MICROSOFT, num_heads=32,
                   kv_num_heads=8, do_rotary=1)  # fmt: skip
        y = skip(few(a, 2048, 2048), x)
        x, gate = f"{y}_3", few(y, 2048, 8192)
        gate = n.node("Mul", gate, n.node("Sigmoid", gate))
        y = skip(few(n.node("Mul", gate, few(y, 2048, 8192)), 8192, 2048), x)
        x = f"{y}_3"
    return n.proto(few(y, 2048, 128256))


# Multiplications of convolutions and products, padded places included, in 10^9, where they are published.
NETWORKS: dict[str, tuple[str, Callable[[], onnx.ModelProto], float]] = {
    "alexnet": ("convolutions", alexnet, 0.7142),  # torchvision 0.714
    "vgg16": ("convolutions", vgg16, 15.470),  # torchvision 15.47
    "resnet18": ("convolutions", lambda: resnet((2, 2, 2, 2), False), 1.814),  # torchvision 1.814
    "resnet50": ("convolutions", lambda: resnet((3, 4, 6, 3), True), 4.089),  # torchvision 4.089
    "squeezenet": ("small convolutions", squeezenet, 0.3492),  # torchvision, SqueezeNet 1.1: 0.349
    "mobilenet_v1": ("small convolutions", mobilenet_v1, 0.5687),  # the paper: 569 million
    "mobilenet_v2": ("small convolutions", mobilenet_v2, 0.3008),  # the paper: 300 million
    "mixer": ("perceptrons", mixer, 12.60),  # MLP-Mixer B/16, timm: 12.6
    "vit": ("image transformers", vit, 17.564),  # torchvision 17.56
    "bert": ("text transformers", bert, 11.174),  # BERT-base at 128 tokens: 22.35 GFLOPs
    "gpt2": ("text transformers", gpt2, 145.824),  # 291,648,307,200 operations at 1024 tokens
    "gpt2_fused": ("fused operators", gpt2_fused, 145.824),
    # 1,235,814,400 parameters, 67,584 of them of norms; 2 x 1024 x 2048 x 16 products with keys and values.
    "llama": ("fused operators", llama, 1.30286),
}
