"""Tiler-Swift, as it was built and corrected: counts of tiles, and what it published.

Counts have tolerance zero, except those merged to a fixpoint (`btree+fix`), which are an indication as in
`tiling_elementwise`. Reductions of configuration time agree to 0.15 points, bars of configuration time to
2 % (read off charts; the constants to 1 %), and at least 27 of 34 bars of run time, or that share, to 2.5 %.
Mean speed-ups are of such bars: ours as built agree to 5 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from polymodel.tiling.cost.model import CutCosts, costs, lower_bound
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import Rolled, pattern_of
from polymodel.tiling.plane.pattern import Pattern
from polymodel.tiling.swift.compat import (
    CAPACITY,
    AsBuilt,
    Mean,
    PublishedComparison,
    as_built,
    tiler_swift_comparison,
)
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, simple
from polymodel.tiling.tilers.uniform import grid
from tests.reference.common import Outcome, comparing, sections
from tests.reference.tiling_elementwise import Compared, fixpoint
from tests.reference.tiling_matrices import matrix

OPS: dict[str, Op] = {"add": "add", "mul": "multiply"}
# Their tilers; their `qtree` is the one that merges.
TILERS = {"simple": "simple", "qtree": "qtree+merge", "btree": "btree"}
POINTS, BAR, CONFIG_BAR, MEAN = 0.15, 0.025, 0.02, 0.05
BARS_WITHIN = 27 / 34
CLAIMS = ("readme_claims", "chart_readings_config_cycles", "chart_readings_runtime_cycles")


def is_reproduction(given: Mapping[str, Any]) -> bool:
    """True for files with counts of Tiler-Swift's tilings, or with what it published."""
    return any(key in given for key in CLAIMS) or (
        isinstance(given.get("matrices"), dict)
        and any(
            "simple_th_tw_add" in v or "add" in v for v in given["matrices"].values() if isinstance(v, dict)
        )
    )


def check(path: Path) -> list[Outcome]:
    """One outcome per matrix, and one per kind of published figure."""
    given = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for name, theirs in (given.get("matrices") or {}).items():
        with comparing(Outcome(f"Tiler-Swift, {name}")) as outcome:
            sections(given["matrices"], {name: dict})
            _matrix(outcome, pattern(name, path), theirs)
        found.append(outcome)
    for key, compare in (
        ("readme_claims", _claims),
        ("chart_readings_config_cycles", _config_bars),
        ("chart_readings_runtime_cycles", _run_bars),
    ):
        if key in given:
            with comparing(Outcome(f"Tiler-Swift, {key}")) as outcome:
                sections(given, {key: dict, "order": list})
                compare(outcome, tiler_swift_comparison([pattern(n, path) for n in given["order"]]), given)
            found.append(outcome)
    return found


def pattern(name: str, near: Path) -> Pattern:
    """A matrix of the original's evaluation, and its rows rolled by 5."""
    return pattern_of(matrix(name, near, f"ts_{name}"), Rolled())


def _matrix(outcome: Outcome, two: Pattern, theirs: Mapping[str, Any]) -> None:
    outcome.unknown("matrix", theirs, (*OPS, *(f"simple_th_tw_{op}" for op in OPS)))
    for key, op in OPS.items():
        compared = Compared(outcome, key, two, op, Elements(CAPACITY))
        for name, given in theirs.get(key, {}).items():
            _tiling(compared, name, given)
        if f"simple_th_tw_{key}" in theirs:
            size = theirs[f"simple_th_tw_{key}"]
            for what, ours, given in zip(("th", "tw"), grid(two, op, compared.fit), size, strict=True):
                compared.equal(f"simple {what}", ours, given)


