"""Convert ATen operations to nodes of the graph that the ONNX conversion reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from polymodel.importers.onnx.graph import Attribute, OnnxNode
from polymodel.importers.pytorch.arguments import OPSET, AtenArguments, Rule, Translation, UnknownCall
from polymodel.importers.pytorch.composed import COMPOSED
from polymodel.importers.pytorch.program import AtenCall, Ref, TorchProgram


def unary(op: str, **more: Attribute) -> Rule:
    return lambda a: a.node(op, (a.tensor(0, "self"),), **more)


def binary(op: str) -> Rule:
    """Convert an operation on two operands; `alpha` multiplies the second."""

    def rule(a: AtenArguments) -> None:
        second = a.tensor(1, "other")
        alpha = a.call.kwargs.get("alpha", 1)
        if alpha != 1:
            if not isinstance(alpha, (int, float)):
                raise UnknownCall
            factor = a.into.constant(float(alpha), np.float64)
            second = a.step("Mul", (second, factor), a.shape(second))
        a.node(op, (a.tensor(0, "self"), second))

    return rule


def swapped(op: str) -> Rule:
    return lambda a: a.node(op, (a.tensor(1, "other"), a.tensor(0, "self")))


def rsqrt(a: AtenArguments) -> None:
    name = a.tensor(0, "self")
    a.node("Reciprocal", (a.step("Sqrt", (name,), a.shape(name)),))


def hardtanh(a: AtenArguments) -> None:
    ends = [a.real(1, "min_val", -1.0), a.real(2, "max_val", 1.0)]
    a.node("Clip", (a.tensor(0, "self"), *(a.into.constant(e, np.float64) for e in ends)))


def where(a: AtenArguments) -> None:
    a.node("Where", tuple(a.tensor(k) for k in range(3)))


def masked_fill(a: AtenArguments) -> None:
    a.node("Where", (a.tensor(1, "mask"), a.tensor(2, "value"), a.tensor(0, "self")))


# ------------------------------------------------------------------------------------------- products


def matmul(a: AtenArguments) -> None:
    a.node("MatMul", (a.tensor(0, "self"), a.tensor(1, "other")))


def linear(a: AtenArguments) -> None:
    """Convert x W' + b, with the weight as it is stored: outputs x inputs."""
    weight, bias = a.tensor(1, "weight"), a.tensor(2, "bias")
    flipped = a.step(
        "Transpose", (weight,), a.shape(weight)[::-1], perm=list(range(len(a.shape(weight))))[::-1]
    )
    pair = (a.tensor(0, "input"), flipped)
    a.node("Add", (a.step("MatMul", pair, a.result), bias)) if bias else a.node("MatMul", pair)


def einsum(a: AtenArguments) -> None:
    equation, listed = a.argument(0, "equation"), a.argument(1, "operands")
    if not isinstance(equation, str) or not isinstance(listed, tuple):
        raise UnknownCall
    a.node("Einsum", [r.name for r in listed if isinstance(r, Ref)], equation=equation)


