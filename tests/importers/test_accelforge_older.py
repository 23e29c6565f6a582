"""Older AccelForge files as they lie: where keys of components stood, times in counts of actions, bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults
from tests.importers.test_accelforge import files

GPU = """\
variables: {cycle: 1e-9, word: 64}
arch:
  nodes:
  - !Memory
    name: DRAM
    attributes: {_size: 4 * 1024, width: word * 2, _datawidth: 8}
    total_latency: (read_actions + write_actions) * width / 8 / 64e9
    actions:
    - {name: read, arguments: {_bits_per_action: width, _energy: 2}}
    - {name: write, arguments: {_bits_per_action: width, _energy: 4}}
    - {name: leak, arguments: {_energy: 0}}
    constraints: {tensors: {keep: All}, dataflow: {tensor_order_options: [[Outputs, ~Outputs]]}}
  - !Memory
    name: Array
    spatial: [{name: X, fanout: 4}, {name: Y, fanout: 2, may_reuse: Nothing}]
    attributes: {_size: 0}
    constraints:
      tensors: {keep: Nothing}
      spatial: [{name: X, reuse: output, min_usage: 1}, {name: Y, reuse: input}]
  - !Memory
    name: Buffer
    size: 2048
    total_latency: max(read_actions / 8 * 2, write_actions / 8) * cycle
    constraints: {tensors: {keep: DRAM.tensors if ~DRAM.tensors else Nothing, may_keep: All}}
    actions:
    - {name: read, energy: 1}
    - {name: write, energy: 1}
    - {name: skipped_read, energy: 0}
    - {name: skipped_write, energy: 3}
  - !Compute
    name: MAC
    attributes: {_total_latency: compute_actions * cycle}
    actions: [{name: compute, energy: 1}]
"""


def left(found: Any) -> dict[str, str]:
    return {d.key: d.changes for d in found.left_out}


def test_keys_in_the_tables_that_used_to_hold_them(tmp_path: Path) -> None:
    found = pm.import_accelforge(files(tmp_path, gpu=GPU))
    dram, array, buffer, mac = (found.spec.arch[n] for n in ("DRAM", "Array", "Buffer", "MAC"))
    assert dram.size_bits == 4096
    read, write = dram.action("read"), dram.action("write")
    assert (read.bits_per_action, read.energy, write.energy) == (128, 2, 4)
    assert read.throughput == 128 * 64e9 / 16  # 16 bytes at 64 GB/s
    assert (dram.ports, buffer.ports) == ("shared", "separate")
    assert (buffer.action("read").throughput, buffer.action("write").throughput) == (4e9, 8e9)
    assert mac.action("compute").throughput == 1e9
    assert [d.name for d in array.spatial] == ["X", "Y"]
    # What is said of a dimension counts more than a constraint that contradicts it.
    told = left(found)
    assert (told["constraints"], told["skipped_write"]) == ("", "energy")
    assert not {"leak", "skipped_read", "size"} & {k for k, changes in told.items() if changes}
    assert any("datawidth" in d.message for d in found.notes)
    assert "keep: Nothing, may_keep: All" in found.text  # DRAM holds all, so that nothing is left for it


@pytest.mark.parametrize(
    ("text", "ports", "read", "write"),
    [
        ("(read_actions + 2 * write_actions) / 8", "shared", 8.0, 4.0),
        ("max(read_actions, write_actions) / 4", "separate", 4.0, 4.0),
        ("'0'", "shared", float("inf"), float("inf")),
        ("read_actions * write_actions", "shared", 5.0, 5.0),  # neither: told, and actions keep what they say
        ("read_actions + 1", "shared", 5.0, 5.0),
        ("-read_actions", "shared", 5.0, 5.0),
        ("read_actions / unknown", "shared", 5.0, 5.0),
    ],
)
def test_times_in_counts_of_actions(text: str, ports: str, read: float, write: float) -> None:
    action = [{"name": n, "energy": 1, "throughput": 5} for n in ("read", "write")]
    memory = {
        "type": "Memory", "name": "M", "tensors": {"keep": "All"}, "actions": action,
        "total_latency": text.strip("'"),
    }  # fmt: skip
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1}]}
    found = pm.import_accelforge({"arch": {"nodes": [memory, unit]}})
    part = found.spec.arch["M"]
    assert (part.ports, part.action("read").throughput, part.action("write").throughput) == (
        ports,
        read,
        write,
    )
    assert ("total_latency" in left(found)) == (read == 5.0)


@pytest.mark.parametrize(("which", "rate"), [("W", 8e9), ("All", float("inf"))])
def test_rates_from_widths_of_the_workload(which: str, rate: float, tmp_path: Path) -> None:
    """A width has a value where all tensors of the set have the same one; else it is told."""
    text = LIFTED.split("mapping:")[0].replace("{All: 8}", "{W: 8, Other: 16}")
    action = f"actions: [{{name: compute, throughput: 1e9 * {which}.bits_per_value}}]"
    found = pm.import_accelforge(
        files(tmp_path, rates=text.replace("{name: MAC}", f"{{name: MAC, {action}}}"))
    )
    assert found.spec.arch["MAC"].action("compute").throughput == rate
    assert ("throughput" in left(found)) == (which == "All")


def test_bounds_at_an_einsum_and_values_without_a_width(tmp_path: Path) -> None:
    text = """\
