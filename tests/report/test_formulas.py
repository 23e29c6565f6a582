"""Formulas and sizes that a cascade tells: the operation as it is given, tensors without padding."""

from __future__ import annotations

import pytest

import polymodel as pm
from polymodel.report.svg_cascade import cascade_svg, shape_of
from polymodel.workload.einsum import einsum_text, with_remarks
from tests.report.pictures import taken_apart


def spec_of(einsum: object, **sizes: int) -> pm.Spec:
    work = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [einsum]}
    return pm.load({"workload": {**work, "operators": {"softmax": {}}}})


def with_map(operations: dict[str, str]) -> pm.Spec:
    accesses = [{"name": n, "projection": ["m"], "output": n == "Z"} for n in ("A", "B", "Z")]
    return spec_of({"name": "Z", "tensor_accesses": accesses, "operations": operations}, M=4)


def test_a_sum_is_shown_as_a_sum() -> None:
    spec = spec_of("Z[m, n] = A[m, n] + B[m, n]", M=4, N=5)
    (einsum,) = spec.workload
    assert einsum_text(einsum) == "Z[m, n] = A[m, n] + B[m, n]"
    assert "Z[m, n] = A[m, n] + B[m, n]" in str(spec.workload)
    svg = cascade_svg(spec.workload)
    assert "+ B[m, n]" in svg
    assert "·" not in svg


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        ({}, "Z[m] = A[m] * B[m]"),
        ({"map": "mul"}, "Z[m] = A[m] * B[m]"),
        ({"map": "sub"}, "Z[m] = A[m] - B[m]"),
        ({"map": "div"}, "Z[m] = A[m] / B[m]"),
        ({"map": "max"}, "Z[m] = max(A[m], B[m])"),
        ({"map": "exp(sub(_0, _1))"}, "Z[m] = exp(sub(A[m], B[m]))"),
        ({"map": "softmax(_0, tokens)"}, "Z[m] = softmax(A[m], tokens)"),
        ({"map": "add", "reduce": "add"}, "Z[m] = A[m] + B[m]"),
        ({"reduce": "max"}, "Z[m] = A[m] * B[m] (reduce: max)"),
        ({"reduce": "min", "populate": "relu(_)"}, "Z[m] = A[m] * B[m] (reduce: min; populate: relu(_))"),
    ],
)
def test_operations_are_told_as_they_are_given(operations: dict[str, str], text: str) -> None:
    spec = with_map(operations)
    (einsum,) = spec.workload
    assert with_remarks(einsum) == text
    drawn = cascade_svg(spec.workload)
    for remark in text.partition(" (re")[2].rstrip(")").split("; "):
        assert remark in drawn


def test_products_and_sums_of_a_teaal_spec_are_told_apart() -> None:
    expressions = ["Z[m] = A[m] * B[m] + C[m] * A[m]"]
    declared = {tensor: ["M"] for tensor in "ABCZ"}
    spec = pm.load({"einsum": {"declaration": declared, "expressions": expressions}, "symbols": {"M": 4}})
    (einsum,) = spec.workload
    assert einsum_text(einsum) == "Z[m] = A[m] * B[m] + C[m] * A[m]"


@pytest.mark.parametrize(
    ("einsum", "sizes", "shape", "told"),
    [
        # Rows 2 oy + fy - 1 = -1..27; row -1 is padding, and is skipped.
        ("O[oy] = I[IY=2*oy + fy - 1] * W[fy]", {"OY": 14, "FY": 3, "IY": 28}, 28, "IY 28: 28 elements"),
        # Rows -1..9 of 9: one of padding at either end.
        ("O[oy] = I[IY=2*oy + fy - 1] * W[fy]", {"OY": 5, "FY": 3, "IY": 9}, 9, "IY 9: 9 elements"),
        # Dilation 2 and padding 2: rows -2..10 of 9, both ends cut off.
        ("O[oy] = I[IY=oy + 2*fy - 2] * W[fy]", {"OY": 9, "FY": 3, "IY": 9}, 9, "IY 9: 9 elements"),
        # A filter of one row with stride 3: rows 0, 3, 6.
        ("O[oy] = I[IY=3*oy + fy] * W[fy]", {"OY": 3, "FY": 1}, 7, "IY 7: 3 of its 7 elements are used,"),
    ],
)
def test_padding_is_no_part_of_a_tensor(einsum: str, sizes: dict[str, int], shape: int, told: str) -> None:
    cascade = spec_of(einsum, **sizes).workload
    assert shape_of(cascade, "I") == (("IY", shape),)
    assert any(told in node.told for node in taken_apart(cascade_svg(cascade)).nodes)


def test_the_layers_of_a_padded_block_keep_their_size() -> None:
    cascade = pm.load("resnet_basic_block").workload
    assert shape_of(cascade, "I") == (("C", 64), ("H", 56), ("W", 56))
    assert "+ I[C=c2, H=p - 1, W=q]" in cascade_svg(cascade)
