"""Pipelines over chips: what is sent equals a machine that passes single elements, slot by slot; a slot lasts
as long as its slowest stage and what is sent behind it."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import Refused
from polymodel.hardware.collectives import ChipSplit, Interconnect
from polymodel.hardware.stages import StageSplit, moved_by_slot
from polymodel.workload.einsum import Einsum, TensorAccess
from tests.hardware.small import small
from tests.hardware.test_collectives import cascade_of

LINK = pm.Interconnect("ring", throughput="8 Gb/s", energy_per_bit_hop="2 pJ")
MLP = ("A[m, c] = X[m, g] * WA[g, c]", "B[m, j] = A[m, c] * WB[c, j]")
CASCADES: list[tuple[list[str], dict[str, int], list[str]]] = [
    ([*MLP], {"M": 5, "G": 2, "C": 3, "J": 2}, ["m"]),
    # A window that reaches back: each block reads two elements of the one before.
    (["T[x] = A[x] * B[x]", "Z[p] = T[X=p+r] * F[r]"], {"X": 8, "P": 6, "R": 3}, ["x", "p"]),
    (["T[x] = A[x] * B[x]", "Z[p] = T[X=2*p] * F[p]"], {"X": 9, "P": 5}, ["x", "p"]),
    # A residual connection: T is read by two stages, or by its own and a later one.
    (["T[m, n] = A[m, n]", "Z[m] = T[m, n] * B[n]", "Y[m, n] = T[m, n] * Z[m]"], {"M": 6, "N": 3}, ["m"]),
    (["K[m, e] = A[m, d] * W[e, d]", "S[q, p] = Q[q, e] * K[M=p, e]", "U[q] = S[q, p]"],
     {"M": 4, "P": 4, "Q": 3, "E": 2, "D": 2}, ["m", "q", "p"]),
]  # fmt: skip


class Illegal(Exception):
    """A batch needs what is not there yet, or adds to what another one has made."""


def elements(split: ChipSplit, e: Einsum, access: TensorAccess, batch: int) -> set[tuple[int, ...]]:
    """What a batch of an Einsum touches, one operation after the other."""
    block, found = split.block(e, batch), set()
    assert block is not None
    for point in product(*(range(a, b + 1) for a, b in e.bounds)):
        at = dict(zip(e.rank_variables, point, strict=True))
        if block[0] <= at[split.along[e.name]] <= block[1]:
            indices = ((x.constant, x.terms) for x in access.projection)
            found.add(tuple(first + sum(c * at[v] for v, c in terms) for first, terms in indices))
    return found


def literal(split: StageSplit) -> list[Counter[tuple[int, frozenset[int]]]]:
    """Behind each slot: how many bits each chip sends to which chips. The pipeline is run slot by slot; what
    a chip reads must have been made there in this batch, or sent to it before."""
    cascade, count = split.batches.cascade, split.batches.chips
    readers = {
        a.tensor: [
            (s, r, x) for s, names in enumerate(split.stages) for r in map(cascade.__getitem__, names)
            for x in r.accesses_of(a.tensor) if not x.output
        ]
        for e in cascade for a in e.outputs
    }  # fmt: skip
    done: set[tuple[str, tuple[int, ...]]] = set()
    there: set[tuple[int, str, tuple[int, ...]]] = set()
    sent = []
    for slot in range(split.slots):
        now: Counter[tuple[int, frozenset[int]]] = Counter()
        arriving = []
        for s, names in enumerate(split.stages):
            batch = slot - s
            if not 0 <= batch < count:
                continue
            mine: set[tuple[str, tuple[int, ...]]] = set()
            for e in map(cascade.__getitem__, names):
                for a in (a for a in e.accesses if not a.output and a.tensor in readers):
                    for x in elements(split.batches, e, a, batch):
                        if (a.tensor, x) not in mine and (s, a.tensor, x) not in there:
                            raise Illegal
                for a in e.outputs:
                    for x in elements(split.batches, e, a, batch):
                        if (a.tensor, x) in done:
                            raise Illegal
                        mine.add((a.tensor, x))
            for tensor, x in mine:
                takers = frozenset(
                    u for u, r, a in readers[tensor] if u != s
                    for b in range(count) if x in elements(split.batches, r, a, b)
                )  # fmt: skip
                if takers:
                    now[s, takers] += 8
                    arriving += [(u, tensor, x) for u in takers]
            done |= mine
        there.update(arriving)
        sent.append(now)
    return sent


def drawn(seed: int) -> StageSplit:
    draw = Random(seed)
    einsums, sizes, variables = draw.choice(CASCADES)
    cascade = cascade_of(einsums, **sizes)
    names = [e.name for e in cascade]
    cuts = sorted(draw.sample(range(1, len(names)), draw.randint(0, len(names) - 1)))
    ends = zip([0, *cuts], [*cuts, len(names)], strict=True)
    along = {e.name: draw.choice([v for v in variables if v in e.rank_variables]) for e in cascade}
    return StageSplit(
        ChipSplit(cascade, draw.randint(1, 4), along), tuple(tuple(names[a:b]) for a, b in ends)
    )


def check(seed: int) -> bool:
    """Whether the pipeline is legal."""
    split = drawn(seed)
    try:
        expected = literal(split)
    except Illegal:
        with pytest.raises(Refused, match="batch"):
            split.sends()
        return False
    link = Interconnect("ring" if seed % 2 else "all-to-all")
    _, found = moved_by_slot(split.sends(), split.chips, link)
    for slot, sent in enumerate(expected):
        bits: Counter[Any] = Counter()
        received: Counter[int] = Counter()
        for (owner, takers), amount in sent.items():
            ways = link.route(owner, takers, split.chips)
            for way in ways:
                assert amount % len(ways) == 0
                bits.update(dict.fromkeys(way, amount // len(ways)))
            received.update(dict.fromkeys(takers, amount // 8))
        assert (slot in found) == bool(sent)
        if sent:
            assert found[slot].bits == bits
            assert dict(enumerate(found[slot].received)) == {u: received[u] for u in range(split.chips)}
    return True


def test_what_is_sent_equals_a_machine_that_passes_elements() -> None:
    legal = [check(seed) for seed in range(12)]
    assert any(legal)
    assert not all(legal)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 400))
def test_more_pipelines_equal_a_machine_that_passes_elements(seed: int) -> None:
    check(seed)


def mlp(m: int) -> pm.Spec:
    return small(MLP, {"M": m, "G": 2, "C": 4, "J": 2}, S=512)


def least(spec: pm.Spec, name: str) -> pm.Report:
    return pm.evaluate(pm.explore(spec.only(name), objectives="latency").best().spec)


def test_slots_last_as_long_as_their_slowest_stage() -> None:
    """Five rows in batches of 2, 2 and 1 through two products on two chips."""
    found = pm.distribute(mlp(5), split="m", stages=[["A"], ["B"]], batches=[1, 3], link=LINK)
    three = found[1]
    a, b = ({m: least(mlp(m), name) for m in (1, 2)} for name in ("A", "B"))
    times = [[e[m].total_latency for m in (2, 2, 1)] for e in (a, b)]
    slots = [times[0][0], *(max(x, y) for x, y in zip(times[0][1:], times[1], strict=False)), times[1][2]]
    sent = [n * 4 * 8 / 8e9 for n in (2, 2, 1)]  # of A, four columns; B stays where it is made
    assert three.slots == tuple(
        (pytest.approx(time, rel=1e-12, abs=0), pytest.approx(way, rel=1e-12, abs=0))
        for time, way in zip(slots, [*sent, 0.0], strict=True)
    )
    assert three.figures["latency"] == pytest.approx(sum(slots) + sum(sent), rel=1e-12, abs=0)
    energy = sum(e[m].total_energy for e in (a, b) for m in (2, 2, 1)) + 5 * 4 * 8 * 2e-12
    assert three.figures["energy"] == pytest.approx(energy, rel=1e-12, abs=0)
    assert (three.chips, three.batches, three.received) == (2, 3, 20)
    assert [sorted(piece.trees) for piece in three.pieces] == [[0, 1, 2]] * 2
    whole = found[0]
    assert whole.computing == pytest.approx(
        sum(least(mlp(5), name).total_latency for name in ("A", "B")), rel=1e-12, abs=0
    )
    assert list(found.table("chips").column("batches")) == [1, 3]
    assert list(found.table("exchanges").column("collective")) == ["send", "send"]
    assert "Pipeline over 2 chips, 1, 3 batches" in repr(found)
    assert sorted(t.get_text() for t in found.plot().texts)[:2] == ["1 batch", "3 batches"]


def test_chips_that_wait_in_a_pipeline_leak() -> None:
    leaking = small(MLP, {"M": 2, "G": 2, "C": 4, "J": 2}, S=512, leak=2e-3)
    (count,) = pm.distribute(leaking, split="m", stages=[["A"], ["B"]])
    idle = 2 * count.figures["latency"] - sum(p.latency for p in count.pieces)
    assert count.waiting == pytest.approx(2e-3 * idle, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"stages": [["A"]]}, "no stage has B"),
        ({"stages": [["A", "Q"], ["B"]]}, "unknown Einsum Q"),
        ({"stages": [["A"], ["A", "B"]]}, "Einsum A is named twice"),
        ({"stages": [["A"], []]}, "a stage has no Einsums"),
        ({"stages": "A;B"}, "'A;B' are not stages"),
        ({"stages": [["B"], ["A"]]}, "B of stage 0 reads A, which stage 1 makes"),
        ({"stages": [["A"], ["B"]], "batches": 0}, "0 are not numbers of batches"),
        ({"stages": [["A"], ["B"]], "chips": 2}, "the number of chips is that of the stages"),
        ({"batches": 2}, "batches pass through the stages of a pipeline"),
        ({"stages": [["A"], ["B"]], "link": pm.Interconnect("mesh", shape=(2, 2))}, "has 4 chips"),
    ],
)
def test_wrong_stages_say_what_to_give(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(pm.SpecError, match=message):
        pm.distribute(mlp(2), split="m", **asked)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (["c"], "several batches add to the same elements of B"),
        (["g"], "B has no rank variable of the batches"),
        (["g", "c"], "several batches add to the same elements of A"),
    ],
)
def test_batches_that_depend_on_each_other_are_refused(split: list[str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        pm.distribute(mlp(2), split=split, stages=[["A"], ["B"]], batches=2)
