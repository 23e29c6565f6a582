"""ZigZag's layers and accelerators: operations, tensors, places of memories and prices by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults

HERE = Path(__file__).parent / "zigzag"
LAYER: dict[str, Any] = {
    "id": 0,
    "equation": "O[b][k]+=W[k][c]*I[b][c]",
    "loop_dims": ["B", "K", "C"],
    "loop_sizes": [4, 8, 16],
    "operand_precision": {"W": 8, "I": 8, "O": 8},
    "operand_source": {"W": 0, "I": 0},
}
MEMORY: dict[str, Any] = {
    "size": 4096, "r_bw": 8, "w_bw": 8, "r_cost": 1, "w_cost": 1, "r_port": 1, "w_port": 1, "rw_port": 0,
    "operands": ["I1", "I2", "O"], "served_dimensions": ["D1", "D2"],
}  # fmt: skip
ARRAY = {"unit_energy": 1, "dimensions": ["D1", "D2"], "sizes": [4, 2]}


@pytest.fixture(scope="module")
def imported() -> Any:
    return pm.import_zigzag(HERE / "layers.yaml", HERE / "machine.yaml", clock=2e8)


def test_layers_have_their_operations(imported: Any) -> None:
    """Of a padded layer of 4 x 4 and windows of 3 x 3, 10 x 10 of 12 x 12 products along rows and columns."""
    cascade = imported.spec.workload
    points = {e.name: int(str(e.iteration_space.count_val())) for e in cascade}
    # Layer 0 makes 8 x 8 values of a stride of 2; windows of 2 fit them.
    assert points == {
        "layer0": 8 * 3 * 8 * 8 * 9,
        "layer1": 8 * 4 * 4 * 4,
        "layer2": 8 * 8 * 10 * 10,
        "layer3": 8 * 4 * 4,
        "layer4": 10 * 8 * 16,
    }
    assert [e.tensors for e in cascade] == [
        ("O0", "W0", "I0"), ("O1", "O0"), ("O2", "W2", "O1"), ("O3", "O1", "O2"), ("O4", "W4", "O3"),
    ]  # fmt: skip
    assert str(cascade.einsums[2].access_of("O1").projection[2]) == "oy + fy - 1"
    assert dict(cascade.einsums[1].renames)["weight"] == frozenset()


def test_memories_stand_where_they_serve(imported: Any) -> None:
    parts = imported.spec.arch.components
    assert [p.name for p in parts] == ["dram", "sram", "Array_D1", "rf_sum", "Array_D2", "rf_weight", "MAC"]
    assert [[(d.name, d.fanout) for d in p.spatial] for p in parts if p.spatial] == [[("D1", 4)], [("D2", 2)]]
    dram, sram, unit = parts[0], parts[1], parts[-1]
    assert dram.action("write").energy == pytest.approx(750e-12 / 64)
    assert (sram.ports, parts[3].ports) == ("shared", "separate")
    assert sram.action("read").throughput == 2 * 128 * 2e8  # two ports
    assert (unit.action("compute").energy, unit.action("compute").throughput) == (0.04e-12, 2e8)
    assert sram.keep is not None
    assert sram.keep.tensors("layer0") == {"I0", "O0"}


def test_what_has_no_counterpart_is_named(imported: Any) -> None:
    changed = {(d.key, d.changes) for d in imported.changed}
    assert changed == {("O", "bits of partial sums"), ("area", "area")}
    (wide,) = [d for d in imported.changed if d.key == "O"]
    assert "layer0, layer2, layer3, layer4" in wide.message
    notes = " ".join(d.message for d in imported.notes)
    assert "layer2: I reaches 6 values of iy, 4 are made: of padding 1 stand before them" in notes
    assert "layer1: W has values of 0 bits" in notes


def test_links_say_which_operand_is_where() -> None:
    links = [{"name": "default", "memory_operand_links": {"W": "I1", "I": "I2", "O": "O"},
              "spatial_mapping": {"D1": ["K, 4"]}}]  # fmt: skip
    found = pm.import_zigzag([LAYER], links)
    renames = dict(found.spec.workload.einsums[0].renames)
    assert (renames["input"], renames["weight"]) == ({"W"}, {"I"})
    assert [d.key for d in found.left_out] == ["spatial_mapping"]


def test_files_of_stream_are_those_of_zigzag() -> None:
    """Layers, mappings and cores have ZigZag's form; what allots layers to cores limits a search."""
    mapping = [{"name": "default", "core_allocation": [0, 1], "core_allocation_is_fixed": False}]
    core = {
        "memories": {"m": MEMORY},
        "operational_array": ARRAY,
        "dataflows": {"D1": ["K, 4"]},
        "type": "compute",
    }
    found = pm.import_zigzag([LAYER], mapping, core)
    assert {d.key for d in found.left_out} == {
        "core_allocation",
        "core_allocation_is_fixed",
        "dataflows",
        "type",
    }
    assert found.changed == ()
    assert found.complete is False


