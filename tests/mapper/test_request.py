"""What `pm.explore` is asked for: every field reaches the search, every fault is told with its place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.mapper import search
from polymodel.mapper.records import Request, SearchResult
from polymodel.mapper.request import read_search_request
from polymodel.mapping.mapspace_constraints import COSTS, WORKING_SET
from polymodel.objectives import SearchFigures, value
from polymodel.spec.section_schemas import ExploreSection
from tests.faults import faults


@pytest.fixture(scope="module")
def spec() -> pm.Spec:
    return pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8, N1=12, N2=10)


def test_every_limit_reaches_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[pm.Limits] = []

    def listen(cascade: object, hierarchy: object, request: Request) -> SearchResult:
        asked.append(request.limits)
        return SearchResult(request.objectives, (), ())

    monkeypatch.setattr(search, "search", listen)
    spec = pm.load("matmul_chain_2", "tpu_v4i")
    component, dim = next((c, d.name) for c, d in spec.arch.dimensions)
    unit = next(c.name for c in spec.arch.components if c.kind == "compute")
    inner = [c.name for c in spec.arch.components if c.kind == "memory"][1]
    wanted = pm.Limits(
        max_fused_loops=2,
        max_fused_loops_per_rank_variable=3,
        sizes="all",
        spatial_sizes="all",
        force_memory_order=False,
        loop_order=(("Matmul1", ("m", "n1")),),
        min_utilisation=((component, dim, 0.5),),
        compute=(("Matmul1", unit),),
        exchange=frozenset({inner}),
        fuse=frozenset({"T1"}),
    )
    unset = {f.name for f in fields(wanted) if getattr(wanted, f.name) == getattr(pm.Limits(), f.name)}
    # So that a new field has to be added here; rules: test_loop_rules, side_by_side: test_brute, halos:
    # test_halos, moves: test_moves.
    assert unset == {"unfused", "rules", "side_by_side", "halos", "moves"}
    pm.explore(spec, constraints=wanted)
    written = {
        "max_fused_loops": 2, "max_fused_loops_per_rank_variable": 3, "sizes": "all",
        "spatial_sizes": "all", "force_memory_order": False, "loop_order": {"Matmul1": ["m", "n1"]},
        "min_utilisation": {component: {dim: 0.5}}, "compute": {"Matmul1": unit}, "exchange": [inner],
        "fuse": "T1",
    }  # fmt: skip
    pm.explore(spec, constraints=written)
    pm.explore(pm.load("matmul_chain_2", "tpu_v4i", {"explore": written}))
    assert asked == [wanted] * 3


@pytest.mark.parametrize(
    ("arguments", "code", "at", "named"),
    [
        ({"objectives": ["edq"]}, "unknown-choice", "objectives[0]", "edq edp"),
        ({"objectives": ["working_set:GLC"]}, "unknown-choice", "objectives[0]", "GLB"),
        ({"objectives": "energy,latency"}, "unknown-choice", "objectives[0]", ""),
        ({"objectives": []}, "missing-argument", "objectives", ""),
        ({"objectives": 5}, "unknown-choice", "objectives[0]", "5"),
        ({"objectives": ["buffer:GLBB"]}, "unknown-choice", "objectives[0]", "GLB"),
        ({"objectives": ["buffer:DRAM"]}, "unknown-choice", "objectives[0]", ""),
        ({"objectives": ["sparse_accesses:GLB"]}, "unknown-choice", "objectives[0]", ""),
        ({"objectives": ["energy + utilisation"]}, "unknown-choice", "objectives[0]", ""),
        ({"objectives": ["2*energy + nonsense"]}, "unknown-choice", "objectives[0]", "nonsense"),
        ({"limits": "latency < 2"}, "wrong-type", "limits[0]", ""),
        ({"limits": {"latency": "2 mJ"}}, "out-of-range", "limits[0]", ""),
        ({"limits": ["utilisation <= 0.5"]}, "out-of-range", "limits[0]", ""),
        ({"limits": ["latency <= 2 ms"], "eps": 0.1}, "conflicting-arguments", "eps", ""),
        ({"objectives": ["accesses:GLC"]}, "unknown-choice", "objectives[0]", "accesses"),
        (
            {"constraints": {"max_fused_loop": 1}},
            "unknown-key",
            "constraints.max_fused_loop",
            "max_fused_loops",
        ),
        ({"constraints": {"max_fused_loops": 1.5}}, "not-an-integer", "constraints.max_fused_loops", ""),
        ({"constraints": {"sizes": "al"}}, "unknown-choice", "constraints.sizes", "all"),
        ({"constraints": {"fuse": "W0"}}, "unknown-name", "constraints.fuse", ""),
        ({"constraints": {"fuse": "T9"}}, "undeclared-name", "constraints.fuse", "T9"),
        (
            {"constraints": {"fuse": "T1", "unfused": "T1"}},
            "conflicting-arguments",
            "constraints.unfused",
            "",
        ),
        (
            {"constraints": {"loop_order": {"Matmul1": ["q"]}}},
            "unknown-name",
            "constraints.loop_order.Matmul1[0]",
            "q",
        ),
        (
            {"constraints": {"loop_order": {"Matmul9": ["m"]}}},
            "unknown-name",
            "constraints.loop_order.Matmul9",
            "Matmul2",
        ),
        (
            {"constraints": {"compute": {"Matmul1": "MAD"}}},
            "unknown-name",
            "constraints.compute.Matmul1",
            "MAC",
        ),
        (
            {"constraints": {"min_utilisation": {"PE": {"X": 1}}}},
            "unknown-name",
            "constraints.min_utilisation.PE",
            "",
        ),
        (
            {"constraints": {"memories": {"DRAM": {"bypass": "T0"}}}},
            "contradictory-constraints",
            "constraints.memories.DRAM.bypass",
            "",
        ),
        ({"constraints": {"memories": {"GLC": {}}}}, "unknown-name", "constraints.memories.GLC", "GLB"),
        ({"constraints": {"exchange": ["GLC"]}}, "unknown-choice", "constraints.exchange[0]", "GLB"),
        (
            {"constraints": {"max_fused_loops_per_rank_variable": 0}},
            "not-positive-integer",
            "constraints.max_fused_loops_per_rank_variable",
            "",
        ),
        ({"constraints": 7}, "wrong-type", "constraints", ""),
        ({"constraints": pm.Limits(fuse=frozenset({"T8"}))}, "undeclared-name", "constraints.fuse", "T8"),
        ({"eps": -0.1}, "out-of-range", "eps", ""),
        ({"eps": "a"}, "wrong-type", "eps", ""),
        ({"time_limit": 0}, "out-of-range", "time_limit", ""),
        ({"workers": 0}, "not-positive-integer", "workers", ""),
        ({"progress": True}, "wrong-type", "progress", ""),
        ({"constraints": {"force_memory_order": "yes"}}, "wrong-type", "constraints.force_memory_order", ""),
        (
            {"constraints": pm.Limits(force_memory_order="yes")},  # type: ignore[arg-type]  # wrong on purpose
            "wrong-type",
            "constraints.force_memory_order",
            "",
        ),
        (
            {"constraints": pm.Limits(min_utilisation=("PE", "X", 1))},  # type: ignore[arg-type]  # wrong on purpose
            "wrong-type",
            "constraints.min_utilisation",
            "",
        ),
        ({"constraints": pm.Limits(exchange="RF")}, "unknown-choice", "constraints.exchange[0]", ""),  # type: ignore[arg-type]  # one name
        ({"constraints": pm.Limits(sizes="few")}, "unknown-choice", "constraints.sizes", ""),
    ],
)
def test_wrong_arguments(spec: pm.Spec, arguments: dict[str, object], code: str, at: str, named: str) -> None:
    with faults(code, *named.split(), at=at):
        pm.explore(spec, **arguments)  # type: ignore[arg-type]  # wrong on purpose


def test_all_faults_are_told_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(
        "symbols: {N: 2}\nexplore:\n  objectives: [energi]\n  max_fused_loops: N - 3\n  fuse: T9\n"
    )
    with pytest.raises(SpecError) as caught:
        pm.load("matmul_chain_2", "simple_two_level", file)
    text = str(caught.value)
    assert len(caught.value.diagnostics) == 3
    for wanted in (f"{file}:3:16: explore.objectives[0]", f"{file}:4:20", f"{file}:5:9"):
        assert wanted in text
    with faults("wrong-type", "pm.load", at=""):
        pm.explore("matmul")  # type: ignore[arg-type]  # wrong on purpose


WRONG = """\
symbols: {N: 2}
explore:
  objectives: [energi]
  max_fused_loop: 1
  max_fused_loops: N - 3
  sizes: al
  fuse: T9
  loop_order: {Matmul1: [q]}
  min_utilisation: {PE: {X: [1]}}
  compute: {Matmul1: MAD}
  exchange: [GLC]
  memories: {DRAM: {bypass: T0}, GLC: {}}
  eps: -1
  time_limit: a
