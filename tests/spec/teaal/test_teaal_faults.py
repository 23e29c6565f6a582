"""Specs that the reference tool accepts, or dies of: each fault has its place, its reason and a remedy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.errors import Diagnostic
from polymodel.spec.teaal import read_teaal
from tests.faults import faults

HEAD = """einsum:
  declaration: {A: [K, M], B: [K, N], I: [W], F: [R], O: [P], T: [K, M], Z: [M, N], Y: [M], s: []}
  expressions:
"""
PRODUCT = "  - Z[m, n] = A[k, m] * B[k, n]\n"


def diagnostics(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(pm.SpecError) as caught:
        read_teaal(text, "x.yaml")
    return caught.value.diagnostics


def test_sizes_beyond_64_bits_are_told() -> None:
    (found,) = diagnostics(
        HEAD + PRODUCT + f"mapping:\n  partitioning: {{Z: {{K: [uniform_shape({10**30})]}}}}\n"
    )
    assert "above 64 bits" in found.message


def test_a_tensor_that_a_list_declares_twice_and_a_term_without_a_summed_rank_are_told() -> None:
    listed = "einsum:\n  declaration:\n  - A[K]\n  - A[K]\n  - Z[]\n"
    (twice,) = diagnostics(listed + "  expressions:\n  - Z[] = A[k]\n")
    assert (twice.place.line, twice.message) == (4, "tensor A is declared twice")
    declared = "einsum:\n  declaration: {A: [I, J], B: [I], Z: [I]}\n  expressions:\n"
    (lacks,) = diagnostics(declared + "  - Z[i] = sum(J).(A[i, j] + B[i])\n")
    assert "does not have rank J" in lacks.message
    assert "out of the sum" in lacks.remedy


@pytest.mark.parametrize("expressions", ["  - Z[m, n] = A[k, m] *\n", "  - 5\n"])
def test_an_expression_that_cannot_be_read_is_told_once(expressions: str) -> None:
    """What the mapping says of its Einsum is not a fault of its own; of another name it is."""
    mapping = "mapping:\n  loop-order: {Z: [M, N, K]}\n  spacetime: {Z: {space: [M], time: [N, K]}}\n"
    assert len(diagnostics(HEAD + expressions + mapping)) == 1
    assert len(diagnostics(HEAD + expressions + mapping.replace("{Z: [", "{Q: ["))) == 2


@pytest.mark.parametrize(
    ("expression", "mark", "reason", "remedy"),
    [
        ("Z[m, n] = A[k, m] * Bb[k, n]", "Bb", "unknown tensor Bb", "did you mean B?"),
        ("Z[m, n] = A[k] * B[k, n]", "A[k]", "declared with 2 ranks [K, M] and indexed with 1", "one index"),
        ("Z[m, n] = A[m, k] * B[k, n]", "A[m", "A is declared [K, M]", "write A[k, m]"),
        ("Z[m, n] = A[k, m] * B[k, x]", "x]", "unknown rank X of rank variable x", "rank variables: "),
        ("Z[m, n] = A[3, m] * B[k, n]", "3, m", "no rank variable", "write a rank variable"),
        ("Z[m, n] = A[k*m, m] * B[k, n]", "*m, m", "not affine", "integer multiples"),
        ("Z[m, n] = A[2k, m] * B[k, n]", "k, m", "an operator is missing", "2*k"),
        ("Z[m, n] = A[k, m] - take(A[k, m], B[k, n], 0)", "- take", "is not subtracted", "its own"),
        ("Z[m, n] = -A[k, m]", "A[k", "in front of numbers only", "-1 *"),
        ("Z[m, n] = A[k, m] / B[k, n]", "/ B", "there is no division", "inverse"),
        ("Z[m, n] = A[k, m", "Z[", "expected ','", "add"),
        ("Z[m, n] = A[k, m] * B", "B", "B is a tensor and stands without indices", "write B[k, n]"),
        ("Z[m, n] = 2 * a", "Z[", "no tensor on the right", "write e.g."),
        ("Z[m, n] = take(A[k, m], B[k, n], 2)", "2)", "take gives factor number 2, but has 2", "0 to 1"),
        ("Z[m, n] = take(A[k, m], B[k, n])", ")", "expected ',' after a factor of take", "add"),
        ("Z[m, n] = A[k, m] * take(A[k, m], B[k, n], 1)", "take", "term of its own", "an Einsum"),
        ("Z[m, n] = relu(A[k, m])", "relu", "unknown function relu", "take"),
        ("Z[m, n] = Z[m, n] * A[k, m]", "Z[m, n] *", "read by the expression that makes it", "another name"),
    ],
)  # fmt: skip
def test_expressions(expression: str, mark: str, reason: str, remedy: str) -> None:
    text = f"{HEAD}  - {expression}\n"
    before = text.index(expression)
    if mark == "Z[":
        # What lacks its end is told at the end of the text, or at its beginning where nothing else is right.
        (found, *_) = diagnostics(text)
        assert (found.place.line, reason in found.message) == (4, True), found.render()
        return
    at = before + expression.rindex(mark)
    (found,) = diagnostics(text)
    column = at - text.rindex("\n", 0, at)
    assert (found.place.line, found.place.column) == (4, column), found.render()
    assert reason in found.message
    assert remedy in found.remedy


def test_a_second_expression_of_an_output_and_a_use_before_the_definition() -> None:
    text = f"{HEAD}{PRODUCT}  - Y[m] = T[k, m]\n  - T[k, m] = A[k, m]\n  - Z[m, n] = B[k, n] * A[k, m]\n"
    (one,) = diagnostics(text)
    assert (one.place.line, one.place.column) == (5, 12)
    assert "T is read before expression number 3 makes it" in one.message
    _, two = diagnostics(f"{text}mapping:\n  rank-order: {{Z: [N, M]}}\n  loop-order: {{Z: [M, N, K]}}\n")
    assert two.place.line == 10
    assert "2 expressions make Z, and this may be of any of them" in two.message


@pytest.mark.parametrize(
    ("mapping", "mark", "reason", "remedy"),
    [
        ("rank-order: {A: [M]}", "[M]", "[M] is not an order of the ranks [K, M] of A", "each of K, M once"),
        ("rank-order: {A: [M, J]}", "[M, J]", "is not an order of the ranks", "ranks: K, M"),
        ("rank-order: {C: [M]}", "C: ", "unknown tensor C", "tensors: "),
        ("rank-ordr: {}", "rank-ordr", "unknown key `rank-ordr`", "did you mean rank-order?"),
        ("partitioning: {Z: {K: [uniform_shape(0)]}}", "0)", "the size 0 is below 1", "at least 1"),
        ("partitioning: {Z: {K: [uniform_shape(-8)]}}", "-8", "uniform_shape(-8)", "at least 1"),
        ("partitioning: {Z: {K: [uniform_shape(2.5)]}}", "2.5", "not a whole number", "whole number"),
        ("partitioning: {Z: {K: [uniform_shape()]}}", ")]", "needs a size", "uniform_shape(8)"),
        ("partitioning: {Z: {K: [unifrm_shape(8)]}}",
         "unifrm", "unknown operation unifrm_shape", "uniform_shape?"),
        ("partitioning: {Z: {K: [uniform_occupancy(8)]}}", "8)", "needs a leader", "uniform_occupancy(A.32)"),
        ("partitioning: {Z: {K: [uniform_occupancy(A)]}}", ")]", "needs the size", "uniform_occupancy(A.32)"),
        ("partitioning: {Z: {K: [uniform_occupancy(A.0)]}}", "0)", "below 1", "at least 1"),
        ("partitioning: {Z: {N: [uniform_occupancy(A.8)]}}",
         "A.8", "leader A has no rank N", "name one of B"),
        ("partitioning: {Z: {M: [uniform_occupancy(Z.8)]}}",
         "Z.8", "leader Z is the output", "name one of A"),
        ("partitioning: {Z: {M: [uniform_occupancy(T.8)]}}",
         "T.8", "leader T is not an operand", "name one of A"),
        ("partitioning: {Z: {M: [uniform_occupancy(X.8)]}}", "X.8", "unknown tensor X", "operands: A, B"),
        ("partitioning: {Z: {M: [follow(A)]}}", "A)", "A leads no partitioning that rank M could follow", ""),
        ("partitioning: {Z: {Q: [uniform_shape(8)]}}",
         "Q:", "unknown rank Q", "ranks of this Einsum: M, N, K"),
        ("partitioning: {ZZ: {K: [uniform_shape(8)]}}", "ZZ:", "unknown Einsum ZZ", "did you mean Z?"),
        ("partitioning: {Z: {K: [uniform_occupancy(A.8), nway_shape(2)]}}",
         "nway", "nway_shape follows", "first"),
        ("partitioning: {Z: {K: [flatten()]}}", "K: [fl", "combines two ranks or more", "(R, S)"),
        ("partitioning: {Z: {N: [uniform_slice(8)]}}", "uniform_slice", "outermost rank is N", "rank-order"),
        ("partitioning: {Z: {K: [uniform_shape(8), uniform_slice(8)]}}",
         "uniform_slice", "stands first", "deals"),
        ("loop-order: {Z: [M, N]}", "[M, N]}", "the loop order lacks K", "its ranks are M, N, K"),
        ("loop-order: {Z: [M, N, K, K]}", "K]}", "rank K is listed twice", "once"),
        ("loop-order: {Z: [M, N, J]}", "J]}", "unknown rank J", "ranks after partitioning: M, N, K"),
        ("spacetime: {Z: {space: [M], time: [N]}}", "{space", "K of the loop order stand neither", "time"),
        ("spacetime: {Z: {space: [M], time: [N, K, M]}}",
         "M]}}", "rank M stands twice", "in space or in time"),
        ("spacetime: {Z: {space: [M], time: [N, J]}}", "J]}}", "unknown rank J", "ranks of the loop order"),
        ("spacetime: {Z: {space: [M.cord], time: [N, K]}}", "cord", "cannot be stamped by cord", "coord?"),
        ("spacetime: {Z: {space: [M], time: [N, K], opt: slp}}",
         "slp", "unknown spacetime", "did you mean slip?"),
    ],
)  # fmt: skip
def test_mappings(mapping: str, mark: str, reason: str, remedy: str) -> None:
    text = f"{HEAD}{PRODUCT}mapping:\n  {mapping}\n"
    found = diagnostics(text)[0]
    at = text.index("mapping:\n") + len("mapping:\n  ") + mapping.rindex(mark)
    column = at - text.rindex("\n", 0, at)
    assert (found.place.line, found.place.column) == (6, column), found.render()
    assert reason in found.message
    assert remedy in found.remedy


FLATTENED = """mapping:
  partitioning:
    Z:
      {rest}
