"""Two reports in one picture: the ratio of each figure of b to that of a, on one logarithmic scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.spec.faults import suggestion
from polymodel.view.drawing import short
from polymodel.view.figures import axes
from polymodel.view.table import Column, Table, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40  # bars that can be told apart
WORDS = 60  # characters of a row's name
LESS, MORE, TOTAL = "#2563a8", "#c2570c", "#1f2933"
EQUAL = 1e-9  # relative difference up to which figures are the same
LARGE = 1000.0  # powers of two up to which a float has them
INCHES = 0.24  # per bar
BESIDE = 1.02  # where figures stand, in widths of the axes


@dataclass(frozen=True)
class RatioBar:
    """One row: its name, both figures as text, log2 of b/a (infinite where one side has nothing), and whether
    it is a figure of the whole."""

    name: str
    figures: str
    power: float
    whole: bool

    @property
    def rank(self) -> tuple[bool, bool, float, float]:
        """Return a sort key: figures of the whole first, then the largest differences; of equal differences,
        decreases before increases."""
        return not self.whole, math.isinf(self.power), -abs(self.power), self.power


def ratio_bars(rows: Table, what: str = "") -> tuple[list[RatioBar], int]:
    """The rows that differ, and those of the whole, in the order in which they are drawn; the number of other
    rows. `what`: the rows of one quantity. Raises SpecError for an unknown quantity."""
    records = rows.records()
    quantities = [*dict.fromkeys(str(r["quantity"]) for r in records)]
    if what and what not in quantities:
        remedy = suggestion(what, quantities, "quantities")
        message = f"the comparison has no quantity {what!r}"
        raise SpecError([Diagnostic(message, remedy, "what", code="unknown-name")])
    found: list[RatioBar] = []
    equal = 0
    for r in records:
        a, b = (0.0 if r[n] is None else r[n] for n in ("a", "b"))
        if what not in ("", r["quantity"]) or isinstance(r["a"], bool) or isinstance(r["b"], bool):
            continue
        assert isinstance(a, (int, float))
        assert isinstance(b, (int, float))
        power = _power(a, b)
        whole = not r["where"] and r["quantity"] != "operations"
        if abs(power) <= EQUAL and not whole:
            equal += 1
            continue
        unit = Column("", str(r["unit"]))
        figures = " → ".join(shown(r[n], unit) for n in ("a", "b"))
        times = f"   {_times(power)}" if math.isfinite(power) else ""
        name = f"{r['quantity']} {r['where']}".strip()
        found.append(RatioBar(short(name, WORDS), figures + times, power, whole))
    return sorted(found, key=lambda bar: bar.rank), equal


def _power(a: float, b: float) -> float:
    """log2 of b/a, which need not fit a float; two infinite figures are equal."""
    if a == b:
        return 0.0
    if not a or not b:
        return math.inf if not a else -math.inf
    if math.inf in (a, b):
        return math.inf if b == math.inf else -math.inf
    return math.log2(b) - math.log2(a)


def height_of(bars: int) -> float:
    """Inches of a picture of so many bars."""
    return 1.6 + INCHES * max(1, min(bars, MOST))


def ratio_axes(rows: Table, names: tuple[str, str], what: str = "", ax: Axes | None = None) -> Axes:
    """A bar per row that differs, from 1 to b/a: those of the whole first, then the largest ratios.

    `rows`: the table of a comparison; `names`: of a and b. Beside each bar are both figures. Bars without a
    ratio, since one side has nothing there, are last; they are hatched and reach the edge.
    """
    found, equal = ratio_bars(rows, what)
    bars = found[:MOST]
    drawn = axes(ax, 9, height_of(len(bars)))
    finite = [abs(bar.power) for bar in bars if math.isfinite(bar.power)]
    reach = 1.1 * max([0.25, *finite])
    for at, bar in enumerate(bars):
        ends = math.isfinite(bar.power)
        width = bar.power if ends else math.copysign(reach, bar.power)
        colour = TOTAL if bar.whole else LESS if bar.power < 0 else MORE
        fill, hatch = (colour, "") if ends else ("white", "////")
        drawn.barh(at, width, height=0.7, facecolor=fill, edgecolor=colour, hatch=hatch)
        drawn.annotate(
            bar.figures, (BESIDE, at), xycoords=("axes fraction", "data"), va="center", fontsize=8,
            annotation_clip=False,
        )  # fmt: skip
    drawn.axvline(0, color=TOTAL, linewidth=1)
    drawn.set_yticks(range(len(bars)), [bar.name for bar in bars], fontsize=8)
    drawn.set_ylim(max(len(bars), 1) - 0.4, -0.6)
    drawn.set_xlim(-reach, reach)
    _scale(drawn, reach)
    more = len(found) - len(bars)
    told = [f"{more} more rows that differ are left out"] if more else []
    told += [f"{equal} rows are equal"] if equal else []
    drawn.set_xlabel("\n".join(["b/a, logarithmic (left of 1: b has less)", "; ".join(told)]).strip())
    drawn.set_title(_title(names, what), fontsize=10, loc="left")
    if not bars:
        drawn.text(0.5, 0.5, "no figure differs", ha="center", transform=drawn.transAxes)
    return drawn


def _title(names: tuple[str, str], what: str) -> str:
    pairs = [(letter, name) for letter, name in zip("ab", names, strict=True) if name != letter]
    lines = [f"{letter}: {short(name, 2 * WORDS)}" for letter, name in pairs]
    return "\n".join([f"{what or 'figures'} of b against those of a".capitalize(), *lines])


def _scale(ax: Axes, reach: float) -> None:
    """Ticks at powers of two, or between them where all bars are short."""
    step = next((s for s in (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32) if reach / s <= 4), reach / 4)
    count = int(reach / step)
    places = [step * k for k in range(-count, count + 1)]
    ax.set_xticks(places, [_times(place) for place in places], fontsize=8)
    ax.grid(True, axis="x", color="0.92")
    ax.set_axisbelow(True)


def _times(power: float) -> str:
    """Return a ratio as text; beyond the range of floats, its power of two."""
    return f"× {2**power:.3g}" if abs(power) < LARGE else f"× 2^{power:.0f}"
