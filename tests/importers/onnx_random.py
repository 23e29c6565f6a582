"""Networks drawn at random: a dozen operators in a row and beside each other, as ONNX allows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import onnx

from tests.importers.onnx_models import answers, model, node, numbers

Shape = tuple[int, ...]
MOST = 1500  # elements of a value: the referee lists every point of an iteration space
UNARY = ("Relu", "Tanh", "Neg", "Abs", "Sigmoid")


class Network:
    """Grows one operator at a time; what ONNX's reference refuses is drawn again."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, Shape] = {}
        for k in range(self.upto(1, 2)):
            self.inputs[f"X{k}"] = tuple(self.upto(1, 6) for _ in range(self.upto(2, 4)))
        self.values: dict[str, Shape] = dict(self.inputs)
        self.feeds = {name: numbers(shape, k) for k, (name, shape) in enumerate(self.inputs.items())}
        wanted, tries = self.upto(4, 12), 0
        while len(self.nodes) < wanted and tries < 80:
            tries += 1
            self.step()

    def upto(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def of(self, choices: Sequence[object]) -> object:
        return choices[self.upto(0, len(choices) - 1)]

    def weight(self, shape: Shape) -> str:
        return self.constant((self.random.integers(-3, 4, size=shape) / 4).astype(np.float32))

    def constant(self, value: object) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def fitting(self, shape: Shape) -> Shape:
        """A shape that is broadcast to this one."""
        cut = self.upto(0, max(0, len(shape) - 1))
        return tuple(d if self.upto(0, 2) else 1 for d in shape[cut:])

    def step(self) -> None:
        name = str(self.of(list(self.values)[-4:]))
        made = DRAWS[self.upto(0, len(DRAWS) - 1)](self, name, self.values[name])
        if made is None:
            return
        op, inputs, attributes = made
        out = f"v{len(self.values)}"
        self.nodes.append(node(op, inputs, [out], **attributes))
        try:
            found = np.asarray(answers(self.model([out]), self.feeds)[out])
        except (ValueError, IndexError, TypeError, RuntimeError, AttributeError):
            found = np.zeros(0)  # the drawn operands do not fit together
        if not 0 < found.size <= MOST or not np.isfinite(found).all() or np.abs(found).max() > 1e5:
            self.nodes.pop()
            return
        self.values[out] = found.shape

    def model(self, outputs: Sequence[str], more: Sequence[onnx.NodeProto] = ()) -> onnx.ModelProto:
        return model([*self.nodes, *more], self.inputs, outputs, self.weights, 23)

    def whole(self) -> tuple[onnx.ModelProto, list[str]]:
        """The model and its results: all that nothing reads, negated, so that an Einsum makes each."""
        read = {name for n in self.nodes for name in n.input}
        ends = [n.output[0] for n in self.nodes if n.output[0] not in read]
        results = [f"end_{name}" for name in ends]
        return self.model(
            results, [node("Neg", [a], [b]) for a, b in zip(ends, results, strict=True)]
        ), results


Drawn = tuple[str, list[str], dict[str, object]] | None


def unary(net: Network, x: str, shape: Shape) -> Drawn:
    return str(net.of(UNARY)), [x], {}


def binary(net: Network, x: str, shape: Shape) -> Drawn:
    other = net.weight(net.fitting(shape)) if net.upto(0, 1) else str(net.of(list(net.values)))
    pair = [x, other] if net.upto(0, 1) else [other, x]
    return str(net.of(("Add", "Sub", "Mul", "Max", "Min"))), pair, {}


def product(net: Network, x: str, shape: Shape) -> Drawn:
    if len(shape) < 2:
        return None
    batch = net.fitting(shape[:-2]) if len(shape) > 2 else ()
    right = net.weight((*batch, shape[-1], net.upto(1, 5)))
    return ("MatMul", [x, right], {}) if net.upto(0, 2) else ("MatMul", [net.weight((3, shape[-2])), x], {})


def einsum(net: Network, x: str, shape: Shape) -> Drawn:
    if not 0 < len(shape) < 5:
        return None
    letters = "abcd"[: len(shape)]
    if not net.upto(0, 2):
        return "Einsum", [x, x], {"equation": f"{letters},{letters}->{letters[:1]}"}
    order = "".join(net.random.permutation(list(letters)))
    return "Einsum", [x, net.weight((shape[-1],))], {"equation": f"{letters},{letters[-1]}->{order}"}


def convolution(net: Network, x: str, shape: Shape) -> Drawn:
    dims = len(shape) - 2
    if dims not in (1, 2):
        return None
    group = int(str(net.of([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])))
    kernel = tuple(net.upto(1, 3) for _ in range(dims))
    attributes: dict[str, object] = {
        "group": group,
        "strides": [net.upto(1, 2) for _ in kernel],
        "dilations": [net.upto(1, 2) for _ in kernel],
    }
    if net.upto(0, 3):
        attributes["pads"] = [net.upto(0, k - 1) for k in (*kernel, *kernel)]
    else:
        attributes["auto_pad"] = str(net.of(("SAME_UPPER", "SAME_LOWER")))
    filters = group * net.upto(1, 2)
    bias = [net.weight((filters,))] if net.upto(0, 1) else []
    return "Conv", [x, net.weight((filters, shape[1] // group, *kernel)), *bias], attributes


def pool(net: Network, x: str, shape: Shape) -> Drawn:
    if len(shape) != 4:
        return None
    # The reference takes the padding of the first dimension for all of them.
    attributes = {"kernel_shape": [2, 2], "strides": [net.upto(1, 2)] * 2, "pads": [net.upto(0, 1)] * 4}
    return str(net.of(("MaxPool", "AveragePool"))), [x], attributes


def reduction(net: Network, x: str, shape: Shape) -> Drawn:
    axes = net.constant(np.unique([net.upto(0, len(shape) - 1) for _ in range(2)])) if shape else ""
    words = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare")
    return (str(net.of(words)), [x, axes], {"keepdims": net.upto(0, 1)}) if shape else None


def normalised(net: Network, x: str, shape: Shape) -> Drawn:
    axis = net.upto(0, len(shape) - 1) if shape else 0
    if not shape or net.upto(0, 1):
        return (str(net.of(("Softmax", "LogSoftmax"))), [x], {"axis": axis}) if shape else None
    return "LayerNormalization", [x, net.weight(shape[axis:])], {"axis": axis}


def transposed(net: Network, x: str, shape: Shape) -> Drawn:
    order = [int(k) for k in net.random.permutation(len(shape))]
    return ("Transpose", [x], {"perm": order}) if order else None


def reshaped(net: Network, x: str, shape: Shape) -> Drawn:
    left, wanted = prod(shape), []
    while left > 1 and len(wanted) < 3:
        wanted.append(int(str(net.of([d for d in range(1, left + 1) if left % d == 0]))))
        left //= wanted[-1]
    wanted = [*wanted, left]
    wanted[net.upto(0, len(wanted) - 1)] = -1
    return "Reshape", [x, net.constant(wanted)], {}


def sliced(net: Network, x: str, shape: Shape) -> Drawn:
    axis = net.upto(0, len(shape) - 1) if shape else 0
    if not shape:
        return None
    size, step = shape[axis], int(str(net.of((-2, -1, 1, 1, 2))))
    ends = net.upto(-size, size), net.upto(-size - 1, size + 1)
    return "Slice", [x, *(net.constant([v]) for v in (*ends, axis, step))], {}


def gathered(net: Network, x: str, shape: Shape) -> Drawn:
    if not shape:
        return None
    axis = net.upto(0, len(shape) - 1)
    return "Gather", [x, net.constant(net.upto(0, shape[axis] - 1))], {"axis": axis}


def expanded(net: Network, x: str, shape: Shape) -> Drawn:
    wanted = [net.upto(1, 3) if d == 1 else d for d in shape]
    return "Expand", [x, net.constant(np.array([net.upto(1, 2), *wanted]))], {}


def resized(net: Network, x: str, shape: Shape) -> Drawn:
    if len(shape) < 2:
        return None
    factors = net.constant(np.array([1] * (len(shape) - 2) + [net.upto(1, 2), net.upto(1, 3)], np.float32))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return "Resize", [x, "", factors], {"mode": "nearest", **how}


def attended(net: Network, x: str, shape: Shape) -> Drawn:
    if len(shape) != 3:
        return None
    heads = int(str(net.of([h for h in range(1, shape[2] + 1) if shape[2] % h == 0])))
    few = int(str(net.of([h for h in range(1, heads + 1) if heads % h == 0])))
    width = few * shape[2] // heads
    pair = [net.weight((shape[0], 3, width)), net.weight((shape[0], 3, width))]
    return "Attention", [x, *pair], {"q_num_heads": heads, "kv_num_heads": few}


DRAWS: tuple[Callable[[Network, str, Shape], Drawn], ...] = (
    unary, binary, binary, product, einsum, convolution, convolution, pool, reduction, normalised, transposed,
    reshaped, reshaped, sliced, gathered, expanded, resized, attended,
)  # fmt: skip
