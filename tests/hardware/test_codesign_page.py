"""The page of a co-design: a point of a picture leads to its row, and that to its machine and mappings; and
what an answer says of areas that are not known."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.transforms import Bbox

import polymodel as pm
from polymodel.cost.records import RooflinePoint
from polymodel.report.plots import roofline_axes
from polymodel.report.plots_machines import machine_axes
from polymodel.view.figures import axes
from tests.hardware.small import small
from tests.hardware.test_codesign import changed
from tests.report.test_found_page import FILES
from tests.report.test_report_page import checked

HARDWARE = {"S": [128, 256, 512], "F": [1, 2]}


def test_points_of_pictures_lead_to_machines_and_their_mappings(tmp_path: Path) -> None:
    """Each shown mapping evaluates to what its point says; the file of its layer is the one that is saved."""
    spec = small()
    found = pm.codesign(spec, HARDWARE, objectives=["energy", "area"])
    text = found.to_html(tmp_path / "page.html")
    page = checked(text)
    drawn = text[text.index('id="plot-energy-against-area"') : text.index('id="plot-what-s-is-worth"')]
    rows = [int(n) for n in re.findall(r'href="#row-(\d+)"', drawn)]
    assert set(rows) == set(range(len(found)))
    assert {f"row-{i}" for i in rows} <= set(page.ids)
    files = dict(FILES.findall(text))
    for i, point in enumerate(found.points):
        assert f'href="#point-{i}"' in text
        start = text.index(f'id="point-{i}"')
        assert point.machine.name in text[start : start + 200]
        mapping = tmp_path / f"{i}.yaml"
        mapping.write_text(unescape(files[f"point-{i}-layer-0.yaml"]), encoding="utf-8")
        report = pm.evaluate(spec.bind(**point.machine.symbols).with_mapping(mapping))
        assert report.total_energy == pytest.approx(point.figures["energy"], rel=1e-12, abs=0)


def test_a_machine_without_area_has_its_front_over_the_objectives() -> None:
    """There is nothing to draw against area then: energy and latency are what the front is over."""
    spec = changed(changed(small(), "GLB", area=0), "PE", area=0)
    found = pm.codesign(spec, HARDWARE, objectives=["energy", "latency"])
    axes = found.plot()
    assert [axes.get_xlabel(), axes.get_ylabel()] == ["latency (s)", "energy (J)"]
    text = found.to_html()
    assert 'id="plot-energy-against-latency"' in text
    assert 'href="#row-0"' in text


def test_areas_that_only_some_machines_have_are_told() -> None:
    """As where a published table has areas of one node alone: machines are compared by what is known."""
    spec = changed(small(), "PE", area="1.0e-12 * max(0, F - 1)")
    found = pm.codesign(spec, {"S": [128], "F": [1, 2, 4]}, objectives=["energy", "area"])
    assert "PE has no area on 1 of 3 machines, and is 0 there" in found.notes
    assert len(pm.codesign(spec, {"S": [128], "F": [1, 2]}, objectives=["energy"]).notes) == 1


def test_no_step_of_a_front_crosses_a_name() -> None:
    """The last of three machines lies just below the step to it, whose end is where its name stood."""
    at = {"KIB=4, F=4": (12e-9, 37.5e-6), "KIB=4, F=16": (24e-9, 32.89e-6), "KIB=16, F=16": (48e-9, 32.65e-6)}
    machines = [(name, {"area": area, "energy": energy}) for name, (area, energy) in at.items()]
    ax = machine_axes(machines, "area", "energy", "", None)
    ax.figure.draw_without_rendering()
    assert {t.get_text() for t in ax.texts} == {*at}
    (step,) = ax.lines
    assert step.get_drawstyle() == "steps-post"
    best = list(step.get_transform().transform(step.get_xydata()))
    assert len(best) == 3
    along = [Bbox([(x, y), (right, y)]) for (x, y), (right, _) in pairwise(best)]
    down = [Bbox([(x, low), (x, y)]) for (_, y), (x, low) in pairwise(best)]
    boxes = [t.get_window_extent() for t in ax.texts]
    assert not any(Bbox.intersection(side, box) for side in along + down for box in boxes)


def test_the_name_of_a_roof_stands_on_its_slope() -> None:
    """Where the ridge is near the left end of the picture, too."""
    point = RooflinePoint("Z", "DRAM", "MAC", 8000, 3000, 8 / 3, 64e9, 16e9, 16e9, 16e9, "MAC")
    ax = roofline_axes([point], "", axes(None, 7.0, 4.4))
    (roof,) = (line for line in ax.lines if len(line.get_xdata()) == 3)
    (name,) = (t for t in ax.texts if t.get_text() == "DRAM")
    (_, ridge, _), (low, peak, _) = roof.get_data()
    x, y = name.xy
    assert x <= ridge
    assert low < y <= peak
