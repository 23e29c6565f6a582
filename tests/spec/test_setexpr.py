"""Set expressions: precedence, universe, kinds, unknown names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.spec.expressions import SetScope, evaluate_set, parse_set, tensor_set
from polymodel.spec.faults import TextFault
from tests.faults import faults

SCOPE = SetScope(
    einsum="E",
    tensors=("A", "B", "C"),
    rank_variables=("m", "k", "n"),
    named={
        "All": frozenset("ABC"),
        "Tensors": frozenset("ABC"),
        "Inputs": frozenset("AB"),
        "Outputs": frozenset("C"),
        "Intermediates": frozenset("AC"),
        "Shared": frozenset("A"),
        "Persistent": frozenset("B"),
    },
    known=frozenset("ABCD"),
    variables_of={"A": frozenset("mk"), "B": frozenset("kn"), "C": frozenset("mn")},
    component=lambda name: frozenset("AB") if name == "DRAM" else None,
    component_names=("DRAM",),
)


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("A", "A"),
        ("D", ""),
        ("~D", "ABC"),
        ("~A", "BC"),
        ("~~A", "A"),
        ("A | B & C", "A"),
        ("(A | B) & C", ""),
        ("B | A & ~A", "B"),
        ("All - A | A", "ABC"),
        ("All - (A | B)", "C"),
        ("Inputs & Intermediates", "A"),
        ("~(Inputs | Outputs)", ""),
        ("Outputs()", "C"),
        ("~DRAM.tensors", "C"),
        ("Shared | Persistent", "AB"),
        ("Nothing", ""),
        ("~Nothing", "ABC"),
        ("Tensors - Nothing", "ABC"),
        ("A - B - A", ""),
    ],
)
def test_tensors(text: str, members: str) -> None:
    assert tensor_set(parse_set(text), SCOPE) == frozenset(members)


def test_rank_variables() -> None:
    found = evaluate_set(parse_set("Inputs.rank_variables - Outputs.rank_variables"), SCOPE)
    assert (found.kind, found.members) == ("rank_variables", frozenset("k"))
    assert evaluate_set(parse_set("~k"), SCOPE).members == frozenset("mn")
    assert evaluate_set(parse_set("k | Nothing"), SCOPE).kind == "rank_variables"
    for bad in ("A | k", "A.rank_variables & A", "k.rank_variables"):
        with pytest.raises(TextFault):
            evaluate_set(parse_set(bad), SCOPE)
    with faults("wrong-type", at=""):
        tensor_set(parse_set("k"), SCOPE)


@pytest.mark.parametrize(
    ("text", "word", "remedy"),
    [
        ("Inptus", "unknown name", "Inputs"),
        ("GLB.tensors", "unknown component", "DRAM"),
        ("DRAM", "is a component", "DRAM.tensors"),
        ("A.tensor", "unknown attribute", "tensors"),
        ("A or B", "not a set operator", "|"),
        ("Other", "dictionary keys only", "~"),
        ("Outputs(A)", "is not a set", "Outputs()"),
        ("f()", "is not a set", "Outputs()"),
        ("", "empty", ""),
        ("A |", "expected a name", ""),
        ("(A", "expected", ""),
        ("A B", "unexpected", ""),
        ("~" * 60 + "A", "nested", ""),
    ],
)
def test_faults(text: str, word: str, remedy: str) -> None:
    with pytest.raises(TextFault, match=word) as caught:
        evaluate_set(parse_set(text), SCOPE)
    assert remedy in caught.value.remedy


def test_other_is_a_key_only() -> None:
    assert parse_set("Other", key=True)
    with faults("syntax-error", "Other", at=""):
        parse_set("~Other", key=True)


NAMES = st.sampled_from(["A", "B", "C", "D", "All", "Inputs", "Outputs", "Nothing", "Shared"])


def trees(depth: int) -> st.SearchStrategy[tuple[str, frozenset[str]]]:
    """Fully bracketed texts together with the set that Python computes for them."""
    leaf = NAMES.map(lambda n: (n, SCOPE.named.get(n, frozenset(n) & frozenset("ABC"))))
    if not depth:
        return leaf
    below = trees(depth - 1)
    negated = below.map(lambda t: (f"~({t[0]})", frozenset("ABC") - t[1]))
    return st.one_of(
        leaf,
        negated,
        st.tuples(below, below).map(lambda p: (f"({p[0][0]}) | ({p[1][0]})", p[0][1] | p[1][1])),
        st.tuples(below, below).map(lambda p: (f"({p[0][0]}) & ({p[1][0]})", p[0][1] & p[1][1])),
        st.tuples(below, below).map(lambda p: (f"({p[0][0]}) - ({p[1][0]})", p[0][1] - p[1][1])),
    )


@settings(max_examples=150, deadline=None)
@given(trees(3))
def test_agrees_with_python_sets(tree: tuple[str, frozenset[str]]) -> None:
    text, members = tree
    assert tensor_set(parse_set(text), SCOPE) == members


PIECES = [
    *"ABDmk~&|-().1,é\0",
    "DRAM",
    "Inputs",
    "Outputs",
    "Other",
    "Nothing",
    "tensors",
    "rank_variables",
    "and",
]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=20).map(" ".join)))
def test_parser_raises_nothing_but_spec_errors(text: str) -> None:
    with contextlib.suppress(SpecError):
        evaluate_set(parse_set(text), SCOPE)
