"""Space-time activity as a page that steps through it: fibertrees beside each other, active coordinates lit.

Self-contained: no address in it is fetched, its policy allows no script but its own, and without scripts it
shows all steps as the grid and in words. Only numbers reach the script, as attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.report.activity import LIMIT, Activities, allowed
from polymodel.report.fibertree_layout import Coordinate, Levels, Path, levels
from polymodel.report.svg_activity import grid
from polymodel.report.svg_fibertree import Drawable, Tree, fibertree, ranks_of
from polymodel.view.answer import Html
from polymodel.view.drawing import described, picture
from polymodel.view.html import filled, page
from polymodel.view.inline import Page

# Of a larger tensor only what is touched is drawn.
WHOLE = 150


def activity_page(
    runs: Activities | Sequence[Activities],
    tensors: Mapping[str, Drawable] | Sequence[Mapping[str, Drawable]] = (),
    *,
    title: str = "",
    limit: int = LIMIT,
) -> Page:
    """A page with a section per Einsum: controls, the fibertrees of its tensors, and all steps as a grid.

    `tensors`: by name, in the ranks in which the computes name their points, for all Einsums or one such
    mapping per Einsum; of a tensor that is not given the points touched are drawn, each with the number of
    computes that touch it. Refused above `limit` computes in an Einsum; SpecError where a tensor and the
    points disagree.
    """
    listed = (runs,) if isinstance(runs, Activities) else tuple(runs)
    if not listed:
        raise SpecError([Diagnostic("there is no Einsum to show", "give the activities of at least one")])
    given = [tensors] * len(listed) if isinstance(tensors, Mapping) else list(tensors)
    if given and len(given) != len(listed):
        what = f"{len(given)} mappings of tensors for {len(listed)} Einsums"
        raise SpecError([Diagnostic(what, "give one for all, or one each")])
    pairs = list(zip(listed, given or [{}] * len(listed), strict=True))
    for run in listed:
        allowed(run, limit)
    faults = [f for run, known in pairs for f in _misfits(run, known)]
    if faults:
        raise SpecError(faults)
    name = title or f"Activity of {', '.join(r.einsum for r in listed)}"
    runs_shown = [_section(run, known, number) for number, (run, known) in enumerate(pairs)]
    body = Html(filled("activity.html", runs=runs_shown))
    return Page(name, page(name, [body], looks="activity.css", script="activity.js"))


def _misfits(run: Activities, tensors: Mapping[str, Drawable]) -> list[Diagnostic]:
    """A fault per tensor whose points do not have one coordinate per rank, or that has no such points."""
    found = []
    for name, points in _touched(run).items():
        lengths = {len(p) for p in points}
        wanted = {len(levels(tensors[name]).ranks)} if name in tensors else set(list(lengths)[:1])
        if lengths != wanted:
            found.append(
                Diagnostic(
                    f"{run.einsum}: points of {name} have {sorted(lengths)} coordinates, the tensor has "
                    f"{sorted(wanted)} ranks",
                    "give the tensor in the ranks in which it is iterated",
                )
            )
    return found


def _touched(run: Activities) -> dict[str, dict[Path, list[int]]]:
    """Per tensor and point the steps at which it is touched, in order."""
    found: dict[str, dict[Path, list[int]]] = {name: {} for name in run.tensors}
    for compute, step in zip(run.computes, run.steps, strict=True):
        for name, path in compute.points:
            found[name].setdefault(path, []).append(step)
    return found


@dataclass(frozen=True)
class Shown:
    """One Einsum as the template writes it: fibertrees by name, the grid of all steps, and each in words."""

    number: int
    einsum: str
    caption: tuple[str, ...]
    last: int
    trees: tuple[tuple[str, str], ...]
    grid: str
    words: tuple[tuple[str, str], ...]


def _section(run: Activities, tensors: Mapping[str, Drawable], number: int) -> Shown:
    body, width, height = grid(run)
    drawn = picture(width, height, f"Einsum {run.einsum}: all steps", body)
    touched = _touched(run)
    shown = {name: _shown(name, points, tensors) for name, points in touched.items()}
    ranks = ranks_of(list(shown.values()))
    trees = ((n, _tree(n, shown[n], points, ranks, run)) for n, points in touched.items())
    return Shown(
        number, run.einsum, run.caption, max(run.count - 1, 0), tuple(trees), drawn, tuple(_words(run))
    )


def _words(run: Activities) -> Iterator[tuple[str, str]]:
    """What is computed at each step, under a heading that the controls show too."""
    lines: list[list[str]] = [[] for _ in range(run.count)]
    for compute, step in zip(run.computes, run.steps, strict=True):
        where = ",".join(str(s) for s in compute.space)
        lines[step].append(f"({where}): {', '.join(compute.label)}")
    for step, words in enumerate(lines):
        busy = len({a.space for a, s in zip(run.computes, run.steps, strict=True) if s == step})
        stamp = "" if run.slip else f", time {','.join(str(t) for t in run.times[step])}"
        many = f"{len(words)} compute{'' if len(words) == 1 else 's'}"
        yield f"{many} on {busy} of {len(run.spaces)} space points{stamp}", "; ".join(words)


def _tree(
    name: str, tensor: Levels, points: Mapping[Path, Sequence[int]], ranks: Sequence[str], run: Activities
) -> str:
    """The fibertree of one tensor; each coordinate says at which steps it is touched."""
    steps: dict[Path, set[int]] = {}
    for path, at in points.items():
        for deep in range(1, len(path) + 1):
            steps.setdefault(path[:deep], set()).update(at)
    made = ' data-made=""' if name == run.computes[-1].points[-1][0] else ""

    def attributes(path: Path) -> str:
        at = " ".join(str(s) for s in sorted(steps.get(path, ())))
        return f' data-steps="{at}"{made}' if at else ""

    tree = fibertree(tensor, limit=max(1, tensor.values.size), ranks=ranks, attributes=attributes)
    return _standing(tree)


def _standing(tree: Tree) -> str:
    margin = 10.0
    body = [described(tree.description), f'<g transform="translate({margin:g} {margin:g})">']
    return picture(tree.width + 2 * margin, tree.height + 2 * margin, tree.title, [*body, *tree.body, "</g>"])


def _shown(name: str, points: Mapping[Path, Sequence[int]], tensors: Mapping[str, Drawable]) -> Levels:
    """The tensor that is drawn: the whole, what is touched of a large one, or the points alone."""
    if name not in tensors:
        some = next(iter(points))
        counts = np.array([len(at) for at in points.values()])
        widths = tuple(len(c) if isinstance(c, tuple) else 1 for c in some)
        ranks = tuple(f"rank {k + 1}" for k in range(len(some)))
        rows = np.array([_flat(p) for p in points], dtype=np.int64).reshape(len(points), sum(widths)).T
        return levels(Levels(name, ranks, widths, rows, counts, "the number of computes at each point"))
    found = levels(tensors[name])
    if found.values.size <= WHOLE:
        return found
    flat = {_flat(p) for p in points}
    kept = np.array([tuple(c) in flat for c in found.columns.T.tolist()], dtype=bool)
    note = f"{found.note}; only what is touched of {found.values.size:,} nonzeros"
    return Levels(found.name, found.ranks, found.widths, found.columns[:, kept], found.values[kept], note)


def _flat(path: Sequence[Coordinate]) -> tuple[int, ...]:
    return tuple(n for c in path for n in (c if isinstance(c, tuple) else (c,)))