def conv(a: AtenArguments) -> None:
    """Convert `conv2d(x, w, b, stride, padding, dilation, groups)`."""
    count = len(a.shape(a.tensor(0, "input"))) - 2
    padding = a.argument(4, "padding", 0)
    more: dict[str, Attribute] = {"group": a.whole(6, "groups", 1)}
    if isinstance(padding, str):
        more["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}.get(padding, "NOTSET")
    else:
        more["pads"] = a.integers(4, "padding", count, [0] * count) * 2
    _convolve(a, count, more, "Conv", 5)


def convolution(a: AtenArguments) -> None:
    """Convert the general form: `stride, padding, dilation, transposed, output_padding, groups`."""
    count = len(a.shape(a.tensor(0, "input"))) - 2
    more: dict[str, Attribute] = {"pads": a.integers(4, "padding", count, [0] * count) * 2}
    more["group"] = a.whole(8, "groups", 1)
    if a.flag(6, "transposed"):
        more["output_padding"] = a.integers(7, "output_padding", count, [0] * count)
    _convolve(a, count, more, "ConvTranspose" if a.flag(6, "transposed") else "Conv", 5)


def conv_transpose(a: AtenArguments) -> None:
    """`conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation)`."""
    count = len(a.shape(a.tensor(0, "input"))) - 2
    more: dict[str, Attribute] = {
        "pads": a.integers(4, "padding", count, [0] * count) * 2,
        "output_padding": a.integers(5, "output_padding", count, [0] * count),
        "group": a.whole(6, "groups", 1),
    }
    _convolve(a, count, more, "ConvTranspose", 7)


def _convolve(a: AtenArguments, count: int, more: Mapping[str, Attribute], op: str, dilation: int) -> None:
    strides = a.integers(3, "stride", count, [1] * count)
    dilations = a.integers(dilation, "dilation", count, [1] * count)
    inputs = [a.tensor(0, "input"), a.tensor(1, "weight"), a.tensor(2, "bias")]
    a.node(op, [n for n in inputs if n], strides=strides, dilations=dilations, **more)


# ------------------------------------------------------------- normalisation, reductions, windows


def layer_norm(a: AtenArguments) -> None:
    names = [n for n in (a.tensor(2, "weight"), a.tensor(3, "bias")) if n]
    shape = a.integers(1, "normalized_shape")
    a.node(
        "LayerNormalization", (a.tensor(0, "input"), *names), axis=-len(shape), epsilon=a.real(4, "eps", 1e-5)
    )


def rms_norm(a: AtenArguments) -> None:
    eps = a.argument(3, "eps")
    weight = a.tensor(2, "weight")
    a.node(
        "RMSNormalization", [n for n in (a.tensor(0, "input"), weight) if n],
        axis=-len(a.integers(1, "normalized_shape")),
        epsilon=float(eps) if isinstance(eps, (int, float)) else 1e-5,
    )  # fmt: skip


def batch_norm(training: int, eps: int) -> Rule:
    """Convert batch normalisation with weights, mean and variance, at inference only."""

    def rule(a: AtenArguments) -> None:
        if training and a.flag(training, "training"):
            raise UnknownCall
        names = [a.tensor(k) for k in range(5)]
        if not all(names):
            raise UnknownCall
        a.node("BatchNormalization", names, epsilon=a.real(eps, "eps", 1e-5))

    return rule


def softmax(op: str) -> Rule:
    return lambda a: a.node(op, (a.tensor(0, "self"),), axis=a.whole(1, "dim", -1))


def reduction(op: str) -> Rule:
    """Convert `sum(x, dims, keepdim)`; without dimensions over all."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        axes = a.integers(1, "dim", 0, range(len(a.shape(name))))
        a.node(op, (name, a.into.constant(axes)), keepdims=int(a.flag(2, "keepdim")))

    return rule


def extreme(op: str, place: str) -> Rule:
    """Convert `max(x, dim, keepdim)` with the values and their positions; `max(x)`; `max(x, y)`."""

    def rule(a: AtenArguments) -> None:
        if isinstance(a.argument(1, "other"), Ref):
            a.node(op.removeprefix("Reduce"), (a.tensor(0, "self"), a.tensor(1, "other")))
            return
        name = a.tensor(0, "self")
        axes = a.integers(1, "dim", 0, range(len(a.shape(name))))
        keep = int(a.flag(2, "keepdim"))
        a.node(op, (name, a.into.constant(axes)), keepdims=keep)
        if len(a.call.results) > 1 and a.call.results[1]:
            a.node(place, (name,), (a.call.results[1],), axis=axes[0], keepdims=keep)

    return rule


def place_of(op: str) -> Rule:
    def rule(a: AtenArguments) -> None:
        a.node(op, (a.tensor(0, "self"),), axis=a.whole(1, "dim"), keepdims=int(a.flag(2, "keepdim")))

    return rule


def pool(op: str) -> Rule:
    """Convert `max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)`; averages specify their
    divisor."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        count = len(a.shape(name)) - 2
        kernel = a.integers(1, "kernel_size", count)
        more: dict[str, Attribute] = {
            "strides": a.integers(2, "stride", count, kernel),
            "pads": a.integers(3, "padding", count, [0] * count) * 2,
        }
        if op == "MaxPool":
            more["dilations"] = a.integers(4, "dilation", count, [1] * count)
            more["ceil_mode"] = int(a.flag(5, "ceil_mode"))
        else:
            more["ceil_mode"] = int(a.flag(4, "ceil_mode"))
            more["count_include_pad"] = int(a.flag(5, "count_include_pad", True))
            if a.argument(6, "divisor_override") is not None:
                raise UnknownCall
        a.node(op, (name,), kernel_shape=kernel, **more)

    return rule


def adaptive(op: str) -> Rule:
    """Convert adaptive pooling with equal windows: of all elements, or of parts that divide them."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        whole, asked = a.shape(name)[2:], a.result[2:]
        if all(n == 1 for n in asked):
            a.node(f"Global{op}", (name,))
            return
        if any(size % n for size, n in zip(whole, asked, strict=True)):
            raise UnknownCall
        steps = [size // n for size, n in zip(whole, asked, strict=True)]
        a.node(op, (name,), kernel_shape=steps, strides=steps)

    return rule


# ------------------------------------------------------------------------------------------- views


def reshape(a: AtenArguments) -> None:
    a.node("Reshape", (a.tensor(0, "self"), a.into.constant(list(a.result))))


def expand(a: AtenArguments) -> None:
    a.node("Expand", (a.tensor(0, "self"), a.into.constant(list(a.result))))


def permute(a: AtenArguments) -> None:
    name = a.tensor(0, "self")
    rank = len(a.shape(name))
    a.node("Transpose", (name,), perm=[d % rank for d in a.integers(1, "dims")])


def transpose(a: AtenArguments) -> None:
    """Convert the exchange of two dimensions; `t` has only two."""
    name = a.tensor(0, "self")
    order = list(range(len(a.shape(name))))
    if len(order) > 1:
        one, two = a.whole(1, "dim0", 0) % len(order), a.whole(2, "dim1", 1) % len(order)
        order[one], order[two] = order[two], order[one]
    a.node("Transpose", (name,), perm=order)


def sliced(a: AtenArguments) -> None:
    """`slice(x, dim, start, end, step)`."""
    name, dim = a.tensor(0, "self"), a.whole(1, "dim", 0)
    size = a.shape(name)[dim]
    start, end = a.argument(2, "start"), a.argument(3, "end")
    starts = start if isinstance(start, int) else 0
    ends = min(end, size) if isinstance(end, int) else size
    parts = (starts, ends, dim, a.whole(4, "step", 1))
    a.node("Slice", (name, *(a.into.constant([p]) for p in parts)))


def narrow(a: AtenArguments) -> None:
    start, length = a.whole(2, "start"), a.whole(3, "length")
    parts = (start, start + length, a.whole(1, "dim"))
    a.node("Slice", (a.tensor(0, "self"), *(a.into.constant([p]) for p in parts)))


def select(a: AtenArguments) -> None:
    axis = a.whole(1, "dim")
    a.node("Gather", (a.tensor(0, "self"), a.into.constant(a.whole(2, "index"))), axis=axis)


def split(dim: int) -> Rule:
    """Convert the division of one dimension into as many parts as there are results."""

    def rule(a: AtenArguments) -> None:
        name, axis = a.tensor(0, "self"), a.whole(dim, "dim", 0)
        size = a.shape(name)[axis]
        asked = a.argument(1, "split_size") if dim > 1 else None
        count = len(a.call.results)
        if isinstance(asked, tuple):
            sizes = a.integers(1, "split_sizes")
        else:
            each = asked if isinstance(asked, int) and a.call.target != "aten.chunk" else -(-size // count)
            sizes = [min(each, size - k * each) for k in range(count)]
        if dim > 1:
            a.node("Split", (name, a.into.constant(sizes)), a.call.results, axis=axis)
            return
        for k, out in enumerate(a.call.results):  # unbind: each without the dimension
            if out:
                a.node("Gather", (name, a.into.constant(k)), (out,), axis=axis)

    return rule


def concatenated(a: AtenArguments) -> None:
    listed = a.argument(0, "tensors")
    if not isinstance(listed, tuple) or not all(isinstance(r, Ref) for r in listed):
        raise UnknownCall
    a.node("Concat", [r.name for r in listed if isinstance(r, Ref)], axis=a.whole(1, "dim", 0))


def padded(a: AtenArguments) -> None:
    """Convert padding, given as pairs from the last dimension on."""
    name = a.tensor(0, "self")
    pairs = a.integers(1, "pad")
    if a.argument(2, "mode", "constant") not in ("constant", 0, 0.0) or a.argument(3, "value", 0) not in (
        None,
        0,
        0.0,
    ):
        raise UnknownCall
    rank, count = len(a.shape(name)), len(pairs) // 2
    heads, tails = pairs[::2][::-1], pairs[1::2][::-1]
    pads = [0] * (rank - count) + heads + [0] * (rank - count) + tails
    a.node("Pad", (name, a.into.constant(pads)))


def gathered(a: AtenArguments) -> None:
    """Convert reading rows of a table, where the selection depends on the data."""
    weight, indices = (0, 1) if a.call.target == "aten.embedding" else (0, 2)
    axis = a.whole(1, "dim") if indices == 2 else 0
    a.node("Gather", (a.tensor(weight), a.tensor(indices)), axis=axis)


def repeated(a: AtenArguments) -> None:
    """Convert nearest-neighbour resizing by whole factors."""
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    a.node("Resize", (a.tensor(0, "input"),), mode="nearest", **how)


def shuffled(a: AtenArguments) -> None:
    a.node("DepthToSpace", (a.tensor(0, "self"),), blocksize=a.whole(1, "upscale_factor", 1), mode="CRD")


def made(a: AtenArguments) -> None:
    """Convert tensors that are filled without an input to weights, because they are computed once."""
    a.into.weights.update(r for r in a.call.results if r)


def cast(a: AtenArguments) -> None:
    a.node("Cast", (a.tensor(0, "self"),))


_SAME = unary("Identity")
_WORDS = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "gelu": "Gelu", "silu": "Swish", "exp": "Exp",
    "log": "Log", "sqrt": "Sqrt", "neg": "Neg", "abs": "Abs", "erf": "Erf", "sin": "Sin", "cos": "Cos",
    "tan": "Tan", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "mish": "Mish",
    "reciprocal": "Reciprocal", "hardswish": "HardSwish", "isnan": "IsNaN",
    "isinf": "IsInf", "logical_not": "Not", "bitwise_not": "BitwiseNot",
    "sinh": "Sinh", "cosh": "Cosh", "asin": "Asin", "acos": "Acos", "atan": "Atan", "selu": "Selu",
}  # fmt: skip
_PAIRS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "maximum": "Max", "minimum": "Min",
    "eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual",
    "logical_and": "And", "logical_or": "Or", "logical_xor": "Xor", "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr", "remainder": "Mod", "fmod": "Mod", "floor_divide": "Div",
    "_prelu_kernel": "PRelu",
}  # fmt: skip
_VIEWS = (
    "view _unsafe_view reshape flatten unflatten unsqueeze squeeze view_as reshape_as ravel squeeze_dims"
).split()
_FILLED = "zeros ones full empty arange scalar_tensor zeros_like ones_like full_like linspace eye".split()
_NOTHING = (
    "contiguous clone detach alias lift_fresh_copy lift_fresh dropout feature_dropout native_dropout".split()
)
RULES: dict[str, Rule] = {
    **COMPOSED,
    **{name: unary(op) for name, op in _WORDS.items()},
    **{name: binary(op) for name, op in _PAIRS.items()},
    **dict.fromkeys(_VIEWS, reshape),
    **dict.fromkeys(_FILLED, made),
    **dict.fromkeys(_NOTHING, _SAME),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), expand),
    **dict.fromkeys(("mm", "bmm", "matmul", "dot", "mv"), matmul),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), conv),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), conv_transpose),
    **dict.fromkeys(("softmax", "_softmax"), softmax("Softmax")),
    **dict.fromkeys(("log_softmax", "_log_softmax"), softmax("LogSoftmax")),
    **dict.fromkeys(("layer_norm", "native_layer_norm"), layer_norm),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d", "max_pool2d_with_indices",
                     "max_pool3d_with_indices"), pool("MaxPool")),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), pool("AveragePool")),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d",
                     "adaptive_avg_pool3d"), adaptive("AveragePool")),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_max_pool2d"), adaptive("MaxPool")),
    **dict.fromkeys(("to", "_to_copy", "type_as", "convert_element_type"), cast),
    **dict.fromkeys(("transpose", "t", "numpy_T", "swapaxes"), transpose),
    **dict.fromkeys(("split", "split_with_sizes", "chunk"), split(2)),
    **dict.fromkeys(("pad", "constant_pad_nd"), padded),
    **dict.fromkeys(("embedding", "index_select"), gathered),
    **dict.fromkeys(("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"), repeated),
    "leaky_relu": lambda a: a.node("LeakyRelu", (a.tensor(0),), alpha=a.real(1, "negative_slope", 0.01)),
    "elu": lambda a: a.node("Elu", (a.tensor(0),), alpha=a.real(1, "alpha", 1.0)),
    "relu6": lambda a: a.node("Clip", (a.tensor(0), *(a.into.constant(e, np.float64) for e in (0.0, 6.0)))),
    "rsub": swapped("Sub"), "rsqrt": rsqrt, "hardtanh": hardtanh,
    "where": where, "masked_fill": masked_fill, "linear": linear,
    "einsum": einsum, "convolution": convolution, "rms_norm": rms_norm,
    "batch_norm": batch_norm(5, 7), "_native_batch_norm_legit_no_training": batch_norm(0, 6),
    "mean": reduction("ReduceMean"), "sum": reduction("ReduceSum"), "amax": reduction("ReduceMax"),
    "amin": reduction("ReduceMin"), "prod": reduction("ReduceProd"),
    "logsumexp": reduction("ReduceLogSumExp"),
    "any": reduction("ReduceMax"), "all": reduction("ReduceMin"),
    "max": extreme("ReduceMax", "ArgMax"), "min": extreme("ReduceMin", "ArgMin"),
    "argmax": place_of("ArgMax"), "argmin": place_of("ArgMin"),
    "permute": permute, "slice": sliced, "narrow": narrow, "select": select, "unbind": split(1),
    "cat": concatenated, "pixel_shuffle": shuffled,
}  # fmt: skip
# Calls that check something and produce nothing.
_CHECKS = ("_assert", "sym_constrain", "_log_api_usage")


def translated(program: TorchProgram) -> Translation:
    """Return the nodes of every call, in order. An unknown call keeps its name, and is left out later."""
    into = Translation(program, values=dict(program.values), weights=set(program.weights))
    for call in program.calls:
        domain, _, word = call.target.rpartition(".")
        if word.startswith(_CHECKS):
            continue
        mark = len(into.nodes), set(into.weights)
        rule = RULES.get(word) or RULES.get(word.removesuffix("_"))
        try:
            if rule is None or domain not in ("aten", "prims"):
                raise UnknownCall
            rule(AtenArguments(call, into))
        except UnknownCall:
            del into.nodes[mark[0] :]
            into.weights = mark[1]
            results = tuple(r or f"{call.name}_{k}" for k, r in enumerate(call.results))
            inputs = tuple(r.name for r in _tensors(call))
            why = dict(zip(("reason", "remedy"), _why(word, rule is not None), strict=True))
            into.nodes.append(OnnxNode(call.target, "", call.name, inputs, results, why, OPSET))
    return into


_ON_DATA = (
    "topk sort argsort nonzero gather scatter scatter_add index index_put masked_select unique2 bincount"
)
_SIMPLER = "run_decompositions() of the program may write it as operations that have one"


def _why(word: str, known: bool) -> tuple[str, str]:
    """Why a call becomes no node, and what to do."""
    if word in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        return (
            "its steps follow each other in one node",
            "run_decompositions() of the program writes them out",
        )
    if word in _ON_DATA.split():
        return "which elements it touches depends on the data", ""
    if known:
        return "with these arguments it has no counterpart", _SIMPLER
    return "the operator has no counterpart", _SIMPLER


def _tensors(call: AtenCall) -> list[Ref]:
    result: list[Ref] = []

    def look(argument: Any) -> None:
        if isinstance(argument, Ref):
            result.append(argument)
        elif isinstance(argument, tuple):
            for one in argument:
                look(one)

    look(call.args)
    look(tuple(call.kwargs.values()))
    return result
