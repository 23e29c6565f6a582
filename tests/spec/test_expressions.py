"""Numbers, affine expressions, constraints and one-line Einsums; nothing runs code or hangs."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import SpecError
from polymodel.spec.faults import TextFault
from polymodel.spec.numbers import (
    evaluate_number,
    parse_affine,
    parse_constraints,
    symbols_in,
)
from polymodel.spec.one_line import parse_einsum
from tests.faults import faults

WORDS = st.sampled_from(
    "m n p r 1 2 3 0 12 1.5 1e9 9e99 1e400 + - * / // % ** ( ) [ ] , . = == < <= > >= != ~ & | and or not "
    "mod exists inf min max ceil __import__ lambda if : { } \" ' \\ @ é".split()
)
TEXTS = st.one_of(
    st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS).map("".join)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8 * 614e9", 8 * 614e9),
        ("1.6e13", 1.6e13),
        ("8 * 128 * 1024", 1048576),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("2 ** 10 - 24", 1000),
        ("-2 ** 2", -4),
        ("2 ** -1", 0.5),
        ("7 // 2 + 7 % 2", 4),
        ("128 / 4", 32),
        ("1300e-12 / 64", 1300e-12 / 64),
        ("ceil(7 / 2) + floor(2.5) + min(1, 2) + max(3, 4, 5)", 12),
        ("TM * (TN - 1)", 6),
        ("1_000", 1000),
    ],
)
def test_numbers(text: str, value: float) -> None:
    found = evaluate_number(text, {"TM": 3, "TN": 3})
    assert found == value
    assert isinstance(found, int) == isinstance(value, int)


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("2 +", 3, "the end"),
        ("2 * (3", 6, "to close"),
        ("2 3", 2, "unexpected"),
        ("2m", 1, "operator is missing"),
        ("TX", 0, "unknown symbol"),
        ("9**9**9", 1, "too large"),
        ("1e300 * 1e300", 0, "too large"),
        ("1 / 0", 2, "zero"),
        ("inf - inf", 4, "not a real"),
        ("open(1)", 0, "unknown function"),
        ("a.b", 1, "dots|not a number"),
        ("(-8) ** 0.5", 5, "not a real"),
        ("1" * 50, 0, "too long"),
        ("1 +" * 700 + "1", 0, "characters"),
        ("(" * 50 + "1" + ")" * 50, 40, "nested"),
        ("-" * 100 + "1", 40, "nested"),
        ("8 if TM else 2", 2, "no conditions"),
        ("TM > 2", 3, "no conditions"),
        ("2 and TM", 2, "no conditions"),
    ],
)
def test_bad_numbers(text: str, offset: int, word: str) -> None:
    with pytest.raises(TextFault, match=word) as caught:
        evaluate_number(text, {"TM": 3})
    assert abs(caught.value.offset - offset) <= 1


def test_symbols() -> None:
    assert symbols_in("2 * TM + TN - inf + max(TM, 1)") == ("TM", "TN")
    assert symbols_in(8) == ()
    with faults("unbound-symbol", "TM", at=""):
        evaluate_number("2 * TM", {"TM": None})


def test_affine() -> None:
    assert parse_affine("p + r") == Affine((("p", 1), ("r", 1)))
    assert parse_affine("2*p + 3*r - 1") == Affine((("p", 2), ("r", 3)), -1)
    assert parse_affine("2 * (p - (r + 1)) + p * 0") == Affine((("p", 2), ("r", -2)), -2)
    assert parse_affine("-p + p") == Affine()
    assert parse_affine("S * p + r", {"S": 2}) == Affine((("p", 2), ("r", 1)))
    assert parse_affine(0) == Affine()
    assert parse_affine("p + 7 // 2") == Affine((("p", 1),), 3)
    for bad in ("p * r", "p // 2", "p % 2", "p ** 2", "max(p, r)", "0.5 * p", "2 ** 70", "p / 2"):
        with pytest.raises(TextFault):
            parse_affine(bad)


def test_constraints() -> None:
    m, k = Affine.variable("m"), Affine.variable("k")
    one = Affine((), 1)
    assert parse_constraints("0 <= m < 128") == (Constraint(m), Constraint(Affine((), 127) - m))
    assert parse_constraints("m = k and m >= 1") == (Constraint(m - k, "eq"), Constraint(m - one))
    assert parse_constraints("m mod 4 = 1") == (Constraint(m - one, "mod", 4),)
    assert parse_constraints("0 = (m + k) % 2") == (Constraint(m + k, "mod", 2),)
    assert parse_constraints("k <= m <= N", {"N": 9}) == (Constraint(m - k), Constraint(Affine((), 9) - m))
    for bad in (
        "m",
        "m < 3 or m > 5",
        "not m = 3",
        "exists a : m = a",
        "m != 3",
        "m mod 2 = 2",
        "m mod k = 0",
    ):
        with pytest.raises(TextFault):
            parse_constraints(bad)


@settings(max_examples=60)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_affine_text_reads_back(a: int, b: int, c: int, x: int, y: int) -> None:
    expr = Affine.variable("x").scaled(a) + Affine.variable("y").scaled(b) + Affine((), c)
    assert parse_affine(str(expr)).value({"x": x, "y": y}) == a * x + b * y + c


def test_one_line_einsums() -> None:
    found = parse_einsum("O[p, m] = I[H=2*p+r, C=0] * F[r, m]")
    assert found.accesses == (
        ("O", (("P", "p"), ("M", "m")), True),
        ("I", (("H", "2*p+r"), ("C", "0")), False),
        ("F", (("R", "r"), ("M", "m")), False),
    )
    assert parse_einsum("Y[] = A[k] + B[k]").joined == "+"
    for bad in ("Y[m]", "Y[m] = ", "Y[m] = A", "Y[m] = A[p + r]", "= A[m]", "Y[m] = A[m] B[m]", "Y[m = A[m]"):
        with pytest.raises(TextFault):
            parse_einsum(bad)


@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_parsers_raise_nothing_but_spec_errors(text: str) -> None:
    for read in (evaluate_number, parse_affine, parse_constraints, parse_einsum):
        with contextlib.suppress(SpecError):
            read(text)


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        (
            "E[m] = A[m] - B[m]",
            "`-` is not an operator of one-line Einsums, which know `*` and `+`",
            "map: sub",
        ),
        ("E[m] = A[m] * C[m] / B[m]", "`/` is not an operator of one-line Einsums", "map: div"),
        ("E[m] = exp(A[m])", "exp(...): one-line Einsums have no functions", "map: exp"),
        ("E[m] == A[m]", "`==` compares", "write one `=`"),
    ],
)
def test_what_one_line_cannot_say_is_told_with_the_way(text: str, message: str, remedy: str) -> None:
    with pytest.raises(TextFault) as caught:
        parse_einsum(text)
    assert message in caught.value.message
    assert remedy in caught.value.remedy


def test_a_unit_within_an_expression_goes_to_its_end() -> None:
    with pytest.raises(SpecError) as caught:
        evaluate_number("200 pJ / 16", {})
    assert caught.value.diagnostics[0].remedy == (
        "write 200*1e-12 (joules), or put the unit at the end of the expression"
    )
