"""Specs as AccelForge's files and back: equal, or refused by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import islpy as isl
import pytest

import polymodel as pm
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.arithmetic import Affine
from polymodel.cli import main
from polymodel.importers.imported import lacking_of
from polymodel.mapping.looptree import StorageNode
from polymodel.workload.einsum import Einsum
from tests.faults import faults

HERE = Path(__file__).parent / "accelforge"
WORKLOADS = sorted(p.stem for p in (Path(__file__).parents[2] / "workloads").glob("*.yaml"))
# What AccelForge has no form for: sparse data, and tensors that are carried forward.
SPARSE = ("elementwise", "gat", "gcn", "gram", "routed_experts", "sddmm")
RECURRENT = ("attention_one_pass", "chunked_scan", "cp_als", "horner", "mamba_2", "prefix_sum",
             "stencil_in_time", "wave_in_time")  # fmt: skip
LONG = {"attention", "convnet", "deepseek_v3", "gpt3_6.7B", "transformer", "ttmc", "vgg_e_front"}
LONG |= {"resnet_basic_block", "resnet_bottleneck_block", "attention_cascade", "mttkrp", "gat", "cp_als"}
LONG |= {"attention_two_pass"}
ARCHES = ("eyeriss_like", "simple_two_level", "simba_chiplet")


def again(tmp_path: Path, text: str) -> pm.Spec:
    path = tmp_path / "theirs.yaml"
    path.write_text(text)
    return pm.import_accelforge(path).spec


def plain(einsum: Einsum) -> Einsum:
    """What AccelForge has of an Einsum: no operators, no densities; constraints as they bound the space, and
    rank variables by their numbers, counted from 0, since names are told apart."""
    numbers = {v: f"v{i}" for i, v in enumerate(einsum.rank_variables)}
    least = {v: low for v, (low, _) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    accesses = tuple(
        replace(
            a,
            density=None,
            projection=tuple(
                Affine(
                    tuple((numbers[v], c) for v, c in e.terms),
                    e.constant + sum(c * least[v] for v, c in e.terms),
                )
                for e in a.projection
            ),
        )
        for a in einsum.accesses
    )
    variables = tuple(numbers.values())
    bounds = tuple((0, high - low) for low, high in einsum.bounds)
    return replace(
        einsum, rank_variables=variables, accesses=accesses, operations=(), constraints=(), bounds=bounds
    )


def from_zero(einsum: Einsum) -> isl.Set:
    """The iteration space with rank variables that count from 0."""
    space, rank = einsum.iteration_space, len(einsum.bounds)
    name = space.get_tuple_name() or ""
    old = ", ".join(f"x{k}" for k in range(rank))
    new = ", ".join(f"x{k} - {low}" for k, (low, _) in enumerate(einsum.bounds))
    return space.apply(isl.Map(f"{{ {name}[{old}] -> {name}[{new}] }}"))


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in WORKLOADS if n not in RECURRENT],
)
def test_every_workload_comes_back(name: str, tmp_path: Path) -> None:
    spec = pm.load(name)
    text = pm.export_accelforge(spec, allow=["densities"] if name in SPARSE else [])
    found = again(tmp_path, text).workload
    for one, other in zip(spec.workload, found, strict=True):
        assert plain(one) == plain(other)
        assert from_zero(one).is_equal(other.iteration_space)
    assert dict(found.rank_sizes) == dict(spec.workload.rank_sizes)


@pytest.mark.parametrize("name", RECURRENT)
def test_what_is_carried_forward_is_refused_by_name(name: str) -> None:
    with pytest.raises(pm.SpecError, match=r"carried forward along [A-Z]+, which AccelForge has no form for"):
        pm.export_accelforge(pm.load(name), allow=["densities"] if name == "cp_als" else [])


def test_a_folder_of_files_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "theirs"
    names = ["matmul", "simple_two_level", "matmul/weight_stationary", "--out", str(out)]
    assert main(["export", "accelforge", *names]) == 0
    written = sorted(p.name for p in out.iterdir())
    assert written == ["arch.yaml", "mapping.yaml", "workload.yaml"]
    assert capsys.readouterr().out.count("wrote ") == 3
    back = pm.import_accelforge([out / name for name in written]).spec
    spec = pm.load(*names[:3])
    assert pm.evaluate(back).total_energy == pytest.approx(pm.evaluate(spec).total_energy, rel=1e-12)
    assert main(["export", "accelforge", *names[:3]]) == 0
    assert capsys.readouterr().out == pm.export_accelforge(spec)


@pytest.mark.parametrize("name", ARCHES)
def test_machines_come_back(name: str, tmp_path: Path) -> None:
    spec = pm.load("matmul", name)
    found = again(tmp_path, pm.export_accelforge(spec)).arch
    for one, other in zip(spec.arch.components, found.components, strict=True):
        assert (one.name, one.kind, one.size_bits) == (other.name, other.kind, other.size_bits)
        assert [(d.name, d.fanout) for d in one.spatial] == [(d.name, d.fanout) for d in other.spatial]
        for action in one.actions:
            like = other.action(action.name)
            assert (action.energy, action.bits_per_action) == (like.energy, like.bits_per_action)
            assert action.throughput == pytest.approx(like.throughput)


def test_an_evaluation_there_and_back_is_the_same(tmp_path: Path) -> None:
    spec = pm.import_accelforge([HERE / "chain.yaml", HERE / "machine.yaml"]).spec
    text = pm.export_accelforge(spec, allow=["link"])
    assert "direction: up" in text
    back = again(tmp_path, text)
    assert spec.mapping is not None
    assert back.mapping is not None
    stored, returned = (
        [n for _, n, _ in tree.walk() if isinstance(n, StorageNode)] for tree in (spec.mapping, back.mapping)
    )
    assert stored == returned
    one, other = pm.evaluate(spec), pm.evaluate(back)
    assert one.accesses.equals(other.accesses)
    assert one.total_latency == other.total_latency


def test_each_variable_has_a_loop_down_to_single_values() -> None:
    """AccelForge takes no mapping without them; variables of one value need none."""
    spec = pm.load("snitch_cluster", "matmul/rows_by_core", K=1)
    text = pm.export_accelforge(spec)
    loops = [line for line in text.split("\n") if "!Temporal" in line]
    assert loops[-1] == "  - !Temporal {rank_variable: n, tile_shape: 1}"
    assert spec.mapping is not None
    assert len(loops) == 1 + sum(not loop.spatial for _, loop in spec.mapping.loops("Matmul"))


def test_names_of_tensors_stand_at_their_einsum() -> None:
    """A section `renames:` without a default entry says nothing there: `may_reuse: input` would be all
    inputs."""
    text = pm.export_accelforge(pm.load("matmul", "gemmini"))
    assert "renames: {input: A, weight: B, output: C}" in text
    assert "source" not in text


@pytest.mark.slow
def test_variables_with_two_ranges_of_values_are_named_apart(tmp_path: Path) -> None:
    """There a rank variable has one range of values in all Einsums; loops go with their Einsums."""
    spec = pm.load("edge_npu", "convnet/layer_by_layer")
    text = pm.export_accelforge(spec)
    back = again(tmp_path, text)
    ranges: dict[str, set[tuple[int, int]]] = {}
    for einsum in back.workload:
        for name, bound in zip(einsum.rank_variables, einsum.bounds, strict=True):
            ranges.setdefault(name, set()).add(bound)
    assert all(len(some) == 1 for some in ranges.values())
    one, other = pm.evaluate(spec), pm.evaluate(back)
    assert one.accesses.equals(other.accesses)


def test_rank_variables_count_from_zero(tmp_path: Path) -> None:
    """There `p - 1` over 8 values is 7 elements: the constant is taken from the number of them."""
    rows = {"name": "O", "projection": {"H": "2*p - 6"}, "output": True}
    einsum = {"name": "O", "tensor_accesses": [{"name": "I", "projection": {"H": "p - 3"}}, rows]}
    shape = {"p": "3 <= p < 11"}
    workload = {"bits_per_value": {"All": 8}, "iteration_space_shape": shape, "einsums": [einsum]}
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["I", "O"]},
        {"type": "Storage", "component": "GLB", "tensors": ["I", "O"]},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 3},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 1},
        {"type": "Compute", "einsum": "O", "component": "MAC"},
    ]
    workload["rank_sizes"] = {"H": 16}
    spec = pm.load({"workload": workload, "mapping": {"nodes": nodes}}, "simple_two_level")
    back = again(tmp_path, pm.export_accelforge(spec))
    assert [str(a.projection[0]) for a in back.workload["O"].accesses] == ["p", "2*p"]
    assert back.workload["O"].bounds == ((0, 7),)
    assert pm.evaluate(spec).accesses.equals(pm.evaluate(back).accesses)


def test_what_is_lacking_there_is_named(tmp_path: Path) -> None:
    spec = pm.import_accelforge([HERE / "chain.yaml", HERE / "machine.yaml"]).spec
    with faults("no-counterpart", at="link"):
        pm.export_accelforge(spec)
    with faults("unknown-choice", at="allow"):
        pm.export_accelforge(spec, allow=["link", "reuse"])
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute"}, {"name": "add", "energy": 1}]}
    with faults("no-counterpart", at="operators"):
        pm.export_accelforge(pm.load({"arch": {"nodes": [unit]}}))
    with faults("wrong-type", "x", at=""):
        pm.export_accelforge("x")  # type: ignore[arg-type]  # what it refuses


def test_a_field_that_the_export_does_not_know_refuses_it() -> None:
    """Were a component to have another field, it would not be left out without a word."""

    @dataclass(frozen=True)
    class Refreshed(Component):
        refresh_power: float = 0.0

    plain, one = Refreshed("A", "memory"), Refreshed("B", "memory", refresh_power=1.0)
    (found,) = lacking_of(Hierarchy((plain, one)))
    assert found == ("refresh_power", "a component has `refresh_power`")
    assert not [*lacking_of(Hierarchy((plain,)))]
    assert not [*lacking_of(Hierarchy((Component("A", "memory"),)))]


def test_a_fork_is_a_branch_there_and_back(tmp_path: Path) -> None:
    """AccelForge 1.0.467 says 79824 J, of which 560 leak, and 112 s; of what is written here as well."""
    found = pm.import_accelforge(HERE / "fork.yaml")
    assert found.notes == ()
    assert {c.name: found.spec.arch.instances(c.name) for c in found.spec.arch.components[-5:]} == {
        "Lanes": 4, "VReg": 4, "VPU": 4, "PEs": 8, "MAC": 8
    }  # fmt: skip
    for spec in (found.spec, again(tmp_path, pm.export_accelforge(found.spec))):
        report = pm.evaluate(spec)
        assert report.total_energy == 79824
        assert report.energy.query("action == 'leak'")["energy_J"].sum() == 560
        assert report.total_latency == 112
    text = (HERE / "fork.yaml").read_text()
    unit = "    - !Compute\n      name: VPU"
    inner = f"    - !Fork {{nodes: [!Compute {{name: S, component_class: Dummy}}]}}\n{unit}"
    nested = again(tmp_path, text.replace(unit, inner))
    for one in (nested, again(tmp_path, pm.export_accelforge(nested))):
        assert one.arch["S"].branch == "VPU/S"
        assert one.arch.instances("S") == 4
        assert pm.evaluate(one).total_energy == 79824
    path = tmp_path / "idle.yaml"
    path.write_text(text.partition("mapping:")[0].replace(unit, unit.replace("Compute", "Container")))
    idle = pm.import_accelforge(path)
    assert [c.name for c in idle.spec.arch.components] == ["DRAM", "GLB", "PEs", "MAC"]
    assert "nothing executes on it" in idle.left_out[0].message


def test_links_are_networks_in_front_of_memories_and_units(tmp_path: Path) -> None:
    """One for each fanout that stands alone between two memories; other links are refused."""
    workload = {
        "rank_sizes": {"M": 4, "K": 8}, "bits_per_value": {"All": 8}, "einsums": ["Z[m, k] = A[m, k]"],
    }  # fmt: skip
    shared = {"topology": "all_to_all", "energy_per_bit_hop": 3}
    chained = {"topology": "line", "energy_per_bit_hop": 2}
    nodes: list[dict[str, Any]] = [
        {"type": "Memory", "name": "DRAM"},
        {"type": "Memory", "name": "Buffer", "spatial": [{"name": "X", "fanout": 4, "link": shared}]},
        {"type": "Compute", "name": "MAC", "spatial": [{"name": "Y", "fanout": 2, "link": chained}]},
    ]
    spec = pm.load({"workload": workload, "arch": {"nodes": nodes}})
    back = again(tmp_path, pm.export_accelforge(spec)).arch
    links = [back[name].spatial[0].link for name in ("Buffer", "MAC")]
    assert [(k.topology, k.energy_per_bit_hop) for k in links if k] == [("all_to_all", 3), ("line", 2)]
    for change in (
        lambda: chained.update(topology="ring"),
        lambda: chained.update(topology="line", throughput=8),
        lambda: (chained.pop("throughput"), nodes.insert(1, {**nodes[2], "type": "Container", "name": "PE"})),
    ):
        change()
        with faults("no-counterpart", at="link"):
            pm.export_accelforge(pm.load({"workload": workload, "arch": {"nodes": nodes}}))


@pytest.mark.parametrize(("topology", "seconds"), [("all_to_all", 5), ("mesh", 15)])
def test_hops_of_a_network_take_time(topology: str, seconds: int, tmp_path: Path) -> None:
    """AccelForge 1.0.467 prints 5 s all to all, and 20 s of a mesh, with a hop to the first instance."""
    spec = one_network(topology)
    path = tmp_path / "delayed.yaml"
    path.write_text(spec)
    found = pm.import_accelforge(path)
    assert [d.changes for d in found.changed] == ["latency"] * (topology == "mesh")
    assert pm.evaluate(found.spec).total_latency == seconds
    if topology == "all_to_all":
        path.write_text(pm.export_accelforge(found.spec))
        assert pm.evaluate(pm.import_accelforge(path).spec).total_latency == seconds
    else:
        with faults("no-counterpart", at="link"):
            pm.export_accelforge(found.spec)


def one_network(topology: str) -> str:
    """A product with N spread over four instances behind a network whose hops take 5 s."""
    network = (
        f"{{name: N, topology: {topology}, actions: [{{name: hop, energy: 0, throughput: inf, latency: 5}}]}}"
    )
    machine = [
        "!Memory {name: DRAM, size: inf, component_class: Dummy, tensors: {keep: All}}",
        f"!Network {network}",
        "!Compute {name: MAC, component_class: Dummy, spatial: [{name: X, fanout: 4}]}",
    ]
    nodes = [
        "!Storage {component: DRAM, tensors: [T0, T1, W]}",
        "!Temporal {rank_variable: m, tile_shape: 1}",
        "!Temporal {rank_variable: n0, tile_shape: 1}",
        "!Spatial {rank_variable: n1, tile_shape: 1, component: MAC, name: X}",
        "!Compute {einsum: T1, component: MAC}",
    ]
    work = "workload:\n  rank_sizes: {M: 8, N0: 4, N1: 4}\n  bits_per_value: {All: 8}\n"
    work += '  einsums: ["T1[m, n1] = T0[m, n0] * W[n0, n1]"]\n'
    text = "arch:\n  nodes:\n" + "".join(f"  - {n}\n" for n in machine)
    return f"{text}\n{work}mapping:\n  nodes:\n" + "\n".join(f"  - {n}" for n in nodes) + "\n"