workload:
  shape: {p: 0 <= p < 8}
  einsums:
  - name: Conv
    tensor_accesses:
    - {name: I, projection: {H: p + r}}
    - {name: W, projection: [r]}
    - {name: O, projection: [p], output: True}
    shape:
    - 0 <= r < 3
"""
    found = pm.import_accelforge(files(tmp_path, conv=text))
    assert "0 <= r < 3" in found.text
    assert found.spec.workload["Conv"].access_of("I").bits_per_value == 8
    assert [d.key for d in found.changed] == ["bits_per_value"]


MAPPING = """\
mapping:
  nodes:
  - !Storage {tensors: [A, B], component: DRAM}
  - !Pipeline
    binding: [0, 1]
    nodes:
    - !Nested {nodes: [!Compute {einsum: First, compute: MAC}]}
    - !Nested {nodes: [!Compute {einsum: Second, component: Adder}]}
"""


def test_units_of_older_mappings_and_bindings_of_branches(tmp_path: Path) -> None:
    found = pm.import_accelforge(files(tmp_path, mapping=MAPPING))
    assert "component: MAC" in found.text
    assert "component: Adder" in found.text
    assert left(found) == {"binding": "latency"}


LIFTED = """\
workload:
  rank_sizes: {M: 2, K: 4, N: 4}
  bits_per_value: {All: 8}
  einsums:
  - "Z[m, n] = A[m, k] * W[k, n]"
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: ~W}}
  - !Container {name: Column, spatial: [{name: X, fanout: 4, may_reuse: A}]}
  - !Memory {name: Cell, tensors: {keep: W}}
  - !Compute {name: MAC}
mapping:
  nodes:
  - !Storage {tensors: [A, Z], component: DRAM}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Storage {tensors: [W], component: Cell}
  - !Spatial {rank_variable: n, tile_shape: 1, component: Column, name: X}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Compute {einsum: Z, component: MAC}
"""


def test_weights_that_all_instances_hold_together(tmp_path: Path) -> None:
    """As its mapper writes machines that compute in memory: the node stands above the array."""
    found = pm.import_accelforge(files(tmp_path, lifted=LIFTED))
    assert any("stands below the spatial loops" in d.message for d in found.notes)
    report = pm.evaluate(found.spec)
    rows = report.accesses.set_index(["component", "tensor"])
    assert rows.loc[("Cell", "W"), "read_elements"] == 2 * 4 * 4
    assert rows.loc[("Cell", "W"), "fill_elements"] == 0
    held = LIFTED.replace("keep: ~W", "keep: All").replace("[A, Z], component", "[A, Z, W], component")
    with pytest.raises(pm.SpecError):  # what is held above as well is another mapping
        pm.evaluate(pm.import_accelforge(files(tmp_path, lifted=held)).spec)


NESTED = """\
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: All}}
  - !Network
    name: NoC
    spatial: [{name: X, fanout: 4}]
    nodes:
    - !Memory {name: Buffer, tensors: {keep: All}, spatial: [{name: X, fanout: 4}]}
    - !Hierarchy
      spatial: [{name: X, fanout: 4}]
      nodes:
      - !Memory {name: Scratchpad, tensors: {keep: All}}
      - !Compute {name: MAC}