def test_padding_is_by_name_or_in_the_order_of_its_dimensions() -> None:
    layer = {
        "id": 0, "equation": "O[oy][ox]+=W[fy][fx]*I[iy][ix]", "loop_dims": ["OY", "OX", "FY", "FX"],
        "loop_sizes": [6, 8, 3, 5], "dimension_relations": ["iy=oy+fy", "ix=ox+fx"],
        "operand_precision": {"O": 8, "W": 8, "I": 8}, "operand_source": {"I": 0, "W": 0},
    }  # fmt: skip
    named = pm.import_zigzag([{**layer, "padding": {"IX": [2, 2], "IY": [1, 1]}}])
    listed = pm.import_zigzag(
        [{**layer, "pr_loop_dims": ["IX", "IY"], "pr_loop_sizes": [8, 6], "padding": [[2, 2], [1, 1]]}]
    )
    assert listed.text == named.text
    (einsum,) = listed.spec.workload
    assert [str(x) for x in einsum.accesses[-1].projection] == ["oy + fy - 1", "ox + fx - 2"]
    assert listed.left_out == ()


def test_an_accelerator_alone_and_packaged_layers(tmp_path: Path) -> None:
    found = pm.import_zigzag({"memories": {"m": MEMORY}, "operational_array": ARRAY})
    found.save(tmp_path / "machine.yaml")
    assert [n.message for n in found.notes] == ["no clock is given: one cycle is taken as 1 ns"]
    spec = pm.load("depthwise_conv2d", tmp_path / "machine.yaml")
    assert [c.name for c in spec.arch.components] == ["m", "Array_D1_D2", "MAC"]


@pytest.mark.parametrize(("files", "message"), [
    ([[{**LAYER, "equation": "O[b]"}]], "is not an equation of a layer"),
    ([[{**LAYER, "equation": "O[b]+=W[b]*W[b]"}]], "operand W stands twice"),
    ([[{**LAYER, "loop_sizes": [4, 8]}]], "3 loop_dims and 2 loop_sizes"),
    ([[{**LAYER, "loop_sizes": [4, 8, 0]}]], "0 is not a whole number from 1 on"),
    ([[{**LAYER, "dimension_relations": ["ix=2*ox"]}]], "ox is not in loop_dims"),
    ([[{**LAYER, "operand_source": {"I": 7, "W": 0}}]], "I comes from layer 7, which is not there"),
    ([[{**LAYER, "padding": {"IX": 3}}]], "the padding of IX is not a pair of numbers"),
    ([[{**LAYER, "padding": [[1, 1]]}]], "the padding has 1 entries, `pr_loop_dims` has 0"),
    ([[{**LAYER, "padding": "same"}]], "a mapping is expected, here is a scalar"),
    ([[{**LAYER, "operand_precision": [8]}]], "a mapping is expected, here is a list"),
    ([[{**LAYER, "strange": 3}]], "`strange` is not converted"),
    ([[LAYER, LAYER]], "two layers have the id 0"),
    ([{"memories": {"m": MEMORY}}], "has no `operational_array:`"),
    ([{"memories": {"m": {**MEMORY, "operands": ["I3"]}}, "operational_array": ARRAY}], "I3 is held in m"),
    ([{"memories": {"m": {**MEMORY, "served_dimensions": ["D9"]}}, "operational_array": ARRAY}],
     "D9 is not a dimension of the array"),
    ([{"memories": {"rows": {**MEMORY, "served_dimensions": ["D1"]},
                    "columns": {**MEMORY, "served_dimensions": ["D2"]}}, "operational_array": ARRAY}],
     "they do not form one hierarchy"),
    ([{"cores": [{"memories": {}}]}], "cores are a list of files"),
    ([{"cores": []}], "cores are a list of files"),
    ([{"memories": {"m": MEMORY}, "operational_array": {**ARRAY, "sizes": [0, 0]}}], "it has no units"),
    ([{"memories": {"m": MEMORY}, "operational_array": ARRAY, "is_imc": True}], "`is_imc` is not"),
    ([{"x": 1}], "it has nothing of ZigZag's"),
    (["nowhere.yaml"], "there is no such file"),
    ([], "nothing to import"),
])  # fmt: skip
def test_faults(files: list[Any], message: str) -> None:
    with pytest.raises(pm.SpecError) as caught:
        pm.import_zigzag(files[0] if files else [], *files[1:])
    assert any(message in d.message for d in caught.value.diagnostics)
    assert all(d.remedy for d in caught.value.diagnostics)


