"""Random TeAAL specs with data, for the comparison of executor and referee."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polymodel.spec.teaal.records import TeaalSpec
from tests.sparse.cascades import cascade, sparse

# Declarations, and expressions with the ranks of their loops.
SHAPED: list[tuple[dict[str, str], list[tuple[str, str]]]] = [
    (
        {"A": "I J K", "B": "J F", "C": "K F", "T": "I J F", "Y": "I F"},
        [("T[i, j, f] = A[i, j, k] * C[k, f]", "IJKF"), ("Y[i, f] = T[i, j, f] * B[j, f]", "IJF")],
    ),
    (
        {"A": "I J K", "B": "J V", "C": "K U", "T": "I J U", "Y": "I V U"},
        [("T[i, j, u] = A[i, j, k] * C[k, u]", "IJKU"), ("Y[i, v, u] = T[i, j, u] * B[j, v]", "IJUV")],
    ),
    ({"A": "I J", "B": "J K", "Y": "I K"}, [("Y[i, k] = A[i, j] * B[j, k]", "IJK")]),
    ({"A": "I J", "B": "J", "Y": "I"}, [("Y[i] = A[i, j] * B[j]", "IJ")]),
    ({"A": "I J", "B": "J I", "C": "I J", "Y": "I"}, [("Y[i] = A[i, j] * B[j, i] * C[i, j]", "IJ")]),
    (
        {"A": "I J", "B": "J I", "C": "I J", "D": "J", "Y": "J"},
        [("Y[j] = A[i, j] * B[j, i] * C[i, j] * D[j]", "IJ")],
    ),
    ({"A": "I J", "B": "I J", "Y": "I J"}, [("Y[i, j] = A[i, j] + B[i, j]", "IJ")]),
    ({"A": "I J", "B": "I J", "C": "I J", "Y": "I"}, [("Y[i] = A[i, j] * C[i, j] + B[i, j]", "IJ")]),
    ({"A": "I J", "B": "J K", "Y": "I J K"}, [("Y[i, j, k] = take(A[i, j], B[j, k], 1)", "IJK")]),
    ({"A": "I J", "Y": "I J K"}, [("Y[i, j, k] = A[i, j]", "IJK")]),
]
UNIONS = (6, 7)
Chosen = tuple[dict[str, str], list[str], dict[str, dict[str, list[str]]], dict[str, list[str]]]
MATRICES = {"A": "K M", "B": "K N", "Z": "M N"}
MATMUL = "Z[m, n] = A[k, m] * B[k, n]"


def shaped(seed: int) -> tuple[TeaalSpec, dict[str, np.ndarray], dict[str, int]]:
    """Splits by shape and slices, loops in any order, stamps of any kind."""
    rnd = random.Random(seed)
    number = rnd.randrange(len(SHAPED))
    declaration, expressions = SHAPED[number]
    mapping: dict[str, dict[str, Any]] = {"partitioning": {}, "loop_order": {}, "spacetime": {}}
    for text, ranks in expressions:
        name = text.split("[")[0]
        splits = {r: _splits(rnd, r == "I" and number not in UNIONS) for r in ranks}
        order = _merged(rnd, [_parts(r, len(s)) for r, s in splits.items()])
        if any(splits.values()):
            mapping["partitioning"][name] = {r: s for r, s in splits.items() if s}
        mapping["loop_order"][name] = order
        mapping["spacetime"][name] = _spacetime(rnd, order)
    spec = cascade(declaration, *(text for text, _ in expressions), **mapping)
    return spec, *_data(rnd, seed, spec)


def by_data(seed: int) -> tuple[TeaalSpec, dict[str, np.ndarray], dict[str, int]]:
    """Splits by occupancy, flattened ranks, index math."""
    return _made(seed, _by_data)


def following(seed: int) -> tuple[TeaalSpec, dict[str, np.ndarray], dict[str, int]]:
    """Ranks that follow the split of another."""
    return _made(seed, lambda rnd, n, m: rnd.choice(_following(rnd, n, m)))


def _made(
    seed: int, choose: Callable[[random.Random, int, int], Chosen]
) -> tuple[TeaalSpec, dict[str, np.ndarray], dict[str, int]]:
    rnd = random.Random(seed)
    n, m = rnd.randint(1, 4), rnd.randint(1, 4)
    declaration, expressions, partitioning, orders = choose(rnd, n, m)
    mapping: dict[str, dict[str, Any]] = {"loop_order": orders, "spacetime": {}}
    mapping["partitioning"] = {e: p for e, p in partitioning.items() if p}
    mapping["spacetime"] = {name: _spacetime(rnd, order) for name, order in orders.items()}
    spec = cascade(declaration, *expressions, **mapping)
    return spec, *_data(rnd, seed, spec)


def _by_data(rnd: random.Random, n: int, m: int) -> Chosen:
    """Declarations, expressions, partitionings and loop orders."""
    return rnd.choice([*_matrices(rnd, n, m), *_cascades(n, m), *_index_math(rnd, n)])


def _matrices(rnd: random.Random, n: int, m: int) -> list[Chosen]:
    inner = _merged(rnd, [["K0"], ["M"], ["N"]])
    once = {"Z": {"K": [f"uniform_occupancy(A.{n})"]}}
    either = {"Z": {"K": [f"uniform_occupancy({rnd.choice('AB')}.{n})"]}}
    twice = {"Z": {"K": [f"uniform_occupancy(A.{n * m})", f"uniform_occupancy(A.{n})"]}}
    mixed = {"Z": {"K": [f"uniform_shape({n * m})", f"uniform_occupancy(A.{n})"]}}
    sigma = {
        "K": [f"uniform_shape({n})"],
        "(M, K0)": ["flatten()"],
        "MK0": [f"uniform_occupancy(A.{m})"],
    }
    whole = {"A": "I J", "B": "I J", "Y": "I J"}
    return [
        (MATRICES, [MATMUL], either, {"Z": ["K1", *inner]}),
        (MATRICES, [MATMUL], once, {"Z": ["M", "K1", "K0", "N"]}),
        (MATRICES, [MATMUL], once, {"Z": ["N", "K1", "M", "K0"]}),
        (MATRICES, [MATMUL], twice, {"Z": ["K2", "K1", *inner]}),
        (MATRICES, [MATMUL], mixed, {"Z": ["K2", "K1", *inner]}),
        (MATRICES, [MATMUL], {"Z": sigma}, {"Z": ["K1", "MK01", "MK00", "N"]}),
        (whole, ["Y[i, j] = A[i, j] * B[i, j]"], {"Y": {"(I, J)": ["flatten()"]}}, {"Y": ["IJ"]}),
    ]


def _cascades(n: int, m: int) -> list[Chosen]:
    three = {"A": "K M", "B": "K N", "T": "K M N", "Z": "M N"}
    gamma = {"M": [f"uniform_occupancy(A.{n})"], "K": [f"uniform_occupancy(A.{m})"]}
    outer = {"(K, M)": ["flatten()"], "KM": [f"uniform_occupancy(A.{n * m})", f"uniform_occupancy(A.{n})"]}
    merge = {"M": [f"uniform_occupancy(T.{n * m})", f"uniform_occupancy(T.{m})"]}
    return [
        (
            three,
            ["T[k, m, n] = take(A[k, m], B[k, n], 1)", "Z[m, n] = T[k, m, n] * A[k, m]"],
            {"T": gamma, "Z": gamma},
            {"T": ["M1", "M0", "K1", "K0", "N"], "Z": ["M1", "M0", "K1", "N", "K0"]},
        ),
        (
            three,
            ["T[k, m, n] = A[k, m] * B[k, n]", "Z[m, n] = T[k, m, n]"],
            {"T": outer, "Z": merge},
            {"T": ["KM2", "KM1", "KM0", "N"], "Z": ["M2", "M1", "M0", "N", "K"]},
        ),
    ]


def _index_math(rnd: random.Random, n: int) -> list[Chosen]:
    conv = rnd.choice(["O[q] = I[q + s] * F[s]", "O[q] = I[2*q + s] * F[s]"])
    channels = {"I": "C W", "F": "C S", "O": "Q"}
    total = "O[q] = I[c, q + s] * F[c, s]"
    cut = {"O": {"C": [f"uniform_occupancy(I.{n})"]}}
    return [
        ({"I": "W", "F": "S", "O": "Q"}, [conv], {}, {"O": ["Q", "S"]}),
        (channels, [total], {}, {"O": _merged(rnd, [["Q"], ["C"], ["S"]])}),
        (channels, [total], cut, {"O": _merged(rnd, [["Q"], ["C1", "C0"], ["S"]])}),
        (channels, [total], {"O": {"Q": [f"uniform_shape({n})"]}}, {"O": ["Q1", "C", "Q0", "S"]}),
    ]


def _following(rnd: random.Random, n: int, m: int) -> list[Chosen]:
    """Tiles with halos, index math whose innermost variable is split or has a factor, loops split alike."""
    one = rnd.choice(["q + s", "2*q + s", "q + 2*s", "2*q + 3*s"])
    splits = [
        [f"uniform_shape({n})"],
        [f"nway_shape({n})"],
        [f"uniform_shape({n * m})", f"uniform_shape({n})"],
    ]
    split = rnd.choice(splits)
    line = {"Q": split, "W": ["follow(Q)"]} if rnd.random() < 0.7 else {"Q": split}
    parts = _parts("Q", len(split))
    plane = {"P": [f"uniform_shape({n})"], "Q": split, "H": ["follow(P)"], "W": ["follow(Q)"]}
    channels = {"I": "C W", "F": "C S", "O": "Q"}
    cut = {"C": [f"uniform_occupancy({rnd.choice('IF')}.{m})"]}
    both = {"I": "W", "F": "S", "J": "W", "G": "S", "O": "Q"}
    square = {"K": split, "M": ["follow(K)"] * len(split)} if "nway" not in split[0] else {"K": split}
    inner = _merged(rnd, [parts[-1:], ["S"]])
    rows = _parts("M", len(split)) if "M" in square else ["M"]
    return [
        (
            {"I": "W", "F": "S", "O": "Q"},
            [f"O[q] = I[{one}] * F[s]"],
            {"O": line},
            {"O": _merged(rnd, [parts, ["S"]])},
        ),
        (
            {"I": "H W", "F": "R S", "O": "P Q"},
            [f"O[p, q] = I[p + r, {one}] * F[r, s]"],
            {"O": plane},
            {"O": _merged(rnd, [["P1", "P0"], parts, ["R"], ["S"]])},
        ),
        (
            channels,
            [f"O[q] = I[c, {one}] * F[c, s]"],
            {"O": {**line, **cut}},
            {"O": [*parts[:-1], *rnd.choice([["C1", "C0", *inner], [inner[0], "C1", "C0", inner[1]]])]},
        ),
        (
            both,
            [f"O[q] = I[{one}] * F[s] + J[{one}] * G[s]"],
            {"O": {"Q": split, "W": ["follow(Q)"]}},
            {"O": _merged(rnd, [parts, ["S"]])},
        ),
        (MATRICES, [MATMUL], {"Z": square}, {"Z": _merged(rnd, [_parts("K", len(split)), rows, ["N"]])}),
    ]


def _data(rnd: random.Random, seed: int, spec: TeaalSpec) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Sizes of all ranks, and inputs of any density, with sums that come out zero now and then."""
    rng = np.random.default_rng(seed)
    ranks = sorted({r for declared in spec.declaration.values() for r in declared})
    small = {"H": 6, "P": 4, "R": 2} if "H" in ranks else {"W": 14}
    sizes = {r: rnd.randint(1, small.get(r, 9)) for r in ranks}
    signed = rnd.random() < 0.3
    arrays = {}
    for name in spec.inputs:
        shape = tuple(sizes[r] for r in spec.declaration[name])
        arrays[name] = sparse(rng, shape, rnd.choice([0.1, 0.3, 0.6, 1, 1]))
        if signed:
            arrays[name] = np.sign(arrays[name]) * rng.choice([-1, 1], shape)
    return arrays, sizes


