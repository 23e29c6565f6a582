"""Slopes of chains and graphs in which an operation reads one element several times, or adds to what is
there: every point is what `evaluate` counts, and the curve is that of the same Einsums without that."""

from __future__ import annotations

import pytest

import polymodel as pm
from tests.faults import refused
from tests.graphs import graph
from tests.slopes.test_chain_slope import chain, curve, moved
from tests.slopes.test_graph_slope import counted

SIZES = {"m": 4, "k": 3, "n": 2, "p": 2}
FIRST = "T[m, n] = A[m, k] * A[m, k] * B[k, n]"
PLAIN = ("T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]")
CURVES = ("unfused", "untiled_fused", "ffmr_drop", "ffmr_retain")


@pytest.mark.thin(99)
@pytest.mark.parametrize(
    ("einsums", "more"),
    [
        ((FIRST, PLAIN[1]), 0),
        ((PLAIN[0], "Z[m, p] = T[m, n] * C[n, p] * T[m, n]"), 0),
        ((PLAIN[0], "Z[m, p] += T[m, n] * C[n, p]"), 4 * 2),
    ],
)
def test_chains_move_each_element_once_for_all_that_read_it(einsums: tuple[str, ...], more: int) -> None:
    """`more`: elements of Z, each read before it is added to."""
    plain, found = (pm.chain_slope(chain(list(e), SIZES), curves=CURVES) for e in (PLAIN, einsums))
    for name in CURVES:
        assert curve(found, name) == [(held, moves + more) for held, moves in curve(plain, name)]
        assert all(moved(found, point) == point.accesses for point in found.curves[name])
    assert (found.least_unfused, found.least_fused) == (plain.least_unfused + more, plain.least_fused + more)


@pytest.mark.slow
def test_graphs_move_each_element_once_for_all_that_read_it() -> None:
    sizes = {v.upper(): n for v, n in SIZES.items()}
    einsums = (FIRST, "V[m, p] += T[m, n] * C[n, p]", "Z[m, n] = T[m, n] * T[m, n]")
    plain = graph(PLAIN[0], "V[m, p] = T[m, n] * C[n, p]", "Z[m, n] = T[m, n]", **sizes)
    found, more = pm.graph_slope(graph(*einsums, **sizes)), 4 * 2
    for name, figures in pm.graph_slope(plain).curves.items():
        assert list(found[name].figures) == [(held, moves + more) for held, moves in figures.figures]
    for point in found["tiled_fused"].points:
        assert counted(found, point)[0] == point.accesses
    assert found.least_fused == found["tiled_fused"].figures[-1][1]


def test_what_is_added_to_is_not_handed_on() -> None:
    einsums = ["T[m, n] += A[m, k] * B[k, n]", PLAIN[1]]
    for slope in (pm.chain_slope, pm.graph_slope):
        with refused("unsupported-recurrence", "T", "Z"):
            slope(chain(einsums, SIZES))
