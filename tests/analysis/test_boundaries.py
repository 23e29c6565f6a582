"""What is before the first generation of a tensor, and beyond the edges of its other ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.analysis.test_several_accesses import evaluated, moved
from tests.faults import faults
from tests.support.small_specs import leaf, loop, memory, split, storage, unit

ENGINES = ("enumerate", "exact", "auto")
START = np.array([3.0, -1.0, 4.0, 1.0, -5.0, 9.0])


def workload(sizes: dict[str, int], *einsums: object, **more: object) -> dict[str, Any]:
    return {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": list(einsums), **more}


def values(work: dict[str, Any], tensor: str, **tensors: object) -> np.ndarray[Any, Any]:
    return pm.values(pm.load({"workload": work}), tensors)[tensor]


HEAT = "U[T=t+1, x] = U[t, X=x-1] + U[t, x] + U[t, X=x+1]"
SIZES = {"T": 4, "X": 6}


def heat(edge: object) -> np.ndarray[Any, Any]:
    """A rod of which all points are added to their neighbours, step by step; `edge` is what its ends hold
    after the beginning."""
    rods = [START]
    for _ in range(4):
        rod = np.empty(6)
        rod[[0, -1]] = edge
        rod[1:-1] = rods[-1][:-2] + rods[-1][1:-1] + rods[-1][2:]
        rods.append(rod)
    return np.array(rods)


@pytest.mark.parametrize(
    ("boundary", "edge", "given"),
    [
        (0, 0.0, {}),
        (2.5, 2.5, {}),
        ("identity", 0.0, {}),
        ("U0", START[[0, -1]], {}),
        ("E", [7.0, 8.0], {"E": [7, 0, 0, 0, 0, 8]}),
    ],
)
def test_a_rod_begins_with_a_tensor_and_has_ends(boundary: object, edge: object, given: Any) -> None:
    work = workload(SIZES, HEAT, init={"U": "U0"}, boundary={"U": boundary})
    assert values(work, "U", U0=START, **given).tolist() == heat(edge).tolist()


def test_a_number_before_the_first_generation_and_another_beyond_the_edge() -> None:
    rods = values(workload(SIZES, HEAT, init={"U": 1}, boundary={"U": 0}), "U")
    assert rods[:2].tolist() == [[1] * 6, [0, 3, 3, 3, 3, 0]]


def test_an_edge_without_a_value_is_named() -> None:
    with faults("invalid-recurrence", at="workload.init.U"):
        pm.load({"workload": workload(SIZES, HEAT, init={"U": "U0"})})
    with faults("invalid-recurrence", at="workload.boundary.U"):
        pm.load({"workload": workload(SIZES, HEAT, boundary={"U": 0})})
    with faults("shape-mismatch", at="workload.init.F"):
        einsums = ["F[P=p+2, m] = F[p, m] + A[p, m]", "D[m] = F0[m] + A[P=0, m]"]
        pm.load({"workload": workload({"P": 4, "M": 2}, *einsums, init={"F": "F0"})})
    with faults("invalid-recurrence", at="workload.boundary.A"):
        pm.load({"workload": workload({"P": 4}, "S[P=p+1] = S[p] + A[p]", init={"S": 0}, boundary={"A": 0})})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("boundary", "kept"), [(0, {"U0": 6}), ("U0", {"U0": 6 + 3 * 2}), ("E", {"U0": 6, "E": 3 * 2})]
)
def test_what_a_rod_reads_at_its_ends(engine: str, boundary: object, kept: dict[str, int]) -> None:
    """Four steps of four inner points: the first reads all of U0, each later one both ends anew."""
    work = workload(SIZES, HEAT, init={"U": "U0"}, boundary={"U": boundary})
    nodes = [storage("DRAM", "U", *kept), loop("t", 1), storage("GLB", *kept), leaf("U")]
    report = evaluated(work, *nodes, engine=engine)
    assert {t: moved(report, t)["DRAM"][0] for t in kept} == kept
    # Three steps read U: four points with three operands each, of which two are beyond the ends.
    assert moved(report, "U")["DRAM"][0] == 3 * (4 * 3 - 2)


@pytest.mark.parametrize(("init", "boundary", "held"), [(0, 1, ["U"]), ("U0", "U0", ["U", "U0"])])
def test_a_rod_has_closed_forms(init: object, boundary: object, held: list[str]) -> None:
    """In tiles of steps, and in tiles of points within one step, of which the first and last lack an end."""
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    work = workload(SIZES, HEAT, init={"U": init}, boundary={"U": boundary})
    below = [storage("GLB", *held, reuse="keep_previous"), leaf("U")]
    for loops, tiles in (([loop("t", "S")], (1, 3)), ([loop("t", 1), loop("x", "S")], (1, 3))):
        nodes = {"nodes": [storage("DRAM", *held), *loops, *below]}
        spec = pm.load({"symbols": {"S": None}, "arch": arch, "workload": work, "mapping": nodes})
        found = pm.closed_forms(spec).analysis
        for tile in tiles:
            walked = pm.evaluate(spec.bind(S=tile), engine="enumerate").analysis
            assert not differences(found.at({"S": tile}), walked)


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_what_is_made_stays_while_a_part_of_it_is_read(engine: str) -> None:
    """D reads five of the six elements of S, within two diagonals; all six are in the buffer."""
    band = {
        "name": "D",
        "iteration_space_shape": ["g - m + 1 >= 0", "m - g + 1 >= 0"],
        "tensor_accesses": [
            {"name": "S", "projection": {"P": "g", "M": "m"}},
            {"name": "D", "projection": ["g"], "output": True},
        ],
    }
    work = workload({"P": 2, "M": 3, "G": 2}, "S[p, m] = A[p, m]", band)
    nodes = [storage("DRAM", "A", "D"), loop("m", 3), storage("GLB", "S"), split([leaf("S")], [leaf("D")])]
    found = evaluated(work, *nodes, engine=engine).analysis.working_sets
    assert {w.einsum: w.bits for w in found if w.component == "GLB"} == {"S": 48, "D": 48}


def test_a_wave_begins_with_two_generations() -> None:
    """U[t+1] of U[t] and U[t-1]: U0 holds U[-1] and U[0]."""
    wave = {
        "name": "U",
        "operations": {"map": "2 * _0 - _1 + (_2 - 2 * _0 + _3) / 4"},
        "tensor_accesses": [
            {"name": "U", "projection": {"T": "t", "X": "x"}},
            {"name": "U", "projection": {"T": "t - 1", "X": "x"}},
            {"name": "U", "projection": {"T": "t", "X": "x - 1"}},
            {"name": "U", "projection": {"T": "t", "X": "x + 1"}},
            {"name": "U", "projection": {"T": "t + 1", "X": "x"}, "output": True},
        ],
    }
    first = np.array([START, START[::-1]])
    found = values(workload(SIZES, wave, init={"U": "U0"}, boundary={"U": 0}), "U", U0=first)
    waves = list(first)
    for _ in range(4):
        now, wave_ = waves[-1], np.zeros(6)
        around = (now[:-2] - 2 * now[1:-1] + now[2:]) / 4
        wave_[1:-1] = 2 * now[1:-1] - waves[-2][1:-1] + around
        waves.append(wave_)
    assert found.tolist() == np.array(waves).tolist()


@pytest.mark.parametrize(
    ("einsum", "first", "numbers"),
    [
        ("F[P=p+1] = F[p] + F[P=p-1]", [0, 1], [0, 1, 1, 2, 3, 5]),
        ("F[p] = F[P=p-1] + F[P=p-2]", [0, 1], [0, 1, 1, 2, 3, 5]),
        ("F[P=p+2] = F[p] + A[p]", [5, 7], [5, 7, 5, 7, 5, 7]),
        ("F[P=p+2] = F[P=p+1] + A[p]", [5, 7], [5, 7, 7, 7, 7, 7]),
    ],
)
def test_generations_before_the_first_come_from_one_tensor(
    einsum: str, first: list[int], numbers: list[int]
) -> None:
    given = {"A": np.zeros(4)} if "A" in einsum else {}
    work = workload({"P": 4}, einsum, init={"F": "F0"})
    assert values(work, "F", F0=first, **given).tolist() == numbers
    with faults("shape-mismatch", at=""):
        values(work, "F", F0=first[:1], **given)


def test_a_table_of_two_generational_ranks_begins_with_a_row_and_a_column() -> None:
    """Levenshtein's distance of two words: D[p, q] of what is left, above, and left above of it."""
    step = {
        "name": "D",
        "operations": {"map": "min(min(_0 + 1, _1 + 1), _2 + _3)"},
        "tensor_accesses": [
            {"name": "D", "projection": {"P": "p", "Q": "q + 1"}},
            {"name": "D", "projection": {"P": "p + 1", "Q": "q"}},
            {"name": "D", "projection": {"P": "p", "Q": "q"}},
            {"name": "X", "projection": ["p", "q"]},
            {"name": "D", "projection": {"P": "p + 1", "Q": "q + 1"}, "output": True},
        ],
    }
    one, two = "kitten", "sitting"
    differ = np.array([[a != b for b in two] for a in one], dtype=float)
    first = np.add.outer(np.arange(7), np.arange(8))
    work = workload({"P": 6, "Q": 7}, step, init={"D": "D0"})
    assert values(work, "D", D0=first, X=differ)[-1, -1] == 3
    nodes = [storage("DRAM", "D", "D0", "X"), loop("p", 1), loop("q", 1), leaf("D")]
    counts = [moved(evaluated(work, *nodes, engine=e), "D0") for e in ENGINES]
    assert counts == [{"DRAM": (7 + 6 + 12, 0, 0, 0)}] * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_buffer_that_nothing_fills_is_never_there(engine: str) -> None:
    """Of one generation; the loop with a first tile has peaks listed stamp by stamp."""
    einsums = ["S[P=p+1] = A[p]", "T[p] = S[p] * B[p]", "D[p] = S[p] * T[p]"]
    work = workload({"P": 1}, *einsums, init={"S": "S0"})
    first = {**loop("p", 1), "initial_tile_shape": 1}
    branches = [
        [first, storage("GLB", "S"), leaf("S")],
        [loop("p", 1), storage("GLB", "S", "T", "S0", reuse="slide"), leaf("T")],
        [storage("GLB", "S"), storage("GLB", "S0", reuse="keep_previous"), leaf("D")],
    ]
    nodes = [storage("DRAM", "A", "S", "B", "T", "S0", "D"), split(*branches)]
    found = evaluated(work, *nodes, engine=engine).analysis.working_sets
    held = {w.einsum: w.bits for w in found if (w.component, w.measure) == ("GLB", "tile")}
    assert held == {"S": 8, "T": 16, "D": 8}


