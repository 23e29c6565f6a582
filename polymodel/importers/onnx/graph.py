"""An ONNX graph as plain records: what the conversion looks at, without the weights."""

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
    `scope`: the module that it is of, by the names of the modules around it (none: it is not known)."""

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


# Where names of nodes or notes of an exporter say of which module a node is.

_NUMBERED = re.compile(r".*?(?:block|layer|stage|unit)[._]*\d+[a-z]?(?![^\W_])", re.IGNORECASE)


def scope_of_name(name: str) -> tuple[str, ...]:
    """The modules of a node called `/layer1/layer1.0/conv1/Conv`: `layer1`, `0` and `conv1`."""
    result: list[str] = []
    before = ""
    for part in [p for p in name.split("/")[:-1] if p]:
        # A member of a list of modules repeats the name of the list.
        own = part.removeprefix(f"{before}.") if before else part
        result += [p for p in own.split(".") if p]
        before = part
    return tuple(result)


def scope_of_path(path: str) -> tuple[str, ...]:
    """The modules of a path such as `layer1.0.conv1`, which tracers of PyTorch note."""
    return tuple(p for p in path.removeprefix("L['self']").split(".") if p)


def blocks_of(scopes: Sequence[tuple[str, ...]]) -> list[str]:
    """The block of each node, by the scopes of all of them; empty where a node has no scope.

    What all scopes begin with is left out. A block is then the first member of a list of modules
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
