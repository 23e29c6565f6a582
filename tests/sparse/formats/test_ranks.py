"""Formats of ranks against what is written out fiber by fiber."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.fibertree import LoopRank, build
from polymodel.sparse.formats import CP, RLE, UOP, B, PerRank, RankRule, U, footprint, levels_of
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults, refused
from tests.sparse.formats.walked import fibers_at, rank_bits, tensors, tree_of

RULES: dict[str, type[RankRule]] = {"U": U, "CP": CP, "B": B, "RLE": RLE, "UOP": UOP}
WIDTHS = {"U": ("cbits", "pbits"), "CP": ("cbits", "pbits"), "B": ("cbits", "pbits"), "UOP": ("obits",)}


@st.composite
def words(draw: st.DrawFn, rule: str) -> dict[str, Any]:
    found: dict[str, Any] = {key: draw(st.integers(0, 40)) for key in ("fhbits", "rhbits")}
    found |= {key: draw(st.integers(0, 40)) for key in WIDTHS.get(rule, ("pbits",))}
    if rule == "RLE":
        found |= {"rbits": draw(st.integers(1, 3)), "overlong": draw(st.sampled_from(["zero", "escape"]))}
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_bits_are_those_of_what_is_stored(data: st.DataObject) -> None:
    tensor = data.draw(tensors())
    names = [data.draw(st.sampled_from(sorted(RULES))) for _ in tensor.ranks]
    given_words = [data.draw(words(name)) for name in names]
    format = PerRank(tuple(RULES[n](**w) for n, w in zip(names, given_words, strict=True)))
    walked = {
        rank: rank_bits(tensor, depth, name, word)
        for depth, (rank, name, word) in enumerate(zip(tensor.ranks, names, given_words, strict=True))
    }
    found = footprint(tensor, format)
    assert found.per_rank() == walked
    assert found.label == "exact"
    assert found.total == sum(walked.values()) == found.metadata + found.payload
    assert found.useful == tensor.nnz * given_words[-1].get("pbits", 0)
    ranks = [LoopRank(r, (r,), (s,)) for r, s in zip(tensor.ranks, tensor.shape, strict=True)]
    tree = build("A", ranks, list(tensor.coords), tensor.values)
    assert footprint(tree, format).per_rank() == walked


@settings(max_examples=60, deadline=None)
@given(tensors())
def test_levels_count_what_is_there(tensor: SparseTensor) -> None:
    found, root = levels_of(tensor), tree_of(tensor)
    for depth in range(len(tensor.ranks)):
        fibers = fibers_at(root, depth)
        assert found.fibers[depth] == len(fibers)
        assert found.coords[depth] == sum(len(f) for f in fibers)
    assert found.slices is not None
    slices = np.bincount(tensor.coords[0], minlength=1)
    assert found.slices.tolist() == slices[slices > 0].tolist()


def test_a_run_of_zeros_by_hand() -> None:
    """Nonzeros at 0, 9, 10 of 16: gaps 0, 8, 0; the 5 zeros at the end are not stored."""
    tensor = SparseTensor.from_coo("A", "I", [16], [[0, 9, 10]], [1, 1, 1])
    for overlong, bits in (("zero", 5 * (2 + 8)), ("escape", 3 * (2 + 8) + 2 * 2)):
        rule = RLE(rbits=2, pbits=8, overlong=overlong)  # type: ignore[arg-type]  # words of the rule
        assert footprint(tensor, PerRank((rule,))).total == bits
    assert footprint(tensor, PerRank((RLE(rbits=4, pbits=8, overlong="refuse"),))).total == 3 * 12
    assert footprint(tensor, PerRank((RLE(rbits=None, pbits=8),))).total == 3 * 12
    with refused("unsupported-format"):
        footprint(tensor, PerRank((RLE(rbits=3, pbits=8, overlong="refuse"),)))
    with faults("out-of-range", at=""):
        footprint(tensor, PerRank((RLE(rbits=0, pbits=8, overlong="escape"),)))


def test_sizes_beyond_64_bits_stay_whole_numbers() -> None:
    tensor = SparseTensor.from_coo("A", "IJ", [2**62, 2**62], [[5], [7]], [1])
    found = footprint(tensor, PerRank((U(pbits=32), B(pbits=32))))
    assert found.total == 2**62 * 32 + 2**62 + 32


def test_widths_below_zero_are_told_at_once() -> None:
    with pytest.raises(SpecError) as told:
        CP(cbits=-1, pbits=-2)
    assert [d.message for d in told.value.diagnostics] == ["CP: cbits is -1", "CP: pbits is -2"]


def test_a_format_names_the_ranks_of_the_tensor() -> None:
    tensor = SparseTensor.from_coo("A", "IJ", [2, 2], [[0], [1]], [1])
    with pytest.raises(SpecError) as told:
        footprint(tensor, PerRank((U(pbits=1), U(pbits=1)), ("I", "K")))
    assert [d.message for d in told.value.diagnostics] == [
        "U-U: rank K is none of ['I', 'J']",
        "U-U: rank J has no format",
    ]
    with faults("wrong-count", at=""):
        footprint(tensor, PerRank((U(pbits=1),)))
    stored = PerRank((CP(cbits=4, pbits=0), CP(cbits=4, pbits=8)), ("J", "I"))
    assert list(footprint(tensor, stored).per_rank()) == ["J", "I"]
