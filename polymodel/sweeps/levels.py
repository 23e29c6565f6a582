"""Traffic or energy of kept points by level of the hierarchy, as a stacked plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from polymodel.api.evaluation import evaluate
from polymodel.architecture.hierarchy import link_name
from polymodel.errors import Diagnostic, SpecError
from polymodel.objectives import SPARSE, is_sum, objective_of, on_sparse_data
from polymodel.spec.faults import suggestion

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from polymodel.sweeps.result import Sweep

MOST = 1000  # points whose energy is recomputed for one plot
LEAKAGE = "leakage"
SPARSELY = " on sparse data"


def plot_levels(
    sweep: Sweep, kind: Literal["traffic", "energy"], symbols: Sequence[str], ax: Axes | None, level: str = ""
) -> Axes:
    """One stack per kept feasible point, by the first objective; on sparse data if that objective is.

    Along one symbol, the best point (by the first objective) for each of its values. Raises SpecError for
    other symbols, and for a `level` (the only one that is drawn) that there is not.
    """
    from polymodel.report.plots_sweep import level_axes

    rows, order = sweep.frame[sweep.frame["feasible"]], sweep.objectives[0]
    ticks, xlabel, along = None, f"point, by {order}", ""
    if symbols:
        rows, ticks = best_along(sweep, rows, symbols)
        xlabel, along = symbols[0], f"{objective_of(order).extreme} {order} at each {symbols[0]}"
    else:
        rows = rows.sort_values(order, kind="stable", ascending=not objective_of(order).most)
    sparse = on_sparse_data(order)
    parts = traffic(rows, sparse) if kind == "traffic" else energy(sweep, rows, sparse)
    if level:
        if level not in parts.columns:
            near = suggestion(level, list(parts.columns), "levels")
            message = f"the {kind} of the sweep has no level {level}"
            raise SpecError([Diagnostic(message, near, "level", code="unknown-name")])
        parts = parts[[level]]
    shown = ("accesses", "bit") if kind == "traffic" else ("energy", "J")
    return level_axes(parts, shown, xlabel, along, ticks, ax, SPARSELY if sparse else "")


def best_along(sweep: Sweep, rows: pd.DataFrame, symbols: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """For each value of a symbol the row that is best in the first objective, and the values as text."""
    known = [*sweep.grid.names, *(n for n, _ in sweep.grid.linked)]
    if len(symbols) != 1 or symbols[0] not in known:
        remedy = f"name one of {', '.join(known)}, or none for all kept points"
        raise SpecError([Diagnostic("levels are drawn along one symbol", remedy, code="wrong-count")])
    if sweep.keep != "all":
        message = "a picture along a symbol needs every point"
        raise SpecError([Diagnostic(message, "sweep with keep='all'", code="nothing-to-show")])
    least = rows.loc[sweep.scores(rows, sweep.objectives[0]).groupby(rows[symbols[0]]).idxmin()]
    return least, [f"{v:g}" for v in least[symbols[0]]]


def traffic(rows: pd.DataFrame, sparse: bool = False) -> pd.DataFrame:
    """Bits read and written per component; `sparse`: on sparse data, with metadata."""
    kinds = tuple((SPARSE if sparse else "") + kind for kind in ("reads:", "writes:"))
    names = [c for c in rows.columns if c.startswith(kinds) and not is_sum(c)]
    result = rows[[]].copy()
    for part in dict.fromkeys(c.partition(":")[2] for c in names):
        result[part] = sum(rows[c] for c in names if c.partition(":")[2] == part)
    return result


def energy(sweep: Sweep, rows: pd.DataFrame, sparse: bool = False) -> pd.DataFrame:
    """Joules per component and link, with all leakage in its own column, as from `evaluate`; `sparse`: on
    sparse data."""
    import pandas as pd

    if len(rows) > MOST:
        message = f"{len(rows)} points are too many for a picture of energy"
        raise SpecError([Diagnostic(message, "draw it along one symbol", code="too-large")])
    levels: dict[str, None] = {}
    result: list[dict[str, float]] = []
    for _, row in rows.iterrows():
        report = evaluate(sweep.spec(row))
        for c in report.problem.hierarchy.components:
            levels |= dict.fromkeys([*(link_name(c.name, d.name) for d in c.spatial), c.name])
        joules: dict[str, float] = {}
        for item in (report.sparse.result if sparse else report).costs.energy:
            name = LEAKAGE if item.action == "leak" else item.component
            joules[name] = joules.get(name, 0.0) + item.energy
        result.append(joules)
    spent = [n for n in (*levels, LEAKAGE) if any(j.get(n) for j in result)]
    return pd.DataFrame([[j.get(n, 0.0) for n in spent] for j in result], index=rows.index, columns=spent)
