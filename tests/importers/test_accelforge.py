"""AccelForge's files as specs: workloads with their includes, machines, and what is told or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.importers.accelforge.values import EinsumView, NoValue, Scope, numbers_in
from tests.faults import every_fault, faults

RENAMES = """\
renames:
  einsums:
  - name: default
    tensor_accesses:
    - {name: input, source: Inputs & Intermediates if len(All) == 3 else Inputs, expected_count: 1}
    - {name: output, source: Outputs, expected_count: 1}
    - {name: weight, source: ~(input | output), expected_count: 1 if len(All) == 3 else 0}
"""
BLOCK = """\
{{include_text("../renames.yaml")}}
{% assert N <= 64, "N is at most 64" %}
workload:
  rank_sizes: {N: {{N}}, C: "max(4, 2 * 3)", K: ceil(N / C)}
  bits_per_value: {All: 8}
  einsums:
  - {einsum: "X[n, c] = X_in[n, c]", is_copy_operation: True}
  - "Y[n, k] = X[n, c] * W[c, k]"
"""
MODEL = """\
{{add_to_path("parts")}}
{% set BLOCK = include("block.yaml", "") %}
{{include_text("renames.yaml")}}
workload:
  rank_sizes:
    <<<: [{{BLOCK}}.workload.rank_sizes, {E: 3}]
  bits_per_value: {All: 16}
  einsums:
  - {{BLOCK}}.workload.einsums
  - einsum: "V[n, e] = Y[n, K: k] * U[k, e]"
    renames: {input: Y}
  - "S[n, e] = V[n, e] + V[n, e]"
"""


def files(folder: Path, **texts: str) -> Path:
    """The files; two underscores of a name stand for a folder. The first one is returned."""
    paths = [folder / f"{name.replace('__', '/')}.yaml" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return paths[0]


def model(folder: Path) -> Path:
    return files(folder, model=MODEL, parts__block=BLOCK, renames=RENAMES)


def machine(*nodes: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"arch": {"nodes": list(nodes), **more}}


def tagged(tag: str, text: str) -> str:
    return f"  - !{tag} {text}\n"


def arch(*nodes: str, rest: str = "") -> str:
    """An architecture between a DRAM and a MAC."""
    first = tagged("Memory", "{name: DRAM, component_class: Dummy, size: inf, tensors: {keep: All}}")
    last = tagged("Compute", "{name: MAC, component_class: Dummy}")
    return "arch:\n  nodes:\n" + first + "".join(nodes) + last + rest


def imported(folder: Path, text: str, **variables: object) -> pm.Imported:
    return pm.import_accelforge(files(folder, machine=text), **variables)


def refused(folder: Path, text: str) -> str:
    with pytest.raises(pm.SpecError) as caught:
        imported(folder, text)
    return "\n".join(d.message for d in caught.value.diagnostics)


def component(spec: pm.Spec, name: str) -> Any:
    return next(c for c in spec.arch.components if c.name == name)


def test_a_model_of_parts_becomes_one_cascade(tmp_path: Path) -> None:
    found = pm.import_accelforge(model(tmp_path), N=64)
    cascade = found.spec.workload
    assert [e.name for e in cascade] == ["X", "Y", "V", "S"]
    assert cascade["X"].is_copy
    assert {r: cascade["Y"].bound(r) for r in ("n", "c", "k")} == {"n": (0, 63), "c": (0, 5), "k": (0, 10)}
    renames = {e.name: dict(e.renames) for e in cascade}
    assert renames["X"]["input"] == {"X_in"}
    assert renames["X"]["weight"] == set()
    assert renames["Y"]["weight"] == {"W"}
    assert renames["V"]["input"] == {"Y"}
    assert {a.bits_per_value for e in cascade for a in e.accesses} == {16}
    assert any("V occurs twice" in d.message for d in found.notes)
    assert found.complete


def test_an_assertion_stops_the_import(tmp_path: Path) -> None:
    with faults("assertion-failed", "N", "64", at=""):
        pm.import_accelforge(model(tmp_path), N=65)
    with faults("syntax-error", "N", at=""):
        pm.import_accelforge(model(tmp_path))


def test_direct_load_names_the_importer(tmp_path: Path) -> None:
    with every_fault(("syntax-error", ""), ("unused-variable", "")):
        pm.load(model(tmp_path), N=4)


def test_a_part_of_a_model_has_no_intermediate_yet(tmp_path: Path) -> None:
    part = BLOCK.replace('  - {einsum: "X[n, c] = X_in[n, c]", is_copy_operation: True}\n', "")
    path = files(tmp_path, parts__block=part, renames=RENAMES)
    found = pm.import_accelforge(path, N=4)
    assert [d.changes for d in found.changed] == ["names of sets"]
    assert found.spec.workload["Y"].tensors == ("X", "W", "Y")


def test_old_keys_of_a_workload() -> None:
    workload = {
        "version": "0.5",
        "shape": {"m": "0 <= m < 8", "k": "0 <= k < 4"},
        "bits_per_value": {"All": 8},
        "einsums": [
            {
                "einsum": "Z[m] = A[H: 2 * m + k] * W[k]",
                "tensor_accesses": [{"name": "W", "bits_per_value": 4}],
            }
        ],
    }
    found = pm.import_accelforge({"workload": workload})
    (einsum,) = found.spec.workload
    assert [a.bits_per_value for a in einsum.accesses] == [8, 4, 8]
    assert str(einsum.access_of("A").projection[0]) == "2*m + k"


def test_a_machine_in_their_words(tmp_path: Path) -> None:
    text = """\
