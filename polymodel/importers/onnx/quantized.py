"""Convert quantisation and dequantisation: scales and zero points that are single numbers become part of the
operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polymodel.importers.onnx import products, sums
from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import DEFAULT, elementwise, pointwise
from polymodel.importers.onnx.reshapes import concat
from polymodel.importers.onnx.sums import positive, reduced, squeezed

LEVELS = 255  # the steps of eight bits, which DynamicQuantizeLinear has


def quantized(b: Builder, node: OnnxNode) -> None:
    """Convert QuantizeLinear and DequantizeLinear. A dequantised weight remains as it is stored."""
    source, out = node.input(0), node.outputs[0]
    if b.is_weight(source):
        b.note(node, f"the weight {source} is taken as {b.dtype(source)}, as it is stored")
        b.alias(out, b.value(source))
        return
    opening = node.op == "DequantizeLinear"
    known = b.graph.values.get(out)
    target = known.dtype if known else ("float" if opening else "uint8")
    names, dims = [source], list[int | None]([None])
    rank = len(b.shape(source))
    for name in (node.input(1), node.input(2)):
        if not name or b.scalar(name) is not None:
            continue
        own = len(b.shape(name))
        if own > 1:
            b.note(node, f"reading {name}, of one number for each block, is not counted")
            continue
        # One number for each index of an axis, or one that is computed.
        names.append(name)
        dims.append(positive([node.whole("axis", 1)], rank)[0] if own and rank > 1 else None)
    pointwise(b, node, "dequantize" if opening else "quantize", names, out, dtype=target, dims=dims)


def dynamic(b: Builder, node: OnnxNode) -> None:
    """Convert DynamicQuantizeLinear: the minimum and maximum, scale and zero point, then each element."""
    source, out = node.input(0), node.outputs[0]
    view = b.value(source, DEFAULT.get(len(b.shape(source)), ()))
    every, called = range(len(view.dims)), node.name or out
    ends = []
    for word in ("max", "min"):
        name = b.fresh(f"{out}_{word}")
        ends.append(
            reduced(b, node, name, view, every, "", word, (f"{word}(_, 0)",), name=f"{called}_{word}")
        )
    high, low = ends
    parts = [
        given or b.fresh(f"{out}_{p}") for p, given in zip(("scale", "zero"), node.outputs[1:3], strict=True)
    ]
    scale = b.einsum(node, parts[0], every, [(high, every), (low, every)], map="sub",
                     populate=(f"div(_, {LEVELS})",), name=f"{called}_scale")  # fmt: skip
    zero = b.einsum(node, parts[1], every, [(low, every), (scale, every)], map="div",
                    populate=("neg", "round"), name=f"{called}_zero", dtype="uint8")  # fmt: skip
    operands = [(view, every), (scale, every), (zero, every)]
    b.einsum(node, out, every, operands, map="quantize", name=called, dtype="uint8")
    for name, found in zip(parts, (scale, zero), strict=True):
        b.alias(name, squeezed(found, every))


# Operators of com.microsoft over bytes, by name without the prefix QLinear: the operation on numbers, and the
# positions of the operands among scales and zero points.
OPERATORS: dict[str, tuple[Callable[[Builder, OnnxNode], object], slice]] = {
    "Add": (elementwise, slice(0, 4, 3)),
    "Mul": (elementwise, slice(0, 4, 3)),
    "Sigmoid": (elementwise, slice(0, 1)),
    "LeakyRelu": (elementwise, slice(0, 1)),
    "AveragePool": (sums.pool, slice(0, 1)),
    "GlobalAveragePool": (sums.pool, slice(0, 1)),
    "Softmax": (sums.softmax, slice(0, 1)),
    "Concat": (concat, slice(2, None, 3)),
}


def operator(b: Builder, node: OnnxNode) -> None:
    """Convert an operator over bytes like the one over numbers; its scales and zero points become part of the
    operation."""
    word = node.op.removeprefix("QLinear")
    convert, places = OPERATORS[word]
    if node.whole("channels_last", 0):
        raise Unsupported("channels that stand last have no counterpart", "export it with channels first")
    version = node.whole("opset", 13)
    convert(b, replace(node, op=word, domain="", inputs=node.inputs[places], version=version))


def gemm(b: Builder, node: OnnxNode) -> None:
    """QGemm: Gemm over bytes."""
    operands = tuple(node.input(k) for k in (0, 3, 6))
    products.gemm(b, replace(node, op="Gemm", domain="", inputs=operands))


def scaled_product(b: Builder, node: OnnxNode) -> None:
    """Convert MatMulIntegerToFloat: a product of bytes whose sums are scaled."""
    _scaled(b, node, node.input(0), node.input(6))


def dynamic_product(b: Builder, node: OnnxNode) -> None:
    """Convert DynamicQuantizeMatMul: the first operand is quantised by its range, then multiplied."""
    made = b.fresh(f"{node.outputs[0]}_quantized")
    called = f"{node.name or node.outputs[0]}_quantize"
    dynamic(b, replace(node, name=called, inputs=node.inputs[:1], outputs=(made, "", "")))
    _scaled(b, node, made, node.input(4))


def _scaled(b: Builder, node: OnnxNode, left: str, bias: str) -> None:
    b.note(node, "each sum is multiplied by the scales of its operands, which is not counted")
    out = node.outputs[0]
    made = b.fresh(f"{out}_product") if bias else out
    products.product(b, node, left, node.input(1), made)
    if bias:
        pointwise(b, node, "add", [made, bias], out, suffix="bias")
