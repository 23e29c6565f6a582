"""Multiplication with reuse as a machine would do it: Python loops, sets and resident tiles.

It walks every tile of the grid in the order of the loops, and knows nothing of the library's counting.
"""

from __future__ import annotations

from itertools import product

import numpy as np

Points = set[tuple[int, int]]
Machine = dict[str, int]


def points(dense: np.ndarray) -> Points:
    return {(int(r), int(c)) for r, c in zip(*np.nonzero(dense), strict=True)}


def words(tile: Points) -> int:
    return 2 * len(tile) + 2 * len({r for r, _ in tile}) + 3 if tile else 0


def cut(entries: Points, shape: tuple[int, int], tile: tuple[int, int]) -> dict[tuple[int, int], Points]:
    """Every tile of the grid, empty ones too."""
    down, across = (range(0, n, t) for n, t in zip(shape, tile, strict=True))
    return {
        (r // tile[0], c // tile[1]): {
            (x, y) for x, y in entries if r <= x < r + tile[0] and c <= y < c + tile[1]
        }
        for r in down
        for c in across
    }


def times(a: Points, b: Points) -> tuple[Points, int]:
    """The product's pattern and the multiplies that it takes."""
    found, multiplies = set(), 0
    for (i, k), (other, j) in product(a, b):
        if k == other:
            found.add((i, j))
            multiplies += 1
    return found, multiplies


def walk(
    a: np.ndarray,
    b: np.ndarray,
    tile: tuple[int, int, int],
    order: str,
    buffers: tuple[int, int, int] | None = None,
) -> Machine:
    """Figures of one order. `buffers`: words that stay of a resident tile of A, B and Z; the rest is moved
    word by word at every use."""
    (rows, inner), cols = a.shape, b.shape[1]
    ti, tk, tj = tile
    of_a = cut(points(a), (rows, inner), (ti, tk))
    of_b = cut(points(b), (inner, cols), (tk, tj))
    grid = {"i": range(-(-rows // ti)), "k": range(-(-inner // tk)), "j": range(-(-cols // tj))}
    found: Machine = dict.fromkeys(
        "dense candidates pairs multiplies partials a_fetches b_fetches z_visits".split(), 0
    )
    moved = {"a_read": 0, "b_read": 0, "z_read": 0, "z_write": 0}
    resident: dict[str, tuple[int, int] | None] = {"a": None, "b": None, "z": None}
    memory: dict[tuple[int, int], Points] = {}

    def use(name: str, at: tuple[int, int], held: Points, buffer: float) -> None:
        stays = resident[name] == at
        for word in range(words(held)):
            if not stays or word >= buffer:
                moved[f"{name}_read"] += 1
        if not stays:
            found[f"{name}_fetches" if name != "z" else "z_visits"] += 1
        resident[name] = at

    a_buffer, b_buffer, z_buffer = buffers or (np.inf, np.inf, np.inf)
    for place in product(*(grid[loop] for loop in order)):
        at = dict(zip(order, place, strict=True))
        i, k, j = at["i"], at["k"], at["j"]
        one, two = of_a[i, k], of_b[k, j]
        found["dense"] += 1
        found["candidates"] += bool(one and two)
        if not {c for _, c in one} & {r for r, _ in two}:
            continue
        made, multiplies = times(one, two)
        found["pairs"] += 1
        found["multiplies"] += multiplies
        found["partials"] += len(made)
        use("a", (i, k), one, a_buffer)
        use("b", (k, j), two, b_buffer)
        old = resident["z"]
        if old is not None and old != (i, j):
            moved["z_write"] += words(memory[old])
        elif old is not None:
            moved["z_write"] += sum(word >= z_buffer for word in range(words(memory[old])))
        use("z", (i, j), memory.get((i, j), set()), z_buffer)
        memory[i, j] = memory.get((i, j), set()) | made
    if resident["z"] is not None:
        moved["z_write"] += words(memory[resident["z"]])
    return {**found, **moved}
