"""Compute small constants: the shapes that exporters write as arithmetic over other shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import numpy as np

from polymodel.importers.onnx.graph import Array, OnnxNode

# Shapes, axes and single numbers are short; anything longer is data.
LARGEST = 4096

_ONE: dict[str, Callable[[Array], Array]] = {
    "Identity": lambda a: a,
    "Neg": np.negative,
    "Abs": np.abs,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Sqrt": np.sqrt,
    "Not": np.logical_not,
    "Reciprocal": np.reciprocal,
}
_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Pow": np.power,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "Min": np.minimum,
    "Max": np.maximum,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
}
_TRUTHS = ("Equal", "Greater", "Less", "And", "Or", "Xor", "GreaterOrEqual", "LessOrEqual")


def folded(
    node: OnnxNode,
    constants: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    types: Mapping[int, str],
) -> Array | None:
    """Return the node's only output, if it is small and follows from constants and shapes; else None.

    `types`: NumPy's names of ONNX's numbered types.
    """
    if len([o for o in node.outputs if o]) != 1 or node.domain:
        return None
    if node.op in ("Shape", "Size"):
        shape = shapes.get(node.input(0))
        if shape is None:
            return None
        start, end = node.whole("start", 0), node.whole("end", len(shape))
        return np.array(prod(shape) if node.op == "Size" else shape[start:end], np.int64)
    if node.op == "Constant":
        return _constant(node)
    given = [constants.get(name) if name else None for name in node.inputs]
    if not given or any(a is None and name for a, name in zip(given, node.inputs, strict=True)):
        return None
    try:
        with np.errstate(all="ignore"):
            result = _computed(node, [a for a in given if a is not None], given, types)
    except (ValueError, IndexError, TypeError, ArithmeticError):
        return None  # the node is faulty, or has another meaning: it is treated as data
    return result if result is not None and result.size <= LARGEST else None


def _constant(node: OnnxNode) -> Array | None:
    for key, value in node.attributes.items():
        if key in ("value_int", "value_ints"):
            return np.array(value, np.int64)
        if key in ("value_float", "value_floats"):
            return np.array(value, np.float32)
        if key == "value" and isinstance(value, np.ndarray):
            return value
    return None


def _computed(
    node: OnnxNode, a: list[Array], given: list[Array | None], types: Mapping[int, str]
) -> Array | None:
    op = node.op
    if op in _ONE:
        return np.asarray(_ONE[op](a[0]))
    if op in _TWO and len(a) == 2:
        if np.broadcast(*a).size > LARGEST:
            return None
        return np.asarray(_TWO[op](a[0], a[1])).astype(bool if op in _TRUTHS else a[0].dtype)
    if op == "Mod":
        joined = np.fmod if node.whole("fmod", 0) else np.mod
        return np.asarray(joined(a[0], a[1])) if np.broadcast(*a).size <= LARGEST else None
    if op == "Div":
        whole = np.issubdtype(a[0].dtype, np.integer)
        # ONNX divides integers towards zero.
        quotient = np.asarray(np.true_divide(a[0], a[1]))
        return (np.fix(quotient) if whole else quotient).astype(a[0].dtype)
    if op == "Cast":
        kind = types.get(node.whole("to", 0))
        return a[0].astype(kind) if kind else None
    if op == "Concat":
        return np.concatenate(a, axis=node.whole("axis", 0))
    if op == "Gather":
        return np.take(a[0], a[1].astype(np.int64), axis=node.whole("axis", 0))
    if op == "Where":
        return np.where(a[0], a[1], a[2]) if np.broadcast(*a).size <= LARGEST else None
    return _shaped(node, a, given)


def _shaped(node: OnnxNode, a: list[Array], given: list[Array | None]) -> Array | None:
    op = node.op
    if op in ("Unsqueeze", "Squeeze"):
        axes = node.int_list("axes") if len(a) < 2 else [int(v) for v in a[1].ravel()]
        if op == "Squeeze":
            return np.squeeze(a[0], tuple(axes) if axes is not None else None)
        return np.expand_dims(a[0], tuple(axes or ()))
    if op == "Trilu":
        part = np.triu if node.whole("upper", 1) else np.tril
        return part(a[0], int(a[1].ravel()[0]) if len(a) > 1 else 0)
    if op == "Transpose":
        return np.transpose(a[0], node.int_list("perm"))
    if op == "NonZero":
        return np.array(np.nonzero(a[0]), np.int64)
    if op == "CumSum" and not node.whole("exclusive", 0) and not node.whole("reverse", 0):
        return np.cumsum(a[0], axis=int(a[1].ravel()[0]), dtype=a[0].dtype)
    if op == "Reshape":
        return a[0].reshape([int(v) for v in a[1]])
    if op == "Range":
        start, end, step = (float(v) for v in a)
        return np.arange(start, end, step).astype(a[0].dtype) if (end - start) / step <= LARGEST else None
    if op in ("ConstantOfShape", "Expand"):
        shape = [int(v) for v in a[-1].ravel()]
        if not all(0 <= v <= LARGEST for v in shape) or prod(shape) > LARGEST:
            return None
        if op == "Expand":
            return np.array(np.broadcast_to(a[0], np.broadcast_shapes(a[0].shape, tuple(shape))))
        value = node.attributes.get("value")
        fill = value if isinstance(value, np.ndarray) else np.zeros(1, np.float32)
        return np.full(shape, fill.ravel()[0], dtype=fill.dtype)
    if op == "Slice" and len(a) > 2:
        return _slice(a[0], given)
    if (
        op in ("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin")
        and len(a) == 1
        and not node.int_list("axes")
    ):
        joins = {
            "ReduceProd": np.multiply,
            "ReduceSum": np.add,
            "ReduceMax": np.maximum,
            "ReduceMin": np.minimum,
        }
        total = joins[op].reduce(a[0].ravel()).astype(a[0].dtype)
        return np.asarray(total).reshape((1,) * a[0].ndim if node.whole("keepdims", 1) else ())
    return None


def _slice(data: Array, given: list[Array | None]) -> Array:
    starts, ends, axes, steps = [*given[1:], None, None][:4]
    assert starts is not None
    assert ends is not None
    where = [slice(None)] * data.ndim
    for k in range(starts.size):
        axis = int(axes.ravel()[k]) if axes is not None else k
        step = int(steps.ravel()[k]) if steps is not None else 1
        end: int | None = int(ends.ravel()[k])
        if step < 0 and end is not None and end < -data.shape[axis]:
            end = None
        where[axis] = slice(int(starts.ravel()[k]), end, step)
    return data[tuple(where)]