"""


def test_a_network_that_holds_its_components(tmp_path: Path) -> None:
    found = pm.import_accelforge(files(tmp_path, noc=NESTED))
    assert [c.name for c in found.spec.arch.components] == [
        "DRAM",
        "Buffer",
        "Hierarchy",
        "Scratchpad",
        "MAC",
    ]
    assert found.spec.arch["Hierarchy"].spatial[0].link is not None  # that of the network


LINED_UP = NESTED.replace(
    "    spatial: [{name: X, fanout: 4}]\n    nodes", "    shape: [{name: X, fanout: 4}]\n    nodes"
).replace(
    """    - !Hierarchy
      spatial: [{name: X, fanout: 4}]
      nodes:
      - !Memory {name: Scratchpad, tensors: {keep: All}}
""",
    """    - !Hierarchical
      nodes:
      - !Memory {name: Scratchpad, tensors: {keep: All}, spatial: [{name: X, fanout: 4}]}
""",
)


def test_a_fanout_in_line_within_a_network_replicates_the_units_behind_it(tmp_path: Path) -> None:
    found = pm.import_accelforge(files(tmp_path, noc=LINED_UP))
    assert found.spec.arch.instances("MAC") == found.spec.arch.instances("Scratchpad") == 4
    assert found.spec.arch.instances("Buffer") == 1
    assert found.spec.arch["Scratchpad"].spatial[0].link is not None


@pytest.mark.parametrize(("name", "energy"), [("hop", 3), ("hops", 3), ("flit", 0)])
def test_hops_of_a_network_by_their_older_name(tmp_path: Path, name: str, energy: int) -> None:
    actions = (
        f"    actions: [{{name: {name}, energy: 3, latency: 0}}]\n    nodes:\n    - !Memory {{name: Buffer"
    )
    text = NESTED.replace("    nodes:\n    - !Memory {name: Buffer", actions)
    assert text != NESTED
    found = pm.import_accelforge(files(tmp_path, noc=text))
    assert found.spec.arch["Hierarchy"].spatial[0].link.energy_per_bit_hop == energy
    assert ("flit" in [d.key for d in found.changed]) == (name == "flit")


MACRO = """\
{% macro product(name, weight) -%}
- name: {{ name }}
  tensor_accesses:
  - {name: A, projection: [m, k]}
  - {name: {{ weight }}, projection: [k, n]}
  - {name: {{ name }}, projection: [m, n], output: true}
{%- endmacro %}
workload:
  rank_sizes: {M: 8, N: 4, K: 2}
  bits_per_value: {All: 8}
  einsums:
  {% for i in range(2) %}
  {{ product("Z" ~ i, "W" ~ i) | indent(2) }}
  {% endfor %}
"""


def test_a_macro_writes_einsums_and_the_machine_is_called_architecture(tmp_path: Path) -> None:
    machine = NESTED.replace("arch:", "architecture:", 1)
    spec = pm.import_accelforge([files(tmp_path, work=MACRO), files(tmp_path, machine=machine)]).spec
    assert [(e.name, sorted(e.tensors)) for e in spec.workload] == [
        ("Z0", ["A", "W0", "Z0"]),
        ("Z1", ["A", "W1", "Z1"]),
    ]
    assert spec.arch.components[0].name == "DRAM"


def test_a_section_that_is_misspelt_is_told_and_one_that_holds_anchors_is_not(tmp_path: Path) -> None:
    anchors = "variables_global: &shared {size: 8}\n"
    found = pm.import_accelforge(files(tmp_path, noc=anchors + NESTED))
    assert not any("variables_global" in d.message for d in (*found.notes, *found.left_out))
    with faults("unknown-key", at="mappings"):
        pm.import_accelforge(files(tmp_path, noc="mappings: {nodes: []}\n" + NESTED))


CALLED = """\
workload:
  iteration_space_shape: {m: 0 <= m < 4, k: 0 <= k < 2}
  bits_per_value: {~Outputs: 8, Outputs: 16}
  einsums:
  - name: E
    tensor_accesses:
    - {name: Inputs, projection: [m, k], density: 0.5}
    - {name: Outputs, projection: [m], output: True}
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: Inputs | Outputs}
    representation_format: [{name: Inputs, format: bitmask}]
    action_optimization: [{kind: skipping, target: Outputs, condition_on: [Inputs]}]
  - !Compute {name: MAC}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [Inputs, Outputs]}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Compute {einsum: E, component: MAC}
