"""Energy models that other packages bring: a package of our own making, installed into a folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.cli import main
from polymodel.errors import Diagnostic, SpecError

MODULE = '''\
from polymodel.spec.energy import EnergyAnswer
from polymodel.spec.faults import TextFault

def sram(request):
    """0.1 fJ per bit and square root of the capacity, in a technology that scales linearly."""
    options = request.options
    if "size" not in options:
        raise TextFault("size is missing", 0, "add options: {size: 65536}")
    each = 1e-16 * options["size"] ** 0.5 * options.get("nanometres", 45) / 45
    return EnergyAnswer({"read": each, "write": 1.25 * each, "area": 3}, {"read": "fitted"})

def broken(request):
    return {}[request.component]

class Own(Exception):
    pass

def silent(request):
    raise Own

def answer(request):
    return request.options["answer"] and EnergyAnswer(request.options["answer"], {})

def vague(request):
    return EnergyAnswer({"read": float("nan")}, {})

def pair(request):
    return EnergyAnswer([("read", 1.0)], {})

number = 3
'''
ENTRIES = "sram broken silent answer vague pair number missing"
SPEC = """\
arch:
  nodes:
  - !Memory
    name: DRAM
    actions: [{name: read, energy: 7e-12}]
  - !Memory
    name: GLB
    energy_model: MODEL
    actions:
    - {name: read, throughput: 1e9}
    - {name: write, energy: 5e-13}
  - !Compute
    name: MAC
