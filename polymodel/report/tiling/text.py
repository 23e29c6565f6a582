"""A tiling as text: for a terminal, a notebook, a file, and as titles of pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polymodel.quantities import engineering
from polymodel.report.tiling.plots import TilerBar, TilingPicture
from polymodel.report.tiling.tables import (
    BASE,
    COLUMNS,
    FORMAT,
    Rival,
    reduction,
    room,
    speedup,
    summary_table,
)
from polymodel.tiling.cost.model import CutCosts
from polymodel.tiling.fits.fit import Stored
from polymodel.tiling.plane.operands import Rolled
from polymodel.tiling.plane.pattern import Pattern
from polymodel.view.answer import Block, Facts, Line, Section
from polymodel.view.answer import notes as noted
from polymodel.view.files import Json
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    from polymodel.report.tiling.tile import Tiling

_NAMED = 3  # tiles that do not fit, by their place
_QUICK = 200_000  # places; up to so many a notebook compares all tilers unasked
_EXACT = (
    "tiles, entries, words and kernels: exact counts of the data; cycles: exact counts of tokens, one a cycle"
)
_BOUND = "bound: no cutting into rectangles has fewer tiles that hold entries"
_WEAK = "bound: no cutting has fewer tiles that hold entries; loose, as it counts the bits of entries alone"
# Columns of the summary, where a line must hold them all.
_SHORT = {
    "config_cycles": "config",
    "run_cycles": "run",
    "total_cycles": "total",
    "config_reduction": "saved",
}


def headline(tiling: Tiling) -> str:
    """Return which operands were cut, and for which operation."""
    p = tiling.pattern
    sizes = " x ".join(f"{s:,}" for s in p.shape)
    rule = f"{tiling.op}, at most {room(tiling.fit)} a tile"
    return f"{p.name} ({sizes}, {_many(p.nnz_a, 'entry', 'entries')}{_whole(p)}), B: {p.second}; {rule}"


def _whole(p: Pattern) -> str:
    """Return which ranks are cut, and which ones are not, for tensors of more than two ranks."""
    if len(p.own) < 3:
        return ""
    others = ", ".join(f"{rank} ({size:,})" for rank, size in zip(p.own[2:], p.sizes, strict=True))
    return f"; {p.own[0]} and {p.own[1]} are cut, {others} lies whole in each tile"


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"


def figures(tiling: Tiling) -> list[tuple[str, str]]:
    """Return the figures of a tiling as (name, value), in plain words."""
    c, bound, ratio = tiling.costs, tiling.lower_bound, tiling.ratio
    each = c.launch.config(c.op)
    launched, kernels = _many(c.kernels, "is", "are"), _many(c.kernels, "kernel", "kernels")
    by = {"tiles": "fewest kernels", "cycles": "fewest run cycles", "total": "least time in all"}
    chosen = f" (best of all tilers by {by[tiling.objective]})" if tiling.asked == "best" else ""
    return [
        ("tiler", f"{tiling.tiler}{chosen}, found in {engineering(tiling.seconds, 's')}"),
        (
            "tiles",
            f"{c.tiles:,}; {_many(c.nonempty, 'holds', 'hold')} entries, {launched} launched as kernels",
        ),
        (
            "lower bound",
            f"{_many(bound, 'tile', 'tiles')} with entries"
            + (f"; this is {ratio:.2f} x that" if ratio else ""),
        ),
        ("configuration", f"{_cycles(c, c.config_cycles)}: {kernels} x {each:,} cycles"),
        (
            "run",
            f"{_cycles(c, c.run_cycles)}: {c.launch.ramp} to fill and drain, then a token a cycle"
            + (", and waits of the blocks" if c.launch.cycles == "blocks" else ""),
        ),
        ("in all", f"{_cycles(c, c.total_cycles)} at {c.launch.clock_mhz:,.6g} MHz{_least(tiling)}"),
        ("memory", _filled(c)),
    ]


def _least(tiling: Tiling) -> str:
    """Return the lower bound of cycles as text; tilings that overflow, such as Tiler-Swift's, may be below
    any bound."""
    least = tiling.cycles_bound
    if not least or tiling.task.compat or isinstance(tiling.fit, Stored):
        return ""
    if tiling.op == "multiply":
        # It knows only of what both operands hold: a ratio would promise a better cut.
        return f"; {least:,} cycles at least (a loose bound)"
    return f"; {tiling.costs.total_cycles / least:.2f} x the least, {least:,} cycles (bound)"


def _cycles(c: CutCosts, cycles: int) -> str:
    return f"{cycles:,} cycles = {engineering(c.launch.seconds(cycles), 's')}"


def _filled(c: CutCosts) -> str:
    """Return the fill of tiles as text: few large entries or rows leave capacity unused."""
    loads = c.loads[c.runs & (c.counts.union > 0)]
    if not loads.size:
        return "nothing to hold"
    mean = f"{100 * float(loads.mean()) / c.fit.capacity:.0f} %"
    return f"{mean} of {room(c.fit)} in use on average, {int(loads.max()):,} at most"


def notes(tiling: Tiling) -> Iterator[str]:
    yield from tiling.told
    yield from tiling.cut.notes
    if tiling.costs.overflowing:
        over = np.flatnonzero(~tiling.costs.fits)
        rects = tiling.cut.rects.taken(over[:_NAMED]).table().tolist()
        named = ", ".join(f"({r}, {c}) of {h} x {w}" for r, c, h, w in rects)
        more = " ..." if over.size > _NAMED else ""
        many = f"{over.size:,} tiles do" if over.size > 1 else "1 tile does"
        yield f"WARNING: {many} not fit {room(tiling.fit)}: {named}{more}"
    p = tiling.pattern
    if p.points and isinstance(tiling.second, Rolled) and p.nnz_a == p.nnz_b == p.points:
        yield f"rolled by {tiling.second.rows}, B has its entries at the coordinates of A"
    if not p.points:
        yield "the operands have no entries: nothing is launched unless every tile is run"
    elif tiling.costs.kernels < tiling.costs.tiles:
        left, every = tiling.costs.tiles - tiling.costs.kernels, tiling.costs.tiles
        yield f"{left:,} of {every:,} tiles have no result: they are not launched, and cost nothing"
    yield _EXACT
    yield _WEAK if isinstance(tiling.fit, Stored) else _BOUND


def tiling_blocks(tiling: Tiling) -> list[Block]:
    """Return what was cut, and the figures."""
    return [Line(headline(tiling)), Line(), Facts(figures(tiling), indent="  "), Line(), *noted(tiling.notes)]


def compared_blocks(tiling: Tiling, tilers: Sequence[str] | None = None) -> list[Block]:
    """Return the same with all tilers next to it, if they are named or are quick to run."""
    if tilers is None and tiling.pattern.points > _QUICK:
        return tiling_blocks(tiling)
    made = comparison(tiling.rivals(tilers), tiling.lower_bound)
    first, *rest = tiling_blocks(tiling)
    return [first, rest[1], Section("", made.bare()), *rest[3:]]


def comparison(rivals: Sequence[Rival], bound: int) -> Table:
    """Return the summary with the chosen tiler marked."""
    table = summary_table(rivals, bound)
    columns = tuple(Column(_SHORT.get(c.name, c.name), c.unit) for c in table.columns)
    rows = tuple(
        (("> " if r.chosen else "  ") + r.name, *row[1:]) for r, row in zip(rivals, table.rows, strict=True)
    )
    return Table(table.name, columns, rows, table.notes)


def comparison_text(tiling: Tiling, tilers: Sequence[str] | None = None) -> str:
    """Return all tilers as a table for a terminal, with an explanation of its columns."""
    rivals = tiling.rivals(tilers)
    made = comparison(rivals, tiling.lower_bound)
    lines = [made.text(indent=""), ""]
    lines.append(
        "over bound: tiles with entries over the lower bound; config, run, total: cycles; speedup: run\n"
        "cycles against simple; saved: configuration cycles against simple; search: time to find the tiles"
    )
    lines += [f"note: {n}" for n in made.notes]
    return "\n".join(lines) + "\n"


def tiled(rival: Rival, costs: CutCosts, bound: int) -> TilingPicture:
    """Return the title for the picture of one tiling."""
    p = costs.pattern
    rule = f"{p.name}: {costs.op}, {room(costs.fit)}, {rival.name}"
    counts = f"{_many(costs.tiles, 'tile', 'tiles')}, {costs.kernels:,} launched, at least {bound:,} needed"
    return TilingPicture(p, costs.cut.rects, costs.runs, costs.fits, f"{rule}\n{counts}")


def small(rival: Rival, costs: CutCosts) -> TilingPicture:
    """Return the title for one of several pictures next to each other."""
    title = f"{rival.name}\n{_many(costs.tiles, 'tile', 'tiles')}, {costs.kernels:,} launched"
    return TilingPicture(costs.pattern, costs.cut.rects, costs.runs, costs.fits, title)


def bars(rivals: Sequence[Rival]) -> list[TilerBar]:
    """Return the bars of the picture that compares tilers; tilers that refused are left out."""
    base = next((r.costs for r in rivals if r.tiler == BASE), None)
    result = []
    for r in distinct(rivals):
        if r.costs is not None:
            against = None if r.costs is base else base
            won, faster = reduction(r.costs, against), speedup(r.costs, against)
            c = r.costs
            result.append(TilerBar(r.name, c.kernels, c.config_cycles, c.run_cycles, won, faster, r.chosen))
    return result


def distinct(rivals: Sequence[Rival]) -> list[Rival]:
    """Leave out a tiler whose tiles are those of the chosen one under its own name (`best` took them
    over)."""
    chosen = {r.costs.cut.tiler for r in rivals if r.chosen and r.costs is not None}
    return [r for r in rivals if r.chosen or r.costs is None or r.costs.cut.tiler not in chosen]


def as_data(tiling: Tiling) -> dict[str, Json]:
    """Return the tiling as plain data with stable keys; exact counts are integers."""
    from polymodel import __version__

    c = tiling.costs
    return {
        "format": FORMAT,
        "version": __version__,
        "matrix": tiling.pattern.name,
        "second": tiling.pattern.second,
        "ranks": list(tiling.pattern.ranks),
        "shape": list(tiling.pattern.shape),
        "nnz": {"a": tiling.pattern.nnz_a, "b": tiling.pattern.nnz_b},
        "op": tiling.op,
        "fit": {"capacity": tiling.fit.capacity, "unit": tiling.fit.unit},
        "tiler": tiling.tiler,
        "objective": tiling.objective,
        "launch": {"run": c.launch.run, "config_cycles": c.launch.config(c.op), "ramp": c.launch.ramp},
        "tiles": c.tiles,
        "nonempty": c.nonempty,
        "kernels": c.kernels,
        "overflowing": c.overflowing,
        "lower_bound": tiling.lower_bound,
        "config_cycles": c.config_cycles,
        "run_cycles": c.run_cycles,
        "total_cycles": c.total_cycles,
        "search_s": tiling.seconds,
        "notes": list(tiling.notes),
        "columns": list(COLUMNS),
        "rows": tiling.tiles.to_numpy(dtype=object).tolist(),
    }
