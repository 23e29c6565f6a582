"""Stencils in time, and what is before several generations: the front is that of all mappings, listed one by
one and each of them evaluated."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapping.looptree import Loop
from tests.faults import refused
from tests.mapper.brute_evaluated import Listed
from tests.mapper.test_whole_actions import front_of
from tests.mapper.test_windows import memory

STENCILS = (
    "U[T=t+1, x] = U[t, X=x-1] + U[t, x] + U[t, X=x+1]",
    "U[T=t+1, x] = U[t, X=x-1] * U[t, X=x+1] * A[x]",
    "U[T=t+1, x] = U[t, X=x-1] + U[t, X=x+2] + F[t, x]",
    "U[T=t+1, x, m] = U[t, X=x-1, m] + U[t, X=x+1, m] + A[m]",
    "U[T=t+1, x] = U[t, X=x-1] + U[T=t-1, x] + U[t, X=x+1]",
    "U[T=t+1, x, y] = U[t, X=x-1, y] + U[t, X=x+1, y] + U[t, x, Y=y-1] + U[t, x, Y=y+1]",
    "U[T=t+1, x] = U[T=t-1, X=x-1] + U[T=t-1, X=x+1] + U[t, x]",
)
SEVERAL_BEFORE = (  # whose first generations are in one tensor
    "F[P=p+2, m] = F[p, m] + A[p, m]",
    "F[P=p+1, m] = F[p, m] + F[P=p-1, m]",
    "F[P=p+3] = F[p] * F[P=p+2]",
)


def machine(pick: Random, least: int = 8) -> dict[str, Any]:
    """Two memories or three, and a toll at times."""
    nodes = [memory("DRAM", 64, "inf", 16)]
    size = pick.choice((least, 2 * least, 5 * least, 10 * least, 20 * least))
    nodes.append(memory("GLB", 4, size, 32, read_first=pick.random() < 0.2))
    if pick.random() < 0.3:
        nodes.append(memory("RF", 1, pick.choice((16, 48)), 64, tensors={"may_keep": "Outputs"}))
    if pick.random() < 0.3:
        wire = {"type": "Toll", "name": "Wire", "actions": memory("", 3, 0, 24)["actions"]}
        nodes.insert(pick.randint(1, len(nodes)), wire)
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    return {"nodes": nodes, "assume_overlap": pick.random() < 0.8}


def check(spec: pm.Spec) -> int:
    """Whether both fronts are the same, where the largest tiles of all tensors have room together; how many
    mappings there are."""
    listed = []
    trees = list(Listed(spec).trees())
    for tree in trees:
        try:
            report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
        except pm.SpecError:
            continue
        held = {c.name: 0 for c in spec.arch.components}
        for b in report.analysis.buffets:
            held[b.component] += b.tile_max * 8 * (2 if spec.arch.doubles(b.component) else 1)
        if report.feasible and all(held[c.name] <= c.size_bits for c in spec.arch.components if c.stores):
            listed.append((report.total_energy, float(report.total_latency)))
    found = pm.explore(spec)
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(x, rel=1e-9) for x in front_of(listed)]
    for p in found:
        assert (p.report.total_energy, p.report.total_latency) == (p.energy, p.latency)
    return len(trees)


def work(text: str, sizes: dict[str, int], **values: Any) -> dict[str, Any]:
    used = {r: n for r, n in sizes.items() if f"{r}=" in text or f"{r.lower()}]" in text}
    return {"rank_sizes": used, "bits_per_value": {"All": 8}, "einsums": [text], **values}


def stencil(pick: Random, most: int) -> pm.Spec:
    while True:
        text = pick.choice(STENCILS)
        sizes = {
            "T": pick.choice((1, 2, 3, 4)),
            "X": pick.choice((4, 5, 6)),
            "Y": pick.choice((3, 4)),
            "M": 2,
        }
        init = pick.choice((0, "U0"))
        edges = ["U0", "U0"] if init and "t-1" not in text else []  # otherwise it has a rank more
        edge = pick.choice((1, "E", *edges))
        given = work(text, sizes, init={"U": init}, boundary={"U": edge})
        spec = pm.load({"schema_version": 1, "workload": given, "arch": machine(pick, 16)})
        if 10 < Listed(spec).size() < most:
            return spec


def several_before(pick: Random, most: int) -> pm.Spec:
    while True:
        text = pick.choice(SEVERAL_BEFORE)
        given = work(text, {"P": pick.choice((4, 6)), "M": pick.choice((2, 3))}, init={"F": "F0"})
        spec = pm.load({"schema_version": 1, "workload": given, "arch": machine(pick)})
        if 10 < Listed(spec).size() < most:
            return spec


def test_the_front_is_that_of_all_mappings() -> None:
    pick = Random(2)
    assert sum(check(stencil(pick, 60)) for _ in range(6)) > 100
    assert sum(check(several_before(pick, 60)) for _ in range(3)) > 50


def two_levels(size: int, **more: Any) -> dict[str, Any]:
    buffer = memory("GLB", 4, size, 32, **more)
    return {"nodes": [memory("DRAM", 64, "inf", 16), buffer, {"type": "Compute", "name": "MAC"}]}


def test_a_plate_is_tiled_within_its_steps() -> None:
    """Neighbours of the generation before are on both sides: a tile of several steps has the whole plate."""
    given = work(STENCILS[5], {"T": 20, "X": 34, "Y": 34}, init={"U": 0})
    front = pm.explore(pm.load({"workload": given, "arch": two_levels(4000)}), objectives="energy")
    assert (front.gap, front.loose) == (0, "")
    tiles = [(n.rank_variable, n.tile_shape) for n in front[0].mapping.nodes if isinstance(n, Loop)]
    assert tiles[0] == ("t", 1)
    assert front[0].report.total_energy == front[0].energy


def test_the_last_generation_is_read_by_another_einsum() -> None:
    spec = pm.load("stencil_in_time", "simple_two_level", T=4, N=18)
    front = pm.explore(spec, objectives="energy")
    assert front[0].report.total_energy == front[0].energy
    read = {t.tensor: t.reads_fill for t in front[0].report.analysis.traffic if t.component == "DRAM"}
    assert read == {"U": 16, "F": 16, "Z": 0}


def test_what_is_read_otherwise_is_refused() -> None:
    sizes = {"T": 4, "X": 6}

    def explored(text: str, arch: dict[str, Any] | None = None, **constraints: Any) -> None:
        given = {"workload": work(text, sizes, init={"U": 0}), "arch": arch or two_levels(400)}
        pm.explore(pm.load(given), constraints=constraints)

    with refused("unsupported-recurrence", "that are no boxes"):
        explored("U[T=t+1, x] = U[t, x] + U[T=t+1, X=x-1]")  # of the same step
    for named in ("sizes", "spatial_sizes"):
        with refused("unsupported-recurrence", f"`{named}: all`"):
            explored(STENCILS[0], **{named: "all"})
    with refused("unsupported-recurrence", "allocation: live"):
        explored(STENCILS[0], two_levels(400, allocation="live"))


@pytest.mark.slow
def test_the_fronts_of_many_spaces() -> None:
    pick = Random(7)
    assert sum(check(stencil(pick, 1200)) for _ in range(60)) > 10_000
    assert sum(check(several_before(pick, 600)) for _ in range(30)) > 2000
