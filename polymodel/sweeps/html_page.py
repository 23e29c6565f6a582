"""A sweep as a page: its kept points, plots, the best mappings, and the reasons for excluded points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from polymodel.objectives import objective_of, on_sparse_data
from polymodel.quantities import engineering
from polymodel.report.search_page import Best, Finding, Plot, picked
from polymodel.sweeps.levels import MOST, SPARSELY
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from polymodel.loading import Spec
    from polymodel.sweeps.result import Sweep

MANY = 8  # values of a symbol that are listed
KEPT = {
    "front": "The Pareto front of all points: for each one left out there is one here that is no worse in "
    "any objective",
    "top": "The best points by the first objective",
    "all": "Every point with legal tiles",
}
BEATEN = {"front": "another point is no worse in any objective", "top": "others are better", "all": ""}
ROWS = "Every row has the figures that an evaluation of its point gives."


def finding(sweep: Sweep) -> Finding:
    rows = sweep.ordered
    result = bool(len(rows) and rows["feasible"].any())
    return Finding(
        facts=_facts(sweep, len(rows)),
        promise=tuple(_promise(sweep)),
        notes=sweep.notes,
        table=_table(sweep, rows),
        best=tuple(_best(sweep, rows)),
        pictures=tuple(_pictures(sweep)) if result else (),
        looked=(("What became of all points", outcomes(sweep)),),
        asked=tuple(_request_rows(sweep)),
        specs=_specs(sweep),
        found=result,
    )


def shown_rows(sweep: Sweep, most: int) -> Table:
    """The best kept points, as a notebook shows them."""
    rows = sweep.ordered.head(most)
    several = ["mapping"] if len(rows) else []
    given = [*several, *_names(sweep)]
    shown = [*given, *sweep.objectives, "feasible"]
    columns = tuple(Column(n, "" if n in given else sweep.unit(n), given=n in given) for n in shown)
    cells: list[list[Cell]] = [rows[n].tolist() for n in shown] if len(rows) else []
    return Table("sweep", columns, tuple(zip(*cells, strict=True)))


def _facts(sweep: Sweep, kept: int) -> list[tuple[str, str]]:
    return [
        ("objectives", ", ".join(sweep.objectives)),
        ("points", f"{sweep.points:,}, of which {sweep.evaluated:,} were evaluated"),
        ("feasible", f"{sweep.feasible:,}"),
        ("kept", f"{kept:,}"),
        ("time", f"{engineering(sweep.seconds, 's')} ({sweep.rate:,.0f} points/s)"),
    ]


def _promise(sweep: Sweep) -> Iterator[str]:
    if not sweep.complete:
        yield "Incomplete: not every point was evaluated, so that there may be better ones."
    eps = sweep.eps if sweep.keep == "front" else 0
    within = f" beyond a factor of {1 + eps:g}" if eps else ""
    yield f"{KEPT[sweep.keep]}{within}. {ROWS}"


def _names(sweep: Sweep) -> list[str]:
    """The names of the symbols, including linked ones."""
    return [*sweep.grid.names, *(n for n, _ in sweep.grid.linked)]


def _table(sweep: Sweep, rows: pd.DataFrame) -> Table:
    several = ["mapping"] if len(sweep.specs) > 1 else []
    names = ["point", *several, *_names(sweep)]
    figures = list(dict.fromkeys([*sweep.objectives, "energy", "latency"]))
    shown = [*names, *(f for f in figures if f in rows.columns), "feasible"]
    if "reason" in rows.columns and not rows["feasible"].all():
        shown.append("reason")
    columns = tuple(Column(n, "" if n in names else sweep.unit(n), given=n in names) for n in shown)
    cells: list[list[Cell]] = [rows[n].tolist() for n in shown] if len(rows) else []
    return Table("points", columns, tuple(zip(*cells, strict=True)))


def _best(sweep: Sweep, rows: pd.DataFrame) -> Iterator[Best]:
    """The best point of each objective, and some between them."""
    good = rows[rows["feasible"]] if len(rows) else rows
    if good.empty:
        return
    first = [int(sweep.scores(good, o).to_numpy().argmin()) for o in sweep.objectives]
    for row in picked(len(good), first):
        point = good.iloc[row]
        spec = sweep.spec(point)
        assert spec.mapping is not None
        values = ", ".join(f"{n} = {v}" for n, v in sweep.point(point).items())
        figures = ", ".join(f"{o} {engineering(point[o], sweep.unit(o))}" for o in sweep.objectives)
        name, text = f"point-{point['point']}", sweep.mapping_yaml(point)
        yield Best(row, name, f"{figures}; {values}", spec, spec.mapping, text)


def _pictures(sweep: Sweep) -> Iterator[Plot]:
    if len(sweep.objectives) > 1:
        over = (sweep.objectives[0], sweep.objectives[1])
        yield Plot("front", partial(_drawn, sweep, "front", ()), over=over)
    along = sweep.keep == "all"
    varied = [n for n, v in zip(sweep.grid.names, sweep.grid.values, strict=True) if len(v) > 1]
    if along and len(varied) > 1:
        first = sweep.objectives[0]
        yield Plot(f"{objective_of(first).extreme} {first}", partial(_drawn, sweep, "heat", varied[:2]))
    symbols = varied[:1] if along else []
    if len(sweep.frame) <= MOST or symbols:
        data = SPARSELY if on_sparse_data(sweep.objectives[0]) else ""
        yield Plot(f"traffic{data} by level", partial(_drawn, sweep, "traffic", symbols))
        yield Plot(f"energy{data} by level", partial(_drawn, sweep, "energy", symbols))


def _drawn(sweep: Sweep, kind: str, symbols: Sequence[str], ax: Axes) -> None:
    sweep.plot(kind, *symbols, ax=ax)


def outcomes(sweep: Sweep) -> Table:
    """Where each point of the grid has gone."""
    kept = len(sweep.frame)
    rows: list[tuple[Cell, ...]] = [("kept", kept, "")]
    rows.append(("feasible, but not kept", sweep.feasible - kept, BEATEN[sweep.keep]))
    notes: tuple[str, ...] = ()
    if sweep.keep == "all":
        fit = int(sweep.frame["feasible"].sum()) if kept else 0
        rows = [("kept, feasible", fit, "")]
        notes = (f"{kept - fit:,} of the infeasible points are kept: the reason is in their rows",)
    rows += [("infeasible", n, reason) for reason, n in sweep.infeasible.items()]
    if sweep.pruned:
        rows.append(("pruned", sweep.pruned, "no better than a point that was evaluated"))
    return Table("outcomes", (Column("what"), Column("points"), Column("why")), tuple(rows), notes)


def _request_rows(sweep: Sweep) -> Iterator[tuple[str, str]]:
    for name, values in zip(sweep.grid.names, sweep.grid.values, strict=True):
        some = [str(v) for v in values]
        if len(some) > MANY:
            some = [*some[: MANY - 2], "...", some[-1]]
        yield name, f"{', '.join(some)} ({len(values):,} values)"
    yield from sweep.grid.linked
    yield from (("where", c.text) for c in sweep.grid.where)
    yield "objectives", ", ".join(sweep.objectives)
    yield "keep", sweep.keep + (f", eps {sweep.eps:g}" if sweep.eps else "")


def _specs(sweep: Sweep) -> tuple[tuple[str, Spec], ...]:
    names = [s.names.get("mapping", "") or str(k) for k, s in enumerate(sweep.specs)]
    if len(sweep.specs) == 1:
        return (("Spec as loaded", sweep.specs[0]),)
    return tuple((f"Spec as loaded: {n}", s) for n, s in zip(names, sweep.specs, strict=True))
