"""Formulas of textbooks and papers: the least traffic of a matmul and of attention under a buffer
capacity.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polymodel.api.evaluation import closed_forms
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load

ARCH: dict[str, Any] = {
    "nodes": [
        {"type": "Memory", "name": "DRAM", "tensors": {"may_keep": "All"}},
        {"type": "Memory", "name": "GLB", "tensors": {"may_keep": "All"}},
        {"type": "Compute", "name": "MAC"},
    ]
}


def _storage(component: str, *tensors: str) -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": list(tensors)}


def _loop(variable: str, tile: str) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def matmul() -> str:
    """Return the leading term, in the capacity S, of the least traffic in words."""
    spec = load(
        {
            "arch": ARCH,
            "symbols": dict.fromkeys("MNK"),
            "workload": {
                "rank_sizes": {n: n for n in "MNK"},
                "bits_per_value": {"All": 1},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {
                "nodes": [
                    _storage("DRAM", "A", "B", "Z"), _loop("m", "TM"), _loop("n", "TN"), _storage("GLB", "Z"),
                    _loop("k", "TK"), _storage("GLB", "A", "B"),
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )  # fmt: skip
    least = closed_forms(spec, ranks=True).minimize("accesses:DRAM", "working_set:GLB", "S")
    return str(max(least.leading("S").args, key=lambda term: term.has(_symbol("S"))))


def _symbol(name: str) -> Any:
    import sympy

    return sympy.Symbol(name, positive=True)


def attention() -> str:
    """Return the part of the traffic of fused attention that depends on the capacity, in words, for one head
    and large sizes."""
    import sympy

    branches = [
        {"type": "Nested", "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"}]}
        for e in ("QK", "SM", "AV")
    ]
    spec = load(
        {
            "arch": ARCH,
            "symbols": dict.fromkeys(("N", "D")),
            "workload": {
                "rank_sizes": {"M": "N", "P": "N", "E": "D", "F": "D"},
                "bits_per_value": {"All": 1},
                "einsums": [
                    "QK[m, p] = Q[m, e] * K[p, e]", "SM[m, p] = QK[m, p]", "AV[m, f] = SM[m, p] * V[p, f]",
                ],
            },
            "mapping": {
                "nodes": [
                    _storage("DRAM", "Q", "K", "V", "AV"), _loop("m", "TM"), _storage("GLB", "Q", "AV"),
                    _loop("p", "TP"), _storage("GLB", "K", "V", "QK", "SM"),
                    {"type": "Sequential", "nodes": branches},
                ]
            },
        }
    )  # fmt: skip
    forms = closed_forms(spec, ranks=True, assume="divides")
    tiles = forms.tiles[forms.tiles["component"] == "GLB"].drop_duplicates("tensor")
    least = forms.minimize("accesses:DRAM", sum(tiles["tile_bits"]), "S").leading("S")
    n, d = _symbol("N"), _symbol("D")
    same = {forms.symbols["M"]: n, forms.symbols["P"]: n, forms.symbols["E"]: d, forms.symbols["F"]: d}
    terms = sympy.Add.make_args(sympy.expand(least.subs(same)))
    return str(max((t for t in terms if t.has(_symbol("S"))), key=lambda t: sympy.degree(t, d)))


def figures() -> Iterator[PublishedFigure]:
    yield PublishedFigure(
        "matmul: least traffic under a capacity S, the term in S", "words", "2*K*M*N/sqrt(S)", matmul(),
        "square tiles of the output; the bound of Hong and Kung up to its constant",
    )  # fmt: skip
    yield PublishedFigure(
        "attention, fused: traffic under a capacity S, the term in S", "words", "of the order N^2*D^2/S",
        attention(),
        "queries stay, keys and values pass: theorem 2 of FlashAttention",
    )  # fmt: skip


EXHIBIT = Exhibit(
    "bounds",
    "Least traffic as formulas: matmul and attention",
    "Hong and Kung, STOC 1981; Dao et al., FlashAttention, NeurIPS 2022, theorem 2",
    "Closed forms of one mapping each, minimised over its tile sizes with SymPy.",
    figures,
)
