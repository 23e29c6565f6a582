"""ATen's operations that are several nodes of the graph that the conversion of ONNX knows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polymodel.importers.onnx.graph import Attribute
from polymodel.importers.pytorch.arguments import AtenArguments, Rule, UnknownCall
from polymodel.importers.pytorch.program import Ref


def _number(a: AtenArguments, value: float) -> str:
    return a.into.constant(float(value), np.float64)


def _times(a: AtenArguments, name: str, factor: object) -> str:
    """The tensor, times a number where it is not one."""
    if not isinstance(factor, (int, float)):
        raise UnknownCall
    return name if factor == 1 else a.step("Mul", (name, _number(a, factor)), a.shape(name))


# ---------------------------------------------------------------------------------- element by element


def chain(*steps: tuple[str, float | None]) -> Rule:
    """Operations of one element, one after the other, each with the number that is its second operand."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        shape = a.shape(name)
        for k, (op, second) in enumerate(steps):
            inputs = (name,) if second is None else (name, _number(a, second))
            if k == len(steps) - 1:
                a.node(op, inputs)
            else:
                name = a.step(op, inputs, shape)

    return rule


def exp2(a: AtenArguments) -> None:
    a.node("Pow", (_number(a, 2), a.tensor(0, "self")))


def erfc(a: AtenArguments) -> None:
    name = a.tensor(0, "self")
    a.node("Sub", (_number(a, 1), a.step("Erf", (name,), a.shape(name))))


def softplus(a: AtenArguments) -> None:
    """log(1 + exp(beta x)) / beta."""
    beta = a.real(1, "beta", 1.0)
    name = a.tensor(0, "self")
    if beta == 1:
        a.node("Softplus", (name,))
        return
    made = a.step("Softplus", (_times(a, name, beta),), a.shape(name))
    a.node("Mul", (made, _number(a, 1 / beta)))


def unequal(a: AtenArguments) -> None:
    a.node("Not", (a.step("Equal", (a.tensor(0, "self"), a.tensor(1, "other")), a.result),))


def prelu(a: AtenArguments) -> None:
    """One slope, or one for each channel: the second dimension."""
    name, slope = a.tensor(0, "self"), a.tensor(1, "weight")
    own, rank = a.shape(slope), len(a.shape(name))
    if len(own) == 1 and own[0] > 1 and rank > 2:
        slope = a.reshaped(slope, (own[0], *(1 for _ in range(rank - 2))))
    a.node("PRelu", (name, slope))


def glu(a: AtenArguments) -> None:
    """The first half, times the sigmoid of the second."""
    name, axis = a.tensor(0, "self"), a.whole(1, "dim", -1)
    half = a.shape(name)[axis] // 2
    parts = tuple(f"{a.call.name}.half{k}" for k in range(2))
    a.node("Split", (name, a.into.constant([half, half])), parts, axis=axis)
    a.node("Mul", (parts[0], a.step("Sigmoid", parts[1:], a.result)))