def _tiling(compared: Compared, name: str, theirs: Any) -> None:
    if name == "lb_nnz":
        compared.equal(name, lower_bound(compared.pattern, compared.op, compared.fit), theirs)
    elif name == "btree+fix":
        fixpoint(compared, name, btree, theirs)
    elif (found := _costs(compared, name)) is None:
        compared.outcome.unknown(compared.where, [name], ())
    else:
        ours = {
            "tiles": found.tiles,
            "nonempty": found.nonempty,
            "both_nonempty": found.both_nonempty,
            "overflowing": found.overflowing,
            "est_runtime": found.estimate,
        }
        compared.outcome.unknown(f"{compared.where} {name}", theirs, ours)
        for what, number in ours.items():
            if what in theirs:
                compared.equal(f"{name} {what}", number, theirs[what])


def _costs(compared: Compared, name: str) -> CutCosts | AsBuilt | None:
    """The tiling that the file calls so: as built, or corrected."""
    two, op, fit = compared.pattern, compared.op, compared.fit
    built = {"simple_asbuilt(add check)": "simple", "qtree+merge_asbuilt(bug)": "qtree+merge"}
    correct = {"simple_correct": simple, "qtree": qtree, "qtree+merge_correct": qtree_merge, "btree": btree}
    if name in built:
        return as_built(two, op, fit, built[name])
    return costs(two, correct[name](two, op, fit), op, fit) if name in correct else None


def _claims(outcome: Outcome, ours: PublishedComparison, given: Mapping[str, Any]) -> None:
    for key, op in OPS.items():
        for theirs in ("qtree", "btree"):
            mean = _mean_of(ours.means, op, TILERS[theirs])
            claim = given["readme_claims"][key]
            _near(
                outcome,
                f"{key} {theirs} reduction of configuration time",
                mean.as_built_reduction,
                claim["config_reduction_pct"][theirs],
                POINTS,
            )
            speed_up = claim["runtime_x"][theirs]
            _near(outcome, f"{key} {theirs} speed-up", mean.as_built_speed_up, speed_up, MEAN * speed_up)
            outcome.notes.append(
                f"{key} {theirs}: corrected, {mean.corrected_reduction_all:.1f} % less configuration time and"
                f" {mean.corrected_speed_up_all:.2f} times as fast"
            )


def _mean_of(means: Sequence[Mean], op: Op, tiler: str) -> Mean:
    return next(m for m in means if (m.op, m.tiler) == (op, tiler))


def _near(outcome: Outcome, what: str, ours: float, theirs: float, tolerance: float) -> None:
    outcome.checked += 1
    if not abs(ours - theirs) <= tolerance:  # nor is a mean that does not exist near
        outcome.mismatches.append(f"{what}: ours {ours:.2f}, published {theirs}")


Readings = list[tuple[str, float, float]]


def _bars(ours: PublishedComparison, given: Mapping[str, Any], key: str, attribute: str) -> Readings:
    """Every bar that could be read: what it is, ours, theirs."""
    found = []
    for op_key, op in OPS.items():
        for theirs, tiler in TILERS.items():
            for name, read in zip(given["order"], given[key][op_key][theirs], strict=True):
                bar = next(
                    b for b in ours.bars if (b.matrix, b.op, b.tiler) == (name.removeprefix("ts_"), op, tiler)
                )
                if read is not None:
                    found.append((f"{op_key} {name} {theirs}", float(getattr(bar, attribute)), float(read)))
    return found


def _config_bars(outcome: Outcome, ours: PublishedComparison, given: Mapping[str, Any]) -> None:
    for what, mine, read in _bars(ours, given, "chart_readings_config_cycles", "as_built_config"):
        _near(outcome, what, mine, read, CONFIG_BAR * read)


def _run_bars(outcome: Outcome, ours: PublishedComparison, given: Mapping[str, Any]) -> None:
    bars = _bars(ours, given, "chart_readings_runtime_cycles", "as_built_run")
    outside = [(what, mine, read) for what, mine, read in bars if abs(mine / read - 1) > BAR]
    outcome.notes += [f"{what}: ours {mine:.0f}, read {read:.0f}" for what, mine, read in outside]
    outcome.checked += len(bars)
    if len(bars) - len(outside) < BARS_WITHIN * len(bars):
        outcome.mismatches.append(f"only {len(bars) - len(outside)} of {len(bars)} bars within 2.5 %")