def ports(*written: tuple[str, int, str]) -> list[dict[str, Any]]:
    """`bandwidth_min` is 8 everywhere."""
    return [
        {"name": f"p{i}", "type": kind, "bandwidth_min": 8, "bandwidth_max": width,
         "allocation": served.split("; ")}
        for i, (kind, width, served) in enumerate(written)
    ]  # fmt: skip


def machine(*written: tuple[str, int, str], **more: object) -> dict[str, Any]:
    held = {"size": 4096, "r_cost": 3, "w_cost": 4, "operands": ["I1", "I2", "O"]}
    found = {**held, "served_dimensions": ["D1", "D2"], "ports": ports(*written), **more}
    return {"memories": {"m": found}, "operational_array": ARRAY}


def test_ports_have_their_widths() -> None:
    """A cost is that of an access of a port's width; the ports of one direction move their sum in a cycle."""
    reads = (("read", 16, "I1, tl; I2, tl"), ("read", 16, "O, tl; O, th"))
    found = pm.import_zigzag(machine(*reads, ("write", 32, "I1, fh; O, fl")), clock=1e9)
    memory = found.spec.arch.components[0]
    read, write = memory.action("read"), memory.action("write")
    assert (memory.ports, read.throughput, write.throughput) == ("separate", 32e9, 32e9)
    assert (read.energy, write.energy) == (pytest.approx(3e-12 / 16), pytest.approx(4e-12 / 32))
    assert {(d.key, d.changes) for d in found.changed} == {("ports", "latency"), ("bandwidth_min", "energy")}
    shared = pm.import_zigzag(machine(("read_write", 64, "I1, fh; I1, tl; O, tl; O, fl")), clock=1e9)
    memory = shared.spec.arch.components[0]
    assert memory.ports == "shared"
    assert {memory.action(name).throughput for name in ("read", "write")} == {64e9}


MAPPING = """\
mapping:
  nodes:
  - !Storage {component: far, tensors: [I, W, O]}
  - !Temporal {rank_variable: b, tile_shape: 2}
  - !Storage {component: m, tensors: [I, W, O]}
  - !Temporal {rank_variable: c, tile_shape: 2}
  - !Spatial {rank_variable: k, tile_shape: 2, component: Array_D1_D2, name: D1}
  - !Spatial {rank_variable: c, tile_shape: 1, component: Array_D1_D2, name: D2}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Temporal {rank_variable: b, tile_shape: 1}
  - !Compute {einsum: layer0, component: MAC}
"""


def test_narrow_ports_cost_more_a_bit(tmp_path: Path) -> None:
    """An access costs the same over each port: by hand, each transfer over the width of its own port."""
    widths = {("I1", "tl"): 32, ("I1", "fh"): 128, ("I2", "tl"): 64, ("I2", "fh"): 16, ("O", "tl"): 128,
              ("O", "fl"): 64, ("O", "fh"): 32, ("O", "th"): 16}  # fmt: skip
    given = machine(*(("read_write", w, f"{o}, {t}") for (o, t), w in widths.items()))
    far = {**MEMORY, "size": 10**6, "r_cost": 0, "w_cost": 0}
    given["memories"]["far"] = far
    found = pm.import_zigzag([[LAYER], given], clock=1e9)
    names = [c.name for c in found.spec.arch.components]
    assert names[:2] == ["far", "m_ports_above"]
    found.save(tmp_path / "spec.yaml")
    (tmp_path / "mapping.yaml").write_text(MAPPING)
    spec = pm.load(tmp_path / "spec.yaml", tmp_path / "mapping.yaml")
    for engine in ("exact", "enumerate"):
        report = pm.evaluate(spec, engine=engine)
        rows = report.accesses.query("component == 'm'").set_index("tensor")
        costs = 0.0
        for tensor, operand in (("I", "I1"), ("W", "I2"), ("O", "O")):
            row = rows.loc[tensor]
            moved = {
                "fh": row.fill_bits, "th": row.drain_bits, "tl": row.read_bits - row.drain_bits,
                "fl": row.write_bits - row.fill_bits,
            }  # fmt: skip
            for way, bits in moved.items():
                price = {"t": 3e-12, "f": 4e-12}[way[0]]
                costs += bits * price / widths[operand, way] if bits else 0.0
        energy = report.energy
        assert energy[energy.component.str.startswith("m")].energy_J.sum() == pytest.approx(costs)