"""


@pytest.mark.parametrize("variables", [{}, {"M": 16}])
def test_loading_tells_all_that_is_wrong_with_a_section(tmp_path: Path, variables: dict[str, int]) -> None:
    """Keys, kinds and values: one round, before anything is asked of the spec."""
    file = tmp_path / "wanted.yaml"
    file.write_text(WRONG)
    with pytest.raises(SpecError) as caught:
        pm.load("matmul_chain_2", "simple_two_level", file, **variables)  # type: ignore[arg-type]  # for templates
    assert [(d.path.removeprefix("explore."), d.place.line) for d in caught.value.diagnostics] == [
        ("objectives[0]", 3), ("max_fused_loop", 4), ("max_fused_loops", 5), ("sizes", 6), ("fuse", 7),
        ("loop_order.Matmul1[0]", 8), ("min_utilisation.PE.X", 9), ("compute.Matmul1", 10),
        ("exchange[0]", 11), ("memories.DRAM.bypass", 12), ("memories.GLC", 12), ("eps", 13),
        ("time_limit", 14),
    ]  # fmt: skip
    assert all(d.remedy for d in caught.value.diagnostics)


def test_numbers_of_a_section_are_checked_without_a_workload(tmp_path: Path) -> None:
    file = tmp_path / "wanted.yaml"
    file.write_text(WRONG)
    with pytest.raises(SpecError) as caught:
        pm.load(file)
    assert {d.place.line for d in caught.value.diagnostics} == {4, 5, 6, 9, 13, 14}


def test_faults_of_other_sections_are_told_with_those_of_the_exploration(tmp_path: Path) -> None:
    section = {"objectives": "energi", "size": "all"}
    machine = {"nodes": [{"type": "Memory", "name": "DRAM", "size": -1}, {"type": "Compute", "name": "MAC"}]}
    with pytest.raises(SpecError) as caught:
        pm.load("matmul_chain_2", {"arch": machine, "explore": section})
    assert {d.path for d in caught.value.diagnostics} >= {"arch.nodes[0].size", "explore.size"}


def test_what_waits_for_a_symbol_is_told_by_the_exploration() -> None:
    given = {"symbols": {"N": None}, "explore": {"max_fused_loops": "N"}}
    read = pm.load("matmul_chain_2/untiled_fused", "simple_two_level", given, M=4)
    pm.evaluate(read)
    with faults("unbound-symbol", at="explore.max_fused_loops"):
        pm.explore(read)
    with faults("out-of-range", at="explore.max_fused_loops"):
        read.bind(N=-1)


def test_the_page_on_exploring_is_right(tmp_path: Path) -> None:
    """Its section reaches the search, and its tables have every objective and key."""
    text = (Path(__file__).parents[2] / "docs" / "explore.md").read_text(encoding="utf-8")
    section, rules = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "wanted.yaml"
    path.write_text(section)
    read = pm.load("attention", "simple_two_level", path)
    request = read_search_request(read, None, None, None, None, 1, None).request
    assert request.objectives == ("energy", "latency", "working_set:GLB")
    assert (request.eps, request.time_limit, request.limits.max_fused_loops) == (1e-3, 60, 2)
    assert request.limits.fuse == {"QK", "SM"}
    assert set(yaml.safe_load(section)["explore"]) <= set(ExploreSection.model_fields)
    assert (
        ExploreSection.model_validate(yaml.safe_load(rules)["explore"]).fanouts["PE"]["Y"].must_reuse
        == "weight"
    )
    rows = {n for line in re.findall(r"^\| ([a-z_, ]+) \|", text, re.MULTILINE) for n in line.split(", ")}
    others = {"objectives", "eps", "time_limit"}
    assert set(ExploreSection.model_fields) - others <= rows
    assert {*COSTS, WORKING_SET} <= rows


@pytest.mark.parametrize(
    "written",
    [
        {"fuse": "Intermediates"},
        {"fuse": ["T1"]},
        {"exchange": "GLB"},
        {"exchange": ["GLB"]},
        {"loop_order": {"Matmul1": ["m"]}},
        {"loop_order": [("Matmul1", "m")]},
        {"compute": {"Matmul1": "MAC"}},
        {"min_utilisation": {"PE": {"X": 1}}},
        {"min_utilisation": [("PE", "X", 1)]},
    ],
)
def test_limits_take_what_the_dictionary_takes(written: dict[str, object]) -> None:
    """A name is one name, not its letters."""
    machine = {"arch": {"nodes": [
        {"type": "Memory", "name": "DRAM", "tensors": {"keep": "~Intermediates", "may_keep": "All"}},
        {"type": "Memory", "name": "GLB"},
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 4}]},
        {"type": "Compute", "name": "MAC"},
    ]}}  # fmt: skip
    spec = pm.load("matmul_chain_2", machine)
    plain = {
        "fuse": frozenset({"T1"}), "exchange": frozenset({"GLB"}), "loop_order": (("Matmul1", ("m",)),),
        "compute": (("Matmul1", "MAC"),), "min_utilisation": (("PE", "X", 1),),
    }  # fmt: skip
    wanted = pm.Limits(**{n: plain[n] for n in written})  # type: ignore[arg-type]  # fields by name
    limits = pm.Limits(**written)  # type: ignore[arg-type]  # other forms of the fields
    assert read_search_request(spec, None, limits, None, None, 1, None).request.limits == wanted
    if all(isinstance(value, (str, dict)) for value in written.values()):
        assert read_search_request(spec, None, written, None, None, 1, None).request.limits == wanted


def test_one_name_in_a_section_is_a_list_of_it() -> None:
    section = {"explore": {"objectives": "energy", "exchange": "GLB"}}
    request = read_search_request(
        pm.load("matmul_chain_2", "simple_two_level", section), None, None, None, None, 1, None
    ).request
    assert (request.objectives, request.limits.exchange) == (("energy",), frozenset({"GLB"}))


def test_wrong_keys_and_wrong_values_are_told_together(spec: pm.Spec) -> None:
    given = {"max_fused_loop": 1, "sizes": "al", "fuse": "T9", "exchange": ["GLC"]}
    with pytest.raises(SpecError) as caught:
        pm.explore(spec, constraints=given)
    assert {d.path for d in caught.value.diagnostics} == {
        "constraints.max_fused_loop", "constraints.sizes", "constraints.exchange[0]", "constraints.fuse",
    }  # fmt: skip


@pytest.mark.parametrize("call", [pm.mapspace, pm.explore])
def test_a_file_name_is_no_spec(call: Callable[[object], object]) -> None:
    with faults("wrong-type", "pm.load", "mach.yaml", at=""):
        call("mach.yaml")


def test_older_words_mean_the_objectives_of_the_vocabulary() -> None:
    spec = pm.load("matmul", "simple_two_level", M=4, K=4, N=4)
    names = ("energy_delay", "edp", "delay", "buffer", "buffer:GLB", "working_set", "working_set:GLB")
    front = pm.explore(spec, objectives=names)
    assert front.objectives == ("edp", "latency", "working_set:GLB")
    assert front.best("buffer") is front.best("working_set:GLB")
    assert front.unit("buffer:GLB") == front.unit("buffer") == "bit"
    assert front.unit("energy_delay") == "J s"


def test_the_search_minimises_what_is_made_of_its_figures() -> None:
    assert COSTS == ("energy", "latency", "edp")
    figures = SearchFigures(2.0, 3.0, {"GLB": 5})
    assert [value(name, figures) for name in (*COSTS, "working_set:GLB")] == [2, 3, 6, 5]
    for name in ("accesses:GLB", "utilisation", "working_set:DRAM"):
        with pytest.raises(KeyError):
            value(name, figures)
