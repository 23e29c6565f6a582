"""Statistics of uniform random data: exact ones of tiles, and means of random tensors cut into slices.

Exact numbers agree to 1e-9, the greatest occupancy over all tiles to 1e-6. Of means over random tensors,
counts of nonempty rows, fibers and tiles agree within 3 standard errors, loads within 5 %, lock-step times
within 10 %.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from polymodel.sparse.density import Uniform
from polymodel.sparse.density.model import edge_classes
from polymodel.sparse.density.slices import SliceCosts, greedy, nway, shape_tiles
from tests.reference.common import Outcome, comparing, sections

RANKS = "ABCDEFGH"
Case = Mapping[str, Any]


def is_statistics(given: Case) -> bool:
    """True for files whose cases have exact statistics of tiles."""
    cases = given.get("cases")
    return isinstance(cases, list) and bool(cases) and isinstance(cases[0], dict) and "tile_sizes" in cases[0]


def is_expectations(given: Case) -> bool:
    """True for files whose cases have means of slices of random tensors."""
    cases = given.get("cases")
    if not isinstance(cases, list) or not cases or not isinstance(cases[0], dict):
        return False
    return "slice_max_load" in (cases[0].get("monte_carlo") or {})


def check(path: Path) -> list[Outcome]:
    """One outcome per case; a case that cannot be read is a fault."""
    given = json.loads(path.read_text(encoding="utf-8"))
    compare = _statistics if is_statistics(given) else _expectations
    return [
        _guarded(f"{path.stem}_{number + 1}", case, compare) for number, case in enumerate(given["cases"])
    ]


def _guarded(name: str, case: Case, compare: Callable[[Case, Outcome], None]) -> Outcome:
    with comparing(Outcome(name)) as outcome:
        compare(case, outcome)
    return outcome


def _near(
    outcome: Outcome, what: str, ours: float, theirs: float, relative: float, absolute: float = 0
) -> None:
    outcome.checked += 1
    if not math.isclose(ours, theirs, rel_tol=relative, abs_tol=absolute):
        outcome.mismatches.append(f"{what}: ours {ours}, reference {theirs}")


def _within(
    outcome: Outcome, what: str, ours: float, drawn: tuple[float, float], trials: int, errors: float
) -> None:
    """Within so many standard errors; where all trials agree, of what 5 in all trials would change."""
    mean, error = drawn
    _near(outcome, what, ours, mean, 1e-9, errors * error if error else 5 / trials)


def _statistics(case: Case, outcome: Outcome) -> None:
    sections(case, {"shape": list, "nnz": int, "tile": list, "exact": dict})
    exact, tile, shape = case["exact"], case["tile"], case["shape"]
    model = Uniform.of(RANKS[: len(shape)], shape, nnz=case["nnz"])
    outcome.equal("tiles", int(model.number_of_tiles(tile)), case["num_tiles"])
    sizes, counts = edge_classes(model.tiles(tile), model.shape)
    classes: dict[int, int] = {}
    for points, count in zip(sizes.prod(axis=-1).tolist(), counts.tolist(), strict=True):
        classes[points] = classes.get(points, 0) + int(count)
    for points, number in case["tile_sizes"]:
        outcome.equal(f"tiles of {points} points", classes.get(points, 0), number)
    for what, ours, relative in (
        ("expected_nonempty_tiles", model.expected_tiles(tile), 1e-9),
        ("mean_occupancy_full_tile", model.expected(tile), 1e-9),
        ("var_occupancy_full_tile", model.variance(tile), 1e-9),
        ("p_empty_full_tile", model.p_empty(tile), 1e-9),
        ("expected_sum_occ_sq", model.expected_squares(tile), 1e-9),
        ("expected_max_over_tiles", model.expected_max(tile), 1e-6),
    ):
        _near(outcome, what, float(ours), exact[what], relative)
    for confidence, value in exact["quantiles_full_tile"].items():
        outcome.equal(f"quantile {confidence}", int(model.quantile(tile, float(confidence))), value)
    for s, value in exact["cdf_max"].items():
        _near(outcome, f"P(max <= {s})", float(model.cdf_max(tile, int(s))), value, 1e-6, 1e-11)
    _bounds(case.get("approx") or {}, model, tile, exact["expected_max_over_tiles"], outcome)
    drawn = case.get("monte_carlo") or {}
    for what, ours in (
        ("nonempty", model.expected_tiles(tile)),
        ("max", model.expected_max(tile)),
        ("sum_sq", model.expected_squares(tile)),
    ):
        if f"{what}_mean" in drawn:
            pair = drawn[f"{what}_mean"], drawn[f"{what}_se"]
            _within(outcome, f"{what} of random tensors", float(ours), pair, drawn["trials"], 4)
    outcome.unknown("exact", exact, EXACT)


def _bounds(approx: Case, model: Uniform, tile: list[int], exact: float, outcome: Outcome) -> None:
    """Faster than the exact mean of the fullest tile, which they bound: from below mostly within 1.5 %."""
    lower, upper = float(model.expected_max_lower(tile)), float(model.expected_max_upper(tile))
    for what, bound in (
        ("expected_max_independent_tiles", lower),
        ("expected_max_union_upper_bound", upper),
    ):
        if what in approx:
            _near(outcome, what, bound, approx[what], 1e-9)
    outcome.at_most("the lower bound of the fullest tile", lower, exact * (1 + 1e-9))
    outcome.at_most("the fullest tile", exact, upper * (1 + 1e-9))
    if lower < exact * (1 - 0.015):
        outcome.notes.append(f"independent tiles are {1 - lower / exact:.1%} low: few nonzeros or tiles")


EXACT = {
    "expected_nonempty_tiles", "mean_occupancy_full_tile", "var_occupancy_full_tile", "p_empty_full_tile",
    "quantiles_full_tile", "expected_sum_occ_sq", "expected_max_over_tiles", "cdf_max",
}  # fmt: skip


def _expectations(case: Case, outcome: Outcome) -> None:
    sections(case, {"I": int, "J": int, "nnz": int, "P": int, "monte_carlo": dict})
    third = (case["K"],) if case.get("K", 1) > 1 else ()
    shape = (case["I"], case["J"], *third)
    model = Uniform.of("IJK"[: len(shape)], shape, nnz=case["nnz"])
    exact, drawn = case.get("exact", {}), case["monte_carlo"]
    fibers = {"nonempty_rows": model.expected_fibers(1), "nonempty_ij_fibers": model.expected_fibers(2)}
    for what, value in exact.items():
        _near(outcome, f"{what}, exact", float(fibers[what]), value, 1e-9)
    cut: dict[str, SliceCosts] = {"slice": greedy(model, case["P"]), "shape": shape_tiles(model, case["P"])}
    for what, found in drawn.items():
        pair = found["mean"], found["se"]
        if what in fibers:
            _within(outcome, what, float(fibers[what]), pair, case["trials"], 3)
            continue
        if what == "max_row":
            _near(outcome, what, cut["slice"].max_row, pair[0], 0.05)
            continue
        kind, _, quantity = what.partition("_")
        if number := re.fullmatch(r"nway(\d+)", kind):
            cut.setdefault(kind, nway(model, int(number[1])))
        slices = cut[kind]
        if quantity == "occupied_tiles":
            _within(outcome, what, slices.occupied, pair, case["trials"], 3)
        elif quantity == "max_load":
            _near(outcome, what, slices.max_load, pair[0], 0.05)
            outcome.at_most(f"lower bound of {what}", slices.lower, slices.max_load)
            outcome.at_most(what, slices.max_load, slices.upper)
        elif quantity == "lockstep_rows":
            _near(outcome, what, slices.lockstep, pair[0], 0.1)
        else:
            raise KeyError(what)