variables: {KB: 8 * 1024}
mapper: {metrics: ENERGY}
arch:
  nodes:
  - !Memory {name: DRAM, component_class: Dummy, size: inf, tensors: {keep: All}}
  - !Memory
    name: GLB
    component_class: SRAM
    size: 1024 * KB
    tensors: {keep: ~DRAM, may_keep: All, no_refetch_from_above: weight}
    energy_scale: 2
    total_latency: sum(a.n_calls for a in actions) / 4 / 1e9
    actions: [{name: read, energy: 8, bits_per_action: 64}, {name: write, energy: 8, bits_per_action: 64}]
  - !Container
    name: PE
    spatial:
    - {name: X, fanout: 4 * 2, reuse: input, min_usage: 1}
    - {name: Y, fanout: 12, usage_scale: 2.5}
  - !Memory
    name: Reg
    size: weight.bits_per_value if weight else 0
    tensors: {keep: weight}
    total_latency: max(a.n_calls / a.throughput for a in actions)
    actions: [{name: read, energy: 1, latency: 1e-9}, {name: write, energy: 1, latency: 0}]
  - !Compute {name: MAC, component_class: Dummy}
"""
    found = imported(tmp_path, text)
    spec = found.spec
    glb, pe, reg = (component(spec, n) for n in ("GLB", "PE", "Reg"))
    assert glb.size_bits == 8 * 1024 * 1024
    assert (glb.action("read").energy, glb.action("read").bits_per_action) == (16.0, 64)
    assert glb.action("read").throughput == 4e9 * 64
    assert [(d.name, d.fanout) for d in pe.spatial] == [("X", 8), ("Y", 4)]
    assert reg.size_bits == 8
    assert reg.action("read").throughput == 1e9
    assert reg.action("write").throughput == float("inf")
    assert spec.raw_explore is not None
    assert spec.raw_explore.min_utilisation == {"PE": {"X": "max"}}
    assert spec.raw_explore.fanouts["PE"]["X"].must_reuse == "input"
    assert spec.raw_explore.memories["GLB"].no_refetch == "weight"
    assert "ports: separate" in found.text
    assert {d.key for d in found.left_out if hasattr(d, "key")} >= {
        "mapper",
    }
    assert not found.changed


def test_values_of_other_widths_are_priced_by_the_value(tmp_path: Path) -> None:
    """A toll that takes 3 actions for each value, whatever its bits; a memory with values of 2 bits."""
    text = arch(
        tagged("Toll", "{name: ADC, tensors: {keep: output}, direction: up, values_per_action: {All: 1},"
               " actions_scale: 3, bits_per_value: {output: 2},"
               " actions: [{name: read, energy: 5, throughput: 6}]}"),
        tagged("Memory", "{name: Cell, size: 64, tensors: {keep: weight}, bits_per_value: {weight: 2},"
               " actions: [{name: read, energy: 1}]}"),
    )  # fmt: skip
    spec = imported(tmp_path, text).spec
    adc, cell = component(spec, "ADC"), component(spec, "Cell")
    assert (adc.action("write").energy, adc.action("write").bits_per_action) == (15.0, 8)
    assert adc.action("write").throughput == 6 / 3 * 8
    assert adc.action("read").energy == 0
    assert cell.size_bits == 64 * 4  # 32 values of 2 bits, which have 8 in the workload
    assert cell.action("read").energy == 1 * 2 / 8


def test_widths_are_those_of_the_role_in_each_einsum(tmp_path: Path) -> None:
    """What one Einsum makes the next one reads: two roles, two widths, and a toll for outputs alone."""
    text = """\
