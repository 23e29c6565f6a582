"""Represent an ONNX graph by plain records of what the conversion needs, without the weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Attribute = int | float | str | list[int] | list[float] | list[str] | Array | None


@dataclass(frozen=True)
class OnnxNode:
    """One operation. `inputs` and `outputs` name values; an empty name is an input that is not given.
    `scope`: its module, as the names of the enclosing modules (empty if unknown)."""

    op: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    version: int = 0
    scope: tuple[str, ...] = ()

    def __str__(self) -> str:
        called = self.name or f"of {self.outputs[0]}"
        return f"node {called} ({f'{self.domain}.' if self.domain else ''}{self.op})"

    def input(self, k: int) -> str:
        """Return the k-th input; empty where it is not given."""
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
        """Return an attribute that is a list of integers; None if the node does not have it."""
        result = self.attributes.get(key)
        return [int(v) for v in result if isinstance(v, int)] if isinstance(result, list) else None


@dataclass(frozen=True)
class Value:
    """Shape and type of a value. `axes`: the symbolic names of its dimensions, where the file has them."""

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """`values`: those with known shape. `unknown`: why others have none. `constants`: small ones, from which
    shapes and single numbers are taken. `weights`: initializers, whose elements are never read."""

    name: str
    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    unknown: Mapping[str, str]
    constants: Mapping[str, Array]
    weights: frozenset[str]


class Unread(Exception):
    """A node that is not converted, with the reason and the remedy."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(reason)


class Unsupported(Unread):
    """A node has no counterpart."""


class Misfit(Exception):
    """An operand (given by its index) is split into parts that are incompatible with the operands before
    it."""

    def __init__(self, operand: int) -> None:
        self.operand = operand
        super().__init__(operand)


class InvalidNode(Unread):
    """A node is inconsistent in itself or with its inputs."""


# The module of a node follows from its name or from a note of the exporter.

_NUMBERED = re.compile(r".*?(?:block|layer|stage|unit)[._]*\d+[a-z]?(?![^\W_])", re.IGNORECASE)


def scope_of_name(name: str) -> tuple[str, ...]:
    """Return the modules of a node named `/layer1/layer1.0/conv1/Conv`: `layer1`, `0` and `conv1`."""
    result: list[str] = []
    before = ""
    for part in [p for p in name.split("/")[:-1] if p]:
        # A member of a list of modules repeats the name of the list.
        own = part.removeprefix(f"{before}.") if before else part
        result += [p for p in own.split(".") if p]
        before = part
    return tuple(result)


def scope_of_path(path: str) -> tuple[str, ...]:
    """Return the modules of a path such as `layer1.0.conv1`, which PyTorch's tracers record."""
    return tuple(p for p in path.removeprefix("L['self']").split(".") if p)


def blocks_of(scopes: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the block of each node, from the scopes of all nodes; empty where a node has no scope.

    The common prefix of all scopes is left out. A block is then the first member of a list of modules
    (`layer1.0`), else the first module whose name numbers a block or layer (`conv2_block1` of
    `conv2_block1_1_conv`), else the outermost module.
    """
    known = [s for s in scopes if s]
    common = 0
    while all(len(s) > common + 1 and s[common] == known[0][common] for s in known) and len({*known}) > 1:
        common += 1
    return [_block(s[common:]) for s in scopes]


def _block(scope: tuple[str, ...]) -> str:
    member = next((i for i, name in enumerate(scope) if i and name.isdigit()), None)
    if member is not None:
        return ".".join(scope[: member + 1])
    for i, name in enumerate(scope):
        if numbered := _NUMBERED.match(name):
            return ".".join([*scope[:i], numbered[0]])
    return scope[0] if scope else ""
