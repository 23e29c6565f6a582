"""An ONNX graph as plain records: what the conversion looks at, without the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Attribute = int | float | str | list[int] | list[float] | list[str] | Array | None


@dataclass(frozen=True)
class OnnxNode:
    """One operation. `inputs` and `outputs` name values; an empty name is an input that is not given."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    version: int = 0

    def __str__(self) -> str:
        called = self.name or f"of {self.outputs[0]}"
        return f"node {called} ({f'{self.domain}.' if self.domain else ''}{self.op})"

    def input(self, k: int) -> str:
        """The k-th input, empty where it is not given."""
        return self.inputs[k] if k < len(self.inputs) else ""

    def whole(self, key: str, default: int) -> int:
        result = self.attributes.get(key)
        return result if isinstance(result, int) else default

    def real(self, key: str, default: float) -> float:
        result = self.attributes.get(key)
        return float(result) if isinstance(result, (int, float)) else default

    def text(self, key: str, default: str) -> str:
        result = self.attributes.get(key)
        return result if isinstance(result, str) else default

    def int_list(self, key: str) -> list[int] | None:
        """An attribute that is a list of integers; None if the node does not have it."""
        result = self.attributes.get(key)
        return [int(v) for v in result if isinstance(v, int)] if isinstance(result, list) else None


@dataclass(frozen=True)
class Value:
    """Shape and type of a value; `axes` are the symbolic names of its dimensions, where the file has some."""

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """`values`: those of known shape. `unknown`: why others have none. `constants`: small ones, which shapes
    and single numbers come from. `weights`: initializers, whose elements are never read."""

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    unknown: Mapping[str, str]
    constants: Mapping[str, Array]
    weights: frozenset[str]


class Unread(Exception):
    """A node that becomes nothing; the reason and the remedy."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


class Unsupported(Unread):
    """A node has no counterpart."""


class Misfit(Exception):
    """An operand (by its place) is cut into parts that the operands before it do not fit."""

    def __init__(self, operand: int) -> None:
        self.operand = operand
        super().__init__(operand)


class InvalidNode(Unread):
    """A node contradicts itself or its inputs."""
