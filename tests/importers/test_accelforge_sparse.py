"""Formats, gating and skipping of AccelForge's machines."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from tests.importers.test_accelforge import imported, refused

SPARSE = """\
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {keep: All}
    separate_read_write_ports: True
    actions: [{name: read, energy: 1}, {name: write, energy: 1}, {name: metadata_read, energy: 3}]
    representation_format:
    - {name: A, format: bitmask, metadata_word_bits: 1, metadata_storage_width: 28, uop_payload_word_bits: 0}
    action_optimization: [{kind: gating, target: A, condition_on: [B]}, {kind: position-skipping, target: B}]
  - !Compute
    name: MAC
    actions: [{name: first, op_kind: add, energy: 3}, {name: max, energy: 2}]
sparse_optimizations:
  targets:
  - target: DRAM
    representation_format:
    - name: B
      ranks:
      - {format: UOP, payload_word_bits: 5, flattened_rank_ids: [[K, N]]}
      - {format: RLE, metadata_word_bits: 5, flattened_rank_ids: [[K, N]]}
  - {target: MAC, compute_optimization: [{kind: skipping, target: Z, condition_on: [A, B]}]}
workload:
  rank_sizes: {M: 8, N: 8, K: 8}
  bits_per_value: {All: 8}
  einsums:
  - name: Z
    tensor_accesses:
    - {name: A, projection: [m, k], density: 0.25}
    - {name: B, projection: [k, n], density: 0.5}
    - {name: Z, projection: [m, n], output: True}
    map_op: add
    reduce_op: max
"""


def test_formats_gating_and_skipping(tmp_path: Path) -> None:
    found = imported(tmp_path, SPARSE)
    memory, unit = found.spec.raw_arch.nodes  # type: ignore[union-attr]  # there is one
    formats = memory.sparse.format
    assert formats["A"]["K"] == {"format": "B", "cbits": 1}
    assert formats["B"] == {"rank-order": ["K", "N"], "K": {"format": "U", "pbits": 0},
                            "N": {"format": "RLE", "rbits": 5}}  # fmt: skip
    assert [(a.gate, a.skip, a.on) for a in memory.sparse.actions] == [
        (("A",), (), ("B",)),
        ((), ("B",), ("B",)),
    ]
    assert [(a.skip, a.on) for a in unit.sparse.actions] == [(("compute",), ("A", "B"))]
    assert memory.ports == "separate"
    assert {a.name for a in unit.actions} == {"add", "max"}
    assert dict(found.spec.workload["Z"].operations) == {"map": "add", "reduce": "max"}
    odd = SPARSE.replace("format: bitmask", "format: spiral")
    assert "`representation_format` is not converted: the format spiral is not known" in refused(
        tmp_path, odd
    )
    wrong = SPARSE.replace("kind: gating", "kind: waiting")
    assert "waiting is not an optimization" in refused(tmp_path, wrong)


def test_the_products_of_sparseloops_first_figure() -> None:
    """Z[m, n] = A[m, k] B[n, k] of 128 x 128 x 128, 13 of 128 values nonzero, as coordinate lists. Sparseloop
    prints these reads, writes and products; beside them it writes 16,384 sums before their first addition."""
    lists = [{"name": t, "format": "coord_list", "metadata_word_bits": 14} for t in "AB"]
    skips = [{"kind": "skipping", "target": a, "condition_on": [b]} for a, b in ("AB", "BA")]
    priced = [{"name": n, "energy": 1} for n in ("read", "write")]
    memory = {"type": "Memory", "size": "inf", "tensors": {"keep": "All"}, "actions": priced}
    product = {"kind": "skipping", "target": "Z", "condition_on": ["A", "B"]}
    nodes = [
        {**memory, "name": "Backing", "representation_format": lists},
        {**memory, "name": "Buffer", "representation_format": lists, "action_optimization": skips},
        {**memory, "name": "Reg", "action_optimization": [product]},
        {"type": "Compute", "name": "MAC", "compute_optimization": [product],
         "actions": [{"name": "compute", "energy": 1, "throughput": 1}]},
    ]  # fmt: skip
    accesses = [
        *({"name": t, "projection": [v, "k"], "density": 13 / 128} for t, v in ("Am", "Bn")),
        {"name": "Z", "projection": ["m", "n"], "output": True},
    ]
    workload = {"rank_sizes": dict.fromkeys("MNK", 128), "bits_per_value": {"All": 8},
                "einsums": [{"name": "E", "tensor_accesses": accesses}]}  # fmt: skip
    order = [("Backing", "ABZ"), "n", ("Buffer", "B"), "m", ("Buffer", "A"), ("Reg", "Z"), "k"]
    tree = [
        {"type": "Temporal", "rank_variable": x, "tile_shape": 1} if isinstance(x, str)
        else {"type": "Storage", "component": x[0], "tensors": list(x[1])}
        for x in order
    ] + [{"type": "Compute", "einsum": "E", "component": "MAC"}]  # fmt: skip
    given = {"arch": {"nodes": nodes}, "workload": workload, "mapping": {"nodes": tree}}
    found = pm.import_accelforge(given)
    assert any("Reg need not keep A, B" in d.message for d in found.notes)
    sparse = pm.evaluate(found.spec).sparse
    rows = sparse.accesses.itertuples()
    moved = {(r.component, r.tensor, r.kind): r.actual for r in rows}
    assert moved["Buffer", "A", "reads_fill"] == moved["Buffer", "B", "reads_fill"] == pytest.approx(21_632)
    assert moved["Buffer", "A", "writes_fill"] == pytest.approx(212_992)
    assert moved["Buffer", "B", "writes_fill"] == pytest.approx(1_664)
    assert moved["Reg", "Z", "writes_drain"] == pytest.approx(21_632)
    assert float(sparse.compute["effectual"].sum()) == pytest.approx(21_632)
