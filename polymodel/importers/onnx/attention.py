"""Convert attention as one node: its products, scale, mask and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import sqrt

from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.pointwise import literal
from polymodel.importers.onnx.products import same
from polymodel.importers.onnx.sums import soft
from polymodel.importers.onnx.views import IndexView


def attention(b: Builder, node: OnnxNode) -> None:
    """Convert ONNX's Attention (operator set 23), including fewer heads for keys and values than for
    queries."""
    if node.input(6):
        raise Unsupported("how many of its keys are padding is data", "export it without nonpad_kv_seqlen")
    heads = node.whole("q_num_heads", 0), node.whole("kv_num_heads", 0)
    names = [node.input(k) for k in range(3)]
    if node.input(4) and node.input(5):
        names = with_cache(b, node, names, [node.input(4), node.input(5)], heads[1])
    attend(b, replace(node, inputs=tuple(names)), heads, node.real("scale", 0.0), node.input(3))


def with_cache(
    b: Builder, node: OnnxNode, names: Sequence[str], past: Sequence[str], heads: int
) -> list[str]:
    """Return queries, and keys and values of all tokens, which are those of the cache and the new ones;
    `heads` of keys, 0 if their shape has them."""
    tokens = b.shape(names[1])[-2]
    found = list(names)
    for k, cache in enumerate(past, 1):
        shape = list(b.shape(cache))
        if len(shape) != 4 or heads not in (0, shape[1]):
            raise InvalidNode(f"the cache {cache} is {shape}, not of {heads} heads", "check the heads")
        shape[2] += tokens
        told = node.outputs[k] if k < len(node.outputs) and node.outputs[k] else b.fresh(f"{cache}_all")
        b.views[told] = b.base(told, shape, ("B", "H", "P", "E"), b.dtype(cache))
        found[k] = told
    b.note(node, "keys and values of all tokens are read from the cache; writing the new ones is not counted")
    return found


def attend(b: Builder, node: OnnxNode, heads: tuple[int, int], scale: float, mask: str) -> None:
    """Add the cascade of queries, keys and values, the node's first three inputs."""
    names = [node.input(k) for k in range(3)]
    ranks = [len(b.shape(n)) for n in names]
    if not {*ranks} <= {3, 4} or ranks[1] != ranks[2] or (ranks[0] == 4 and ranks[1] == 3):
        raise InvalidNode(
            "queries, keys and values must all have three, or all four dimensions", "reshape them"
        )
    flat = ranks[0] == 3
    if flat and min(heads) < 1:
        raise InvalidNode("the number of heads is not given", "set q_num_heads and kv_num_heads")
    query, key, value = (
        _heads(b, node, n, heads[0] if k == 0 else heads[1], hint)
        for k, (n, hint) in enumerate(zip(names, "MPP", strict=True))
    )
    many, few = query.shape[1], key.shape[1]
    if many % few or value.shape[1] != few:
        raise InvalidNode(f"{many} heads of queries and {few} of keys do not fit together", "check the heads")
    apart = query.shape[0], few, many // few, *query.shape[2:]
    grouped = b.reshaped(node, query, apart, ("", "H", "G", "", ""))
    out, called = node.outputs[0], node.name or node.outputs[0]
    factor = scale or 1 / sqrt(query.shape[3])
    name = {p: b.fresh(f"{out}_{p}") for p in ("scores", "masked", "weights")}
    operands = [(grouped, ("b", "h", "g", "m", "e")), (key, ("b", "h", "p", "e"))]
    same([*operands, (value, ("b", "h", "p", "f"))], "b", "p", "e")
    scores = b.einsum(node, name["scores"], ("b", ("h", "g"), "m", "p"), operands, reduce="add", zeros=True,
                      populate=(f"mul(_, {literal(factor)})",), name=f"{called}_scores")  # fmt: skip
    if mask:
        every, size = range(4), len(b.shape(mask))
        if size > 4:
            raise InvalidNode(f"its mask has {size} dimensions", "it takes four at most")
        added = b.value(mask, ("", "", "M", "P")[4 - size :])
        both = [(scores, every), (added, range(4 - size, 4))]
        scores = b.einsum(node, name["masked"], every, both, map="add", name=f"{called}_mask")
    if node.whole("is_causal", 0) or node.whole("unidirectional", 0) or node.real("softcap", 0.0):
        b.note(
            node, "every score is counted, also those that the causal mask sets to nothing; a soft cap is not"
        )
    weights = soft(b, node, name["weights"], scores, [3])
    split = b.reshaped(node, weights, (weights.shape[0], few, many // few, *weights.shape[2:]), ("",) * 5)
    products = [(split, ("b", "h", "g", "m", "p")), (value, ("b", "h", "p", "f"))]
    labels = ("b", "m", ("h", "g", "f")) if flat else ("b", ("h", "g"), "m", "f")
    b.einsum(node, out, labels, products, reduce="add", zeros=True, name=called)


def _heads(b: Builder, node: OnnxNode, name: str, heads: int, hint: str) -> IndexView:
    """Return a view with shape batch x heads x tokens x width."""
    if len(b.shape(name)) == 4:
        return b.value(name, ("B", "H", hint, "E"))
    view = b.value(name, ("B", hint, "D"))
    if view.shape[2] % heads:
        raise InvalidNode(
            f"{heads} heads do not divide a width of {view.shape[2]}", "check the number of heads"
        )
    result = b.reshaped(node, view, (*view.shape[:2], heads, view.shape[2] // heads), ("", "", "H", "E"))
    return b.slots.transposed(result, (0, 2, 1, 3))
