"""What an imported workload computes, element by element with numpy: the referee of the ONNX importer.

Nothing of the importer is used: the text is loaded, its Einsums are run over all points of their boxes, and
points whose projections fall out of range are skipped, as docs/semantics.md says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from math import erf, prod

import numpy as np

from polymodel import Spec
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

FUNCTIONS = {
    "": lambda *a: np.prod(a, axis=0) if len(a) > 1 else a[0],
    "add": lambda *a: sum(a),
    "sub": lambda a, b: a - b,
    "mul": lambda *a: np.prod(np.broadcast_arrays(*a), axis=0),
    "div": lambda a, b: a / b,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "relu": lambda a: np.maximum(a, 0),
    "tanh": np.tanh,
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": np.vectorize(erf),
    "neg": lambda a: -a,
    "abs": np.abs,
    "pow": lambda a, b: a**b,
    "max": lambda *a: np.max(np.broadcast_arrays(*a), axis=0),
    "min": lambda *a: np.min(np.broadcast_arrays(*a), axis=0),
    "clip": lambda a, low, high: np.clip(a, low, high),
    "where": lambda c, a, b: np.where(c != 0, a, b),
    "leakyrelu": lambda a, alpha: np.where(a < 0, alpha * a, a),
    "cast": lambda a: a,
    "round": np.round,
    "quantize": lambda a, s, z: np.clip(np.round(a / s) + z, 0, 255),
    "prelu": lambda a, s: np.where(a < 0, s * a, a),
}
START = {"add": 0.0, "max": -np.inf, "min": np.inf, "mul": 1.0}
JOIN = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def run(spec: Spec, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every tensor of the workload, from those that are given, of any shape of the right size."""
    cascade = spec.workload
    sizes = dict(cascade.rank_sizes)
    found: dict[str, np.ndarray] = {}
    for einsum in cascade:
        for access in einsum.inputs:
            if access.tensor not in found:
                shape = [sizes[r] for r in access.ranks]
                found[access.tensor] = np.asarray(given[access.tensor], float).reshape(shape)
        (out,) = einsum.outputs
        found[out.tensor] = compute(einsum, found, [sizes[r] for r in out.ranks])
    return found


def points(einsum: Einsum) -> dict[str, np.ndarray]:
    """Coordinates of every point of the iteration space."""
    axes = [np.arange(low, high + 1) for low, high in einsum.bounds]
    grid = dict(
        zip(einsum.rank_variables, (g.ravel() for g in np.meshgrid(*axes, indexing="ij")), strict=True)
    )
    total = int(np.prod([len(a) for a in axes]))
    kept = np.ones(total, bool)
    for c in einsum.constraints:
        value = c.expr.constant + sum(k * grid[v] for v, k in c.expr.terms)
        kept &= (value >= 0) if c.kind == "ge" else (value == 0)
    return {v: g[kept] for v, g in grid.items()} | {"": np.zeros(int(kept.sum()), int)}


def operations(cascade: Cascade) -> dict[str, int]:
    """Points of each Einsum: its operations."""
    return {e.name: len(points(e)[""]) for e in cascade}


def box(cascade: Cascade, name: str) -> int:
    """Points of the box around the iteration space, places of padding included."""
    return prod(high - low + 1 for low, high in cascade[name].bounds)


def multiplications(cascade: Cascade) -> int:
    """Of products, places of padding included."""
    products = [e for e in cascade if len(e.inputs) > 1 and "map" not in dict(e.operations)]
    return sum(box(cascade, e.name) for e in products)


def place(access: TensorAccess, at: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(at[""] + x.constant + sum(c * at[v] for v, c in x.terms) for x in access.projection)


def compute(einsum: Einsum, found: Mapping[str, np.ndarray], shape: list[int]) -> np.ndarray:
    at = points(einsum)
    values = [np.broadcast_to(found[a.tensor][place(a, at)], at[""].shape) for a in einsum.inputs]
    (out,) = einsum.outputs
    where = place(out, at)
    how = dict(einsum.operations)
    text = how.get("map") or ""
    soft = re.fullmatch(r"softmax\(_0, ([\w, ]+)\)", text)
    mapped = values[0] if soft else apply(text, values)
    join = how.get("reduce") or "add"
    result = np.full(shape, START[join])
    flat = np.ravel_multi_index(where, shape) if shape else at[""]
    result, count = result.reshape(-1), np.zeros(result.size)
    JOIN[join].at(result, flat, mapped)
    np.add.at(count, flat, 1)
    result, count = result.reshape(shape), count.reshape(shape)
    if soft:
        ranks = [str(x) for x in out.projection]
        axes = tuple(ranks.index(v) for v in soft[1].split(", "))
        high = np.exp(result - result.max(axis=axes, keepdims=True))
        result = high / high.sum(axis=axes, keepdims=True)
    for step in (how.get("populate") or "").split("; "):
        if step:
            result = apply(step, [result], {"points": count})
    return np.where(count > 0, result, 0) if join != "add" else result


def apply(text: str, values: list[np.ndarray], names: Mapping[str, np.ndarray] = {}) -> np.ndarray:
    """`sub`, `add(_, 1.0)` or `exp(sub(_0, _1))` of the values."""
    if re.fullmatch(r"\w*", text):
        return np.asarray(FUNCTIONS[text](*values))
    table = {f"_{k}": v for k, v in enumerate(values)} | {"_": values[0]} | dict(names)

    def value(tree: ast.expr) -> object:
        if isinstance(tree, ast.Call):
            assert isinstance(tree.func, ast.Name)
            return FUNCTIONS[tree.func.id](*(value(a) for a in tree.args))
        if isinstance(tree, ast.Name):
            return table[tree.id]
        return ast.literal_eval(tree)

    return np.asarray(value(ast.parse(text, mode="eval").body))
