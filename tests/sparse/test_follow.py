"""Ranks that follow the split of another; index math whose innermost variable is split or has a factor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.execute import check as checking
from polymodel.sparse.execute.records import Execution
from polymodel.sparse.execute.run import run
from tests.faults import faults, refused
from tests.sparse.cascades import agree, cascade, sparse
from tests.sparse.random_cascades import following

LINE = {"I": "W", "F": "S", "O": "Q"}
PLANE = {"I": "C H W", "F": "M C R S", "O": "M P Q"}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_count_equals_the_referee(seed: int) -> None:
    agree(*following(seed))


def line(order: str, partitioning: dict[str, list[str]], **sizes: int) -> Execution:
    spec = cascade(
        LINE, "O[q] = I[q + s] * F[s]", loop_order={"O": order.split()}, partitioning={"O": partitioning}
    )
    i, f = np.arange(1, 9), np.ones(3, dtype=int)
    i[6] = 0
    return run(spec, {"I": i, "F": f}, rank_sizes={"Q": 6, **sizes})


def test_tiles_overlap_by_the_halo() -> None:
    """q = 0 to 3 reach w = 0 to 5, q = 4 and 5 reach w = 4 to 7, where 6 is zero."""
    found = line("Q1 S Q0", {"Q": ["uniform_shape(4)"], "W": ["follow(Q)"]})
    tree = found.einsum("O").inputs["I"]
    assert tree.ranks == ("W1", "W0")
    first = [[w, w + 1] for w in (0, 1, 2, 3, 4, 5)]
    assert tree.nested() == [[0, first], [4, [[4, 5], [5, 6], [7, 8]]]]
    assert found.results["O"].to_dense().tolist() == [6, 9, 12, 15, 11, 14]
    q1, s, q0 = found.einsums[0].accesses
    assert (q1.iterations, dict(q1.driver_coord_accesses)) == (2, {"I": 2})
    # Of the first tile 4 coordinates at each s; of the second 4 and 5, then 5, then 7.
    assert (s.iterations, q0.iterations, dict(q0.driver_coord_accesses)) == (6, 16, {"I": 12 + 4})


def test_a_factor_sorts_coordinates_by_their_remainder() -> None:
    """q of 2q + s: at s = 0 and 2 even coordinates of I are read, at s = 1 odd ones, those that q reaches."""
    spec = cascade(LINE, "O[q] = I[2*q + s] * F[s]", loop_order={"O": ["S", "Q"]})
    found = run(spec, {"I": np.array([1, 2, 0, 4, 5, 6, 7]), "F": np.array([1, 1, 1])}, rank_sizes={"Q": 3})
    even, odd = [[0, 1], [4, 5], [6, 7]], [[1, 2], [3, 4], [5, 6]]
    tree = found.einsum("O").inputs["I"]
    assert (tree.ranks, tree.nested()) == (("W%2", "W"), [[0, even], [1, odd]])
    assert found.results["O"].to_dense().tolist() == [1 + 2 + 0, 0 + 4 + 5, 5 + 6 + 7]
    # s = 0: w = 0, 4; s = 1: w = 1, 3, 5; s = 2: w = 4, 6.
    assert dict(found.einsums[0].accesses[1].driver_coord_accesses) == {"I": 2 + 3 + 2}


def test_without_follow_a_tile_of_the_innermost_variable_bounds_what_is_read() -> None:
    halo = line("Q1 S Q0", {"Q": ["uniform_shape(4)"], "W": ["follow(Q)"]})
    plain = line("Q1 S Q0", {"Q": ["uniform_shape(4)"]})
    assert plain.einsum("O").inputs["I"].nnz == 7
    assert plain.einsums[0].accesses[1:] == halo.einsums[0].accesses[1:]
    assert dict(plain.einsums[0].accesses[0].driver_coord_accesses) == {}


@pytest.mark.parametrize("order", ["P1 Q1 P0 Q0 R S M C", "M C R S P1 Q1 P0 Q0", "P1 Q1 M C R S P0 Q0"])
@pytest.mark.parametrize("both", [True, False])
def test_sparse_convolutions_with_strides_equal_numpy(
    monkeypatch: pytest.MonkeyPatch, order: str, both: bool
) -> None:
    """Input and filter sparse; both ranks of the input follow, or the reading ones only."""
    rng = np.random.default_rng(3)
    i, f = sparse(rng, (3, 12, 13), 0.4), sparse(rng, (2, 3, 3, 2), 0.6)
    p, q = 5, 6
    splits = {"P": ["uniform_shape(2)"], "Q": ["uniform_shape(3)"], "W": ["follow(Q)"]}
    splits |= {"H": ["follow(P)"]} if both else {}
    mapping: dict[str, Any] = {"partitioning": {"O": splits}, "loop_order": {"O": order.split()}}
    spec = cascade(PLANE, "O[m, p, q] = I[c, 2*p + r, 2*q + s] * F[m, c, r, s]", **mapping)
    found = run(spec, {"I": i, "F": f}, rank_sizes={"P": p, "Q": q})
    expected = np.zeros((2, p, q), dtype=int)
    for r in range(3):
        for s in range(2):
            window = i[:, r : r + 2 * p - 1 : 2, s : s + 2 * q - 1 : 2]
            expected += np.einsum("chw,mc->mhw", window, f[:, :, r, s])
    assert (found.results["O"].to_dense() == expected).all()
    assert all(c.agrees for c in found.check())
    monkeypatch.setattr(checking, "DENSE", 0)
    assert [(c.agrees, c.reference) for c in found.check()] == [(True, "scipy.sparse")]
    # Every pair of nonzeros that meet is one product, in any order.
    pairs = sum(
        (i[:, r : r + 2 * p - 1 : 2, s : s + 2 * q - 1 : 2] != 0).sum(axis=(1, 2))
        @ (f[:, :, r, s] != 0).sum(axis=0)
        for r in range(3)
        for s in range(2)
    )
    assert found.einsums[0].multiplies == pairs


def test_a_loop_rank_that_follows_has_the_tiles_of_its_leader() -> None:
    declared, product = {"A": "K M", "B": "K N", "Z": "M N"}, "Z[m, n] = A[k, m] * B[k, n]"
    order = {"loop_order": {"Z": ["K1", "M1", "K0", "M0", "N"]}}
    split = {"K": ["uniform_shape(3)"]}
    rng = np.random.default_rng(0)
    arrays = {"A": sparse(rng, (8, 7), 0.5), "B": sparse(rng, (8, 4), 0.5)}
    follows = cascade(declared, product, partitioning={"Z": {**split, "M": ["follow(K)"]}}, **order)
    itself = cascade(declared, product, partitioning={"Z": {**split, "M": ["uniform_shape(3)"]}}, **order)
    assert run(follows, arrays).einsums[0].accesses == run(itself, arrays).einsums[0].accesses


def test_what_cannot_follow_is_refused_by_name() -> None:
    with refused("unsupported-partitioning", "Q"):
        line("Q1 Q0 S", {"Q": ["uniform_shape(4)"], "W": ["follow(Q)", "follow(Q)"]})
    spec = cascade(
        {"I": "W", "F": "S Q", "O": "Q"},
        "O[q] = I[s] * F[s, q]",
        partitioning={"O": {"Q": ["uniform_shape(2)"], "W": ["follow(Q)"]}},
        loop_order={"O": ["Q1", "Q0", "S"]},
    )
    with faults("invalid-partitioning", "W", "Q", at=""):
        run(spec, {"I": np.ones(3), "F": np.ones((3, 4))})
    by_data = {"Q": ["uniform_occupancy(M.2)"], "W": ["follow(Q)"]}
    masked: dict[str, Any] = {"partitioning": {"O": by_data}, "loop_order": {"O": ["Q1", "Q0", "S"]}}
    spec = cascade({**LINE, "M": "Q"}, "O[q] = I[q + s] * F[s] * M[q]", **masked)
    with refused("unsupported-partitioning", "Q"):
        run(spec, {"I": np.ones(8), "F": np.ones(3), "M": np.ones(6)})
    inner: dict[str, Any] = {
        "partitioning": {"O": {"Q": by_data["Q"]}},
        "loop_order": {"O": ["S", "Q1", "Q0"]},
    }
    spec = cascade({**LINE, "M": "Q"}, "O[q] = I[q + s] * F[s] * M[q]", **inner)
    with refused("unsupported-window"):
        run(spec, {"I": np.ones(8), "F": np.ones(3), "M": np.ones(6)})


@pytest.mark.parametrize("order", [["D2", "S1", "D1", "D0", "S0"], ["V2", "S1", "V1", "V0", "S0"]])
@pytest.mark.parametrize("split", [{"V": ["follow(D)"]}, {"V": ["follow(D)", "follow(D)"]}, {}])
def test_a_rank_that_one_variable_indexes_alone_is_its_rank_by_another_name(
    order: list[str], split: dict[str, list[str]]
) -> None:
    """V of `R[d]`: one `follow(D)` makes all parts, as no loop runs over V; loops may say V or D."""
    declared, sums = {"G": "D S", "R": "V"}, "R[d] = G[d, s]"
    by_shape = {"D": ["uniform_shape(4)", "uniform_shape(2)"], "S": ["uniform_shape(3)"]}
    g = sparse(np.random.default_rng(2), (9, 8), 0.4)
    spacetime = {"R": {"space": [f"{order[3]}.coord"], "time": [r for r in order if r != order[3]]}}
    more: dict[str, Any] = {"loop_order": {"R": order}, "spacetime": spacetime}
    spec = cascade(declared, sums, partitioning={"R": {**by_shape, **split}}, **more)
    agree(spec, {"G": g}, {"D": 9, "S": 8})
    found = run(spec, {"G": g})
    assert found.results["R"].to_dense().tolist() == g.sum(axis=1).tolist()
    assert [a.rank for a in found.einsums[0].accesses] == ["D2", "S1", "D1", "D0", "S0"]
    assert found.check()[0].agrees


def test_a_split_of_the_other_name_is_one_of_the_variables_rank() -> None:
    declared, sums = {"G": "D S", "R": "V"}, "R[d] = G[d, s]"
    data = {"G": sparse(np.random.default_rng(2), (9, 8), 0.4)}
    orders: dict[str, list[str]] = {"V": ["V1", "V0", "S"], "D": ["D1", "D0", "S"]}
    first, second = (
        run(cascade(declared, sums, partitioning={"R": {r: ["uniform_shape(4)"]}}, loop_order={"R": o}), data)
        for r, o in orders.items()
    )
    assert first.einsums[0].accesses == second.einsums[0].accesses
    assert first.results["R"].to_dense().tolist() == data["G"].sum(axis=1).tolist()
    both = {"V": ["uniform_shape(2)"], "D": ["uniform_shape(4)"]}
    with faults("unknown-name", "V2", at="mapping.loop-order.R[0]"):
        cascade(declared, sums, partitioning={"R": both}, loop_order={"R": ["V2", "V1", "V0", "S"]})
