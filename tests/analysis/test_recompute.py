"""Fused convolutions and matmuls by hand: what is recomputed when the halo is dropped, what is held."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.analysis.result import Analysis
from tests.conv_pair import COLUMNS, HOLD, ROWS, pair_text
from tests.faults import faults


def pair(folder: Path, nodes: str, *, side: int = 8, engine: str = "exact") -> Analysis:
    text = pair_text(nodes, side=side)
    file = folder / "pair.yaml"
    file.write_text(text)
    return pm.evaluate(pm.load(str(file)), engine=engine).analysis


def operations(found: Analysis) -> dict[str, int]:
    return {c.einsum: c.operations for c in found.compute}


# F2 is 10 x 10; a 4 x 4 tile of F3 needs a 6 x 6 window of it; two tiles along each side.
@pytest.mark.parametrize("engine", ["exact", "enumerate", "auto"])
@pytest.mark.parametrize(
    ("nodes", "made"),
    [
        (ROWS + HOLD.replace("POLICY", "refill") + COLUMNS, 2 * 6 * 10),  # both row tiles make 6 rows
        (ROWS + HOLD.replace("POLICY", "slide") + COLUMNS, 10 * 10),  # the second keeps two rows
        (ROWS + COLUMNS + HOLD.replace("POLICY", "refill"), 4 * 6 * 6),  # every tile makes its window
        (ROWS + COLUMNS + HOLD.replace("POLICY", "slide"), 2 * (6 * 6 + 6 * 4)),  # keeps two columns
        # Over the wrap from (0, 1) to (1, 0) rows 4-5 of columns 4-5 stay too: 2 x 2 fewer.
        (ROWS + COLUMNS + HOLD.replace("POLICY", "keep_previous"), 2 * (6 * 6 + 6 * 4) - 4),
        (HOLD.replace("POLICY", "refill") + ROWS + COLUMNS, 10 * 10),  # all of F2 held: made once
    ],
)
@pytest.mark.thin(3)
def test_what_the_producer_executes(tmp_path: Path, nodes: str, made: int, engine: str) -> None:
    assert operations(pair(tmp_path, nodes, engine=engine)) == {"Layer1": 9 * made, "Layer2": 9 * 64}


@pytest.mark.parametrize("engine", ["exact", "enumerate"])
def test_recomputation_reads_its_inputs_again_and_starts_afresh(tmp_path: Path, engine: str) -> None:
    found = pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", "refill"), engine=engine)
    rows = {(t.einsum, t.tensor): t for t in found.traffic}
    made = 4 * 36
    assert rows["Layer1", "F1"].reads == 9 * made
    assert rows["Layer1", "F2"].writes == 9 * made
    assert rows["Layer1", "F2"].reads == 8 * made  # no partial sum is read at the first of nine additions
    assert rows["Layer2", "F2"].reads == 9 * 64
    (buffet,) = (b for b in found.buffets if b.tensor == "F2")
    assert (buffet.tile_max, buffet.visits, buffet.tile_total) == (36, 4, 4 * 36)


def test_a_loop_over_the_consumers_channels_makes_once_or_again(tmp_path: Path) -> None:
    """A loop that indexes neither F2 nor what makes it: held above it F2 is made once, below it each time."""
    loop = (
        "  - !Temporal {rank_variable: r2, tile_shape: 3}\n  - !Temporal {rank_variable: s2, tile_shape: 3}\n"
    )
    inside = "  - !Temporal {rank_variable: s2, tile_shape: 1}\n"
    above = pair(tmp_path, HOLD.replace("POLICY", "refill") + loop + inside)
    assert operations(above)["Layer1"] == 9 * 100
    below = pair(tmp_path, loop + inside + HOLD.replace("POLICY", "refill"))
    # Each value of s2 needs 8 of the 10 columns.
    assert operations(below)["Layer1"] == 9 * 3 * 10 * 8


def test_a_reduction_above_the_decision_is_refused(tmp_path: Path) -> None:
    nodes = "  - !Temporal {rank_variable: r1, tile_shape: 1}\n" + ROWS + HOLD.replace("POLICY", "slide")
    with faults("illegal-dependence", "Layer2", "r1", "Layer1", at="mapping"):
        pair(tmp_path, nodes)


def test_layers_of_the_published_figures(tmp_path: Path) -> None:
    """18 x 18 of F2 for 16 x 16 of F3 in 4 x 4 tiles: a third more when rows between tiles are dropped."""
    kept = pair(tmp_path, ROWS + HOLD.replace("POLICY", "slide") + COLUMNS, side=16)
    dropped = pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", "slide"), side=16)
    assert operations(kept)["Layer1"] == 9 * 324
    assert operations(dropped)["Layer1"] == 9 * 432


def test_storage_below_own_loops_holds_what_their_iteration_makes(tmp_path: Path) -> None:
    """The six rows of F2 are made in the first step of the second loop and read in both."""
    tied = "  - !Temporal {rank_variable: {Layer1: p1, Layer2: q2}, tile_shape: 6}\n"
    with faults("illegal-dependence", "Layer2", "F2", "p1", at="mapping"):
        pair(tmp_path, ROWS + tied + HOLD.replace("POLICY", "refill"))


def test_a_loop_of_one_step_repeats_nothing(tmp_path: Path) -> None:
    nodes = "  - !Temporal {rank_variable: r1, tile_shape: 3}\n" + HOLD.replace("POLICY", "refill")
    assert operations(pair(tmp_path, nodes)) == {"Layer1": 900, "Layer2": 576}


@pytest.mark.parametrize("engine", ["exact", "enumerate"])
def test_a_repeated_reader_of_what_the_first_step_makes(tmp_path: Path, engine: str) -> None:
    """Layer2 has only 2 x 2 outputs, which need rows 0 to 3 of F2: the first step of p1 makes them."""
    nodes = HOLD.replace("POLICY", "refill") + "  - !Temporal {rank_variable: p1, tile_shape: 5}\n"
    text = pair_text(nodes, side=2, made=10)
    file = tmp_path / "part.yaml"
    file.write_text(text)
    found = pm.evaluate(pm.load(str(file)), engine=engine).analysis
    assert operations(found) == {"Layer1": 900, "Layer2": 2 * 36}


def test_each_instance_makes_what_its_own_iterations_read(tmp_path: Path) -> None:
    """Row r of the filter has an instance of its own; its rows of F2 start at r: step by step they match."""
    spread = "  - !Spatial {rank_variable: r2, tile_shape: 1, component: PE, name: X}\n"
    tied = "  - !Temporal {rank_variable: {Layer1: p1, Layer2: p2}, tile_shape: 1}\n"
    nodes = spread + tied + HOLD.replace("POLICY", "refill").replace("GLB", "RF")
    more = "  - !Container {name: PE, spatial: [{name: X, fanout: 3}]}\n  - !Memory {name: RF, actions: []}\n"
    text = pair_text(nodes).replace("  - !Compute {name: MAC", more + "  - !Compute {name: MAC")
    file = tmp_path / "spread.yaml"
    file.write_text(text)
    spec = pm.load(str(file))
    found = {e: operations(pm.evaluate(spec, engine=e).analysis) for e in ("exact", "enumerate")}
    assert found["exact"] == found["enumerate"] == {"Layer1": 9 * 3 * 8 * 10, "Layer2": 576}
