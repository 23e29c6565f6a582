"""Convert element-wise operations, with NumPy's broadcasting; constants of one element become part of the
operation."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.arithmetic import OPERATORS
from polymodel.importers.onnx.build import Builder
from polymodel.importers.onnx.graph import InvalidNode, OnnxNode, Unsupported
from polymodel.importers.onnx.views import IndexView

# The parameters that a node's attributes add to the operation, in the order in which they are written.
ATTRIBUTES: dict[str, tuple[tuple[str, float], ...]] = {
    "LeakyRelu": (("alpha", 0.01),),
    "Elu": (("alpha", 1.0),),
    "Celu": (("alpha", 1.0),),
    "ThresholdedRelu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Selu": (("alpha", 1.67326), ("gamma", 1.0507)),
}
BOOLEAN = frozenset("And Or Xor Not Equal Greater Less GreaterOrEqual LessOrEqual IsNaN IsInf".split())
ONE = (
    "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Clip Cos Cosh Elu Erf Exp Floor Gelu "
    "HardSigmoid HardSwish IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Sigmoid Sign "
    "Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
).split()
MORE = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max "
    "Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor"
).split()
DEFAULT = {2: ("M", "N"), 3: ("B", "M", "N"), 4: ("N", "C", "H", "W"), 5: ("N", "C", "D", "H", "W")}
WORDS = {"Sum": "add"}


def elementwise(b: Builder, node: OnnxNode) -> None:
    """Add one operation per element of the result."""
    numbers = [node.real(name, value) for name, value in ATTRIBUTES.get(node.op, ())]
    if node.op == "Clip" and node.version < 11:
        numbers = [node.real(k, 0.0) for k in ("min", "max") if k in node.attributes]
    if node.op == "PRelu":
        _prelu(b, node)
        return
    dtype = "bool" if node.op in BOOLEAN else ""
    names = [n for n in node.inputs if n]
    word = _one_sided(node) or WORDS.get(node.op, node.op.lower())
    if node.op in ("Sum", "Max", "Min", "Mean") and len(names) == 1:
        word = "identity"
    if word in OPERATORS and numbers:
        defaults = [value for _, value in ATTRIBUTES[node.op]]
        word, numbers = (word, []) if numbers == defaults else (f"{word}_of", numbers)
    dims = _old_broadcast(b, node) if node.version < 7 and node.whole("broadcast", 0) else None
    if dims is None and stored(b, names):
        _weight(b, node, names, dtype)
        return
    pointwise(b, node, word, names, node.outputs[0], numbers=numbers, dtype=dtype, dims=dims)


def _one_sided(node: OnnxNode) -> str:
    """What a `Clip` with one end is: the larger of the element and its least value, or the smaller."""
    if node.op != "Clip":
        return ""
    if node.version < 11:
        ends = tuple(k for k in ("min", "max") if k in node.attributes)
    else:
        given = (*node.inputs, "", "")
        ends = tuple(k for k, name in zip(("min", "max"), given[1:], strict=False) if name)
    return {("min",): "max", ("max",): "min", (): "identity"}.get(ends, "")


ONCE = "its result is made of weights alone: it is computed once, and taken as a weight"


def stored(b: Builder, names: Sequence[str]) -> bool:
    """Return whether all values are weights, and not numbers alone."""
    return all(map(b.is_weight, names)) and any(b.scalar(n) is None for n in names)


def weight(b: Builder, name: str, shape: Sequence[int], dtype: str) -> IndexView:
    """Create a weight, of the default ranks of its number of dimensions."""
    return b.base(name, shape, DEFAULT.get(len(shape), ("",) * len(shape)), dtype, weight=True)


def _weight(b: Builder, node: OnnxNode, names: Sequence[str], dtype: str) -> None:
    """What is computed of weights alone is computed once: it is a weight."""
    shapes = [b.shape(n) for n in names]
    rank = max(map(len, shapes))
    wide = [(1,) * (rank - len(s)) + s for s in shapes]
    shape = [max(sizes) for sizes in zip(*wide, strict=True)]
    if any(s not in (1, whole) for sizes in wide for s, whole in zip(sizes, shape, strict=True)):
        raise InvalidNode("its weights have shapes that do not fit together", "check their shapes")
    kind = dtype or b.dtype(names[1] if node.op == "Where" and len(names) > 1 else names[0])
    b.alias(node.outputs[0], weight(b, node.outputs[0], shape, kind))
    b.note(node, ONCE)


def _old_broadcast(b: Builder, node: OnnxNode) -> list[int | None]:
    """Apply the rule before operator set 7, where `axis` is the dimension of the first operand at which the
    second one begins."""
    whole, part = len(b.shape(node.input(0))), len(b.shape(node.input(1)))
    axis = node.whole("axis", whole - part)
    axis += whole if axis < 0 else 0
    if not 0 <= axis <= whole - part:
        raise InvalidNode(f"axis {axis} leaves no room for {part} of {whole} dimensions", "check axis")
    return [None, axis]


def _prelu(b: Builder, node: OnnxNode) -> None:
    slope = b.shape(node.input(1))
    channel = len(slope) == 1 and len(b.shape(node.input(0))) > 2 and node.version < 7
    pointwise(b, node, "prelu", list(node.inputs), node.outputs[0], dims=[None, 1] if channel else None)


def cast(b: Builder, node: OnnxNode) -> None:
    """Convert a cast: to the same type, or of a weight, it is an alias; otherwise it is an operation."""
    source, out = node.input(0), node.outputs[0]
    target = b.graph.values[out].dtype if out in b.graph.values else ""
    if not target:
        raise Unsupported("the type of its result is unknown", "export the model with types")
    if target == b.dtype(source) or b.is_weight(source):
        view = b.value(source)
        if target != b.dtype(source):
            b.note(node, f"the weight {source} is taken as {b.dtype(source)}, as it is stored")
        b.alias(out, view)
        return
    pointwise(b, node, "cast", [source], out, dtype=target)


def pointwise(
    b: Builder,
    node: OnnxNode,
    word: str,
    names: Sequence[str],
    out: str,
    *,
    numbers: Sequence[float] = (),
    dtype: str = "",
    suffix: str = "",
    dims: Sequence[int | None] | None = None,
) -> IndexView:
    """Add `out = word(names...)`. `dims`: the dimension of the result at which the first one of an operand is
    located, if its last one is not the result's last."""
    operands: list[tuple[IndexView, list[int]]] = []
    arguments: list[str] = []
    places: dict[str, int] = {}
    rank = max(len(b.shape(n)) for n in names)
    for k, name in enumerate(names):
        number = b.scalar(name)
        if number is not None and len(names) > 1 and any(b.scalar(n) is None for n in names):
            arguments.append(literal(number))
            continue
        own = len(b.shape(name))
        at = dims[k] if dims is not None else None
        start = rank - own if at is None else at
        if name not in places:
            places[name] = len(operands)
            hints = DEFAULT.get(rank, ("",) * rank)
            operands.append((b.value(name, hints[start : start + own]), list(range(start, start + own))))
        arguments.append(f"_{places[name]}")
    plain = arguments == [f"_{k}" for k in range(len(operands))] and not numbers
    text = word if plain else f"{word}({', '.join([*arguments, *(literal(n) for n in numbers)])})"
    called = f"{node.name}_{suffix}" if node.name and suffix else ""
    kind = dtype or (b.dtype(names[1]) if word == "where" and len(names) > 1 else "")
    return b.einsum(node, out, range(rank), operands, map=text, name=called, dtype=kind)


def literal(value: float | int) -> str:
    """Return a number as it is written in an operation."""
    return repr(value) if isinstance(value, (bool, int)) else f"{value:.9g}"
