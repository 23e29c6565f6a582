"""Every construct of the grammar, in YAML text, as a mapping, and printed again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec.faults import TextFault
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import (
    Directive,
    FactorProduct,
    Index,
    IndexedTensor,
    Partition,
    Stamp,
    Take,
    directive_text,
)
from polymodel.spec.teaal.text import parse_directive, parse_expression, parse_level, parse_ranks, parse_stamp

CASES = Path(__file__).parent / "cases"
EVERY = CASES / "every_construct.yaml"
DECLARED = {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"], "Y": ["M"]}
TWO = ("Z[m, n] = A[k, m] * B[k, n]", "Y[m] = Z[m, n]")


def test_the_file_with_every_construct_loads() -> None:
    spec = pm.load(EVERY).teaal
    assert spec is not None
    assert [e.name for e in spec.expressions] == ["O", "X", "S", "T", "U", "Z", "Y", "total"]
    assert spec.declaration["total"] == spec.declaration["g"] == ()
    assert spec.rank_sizes["N"] == 16
    assert spec.rank_sizes["V"] == "V"
    assert "W" not in spec.rank_sizes
    assert spec.mapping_of("O").loop_order == ("P2", "P1", "W0", "P0")
    assert spec.mapping_of("Y").loop_order == ("M", "N", "K")
    assert spec.mapping_of("S").partitioning == (Partition(("K",), (Directive("uniform_shape", 16),)),)
    assert spec.mapping_of("U").partitioning[1:] == (
        Partition(("M", "K0"), (Directive("flatten"),)),
        Partition(
            ("MK0",), (Directive("uniform_occupancy", 256, "T"), Directive("uniform_occupancy", 16, "T"))
        ),
    )
    spacetime = spec.mapping_of("T").spacetime
    assert spacetime is not None
    assert spacetime.slip
    assert spacetime.space == (Stamp("M1"), Stamp("K1", "coord"))
    assert spec.mapping_of("total").spacetime is None


def test_terms_and_factors() -> None:
    found = parse_expression(
        "Y[m] = alpha * Z[m, n] * 0.5 + -1 * S[k, m] + take(A[m], B[m], 1) + g[]"
    ).expression
    first, second, third, last = found.terms
    assert isinstance(first, FactorProduct)
    assert first.factors[0] == "alpha"
    assert first.factors[2] == 0.5
    assert isinstance(second, FactorProduct)
    assert second.factors[0] == -1
    assert isinstance(third, Take)
    assert third.which == 1
    assert last == FactorProduct((IndexedTensor("g"),))


def test_scalars_in_take() -> None:
    plain, scaled, taken = (
        parse_expression(f"Z[k] = take({factors})").expression.terms[0]
        for factors in ("A[k], B[k], 1", "alpha, A[k], 2, B[k], 3", "A[k], alpha, 1")
    )
    a, b = IndexedTensor("A", (Index((("k", 1),)),)), IndexedTensor("B", (Index((("k", 1),)),))
    assert plain == Take((a, b), 1)
    assert scaled == Take((a, b), 1, ((0, "alpha"), (2, 2.0)))
    assert taken == Take((a,), -1, ((1, "alpha"),))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("2*p + r", (("p", 2), ("r", 1))),
        ("-1*v", (("v", -1),)),
        ("w + -2 * q", (("w", 1), ("q", -2))),
        ("p - r", (("p", 1), ("r", -1))),
    ],
)
def test_index_math(text: str, terms: tuple[tuple[str, int], ...]) -> None:
    operand = parse_expression(f"Z[x] = A[{text}]").expression.operands[0]
    assert operand.indices == (Index(terms),)


@pytest.mark.parametrize(
    "text",
    [
        "uniform_shape(8)",
        "uniform_shape(K1)",
        "nway_shape(6)",
        "uniform_occupancy(A.32)",
        "uniform_occupancy(A.K0)",
        "follow(Q)",
        "flatten()",
        "uniform_slice(8)",
    ],
)
def test_operations_print_as_they_are_written(text: str) -> None:
    assert directive_text(parse_directive(text)) == text
    assert parse_directive(text.replace("(", " ( ").replace(")", " ) ")) == parse_directive(text)


def test_keys_stamps_and_levels() -> None:
    assert parse_ranks("K") == ("K",)
    assert parse_ranks("(M, K0)") == parse_ranks("(M,K0)") == ("M", "K0")
    assert parse_stamp("K0") == parse_stamp("K0.pos") == Stamp("K0")
    assert parse_level("PE[0..31]") == ("PE", 32)
    assert parse_level("System") == ("System", 1)
    for text in ("PE[1..3]", "PE[0..]", "PE[0..3", "3"):
        with pytest.raises(TextFault):
            parse_level(text)


@pytest.mark.parametrize(
    "expressions",
    [list(TWO), "\n".join(TWO), " ".join(TWO), "Z[m, n] = A[k, m]\n   * B[k, n]\nY[m] = Z[m, n]\n"],
)
def test_expressions_as_a_list_and_as_text(expressions: object) -> None:
    spec = read_teaal({"einsum": {"declaration": DECLARED, "expressions": expressions}})
    assert tuple(e.text for e in spec.expressions) == TWO


def test_the_default_loop_order_is_the_output_as_stored_then_the_rest_split_in_place() -> None:
    spec = read_teaal(
        {
            "einsum": {"declaration": DECLARED, "expressions": [TWO[0]]},
            "mapping": {
                "rank-order": {"Z": ["N", "M"]},
                "partitioning": {
                    "Z": {"K": ["uniform_shape(8)", "uniform_shape(2)"], "N": ["nway_shape(3)"]}
                },
            },
        }
    )
    assert spec.mapping_of("Z").loop_order == ("N1", "N0", "M", "K2", "K1", "K0")


def test_flattened_ranks_take_the_place_of_the_first() -> None:
    spec = read_teaal(
        {
            "einsum": {"declaration": DECLARED, "expressions": [TWO[0]]},
            "mapping": {
                "partitioning": {
                    "Z": {
                        "MK0": ["uniform_occupancy(A.8)"],
                        "(M, K0)": ["flatten()"],
                        "K": ["uniform_shape(4)"],
                    }
                }
            },
        }
    )
    assert spec.mapping_of("Z").loop_order == ("MK01", "MK00", "N", "K1")


def test_template_variables_and_symbols_work_as_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        "einsum:\n  declaration: {A: [K, M], Z: [M]}\n  expressions: ['Z[m] = A[k, m]']\n"
        "mapping:\n  partitioning: {Z: {K: ['uniform_shape({{ TILE }})'], M: [uniform_shape(M0)]}}\n",
        encoding="utf-8",
    )
    spec = pm.load(path, TILE=6, symbols={"K": 12})
    assert spec.symbols == {"K": 12, "M": None, "M0": None}
    bound = spec.bind(M=10, M0=4).teaal
    assert bound is not None
    sizes = [d.size for p in bound.mapping_of("Z").partitioning for d in p.directives]
    assert (sizes, bound.rank_sizes) == ([6, 4], {"K": 12, "M": 10})


def test_a_spec_prints_as_a_table() -> None:
    text = str(read_teaal((CASES / "seed_mttkrp.yaml").read_text(encoding="utf-8")))
    lines = [line.rstrip() for line in text.splitlines()]
    assert "  T[i, j, f] = A[i, j, k] * C[k, f]" in lines
    assert "    partitioning  I: [uniform_shape(8)]" in lines
    assert "                  F: [uniform_shape(32), uniform_shape(4)]" in lines
    assert "    loop order    I1 I0 F2 J1 K1 J0 K0 F1 F0" in lines
    assert "    space         I1, F1, F0" in lines


@pytest.mark.slow
def test_output_does_not_depend_on_hash_seeds() -> None:
    code = (
        "import polymodel as pm\n"
        f"print(pm.load({str(EVERY)!r}), repr(pm.load({str(EVERY)!r}).teaal))\n"
        "sizes = dict(K=40, M=30, N=20, K1=16, K0=4, M1=15, M0=5, N1=10, N0=3)\n"
        "print(pm.load('teaal/extensor', 'tensaurus', symbols=sizes))\n"
        f"bad = open({str(EVERY)!r}).read().replace('[K, M]', '[KK, M]').replace('take(', 'tak(')\n"
        "from polymodel.spec.teaal import read_teaal\n"
        "try: read_teaal(bad)\n"
        "except pm.SpecError as error: print(error)\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(pm.__file__).parents[1])},
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) > 3000
