"""Tilers next to each other: costs, distance from the bound, and the time that each search took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from time import perf_counter

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.tiling.cost.model import CutCosts, Launch, costs
from polymodel.tiling.fits.fit import Fit, Op, Stored
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.swift.compat import as_built
from polymodel.tiling.tilers.named import NAMES, Make, Objective, cut
from polymodel.view.table import RATIO, Cell, Column, Table

_KEPT = 1_000_000  # places, up to which the cuts of all tilers may lie in memory together
BASE = "simple"  # what speed-ups and reductions are measured against, as in Tiler-Swift
FORMAT = "polymodel-tiling/1"
COLUMNS = ("row", "col", "height", "width", "nnz_a", "nnz_b", "words", "cycles", "fits", "launched")
UNITS: dict[Objective, str] = {
    "tiles": "kernels",
    "cycles": "cycles of running",
    "total": "cycles of configuration and running",
}
_COLUMNS = (
    Column("tiler"), Column("tiles"), Column("nonempty"), Column("kernels"), Column("over_bound", RATIO),
    Column("config_cycles", "cycle"), Column("run_cycles", "cycle"), Column("total_cycles", "cycle"),
    Column("speedup", RATIO), Column("config_reduction", "1"), Column("search_s", "s"),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rival:
    """One tiler's cut of the same operands. `costs`: None where it refused, `refused` says why.

    `seconds`: what the tiler took, without reading files and without counting what its tiles cost.
    """

    tiler: str
    costs: CutCosts | None
    seconds: float | None
    refused: str = ""
    chosen: bool = False

    @property
    def name(self) -> str:
        """The requested name; for `best`, with the tiler that won."""
        if self.costs is None or self.costs.cut.tiler == self.tiler:
            return self.tiler
        won = self.costs.cut.tiler
        return won if won.endswith(f" {self.tiler}") else f"{self.tiler}: {won}"


@dataclass(frozen=True)
class TilingTask:
    """What is cut, for what, and by which measure tilers choose. `compat`: as Tiler-Swift was built.

    `made`: cuts of tilers that `best` tried, with their seconds, so that a comparison need not cut again.
    """

    pattern: Pattern
    op: Op
    fit: Fit
    launch: Launch
    objective: Objective
    compat: bool = False
    made: dict[str, tuple[Cut, float]] = field(default_factory=dict, compare=False, repr=False)

    def rival(self, tiler: str) -> Rival:
        """Return a tiler's tiling. Raises SpecError for unknown names and for entries that fit nowhere, and
        Refused as tilers do."""
        begun, tiler = perf_counter(), str(tiler)
        if self.compat:
            built = as_built(self.pattern, self.op, self.fit, tiler, self.launch)
            return Rival(tiler, built, perf_counter() - begun)
        made, seconds = self.made.get(tiler, (None, 0.0))
        if made is None:
            asked = (self.pattern, self.op, self.fit, tiler, self.objective, self.launch)
            made = cut(*asked, watch=self._cached)
            seconds = perf_counter() - begun
        return Rival(tiler, costs(self.pattern, made, self.op, self.fit, self.launch), seconds)

    def _cached(self, tiler: str, make: Make) -> Make:
        """Return a tiler whose tiling is cached, if that is not too large."""

        def kept(pattern: Pattern, op: Op, fit: Fit) -> Cut:
            begun = perf_counter()
            result = make(pattern, op, fit)
            if pattern.points <= _KEPT:
                self.made[tiler] = result, perf_counter() - begun
            return result

        return kept

    def tried(self, tiler: str) -> Rival:
        """Return a tiler's tiling like `rival`; a refusal is recorded with its reason."""
        try:
            return self.rival(tiler)
        except Refused as refusal:
            return Rival(tiler, None, None, refusal.message)


def every(task: TilingTask) -> tuple[str, ...]:
    """Return all tilers, each also with the merges that may follow it."""
    if task.compat:
        return BUILT
    merging = [n for n in NAMES if n not in (*_SLOW, "best")]
    result = [full for n in merging for full in ((n, _SIBLINGS) if n == "qtree" else (n,))]
    return (*result, *(f"{n}+fixpoint" for n in merging), *sorted(_SLOW), "best")


def usual(task: TilingTask) -> tuple[str, ...]:
    """Return the tilers that are compared by default: those without merging, and qtree with merged
    siblings."""
    return tuple(n for n in every(task) if not n.endswith("+fixpoint") and n not in _SLOW)


def several(tilers: Sequence[str]) -> tuple[str, ...]:
    """Return the names without repetition. Raises SpecError for a single text and for values that are not
    lists."""
    if not isinstance(tilers, Iterable):
        raise SpecError(
            [
                Diagnostic(
                    f"tilers={tilers!r} is not a list of names", "write tilers=('btree',)", code="wrong-type"
                )
            ]
        )
    if isinstance(tilers, str):
        fault = f"tilers={tilers!r} is one name, not several"
        raise SpecError([Diagnostic(fault, f"write tilers=({tilers!r},)", code="wrong-type")])
    return tuple(dict.fromkeys(tilers))


def compared(task: TilingTask, own: Rival, tilers: tuple[str, ...] | None) -> tuple[Rival, ...]:
    """Return the tilings of all these tilers, the chosen one last if it is not among them."""
    names = usual(task) if tilers is None else tilers
    result = [own if n == own.tiler else task.tried(n) for n in names]
    return tuple(result if own.tiler in names else [*result, own])


BUILT = ("simple", "qtree", "qtree+merge", "btree")  # what Tiler-Swift's program has
# Looks at every cut of a grid: for small cases, where it is named.
_SLOW = frozenset({"guillotine"})
_SIBLINGS = "qtree+merge"  # merges as Tiler-Swift does, not to the fixpoint


def room(fit: Fit) -> str:
    """Return the capacity of a tile as text."""
    kept = f" in {fit.format}" if isinstance(fit, Stored) else ""
    return f"{fit.capacity:,} {fit.unit}{kept}"


def summary_table(rivals: Sequence[Rival], bound: int) -> Table:
    """One row per tiler. A tiler that refused has no numbers; a note gives the reason."""
    base = next((r.costs for r in rivals if r.tiler == BASE), None)
    rows = tuple(_row(r, base, bound) for r in rivals)
    notes = tuple(f"{r.name}: {r.refused}" for r in rivals if r.costs is None)
    return Table("summary", _COLUMNS, rows, notes)


def _row(rival: Rival, base: CutCosts | None, bound: int) -> tuple[Cell, ...]:
    if rival.costs is None:
        return (rival.name, *(None for _ in _COLUMNS[1:]))
    c = rival.costs
    return (
        rival.name, c.tiles, c.nonempty, c.kernels, c.nonempty / bound if bound else None, c.config_cycles,
        c.run_cycles, c.total_cycles, speedup(c, base), reduction(c, base), rival.seconds,
    )  # fmt: skip


def speedup(found: CutCosts, base: CutCosts | None) -> float | None:
    """Return run cycles of the base over those of this tiling; without configuration, as in Tiler-Swift's
    charts."""
    if base is None or not found.run_cycles:
        return None
    return base.run_cycles / found.run_cycles


def reduction(found: CutCosts, base: CutCosts | None) -> float | None:
    """Return the saved share of the base's configuration cycles."""
    if base is None or not base.config_cycles:
        return None
    return 1 - found.config_cycles / base.config_cycles
