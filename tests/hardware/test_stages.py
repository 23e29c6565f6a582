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
from polymodel.hardware.stages import StageSplit, moved_by_slot, times_inside
from polymodel.workload.einsum import Einsum, TensorAccess
from tests.faults import faults, refused
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


def elements(
    split: StageSplit, e: Einsum, access: TensorAccess, batch: int, place: int
) -> set[tuple[int, ...]]:
    """What a batch of an Einsum touches on a chip of its stage, one operation after the other."""
    block, found = split.batches.block(e, batch), set()
    assert block is not None
    along, inner = split.batches.along[e.name], split.within.get(e.name)
    width = split.width(split.stage(e))
    low, high = (block if inner == along else e.bound(inner)) if inner else (0, 0)
    each = -(-(high - low + 1) // width)
    for point in product(*(range(a, b + 1) for a, b in e.bounds)):
        at = dict(zip(e.rank_variables, point, strict=True))
        if not block[0] <= at[along] <= block[1]:
            continue
        if inner is None or width == 1 or (at[inner] - low) // each == place:
            indices = ((x.constant, x.terms) for x in access.projection)
            found.add(tuple(first + sum(c * at[v] for v, c in terms) for first, terms in indices))
    return found


Moves = Counter[tuple[Any, ...]]  # (stage, tensor, chip, other chips, whether they give) -> bits


class Pipeline:
    """The pipeline, run slot by slot with single elements. What a chip reads must have been made there in
    this batch, given to it by the chips of its stage, or sent to it before."""

    def __init__(self, split: StageSplit) -> None:
        self.split = split
        cascade = split.batches.cascade
        self.readers = {
            a.tensor: [
                (s, r, x) for s, names in enumerate(split.stages) for r in map(cascade.__getitem__, names)
                for x in r.accesses_of(a.tensor) if not x.output
            ]
            for e in cascade for a in e.outputs
        }  # fmt: skip
        self.done: set[tuple[str, tuple[int, ...]]] = set()
        self.there: set[tuple[int, str, tuple[int, ...]]] = set()
        self.turns: Counter[tuple[Any, ...]] = Counter()
        self.arriving: dict[Any, frozenset[int]] = {}

    def run(self) -> list[tuple[Moves, Moves]]:
        """Of each slot what is exchanged within stages, and what is sent behind it."""
        found = []
        for slot in range(self.split.slots):
            inside, sent = Moves(), Moves()
            for stage, names in enumerate(self.split.stages):
                if 0 <= slot - stage < self.split.batches.chips:
                    here: set[tuple[int, str, tuple[int, ...]]] = set()
                    for e in map(self.split.batches.cascade.__getitem__, names):
                        self._compute(e, stage, slot - stage, here, inside, sent)
            for (_, tensor, x), takers in self.arriving.items():
                self.there |= {(c, tensor, x) for c in takers}
            self.arriving.clear()
            found.append((inside, sent))
        return found

    def _compute(self, e: Einsum, stage: int, batch: int, here: Any, inside: Moves, sent: Moves) -> None:
        split = self.split
        places = range(split.width(stage))
        for place in places:
            for a in (a for a in e.accesses if not a.output and a.tensor in self.readers):
                for x in elements(split, e, a, batch, place):
                    at = split.chip(stage, place), a.tensor, x
                    if at not in here and at not in self.there:
                        raise Illegal
        for a in e.outputs:
            makers: dict[tuple[int, ...], set[int]] = {}
            for place in places:
                for x in elements(split, e, a, batch, place):
                    makers.setdefault(x, set()).add(split.chip(stage, place))
            for x in sorted(makers):
                if (a.tensor, x) in self.done:
                    raise Illegal
                self.done.add((a.tensor, x))
                self._pass_on(e, a.tensor, x, batch, frozenset(makers[x]), here, inside, sent)

    def _pass_on(
        self, e: Einsum, tensor: str, x: Any, batch: int, made: frozenset[int], here: Any, inside: Moves,
        sent: Moves,
    ) -> None:  # fmt: skip
        split, stage = self.split, self.split.stage(e)
        wanted = {
            (s, split.chip(s, place)) for s, r, a in self.readers[tensor] for place in range(split.width(s))
            for b in ([batch] if s == stage else range(split.batches.chips))
            if x in elements(split, r, a, b, place)
        }  # fmt: skip
        needed = frozenset(c for s, c in wanted if s == stage)
        later = frozenset(c for s, c in wanted if s != stage)
        shared = e.name in split.within and split.width(stage) > 1
        able = sorted(made & needed) or sorted(made)
        if not shared:
            able = sorted(made)
        kind = tensor, batch, made, needed, later
        owner = able[0] if shared and len(made) == 1 else able[self.turns[kind] % len(able)]
        self.turns[kind] += 1
        here |= {(c, tensor, x) for c in ({owner} if shared else made)}
        if shared and (wanted or not self.readers[tensor]):
            givers, takers = made - {owner}, needed - {owner}
            inside[stage, tensor, owner, givers, True] += 8 * bool(givers)
            inside[stage, tensor, owner, takers, False] += 8 * bool(takers)
            here |= {(c, tensor, x) for c in takers}
        if later:
            sent[stage, tensor, owner, later, False] += 8
            self.arriving[stage, tensor, x] = later


def drawn(seed: int) -> StageSplit:
    draw = Random(seed)
    einsums, sizes, variables = draw.choice(CASCADES)
    cascade = cascade_of(einsums, **sizes)
    names = [e.name for e in cascade]
    cuts = sorted(draw.sample(range(1, len(names)), draw.randint(0, len(names) - 1)))
    ends = zip([0, *cuts], [*cuts, len(names)], strict=True)
    along = {e.name: draw.choice([v for v in variables if v in e.rank_variables]) for e in cascade}
    stages = tuple(tuple(names[a:b]) for a, b in ends)
    widths = tuple(draw.randint(1, 3) for _ in stages) if seed % 3 else ()
    within = {e.name: draw.choice(["", *e.rank_variables]) for e in cascade}
    within = {name: v for name, v in within.items() if v and widths}
    return StageSplit(ChipSplit(cascade, draw.randint(1, 4), along), stages, widths, within)


def crossed(link: Interconnect, moves: Moves, chips: int) -> tuple[Counter[Any], Counter[int]]:
    """Bits by link and words received by chip of some moves."""
    bits: Counter[Any] = Counter()
    received: Counter[int] = Counter()
    for (_, _, owner, others, back), amount in moves.items():
        ways = link.route(owner, others, chips)
        for way in ways if amount else ():
            assert amount % len(ways) == 0
            links = [(b, a) for a, b in way] if back else way
            bits.update(dict.fromkeys(links, amount // len(ways)))
        received.update({owner: len(others) * amount // 8} if back else dict.fromkeys(others, amount // 8))
    return bits, received


def check(seed: int) -> bool:
    """Whether the pipeline is legal."""
    split = drawn(seed)
    try:
        expected = Pipeline(split).run()
    except Illegal:
        with refused("unsupported-recurrence"):
            split.moves()
        return False
    link = Interconnect("ring" if seed % 2 else "all-to-all", throughput=1e3)
    moves = split.moves()
    seconds = times_inside(moves[0], split, link)
    for which, by_tensor in enumerate(moves):
        _, found = moved_by_slot(by_tensor, split.chips, link)
        for slot, both in enumerate(expected):
            bits, received = crossed(link, both[which], split.chips)
            assert (slot in found) == bool(bits)
            if bits:
                assert found[slot].bits == bits
                assert dict(enumerate(found[slot].received)) == {u: received[u] for u in range(split.chips)}
    for slot, (inside, _) in enumerate(expected):
        took: Counter[int] = Counter()
        for stage, tensor in {key[:2] for key, amount in inside.items() if amount}:
            others = Moves({key: n for key, n in inside.items() if key[0] != stage})
            mine = Moves({key: n for key, n in inside.items() if key[:2] == (stage, tensor)})
            load, more = (crossed(link, some, split.chips)[0] for some in (mine, others))
            took[stage] += max(load[way] + more[way] for way in load)
        for stage in range(len(split.stages)):
            assert seconds.get((stage, slot), 0.0) == pytest.approx(took[stage] / 1e3, rel=1e-12, abs=0)
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


@pytest.mark.slow
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
    assert [sorted(piece.trees) for piece in three.pieces] == [[(0, 0), (1, 0), (2, 0)]] * 2
    whole = found[0]
    assert whole.computing == pytest.approx(
        sum(least(mlp(5), name).total_latency for name in ("A", "B")), rel=1e-12, abs=0
    )
    assert list(found.table("chips").column("batches")) == [1, 3]
    assert list(found.table("exchanges").column("collective")) == ["send", "send"]
    assert "Pipeline over 2 chips, 1, 3 batches" in repr(found)
    assert sorted(t.get_text() for t in found.plot().texts)[:2] == ["1 batch", "3 batches"]


@pytest.mark.slow
def test_the_chips_of_a_stage_share_its_batches() -> None:
    """The first stage on two chips, half of the hidden width on each: they add up what both have made parts
    of, and the second stage gets it from there."""
    einsums = (*MLP, "D[m, e] = B[m, j] * WD[j, e]")
    spec = small(einsums, {"M": 4, "G": 2, "C": 4, "J": 2, "E": 2}, S=512)
    asked: dict[str, Any] = {"split": "m", "stages": [["A", "B"], ["D"]], "batches": 2, "link": LINK}
    several = pm.distribute(spec, [2, 1], within="c", **asked)
    assert list(several.table("pieces").column("split")) == ["m then c", "m"]
    (found,) = several
    half = small(einsums[:2], {"M": 2, "G": 2, "C": 2, "J": 2}, S=512)
    last = small(einsums[2:], {"M": 2, "J": 2, "E": 2}, S=512)
    first, second = (pm.evaluate(pm.explore(s, objectives="latency").best().spec) for s in (half, last))
    added = 2 * 2 * 8 / 2 / 8e9  # of B, on each way half of what two rows have
    sent = (
        2 * 2 * 8 / 2 / 8e9
    )  # half from each chip to the last one, both neighbours of it on a ring of three
    ends = [first.total_latency + added, max(first.total_latency + added, second.total_latency)]
    assert found.slots == tuple(
        (pytest.approx(time, rel=1e-12, abs=0), pytest.approx(way, rel=1e-12, abs=0))
        for time, way in zip([*ends, second.total_latency], [sent, sent, 0.0], strict=True)
    )
    hops = 2 * (2 * 2 * 8) * (1 + 1) * 2e-12
    energy = 4 * first.total_energy + 2 * second.total_energy
    assert found.figures["energy"] == pytest.approx(energy + hops / 2 * 2, rel=1e-12, abs=0)
    assert [(e.exchange.tensor, e.exchange.kind) for e in found.exchanges] == [
        ("B", "reduce-scatter"), ("B", "send"),
    ]  # fmt: skip
    assert [sorted(p.trees) for p in found.pieces] == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (1, 0)]]
    assert (found.chips, len(found.pieces)) == (3, 2)
    both = pm.distribute(spec, 2, within=["c", "e"], **asked)[0]
    assert both.chips == 4


def test_chips_that_wait_in_a_pipeline_leak() -> None:
    leaking = small(MLP, {"M": 2, "G": 2, "C": 4, "J": 2}, S=512, leak=2e-3)
    (count,) = pm.distribute(leaking, split="m", stages=[["A"], ["B"]])
    idle = 2 * count.figures["latency"] - sum(p.latency for p in count.pieces)
    assert count.waiting == pytest.approx(2e-3 * idle, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("asked", "code", "at", "named"),
    [
        ({"stages": [["A"]]}, "unmapped-einsum", "stages", ""),
        ({"stages": [["A", "Q"], ["B"]]}, "unknown-name", "stages", "Q"),
        ({"stages": [["A"], ["A", "B"]]}, "duplicate-name", "stages", ""),
        ({"stages": [["A"], []]}, "wrong-type", "stages", ""),
        ({"stages": "A;B"}, "wrong-type", "stages", ""),
        ({"stages": [["B"], ["A"]]}, "order-violated", "stages", ""),
        ({"stages": [["A"], ["B"]], "batches": 0}, "not-a-number", "batches", ""),
        ({"stages": [["A"], ["B"]], "chips": 2}, "missing-value", "within", ""),
        ({"stages": [["A"], ["B"]], "chips": [1, 2, 1], "within": "c"}, "wrong-count", "chips", ""),
        ({"stages": [["A"], ["B"]], "chips": [0, 1]}, "not-a-number", "chips", ""),
        ({"stages": [["A"], ["B"]], "chips": 2, "within": "q"}, "out-of-range", "within", ""),
        ({"stages": [["A"], ["B"]], "chips": 2, "within": 3}, "wrong-type", "within", ""),
        ({"within": "c"}, "ineffective-argument", "within", ""),
        ({"batches": 2}, "ineffective-argument", "batches", ""),
        (
            {"stages": [["A"], ["B"]], "link": pm.Interconnect("mesh", shape=(2, 2))},
            "inconsistent-values",
            "link.shape",
            "",
        ),
    ],
)
def test_wrong_stages_say_what_to_give(asked: dict[str, Any], code: str, at: str, named: str) -> None:
    with faults(code, *named.split(), at=at):
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
