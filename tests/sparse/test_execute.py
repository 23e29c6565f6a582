"""The executor against the plain interpreter, by hand-made examples, and on bad input."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.errors import Refused, SpecError
from polymodel.sparse.execute import check as checking
from polymodel.sparse.execute.records import RankAccesses
from polymodel.sparse.execute.run import run
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import Partition, TeaalSpec
from tests.faults import every_fault, faults, refused
from tests.sparse.cascades import agree, cascade, sparse
from tests.sparse.random_cascades import by_data, shaped

MTTKRP = {"A": "I J K", "B": "J F", "C": "K F", "T": "I J F", "Y": "I F"}
TWO = ("T[i, j, f] = A[i, j, k] * C[k, f]", "Y[i, f] = T[i, j, f] * B[j, f]")
SLICED = {
    "partitioning": {
        "T": {"I": ["uniform_slice(3)"], "J": ["uniform_shape(4)"], "F": ["uniform_shape(4)"]},
        "Y": {"I": ["uniform_slice(3)"], "F": ["uniform_shape(4)"]},
    },
    "loop_order": {"T": ["I1", "I0", "F1", "J1", "K", "J0", "F0"], "Y": ["I1", "I0", "F1", "J", "F0"]},
    "spacetime": {
        "T": {"space": ["I1", "F0"], "time": ["I0", "F1", "J1", "K", "J0"]},
        "Y": {"space": ["I1", "F0"], "time": ["I0", "F1", "J"]},
    },
}


def small_tiles(spec: TeaalSpec, tiles: dict[str, list[int]]) -> TeaalSpec:
    """The spec with other sizes of splits by shape."""

    def changed(p: Partition) -> Partition:
        if p.ranks[0] not in tiles or len(tiles[p.ranks[0]]) != len(p.directives):
            return p
        made = tuple(replace(d, size=n) for d, n in zip(p.directives, tiles[p.ranks[0]], strict=True))
        return replace(p, directives=made)

    mappings = (replace(m, partitioning=tuple(map(changed, m.partitioning))) for m in spec.mappings)
    return replace(spec, mappings=tuple(mappings))


def mttkrp(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"A": sparse(rng, (7, 9, 6), 0.3), "B": sparse(rng, (9, 10), 1), "C": sparse(rng, (6, 10), 1)}


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_count_equals_the_referee(seed: int) -> None:
    spec, arrays, sizes = shaped(seed)
    if len(spec.inputs) == 1:
        # Tiles of several splits need not nest; a rank without a tensor is then refused.
        with suppress(Refused):
            agree(spec, arrays, sizes)
    else:
        agree(spec, arrays, sizes)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_every_count_of_splits_by_data_equals_the_referee(seed: int) -> None:
    agree(*by_data(seed))


def matmul(order: str, **arrays: list) -> tuple[RankAccesses, ...]:
    spec = cascade(
        {"A": "I K", "B": "K J", "Y": "I J"}, "Y[i, j] = A[i, k] * B[k, j]", loop_order={"Y": order.split()}
    )
    return run(spec, {n: np.array(a) for n, a in arrays.items()}).einsums[0].accesses


def test_a_visit_that_inserts_by_hand() -> None:
    """k = 0 brings columns 1 and 3, k = 1 brings 1 and 2."""
    i, k, j = matmul("I K J", A=[[1, 1]], B=[[0, 1, 0, 1], [0, 1, 1, 0]])
    assert (i.iterations, k.iterations, j.iterations) == (1, 2, 4)
    # First visit: two new. Second: 1 is there (read, written), 2 is new (written), 2 and 3 move (both, both).
    assert j.output_reads == {"Y": 1 + 2}
    assert j.output_writes == {"Y": 2 + 2 + 2}
    # A search passes elements: 1 and 2 lie below the new 3, and 4 above moves with it.
    _, _, j = matmul("I K J", A=[[1, 1]], B=[[0, 1, 1, 0, 1], [0, 0, 0, 1, 0]])
    assert j.output_reads == {"Y": 2 + 2}
    assert j.output_writes == {"Y": 3 + 1 + 2}
    # The first coordinate lies above the last: nothing is searched.
    _, _, j = matmul("I K J", A=[[1, 1]], B=[[0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
    assert (j.output_reads, j.output_writes) == ({"Y": 0}, {"Y": 3})


def test_two_fingers_by_hand() -> None:
    """1, 4, 6 with 2, 4, 7, 8: all of the first, and of the second up to the 7 that follows 6."""
    spec = cascade({"A": "K", "B": "K", "Y": "K"}, "Y[k] = A[k] * B[k]")
    a, b = np.zeros(9), np.zeros(9)
    a[[1, 4, 6]] = 1
    b[[2, 4, 7, 8]] = 1
    (k,) = run(spec, {"A": a, "B": b}).einsums[0].accesses
    assert k.intersect_coord_accesses == {"A": 3, "B": 3}
    assert k.iterations == 1


def test_zeros_are_kept_apart() -> None:
    """1 * 1 + 1 * -1: touched, added once, and not in the result."""
    spec = cascade({"A": "I J", "B": "J", "Y": "I"}, "Y[i] = A[i, j] * B[j]")
    found = run(spec, {"A": np.array([[1, 1], [1, 0]]), "B": np.array([1, -1])})
    (counts,) = found.einsums
    assert (counts.multiplies, counts.adds_excluding_first_touch) == (3, 1)
    assert (counts.output_nnz, counts.zeros, found.results["Y"].nnz) == (2, 1, 1)


def test_slices_of_the_first_einsum_may_be_kept() -> None:
    spec = cascade(MTTKRP, *TWO, **SLICED)
    arrays = mttkrp()
    own, kept = run(spec, arrays), run(spec, arrays, slices="kept")
    first = {row: s.coord for s in kept.einsum("T").slices("A") for row in s.rows}
    again = {row: s.coord for s in kept.einsum("Y").slices("T") for row in s.rows}
    assert again == first
    assert {row: s.coord for s in own.einsum("Y").slices("T") for row in s.rows} != first
    assert np.array_equal(own.results["Y"].to_dense(), kept.results["Y"].to_dense())


def test_kept_slices_are_of_one_number() -> None:
    unequal = {**SLICED["partitioning"], "Y": {"I": ["uniform_slice(4)"], "F": ["uniform_shape(4)"]}}
    spec = cascade(MTTKRP, *TWO, **{**SLICED, "partitioning": unequal})
    with refused("unsupported-partitioning"):
        run(spec, mttkrp(), slices="kept")


@pytest.mark.parametrize("wide", [1, 4, 10, 13])
@pytest.mark.parametrize("name", ["mttkrp", "ttmc", "spmm", "spmv"])
def test_counting_without_values_counts_the_same(name: str, wide: int) -> None:
    """A rank that is dense everywhere is not walked then, and every number stays what it was."""
    spec = pm.load(f"tensaurus/{name}").teaal
    assert spec is not None
    sizes = {"I": 11, "J": 9, "K": 10, "F": wide, "U": wide, "V": 3}
    sizes |= {"K": wide} if name == "spmm" else {}
    rng = np.random.default_rng(wide)
    shapes = {t: tuple(sizes[r] for r in spec.declaration[t]) for t in spec.inputs}
    arrays = {t: sparse(rng, shape, 0.3 if t == "A" else 1) for t, shape in shapes.items()}
    small = {"F": [32, 4], "U": [32, 4], "K": [8]}
    spec = small_tiles(spec, {r: [n // 4 or 1 for n in sizes] for r, sizes in small.items()})
    full, bare = run(spec, arrays), run(spec, arrays, values=False)
    for a, b in zip(full.einsums, bare.einsums, strict=True):
        assert bool(b.stands_for) == (name != "spmv")
        assert a.accesses == b.accesses
        for field in ("multiplies", "updates", "adds_excluding_first_touch", "output_nnz"):
            assert getattr(a, field) == getattr(b, field)
        assert a.times is not None
        assert b.times is not None
        for field in ("slip", "lock_step", "collisions", "by_first", "distinct_spacetime_stamps"):
            assert getattr(a.times, field) == getattr(b.times, field)
        assert np.array_equal(a.times.space, b.times.space)
        assert np.array_equal(a.times.load, b.times.load)
        assert [a.slices(t) for t in a.inputs] == [b.slices(t) for t in b.inputs]
    assert not bare.results
    with refused("missing-value"):
        bare.check()


@pytest.mark.parametrize("dense", [10**9, 0])
def test_results_are_checked_both_ways(dense: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "DENSE", dense)
    found = run(cascade(MTTKRP, *TWO, **SLICED), mttkrp())
    assert [c.agrees for c in found.check()] == [True, True]
    assert [c.reference for c in found.check()] == ["numpy.einsum" if dense else "scipy.sparse"] * 2
    y = found.results["Y"]
    wrong = SparseTensor(y.name, y.ranks, y.shape, y.coords, y.values + (np.arange(y.nnz) == 3))
    object.__setattr__(found, "results", {**found.results, "Y": wrong})
    (first, second) = found.check()
    assert (first.agrees, second.agrees, second.largest_difference) == (True, False, 1)


def test_execute_takes_loaded_specs_and_scalars() -> None:
    spec = pm.load("tensaurus/spmv")
    rng = np.random.default_rng(1)
    a, b = sparse(rng, (40, 12), 0.3), sparse(rng, (12,), 1)
    found = pm.execute(spec, {"A": a, "B": b})
    assert np.array_equal(found.results["Y"].to_dense(), a @ b)
    assert found.rows()[0]["multiplies"] == np.count_nonzero(a)
    assert repr(found) == f"Execution(Y: {np.count_nonzero(a)} multiplies)"
    with faults("missing-section", "execute", at=""):
        pm.execute(pm.load("conv1d"), {})


def test_all_wrong_tensors_are_told_at_once() -> None:
    spec = cascade(MTTKRP, *TWO, **SLICED)
    arrays = mttkrp()
    with pytest.raises(SpecError) as told:
        run(spec, {"A": arrays["A"][0], "Z": arrays["B"], "C": arrays["C"]})
    text = str(told.value)
    assert "3 faults" in text
    for part in ("tensor B with ranks J, F is missing", "Z is not an input", "A is declared with 3 ranks"):
        assert part in text
    with every_fault(("inconsistent-values", ""), ("inconsistent-values", "")):
        run(spec, {**arrays, "B": arrays["B"][:8, :7]})
    nan = arrays["B"] + np.where(np.arange(10) == 3, np.nan, 0)
    with every_fault(("missing-argument", ""), ("not-a-number", "")):
        run(spec, {"A": arrays["A"], "B": nan})
    with faults("unknown-name", "Q", at=""):
        run(spec, arrays, rank_sizes={"Q": 3})
    with faults("not-positive-integer", "slices", at=""):
        run(spec, arrays, slices="all")  # type: ignore[arg-type]  # the wrong value is the point


def test_scalars_and_tensors_of_rank_0() -> None:
    a = np.array([1, 0, 3])
    spec = cascade({"A": "I", "Z": "", "Y": "I"}, "Z[] = A[i]", "Y[i] = 5 * b * Z[] * A[i]")
    found = run(spec, {"A": a}, symbols={"b": 2})
    assert found.results["Z"].values.tolist() == [4]
    assert found.results["Y"].to_dense().tolist() == [40, 0, 120]
    assert [e.multiplies for e in found.einsums] == [0, 2 * 3]
    assert all(c.agrees for c in found.check())
    with faults("missing-value", at=""):
        run(spec, {"A": a})
    none = run(spec, {"A": 0 * a}, symbols={"b": 2})
    assert (none.results["Y"].nnz, none.einsum("Y").activities) == (0, 0)


def test_what_is_not_executed_is_refused_by_name() -> None:
    one = np.ones(3)
    diagonal = cascade({"A": "I I2", "Y": "I"}, "Y[i] = A[i, i]")
    with refused("unsupported-einsum"):
        run(diagonal, {"A": np.ones((3, 3))})
    both = cascade({"A": "I", "B": "J", "Y": "I J"}, "Y[i, j] = A[i] + B[j]")
    with refused("unsupported-operation"):
        run(both, {"A": one, "B": one})
    compound = cascade({"I": "W", "F": "S", "O": "Q"}, "O[q] = I[q + s] * F[s]", loop_order={"O": ["W", "S"]})
    with refused("unsupported-partitioning", "W"):
        run(compound, {"I": np.ones(7), "F": one}, rank_sizes={"Q": 5})
    taken = cascade({"A": "I", "Y": "I"}, "Y[i] = take(a, A[i], 1)")
    with refused("unsupported-operation"):
        run(taken, {"A": one}, symbols={"a": 2})
