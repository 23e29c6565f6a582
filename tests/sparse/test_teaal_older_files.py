"""TeAAL specs in older words, scalars as strides, Einsums without a tensor, partitioners of the user's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults, refused

PRODUCT = {"declaration": {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]}}


def loaded(expressions: list[str], declaration: dict[str, list[str]], **mapping: Any) -> pm.Spec:
    section = {"declaration": declaration, "expressions": expressions}
    return pm.load({"einsum": section, **({"mapping": mapping} if mapping else {})})


def product(*operations: str, **more: Any) -> pm.Spec:
    order = ["M", "K1", "K0", "N"]
    return loaded(
        ["Z[m, n] = A[k, m] * B[k, n]"],
        PRODUCT["declaration"],
        **{"partitioning": {"Z": {"K": list(operations)}}, "loop-order": {"Z": order}, **more},
    )


def operands(m: int = 5, n: int = 4, k: int = 9) -> dict[str, Any]:
    return {
        "A": pm.random_tensor(["K", "M"], [k, m], 0.6, seed=1),
        "B": pm.random_tensor(["K", "N"], [k, n], 0.6, seed=2),
    }


@pytest.mark.parametrize("written", ["g * x + r", "r + x*g"])
def test_a_stride_may_be_a_scalar(written: str) -> None:
    spec = loaded([f"O[x] = I[{written}] * F[r]"], {"I": ["W"], "F": ["R"], "O": ["X"]})
    data = {"I": np.arange(1, 12), "F": np.array([1, 2, 3])}
    with faults("missing-value", at=""):
        pm.execute(spec, data, rank_sizes={"X": 4})
    with faults("missing-value", "X", at=""):
        pm.execute(spec, data, symbols={"g": 2})
    ran = pm.execute(spec, data, symbols={"g": 2}, rank_sizes={"X": 4})
    assert ran.results["O"].to_dense().tolist() == [
        sum((2 * x + r + 1) * (r + 1) for r in range(3)) for x in range(4)
    ]
    assert ran.check()[0].agrees
    assert any("g in the index" in remark for remark in spec.remarks)
    for g in (2, 3):
        bound = spec.bind(g=g, R=3, X=4)
        assert f"{g}*x" in str(bound.workload["O"])
        assert bound.bind(g=1).workload["O"] != bound.workload["O"]
    with faults("not-positive-integer", at="teaal.einsum.expressions"):
        pm.execute(spec, data, symbols={"g": 0.5}, rank_sizes={"X": 4})


def test_what_is_no_stride_is_told() -> None:
    declared = {"I": ["W"], "F": ["R"], "O": ["X"]}
    for index, why in (
        ("x * r", "a product of rank variables is not affine"),
        ("g * x + h * x", "x has two strides, g and h"),
        ("2 * (g * x)", "a stride stands in a sum alone"),
        ("g * q + r", "a product of rank variables is not affine"),
    ):
        with pytest.raises(pm.SpecError, match=why):
            loaded([f"O[x] = I[{index}] * F[r]"], declared)


def test_older_words() -> None:
    """`sum(K).(...)`, `display`, `partitions`, operations in camel case, loop orders as lists and texts."""
    spec = loaded(
        ["T[m, n] = sum(K).(A[k, m] * B[k, n])", "Z[m, n] = T[m, n] + C[m, n]"],
        {"A": ["K", "M"], "B": ["K", "N"], "C": ["M", "N"], "T": ["M", "N"], "Z": ["M", "N"]},
        **{
            "loop-order": [{"T": "K, N, M"}, {"Z": ["M2", "N", "M1", "M0"]}],
            "partitions": {"Z": {"M": ["uniformShape(4)", "uniformShape(2)"]}},
            "display": {"T": {"space": ["N"], "time": ["K.pos", "M.coord"]}},
        },
    )
    first, second = spec.teaal.mappings  # type: ignore[union-attr]  # it is TeAAL's
    assert first.loop_order == ("K", "N", "M")
    assert [s.rank for s in first.spacetime.space] == ["N"]  # type: ignore[union-attr]  # it has one
    assert [d.size for d in second.partitioning[0].directives] == [4, 2]
    data = {**operands(), "C": pm.random_tensor(["M", "N"], [5, 4], 0.5, seed=3)}
    assert all(c.agrees for c in pm.execute(spec, data).check())
    with faults("invalid-einsum", at="einsum.expressions[0]"):
        loaded(["Z[m, n] = sum(M).(A[k, m] * B[k, n])"], PRODUCT["declaration"])


def test_lists_of_texts_in_the_mapping() -> None:
    declared = {"A": ["K"], "B": ["K", "M"], "T": ["M"], "Z": ["M"]}
    made = ["T[m] = A[k] * B[k, m]", "Z[m] = T[m] + B[k, m]"]
    teaal = loaded(made, declared, **{"rank-order": ["B[M, K]"], "loop-order": ["K, M", "M, K"]}).teaal
    assert teaal is not None
    assert [m.loop_order for m in teaal.mappings] == [("K", "M"), ("M", "K")]
    assert teaal.rank_order["B"] == ("M", "K")
    for wrong in (["K, M"], ["K, M", "M, K", "M"]):
        with faults("wrong-type", at="mapping.loop-order"):
            loaded(made, declared, **{"loop-order": wrong})
    with faults("duplicate-name", at="mapping.rank-order[1]"):
        loaded(made, declared, **{"rank-order": ["B[M, K]", "B[K, M]"]})


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float32])
def test_terms_are_subtracted(kind: type) -> None:
    declared = {"A": ["M", "K"], "B": ["M", "K"], "Y": ["M"], "Z": ["M"]}
    made = ["Y[m] = sum(K).(A[m, k] - 2 * B[m, k])", "Z[m] = sum(K).(A[m, k]) - sum(K).(B[m, k] - A[m, k])"]
    spec = loaded(made, declared)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 3, (4, 5)).astype(kind) for _ in "AB")
    ran = pm.execute(spec, {"A": a, "B": b})
    assert all(c.agrees for c in ran.check())
    signed = [x.astype(np.int64).sum(axis=1) for x in (a, b)]
    assert ran.results["Y"].to_dense().tolist() == (signed[0] - 2 * signed[1]).tolist()
    assert ran.results["Z"].to_dense().tolist() == (2 * signed[0] - signed[1]).tolist()
    first, second = ran.einsums
    # A number is a factor, a sign is not.
    assert (first.multiplies, second.multiplies) == (np.count_nonzero(b), 0)
    assert second.term_adds > 0
    assert dict(spec.bind(M=4, K=5).workload["Z"].operations)["map"] == "_0 - _1 + _0"
    alone = pm.execute(loaded(["Z[] = 2 * b - c"], {"Z": []}), {}, symbols={"b": 4, "c": 9})
    assert alone.results["Z"].to_dense() == -1


def test_an_output_that_is_made_again_is_another_tensor() -> None:
    declared = {"A": ["M"], "B": ["M"], "Z": ["M"], "Z_1": ["M"]}
    spec = loaded(["Z[m] = A[m] + B[m]", "Z[m] = Z[m] * B[m]", "Z[m] = Z_1[m] - Z[m]"], declared)
    assert spec.teaal is not None
    assert [e.name for e in spec.teaal.expressions] == ["Z_2", "Z_3", "Z"]
    a, b, c = np.array([1, 2, 0, 4]), np.array([3, 0, 0, 5]), np.array([1, 1, 1, 0])
    ran = pm.execute(spec, {"A": a, "B": b, "Z_1": c})
    assert ran.results["Z"].to_dense().tolist() == (c - (a + b) * b).tolist()
    assert all(x.agrees for x in ran.check())
    with faults("cyclic-cascade", at="einsum.expressions[0]"):
        loaded(["Z[m] = Z[m] * B[m]"], declared)


def test_an_einsum_without_a_tensor_is_its_scalars() -> None:
    spec = loaded(["A[] = 2 * b + c", "Z[k] = V[k] * A"], {"A": [], "V": ["K"], "Z": ["K"]})
    ran = pm.execute(spec, {"V": np.array([1, 0, 3])}, symbols={"b": 4, "c": 1})
    assert ran.results["Z"].to_dense().tolist() == [9, 0, 27]
    assert all(c.agrees for c in ran.check())
    made = ran.einsums[0]
    assert (made.multiplies, made.term_adds, made.updates, made.output_nnz, made.zeros) == (1, 1, 1, 1, 0)
    assert pm.execute(spec, {"V": np.array([1, 0])}, symbols={"b": 0, "c": 0}).einsums[0].zeros == 1


def test_a_partitioner_of_the_users_cuts_the_leader() -> None:
    own = product("drt(A.3)")
    assert "drt(A.3)" in str(own.teaal)
    data = operands()
    with refused("unsupported-partitioning", "K"):
        pm.execute(own, data)
    asked: list[tuple[list[int], int]] = []

    def equal(coords: Any, size: int) -> Any:
        asked.append((coords.tolist(), size))
        return coords[::size]

    ours = pm.execute(own, data, partitioners={"drt": equal})
    theirs = pm.execute(product("uniform_occupancy(A.3)"), data)
    assert ours.einsums[0].accesses == theirs.einsums[0].accesses
    fibers = [np.flatnonzero(c).tolist() for c in data["A"].to_dense().T]
    assert asked == [(f, 3) for f in fibers if f]
    halved = pm.execute(own, data, partitioners={"drt": lambda c, n: [x for x in c if x == c[0] or x == n]})
    assert halved.check()[0].agrees


@pytest.mark.parametrize(
    ("cut", "why"),
    [
        (lambda c, n: [], r"cuts the coordinates \[\d[\d, .]*\] at \[\]"),
        (lambda c, n: c[1:], "a partitioner cuts the coordinates"),
        (lambda c, n: c[::-1], "a partitioner cuts the coordinates"),
        (lambda c, n: [float(c[0])], "a partitioner cuts the coordinates"),
        (lambda c, n: [c[0], 99], "begins a part at 99, which is not a coordinate"),
        ("drt", "the partitioner drt is 'drt'"),
    ],
)
def test_a_partitioner_that_cuts_nothing_is_told(cut: Any, why: str) -> None:
    with pytest.raises(pm.SpecError, match=why):
        pm.execute(product("drt(A.3)"), operands(), partitioners={"drt": cut})


def test_a_partitioner_that_no_rank_is_split_by_is_a_fault() -> None:
    for spec, remedy in (
        (product("drt(A.3)"), "did you mean drt?"),
        (product("uniform_occupancy(A.3)"), "there are no"),
    ):
        with pytest.raises(pm.SpecError) as caught:
            pm.execute(spec, operands(), partitioners={"drtt": lambda c, n: c})
        (fault,) = caught.value.diagnostics
        assert (fault.code, fault.message) == ("unknown-name", "no rank is split by drtt")
        assert remedy in fault.remedy


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
def test_dynamic_parts_grow_until_they_are_full(most: int) -> None:
    """Coordinate by coordinate, with all nonzeros below it; what is too heavy is a part by itself."""

    def grown(loads: dict[int, int]) -> list[int]:
        begins, held = [], most + 1
        for coordinate, load in loads.items():
            if held + load > most:
                begins.append(coordinate)
                held = 0
            held += load
        return begins

    data = operands()
    rows = {int(k): int(n) for k, n in zip(*np.unique(data["A"].coords[0], return_counts=True), strict=True)}
    for loops in (["K1", "K0", "M", "N"], ["M", "K1", "K0", "N"]):
        spec, own = (
            product(f"{name}(A.{most})", **{"loop-order": {"Z": loops}}) for name in ("dynamic", "grow")
        )
        found = pm.execute(spec, data)
        assert found.check()[0].agrees
        each = rows if loops[0] == "K1" else None  # below M a coordinate of K is one nonzero
        theirs = pm.execute(
            own,
            data,
            partitioners={"grow": lambda c, n, each=each: grown(each or dict.fromkeys(c.tolist(), 1))},
        )
        assert found.einsums[0].accesses == theirs.einsums[0].accesses
    assert f"dynamic(A.{most})" in str(product(f"dynamic(A.{most})").teaal)


def test_a_misspelt_operation_is_no_partitioner() -> None:
    for operation in ("uniform_ocupancy(A.3)", "drt(3)", "drt()"):
        with faults("unknown-choice", at="mapping.partitioning.Z.K[0]"):
            product(operation)
