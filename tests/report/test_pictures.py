"""Pictures of LoopTrees, architectures and cascades: readable for everything that is shipped."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import polymodel as pm
from polymodel.report.svg import architecture_svg, looptree_svg
from polymodel.report.svg_cascade import KINDS, PlacedBox, cascade_svg, layered
from polymodel.view.drawing import NAME, PALETTE, short, width_of
from tests.faults import faults
from tests.report.pictures import SVG, taken_apart
from tests.report.pictures import faults as drawn_faults

ROOT = Path(__file__).resolve().parents[2]
VARIABLES = {"gpt3_6.7B": {"N_TOKENS": 2048}}
WORKLOADS = sorted(p.stem for p in (ROOT / "workloads").glob("*.yaml"))
ARCHITECTURES = sorted(p.stem for p in (ROOT / "arch").glob("*.yaml"))
MAPPINGS = sorted(
    (p.parts[-3], p.parts[-2], p.stem)
    for p in (ROOT / "workloads").glob("*/*/*.yaml")
    if p.parts[-3] in WORKLOADS
)
LONG = "a_name_of_a_tensor_that_is_far_longer_than_any_box_in_a_picture_should_be"


def loaded(workload: str, *more: str) -> pm.Spec:
    return pm.load(workload, *more, variables=VARIABLES.get(workload, {}))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.thin(5)
def test_cascades(workload: str) -> None:
    cascade = loaded(workload).workload
    svg = cascade_svg(cascade)
    assert drawn_faults(svg) == []
    seen = taken_apart(svg)
    assert len(seen.nodes) == len(cascade) + len(cascade.tensors)
    # Accesses of one tensor by one Einsum share a line, which tells each of them.
    assert len(seen.edges) >= len({(e.name, a.tensor) for e in cascade for a in e.accesses})
    told = html.unescape(svg)
    for name, access in ((e.name, a) for e in cascade for a in e.accesses):
        ends = (name, access.tensor) if access.output else (access.tensor, name)
        index = ", ".join(f"{r}={x}" for r, x in zip(access.ranks, access.projection, strict=True))
        assert f"{' → '.join(ends)}: {access.tensor}[{index}]" in told
    for tensor in cascade.tensors:
        assert any(n.told.startswith(f"tensor {tensor} (") for n in seen.nodes)


@pytest.mark.parametrize(("workload", "arch", "mapping"), MAPPINGS)
@pytest.mark.thin(7)
def test_looptrees(workload: str, arch: str, mapping: str) -> None:
    spec = loaded(workload, arch, f"{workload}/{mapping}")
    assert spec.mapping is not None
    svg = looptree_svg(spec.mapping, spec.workload)
    assert drawn_faults(svg) == []
    assert spec.mapping._repr_svg_() == svg


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_architectures(arch: str) -> None:
    hierarchy = pm.load(arch).arch
    svg = architecture_svg(hierarchy)
    assert drawn_faults(svg) == []
    kinds = [c.name for c in hierarchy.components if c.kind != "container"]
    assert [n.told.split(" (")[0] for n in taken_apart(svg).nodes] == kinds
    assert hierarchy._repr_svg_() == svg


@pytest.mark.slow
def test_the_cascade_of_the_gpt3_layer(golden: Callable[[str, str], None]) -> None:
    cascade = loaded("gpt3_6.7B").workload
    golden("gpt3_cascade.svg", cascade_svg(cascade))
    assert cascade._repr_svg_() == cascade_svg(cascade)
    told = [n.told for n in taken_apart(cascade_svg(cascade)).nodes]
    assert "tensor I (intermediate)\nB 1 × M 2048 × D 4096: 8,388,608 elements of 8 bits\nmade by I\n" in (
        "".join(f"{t}\n" for t in told).replace("read by V, K, Q\n", "")
    )
    words = " ".join(ElementTree.fromstring(cascade_svg(cascade)).itertext())
    assert words.count("input, persistent") == 2 * 6  # in the box, and told
    assert "AV → Z: AV[B=b, M=m, H=h, F=f]" in words


def test_a_residual_goes_around_what_it_skips() -> None:
    cascade = loaded("resnet_basic_block").workload
    svg = cascade_svg(cascade)
    assert drawn_faults(svg) == []
    (add,) = [e for e in cascade if e.name == "Add"]
    assert "I → Add" in svg
    assert any(a.tensor == "I" for a in add.accesses)


def chain_of(count: int, name: str) -> dict[str, object]:
    lines = [f"{name}{i + 1}[m, n{i + 1}] = {name}{i}[m, n{i}] * W{i}[n{i}, n{i + 1}]" for i in range(count)]
    sizes: dict[str, int] = {"M": 64, **{f"N{i}": 32 for i in range(count + 1)}}
    return {"workload": {"bits_per_value": {"All": 8}, "rank_sizes": sizes, "einsums": lines}}


def test_long_names_are_shortened_and_told_whole() -> None:
    spec = pm.load(chain_of(3, LONG))
    svg = spec.workload._repr_svg_()
    assert drawn_faults(svg) == []
    seen = taken_apart(svg)
    assert all(LONG not in text for n in seen.nodes for text, _ in n.texts)
    assert sum(LONG + "1" in n.told for n in seen.nodes) >= 3
    assert seen.page.right < 1000
    assert len(short(LONG)) == NAME
    assert short("T1") == "T1"


def test_long_names_in_trees_and_machines() -> None:
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": [f"{LONG}0", "W0", f"{LONG}1"]},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": 8},
        {"type": "Storage", "component": "GLB", "tensors": [f"{LONG}0", "W0", f"{LONG}1"]},
        {"type": "Compute", "einsum": f"{LONG}1", "component": "MAC"},
    ]
    spec = pm.load(chain_of(1, LONG), "simple_two_level", {"mapping": {"nodes": nodes}})
    assert spec.mapping is not None
    svg = looptree_svg(spec.mapping, spec.workload)
    assert drawn_faults(svg) == []
    seen = taken_apart(svg)
    assert seen.page.right < 500
    assert sum(f"{LONG}0" in n.told for n in seen.nodes) == 2
    arch = {
        "arch": {
            "nodes": [
                {"type": "Memory", "name": LONG, "size": "inf", "tensors": {"keep": "All"}},
                {"type": "Container", "name": f"C_{LONG}", "spatial": [{"name": f"D_{LONG}", "fanout": 16}]},
                {"type": "Compute", "name": "MAC"},
            ]
        }
    }
    svg = architecture_svg(pm.load(arch).arch)
    assert drawn_faults(svg) == []
    assert LONG in taken_apart(svg).nodes[0].told


@pytest.mark.slow
def test_many_einsums_take_one_page_wide() -> None:
    svg = pm.load(chain_of(40, "T")).workload._repr_svg_()
    assert drawn_faults(svg) == []
    assert taken_apart(svg).page.right < 700


def test_every_part_of_a_spec_can_be_drawn_and_saved(tmp_path: Path) -> None:
    spec = loaded("attention", "simple_two_level")
    drawing = pm.draw_cascade(spec)
    assert drawing.svg == pm.draw_cascade(spec.workload).svg == spec.workload._repr_svg_()
    assert drawing.save(tmp_path / "cascade.svg").read_text(encoding="utf-8") == drawing.svg
    with faults("wrong-type", "draw_cascade", at=""):
        pm.draw_cascade(Path("attention"))  # type: ignore[arg-type]  # a wrong type is the point


def test_the_checks_find_what_is_wrong() -> None:
    cascade = loaded("attention").workload
    svg = cascade_svg(cascade)
    wide = svg.replace(">QK<", ">" + 40 * "Q" + "<")
    assert any("leaves its box" in f for f in drawn_faults(wide))
    high = re.sub(r'viewBox="0 0 (\d+) \d+"', r'viewBox="0 0 \1 200"', svg)
    assert any("outside the picture" in f for f in drawn_faults(high))
    moved = re.sub(r" V ([\d.]+)\"", lambda m: f' V {float(m[1]) + 60:g}"', svg)
    assert any("an edge runs through" in f for f in drawn_faults(moved))
    last = re.findall(r'<g class="node">.*?</g>', svg, re.DOTALL)[-1]
    found = drawn_faults(svg.replace(last, last + last))
    assert any("boxes overlap" in f for f in found)
    assert any("texts overlap" in f for f in found)


def test_layers_keep_order_and_room() -> None:
    items = [PlacedBox(60, 20)] * 6
    edges = [(0, 1), (1, 2), (2, 3), (0, 3), (4, 3), (0, 5)]
    plan = layered(items, edges)
    tops = [y for _, y in plan.places]
    assert all(tops[a] + 20 <= tops[b] for a, b in edges)
    assert tops[4] == tops[2], "a source stands right above what needs it"
    assert {e for leg in plan.legs for e in leg.edges} == set(range(len(edges)))
    assert sum(leg.arrives for leg in plan.legs) == len(edges)
    assert plan == layered(items, edges)
    assert layered([], []).legs == ()


def test_widths_are_at_least_those_of_the_font() -> None:
    from matplotlib.textpath import TextPath

    for text in ("GLB", "QK_softmax[b, m, p, h]", "tile 1048576", "WWWWWW", "illicit", "B 1 × M 2048", "±²…"):
        assert width_of(text) >= TextPath((0, 0), text, size=11).get_extents().width - 1


def _light(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_light(a), _light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_text_and_edges_have_contrast_on_every_fill() -> None:
    """4.5 for text and 3 for edges: what WCAG 2 asks."""
    for fill, edge in (*PALETTE, *KINDS.values(), ("#fffbe6", "#8a6d00"), ("#f5f7fa", "#7b8794")):
        assert _contrast("#1f2933", fill) > 4.5
        assert _contrast(edge, fill) > 3
    assert _contrast("#616e7c", "#ffffff") > 4.5


def test_pictures_bring_no_names_of_their_own_into_a_page() -> None:
    svg = loaded("attention").workload._repr_svg_()
    assert not re.search(r'\bid="|\burl\(|<script|href=', svg)
    assert SVG.strip("{}") in svg