"""


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        (["(K, M): [flatten(), uniform_shape(8)]"], ["flatten() stands alone on its ranks (K, M)"]),
        (["(K, M): [uniform_shape(8)]"], ["uniform_shape splits one rank, not (K, M)"]),
        (["(K, M): [flatten()]", "KM: [uniform_shape(8)]"], ["the flattened rank KM has none"]),
        (["(K, M): [flatten()]", "KM: [nway_shape(8)]"], ["the flattened rank KM has none"]),
        (["(K, M): [flatten()]", "(KM, N): [flatten()]"], ["KM is a flattened rank and cannot"]),
        (["K: [uniform_shape(8)]", "(K1, M): [flatten()]"], ["K1 is not the innermost part of K"]),
        (["K: [uniform_shape(8)]", "(K, M): [flatten()]"], ["rank K is partitioned twice, also as K"]),
        (["(K, K): [flatten()]"], ["rank K is listed twice"]),
    ],
)
def test_flattened_ranks(lines: list[str], reasons: list[str]) -> None:
    text = HEAD + PRODUCT + FLATTENED.format(rest="\n      ".join(lines))
    found = [d.message for d in diagnostics(text)]
    for reason in reasons:
        assert any(reason in message for message in found), found


def test_index_math_is_not_flattened_and_stands_in_for_one_variable_at_most() -> None:
    head = HEAD + "  - O[p] = I[p + r] * F[r]\n"
    assert (
        "rank P takes part in index math"
        in diagnostics(head + "mapping: {partitioning: {O: {'(P, R)': [flatten()]}}}\n")[0].message
    )
    assert read_teaal(head + "mapping: {loop-order: {O: [W, P]}}\n").mapping_of("O").loop_order == ("W", "P")
    (found,) = diagnostics(head + "mapping: {loop-order: {O: [W, P, R]}}\n")
    assert "do not give each rank variable once" in found.message


def test_every_fault_is_told_at_once() -> None:
    text = (
        f"{HEAD}  - Z[m, n] = A[k, m] * C[k, n]\nmapping:\n  loop-order: {{Zz: [M]}}\n"
        "  partitioning: {Z: {K: [uniform_shape(0)]}}\nformat: {Q: {}}\n"
    )
    found = [(d.place.line, d.message) for d in diagnostics(text)]
    assert [line for line, _ in found] == [4, 6, 7, 8]


def test_text_that_is_no_spec() -> None:
    for text in ("[]", "3", "einsum:", "mapping: {}"):
        assert diagnostics(text)
    assert "unknown section `mappings`" in diagnostics(f"{HEAD}{PRODUCT}mappings: {{}}\n")[0].message


def test_values_of_symbols_are_checked_where_the_symbol_stands(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        f"{HEAD}{PRODUCT}mapping:\n  partitioning: {{Z: {{K: [uniform_shape(P)]}}}}\n", encoding="utf-8"
    )
    spec = pm.load(path)
    with faults("not-positive-integer", "P", at="teaal.mapping.partitioning.Z.K[0]") as caught:
        spec.bind(P=0)
    assert caught.value.diagnostics[0].place.line == 6


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_wrong_is_told_and_nothing_breaks(seed: int, tmp_path: Path) -> None:
    """Texts with pieces cut out and put elsewhere: they load, or are faults."""
    chance = random.Random(seed)
    files = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    text = chance.choice(files).read_text(encoding="utf-8")
    for _ in range(3):
        a, b = sorted(chance.sample(range(len(text)), 2))
        piece = text[b : b + chance.randint(0, 12)]
        text = text[:a] + piece + text[a + chance.randint(0, 4) :]
    path = tmp_path / "x.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        spec = pm.load(path, "simple_two_level")
        spec = spec.bind(**{name: 6 for name, value in spec.symbols.items() if value is None})
    except pm.SpecError as error:
        told = [d.message for d in error.diagnostics]
    else:
        told = [str(spec)]
    assert all(told)
