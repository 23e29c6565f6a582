"""The interpretation of a comparison of tilers, and what to do next, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING

from polymodel.quantities import engineering
from polymodel.report.tiling.tables import BASE, Rival
from polymodel.tiling.cost.model import CutCosts, kernel_bound
from polymodel.tiling.cost.model import lower_bound as bound_of
from polymodel.tiling.fits.fit import Stored

if TYPE_CHECKING:
    from polymodel.report.tiling.tile import Tiling

_NEAR = 1.10  # times the bound: what a better cut could still win is little
_MUCH = 0.5  # of the time: what is more than half of it decides


def advice(tiling: Tiling, tilers: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return one line per remark: the distance from the bound, where time is spent, and which tiler is better
    in which measure."""
    if not tiling.pattern.points:
        return ()
    rivals = tiling.rivals(tilers)
    return (*_nearness(tiling), *_shares(tiling), *_winners(tiling.costs, rivals), *_paid(tiling, rivals))


def _nearness(tiling: Tiling) -> Iterator[str]:
    c = tiling.costs
    if c.launch.run != "nonempty":
        idle = c.tiles - c.nonempty
        if idle:
            many = f"{idle:,} tiles hold" if idle > 1 else "1 tile holds"
            remedy = "" if tiling.task.compat else ": with run=nonempty they cost nothing"
            yield f"{many} no entry, launched all the same{remedy}"
        return
    if isinstance(c.fit, Stored):
        return  # without a bound that says anything
    least = kernel_bound(tiling.pattern, c.op, c.fit)
    spare = c.kernels - least
    if not spare:
        these = f"these {c.kernels:,}" if c.kernels > 1 else "this one" if c.kernels else "none"
        yield f"no cutting launches fewer kernels than {these}"
        return
    if c.op == "multiply" and c.kernels > _NEAR * least:
        sure = f"{least:,} kernels are" if least != 1 else "1 kernel is"
        yield (
            f"{c.kernels:,} kernels; {sure} needed for what both operands hold, a loose bound: where "
            "few of them have partners, it does not show what a better cut could save"
        )
        return
    saved = spare * c.launch.config(c.op)
    close = "near the bound" if least and c.kernels <= _NEAR * least else "above the bound"
    yield (
        f"{c.kernels:,} kernels, {close} of {least:,}: a better cut, if one exists, saves at most "
        f"{spare:,} of them, {saved:,} cycles of configuration"
    )


def _shares(tiling: Tiling) -> Iterator[str]:
    c = tiling.costs
    if not c.total_cycles:
        return
    share = c.config_cycles / c.total_cycles
    if share > _MUCH:
        told = f"{100 * share:.0f} % of the time is configuration, so the number of kernels decides"
        least = bound_of(tiling.pattern, c.op, replace(c.fit, capacity=2 * c.fit.capacity))
        if least < tiling.lower_bound and not isinstance(c.fit, Stored):
            told += f": a memory twice as large could do with {least:,} tiles, this one with no less than "
            told += f"{tiling.lower_bound:,}"
        yield told
    else:
        yield (
            f"{100 * (1 - share):.0f} % of the time is run time, of which the entries need most: more "
            "kernels cost little here"
        )


def _winners(own: CutCosts, rivals: Sequence[Rival]) -> Iterator[str]:
    """Yield the measures in which another tiler is better than the chosen one, and that tiler."""
    known = [(r, c) for r in rivals if (c := r.costs) is not None and not c.overflowing]
    measures = (
        ("kernels", "fewer kernels"),
        ("run_cycles", "fewer run cycles"),
        ("total_cycles", "less time in all"),
    )
    for measure, words in measures:
        if not known:
            return
        rival, best = min(known, key=lambda pair: int(getattr(pair[1], measure)))
        mine, theirs = int(getattr(own, measure)), int(getattr(best, measure))
        if theirs < mine:
            less = f"{100 * (1 - theirs / mine):.1f} % less"
            yield f"{words}: {rival.name}, {theirs:,} against {mine:,} ({less})"


def _paid(tiling: Tiling, rivals: Sequence[Rival]) -> Iterator[str]:
    """Compare the time of finding the tiles with the time that they save, as Tiler-Swift's discussion
    suggests."""
    base = next((r for r in rivals if r.tiler == BASE and r.costs is not None), None)
    if base is None or base.costs is None or base.seconds is None or tiling.asked == BASE:
        return
    saved = base.costs.total_cycles - tiling.costs.total_cycles
    extra = tiling.seconds - base.seconds
    mine, theirs = engineering(tiling.seconds, "s"), engineering(base.seconds, "s")
    took = f"finding the tiles took {mine} ({BASE}: {theirs})"
    if saved <= 0:
        yield f"{took}, and they save no time against {BASE}"
        return
    won = tiling.launch.seconds(saved)
    when = "at once" if extra <= won else f"after {ceil(extra / won):,} runs on the same pattern"
    yield (
        f"{took}; they save {saved:,} cycles = {engineering(won, 's')} a run against {BASE} at "
        f"{tiling.launch.clock_mhz:,.6g} MHz, so that they pay {when}"
    )
