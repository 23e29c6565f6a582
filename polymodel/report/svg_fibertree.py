"""Fibertrees as SVG: a box per fiber and its coordinates, edges to the payloads, values at the bottom.

What a fibertree is: Sze et al., Efficient Processing of Deep Neural Networks, chapter 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.report.fibertree_layout import (
    BESIDE,
    NARROWEST,
    WITHIN,
    Cell,
    Chosen,
    Coordinate,
    DrawnFibertree,
    Fiber,
    Path,
    choose,
    coordinate_text,
    levels,
    text_width,
    value_text,
)
from polymodel.sparse.fibertree import Fibertree
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_whole, not_a
from polymodel.view.drawing import (
    CHAR,
    LINE,
    MUTED,
    colours,
    described,
    line,
    picture,
    rectangle,
    text,
    titled,
)
from polymodel.view.inline import Drawing

LIMIT = 48
PARTS = 16
MARGIN = 14.0
TALL = 24.0
EDGE = 24.0
DROP = 12.0
HEAD = 30.0
Drawable = SparseTensor | Fibertree | DrawnFibertree
Attributes = Callable[[Path], str]


@dataclass(frozen=True)
class DrawnTree:
    """A drawn fibertree: its shapes, from (0, 0) rightwards and down, and its description in words."""

    body: tuple[str, ...]
    width: float
    height: float
    title: str
    description: str


def draw_fibertree(tensor: Drawable, *, title: str = "", limit: int = LIMIT) -> Drawing:
    """The fibertree of a tensor in its ranks' order, partitioned or not.

    Of a tensor with more than `limit` values some fibers are drawn; the number of omitted ones is shown at
    every shortened fiber, and at every rank. Raises SpecError for a limit below 1.
    """
    tree = fibertree(tensor, title=title, limit=limit)
    return _drawing((tree,))


def draw_fibertrees(tensors: Sequence[Drawable], *, title: str = "", limit: int = LIMIT) -> Drawing:
    """Several fibertrees one below the other, each with at most about `limit` values."""
    given: object = tensors
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise not_a("list of tensors", "draw_fibertrees", given, "write [tensor], or call draw_fibertree")
    if not tensors:
        message = "there is no tensor to draw"
        raise SpecError([Diagnostic(message, "give at least one", "tensors", code="nothing-to-show")])
    result = [levels(t) for t in tensors]
    return _drawing(tuple(fibertree(t, limit=limit, ranks=ranks_of(result)) for t in result), title)


def draw_parts(tensor: Drawable, *, title: str = "", limit: int = LIMIT) -> Drawing:
    """A partitioned tensor as its parts: one fibertree per coordinate of its outermost rank.

    Refused for more than 16 parts.
    """
    result = levels(tensor)
    if len(result.ranks) < 2:
        message = f"{result.name} has {len(result.ranks)} ranks: it has no parts to draw"
        raise SpecError([Diagnostic(message, code="unsupported-shape")])
    trees = tuple(fibertree(part, limit=limit, ranks=result.ranks) for part in _parts(result))
    if not trees:
        return _drawing((fibertree(result, title=title),))
    return _drawing(trees, title or f"{result.name} as its parts")


def ranks_of(tensors: Sequence[DrawnFibertree]) -> tuple[str, ...]:
    """All ranks in order of appearance."""
    return tuple(dict.fromkeys(r for t in tensors for r in t.ranks))


def _parts(found: DrawnFibertree) -> list[DrawnFibertree]:
    wide = found.widths[0]
    keys, which = np.unique(found.columns[:wide], axis=1, return_inverse=True)
    if keys.shape[1] > PARTS:
        raise Refused(
            f"{found.name} has {keys.shape[1]:,} parts along {found.ranks[0]}: too many to draw one by one",
            "draw it as a whole: draw_fibertree",
            code="too-large",
        )
    parts = []
    for number, key in enumerate(keys.T.tolist()):
        kept = which.reshape(-1) == number
        at = coordinate_text(key[0] if wide == 1 else tuple(key))
        parts.append(
            DrawnFibertree(
                f"{found.name}[{found.ranks[0]} = {at}]", found.ranks[1:], found.widths[1:],
                found.columns[wide:, kept], found.values[kept],
            )
        )  # fmt: skip
    return parts


def fibertree(
    tensor: Drawable,
    *,
    title: str = "",
    limit: int = LIMIT,
    ranks: Sequence[str] = (),
    attributes: Attributes | None = None,
) -> DrawnTree:
    """The shapes of one fibertree; `attributes` are added to the group of each coordinate, given its path.

    `ranks`: those that have the first colours, so that the colours of adjacent trees agree.
    """
    if (as_whole(limit) or 0) < 1:
        what = f"a fibertree of {limit!r} values shows nothing"
        raise SpecError([Diagnostic(what, "allow at least 1", "limit", code="not-positive-integer")])
    chosen = choose(levels(tensor), limit)
    names = chosen.tensor.ranks
    head = title or _title(chosen.tensor)
    sub = _subtitle(chosen.tensor)
    shades = colours([_base(r) for r in (*ranks, *names)])
    left = max([len(r) * CHAR * 1.13 for r in names] + [0.0]) + 16
    body = [text(0, 13, head, ' class="b"', "start"), text(0, 13 + LINE, sub, ' class="m"', "start")]
    top = HEAD + LINE
    wide = max(len(head) * CHAR * 1.13, len(sub) * CHAR)
    described = f"{head}: {sub}. " + " ".join(_rank_text(chosen, k) for k in range(len(names)))
    if chosen.root is None:
        told = _root_text(chosen.tensor)
        body.append(rectangle(0, top, text_width(told), TALL, "#ffffff", MUTED))
        body.append(text(text_width(told) / 2, top + TALL / 2 + 4, told))
        return DrawnTree(tuple(body), max(wide, text_width(told)), top + TALL, head, described)
    drawn = _Pen([shades[_base(r)] for r in names], names, attributes, [], [], [0.0] * len(names))
    drawn.fiber(chosen.root, left, top)
    for rank, name in enumerate(names):
        y = top + rank * (TALL + EDGE)
        body.append(
            text(0, y + TALL / 2 + 4, name, f' class="b" style="fill:{shades[_base(name)][1]}"', "start")
        )
        left_out = _left_out(chosen, rank)
        if left_out:
            x = drawn.right[rank] + BESIDE
            body.append(text(x, y + TALL / 2 + 4, left_out, ' class="m"', "start"))
            wide = max(wide, x + len(left_out) * CHAR)
    height = top + len(names) * (TALL + EDGE) - EDGE + DROP + NARROWEST
    shapes = (*body, *drawn.edges, *drawn.boxes)
    return DrawnTree(shapes, max(wide, left + chosen.root.width), height, head, described)


def _root_text(tensor: DrawnFibertree) -> str:
    """Return the text of a tensor without fibers: its value if it has rank 0, or that it is empty."""
    if not tensor.values.size:
        return "no nonzeros"
    return value_text(tensor.values[0])


def _base(rank: str) -> str:
    """Return K for K1: the parts of one rank have the same colour."""
    return rank.rstrip("0123456789") or rank


def _title(tensor: DrawnFibertree) -> str:
    return f"{tensor.name} [{', '.join(tensor.ranks)}]" if tensor.ranks else tensor.name


def _subtitle(tensor: DrawnFibertree) -> str:
    count = tensor.values.size
    return ", ".join(x for x in (tensor.note, f"{count:,} nonzero{'' if count == 1 else 's'}") if x)


def _rank_text(chosen: Chosen, rank: int) -> str:
    count, drawn = chosen.fibers[rank], chosen.drawn[rank]
    left_out = f", {drawn:,} of them drawn" if drawn < count else ""
    return f"Rank {chosen.tensor.ranks[rank]}: {count:,} fiber{'' if count == 1 else 's'}{left_out}."


def _left_out(chosen: Chosen, rank: int) -> str:
    more = chosen.fibers[rank] - chosen.drawn[rank]
    return f"… {more:,} more fiber{'' if more == 1 else 's'}" if more else ""


@dataclass(frozen=True)
class _Pen:
    """Draws fibers; edges and boxes separately, so that boxes cover edges."""

    shades: list[tuple[str, str]]
    names: tuple[str, ...]
    attributes: Attributes | None
    edges: list[str]
    boxes: list[str]
    right: list[float]

    def fiber(self, fiber: Fiber, x: float, y: float) -> None:
        """Draw the fiber and everything below it, from (x, y) rightwards and down."""
        fill, edge = self.shades[fiber.rank]
        self.boxes.append(rectangle(x, y, fiber.width, TALL, fill, edge))
        self.right[fiber.rank] = max(self.right[fiber.rank], x + fiber.width)
        deep = fiber.rank + 1 == len(self.names)
        at = x + WITHIN
        for number, cell in enumerate(fiber.cells):
            if number:
                at += WITHIN if deep else BESIDE
            self.cell(cell, fiber.rank, at, y)
            at += cell.width
        if fiber.more:
            wide = text_width(fiber.rest)
            middle = x + fiber.width - WITHIN - wide / 2
            self.boxes.append(text(middle, y + TALL / 2 + 4, fiber.rest, ' class="m"'))

    def cell(self, cell: Cell, rank: int, x: float, y: float) -> None:
        middle, edge = x + cell.width / 2, self.shades[rank][1]
        low = y + TALL
        shapes = [titled(self.where(cell))]
        own = text_width(cell.text)
        shapes.append(rectangle(middle - own / 2, y + 3, own, TALL - 6, "#ffffff", edge))
        shapes.append(text(middle, y + TALL / 2 + 4, cell.text))
        if cell.below is None:
            self.edges.append(line(middle, low - 3, middle, low + DROP))
            wide = text_width(cell.value)
            shapes.append(rectangle(middle - wide / 2, low + DROP, wide, NARROWEST - 2, "#f5f7fa", MUTED))
            shapes.append(text(middle, low + DROP + NARROWEST / 2 + 3, cell.value))
        else:
            self.edges.append(line(middle, low - 3, middle, low + EDGE))
            self.fiber(cell.below, middle - cell.below.width / 2, low + EDGE)
        given = self.attributes(cell.path) if self.attributes else ""
        self.boxes.append(f'<g class="cell"{given}>{"".join(shapes)}</g>')

    def where(self, cell: Cell) -> str:
        """Return the path in words, and the value at its end."""
        at = ", ".join(f"{r} = {coordinate_text(c)}" for r, c in zip(self.names, cell.path, strict=False))
        return f"{at}: {cell.value}" if cell.below is None else at


def _drawing(trees: tuple[DrawnTree, ...], title: str = "") -> Drawing:
    """Draw trees one below the other, with titles if there are several."""
    body, y = [described(" ".join(t.description for t in trees))], MARGIN
    wide = 0.0
    if title and len(trees) > 1:
        body.append(text(MARGIN, y + 12, title, ' class="b"', "start"))
        y, wide = y + HEAD, len(title) * CHAR * 1.13
    for tree in trees:
        body.append(f'<g transform="translate({MARGIN:g} {y:g})">')
        body += tree.body
        body.append("</g>")
        y += tree.height + 2 * MARGIN
        wide = max(wide, tree.width)
    name = title or ", ".join(t.title for t in trees)
    return Drawing(name, picture(wide + 2 * MARGIN, y - MARGIN, name, body))


__all__ = [
    "Coordinate",
    "Drawable",
    "DrawnFibertree",
    "draw_fibertree",
    "draw_fibertrees",
    "draw_parts",
    "fibertree",
]
