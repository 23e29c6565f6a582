"""Figures of matplotlib: new ones, saved ones, and matplotlib itself without writing to the user's home.

New figures are pyplot's, since notebooks show those, but no more than may be open without a warning.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from polymodel.errors import Diagnostic, SpecError, masked
from polymodel.quantities import axis_unit, in_units
from polymodel.spec.faults import not_a, suggestion
from polymodel.view.table import Table, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter, Locator


# The time in pages and plots, if a build has to be reproducible.

NAME = "SOURCE_DATE_EPOCH"


def pinned() -> datetime | None:
    """The time of SOURCE_DATE_EPOCH, in UTC; None if it is not set.

    Raises SpecError if it is not a number of seconds since 1970, or beyond the calendar: matplotlib reads it
    too.
    """
    given = os.environ.get(NAME, "")
    if not given:
        return None
    try:
        return datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError):
        what = f"{given[:40]!r} is not a number of seconds since 1970"
        remedy = "take it out of the environment, or give e.g. 0"
        raise SpecError([Diagnostic(what, remedy, NAME, code="not-a-number")]) from None


# New figures and saved ones.

_MADE: WeakKeyDictionary[Figure, None] = WeakKeyDictionary()  # figures made here, oldest first


def ticks(unit: str) -> Formatter:
    """Ticks with engineering prefixes (20 kb, 3 µJ); amounts of data in the displayed unit."""
    from matplotlib.ticker import EngFormatter, FuncFormatter

    short, factor = in_units(unit)
    plain = EngFormatter(unit=short)
    return plain if factor == 1 else FuncFormatter(lambda value, place: plain(factor * value, place))


def tick(axis: Axis, unit: str) -> None:
    """Set an axis's ticks in a unit; if it has round numbers, they are round in the displayed unit."""
    axis.set_major_locator(round_ticks(axis.get_major_locator(), unit))
    axis.set_major_formatter(ticks(unit))


def round_ticks(places: Locator, unit: str) -> Locator:
    """A locator of ticks that are round in the displayed unit, bytes instead of bits."""
    from matplotlib.ticker import Locator

    factor = in_units(unit)[1]
    if factor == 1:
        return places

    class Shown(Locator):
        def __call__(self) -> Any:
            axis: Any = self.axis  # matplotlib sets it
            return self.tick_values(*axis.get_view_interval())

        def tick_values(self, vmin: float, vmax: float) -> Any:
            return [place / factor for place in places.tick_values(factor * vmin, factor * vmax)]

    return Shown()


def axes(given: Axes | None, width: float, height: float) -> Axes:
    """The given axes, otherwise `new_axes`. Raises SpecError if it is not an axes."""
    without_trace()
    from matplotlib.axes import Axes as Drawn

    if given is None:
        return new_axes(width, height)
    if not isinstance(given, Drawn):
        raise not_a("axes", "plot", given, "pass ax=figure.add_subplot(), or leave it out")
    return given


def new_axes(width: float, height: float) -> Axes:
    """The axes of a new pyplot figure, in inches.

    If half as many figures are open as `figure.max_open_warning` allows (20), the oldest one made here is
    closed first: the other half is for the caller's own figures. Axes returned with it can still be drawn and
    saved. A notebook, which shows figures at the end of a cell, first shows those of the cell so far. Windows
    stay open.
    """
    without_trace()
    import matplotlib.pyplot as plt

    _make_room()
    figure, ax = plt.subplots(figsize=(width, height), layout="constrained")
    _MADE[figure] = None
    made: Axes = ax
    return made


def new_panels(width: float, height: float) -> Figure:
    """A new figure without axes, for several. A notebook shows it once, also if a cell ends with it."""
    without_trace()
    import matplotlib.pyplot as plt

    _make_room()
    made = plt.figure(figsize=(width, height), layout="constrained", FigureClass=_panels())
    _MADE[made] = None
    return made


