"""What people see: text, SVG, HTML, explanations, plots."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import islpy as isl
import pytest

import polymodel as pm
from polymodel.api.comparison import compare
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode, looptree_text
from polymodel.quantities import engineering
from polymodel.report.report import Report
from polymodel.report.show import show_text
from polymodel.report.svg import architecture_svg, looptree_svg
from polymodel.reuse import Reuse
from tests.faults import faults

Golden = Callable[[str, str], None]
SVG = "{http://www.w3.org/2000/svg}"


def wide_tree() -> LoopTree:
    branches: list[tuple[Node, ...]] = []
    for i in range(10):
        branches.append(
            (
                StorageNode("GLB", (f"T{i}", "a<b>&'c\""), "slide"),
                Loop("m", 4, initial_tile_shape=2),
                Loop("n", 1, spatial=True, component="PE", dim="X"),
                ComputeNode(f"E{i}", "MAC"),
            )
        )
    return LoopTree(
        (StorageNode("DRAM", tuple(f"T{i}" for i in range(11))), Loop("b", 1), Split(tuple(branches)))
    )


def test_terminal_report(fused: Report, golden: Golden) -> None:
    golden("fused.txt", str(fused))


def test_shown_spec(fused: Report, golden: Golden) -> None:
    p = fused.problem
    golden("show.txt", show_text(p.cascade, p.hierarchy, p.tree))


def test_looptree_pictures(fused: Report, golden: Golden) -> None:
    golden("fused.svg", looptree_svg(fused.problem.tree))
    golden("wide.svg", looptree_svg(wide_tree()))
    golden("wide.txt", looptree_text(wide_tree()))


def test_architecture_picture(spread: Report, golden: Golden) -> None:
    golden("architecture.svg", architecture_svg(spread.problem.hierarchy))


def test_svg_is_well_formed_and_has_every_node_and_word() -> None:
    root = ElementTree.fromstring(looptree_svg(wide_tree()))
    words = [t.text for t in root.iter(f"{SVG}text")]
    assert sum(str(w).endswith("a<b>&'c\"") for w in words) == 10
    assert len(list(root.iter(f"{SVG}ellipse"))) == 10
    assert len(list(root.iter(f"{SVG}path"))) == 2 * 11
    # one background, one loop above the split, two loops in each branch
    assert len(list(root.iter(f"{SVG}rect"))) == 1 + 1 + 2 * 10


def test_svg_shapes_do_not_overlap() -> None:
    root = ElementTree.fromstring(looptree_svg(wide_tree()))
    boxes = []
    for r in list(root.iter(f"{SVG}rect"))[1:]:
        x, y, w, h = (float(r.attrib[k]) for k in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
    for e in root.iter(f"{SVG}ellipse"):
        x, y, rx, ry = (float(e.attrib[k]) for k in ("cx", "cy", "rx", "ry"))
        boxes.append((x - rx, y - ry, x + rx, y + ry))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for i, a in enumerate(boxes):
        assert 0 <= a[0] < a[2] <= width
        assert 0 <= a[1] < a[3] <= height
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_html_is_self_contained(fused: Report) -> None:
    text = fused.to_html(plots=False)
    assert text.startswith("<!DOCTYPE html>")
    assert not re.search(r"src=|href=(?!\"#)|@import|url\(", text)
    assert text.count("<svg") == 3
    assert "energy" in fused._repr_html_()


def test_explanation_relation_gives_the_tile_size(fused: Report, spread: Report) -> None:
    for report, einsum, component, tensor in (
        (fused, "E0", "GLB", "T0"),
        (fused, "E1", "GLB", "T1"),
        (spread, "E0", "RF", "C"),
        (spread, "E0", "GLB", "B"),
    ):
        found = report.explain(einsum, component, tensor)
        tile = next(
            b for b in report.analysis.buffets
            if (b.component, b.tensor) == (component, tensor) and einsum in b.einsums
        )  # fmt: skip
        union = isl.Map(found.relations[0])
        for text in found.relations[1:]:
            union = union.union(isl.Map(text))
        assert union.wrap().count_val().to_python() == tile.tile_total
        assert union.range().count_val().to_python() == tile.distinct
        assert f"largest {tile.tile_max} elements" in str(found)


def test_explanation_shows_how_bits_compose(fused: Report, golden: Golden) -> None:
    golden("explain.txt", str(fused.explain("E1", "GLB", "T1")))
    assert r"\begin{aligned}" in fused.explain("E1", "GLB", "T1")._repr_latex_()


def test_explanation_of_a_tensor_elsewhere_says_where(fused: Report) -> None:
    with faults("nothing-to-show", "E0", "T1", "GLB", "DRAM", at=""):
        fused.explain("E0", "DRAM", "T1")
    for names in (("E9", "GLB", "T1"), ("E0", "GLBB", "T1"), ("E0", "GLB", "T9")):
        with faults("unknown-name", at=""):
            fused.explain(*names)


def test_plots_label_their_axes_with_units(fused: Report) -> None:
    labels = {
        "working_sets": ("xlabel", "bits"),
        "energy": ("ylabel", "(J)"),
        "roofline": ("ylabel", "(op/s)"),
    }
    for kind, (axis, unit) in labels.items():
        ax = fused.plot(kind)
        assert unit in getattr(ax, f"get_{axis}")()
        ax.figure.canvas.draw()
    with faults("unknown-choice", "pie", at=""):
        fused.plot("pie")


def test_energy_plot_stacks_to_the_total(fused: Report) -> None:
    ax = fused.plot("energy")
    assert sum(patch.get_height() for patch in ax.patches) == pytest.approx(fused.total_energy)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        str(bars.get_label()) for bars in reversed(ax.containers)
    ], "as they are stacked"


def test_roofs_are_told_apart_by_their_lines() -> None:
    report = pm.evaluate(pm.load("gpt3_6.7B", "tpu_v4i", N_TOKENS=512))
    roofs = [line for line in report.plot("roofline").lines if line.get_linestyle() != "None"]
    assert len({line.get_label() for line in roofs}) == len(roofs) > 1
    assert len({str(line._unscaled_dash_pattern) for line in roofs}) == len(roofs)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bit", "0 b"),
        (1536, "bit", "1536 b"),
        (10_000, "bit", "10 kb"),
        (1536.0, "", "1536"),
        (0.39, "", "0.39"),
        (1.143e-10, "", "1.143e-10"),
        (1105.6, "bit", "1106 b"),
        (9999.7, "", "10 k"),
        (999_999, "bit", "1 Mb"),
        (123456789, "bit", "123.5 Mb"),
        (7.0e-12, "J", "7 pJ"),
        (9.9996e-10, "J", "1 nJ"),
        (352.0, "s", "352 s"),
        (float("inf"), "bit", "inf"),
        (1.1e-6, "m^2", "1.1 mm²"),
        (-2500.0, "J", "-2.5 kJ"),
        (1.25e32, "s", "125000000 Ys"),
        (1.7408e301, "s", "1.741e+277 Ys"),  # beyond all prefixes: not hundreds of digits
        (123456.0, "operation/bit", "123456 op/b"),
    ],
)
def test_engineering_numbers(value: float, unit: str, text: str) -> None:
    assert engineering(value, unit) == text


def test_headings_explain_themselves(fused: Report) -> None:
    from polymodel.view.table import TERMS

    page = fused.to_html(live=False, plots=False)
    for meaning in (TERMS["visits"], TERMS["drain_bits"], TERMS["slack_s"], Reuse.KEEP_PREVIOUS.moved):
        assert f'title="{meaning}"' in page


def test_ratios_are_plain_numbers(fused: Report, spread: Report) -> None:
    found = compare(fused, spread)
    ratios = [r for r in found.frame["ratio"] if r == r]
    assert any(0 < r < 1 for r in ratios)
    for text in (str(found), found._repr_html_()):
        for ratio in ratios:
            assert f"{ratio:.4g}" in text


def test_a_policy_without_figures_says_why() -> None:
    report = pm.evaluate(pm.load("edge_npu", "resnet_bottleneck_block/tiled_fused"))
    reuse = report.reuse
    assert reuse["refill_bits"].isna().all()
    assert reuse["left_out"].str.contains("refill is left out").all()
    assert "refill is left out" in str(report)
    assert (pm.evaluate(pm.load("matmul", "edge_npu")).reuse["left_out"] == "").all()


def test_a_looptree_can_be_read() -> None:
    tree = pm.load("simple_two_level", "attention/tiled_fused").template
    assert "for m, tile 8" in repr(tree)
    assert "((Softmax)) on MAC" in repr(tree)


def test_a_comparison_is_a_table_of_numbers(fused: Report, spread: Report) -> None:
    frame = compare(fused, spread).frame
    assert frame["a"].dtype == frame["b"].dtype == float
    energy = frame[(frame["quantity"] == "energy") & (frame["where"] == "")]
    assert energy["a"].item() == fused.total_energy
    assert frame.set_index("quantity").loc["feasible", "a"] == 1


def test_engines_say_what_they_are(fused: Report) -> None:
    report = pm.evaluate(pm.load("matmul", "edge_npu"))
    assert repr(report.engine) == "engine auto: closed forms where they apply, else relations"
    for name in ("exact", "symbolic"):
        found = pm.evaluate(pm.load("matmul", "edge_npu"), engine=name)
        assert repr(found.engine).startswith(f"engine {name}: ")
    assert repr(fused.engine).startswith(f"engine {fused.engine.name}: ")


PADDED = """
arch:
  nodes:
  - !Memory {name: DRAM, size: inf}
  - !Compute {name: MAC}
workload:
  rank_sizes: {H: 10, R: 3, P: 12, Q: 6}
  bits_per_value: {All: 8}
  einsums:
  - name: Conv
    tensor_accesses:
    - {name: I, projection: {H: p + r, Q: q}}
    - {name: F, projection: [r]}
    - {name: O, projection: [p, q], output: True}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [I, F, O]}
  - !Compute {einsum: Conv, component: MAC}
"""


@pytest.mark.slow
def test_outputs_that_are_written_in_part_are_noted(tmp_path: Path) -> None:
    """P is 12, of which H lets iterations reach 10: 2 rows of 6 are left out."""
    (tmp_path / "padded.yaml").write_text(PADDED)
    report = pm.evaluate(pm.load(str(tmp_path / "padded.yaml")))
    note = "O has 12 x 6 elements, 12 of which no iteration writes, e.g. O[10, 0]"
    assert report.notes == (note,)
    assert f"note: {note}\n" in str(report)
    assert note in report.to_html(live=False)
    assert json.loads(report.to_json(live=False))["notes"] == [note]
    assert pm.evaluate(pm.load("conv2d/row_bands", "simple_two_level")).notes == ()
