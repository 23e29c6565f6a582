"""The search finds the front of all mappings, listed by brute force; its figures are those of `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.search import search
from tests.mapper.brute import Front, Machine, figures, front, one_einsum, paths_of_one
from tests.mapper.brute_chain import chain
from tests.mapper.brute_trees import nodes_below, sampled, tree_of
from tests.seeds import seeds


@dataclass(frozen=True)
class Case:
    """`T1[m,n1] = T0[m,n0] W0[n0,n1]` and so on: sizes of m, n0, n1 ...; bits of the memories inside DRAM;
    `may`: what each of these may hold (empty: all)."""

    sizes: tuple[int, ...]
    memories: tuple[float, ...]
    fanouts: tuple[int, ...] = ()
    bits: tuple[int, int] = (8, 8)
    write: float = 1.0
    rates: tuple[int, ...] = (16, 512, 64)
    operations: int = 16
    every: bool = False
    ordered: bool = True
    may: tuple[str, ...] = ()

    @property
    def spec(self) -> pm.Spec:
        einsums = [
            f"T{i + 1}[m, n{i + 1}] = T{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]"
            for i in range(len(self.sizes) - 2)
        ]
        ranks = {"M": self.sizes[0], **{f"N{i}": size for i, size in enumerate(self.sizes[1:])}}
        bits = {f"T{i}": self.bits[0] for i in range(len(self.sizes) - 1)}
        bits |= {f"W{i}": self.bits[1] for i in range(len(self.sizes) - 2)}
        nodes = [self._memory(i, size) for i, size in enumerate(("inf", *self.memories))]
        rate = {"name": "compute", "energy": 2, "throughput": self.operations}
        nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
        return pm.load(
            {
                "schema_version": 1,
                "workload": {"rank_sizes": ranks, "bits_per_value": bits, "einsums": einsums},
                "arch": {"nodes": nodes},
            }
        )

    def _may(self, i: int) -> str:
        """The referee has spatial loops below fused ones only."""
        if self.may and i:
            return self.may[i - 1]
        return "~Intermediates" if i == 2 and self.fanouts and len(self.sizes) > 3 else "All"

    def _memory(self, i: int, size: float | str) -> dict[str, object]:
        energy = (64, 4, 1)[i]
        dims = zip("XY", self.fanouts, strict=False) if i == 2 else ()
        return {
            "type": "Memory",
            "name": ("DRAM", "GLB", "RF")[i],
            "size": size,
            "tensors": {"keep": "Nothing" if i else "~Intermediates", "may_keep": self._may(i)},
            "spatial": [{"name": n, "fanout": f, "broadcast_partials": True} for n, f in dims],
            "actions": [
                {"name": "read", "energy": energy, "throughput": self.rates[i]},
                {"name": "write", "energy": energy * self.write, "throughput": self.rates[i]},
            ],
        }


def brute_front(case: Case, spec: pm.Spec) -> tuple[Front, int]:
    if len(spec.workload) == 1:
        return one_einsum(spec.workload.einsums[0], spec.arch, case.every, case.ordered)
    return chain(spec.workload, spec.arch, case.every)


def check_front(case: Case) -> int:
    """Both fronts, and each mapping of ours evaluated; how many mappings brute force looked at."""
    spec = case.spec
    expected, many = brute_front(case, spec)
    limits = Limits(sizes="all" if case.every else "divisors", force_memory_order=case.ordered)
    found = search(spec.workload, spec.arch, Request(limits=limits)).candidates
    assert [(c.energy, c.latency) for c in found] == [pytest.approx(p, rel=1e-12) for p in expected]
    for c in found:
        report = evaluate_problem(Problem(spec.workload, spec.arch, c.tree))
        assert not report.costs.violations
        assert report.costs.total_energy == pytest.approx(c.energy, rel=1e-12)
        assert float(report.costs.total_latency) == pytest.approx(c.latency, rel=1e-12)
    for at, name in enumerate(("energy", "latency")):
        alone = search(spec.workload, spec.arch, Request(objectives=(name,), limits=limits)).candidates
        assert min(c.values[0] for c in alone) == pytest.approx(min(p[at] for p in expected), rel=1e-12)
    return many


@pytest.mark.parametrize(
    "case",
    [
        Case((2, 4, 2), (16, 16), rates=(1, 16, 8), ordered=False, may=("T0", "W0 | T1")),
        Case((4, 2, 2), (24, 16), rates=(1, 16, 8), ordered=False, may=("T1", "T0 | W0")),
        Case((4, 3, 2), (32, 24), bits=(4, 8), rates=(1, 16, 8), may=("T0 | W0", "W0 | T1")),
        Case((2, 4, 2), (16, 16), fanouts=(2,), rates=(1, 16, 8), may=("T0", "W0 | T1")),
    ],
    ids=["apart", "outputs first", "one in common", "across a fanout"],
)
def test_memories_without_a_tensor_in_common_are_side_by_side(case: Case) -> None:
    spec = case.spec
    expected, _ = brute_front(case, spec)
    found = pm.explore(spec)
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(p, rel=1e-12) for p in expected]
    assert found.request.limits.side_by_side == (() if case.ordered else (("T1", "RF"),))
    if not case.fanouts:  # across which the order of nodes says nothing
        other, _ = brute_front(replace(case, ordered=not case.ordered), spec)
        assert (other != expected) or case.ordered, "the order of nodes matters here"


# One of each kind, and then more of them.
TINY = [
    Case((8, 4, 6), (200,)),
    Case((5, 4, 3), (64,), every=True),
    Case((3, 4, 4), (160, 16), bits=(4, 8), rates=(8, 8, 8), operations=1000),
    Case((4, 2, 4), (128, 16), fanouts=(2, 3), write=3.0),
    Case((4, 3, 6, 2), (128,)),
    Case((3, 4, 2, 5), (72,), every=True),
    Case((2, 2, 4, 2), (64, 16), fanouts=(2,), rates=(1, 16, 8)),
    Case((4, 2, 3, 2, 4), (96,)),
]
MORE = [
    Case((3, 2, 2), (48, 24), bits=(16, 8), write=1.5, rates=(1, 16, 8), ordered=False),
    Case((6, 8, 4), (96,), bits=(16, 4), write=1.5, rates=(1, 16)),
    Case((4, 6, 3), (200, 32)),
    Case((4, 3, 2), (64, 24), bits=(16, 8), write=1.5, rates=(1, 16, 8), ordered=False),
    Case((4, 4, 2), (200, 32), fanouts=(4,)),
    Case((6, 2, 4, 4), (64,), bits=(16, 4), rates=(1, 16), operations=1000),
    Case((4, 2, 3, 2), (96, 24), bits=(8, 4), write=1.5),
    Case(
        (4, 4, 2, 2), (256, 64), bits=(4, 4), rates=(1, 16, 4), operations=1
    ),  # a node above a split within it
    Case((2, 4, 4, 2, 6), (24,), write=1.5),
    Case((4, 6, 3, 2, 2), (256,), bits=(8, 4)),
]


@pytest.mark.parametrize("case", seeds(6, TINY + MORE), ids=str)
@pytest.mark.thin(99)
def test_the_front_is_that_of_all_mappings(case: Case) -> None:
    assert check_front(case) > 1000


KINDS = ["one", "three levels", "spatial", "two", "three", "two on three levels", "two spatial"]


def random_case(kind: str, pick: Random) -> Case:
    """Sizes that brute force still walks in seconds."""
    many = 4 if kind.startswith("two") else 5 if kind == "three" else 3
    inner = 2 if "level" in kind or "spatial" in kind else 1
    every = pick.random() < 0.2 and inner == 1
    sizes = tuple(pick.choice((1, 2, 3, 4, 6, 8) if many < 5 else (2, 3, 4, 6)) for _ in range(many))
    most = 4 if many * inner == 8 else 6 if every or "spatial" in kind else 8
    return Case(
        tuple(min(s, most) for s in sizes),
        (pick.choice((24, 40, 64, 128, 256, 600)), pick.choice((16, 32, 64)))[:inner],
        tuple(pick.choice((2, 3, 4)) for _ in range(pick.choice((1, 2)))) if "spatial" in kind else (),
        (pick.choice((4, 8, 16)), pick.choice((4, 8))),
        pick.choice((1.0, 1.5, 3.0)),
        pick.choice(((16, 512, 64), (8, 8, 8), (1, 16, 4))),
        pick.choice((1, 16, 1000)),
        every,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_random_spaces(kind: str) -> None:
    pick = Random(kind)
    assert sum(check_front(random_case(kind, pick)) for _ in range(12)) > 10**5


def roomy(case: Case) -> tuple[float, ...]:
    return (10.0**9,) * len(case.memories)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "every"),
    seeds(
        9,
        [
            *((kind, False) for kind in KINDS),
            *((kind, True) for kind in KINDS if "spatial" not in kind),
        ],
    ),
)
def test_the_referees_formulas_are_an_engines_counts(kind: str, every: bool) -> None:
    """Mappings drawn from the whole space. Ours holds no less than the exact peak, and mostly just that."""
    pick, tight = Random(kind), 0
    for _ in range(8):
        case = random_case(kind, pick)
        spec = replace(case, sizes=tuple(min(s, 4) for s in case.sizes), memories=roomy(case)).spec
        sample = sampled(spec.workload, spec.arch, pick, every)
        report = evaluate_problem(Problem(spec.workload, spec.arch, sample.tree))
        assert report.costs.total_energy == pytest.approx(sample.energy, rel=1e-12)
        assert float(report.costs.total_latency) == pytest.approx(sample.latency, rel=1e-12)
        for memory, bits in zip(("GLB", "RF"), sample.bits, strict=False):
            sets = report.analysis.working_sets
            exact = max((w.bits for w in sets if (w.component, w.measure) == (memory, "tile")), default=0)
            assert exact <= bits
            tight += exact == bits
    assert tight > 4


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(2, 2, 1), pytest.param((4, 2, 3), marks=pytest.mark.slow)], ids=str)
def test_every_mapping_of_one_einsum_evaluated(sizes: tuple[int, int, int]) -> None:
    """No formula at all: each LoopTree through `evaluate`, those that fit."""
    case = Case(sizes, (40,), write=1.5, rates=(1, 16))
    spec, machine = case.spec, Machine(case.spec.arch)
    points = []
    for path in paths_of_one(spec.workload.einsums[0], machine):
        for tiles in figures(path, machine, keep=True).tiles:
            tree = tree_of(spec.workload, machine, [nodes_below(path, machine, tiles)], set())
            report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
            if not report.costs.violations:
                points.append((report.costs.total_energy, float(report.costs.total_latency)))
    exact = front(*(np.array(column) for column in zip(*points, strict=True)))
    found = search(spec.workload, spec.arch, Request()).candidates
    assert len(points) > 100
    assert [(c.energy, c.latency) for c in found] == [pytest.approx(p, rel=1e-12) for p in exact]


def test_levels_of_uneven_tiles_are_not_left_out() -> None:
    """Tiles of 5, 3 and 2 part 7 rows into 4, tiles of 3 and 2 into 5: two tensors above the weights, each
    with a tile of its own, are better than with one in common."""

    def memory(name: str, size: float | str, energy: float, keep: str, may: str) -> dict[str, object]:
        actions = [{"name": "read", "energy": energy}, {"name": "write", "energy": 0}]
        tensors = {"keep": keep, "may_keep": may}
        return {"type": "Memory", "name": name, "size": size, "tensors": tensors, "actions": actions}

    nodes = [
        memory("DRAM", "inf", 1, "All", "All"),
        memory("GLB", 5 * 8 + 3 * 16, 0, "A | Z", "All"),
        memory("WB", 80, 1, "B", "B"),
        memory("RA", 2 * 8, 0, "A", "A | B"),
        memory("RB", 80, 0, "B", "B"),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0}]},
    ]
    shape = {"m": "0 <= m < 7", "k": "0 <= k < 1"}
    bits = {"A": 8, "Z": 16, "B": 80}
    work = {"iteration_space_shape": shape, "bits_per_value": bits, "einsums": ["Z[m] = A[m] * B[k]"]}
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    best = pm.explore(spec, objectives="energy", constraints={"sizes": "all"}).best()
    assert best.energy == 7 * 8 + (3 + 4) * 80
    assert pm.evaluate(best.spec, engine="enumerate").total_energy == best.energy