workload:
  rank_sizes: {M: 4, K: 4}
  bits_per_value: {All: 8}
  einsums: ["Y[m] = A[m, k]", "Z[k] = Y[m] * B[m, k]"]
renames:
  einsums:
  - name: default
    tensor_accesses: [{name: output, source: Outputs}, {name: input, source: Inputs}]
"""
    workload = files(tmp_path, w=text)
    text = arch(
        tagged("Toll", "{name: T, tensors: {keep: output}, bits_per_value: {input: 2, output: 4},"
               " actions: [{name: read, energy: 1}]}")
    )  # fmt: skip
    toll = component(pm.import_accelforge([files(tmp_path, a=text), workload]).spec, "T")
    assert toll.action("write").energy == 0.5


@pytest.mark.parametrize("latency", ["inf", "-1", "1e-300", "nan"])
def test_latencies_that_are_none(latency: str, tmp_path: Path) -> None:
    text = arch(tagged("Memory", f"{{name: B, actions: [{{name: read, energy: 1, latency: {latency}}}]}}"))
    assert component(imported(tmp_path, text).spec, "B").action("read").throughput == float("inf")


def test_a_toll_with_a_direction_for_each_set(tmp_path: Path) -> None:
    text = arch(
        tagged("Toll", "{name: T, tensors: {keep: All}, direction: {Outputs: up, ~Outputs: down},"
               " actions: [{name: read, energy: 2}]}")
    )  # fmt: skip
    spec = imported(tmp_path, text).spec
    up, down = component(spec, "T"), component(spec, "T_down")
    assert (up.action("write").energy, up.action("read").energy) == (2, 0)
    assert (down.action("write").energy, down.action("read").energy) == (0, 2)


def test_a_network_links_the_fanout_behind_it(tmp_path: Path) -> None:
    text = arch(
        tagged("Network", "{name: NoC, actions: [{name: hop, energy: 3, throughput: 2, latency: 0}]}"),
        tagged("Container", "{name: PE, spatial: [{name: X, fanout: 4}]}"),
    )
    found = imported(tmp_path, text)
    (dim,) = component(found.spec, "PE").spatial
    assert (dim.link.topology, dim.link.energy_per_bit_hop, dim.link.throughput) == ("line", 3, 2)
    assert [d.changes for d in found.changed] == ["latency"]
    plain = imported(tmp_path, text.replace("throughput: 2", 'throughput: float("inf")'))
    assert plain.changed == ()
    assert "NoC is the link of the fanout behind it" in [n.message for n in plain.notes]


def test_hops_of_networks_are_those_of_its_model(tmp_path: Path) -> None:
    """AccelForge 1.0.467 prints these bits times hops for a product on 2 x 2 pads of 2 x 2 units each."""
    grid = "spatial: [{name: X, fanout: 2}, {name: Y, fanout: 2}]"
    hop = "actions: [{name: hop, energy: 1, latency: 0, throughput: inf}]"
    loops = [("Pad", "n0", "X", 2), ("Pad", "n1", "Y", 2), ("PE", "n0", "X", 1), ("PE", "n1", "Y", 1)]
    spread = [
        f"  - !Spatial {{rank_variable: {v}, tile_shape: {size}, component: {c}, name: {x}}}"
        for c, v, x, size in loops
    ]
    text = arch(
        tagged("Network", f"{{name: Pads, {hop}}}"),
        tagged("Memory", f"{{name: Pad, size: inf, tensors: {{keep: All}}, {grid}}}"),
        tagged("Network", f"{{name: Macs, {hop}}}"),
        tagged("Container", f"{{name: PE, {grid}}}"),
    )
    work = "workload:\n  rank_sizes: {M: 8, N0: 4, N1: 4}\n  bits_per_value: {All: 8}\n"
    work += '  einsums: ["T1[m, n1] = T0[m, n0] * W[n0, n1]"]\n'
    nodes = ["  - !Storage {component: DRAM, tensors: [T0, T1, W]}"]
    nodes += ["  - !Temporal {rank_variable: m, tile_shape: 4}", *spread[:2]]
    nodes += ["  - !Storage {component: Pad, tensors: [T0, T1, W]}"]
    nodes += ["  - !Temporal {rank_variable: m, tile_shape: 1}", *spread[2:]]
    nodes += ["  - !Compute {einsum: T1, component: MAC}"]
    path = tmp_path / "networks.yaml"
    path.write_text(f"{text}\n{work}mapping:\n  nodes:\n" + "\n".join(nodes) + "\n")
    hops: dict[tuple[str, str], float] = {}
    for row in pm.evaluate(pm.import_accelforge(path).spec).energy.query("action == 'hop'").itertuples():
        name = row.component.split(".")[0], row.tensor
        hops[name] = hops.get(name, 0) + row.count
    assert hops == {
        ("Pad", "T0"): 384, ("Pad", "T1"): 512, ("Pad", "W"): 256,
        ("PE", "T0"): 768, ("PE", "T1"): 1024, ("PE", "W"): 1024,
    }  # fmt: skip


ARRAY = """\
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, tensors: {keep: All}}
  - !Array
    name: Grid
    spatial: [{name: X, fanout: 4}, {name: Y, fanout: 4}]
    nodes:
    - !Memory
      name: Rows
      size: 512
      tensors: {keep: input, may_keep: input}
      actions: [{name: read, energy: 5, throughput: 1}, {name: write, energy: 5, throughput: inf}]
      spatial: [{name: X, fanout: 4}]
    - !Memory
      name: Spread
      size: Grid.get_fanout() * 8
      leak_power: 0.5
      tensors: {keep: weight, may_keep: weight}
      actions: [{name: read, energy: 5, throughput: 1}, {name: write, energy: 5, throughput: 1}]
      spatial: [{name: X, fanout: 2}, {name: Y, fanout: 2}]
    - !Network {name: NoC, topology: KIND, actions: [{name: hop, energy: 1, latency: 0, throughput: inf}]}
  - !Memory {name: Pad, size: inf, tensors: {keep: weight, may_keep: weight}}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: inf}]}
