"""A cascade as executed on data, with its pictures: activity in space and time, load per space point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.report.activity import LIMIT, Activities, activities, allowed, iterated
from polymodel.report.fibertree_layout import Coordinate, DrawnFibertree, Path, levels
from polymodel.report.svg_activity import draw_activity, grid
from polymodel.report.svg_fibertree import Drawable, DrawnTree, draw_fibertrees, fibertree, ranks_of
from polymodel.sparse.execute.records import Execution, ExecutionTimes, stamp_text
from polymodel.spec.faults import not_a
from polymodel.view.answer import Answer, Block, Html, Line, Picture, declared, notes
from polymodel.view.drawing import described, picture
from polymodel.view.html import filled, page
from polymodel.view.inline import Drawing, Page
from polymodel.view.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Space-time activity as a page that steps through it: fibertrees, active coordinates highlighted.
#
# Self-contained: it fetches no address, its policy allows only its own script, and without scripts it
# shows all steps as the grid and in words. Only numbers reach the script, as attributes.

# Of a larger tensor only the touched points are drawn.
WHOLE = 150


def activity_page(
    runs: Activities | Sequence[Activities],
    tensors: Mapping[str, Drawable] | Sequence[Mapping[str, Drawable]] = (),
    *,
    title: str = "",
    limit: int = LIMIT,
) -> Page:
    """A page with a section per Einsum: controls, the fibertrees of its tensors, and all steps as a grid.

    `tensors`: by name, in the ranks in which the computes name their points, one mapping for all Einsums or
    one per Einsum; for a tensor that is not given, the touched points are drawn, each with the number of
    computes that touch it. Raises Refused above `limit` computes in an Einsum; SpecError if a tensor and the
    points are inconsistent.
    """
    listed = (runs,) if isinstance(runs, Activities) else tuple(runs)
    if not listed:
        message = "there is no Einsum to show"
        raise SpecError([Diagnostic(message, "give the activities of at least one", code="nothing-to-show")])
    given = [tensors] * len(listed) if isinstance(tensors, Mapping) else list(tensors)
    if given and len(given) != len(listed):
        what = f"{len(given)} mappings of tensors for {len(listed)} Einsums"
        raise SpecError([Diagnostic(what, "give one for all, or one each", code="wrong-count")])
    pairs = list(zip(listed, given or [{}] * len(listed), strict=True))
    for run in listed:
        allowed(run, limit)
    faults = [f for run, known in pairs for f in _misfits(run, known)]
    if faults:
        raise SpecError(faults)
    name = title or f"Activity of {', '.join(r.einsum for r in listed)}"
    runs_shown = [_section(run, known, number) for number, (run, known) in enumerate(pairs)]
    body = Html(filled("activity.html", runs=runs_shown))
    return Page(name, page(name, [body], looks="activity.css", scripts=("activity.js",)))


def _misfits(run: Activities, tensors: Mapping[str, Drawable]) -> list[Diagnostic]:
    """A fault per tensor whose points do not have one coordinate per rank, or that has no such points."""
    result = []
    for name, points in _touched(run).items():
        lengths = {len(p) for p in points}
        wanted = {len(levels(tensors[name]).ranks)} if name in tensors else set(list(lengths)[:1])
        if lengths != wanted:
            result.append(
                Diagnostic(
                    f"{run.einsum}: points of {name} have {sorted(lengths)} coordinates, the tensor has "
                    f"{sorted(wanted)} ranks",
                    "give the tensor in the ranks in which it is iterated",
                    code="shape-mismatch",
                )
            )
    return result


def _touched(run: Activities) -> dict[str, dict[Path, list[int]]]:
    """Per tensor and point the steps at which it is touched, in order."""
    result: dict[str, dict[Path, list[int]]] = {name: {} for name in run.tensors}
    for compute, step in zip(run.computes, run.steps, strict=True):
        for name, path in compute.points:
            result[name].setdefault(path, []).append(step)
    return result


@dataclass(frozen=True)
class EinsumPage:
    """One Einsum as the template writes it: fibertrees by name, the grid of all steps, and each in words."""

    number: int
    einsum: str
    caption: tuple[str, ...]
    last: int
    trees: tuple[tuple[str, str], ...]
    grid: str
    words: tuple[tuple[str, str], ...]


def _section(run: Activities, tensors: Mapping[str, Drawable], number: int) -> EinsumPage:
    body, width, height = grid(run)
    drawn = picture(width, height, f"Einsum {run.einsum}: all steps", body)
    touched = _touched(run)
    shown = {name: _shown(name, points, tensors) for name, points in touched.items()}
    ranks = ranks_of(list(shown.values()))
    trees = ((n, _tree(n, shown[n], points, ranks, run)) for n, points in touched.items())
    return EinsumPage(
        number, run.einsum, run.caption, max(run.count - 1, 0), tuple(trees), drawn, tuple(_words(run))
    )


def _words(run: Activities) -> Iterator[tuple[str, str]]:
    """The computes of each step in words, under a heading that the controls show too."""
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
    name: str,
    tensor: DrawnFibertree,
    points: Mapping[Path, Sequence[int]],
    ranks: Sequence[str],
    run: Activities,
) -> str:
    """Return the fibertree of one tensor; each coordinate lists the steps at which it is touched."""
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


def _standing(tree: DrawnTree) -> str:
    margin = 10.0
    body = [described(tree.description), f'<g transform="translate({margin:g} {margin:g})">']
    return picture(tree.width + 2 * margin, tree.height + 2 * margin, tree.title, [*body, *tree.body, "</g>"])


def _shown(
    name: str, points: Mapping[Path, Sequence[int]], tensors: Mapping[str, Drawable]
) -> DrawnFibertree:
    """The tensor that is drawn: all of it, the touched points of a large one, or the points alone."""
    if name not in tensors:
        some = next(iter(points))
        counts = np.array([len(at) for at in points.values()])
        widths = tuple(len(c) if isinstance(c, tuple) else 1 for c in some)
        ranks = tuple(f"rank {k + 1}" for k in range(len(some)))
        rows = np.array([_flat(p) for p in points], dtype=np.int64).reshape(len(points), sum(widths)).T
        return levels(
            DrawnFibertree(name, ranks, widths, rows, counts, "the number of computes at each point")
        )
    result = levels(tensors[name])
    if result.values.size <= WHOLE:
        return result
    flat = {_flat(p) for p in points}
    kept = np.array([tuple(c) in flat for c in result.columns.T.tolist()], dtype=bool)
    note = f"{result.note}; only what is touched of {result.values.size:,} nonzeros"
    return DrawnFibertree(
        result.name, result.ranks, result.widths, result.columns[:, kept], result.values[kept], note
    )


def _flat(path: Sequence[Coordinate]) -> tuple[int, ...]:
    return tuple(n for c in path for n in (c if isinstance(c, tuple) else (c,)))


_BARS = 64


@dataclass(frozen=True, repr=False)
class ExecutionReport(Answer):
    """The counts of an execution: DataFrames `einsums`, `ranks`, `slices` and `space`.

    Units are in `attrs["units"]`. It prints as text and displays as HTML in notebooks.
    """

    execution: Execution

    def __post_init__(self) -> None:
        if not isinstance(self.execution, Execution):
            raise not_a(
                "execution", "ExecutionReport", self.execution, "pass what pm.execute(spec, tensors) gives"
            )

    @declared(title="Work and time per Einsum")
    def einsums(self) -> Table:
        """Per Einsum: multiplies, adds, updates, outputs, and time under three models."""
        return self.execution.table("einsums")

    @declared(title="Coordinate accesses per loop rank")
    def ranks(self) -> Table:
        """Coordinates read and written per Einsum, loop rank and tensor."""
        return self.execution.table("ranks")

    @declared(title="Parts of partitioned inputs")
    def slices(self) -> Table:
        """The parts of each input that is partitioned at its outermost rank."""
        return self.execution.table("slices")

    @declared(title="Load per space point")
    def space(self) -> Table:
        """Every Einsum and space point that computes something."""
        return self.execution.table("space")

    @property
    def notes(self) -> tuple[str, ...]:
        """The meaning of the numbers."""
        return self.execution.notes

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that the spec was read from."""
        return self.execution.sources

    @property
    def title(self) -> str:
        """The heading of its page."""
        return self.execution.title

    def content(self, live: bool = True) -> list[Block]:
        """The tables of the execution."""
        return self.execution.content(live)

    def plot(self, einsum: str = "", ax: Axes | None = None) -> Axes:
        """The picture of `plot_load`."""
        return self.plot_load(einsum, ax)

    def __repr__(self) -> str:
        names = ", ".join(e.einsum for e in self.execution.einsums)
        return f"ExecutionReport({names})"

    def draw_activity(self, einsum: str = "", *, slip: bool | None = None, limit: int = LIMIT) -> Drawing:
        """The activity of one Einsum (by default the first) in space and time; its loops must have been
        recorded."""
        return draw_activity(activities(self.execution, einsum, limit=limit), slip=slip, limit=limit)

    def activity_page(self, *einsums: str, limit: int = LIMIT) -> Page:
        """Return a page that steps through these Einsums (all, if none is named), with their fibertrees."""
        names = einsums or tuple(e.einsum for e in self.execution.einsums)
        runs = [activities(self.execution, name, limit=limit) for name in names]
        return activity_page(
            runs, [iterated(self.execution, name, limit=limit) for name in names], limit=limit
        )

    def plot_load(self, einsum: str = "", ax: Axes | None = None) -> Axes:
        """Computes per space point as bars, their mean as a line; beyond 64 points per outermost coordinate.

        The default is the first Einsum with space and time stamps. Raises Refused for an Einsum without
        stamps.
        """
        from polymodel.report.plots_sparse import load_axes

        stamped = [e for e in self.execution.einsums if e.times is not None]
        if einsum and einsum not in [e.einsum for e in self.execution.einsums]:
            known = ", ".join(e.einsum for e in self.execution.einsums)
            message = f"there is no Einsum {einsum!r}"
            raise SpecError([Diagnostic(message, f"Einsums: {known}", code="unknown-name")])
        found = next((e for e in stamped if einsum in ("", e.einsum)), None)
        if found is None or found.times is None:
            who = f"{einsum} has no" if einsum else "no Einsum has"
            message = f"{who} space and time stamps"
            raise Refused(message, "give `spacetime` in the mapping", code="nothing-to-show")
        names, loads, unit = bars(found.times)
        title = f"Load of Einsum {found.einsum}: {found.activities:,} computes"
        return load_axes(names, loads, unit, title, ax)


