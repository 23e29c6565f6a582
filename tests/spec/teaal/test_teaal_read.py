"""TeAAL specs become records: the four kernels of the origin, and every construct of the grammar."""

from __future__ import annotations

from pathlib import Path

import pytest

from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import (
    Directive,
    FactorProduct,
    Index,
    IndexedTensor,
    Partition,
    SpaceTime,
    Stamp,
    Take,
    TeaalSpec,
)

CASES = Path(__file__).parent / "cases"
ORDERS = {
    "mttkrp": {"T": "I1 I0 F2 J1 K1 J0 K0 F1 F0", "Y": "I1 I0 F2 J1 J0 F1 F0"},
    "ttmc": {"T": "I1 I0 J U2 K1 K0 U1 U0", "Y": "I1 I0 J V1 U2 V0 U1 U0"},
    "spmm": {"Y": "I1 I0 K2 J K1 K0"},
    "spmv": {"Y": "I1 I0 J"},
}


def seed(name: str) -> TeaalSpec:
    path = CASES / f"seed_{name}.yaml"
    return read_teaal(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("name", ORDERS)
def test_the_four_kernels_of_the_origin_load_as_they_stand(name: str) -> None:
    spec = seed(name)
    assert {m.einsum: " ".join(m.loop_order) for m in spec.mappings} == ORDERS[name]
    for mapping in spec.mappings:
        assert mapping.partitioning[0] == Partition(("I",), (Directive("uniform_shape", 8),))
        assert mapping.spacetime is not None
        stamped = [s.rank for s in (*mapping.spacetime.space, *mapping.spacetime.time)]
        assert sorted(stamped) == sorted(mapping.loop_order)


def test_what_an_expression_is_made_of() -> None:
    spec = seed("mttkrp")
    first, second = spec.expressions
    assert first.name == "T"
    assert [o.tensor for o in first.operands] == ["A", "C"]
    assert first.operands[1] == IndexedTensor("C", (Index((("k", 1),)), Index((("f", 1),))))
    assert [i.variable for i in second.output.indices] == ["i", "f"]
    assert spec.inputs == ("A", "C", "B")
    assert spec.mapping_of("Y").spacetime == SpaceTime(
        (Stamp("I1"), Stamp("F1"), Stamp("F0")), (Stamp("I0"), Stamp("F2"), Stamp("J1"), Stamp("J0"))
    )


def test_take_and_occupancy() -> None:
    spec = read_teaal(
        """
einsum:
  declaration: {A: [K, M], B: [K, N], T: [K, M, N], Z: [M, N]}
  expressions:
  - T[k,m,n] = take(A[k,m], B[k,n], 1)
  - Z[m,n] = T[k,m,n] * A[k,m]
mapping:
  rank-order: {A: [M, K], T: [M, K, N]}
  partitioning:
    T: {M: [uniform_occupancy(A.32)], K: [uniform_occupancy(A.K0)]}
  loop-order: {T: [M1, M0, K1, K0, N]}
"""
    )
    term = spec.expressions[0].terms[0]
    assert isinstance(term, Take)
    assert term.which == 1
    assert isinstance(spec.expressions[1].terms[0], FactorProduct)
    assert spec.mapping_of("T").partitioning == (
        Partition(("M",), (Directive("uniform_occupancy", 32, "A"),)),
        Partition(("K",), (Directive("uniform_occupancy", "K0", "A"),)),
    )
    assert spec.mapping_of("Z").loop_order == ("M", "N", "K")
    assert spec.rank_order == {"A": ("M", "K"), "B": ("K", "N"), "T": ("M", "K", "N"), "Z": ("M", "N")}


def test_older_keys_and_tensors_without_ranks() -> None:
    new = {"declaration": {"A": ["K"], "b": [], "s": [], "Z": ["K"]}}
    bare = read_teaal({"einsum": {**new, "expression": ["s[] = b", "Z[k] = s * A[k]"]}})
    full = read_teaal({"einsum": {**new, "expressions": ["s[] = b[]", "Z[k] = s[] * A[k]"]}})
    assert bare.expressions == full.expressions
    assert full.expressions[0].operands == (IndexedTensor("b", ()),)


def test_declarations_in_a_list_as_older_files_have_them() -> None:
    ranks = {"A": ["K", "M"], "s": [], "Z": ["M"]}
    expressions = ["Z[m] = s * A[k, m]"]
    listed = {"declaration": ["A[K, M]", "s[]", "Z[M]"], "expressions": expressions}
    new = {"declaration": ranks, "expressions": expressions}
    assert read_teaal({"einsum": listed}) == read_teaal({"einsum": new})


def test_a_sum_of_several_terms_is_summed_up_term_by_term() -> None:
    declared = {"A": ["I", "J"], "B": ["I", "J"], "Z": ["I"]}
    within = {"declaration": declared, "expressions": ["Z[i] = sum(J).(A[i, j] + B[i, j])"]}
    without = {"declaration": declared, "expressions": ["Z[i] = A[i, j] + B[i, j]"]}
    first, second = (read_teaal({"einsum": e}).expressions[0] for e in (within, without))
    assert first.terms == second.terms
    assert len(first.terms) == 2
