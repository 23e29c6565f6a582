"""In which Einsums a tile is alive: by hand, and held against who is in the working sets."""

from __future__ import annotations

import pytest

import polymodel as pm

WORKLOAD = {
    "rank_sizes": {"H": 2, "M": 6, "P": 4, "E": 2, "F": 2},
    "bits_per_value": {"All": 8},
    "einsums": [
        "QK[h, m, p] = Q[h, m, e] * K[h, p, e]",
        "SM[h, m, p] = QK[h, m, p]",
        "AV[h, m, f] = SM[h, m, p] * V[h, p, f]",
    ],
}
ARCH = {
    "nodes": [
        {"type": "Memory", "name": n, "size": "inf", "actions": [{"name": "read"}, {"name": "write"}]}
        for n in ("DRAM", "GLB")
    ]
    + [{"type": "Compute", "name": "MAC", "actions": [{"name": "compute"}]}]
}


def store(component: str, *tensors: str, **more: str) -> dict[str, object]:
    return {"type": "Storage", "component": component, "tensors": list(tensors), **more}


def over(variable: str, tile: int) -> dict[str, object]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def runs(einsum: str) -> dict[str, object]:
    return {"type": "Compute", "einsum": einsum, "component": "MAC"}


def lives(*nodes: object, workload: dict[str, object] = WORKLOAD) -> dict[tuple[str, str], str]:
    report = pm.evaluate(pm.load({"workload": workload, "arch": ARCH, "mapping": {"nodes": list(nodes)}}))
    rows = report.lifetimes
    assert (rows["crosses_branches"] == rows["alive_in"].str.contains(" ")).all()
    found = dict(zip(zip(rows["component"], rows["tensor"], strict=True), rows["alive_in"], strict=True))
    sets = report.working_sets
    sets = sets[sets["measure"] == "tile"]
    for component, einsum, residents in zip(
        sets["component"], sets["einsum"], sets["residents"], strict=True
    ):
        for tensor in (r.split("=")[0] for r in residents.split()):
            assert einsum in found[component, tensor].split(), (component, tensor, einsum)
    return found


ALL = {"type": "Sequential", "nodes": [runs("QK"), runs("SM"), runs("AV")]}
HOME = store("DRAM", "Q", "K", "V", "AV")


def test_a_tile_above_a_loop_around_the_split_is_alive_in_every_branch() -> None:
    """One visit of K and V has m = 0: QK SM AV, m = 2: QK SM AV, m = 4: QK SM AV.

    K is used first at m = 0 and last at m = 4, by QK; V by AV. Tiles below the loop end with their iteration.
    """
    found = lives(
        HOME, over("h", 1), store("GLB", "K", "V"), over("m", 2), store("GLB", "Q", "QK", "SM", "AV"), ALL
    )
    assert found == {
        ("DRAM", "Q"): "QK SM AV",
        ("DRAM", "K"): "QK SM AV",
        ("DRAM", "V"): "QK SM AV",
        ("DRAM", "AV"): "QK SM AV",
        ("GLB", "K"): "QK SM AV",
        ("GLB", "V"): "QK SM AV",
        ("GLB", "Q"): "QK",
        ("GLB", "QK"): "QK SM",
        ("GLB", "SM"): "SM AV",
        ("GLB", "AV"): "AV",
    }


def test_a_loop_of_one_iteration_repeats_nothing() -> None:
    found = lives(HOME, store("GLB", "K", "V"), over("m", 6), store("GLB", "Q", "QK", "SM", "AV"), ALL)
    assert (found["GLB", "K"], found["GLB", "V"], found["DRAM", "Q"]) == ("QK", "AV", "QK")


def test_only_the_branches_of_the_repeated_split_are_reached() -> None:
    """Below h, QK and SM run in turns of m; AV follows when they are done: K is alive in QK and SM alone."""
    inner = {"type": "Sequential", "nodes": [runs("QK"), runs("SM")]}
    first = {"type": "Nested", "nodes": [store("GLB", "K"), over("m", 2), store("GLB", "Q", "QK"), inner]}
    split = {"type": "Sequential", "nodes": [first, runs("AV")]}
    found = lives(HOME, over("h", 1), store("GLB", "SM", "V"), split)
    assert (found["GLB", "K"], found["GLB", "Q"], found["GLB", "QK"]) == ("QK SM", "QK", "QK SM")
    assert (found["GLB", "SM"], found["GLB", "V"]) == ("QK SM AV", "AV")


def test_persistent_tensors_stay() -> None:
    found = lives(HOME, store("GLB", "QK", "SM"), ALL, workload={**WORKLOAD, "persistent_tensors": "K"})
    assert (found["DRAM", "K"], found["DRAM", "V"]) == ("QK SM AV", "AV")


@pytest.mark.parametrize("reuse", ["slide", "keep_previous"])
def test_the_policy_changes_nothing_within_a_visit(reuse: str) -> None:
    nodes = store("GLB", "K", "V", reuse=reuse), over("m", 2), store("GLB", "Q", "QK", "SM", "AV")
    assert lives(HOME, over("h", 1), *nodes, ALL)["GLB", "K"] == "QK SM AV"
