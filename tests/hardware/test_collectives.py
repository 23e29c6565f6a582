"""What chips exchange: against formulas of the literature, and against a machine that passes single
elements."""

from __future__ import annotations

from collections import Counter
from itertools import product
from random import Random

import pytest

import polymodel as pm
from polymodel.hardware.collectives import ChipSplit, Interconnect, split_of
from polymodel.workload.einsum import Cascade


def cascade_of(einsums: list[str], **sizes: int) -> Cascade:
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"workload": workload}).workload


LAYER = [
    "Q[m, h, e] = I[m, d] * WQ[h, e, d]",
    "Z[m, g] = Q[m, h, e] * WZ[h, e, g]",
    "A[m, c] = Z[m, g] * WA[g, c]",
    "B[m, j] = A[m, c] * WB[c, j]",
]
SIZES = {"M": 4, "H": 8, "E": 3, "D": 5, "G": 16, "C": 16, "J": 16}


@pytest.mark.parametrize("chips", [1, 2, 4, 8])
@pytest.mark.parametrize("topology", ["ring", "switch", "all-to-all"])
def test_tensor_parallel_layers_move_what_the_literature_says(chips: int, topology: str) -> None:
    """Two all-reduces a layer, each of 2 (n - 1) / n of the words by chip."""
    found = split_of(cascade_of(LAYER, **SIZES), chips, ["h", "c"], whole=True).exchanges()
    if chips == 1:
        assert not found
        return
    assert [(e.tensor, e.kind) for e in found] == [("Z", "all-reduce"), ("B", "all-reduce")]
    words = 4 * 16
    link = Interconnect(topology)  # type: ignore[arg-type]  # one of the literals
    for exchange in found:
        moved = exchange.moved(chips, link)
        assert set(moved.received) == set(moved.sent) == {2 * (chips - 1) * words // chips}
        hops = 2 * (chips - 1) * words * 8
        assert moved.bit_hops == (2 * hops if topology == "switch" else hops)
        if topology == "ring" and chips > 2:  # both directions carry the same
            assert moved.busiest == hops // (2 * chips)


def test_sequence_parallel_layers_scatter_and_gather() -> None:
    """What lies between the parallel parts is split over tokens: a reduction is scattered, and gathered
    again."""
    layer = ["Z[m, g] = Q[m, h] * WZ[h, g]", "N[m, g] = Z[m, g]", "A[m, c] = N[m, g] * WA[g, c]"]
    split = split_of(cascade_of(layer, M=8, H=8, G=4, C=8), 4, ["h", "c", "m"], whole=False)
    assert split.along == {"Z": "h", "N": "m", "A": "c"}
    found = {e.tensor: e for e in split.exchanges()}
    assert {t: e.kind for t, e in found.items()} == {"Z": "reduce-scatter", "N": "all-gather"}
    for exchange in found.values():
        assert set(exchange.moved(4, Interconnect()).received) == {3 * 32 // 4}


def test_transposed_splits_exchange_all_to_all_and_windows_their_halos() -> None:
    moved = ["T[m, n] = A[m, k] * B[k, n]", "Z[n, l] = T[m, n] * C[m, l]"]
    cascade = cascade_of(moved, M=8, N=8, K=2, L=3)
    transposed = ChipSplit(cascade, 4, {"T": "m", "Z": "n"}).exchanges()
    assert [(e.tensor, e.kind) for e in transposed] == [("T", "all-to-all"), ("Z", "all-gather")]
    assert set(transposed[0].moved(4, Interconnect()).received) == {3 * 64 // 16}
    windows = ["T[x] = A[x] * B[x]", "Z[p] = T[X=p+r] * F[r]"]
    halos = split_of(cascade_of(windows, X=18, P=16, R=3), 4, ["x", "p"], whole=False).exchanges()
    assert [(e.tensor, e.kind) for e in halos] == [("T", "halo")]
    # blocks of 5 elements, 5, 5 and 3, and of 4 results, each of which needs two elements more
    assert halos[0].moved(4, Interconnect()).received == (1, 1, 2, 3)


def literal(split: ChipSplit, link: Interconnect) -> dict[str, tuple[Counter[int], Counter[int]]]:
    """Words received and sent of every tensor, one element after the other."""
    found: dict[str, tuple[Counter[int], Counter[int]]] = {}
    for einsum in split.cascade:
        tensor = einsum.outputs[0].tensor
        readers = split.cascade.consumers(tensor)
        makers: dict[tuple[int, ...], set[int]] = {}
        takers: dict[tuple[int, ...], set[int]] = {}
        for chip in range(split.chips):
            for e, writes in [(einsum, True), *((r, False) for r in readers)]:
                for point in product(*(range(a, b + 1) for a, b in e.bounds)):
                    at = dict(zip(e.rank_variables, point, strict=True))
                    block = split.block(e, chip)
                    if block is not None and not block[0] <= at[split.along[e.name]] <= block[1]:
                        continue
                    for access in e.accesses_of(tensor):
                        if access.output == writes:
                            x = tuple(
                                expr.constant + sum(c * at[v] for v, c in expr.terms)
                                for expr in access.projection
                            )
                            (makers if writes else takers).setdefault(x, set()).add(chip)
        received, sent = Counter[int](), Counter[int]()
        everyone = set(range(split.chips))
        turns: Counter[tuple[frozenset[int], frozenset[int]]] = Counter()
        whole = einsum.name not in split.along
        for x in sorted(makers):
            made = makers[x]
            need = takers.get(x, set()) if readers else everyone if split.whole else set()
            if whole or (readers and not need):
                continue
            able = sorted(made & need) or sorted(made)
            kind = (frozenset(made), frozenset(need))
            owner = able[0] if len(made) == 1 else able[turns[kind] % len(able)]
            turns[kind] += 1
            for giver in made - {owner}:
                sent[giver] += 1
                received[owner] += 1
            for taker in need - {owner}:
                sent[owner] += 1
                received[taker] += 1
        if received:
            found[tensor] = received, sent
    return found


CASCADES = [
    (["T[m, n] = A[m, k] * B[k, n]", "Z[m, l] = T[m, n] * C[n, l]"], {"M": 5, "N": 6, "K": 4, "L": 3}),
    (["T[x] = A[x] * B[x]", "Z[p] = T[X=2*p+r] * F[r]"], {"X": 12, "P": 5, "R": 3}),
    (["T[x] = A[x] * B[x]", "Z[p] = T[X=2*p] * F[p]"], {"X": 9, "P": 5}),
    (["T[m, n] = A[m, n]", "Z[m] = T[m, n] * B[n]", "Y[m, n] = T[m, n] * Z[m]"], {"M": 6, "N": 5}),
    (["K[m, e] = A[m, d] * W[e, d]", "S[q, p] = Q[q, e] * K[M=p, e]"],
     {"M": 6, "P": 6, "Q": 6, "E": 3, "D": 2}),
]  # fmt: skip


def drawn(seed: int) -> ChipSplit:
    draw = Random(seed)
    einsums, sizes = draw.choice(CASCADES)
    cascade = cascade_of(einsums, **sizes)
    along = {e.name: draw.choice(["", *e.rank_variables]) for e in cascade}
    return ChipSplit(cascade, draw.randint(1, 5), {n: v for n, v in along.items() if v}, draw.random() < 0.5)


def check(seed: int) -> None:
    split = drawn(seed)
    link = Interconnect()
    expected = literal(split, link)
    found = {e.tensor: e.moved(split.chips, link) for e in split.exchanges()}
    assert found.keys() == expected.keys(), seed
    for tensor, (received, sent) in expected.items():
        assert found[tensor].received == tuple(received[c] for c in range(split.chips)), seed
        assert found[tensor].sent == tuple(sent[c] for c in range(split.chips)), seed


def test_every_element_is_passed_on_as_counted() -> None:
    for seed in range(40):
        check(seed)


@pytest.mark.slow
def test_every_element_is_passed_on_as_counted_in_many_cascades() -> None:
    for seed in range(40, 1000):
        check(seed)


@pytest.mark.parametrize("link", [Interconnect(), Interconnect("mesh", shape=(2, 3)), Interconnect("switch")])
def test_routes_reach_every_target(link: Interconnect) -> None:
    """Links form a tree from the owner; around a ring it is the shortest."""
    for owner, targets in product(range(6), [{0, 1, 2, 3, 4, 5}, {1, 4}, {5}, {0, 2, 3}]):
        for way in link.route(owner, targets, 6):
            reached: set[object] = {owner}
            for here, there in way:
                assert here in reached
                reached.add(there)
            assert targets <= reached
            if link.topology == "ring":
                gaps = sorted(targets | {owner})
                around = zip(gaps, [*gaps[1:], gaps[0] + 6], strict=True)
                assert len(way) == 6 - max(b - a for a, b in around)


def test_wrong_links_are_told_all_at_once() -> None:
    with pytest.raises(pm.SpecError) as raised:
        Interconnect("rng", throughput=0, energy_per_bit_hop=-1)  # type: ignore[arg-type]  # that is wrong
    names = [d.path for d in raised.value.diagnostics]
    assert names == ["link.topology", "link.throughput", "link.energy_per_bit_hop"]
    with pytest.raises(pm.SpecError) as raised:
        Interconnect(throughput="nan", energy_per_bit_hop=float("inf"))
    assert len(raised.value.diagnostics) == 2
