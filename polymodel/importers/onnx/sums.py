"""Convert reductions, pooling, softmax and normalisation to cascades of sums and element-wise operations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import prod

from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import DEFAULT, literal
from polymodel.importers.onnx.products import reached, space, windowed, windows
from polymodel.importers.onnx.views import IndexView

# ONNX's name -> the operation on each element, the reduction, the operation on the sum.
REDUCE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "ReduceSum": ("", "add", ()),
    "ReduceMean": ("", "add", ("mean",)),
    "ReduceMax": ("", "max", ()),
    "ReduceMin": ("", "min", ()),
    "ReduceProd": ("", "mul", ()),
    "ReduceL1": ("abs", "add", ()),
    "ReduceL2": ("mul(_0, _0)", "add", ("sqrt",)),
    "ReduceSumSquare": ("mul(_0, _0)", "add", ()),
    "ReduceLogSum": ("", "add", ("log",)),
    "ReduceLogSumExp": ("exp", "add", ("log",)),
    "ArgMax": ("", "argmax", ()),
    "ArgMin": ("", "argmin", ()),
}


def positive(axes: Sequence[int], rank: int) -> list[int]:
    """Return axes counted from the front. Raises Wrong for those out of range."""
    if axes and not rank:
        raise InvalidNode("its input is a single number, which has no axes", "give it a tensor")
    if any(not -rank <= a < rank for a in axes):
        raise InvalidNode(
            f"axes {list(axes)} are not in a tensor of {rank} dimensions", f"axes run from 0 to {rank - 1}"
        )
    return sorted({a % rank for a in axes})


def reduction(b: Builder, node: OnnxNode) -> None:
    """Convert ReduceSum and similar operators, ArgMax and ArgMin."""
    source, out = node.input(0), node.outputs[0]
    rank = len(b.shape(source))
    axes = node.int_list("axes")
    if node.op.startswith("Arg"):
        axes = [node.whole("axis", 0)]
    elif node.input(1):
        given = b.graph.constants.get(node.input(1))
        if given is None:
            raise Unsupported(
                f"its axes {node.input(1)} are not constant", "export the model with constant axes"
            )
        axes = [int(v) for v in given.ravel()]
    if not axes and node.whole("noop_with_empty_axes", 0):
        b.alias(out, b.value(source))
        return
    chosen = positive(axes, rank) if axes else list(range(rank))
    each, join, after = REDUCE[node.op]
    dtype = "int64" if node.op.startswith("Arg") else ""
    found = reduced(
        b, node, out, b.value(source, DEFAULT.get(rank, ())), chosen, each, join, after, dtype=dtype
    )
    if not node.whole("keepdims", 1):
        b.alias(out, squeezed(found, chosen))


def squeezed(view: IndexView, axes: Sequence[int]) -> IndexView:
    """Return the view without dimensions of one element."""
    kept = [k for k in range(len(view.dims)) if k not in axes]
    dims, shape = tuple(view.dims[k] for k in kept), tuple(view.shape[k] for k in kept)
    return IndexView(view.tensor, view.index, dims, shape, view.limits, view.padded)


def reduced(
    b: Builder,
    node: OnnxNode,
    out: str,
    view: IndexView,
    axes: Sequence[int],
    each: str,
    join: str,
    after: Sequence[str] = (),
    *,
    name: str = "",
    dtype: str = "",
) -> IndexView:
    """Return `view` reduced over `axes`, which remain as dimensions of size 1. `mean` divides by their
    extent. Padded zeros add nothing to a sum, but they have an exponential, and may be the maximum."""
    rank = len(view.dims)
    count = prod(view.shape[a] for a in axes)
    populate = [f"div(_, {count})" if text == "mean" else text for text in after]
    labels: list[Hashable] = [() if k in axes else k for k in range(rank)]
    return b.einsum(node, out, labels, [(view, range(rank))], map=each, reduce=join, populate=populate,
                    name=name, dtype=dtype, zeros=join == "add" and each != "exp")  # fmt: skip


def pool(b: Builder, node: OnnxNode) -> None:
    """Convert MaxPool, AveragePool and their global forms: one operation per element of each window."""
    source, out = node.input(0), node.outputs[0]
    if len([o for o in node.outputs if o]) > 1:
        raise Unsupported("its second output, the indices, has no counterpart", "leave the indices out")
    shape = b.shape(source)
    dims = len(shape) - 2
    if dims < 1:
        raise InvalidNode(
            f"its input has shape {list(shape)}", "it takes batch, channels and at least one dimension"
        )
    hints = space(dims)
    view = b.value(source, ("N", "C", *hints[0]))
    if view.padded:
        raise Unsupported("it reads zeros that an earlier Pad puts around", "give the pooling its own pads")
    kind = node.op.removeprefix("Global")
    if node.op.startswith("Global"):
        join = "max" if kind == "MaxPool" else "add"
        reduced(b, node, out, view, range(2, dims + 2), "", join, ("mean",) if join == "add" else ())
        return
    kernel = node.int_list("kernel_shape") or []
    if len(kernel) != dims or min(kernel) < 1:
        raise InvalidNode(
            f"kernel_shape {kernel} does not fit {dims} dimensions", "give one size per dimension"
        )
    found = windows(node, shape[2:], kernel)
    view, (strides, dilations, pads, sizes) = reached(b, node, source, kernel, found)
    for k in reversed(range(dims)):
        steps = strides[k], dilations[k], pads[k]
        view = windowed(b, node, view, 2 + k, steps, (sizes[k], kernel[k]), (hints[1][k], hints[2][k]))
    place, inside = [f"p{k}" for k in range(dims)], [f"r{k}" for k in range(dims)]
    paired = [label for pair in zip(place, inside, strict=True) for label in pair]
    after: tuple[str, ...] = ()
    if kind == "AveragePool":
        after = (f"div(_, {prod(kernel)})",)
        if view.padded and not node.whole("count_include_pad", 0):
            after = ("div(_, points)",)  # as many as the window has inside the input
        elif view.padded and node.whole("ceil_mode", 0):
            raise Unsupported("ceil_mode together with count_include_pad divides by a number of its own", "")
    join = "max" if kind == "MaxPool" else "add"
    b.einsum(
        node, out, ("n", "c", *place), [(view, ("n", "c", *paired))], reduce=join, populate=after, zeros=True
    )


def softmax(b: Builder, node: OnnxNode) -> None:
    """Convert Softmax to one Einsum with one operation per score, or to the cascade of maximum, exponential,
    sum and quotient."""
    source, out = node.input(0), node.outputs[0]
    rank = len(b.shape(source))
    old = node.version < 13
    (axis,) = positive([node.whole("axis", 1 if old else -1)], rank)
    axes = list(range(axis, rank)) if old else [axis]
    word = node.op.lower()
    view = b.value(source, DEFAULT.get(rank, ()))
    soft(b, node, out, view, axes, word)


def soft(
    b: Builder, node: OnnxNode, out: str, view: IndexView, axes: Sequence[int], word: str = "softmax"
) -> IndexView:
    """Return the softmax of a view over `axes`."""
    every = range(len(view.dims))
    name = "" if out == node.outputs[0] else out
    if b.options.softmax == "one" or word == "hardmax":
        return b.einsum(node, out, every, [(view, every)], map=word, name=name, over=list(axes))
    called = (node.name if not name else out) or out
    parts = {p: b.fresh(f"{out}_{p}") for p in ("max", "exp", "sum", "shifted", "log")}
    peak = reduced(b, node, parts["max"], view, axes, "", "max", name=f"{called}_max")
    if word == "logsoftmax":
        low = b.einsum(node, parts["shifted"], every, [(view, every), (peak, every)], map="sub",
                       name=f"{called}_shifted")  # fmt: skip
        total = reduced(b, node, parts["log"], low, axes, "exp", "add", ("log",), name=f"{called}_log")
        return b.einsum(node, out, every, [(low, every), (total, every)], map="sub", name=called)
    up = b.einsum(node, parts["exp"], every, [(view, every), (peak, every)], map="exp(sub(_0, _1))",
                  name=f"{called}_exp")  # fmt: skip
    total = reduced(b, node, parts["sum"], up, axes, "", "add", name=f"{called}_sum")
    return b.einsum(node, out, every, [(up, every), (total, every)], map="div", name=called)


def layer_norm(b: Builder, node: OnnxNode) -> None:
    """Convert to mean, differences, mean of their squares, quotient, then scale and bias where they are
    given."""
    source, out = node.input(0), node.outputs[0]
    rank = len(b.shape(source))
    (axis,) = positive([node.whole("axis", -1)], rank)
    view = b.value(source, DEFAULT.get(rank, ()))
    axes = list(range(axis, rank))
    centre = node.op != "RMSNormalization" and not node.op.startswith("Simplified")
    weights = [n for n in (node.input(1), node.input(2)) if n]
    mean = node.outputs[1] if centre and len(node.outputs) > 1 else ""
    normed(b, node, out, view, axes, weights, rank - 1, centre=centre, mean=mean)


def instance_norm(b: Builder, node: OnnxNode) -> None:
    """Convert to the same operations for every batch and channel, over space; the weights belong to
    channels."""
    rank = len(b.shape(node.input(0)))
    if rank < 3:
        raise InvalidNode(
            f"its input has {rank} dimensions", "it takes batch, channels and at least one dimension"
        )
    view = b.value(node.input(0), DEFAULT.get(rank, ()))
    normed(b, node, node.outputs[0], view, range(2, rank), [node.input(1), node.input(2)], 1)


def group_norm(b: Builder, node: OnnxNode) -> None:
    """Convert to the same operations for every batch and group of channels, over its channels and space, with
    weights per channel, before operator set 21 per group."""
    out, shape, groups = node.outputs[0], b.shape(node.input(0)), node.whole("num_groups", 0)
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise InvalidNode(f"{groups} groups do not fit an input of shape {list(shape)}", "check num_groups")
    first, channels, *space_hints = DEFAULT.get(len(shape), ("",) * len(shape))
    parts, names = (groups, shape[1] // groups), ("G", "I")
    view = b.value(node.input(0), (first, channels, *space_hints))
    view = b.reshaped(node, view, (shape[0], *parts, *shape[2:]), (first, *names, *space_hints))
    weights = [b.fresh(f"{w}_of_{out}") for w in node.inputs[1:3]]
    each = all(b.shape(w) == (shape[1],) for w in node.inputs[1:3])
    if not each and any(b.shape(w) != (groups,) for w in node.inputs[1:3]):
        raise InvalidNode(f"its weights fit neither {shape[1]} channels nor {groups} groups", "check them")
    for weight, grouped in zip(node.inputs[1:3], weights, strict=True):
        told = b.value(weight, (channels if each else "G",))
        b.alias(grouped, b.reshaped(node, told, parts, names) if each else told)
    made = normed(b, node, out, view, range(2, len(shape) + 1), weights, 2 if each else 1)
    b.alias(out, b.reshaped(node, made, shape, (first, channels, *space_hints)))


def normed(
    b: Builder, node: OnnxNode, out: str, view: IndexView, axes: Sequence[int], weights: Sequence[str],
    last: int, *, centre: bool = True, mean: str = "",
) -> IndexView:  # fmt: skip
    """Add (x - mean) / sqrt(variance + epsilon), times and plus weights whose last dimension is `last`.
    `mean`: the name of the mean in the file, if it has one."""
    every = range(len(view.dims))
    called = node.name or out
    steps = ["centred", "normed", *("scaled" for _ in weights[1:])]
    name = {s: b.fresh(f"{out}_{s}") for s in ("mean", "variance", *steps)}
    if centre:
        middle = reduced(b, node, mean or name["mean"], view, axes, "", "add", ("mean",),
                         name=f"{called}_mean")  # fmt: skip
        view = b.einsum(node, name["centred"], every, [(view, every), (middle, every)], map="sub",
                        name=f"{called}_centred")  # fmt: skip
    small = f"add(_, {literal(node.real('epsilon', 1e-5))})"
    spread = reduced(b, node, name["variance"], view, axes, "mul(_0, _0)", "add", ("mean", small, "sqrt"),
                     name=f"{called}_variance")  # fmt: skip
    results = [name["normed"], name.get("scaled", out), out]
    results = [out] if not weights else [name["normed"], out] if len(weights) == 1 else results
    ends = [f"{called}_normed", f"{called}_scaled", called]
    ends = [called] if not weights else [ends[0], called] if len(weights) == 1 else ends
    view = b.einsum(node, results[0], every, [(view, every), (spread, every)], map="div", name=ends[0])
    for weight, word, result, end in zip(weights, ("mul", "add"), results[1:], ends[1:], strict=False):
        size = len(b.shape(weight))
        if size > last + 1:
            raise InvalidNode(f"{weight} has {size} dimensions, more than it can scale", "check the shapes")
        labels = range(last - size + 1, last + 1)
        view = b.einsum(node, result, every, [(view, every), (b.value(weight), labels)], map=word, name=end)
    return view


def batch_norm(b: Builder, node: OnnxNode) -> None:
    """Convert to one multiplication and one addition per element, by weights that are computed once
    (inference)."""
    source, out = node.input(0), node.outputs[0]
    shape = b.shape(source)
    if node.whole("training_mode", 0):
        raise Unsupported("it is in training mode", "export the model for inference")
    if not node.whole("spatial", 1):
        raise Unsupported("it has a mean and a variance for each place", "export the model anew")
    if len(shape) < 2:
        raise InvalidNode(
            f"its input has shape {list(shape)}", "it takes batch, channels and further dimensions"
        )
    if not all(b.is_weight(n) for n in node.inputs[1:5]):
        raise Unsupported(
            "its scale, bias, mean and variance are not weights", "export the model for inference"
        )
    channels = shape[1]
    odd = [n for n in node.inputs[1:5] if b.shape(n) != (channels,)]
    if odd:
        raise InvalidNode(f"{odd[0]} is not one number for each of {channels} channels", "check the shapes")
    dtype = b.dtype(source)
    parts = [b.fresh(f"{out}_{p}") for p in ("factor", "offset", "scaled")]
    view = b.value(source, DEFAULT.get(len(shape), ("N", "C")))
    every = range(len(shape))
    factor, offset = (b.base(p, (channels,), ("C",), dtype, weight=True) for p in parts[:2])
    b.views |= {parts[0]: factor, parts[1]: offset}
    b.note(node, "a factor and an offset for each channel are computed once from its four weights")
    called = node.name or out
    scaled = b.einsum(
        node, parts[2], every, [(view, every), (factor, [1])], map="mul", name=f"{called}_scaled"
    )
    b.einsum(node, out, every, [(scaled, every), (offset, [1])], map="add", name=called)
