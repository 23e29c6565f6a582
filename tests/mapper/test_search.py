"""Short cuts of the search lose nothing: cuts, bounds and pruning; what it finds by itself."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.loading import Spec
from polymodel.mapper import pmappings, search
from polymodel.mapper.aims import Bound
from polymodel.mapper.records import Limits, Request
from polymodel.mapping.looptree import Loop, Split
from tests.seeds import seeds

CHAIN = ["T[m,n] = A[m,k] * B[k,n]", "Z[m,p] = T[m,n] * C[n,p]"]
RESIDUAL = ["T[m,n] = A[m,k] * B[k,n]", "U[m,p] = T[m,n] * C[n,p]", "Z[m,p] = U[m,p] * T[M=m,N=p]"]
ATTENTION = ["S[m,p] = Q[m,e] * K[p,e]", "X[m,p] = S[m,p]", "Y[m,f] = X[m,p] * V[p,f]"]


def actions(energy: float, throughput: float) -> list[dict[str, Any]]:
    read = {"name": "read", "energy": energy, "throughput": throughput}
    return [read, {"name": "write", "energy": energy * 1.25, "throughput": throughput / 2}]


def spec_of(einsums: list[str], sizes: dict[str, int], glb: int, rf: int, fans: list[dict[str, Any]]) -> Spec:
    nodes: list[dict[str, Any]] = [
        {
            "type": "Memory",
            "name": "DRAM",
            "tensors": {"keep": "~Intermediates", "may_keep": "All"},
            "actions": actions(64, 16),
        },
        {"type": "Memory", "name": "GLB", "size": glb, "actions": actions(4, 256)},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 1}]},
    ]
    if rf:
        nodes.insert(2, {"type": "Memory", "name": "RF", "size": rf, "actions": actions(1, 64)})
    if fans:
        nodes.insert(2, {"type": "Container", "name": "PE", "spatial": fans})
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"workload": workload, "arch": {"nodes": nodes}})


def front(spec: Spec, objectives: tuple[str, ...], limits: Limits, eps: float = 0.0) -> np.ndarray[Any, Any]:
    found = search.search(spec.workload, spec.arch, Request(objectives, limits, eps))
    return np.array(sorted(c.values for c in found.candidates))


def some_machine(pick: random.Random) -> Spec:
    fans = [
        {
            "name": name,
            "fanout": pick.choice([1, 2, 3]),
            "may_reuse": pick.choice(["All", "Inputs", "Outputs", "Nothing"]),
            "broadcast_partials": pick.random() < 0.5,
        }
        for name in "XY"
    ]
    einsums = pick.choice([CHAIN, CHAIN[:1], RESIDUAL])
    sizes = {r: pick.choice([2, 3, 4]) for r in "MNKP" if any(r.lower() in e for e in einsums)}
    if einsums is RESIDUAL:
        sizes["P"] = sizes["N"]
    return spec_of(einsums, sizes, pick.choice([100, 200, 400]), pick.choice([24, 64]), fans)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, range(4)))
def test_a_hierarchy_cut_in_two_has_the_same_front(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pick = random.Random(seed)
    spec = some_machine(pick)
    objectives = pick.choice(
        [("energy", "latency"), ("energy", "buffer"), ("energy", "latency", "buffer:RF")]
    )
    cut = front(spec, objectives, Limits())
    for module in (pmappings, search):
        monkeypatch.setattr(module, "cuttable", lambda space, limits: False)
    whole = front(spec, objectives, Limits())
    assert cut.shape == whole.shape
    np.testing.assert_allclose(cut, whole, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("einsums", seeds(1, [CHAIN, RESIDUAL, ATTENTION]))
def test_bounds_rule_out_nothing_that_is_best(einsums: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {r: 8 for r in "MNKPEF" if any(r.lower() in e for e in einsums)}
    spec = spec_of(einsums, sizes, 800, 0, [])
    for objectives in [("energy",), ("energy", "latency", "buffer")]:
        bounded = front(spec, objectives, Limits())
        with monkeypatch.context() as patch:
            patch.setattr(Bound, "hopeful", lambda self, figures, rest=None: np.ones(len(figures[0]), bool))
            free = front(spec, objectives, Limits())
        assert len(bounded)
        assert np.array_equal(bounded, free)


@pytest.mark.slow
def test_with_eps_every_point_of_the_front_is_met_within_it() -> None:
    spec = spec_of(CHAIN, {"M": 24, "N": 16, "K": 12, "P": 18}, 2000, 0, [])
    exact = front(spec, ("energy", "latency", "buffer"), Limits())
    near = front(spec, ("energy", "latency", "buffer"), Limits(), eps=0.1)
    assert 1 <= len(near) < len(exact)
    for point in exact:
        assert (near <= point * 1.1 * (1 + 1e-12)).all(axis=1).any()


@pytest.mark.slow
def test_attention_is_fused_over_queries_where_the_scores_do_not_fit() -> None:
    """Scores take 64 x 64 x 8 = 32,768 bits; with 16,384 all three Einsums share tiles of queries."""
    spec = spec_of(ATTENTION, {"M": 64, "P": 64, "E": 16, "F": 16}, 16384, 0, [])
    found = search.search(spec.workload, spec.arch, Request(("energy",), Limits()))
    (best,) = found.candidates
    loops = [n for n in best.tree.nodes if isinstance(n, Loop)]
    (split,) = [n for n in best.tree.nodes if isinstance(n, Split)]
    assert loops[0].rank_variable == "m"
    assert int(loops[0].tile_shape) < 64
    assert len(split.branches) == 3
    unfused = search.search(spec.workload, spec.arch, Request(("energy",), Limits(unfused=frozenset("SX"))))
    assert best.energy < unfused.candidates[0].energy
    assert pm.evaluate(spec.with_mapping(best.tree)).costs.total_energy == pytest.approx(
        best.energy, rel=1e-12
    )


@pytest.mark.slow
def test_a_rank_variable_may_be_fused_twice() -> None:
    """Two fused loops over one variable are at least as good as one, and evaluate agrees."""
    spec = spec_of(CHAIN, {"M": 16, "N": 8, "K": 8, "P": 8}, 500, 0, [])
    once = front(spec, ("energy",), Limits())
    found = search.search(
        spec.workload, spec.arch, Request(("energy",), Limits(max_fused_loops_per_rank_variable=2))
    )
    best = found.candidates[0]
    assert best.energy <= once[0, 0]
    assert pm.evaluate(spec.with_mapping(best.tree)).costs.total_energy == pytest.approx(
        best.energy, rel=1e-12
    )
