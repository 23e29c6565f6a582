"""Timeloop's constraints on products and on all dimensions: `maximize_dims`, `default_max_factor` and a least
utilisation bound the search as Timeloop's documentation says."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
import yaml

import polymodel as pm
from polymodel.importers.timeloop.largest import largest_factors
from polymodel.mapping.looptree import Loop
from tests.faults import faults
from tests.mapper.brute import Machine, figures, front, paths_of_one
from tests.mapper.brute_trees import nodes_below
from tests.mapper.test_brute import Case
from tests.mapper.test_loop_rules import read

SHAPE = {
    "name": "T1",
    "dimensions": ["M", "N0", "N1"],
    "data_spaces": [
        {"name": "T0", "projection": [[["M"]], [["N0"]]]},
        {"name": "W0", "projection": [[["N0"]], [["N1"]]]},
        {"name": "T1", "projection": [[["M"]], [["N1"]]], "read_write": True},
    ],
}


def machine(
    sizes: tuple[int, ...], mesh: tuple[int, ...], spatial: object = None, temporal: object = None
) -> dict[str, Any]:
    """`Case` as Timeloop's file: registers in an array below a buffer."""
    said = {"spatial": spatial, "temporal": temporal}
    array = dict(zip(("meshX", "meshY"), mesh, strict=False))
    nodes = [
        {"name": "DRAM", "class": "DRAM"},
        {"name": "GLB", "class": "SRAM", "attributes": {"depth": 64}},
        {
            "name": "RF",
            "class": "regfile",
            "attributes": {"depth": 16},
            "spatial": array,
            "constraints": {k: v for k, v in said.items() if v is not None},
        },
        {"name": "MAC", "class": "intmac"},
    ]
    instance = dict(zip(("M", "N0", "N1"), sizes, strict=True))
    return {"problem": {"shape": SHAPE, "instance": instance}, "architecture": {"nodes": nodes}}


def explore(imported: pm.Imported) -> dict[str, Any]:
    """The section `explore:`; empty if there is none."""
    section = re.search(r"^explore:.*?(?=^\w|\Z)", imported.text, re.MULTILINE | re.DOTALL)
    return yaml.safe_load(section[0])["explore"] if section else {}


def rules(tree: dict[str, Any]) -> dict[str, Any]:
    imported = pm.import_timeloop(tree)
    assert imported.left_out == ()
    return explore(imported)


def left(tree: dict[str, Any]) -> str:
    """What is left out of a file whose constraints bind nothing."""
    imported = pm.import_timeloop(tree)
    assert not explore(imported).keys() & {"min_utilisation", "limits", "memories"}
    return "; ".join(d.message for d in imported.left_out)


Spread = dict[str, int]


def listed(case: Case, obeys: Callable[[Spread], bool]) -> Iterator[tuple[float, float]]:
    """Costs of all mappings that fit and whose instances per variable obey."""
    spec = case.spec
    at, one = Machine(spec.arch), spec.workload.einsums[0]
    for path in paths_of_one(one, at):
        found = figures(path, at, keep=True)
        for i, tiles in enumerate(found.tiles):
            held = [0.0] * len(at.names)
            for place, bits in zip(path.places, found.held, strict=True):
                held[place.memory] += float(bits[i])
            over: Spread = dict.fromkeys(("m", "n0", "n1"), 1)
            for (_, v), n in read(nodes_below(path, at, tiles), one, at.names).spread.items():
                over[v] *= n
            if obeys(over) and all(h <= at.size(m) for m, h in enumerate(held)):
                yield float(found.energy[i]), float(found.latency[i])