def _splits(rnd: random.Random, sliced: bool) -> list[str]:
    count = rnd.choice([0, 0, 1, 2])
    if sliced and count and rnd.random() < 0.5:
        return [f"uniform_slice({rnd.randint(1, 4)})"]
    if rnd.random() < 0.3:
        return [f"nway_shape({rnd.randint(1, 4)})" for _ in range(count)]
    return [f"uniform_shape({n})" for n in sorted((rnd.randint(1, 6) for _ in range(count)), reverse=True)]


def _parts(rank: str, count: int) -> list[str]:
    return [f"{rank}{i}" for i in range(count, -1, -1)] if count else [rank]


def _merged(rnd: random.Random, chains: Sequence[Sequence[str]]) -> list[str]:
    """All names, those of one chain in its order."""
    left = [list(c) for c in chains]
    found = []
    while any(left):
        found.append(rnd.choice([c for c in left if c]).pop(0))
    return found


def _spacetime(rnd: random.Random, order: list[str]) -> dict[str, list[str]]:
    space = rnd.sample(order, rnd.randint(0, min(3, len(order))))
    time = [r for r in order if r not in space]
    return {
        "space": [r + rnd.choice(["", ".coord", ".pos"]) for r in space],
        "time": [r + rnd.choice(["", ".coord"]) for r in time],
    }