@cache
def _panels() -> type[Figure]:
    """The class of figures with several panels, made on first use, since it needs matplotlib."""
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure as Whole

    class Panels(Whole):
        """A pyplot figure that is not shown twice if a cell of a notebook ends with it.

        A notebook shows the last value of a cell, and then every open figure. Both ask the figure itself: the
        first one gets it, and it is closed.
        """

        def _ipython_display_(self) -> None:
            shown: Any = import_module("IPython.display")  # only IPython calls this
            if "inline" not in plt.get_backend():
                shown.display({"text/plain": repr(self)}, raw=True)
                return
            drawn = BytesIO()
            legible(self).savefig(drawn, format="png", bbox_inches="tight")
            plt.close(self)
            shown.display(shown.Image(drawn.getvalue()))

    return Panels


def whole_figure(ax: Axes) -> Figure | None:
    """The figure that contains the axes, also if they are in a subfigure; None for removed axes."""
    from matplotlib.figure import Figure as Whole

    # For a subfigure, `figure` is the whole one in every version; before 3.10 nothing else gives it.
    result = ax.figure
    return result if result is None or isinstance(result, Whole) else result.figure


def legible(figure: Figure) -> Figure:
    """The figure with drawable texts.

    Names may have control characters, which become `?`, and dollar signs that do not start a formula.
    """
    from matplotlib.cbook import is_math_text
    from matplotlib.mathtext import MathTextParser
    from matplotlib.text import Text

    parser: Any = MathTextParser("path")
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        shown = masked(text.get_text())
        if shown != text.get_text():
            text.set_text(shown)
        if text.get_parse_math() and is_math_text(shown):
            try:
                parser.parse(shown)
            except ValueError:
                text.set_parse_math(False)
    return figure


_TITLED = (".svg", ".svgz", ".pdf", ".png")


def write_figure(figure: Figure, path: Path, dpi: float | None = None) -> None:
    """Save a figure in the format of the file name's ending, with its title for readers who do not see it."""
    shown = figure.get_suptitle() or next((t for ax in figure.axes if (t := ax.get_title())), "")
    title = " ".join(masked(shown).split())
    metadata = {"Title": title} if title and path.suffix.lower() in _TITLED else None
    legible(figure).savefig(path, dpi=dpi if dpi is not None else "figure", metadata=metadata)