workload:
  rank_sizes: {M: 4, N: 3, K: 2}
  bits_per_value: {All: 8}
  einsums: ['Z[m, n] = A[m, k] * B[k, n]']
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Compute {einsum: Z, component: MAC}
"""


def install(folder: Path, package: str, module: str, entries: str) -> None:
    """What pip leaves of a package: its module and its dist-info."""
    name = package.replace("-", "_")
    (folder / f"{name}.py").write_text(module)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = "".join(f"{e} = {name}:{e}\n" for e in entries.split())
    (info / "entry_points.txt").write_text(f"[polymodel.energy_models]\n{lines}")


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "acme-energy", MODULE, ENTRIES)
    monkeypatch.syspath_prepend(str(site))
    return site


def spec(tmp_path: Path, model: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("MODEL", model))
    return path


def fault(path: Path) -> Diagnostic:
    with pytest.raises(SpecError) as caught:
        pm.load(path)
    return caught.value.diagnostics[0]


def test_an_installed_model_gives_energies_with_its_name_and_version(tmp_path: Path) -> None:
    report = pm.evaluate(pm.load(spec(tmp_path, "{name: sram, options: {size: 10000, nanometres: 90}}")))
    rows = {(r["component"], r["action"]): r for r in report.table("energy").records() if r["tensor"] == "A"}
    read, write = rows["GLB", "read"], rows["GLB", "write"]
    assert read["energy_per_unit_J"] == pytest.approx(2e-14)
    assert read["energy_J"] == pytest.approx(2e-14 * 8 * 24)
    assert read["provenance"] == "sram (acme-energy 1.2): fitted"
    assert (write["energy_per_unit_J"], write["provenance"]) == (5e-13, "given")  # the spec's own comes first
    (area,) = [r for r in report.table("area").records() if r["component"] == "GLB"]
    assert (area["area_m2"], area["provenance"]) == (3, "sram (acme-energy 1.2)")


@pytest.mark.parametrize(
    ("model", "message", "remedy"),
    [
        ("{name: srams}", "unknown energy model srams", "did you mean sram?"),
        (
            "{name: x9}",
            "unknown energy model x9",
            "energy models: constants, table, published, compound, hwcomponents, answer, broken, ",
        ),
        (
            "{name: sram}",
            "energy model sram (acme-energy 1.2): size is missing",
            "add options: {size: 65536}",
        ),
        (
            "{name: sram, options: {size: x}}",
            "sram (acme-energy 1.2) failed: TypeError: unsupported",
            "options",
        ),
        ("{name: broken}", "energy model broken (acme-energy 1.2) failed: KeyError: 'GLB'", "check"),
        ("{name: silent}", "energy model silent (acme-energy 1.2) failed: Own", "check"),
        (
            "{name: number}",
            "number (acme-energy 1.2) failed: TypeError: 'int' object is not callable",
            "check",
        ),
        ("{name: missing}", "missing (acme-energy 1.2) failed: AttributeError", "check"),
        ("{name: pair}", "energy model pair answers with EnergyAnswer", "an EnergyAnswer of two mappings"),
        (
            "{name: answer, options: {answer: {}}}",
            "answer answers with dict",
            "an EnergyAnswer of two mappings",
        ),
        ("{name: answer, options: {answer: {read: -1}}}", "gives -1.0 for read", "finite joules, at least 0"),
        ("{name: vague}", "energy model vague gives nan for read", "finite joules, at least 0"),
        ("{name: answer, options: {answer: {area: .inf}}}", "gives inf for area", "finite square metres"),
        ("{name: answer, options: {answer: {read: 2 pJ}}}", "gives '2 pJ' for read", "a number of joules"),
        ("{name: answer, options: {answer: {leak_power: true}}}", "gives True for leak_power", "of watts"),
        (
            "{name: answer, options: {answer: {raed: 1}}}",
            "gives an unknown quantity raed",
            "did you mean read?",
        ),
    ],
)
def test_what_an_installed_model_does_wrong_is_told_at_its_name(
    tmp_path: Path, model: str, message: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spec(tmp_path, model)
    found = fault(path)
    assert message in found.message
    assert remedy in found.remedy
    assert (found.place.line, found.path) == (8, "arch.nodes[1].energy_model.name")
    assert main(["evaluate", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    assert f"{path}:8:" in err


def test_a_model_that_leaves_an_energy_out(tmp_path: Path) -> None:
    found = fault(spec(tmp_path, "{name: answer, options: {answer: {write: 1.0e-12}}}"))
    assert found.message == "energy model answer gives no energy for read of GLB"
    assert (found.place.line, found.path) == (10, "arch.nodes[1].actions[0]")


def test_one_name_from_two_packages(tmp_path: Path, installed: Path) -> None:
    install(installed, "other-energy", MODULE, "sram")
    found = fault(spec(tmp_path, "{name: sram, options: {size: 4}}"))
    assert found.message == "several packages install an energy model sram: acme-energy, other-energy"


def test_a_source_stands_in_where_a_model_names_none(tmp_path: Path) -> None:
    path = spec(tmp_path, "{name: answer, source: a thesis, options: {answer: {read: 1.0e-12}}}")
    glb = pm.load(path).arch["GLB"]
    assert glb.action("read").provenance == "answer (acme-energy 1.2): a thesis"


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "energy_models.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(from polymodel.spec.*?)```", text, re.DOTALL)
    site = tmp_path / "docs"
    site.mkdir()
    install(site, "docs-energy", example.replace("def sram", "def latch"), "latch")
    monkeypatch.syspath_prepend(str(site))
    read = pm.load(spec(tmp_path, "{name: latch, options: {size: 10000}}")).arch["GLB"].action("read")
    assert read.energy == pytest.approx(1e-14)
    assert read.provenance == "latch (docs-energy 1.2): fitted to measurements"


# The interface of hwcomponents that is used, over one component: a latch of `width` bits.
HWCOMPONENTS = """\
class Latch:
    leak_power = 1e-9
    def __init__(self, width, cell="plain"):
        assert width > 1 and cell == "plain", "too narrow. Must be wider."
        self.width, self.area = width, 0.5e-12 * width
    def get_action_names(self):
        return ["read", "write", "refresh"]

class Unsupported(Exception):
    pass

class Cost:
    def __init__(self, energy):
        self.energy = energy

def get_model(name, attributes, required_actions=()):
    try:
        return {"latch": Latch}[name](**attributes)
    except KeyError:
        raise Unsupported(f"Component {name} is not supported. Supported: " + 100 * "latch, ")
    except (TypeError, AssertionError) as error:
        raise RuntimeError(f"no model for {name}\\n| {type(error).__name__}: {error}\\n| more")

def get_action_cost(name, attributes, action, arguments):
    width = get_model(name, attributes).width
    return Cost({"read": 1e-15, "write": 2e-15}[action] * arguments.get("bits_per_action", width))
