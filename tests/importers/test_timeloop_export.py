"""Specs as Timeloop's files and back: equal, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.workload.einsum import Einsum
from tests.faults import faults

HERE = Path(__file__).parent / "timeloop"
COUNTED = ("einsum", "component", "tensor", "read_bits", "write_bits")


def again(tmp_path: Path, text: str) -> pm.Spec:
    path = tmp_path / "theirs.yaml"
    path.write_text(text)
    return pm.import_timeloop(path).spec


def nested(**changed: Any) -> pm.Spec:
    """A strided convolution on three memories and a mesh, counted as Timeloop counts."""
    mesh = [
        {"name": d, "fanout": n, "broadcast_partials": True, "multicast": "identical"}
        for d, n in (("X", 2), ("Y", 3))
    ]
    priced = [{"name": way, "energy": 2e-12, "throughput": 64e9} for way in ("read", "write")]
    compute = {"name": "compute", "energy": 1e-12, "throughput": 5e8}
    arch = [
        {"type": "Memory", "name": "DRAM", "actions": priced, "leak_power": 1e-3},
        {"type": "Memory", "name": "GLB", "size": 65536, "area": 2e-7, "actions": priced},
        {"type": "Container", "name": "PE", "spatial": mesh},
        {"type": "Memory", "name": "RF", "size": 4096, "tensors": {"keep": "W", "may_keep": "O"}},
        {"type": "Compute", "name": "MAC", "actions": [compute]},
    ]  # fmt: skip
    nodes: list[dict[str, Any]] = [
        {"type": "Storage", "component": "DRAM", "tensors": ["I", "W", "O"], "reuse": "slide"},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": changed.pop("outer", 6)},
        {"type": "Storage", "component": "GLB", "tensors": ["I", "O"], "reuse": "slide"},
        {"type": "Temporal", "rank_variable": "c", "tile_shape": 3},
        {"type": "Spatial", "rank_variable": "c", "tile_shape": 1, "component": "PE", "name": "Y"},
        {"type": "Spatial", "rank_variable": "k", "tile_shape": 2, "component": "PE", "name": "X"},
        {"type": "Storage", "component": "RF", "tensors": ["W"], "reuse": changed.pop("reuse", "slide")},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 1},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": 1},
        {"type": "Temporal", "rank_variable": "r", "tile_shape": 1},
        {"type": "Compute", "einsum": "O", "component": "MAC"},
    ]
    workload = {
        "rank_sizes": {"P": 15, "C": 6, "K": 4, "R": 3, "N": 31},
        "bits_per_value": {"All": 16},
        "einsums": ["O[p, k] = I[N=2*p+r, c] * W[r, c, k]"],
    }
    return pm.load({"arch": {"nodes": arch}, "workload": workload, "mapping": {"nodes": nodes}, **changed})


ROOT = Path(__file__).parents[2]
# What refuses an Einsum of a packaged workload: each of these is named, and there is nothing else.
REFUSED = (
    "another density than a uniform one", "is not a box from 0 on", "in two places",
    "is carried forward along", "copies its input", "is indexed by c + 1",
    "is indexed by t + 1", "is indexed by q + 1",
)  # fmt: skip
LONG = {
    "attention",
    "convnet",
    "deepseek_v3",
    "gpt3_6.7B",
    "transformer",
    "gat",
    "cp_als",
    "mamba_2",
    "attention_cascade",
    "attention_one_pass",
    "attention_two_pass",
}
LONG |= {"resnet_basic_block", "resnet_bottleneck_block", "vgg_e_front", "matmul_chain_3", "ttmc"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(p.stem, marks=pytest.mark.slow) if p.stem in LONG else p.stem
        for p in sorted((ROOT / "workloads").glob("*.yaml"))
    ],
)
def test_every_einsum_comes_back_or_is_refused_by_name(name: str, tmp_path: Path) -> None:
    whole, other_reasons = pm.load(name), []
    for einsum in whole.workload:
        spec = whole.only(einsum.name)
        try:
            text = pm.export_timeloop(spec)
        except pm.SpecError as fault:
            reasons = [d.message for d in fault.diagnostics]
            other_reasons += [r for r in reasons if not any(why in r for why in REFUSED)]
            continue
        back = again(tmp_path, text)
        ((one,), (other,)) = (spec.workload.einsums, back.workload.einsums)
        assert _whole(one) == _whole(other)
    assert not other_reasons


def _whole(einsum: Einsum) -> tuple[object, ...]:
    """All that a workload says of an Einsum, with rank variables by their places."""
    places = {v: i for i, v in enumerate(einsum.rank_variables)}
    accesses = {
        (
            a.tensor,
            tuple((tuple(sorted((places[v], c) for v, c in e.terms)), e.constant) for e in a.projection),
            a.output,
            a.bits_per_value,
            a.density,
        )
        for a in einsum.accesses
    }
    done = {k: v for k, v in einsum.operations if v}
    return einsum.is_copy, done, accesses, einsum.bounds, einsum.n_instances


def test_a_folder_of_files_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(pm.import_timeloop(HERE / "output_stationary.yaml").text)
    out = tmp_path / "theirs"
    assert main(["export", "timeloop", str(file), "--out", str(out)]) == 0
    assert {p.name for p in out.iterdir()} == {"problem.yaml", "arch.yaml", "ERT.yaml", "mapping.yaml"}
    capsys.readouterr()
    one, other = pm.evaluate(pm.load(file)), pm.evaluate(pm.import_timeloop(out).spec)
    assert one.accesses[list(COUNTED)].equals(other.accesses[list(COUNTED)])
    assert main(["export", "timeloop", "matmul_chain_2"]) == 2
    assert "--einsum NAME" in capsys.readouterr().err
    assert main(["export", "timeloop", "matmul_chain_2", "--einsum", "Matmul2"]) == 0


def test_names_that_differ_in_case_alone_stay_apart() -> None:
    sizes = {"M": 8, "N": 4}
    for names in (("mA", "n"), ("m", "M")):
        einsum = {
            "name": "Z",
            "iteration_space_shape": [f"0 <= {names[0]} < 8", f"0 <= {names[1]} < 4"],
            "tensor_accesses": [
                {"name": "A", "projection": {"M": names[0], "N": names[1]}},
                {"name": "Z", "projection": {"M": names[0]}, "output": True},
            ],
        }
        workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [einsum]}
        assert "projection" in pm.export_timeloop(pm.load({"workload": workload}))


@pytest.mark.parametrize("outer", [5, 6])  # 15 in tiles of 6: the last bound is another one
def test_an_evaluation_there_and_back_is_the_same(outer: int, tmp_path: Path) -> None:
    spec = nested(outer=outer)
    text = pm.export_timeloop(spec)
    assert ("'P=6,3'" in text) == (outer == 6)
    one, other = pm.evaluate(spec), pm.evaluate(again(tmp_path, text))
    assert one.accesses[list(COUNTED)].equals(other.accesses[list(COUNTED)])
    assert other.total_energy == pytest.approx(one.total_energy, rel=1e-9)
    assert other.total_latency == pytest.approx(one.total_latency, rel=1e-9)


@pytest.mark.parametrize(("name", "allow"), [
    (("matmul", "simple_two_level"), []),
    (("matmul", "simba_chiplet"), ["broadcast_partials"]),
    (("matmul", "tpu_v4i"), ["broadcast_partials", "compute", "leak_power"]),
])  # fmt: skip
def test_machines_come_back(name: tuple[str, str], allow: list[str], tmp_path: Path) -> None:
    spec = pm.load(*name)
    found = again(tmp_path, pm.export_timeloop(spec, allow=allow)).arch
    for other in found.components:
        one = spec.arch[other.name]
        assert (one.kind, one.size_bits) == (other.kind, other.size_bits)
        assert [d.fanout for d in one.spatial] == [d.fanout for d in other.spatial]
        for action in one.actions if one.kind != "container" else ():
            like = other.action(action.name)
            per_bit = action.energy / (action.bits_per_action or 1)
            assert like.energy == pytest.approx(per_bit, rel=1e-9)


def test_what_has_no_key_there_stands_in_variables(tmp_path: Path) -> None:
    """How often an Einsum is executed, its operators, and the width of values of a problem alone."""
    said = "variables: {problem_executions: 3, problem_reduce: max, version"
    text = pm.export_timeloop(nested()).replace("variables: {version", said)
    one, other = pm.evaluate(nested()), pm.evaluate(again(tmp_path, text))
    (einsum,) = other.spec.workload.einsums
    assert (einsum.name, dict(einsum.operations)["reduce"], einsum.n_instances) == ("O", "max", 3)
    assert other.total_energy == pytest.approx(3 * one.total_energy, rel=1e-9)
    assert pm.export_timeloop(other.spec).count("problem_") == 2
    accesses = [{"name": "A", "projection": ["m"]}, {"name": "Z", "projection": ["m"], "output": True}]
    copy = {"name": "Z", "is_copy_operation": True, "tensor_accesses": accesses}
    workload = {"rank_sizes": {"M": 4}, "bits_per_value": {"All": 32}, "einsums": [copy]}
    spec = pm.load({"workload": workload})
    with faults("no-counterpart", at="is_copy_operation"):
        pm.export_timeloop(spec)
    assert "problem_value_bits: 32" in pm.export_timeloop(spec, allow=["is_copy_operation"])


def test_what_is_lacking_there_is_named() -> None:
    with faults("no-counterpart", at="reuse"):
        pm.export_timeloop(nested(reuse="refill"))
    assert "mapping:" in pm.export_timeloop(nested(reuse="refill"), allow=["reuse"])
    with faults("unknown-choice", at="allow"):
        pm.export_timeloop(nested(), allow=["link"])
    with faults("wrong-type", "x", at=""):
        pm.export_timeloop("x")  # type: ignore[arg-type]  # what it refuses
    with faults("no-counterpart", at="workload"):
        pm.export_timeloop(pm.load("matmul_chain_2"))
    with faults("no-counterpart", at="mapping"):
        pm.export_timeloop(pm.load("conv2d", "simple_two_level"), allow=["reuse"])
    sparse = {"name": "A", "projection": ["m", "n"], "density": 0.5}
    accesses = [sparse, {"name": "Z", "projection": ["m"], "output": True}]
    triangle = {
        "rank_sizes": {"M": 8, "N": 8},
        "bits_per_value": {"All": 8},
        "einsums": [{"name": "Z", "iteration_space_shape": ["n <= m"], "tensor_accesses": accesses}],
    }
    with faults("no-counterpart", at="workload"):
        pm.export_timeloop(pm.load({"workload": triangle}))
    with faults("no-counterpart", at="mapping"):
        pm.export_timeloop(_uneven())


def test_iterations_inside_the_compute_node_are_refused_by_variable() -> None:
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"], "reuse": "slide"},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": 16},
        {"type": "Temporal", "rank_variable": "n", "tile_shape": 1},
        {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
    ]
    spec = pm.load("matmul", "simple_two_level", {"mapping": {"nodes": nodes}})
    with faults("no-counterpart", at="mapping"):
        pm.export_timeloop(spec)


def _uneven() -> pm.Spec:
    spec = nested()
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["I", "W", "O"], "reuse": "slide"},
        {"type": "Temporal", "rank_variable": "c", "tile_shape": 4},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 6},
        {"type": "Storage", "component": "GLB", "tensors": ["I", "O"], "reuse": "slide"},
        {"type": "Temporal", "rank_variable": "p", "tile_shape": 4},
        {"type": "Storage", "component": "RF", "tensors": ["W"], "reuse": "slide"},
        {"type": "Compute", "einsum": "O", "component": "MAC"},
    ]
    return spec.with_mapping(pm.MappingSpec(nodes=nodes))  # type: ignore[arg-type]  # plain data is read


def test_what_has_no_key_in_a_problem_comes_back(tmp_path: Path) -> None:
    """Names of tensors stand in variables; a space that is no box, and constants, in the notation of sets."""
    spaces = ["0 <= m < 5", "0 <= k <= m", "1 <= n < 4"]
    einsum = {
        "name": "Z",
        "tensor_accesses": [
            {"name": "A", "projection": {"M": "m", "K": "k + 1"}},
            {"name": "B", "projection": {"K": "k", "N": "n"}},
            {"name": "Z", "projection": {"M": "m", "N": "n"}, "output": True},
        ],
        "iteration_space_shape": spaces,
        "renames": {"input": "A", "both": "A | B"},
    }
    spec = pm.load({"workload": {"bits_per_value": {"All": 8}, "einsums": [einsum]}})
    (tmp_path / "theirs.yaml").write_text(pm.export_timeloop(spec))
    (again,) = pm.import_timeloop(tmp_path / "theirs.yaml").spec.workload
    assert dict(again.renames)["both"] == {"A", "B"}
    assert str(again.access_of("A").projection[1]) == "k + 1"
    assert str(again.iteration_space.count_val()) == str(3 * (1 + 2 + 3 + 4 + 5))
    added = pm.load(
        {"workload": {"rank_sizes": {"M": 2}, "bits_per_value": {"All": 8}, "einsums": ["Z[m] += A[m]"]}}
    )
    for export in (pm.export_timeloop, pm.export_accelforge):
        with faults("no-counterpart", at="accumulate"):
            export(added)
        assert "Z" in export(added, allow=["accumulate"])