def test_tiles_that_are_doubled_have_half_of_the_memory() -> None:
    given = machine(("read_write", 64, "I1, tl; I1, fh"), force_double_buffering=True)
    found = pm.import_zigzag(given, clock=1e9)
    assert found.spec.arch.components[0].size_bits == 2048
    assert ("force_double_buffering", "capacity") in {(d.key, d.changes) for d in found.changed}


@pytest.mark.parametrize(("given", "message"), [
    (machine(("read", 16, "I1, tl")), "m has no bandwidth of writes"),
    (machine(("through", 16, "I1, tl")), "through is not a type of a port"),
    (machine(("read_write", 16, "I1, tl; I1, fh"), auto_cost_extraction=True), "those of an estimator"),
    ({"memories": {"m": {**MEMORY, "r_bw": 0}}, "operational_array": ARRAY}, "m has no bandwidth of reads"),
])  # fmt: skip
def test_a_cost_without_a_width_is_told(given: Any, message: str) -> None:
    with pytest.raises(pm.SpecError, match=message):
        pm.import_zigzag(given)


def test_of_a_key_that_stands_twice_the_last_counts(tmp_path: Path) -> None:
    text = (HERE / "machine.yaml").read_text(encoding="utf-8")
    (tmp_path / "twice.yaml").write_text(text.replace("    r_cost: 700\n", "    r_cost: 70\n    r_cost: 7\n"))
    found = pm.import_zigzag(tmp_path / "twice.yaml", clock=1e9)
    assert found.spec.arch.components[0].action("read").energy == pytest.approx(7e-12 / 64)
    (told,) = [n for n in found.notes if "r_cost" in n.message]
    assert (told.message, told.place.line) == ("r_cost is repeated in line 48; the last value counts", 47)


def test_a_clock_is_a_frequency() -> None:
    with faults("out-of-range", at="clock"):
        pm.import_zigzag([LAYER], clock=0)


ACROSS = """\
mapping:
  nodes:
  - !Storage {component: sram, tensors: [I, W, O]}
  - !Temporal {rank_variable: b, tile_shape: 1}
  - !Temporal {rank_variable: k, tile_shape: 3}
  - !Temporal {rank_variable: c, tile_shape: 2}
  - !Storage {component: rows, tensors: [I]}
  - !Spatial {rank_variable: k, tile_shape: 1, component: Array_D1, name: D1}
  - !Storage {component: columns, tensors: [O]}
  - !Spatial {rank_variable: c, tile_shape: 1, component: Array_D2, name: D2}
  - !Compute {einsum: layer0, component: MAC}
"""


