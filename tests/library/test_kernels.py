"""Graph networks, scans and tensor kernels of the library: operations and parameters, dense and sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.library.figures import macs, operations, parameters


def effectual(workload: str) -> dict[str, float]:
    """Operations on what is not zero, as expected of the densities, by Einsum."""
    sparse = pm.sparsify(pm.evaluate(pm.load(workload, "edge_npu"))).compute
    return {row.einsum: float(row.effectual) for row in sparse.itertuples()}


def test_gcn_on_cora() -> None:
    cascade = pm.load("gcn").workload
    nodes, words, hidden, classes = 2708, 1433, 16, 7
    assert parameters(cascade) == {"W1": words * hidden, "W2": hidden * classes}
    assert macs(cascade) == nodes * (words * hidden + nodes * hidden + hidden * classes + nodes * classes)
    # Geng et al., "AWB-GCN", MICRO 2020, table 2: 999.7K operations in the first layer, products first
    first = effectual("gcn")
    assert first["XW1"] == pytest.approx(49216 * hidden)
    assert first["H1"] == pytest.approx(13264 * hidden)
    assert f"{(first['XW1'] + first['H1']) / 1e3:.1f}K" == "999.7K"


def test_gat_on_cora() -> None:
    cascade = pm.load("gat").workload
    whole = 1433 * 64 + 2 * 64 + 64 * 7 + 2 * 7
    assert sum(parameters(cascade).values()) == whole
    # PyTorch Geometric, the model of its example gat.py: 92,373, biases of both layers among them
    assert whole + 64 + 7 == 92_373
    found = effectual("gat")
    assert found["W1X"] == pytest.approx(49216 * 64)
    assert found["Weight1"] == pytest.approx(13264 * 8)
    assert {e.name: operations(e) for e in cascade}["Met1"] == 2708**2 * 64


def test_sampled_products() -> None:
    assert macs(pm.load("sddmm").workload) == 1024 * 1024 * 64
    assert effectual("sddmm")["Sampled"] == pytest.approx(1024 * 128 * 64)


def test_a_sweep_of_alternating_least_squares() -> None:
    """Three times every entry by every column; six Gram matrices; three products of the factors."""
    sizes, rank = {"I": 5, "J": 4, "K": 6}, 3
    cascade = pm.load("cp_als", **sizes, RANK=rank).workload
    entries, rows = 5 * 4 * 6, 5 + 4 + 6
    assert macs(cascade) == 3 * entries * rank + 2 * rows * rank**2 + rows * rank**2
    assert f"{76_879_419 / (12092 * 9184 * 28818):.1e}" == "2.4e-05"  # FROSTT: density of NELL-2


@pytest.mark.slow
def test_mamba_2_keeps_two_generations_of_a_state_on_chip() -> None:
    """Parameters are those of the release; of the states of 2048 tokens none moves to DRAM."""
    spec = pm.load("mamba_2", "simple_two_level")
    biases = 64 * (80 * 64 + 2 * 128)
    assert sum(parameters(spec.workload).values()) + biases == 2_702_599_680
    for machine, buffer, part in (("simple_two_level", "GLB", 32), ("edge_npu", "SRAM", 64)):
        found = pm.evaluate(pm.load("mamba_2", machine)).analysis
        assert [t.component for t in found.traffic if t.tensor == "State"] == [buffer, buffer]
        (held,) = (b for b in found.buffets if b.tensor == "State")
        assert held.tile_max == 2 * part * 128


def recurrence(name: str, **sizes: int) -> tuple[pm.Spec, dict[str, tuple[int, int]]]:
    """A recurrence of the library, and how much of each tensor its mapping reads and writes at DRAM."""
    spec = pm.load(name, "simple_two_level", **sizes)
    found = pm.evaluate(spec).analysis.traffic
    return spec, {t.tensor: (t.reads, t.writes) for t in found if t.component == "DRAM"}


def test_a_polynomial_by_horners_rule() -> None:
    spec, moved = recurrence("horner", P=5, M=7, TM=3)
    assert moved == {"X": (7, 0), "A": (5, 0), "Z": (0, 7)}
    a, x = np.random.default_rng(1).random((2, 7))
    assert pm.values(spec, {"A": a[:5], "X": x})["Z"] == pytest.approx(np.polyval(a[:5], x), rel=1e-12)


def test_prefix_sums_whole_and_in_chunks() -> None:
    x = np.random.default_rng(2).random((12, 2))
    spec, moved = recurrence("prefix_sum", P=12, M=2, TP=5)
    assert moved == {"X": (24, 0), "S": (0, 24)}
    assert pm.values(spec, {"X": x})["S"][1:] == pytest.approx(np.cumsum(x, axis=0), rel=1e-12)
    spec, moved = recurrence("chunked_scan", C=4, Q=3, M=2)
    assert moved == {"X": (24, 0), "S": (0, 24)}
    sums = pm.values(spec, {"X": x.reshape(4, 3, 2)})["S"]
    assert sums.reshape(12, 2) == pytest.approx(np.cumsum(x, axis=0), rel=1e-12)


def test_a_stencil_in_time() -> None:
    spec, moved = recurrence("stencil_in_time", T=4, N=6)
    assert moved == {"F": (4, 0), "Z": (0, 6)}
    source, rod = np.random.default_rng(3).random(6), np.zeros(6)
    for _ in range(4):
        rod[1:-1] += (rod[:-2] - 2 * rod[1:-1] + rod[2:]) / 4 + source[1:-1]
    assert pm.values(spec, {"F": source})["Z"] == pytest.approx(rod, rel=1e-12)
    lasting = (pm.load("stencil_in_time", "simple_two_level", T=t, N=6, ALLOCATION="live") for t in (4, 7))
    held = (b for spec in lasting for b in pm.evaluate(spec).analysis.buffets)
    # One generation, and what is still read of the one before.
    assert {b.live for b in held if b.tensor == "U"} == {6}


def test_a_wave_begins_with_two_generations() -> None:
    spec, moved = recurrence("wave_in_time", T=4, N=6)
    assert moved == {"U0": (2 * 4 + 2, 0), "Z": (0, 6)}  # ends of the earlier one are read by none
    given = np.random.default_rng(4).random((2, 6))
    before, now = given
    for _ in range(4):
        after = np.zeros(6)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + (now[:-2] - 2 * now[1:-1] + now[2:]) / 4
        before, now = now, after
    assert pm.values(spec, {"U0": given})["Z"] == pytest.approx(now, rel=1e-12)


LOADS = [7, 1, 2, 2, 1, 1, 1, 1]  # tokens of each of eight experts, of 8 tokens that choose two each


@pytest.mark.parametrize(
    ("routing", "pairs", "most"),
    [
        ({}, 16, None),
        ({"LOADS": LOADS}, 16, 7),
        ({"LOADS": LOADS, "CAPACITY": 1.25}, 12, 3),
        ({"SKEW": 1}, 16, 6),
        ({"CAPACITY": 0.5}, 8, 1),
    ],
)
def test_experts_are_routed_by_densities_and_by_data(
    routing: dict[str, Any], pairs: int, most: int | None
) -> None:
    """Choices of experts alike, skewed, and with a capacity of 1.25 equal shares, which drops four tokens."""
    sizes = {"TOKENS": 8, "WIDTH": 6, "HIDDEN": 4, "SKIP": 1, **routing}
    report = pm.evaluate(pm.load("routed_experts", "edge_npu", **sizes))
    found = pm.sparsify(report).compute.set_index("einsum")
    assert found["effectual"].tolist() == pytest.approx([pairs * 24, pairs * 4, pairs * 24, pairs * 24])
    if most is None:
        return
    assert found["busiest"]["Gate"] == most * 6  # the multiplier of one hidden value of the fullest expert
    if "LOADS" not in routing:
        return
    choice = np.where(np.arange(8)[:, None] < np.minimum(LOADS, most), 1.0, 0.0)
    data = pm.sparsify(report, {"C": pm.SparseTensor.from_dense("C", ["T", "Y"], choice)}).compute
    assert data["effectual"].tolist() == [pairs * 24, pairs * 4, pairs * 24, pairs * 24]
    assert data["busiest"].tolist() == [most * 6, most, most * 6, most * 4]


@pytest.mark.parametrize(("experts", "active"), [(8, 2), (128, 8)], ids=["Mixtral", "Qwen3"])
def test_a_table_of_shares_decides_values_and_counts(experts: int, active: int) -> None:
    """Shares of experts, drawn with a favourite, which the last tokens do not find free."""
    tokens, width, hidden, random = 12, 5, 4, np.random.default_rng(experts)
    liked = random.permutation([5.0, *[1.0] * (experts - 1)])
    table = np.zeros((tokens, experts))
    for row in table:
        row[random.choice(experts, active, replace=False, p=liked / liked.sum())] = random.dirichlet(
            [1] * active
        )
    table[8:, table.any(0).argmax()] = 0
    sizes = {"TOKENS": tokens, "EXPERTS": experts, "ACTIVE": active, "WIDTH": width, "HIDDEN": hidden}
    spec = pm.load("routed_experts", "edge_npu", SKIP=1, **sizes)
    x, gate, up, down = (
        random.normal(size=s)
        for s in ((tokens, width), *[(experts, width, hidden)] * 2, (experts, hidden, width))
    )
    want = np.zeros((tokens, width))
    for t, y in np.argwhere(table):
        a = x[t] @ gate[y]
        want[t] += table[t, y] * ((a / (1 + np.exp(-a)) * (x[t] @ up[y])) @ down[y])
    values = pm.values(spec, {"C": np.sign(table), "S": table, "X": x, "WG": gate, "WU": up, "WD": down})
    np.testing.assert_allclose(values["Z"], want, rtol=1e-12, atol=1e-14)
    sparse = {"C": pm.SparseTensor.from_dense("C", ["T", "Y"], np.sign(table))}
    done = pm.sparsify(pm.evaluate(spec), sparse).compute.set_index("einsum")
    pairs, rows = np.count_nonzero(table), -(-experts // 16)
    assert done["effectual"].tolist() == [
        pairs * width * hidden,
        pairs * hidden,
        *[pairs * width * hidden] * 2,
    ]
    fullest = np.count_nonzero(table, 0).reshape(-1, rows).sum(1).max()  # experts of one row of the array
    assert done["busiest"]["Gate"] == fullest * width
    assert done["busiest"]["Down"] == fullest * hidden


SMALL: dict[str, dict[str, int | float]] = {
    "gcn": {"NODES": 7, "WORDS": 5, "HIDDEN": 3, "CLASSES": 2, "LINKS": 19, "ENTRIES": 11},
    "gat": {"NODES": 6, "WORDS": 4, "HEADS": 2, "FEATURES": 3, "CLASSES": 2, "LINKS": 9, "ENTRIES": 7},
    "cp_als": {"I": 5, "J": 4, "K": 6, "RANK": 3},
    "routed_experts": {"TOKENS": 3, "EXPERTS": 3, "ACTIVE": 1, "WIDTH": 5, "HIDDEN": 4},
    "sddmm": {"I": 7, "J": 5, "K": 3},
    "mamba_2": {"LAYERS": 2, "WIDTH": 6, "HEADS": 3, "HEAD_WIDTH": 4, "STATE": 3, "TAPS": 2, "VOCABULARY": 4,
                "TOKENS": 3},
}  # fmt: skip


RUNS: list[dict[str, int | str]] = [{"BATCH": 2}, {"PHASE": "decode"}, {"PHASE": "decode", "BATCH": 3}]


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=str)
def test_mamba_2_for_several_sequences_and_token_by_token(run: dict[str, int | str]) -> None:
    """A token that is decoded takes what each one takes in prefill; the taps of the convolution are those of
    the tokens before it, and its own. States of all sequences are read, and written back."""
    small = SMALL["mamba_2"]
    for machine in ("edge_npu", "simple_two_level"):
        spec = pm.load("mamba_2", machine, **small, **run)
        found = pm.evaluate(spec)
        referee = pm.evaluate(spec, engine="enumerate")
        assert not differences(found.analysis, referee.analysis)
    one = {e.name: operations(e) for e in pm.load("mamba_2", **small).workload}
    here = {e.name: operations(e) for e in spec.workload}
    batch = int(run.get("BATCH", 1))
    if "PHASE" not in run:
        assert here == {name: batch * n for name, n in one.items()}
        return
    conv = {f"{x}Conv" for x in "UBC"}
    assert {n: 3 * x for n, x in here.items() if n in one and n not in conv} == {
        n: batch * x for n, x in one.items() if n not in conv
    }
    assert here["UTaps"] + here["UConv"] == 2 * batch * 2 * 3 * 4  # taps, layers, heads, their width
    rows = (t for t in found.analysis.traffic if t.component == "DRAM")
    moved = {(t.einsum, t.tensor): (t.reads, t.writes) for t in rows}
    states = batch * 3 * 4 * 3  # of one layer
    assert (moved["State", "Before"], moved["State", "State"]) == ((states, 0), (0, states))
    assert moved["Y", "State"] == (0, 0)


@pytest.mark.parametrize(
    ("workload", "machine"), [*((w, "edge_npu") for w in SMALL), ("mamba_2", "simple_two_level")]
)
@pytest.mark.thin(99)
def test_the_engines_agree_at_small_sizes(workload: str, machine: str) -> None:
    spec = pm.load(workload, machine, **SMALL[workload])
    referee = pm.evaluate(spec, engine="enumerate")
    assert not differences(pm.evaluate(spec).analysis, referee.analysis)
