"""Tiler-Swift's matrices, as far as they are mathematical objects, and stand-ins of the others."""

from __future__ import annotations

from functools import cache

import polymodel as pm
from polymodel.tiling.swift import compat

# Name in the published charts -> file in tests/data/matrices: a diagonal, boundary maps.
EXACT = {"bcsstm26": "diagonal", "ch7-6-b1": "chessboard", "mk9-b1": "matching", "n4c6-b1": "pairs"}


@cache
def exact() -> tuple[pm.SparseTensor, ...]:
    """Four of the six, place for place."""
    made = (
        pm.generate_tensor("banded", rows=1922),
        pm.generate_tensor("chessboard", rows=7, columns=6),
        pm.generate_tensor("matching", points=9),
        pm.generate_tensor("simplex", points=21),
    )
    return tuple(tensor.renamed(name) for name, tensor in zip(EXACT, made, strict=True))


@cache
def all_six() -> tuple[pm.SparseTensor, ...]:
    """With the other two of the right sizes and numbers of entries, but at places of our own."""
    others = []
    for name in compat.MATRICES[len(EXACT) :]:
        rows, columns, entries = compat.SIZES[name]
        others.append(pm.random_tensor(["I", "J"], [rows, columns], entries / rows / columns, 1, name=name))
        assert others[-1].nnz == entries
    return (*exact(), *others)
