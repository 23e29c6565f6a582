"""The machine of an imported spec is the file's, whatever the mapping: fanouts, clusters, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults

CONV = {
    "shape": {
        "name": "Conv",
        "dimensions": ["K", "C", "P", "R"],
        "data_spaces": [
            {"name": "I", "projection": [["C"], [["P"], ["R"]]]},
            {"name": "W", "projection": ["K", "C", "R"]},
            {"name": "O", "projection": ["K", "P"], "read_write": True},
        ],
    },
    "instance": {"K": 8, "C": 4, "P": 16, "R": 3},
}
MAPPING = [
    {"target": "DRAM", "type": "temporal", "factors": "K=2 C=4 P=4"},
    {"target": "RF", "type": "spatial", "factors": "K=4 P=4"},
    {"target": "RF", "type": "temporal", "factors": "R=3"},
]
ENGINES = ("exact", "symbolic", "enumerate")


def nodes(**attributes: object) -> list[dict[str, Any]]:
    rf = {"depth": 64, "width": 8, "datawidth": 8, **attributes}
    return [
        {"name": "DRAM", "class": "DRAM", "attributes": {"width": 8, "datawidth": 8}},
        {"name": "RF", "class": "regfile", "attributes": rf, "spatial": {"meshX": 16}},
        {"name": "MAC", "class": "intmac"},
    ]


def machine(**attributes: object) -> dict[str, Any]:
    return {"problem": CONV, "architecture": {"nodes": nodes(**attributes)}}


def register_file(imported: pm.Imported) -> Any:
    return next(c for c in imported.spec.arch.components if c.name == "RF")


def prices(read: float) -> dict[str, object]:
    actions = [{"name": n, "energy": read} for n in ("read", "write")]
    return {"ERT": {"tables": [{"name": "system.RF[1..16]", "actions": actions}]}}


def test_a_mapping_writes_nothing_into_the_architecture() -> None:
    alone = pm.import_timeloop(machine())
    mapped = pm.import_timeloop({**machine(), "mapping": MAPPING})
    assert mapped.spec.arch == alone.spec.arch
    assert "may_reuse" not in mapped.text


def test_a_search_on_an_imported_machine_does_not_depend_on_the_mapping_it_came_with() -> None:
    energies = {"ERT": {"tables": [
        {"name": f"system.{name}", "actions": [{"name": n, "energy": e} for n in ("read", "write")]}
        for name, e in (("DRAM", 200), ("RF", 1))
    ]}}  # fmt: skip
    alone = pm.import_timeloop(machine(), energies)
    mapped = pm.import_timeloop({**machine(), "mapping": MAPPING}, energies)
    found = [pm.explore(x.spec, objectives="energy").best().energy for x in (alone, mapped)]
    assert found[0] == found[1]


def test_overlapping_tiles_are_not_shared_and_all_engines_say_so() -> None:
    """Timeloop reads windows along P once per instance, and what K alone spreads once for all."""
    spec = pm.import_timeloop({**machine(), "mapping": MAPPING}).spec
    reads = set()
    for engine in ENGINES:
        rows = pm.evaluate(spec, engine=engine).analysis.traffic
        reads.add(next(t.reads_fill for t in rows if (t.component, t.tensor) == ("DRAM", "I")))
    # Tiles of C = 4 and P = 4 (K is innermost): 4 instances along P with 1 + 3 - 1 elements, whatever K.
    assert reads == {4 * 4 * 4 * 3}


def test_clusters_share_rows_and_prices() -> None:
    """A row of 64 bits serves 8 instances of one 8-bit word each, so each has `depth` words."""
    wide = pm.import_timeloop(machine(width=64, cluster_size=8), prices(16))
    plain = pm.import_timeloop(machine(), prices(2))
    assert register_file(wide) == register_file(plain)
    assert register_file(wide).size_bits == 64 * 8
    assert any("serves 8 instances of RF" in d.message for d in wide.notes)


@pytest.mark.parametrize(
    ("attributes", "entries"),
    [
        ({"width": 64}, 64 * 8),  # one instance, 8 words a row
        ({"width": 64, "block_size": 4}, 64 * 4),  # so a cluster has 2 instances
        ({"width": 64, "block_size": 4, "cluster_size": 2}, 64 * 4),
        ({"width": 64, "cluster_size": 8}, 64),
        ({"width": 64, "cluster-size": 4}, 64 * 2),
    ],
)
def test_depth_counts_rows_of_one_instance(attributes: dict[str, object], entries: int) -> None:
    assert register_file(pm.import_timeloop(machine(**attributes))).size_bits == entries * 8


def test_a_row_that_is_not_its_words_is_a_fault() -> None:
    with faults("inconsistent-values", at="architecture.nodes[1].attributes"):
        pm.import_timeloop(machine(width=64, block_size=4, cluster_size=4))
    with faults("inconsistent-values", at="architecture.nodes[1].attributes"):
        pm.import_timeloop(machine(width=64, block_size=3))


def test_clusters_of_which_a_mapping_uses_a_part_are_told_apart() -> None:
    """8 of 16 instances in 2 memories: each access serves 4 of 8, and costs each of them twice as much."""
    half = [MAPPING[0], {**MAPPING[1], "factors": "K=2 P=4"}, {**MAPPING[2], "factors": "K=2 R=3"}]
    found = pm.import_timeloop({**machine(width=64, cluster_size=8), "mapping": half}, prices(16))
    (changed,) = found.changed
    assert changed.changes == "energy"
    used = "uses 8 of 16 instances of RF, 4 per memory of 8"
    assert f"{used}: an access costs each of them 2 times" in changed.message
    full = pm.import_timeloop({**machine(width=64, cluster_size=8), "mapping": MAPPING}, prices(16))
    assert full.changed == ()


def test_what_changes_counts_is_refused_unless_allowed() -> None:
    tree = machine()
    tree["architecture"]["nodes"][1]["constraints"] = {"temporal": {"no_temporal_reuse": ["I"]}}
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(tree)
    (fault,) = caught.value.diagnostics
    assert fault.message.endswith("this changes counts")
    assert "--allow no_temporal_reuse" in fault.remedy
    found = pm.import_timeloop(tree, allow=["no_temporal_reuse"])
    assert [d.allowance for d in found.changed] == ["no_temporal_reuse"]
    tree["architecture"]["nodes"][1]["constraints"] = {"temporal": {"no_temporal_reuse": []}}
    assert pm.import_timeloop(tree).changed == ()


def test_a_refusal_says_what_is_counted_otherwise_and_what_to_do() -> None:
    tree = machine()
    below = "architecture.nodes[1].constraints.dataspace.rmw_first_update"
    tree["architecture"]["nodes"][1]["constraints"] = {"dataspace": {"rmw_first_update": ["O"]}}
    with faults("no-counterpart", "without", "reading", "reads", at=below):
        pm.import_timeloop(tree)
    tree["architecture"]["nodes"][1]["constraints"] = {"dataspace": {"no_link_transfer": ["I"]}}
    (told,) = (d for d in pm.import_timeloop(tree).left_out if "no_link_transfer" in d.message)
    assert "neighbour" in told.message
    assert "explore" not in told.remedy


def test_an_allowance_that_nothing_needs_is_a_fault() -> None:
    with faults("unknown-choice", at="allow"):
        pm.import_timeloop(machine(), allow=["remainders"])
