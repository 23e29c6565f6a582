"""Convert operators of com.microsoft by which exporters and optimisers replace several ONNX operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from polymodel.importers.onnx.attention import attend, with_cache
from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import Attribute, InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import ATTRIBUTES, elementwise, pointwise
from polymodel.importers.onnx.products import conv, gemm, product, same
from polymodel.importers.onnx.reshapes import cut, reshaped, split
from polymodel.importers.onnx.sums import layer_norm, pool


def _step(
    node: OnnxNode, suffix: str, inputs: Sequence[str], outputs: Sequence[str], **more: Attribute
) -> OnnxNode:
    """Return a node that is one step of another."""
    called = f"{node.name or node.outputs[0]}_{suffix}"
    return replace(node, name=called, inputs=tuple(inputs), outputs=tuple(outputs), attributes=more)


def packed_attention(b: Builder, node: OnnxNode) -> None:
    """Convert attention with its projections: queries, keys and values from one weight, side by side."""
    if any(node.input(k) for k in (3, 4)) or any(node.outputs[1:]):
        raise Unsupported("padding masks and past keys are data", "export it without a mask and a cache")
    out, heads = node.outputs[0], node.whole("num_heads", 0)
    joint, (width,) = b.fresh(f"{out}_qkv"), b.shape(node.input(1))[-1:]
    product(b, _step(node, "qkv", node.inputs[:2], [joint]), node.input(0), node.input(1), joint)
    if node.input(2):
        added = b.fresh(f"{out}_biased")
        pointwise(b, _step(node, "qkv_bias", (), [added]), "add", [joint, node.input(2)], added)
        joint = added
    if width % 3:
        raise InvalidNode(f"a weight {width} wide has no three equal parts", "check its weight")
    sizes = node.int_list("qkv_hidden_sizes") or [width // 3] * 3
    parts = [b.fresh(f"{out}_{p}") for p in ("query", "key", "value")]
    split(b, _step(node, "parts", [joint], parts, axis=-1, split=sizes))
    attend(b, replace(node, inputs=tuple(parts)), (heads, heads), node.real("scale", 0.0), node.input(5))


def multi_head(b: Builder, node: OnnxNode) -> None:
    """Convert MultiHeadAttention: queries, keys and values as batch x tokens x width, or packed by heads."""
    heads, out = node.whole("num_heads", 0), node.outputs[0]
    if heads < 1:
        raise InvalidNode("the number of heads is not given", "set num_heads")
    if node.input(4):
        raise Unsupported("which of its keys are padding is data", "export it without a key padding mask")
    names = [node.input(k) for k in range(3)]
    if not names[2]:
        names = _unpacked(b, node, names, heads)
    if node.input(3):
        ends = [0]
        for name in names:
            shape = b.shape(name)
            ends.append(ends[-1] + (shape[-1] if len(shape) == 3 else shape[1] * shape[3]))
        if b.shape(node.input(3)) != (ends[-1],) or any(len(b.shape(n)) != 3 for n in names):
            raise Unsupported("its bias is not of the widths of queries, keys and values", "add it before")
        for k, word in enumerate(("query", "key", "value")):
            part, added = b.fresh(f"{out}_{word}_bias"), b.fresh(f"{out}_{word}_biased")
            whole = b.value(node.input(3), ("D",))
            b.alias(part, cut(b, whole, 0, ends[k], 1, ends[k + 1] - ends[k], node))
            pointwise(b, _step(node, f"{word}_bias", (), [added]), "add", [names[k], part], added)
            names[k] = added
    past = [node.input(k) for k in (6, 7)]
    if all(past):
        names = with_cache(b, node, names, past, heads)
    attend(b, replace(node, inputs=tuple(names)), (heads, heads), node.real("scale", 0.0), node.input(5))


def _unpacked(b: Builder, node: OnnxNode, names: Sequence[str], heads: int) -> list[str]:
    """Return queries, keys and values from one tensor, batch x tokens x heads x 3 x width, or keys and values
    from one with 2."""
    source, count = (names[1], 2) if names[1] else (names[0], 3)
    shape = b.shape(source)
    if len(shape) != 5 or shape[2:4] != (heads, count):
        raise InvalidNode(
            f"{source} is {list(shape)}, not batch x tokens x heads x {count} x width", "check it"
        )
    found = list(names)
    for k in range(count):
        part = b.fresh(f"{node.outputs[0]}_part{k}")
        view = cut(b, b.value(source, ("B", "", "H", "", "E")), 3, k, 1, 1, node)
        b.alias(part, reshaped(b, node, view, (*shape[:2], heads * shape[4])))
        found[3 - count + k] = part
    return found


def grouped_attention(b: Builder, node: OnnxNode) -> None:
    """Convert attention in which several queries share keys and values, which may include a cache of earlier
    tokens."""
    many, few = node.whole("num_heads", 0), node.whole("kv_num_heads", 0)
    names = [node.input(k) for k in range(3)]
    out = node.outputs[0]
    if many < 1 or few < 1:
        raise InvalidNode("the number of heads is not given", "set num_heads and kv_num_heads")
    if not names[1] and not names[2]:
        width = b.shape(names[0])[-1]
        if width % (many + 2 * few):
            raise InvalidNode(
                f"a width of {width} has no {many} + 2 x {few} heads", "check the number of heads"
            )
        each = width // (many + 2 * few)
        parts = [b.fresh(f"{out}_{p}") for p in ("query", "key", "value")]
        split(b, _step(node, "parts", names[:1], parts, axis=-1, split=[many * each, few * each, few * each]))
        names = parts
    past = [node.input(k) for k in (3, 4)]
    if all(past) and b.shape(past[0])[2:3] != (0,):
        names = with_cache(b, node, names, past, few)
    if node.whole("do_rotary", 0):
        b.note(node, "its rotary embedding is not counted")
    attend(b, replace(node, inputs=tuple(names)), (many, few), node.real("scale", 0.0), "")
    if not node.whole("unidirectional", 0):
        b.note(node, "every score is counted, also those that the causal mask sets to nothing")


def skip_norm(b: Builder, node: OnnxNode) -> None:
    """Convert the normalised sum of two tensors (and a bias)."""
    simple = node.op.startswith("SkipSimplified")
    weights = [node.input(2), *([] if simple else [node.input(3)])]
    bias = node.input(3 if simple else 4)
    out = node.outputs[0]
    kept = node.outputs[3] if len(node.outputs) > 3 and node.outputs[3] else b.fresh(f"{out}_sum")
    first = b.fresh(f"{out}_two") if bias else kept
    pointwise(b, _step(node, "sum", (), [first]), "add", [node.input(0), node.input(1)], first)
    if bias:
        pointwise(b, _step(node, "bias", (), [kept]), "add", [first, bias], kept)
    op = "SimplifiedLayerNormalization" if simple else "LayerNormalization"
    inputs = (kept, *(w for w in weights if w))
    layer_norm(b, replace(node, op=op, inputs=inputs, outputs=(out,)))


def local_response(b: Builder, node: OnnxNode) -> None:
    """Convert LRN: the element divided by a power of the mean square of the channels around it."""
    out, source, size = node.outputs[0], node.input(0), node.whole("size", 1)
    shape = b.shape(source)
    steps = ("squares", "flat", "mean", "back", "wide", "root")
    square, flat, mean, back, wide, root = (b.fresh(f"{out}_{p}") for p in steps)
    pointwise(b, _step(node, "squares", (), [square]), "mul", [source, source], square)
    places = shape[2:] if 2 <= len(shape) <= 4 else (prod(shape[2:]),)
    rows = (shape[0], 1, shape[1], *places)
    b.alias(flat, reshaped(b, node, b.value(square), rows))
    none, ones = [0] * len(places), [1] * len(places)
    pads = [(size - 1) // 2, *none, size // 2, *none]
    window = _step(node, "mean", [flat], [mean], kernel_shape=[size, *ones], pads=pads, count_include_pad=1)
    pool(b, replace(window, op="AveragePool"))
    b.alias(back, reshaped(b, node, b.value(mean), shape))
    factors = (node.real("alpha", 1e-4), node.real("bias", 1.0), node.real("beta", 0.75))
    names = [back, wide, root, b.fresh(f"{out}_power")]
    for k, (word, factor) in enumerate(zip(("mul", "add", "pow"), factors, strict=True)):
        step = _step(node, word, (), [names[k + 1]])
        pointwise(b, step, word, names[k : k + 1], names[k + 1], numbers=[factor])
    pointwise(b, node, "div", [source, names[3]], out)


def channels_last(b: Builder, node: OnnxNode) -> None:
    """Convert NhwcConv: a convolution whose input and result have their channels last."""
    source, out = node.input(0), node.outputs[0]
    first, made = b.fresh(f"{out}_of_channels_first"), b.fresh(f"{out}_channels_first")
    rank = len(b.shape(source))
    if rank < 3:
        raise InvalidNode(f"its input has {rank} dimensions", "it takes batch, space and channels")
    b.alias(first, b.slots.transposed(b.value(source), (0, rank - 1, *range(1, rank - 1))))
    inputs = (first, *node.inputs[1:])
    conv(b, replace(node, op="Conv", domain="", name=node.name or out, inputs=inputs, outputs=(made,)))
    b.alias(out, b.slots.transposed(b.value(made), (0, *range(2, rank), 1)))


def bias_gelu(b: Builder, node: OnnxNode) -> None:
    """Convert a bias and Gelu."""
    out = node.outputs[0]
    added = b.fresh(f"{out}_biased")
    pointwise(b, _step(node, "bias", (), [added]), "add", [node.input(0), node.input(1)], added)
    pointwise(b, node, "gelu", [added], out)


def rotary(b: Builder, node: OnnxNode) -> None:
    """Convert a rotary embedding to one operation per element; the second element that it reads, and the
    tables, are not counted."""
    b.note(node, "it is one operation per element; the element beside it and the tables are not read")
    pointwise(b, node, "rotary", [node.input(0)], node.outputs[0])


def activated(b: Builder, node: OnnxNode) -> None:
    """Convert FusedConv and FusedGemm: the product, then an element-wise operation."""
    out, kind = node.outputs[0], node.text("activation", "")
    if node.op == "FusedConv" and node.input(3):
        raise Unsupported("a tensor that is added before its activation has no counterpart", "write an Add")
    made = b.fresh(f"{out}_linear") if kind else out
    handled = conv if node.op == "FusedConv" else gemm
    handled(b, replace(node, op=node.op.removeprefix("Fused"), domain="", outputs=(made,)))
    if kind:
        keys = ["min", "max"] if kind == "Clip" else [key for key, _ in ATTRIBUTES.get(kind, ())]
        listed = node.attributes.get("activation_params")
        told = listed if isinstance(listed, list) else [node.attributes.get(f"activation_{k}") for k in keys]
        given = {k: v for k, v in zip(keys, told, strict=False) if isinstance(v, float)}
        step = _step(node, kind.lower(), [made], [out], **given)
        elementwise(b, replace(step, op=kind, domain=""))


def transposed_product(b: Builder, node: OnnxNode) -> None:
    """Convert FusedMatMul: MatMul with operands whose last two dimensions may be exchanged."""
    names = []
    for k, key in enumerate(("transA", "transB")):
        name = node.input(k)
        if node.whole(key, 0):
            rank = len(b.shape(name))
            view = b.value(name, ("",) * (rank - 2) + (("K", "M"), ("N", "K"))[k])
            flipped = b.fresh(f"{name}_flipped")
            b.alias(flipped, b.slots.transposed(view, (*range(rank - 2), rank - 1, rank - 2)))
            name = flipped
        names.append(name)
    if node.whole("transBatchA", 0) or node.whole("transBatchB", 0):
        raise Unsupported("batches that are transposed have no counterpart", "transpose them before")
    if node.real("alpha", 1.0) != 1:
        b.note(
            node, f"the product is multiplied by alpha = {node.real('alpha', 1.0):g}, which is not counted"
        )
    product(b, node, names[0], names[1], node.outputs[0])


def packed_weight(b: Builder, node: OnnxNode) -> None:
    """Convert MatMulNBits: weights of few bits, with a scale for each block."""
    deep, wide = node.whole("K", 0), node.whole("N", 0)
    bits, block = node.whole("bits", 4), node.whole("block_size", 32)
    shape = b.shape(node.input(0))
    if not shape or deep < 1 or wide < 1 or shape[-1] != deep or block < 1:
        raise InvalidNode(f"K = {deep} and N = {wide} do not fit its inputs", "check K, N and block_size")
    if deep % block:
        raise Unsupported(f"{deep} values make no whole blocks of {block}", "choose another block_size")
    kind, blocks = f"uint{bits}", deep // block
    weight, scales = node.input(1), node.input(2)
    rows = [f"row{k}" for k in range(len(shape) - 1)]
    hints = ["", "", "B", "M"][-len(rows) :] if 0 < len(rows) <= 4 else [""] * len(rows)
    data = b.value(node.input(0), (*hints, "K"))
    data = b.reshaped(node, data, (*shape[:-1], blocks, block), (*("",) * len(rows), "KB", "KI"))
    b.views[weight] = b.base(weight, (wide, blocks, block), ("N", "KB", "KI"), kind, weight=True)
    b.views[scales] = b.base(scales, (wide, blocks), ("N", "KB"), b.dtype(node.input(0)), weight=True)
    operands = [
        (data, (*rows, "o", "i")),
        (b.views[weight], ("n", "o", "i")),
        (b.views[scales], ("n", "o")),
    ]
    same(operands, "o", "i")
    if node.input(3) or node.input(4):
        b.note(node, "zero points and group indices are not read")
    b.einsum(node, node.outputs[0], (*rows, "n"), operands, reduce="add", zeros=True)
