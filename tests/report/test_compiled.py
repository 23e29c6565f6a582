"""Compiled cells: exact where `sympy.lambdify` is not, and equal to the closed forms' own values."""

from __future__ import annotations

import random
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp

import polymodel as pm
from polymodel.report.closed import TABLES
from tests.faults import faults, refused

M, T, N = sp.symbols("M T N", integer=True, positive=True)
HUGE = 2**60 + 1


def spec() -> pm.Spec:
    """A matmul with odd tiles at two levels, so that cells have ceiling, Piecewise and Max."""
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": "UM"},
        {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"], "reuse": "slide"},
        {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
    ]
    return pm.load("matmul", "simple_two_level", {"mapping": {"nodes": nodes}})


def test_quotients_above_2_to_53_where_lambdify_is_wrong() -> None:
    form = sp.ceiling(M / T)
    exact = -(-HUGE // 3)
    assert int(sp.lambdify([M, T], form, "numpy")(np.array([HUGE]), np.array([3]))[0]) != exact
    found = pm.compile_cell(form, [M, T])(np.array([HUGE, 7]), np.array([3, 2]))
    assert found.dtype == np.int64
    assert found.tolist() == [exact, 4]
    assert pm.compile_cell(sp.floor(M / T), [M, T])(HUGE, 3) == HUGE // 3


def test_products_beyond_int64_where_lambdify_wraps() -> None:
    form = M * (M + T) * N
    values = np.array([2**40, 5]), np.array([3, 2]), np.array([7, 7])
    exact = [m * (m + t) * n for m, t, n in zip(*(v.tolist() for v in values), strict=True)]
    wrapped = sp.lambdify([M, T, N], form, "numpy")(*values)
    assert [int(w) for w in wrapped] != exact
    with pytest.warns(RuntimeWarning, match="do not fit int64"):
        found = pm.compile_cell(form, [M, T, N])(*values)
    assert found.dtype == object
    assert found.tolist() == exact


def test_a_loose_bound_alone_asks_for_no_python_integers() -> None:
    """ceiling(M/T) * T is below 2 M, though the bounds of its factors multiply to M^2."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pm.compile_cell(sp.ceiling(M / T), [M, T])(2**62, np.array([2**61, 2**62]))
    assert found.dtype == np.int64
    with pytest.warns(RuntimeWarning):
        result = pm.compile_cell(sp.floor(M * M / T), [M, T])(2**40, 2**30)
    assert result == 2**50


def test_int64_ends_and_unsigned_values() -> None:
    form = pm.compile_cell(M + T, [M, T])
    assert form(np.array([2**63 - 2]), 1).dtype == np.int64
    with pytest.warns(RuntimeWarning):
        assert form(np.array([2**63 - 1]), 1).tolist() == [2**63]
    with pytest.warns(RuntimeWarning):
        assert pm.compile_cell(-M, [M])(np.array([-(2**63)])).tolist() == [2**63]
    assert form(np.array([2**63 + 5], np.uint64), -10).tolist() == [2**63 - 5]


PIECES = sp.Piecewise(
    (sp.floor(M / T), sp.And(sp.Gt(M, T), sp.Ne(N, 3))), (sp.Mod(M, N), sp.Eq(N, 3)), (5, True)
)
FORMS = [
    sp.ceiling(M / T) * N - sp.floor(M / 7) + sp.Rational(1, 3) * 6 * T,
    sp.Max(M - T, N, 3) * sp.Min(M, T),
    sp.Mod(M, T) + sp.Mod(-M, T) + sp.Abs(T - M),
    PIECES,
    sp.ceiling((sp.floor(M / T) + N / 2) / (T + 1)),
    sp.floor(M / (N - 60)),
    M**3 / T + sp.Max(0, N - M) ** 2,
    sp.Max(sp.ceiling(M / T), sp.Piecewise((N, sp.Or(M <= T, M >= 5 * N)), (0, True)), evaluate=False),
    sp.Piecewise((sp.floor(M / (T - N)), sp.Ne(T, N)), (0, True)),
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("most", [50, 2**61])
@pytest.mark.filterwarnings("ignore:values up to")
@pytest.mark.thin(7)
def test_every_function_equals_sympy(form: sp.Expr, most: int) -> None:
    pick = random.Random(5)
    points = [tuple(pick.randint(1, most) for _ in range(3)) for _ in range(12)] + [(9, 4, 4), (3, 3, 3)]
    found = pm.compile_cell(form, ["M", "T", "N"])(*(np.array(c) for c in zip(*points, strict=True)))
    for point, value in zip(points, found, strict=True):
        exact = form.subs(dict(zip((M, T, N), point, strict=True)))
        if found.dtype == np.float64:
            assert value == pytest.approx(float(Fraction(int(exact.p), int(exact.q))), rel=1e-14)
        else:
            assert int(value) == exact
        assert pm.compile_cell(form, [M, T, N])(*point) == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.thin(99)
@pytest.mark.parametrize("assume", [None, "divides"])
def test_every_cell_of_a_report_equals_its_closed_form(assume: Any) -> None:
    forms = pm.closed_forms(spec()).assuming(assume)
    columns = {
        "TM": np.array([64, 32, 64])[:, None],
        "TK": np.array([8, 64]),
        "UM": np.array([4, 16, 1])[:, None],
    }
    grid = np.broadcast_arrays(*columns.values())
    checked = 0
    for name in TABLES:
        table = forms.table(name)
        for i in range(len(table)):
            for column in table.columns:
                cell = table.cell(i, column)
                if not isinstance(cell, sp.Expr):
                    continue
                compiled = pm.compile_cell(cell, columns)
                points = [[int(v) for v in at] for at in zip(*map(np.ravel, grid), strict=True)]
                wanted = [table.at(dict(zip(columns, at, strict=True)))[i][column] for at in points]
                if any(w != w for w in wanted):  # where nothing is filled, there is no factor of reuse
                    assert column == "reuse_factor"
                    with faults("undefined-result", at=""):
                        compiled(*columns.values())
                    continue
                found = np.broadcast_to(compiled(*columns.values()), (3, 2)).ravel()
                assert found.tolist() == pytest.approx(wanted, rel=1e-12)
                checked += len(wanted)
    assert checked > 200


def test_numbers_and_broadcasting() -> None:
    assert pm.compile_cell(7, [])() == 7
    assert pm.compile_cell(sp.Float(0.5) * M, [M])(3) == 1.5
    assert pm.compile_cell(sp.oo, [M])(3) == float("inf")
    grid = pm.compile_cell(M * T, [M, T])(np.arange(3)[:, None], np.arange(4))
    assert grid.shape == (3, 4)
    assert pm.compile_cell(M / T, [M, T])([6, 9], [3, 3]).tolist() == [2, 3]
    assert pm.compile_cell(M / T, [M, T])([6, 1], [3, 4]).tolist() == [2.0, 0.25]
    assert pm.compile_cell(sp.ceiling(M / T), [M, T])([], []).tolist() == []


def test_what_is_not_exact_is_refused() -> None:
    with refused("unsupported-operation", "0.3"):
        pm.compile_cell(sp.floor(0.3 * M), [M])
    with refused("unsupported-operation", "exponent"):
        pm.compile_cell(sp.sqrt(M + 1), [M])
    with refused("unsupported-operation", "gamma"):
        pm.compile_cell(sp.gamma(M + T), [M, T])
    with faults("unknown-name", "T", at=""):
        pm.compile_cell(M / T, [M])
    with faults("wrong-type", "M/T", at=""):
        pm.compile_cell("M/T", [M, T])
    with faults("undefined-result", "M", "T", at=""):
        pm.compile_cell(sp.floor(M / T), [M, T])([3, 4], [1, 0])
    with faults("undefined-result", "M", "T", at=""):
        pm.compile_cell(sp.Max(sp.floor(M / T), N), [M, T, N])([8, 3], [1, 0], 10**6)
    with faults("duplicate-name", "twice", at=""):
        pm.compile_cell(M, ["M", "M"])
    with faults("not-an-integer", at=""):
        pm.compile_cell(M, [M])([1.5])
    with faults("wrong-count", at=""):
        pm.compile_cell(M / T, [M, T])(1)
    with faults("undefined-result", "M", at=""):
        pm.compile_cell(sp.Piecewise((1, M > 5), evaluate=False), [M])([9, 2])