workload:
  rank_sizes: {M: 8, N0: 8, N1: 8}
  bits_per_value: {All: 8}
  einsums: [{einsum: "T1[m, n1] = T0[m, n0] * W[n0, n1]", renames: {input: T0, weight: W, output: T1}}]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, T1, W]}
  - !Storage {component: Spread, tensors: [W]}
  - !Temporal {rank_variable: m, tile_shape: 4}
  - !Storage {component: Rows, tensors: [T0]}
  - !Spatial {rank_variable: n0, tile_shape: 2, component: Grid, name: X}
  - !Spatial {rank_variable: n1, tile_shape: 2, component: Grid, name: Y}
  - !Storage {component: Pad, tensors: [T0, T1, W]}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Temporal {rank_variable: n0, tile_shape: 1}
  - !Temporal {rank_variable: n1, tile_shape: 1}
  - !Compute {einsum: T1, component: MAC}
"""


def test_memories_of_an_array_are_one_each_above_its_fanout(tmp_path: Path) -> None:
    """Reads and times are those that its authors print for such an array: a value is read once for a row of
    instances, and the instances of a memory share its work."""
    found = imported(tmp_path, ARRAY.replace("KIND", "mesh"))
    assert sum("are one memory together" in d.message for d in found.notes) == 2
    assert any("Pad may keep T0, T1 as well" in d.message for d in found.notes)
    spec = found.spec
    assert [c.name for c in spec.arch.components] == ["DRAM", "Rows", "Spread", "Grid", "Pad", "MAC"]
    assert (spec.arch["Rows"].size_bits, spec.arch["Spread"].size_bits) == (4 * 512, 4 * 16 * 8)
    assert spec.arch["Spread"].leak_power == 2
    assert [d.link.topology for d in spec.arch["Grid"].spatial] == ["line", "line"]
    assert [d.changes for d in found.changed] == ["energy and latency"]
    report = pm.evaluate(spec)
    moved = {(r.component, r.tensor): (r.read_bits, r.write_bits) for r in report.accesses.itertuples()}
    assert (moved["Rows", "T0"], moved["Spread", "W"]) == ((512, 512), (1024, 512))
    times = dict(zip(report.latency["component"], report.latency["latency_s"], strict=True))
    assert (times["Rows"], times["Spread"]) == (128, 384)
    switch = imported(tmp_path, ARRAY.replace("KIND", "all_to_all"))
    assert switch.spec.arch["Grid"].spatial[0].link.topology == "all_to_all"
    assert not any(d.key == "Network" for d in switch.changed)
    odd = imported(tmp_path, ARRAY.replace("KIND", "torus"))
    assert any("there is no topology torus here" in d.message for d in odd.changed)


def test_a_network_with_a_fanout_of_its_own(tmp_path: Path) -> None:
    node = tagged("Network", "{name: NoC, actions: [], spatial: [{name: X, fanout: 2}]}")
    spec = imported(tmp_path, arch(node)).spec
    assert [(d.name, d.fanout, d.link.topology) for d in component(spec, "NoC").spatial] == [("X", 2, "line")]


def test_a_toll_for_values_of_several_widths_is_one_for_each(tmp_path: Path) -> None:
    toll = tagged(
        "Toll",
        "{name: Limit, tensors: {keep: input | output}, bits_per_value: {input: 0.5, output: 2}, "
        "direction: {input: down, output: up}, actions: [{name: read, energy: 8, throughput: 2}]}",
    )
    product = '["output[m, n] = input[m, k] * weight[k, n]"]'
    workload = (
        f"workload: {{rank_sizes: {{M: 2, N: 2, K: 2}}, bits_per_value: {{All: 8}}, einsums: {product}}}\n"
    )
    found = imported(tmp_path, arch(toll, rest=workload))
    assert any("Limit has values of several widths" in d.message for d in found.notes)
    prices = {
        (t, a.name): (a.energy, a.throughput)
        for c in found.spec.arch.components
        if c.kind == "toll"
        for t in c.keep.tensors("output")
        for a in c.actions
    }
    assert prices == {("input", "read"): (0.5, 32), ("output", "write"): (2, 8)}


def test_a_machine_of_converters_in_their_words(tmp_path: Path) -> None:
    variables = """\
