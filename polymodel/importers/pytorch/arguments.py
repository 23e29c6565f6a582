"""Provide the arguments of one ATen call, and the nodes to which it is converted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from polymodel.importers.onnx.graph import Array, Attribute, OnnxNode, Value
from polymodel.importers.pytorch.program import Argument, AtenCall, Ref, TorchProgram

OPSET = 23


class UnknownCall(Exception):
    """A call that has no known conversion; the import reports it by name."""


@dataclass
class Translation:
    """The state of the translation, extended call by call. `constants`: small numbers that nodes read as
    inputs, such as axes."""

    program: TorchProgram
    nodes: list[OnnxNode] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    weights: set[str] = field(default_factory=set)

    def constant(self, values: object, dtype: type = np.int64) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.asarray(values, dtype)
        self.values[name] = Value(self.constants[name].shape, "int64" if dtype is np.int64 else "float", ())
        self.weights.add(name)
        return name


class AtenArguments:
    """The arguments of one call by position or name, and the nodes to which it is converted."""

    def __init__(self, call: AtenCall, into: Translation) -> None:
        self.call = call
        self.into = into
        self.steps = 0

    def argument(self, place: int, name: str, default: Argument = None) -> Argument:
        if place < len(self.call.args):
            return self.call.args[place]
        return self.call.kwargs.get(name, default)

    def tensor(self, place: int, name: str = "") -> str:
        """Return the name of a tensor, empty for none. Numbers become constants."""
        result = self.argument(place, name)
        if isinstance(result, Ref):
            return result.name
        if isinstance(result, (bool, int, float)):
            return self.into.constant(result, np.int64 if isinstance(result, int) else np.float64)
        if result is None:
            return ""
        raise UnknownCall

    def whole(self, place: int, name: str, default: int = 0) -> int:
        result = self.argument(place, name, default)
        if not isinstance(result, int):
            raise UnknownCall
        return result

    def real(self, place: int, name: str, default: float) -> float:
        result = self.argument(place, name, default)
        if not isinstance(result, (int, float)):
            raise UnknownCall
        return float(result)

    def flag(self, place: int, name: str, default: bool = False) -> bool:
        return bool(self.argument(place, name, default))

    def integers(self, place: int, name: str, count: int = 0, default: Sequence[int] = ()) -> list[int]:
        """Return a list of whole numbers; a single one is repeated `count` times."""
        found = self.argument(place, name)
        if found is None or found == ():
            return list(default)
        listed = [found] if isinstance(found, int) else found
        if not isinstance(listed, (tuple, list)) or not all(isinstance(v, int) for v in listed):
            raise UnknownCall
        whole = [v for v in listed if isinstance(v, int)]
        return whole * count if len(whole) == 1 and count > 1 else whole

    def shape(self, name: str) -> tuple[int, ...]:
        known = self.into.values.get(name) or self.into.program.values.get(name)
        if known is None:
            raise UnknownCall
        return known.shape

    @property
    def out(self) -> str:
        """The only result, or the first one."""
        return self.call.results[0] or f"{self.call.name}_0"

    @property
    def result(self) -> tuple[int, ...]:
        return self.shape(self.out)

    def node(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), /, **attributes: Attribute
    ) -> str:
        """Add a node; without `outputs` it produces the result of the call."""
        made = tuple(outputs) or (self.out,)
        name = self.call.name if not self.steps else f"{self.call.name}_{self.steps}"
        self.steps += op not in ("Transpose", "Reshape")  # these produce no Einsum
        self.into.nodes.append(
            OnnxNode(op, "", name, tuple(inputs), made, attributes, OPSET, self.call.scope)
        )
        return made[0]

    def step(
        self, op: str, inputs: Sequence[str], shape: Sequence[int] = (), /, **attributes: Attribute
    ) -> str:
        """Add a node whose result another node of this call reads. `shape`: given where an operation needs
        it."""
        name = f"{self.call.name}.{len(self.into.nodes)}"
        if shape:
            source = self.into.program.values.get(inputs[0])
            self.into.values[name] = Value(
                tuple(shape), source.dtype if source else "float", ("",) * len(shape)
            )
        return self.node(op, inputs, (name,), **attributes)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        return self.step("Reshape", (name, self.into.constant(list(shape))), shape)


Rule = Callable[[AtenArguments], object]