def test_memories_along_dimensions_of_their_own(tmp_path: Path) -> None:
    """Inputs are held once per D2 and serve D1, sums once per D1 and add up over D2. By hand, of an array
    that is not full: a cycle reads two inputs for all of k, and adds a sum of two products for each k."""
    held = {"rows": (["D1"], "I1"), "columns": (["D2"], "O"), "sram": (["D1", "D2"], "I1, I2, O")}
    memories = {
        n: {**MEMORY, "served_dimensions": d, "operands": o.split(", ")} for n, (d, o) in held.items()
    }
    found = pm.import_zigzag([[LAYER], {"memories": memories, "operational_array": ARRAY}], clock=1e9)
    arch = found.spec.arch
    assert [c.name for c in arch.components] == ["sram", "rows", "Array_D1", "columns", "Array_D2", "MAC"]
    assert (arch["rows"].size_bits, arch["rows"].action("read").throughput) == (2 * 4096, 2 * 8e9)
    assert (arch.instances("rows"), arch.instances("columns")) == (1, 4)
    assert [d.changes for d in found.changed if d.key == "served_dimensions"] == [
        "accesses of values that several instances hold"
    ]
    found.save(tmp_path / "spec.yaml")
    (tmp_path / "mapping.yaml").write_text(ACROSS)
    spec = pm.load(tmp_path / "spec.yaml", tmp_path / "mapping.yaml")
    cycles = 4 * 3 * 8  # of b, of tiles of three k (8 is 3 + 3 + 2), of pairs of c
    for engine in ("exact", "enumerate"):
        rows = pm.evaluate(spec, engine=engine).accesses.set_index(["component", "tensor"])
        assert rows.loc[("rows", "I"), "read_elements"] == cycles * 2
        sums = rows.loc[("columns", "O")]
        assert sums.write_elements - sums.fill_elements == 4 * 8 * 8


def test_memories_without_a_place_above_what_they_serve() -> None:
    """Further out than another of the same operand, and along a dimension that this one serves."""
    outer = {**MEMORY, "served_dimensions": ["D1"], "operands": ["I1"]}
    inner = {**MEMORY, "served_dimensions": ["D2"], "operands": ["I1"]}
    memories = {"near": inner, "far": outer, "sram": MEMORY}
    given = {"memories": memories, "operational_array": ARRAY}
    with faults("no-counterpart", at="memories.near.served_dimensions"):
        pm.import_zigzag(given)
    found = pm.import_zigzag(given, allow=["served_dimensions"])
    assert found.spec.arch.instances("near") == 8  # 4 there, each of which serves 2 units
    assert found.spec.arch["near"].action("read").energy == 1e-12 / 8 / 2


SYSTEM = """\
name: quad
cores: [one.yaml, one.yaml, cores/two.yaml, ./cores/offchip.yaml]
graph: {type: bus, bandwidth: 32, unit_energy_cost: 2, offchip_core_id: 3}
"""


def system(folder: Path, text: str = SYSTEM) -> Path:
    one = {"name": "one", "memories": {"sram": MEMORY}, "operational_array": ARRAY, "utilization": 30}
    two = {"memories": {"rf": MEMORY}, "operational_array": {**ARRAY, "unit_energy": 2}}
    empty = {"unit_energy": 0, "dimensions": ["D1"], "sizes": [0]}
    dram = {**MEMORY, "served_dimensions": ["D1"]}
    (folder / "cores").mkdir(parents=True)
    texts = {
        "one": one,
        "cores/two": two,
        "cores/offchip": {"memories": {"dram": dram}, "multipliers": empty},
    }
    for name, core in texts.items():
        (folder / f"{name}.yaml").write_text(json.dumps(core))
    (folder / "system.yaml").write_text(text)
    return folder / "system.yaml"


def test_a_system_of_several_cores(tmp_path: Path) -> None:
    found = pm.import_zigzag([LAYER], system(tmp_path / "a"), clock=1e9)
    parts = found.spec.arch.components
    shown = {c.name: c.branch for c in parts}
    assert list(shown) == ["offchip_dram", "one", "one_sram", "one_Array_D1_D2", "one_MAC"] + [
        "two", "two_rf", "two_Array_D1_D2", "two_MAC"
    ]  # fmt: skip
    assert {n: b for n, b in shown.items() if b} == dict.fromkeys(list(shown)[1:5], "one")
    link = parts[1].spatial[0].link
    assert parts[1].spatial[0].fanout == 2
    assert link is not None
    assert (link.topology, link.energy_per_bit_hop, link.throughput) == ("bus", 2e-12 / 32, 32e9)
    assert [d.key for d in found.left_out if d.changes == "latency"] == ["utilization"]
    units = pm.explore(found.spec, objectives="energy", constraints={"compute": {"layer0": "one_MAC"}})
    assert "one_MAC" in str(units[0].mapping)