def bars(times: ExecutionTimes) -> tuple[list[str], list[int], str]:
    """Return the name and the computes of every bar, and the meaning of a bar."""
    if times.load.size <= _BARS or not times.by_first:
        return (
            [stamp_text(row) for row in times.space.tolist()],
            times.load.tolist(),
            ", ".join(times.space_ranks),
        )
    names = [str(k) for k in sorted(times.by_first)]
    return names, [times.by_first[k][0] for k in sorted(times.by_first)], times.space_ranks[0]


# A fibertree is built completely before it is cut to the part that is drawn.
MOST_DRAWN = 10_000


@dataclass(frozen=True)
class Pictures:
    """`trees`: inputs and results; `grids`: (Einsum, its computes in space and time); `page`: steps through
    them; `left_out`: what is not drawn, and the reason."""

    trees: Drawing | None
    grids: tuple[tuple[str, Drawing], ...]
    page: Page | None
    left_out: tuple[str, ...]


def is_small(execution: Execution) -> bool:
    """True if steps can be drawn one by one: such a run is repeated with `keep_loops`, to be drawn."""
    return all(e.activities <= LIMIT for e in execution.einsums)


def pictures(execution: Execution) -> Pictures:
    """The pictures of a run; its activity too if its loops were recorded."""
    tensors = [*execution.tensors.values(), *execution.results.values()]
    left_out = []
    trees = None
    if all(t.nnz <= MOST_DRAWN for t in tensors):
        trees = draw_fibertrees([t for t in tensors if t.ranks]) if any(t.ranks for t in tensors) else None
    else:
        left_out.append(f"fibertrees are not drawn: a tensor has more than {MOST_DRAWN:,} nonzeros")
    if not is_small(execution):
        left_out.append(f"steps in space and time are not drawn: an Einsum has more than {LIMIT} computes")
        return Pictures(trees, (), None, tuple(left_out))
    report = ExecutionReport(execution)
    grids: list[tuple[str, Drawing]] = []
    for name in (e.einsum for e in execution.einsums):
        try:
            grids.append((name, report.draw_activity(name)))
        except Refused as refused:
            left_out.append(f"{name} in space and time is not drawn: {refused.message}")
    page = report.activity_page(*(name for name, _ in grids)) if grids else None
    return Pictures(trees, tuple(grids), page, tuple(left_out))


def drawn_blocks(drawn: Pictures | None) -> list[Block]:
    """The pictures of a page, each under its heading, and the reasons for missing ones."""
    if drawn is None:
        return []
    found = [] if drawn.trees is None else [("Fibertrees", drawn.trees.svg)]
    found += [(f"{name} in space and time", grid.svg) for name, grid in drawn.grids]
    shown = (block for head, svg in found for block in (Line(head, "title"), Picture(head, svg)))
    return [*shown, *notes(drawn.left_out)]
