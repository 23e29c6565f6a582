"""Formats written out element by element on nested dictionaries: slow, obvious, no formula shared."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import polymodel as pm

Tree = dict[int, Any]


def tree_of(tensor: pm.SparseTensor) -> Tree:
    """Coordinate -> ... -> value."""
    root: Tree = {}
    for point, value in zip(tensor.coords.T.tolist(), tensor.values.tolist(), strict=True):
        at = root
        for coordinate in point[:-1]:
            at = at.setdefault(coordinate, {})
        at[point[-1]] = value
    return root


def fibers_at(root: Tree, depth: int) -> list[Tree]:
    """All fibers of a rank that exist."""
    found = [root]
    for _ in range(depth):
        found = [child for fiber in found for child in fiber.values()]
    return found


def elements(fiber: Tree, size: int, rule: str, word: dict[str, Any]) -> list[tuple[str, ...]]:
    """What a fiber stores, as a list of tuples of fields."""
    stored: list[tuple[str, ...]] = []
    if rule == "U":
        stored = [("coordinate", "payload") for _ in range(size)]
    elif rule == "CP":
        stored = [("coordinate", "payload") for _ in fiber]
    elif rule == "B":
        stored = [("mask",) for _ in range(size)] + [("payload",) for _ in fiber]
    elif rule == "UOP":
        stored = [("offset",) for _ in range(size + 1)]
    elif rule == "RLE":
        stored = runs(fiber, size, word["rbits"], word["overlong"])
    return stored


def runs(fiber: Tree, size: int, rbits: int, overlong: str) -> list[tuple[str, ...]]:
    """Point after point, counting zeros."""
    stored: list[tuple[str, ...]] = []
    last, zeros, longest = 0, 0, 2**rbits - 1
    for point in range(size):
        if overlong == "escape" and zeros == longest:
            stored.append(("run",))
            zeros = 0
        if point in fiber or (overlong == "zero" and zeros == longest):
            stored.append(("run", "payload"))
            zeros = 0
        else:
            zeros += 1
        if point in fiber:
            last = len(stored)
    # What stands behind the last nonzero is not stored.
    return stored[:last]


def rank_bits(tensor: pm.SparseTensor, depth: int, rule: str, word: dict[str, Any]) -> int:
    """Bits of one rank: a header, and fiber by fiber a header and the widths of its fields."""
    widths = {
        "coordinate": word.get("cbits", 0),
        "payload": word.get("pbits", 0),
        "mask": word.get("cbits", 0),
        "offset": word.get("obits", 0),
        "run": word.get("rbits", 0),
    }
    total = word["rhbits"]
    for fiber in fibers_at(tree_of(tensor), depth):
        total += word["fhbits"]
        for stored in elements(fiber, tensor.shape[depth], rule, word):
            total += sum(widths[name] for name in stored)
    return int(total)


@st.composite
def tensors(draw: st.DrawFn, least: int = 1, most: int = 3, size: int = 7) -> pm.SparseTensor:
    """Small tensors, also empty and full ones."""
    shape = draw(st.lists(st.integers(1, size), min_size=least, max_size=most))
    density = draw(st.sampled_from([0.0, 0.1, 0.4, 1.0]))
    seed = np.random.default_rng(draw(st.integers(0, 9999)))
    dense = np.where(seed.random(shape) < density, seed.integers(1, 9, shape), 0)
    return pm.SparseTensor.from_dense("A", [f"R{k}" for k in range(len(shape))], dense)
