"""CISS: the paper's figure, an encoder that goes slot by slot, and the way back."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.formats import CISS, Encoded, Widths, decode, encode, footprint
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults
from tests.sparse.formats.walked import tensors

Assign = st.sampled_from(["data", "nnz"])


def walked(tensor: SparseTensor, parts: int, assign: str) -> list[list[dict[str, int]]]:
    """Slice after slice to the lane with the least data (or nonzeros), slot after slot."""
    lanes: list[list[dict[str, int]]] = [[] for _ in range(parts)]
    slices: dict[int, list[list[int]]] = {}
    for point in tensor.coords.T.tolist():
        slices.setdefault(point[0], []).append(point[1:])
    for top, points in slices.items():
        loads = [sum(assign == "data" or "header" not in slot for slot in lane) for lane in lanes]
        lane = lanes[loads.index(min(loads))]
        lane.append({"header": top})
        lane.extend(dict(zip([r.lower() for r in tensor.ranks[1:]], p, strict=True)) for p in points)
    return lanes


@settings(max_examples=100, deadline=None)
@given(tensors(least=2, most=4, size=5), st.integers(1, 6), Assign)
def test_lanes_are_filled_slice_by_slice(tensor: SparseTensor, parts: int, assign: str) -> None:
    found = encode(tensor, parts, assign)  # type: ignore[arg-type]  # one of two words
    lanes = walked(tensor, parts, assign)
    assert found.lanes() == lanes
    assert found.entries == max(len(lane) for lane in lanes)
    used = sum(len(lane) for lane in lanes)
    assert found.slots_used == used == tensor.nnz + np.unique(tensor.coords[0]).size
    assert found.padding_slots == found.entries * parts - used
    widths = Widths(data=9, index=4)
    bits = footprint(tensor, CISS(parts, widths, assign))  # type: ignore[arg-type]  # one of two words
    slot = 9 + (len(tensor.ranks) - 1) * 4
    assert bits.total == found.bits(widths) == found.entries * parts * slot
    assert bits.padding == found.padding_slots * slot
    assert bits.useful == tensor.nnz * 9


@settings(max_examples=100, deadline=None)
@given(tensors(least=2, most=4, size=5), st.integers(1, 6), Assign)
def test_decoding_gives_the_tensor_back(tensor: SparseTensor, parts: int, assign: str) -> None:
    again = decode(encode(tensor, parts, assign))  # type: ignore[arg-type]  # one of two words
    assert (again.name, again.ranks, again.shape) == (tensor.name, tensor.ranks, tensor.shape)
    assert again.coords.tolist() == tensor.coords.tolist()
    assert again.values.tolist() == tensor.values.tolist()


def test_the_figure_of_the_paper() -> None:
    points = [[0, 0, 0], [0, 1, 1], [1, 1, 1], [2, 0, 0], [2, 0, 1], [3, 1, 0]]
    tensor = SparseTensor.from_coo("A", "IJK", [4, 2, 2], np.array(points).T, [1, 2, 3, 4, 5, 6])
    found = encode(tensor, 2)
    assert found.lanes() == [
        [{"header": 0}, {"j": 0, "k": 0}, {"j": 1, "k": 1}, {"header": 3}, {"j": 1, "k": 0}],
        [{"header": 1}, {"j": 1, "k": 1}, {"header": 2}, {"j": 0, "k": 0}, {"j": 0, "k": 1}],
    ]
    assert found.values.T.tolist() == [[0, 1, 2, 0, 6], [0, 3, 0, 4, 5]]
    assert (found.entries, found.padding_slots) == (5, 0)
    assert found.bits(Widths(data=32, index=16)) == 5 * 2 * (32 + 2 * 16)
    # A header needs 2 bits for 4 slices where j needs 1, and k needs 1.
    assert found.bits(Widths(data=32, index=None)) == 5 * 2 * (32 + 2 + 1)


def test_a_lane_without_a_header_is_no_ciss() -> None:
    lost = Encoded("A", ("I", "J"), (2, 2), np.array([[5]]), np.array([[[1]]]))
    with faults("inconsistent-values", at=""):
        decode(lost)
