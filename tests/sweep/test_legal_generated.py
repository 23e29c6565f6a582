"""Generated specs swept at all points at once: each point has the verdict that `evaluate` gives there."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import isclose
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import Refused, SpecError
from polymodel.sweeps import run
from polymodel.sweeps.grid import make_grid, roles
from polymodel.sweeps.infeasibility import shared
from polymodel.sweeps.scenario import Scenario, scenario
from tests.seeds import seeds
from tests.specs import Doc, Drawing, Workload, _lists, machine, shared_ranks

DEPENDENCES = ("illegal-dependence", "unreduced-output")


def loop_above_a_split(pick: Random, nodes: list[Doc], drawing: Drawing, workload: Workload) -> None:
    """One more loop, over any rank variable, right above a split if there is one."""
    splits = [(at, i) for at in _lists(nodes) for i, n in enumerate(at) if n["type"] == "Sequential"]
    if splits:
        at, i = pick.choice(splits)
        name, symbol = pick.choice(list(workload.stages[0].extents)), f"X{len(drawing.values)}"
        drawing.values[symbol], drawing.most[symbol] = 1, workload.sizes[name.upper()]
        at.insert(i, {"type": "Temporal", "rank_variable": name, "tile_shape": symbol})


def spec_and_sizes(pick: Random) -> tuple[pm.Spec, dict[str, list[int]]] | None:
    """A spec with some open tile sizes and the sizes that each may take, if it has any."""
    workload = shared_ranks(pick, pick.choice([1, 2, 2, 2, 3, 3]))
    drawing = Drawing(pick, workload)
    nodes = drawing.mapping()
    if pick.random() < 0.6:
        loop_above_a_split(pick, nodes, drawing, workload)
    free = pick.sample(sorted(drawing.values), min(3, len(drawing.values)))
    for node in (n for at in _lists(nodes) for n in at if "tile_shape" in n):
        if node["tile_shape"] not in free:
            node["tile_shape"] = drawing.values[node["tile_shape"]]
    document = {
        "arch": machine(pick, drawing, workload),
        "workload": {
            "rank_sizes": workload.sizes,
            "bits_per_value": {"All": 8},
            "einsums": [s.text for s in workload.stages],
        },
        "mapping": {"nodes": nodes},
        "symbols": dict.fromkeys(free),
    }
    try:
        return pm.load(document), {s: list(range(1, drawing.most[s] + 1)) for s in free}
    except SpecError:
        return None


def at_once(spec: pm.Spec, grid: dict[str, list[int]]) -> Scenario | None:
    """The compiled grid, if it has closed forms and a legal point."""
    made = make_grid(spec, grid, [])
    try:
        return scenario(spec, made, roles(spec, made), 0, "", 0, {})
    except (SpecError, Refused):
        return None


def told(spec: pm.Spec, point: dict[str, int]) -> pm.Report | str:
    """What `evaluate` says of a point: its report, or the reason why it is not a mapping."""
    try:
        return pm.evaluate(spec, symbols=point)
    except SpecError as fault:
        first = fault.diagnostics[0]
        return shared(first.message) if first.code in DEPENDENCES else "no tiles"


def differences(spec: pm.Spec, grid: dict[str, list[int]], tally: Counter[str]) -> list[str]:
    """What the sweep says of its points, and `evaluate` does not."""
    asked = {p: told(spec, dict(zip(grid, p, strict=True))) for p in product(*grid.values())}
    swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    rows = {tuple(int(r[s]) for s in grid): r for r in swept.frame.to_dict("records")}
    legal = {p: r for p, r in asked.items() if not isinstance(r, str)}
    broken = Counter(r for r in asked.values() if isinstance(r, str) and r != "no tiles")
    tally.update(points=len(asked), illegal=broken.total(), kinds=len(broken), mixed=bool(broken and legal))
    if rows.keys() != legal.keys():
        return [f"rows at {sorted(rows)}, legal at {sorted(legal)}"]
    found = [f"{why}: {n} points, {swept.infeasible.get(why, 0)} in the sweep" for why, n in broken.items()
             if swept.infeasible.get(why, 0) != n]  # fmt: skip
    for p, report in legal.items():
        for name, mine in (("energy", report.total_energy), ("latency", report.total_latency)):
            if not isclose(rows[p][name], mine, rel_tol=1e-9):
                found.append(f"{name} at {p}: {rows[p][name]}, {mine}")
        if rows[p]["feasible"] != report.feasible:
            found.append(f"feasible at {p}: {rows[p]['feasible']}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), seeds(1, [(1, 40), (2, 1000), (3, 1000)]))
def test_points_swept_at_once_have_the_verdict_of_evaluate(
    seed: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(*arguments: Any) -> None:
        raise AssertionError("points are evaluated one by one")

    monkeypatch.setattr(run, "evaluate_points", one_by_one)
    tally: Counter[str] = Counter()
    for number in range(count):
        drawn = spec_and_sizes(Random(f"{seed}/{number}"))
        compiled = at_once(*drawn) if drawn is not None and drawn[1] else None
        if drawn is not None and compiled is not None and compiled.illegal is not None:
            assert differences(*drawn, tally) == [], (seed, number)
    assert tally["mixed"] > count // 20, tally