variables:
  kind: "moderate"
  scale: 1.5 if kind == 'aggressive' else (2 if kind == 'moderate' else 4)
"""
    nodes = (
        tagged("Container", "{name: Bank, spatial: [{name: X, fanout: 3}, {name: Y, fanout: 5}]}"),
        tagged("Memory", "{name: B, size: Bank.get_fanout() * 64 // 2, skip_initial_output_write: False, "
               "throughput_scale: inf, tensors: {keep: weight}, actions: [{name: read, throughput: 1}]}"),
        tagged("Toll", "{name: ADC, tensors: {keep: output}, direction: up, energy_scale: scale, "
               "bits_per_action: 4, actions: [{name: read, energy: 8, throughput: 1}]}"),
    )  # fmt: skip
    spec = imported(tmp_path, arch(*nodes, rest=variables)).spec
    memory, toll = component(spec, "B"), component(spec, "ADC")
    assert (memory.size_bits, memory.read_first) == (15 * 64 // 2, True)
    assert memory.action("read").throughput == float("inf")
    assert (toll.action("write").energy, toll.action("write").bits_per_action) == (16, 4)
    assert toll.action("read").energy == 0


def test_units_are_chosen_by_their_condition(tmp_path: Path) -> None:
    workload = files(
        tmp_path,
        w="workload: {rank_sizes: {M: 4, K: 4}, bits_per_value: {All: 8},"
        " einsums: ['Y[m] = A[m, k] * W[k]', 'Z[m] = Y[m]']}",
    )
    text = arch(tagged("Compute", "{name: Scalar, component_class: Dummy, enabled: len(All) == 2}")).replace(
        "{name: MAC, component_class: Dummy}", "{name: MAC, component_class: Dummy, enabled: len(All) == 3}"
    )
    found = pm.import_accelforge([files(tmp_path, a=text), workload])
    assert "compute: {Z: Scalar, Y: MAC}" in found.text


def test_a_mapping_passes(tmp_path: Path) -> None:
    text = """\
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A], persistent: false}
  - !Reservation {purposes: [A]}
  - !Sequential
    nodes:
    - !Nested {nodes: [!Temporal {rank_variable: m, tile_shape: 1}, !Compute {einsum: Y, component: MAC}]}
