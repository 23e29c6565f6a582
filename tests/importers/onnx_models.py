"""ONNX models for the tests, built with onnx's own helpers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Shape = Sequence[int | str]


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], /, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 20,
    name: str = "test",
) -> onnx.ModelProto:
    """A model whose outputs' shapes are left to inference."""
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()]
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    stored = [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), name, given, made, stored)
    found = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    found.ir_version = 10
    return found


def numbers(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Small whole numbers, so that sums and products are exact."""
    return np.random.default_rng([seed, *shape]).integers(-3, 4, tuple(shape)).astype(np.float32)


def answers(proto: onnx.ModelProto, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ONNX's reference implementation computes."""
    names = [o.name for o in proto.graph.output]
    return dict(zip(names, ReferenceEvaluator(proto).run(None, dict(given)), strict=True))
