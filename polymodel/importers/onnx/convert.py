"""Convert nodes, one after the other, to Einsums and views; those without a counterpart are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.importers.onnx import attention, contrib, pointwise, products, quantized, reshapes, sums
from polymodel.importers.onnx.build import Builder, Options
from polymodel.importers.onnx.graph import Graph, InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.reading import BODY

Handler = Callable[[Builder, OnnxNode], object]

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys((*pointwise.ONE, *pointwise.MORE), pointwise.elementwise),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul"), products.matmul),
    **dict.fromkeys(("Conv", "ConvInteger", "QLinearConv"), products.conv),
    "Gemm": products.gemm,
    "ConvTranspose": products.conv_transpose,
    "Einsum": products.einsum,
    **dict.fromkeys(sums.REDUCE, sums.reduction),
    **dict.fromkeys(("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"), sums.pool),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), sums.softmax),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), sums.layer_norm),
    "BatchNormalization": sums.batch_norm,
    "InstanceNormalization": sums.instance_norm,
    "GroupNormalization": sums.group_norm,
    **dict.fromkeys(("Identity", "Dropout"), reshapes.identity),
    "Transpose": reshapes.transpose,
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), reshapes.reshape),
    "Expand": reshapes.expand,
    "Tile": reshapes.tile,
    "ConstantOfShape": reshapes.filled,
    "Slice": reshapes.slice_,
    "Split": reshapes.split,
    "Gather": reshapes.gather,
    "Concat": reshapes.concat,
    "Pad": reshapes.pad,
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), reshapes.blocks),
    **dict.fromkeys(("Resize", "Upsample"), reshapes.resize),
    "Cast": pointwise.cast,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), quantized.quantized),
    "DynamicQuantizeLinear": quantized.dynamic,
    "Attention": attention.attention,
    "RotaryEmbedding": contrib.rotary,
    "LRN": contrib.local_response,
}
OTHERS: dict[tuple[str, str], Handler] = {
    ("com.microsoft", "MultiHeadAttention"): contrib.multi_head,
    **dict.fromkeys((("com.microsoft", w) for w in ("Gelu", "FastGelu", "QuickGelu")), pointwise.elementwise),
    ("com.microsoft", "Attention"): contrib.packed_attention,
    ("com.microsoft", "GroupQueryAttention"): contrib.grouped_attention,
    ("com.microsoft", "SkipLayerNormalization"): contrib.skip_norm,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): contrib.skip_norm,
    ("com.microsoft", "BiasGelu"): contrib.bias_gelu,
    ("com.microsoft", "RotaryEmbedding"): contrib.rotary,
    ("com.microsoft", "FusedMatMul"): contrib.transposed_product,
    ("com.microsoft", "MatMulNBits"): contrib.packed_weight,
    ("com.microsoft", "SimplifiedLayerNormalization"): sums.layer_norm,
    ("com.microsoft", "FusedConv"): contrib.activated,
    ("com.microsoft", "NhwcConv"): contrib.channels_last,
    ("com.microsoft", "FusedGemm"): contrib.activated,
    ("com.microsoft", "MatMulIntegerToFloat"): quantized.scaled_product,
    ("com.microsoft", "DynamicQuantizeMatMul"): quantized.dynamic_product,
    ("com.microsoft", "QGemm"): quantized.gemm,
    **dict.fromkeys((("com.microsoft", f"QLinear{w}") for w in quantized.OPERATORS), quantized.operator),
}
WHY = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), "its steps follow each other in one node"),
    **dict.fromkeys(
        ("TopK", "NonZero", "Unique", "NonMaxSuppression", "Compress", "ScatterND", "ScatterElements",
         "GatherND", "GatherElements", "OneHot", "RoiAlign", "Multinomial"),
        "which elements it touches depends on the data",
    ),
    **dict.fromkeys(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"),
                    "its result is random"),
}  # fmt: skip


def converted(graph: Graph, source: str, options: Options) -> Builder:
    """Convert every node of the graph. Raises SpecError with all inconsistent nodes at once."""
    b = Builder(graph, source, options)
    faults: list[Diagnostic] = []
    read = {name for node in graph.nodes for name in node.inputs} | {*graph.outputs}
    for node in graph.nodes:
        if all(o in graph.constants or not o for o in node.outputs):
            continue
        mark = len(b.operations), len(b.notes)
        try:
            handler(node)(b, node)
            _check_results(b, node, read)
        except InvalidNode as error:
            given = ", ".join(f"{n} {list(b.shape(n))}" for n in node.inputs if n and b.known(n))
            reason = f"{error.reason}; its inputs are {given}"
            faults.append(
                Diagnostic(
                    reason, error.remedy or "check the node", str(node), Place(source), code="no-counterpart"
                )
            )
            _as_inputs(b, node)
        except Unsupported as error:
            # The effects of earlier steps of the node are undone, because the whole node is left out.
            del b.operations[mark[0] :], b.notes[mark[1] :]
            _as_inputs(b, node)
            if not _as_weights(b, node):
                b.left_out.append(_left(b, node, error))
    if faults:
        raise SpecError(faults)
    for name in graph.outputs:
        if name in b.views and b.views[name].padded:
            message = "no counterpart: the zeros that a Pad puts around it are not stored"
            remedy = "write it without them"
            b.left_out.append(
                Diagnostic(message, remedy, f"output {name}", Place(source), code="no-counterpart")
            )
    return b


def _check_results(b: Builder, node: OnnxNode, read: set[str]) -> None:
    """Check that the result of the node has the shape given in the file, and that no other result of it is
    read."""
    for out in node.outputs:
        known = b.graph.values.get(out)
        if out in b.views:
            made = list(b.shape(out))
            if known is not None and made != list(known.shape):
                b.note(
                    node,
                    f"the file says that {out} is {list(known.shape)}; it is taken as {made}, as computed",
                )
        elif out in read:
            message = f"no counterpart: its result {out} is not computed"
            remedy = f"what it computes is taken as given: {out}"
            b.left_out.append(Diagnostic(message, remedy, str(node), Place(b.source), code="no-counterpart"))


def handler(node: OnnxNode) -> Handler:
    """Return the function that converts the node. Raises Unsupported if there is none."""
    result = OTHERS.get((node.domain, node.op)) or (HANDLERS.get(node.op) if not node.domain else None)
    if result is not None:
        return result
    if node.domain == BODY:
        raise Unsupported("it runs a graph of its own, as often as data says", "export without it")
    if node.domain:
        raise Unsupported(
            f"this operator of {node.domain} is not known", "replace it by ONNX's own operators"
        )
    if "." in node.op:  # an operation of PyTorch, whose message explains why it has no ONNX counterpart
        raise Unsupported(node.text("reason", ""), node.text("remedy", ""))
    raise Unsupported(WHY.get(node.op, "the operator has no counterpart"), "")


def _as_inputs(b: Builder, node: OnnxNode) -> None:
    """Make the results of a node that is left out inputs of the rest, where their shapes are known."""
    for out in node.outputs:
        b.views.pop(out, None)
        b.tensors.pop(out, None)


def _as_weights(b: Builder, node: OnnxNode) -> bool:
    """Treat the result of an operation on weights alone as a weight, whatever the operation is; return
    whether this was possible."""
    given = [n for n in node.inputs if n]
    made = [o for o in node.outputs if o]
    if not made or not pointwise.stored(b, given):
        return False
    same = b.shape(node.input(0)) if node.op in ("Trilu", "CumSum") else None
    shapes = [same or (b.shape(o) if o in b.graph.values else (0,)) for o in made]
    if any(min((*shape, 1)) < 1 for shape in shapes):
        return False
    for out, shape in zip(made, shapes, strict=True):
        dtype = b.dtype(out) if out in b.graph.values else b.dtype(node.input(0))
        b.views[out] = pointwise.weight(b, out, shape, dtype)
    b.note(node, pointwise.ONCE)
    return True


def _left(b: Builder, node: OnnxNode, error: Unsupported) -> Diagnostic:
    lacking = [o for o in node.outputs if o and o not in b.graph.values]
    after = "what it computes is taken as given: " + ", ".join(o for o in node.outputs if o)
    if lacking:
        after = f"the shape of {', '.join(lacking)} is unknown, so that what reads it is left out as well"
    remedy = f"{error.remedy}; {after}" if error.remedy else after
    shown = replace(node, domain="" if node.domain == BODY else node.domain)
    message = f"no counterpart: {error.reason}"
    return Diagnostic(message, remedy, str(shown), Place(b.source), code="no-counterpart")