"""


def test_tensors_whose_names_are_words_of_sets(tmp_path: Path) -> None:
    found = pm.import_accelforge(files(tmp_path, called=CALLED))
    assert {d.message for d in found.notes} >= {
        "Inputs is called Input here",
        "Outputs is called Output here",
    }
    (einsum,) = found.spec.workload
    assert [(a.tensor, a.bits_per_value) for a in einsum.accesses] == [("Input", 8), ("Output", 16)]
    sparse = found.spec.raw_arch.nodes[0].sparse  # type: ignore[union-attr]  # there is one
    assert list(sparse.format) == ["Input"]
    assert [(a.skip, a.on) for a in sparse.actions] == [(("Output",), ("Input",))]
    rows = pm.evaluate(found.spec).accesses.set_index("tensor")
    assert (rows.loc["Input", "read_elements"], rows.loc["Output", "write_elements"]) == (8, 8)


CHAIN = """\
workload:
  rank_sizes: {M: 4, K: 2, N: 2, P: 2}
  bits_per_value: {All: 8}
  einsums: ["A[m, n] = I[m, k] * V[k, n]", "B[m, p] = A[m, n] * W[n, p]"]
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: ~Intermediates, may_keep: All}}
  - !Memory {name: Buffer, tensors: {keep: All}}
  - !Compute {name: First, support_concurrent_binding: True}
  - !Compute {name: Second}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, V, W, B]}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Pipeline
    binding: [0, 0]
    nodes:
    - !Nested
      nodes:
      - !Storage {component: Buffer, tensors: [I, A]}
      - !Storage {component: Buffer, tensors: [V]}
      - !Temporal {rank_variable: n, tile_shape: 1}
      - !Temporal {rank_variable: k, tile_shape: 1}
      - !Compute {einsum: A, component: First}
    - !Nested
      nodes:
      - !Storage {component: Buffer, tensors: [A, B, W]}
      - !Temporal {rank_variable: n, tile_shape: 1}
      - !Temporal {rank_variable: p, tile_shape: 1}
      - !Compute {einsum: B, component: First}
"""


def test_what_branches_hand_over_is_stored_above_them(tmp_path: Path) -> None:
    """There each branch writes a node for it; those that are bound to one unit take turns."""
    found = pm.import_accelforge(files(tmp_path, chain=CHAIN))
    notes = " ".join(d.message for d in found.notes)
    assert "A in Buffer stands above the split" in notes
    assert "bound to one unit are !Sequential" in notes
    report = pm.evaluate(found.spec)
    rows = report.accesses.set_index(["einsum", "component", "tensor"])
    assert rows.loc[("B", "Buffer", "A"), "read_elements"] == 4 * 2 * 2
    assert not report.accesses.query("component == 'DRAM' and tensor == 'A'").size
    times = report.summary.set_index("einsum").operations
    assert (times["A"], times["B"]) == (16, 16)
    apart = CHAIN.replace("[0, 0]", "[0, 1]").replace("{einsum: B, component: First}",
                                                      "{einsum: B, component: Second}")  # fmt: skip
    found = pm.import_accelforge(files(tmp_path, apart=apart))
    assert "!Pipeline" in found.text
    assert ("binding", "latency") in {(d.key, d.changes) for d in found.changed}


COVERED = """\
workload:
  rank_sizes: {M: 4, K: 8, N: 8}
  bits_per_value: {All: 8}
  einsums: ["Z[m, n] = A[m, k] * B[k, n]"]
arch:
  nodes:
  - !Memory {name: DRAM}
  - !Network {name: Net, topology: KIND, actions: [{name: hop, energy: 3, throughput: inf, latency: 0}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 4}]}
  - !Memory {name: Buffer, spatial: [{name: Y, fanout: 4}]}
  - !Compute {name: MAC}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: 2}
  - !Spatial {rank_variable: n, tile_shape: 2, component: PE, name: X}
  - !Spatial {rank_variable: k, tile_shape: 2, component: Buffer, name: Y}
  - !Storage {component: Buffer, tensors: [A, B, Z]}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Compute {einsum: Z, component: MAC}
"""


@pytest.mark.parametrize(("kind", "hops"), [
    ("mesh", {"A": 2304, "B": 3072, "Z": 1152}),
    ("all_to_all", {"A": 1536, "B": 1536, "Z": 960}),
])  # fmt: skip
def test_a_network_links_all_fanouts_up_to_the_next_memory(
    kind: str, hops: dict[str, int], tmp_path: Path
) -> None:
    """Hops in bits are those that AccelForge 1.0.467 prints for this file."""
    found = pm.import_accelforge(files(tmp_path, covered=COVERED.replace("KIND", kind)))
    energy = pm.evaluate(found.spec).energy
    moved = energy[energy.action == "hop"].groupby("tensor")["count"].sum()
    assert dict(moved) == hops
