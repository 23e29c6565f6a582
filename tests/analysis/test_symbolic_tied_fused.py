"""Closed forms of fused Einsums over masks and bands, under every policy: equal to exact and to the walk."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.schedule.legality import faults_of
from tests.analysis.test_agreement import REFEREE, differences
from tests.analysis.test_symbolic_tied import access, problem
from tests.support.small_specs import leaf, loop, memory, split, storage, unit

SEED = 26
Nodes = list[dict[str, Any]]
POLICIES = ("refill", "refill", "slide", "keep_previous")
SHAPES = ("n <= m", "m <= n", "n <= m and m - n <= 2", "n <= m + 1")
# Einsum -> its accesses, the output last.
ATTENTION = {
    "S": (("Q", "bme"), ("K", "bne"), ("S", "bmn")),
    "P": (("S", "bmn"), ("P", "bmn")),
    "O": (("P", "bmn"), ("V", "bnf"), ("O", "bmf")),
}


def einsums(shape: str, names: Sequence[str] = tuple(ATTENTION)) -> Nodes:
    """The parts of attention within a mask or a band."""
    return [
        {
            "name": e,
            "iteration_space_shape": shape,
            "tensor_accesses": [access(t, list(ranks), t == e) for t, ranks in ATTENTION[e]],
        }
        for e in names
    ]


def attention(
    sizes: dict[str, int], shape: str, mapping: Nodes, names: Sequence[str] = tuple(ATTENTION), **symbols: int
) -> pm.Spec:
    """Attention on two memories and a register file."""
    machine = [memory("DRAM", 1e-10), memory("GLB", 1e-12), memory("RF", 1e-13), unit()]
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": machine},
            "workload": {
                "rank_sizes": {"B": 1, "E": 2, "F": 2, **sizes},
                "bits_per_value": {"All": 8},
                "einsums": einsums(shape, names),
            },
            "mapping": {"nodes": mapping},
            "symbols": symbols,
        }
    )


def _loops(random: Random, room: dict[str, int], most: int) -> Nodes:
    found = []
    for _ in range(random.randint(0, most)):
        v = random.choice([v for v, n in room.items() if n] or ["m"])
        first = {}
        tile = random.randint(1, room[v])
        if random.random() < 0.15 and tile < room[v]:
            first = {"initial_tile_shape": random.randint(1, room[v])}
        room[v] = max(tile, *first.values()) if first else tile
        found.append(loop(v, tile, **first))
    return found


def drawn(random: Random) -> pm.Spec | None:
    """Attention fused over some loops, tensors stored anywhere; None where the mapping is illegal."""
    sizes = {"B": random.choice([1, 1, 2]), "M": random.randint(1, 6), "N": random.randint(1, 6)}
    names = random.choice([tuple(ATTENTION), ("S", "P"), ("P", "O")])
    every = dict.fromkeys(t for e in names for t, _ in ATTENTION[e])
    shared = {t for t in every if sum(any(t == x for x, _ in ATTENTION[e]) for e in names) > 1}
    room = {"b": sizes["B"], "m": sizes["M"], "n": sizes["N"]}
    outer = _loops(random, room, 4)
    backing = [t for t in every if t not in shared]
    nodes: Nodes = [storage("DRAM", *backing)]
    places: dict[int, Nodes] = {}
    for t in every:
        if t in shared or random.random() < 0.7:
            place = random.randint(0, len(outer))
            policy = "refill" if t in shared and random.random() < 0.7 else random.choice(POLICIES)
            places.setdefault(place, []).append(storage("GLB", t, reuse=policy))
    for place in range(len(outer) + 1):
        nodes += places.get(place, []) + outer[place : place + 1]
    branches = []
    for e in names:
        own = [
            storage("RF", t, reuse=random.choice(POLICIES)) for t, _ in ATTENTION[e] if random.random() < 0.3
        ]
        branches.append([*_loops(random, dict(room), 2), *own, leaf(e)])
    try:
        spec = attention(sizes, random.choice(SHAPES), [*nodes, split(*branches)], names)
        return None if faults_of(problem(spec)) else spec
    except pm.SpecError:
        return None


def agree(seed: int, count: int) -> Counter[str]:
    """How many of `count` drawn specs were compared, and why others were not."""
    random, found = Random(seed), Counter[str]()
    for _ in range(count):
        spec = drawn(random)
        if spec is None:
            found["illegal"] += 1
            continue
        try:
            ours = SYMBOLIC.analyse(problem(spec))
        except pm.NotSeparable as refusal:
            found[refusal.message] += 1
            continue
        said = f"{spec.workload}\n{spec.mapping}"
        assert not differences(ours, EXACT.analyse(problem(spec))), said
        assert not differences(ours, REFEREE.analyse(problem(spec))), said
        found["compared"] += 1
    return found


@pytest.mark.slow
def test_closed_forms_equal_exact_and_the_walk() -> None:
    assert agree(SEED, 20)["compared"] >= 4


@pytest.mark.slow
def test_closed_forms_equal_exact_and_the_walk_at_length() -> None:
    assert agree(SEED + 1, 600)["compared"] >= 200


def flash(outer: str, inner: str, reuse: str) -> pm.Spec:
    """Causal FlashAttention: what the outer loop indexes stays in GLB, the rest goes through it."""
    kept = [t for t in ("Q", "K", "V", "O") if outer in ("m" if t in "QO" else "n")]
    passing = [t for t in ("Q", "K", "V", "O") if t not in kept]
    nodes = [
        storage("DRAM", "Q", "K", "V", "O"),
        loop(outer, f"T{outer}"),
        storage("GLB", *kept),
        loop(inner, f"T{inner}"),
        storage("GLB", *passing, reuse=reuse),
        storage("GLB", "S", "P"),
        split([leaf("S")], [leaf("P")], [leaf("O")]),
    ]
    return attention({"M": 12, "N": 12}, "n <= m", nodes, Tm=1, Tn=1)


@pytest.mark.slow
@pytest.mark.parametrize(("order", "reuse"), [("mn", "refill"), ("nm", "slide"), ("mn", "keep_previous")])
def test_every_point_of_a_sweep_is_what_evaluate_finds(order: str, reuse: str) -> None:
    spec = flash(*order, reuse)
    swept = pm.sweep(spec, {"Tm": [1, 2, 3, 5, 12], "Tn": [1, 2, 4, 12]}, keep="all")
    assert not any("one by one" in note for note in swept.notes)
    for row in swept.frame.sample(4, random_state=1).to_dict("records"):
        report = pm.evaluate(spec.bind(Tm=row["Tm"], Tn=row["Tn"]), engine="exact")
        assert row["energy"] == pytest.approx(report.total_energy, rel=1e-12)
        assert row["latency"] == pytest.approx(report.total_latency, rel=1e-12)
        peaks = report.working_sets.query("measure == 'tile'").groupby("component")["bits"].max()
        assert {c: row[f"working_set:{c}"] for c in peaks.index} == peaks.to_dict()


def test_formulas_become_numbers() -> None:
    spec = flash("m", "n", "slide")
    forms = pm.closed_forms(spec)
    assert "kept_within_12x12" in str(forms.accesses["fill_elements"].tolist())
    numbers = forms.at(Tm=5, Tn=4)
    exact = pm.evaluate(spec.bind(Tm=5, Tn=4), engine="exact")
    assert numbers.accesses["fill_elements"].tolist() == exact.accesses["fill_elements"].tolist()
    fills = forms.accesses["fill_elements"].tolist()
    assert pickle.loads(pickle.dumps(fills)) == fills


def test_what_executes_at_the_first_step_alone_needs_its_inputs_no_longer() -> None:
    """S has no variable of the loop over e: it is made whole at the first step, after which Q is not needed,
    whatever the tile size."""
    nodes = [
        storage("DRAM", "X", "V", "Y", "U", "O"), storage("RF", "S"), storage("GLB", "Q"),
        split([leaf("Q")], [loop("e", 1), split([leaf("S")], [leaf("O")])]),
    ]  # fmt: skip
    nodes[-1]["nodes"][1]["nodes"][0]["tile_shape"] = "TE"
    einsums = ["Q[m, n] = X[m, k] * V[k, n]", "S[m, l] = Q[m, n] * Y[l, n]", "O[m, e] = S[m, l] * U[l, e]"]
    spec = pm.load(
        {
            "arch": {"nodes": [memory("DRAM", 1e-10), memory("GLB", 1e-12), memory("RF", 1e-13), unit()]},
            "workload": {
                "rank_sizes": {"M": 3, "K": 1, "N": 2, "L": 3, "E": 3},
                "bits_per_value": {"All": 8},
                "iteration_space_shape": {"l": "m - 1 <= l <= m + 1"},
                "einsums": einsums,
            },
            "mapping": {"nodes": nodes},
            "symbols": {"TE": None},
        }
    )
    forms = pm.closed_forms(spec)
    for tile in (1, 2, 3):
        referee = REFEREE.analyse(problem(spec.bind(TE=tile)))
        assert not differences(forms.analysis.at({"TE": tile}), referee)
        held = {(w.component, w.einsum) for w in referee.working_sets if w.measure == "tile"}
        assert {e for c, e in held if c == "GLB"} == {"Q", "S"}