def clamp(lowest: bool, highest: bool) -> Rule:
    """`clamp(x, min, max)` with numbers or tensors, and its halves."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        low = a.argument(1, "min") if lowest else None
        high = a.argument(1 + lowest, "max") if highest else None
        if isinstance(low, Ref) or isinstance(high, Ref):
            steps = [(op, a.tensor(k, key)) for op, k, key in (("Max", 1, "min"), ("Min", 1 + lowest, "max"))
                     if (low if op == "Max" else high) is not None]  # fmt: skip
            for op, end in steps[:-1]:
                name = a.step(op, (name, end), a.result)
            a.node(steps[-1][0], (name, steps[-1][1]))
            return
        ends = [_number(a, e) if isinstance(e, (int, float)) else "" for e in (low, high)]
        a.node("Clip", (name, *ends))

    return rule


def with_product(op: str) -> Rule:
    """`addcmul(x, y, z, value)`: x + value y z, and with a quotient."""

    def rule(a: AtenArguments) -> None:
        pair = (a.tensor(1, "tensor1"), a.tensor(2, "tensor2"))
        joined = _times(a, a.step(op, pair, a.result), a.argument(3, "value", 1))
        a.node("Add", (a.tensor(0, "self"), joined))

    return rule


def lerp(a: AtenArguments) -> None:
    """x + weight (end - x)."""
    name, weight = a.tensor(0, "self"), a.tensor(2, "weight")
    way = a.step("Sub", (a.tensor(1, "end"), name), a.result)
    a.node("Add", (name, a.step("Mul", (way, weight), a.result)))


# ------------------------------------------------------------------------------------------- products


def add_product(a: AtenArguments) -> None:
    """`addmm(C, A, B)`, and with a vector or matrices in a batch: beta C + alpha A B."""
    made = a.step("MatMul", (a.tensor(1, "mat1"), a.tensor(2, "mat2")), a.result)
    made = _times(a, made, a.argument(4, "alpha", 1))
    added = a.tensor(0, "self")
    beta = a.argument(3, "beta", 1)
    if beta == 0:
        a.node("Identity", (made,))
        return
    a.node("Add", (made, _times(a, added, beta)))


def outer(a: AtenArguments) -> None:
    a.node("Einsum", (a.tensor(0, "self"), a.tensor(1, "vec2")), equation="i,j->ij")


def attention(a: AtenArguments) -> None:
    """`scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale)`, of any batch."""
    names = [a.tensor(k) for k in range(3)]
    shapes = [a.shape(n) for n in names]
    rank = len(shapes[0])
    if len({len(s) for s in shapes}) > 1 or rank < 3:
        raise UnknownCall
    mask = a.tensor(3, "attn_mask")
    if rank > 4:
        if len({s[:-3] for s in shapes}) > 1 or (mask and len(a.shape(mask)) > 3):
            raise UnknownCall
        names = [a.reshaped(n, (math.prod(s[:-3]), *s[-3:])) for n, s in zip(names, shapes, strict=True)]
    elif rank == 3:
        names = [a.reshaped(n, (s[0], 1, *s[1:])) for n, s in zip(names, shapes, strict=True)]
    more: dict[str, Attribute] = {"is_causal": int(a.flag(5, "is_causal"))}
    scale = a.argument(6, "scale")
    if isinstance(scale, (int, float)):
        more["scale"] = float(scale)
    inputs = (*names, *([mask] if mask else []))
    if rank == 4:
        a.node("Attention", inputs, **more)
        return
    a.node("Reshape", (a.step("Attention", inputs, **more), a.into.constant(list(a.result))))


# ------------------------------------------------------------------------- normalisation, reductions


def group_norm(groups: int, eps: int) -> Rule:
    """Each group of channels is normalised over all that it has; weights belong to channels. `groups`, `eps`:
    the places of these arguments."""
    weights = 2 if groups == 1 else 1
    return lambda a: _grouped(a, a.whole(groups, "num_groups", 1), weights, a.real(eps, "eps", 1e-5))


def instance_norm(a: AtenArguments) -> None:
    """Every channel by itself, over its own elements."""
    if not a.flag(5, "use_input_stats", True):
        raise UnknownCall
    _grouped(a, a.shape(a.tensor(0, "input"))[1], 1, a.real(7, "eps", 1e-5))


def own_batch_norm(a: AtenArguments) -> None:
    """Channels of one image, normalised by their own mean and variance: instance normalisation decomposed."""
    shape = a.shape(a.tensor(0, "input"))
    if a.argument(3, "training") is not True or shape[0] != 1:
        raise UnknownCall
    _grouped(a, shape[1], 1, a.real(5, "eps", 1e-5))


def _grouped(a: AtenArguments, groups: int, weights: int, eps: float) -> None:
    name = a.tensor(0, "input")
    shape = a.shape(name)
    rows = a.reshaped(name, (shape[0], groups, -1))
    found = a.step("LayerNormalization", (rows,), axis=-1, epsilon=eps)
    found = a.reshaped(found, shape)
    wide = (shape[1], *(1 for _ in shape[2:]))
    for k, (key, op) in enumerate((("weight", "Mul"), ("bias", "Add"))):
        weight = a.tensor(weights + k, key)
        if weight:
            found = a.step(op, (found, a.reshaped(weight, wide)), shape)
    a.node("Identity", (found,))


def _axes(a: AtenArguments, place: int, name: str) -> list[int]:
    return a.integers(place, "dim", 0, range(len(a.shape(name))))


def vector_norm(a: AtenArguments) -> None:
    """The norm of order 1, 2 or infinity."""
    name, order = a.tensor(0, "self"), a.argument(1, "ord", 2)
    axes = a.into.constant(_axes(a, 2, name))
    keep = int(a.flag(3, "keepdim"))
    if order in (1, 2):
        a.node("ReduceL1" if order == 1 else "ReduceL2", (name, axes), keepdims=keep)
    elif order in (math.inf, -math.inf):
        sizes = a.step("Abs", (name,), a.shape(name))
        a.node("ReduceMax" if order == math.inf else "ReduceMin", (sizes, axes), keepdims=keep)
    else:
        raise UnknownCall


def variance(root: bool) -> Rule:
    """The mean of squared differences from the mean, over n - 1 elements or as `correction` says; its root.
    `var_mean` gives the mean as well."""

    def rule(a: AtenArguments) -> None:
        name = a.tensor(0, "self")
        whole = isinstance(a.argument(1, "dim"), bool)
        axes = list(range(len(a.shape(name)))) if whole else _axes(a, 1, name)
        told = a.argument(1 if whole else 2, "unbiased")
        told = a.call.kwargs.get("correction") if told is None else told
        correction = 1 if told is None else told
        count = math.prod(a.shape(name)[d] for d in axes)
        if not isinstance(correction, (bool, int, float)) or count <= correction:
            raise UnknownCall
        keep = int(a.flag(3, "keepdim"))
        over = a.into.constant(axes)
        mean = a.step("ReduceMean", (name, over), keepdims=1)
        squares = a.step("Pow", (a.step("Sub", (name, mean), a.shape(name)), _number(a, 2)), a.shape(name))
        made = a.step("ReduceSum", (squares, over), a.result, keepdims=keep)
        last = (made, _number(a, 1 / (count - correction)))
        a.node("Sqrt", (a.step("Mul", last, a.result),)) if root else a.node("Mul", last)
        if len(a.call.results) > 1 and a.call.results[1]:
            again = a.into.constant(list(a.result))
            a.node("Reshape", (mean, again), (a.call.results[1],))

    return rule


# ------------------------------------------------------------------------------------------- views


def _moved(a: AtenArguments, name: str, inner: Sequence[int], order: Sequence[int]) -> None:
    """Split dimensions, in another order, joined as the result has them."""
    apart = a.reshaped(name, inner)
    turned = a.step("Transpose", (apart,), [inner[d] for d in order], perm=list(order))
    a.node("Reshape", (turned, a.into.constant(list(a.result))))


def pixel_unshuffle(a: AtenArguments) -> None:
    name, r = a.tensor(0, "self"), a.whole(1, "downscale_factor", 1)
    *batch, c, h, w = a.shape(name)
    n = len(batch)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    _moved(a, name, (*batch, c, h // r, r, w // r, r), order)


def channel_shuffle(a: AtenArguments) -> None:
    name, groups = a.tensor(0, "self"), a.whole(1, "groups", 1)
    n, c, *rest = a.shape(name)
    _moved(a, name, (n, groups, c // groups, *rest), [0, 2, 1, *range(3, len(rest) + 3)])


def movedim(a: AtenArguments) -> None:
    name = a.tensor(0, "self")
    rank = len(a.shape(name))
    source = [d % rank for d in a.integers(1, "source")]
    target = [d % rank for d in a.integers(2, "destination")]
    rest = iter([d for d in range(rank) if d not in source])
    places = dict(zip(target, source, strict=True))
    a.node("Transpose", (name,), perm=[places[d] if d in places else next(rest) for d in range(rank)])


def repeat_interleave(a: AtenArguments) -> None:
    """Convert the repetition of every element of one dimension, as for heads that share keys."""
    name, count = a.tensor(0, "self"), a.whole(1, "repeats")
    shape = list(a.shape(name))
    axis = a.whole(2, "dim") % len(shape)
    wide = [*shape[: axis + 1], count, *shape[axis + 1 :]]
    apart = a.reshaped(name, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    spread = a.step("Expand", (apart, a.into.constant(wide)), wide)
    a.node("Reshape", (spread, a.into.constant(list(a.result))))


def repeat(a: AtenArguments) -> None:
    """Whole copies, side by side: each dimension is one of copies and one of elements."""
    name = a.tensor(0, "self")
    times = a.integers(1, "repeats") or a.integers(1, "dims")
    shape = list(a.shape(name))
    rank = max(len(times), len(shape))
    times, shape = [1] * (rank - len(times)) + times, [1] * (rank - len(shape)) + shape
    pairs = [(t, s) for t, s in zip(times, shape, strict=True)]
    apart = a.reshaped(name, [n for _, s in pairs for n in (1, s)])
    wide = [n for pair in pairs for n in pair]
    spread = a.step("Expand", (apart, a.into.constant(wide)), wide)
    a.node("Reshape", (spread, a.into.constant(list(a.result))))


def stack(a: AtenArguments) -> None:
    """A new dimension, with one element for each tensor."""
    listed = a.argument(0, "tensors")
    if not isinstance(listed, tuple) or not all(isinstance(r, Ref) for r in listed):
        raise UnknownCall
    one = list(a.result)
    axis = a.whole(1, "dim", 0) % len(one)
    one[axis] = 1
    a.node("Concat", [a.reshaped(r.name, one) for r in listed if isinstance(r, Ref)], axis=axis)


COMPOSED: dict[str, Rule] = {
    "log1p": chain(("Add", 1), ("Log", None)), "expm1": chain(("Exp", None), ("Sub", 1)),
    "log2": chain(("Log", None), ("Mul", 1 / math.log(2))),
    "log10": chain(("Log", None), ("Mul", 1 / math.log(10))),
    "square": chain(("Pow", 2)), "log_sigmoid": chain(("Sigmoid", None), ("Log", None)),
    "log_sigmoid_forward": chain(("Sigmoid", None), ("Log", None)),
    "exp2": exp2, "erfc": erfc, "softplus": softplus, "ne": unequal, "prelu": prelu, "glu": glu,
    "clamp": clamp(True, True), "clamp_min": clamp(True, False), "clamp_max": clamp(False, True),
    "celu": lambda a: a.node("Celu", (a.tensor(0),), alpha=a.real(1, "alpha", 1.0)),
    "hardsigmoid": lambda a: a.node("HardSigmoid", (a.tensor(0),), alpha=1 / 6, beta=0.5),
    "addcmul": with_product("Mul"), "addcdiv": with_product("Div"), "lerp": lerp,
    **dict.fromkeys(("addmm", "addmv", "baddbmm"), add_product),
    **dict.fromkeys(("outer", "ger"), outer),
    "scaled_dot_product_attention": attention,
    "group_norm": group_norm(1, 4), "native_group_norm": group_norm(6, 7), "instance_norm": instance_norm,
    "_native_batch_norm_legit": own_batch_norm, "linalg_vector_norm": vector_norm,
    "var": variance(False), "var_mean": variance(False), "std": variance(True),
    "pixel_unshuffle": pixel_unshuffle, "channel_shuffle": channel_shuffle,
    **dict.fromkeys(("movedim", "moveaxis"), movedim),
    "repeat_interleave": repeat_interleave, **dict.fromkeys(("repeat", "tile"), repeat), "stack": stack,
}  # fmt: skip