def test_tiles_of_an_array_of_processors(tmp_path: Path) -> None:
    """Two columns: a tile of memory, above two of processors; behind the shim stands the memory off chip."""
    tile = "type: aie2.{}\nmemory: {{capacity: {}, bandwidth_min: 8, bandwidth_max: {}}}\n"
    (tmp_path / "shim.yaml").write_text(
        "name: shim\ntype: aie2.shim\ndma: {mm2s: 2, s2mm: 1, channel_bits: 32}\n"
    )
    (tmp_path / "store.yaml").write_text("name: store\n" + tile.format("memory", 4096, 96))
    (tmp_path / "tile.yaml").write_text("name: tile\n" + tile.format("compute", 512, 64))
    links = [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 6), (2, 5), (3, 6)]
    (tmp_path / "array.yaml").write_text(
        "cores: [shim.yaml, store.yaml, tile.yaml, tile.yaml, store.yaml, tile.yaml, tile.yaml]\n"
        "offchip_core_id: 0\ncore_connectivity:\n"
        + "".join(f"  - {{type: link, cores: [{a}, {b}], bandwidth: 16}}\n" for a, b in links)
    )
    found = pm.import_zigzag([LAYER], tmp_path / "array.yaml", clock=1e9)
    arch = found.spec.arch
    assert [c.name for c in arch.components] == [
        "shim_memory", "store", "store_memory", "tile", "tile_memory", "tile_MAC",
    ]  # fmt: skip
    off, columns, store, rows, *_ = arch.components
    assert [a.throughput for a in off.actions] == [64e9, 32e9]
    assert store.actions[0].throughput == 96e9
    ways = [(d.fanout, d.link.topology) for c in (columns, rows) for d in c.spatial]
    assert ways == [(2, "switch"), (2, "mesh")]
    assert any("said by its kernels" in d.message for d in found.left_out)
    for name in ("store.yaml", "shim.yaml"):
        with pytest.raises(pm.SpecError):
            pm.import_zigzag(tmp_path / name)


def test_transfers_of_ports_in_one_list() -> None:
    port = {"type": "read_write", "bandwidth_max": 64}
    lines = ["I1, tl", "I1, fh", "O, tl", "O, th", "O, fh", "O, fl"]
    told = [
        pm.import_zigzag({
            "memories": {"m": {"size": 99, "r_cost": 1, "w_cost": 2, "operands": ["I1", "O"],
                               "ports": [{**port, "allocation": given}], "served_dimensions": ["D1", "D2"]}},
            "operational_array": ARRAY,
        }).text
        for given in (lines, ", ".join(lines).split(", "))
    ]  # fmt: skip
    assert told[0] == told[1]


