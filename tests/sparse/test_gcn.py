"""docs/sparse/gcn.md: a graph network, fused and unfused; energy falls as the effectual counts say."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.documents.page import ROOT

NODES, WORDS, HIDDEN, CLASSES, LINKS, ENTRIES = 2708, 1433, 16, 7, 13264, 49216
SMALL = {"NODES": 7, "WORDS": 5, "HIDDEN": 3, "CLASSES": 2, "LINKS": 19, "ENTRIES": 11}
BITS = 32
# The graph has hubs: rows are more uneven than uniform data's.
pytestmark = pytest.mark.filterwarnings("ignore::polymodel.sparse.density.model.SparseWarning")


def network(fused: int, **sizes: float) -> pm.Report:
    """Its report under one of the two mappings of the page."""
    return pm.evaluate(pm.load(ROOT / "docs" / "sparse" / "gcn.yaml", "gcn", FUSED=fused, **sizes))


@cache
def cora(fused: int) -> pm.Report:
    """With the sizes of Cora."""
    return network(fused)


@cache
def on_data(fused: int) -> pm.SparseReport:
    """On a graph with as many links as Cora has, hubs among them, and on as many words."""
    shape, pairs = [NODES, NODES], (LINKS - NODES) // 2
    graph = pm.generate_tensor("power-law", 1, shape=shape, entries=pairs, symmetric=1)
    coords = np.concatenate([graph.coords, np.tile(np.arange(NODES), (2, 1))], axis=1)
    ones = np.ones(coords.shape[1], dtype=np.int64)
    adjacency = pm.SparseTensor.from_coo("A", "NM", (NODES, NODES), coords, ones)
    words = pm.random_tensor("MC", [NODES, WORDS], ENTRIES / (NODES * WORDS), seed=2, name="X")
    return pm.sparsify(cora(fused), tensors={"A": adjacency, "X": words})


def off_chip(report: pm.SparseReport) -> float:
    """Bits of values that DRAM reads and writes."""
    return sum(float(row.actual_bits) for row in report.accesses.itertuples() if row.component == "DRAM")


def energies(report: pm.SparseReport) -> dict[str, float]:
    """Joules by Einsum."""
    return {row.einsum: float(row.energy_J) for row in report.summary.itertuples()}


@pytest.mark.thin(99)
@pytest.mark.parametrize("fused", [0, 1])
def test_on_data_operations_are_those_of_the_nonzeros(fused: int) -> None:
    found = {row.einsum: (int(row.effectual), row.label) for row in on_data(fused).compute.itertuples()}
    assert found == {
        "XW1": (ENTRIES * HIDDEN, "exact"),
        "H1": (LINKS * HIDDEN, "exact"),
        "XW2": (NODES * HIDDEN * CLASSES, "exact"),
        "H2": (LINKS * CLASSES, "exact"),
    }


@pytest.mark.parametrize("fused", [0, 1])
def test_energy_falls_as_the_effectual_counts_say(fused: int) -> None:
    """What happens once per operation falls with the operations: they, the reads of weights and of XW1."""
    sparse = cora(fused).sparse
    assert sparse is not None
    shares = {row.einsum: float(row.effectual) / int(row.dense) for row in sparse.compute.itertuples()}
    assert shares["XW1"] == pytest.approx(ENTRIES / (NODES * WORDS))
    assert shares["H1"] == pytest.approx(LINKS / NODES**2)
    read = sparse.accesses.query("component == 'SRAM' and kind == 'reads_fill'").set_index(
        ["einsum", "tensor"]
    )
    for einsum, tensor in (("XW1", "W1"), ("H1", "XW1")):
        row = read.loc[(einsum, tensor)]
        assert float(row.actual) / int(row.dense) == pytest.approx(shares[einsum], rel=1e-6)


def test_fusing_saves_each_intermediate_its_way_out_and_back() -> None:
    saved = 2 * (2 * NODES * HIDDEN + NODES * CLASSES)
    dense = [sum(dense_off_chip(f)) for f in (0, 1)]
    assert dense[0] - dense[1] == saved * BITS
    # On data the same but for the rows of X without any word, of which nothing is written.
    assert 0 <= saved * BITS - (off_chip(on_data(0)) - off_chip(on_data(1))) <= 1e-4 * saved * BITS
    assert saved * BITS / dense[0] == pytest.approx(0.0112, rel=0.01)
    assert saved * BITS / off_chip(on_data(0)) == pytest.approx(0.64, rel=0.01)


def dense_off_chip(fused: int) -> list[int]:
    """Bits that DRAM reads and writes, as if there were no zeros."""
    rows = cora(fused).table("accesses").records()
    return [int(r["read_bits"] or 0) + int(r["write_bits"] or 0) for r in rows if r["component"] == "DRAM"]


def test_fusing_saves_a_third_of_the_energy_where_zeros_are_skipped_and_none_where_they_are_not() -> None:
    unfused, fused = cora(0), cora(1)
    assert 0 < fused.total_energy / unfused.total_energy - 1 < 0.01
    for least, one in ((0.35, (unfused.sparse, fused.sparse)), (0.36, (on_data(0), on_data(1)))):
        assert one[0] is not None
        assert one[1] is not None
        assert 1 - energies(one[1])["total"] / energies(one[0])["total"] > least


@pytest.mark.parametrize("fused", [0, 1])
def test_the_engines_agree_at_small_sizes(fused: int) -> None:
    spec = pm.load(ROOT / "docs" / "sparse" / "gcn.yaml", "gcn", FUSED=fused, **SMALL)
    referee = pm.evaluate(spec, engine="enumerate")
    assert not differences(pm.evaluate(spec).analysis, referee.analysis)
