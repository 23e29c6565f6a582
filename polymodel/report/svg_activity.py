"""Space-time activity as SVG: a row per space point, a column per time step, wrapped if it becomes wide."""

from __future__ import annotations

from polymodel.report.activity import LIMIT, Activities, allowed
from polymodel.view.drawing import CHAR, LINE, PALETTE, described, picture, rectangle, text
from polymodel.view.inline import Drawing

MARGIN = 14.0
WIDEST = 1240.0
HEAD = 2 * LINE + 4
GRID = "#e4e7eb"


def draw_activity(
    found: Activities, *, title: str = "", limit: int = LIMIT, slip: bool | None = None
) -> Drawing:
    """Every compute at its space point and time step, with the coordinates it touches; idle points are blank.

    `slip`: a clock other than that of `found`. Raises Refused above `limit` computes.
    """
    shown = allowed(found if slip is None else found.with_clock(slip), limit)
    name = title or f"Einsum {shown.einsum} in space and time"
    body, width, height = grid(shown, name)
    return Drawing(name, picture(width, height, name, body))


def grid(found: Activities, title: str = "") -> tuple[list[str], float, float]:
    """Return the shapes, and their total width and height. Each compute's group has its step
    (`data-steps`)."""
    rows, cells = _cells(found)
    stamps = _stamps(found)
    heads = [_tuple(space) for space in found.spaces]
    across, along = ", ".join(found.space) or "space", _along(found)
    left = max(len(w) for w in (across, along, *heads)) * CHAR * 1.13 + 14
    words = [w for lines in cells.values() for w in lines] + stamps + [f"step {found.count:,} "]
    wide = max(len(w) for w in words) * CHAR + 12
    fit = max(1, int((WIDEST - 2 * MARGIN - left) // wide))
    fit = -(-found.count // -(-found.count // fit)) if found.count else fit  # bands of equal length
    captions = found.caption
    body, y, broad = [described(" ".join(captions))], MARGIN, 0.0
    if title:
        body.append(text(MARGIN, y + 12, title, ' class="b"', "start"))
        for number, line in enumerate(captions, 1):
            body.append(text(MARGIN, y + 12 + LINE * number, line, ' class="m"', "start"))
        y += LINE * (len(captions) + 1) + 12
        broad = max(len(w) for w in (title, *captions)) * CHAR * 1.05
    for first in range(0, found.count, fit):
        last = min(first + fit, found.count)
        body += _band(found, (first, last), (MARGIN + left, y, wide), (across, heads, stamps), rows, cells)
        broad = max(broad, left + wide * (last - first))
        y += HEAD + sum(rows) + MARGIN
    return body, broad + 2 * MARGIN, y


def _cells(found: Activities) -> tuple[list[float], dict[tuple[int, int], tuple[str, ...]]]:
    """Return the height of each row, and the lines at every busy point (row, step)."""
    known = {space: number for number, space in enumerate(found.spaces)}
    cells: dict[tuple[int, int], tuple[str, ...]] = {}
    for compute, step in zip(found.computes, found.steps, strict=True):
        place = known[compute.space], step
        cells[place] = (*cells.get(place, ()), *compute.label)
    lines = [0] * len(known)
    for (row, _), words in cells.items():
        lines[row] = max(lines[row], len(words))
    return [n * (LINE - 2) + 10.0 for n in lines], cells


def _stamps(found: Activities) -> list[str]:
    """Return the text under the number of each step: its time stamp, if all space points share one."""
    return [""] * found.count if found.slip else [_tuple(t) for t in found.times]


def _along(found: Activities) -> str:
    """Return the ranks of the time stamps, if stamps are shown."""
    return "" if found.slip or not found.time else f"time {','.join(found.time)}"


def _tuple(stamp: tuple[int, ...]) -> str:
    return ",".join(str(s) for s in stamp) or "all"


def _band(
    found: Activities,
    steps: tuple[int, int],
    place: tuple[float, float, float],
    words: tuple[str, list[str], list[str]],
    rows: list[float],
    cells: dict[tuple[int, int], tuple[str, ...]],
) -> list[str]:
    """Draw the steps from first to last for all space points; `place`: left edge, top, width of a step."""
    (first, last), (x, y, wide), (across, heads, stamps) = steps, place, words
    body = [text(MARGIN, y + 12, across, ' class="b"', "start")]
    body.append(text(MARGIN, y + 12 + LINE, _along(found), ' class="m"', "start"))
    for step in range(first, last):
        middle = x + (step - first + 0.5) * wide
        head = text(middle, y + 12, f"step {step + 1}", ' class="b"')
        head += text(middle, y + 12 + LINE, stamps[step], ' class="m"') if stamps[step] else ""
        body.append(f'<g class="head" data-steps="{step}">{head}</g>')
    top = y + HEAD
    slices = list(dict.fromkeys(space[:1] for space in found.spaces))
    for row, (space, tall) in enumerate(zip(found.spaces, rows, strict=True)):
        body.append(text(MARGIN, top + tall / 2 + 4, heads[row], ' class="b"', "start"))
        shade = PALETTE[slices.index(space[:1]) % len(PALETTE)]
        for step in range(first, last):
            left = x + (step - first) * wide
            lines = cells.get((row, step))
            if lines is None:
                body.append(rectangle(left + 1, top + 1, wide - 2, tall - 2, "#ffffff", GRID))
                continue
            shapes = [rectangle(left + 1, top + 1, wide - 2, tall - 2, *shade)]
            high = top + (tall - (LINE - 2) * len(lines)) / 2 + LINE * 0.66
            for number, words_ in enumerate(lines):
                shapes.append(text(left + wide / 2, high + number * (LINE - 2), words_))
            body.append(f'<g class="cell" data-steps="{step}">{"".join(shapes)}</g>')
        top += tall
    return body