"""


def test_hwcomponents_is_asked_for_actions_of_the_right_width(tmp_path: Path, installed: Path) -> None:
    if "hwcomponents" in sys.modules:
        pytest.skip("the real one is loaded")
    install(installed, "hwcomponents", HWCOMPONENTS, "")
    path = spec(tmp_path, "{name: hwcomponents, component: latch, options: {width: 2 * W, cell: plain}}")
    text = path.read_text().replace("throughput: 1e9", "bits_per_action: 64")
    path.write_text(f"symbols: {{W: 4}}\n{text}")
    try:
        glb = pm.load(path).arch["GLB"]
        origin = "hwcomponents 1.2: Latch of hwcomponents"
        read = glb.action("read")
        assert (read.energy, read.provenance) == (pytest.approx(64e-15), origin)
        assert (glb.action("write").energy, glb.action("write").provenance) == (5e-13, "given")
        assert (glb.area, glb.leak_power, glb.area_provenance) == (4e-12, 1e-9, origin)
        assert pm.load(path, symbols={"W": 8}).arch["GLB"].area == 8e-12
        found = fault(spec(tmp_path, "{name: hwcomponents, component: latch, options: {width: 1}}"))
        assert found.message == (
            "energy model hwcomponents: hwcomponents has no latch with these attributes: "
            "AssertionError: too narrow. Must be wider"
        )
        assert found.place.line == 8
        found = fault(spec(tmp_path, "{name: hwcomponents}"))
        assert "failed: Unsupported: Component GLB is not supported. Supported: latch, " in found.message
        assert len(found.message) < 300
    finally:
        sys.modules.pop("hwcomponents", None)


def test_hwcomponents_missing_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hwcomponents", None)
    found = fault(spec(tmp_path, "{name: hwcomponents, component: latch}"))
    assert found.message == "energy model hwcomponents: hwcomponents is not installed"
    assert "polymodel[hwcomponents]" in found.remedy


def test_real_hwcomponents(tmp_path: Path) -> None:
    pytest.importorskip("hwcomponents_library")
    options = "{tech_node: 7 * 1e-9, width: 8}"
    glb = pm.load(spec(tmp_path, f"{{name: hwcomponents, component: register, options: {options}}}")).arch[
        "GLB"
    ]
    read = glb.action("read")
    assert 1e-16 < read.energy < 1e-14  # joules per bit
    assert "AladdinRegister of hwcomponents_library" in read.provenance
    assert 1e-13 < glb.area < 1e-9


def test_a_wire_has_the_energy_of_its_length() -> None:
    """310 pJ move 256 bits over 10 mm at 0.9 V."""
    model = {"name": "published", "component": "wire", "options": {"length": "1e-3 * MM", "voltage": 0.45}}
    nodes = [{"type": "Memory", "name": "M"}, {"type": "Toll", "name": "NoC", "energy_model": model},
             {"type": "Compute", "name": "U"}]  # fmt: skip
    spec = pm.load({"symbols": {"MM": 10}, "arch": {"nodes": nodes}})
    for mm in (10, 5):
        read = spec.bind(MM=mm).arch["NoC"].action("read")
        assert read.energy == pytest.approx(310e-12 / 256 * mm / 10 / 4, rel=1e-12, abs=0)
        assert read.provenance.endswith(f"wire of {mm} mm; at 0.45 V by its square: times 0.25")


def published(component: str, size: object = "inf", **options: object) -> pm.Spec:
    """A machine of one memory and one unit, both with published energies."""
    memory = component in ("sram", "dram", "wire", "register_file")
    model = {"name": "published", "component": component, "options": options}
    plain = {"name": "constants", "values": {}}
    return pm.load(
        {
            "symbols": {"KIB": 32},
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "M", "size": size, "energy_model": model if memory else plain},
                    {"type": "Compute", "name": "U", "energy_model": plain if memory else model},
                ]
            },
        }
    )


def test_published_points_and_the_lines_between_them() -> None:
    for kib, joules in ((8, 10e-12), (32, 20e-12), (1024, 100e-12)):
        read = published("sram", size="8192 * KIB").bind(KIB=kib).arch["M"].action("read")
        assert read.energy == pytest.approx(joules / 64, rel=1e-12, abs=0)
        assert "Horowitz" in read.provenance
        assert "polated" not in read.provenance
    middle = published("sram", size=16 * 8192).arch["M"].action("write")
    assert middle.energy == pytest.approx((10e-12 * 20e-12) ** 0.5 / 64, rel=1e-12, abs=0)
    assert middle.provenance.endswith("SRAM of 16 KiB, interpolated on logarithmic axes")
    small = published("sram", size=2 * 8192).arch["M"].action("read")
    assert small.energy == pytest.approx(5e-12 / 64, rel=1e-12, abs=0)  # a square root, as from 8 to 32 KiB
    assert "extrapolated" in small.provenance
    assert published("dram").arch["M"].action("read").energy == pytest.approx(1.3e-9 / 64, rel=1e-12, abs=0)
    mac = published("int_mac", bits=8).arch["U"]
    assert mac.action("compute").energy == pytest.approx(0.3e-12, rel=1e-12, abs=0)
    dram = published("dram").arch["M"]
    assert (dram.area, dram.area_provenance) == (0, "default")  # the source has none
    for name, joules in (("float_mac", 2e-12), ("int_multiply", (0.2e-12 * 3.1e-12) ** 0.5)):
        energy = published(name, bits=16).arch["U"].action("compute").energy
        assert energy == pytest.approx(joules, rel=1e-12, abs=0)


def test_published_areas() -> None:
    """Of arithmetic at 45 nm, of SRAM the cells of the node, or a macro of which they take so much."""
    mac = published("int_mac", bits=8).arch["U"]
    assert mac.area == pytest.approx((282 + 137) * 1e-12, rel=1e-12, abs=0)
    assert "int multiply of 8 bits and int add of 32 bits" in mac.area_provenance
    middle = published("int_multiply", bits=16).arch["U"]
    assert middle.area == pytest.approx((282 * 3495) ** 0.5 * 1e-12, rel=1e-12, abs=0)
    assert published("int_mac", node=16e-9, voltage=0.8).arch["U"].area == 0  # no published factor of areas
    bits = 64 * 8192
    for options, cell in (
        ({}, 0.346e-12),
        ({"node": 7e-9, "voltage": 0.7}, 0.027e-12),
        ({"array_efficiency": 0.5}, 0.692e-12),
    ):
        memory = published("sram", size=bits, **options).arch["M"]
        assert memory.area == pytest.approx(bits * cell, rel=1e-12, abs=0)
        assert "IEDM" in memory.area_provenance
    assert published("sram", size=bits, node=130e-9, voltage=1.2).arch["M"].area == 0


def test_width_and_ports_of_published_memories() -> None:
    """A wide access is made by macros side by side, a narrow one pays for 64 bits; each port adds wires along
    both sides of a cell."""
    size = 64 * 8192

    def read(component: str = "sram", **options: object) -> float:
        return published(component, size=size, **options).arch["M"].action("read").energy

    assert read(width=64) == read()
    assert read(width=512) == pytest.approx(10e-12 / 64, rel=1e-12, abs=0)  # eight of 8 KiB
    assert read(width=16) == pytest.approx(4 * read(), rel=1e-12, abs=0)
    assert read(ports=2, width=512) == pytest.approx(2 * 10e-12 / 64, rel=1e-12, abs=0)
    assert read("register_file", ports=3) == pytest.approx(3 * read("register_file"), rel=1e-12, abs=0)
    assert read(width="8 * 64", ports="1 + 1", array_efficiency="1 / 2") == read(width=512, ports=2)
    wide = published("sram", size=size, width=512, ports=2).arch["M"]
    assert wide.area == pytest.approx(4 * size * 0.346e-12, rel=1e-12, abs=0)
    assert "8 macros of 8 KiB side by side" in wide.action("read").provenance
    assert "2 ports" in wide.area_provenance


def test_a_published_register_file_costs_as_much_as_a_multiply_accumulate() -> None:
    read = published("register_file").arch["M"].action("read")
    assert read.energy * 16 == pytest.approx(((0.2 * 3.1) ** 0.5 + 0.1) * 1e-12, rel=1e-12, abs=0)
    assert "Chen" in read.provenance
    assert "Horowitz" in read.provenance


@pytest.mark.parametrize(
    ("component", "size", "options", "told"),
    [
        ("srm", 8, {}, "there are no published points of srm"),
        ("sram", "inf", {}, "the size of the SRAM is not given"),
        ("sram", 8, {"bits": 8}, "sram has no option bits"),
        ("sram", 8, {"array_efficiency": 1.5}, "array_efficiency=1.5 is above 1"),
        ("sram", 8, {"ports": 1.5}, "ports=1.5 is not a whole number"),
        ("sram", 8, {"ports": 0}, "zero ports"),
        ("sram", 8, {"width": 0}, "zero width"),
        ("dram", 8, {"ports": 2}, "dram has no option ports"),
        ("wire", 8, {}, "the length of the wire is not given"),
        ("wire", 8, {"length": 1, "node": 45e-9}, "wire has no option node"),
        ("int_add", 8, {"bits": 0}, "zero bits"),
        ("int_mac", 8, {"bits": "eight"}, "eight"),
        ("int_mac", 8, {"node": 16e-9}, "the node has no voltage"),
        ("int_mac", 8, {"node": 28e-9, "voltage": 0.9}, "no published factors of 28 nm"),
        ("int_mac", 8, {"node": 65e-9, "voltage": 0.5}, "factors of 65 nm do not hold at 0.5 V"),
        ("dram", "inf", {"node": 16e-9, "voltage": 0.8}, "dram has no option node"),
    ],
)
def test_what_has_no_published_points_is_told(
    component: str, size: object, options: dict[str, object], told: str
) -> None:
    with pytest.raises(SpecError) as raised:
        _ = published(component, size, **options).arch
    assert told in str(raised.value)


def test_published_points_in_another_technology() -> None:
    """By hand: (a V^2 + b V + c of the node) over (the same of 45 nm at 0.9 V)."""
    source = 1.103 * 0.81 - 0.362 * 0.9 + 0.2767
    for node, volts, relative in (
        (16e-9, 0.8, 0.2958 * 0.64 - 0.1241 * 0.8 + 0.03024),
        (7e-9, 0.7, 0.1776 * 0.49 - 0.09097 * 0.7 + 0.02447),
        (45e-9, 0.9, source),
    ):
        plain = published("int_mac").arch["U"].action("compute")
        scaled = published("int_mac", node=node, voltage=volts).arch["U"].action("compute")
        assert scaled.energy == pytest.approx(plain.energy * relative / source, rel=1e-12, abs=0)
        assert f"to {node * 1e9:g} nm at {volts} V by A. Stillmaker and B. Baas" in scaled.provenance
    lower = published("sram", size=8192, voltage=0.6).arch["M"].action("read").energy
    assert lower < published("sram", size=8192).arch["M"].action("read").energy


PARTS: dict[str, Any] = {
    "multiply": {"name": "published", "component": "int_multiply", "options": {"bits": "B"}},
    "add": {"name": "constants", "values": {"compute": 0.1e-12, "area": 1e-10, "leak_power": "2e-6 * N"}},
    "sums": {"name": "published", "component": "sram", "options": {"size": "8192 * B"}, "count": 2},
}
ACTIONS: dict[str, Any] = {
    "compute": {"multiply": {"compute": 1}, "add": {"compute": "N"}, "sums": {"read": 32, "write": "2 * 16"}}
}


ADDED = {"compute": {"add": {"compute": 1}}}


def compound(parts: dict[str, Any], actions: dict[str, Any]) -> pm.Spec:
    model = {"name": "compound", "options": {"parts": parts, "actions": actions}}
    nodes = [{"type": "Memory", "name": "M"}, {"type": "Compute", "name": "U", "energy_model": model}]
    return pm.load({"symbols": {"B": 8, "N": 3}, "arch": {"nodes": nodes}})


def test_compound_components_add_up_what_their_parts_do() -> None:
    unit = compound(PARTS, ACTIONS).arch["U"]
    joules = 0.2e-12 + 3 * 0.1e-12 + 64 * 10e-12 / 64
    assert unit.action("compute").energy == pytest.approx(joules, rel=1e-12, abs=0)
    assert "multiply: M. Horowitz" in unit.action("compute").provenance
    assert "add: constants" in unit.action("compute").provenance
    area = 282e-12 + 1e-10 + 2 * 8 * 8192 * 0.346e-12
    assert unit.area == pytest.approx(area, rel=1e-12, abs=0)
    assert unit.leak_power == 0  # not every part has one
    several = {n: PARTS["add"] | {"count": k} for n, k in (("first", 1), ("others", "N"))}
    whole = compound(several, {"compute": {"first": {"compute": 1}}}).arch["U"]
    assert whole.area == pytest.approx(4e-10, rel=1e-12, abs=0)
    assert whole.leak_power == pytest.approx(4 * 6e-6, rel=1e-12, abs=0)
    assert whole.area_provenance == "compound of first: constants; others: constants"


@pytest.mark.parametrize(
    ("parts", "actions", "told"),
    [
        (PARTS, {"compute": {"div": {"compute": 1}}}, "there is no part div"),
        (PARTS, {"read": {"add": {"compute": 1}}}, "U has no action read"),
        (PARTS, {"compute": {"add": {"read": 1}}}, "part add has no energy for read"),
        (PARTS, {"compute": {"add": 1}}, "add of a compound component is not a table"),
        (PARTS, {}, "actions of a compound component is not a table"),
        ({"add": {"values": {"compute": 1e-12}}}, ADDED, "has no energy model"),
        ({"add": {"name": "constants", "area": 1}}, ADDED, "unknown key area"),
        ({"add": {"name": "publishd"}}, ADDED, "unknown energy model publishd"),
        (PARTS, {"compute": {"add": {"compute": "many"}}}, "many"),
    ],
)
def test_what_is_wrong_with_a_part_is_told(parts: dict[str, Any], actions: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as raised:
        _ = compound(parts, actions).arch
    assert told in str(raised.value)
