"""What stands twice in Timeloop's files, or says something of what is not there: taken together, or named."""

from __future__ import annotations

import pytest

import polymodel as pm
from tests.faults import faults

SHAPE = {
    "name": "Product",
    "dimensions": ["M", "K"],
    "data_spaces": [
        {"name": "A", "projection": [[["M"]], [["K"]]]},
        {"name": "B", "projection": [[["K"]]]},
        {"name": "Z", "projection": [[["M"]]], "read_write": True},
    ],
}
Files = dict[str, object]


def files(**sections: object) -> Files:
    local = [
        {"name": "DRAM", "class": "DRAM", "attributes": {"word-bits": 8}},
        {"name": "Buffer", "class": "SRAM", "attributes": {"depth": 64, "width": 8, "word-bits": 8}},
        {"name": "MAC[0..3]", "class": "intmac"},
    ]
    problem = {"shape": SHAPE, "instance": {"M": 4, "K": 6}}
    architecture = {"version": 0.3, "subtree": [{"name": "system", "local": local}]}
    return {"problem": problem, "architecture": architecture, **sections}


def left(given: Files) -> list[str]:
    return [d.message for d in pm.import_timeloop(given).left_out]


FORMAT = {"data_spaces": [{"name": "A", "ranks": [{"format": "UOP"}, {"format": "CP"}]}]}
SKIP = [{"type": "skipping", "options": [{"target": "A", "condition_on": ["B"]}]}]


def targets(*entries: dict[str, object]) -> Files:
    return files(sparse_optimizations={"targets": list(entries)})


def test_two_entries_of_a_level_are_taken_together() -> None:
    """The second one took the place of the first, without a word."""
    first, second = (
        {"name": "Buffer", "representation_format": FORMAT},
        {"name": "Buffer", "action_optimization": SKIP},
    )
    for entries in ((first, second), (second, first), ({**first, **second},)):
        imported = pm.import_timeloop(targets(*entries))
        assert "format: {A: [UOP, CP]}" in imported.text
        assert "actions: [{skip: A, 'on': B}]" in imported.text
        assert imported.text.count("UOP") == imported.text.count("skip") == 1
    with faults("duplicate-name", at="sparse_optimizations.targets[1]"):
        pm.import_timeloop(targets(first, first))


def test_a_format_where_nothing_is_stored_is_named() -> None:
    given = targets({"name": "MAC", "representation_format": FORMAT})
    assert left(given) == ["a compute unit stores nothing, so formats are not converted there"]


def test_a_second_table_of_a_component_is_named() -> None:
    tables = [
        {"name": f"{above}.Buffer", "actions": [{"name": "read", "energy": energy}]}
        for above, energy in (("system", 1), ("other", 7))
    ]
    imported = pm.import_timeloop(files(ert={"tables": tables}))
    assert [d.message for d in imported.left_out] == ["energies of Buffer are there already"]
    assert "energy: 1.25e-13" in imported.text
    areas = [{"name": f"{above}.Buffer", "area": 5} for above in ("system", "other")]
    assert left(files(art={"tables": areas})) == ["the area of Buffer is there already"]


def test_constraints_on_no_data_space_are_named() -> None:
    said = {"target": "Buffer", "type": "datatype", "keep": ["Weights", "A"], "bypass": ["C"]}
    given = files(architecture_constraints={"targets": [said]})
    assert left(given) == [f"{t} is not a data space of a problem here" for t in ("Weights", "C")]
    held = {"dataspace": {"keep": ["A"], "bypass": ["C"]}}
    nodes = [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "Buffer", "class": "SRAM", "attributes": {"depth": 64}, "constraints": held},
        {"name": "MAC", "class": "intmac"},
    ]
    assert left(files(architecture={"nodes": nodes})) == ["C is not a data space of a problem here"]


def test_numbers_of_instances_that_differ_are_named() -> None:
    given = files()
    (system,) = given["architecture"]["subtree"]  # type: ignore[index]  # plain data, built above
    unit = system["local"][2]
    unit["attributes"] = {"instances": 4}
    assert left(given) == []
    unit["attributes"] = {"instances": 8}
    with faults("no-counterpart", at="architecture.subtree[0].local[2].attributes.instances"):
        pm.import_timeloop(given)


def test_constraints_on_loops_become_rules_of_a_search() -> None:
    loops = [
        {"target": "DRAM", "type": "temporal", "factors": "M=2", "permutation": "MK"},
        {"target": "Buffer", "type": "temporal", "factors": ["M<=2", "K=0"], "permutation": ["M"]},
        {"target": "Buffer", "type": "spatial", "factors": {"M": 1}, "permutation": "KM", "split": 1},
    ]
    given = files(mapspace_constraints={"targets": loops}, mapping=[])
    imported = pm.import_timeloop(given)
    assert not imported.left_out
    section = imported.spec.raw_explore
    assert section is not None
    assert section.memories["DRAM"].factors == {"m": 2}
    assert section.memories["DRAM"].order == ("k", "m")
    assert section.memories["Buffer"].factors == {"m": "<= 2", "k": 6}
    assert section.memories["Buffer"].order == ("...", "m")
    assert section.fanouts["MAC"]["X"].factors == {"m": 1}
    found = pm.explore(imported.spec, objectives="energy")
    assert "a mapping exists if" not in found.reason
    macros = [{"target": "Buffer", "type": "temporal", "no_iteration_over_dataspaces": ["A"]}]
    (rule,) = pm.import_timeloop(files(constraints={"targets": macros})).spec.raw_explore.memories.values()  # type: ignore[union-attr]  # there is one
    assert rule.factors == {"m": 1, "k": 1}


def test_constraints_that_bind_no_search_are_named() -> None:
    loops = [
        {"target": "DRAM", "type": "temporal", "factors": "M=2,1 Q=3", "permutation": "MM"},
        {"target": "Buffer", "type": "temporal", "factors": "K=x"},
    ]
    with pytest.raises(pm.SpecError) as caught:
        pm.import_timeloop(files(constraints={"targets": loops}))
    for wanted in ("there is no dimension Q", "M is there twice", "unknown symbol x"):
        assert wanted in str(caught.value)
    loops = [{"target": "DRAM", "type": "temporal", "factors": "M=2,1", "maximize_dims": ["K"]}]
    told = left(files(constraints={"targets": loops}))
    assert any("is imperfect" in text for text in told)
    assert any("maximize_dims" in text for text in told)
