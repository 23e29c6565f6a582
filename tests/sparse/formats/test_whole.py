"""Formats of whole tensors against the arrays they consist of."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.density import Uniform
from polymodel.sparse.formats import CISS, NamedFormat, Widths, dcsr_words, footprint, tile_footprints
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults
from tests.sparse import data
from tests.sparse.formats.walked import fibers_at, tensors, tree_of

WIDTHS = Widths(data=8, index=5, pointer=11)


@settings(max_examples=40, deadline=None)
@given(tensors(least=2, most=2))
def test_csr_and_csc_are_the_arrays_of_scipy(tensor: SparseTensor) -> None:
    for kind, theirs in (("CSR", tensor.to_scipy()), ("CSC", scipy.sparse.csc_array(tensor.to_scipy()))):
        found = footprint(tensor, NamedFormat(kind, WIDTHS))  # type: ignore[arg-type]  # words of the format
        assert found.total == theirs.indptr.size * 11 + theirs.indices.size * 5 + theirs.data.size * 8
        assert found.payload == found.useful == theirs.data.size * 8


@settings(max_examples=40, deadline=None)
@given(tensors())
def test_coo_and_csf_are_their_arrays(tensor: SparseTensor) -> None:
    coo = footprint(tensor, NamedFormat("COO", WIDTHS))
    assert coo.total == tensor.coords.size * 5 + tensor.values.size * 8
    root, total = tree_of(tensor), 0
    for depth in range(len(tensor.ranks)):
        fibers = fibers_at(root, depth)
        coordinates = [c for fiber in fibers for c in sorted(fiber)]
        total += len(coordinates) * 5
        if depth < len(tensor.ranks) - 1:
            total += len(np.cumsum([0, *(1 for _ in coordinates)])) * 11
        else:
            total += len(coordinates) * 8
    assert footprint(tensor, NamedFormat("CSF", WIDTHS)).total == total
    if len(tensor.ranks) == 2:
        assert footprint(tensor, NamedFormat("DCSR", WIDTHS)).total == total


def test_closed_forms_on_a_whole_matrix() -> None:
    """programme: 222 x 464, 2486 nonzeros, no empty row; circuit: 1200 rows, 4432 nonzeros."""
    tensor = data.tensor("programme")
    n, rows = 2486, 222
    for kind, bits in (
        ("COO", n * (2 * 32 + 32)),
        ("CSR", (rows + 1) * 32 + n * 64),
        ("CSC", (464 + 1) * 32 + n * 64),
        ("DCSR", (rows + 1) * 32 + rows * 32 + n * 64),
        ("CSF", (rows + 1) * 32 + rows * 32 + n * 64),
    ):
        assert footprint(tensor, NamedFormat(kind)).total == bits  # type: ignore[arg-type]  # words of the format
    assert dcsr_words(n, rows) == 2 * n + 2 * rows + 3
    words = footprint(tensor, NamedFormat("DCSR", Widths(1, 1, 1))).total
    assert dcsr_words(n, rows) - words == 2  # the two segment headers
    narrow = footprint(tensor, NamedFormat("COO", Widths(32, None, 32))).total
    assert narrow == n * (8 + 9 + 32)


@settings(max_examples=30, deadline=None)
@given(tensors())
def test_dense_holds_every_point(tensor: SparseTensor) -> None:
    found = footprint(tensor, NamedFormat("dense", WIDTHS))
    assert found.total == found.payload == tensor.to_dense().size * 8
    assert found.useful == tensor.nnz * 8


def test_bits_beyond_64_bits_are_whole_numbers() -> None:
    tensor = SparseTensor.from_coo("A", "IJ", [2**50, 2**50], [[5, 2**40], [1, 2]], [1, 1])
    assert footprint(tensor, NamedFormat("dense", WIDTHS)).total == 2**100 * 8
    _, tiles = tile_footprints(tensor, NamedFormat("dense", WIDTHS), (2**39, 2**50))
    assert np.asarray(tiles.total).tolist() == [2**89 * 8] * 2
    _, tiles = tile_footprints(tensor, NamedFormat("CSR", Widths(8, None, 11)), (2**39, 2**50))
    assert np.asarray(tiles.total).tolist() == [(2**39 + 1) * 11 + 50 + 8] * 2


def test_a_footprint_is_shown_in_a_line() -> None:
    tensor = data.tensor("programme")
    assert repr(footprint(tensor, "CSR")) == "Footprint(CSR: 166,240 bits (exact), 52.1% of them metadata)"
    model = Uniform.of(("I", "J"), (20, 20), nnz=10)
    assert repr(footprint(model, "COO")) == "Footprint(COO: 960.0 bits (expected), 66.7% of them metadata)"
    _, tiles = tile_footprints(tensor, "COO", (200, 400))
    assert repr(tiles) == "Footprint(COO of 4 tiles: 238,656 bits (exact), 66.7% of them metadata)"
    empty = SparseTensor.from_coo("A", "IJ", [3, 3], np.zeros((2, 0), np.int64), [])
    assert repr(footprint(empty, "COO")) == "Footprint(COO: 0 bits (exact))"


def test_what_a_format_cannot_hold() -> None:
    cube = SparseTensor.from_coo("A", "IJK", [2, 2, 2], [[0], [1], [1]], [1])
    row = SparseTensor.from_coo("A", "I", [2], [[0]], [1])
    for kind in ("CSR", "CSC", "DCSR"):
        with pytest.raises(SpecError, match=f"{kind} holds matrices, there are 3 ranks"):
            footprint(cube, NamedFormat(kind))  # type: ignore[arg-type]  # words of the format
    with faults("wrong-count", "CISS", at=""):
        footprint(row, CISS(4))
    with faults("not-positive-integer", at=""):
        CISS(0)
    with faults("out-of-range", at=""):
        Widths(data=-3)


@settings(max_examples=30, deadline=None)
@given(tensors(), st.sampled_from(["COO", "CSF"]))
def test_efficiency_is_the_share_of_values(tensor: SparseTensor, kind: str) -> None:
    found = footprint(tensor, NamedFormat(kind, WIDTHS))  # type: ignore[arg-type]  # words of the format
    assert found.efficiency == (tensor.nnz * 8 / found.total if tensor.nnz else 0)


def test_dense_tiles_of_more_than_2_to_the_64_bits_are_counted() -> None:
    tensor = SparseTensor.from_coo("A", ("I", "J", "K"), (2**21,) * 3, [[0], [0], [0]], [1.0])
    found = tile_footprints(tensor, "dense", (2**21, 2**21, 2**21))[1]
    assert list(np.atleast_1d(found.total)) == [2**63 * 32] == [footprint(tensor, "dense").total]
