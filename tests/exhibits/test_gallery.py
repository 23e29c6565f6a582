"""Published results: every exhibit is computed, and the figures that are exact are equal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli.app import main
from polymodel.exhibits import (
    eyeriss,
    fused_layers,
    models,
    orojenesis,
    sparse_tiles,
    sparseloop,
    sparseloop_dram,
    sparseloop_pe,
)
from polymodel.exhibits.listed import EXHIBITS, exhibits
from polymodel.exhibits.nvdla import CORES, Core, evaluated, frames

# Exhibit -> the largest difference of a figure (a share) and how many figures have none.
AGREEMENT = {
    "fused_layers": (0.011, 0), "looptree": (0.0, 25), "timeloop_page": (0.0, 5), "bounds": (0.0, 1),
    "tensaurus": (0.43, 16), "eyeriss": (1.02, 5), "tiler_swift": (0.06, 2), "models": (0.011, 17),
    "passes": (0.0, 3), "extensor": (0.21, 9), "sigma": (0.12, 12), "outerspace": (0.9, 10),
    "gamma": (0.88, 8), "sparseloop": (0.19, 14), "nvdla": (0.38, 0), "highlight": (0.004, 3),
    "tailors": (0.97, 0), "drt": (0.09, 0), "sparseloop_pe": (0.066, 0),
    "sparseloop_dram": (0.04, 12), "sparse_tensor_core": (1.0, 11),
}  # fmt: skip


# Of these, every run tests the parts elsewhere.
LONG = (
    "sparseloop_dram",
    "tensaurus",
    "tiler_swift",
    "models",
    "sigma",
    "outerspace",
    "gamma",
    "sparseloop",
    "nvdla",
    "tailors",
    "drt",
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in AGREEMENT]
)
@pytest.mark.thin(99)
def test_an_exhibit_agrees_as_far_as_it_says(name: str) -> None:
    found = pm.gallery(name)
    most, equal = AGREEMENT[name]
    errors = [f.error for f in found.rows if f.error is not None]
    assert max(map(abs, errors)) <= most
    assert sum(e == 0 for e in errors) >= equal
    assert all(f.why for f in found.rows if f.error is None or abs(f.error) > 0)


@pytest.mark.slow
def test_bounds_of_orojenesis_lie_below_what_was_measured() -> None:
    found = pm.gallery("orojenesis")
    assert [f.error for f in found.rows[:2]] == [0, 0]
    assert all(f.error is not None and f.error < 0 for f in found.rows[2:])


def test_the_global_buffer_of_eyeriss_is_what_was_measured() -> None:
    found = {f.what: f for f in pm.gallery("eyeriss").rows}
    for layer in ("CONV1", "CONV2", "CONV3", "CONV4", "CONV5"):
        buffer = found[f"{layer}: global buffer"]
        assert isinstance(buffer.ours, float)
        assert abs(buffer.ours - float(buffer.published)) <= 0.05
        # Compression and waiting take away from what is moved, and add to the time.
        assert (found[f"{layer}: DRAM"].error or 0) > 0
        assert (found[f"{layer}: processing, no PE waits"].error or 0) < 0


def test_what_the_notes_of_eyeriss_say() -> None:
    """CONV3's own mapping moves more, other rules of counting disagree, and the GLB keeps PEs waiting."""
    found = {f.what: f for f in pm.gallery("eyeriss").rows}
    own = found["CONV3, mapping of the paper: global buffer"]
    assert own.ours == pytest.approx(69.2, abs=0.05)
    assert eyeriss.active(eyeriss.CONV3_OF_THE_PAPER) == 156
    frames = found["all: frames per second, no PE waits"]
    assert isinstance(frames.ours, float)
    assert 4e3 / sum(map(eyeriss.latency, eyeriss.LAYERS.values())) < 35 < frames.ours
    for layer, shape in eyeriss.LAYERS.items():
        buffer = float(found[f"{layer}: global buffer"].published)
        assert eyeriss.moved(shape, "GLB", ()) > buffer + 1
        assert eyeriss.moved(shape, "GLB", ("fill", "drain")) < buffer - 0.3
        limiting = {
            r["component"] for r in eyeriss.evaluated(shape).table("latency").records() if r["limiting"]
        }
        assert limiting == ({"PsumSpad"} if layer == "CONV1" else {"GLB"})
        assert eyeriss.packed(layer) == pytest.approx(float(found[f"{layer}: DRAM"].published), rel=0.06)


def test_the_roofline_of_the_tpu_lies_above_what_was_measured() -> None:
    peak, ridge, *applications = pm.gallery("tpu_v1").rows
    assert abs(peak.error or 1) < 0.005
    assert abs(ridge.error or 1) < 0.001
    assert all(f.error is not None and f.error > 0 for f in applications)


