"""TeAAL specs whose Einsums go on from earlier iterations, or read a tensor at several places: dense counts
are those of the same workload; data are not run."""

from __future__ import annotations

from typing import Any

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.faults import faults, refused
from tests.support.small_specs import leaf, loop, memory, split, storage, unit

ARCH = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, tensors={"keep": "All"}), unit()]}


def teaal(declared: dict[str, list[str]], *einsums: str, order: dict[str, list[str]], **more: Any) -> pm.Spec:
    section = {"declaration": declared, "expressions": list(einsums), "bits_per_value": {"All": 8}, **more}
    return pm.load({"einsum": section, "mapping": {"loop-order": order}, "arch": ARCH})


def test_a_running_product_is_counted_as_the_workload_is() -> None:
    declared = {"S": ["P", "M"], "A": ["P", "M"], "Z": ["M"]}
    order = {"S": ["P", "M"], "Z": ["M"]}
    texts = "S[p + 1, m] = S[p, m] * A[p, m]", "Z[m] = A[p, m]"
    order["Z"] = ["M", "P"]
    ours = teaal(declared, *texts, order=order, rank_sizes={"P": 4, "M": 3}, init={"S": 1})
    assert str(ours.teaal.expressions[0].output.indices[0]) == "p + 1"
    work = {
        "rank_sizes": {"P": 4, "M": 3},
        "bits_per_value": {"All": 8},
        "init": {"S": 1},
        "einsums": ["S[P=p+1, m] = S[p, m] * A[p, m]", "Z[m] = A[p, m]"],
    }
    first = [loop("p", 1), loop("m", 1), storage("GLB", "S", "A"), leaf("S")]
    second = [loop("m", 1), loop("p", 1), storage("GLB", "A", "Z"), leaf("Z")]
    nodes = [storage("DRAM", "S", "A", "Z"), split(first, second)]
    plain = pm.load({"arch": ARCH, "workload": work, "mapping": {"nodes": nodes}})
    for engine in ("exact", "symbolic", "enumerate"):
        found = (pm.evaluate(s, engine=engine).analysis for s in (ours, plain))
        assert not differences(*found)
    with refused("unsupported-recurrence", "S[p"):
        pm.execute(ours, {"A": pm.random_tensor(["P", "M"], [4, 3], 0.5, seed=1)})


def test_what_is_read_at_two_places_is_counted() -> None:
    declared = {"Z": ["M", "N"], "A": ["K", "M"]}
    spec = teaal(
        declared,
        "Z[m, n] = A[k, m] * A[k, n]",
        order={"Z": ["M", "N", "K"]},
        rank_sizes={"K": 2, "M": 3, "N": 3},
    )
    report = pm.evaluate(spec, engine="enumerate")
    assert report.analysis.compute[0].operations == 18
    assert not differences(pm.evaluate(spec, engine="exact").analysis, report.analysis)


def test_what_goes_on_from_nothing_is_told() -> None:
    declared, order = {"S": ["P"], "A": ["P"]}, {"S": ["P"]}
    text = "S[p + 1] = S[p] * A[p]"
    with faults("unknown-name", at="einsum.init.T"):
        teaal(declared, text, order=order, rank_sizes={"P": 4}, init={"T": 1})
    with faults("wrong-type", at="einsum.init.S"):
        teaal(declared, text, order=order, rank_sizes={"P": 4}, init={"S": "soon"})
    with faults("cyclic-cascade", at="einsum.expressions[0]"):
        teaal(declared, "S[p] = S[p + 1] * A[p]", order=order, rank_sizes={"P": 4})
