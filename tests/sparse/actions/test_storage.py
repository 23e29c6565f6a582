"""Metadata and footprints of tiles against the bits of each tile by itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy, SparseRules
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.sparse.actions.capacity import capacity_checks
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.actions.records import AccessCount, TileFootprint
from polymodel.sparse.density import Actual, RankNnz, Uniform
from polymodel.sparse.formats import Widths, footprint, parse_format
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.actions.small import hierarchy, product_of

SIZES = {"m": 5, "k": 4, "n": 2}
FORMATS = ["COO", "CSR", ["U", "CP"], ["CP", "B"], ["CP", "RLE"], ["CP", "U"], ["UOP", "CP"], "CSC"]


def problem_of(format: object) -> Problem:
    """Tiles of A in GLB are 2 x 3, smaller at the edges; each is brought twice, for halves of n."""
    every = ("A", "B", "Z")
    nodes = (
        StorageNode("DRAM", every), Loop("n", 1), Loop("m", 2), Loop("k", 3), StorageNode("GLB", ("A",)),
        Loop("m", 1), Loop("k", 1), ComputeNode("Z", "MAC"),
    )  # fmt: skip
    machine = hierarchy({})
    components = tuple(
        replace(c, sparse=SparseRules((("A", format),)) if c.kind == "memory" else None)
        for c in machine.components
    )
    return Problem(product_of({"A": ("m", "k"), "B": ("k", "n"), "Z": ("m", "n")}, SIZES),
                   Hierarchy(components), LoopTree(nodes))  # fmt: skip


def tile_bits(dense: np.ndarray, format: object) -> list[tuple[int, int]]:
    """(payload, all bits) of each nonempty tile, cut out and stored by itself."""
    found = []
    for m, k in product(range(0, 5, 2), range(0, 4, 3)):
        part = SparseTensor.from_dense("A", ("R0", "R1"), dense[m : m + 2, k : k + 3])
        if part.nnz:
            bits = footprint(part, parse_format(format, part.ranks, Widths(8, None, 32)))
            found.append((int(bits.payload), int(bits.total)))
    return found


def of(counts, kind: str, component: str) -> AccessCount:
    return next(a for a in counts.accesses if (a.component, a.tensor, a.kind) == (component, "A", kind))


def glb(counts) -> TileFootprint:
    return next(f for f in counts.footprints if f.component == "GLB")


def counted(format: object, data: TensorData):
    problem = problem_of(format)
    return sparse_counts(
        problem, ENGINE.analyse(problem), {"A": data, "B": dense_data("B"), "Z": dense_data("Z")}
    )


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_given_data_move_with_the_bits_of_their_tiles(format: object, seed: int) -> None:
    dense = (np.random.default_rng(seed).random((5, 4)) < 0.3).astype(int)
    tensor = SparseTensor.from_dense("A", ("R0", "R1"), dense)
    counts = counted(format, TensorData("A", Actual.of(tensor), tensor))
    tiles = tile_bits(dense, format)
    fill = of(counts, "reads_fill", "DRAM")
    assert fill.actual * 8 + fill.metadata_bits == pytest.approx(2 * sum(total for _, total in tiles))
    assert (fill.label, fill.metadata_label) == ("exact", "exact")
    write = of(counts, "writes_fill", "GLB")
    assert (write.actual, write.metadata_bits) == (fill.actual, fill.metadata_bits)
    read = of(counts, "reads_fill", "GLB")
    assert read.actual * 8 + read.metadata_bits == pytest.approx(2 * sum(total for _, total in tiles))
    assert glb(counts).bits == max(total for _, total in tiles)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_densities_move_the_mean_over_all_placements(format: object) -> None:
    points = list(product(range(5), range(4)))
    sums, largest, placements = 0.0, 0.0, 0
    for chosen in combinations(points, 2):
        dense = np.zeros((5, 4), int)
        dense[tuple(np.array(chosen).T)] = 1
        sums += 2 * sum(total for _, total in tile_bits(dense, format))
        part = SparseTensor.from_dense("A", ("R0", "R1"), dense[:2, :3])
        if part.nnz:
            largest += float(footprint(part, parse_format(format, part.ranks, Widths(8, None, 32))).total)
        placements += 1
    counts = counted(format, TensorData("A", Uniform.of(("R0", "R1"), (5, 4), nnz=2)))
    fill = of(counts, "reads_fill", "DRAM")
    assert fill.actual * 8 + fill.metadata_bits == pytest.approx(sums / placements)
    assert fill.metadata_label == "expected"
    tile = glb(counts)
    assert tile.bits == pytest.approx(largest / placements)
    assert tile.extents == (2, 3)
    assert tile.quantile_bits >= tile.bits


@pytest.mark.parametrize("room", [0, 8, 11, 21, 22, 33, 100])
def test_the_probability_of_overflow_is_that_of_all_placements(room: int) -> None:
    """A nonzero of a tile of 2 x 3 takes 8 + 1 + 2 bits; which tile is largest does not matter."""
    problem = problem_of("COO")
    components = tuple(
        replace(c, size_bits=room) if c.name == "GLB" else c for c in problem.hierarchy.components
    )
    problem = replace(problem, hierarchy=Hierarchy(components))
    analysis = ENGINE.analyse(problem)
    data = {
        "A": TensorData("A", Uniform.of(("R0", "R1"), (5, 4), nnz=3)),
        "B": dense_data("B"),
        "Z": dense_data("Z"),
    }
    checks = capacity_checks(problem, analysis, sparse_counts(problem, analysis, data), data)
    (check,) = (c for c in checks if c.component == "GLB")
    inside = [p for p in product(range(5), range(4)) if p[0] < 2 and p[1] < 3]
    every = list(combinations(product(range(5), range(4)), 3))
    over = sum(11 * sum(p in inside for p in chosen) > room for chosen in every)
    assert check.p_overflow == pytest.approx(over / len(every))
    assert check.bits == pytest.approx(11 * 3 * 6 / 20)
    assert check.fits == (check.bits <= room)


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_edge_tiles_of_known_rows_are_bounded(format: object) -> None:
    """Two nonzeros in row 0, one in row 3, in all places: their mean is no more than what is told."""
    totals = []
    for pair, one in product(combinations(range(4), 2), range(4)):
        dense = np.zeros((5, 4), int)
        dense[0, list(pair)] = dense[3, one] = 1
        totals.append(2 * sum(total for _, total in tile_bits(dense, format)))
    model = RankNnz.of(("R0", "R1"), (5, 4), [2, 0, 0, 1, 0])
    fill = of(counted(format, TensorData("A", model)), "reads_fill", "DRAM")
    assert fill.metadata_label == "bound"
    told = fill.actual * 8 + fill.metadata_bits
    assert np.mean(totals) <= told * (1 + 1e-12)
    assert told < 2 * np.mean(totals)