SIZES = (4, 2, 4)
SMALL = (2, 2, 2)
ASKED: list[Any] = [
    ((2,), {"maximize_dims": [["M", "N1"]]}, 0, lambda n: n["m"] * n["n1"] == 2),
    ((2,), {"maximize_dims": [["N0"], ["M", "N1"]]}, 0, lambda n: n["n0"] == 2),
    ((2,), {"default_max_factor": 1, "factors": ["M<=2"]}, 0, lambda n: n["n0"] * n["n1"] == 1),
    pytest.param((2, 2), {}, 0.5, lambda n: math.prod(n.values()) >= 2, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(
    ("mesh", "spatial", "share", "obeys"), ASKED, ids=lambda x: "" if callable(x) else str(x)
)
def test_the_front_under_imported_rules_is_that_of_all_mappings_that_obey_timeloop(
    mesh: tuple[int, ...], spatial: dict[str, Any], share: float, obeys: Callable[[Spread], bool]
) -> None:
    case = Case(SMALL, (96, 32), fanouts=mesh, write=1.5)
    tree = machine(SMALL, mesh, spatial)
    if share:
        tree["constraints"] = {"targets": [{"target": "RF", "type": "utilization", "min": share}]}
    found = pm.explore(case.spec, constraints=rules(tree))
    costs = list(listed(case, obeys))
    expected = front(*(np.array(column) for column in zip(*costs, strict=True)))
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(p, rel=1e-12) for p in expected]


def test_an_imported_search_obeys_the_largest_factors() -> None:
    imported = pm.import_timeloop(machine((6, 2, 4), (4,), {"maximize_dims": ["M"]}))
    best = pm.explore(imported.spec, objectives="utilisation").best()
    size, spread = 6, []
    for node in best.mapping.nodes:
        if isinstance(node, Loop) and node.rank_variable == "m":
            spread += [size // int(node.tile_shape)] if node.spatial else []
            size = int(node.tile_shape)
    assert spread == [3]


def test_a_least_utilisation_is_a_share_of_one_array_or_a_limit() -> None:
    said: dict[str, Any] = {"targets": [{"target": "RF", "type": "utilization", "min": 0.5}]}
    assert rules(machine(SIZES, (4,)) | {"constraints": said}) == {"min_utilisation": {"RF": {"X": 0.5}}}
    assert rules(machine(SIZES, (2, 2)) | {"constraints": said}) == {"limits": ["utilisation >= 0.5"]}
    said["targets"][0]["min"] = 1
    full = rules(machine(SIZES, (2, 2)) | {"constraints": said})
    assert full == {"min_utilisation": {"RF": {"X": 1.0, "Y": 1.0}}}


def test_what_other_factors_fix_is_left_out_of_the_size() -> None:
    """Registers go over two of four rows themselves, so that two are left for the array, and of the columns
    that the array is spread over one is left for the registers' own maximum."""
    tree = machine(SIZES, (8,), {"maximize_dims": ["M", "N1"]}, {"factors": ["M=2"]})
    assert rules(tree) == {
        "memories": {"RF": {"factors": {"m": 2}}},
        "fanouts": {"RF": {"X": {"factors": {"m": 2, "n1": 4}}}},
    }
    inner = {"maximize_dims": [["M", "N1"]], "maximize_dims_capacity": "attributes.depth / 4"}
    tree = machine(SIZES, (4,), {"factors": ["N1=4"]}, inner)
    assert rules(tree)["memories"] == {"RF": {"factors": {"m": 4, "n1": 1}}}


def test_constraints_on_the_same_array_are_taken_together() -> None:
    """The second one took the place of the first."""
    tree = machine(SIZES, (4,), {"factors": ["N0=2"]})
    tree["mapspace_constraints"] = {"targets": [{"target": "RF", "type": "spatial", "maximize_dims": ["M"]}]}
    assert rules(tree)["fanouts"] == {"RF": {"X": {"factors": {"n0": 2, "m": 2}}}}


def test_maxima_that_bind_no_search_are_named_with_the_reason() -> None:
    assert "the 15 values of m are parted unevenly" in left(
        machine((15, 2, 4), (12,), {"maximize_dims": ["M"]})
    )
    assert "several factors have the largest product, 4" in left(
        machine(SIZES, (6, 2), {"maximize_dims": ["M", "N1"], "maximize_dims_capacity": 7})
    )
    tree = machine(SIZES, (4,), {"maximize_dims": ["M"], "factors": ["M<=2"]})
    assert any("m is bounded there already" in d.message for d in pm.import_timeloop(tree).left_out)
    tree = machine(SIZES, (4,), None, {"maximize_dims": ["M"]})
    assert "without `maximize_dims_capacity`" in left(tree)
    tree = machine(SIZES, (4,), None, {"maximize_dims": ["M"], "maximize_dims_capacity": "depth_of_it"})
    assert "depth_of_it is no number of iterations" in left(tree)
    tree = machine(SIZES, (4,), {"split": 1, "permutation": ["M"], "maximize_dims": ["M", "N1"]})
    assert "not all may be spread" in left(tree)
    at = "architecture.nodes[2].constraints.spatial.maximize_dims"
    with faults("unknown-name", "Q", at=at):
        pm.import_timeloop(machine(SIZES, (4,), {"maximize_dims": [["Q"]]}))
    with faults("wrong-type", "lists", at=at):
        pm.import_timeloop(machine(SIZES, (4,), {"maximize_dims": ["M", ["N0"]]}))


def test_least_utilisations_that_bind_no_search_are_named_with_the_reason() -> None:
    def told(target: str, least: float, **more: object) -> str:
        said = {"targets": [{"target": target, "type": "utilization", "min": least}]}
        tree = machine(SIZES, (2, 2)) | {"constraints": said}
        tree["problem"]["instance"] |= more
        return left(tree)

    assert "stands at the innermost storage" in told("GLB", 0.5)
    assert "2 is no share" in told("RF", 2)
    assert "on sparse data" in told("RF", 0.5, densities={"T0": 0.5})
    assert told("RF", 0) == ""
    tree = machine(SIZES, (4,))
    tree["architecture"]["nodes"][2]["attributes"]["min_utilization"] = 0.5
    assert "which share of a storage tiles must fill" in left(tree)


def test_largest_factors_are_those_of_all_choices_of_divisors() -> None:
    for a, b, capacity in product(range(1, 17), range(1, 9), (1, 2, 5, 8, 12, 30)):
        every = [
            (x * y, {"a": x, "b": y})
            for x in range(1, a + 1)
            for y in range(1, b + 1)
            if a % x == 0 == b % y and x * y <= capacity
        ]
        most = max(n for n, _ in every)
        best = [f for n, f in every if n == most]
        found = largest_factors({"a": a, "b": b}, capacity)
        assert found.product == most
        assert found.factors == (best[0] if len(best) == 1 else None)
    assert largest_factors({"a": 15, "b": 1}, 12).uneven == "a"  # 7.5 on average, where a divisor keeps 5
    assert largest_factors({"a": 16}, 12).uneven == ""
