"""One element that breaks a dependence: a product of factors has a point if each factor has one."""

from __future__ import annotations

from polymodel.polyhedra import dependences
from polymodel.schedule.touch import Factor

Element = dict[int, int]  # rank -> index


def never(made: tuple[Factor, ...], read: tuple[Factor, ...]) -> Element | None:
    """An element that is read and made nowhere: a product lacks a point if one factor does."""
    pairs = list(zip(made, read, strict=True))
    for k, (a, b) in enumerate(pairs):
        dims = len(a.spatial) + len(a.temporal)
        lacking = dependences.missing(b.text, a.text, dims)
        if lacking is not None:
            others = [
                dependences.missing(g.text, None, len(g.spatial) + len(g.temporal)) or () for _, g in pairs
            ]
            return _element(read, [*others[:k], lacking, *others[k + 1 :]])
    return None


def late(made: tuple[Factor, ...], read: tuple[Factor, ...], position: int) -> Element | None:
    """An element produced later than it is read, the loops above `position` being equal."""
    found = []
    for a, b in zip(made, read, strict=True):
        equal = sum(1 for t in a.temporal if t < position)
        later = position in a.temporal
        element = dependences.shared_element(a.text, b.text, len(a.spatial), len(a.temporal), equal, later)
        if element is None:
            return None
        found.append(element[: len(a.ranks)])
    return _element(made, found)


def together(made: tuple[Factor, ...], read: tuple[Factor, ...]) -> Element | None:
    """An element that is made at a time and read at the same."""
    found = []
    for a, b in zip(made, read, strict=True):
        nt = len(a.temporal)
        element = dependences.shared_element(a.text, b.text, len(a.spatial), nt, nt, False)
        if element is None:
            return None
        found.append(element[: len(a.ranks)])
    return _element(made, found)


def in_part(made: tuple[Factor, ...], ranks: int) -> Element | None:
    """An element that is made at several stamps: its first `ranks` coordinates, without versions."""
    if any(not dependences.made_once(f.text, len(f.spatial), len(f.temporal)) for f in made):
        found = [dependences.made_apart(f.text, len(f.spatial), len(f.temporal)) for f in made]
        return {rank: i for rank, i in _element(made, found).items() if rank < ranks}
    return None


def _element(factors: tuple[Factor, ...], parts: list[tuple[int, ...]]) -> Element:
    pairs = zip(factors, parts, strict=True)
    return {rank: value for f, part in pairs for rank, value in zip(f.ranks, part, strict=True)}