def test_files_of_cores_stay_in_the_folders_around(tmp_path: Path) -> None:
    """A path may start further out, but leads back; a link, or steps up from further out, lead nowhere."""
    inner = tmp_path / "src" / "hardware"
    path = system(inner, "cores: [src/hardware/one.yaml, cores/offchip.yaml]\noffchip_core_id: 1\n")
    assert [c.name for c in pm.import_zigzag(path, clock=1e9).spec.arch.components][1:3] == [
        "one",
        "one_sram",
    ]
    (tmp_path / "secret.yaml").write_text((inner / "one.yaml").read_text())
    (inner / "cores" / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    for name in ("../secret.yaml", "link.yaml", "cores/link.yaml"):
        path.write_text(f"cores: [{name}, cores/offchip.yaml]\n")
        with pytest.raises(pm.SpecError) as caught:
            pm.import_zigzag(path)
        assert {d.code for d in caught.value.diagnostics} & {"unreadable-file", "foreign-file"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("cores: [../../secret.yaml]", "foreign-file"),
        ("cores: [/etc/hosts]", "foreign-file"),
        ("cores: [nowhere.yaml]", "unreadable-file"),
        ("cores: [./cores/offchip.yaml]", "missing-component"),
        ("cores: 3", "wrong-type"),
        ("cores: [one.yaml]\nstrange: 3", "no-counterpart"),
    ],
)
def test_faults_of_systems(text: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(pm.SpecError) as caught:
        pm.import_zigzag(system(tmp_path / "a", text))
    assert code in [d.code for d in caught.value.diagnostics]


def linked(folder: Path, text: str) -> Any:
    """Parts by name: the fanout over cores, its topology, bits per second and joules per bit and hop."""
    found = pm.import_zigzag(system(folder, text), clock=1e9)
    result = {}
    for c in found.spec.arch.components:
        for d in (d for d in c.spatial if d.name == "core"):
            told = (d.link.topology, d.link.throughput, d.link.energy_per_bit_hop) if d.link else None
            result[c.name] = (d.fanout, told, c.branch)
    return found, result


CHAIN = """\
cores: {0: offchip.yaml, 1: one.yaml, 2: one.yaml, 3: one.yaml}
offchip_core_id: 0
unit_energy_cost: 2
core_connectivity:
- {type: link, cores: [0, 1], bandwidth: 64}
- {type: link, cores: [1, 2], bandwidth: 64}
- {type: link, cores: [2, 3], bandwidth: 64}
"""


def test_links_of_a_system_are_those_of_its_fanouts(tmp_path: Path) -> None:
    mesh = ("mesh", 64e9, 2e-12 / 64)
    found, parts = linked(tmp_path / "chain", CHAIN)
    assert parts == {"one": (3, mesh, "")}
    assert not any(d.key == "core_connectivity" for d in found.left_out)
    star = CHAIN.replace("[1, 2]", "[0, 2]").replace("[2, 3]", "[0, 3]")
    assert linked(tmp_path / "star", star)[1] == {"one": (3, ("switch", 64e9, 2e-12 / 64), "")}
    bus = CHAIN.split("- {type", maxsplit=1)[0] + "- {type: bus, cores: [0, 1, 2, 3], bandwidth: 8}\n"
    assert linked(tmp_path / "bus", bus)[1] == {"one": (3, ("bus", 8e9, 2e-12 / 8), "")}
    cycle = CHAIN.replace("[0, 1]", "[0, 1, 2]")
    found, parts = linked(tmp_path / "odd", cycle)
    assert parts == {"one": (3, None, "")}
    assert ("core_connectivity", "energy and latency") in {(d.key, d.changes) for d in found.changed}


def test_cores_in_pairs_of_an_older_system(tmp_path: Path) -> None:
    """What is off chip stands in a key of its own, and a bus leads from it to all cores."""
    text = (
        "cores: {0: one.yaml, 1: one.yaml}\noffchip_core: offchip.yaml\ncore_connectivity: ['0, 1']\n"
        "bandwidth: 32\nunit_energy_cost: 3\n"
    )
    parts = linked(tmp_path / "pairs", text)[1]
    assert parts == {"one": (2, ("bus", float("inf"), 3e-12 / 8), "")}
    grid = (
        "cores: [one.yaml, one.yaml, cores/offchip.yaml]\ngraph: {type: 2d_mesh, nb_rows: 1, nb_cols: 2, "
        "bandwidth: 32, unit_energy_cost: 3, offchip_core_id: 2}\n"
    )
    assert linked(tmp_path / "grid", grid)[1] == parts


def test_a_mapping_whose_layers_have_a_key_of_their_own() -> None:
    """As Stream writes it: what allots layers to cores is left to the search."""
    layers = [{"name": "x", "core_allocation": [0], "kernel": {"name": "conv"}}]
    found = pm.import_zigzag([[LAYER], {"layers": layers, "fused_groups": [{"name": "g", "layers": ["x"]}]}])
    assert {d.key for d in found.left_out} == {"core_allocation", "kernel", "fused_groups"}
    assert not found.changed


TILES = """\
cores: {0: offchip.yaml, 1: tile.yaml, 2: one.yaml, 3: one.yaml, 4: tile.yaml, 5: one.yaml, 6: one.yaml}
offchip_core_id: 0
unit_energy_cost: 2
core_connectivity:
- {type: link, cores: [0, 1], bandwidth: 32}
- {type: link, cores: [0, 4], bandwidth: 32}
- {type: link, cores: [1, 2], bandwidth: 64}
- {type: link, cores: [2, 3], bandwidth: 64}
- {type: link, cores: [4, 5], bandwidth: 64}
- {type: link, cores: [5, 6], bandwidth: 64}
- {type: link, cores: [2, 5], bandwidth: 64}
"""


def tiled(folder: Path, text: str) -> Any:
    path = system(folder, text)
    none = {"unit_energy": 0, "dimensions": ["D1"], "sizes": [0]}
    held = {"l2": {**MEMORY, "served_dimensions": ["D1"]}}
    tile = {"name": "tile", "memories": held, "operational_array": none}
    (folder / "cores" / "tile.yaml").write_text(json.dumps(tile))
    return pm.import_zigzag(path, clock=1e9)


def test_memories_on_the_way_to_some_of_the_cores(tmp_path: Path) -> None:
    found = tiled(tmp_path / "a", TILES)
    arch = found.spec.arch
    assert [c.name for c in arch.components][:5] == ["offchip_dram", "tile", "tile_l2", "one", "one_sram"]
    links = [arch[n].spatial[0].link for n in ("tile", "one")]
    assert [(k.topology, k.throughput) for k in links if k] == [("switch", 32e9), ("mesh", 64e9)]
    assert (arch.instances("tile_l2"), arch.instances("one_sram")) == (2, 4)


def test_cores_that_share_a_memory(tmp_path: Path) -> None:
    """The outermost memory of the first core is that of all: once for each group."""
    text = (
        "cores: {0: one.yaml, 1: cores/two.yaml, 2: offchip.yaml}\noffchip_core_id: 2\n"
        "core_connectivity: [{type: link, cores: [0, 2], bandwidth: 16}]\ncore_memory_sharing: ['0, 1']\n"
    )
    found, parts = linked(tmp_path / "shared", text)
    assert parts == {
        "one_shared": (1, ("mesh", 16e9, 0), ""), "one": (1, None, "one"), "two": (1, None, ""),
    }  # fmt: skip
    memories = [c.name for c in found.spec.arch.components if c.kind == "memory"]
    assert memories == ["offchip_dram", "one_shared_sram"]
    lonely = text.replace("2: offchip.yaml", "2: offchip.yaml, 3: one.yaml")
    with faults("no-counterpart", at="core_memory_sharing"):
        linked(tmp_path / "lonely", lonely)


def test_ranks_of_one_element_are_left_out_where_readers_have_other_numbers() -> None:
    """A depthwise layer over what a layer of channels makes, and a sum that has no groups."""
    wide = {**LAYER, "id": 1, "equation": "O[b][g][k]+=W[g][k][c]*I[b][g][c]",
            "loop_dims": ["B", "G", "K", "C"], "loop_sizes": [4, 8, 1, 1], "operand_source": {"W": 1, "I": 0},
            "operand_source_dimension_mapping": {"I": {"G": "K"}}}  # fmt: skip
    both = {**LAYER, "id": 2, "equation": "O[b][k]=X[b][k]+Y[b][k]", "loop_dims": ["B", "K"],
            "loop_sizes": [4, 8], "operand_precision": {"X": 8, "Y": 8, "O": 8},
            "operand_source": {"X": 0, "Y": 1},
            "operand_source_dimension_mapping": {"Y": {"K": "G"}}}  # fmt: skip
    found = pm.import_zigzag([LAYER, wide, both])
    cascade = found.spec.workload
    assert [e.tensors for e in cascade] == [("O0", "W0", "I0"), ("O1", "W1", "O0"), ("O2", "O0", "O1")]
    assert [int(str(e.iteration_space.count_val())) for e in cascade] == [512, 32, 32]
    assert [n.message for n in found.notes if "one element" in n.message] == [
        "O of layer0: its ranks of one element are left out",
        "O of layer1: its ranks of one element are left out",
    ]
    with faults("no-counterpart", at="layers[1].operand_source"):
        pm.import_zigzag([LAYER, {**wide, "loop_sizes": [4, 8, 1, 2]}])


def test_an_operand_without_ranks_and_keys_of_other_versions() -> None:
    layer = {**LAYER, "equation": "O[b][k]+=I[b][k]*W[]", "loop_dims": ["B", "K"], "loop_sizes": [4, 8],
             "operand_precision": {"I": 8, "W": 0, "O": 8}}  # fmt: skip
    memory = {**MEMORY, "double_buffering_support": True, "min_r_granularity": 8, "mem_type": "sram"}
    found = pm.import_zigzag([layer], {"memories": {"m": memory}, "operational_array": ARRAY}, clock=1e9)
    assert [e.tensors for e in found.spec.workload] == [("O", "I")]
    assert {(d.key, d.changes) for d in found.changed} == {
        ("double_buffering_support", "latency"),
        ("min_r_granularity", "energy"),
    }
    with faults("wrong-count", "pr_loop_dims", at="layers[0]"):
        pm.import_zigzag([{**LAYER, "padding": [[1, 1]]}])
