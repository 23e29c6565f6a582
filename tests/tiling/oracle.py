"""Tilers, counts and cycles from dense arrays, rectangle by rectangle: an oracle, slow and obvious.

A and B are boolean arrays; a rectangle is (row, col, height, width). `fit` is ("elements", C) or
("words", M); `op` is "add" or "multiply". It shares no code with polymodel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Dense = np.typing.NDArray[np.bool_]
Rect = tuple[int, int, int, int]
FitRule = tuple[str, int]


def part(x: Dense, rect: Rect) -> Dense:
    r, c, h, w = rect
    return x[r : r + h, c : c + w]


def nonempty_rows(x: Dense) -> int:
    return int(x.any(axis=1).sum())


def load(a: Dense, b: Dense, rect: Rect, fit: FitRule, op: str) -> int:
    """How full a rectangle makes the fullest memory."""
    one, two = part(a, rect), part(b, rect)
    n_a, n_b = int(one.sum()), int(two.sum())
    if fit[0] == "elements":
        return n_a + n_b if op == "add" else max(n_a, n_b)
    r_a, r_b, h, w = nonempty_rows(one), nonempty_rows(two), rect[2], rect[3]
    if op == "add":
        n_o, r_o = min(n_a + n_b, h * w), min(h, r_a + r_b)
    else:
        n_o, r_o = min(n_a, n_b), min(r_a, r_b)
    return max(2 * n + 2 * r + 3 for n, r in ((n_a, r_a), (n_b, r_b), (n_o, r_o)))


def can_run(a: Dense, b: Dense, rect: Rect, op: str) -> bool:
    one, two = part(a, rect), part(b, rect)
    return bool(one.any() or two.any()) if op == "add" else bool(one.any() and two.any())


def cycles(a: Dense, b: Dense, rect: Rect, op: str) -> int:
    """Cycles of a kernel: 8, and its tokens counted one by one; 10 for a tile without a result."""
    if not can_run(a, b, rect, op):
        return 10
    either, common, rows = 0, 0, 0
    for row_a, row_b in zip(part(a, rect), part(b, rect), strict=True):
        entries = sum(1 for x, y in zip(row_a, row_b, strict=True) if x or y)
        if entries:
            rows += 1
            either += entries + 1
        if row_a.any() and row_b.any():
            common += entries + 1
    return 8 + (either if op == "add" else max(common, rows + 1))


def estimate(a: Dense, b: Dense, rect: Rect, op: str) -> int:
    n_a, n_b = int(part(a, rect).sum()), int(part(b, rect).sum())
    return 5 + (n_a + n_b if op == "add" else max(n_a, n_b))


def _fits(a: Dense, b: Dense, fit: FitRule, op: str) -> Callable[[Rect], bool]:
    return lambda rect: load(a, b, rect, fit, op) <= fit[1]


def simple(a: Dense, b: Dense, fit: FitRule, op: str) -> list[Rect]:
    """Both extents halved until every tile fits; tiles at the far edges clipped."""
    rows, cols = a.shape
    fits, h, w = _fits(a, b, fit, op), rows, cols
    while True:
        rects = [
            (r, c, min(h, rows - r), min(w, cols - c)) for r in range(0, rows, h) for c in range(0, cols, w)
        ]
        if all(fits(rect) for rect in rects):
            return rects
        if h == w == 1:
            raise ValueError("an entry fits no tile")
        h, w = max(h // 2, 1), max(w // 2, 1)


def qtree(a: Dense, b: Dense, fit: FitRule, op: str, merge: bool = False) -> list[Rect]:
    """Overfull rectangles split in four; with `merge`, leaves among the four put together again, in pairs."""
    fits = _fits(a, b, fit, op)

    def split(rect: Rect) -> list[Rect]:
        r, c, h, w = rect
        if h == 0 or w == 0 or fits(rect):
            return [rect]
        if h == w == 1:
            raise ValueError("an entry fits no tile")
        up, left = max(h // 2, 1), max(w // 2, 1)
        quarters = [
            split((r, c, up, left)),
            split((r, c + left, up, w - left)),
            split((r + up, c, h - up, left)),
            split((r + up, c + left, h - up, w - left)),
        ]
        return joined(quarters) if merge else [rect for q in quarters for rect in q]

    def joined(quarters: list[list[Rect]]) -> list[Rect]:
        leaf = [len(q) == 1 for q in quarters]
        merged: list[Rect] = []
        for i, j in ((0, 1), (2, 3), (0, 2), (1, 3)):
            if leaf[i] and leaf[j]:
                (r, c, h, w), (_, _, h2, w2) = quarters[i][0], quarters[j][0]
                both = (r, c, h, w + w2) if j == i + 1 else (r, c, h + h2, w)
                if fits(both):
                    merged.append(both)
                    leaf[i] = leaf[j] = False
                    quarters[i], quarters[j] = [], []
        return merged + [rect for q in quarters for rect in q]

    return [rect for rect in split((0, 0, *a.shape)) if rect[2] and rect[3]]


def btree(a: Dense, b: Dense, fit: FitRule, op: str) -> list[Rect]:
    """Overfull rectangles cut in two across the longer side (rows if the sides are equal)."""
    fits = _fits(a, b, fit, op)

    def split(rect: Rect) -> list[Rect]:
        r, c, h, w = rect
        if fits(rect):
            return [rect]
        if h == w == 1:
            raise ValueError("an entry fits no tile")
        if w > h:
            return split((r, c, h, w // 2)) + split((r, c + w // 2, h, w - w // 2))
        return split((r, c, h // 2, w)) + split((r + h // 2, c, h - h // 2, w))

    return split((0, 0, *a.shape))


def strips(a: Dense, b: Dense, fit: FitRule, op: str) -> list[Rect]:
    """As many full rows as fit, again and again; a row too heavy alone is cut along its columns likewise."""
    (rows, cols), fits, found, r = a.shape, _fits(a, b, fit, op), [], 0
    while r < rows:
        h = 0
        while r + h < rows and fits((r, 0, h + 1, cols)):
            h += 1
        if h:
            found.append((r, 0, h, cols))
        else:
            c = 0
            while c < cols:
                w = 0
                while c + w < cols and fits((r, c, 1, w + 1)):
                    w += 1
                if not w:
                    raise ValueError("an entry fits no tile")
                found.append((r, c, 1, w))
                c += w
        r += max(h, 1)
    return found


def nonempty(a: Dense, b: Dense, rects: list[Rect]) -> int:
    return sum(1 for rect in rects if can_run(a, b, rect, "add"))


def fewest_tiles(a: Dense, b: Dense, fit: FitRule, op: str, counted: str) -> int:
    """The fewest tiles of a partition into rectangles that fit, over all partitions (tiny planes only).

    `counted`: "nonempty" tiles, tiles that "launch" (those that can have a result), or "all".
    """
    fits = _fits(a, b, fit, op)
    shape = a.shape

    def worth(rect: Rect) -> int:
        if counted == "all":
            return 1
        return int(can_run(a, b, rect, op if counted == "launch" else "add"))

    best = [a.size + 1]

    def cover(taken: Dense, so_far: int) -> None:
        if so_far >= best[0]:
            return
        free = np.argwhere(~taken)
        if not len(free):
            best[0] = so_far
            return
        r, c = (int(x) for x in free[0])
        for h in range(shape[0] - r, 0, -1):
            for w in range(shape[1] - c, 0, -1):
                if not part(taken, (r, c, h, w)).any() and fits((r, c, h, w)):
                    after = taken.copy()
                    after[r : r + h, c : c + w] = True
                    cover(after, so_far + worth((r, c, h, w)))

    cover(np.zeros(shape, dtype=np.bool_), 0)
    return int(best[0])
