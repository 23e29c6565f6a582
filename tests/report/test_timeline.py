"""Timelines as tables, pictures and words, on two convolutions fused in 4 x 4 tiles, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.report.report import Report
from polymodel.report.timeline import table, timeline
from tests.conv_pair import pair_text
from tests.faults import refused

# F2 is 10 x 10 for 8 x 8 of F3; F1 12 x 12. One bit a value, so that bits are elements.
NODES = """
  - !Storage {component: GLB, tensors: [W1, W2]}
  - !Temporal {rank_variable: p2, tile_shape: 4}
  - !Storage {component: GLB, tensors: [F2], reuse: slide}
  - !Temporal {rank_variable: q2, tile_shape: 4}
  - !Storage {component: GLB, tensors: [F1], reuse: refill}
"""
SPEC = (
    pair_text(NODES.lstrip("\n")).replace("All: 8", "All: 1").replace("name: GLB,", "name: GLB, size: 300,")
)


@pytest.fixture
def report(tmp_path: Path) -> Report:
    file = tmp_path / "pair.yaml"
    file.write_text(SPEC)
    return pm.evaluate(pm.load(str(file)))


def test_a_row_per_iteration_of_the_innermost_loop(report: Report) -> None:
    """Layer 1 makes 6 x 6, 6 x 4, 4 x 6 and 4 x 4 of F2; F1 has a halo of 2 more, and goes after Layer 1."""
    frame = report.timeline("GLB")
    assert list(frame.columns) == [
        "phase", "einsum", "p2", "q2", "W1_bits", "W2_bits", "F2_bits", "F1_bits", "total_bits",
    ]  # fmt: skip
    assert list(frame["einsum"]) == ["Layer1", "Layer2"] * 4
    assert list(zip(frame["p2"], frame["q2"], strict=True))[::2] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert list(frame["F1_bits"]) == [64, 0, 48, 0, 48, 0, 36, 0]
    assert list(frame["F2_bits"]) == [60] * 8  # 6 of the 10 rows, the kept ones among them
    assert list(frame["W1_bits"]) == [9] * 7 + [0]  # not used any more
    assert list(frame["W2_bits"]) == [0] + [9] * 7
    assert list(frame["total_bits"]) == [133, 78, 126, 78, 126, 78, 114, 69]
    assert frame.attrs["units"]["F2_bits"] == "bit"


TWICE = """
workload:
  rank_sizes: {M: 8, RANK: 4}
  bits_per_value: {All: 8}
  einsums:
  - name: Z
    tensor_accesses:
    - {name: A_x, projection: [m]}
    - {name: Z, projection: [m, VAR], output: true}
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, actions: [{name: read}, {name: write}]}
  - !Memory {name: GLB, size: 4096, actions: [{name: read}, {name: write}]}
  - !Compute {name: MAC, actions: [{name: compute}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A_x, Z]}
  - !Temporal {rank_variable: m, tile_shape: 4}
  - !Storage {component: GLB, tensors: [A_x, Z]}
  - !Temporal {rank_variable: VAR, tile_shape: 1}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Compute {einsum: Z, component: MAC}
