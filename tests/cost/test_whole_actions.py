"""Transfers that take whole actions, from the spec to the report: worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm


def memory(
    name: str, bits: int | str, read: tuple[float, float], write: tuple[float, float]
) -> dict[str, Any]:
    """(energy per action, bits per second) each way."""
    return {
        "type": "Memory",
        "name": name,
        "size": "inf",
        "tensors": {"keep": "All"},
        "actions": [
            {"name": way, "energy": energy, "throughput": rate, "bits_per_action": bits}
            for way, (energy, rate) in (("read", read), ("write", write))
        ],
    }


def product_of_vectors(
    tile: int | str = 4,
    bits: int | str = 16,
    einsum: str = "Z[m] = A[m] * B[m]",
    reuse: str = "refill",
    **symbols: int,
) -> pm.Spec:
    """Z[m] = A[m] * B[m], m < 10, 6-bit values, through GLB in tiles of 4, 4 and 2."""
    return pm.load(
        {
            "schema_version": 1,
            "symbols": symbols,
            "arch": {
                "nodes": [
                    memory("DRAM", bits, (2.0, 8.0), (3.0, 16.0)),
                    memory("GLB", 10, (1.0, 40.0), (1.0, 20.0)),
                    {
                        "type": "Compute",
                        "name": "MAC",
                        "actions": [{"name": "compute", "energy": 0.5, "throughput": 1.0}],
                    },
                ]
            },
            "workload": {
                "rank_sizes": {"M": 10, "K": 3} if "k" in einsum else {"M": 10},
                "bits_per_value": {"All": 6},
                "einsums": [einsum],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": tile},
                    {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "Z"], "reuse": reuse},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": 1},
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )


@pytest.mark.parametrize("engine", ["auto", "exact", "enumerate"])
def test_tiles_of_24_24_and_12_bits(engine: str) -> None:
    """DRAM: 2 + 2 + 1 actions of 16 bits each way. GLB: 3 + 3 + 2 of 10 bits, for compute one per value."""
    report = pm.evaluate(product_of_vectors(), engine=engine)
    counts = {(i.component, i.tensor, i.action): (i.count, i.unit) for i in report.costs.energy}
    assert counts == {
        ("DRAM", "A", "read"): (5, "action"),
        ("DRAM", "B", "read"): (5, "action"),
        ("DRAM", "Z", "write"): (5, "action"),
        ("GLB", "A", "read"): (10, "action"),
        ("GLB", "B", "read"): (10, "action"),
        ("GLB", "Z", "read"): (8, "action"),
        ("GLB", "A", "write"): (8, "action"),
        ("GLB", "B", "write"): (8, "action"),
        ("GLB", "Z", "write"): (10, "action"),
        ("MAC", "", "compute"): (10, "operation"),
    }
    assert report.costs.total_energy == 10 * 2 + 5 * 3 + 28 + 26 + 5
    times = {t.component: (t.read_bits, t.write_bits, t.seconds) for t in report.costs.times}
    assert times["DRAM"] == (160, 80, 160 / 8 + 80 / 16)
    assert times["GLB"] == (280, 260, 280 / 40 + 260 / 20)
    assert report.costs.total_latency == 25
    sizes = {(t.component, t.tensor, t.kind): t.sizes for t in report.analysis.transfers}
    assert sizes["DRAM", "A", "reads_fill"] == sizes["GLB", "Z", "reads_drain"] == ((2, 1), (4, 2))


def test_the_engine_of_closed_forms_is_refused_since_it_gives_no_sizes() -> None:
    with pytest.raises(pm.NotSeparable) as refusal:
        pm.evaluate(product_of_vectors(), engine="symbolic")
    assert str(refusal.value) == (
        "DRAM, A: read moves 16 bits per action, which does not divide 6 bits per value, and the sizes of "
        "transfers have no closed form\n"
        "  remedy: use engine exact, or give bits_per_action that divide bits_per_value"
    )


def test_a_sweep_by_closed_forms() -> None:
    spec = product_of_vectors("TM", TM=4)
    found = pm.sweep(spec, {"TM": range(1, 11)}, keep="all")
    assert len(found.frame) == 10
    for _, row in found.frame.iterrows():
        report = pm.evaluate(spec, symbols={"TM": int(row["TM"])})
        assert row["energy"] == report.costs.total_energy
        assert row["latency"] == report.costs.total_latency
    # Tiles of 8 and 2 fill as many actions at DRAM as 16-bit words hold the vector: the least there is.
    assert min(found.frame["energy"]) == found.frame.set_index("TM")["energy"][10]
    assert not found.notes


def test_compiled_points_and_their_slopes() -> None:
    """Slopes take whole actions for quotients, as they do numbers of tiles."""
    spec = product_of_vectors("TM", TM=4)
    compiled = pm.compile(spec)
    frame = compiled({"TM": [1, 3, 4, 10]})
    for tm, joules in zip(frame["TM"], frame["energy"], strict=True):
        assert joules == pm.evaluate(spec.bind(TM=int(tm))).costs.total_energy
    assert not compiled.notes
    assert compiled.gradient({"TM": [3.0]})["TM"].tolist() == pytest.approx([0.0], abs=1e-9)


def test_formulas_of_whole_actions() -> None:
    """10 values of 6 bits in tiles of TM: full ones and what is left."""
    forms = pm.closed_forms(product_of_vectors("TM", TM=4))
    rows = {(r.component, r.tensor, r.kind): r.actions for r in forms.analysis.whole}
    count = rows["DRAM", "A", "reads_fill"]
    assert [count.at({"TM": tm}) for tm in (1, 3, 4, 10)] == [10, 7, 5, 4]
    energy = forms.value("energy")
    for tm in (1, 3, 4, 10):
        exact = pm.evaluate(product_of_vectors("TM", TM=tm)).costs.total_energy
        assert float(energy.subs(forms.symbols["TM"], tm)) == pytest.approx(exact, rel=1e-12)


def test_architectures_with_other_actions_share_no_forms() -> None:
    spec = product_of_vectors("TM", bits="WIDTH", TM=4, WIDTH=16)
    found = pm.sweep(spec, {"TM": [3, 4], "WIDTH": [6, 16, 20]}, keep="all")
    assert len(found.frame) == 6
    for _, row in found.frame.iterrows():
        report = pm.evaluate(spec.bind(TM=int(row["TM"]), WIDTH=int(row["WIDTH"])))
        assert (row["energy"], row["latency"]) == (report.costs.total_energy, report.costs.total_latency)
    assert any("architectures differ in which transfers are rounded up" in n for n in found.notes)


@pytest.mark.parametrize(
    ("einsum", "reuse", "said"),
    [
        (
            "Z[m] = A[W=m+k] * B[k]",
            "refill",
            "A in Z between DRAM and GLB are rounded up, and tiles are windows",
        ),
        (
            "Z[m] = A[m] * B[m]",
            "slide",
            "A in Z between DRAM and GLB are rounded up, and parts of tiles stay",
        ),
    ],
)
def test_what_is_moved_in_other_pieces_is_refused_by_name(einsum: str, reuse: str, said: str) -> None:
    with pytest.raises(pm.NotSeparable, match=said):
        pm.closed_forms(product_of_vectors("TM", einsum=einsum, reuse=reuse, TM=4))
