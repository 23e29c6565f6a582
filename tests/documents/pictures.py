"""Pictures of README.md and of pages: `python -m tests.documents.pictures` draws them anew.

A front of fused attention over energy and buffer, the LoopTree of its best mapping, and the traffic of causal
FlashAttention by the size of the buffer.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib as mpl

import polymodel as pm
from tests.documents.page import ROOT

FOLDER = ROOT / "docs" / "_static"
FRONT, TREE, CAUSAL = FOLDER / "front.svg", FOLDER / "looptree.svg", FOLDER / "causal.svg"
PAGE = ROOT / "docs" / "howto" / "sweep.md"
LENGTHS = (1024, 4096, 16384)


def causal() -> None:
    """DRAM traffic of the page's causal FlashAttention over all tiles, by the buffer that these need."""
    from matplotlib import pyplot as plt

    text = PAGE.read_text().partition("# file: flash.yaml\n")[2].partition("```")[0]
    tiles = [2**k for k in range(3, 11)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "flash.yaml"
        file.write_text(text)
        spec = pm.load("simple_two_level", str(file))
        grid = {"L": LENGTHS, "TM": tiles, "TN": tiles}
        found = pm.sweep(spec, grid, objectives=["accesses:DRAM", "working_set:GLB"], keep="all").frame
    figure, axes = plt.subplots(figsize=(6, 3.5))
    for length in LENGTHS:
        rows = found[found["L"] == length].sort_values(["working_set:GLB", "accesses:DRAM"])
        rows = rows[rows["accesses:DRAM"] < rows["accesses:DRAM"].cummin().shift(fill_value=float("inf"))]
        kib, gib = rows["working_set:GLB"] / 8 / 2**10, rows["accesses:DRAM"] / 8 / 2**30
        axes.step(kib, gib, where="post", marker="o", markersize=3, label=f"{length:,} tokens")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("GLB that is needed [KiB]")
    axes.set_ylabel("DRAM traffic [GiB]")
    axes.set_title("Causal FlashAttention: best tiles for each buffer", fontsize=10)
    axes.legend(fontsize=8)
    figure.savefig(CAUSAL, bbox_inches="tight", metadata={"Date": None})


def front() -> None:
    """The front of attention, so small that its letters can be read in half the width of README.md."""
    from matplotlib import pyplot as plt

    found = pm.explore(pm.load("attention", "simple_two_level"), objectives=["energy", "working_set:GLB"])
    figure, axes = plt.subplots(figsize=(4.6, 3.8))
    found.plot("working_set:GLB", "energy", ax=axes)
    axes.set_title("Attention: every mapping that no other beats", fontsize=10)
    figure.savefig(FRONT, bbox_inches="tight", metadata={"Date": None})


def main() -> None:
    """Draw them all."""
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "polymodel"  # the same bytes each time
    front()
    pm.draw_looptree(pm.load("attention", "simple_two_level", "attention/tiled_fused")).save(TREE)
    causal()


if __name__ == "__main__":
    main()