@pytest.mark.parametrize("before", [0, "S0"])
def test_of_one_generation_nothing_is_read_again(before: object) -> None:
    """Z reads what is before alone, so that no generation of S is ever in its buffer."""
    work = workload(
        {"P": 1, "M": 2}, "S[P=p+1, m] = S[p, m] + A[p, m]", "Z[p, m] = S[p, m] + A[p, m]", init={"S": before}
    )
    held = ["S0"] if before else []
    below = [loop("p", 1), storage("GLB", "S", *held, reuse="slide"), leaf("Z")]
    nodes = [storage("DRAM", "S", "A", "Z", *held), split([loop("p", 1), leaf("S")], below)]
    analyses = [evaluated(work, *nodes, engine=e).analysis for e in ("enumerate", "exact", "symbolic")]
    assert not differences(analyses[1], analyses[0]) + differences(analyses[2], analyses[0])
    assert [(b.visits, b.tile_max) for b in analyses[0].buffets if b.node and b.tensor == "S"] == [(0, 0)]
    data = {"A": [[1, 2]], "S0": [5, 6]} if before else {"A": [[1, 2]]}
    assert values(work, "Z", **data).tolist() == ([[6, 8]] if before else [[1, 2]])


def test_initial_tensors_are_no_operands_of_operators_that_a_workload_defines() -> None:
    einsum = {
        "name": "S",
        "operations": {"map": "twice_and"},
        "tensor_accesses": [
            {"name": "S", "projection": ["p"]},
            {"name": "A", "projection": ["p"]},
            {"name": "S", "projection": {"P": "p + 1"}, "output": True},
        ],
    }
    defined = {"twice_and": {"form": "2 * _0 + _1"}}
    work = workload({"P": 3}, einsum, init={"S": "S0"}, operators=defined)
    assert values(work, "S", S0=1, A=[1, 2, 3]).tolist() == [1, 3, 8, 19]