"""


@pytest.mark.parametrize(("variable", "outer"), [("n", "m_0"), ("m_0", "m__0")])
def test_loops_are_called_in_the_table_as_in_the_peak(variable: str, outer: str, tmp_path: Path) -> None:
    """Two loops over m are m_0 and m_1, unless a rank variable has such a name; A_x keeps its underscore."""
    file = tmp_path / "spec.yaml"
    file.write_text(TWICE.replace("VAR", variable).replace("RANK", variable.upper()))
    report = pm.evaluate(pm.load(file))
    heads = table(report.problem, timeline(report, "GLB")).text(indent="").splitlines()[0].split()
    assert heads == ["phase", "einsum", outer, variable, "m_1", "A_x", "Z", "total"]
    assert f"at {outer} = 0, {variable} = 0, m_1 = 0" in str(report.peak("GLB"))


def test_the_peak_is_that_of_the_working_sets(report: Report) -> None:
    for measure in ("tile", "live"):
        rows = report.table("working_sets").where(
            lambda r, m=measure: (r["component"], r["measure"]) == ("GLB", m)
        )
        frame = report.timeline("GLB", measure)
        peaks = frame.groupby("einsum")["total_bits"].max()
        assert dict(zip(rows.column("einsum"), rows.column("bits"), strict=True)) == dict(peaks)


def test_live_elements_go_with_their_last_use(report: Report) -> None:
    """In the last phase only its own 6 x 6 window of F2 is wanted yet; under `tile` all 6 x 10 stay."""
    last = report.timeline("GLB", "live").iloc[-1]
    assert (last["einsum"], last["W1_bits"], last["W2_bits"], last["F2_bits"]) == ("Layer2", 0, 9, 36)
    assert last["total_bits"] == 45


def test_the_peak_in_words(report: Report) -> None:
    lines = str(report.peak("GLB")).splitlines()
    assert lines[0] == (
        "GLB holds most, 133 b (44.3 % of 300 b), in phase 0 of 0 to 7: Layer1 at p2 = 0, q2 = 0; "
        "measured: whole tiles while resident"
    )
    assert lines[1] == "  as much is held in no other phase"
    assert lines[2] == (
        "  F1 (node 5): 64 b, 48.1 %, its largest; Layer1 reads it, stored below the loop over q2 (tile 4)"
    )
    assert lines[3] == (
        "  F2 (node 3): 60 b, 45.1 %, its largest; Layer1 writes it for Layer2, "
        "stored below the loop over p2 (tile 4)"
    )
    assert len(lines) == 5


def test_why_others_are_there(report: Report) -> None:
    found = report.peak("DRAM")
    reasons = {h.tensor: h.reason for h in found.held}
    assert (found.einsum, found.phase, found.reached) == ("Layer2", 1, 6)
    kept = "Layer1 uses it in other iterations of the loop over p2, stored above all loops"
    assert reasons["F1"] == reasons["W1"] == kept
    assert reasons["F3"] == "Layer2 writes it, stored above all loops"
    assert sum(h.bits for h in found.held) == found.bits == 144 + 9 + 9 + 64


def test_the_picture_shows_tensors_capacity_and_peak(report: Report) -> None:
    ax = report.plot_timeline("GLB")
    texts = " ".join(t.get_text() for t in ax.texts)
    assert "peak 133 b in phase 0, Layer1" in texts
    assert "capacity 300 b" in texts
    legend = ax.get_legend()
    assert legend is not None
    assert {"F1", "F2", "W1", "W2", "Layer1", "Layer2"} <= {t.get_text() for t in legend.get_texts()}
    assert "(bits)" in ax.get_ylabel()
    assert len(ax.collections) >= 4


def test_inner_loops_are_joined_where_phases_are_too_many(report: Report) -> None:
    with refused("too-large"):
        report.timeline("GLB", limit=7)
    assert len(report.timeline("GLB", limit=8)) == 8


@pytest.mark.parametrize(
    ("component", "measure", "fault"),
    [("MAC", "tile", "no memory 'MAC' to follow"), ("GLB", "size", "no measure 'size'")],
)
def test_other_components_and_measures_are_told(
    report: Report, component: str, measure: str, fault: str
) -> None:
    with pytest.raises(SpecError, match=fault):
        report.timeline(component, measure)  # type: ignore[arg-type]  # a wrong one is the point


def test_a_pipeline_has_no_phases_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    text = SPEC.replace("!Sequential", "!Pipeline").replace(
        "Layer2, component: MAC", "Layer2, component: ALU"
    )
    file.write_text(text.replace("  - !Compute {name", "  - !Compute {name: ALU}\n  - !Compute {name"))
    found = pm.evaluate(pm.load(str(file)))
    with refused("unsupported-pipeline", "timeline"):
        found.timeline("GLB")