"""
    found = imported(tmp_path, text)
    assert "!Reservation" not in found.text
    assert "- !Temporal {rank_variable: m, tile_shape: 1}" in found.text


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (tagged("Memory", "{name: B, spatial: [{name: X, fanout: n}]}"), "`fanout` is not converted"),
        (tagged("Memory", "{name: B, size: len(spec.arch)}"), "`size` is not converted"),
        (tagged("Memory", "{name: B, size: __import__('os').getpid()}"), "`size` is not converted"),
        (tagged("Memory", "{name: B, size: \"open('x').read()\"}"), "`size` is not converted"),
        (tagged("Memory", "{name: B, size: 9 ** 9 ** 9 ** 9}"), "`size` is not converted"),
        (tagged("Memory", "{name: B, size: a, a: 1}"), "`a` is not converted: nothing here"),
        (tagged("Memory", "{size: 4}"), "a component has a name"),
        (tagged("Wire", "{name: W}"), "unknown tag !Wire"),
        (tagged("Toll", "{name: T, direction: sideways}"), "sideways is not a direction"),
        (tagged("Memory", "{name: B, tensors: {keep: All if n else Nothing}}"), "has no value in a"),
        (
            tagged("Memory", "{name: B, tensors: {keep: All}, bits_per_value: {weight: 2}}"),
            "values of several widths",
        ),
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_by_name(tmp_path: Path, node: str, why: str) -> None:
    assert why in refused(tmp_path, arch(node))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-CellType: X\n", "memory cells for an energy model"),
        ("!Memory {name: B}\n", "one !Memory component"),
        ("parts: {a: 1}\n", "none of AccelForge's sections, only parts"),
        ("workload: {einsums: ['Z[m] = A[m'], rank_sizes: {M: 1}}\n", "expected"),
        ("workload: {einsums: ['Z[m] = A[m]'], rank_sizes: {M: f(3)}}\n", "has no value here"),
        ("workload: {einsums: [{einsum: 'Z[m] = A[m]', loops: 3}], rank_sizes: {M: 1}}\n", "`loops`"),
    ],
)  # fmt: skip
def test_what_is_no_spec_is_told(tmp_path: Path, text: str, why: str) -> None:
    assert why in refused(tmp_path, text)


def test_what_is_refused_may_be_allowed(tmp_path: Path) -> None:
    path = files(tmp_path, machine=arch(tagged("Memory", "{name: B, magic: 1}")))
    found = pm.import_accelforge(path, allow=["magic"])
    assert [d.key for d in found.changed] == ["magic"]
    with faults("unknown-choice", at="allow"):
        pm.import_accelforge(path, allow=["magic", "other"])


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "spec.yaml"
    assert main(["import", "accelforge", str(model(tmp_path)), "--var", "N=4", "--out", str(out)]) == 0
    assert "note: " in capsys.readouterr().err
    assert len(pm.load(out).workload) == 4


def test_expressions_have_values_or_none() -> None:
    variables = {
        "a": "b + 1",
        "b": 2,
        "loop": "loop2",
        "loop2": "loop",
        "hist": "([0] * 3 + [1, 2])",
        "other": [1, 0, 1],
    }

    def count(text: str) -> int:
        known = {"All": 3, "weight": 0}
        if text not in known:
            raise NoValue(text)
        return known[text]

    scope = Scope(variables, EinsumView(count, lambda text: 4), {"total": 12})
    assert scope.number("a * 2") == 6
    assert scope.number("weight.bits_per_value if weight else a") == 3
    assert scope.number("round(input.bits_per_value) + get_array_fanout_total(spec)") == 16
    assert scope.number("2 if is_hist_signed(hist) else 1") == 1
    assert scope.number("is_hist_signed(other)") == 1
    assert scope.number("5 if len(All) == 3 else nowhere") == 5
    for text in ("loop", "nowhere", "a.b", "[1]", "is_hist_signed(nowhere)", "x" * 5000, None, [1]):
        with pytest.raises(NoValue):
            scope.number(text)
    with pytest.raises(NoValue):
        numbers_in("[1] * 10 ** 9")


def test_variables_that_name_each_other_many_times_are_worked_out_once() -> None:
    variables = {f"v{i}": f"v{i + 1} + v{i + 1} + v{i + 2}" for i in range(38)} | {"v38": 1, "v39": 1}
    assert Scope(variables).number("v0") > 2**38


def test_keys_of_older_files_stand_below_others(tmp_path: Path) -> None:
    text = arch(
        tagged("Memory", "{name: B, attributes: {size: 64, tech: 65}, constraints: {tensors: {keep: weight}},"
               " actions: [{name: read, arguments: {energy: 3, bits_per_action: 16}}]}")
    )  # fmt: skip
    found = imported(tmp_path, text)
    part = component(found.spec, "B")
    assert part.size_bits == 64
    assert part.keep.text == "weight"
    assert (part.action("read").energy, part.action("read").bits_per_action) == (3, 16)
    assert [d.key for d in found.left_out] == ["attributes"]


def test_what_says_so_is_not_merged(tmp_path: Path) -> None:
    text = """\
