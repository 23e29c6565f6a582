"""Tiles that do not divide, under a model that gives one probability for all full tiles: smaller ones are
taken never to be empty, and no others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.actions.records import AccessCount

SPEC = """
arch:
  name: tiles
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {{keep: All}}
    sparse: {{actions: [{{skip: B, on: A}}]}}
    actions:
    - {{name: read, energy: 1 pJ, throughput: 1 GB/s}}
    - {{name: write, energy: 1 pJ, throughput: 1 GB/s}}
  - !Memory
    name: Buffer
    size: inf
    tensors: {{keep: All}}
    actions:
    - {{name: read, energy: 1 pJ, throughput: 1 GB/s}}
    - {{name: write, energy: 1 pJ, throughput: 1 GB/s}}
  - !Compute
    name: MAC
    clock: 1 GHz
    actions: [{{name: compute, energy: 3 pJ, throughput: 1 Gop/s}}]
workload:
  rank_sizes: {{M: 24, K: 24, N: {n}}}
  bits_per_value: {{All: 8}}
  einsums:
  - Z[m, n] = A[m, k] * B[k, n]
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [A, B, Z]}}
  - !Temporal {{rank_variable: m, tile_shape: {rows}}}
  - !Storage {{component: Buffer, tensors: [Z]}}
  - !Temporal {{rank_variable: k, tile_shape: {columns}}}
  - !Storage {{component: Buffer, tensors: [A, B]}}
  - !Temporal {{rank_variable: m, tile_shape: 1}}
  - !Temporal {{rank_variable: k, tile_shape: 1}}
  - !Temporal {{rank_variable: n, tile_shape: 1}}
  - !Compute {{einsum: Z, component: MAC}}
"""
SIZE, N = 24, 3


def banded(seed: int) -> pm.SparseTensor:
    """A band with holes and some nonzeros elsewhere, so that many tiles are empty."""
    draw = np.random.default_rng(seed)
    away = np.abs(np.subtract.outer(np.arange(SIZE), np.arange(SIZE)))
    found = (draw.random((SIZE, SIZE)) < np.where(away < 3, 0.6, 0.01)).nonzero()
    return pm.SparseTensor("A", ("M", "K"), (SIZE, SIZE), np.array(found), np.ones(found[0].size))


def reads_of_b(data: pm.SparseTensor, rows: int, columns: int) -> tuple[int, float]:
    """Elements of B that are read for nonempty tiles, walked; and the same where full tiles have their mean
    and smaller ones are never empty."""
    dense = np.zeros((SIZE, SIZE), bool)
    dense[data.coords[0], data.coords[1]] = True
    walked, full, chances, edges = 0, 0, [], 0
    for m in range(0, SIZE, rows):
        for k in range(0, SIZE, columns):
            tile = dense[m : m + rows, k : k + columns]
            walked += N * tile.shape[1] * bool(tile.any())
            if tile.shape == (rows, columns):
                full += N * columns
                chances.append(bool(tile.any()))
            else:
                edges += N * tile.shape[1]
    return walked, full * float(np.mean(chances)) + edges


def dram_reads(sparse: pm.SparseReport) -> AccessCount:
    """The reads of B in DRAM."""
    return next(
        a for a in sparse.counts.accesses if (a.component, a.tensor, a.kind) == ("DRAM", "B", "reads_fill")
    )


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (4, 5), (5, 4), (5, 7), (3, 10)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_smaller_tiles_alone_are_never_empty(tmp_path: Path, rows: int, columns: int, seed: int) -> None:
    """Where columns of tiles differed in width, all tiles were taken never to be empty. All nonzeros are
    drawn."""
    data = banded(seed)
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.format(rows=rows, columns=columns, n=N), encoding="utf-8")
    report = pm.evaluate(pm.load(file))
    walked, expected = reads_of_b(data, rows, columns)
    sparse = pm.sparsify(report, densities={"A": pm.Sampled.from_tensor(data)})
    reads = dram_reads(sparse)
    assert reads.actual == pytest.approx(expected)
    assert walked <= expected < N * SIZE * -(-SIZE // rows)
    divide = SIZE % rows == SIZE % columns == 0
    assert reads.label == ("expected" if divide else "bound")
    assert divide or any("the smaller ones are taken never to be empty" in n for n in sparse.notes)
    exact = pm.sparsify(report, tensors={"A": data})
    assert (dram_reads(exact).actual, dram_reads(exact).label) == (walked, "exact")


def test_a_bound_on_partial_sums_has_its_note(tmp_path: Path) -> None:
    """How often a sum is read depends on which tiles are empty, as operations on zeros of A are skipped."""
    text = SPEC.format(rows=4, columns=4, n=N).replace(
        "    clock: 1 GHz\n", "    clock: 1 GHz\n    sparse: {actions: [{skip: compute, on: A}]}\n"
    )
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    sparse = pm.sparsify(pm.evaluate(pm.load(file)), densities={"A": pm.Sampled.from_tensor(banded(0))})
    bounds = [a for a in sparse.counts.accesses if a.label == "bound"]
    assert {(a.tensor, a.kind) for a in bounds} == {("Z", "reads_fill")}
    assert any("at most as many partial sums of Z are read as are written" in n for n in sparse.notes)
