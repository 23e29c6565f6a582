"""Timeloop mappings with imperfect factors `M=16,2` (bound, bound in the last iteration), evaluated.

Expected counts are worked out by hand, per instance, in the tool's terms: capacity, reads (without
drains), fills, updates. Its cycles are padded: the product of all bounds, also where less is executed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from polymodel.mapping.looptree import Loop
from tests.reference import timeloop
from tests.reference.common import engine
from tests.reference.imported import problem_of

MATMUL = {"A": [["M"], ["K"]], "B": [["K"], ["N"]], "C": [["M"], ["N"]]}
CONV = {"I": [["P", "R"]], "W": [["R"]], "O": [["P"]]}
Counts = dict[str, tuple[int, int, int, int]]
_FACTOR = re.compile(r"(\w+)=(\d+)(?:,(\d+))?")


@dataclass(frozen=True)
class Case:
    """`loops`: factors and permutation (innermost first) per level; `counts`: of each level and tensor."""

    name: str
    tensors: dict[str, list[list[str]]]
    sizes: dict[str, int]
    loops: dict[str, tuple[str, str]]
    counts: dict[str, Counts]
    computes: int
    padded: int

    def spec(self) -> dict[str, Any]:
        memories = list(self.loops)
        local = [{"name": n, "class": "regfile"} for n in memories[1:]] + [
            {"name": "MACC", "class": "intmac"}
        ]
        outputs = list(self.tensors)[-1]
        spaces = [
            {"name": t, "projection": [[[v] for v in rank] for rank in ranks], "read_write": t == outputs}
            for t, ranks in self.tensors.items()
        ]
        top = {"name": "System", "local": [{"name": memories[0], "class": "DRAM"}]}
        return {
            "problem": {
                "shape": {"name": self.name, "dimensions": list(self.sizes), "data_spaces": spaces},
                "instance": self.sizes,
            },
            "architecture": {"subtree": [{**top, "subtree": [{"name": "PE", "local": local}]}]},
            "mapping": [
                {"target": level, "type": "temporal", "factors": factors, "permutation": order}
                for level, (factors, order) in self.loops.items()
            ],
        }

    def result(self) -> dict[str, Any]:
        kinds = ("utilized_capacity", "reads_per_instance", "fills_per_instance", "updates_per_instance")
        levels: dict[str, Any] = {
            level: {
                "tensors": {
                    t: {**dict(zip(kinds, c, strict=True)), "instances_used": 1} for t, c in found.items()
                }
            }
            for level, found in self.counts.items()
        }
        levels["MACC"] = {"computes": self.computes, "cycles": self.padded, "tensors": {}}
        return {"levels": levels}


CASES = [
    Case(
        "rows",  # 50 = 3 x 16 + 2 rows of A and C; B stays
        MATMUL,
        {"M": 50, "K": 16, "N": 16},
        {"DRAM": ("M=4", "M"), "Buffer": ("M=16,2 K=16 N=16", "NKM")},
        {
            "DRAM": {"A": (800, 800, 0, 0), "B": (256, 256, 0, 0), "C": (800, 0, 0, 800)},
            "Buffer": {
                "A": (256, 12800, 800, 0),
                "B": (256, 12800, 256, 0),
                "C": (256, 12800 - 800, 0, 12800),
            },
        },
        computes=50 * 16 * 16,
        padded=4 * 16 * 16 * 16,
    ),
    Case(
        "spilled sums",  # k in 3 + 3 + 1 outside m in 3 + 3: C comes back for the second and third k
        MATMUL,
        {"M": 6, "K": 7, "N": 2},
        {"DRAM": ("M=2 K=3", "MK"), "Buffer": ("M=3 K=3,1 N=2", "NKM")},
        {
            "DRAM": {"A": (42, 42, 0, 0), "B": (14, 14, 0, 0), "C": (12, 2 * 12, 0, 3 * 12)},
            "Buffer": {"A": (9, 84, 42, 0), "B": (6, 84, 14, 0), "C": (6, 84 - 12, 24, 84)},
        },
        computes=6 * 7 * 2,
        padded=2 * 3 * 3 * 3 * 2,
    ),
    Case(
        "sliding window",  # p in 4 + 4 + 3: each input is filled once, the last window is shorter
        CONV,
        {"P": 11, "R": 3},
        {"DRAM": ("P=3", "P"), "Buffer": ("P=4,3 R=3", "RP")},
        {
            "DRAM": {"I": (13, 13, 0, 0), "W": (3, 3, 0, 0), "O": (11, 0, 0, 11)},
            "Buffer": {"I": (6, 33, 13, 0), "W": (3, 33, 3, 0), "O": (4, 33 - 11, 0, 33)},
        },
        computes=33,
        padded=3 * 4 * 3,
    ),
    Case(
        "two levels",  # m: 19 = 12 + 7, and 7 = 4 + 3
        MATMUL,
        {"M": 19, "K": 2, "N": 2},
        {"DRAM": ("M=2", "M"), "Buffer": ("M=3,2", "M"), "RF": ("M=4,3 K=2 N=2", "NKM")},
        {
            "DRAM": {"A": (38, 38, 0, 0), "B": (4, 4, 0, 0), "C": (38, 0, 0, 38)},
            "Buffer": {"A": (24, 38, 38, 0), "B": (4, 4, 4, 0), "C": (24, 0, 0, 38)},
            "RF": {"A": (8, 76, 38, 0), "B": (4, 76, 4, 0), "C": (8, 76 - 38, 0, 76)},
        },
        computes=76,
        padded=2 * 3 * 4 * 2 * 2,
    ),
    Case(
        "uneven weights",  # n in 5 + 5 + 2 inside m in 4 + 4 + 1: B is fetched for each m, A only once
        MATMUL,
        {"M": 9, "K": 3, "N": 12},
        {"DRAM": ("M=3 N=3", "NM"), "Buffer": ("M=4,1 K=3 N=5,2", "KNM")},
        {
            "DRAM": {"A": (27, 27, 0, 0), "B": (36, 3 * 36, 0, 0), "C": (108, 0, 0, 108)},
            "Buffer": {"A": (12, 324, 27, 0), "B": (15, 324, 3 * 36, 0), "C": (20, 324 - 108, 0, 324)},
        },
        computes=9 * 3 * 12,
        padded=3 * 3 * 4 * 3 * 5,
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@pytest.mark.slow
@every
@pytest.mark.parametrize("name", ["exact", "enumerate"])
def test_counts_under_imperfect_factors(case: Case, name: str, tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(case.result()))
    outcome = timeloop.check(case.spec(), tmp_path, engine(name))
    assert not outcome.mismatches
    assert outcome.checked == 1 + 5 * sum(len(tensors) for tensors in case.counts.values())
    assert outcome.notes == [f"cycles: ours {case.computes}, the tool says {case.padded}"]


def bounds(case: Case, variable: str) -> list[tuple[int, int]]:
    """(bound, bound in the last iteration) of one variable's loops, outermost first."""
    found = (_FACTOR.findall(factors) for factors, _ in case.loops.values())
    return [(int(b), int(last or b)) for level in found for v, b, last in level if v == variable]