def _make_room() -> None:
    import matplotlib.pyplot as plt
    from matplotlib.backend_bases import FigureManagerBase

    most = -(-int(plt.rcParams["figure.max_open_warning"]) // 2)
    if not 0 < most <= len(plt.get_fignums()):
        return
    if type(plt.get_current_fig_manager()) is not FigureManagerBase:
        return  # a window, which the user closes
    if "inline" in plt.get_backend():
        if {plt.figure(n) for n in plt.get_fignums()} <= set(_MADE):  # others may not be finished
            plt.show()
        return
    for figure in list(_MADE):
        if len(plt.get_fignums()) < most:
            return
        plt.close(figure)
        del _MADE[figure]


def without_trace() -> None:
    """Import matplotlib such that it writes to no folder of the user's.

    On its first import it lists all fonts of the system and keeps the list in the home directory. Unless
    MPLCONFIGDIR names a folder for that, or the caller has imported it already, it gets a folder of its own
    that is removed at exit; a font list, settings and styles in the home directory are used there. Raises
    SpecError for an invalid SOURCE_DATE_EPOCH.
    """
    pinned()
    if "matplotlib" in sys.modules or os.environ.get("MPLCONFIGDIR"):
        return
    from tempfile import mkdtemp  # imported here, since every start of a command would wait for it

    own, process = mkdtemp(prefix="polymodel-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(own, ignore_errors=True) if os.getpid() == process else None)
    _take(Path(own))
    os.environ["MPLCONFIGDIR"] = own
    try:
        import matplotlib.font_manager

        # They are cached once read, so that subprocesses need not know of the folder.
        matplotlib.get_configdir()
        matplotlib.get_cachedir()
    finally:
        del os.environ["MPLCONFIGDIR"]


def _take(own: Path) -> None:
    """Copy what matplotlib has cached before."""
    for place in _homes():
        try:
            for file in [place / "matplotlibrc", *place.glob("fontlist-*.json")]:
                if file.is_file() and not (own / file.name).exists():
                    shutil.copyfile(file, own / file.name)
            if (place / "stylelib").is_dir() and not (own / "stylelib").exists():
                shutil.copytree(place / "stylelib", own / "stylelib")
        except OSError:
            continue  # files that cannot be read are made again


def _homes() -> list[Path]:
    """The folders of matplotlib's settings and caches, by its documentation."""
    try:
        home = Path.home()
    except RuntimeError:  # there is none
        return []
    if sys.platform.startswith(("linux", "freebsd")):
        pairs = (("XDG_CONFIG_HOME", ".config"), ("XDG_CACHE_HOME", ".cache"))
        return [Path(os.environ.get(name) or home / usual) / "matplotlib" for name, usual in pairs]
    if sys.platform == "win32" and not (home / ".matplotlib").is_dir() and os.environ.get("LOCALAPPDATA"):
        return [Path(os.environ["LOCALAPPDATA"]) / "matplotlib"]
    return [home / ".matplotlib"]


# Bars of one figure of a table, for answers without a plot of their own; tables of words as they are.

MOST = 40  # bars that can be distinguished
WORDS = 40  # characters of a row's name
COLOUR = "#2563a8"


def bar_axes(table: Table, what: str = "", ax: Axes | None = None) -> Axes:
    """A bar per row, at most 40, named by the texts of the row.

    Raises SpecError if `what` is not a figure.
    """
    figures = [c.name for i, c in enumerate(table.columns) if table.numeric(i)]
    if not figures and not what:
        return text_axes(table, ax)
    chosen = what or next(iter(figures), "")
    if chosen not in figures:
        message = f"table {table.name} has no figure {chosen!r}".removesuffix(" ''")
        raise SpecError(
            [Diagnostic(message, suggestion(chosen, figures, "figures"), "what", code="unknown-name")]
        )
    at = next(i for i, c in enumerate(table.columns) if c.name == chosen)
    rows = [row for row in table.rows if isinstance(row[at], (int, float))][:MOST]
    words = [i for i in range(len(table.columns)) if not table.numeric(i)]
    names = [" ".join(str(row[i]) for i in words if row[i] not in (None, ""))[:WORDS] for row in rows]
    drawn = axes(ax, 7, 1.2 + 0.28 * len(rows))
    places = range(len(rows))
    bars = drawn.barh(places, [float(row[at] or 0) for row in rows], color=COLOUR)
    drawn.bar_label(bars, [shown(row[at], table.columns[at]) for row in rows], fontsize=8, padding=3)
    drawn.set_yticks(list(places), names, fontsize=8)
    drawn.invert_yaxis()
    drawn.margins(x=0.18)
    if table.columns[at].unit in ("J", "s"):  # figures with prefixes beside the bars have them below
        tick(drawn.xaxis, table.columns[at].unit)
    unit = f" ({axis_unit(table.columns[at].unit)})" if table.columns[at].unit else ""
    drawn.set_xlabel(f"{table.columns[at].heading}{unit}")
    drawn.set_title(f"{table.name.replace('_', ' ')}: {table.columns[at].meaning or chosen}", fontsize=10)
    return drawn


def text_axes(table: Table, ax: Axes | None = None) -> Axes:
    """The table as it is printed, at most 40 rows, for one that has words only."""
    lines = table.first(MOST).text(indent="").splitlines()
    drawn = axes(ax, max(4, 0.075 * max(map(len, lines))), 0.6 + 0.17 * len(lines))
    drawn.text(0, 1, "\n".join(lines), family="monospace", fontsize=8, va="top", parse_math=False)
    drawn.set_axis_off()
    drawn.set_title(table.name.replace("_", " "), fontsize=10)
    return drawn