def test_a_tile_of_one_step_is_not_there_in_the_step_before() -> None:
    """Elements of B are touched by E1 alone: while E0 runs they are there from the second step of a tile of
    two on, of which the last tile, with most of B, has but one."""
    accesses = {"E0": ([("A", "pm")], ("T", "pm")), "E1": ([("T", "pm"), ("B", "mf")], ("Z", "f"))}
    einsums = [
        {
            "name": name,
            "iteration_space_shape": ["f <= p + 1"] if name == "E1" else [],
            "tensor_accesses": [
                *({"name": t, "projection": list(ranks)} for t, ranks in read),
                {"name": made[0], "projection": list(made[1]), "output": True},
            ],
        }
        for name, (read, made) in accesses.items()
    ]
    work = {**workload({"P": 3, "M": 2, "F": 6}, *einsums), "bits_per_value": {"All": 1}}
    nodes = [storage("DRAM", "T", "A", "B", "Z"), loop("p", 2), storage("GLB", "T", "B"), loop("p", 1)]
    nodes.append(split([leaf("E0")], [leaf("E1")]))
    for engine in (*ENGINES, "symbolic"):
        found = evaluated(work, *nodes, engine=engine).analysis.working_sets
        held = {w.einsum: w.bits for w in found if (w.component, w.measure) == ("GLB", "tile")}
        assert held == {"E0": 4 + 6, "E1": 2 + 8}


@pytest.mark.parametrize("engine", [*ENGINES, "symbolic"])
def test_of_one_generation_none_of_several_before_is_held(engine: str) -> None:
    einsums = ["S[P=p+1, m] = S[p, m] + A[p, m]", "D[p, m] = S[p, m] + S[P=p-1, m]"]
    work = workload({"P": 1, "M": 2}, *einsums, init={"S": 0})
    below = [storage("GLB", "S", reuse="keep_previous"), leaf("D")]
    report = evaluated(work, storage("DRAM", "S", "A", "D"), split([leaf("S")], below), engine=engine)
    assert [(b.visits, b.tile_max) for b in report.analysis.buffets if b.component == "GLB"] == [(0, 0)]
    assert not [w for w in report.analysis.working_sets if w.component == "GLB"]
