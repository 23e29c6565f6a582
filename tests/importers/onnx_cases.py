"""A graph with one result, its inputs and weights, and what is compared for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

import polymodel as pm
from tests.importers.onnx_models import answers, model, node, numbers
from tests.importers.onnx_numbers import operations, run

Weights = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A graph with result Y. `exact`: results are equal to the last bit. `count`: operations in all."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, tuple[int, ...]]
    weights: Weights = field(default_factory=dict)
    exact: bool = True
    opset: int = 20
    count: int | None = None


def one(
    op: str,
    x: tuple[int, ...],
    weights: Weights | None = None,
    exact: bool = True,
    count: int | None = None,
    opset: int = 20,
    **attributes: object,
) -> Case:
    return Case(
        [node(op, ["X", *(weights or {})], ["Y"], **attributes)], {"X": x}, weights or {}, exact, opset, count
    )


def two(
    op: str, a: tuple[int, ...], b: tuple[int, ...], count: int | None = None, **attributes: object
) -> Case:
    return Case([node(op, ["A", "B"], ["Y"], **attributes)], {"A": a, "B": b}, count=count)


def w(**shapes: tuple[int, ...]) -> Weights:
    return {name: numbers(shape, k + 7) for k, (name, shape) in enumerate(shapes.items())}


def ints(*values: int) -> np.ndarray:
    return np.array(values)


def compare(case: Case, softmax: str = "cascade") -> None:
    """Import the graph, compute it point by point, and compare results and operations."""
    proto = model(case.nodes, case.inputs, ["Y"], case.weights, case.opset)
    given = {n: numbers(s, k) for k, (n, s) in enumerate(case.inputs.items())}
    found = pm.import_onnx(proto, fuse="none", softmax="one" if softmax == "one" else "cascade")
    assert found.complete
    got = run(found.spec, {**given, **case.weights})["Y"]
    want = answers(proto, given)["Y"]
    tolerance = 0 if case.exact else 1e-4
    np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=tolerance, atol=tolerance)
    if case.count is not None:
        assert sum(operations(found.spec.workload).values()) == case.count