old: &old {rank_sizes: {M: 2, K: 3}, bits_per_value: {All: 4}, einsums: ["Z[m] = A[m]"]}
workload:
  <<<: *old
  rank_sizes: !nomerge {M: 5}
"""
    found = imported(tmp_path, text)
    assert "rank_sizes: {M: 5}" in found.text
    assert "bits_per_value: {All: 4}" in found.text


def test_what_another_memory_does_not_hold_may_pass_by(tmp_path: Path) -> None:
    """What the other one holds is up to the mapping: an intermediate in DRAM need not be in the buffer."""
    node = "- !Memory {name: DRAM, size: inf, tensors: {keep: ~Intermediates, may_keep: All}}"
    buffer = "- !Memory {name: GLB, size: 8192, tensors: {keep: ~DRAM, may_keep: All}}"
    arch = tmp_path / "arch.yaml"
    arch.write_text(f"arch:\n  nodes:\n  {node}\n  {buffer}\n  - !Compute {{name: MAC}}\n")
    found = pm.import_accelforge(arch)
    kept = {c.name: c.keep.text if c.keep is not None else None for c in found.spec.arch.components}
    assert kept["DRAM"] == "~Intermediates"
    assert kept["GLB"] is None
    assert found.spec.raw_explore is not None
    assert found.spec.raw_explore.exchange == ("GLB",)
    assert any("GLB need not keep what passes it by" in n.message for n in found.notes)


def test_bounds_on_loops_over_fanouts_bind_a_search(tmp_path: Path) -> None:
    """Of each rank variable of the set; what is not a such set is named."""
    rows = ("{expression: ~m, operator: ==, value: 1}", "{expression: weight, operator: <, value: 4}")
    fanout = f"{{name: X, fanout: 4, loop_bounds: [{', '.join(rows)}]}}"
    cell = "{name: Cell, size: 64, tensors: {keep: weight}, actions: [{name: read, energy: 1}]}"
    part = f"  - !Container\n    name: PE\n    spatial:\n    - {fanout}\n"
    found = imported(tmp_path, arch(part, tagged("Memory", cell)))
    assert found.spec.raw_explore is not None
    assert found.spec.raw_explore.fanouts["PE"]["X"].factors == {"k": "= 1", "n": "= 1"}
    assert {d.key for d in found.left_out if hasattr(d, "key")} == {"loop_bounds"}