def walked(loops: list[tuple[int, int]]) -> Iterator[tuple[int, ...]]:
    """The counters of one variable's loops as the tool runs them, one tuple per executed iteration."""

    def below(rest: list[tuple[int, int]], last: bool) -> Iterator[tuple[int, ...]]:
        if not rest:
            yield ()
            return
        trips = rest[0][1] if last else rest[0][0]
        for counter in range(trips):
            for inner in below(rest[1:], last and counter == trips - 1):
                yield (counter, *inner)

    yield from below(loops, True)


@every
def test_each_tile_is_what_the_factors_execute(case: Case) -> None:
    """The bound of the last iteration counts only where all loops outside are in their last one."""
    problem, padded = problem_of(case.spec()), 1
    for variable, size in case.sizes.items():
        tiles = [
            n.tile_shape
            for n in problem.tree.nodes
            if isinstance(n, Loop) and n.rank_variable == variable.lower()
        ]
        loops = bounds(case, variable)
        stamps = list(walked(loops))
        assert len(stamps) == size
        for point, stamp in enumerate(stamps):
            rest, found = point, []
            for tile in tiles:
                assert isinstance(tile, int)
                found.append(rest // tile)
                rest %= tile
            assert tuple(found) == stamp
        padded *= math.prod(b for b, _ in loops)
    assert case.padded == padded > case.computes