@pytest.mark.slow
@pytest.mark.parametrize("core", [CORES[4], *(pytest.param(c, marks=pytest.mark.slow) for c in CORES)])
def test_a_core_of_nvdla_has_room_for_the_bands_of_its_mapping(core: Core) -> None:
    assert evaluated(core).feasible
    assert frames(core) == pytest.approx(core.printed, rel=0.38)


def test_every_exhibit_says_where_it_is_printed() -> None:
    assert [e.name for e in exhibits()] == list(EXHIBITS)
    assert all(e.source and e.about and e.title for e in exhibits())


def test_the_command_lists_computes_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gallery"]) == 0
    assert all(name in capsys.readouterr().out for name in ("fused_layers",))
    page = tmp_path / "page.html"
    assert main(["gallery", "timeloop_page", "--html", str(page)]) == 0
    assert "49,152" in capsys.readouterr().out
    assert "Published figures, and ours" in page.read_text(encoding="utf-8")
    assert main(["gallery", "timeloop_page", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 5
    assert main(["gallery", "fused_layer"]) == 2


def test_out_saves_the_table_the_data_the_page_and_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gallery", "timeloop_page", "--out", str(tmp_path)]) == 0
    assert f"saved {tmp_path / 'gallery.html'}, and 1 table beside them" in capsys.readouterr().out
    names = ["figures.csv", "gallery.html", "gallery.json", "gallery.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert (tmp_path / "figures.csv").read_text(encoding="utf-8").count("49152") == 2
    for option in ("--out", "--html"):
        assert main(["gallery", option, str(tmp_path / "all")]) == 2


def test_the_picture_has_a_bar_for_each_figure_with_both() -> None:
    axes = pm.gallery("timeloop_page").plot()
    assert len(axes.patches) == 5


@pytest.mark.slow
def test_traffic_of_random_matrices_is_what_was_published() -> None:
    """By TeAAL's model; what accelerators were reported to take is longer, as nothing ever waits in ours."""
    for name, near in (("sigma", 0.01), ("outerspace", 0.05), ("gamma", 0.05)):
        found = [f for f in pm.gallery(name).rows if f.error is not None and not f.what.endswith("adds")]
        reported = [f.error or 0 for f in found if "as reported for" in f.what]
        assert max(reported) < 0
        rest = [abs(f.error or 0) for f in found if "as reported for" not in f.what]
        assert max(rest) < near


@pytest.mark.slow
def test_sparseloops_figure_is_theirs_with_the_coordinates_of_what_is_skipped() -> None:
    """At the one density of the figure at which each row has a whole number of nonzeros, and is short."""
    density = 0.1015625
    cycles, coordinates, masks = sparseloop.PRINTED[density]
    found = sparseloop.run(density, "coordinates")
    assert round(found.total_latency * 1e9) == cycles
    assert f"{found.total_energy * 1e6 + sparseloop.skipped_coordinates(found):.2f}" == f"{coordinates}"
    masked = sparseloop.run(density, "masks")
    # 128 x 128 outputs, each of which has a first value.
    assert round(masked.total_latency * 1e9) + 128 * 128 == sparseloop.MASK_CYCLES
    assert masked.total_energy * 1e6 == pytest.approx(masks, rel=0.006)


@pytest.mark.slow
def test_overbooked_and_dynamic_tiles_move_fewer_words_than_tiles_for_the_worst_case() -> None:
    """At the structure that the exhibits tile in least time."""
    moved: dict[sparse_tiles.Strategy, int] = {
        s: sparse_tiles.words("stencil", s) for s in ("worst case", "uniform", "overbooked", "dynamic")
    }
    assert moved["overbooked"] <= moved["uniform"] < moved["worst case"] / 2
    assert moved["dynamic"] < moved["worst case"] / 2
    # The largest square that fits full of points; one more does not.
    square = sparse_tiles.side(sparse_tiles.BUFFER)
    full = [2 * n * n + 2 * n + 3 for n in (square, square + 1)]
    assert full[0] <= sparse_tiles.BUFFER < full[1]


def test_cycles_of_a_sparse_element_are_sparseloops_and_less_than_on_the_data() -> None:
    for layer in ("L07", "L27"):
        *_, modelled, simulated = sparseloop_pe.PRINTED[layer]
        found = sparseloop_pe.cycles(layer)
        assert found == pytest.approx(modelled, rel=1e-4)
        assert found < simulated


def test_compressed_maps_are_those_of_sparseloops_stored_run() -> None:
    layer = sparseloop_dram.LAYERS["conv3"]
    found = sparseloop_dram.moved(layer)
    assert all(abs(ours - theirs) <= 1 for ours, theirs in zip(found.values, layer.read, strict=True))
    assert round(found.dense / found.compressed, 1) == layer.ratio


DOCUMENTS = Path(__file__).parents[2]
FIGURE = re.compile(r"\d[\d,]*\.?\d*")


def prose(path: str) -> str:
    """A page without its code blocks, as one line."""
    text = (DOCUMENTS / path).read_text(encoding="utf-8")
    return " ".join(re.sub(r"(?ms)^```.*?^```$", "", text).split())


def sentences() -> list[str]:
    """What the gallery says of Eyeriss between its tables, from figures that are computed here."""
    first, third = eyeriss.LAYERS["CONV1"], eyeriss.LAYERS["CONV3"]
    own, printed = eyeriss.CONV3_OF_THE_PAPER, eyeriss.PRINTED["CONV3"][3]
    buffer = {less: eyeriss.moved(first, "GLB", less) for less in ((), ("fill",), ("fill", "drain"))}
    every, less_fills, less_both = (f"{v:.2f}" for v in buffer.values())
    latencies = [eyeriss.latency(v) for v in eyeriss.LAYERS.values()]
    times = ", ".join(f"{t:.1f}" for t in latencies)
    rates = [4e3 / sum(t) for t in ([p[2] for p in eyeriss.PRINTED.values()], latencies)]
    dram, ratio = eyeriss.moved(first, "DRAM"), sparseloop_dram.LAYERS["conv1"].ratio
    more = eyeriss.moved(own, "GLB")
    return [
        f"For CONV1, all reads and writes are {every} MB, without fills {less_fills}, without fills and "
        f"drains {less_both}.",
        f"({third.channels * third.channel_sets} channels, {third.filter_sets} sets of filters: "
        f"{eyeriss.moved(third, 'GLB'):.1f} MB)",
        f"({own.channels * own.channel_sets} channels, {own.filter_sets} sets) it moves {more:.1f} MB, "
        f"{100 * (more / printed - 1):.0f} % more than the paper prints",
        f"longer from CONV2 on ({times.split(', ', 1)[1]} ms)",
        f"{dram:.2f} / {ratio} = {dram / ratio:.2f} MB for CONV1, where {eyeriss.PRINTED['CONV1'][4]} is "
        "printed",
        f"The printed processing times give {rates[0]:.1f}, more than the 35 of the abstract; the latencies "
        f"of the model give {rates[1]:.1f}.",
    ]


def test_figures_of_the_gallery_between_its_tables_are_those_computed() -> None:
    """And none with a decimal point stands in another sentence."""
    page, said = prose("docs/gallery.md"), sentences()
    assert not [s for s in said if s not in page]
    figures = {n for n in FIGURE.findall(page) if "." in n.rstrip(".")}
    assert figures == {n for s in said for n in FIGURE.findall(s) if "." in n.rstrip(".")}
    assert len(models.PUBLISHED) == 17
    assert "seventeen published models" in page


def test_figures_of_the_readme_are_those_computed() -> None:
    """Each row of its table `ours beside`: what is published, and what is computed here."""
    moved, peak = fused_layers.maps_off_chip("tiled_fused"), fused_layers.maps_on_chip()
    buffers = [f"{eyeriss.moved(v, 'GLB'):.1f}" for v in eyeriss.LAYERS.values()]
    own = eyeriss.moved(eyeriss.CONV3_OF_THE_PAPER, "GLB")
    least = orojenesis.LEAST  # equal to what is computed: test_bounds_of_orojenesis..., slow
    (formula, _) = pm.gallery("bounds").rows
    parameters = [models.parameters(m) for m in ("resnet_50", "llama3_8b")]
    ours = {
        "VGGNet-E": f"{moved / 2**20:.2f} MiB, {peak / 2**10:.0f} KiB ({moved / 1e6:.2f} MB, "
        f"{peak / 1e3:.0f} KB)",
        "Eyeriss": f"{', '.join(buffers)} MB; the third under the fourth's mapping, under its own {own:.1f}",
        "LoopTree's test": "the same 25",
        "Orojenesis": f"{least['unfused']:,}, {least['fused']:,}",
        "Hong and Kung": "2MNK/sqrt(S), as a formula",
        "ResNet-50": ", ".join(f"{n:,}" for n in parameters),
    }
    assert formula.ours == "2*K*M*N/sqrt(S)"
    assert [f.error for f in pm.gallery("looptree").rows] == [0] * 25
    rows = (DOCUMENTS / "README.md").read_text(encoding="utf-8").split("| published | theirs | ours |")[1]
    cells = [line.strip("| ").split(" | ") for line in rows.split("\n\n")[0].splitlines()[2:]]
    assert len(cells) == len(ours)
    for (what, _, computed), (name, expected) in zip(cells, ours.items(), strict=True):
        assert name in what
        assert computed == expected
